//! Leases with planted ends: the core of these agents needs nobody else and never ends a lease
//! itself, and the tests say in its place when one ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::protocol::{
    Epoch, Event, Failure, LockName, Mode, NodeId, Previous, Release, Settings, Ticket, Time,
};
use crate::runtime::api::error::{AcquireError, ReleaseError, SessionEnd};
use crate::runtime::clients::raw_client::RawClient;
use crate::runtime::frames::{FromAgent, ToAgent};
use crate::runtime::{
    Address, Agent, AgentEvent, Caller, Client, Endpoint, Grant, GuardState, Options, Patience,
    Waiting, clock,
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// An agent alone in its group, in its first view.
struct Host {
    agent: Arc<Agent>,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Host {
    fn start(lease: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("clients");
        let me = NodeId::new(1).unwrap();
        let address = Address::unix(directory.path().join("1")).unwrap();
        let members = BTreeMap::from([(me, address)]);
        let settings = Settings {
            lease,
            failure: Failure::Unanimity,
            ..Settings::new("test")
        };
        let agent = Agent::start(Options {
            socket: Some(Endpoint::Path(socket.clone())),
            ..Options::new(me, members, settings, directory.path().join("state"))
        })
        .unwrap();
        let host = Self {
            agent: Arc::new(agent),
            socket,
            _directory: directory,
        };
        host.begin("first", Patience::Forever)
            .finish()
            .unwrap()
            .release()
            .unwrap();
        host
    }

    fn begin(&self, name: &str, patience: Patience) -> Waiting {
        let name = LockName::new(name).unwrap();
        let caller = Caller::current();
        let begun = self
            .agent
            .begin(&name, None, Mode::Exclusive, patience, caller);
        begun.unwrap()
    }

    fn acquire(&self, name: &str) -> Grant {
        self.begin(name, Patience::For(LONG)).finish().unwrap()
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket).unwrap()
    }

    fn pretend(&self, events: impl IntoIterator<Item = Event>) {
        let mut core = self.agent.shared.lock_core();
        events.into_iter().for_each(|event| core.pretend(event));
        core.finish_as_application();
    }

    fn lease_ends(&self, until: Time) {
        self.pretend([Event::Lease { until }]);
    }

    fn suspend(&self) {
        self.lease_ends(clock::now());
    }

    fn renew(&self) {
        self.lease_ends(clock::now() + LONG);
    }

    /// What is held is lost, and the session is over.
    fn exclude(&self) {
        let tickets: Vec<Ticket> = {
            let core = self.agent.shared.lock_core();
            core.core.requests.keys().copied().collect()
        };
        let lost = tickets.into_iter().map(|ticket| Event::Lost { ticket });
        self.pretend(lost.chain([Event::Excluded { epoch: epoch() }]));
    }
}

fn epoch() -> Epoch {
    Epoch::new(7).unwrap()
}

fn begin(client: &Client, name: &str, patience: Patience) -> Waiting {
    let name = LockName::new(name).unwrap();
    let begun = client.begin(&name, None, Mode::Exclusive, patience, Caller::current());
    begun.unwrap()
}

/// Until the agent's word has come through the stream.
fn until(what: impl Fn() -> bool) {
    let end = clock::now() + LONG;
    while !what() {
        assert!(clock::now() < end, "in vain");
        thread::yield_now();
    }
}

fn is_pending(waiting: &mut Waiting) -> bool {
    matches!(waiting.wait(Some(Duration::from_millis(1))), Poll::Pending)
}

/// Asks for a lock.
type Way = Box<dyn Fn(&str, Patience) -> Waiting>;

/// The ways to a lock, which promise the same.
fn ways(host: &Host) -> [Way; 2] {
    let (agent, client) = (Arc::clone(&host.agent), host.client());
    let of_agent = move |name: &str, patience| {
        let name = LockName::new(name).unwrap();
        let caller = Caller::current();
        agent
            .begin(&name, None, Mode::Exclusive, patience, caller)
            .unwrap()
    };
    let of_client = move |name: &str, patience| begin(&client, name, patience);
    [Box::new(of_agent), Box::new(of_client)]
}

/// The grant is there, and its lease is over when the caller looks: it waits, and the lock is free
/// again when it has no more time.
#[test]
fn a_grant_without_a_lease_is_not_handed_out() {
    let host = Host::start(LONG);
    for way in ways(&host) {
        host.suspend();
        let mut waiting = way("x", Patience::For(Duration::from_millis(30)));
        assert!(is_pending(&mut waiting));
        let late = waiting.finish().unwrap_err();
        let missing = Vec::new();
        assert_eq!(late, AcquireError::NoQuorum { missing });
        host.renew();
        let next = way("x", Patience::For(LONG)).finish().unwrap();
        assert_eq!(next.previous(), Previous::Clean, "nobody was inside");
        assert_eq!(next.state(), GuardState::Valid);
    }
}

#[test]
fn a_renewal_wakes_who_waits_for_one() {
    let host = Host::start(LONG);
    for way in ways(&host) {
        host.suspend();
        let mut waiting = way("x", Patience::Lease);
        assert!(is_pending(&mut waiting));
        let waiter = thread::spawn(move || {
            let grant = waiting.finish().unwrap();
            (grant.state(), grant)
        });
        host.renew();
        let (state, grant) = waiter.join().unwrap();
        assert_eq!(state, GuardState::Valid);
        grant.release().unwrap();
    }
}

/// One lease, and not the caller's whole incarnation.
#[test]
fn without_a_lease_for_a_lease_there_is_no_quorum() {
    let lease = Duration::from_millis(50);
    let host = Host::start(lease);
    for way in ways(&host) {
        for patience in [Patience::Lease, Patience::Try] {
            host.suspend();
            let start = clock::now();
            let refused = way("x", patience).finish().unwrap_err();
            let missing = Vec::new();
            assert_eq!(refused, AcquireError::NoQuorum { missing });
            assert!(clock::now() >= start + lease);
            host.renew();
            way("x", Patience::For(LONG))
                .finish()
                .unwrap()
                .release()
                .unwrap();
        }
    }
}

#[test]
fn a_grant_that_is_lost_before_it_is_seen_is_void() {
    let host = Host::start(LONG);
    for (lock, way) in ["x", "y"].into_iter().zip(ways(&host)) {
        host.suspend();
        let mut waiting = way(lock, Patience::Forever);
        let is_known = || host.agent.shared.lock_core().core.requests.len() == 1;
        until(is_known);
        assert!(is_pending(&mut waiting));
        host.exclude();
        assert_eq!(waiting.finish().unwrap_err(), AcquireError::Voided);
        // Neither is one whose lease was renewed for the next incarnation, and that was lost after it
        // was granted.
        host.renew();
        let lock = format!("{lock} again");
        let waiting = way(&lock, Patience::Forever);
        until(is_known);
        host.exclude();
        host.renew();
        // A client may get it before it hears of the loss.
        match waiting.finish() {
            Ok(grant) if lock.starts_with('y') => until(|| grant.state() == GuardState::Lost),
            outcome => assert_eq!(outcome.unwrap_err(), AcquireError::Voided),
        }
    }
}

#[test]
fn a_guard_is_suspended_and_valid_again() {
    let host = Host::start(LONG);
    for way in ways(&host) {
        host.renew();
        let grant = way("x", Patience::For(LONG)).finish().unwrap();
        assert_eq!(grant.state(), GuardState::Valid);
        let grace = grant.grace().unwrap();
        assert!(grace > LONG / 2 && grace <= LONG, "{grace:?}");
        host.suspend();
        until(|| grant.state() == GuardState::Suspended);
        assert!(!grant.is_held());
        assert_eq!(grant.grace(), Some(Duration::ZERO));
        host.lease_ends(Time::MAX);
        until(|| grant.state() == GuardState::Valid);
        assert_eq!(grant.grace(), None);
        grant.release().unwrap();
    }
}

/// Rule 5 (doc/design.md): a thread that stood still through its exclusion finds a lease that is
/// alive, and it is not its own.
#[test]
fn a_guard_never_sees_the_lease_of_a_later_session() {
    let host = Host::start(LONG);
    let events = host.agent.events();
    for (lock, way) in ["x", "y"].into_iter().zip(ways(&host)) {
        host.renew();
        let grant = way(lock, Patience::For(LONG)).finish().unwrap();
        let until_then = grant.grace().unwrap();
        // Without a word about the grant itself.
        host.pretend([Event::Excluded { epoch: epoch() }]);
        until(|| grant.state() == GuardState::Lost);
        host.lease_ends(clock::now() + 2 * LONG);
        let next = way(&format!("{lock} again"), Patience::For(LONG));
        let next = next.finish().unwrap();
        assert_eq!(next.state(), GuardState::Valid);
        assert!(next.grace() > Some(LONG));
        assert_eq!(grant.state(), GuardState::Lost);
        assert!(
            grant.grace().unwrap() <= until_then,
            "others wait no longer"
        );
        let excluded = AgentEvent::Excluded { epoch: epoch() };
        assert!(events.try_iter().any(|event| event == excluded));
    }
}

/// doc/faults.md, row 1: it returns LOST, and frees nobody else.
#[test]
fn what_is_lost_is_not_given_back() {
    let host = Host::start(LONG);
    for (lock, way) in ["x", "y"].into_iter().zip(ways(&host)) {
        host.renew();
        let grant = way(lock, Patience::For(LONG)).finish().unwrap();
        host.exclude();
        until(|| grant.state() == GuardState::Lost);
        // The core of this agent does not know that it was excluded: whoever has the lock now is
        // whom it let in before.
        host.renew();
        let busy = || host.begin(lock, Patience::Try).finish().unwrap_err();
        assert_eq!(busy(), AcquireError::Busy);
        assert_eq!(grant.settle_as(Release::Given), Err(ReleaseError::Lost));
        assert_eq!(busy(), AcquireError::Busy);
    }
}

/// The thread of a process that stood still may be the first of it to run, before anybody has
/// heard what became of the lock. Its lock is free at once; what it is told is the truth.
#[test]
fn giving_back_what_is_suspended_says_what_became_of_it() {
    let host = Host::start(LONG);
    for way in ways(&host) {
        for (is_excluded, truth) in [(false, Ok(())), (true, Err(ReleaseError::Lost))] {
            host.renew();
            let grant = way("x", Patience::For(LONG)).finish().unwrap();
            host.suspend();
            until(|| grant.state() == GuardState::Suspended);
            let unlocks = thread::spawn(move || grant.settle_as(Release::Given));
            until(|| host.agent.shared.lock_core().core.requests.is_empty());
            assert!(!unlocks.is_finished());
            if is_excluded {
                host.exclude();
            }
            host.renew();
            assert_eq!(unlocks.join().unwrap(), truth);
        }
    }
    // One that its caller never saw is no loss.
    host.renew();
    let unseen = host.acquire("x");
    host.suspend();
    let _ = unseen.release_as(Release::Unused);
    // Whatever becomes of the lock: the caller had to leave alone what it protects.
    let losses = host.agent.shared.metrics().unwrap().losses;
    assert_eq!((losses["expired"], losses["excluded"]), (4, 0));
}

#[test]
fn giving_back_what_is_suspended_waits_no_longer_than_a_lease() {
    let lease = Duration::from_millis(50);
    let host = Host::start(lease);
    for way in ways(&host) {
        for settles in [true, false] {
            host.renew();
            let grant = way("x", Patience::For(LONG)).finish().unwrap();
            host.suspend();
            until(|| grant.state() == GuardState::Suspended);
            let start = clock::now();
            if settles {
                assert_eq!(grant.settle_as(Release::Given), Err(ReleaseError::Lost));
                assert!(clock::now() >= start + lease);
            } else {
                drop(grant);
            }
            until(|| host.agent.shared.lock_core().core.requests.is_empty());
        }
    }
}

#[test]
fn the_end_of_the_agent_is_the_end_of_its_session() {
    let host = Host::start(LONG);
    host.renew();
    let grant = host.acquire("x");
    let client = host.client();
    let of_client = begin(&client, "y", Patience::For(LONG)).finish().unwrap();
    let mut core = host.agent.shared.lock_core();
    core.end(SessionEnd::Panicked);
    core.finish_as_application();
    assert_eq!(grant.state(), GuardState::Lost);
    until(|| of_client.state() == GuardState::Lost);
    assert!(grant.grace().is_some_and(|grace| grace > LONG / 2));
    assert!(of_client.grace().is_some_and(|grace| grace > LONG / 2));
}

#[test]
fn a_renewal_costs_one_frame_for_each_client_that_it_concerns() {
    let host = Host::start(LONG);
    let mut raw = RawClient::connect(&host.socket);
    let far = |secs: u64| Time::from_nanos(clock::now().as_nanos() + secs * 1_000_000_000);
    let lease = |session, until: Time| FromAgent::Lease {
        session,
        until: until.as_nanos(),
    };
    let renew = |ends: &[Time]| {
        host.pretend(ends.iter().map(|&until| Event::Lease { until }));
        // The agent's thread does what is left to it before it answers a question.
        until(|| host.agent.shared.lock_core().core.tasks.is_empty());
    };
    let first = far(100);
    renew(&[first]);
    assert_eq!(raw.heard(), [], "it has nothing and waits for nothing");

    raw.acquire(1);
    assert_eq!(raw.hear(), lease(0, first), "before its first grant");
    assert!(matches!(raw.hear(), FromAgent::Granted { id: 1, .. }));
    let ends = [far(101), far(102), far(103)];
    renew(&ends);
    assert_eq!(raw.heard(), [lease(0, ends[2])]);
    renew(&ends[2..]);
    assert_eq!(raw.heard(), [], "nothing new");

    raw.say(&ToAgent::Release {
        id: 1,
        how: Release::Given,
    });
    assert_eq!(raw.heard(), []);
    let last = far(104);
    renew(&[last]);
    assert_eq!(raw.heard(), [lease(0, last)], "it may wait to know");
    renew(&[far(105)]);
    assert_eq!(raw.heard(), []);

    raw.acquire(2);
    assert!(matches!(raw.hear(), FromAgent::Lease { session: 0, .. }));
    assert!(matches!(raw.hear(), FromAgent::Granted { id: 2, .. }));
    host.exclude();
    assert_eq!(raw.hear(), FromAgent::Lost { id: 2 });
    assert_eq!(raw.hear(), lease(1, Time::ZERO));
}

/// The command of a runner that stands still, and of one whose lease nobody renews. It does not
/// heed SIGTERM, and is gone before others can be let in.
#[test]
fn a_command_is_ended_before_its_lease() {
    let lease = Duration::from_secs(2);
    let host = Host::start(lease);
    for is_lost in [false, true] {
        host.renew();
        let client = host.client();
        let caller = Caller {
            has_lifeline: true,
            ..Caller::current()
        };
        let name = LockName::new("x").unwrap();
        let grant = client
            .acquire(&name, None, Patience::For(LONG), caller)
            .unwrap();
        let lifeline = grant.lifeline().unwrap().try_clone_to_owned().unwrap();
        fcntl(&lifeline, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(lifeline);
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "ready");
        grant.set_command_pid(child.id());
        let limit = clock::now() + lease / 2;
        host.lease_ends(limit);
        if is_lost {
            host.exclude();
        }
        let status = child.wait().unwrap();
        assert!(clock::now() < limit);
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        let rest: Vec<_> = said.map(Result::unwrap).collect();
        assert_eq!(rest, ["asked"], "once, before it was killed");
        until(|| grant.state() == GuardState::Lost);
        // There is no way back, also if the lease is renewed after all.
        host.renew();
        assert_eq!(grant.release(), Err(ReleaseError::Lost));
        if !is_lost {
            let next = host.acquire("x");
            assert_eq!(next.previous(), Previous::Abandoned);
        }
    }
}
