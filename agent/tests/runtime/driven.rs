//! Agents without a thread, which their application drives.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{fs, mem};

use distlock_agent::protocol::Algorithm;
use distlock_agent::runtime::{
    AcquireError, Agent, Caller, Driver, Grant, GuardState, Patience, ProcessError, ReleaseError,
    SessionEnd, StartError, Waiting, clock,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::flood::flood_as_second;
use crate::support::{Group, Kind, LEASE, TIMEOUT, enter, eventually, forked, lock, read_counter};

fn start(group: &Group, id: u16) -> (Agent, Driver) {
    Agent::start_driven(group.options(id)).unwrap()
}

/// Asks for `name`, and waits for nothing.
fn begin(agent: &Agent, name: &str) -> Waiting {
    let mode = distlock_agent::protocol::Mode::Exclusive;
    let caller = Caller::current();
    agent
        .begin(&lock(name), None, mode, Patience::Forever, caller)
        .unwrap()
}

/// Has all of them go on until `done` has something.
fn process_until<T>(drivers: &[&Driver], mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = clock::now() + TIMEOUT;
    loop {
        if let Some(done) = done() {
            return done;
        }
        let left = deadline.since(clock::now());
        assert!(await_any(drivers, left), "it did not come about");
        for driver in drivers {
            driver.process().unwrap();
        }
    }
}

/// Waits until there is something to process; whether there is.
fn await_any(drivers: &[&Driver], timeout: Duration) -> bool {
    let mut polled: Vec<_> = drivers
        .iter()
        .map(|driver| PollFd::new(driver.as_fd(), PollFlags::POLLIN))
        .collect();
    poll(&mut polled, PollTimeout::try_from(timeout).unwrap()).unwrap() > 0
}

/// The outcome of a request, if there is one by now.
fn look(waiting: &mut Waiting) -> Option<Grant> {
    match waiting.wait(Some(Duration::ZERO)) {
        Poll::Ready(outcome) => Some(outcome.unwrap()),
        Poll::Pending => None,
    }
}

/// Two members in one thread: neither goes on but when it is called.
#[test]
fn one_thread_drives_two_members() {
    let group = Group::new(Kind::Udp, 2).with_quorum();
    let (first, of_first) = start(&group, 1);
    let (second, of_second) = start(&group, 2);
    let both = [&of_first, &of_second];
    let mut last = 0;
    for _ in 0..20 {
        for (agent, other) in [(&first, &second), (&second, &first)] {
            let mut waiting = begin(agent, "x");
            let grant = process_until(&both, || look(&mut waiting));
            let mut next = begin(other, "x");
            for driver in both {
                driver.process().unwrap();
            }
            assert!(look(&mut next).is_none(), "two are inside");
            let fence = grant.fence().unwrap().as_u64();
            assert!(fence > last);
            last = fence;
            grant.release().unwrap();
            drop(process_until(&both, || look(&mut next)));
        }
    }
}

/// What was flooded is looked at by the clock: so it is there to be processed also if nothing arrives
/// anywhere else.
#[test]
fn a_member_that_was_flooded_is_heard() {
    let group = Group::new(Kind::Udp, 2);
    let group = group.with_quorum().with_key();
    let (first, driver) = start(&group, 1);
    flood_as_second(&group, &first, || driver.process().unwrap());
    let _second = group.start(2).unwrap();
    for _ in 0..3 {
        let mut waiting = begin(&first, "x");
        drop(process_until(&[&driver], || look(&mut waiting)));
    }
}

/// By the signal: the kernel says so itself, and the application need not wait for the timer.
#[test]
fn what_arrives_interrupts_the_application() {
    let action = SigAction::new(
        SigHandler::SigAction(note),
        SaFlags::empty(),
        SigSet::empty(),
    );
    #[expect(unsafe_code, reason = "a handler is installed")]
    // SAFETY: the handler reads a number, and stores to an atomic, which is async-signal-safe.
    unsafe { sigaction(Signal::SIGIO, &action) }.unwrap();
    let group = Group::new(Kind::Udp, 2).with_quorum();
    let (_first, driver) = start(&group, 1);
    driver.set_sigio(true).unwrap();
    let _second = group.start(2).unwrap();
    eventually("a signal of the kernel", || {
        driver.process().unwrap();
        HAS_ARRIVED.load(Ordering::Relaxed)
    });
}

/// A signal came that was no timer's.
static HAS_ARRIVED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    #[expect(unsafe_code, reason = "the kernel says where the signal comes from")]
    // SAFETY: it is there for as long as the handler runs.
    let code = unsafe { (*info).si_code };
    HAS_ARRIVED.fetch_or(code == libc::SI_KERNEL, Ordering::Relaxed);
}

/// Processes with threads and without take turns at a file that nothing else protects.
fn take_turns(group: Group) {
    const ROUNDS: usize = 50;
    let group = group.with_quorum();
    let counter = group.directory.join("counter");
    fs::write(&counter, "0").unwrap();
    let roles = [
        "increment",
        "drive",
        "increment",
        "drive-by-waiting",
        "drive-by-signal",
    ];
    let mut processes: Vec<_> = (1..)
        .zip(roles)
        .map(|(id, role)| group.spawn(role, id, ROUNDS))
        .collect();
    for process in &mut processes {
        process.expect("done");
    }
    assert_eq!(read_counter(&counter), roles.len() * ROUNDS);
    for process in processes {
        process.finish();
    }
}

#[test]
fn driven_members_take_turns_with_others_by_the_default() {
    take_turns(Group::new(Kind::Udp, 5));
}

#[test]
fn driven_members_take_turns_with_others_by_a_token() {
    take_turns(Group::by(Algorithm::TokenRingRequests, Kind::Unix, 5));
}

#[test]
fn driven_members_take_turns_with_others_by_a_server() {
    take_turns(Group::by(Algorithm::Semaphore, Kind::Udp, 5));
}

#[test]
fn driven_members_take_turns_with_others_by_multicast() {
    // The default algorithm says nothing to all members.
    take_turns(Group::by(Algorithm::RicartAgrawala, Kind::Udp, 5).with_multicast());
}

/// What comes by multicast is something to process, too.
#[test]
fn one_thread_drives_members_that_hear_multicast() {
    let group = Group::by(Algorithm::RicartAgrawala, Kind::Udp, 3);
    let group = group.with_quorum().with_multicast();
    let (agents, drivers): (Vec<_>, Vec<_>) = (1..=3).map(|id| start(&group, id)).unzip();
    let drivers: Vec<_> = drivers.iter().collect();
    let gains = |agent: &Agent| agent.counters().transport.multicast_merged > 20;
    eventually("multicast", || {
        for agent in &agents {
            let mut waiting = begin(agent, "x");
            let grant = process_until(&drivers, || look(&mut waiting));
            grant.release().unwrap();
        }
        agents.iter().all(gains)
    });
}

/// As a thread that stood still: the guard ends on its own clock, and the others go on.
#[test]
fn who_does_not_process_loses_its_locks() {
    let group = Group::new(Kind::Udp, 3).with_quorum();
    let others = [group.start(2).unwrap(), group.start(3).unwrap()];
    let (agent, driver) = start(&group, 1);
    let grant = enter(&agent, &lock("held"));
    let began = clock::now();
    assert_eq!(grant.state(), GuardState::Valid);
    // Nobody calls.
    let next = enter(&others[0], &lock("held"));
    assert!(
        clock::now().since(began) > LEASE / 2,
        "its lease was waited for"
    );
    assert_eq!(grant.state(), GuardState::Suspended, "on its own clock");
    assert!(next.fence() > grant.fence());

    process_until(&[&driver], || {
        (grant.state() == GuardState::Lost).then_some(())
    });
    assert_eq!(grant.release(), Err(ReleaseError::Lost));
    next.release().unwrap();
    enter(&agent, &lock("held")).release().unwrap();
}

/// One that is called all the time keeps its lock for longer than a lease, without a thread.
#[test]
fn who_processes_keeps_its_locks() {
    let group = Group::new(Kind::Udp, 3).with_quorum();
    let _others = [group.start(2).unwrap(), group.start(3).unwrap()];
    let (agent, driver) = start(&group, 1);
    let grant = enter(&agent, &lock("held"));
    let end = clock::now() + LEASE * 3 / 2;
    process_until(&[&driver], || {
        assert_ne!(grant.state(), GuardState::Lost);
        (clock::now() > end).then_some(())
    });
    assert!(grant.is_held());
    grant.release().unwrap();
}

/// Its descriptor says when to call, by itself: at the time that is told, and then no more.
#[test]
fn the_descriptor_tells_when_to_process() {
    let group = Group::new(Kind::Unix, 1).with_quorum();
    let (agent, driver) = start(&group, 1);
    assert!(
        await_any(&[&driver], Duration::ZERO),
        "there is a beginning"
    );
    drop(enter(&agent, &lock("x")));
    let mut timers = 0;
    let end = clock::now() + LEASE;
    while clock::now() < end {
        driver.process().unwrap();
        let Some(timeout) = driver.timeout() else {
            break;
        };
        let due = clock::now() + timeout;
        let longest = PollTimeout::try_from(TIMEOUT).unwrap();
        let mut polled = [PollFd::new(driver.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut polled, longest).unwrap(), 1);
        assert!(clock::now() + Duration::from_millis(1) >= due, "too early");
        timers += 1;
    }
    assert!(timers > 2, "only {timers}: what renews the lease?");
    assert!(timers < 1000, "{timers} is a busy loop");
}

/// A request makes the descriptor readable when the protocol must be called sooner for it.
#[test]
fn what_the_application_asks_for_changes_the_timer() {
    let group = Group::new(Kind::Unix, 2).with_quorum();
    let (first, of_first) = start(&group, 1);
    let (_second, of_second) = start(&group, 2);
    let both = [&of_first, &of_second];
    let mut waiting = begin(&first, "x");
    drop(process_until(&both, || look(&mut waiting)));
    while await_any(&[&of_first], Duration::ZERO) {
        of_first.process().unwrap();
    }
    let before = of_first.timeout().unwrap();
    // The other does not answer: the request is repeated.
    let waiting = begin(&first, "x");
    let after = of_first.timeout().unwrap();
    assert!(
        after <= before && after < LEASE / 5,
        "{before:?}, {after:?}"
    );
    assert!(await_any(&[&of_first], LEASE));
    drop(waiting);
}

/// What waits for answers processes by itself.
#[test]
fn a_status_needs_no_other_thread() {
    let group = Group::new(Kind::Unix, 2).with_quorum();
    let other = group.start(2).unwrap();
    let (agent, driver) = start(&group, 1);
    let mut waiting = begin(&other, "x");
    let held = process_until(&[&driver], || look(&mut waiting));
    let status = agent.status().unwrap();
    assert_eq!(status.locks[0].holders[0].member, 2);
    drop(held);
}

/// The group is told, and all is gone: the same member can start anew in the same process.
#[test]
fn a_closed_one_has_left() {
    let group = Group::new(Kind::Unix, 2).with_quorum();
    let _other = group.start(2).unwrap();
    for _ in 0..3 {
        let (agent, driver) = start(&group, 1);
        let grant = enter(&agent, &lock("held"));
        let mut waiting = begin(&agent, "held");
        agent.close();
        assert_eq!(grant.state(), GuardState::Lost);
        let closed = AcquireError::Closed(SessionEnd::Closed);
        let Poll::Ready(Err(refused)) = waiting.wait(Some(Duration::ZERO)) else {
            panic!("it still waits");
        };
        assert_eq!(refused, closed);
        assert_eq!(
            driver.process(),
            Err(ProcessError::Closed(SessionEnd::Closed))
        );
        assert!(await_any(&[&driver], Duration::ZERO), "its end is told");
        drop(agent);
        assert!(group.directory.join("state-1").exists());
        assert!(!group.directory.join("1.sock").exists());
    }
}

/// Threads may share one all the same: whoever waits drives, and the others are not forgotten.
#[test]
fn threads_that_wait_at_once_drive_in_turns() {
    const ROUNDS: usize = 50;
    let group = Group::new(Kind::Udp, 2).with_quorum();
    let counter = group.directory.join("counter");
    fs::write(&counter, "0").unwrap();
    let mut other = group.spawn("increment", 2, ROUNDS);
    let (agent, driver) = start(&group, 1);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let grant = enter(&agent, &lock("counter"));
                    crate::support::increment(&counter);
                    grant.release().unwrap();
                }
            });
        }
    });
    process_until(&[&driver], || {
        (read_counter_or_zero(&counter) == 4 * ROUNDS).then_some(())
    });
    other.expect("done");
    other.finish();
}

/// Somebody may be writing it.
fn read_counter_or_zero(path: &std::path::Path) -> usize {
    let text = fs::read_to_string(path).unwrap();
    text.trim().parse().unwrap_or(0)
}

/// What is done at a loss runs inside of a round.
#[test]
fn a_loss_may_close_the_agent() {
    let group = Group::new(Kind::Udp, 3).with_quorum();
    let others = [group.start(2).unwrap(), group.start(3).unwrap()];
    let (agent, driver) = start(&group, 1);
    let agent = std::sync::Arc::new(agent);
    let grant = enter(&agent, &lock("held"));
    let closes = agent.clone();
    grant.loss().on_loss(Box::new(move |_| closes.close()));
    let next = enter(&others[0], &lock("held"));
    eventually("the end", || {
        driver.process() == Err(ProcessError::Closed(SessionEnd::Closed))
    });
    next.release().unwrap();
}

/// Whoever waits runs the loop, also when nobody has the driver any more; and when the agent is
/// closed, nothing of either is left.
#[test]
fn who_waits_needs_no_driver() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let group = Group::new(Kind::Unix, 2).with_quorum();
    let _other = group.start(2).unwrap();
    let before = descriptors();
    let (agent, driver) = start(&group, 1);
    drop(driver);
    enter(&agent, &lock("x")).release().unwrap();
    assert!(descriptors() > before);
    agent.close();
    drop(agent);
    eventually("that all is closed", || descriptors() <= before);
}

#[test]
fn it_serves_nobody_else() {
    let group = Group::new(Kind::Unix, 1);
    let refused = Agent::start_driven(group.serving(1)).map(drop).unwrap_err();
    assert!(matches!(refused, StartError::Service), "{refused}");
    assert!(!group.directory.join("state-1").exists());
}

#[test]
fn a_forked_child_drives_nothing() {
    let group = Group::new(Kind::Unix, 2).with_quorum();
    let _other = group.start(2).unwrap();
    let (agent, driver) = start(&group, 1);
    let grant = enter(&agent, &lock("held"));
    if let Some(child) = forked() {
        let asked = agent.acquire(&lock("x"), None, Patience::Forever, Caller::default());
        let is_refused = driver.process() == Err(ProcessError::Forked)
            && driver.timeout().is_none()
            && !grant.is_held()
            && matches!(asked, Err(AcquireError::Forked));
        agent.close();
        drop((agent, driver));
        mem::forget(grant);
        child.exit(i32::from(!is_refused));
    }
    assert!(grant.is_held());
    driver.process().unwrap();
    grant.release().unwrap();
}
