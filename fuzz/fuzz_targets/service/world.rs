//! The agent, the programs that use it, and what is left of them.

use std::array;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

use distlock_agent::protocol::{Failure, NodeId, Release, Settings};
use distlock_agent::runtime::frames::ToAgent;
use distlock_agent::runtime::{Address, Agent, Driver, Endpoint, Options};

use super::caller::Caller;
use super::ledger::{LOCKS, Ledger};
use super::system::Clock;
use super::{CALLERS, ENOUGH, Plan, Scarce};

/// When time begins: later than the system's clock will ever show, by which the agent's timer goes.
/// Nobody waits for that.
const START: Duration = Duration::from_secs(3_600_000_000);
pub(super) const LEASE: Duration = Duration::from_secs(10);
/// In how many seconds a group of one has founded itself, and has a leader for its views.
const FOUNDED: usize = 6;
/// Descriptors that clients must leave to the agent.
const RESERVED: u64 = 16;
/// In how many rounds everybody is served who waits; after how many of them time passes in each, and
/// how much.
const ROUNDS: usize = 4_000;
const AT_ONCE: usize = 200;
const A_WHILE: Duration = Duration::from_millis(10);

pub(super) struct World {
    agent: Agent,
    driver: Driver,
    clock: Clock,
    socket: PathBuf,
    callers: [Option<Caller>; CALLERS],
    ledger: Ledger,
    connected: u32,
    /// How many messages may still be said by the hundred.
    left: usize,
    /// If descriptors may be refused.
    limit: Option<Limit>,
    /// Whether a lease bounds what is granted.
    has_leases: bool,
    /// Whether the session is over.
    is_over: bool,
    _directory: TempDir,
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        // In memory: a member writes its state to disk some twenty times.
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let clock = Clock::stop(START);
        let me = NodeId::new(1).expect("not 0");
        let address = Address::unix(directory.path().join("1")).expect("a short path");
        let socket = directory.path().join("s");
        let locks = LOCKS.iter();
        let settings = Settings {
            lease: LEASE,
            failure: plan.failure,
            locks: locks
                .filter_map(|lock| Some((lock.name(), lock.listed()?)))
                .collect(),
            ..Settings::new("fuzz")
        };
        let (members, state) = (
            BTreeMap::from([(me, address)]),
            directory.path().join("state"),
        );
        let (agent, driver) = Agent::driven(Options {
            socket: Some(Endpoint::Path(socket.clone())),
            ..Options::new(me, members, settings, state)
        })
        .expect("an agent");
        let mut world = Self {
            agent,
            driver,
            clock,
            socket,
            callers: array::from_fn(|_| None),
            ledger: Ledger::default(),
            connected: 0,
            left: ENOUGH,
            limit: None,
            has_leases: plan.failure == Failure::Quorum,
            is_over: false,
            _directory: directory,
        };
        for _ in 0..FOUNDED {
            world.pass(Duration::from_secs(1));
        }
        world.limit = plan.scarce.map(Limit::set);
        world
    }

    /// Whether the session is over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// How many of so many messages may be said at once: an input must end soon.
    pub(super) fn allow(&mut self, messages: usize) -> usize {
        let allowed = messages.min(self.left);
        self.left -= allowed;
        allowed
    }

    /// Whether programs may open four descriptors more.
    pub(super) fn has_room(&self) -> bool {
        let limit = self.limit.as_ref();
        limit.is_none_or(|limit| descriptors() + limit.left < limit.now)
    }

    pub(super) fn with_caller(&mut self, slot: usize, act: impl FnOnce(&mut Caller, &mut Ledger)) {
        if let Some(caller) = &mut self.callers[slot] {
            act(caller, &mut self.ledger);
        }
    }

    /// Has a program connect, if there is none.
    pub(super) fn connect(&mut self, slot: usize) {
        if self.callers[slot].is_none() && self.has_room() {
            self.connected += 1;
            let caller = Caller::connect(self.connected, &self.socket);
            self.callers[slot] = Some(caller.expect("a connection"));
        }
    }

    /// The program ends.
    pub(super) fn close(&mut self, slot: usize) {
        if let Some(caller) = self.callers[slot].take() {
            caller.close(&mut self.ledger);
        }
    }

    /// Time passes, of which the agent knows.
    pub(super) fn pass(&mut self, time: Duration) {
        self.clock.pass(time);
        self.rounds(2);
    }

    /// The agent stands still for longer than its lease, twice: the first time it finds that nobody
    /// else is in the way.
    pub(super) fn stall(&mut self) {
        for _ in 0..2 {
            self.clock.pass(LEASE * 2);
            self.rounds(1);
        }
        if self.has_leases {
            self.ledger.stalls();
        }
    }

    /// Has the agent do what there is to do, so many times.
    pub(super) fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.is_over |= self.driver.process().is_err();
        }
    }

    /// Has the program read so many bytes at most. If its stream is at its end, it is gone.
    pub(super) fn read(&mut self, slot: usize, most: usize) {
        // Who is cut off is not inside any more, also if it has not read that far.
        for caller in self.callers.iter_mut().flatten() {
            if caller.is_cut_off() {
                self.ledger.goes(caller.number());
            }
        }
        let Some(caller) = &mut self.callers[slot] else {
            return;
        };
        if caller.read(most, &mut self.ledger) {
            let may_end = self.is_over || (self.limit.is_some() && caller.may_be_refused());
            assert!(
                !caller.is_sound() || may_end,
                "who keeps to the rules is cut off"
            );
            self.close(slot);
        }
    }

    pub(super) fn read_all(&mut self) {
        for slot in 0..CALLERS {
            self.read(slot, usize::MAX);
        }
    }

    /// Whoever keeps to the rules is served. Then all go, and nothing is left.
    pub(super) fn end(mut self) {
        // Whom it has refused may be told so still.
        self.rounds(1);
        self.read_all();
        drop(self.limit.take());
        for slot in 0..CALLERS {
            let caller = self.callers[slot].as_ref();
            if caller.is_some_and(|caller| !caller.is_sound()) {
                self.close(slot);
            }
        }
        self.until("who does not wait is answered", |world| {
            world.send_and_read();
            world.ledger.impatient().is_none()
        });
        self.serve_all();
        self.until("only they are there", Self::is_told_right);
        self.until("all agree who leads", |world| {
            world.read_all();
            world.do_all_agree_who_leads()
        });
        self.read_all();
        let is_there = self.callers.iter().any(Option::is_some);
        assert!(!self.is_over || !is_there, "it is not told of the end");
        let has_lost = self.ledger.has_lost();
        assert!(self.is_over || !has_lost, "a lock is lost for no reason");
        (0..CALLERS).for_each(|slot| self.close(slot));
        self.ledger = Ledger::default();
        self.until("nothing is left", Self::is_told_right);
        self.agent.leave();
        self.until("it has left", |_| false);
        let Self {
            agent,
            driver,
            clock,
            ..
        } = self;
        drop((agent, driver));
        drop(clock);
    }

    /// Who observes an election knows who leads, also after it did not read for a while.
    fn do_all_agree_who_leads(&self) -> bool {
        let mut known = BTreeMap::new();
        let mut told = self.callers.iter().flatten().flat_map(Caller::leaders);
        told.all(|(lock, leader)| *known.entry(lock).or_insert(leader) == leader)
    }

    /// Whether the agent says that those are connected who are, and, if nobody is, that no lock is
    /// taken or waited for.
    fn is_told_right(&mut self) -> bool {
        let there = self.callers.iter().flatten().count() as u64;
        let Ok(status) = self.agent.status() else {
            return false;
        };
        let connected = status.clients.map_or(0, |clients| clients.connected);
        connected == there && (there > 0 || status.locks.is_empty())
    }

    /// Until all who wait are inside, one after another, or refused, and all questions are answered.
    fn serve_all(&mut self) {
        self.until("all are served", |world| {
            for (number, id) in world.ledger.inside() {
                let callers = world.callers.iter_mut().flatten();
                for caller in callers.filter(|caller| caller.number() == number) {
                    let how = Release::Given;
                    caller.say(ToAgent::Release { id, how }, &mut world.ledger);
                }
            }
            world.ledger.drop_writers_left();
            world.send_and_read();
            let mut callers = world.callers.iter().flatten();
            callers.all(|caller| caller.due().is_none()) && world.ledger.owes().is_none()
        });
    }

    fn send_and_read(&mut self) {
        for caller in self.callers.iter_mut().flatten() {
            caller.send(usize::MAX, &mut self.ledger);
        }
        self.read_all();
    }

    /// Has the agent go on until `is_done`, or its session is over.
    fn until(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) {
        for round in 0..ROUNDS {
            if self.is_over || is_done(self) {
                return;
            }
            self.rounds(1);
            if round >= AT_ONCE {
                self.pass(A_WHILE);
            }
        }
        let callers = self.callers.iter().flatten();
        let due: Vec<_> = callers.map(Caller::due).collect();
        panic!("not until {what}: {due:?}, {:?}", self.ledger.owes());
    }
}

/// How many descriptors this process may have, until this is dropped.
struct Limit {
    now: u64,
    /// How many of those programs leave.
    left: u64,
    before: u64,
    most: u64,
}

impl Limit {
    fn set(scarce: Scarce) -> Self {
        let Scarce { more, left } = scarce;
        let now = descriptors() + RESERVED + more;
        let (before, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, now, most).expect("a lower limit");
        Self {
            now,
            left,
            before,
            most,
        }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_NOFILE, self.before, self.most).expect("the limit before");
    }
}

/// How many descriptors this process has.
pub(super) fn descriptors() -> u64 {
    let all = fs::read_dir("/proc/self/fd").expect("the descriptors");
    // One is what they are read with.
    all.count() as u64 - 1
}
