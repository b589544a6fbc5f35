//! Guards of a group whose leases end when the test says so.

use std::env;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock_agent::protocol::{Fence, LockName, Release, Time};
use distlock_agent::runtime::status::Status;
use distlock_agent::runtime::sync::Mutex;
use distlock_agent::runtime::{Loss, LossSignal, clock};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::backend::{Ask, Backend, Hold, Lock, Request, Waiting};
use crate::error::{HandleError, LockError, StatusError, UnlockError};
use crate::{Agent, Algorithm, DistMutex, Event, Guard, GuardState, LockOptions, PreviousOwner};

const LEASE: Duration = Duration::from_secs(60);

/// A group in which every lock is free, and one lease bounds them all.
#[derive(Clone)]
struct Leased(Arc<Mutex<State>>);

impl Default for Leased {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State::default())))
    }
}

#[derive(Default)]
struct State {
    /// `None`: nothing bounds what is held.
    until: Option<Time>,
    losses: Vec<LossSignal>,
    /// How often it was asked when the lease ends.
    looks: usize,
    settled: usize,
    released: usize,
    /// How what was released last was left.
    left: Option<Release>,
    /// Whether the holder before died.
    is_abandoned: bool,
}

impl Leased {
    fn agent() -> (Self, Agent) {
        let group = Self::default();
        let agent = Agent::new(Arc::new(group.clone())).unwrap();
        (group, agent)
    }

    fn ends(&self, until: Time) {
        self.0.lock().until = Some(until);
    }

    fn lose(&self) {
        let losses = std::mem::take(&mut self.0.lock().losses);
        losses.iter().for_each(|loss| loss.fire(Loss::Revoked));
    }
}

impl Backend for Leased {
    fn open(&self, _: &LockName, _: Ask) -> Result<Arc<dyn Lock>, HandleError> {
        Ok(Arc::new(self.clone()))
    }

    fn status(&self) -> Result<Status, StatusError> {
        Err(StatusError::Closed)
    }

    fn events(&self) -> Receiver<Event> {
        crossbeam_channel::never()
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }

    fn close(&self) {}
}

impl Lock for Leased {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Bakery
    }

    fn permits(&self) -> NonZeroU32 {
        NonZeroU32::MIN
    }

    fn begin(self: Arc<Self>, _: Request) -> Box<dyn Waiting> {
        Box::new(Granted(Leased::clone(&self)))
    }
}

struct Granted(Leased);

impl Waiting for Granted {
    fn ask(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        Ok(None)
    }

    fn wait(&mut self, _: Option<Duration>) -> Poll<Result<Option<Box<dyn Hold>>, LockError>> {
        Poll::Ready(Ok(Some(Box::new(self.0.clone()))))
    }

    fn wake_by(&mut self, _: &Waker) -> Time {
        Time::ZERO
    }
}

impl Hold for Leased {
    fn fence(&self) -> Option<Fence> {
        Fence::new(7)
    }

    fn previous_owner(&self) -> PreviousOwner {
        match self.0.lock().is_abandoned {
            true => PreviousOwner::Abandoned,
            false => PreviousOwner::Clean,
        }
    }

    fn state(&self) -> GuardState {
        match self.0.lock().until {
            Some(until) if until <= clock::now() => GuardState::Suspended,
            _ => GuardState::Valid,
        }
    }

    fn loss(&self) -> LossSignal {
        let loss = LossSignal::default();
        self.0.lock().losses.push(loss.clone());
        loss
    }

    fn grace(&self) -> Option<Duration> {
        let mut state = self.0.lock();
        state.looks += 1;
        state.until.map(|until| until.since(clock::now()))
    }

    fn release(self: Box<Self>, how: Release) -> Result<(), UnlockError> {
        let mut state = self.0.lock();
        state.released += 1;
        state.left = Some(how);
        Ok(())
    }

    fn settle(self: Box<Self>, _: Release) -> Result<(), UnlockError> {
        self.0.lock().settled += 1;
        Ok(())
    }

    fn forget(self: Box<Self>) {}

    fn set_command_pid(&self, _: u32) {}
}

fn lock(agent: &Agent) -> Guard {
    agent.mutex("x").unwrap().lock().unwrap()
}

fn is_readable(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn a_guard_is_worth_what_its_lease_is() {
    let (group, agent) = Leased::agent();
    let guard = lock(&agent);
    assert_eq!(
        (guard.state(), guard.remaining()),
        (GuardState::Valid, None)
    );
    group.ends(clock::now() + LEASE);
    assert_eq!(guard.state(), GuardState::Valid);
    let remaining = guard.remaining().unwrap();
    assert!(remaining > LEASE / 2 && remaining <= LEASE, "{remaining:?}");
    group.ends(clock::now());
    assert_eq!(guard.state(), GuardState::Suspended);
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    group.ends(clock::now() + LEASE);
    assert!(guard.is_held(), "again");
    group.lose();
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    assert!(guard.grace() > Some(LEASE / 2), "so long nobody else comes");
    assert!(matches!(guard.unlock(), Err(UnlockError::Lost)));
}

/// Who unlocks wants to know; who drops must not be held up.
#[test]
fn only_unlocking_waits_to_learn_what_became_of_the_lock() {
    let (group, agent) = Leased::agent();
    let counts = || {
        let state = group.0.lock();
        (state.settled, state.released)
    };
    lock(&agent).unlock().unwrap();
    assert_eq!(counts(), (1, 0));
    lock(&agent).abandon().unwrap();
    assert_eq!(counts(), (2, 0));
    drop(lock(&agent));
    assert_eq!(counts(), (2, 1));
    let guard = lock(&agent);
    agent.close();
    assert_eq!(counts(), (2, 2));
    assert_eq!(guard.state(), GuardState::Lost);
}

/// While the lease is over another may have been inside: then it is not as if nobody had been.
#[test]
fn what_a_withdrawn_guard_was_told_is_told_again_though_its_lease_is_over() {
    for (is_abandoned, is_over, left) in [
        (true, false, Release::Unused),
        (true, true, Release::Abandoned),
        (false, false, Release::Unused),
        (false, true, Release::Given),
    ] {
        let (group, agent) = Leased::agent();
        group.0.lock().is_abandoned = is_abandoned;
        let guard = lock(&agent);
        if is_over {
            group.ends(clock::now());
        }
        guard.withdraw();
        assert_eq!(group.0.lock().left, Some(left), "{is_abandoned} {is_over}");
    }
}

#[test]
fn a_descriptor_tells_of_the_loss_and_of_nothing_else() {
    let (group, agent) = Leased::agent();
    let guard = lock(&agent);
    let fd = guard.loss_fd().unwrap();
    group.ends(clock::now());
    assert!(!is_readable(&fd), "it is suspended only");
    group.lose();
    assert!(is_readable(&fd));
    assert!(is_readable(&guard.loss_fd().unwrap()), "also afterwards");
    drop(guard);

    let guard = lock(&agent);
    let fd = guard.loss_fd().unwrap();
    guard.unlock().unwrap();
    group.lose();
    assert!(!is_readable(&fd), "it was unlocked in order");
}

/// What a process does that is to be ended with its locks.
#[test]
fn role_of_a_process_that_ends_with_its_locks() {
    let Ok(role) = env::var("DISTLOCK_TEST_ABORT") else {
        return;
    };
    let (group, agent) = Leased::agent();
    group.ends(clock::now() + LEASE);
    let earlier = agent.mutex("earlier").unwrap().lock().unwrap();
    let options = LockOptions::new().abort_on_loss(true);
    let lock = |name: &str| agent.mutex_with(name, &options).unwrap().lock().unwrap();
    let guard = lock("x");
    match &*role {
        // The watch looks when the lease would have ended as it was, so it has to be near.
        "suspended" => {
            group.ends(clock::now() + Duration::from_millis(20));
            let another = lock("another");
            std::thread::sleep(LEASE);
            drop((another, guard));
        }
        "lost" => group.lose(),
        "given back" => {
            group.ends(clock::now() + Duration::from_millis(20));
            let another = lock("another");
            drop((another, guard));
            // Nobody asked for it of this one.
            std::thread::sleep(Duration::from_millis(60));
            assert_eq!(earlier.state(), GuardState::Suspended);
        }
        "renewed" => {
            group.ends(clock::now() + Duration::from_millis(500));
            let another = lock("another");
            group.ends(clock::now() + LEASE);
            let looks = group.0.lock().looks;
            while group.0.lock().looks == looks {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop((another, guard));
        }
        "closed" => {
            agent.close();
            group.lose();
        }
        role => panic!("no role {role}"),
    }
}

#[test]
fn a_process_ends_with_its_locks_if_it_wants_to() {
    for (role, aborts) in [
        ("suspended", true),
        ("lost", true),
        ("given back", false),
        ("renewed", false),
        ("closed", false),
    ] {
        let test = "guard::tests::role_of_a_process_that_ends_with_its_locks";
        let status = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--test-threads=1"])
            .env("DISTLOCK_TEST_ABORT", role)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        if aborts {
            assert_eq!(status.signal(), Some(libc::SIGABRT), "{role}: {status}");
        } else {
            assert!(status.success(), "{role}: {status}");
        }
    }
}
