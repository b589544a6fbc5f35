//! What a case has to work with, and how all of them are played with one backend.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use distlock::status::LockStatus;
use distlock::{Agent, LockError, Mutex as Lock, Semaphore, TimedLockError, TryLockError};
use distlock_agent::runtime::clock;

use crate::cases;

/// How long is waited for what must happen.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
/// How long is waited to see that something does not happen.
pub(crate) const SHORT: Duration = Duration::from_millis(60);
/// How long nobody looks whether something has happened of which no word comes.
const PAUSE: Duration = Duration::from_millis(5);
/// Cases are played side by side: most of them wait, and a lock of one is none of another.
const SIDE_BY_SIDE: usize = 4;

/// What is asked for a limited time is told that the time is over. An agent that a busy host has kept waiting
/// for 0.2 s has not answered in time: not three times over.
pub(crate) fn times_out(ask: impl Fn() -> Result<(), TimedLockError>) {
    for _ in 0..3 {
        match ask() {
            Err(TimedLockError::TimedOut) => return,
            Err(TimedLockError::Failed(LockError::NoAnswer { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("three times the agent has not answered");
}

/// What not every backend promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Who asked first is first, also of two agents.
    Order,
    /// A reader that comes after a writer waits behind it.
    NoOvertaking,
    /// It is told who leads.
    News,
}

/// What a backend is, and what it does not promise: each with the reason.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) lacks: &'static [(Need, &'static str)],
    /// Begins a group. `None`: what it takes is not installed, and that was said.
    pub(crate) open: fn() -> Option<Box<dyn Group>>,
}

/// Agents of one group, which nobody else uses.
pub(crate) trait Group: Send + Sync {
    /// Two that stay.
    fn agents(&self) -> [&Agent; 2];

    /// One more, for a case that closes it. There is one at a time.
    fn open(&self) -> Agent;

    /// One of another group.
    fn stranger(&self) -> &Agent;

    /// Where a process finds the group, and where it keeps its state: for [`crate::killed`].
    fn place(&self) -> (String, PathBuf);
}

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) play: fn(&Bench<'_>),
    /// Whether others would notice that it is played: they are over by then.
    is_alone: bool,
}

impl Case {
    /// To be played when the others are over.
    pub(crate) const fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }
}

/// A case that every backend passes.
pub(crate) const fn case(name: &'static str, play: fn(&Bench<'_>)) -> Case {
    case_of(name, &[], play)
}

/// A case for those that promise so much.
pub(crate) const fn case_of(
    name: &'static str,
    needs: &'static [Need],
    play: fn(&Bench<'_>),
) -> Case {
    Case {
        name,
        needs,
        play,
        is_alone: false,
    }
}

/// A group, and a case that is played with it.
pub(crate) struct Bench<'a> {
    group: &'a dyn Group,
    case: &'static str,
    spare: &'a Mutex<()>,
}

impl<'a> Bench<'a> {
    pub(crate) fn agents(&self) -> [&'a Agent; 2] {
        self.group.agents()
    }

    pub(crate) fn one(&self) -> &'a Agent {
        self.agents()[0]
    }

    pub(crate) fn two(&self) -> &'a Agent {
        self.agents()[1]
    }

    pub(crate) fn stranger(&self) -> &'a Agent {
        self.group.stranger()
    }

    pub(crate) fn place(&self) -> (String, PathBuf) {
        self.group.place()
    }

    /// A lock of this case alone.
    pub(crate) fn name(&self, of: impl std::fmt::Display) -> String {
        format!("{} {of}", self.case)
    }

    /// The same lock by both agents.
    pub(crate) fn both(&self, of: impl std::fmt::Display) -> [Lock; 2] {
        let name = self.name(of);
        self.agents().map(|agent| agent.mutex(&name).unwrap())
    }

    /// The same semaphore by both agents.
    pub(crate) fn semaphores(&self, of: impl std::fmt::Display, permits: u32) -> [Semaphore; 2] {
        let name = self.name(of);
        let permits = Some(permits.try_into().unwrap());
        self.agents()
            .map(|agent| agent.semaphore(&name, permits).unwrap())
    }

    /// An agent that may be closed. It is when this goes.
    pub(crate) fn spare(&self) -> Spare<'a> {
        // That another case failed with one is of no account.
        let turn = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        Spare {
            agent: self.group.open(),
            _turn: turn,
        }
    }
}

/// An agent that a case may close.
pub(crate) struct Spare<'a> {
    pub(crate) agent: Agent,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        self.agent.close();
    }
}

/// Waits until that is so; the test fails if it never is.
#[track_caller]
pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = clock::now();
    while !is_so() {
        assert!(clock::now().since(begun) < WAIT, "never: {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until so many wait for that lock, as `agent` sees it.
#[track_caller]
pub(crate) fn await_waiters(agent: &Agent, lock: &str, count: usize) {
    await_that("so many wait", || waiters(agent, lock) == count);
}

/// How many wait for that lock, as `agent` sees it.
pub(crate) fn waiters(agent: &Agent, lock: &str) -> usize {
    look_at(agent, lock).map_or(0, |lock| lock.waiters.len())
}

/// How many hold it.
pub(crate) fn holders(agent: &Agent, lock: &str) -> usize {
    look_at(agent, lock).map_or(0, |lock| lock.holders.len())
}

/// What is shown of it, if it is used.
pub(crate) fn look_at(agent: &Agent, lock: &str) -> Option<LockStatus> {
    let locks = agent.status().unwrap().locks;
    locks.into_iter().find(|it| it.name == lock)
}

/// Whether another holds what was tried.
pub(crate) fn is_busy<T>(tried: Result<T, TryLockError>) -> bool {
    match tried {
        Ok(_) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Plays all cases with that backend, and names those that fail.
pub(crate) fn run(backend: &Backend) {
    let begun = clock::now();
    let Some(group) = (backend.open)() else {
        return;
    };
    for agent in group.agents().into_iter().chain([group.stranger()]) {
        // A group begins when there is need of it, and cases do not measure that.
        await_begun(agent);
    }
    let opened = clock::now();
    let cases: Vec<Case> = cases::all().filter(|case| is_wanted(case.name)).collect();
    let player = Player {
        backend,
        group: &*group,
        spare: Mutex::default(),
        failed: Mutex::default(),
        played: AtomicUsize::new(0),
    };
    let (alone, beside): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.is_alone);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(case) = beside.get(next.fetch_add(1, Ordering::SeqCst)) {
                    player.play(case);
                }
            });
        }
    });
    alone.into_iter().for_each(|case| player.play(case));
    println!(
        "{}: {} cases in {:.1?}, after {:.1?} to begin",
        backend.name,
        player.played.into_inner(),
        clock::now().since(opened),
        opened.since(begun),
    );
    let failed = player.failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}: {failed:#?}", backend.name);
}

/// Plays the cases of one backend.
struct Player<'a> {
    backend: &'a Backend,
    group: &'a dyn Group,
    spare: Mutex<()>,
    failed: Mutex<Vec<&'static str>>,
    played: AtomicUsize,
}

impl Player<'_> {
    fn play(&self, case: &Case) {
        let backend = self.backend;
        let lacking = |need: &Need| backend.lacks.iter().find(|(lacks, _)| lacks == need);
        if let Some((_, why)) = case.needs.iter().find_map(lacking) {
            println!("{}: NOT PROMISED: {}: {why}", backend.name, case.name);
            return;
        }
        let bench = Bench {
            group: self.group,
            case: case.name,
            spare: &self.spare,
        };
        let begun = clock::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (case.play)(&bench)));
        let took = clock::now().since(begun);
        let word = if outcome.is_ok() { "passed" } else { "FAILED" };
        println!("{}: {word}: {} ({took:.1?})", backend.name, case.name);
        self.played.fetch_add(1, Ordering::SeqCst);
        if outcome.is_err() {
            self.failed.lock().unwrap().push(case.name);
        }
    }
}

/// Whether that case is among those that somebody looks at: `DISTLOCK_TEST_CASE` is part of their names.
fn is_wanted(case: &str) -> bool {
    std::env::var("DISTLOCK_TEST_CASE").map_or(true, |part| case.contains(&part))
}

/// Waits until its group grants locks.
pub(crate) fn await_begun(agent: &Agent) {
    use distlock::DistMutex as _;
    let lock = agent.mutex("the group has begun").unwrap();
    drop(lock.try_lock_for(WAIT).unwrap());
}
