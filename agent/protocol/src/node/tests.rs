//! What only shows with numbers that no test can count up to, and what only a caller can do that no
//! agent has.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::api::Wait;
use crate::ids::LockName;
use crate::lock::{Algorithm, LockOutput, LockSpec, Mode, Release};
use crate::membership::Action;
use crate::settings::Settings;

const LEASE: Duration = Duration::from_secs(1);

/// A group of one, by quorum, that has a view.
struct Alone {
    node: Node,
    now: Time,
    lock: LockName,
    ticket: u64,
}

impl Alone {
    fn new(algorithm: Algorithm) -> Self {
        let me = NodeId::new(1).expect("not zero");
        let config = NodeConfig {
            me,
            members: BTreeSet::from([me]),
            voters: BTreeSet::from([me]),
            cluster: None,
            settings: Settings {
                lease: LEASE,
                algorithm,
                ..Settings::new("alone")
            },
        };
        let boot = Boot {
            record: None,
            wall: Duration::from_secs(1000),
            seed: 1,
        };
        let now = Time::from_nanos(1);
        let mut alone = Self {
            node: Node::new(config, boot, now),
            now,
            lock: LockName::new("printer").expect("a good name"),
            ticket: 0,
        };
        alone.run(Duration::from_secs(10));
        assert!(alone.node.view().is_some());
        alone
    }

    /// Returns what was told meanwhile.
    fn run(&mut self, time: Duration) -> Vec<Event> {
        let end = self.now + time;
        let mut events = Vec::new();
        loop {
            while let Some(output) = self.node.poll_output() {
                match output {
                    Output::Persist(_) => self.node.handle(self.now, Input::Persisted),
                    Output::Event(event) => events.push(event),
                    Output::Transmit { .. } => unreachable!("there is nobody else"),
                }
            }
            match self.node.poll_timeout() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.node.handle(self.now, Input::Timeout);
                }
                _ => break,
            }
        }
        self.now = end;
        events
    }

    /// A caller asks for the lock.
    fn ask(&mut self, ticket: Ticket) {
        let acquire = Command::Acquire {
            ticket,
            lock: self.lock.clone(),
            spec: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
        };
        self.node.handle(self.now, Input::Command(&acquire));
    }

    /// Enters once; the fence, or why not.
    fn enter(&mut self) -> Result<Fence, Refusal> {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        self.ask(ticket);
        let told = self.run(Duration::ZERO).into_iter();
        let mut answers = told.filter_map(|event| match event {
            Event::Granted { fence, .. } => Some(Ok(fence)),
            Event::Ended { refusal, .. } => Some(Err(refusal)),
            _ => None,
        });
        let answer = answers.next().expect("an answer at once");
        assert_eq!(answers.next(), None, "one answer");
        let release = Command::Release {
            ticket,
            how: Release::Given,
        };
        self.node.handle(self.now, Input::Command(&release));
        self.run(Duration::from_secs(1));
        answer
    }
}

/// Those by which a group serves in which a majority decides.
fn with_fences() -> impl Iterator<Item = Algorithm> {
    let all = Algorithm::ALL.into_iter();
    all.filter(|algorithm| !algorithm.is_probabilistic())
}

/// Half of an epoch's numbers are used up: a new view begins new ones before the other half is, and
/// nobody notices but by higher fences.
#[test]
fn fences_go_on_in_a_new_epoch_when_half_of_their_numbers_are_used() {
    for algorithm in with_fences() {
        let mut alone = Alone::new(algorithm);
        let mut last = alone.enter().expect("it is free");
        let epoch = alone.node.epoch();
        alone.node.locks.count_up(&alone.lock, (1 << 31) - 3);
        for entry in 0..6 {
            let fence = alone.enter().expect("it is free");
            assert!(fence > last, "{algorithm} {entry}");
            last = fence;
        }
        assert!(alone.node.epoch() > epoch, "{algorithm}");
        assert!(
            last.as_u64() as u32 <= 6,
            "its numbers are new: {algorithm}"
        );
    }
}

/// No view came in time: nobody is let in with a number that has been before. The next view lets
/// all in again.
#[test]
fn after_the_last_fence_of_an_epoch_nobody_enters_until_the_next() {
    for algorithm in with_fences() {
        let mut alone = Alone::new(algorithm);
        let first = alone.enter().expect("it is free");
        let epoch = alone.node.epoch();
        alone.node.locks.count_up(&alone.lock, u32::MAX - 1);
        let last = alone.enter().expect("there is one number more");
        assert_eq!(
            Some(last),
            Fence::from_parts(epoch, u32::MAX),
            "{algorithm}"
        );
        assert!(last > first);

        let mut alone = Alone::new(algorithm);
        alone.enter().expect("it is free");
        alone.node.locks.count_up(&alone.lock, u32::MAX);
        assert_eq!(alone.enter(), Err(Refusal::Limit), "{algorithm}");
        let next = alone.enter().expect("the view has come");
        assert!(next > last, "{algorithm}");
    }
}

/// Who waits to lead and releases what it was not granted still waits, as one who wants to enter
/// does: it can be cancelled, and is told.
#[test]
fn to_release_what_is_waited_for_does_nothing() {
    let mut alone = Alone::new(Algorithm::Semaphore);
    let (wait, algorithm) = (Wait::Cancelled, None);
    for ticket in [Ticket(1), Ticket(2)] {
        let campaign = Command::Campaign {
            ticket,
            lock: alone.lock.clone(),
            spec: LockSpec::exclusive(Algorithm::Semaphore),
            algorithm,
            wait,
        };
        alone.node.handle(alone.now, Input::Command(&campaign));
    }
    let told = alone.run(Duration::ZERO);
    let granted = |event: &Event| {
        matches!(
            event,
            Event::Granted {
                ticket: Ticket(1),
                ..
            }
        )
    };
    assert!(told.iter().any(granted), "{told:?}");

    let ticket = Ticket(2);
    let how = Release::Given;
    for command in [Command::Release { ticket, how }, Command::Cancel { ticket }] {
        alone.node.handle(alone.now, Input::Command(&command));
    }
    let refusal = Refusal::Cancelled;
    let told = alone.run(Duration::ZERO);
    assert_eq!(told, [Event::Ended { ticket, refusal }]);
}

/// What is dropped of a datagram that was taken is counted: nothing of it shows anywhere else.
#[test]
fn messages_of_other_views_and_those_that_make_no_sense_are_counted() {
    let mut alone = Alone::new(Algorithm::RicartAgrawala);
    let other = NodeId::new(2).expect("not zero");
    let present = alone.node.epoch();
    let mut hear = |epoch: u32| {
        // Only who decides how locks are served says so, and that is another.
        let body = Body::Declared {
            lock: alone.lock.clone(),
            spec: Some(LockSpec::exclusive(Algorithm::Lamport)),
        };
        let epoch = Epoch::new(epoch).expect("it is not that high");
        alone.node.lock_body(alone.now, other, epoch, body);
        let counters = alone.node.counters();
        (counters.past_view, counters.misplaced)
    };
    let epoch = present.as_u32();
    assert_eq!(hear(epoch - 1), (1, 0));
    assert_eq!(hear(epoch), (1, 1));
    assert_eq!(hear(epoch + 1), (1, 1), "it waits");
    // A new view, for which half of the numbers are used up.
    let lock = alone.lock.clone();
    alone.enter().expect("it is free");
    alone.node.locks.count_up(&lock, (1 << 31) - 3);
    while alone.node.epoch() == present {
        alone.enter().expect("it is free");
    }
    let counters = alone.node.counters();
    assert_eq!(counters.past_view + counters.misplaced, 3);
}

/// A caller that asks while the lease is over is let in and not told of it.
fn with_a_grant_held_back(algorithm: Algorithm) -> Alone {
    let mut alone = Alone::new(algorithm);
    alone.now = alone.now + LEASE * 3;
    alone.ask(Ticket(1));
    assert!(!alone.node.held_back.is_empty(), "{algorithm}");
    assert!(alone.node.views.lease_ends() <= alone.now, "{algorithm}");
    alone
}

/// The answer that renews a lease may show as well that a view has gone on without this member: then
/// the lease is over before the node hears that it was renewed. The grant that waits is not told.
#[test]
fn no_grant_is_told_under_a_lease_that_the_same_answer_ended() {
    let is_told = |events: Vec<Event>| events.iter().any(|it| matches!(it, Event::Granted { .. }));
    for algorithm in with_fences() {
        let mut alone = with_a_grant_held_back(algorithm);
        let renewed = Action::Lease(alone.now + LEASE);
        alone.node.act(alone.now, Vec::from([renewed]));
        let mut events = Vec::new();
        while let Some(output) = alone.node.poll_output() {
            if let Output::Event(event) = output {
                events.push(event);
            }
        }
        assert!(!is_told(events), "{algorithm}: the lease is over");
        assert!(is_told(alone.run(LEASE * 5)), "{algorithm}: it is renewed");
    }
}

/// A caller that was let in and was not told of it has waited, and loses nothing.
#[test]
fn a_member_that_leaves_takes_no_lock_from_callers_that_were_not_told_of_it() {
    for algorithm in with_fences() {
        let mut alone = with_a_grant_held_back(algorithm);
        alone
            .node
            .handle(alone.now, Input::Command(&Command::Leave));
        let events = alone.run(Duration::ZERO);
        let refused = Event::Ended {
            ticket: Ticket(1),
            refusal: Refusal::Closed,
        };
        assert!(events.contains(&refused), "{algorithm}: {events:?}");
        let is_lost = |event: &Event| matches!(event, Event::Lost { .. });
        assert!(!events.iter().any(is_lost), "{algorithm}: {events:?}");
    }
}

/// A lease may be renewed under a view before that is in force, or while the lock is in quarantine: who
/// is let in by the view, or when the quarantine is lifted, is told of the lease first.
#[test]
fn a_lease_is_told_before_what_a_view_grants_under_it() {
    for (algorithm, lifts) in with_fences().flat_map(|its| [(its, false), (its, true)]) {
        let mut alone = Alone::new(algorithm);
        alone.enter().expect("it is free");
        let view = alone.node.views.view().expect("there is one").clone();
        let mut out = LockOutput::default();
        alone.node.locks.freeze(&mut out);
        let mut table = alone.node.locks.summary(&view);
        table.quarantines_rest = lifts;
        alone.ask(Ticket(9));
        if lifts {
            alone.node.install(alone.now, Arc::clone(&view), &table);
            let told = alone.run(Duration::ZERO);
            let is_grant = |it: &Event| matches!(it, Event::Granted { .. });
            assert!(!told.iter().any(is_grant), "{algorithm}: {told:?}");
        }
        // As if the lease had been renewed since, and nobody had been told.
        alone.node.told_until = Time::ZERO;
        if lifts {
            alone.node.act(alone.now, vec![Action::Lift]);
        } else {
            alone.node.install(alone.now, view, &table);
        }
        let events = alone.run(Duration::ZERO);
        let place = |is_it: fn(&Event) -> bool| events.iter().position(is_it);
        let lease = place(|it| matches!(it, Event::Lease { .. }));
        let grant = place(|it| matches!(it, Event::Granted { .. }));
        assert!(grant.is_some(), "{algorithm}: {events:?}");
        assert!(lease.is_some() && lease < grant, "{algorithm}: {events:?}");
    }
}
