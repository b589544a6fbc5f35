//! The resource that the locks protect: it accepts a write unless it has seen a higher fence, and
//! logs what it decides. And the place where the laboratory learns who is inside.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::history::Mode;
use crate::laboratory::PATIENCE;

/// With its verdict the resource tells the writer what the laboratory would like.
pub(crate) const STAY: &str = "stay";
const LEAVE: &str = "leave";

/// Who asks: a way in on a host, and the lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entrance {
    pub(crate) host: u16,
    pub(crate) way: String,
    pub(crate) lock: String,
}

/// A process inside.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) host: u16,
    pub(crate) way: String,
    pub(crate) who: String,
    pub(crate) pid: i32,
    /// Since when nobody else has written.
    pub(crate) since: u64,
}

/// The resource's own socket and log, in `directory`.
pub(crate) struct Resource {
    shared: Arc<Shared>,
    path: PathBuf,
}

struct Shared {
    state: Mutex<State>,
    written: Condvar,
    /// Whether those inside are asked to stay.
    is_inviting: AtomicBool,
    is_closed: AtomicBool,
}

struct State {
    log: File,
    /// How many may hold each lock.
    permits: BTreeMap<String, usize>,
    /// The highest fence of somebody alone.
    highest: BTreeMap<String, u64>,
    /// How many writes came through each entrance.
    writes: BTreeMap<Entrance, u64>,
    /// Who wrote last, of each host and way.
    last: BTreeMap<(u16, String), Writer>,
    /// Who wrote last of all.
    newest: Option<Writer>,
    count: u64,
    refused: u64,
}

impl Resource {
    pub(crate) fn new(socket: &Path, log: &Path, permits: BTreeMap<String, usize>) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket");
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                log: File::create(log).expect("a log"),
                permits,
                highest: BTreeMap::new(),
                writes: BTreeMap::new(),
                last: BTreeMap::new(),
                newest: None,
                count: 0,
                refused: 0,
            }),
            written: Condvar::new(),
            is_inviting: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if own.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, shared) = (stream.expect("a client"), Arc::clone(&own));
                // As many as there are clients, which are few.
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self {
            shared,
            path: socket.to_owned(),
        }
    }

    /// From now on asks those inside to stay, or not any more.
    pub(crate) fn invite(&self, is_inviting: bool) {
        self.shared
            .is_inviting
            .store(is_inviting, Ordering::Relaxed);
    }

    /// How often was written through each entrance.
    pub(crate) fn writes(&self) -> BTreeMap<Entrance, u64> {
        self.shared.lock().writes.clone()
    }

    /// Waits until all of `entrances` have been written through oftener than `before` says. Who
    /// has not after `patience` is told.
    pub(crate) fn await_writes(
        &self,
        entrances: &[Entrance],
        before: &BTreeMap<Entrance, u64>,
        patience: Duration,
    ) -> Result<(), Vec<Entrance>> {
        let start = now_ns();
        let mut state = self.shared.lock();
        loop {
            let is_missing =
                |entrance: &&Entrance| state.writes.get(entrance) <= before.get(entrance);
            let missing: Vec<_> = entrances.iter().filter(is_missing).cloned().collect();
            let waited = Duration::from_nanos(now_ns() - start);
            if missing.is_empty() {
                return Ok(());
            }
            let Some(left) = patience.checked_sub(waited) else {
                return Err(missing);
            };
            let woken = self.shared.written.wait_timeout(state, left);
            state = woken.expect("the resource goes on").0;
        }
    }

    /// Waits for the next write of `way` on `host`, and gives the writer, who is inside then;
    /// `None` if there is none for `patience`.
    pub(crate) fn await_writer(&self, host: u16, way: &str, patience: Duration) -> Option<Writer> {
        let key = (host, way.to_owned());
        let mut state = self.shared.lock();
        state.last.remove(&key);
        let waiting = self
            .shared
            .written
            .wait_timeout_while(state, patience, |state| !state.last.contains_key(&key));
        waiting
            .expect("the resource goes on")
            .0
            .last
            .get(&key)
            .cloned()
    }
}

impl Resource {
    /// Has whoever is inside stay there, and tells who it is.
    pub(crate) fn hold(&self) -> Writer {
        self.invite(true);
        let before = self.shared.lock().count;
        // Who writes from now on is asked to stay.
        self.await_state(|state| state.count > before)
    }

    /// Waits until the newest writer is not `other`, and gives it.
    pub(crate) fn await_other(&self, other: &Writer) -> Writer {
        self.await_state(|state| state.newest.as_ref().is_some_and(|it| it.who != other.who))
    }

    /// Waits until something has been written that `is_enough`, and gives the newest writer.
    fn await_state(&self, is_enough: impl Fn(&State) -> bool) -> Writer {
        let state = self.shared.lock();
        let waiting = self
            .shared
            .written
            .wait_timeout_while(state, PATIENCE, |it| !is_enough(it));
        let (state, waited) = waiting.expect("the resource goes on");
        assert!(!waited.timed_out(), "nobody enters in {PATIENCE:?}");
        state.newest.clone().expect("it was awaited")
    }

    /// How many writes were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.shared.lock().refused
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = UnixStream::connect(&self.path);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the resource goes on")
    }

    /// Until the client has gone.
    fn serve(&self, stream: UnixStream) {
        let Ok(mut answers) = stream.try_clone() else {
            return;
        };
        let mut requests = BufReader::new(stream);
        let mut line = String::new();
        // A line without an end is of a client that was killed.
        while requests.read_line(&mut line).is_ok() && line.ends_with('\n') {
            let verdict = self
                .lock()
                .write(line.trim_end())
                .expect("a line of a client");
            line.clear();
            let is_inviting = self.is_inviting.load(Ordering::Relaxed);
            let wish = if is_inviting { STAY } else { LEAVE };
            self.written.notify_all();
            // A client that was killed wants no answer.
            if answers
                .write_all(format!("{verdict} {wish}\n").as_bytes())
                .is_err()
            {
                return;
            }
        }
    }
}

impl State {
    /// `WHO STAY LOCK MODE FENCE PID`, where WHO is `HOST.WAY.INCARNATION`.
    fn write(&mut self, line: &str) -> Option<&'static str> {
        let (write, pid) = line.rsplit_once(' ')?;
        let [who, _, lock, mode, fence] = write.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let [host, way, _] = who.split('.').collect::<Vec<_>>().try_into().ok()?;
        let (host, fence) = (host.parse().ok()?, fence.parse::<u64>().ok()?);
        let highest = self.highest.entry(lock.to_owned()).or_default();
        // With several permits fences order nothing.
        let is_ordered = self.permits.get(lock) == Some(&1);
        let is_accepted = !is_ordered || *highest <= fence;
        if is_accepted && mode == Mode::Exclusive.name() {
            *highest = fence;
        }
        let verdict = if is_accepted { "accepted" } else { "refused" };
        writeln!(self.log, "write {write} {verdict}").expect("room for the log");
        self.refused += u64::from(!is_accepted);
        let entrance = Entrance {
            host,
            way: way.to_owned(),
            lock: lock.to_owned(),
        };
        *self.writes.entry(entrance).or_default() += 1;
        let newest = self.newest.take().filter(|newest| newest.who == who);
        let writer = Writer {
            host,
            way: way.to_owned(),
            who: who.to_owned(),
            pid: pid.parse().ok()?,
            since: newest.map_or_else(now_ns, |newest| newest.since),
        };
        self.newest = Some(writer.clone());
        self.count += 1;
        self.last.insert((host, way.to_owned()), writer);
        Some(verdict)
    }
}
