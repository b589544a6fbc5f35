//! What the simulator once found, reduced to the few steps that bring it out.
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use distlock_lab::choices::Choices;
use distlock_lab::cluster::{Cluster, Surroundings, Turn};
use distlock_lab::trace::Trace;
use distlock_protocol::{
    Algorithm, Command, ElectionAlgorithm, Event, Failure, LockName, LockSpec, Mode, NodeId,
    Release, Settings, Ticket, Wait,
};

const LEASE: Duration = Duration::from_secs(1);

/// A group on a perfect network, all of it watched by the checkers.
struct Group {
    cluster: Cluster<()>,
    events: Vec<(u16, Event)>,
}

impl Group {
    fn new(size: u16, algorithm: Algorithm) -> Self {
        let settings = Settings {
            group: "regressions".into(),
            lease: LEASE,
            failure: Failure::Unanimity,
            lock_delay: Duration::ZERO,
            election: ElectionAlgorithm::Bully,
            algorithm,
            locks: BTreeMap::new(),
        };
        let locks = BTreeMap::from([(printer(), NonZeroU32::MIN)]);
        let surroundings = Surroundings::perfect(Duration::from_millis(1));
        let (choices, trace) = (Choices::new(0), Trace::new(None));
        let cluster = Cluster::new(size, settings, surroundings, locks, choices, trace);
        Self {
            cluster,
            events: Vec::new(),
        }
    }

    fn start_all(&mut self) {
        for node in self.cluster.members().collect::<Vec<_>>() {
            self.cluster.start(node).unwrap();
        }
    }

    /// Lets `time` pass.
    fn run(&mut self, time: Duration) {
        let end = self.cluster.now() + time;
        while let Some(turn) = self.cluster.next(end).unwrap() {
            if let Turn::Told(process, event) = turn {
                self.events.push((process.node.as_u16(), event));
            }
        }
    }

    fn acquire(&mut self, id: u16, ticket: u64) {
        self.acquire_as(None, id, ticket);
    }

    /// Says how the lock is to be served.
    fn acquire_as(&mut self, spec: Option<LockSpec>, id: u16, ticket: u64) {
        let acquire = Command::Acquire {
            ticket: Ticket(ticket),
            lock: printer(),
            spec,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
        };
        assert!(self.cluster.command(node(id), &acquire).unwrap());
    }

    fn release(&mut self, id: u16, ticket: u64) {
        let ticket = Ticket(ticket);
        let how = Release::Given;
        let release = Command::Release { ticket, how };
        assert!(self.cluster.command(node(id), &release).unwrap());
    }

    fn granted(&self, ticket: u64) -> bool {
        self.count(|event| matches!(event, Event::Granted { ticket: its, .. } if its.0 == ticket))
            == 1
    }

    fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(_, event)| is_it(event)).count()
    }
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn printer() -> LockName {
    LockName::new("printer").unwrap()
}

/// A view needs its coordinator to be in touch with everybody, and nobody else with anybody. What
/// two members said to each other before they had met was lost, and never said again.
#[test]
fn members_of_a_view_that_have_not_met_lose_nothing() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(3, algorithm);
        group.start_all();
        group.run(LEASE / 4);
        // A member without a record waits for all others; so here is one with a record.
        group.cluster.crash(node(3));
        group.cluster.network().cut(node(2), node(3));
        group.cluster.network().cut(node(3), node(2));
        group.cluster.start(node(3)).unwrap();
        group.run(LEASE * 2);
        assert_eq!(group.count(|event| matches!(event, Event::View { .. })), 6);
        group.acquire(2, 1);
        group.run(LEASE / 4);
        group.cluster.network().join();
        group.run(LEASE * 2);
        assert!(group.granted(1), "{algorithm}");
        group.release(2, 1);
        group.acquire(3, 2);
        group.run(LEASE * 2);
        assert!(group.granted(2), "{algorithm}");
    }
}

/// A member that was suspected and came back in a new incarnation was never said to be alive, and
/// at the next silence it was suspected a second time.
#[test]
fn a_suspected_member_that_restarts_is_alive_again() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.start_all();
    for time in 1..=3 {
        group.run(LEASE);
        group.cluster.crash(node(2));
        group.run(LEASE * 2);
        group.cluster.start(node(2)).unwrap();
        group.run(LEASE * 2);
        let suspected = group.count(|event| matches!(event, Event::Suspect { .. }));
        let alive = group.count(|event| matches!(event, Event::Alive { .. }));
        assert_eq!((suspected, alive), (time, time));
    }
}

/// A member that had lost its record learned that it had been inside from the very greeting that
/// ended its suspicion of the other; it took itself to be ready first, and waited for nobody.
#[test]
fn a_lost_record_is_remembered_also_by_a_member_that_was_suspected() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.start_all();
    group.run(LEASE);
    group.acquire(1, 1);
    group.run(LEASE);
    assert!(group.granted(1));
    group.cluster.crash(node(1));
    group.cluster.lose_record(node(1));
    group.cluster.network().cut(node(2), node(1));
    group.cluster.start(node(1)).unwrap();
    group.acquire(2, 2);
    group.run(LEASE * 3 / 4);
    let suspected = |event: &Event| matches!(event, Event::Suspect { peer } if *peer == node(2));
    assert_eq!(group.count(suspected), 1);
    group.cluster.network().join();
    // The checkers see to it that nobody enters before its clients' lease is over.
    group.run(LEASE / 4);
    assert!(!group.granted(2));
    group.run(LEASE);
    assert!(group.granted(2));
}

/// A member that had lost its record left before it had met anybody who could tell it of its
/// former incarnation, and put on disk that nobody of it was inside.
#[test]
fn a_lost_record_is_not_made_clean_by_leaving() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.start_all();
    group.run(LEASE);
    group.acquire(1, 1);
    group.run(LEASE);
    assert!(group.granted(1));
    group.cluster.crash(node(1));
    group.cluster.lose_record(node(1));
    group.cluster.network().cut(node(2), node(1));
    group.cluster.start(node(1)).unwrap();
    group.acquire(2, 2);
    group.run(LEASE / 10);
    assert!(group.cluster.command(node(1), &Command::Leave).unwrap());
    group.run(LEASE / 2);
    assert_eq!(group.count(|event| *event == Event::Left), 1);
    let incarnation = group.cluster.process(node(1)).unwrap();
    group.cluster.remove(incarnation);
    group.cluster.network().join();
    group.cluster.start(node(1)).unwrap();
    // The checkers see to it that nobody enters before its clients' lease is over.
    group.run(LEASE * 2);
    assert!(group.granted(2));
}

/// A lock that no file lists is forgotten by a view in which nobody uses it. A member that was
/// asked for it between its summary and the install still knew how it had been served: it waited
/// for a ring that the others did not know, or served the lock by another algorithm than they did.
#[test]
fn a_lock_asked_for_between_two_views_is_declared_anew() {
    for (before, after) in [
        (Algorithm::TokenRing, Algorithm::TokenRing),
        (Algorithm::TokenRing, Algorithm::RicartAgrawala),
        (Algorithm::RicartAgrawala, Algorithm::Bakery),
    ] {
        let mut group = Group::new(3, Algorithm::Semaphore);
        group.start_all();
        group.run(LEASE);
        group.acquire_as(Some(LockSpec::exclusive(before)), 3, 1);
        group.run(LEASE);
        group.release(3, 1);
        group.run(LEASE);
        // It leaves: a crash would keep the lock known, as it may have been abandoned.
        assert!(group.cluster.command(node(2), &Command::Leave).unwrap());
        group.run(LEASE);
        let incarnation = group.cluster.process(node(2)).unwrap();
        group.cluster.remove(incarnation);
        group.cluster.start(node(2)).unwrap();
        let frozen = |group: &Group| group.cluster.node(node(3)).unwrap().view().is_none();
        while !frozen(&group) {
            group.run(Duration::from_millis(1));
        }
        // Its summary is on its way; the install shall take a while.
        group.cluster.network().cut(node(1), node(3));
        group.acquire(3, 2);
        group.run(LEASE / 4);
        assert!(frozen(&group));
        group.acquire_as(Some(LockSpec::exclusive(after)), 2, 3);
        group.run(LEASE / 4);
        group.cluster.network().join();
        group.run(LEASE * 2);
        // One of the two is inside, and the other after it.
        let (first, second) = if group.granted(2) {
            ((3, 2), (2, 3))
        } else {
            ((2, 3), (3, 2))
        };
        assert!(
            group.granted(first.1) && !group.granted(second.1),
            "{before}, {after}"
        );
        group.release(first.0, first.1);
        group.run(LEASE);
        assert!(group.granted(second.1), "{before}, {after}");
    }
}
