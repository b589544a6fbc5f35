//! A configured group through the public API: members, and clients of a host's agent.

mod support;

use std::num::NonZeroU32;
use std::sync::mpsc;
use std::time::Duration;

use distlock::status::MemberState;
use distlock::{
    Agent, Algorithm, DistMutex, Event, HandleError, LockError, LockOptions, Loss, OpenError,
    TimedLockError, UnlockError,
};
use support::{Group, is_busy};

const TIMEOUT: Duration = Duration::from_secs(30);

fn by(algorithm: Algorithm) -> LockOptions {
    LockOptions::new().algorithm(algorithm)
}

/// Two members, and locks that are served otherwise than others.
fn pair() -> Group {
    let listed = "{ name = \"listed\", algorithm = \"token-ring-requests\" }";
    let licences = "{ name = \"licences\", permits = 2 }";
    Group::new(2, &format!("lock = [{listed}, {licences}]"))
}

fn permits(n: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(n)
}

#[test]
fn members_take_turns_and_their_fences_rise() {
    let pair = pair();
    let (first, second) = (pair.member(1), pair.member(2));
    let (here, there) = (first.mutex("x").unwrap(), second.mutex("x").unwrap());
    assert_eq!(here.algorithm(), Algorithm::Manager);
    let held = here.lock().unwrap();
    assert!(held.is_held());
    assert!(is_busy(there.try_lock()));
    let timed = there.try_lock_for(Duration::from_millis(20));
    assert!(matches!(timed, Err(TimedLockError::TimedOut)));
    assert!(matches!(here.lock(), Err(LockError::Deadlock)));
    let fence = held.fence().unwrap();
    held.unlock().unwrap();
    assert!(there.try_lock_for(TIMEOUT).unwrap().fence().unwrap() > fence);
}

#[test]
fn the_configuration_says_how_locks_are_served() {
    let pair = pair();
    let (first, client) = pair.with_client();
    let second = pair.member(2);
    for agent in [&first, &second, &client] {
        assert_eq!(
            agent.mutex("listed").unwrap().algorithm(),
            Algorithm::TokenRingRequests
        );
        let wrong = agent
            .mutex_with("listed", &by(Algorithm::Bakery))
            .unwrap_err();
        assert!(
            matches!(wrong, HandleError::WrongAlgorithm { .. }),
            "{wrong}"
        );
        let wrong = agent.mutex_with("x", &by(Algorithm::Kernel)).unwrap_err();
        assert!(
            matches!(wrong, HandleError::NotInThisGroup { .. }),
            "{wrong}"
        );
        let wrong = agent.mutex("licences").unwrap_err();
        assert!(matches!(wrong, HandleError::WrongPermits { .. }), "{wrong}");
        let wrong = agent.semaphore("unlisted", None).unwrap_err();
        assert!(matches!(wrong, HandleError::PermitsUnknown), "{wrong}");
        assert_eq!(
            agent.semaphore("licences", None).unwrap().permits(),
            permits(2).unwrap()
        );
    }
}

#[test]
fn a_lock_in_use_keeps_its_algorithm() {
    let pair = pair();
    let (first, client) = pair.with_client();
    let second = pair.member(2);
    let chosen = first.mutex_with("new", &by(Algorithm::Bakery)).unwrap();
    let held = chosen.lock().unwrap();
    let other = second.mutex_with("new", &by(Algorithm::TokenRing)).unwrap();
    let refused = other.try_lock_for(TIMEOUT).unwrap_err();
    assert!(
        matches!(
            refused,
            TimedLockError::Failed(LockError::WrongAlgorithm {
                actual: Algorithm::Bakery,
                ..
            })
        ),
        "{refused}"
    );
    // Who did not ask for any takes it as it is.
    let plain = client.mutex("new").unwrap();
    assert!(is_busy(plain.try_lock()));
    assert_eq!(plain.algorithm(), Algorithm::Bakery);
    held.unlock().unwrap();
    drop(plain.try_lock_for(TIMEOUT).unwrap());
}

#[test]
fn a_client_takes_turns_with_members_and_shows_in_the_status() {
    let pair = pair();
    let (first, client) = pair.with_client();
    let second = pair.member(2);
    let options = LockOptions::new().command("print a.ps");
    let printer = client.mutex_with("printer", &options).unwrap();
    let guard = printer.lock().unwrap();
    guard.set_command_pid(4_242);
    let elsewhere = second.mutex("printer").unwrap();
    assert!(is_busy(elsewhere.try_lock()));
    for agent in [&first, &second, &client] {
        let status = agent.status().unwrap();
        assert_eq!(status.group, "shop");
        assert!(status.epoch > 0);
        let states: Vec<_> = status.members.iter().map(|m| (m.id, m.state)).collect();
        assert_eq!(states, [(1, MemberState::Alive), (2, MemberState::Alive)]);
        let printer = status
            .locks
            .iter()
            .find(|lock| lock.name == "printer")
            .unwrap();
        assert_eq!(printer.algorithm, "manager");
        let holder = &printer.holders[0];
        assert_eq!((holder.member, holder.pid), (1, std::process::id()));
        assert_eq!(
            (&*holder.command, holder.command_pid),
            ("print a.ps", Some(4_242))
        );
        assert_eq!(holder.fence, guard.fence().map(|fence| fence.as_u64()));
    }
    guard.unlock().unwrap();
    drop(elsewhere.try_lock_for(TIMEOUT).unwrap());
}

#[test]
fn a_semaphore_lets_as_many_in_as_it_has_permits() {
    let pair = pair();
    let (first, client) = pair.with_client();
    let second = pair.member(2);
    let licences = |agent: &Agent| agent.semaphore("licences", None).unwrap();
    let one = licences(&first).acquire().unwrap();
    let _two = licences(&second).acquire().unwrap();
    assert!(is_busy(licences(&client).try_acquire()));
    drop(one);
    let three = licences(&client).try_acquire_for(TIMEOUT).unwrap();
    assert!(three.is_held());
    let wrong = first.semaphore("licences", permits(3)).unwrap_err();
    assert!(matches!(wrong, HandleError::WrongPermits { .. }), "{wrong}");
}

#[test]
fn when_the_agent_ends_its_clients_have_lost_everything() {
    let pair = pair();
    let (first, client) = pair.with_client();
    let second = pair.member(2);
    let mutex = client.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    let (sender, losses) = mpsc::channel();
    guard.on_loss(move |loss| sender.send(loss).unwrap());
    first.close();
    assert_eq!(losses.recv_timeout(TIMEOUT), Ok(Loss::Revoked));
    assert!(!guard.is_held());
    assert!(matches!(guard.unlock(), Err(UnlockError::Lost)));
    assert!(matches!(mutex.lock(), Err(LockError::Disconnected { .. })));
    drop(second);
}

#[test]
fn a_closed_client_gives_everything_back() {
    let pair = pair();
    let (_first, client) = pair.with_client();
    let second = pair.member(2);
    let guard = client.mutex("x").unwrap().lock().unwrap();
    client.close();
    assert!(matches!(guard.unlock(), Err(UnlockError::Closed)));
    drop(second.mutex("x").unwrap().try_lock_for(TIMEOUT).unwrap());
}

#[test]
fn members_and_clients_hear_of_views() {
    let pair = pair();
    let (first, client) = pair.with_client();
    let listeners = [first.events(), client.events()];
    // The client has its answer, so the agent knows that it listens.
    client.status().unwrap();
    let _second = pair.member(2);
    for events in listeners {
        let deadline = std::iter::from_fn(|| events.recv_timeout(TIMEOUT).ok());
        let view = deadline
            .into_iter()
            .find(|event| matches!(event, Event::View { .. }));
        assert!(matches!(view, Some(Event::View { members, .. }) if members.len() == 2));
    }
}

#[test]
fn a_member_that_runs_is_not_started_again() {
    let pair = pair();
    let _first = pair.member(1);
    let error = Agent::from_config(pair.node(1)).unwrap_err();
    assert!(matches!(error, OpenError::AlreadyRunning { .. }), "{error}");
    let elsewhere = pair
        .config
        .node(1)
        .unwrap()
        .with_state_dir(pair.path().join("other"));
    let error = Agent::from_config(elsewhere).unwrap_err();
    assert!(matches!(error, OpenError::AddressInUse { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{error}"
    );
}

#[test]
fn a_socket_without_an_agent_says_so() {
    let pair = pair();
    let error = Agent::connect(pair.path().join("nobody")).unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
}

/// It gave up before anybody could have answered.
#[test]
fn no_time_is_enough_for_a_free_lock_and_for_no_other() {
    let pair = pair();
    let (first, second) = (pair.member(1), pair.member(2));
    let ring = second
        .mutex_with("ring", &by(Algorithm::TokenRing))
        .unwrap();
    // When the group is founded.
    drop(ring.lock().unwrap());
    let held = ring.try_lock_for(Duration::ZERO).unwrap();
    let other = first.mutex_with("ring", &by(Algorithm::TokenRing)).unwrap();
    let refused = other.try_lock_for(Duration::ZERO).unwrap_err();
    assert!(matches!(refused, TimedLockError::TimedOut));
    held.unlock().unwrap();
}

#[test]
fn no_time_without_the_others_is_no_quorum() {
    let pair = pair();
    let alone = pair.member(1).mutex("x").unwrap();
    let refused = alone.try_lock_for(Duration::ZERO).unwrap_err();
    let TimedLockError::Failed(LockError::NoQuorum { missing }) = refused else {
        panic!("{refused}");
    };
    assert_eq!(missing.len(), 1);
}
