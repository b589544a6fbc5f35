//! The local group under SIGKILL and SIGSTOP: twenty processes, judged by a log that knows nothing
//! of distlock.
//!
//! Each runs for five seconds; `DISTLOCK_TORTURE_SECS=30` gives the whole half minute.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use distlock::{Agent, DistMutex, PreviousOwner};
use nix::sys::signal::Signal;

use crate::process::{Process, now_ns};

const PROCESSES: usize = 20;

/// Enters again and again, as competitor `number`. A line of the log is written whole, also if
/// the writer is killed. The file `inside` says who is.
pub(crate) fn compete(directory: &Path, number: u32) {
    let agent = Agent::local_in(directory.join("group")).unwrap();
    let mutex = agent.mutex("x").unwrap();
    let mut log = OpenOptions::new()
        .append(true)
        .open(directory.join("log"))
        .unwrap();
    let inside = OpenOptions::new()
        .write(true)
        .open(directory.join("inside"))
        .unwrap();
    loop {
        let asked = now_ns();
        let guard = mutex.lock().unwrap();
        let entered = now_ns();
        let fence = guard.fence().unwrap();
        let abandoned = guard.previous_owner() == PreviousOwner::Abandoned;
        log.write_all(format!("E {number} {asked} {entered} {fence} {abandoned}\n").as_bytes())
            .unwrap();
        inside.write_all_at(&number.to_le_bytes(), 0).unwrap();
        thread::sleep(Duration::from_millis(2));
        inside.write_all_at(&NOBODY.to_le_bytes(), 0).unwrap();
        log.write_all(format!("L {number} {}\n", now_ns()).as_bytes())
            .unwrap();
        drop(guard);
    }
}

/// In the file `inside`.
const NOBODY: u32 = u32::MAX;

/// A stay inside, by the log. Times are in nanoseconds.
#[derive(Debug)]
struct Stay {
    number: u32,
    asked: u64,
    entered: u64,
    /// `None` if it was killed inside.
    left: Option<u64>,
    fence: u64,
    abandoned: bool,
}

/// The competitors, and what was done to them.
struct Arena {
    directory: tempfile::TempDir,
    processes: Vec<(u32, Process)>,
    started: u32,
    /// When each was killed: before the signal, so that whoever enters because of it is later.
    killed: BTreeMap<u32, u64>,
    inside: File,
}

impl Arena {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("log"), "").unwrap();
        std::fs::write(directory.path().join("inside"), NOBODY.to_le_bytes()).unwrap();
        let inside = File::open(directory.path().join("inside")).unwrap();
        let (processes, killed) = Default::default();
        let mut arena = Self {
            directory,
            processes,
            started: 0,
            killed,
            inside,
        };
        (0..PROCESSES).for_each(|_| arena.start());
        arena
    }

    fn start(&mut self) {
        let process = Process::start(&format!("compete {}", self.started), self.directory.path());
        self.processes.push((self.started, process));
        self.started += 1;
    }

    /// Whether competitor `number` is inside, as far as it has said so.
    fn is_inside(&self, number: u32) -> bool {
        let mut inside = [0; 4];
        self.inside.read_exact_at(&mut inside, 0).unwrap();
        u32::from_le_bytes(inside) == number
    }

    /// On even turns the competitor that is inside now; else, or if nobody is, one after another.
    fn victim(&self, turn: usize) -> usize {
        let inside = self
            .processes
            .iter()
            .position(|(number, _)| self.is_inside(*number));
        match inside {
            Some(inside) if turn.is_multiple_of(2) => inside,
            // A number without a common divisor goes round all of them.
            _ => turn * 7 % PROCESSES,
        }
    }

    fn kill(&mut self, victim: usize) {
        let (number, process) = self.processes.swap_remove(victim);
        self.killed.insert(number, now_ns());
        process.kill();
    }

    /// Ends the processes, and reads what they did, in the order of entering. Two were never
    /// inside at a time, fences rose, and who came after a death was told.
    fn judge(&mut self) -> Vec<Stay> {
        while !self.processes.is_empty() {
            self.kill(0);
        }
        let stays = self.stays();
        for pair in stays.windows(2) {
            let [first, second] = pair else {
                unreachable!()
            };
            let end = first.left.unwrap_or_else(|| self.killed[&first.number]);
            assert!(
                end <= second.entered,
                "two inside: {first:?} until {end}, {second:?}"
            );
            assert!(first.fence < second.fence, "{first:?}, {second:?}");
            assert!(
                first.left.is_some() || second.abandoned,
                "not told: {first:?}, {second:?}"
            );
        }
        stays
    }

    fn stays(&self) -> Vec<Stay> {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap();
        let mut open = BTreeMap::new();
        let mut stays = Vec::new();
        for line in log.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let time = |at: usize| words[at].parse::<u64>().unwrap();
            let number = words[1].parse().unwrap();
            if words[0] == "E" {
                open.insert(number, stays.len());
                stays.push(Stay {
                    number,
                    asked: time(2),
                    entered: time(3),
                    left: None,
                    fence: time(4),
                    abandoned: words[5] == "true",
                });
            } else {
                stays[open.remove(&number).unwrap()].left = Some(time(2));
            }
        }
        stays.sort_by_key(|stay| stay.entered);
        stays
    }
}

fn duration() -> Duration {
    let secs = std::env::var("DISTLOCK_TORTURE_SECS").map_or(5, |secs| secs.parse().unwrap());
    Duration::from_secs(secs)
}

/// Of nanoseconds, in milliseconds.
fn percentile_ms(sorted: &[u64], per_mille: usize) -> f64 {
    sorted[(sorted.len() - 1) * per_mille / 1000] as f64 / 1e6
}

#[test]
fn sigkill_every_100_ms() {
    let mut arena = Arena::new();
    let start = SystemTime::now();
    for turn in 0.. {
        // The pace of the test, whatever the processes are at then.
        thread::sleep(Duration::from_millis(100));
        arena.kill(arena.victim(turn));
        arena.start();
        if start.elapsed().unwrap() > duration() {
            break;
        }
    }
    let killed = arena.killed.clone();
    let stays = arena.judge();

    let mut takeovers: Vec<_> = stays
        .windows(2)
        .filter(|pair| pair[0].left.is_none())
        .filter_map(|pair| Some(pair[1].entered - killed.get(&pair[0].number)?))
        .collect();
    takeovers.sort_unstable();
    let (median, longest) = (
        percentile_ms(&takeovers, 500),
        percentile_ms(&takeovers, 1000),
    );
    println!(
        "{} entries, {} killed, {} of them inside; takeover: median {median:.1} ms, longest \
         {longest:.1} ms",
        stays.len(),
        killed.len(),
        takeovers.len(),
    );
    assert!(
        takeovers.len() >= killed.len() / 5,
        "too few were killed inside"
    );
    assert!(median < 50.0, "{takeovers:?}");
}

/// A time: from, until.
type Span = (u64, u64);

fn overlap(a: Span, b: Span) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

#[test]
fn sigstop_for_2_s_again_and_again() {
    let mut arena = Arena::new();
    let mut stops: Vec<(u32, Span)> = Vec::new();
    let start = SystemTime::now();
    while start.elapsed().unwrap() < duration() {
        let turn = stops.len();
        let (number, process) = &arena.processes[arena.victim(turn)];
        process.signal(Signal::SIGSTOP);
        let from = now_ns();
        if turn.is_multiple_of(2) && !arena.is_inside(*number) {
            // It had just left: try to catch another inside.
            process.signal(Signal::SIGCONT);
            thread::yield_now();
            continue;
        }
        // So long it stands still: what is tried is a length of time, and a stopped process does
        // nothing that could be waited for.
        thread::sleep(Duration::from_secs(2).min(duration() / 5));
        stops.push((*number, (from, now_ns())));
        process.signal(Signal::SIGCONT);
        // So long all run: some entries each, whose delays are judged, and no event ends that.
        thread::sleep(Duration::from_millis(150));
    }
    let stays = arena.judge();

    // A stopped holder keeps its lock, and is waited for: its stop is no delay.
    let is_holder = |number: u32, stop: Span| {
        let inside = |stay: &Stay| (stay.entered, stay.left.unwrap_or(u64::MAX));
        let here = |stay: &Stay| stay.number == number && overlap(inside(stay), stop) > 0;
        stays.iter().any(|stay| here(stay) && stay.entered < stop.0)
    };
    let (holders, waiters): (Vec<_>, Vec<_>) = stops
        .iter()
        .partition(|(number, stop)| is_holder(*number, *stop));
    let wait = |stay: &Stay| (stay.asked, stay.entered);
    let mut delays: Vec<_> = stays
        .iter()
        // Who is stopped while it waits delays itself.
        .filter(|stay| {
            let mut own = stops.iter().filter(|(number, _)| *number == stay.number);
            own.all(|(_, stop)| overlap(*stop, wait(stay)) == 0)
        })
        .map(|stay| {
            let excused: u64 = holders
                .iter()
                .map(|(_, stop)| overlap(*stop, wait(stay)))
                .sum();
            stay.entered - stay.asked - excused
        })
        .collect();
    delays.sort_unstable();
    let [median, most, longest] = [500, 999, 1000].map(|at| percentile_ms(&delays, at));
    println!(
        "{} entries, {} holders and {} waiters stopped; wait: median {median:.1} ms, 99.9th \
         percentile {most:.1} ms, longest {longest:.1} ms",
        stays.len(),
        holders.len(),
        waiters.len(),
    );
    assert!(!holders.is_empty() && !waiters.is_empty());
    assert!(most <= 300.0);
}
