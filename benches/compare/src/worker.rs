//! A process that uses the locks, and does as it is told: a line of words each time, which it
//! answers with a line of numbers.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::crew::{ADDRESSES, CORE, DIRECTORY, ID, SYSTEM};
use crate::locks::{Locks, System};
use crate::place;
use crate::report;
use crate::shared::{Shared, now};

/// How many times are kept of one measurement at most.
const SAMPLES: usize = 1_000_000;

/// How long nobody wants a lock before it is acquired after idleness, and how often.
const IDLE: Duration = Duration::from_millis(10);
const IDLE_TIMES: usize = 50;

/// The role: serves the clients of this host until its input ends.
pub(crate) fn run_agent() {
    die_with_parent();
    let _agent = system().agent(id(), &directory(), &addresses());
    println!();
    std::io::stdin().lines().for_each(drop);
}

/// The role: a process of the system.
pub(crate) fn run() {
    die_with_parent();
    if let Ok(core) = std::env::var(CORE) {
        place::pin(core.parse().expect("a number"));
    }
    let directory = directory();
    let mut worker = Worker {
        locks: system().open(id(), &directory, &addresses()),
        shared: Shared::open(&directory),
        me: id().into(),
    };
    println!();
    for line in std::io::stdin().lines() {
        let line = line.expect("the parent writes text");
        let mut words = line.split(' ');
        let what = words.next().expect("a first word");
        let numbers: Vec<u64> = words.map(|it| it.parse().expect("a number")).collect();
        let answer = match (what, &numbers[..]) {
            ("once", []) => vec![worker.acquire_once()],
            ("acquire", &[nanos]) => worker.acquire(nanos),
            ("idle", []) => worker.acquire_idle(),
            ("pair", &[nanos]) => worker.pair(nanos),
            ("contend", &[locks, start, end, hold]) => worker.contend(locks, start, end, hold),
            _ => panic!("what is {line:?}?"),
        };
        let answer: Vec<_> = answer.iter().map(f64::to_string).collect();
        println!("{}", answer.join(" "));
    }
}

struct Worker {
    locks: Box<dyn Locks>,
    shared: Shared,
    me: u64,
}

impl Worker {
    /// How long it takes until the first lock is held.
    fn acquire_once(&mut self) -> f64 {
        let start = now();
        self.locks.enter(0);
        let time = now() - start;
        self.locks.leave(0);
        time as f64
    }

    /// The same for so long again and again: the median, and the 99th percentile.
    fn acquire(&mut self, nanos: u64) -> Vec<f64> {
        let end = now() + nanos;
        let mut times = Vec::new();
        while times.is_empty() || (now() < end && times.len() < SAMPLES) {
            times.push(self.acquire_once());
        }
        times.sort_unstable_by(f64::total_cmp);
        vec![times[times.len() / 2], times[times.len() * 99 / 100]]
    }

    /// The median, when nobody wanted it for a while.
    fn acquire_idle(&mut self) -> Vec<f64> {
        let mut acquire = || {
            sleep(IDLE);
            self.acquire_once()
        };
        let times: Vec<_> = (0..IDLE_TIMES).map(|_| acquire()).collect();
        vec![report::median(times.into_iter()).expect("there are some")]
    }

    /// The mean of acquiring and releasing.
    fn pair(&mut self, nanos: u64) -> Vec<f64> {
        let start = now();
        let mut pairs = 0;
        loop {
            for _ in 0..16 {
                self.locks.enter(0);
                self.locks.leave(0);
            }
            pairs += 16;
            let time = now() - start;
            if time >= nanos {
                return vec![time as f64 / f64::from(pairs)];
            }
        }
    }

    /// Wants one of so many locks all the time from `start` to `end`, and holds it for `hold`; then
    /// it leaves the others a third of that time. Returns how often it was inside, the processor's
    /// time, how often another had been inside before, and how long it took then from the release,
    /// all together.
    fn contend(&mut self, locks: u64, start: u64, end: u64, hold: u64) -> Vec<f64> {
        pause(start.saturating_sub(now()));
        let before = processor_time();
        let (mut pairs, mut turns, mut under_way) = (0_u64, 0_u64, 0);
        let mut random = self.me;
        while now() < end {
            // Of a linear congruential generator the upper bits are good.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let lock = ((random >> 33) % locks) as usize;
            let fence = self.locks.enter(lock);
            let from_another = self.shared.enter(lock, self.me, fence);
            let entered = now();
            pairs += u64::from(entered < end);
            // What was released in time counts, however late it came: else long ways would be missed.
            if let Some(way) = from_another
                && entered - way < end
            {
                turns += 1;
                under_way += way;
            }
            pause(hold);
            self.shared.leave(lock, self.me);
            self.locks.leave(lock);
            pause(hold / 3);
        }
        let processor = processor_time() - before;
        vec![pairs as f64, processor, turns as f64, under_way as f64]
    }
}

fn pause(nanos: u64) {
    if nanos > 0 {
        sleep(Duration::from_nanos(nanos));
    }
}

/// That of this process so far, in nanoseconds.
fn processor_time() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("it can always be asked");
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e3
}

/// Waiting for a lock, it would not notice that its input has ended.
fn die_with_parent() {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).expect("a signal");
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("the parent says it")
}

fn system() -> System {
    let name = variable(SYSTEM);
    let system = System::ALL.into_iter().find(|it| it.name() == name);
    system.expect("the parent knows it")
}

/// Those of the servers.
fn addresses() -> Vec<String> {
    let addresses = variable(ADDRESSES);
    let addresses = addresses.split_terminator(',');
    addresses.map(str::to_owned).collect()
}

fn directory() -> PathBuf {
    variable(DIRECTORY).into()
}

fn id() -> u16 {
    variable(ID).parse().expect("a number")
}
