//! What outlives a view, and what ends with it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::*;
use crate::api::Wait;
use crate::ids::Epoch;
use crate::ids::{Incarnation, RequestId, Ticket};
use crate::lock::algorithms::ricart_agrawala;
use crate::lock::settle::LockMessage;
use crate::lock::table::MAX_LOCKS;
use crate::lock::{Algorithm, LockSpec, Message, Mode, Stamp, Waiting};
use crate::membership::Member;
use crate::settings::{Failure, Settings};
use crate::time::Time;

fn settings(lock: &LockName, spec: LockSpec) -> Settings {
    Settings {
        lease: Duration::from_secs(1),
        failure: Failure::Unanimity,
        algorithm: Algorithm::RicartAgrawala,
        locks: BTreeMap::from([(lock.clone(), spec)]),
        ..Settings::new("test")
    }
}

fn view(nodes: &[NodeId]) -> View {
    let member = |&node: &NodeId| Member {
        node,
        incarnation: Incarnation(1),
    };
    View {
        epoch: Epoch::new(1).expect("in range"),
        members: nodes.iter().map(member).collect(),
        unclean: Vec::new(),
    }
}

/// The same view, to which these do not belong any more.
fn without(nodes: &[NodeId], unclean: &[NodeId]) -> View {
    View {
        unclean: unclean.to_vec(),
        ..view(nodes)
    }
}

/// The view was in force in one of its members only, be that the server, whose books have the
/// mark, or not. Somebody else is inside, and may not have been told.
#[test]
fn a_mark_stays_whoever_tells_of_the_view() {
    let [one, other, dead] = [1, 2, 3].map(|id| NodeId::new(id).expect("not zero"));
    let name = LockName::new("x").expect("a good name");
    let spec = LockSpec {
        permits: NonZeroU32::new(3).expect("not zero"),
        ..LockSpec::exclusive(Algorithm::Semaphore)
    };
    for (me, holder) in [(one, other), (other, one)] {
        let mut out = LockOutput::default();
        let mut locks = Locks::new(
            me,
            Incarnation(1),
            &settings(&name, spec),
            AbandonedMarks::None,
        );
        let inside = RequestId {
            node: holder,
            incarnation: Incarnation(1),
            seq: 1,
        };
        let marked = LockSummary {
            spec,
            holders: vec![inside],
            held: Mode::Exclusive,
            waiters: Vec::new(),
            last: Last::default(),
            abandoned: true,
            suspects: Vec::new(),
        };
        let table = Summary {
            locks: BTreeMap::from([(name.clone(), marked)]),
            ..Summary::default()
        };
        locks.install(Arc::new(view(&[one, other])), &table, false, &mut out);
        locks.freeze(&mut out);
        let mut told = locks.summary(&without(&[one, other], &[dead]));
        told.is_complete = true;
        told.conclude(&[dead]);
        assert!(told.locks[&name].abandoned, "told by {me}");
    }
}

/// A view may have been in force elsewhere, and let somebody in: who froze for it and never
/// saw it cannot tell any more who was inside.
#[test]
fn who_missed_a_view_vouches_for_nobody() {
    let [me, dead] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
    let name = LockName::new("x").expect("a good name");
    let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
    let mut out = LockOutput::default();
    let mut locks = Locks::new(
        me,
        Incarnation(1),
        &settings(&name, spec),
        AbandonedMarks::None,
    );
    locks.install(Arc::new(view(&[me])), &Summary::default(), true, &mut out);
    let caller = Waiting {
        ticket: Ticket(1),
        wish: None,
        mode: Mode::Exclusive,
        wait: Wait::Cancelled,
        since: Time::ZERO,
        is_inside: false,
    };
    locks.acquire(&name, caller, &mut out);
    for vouches in [true, false] {
        locks.freeze(&mut out);
        let told = locks.summary(&without(&[me], &[dead]));
        assert_eq!((told.is_complete, told.is_continued), (vouches, vouches));
        assert_eq!(told.locks[&name].holders.len(), 1);
        assert_eq!(told.locks[&name].suspects.is_empty(), vouches);
    }
}

/// Who asks for a lock while no view is in force does not remember how it was served: the next
/// coordinator may declare it otherwise, as nobody told it of the lock.
#[test]
fn how_an_unlisted_lock_is_served_ends_with_the_view() {
    let [me, other] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
    let name = LockName::new("x").expect("a good name");
    let mut settings = settings(&name, LockSpec::exclusive(Algorithm::RicartAgrawala));
    settings.locks.clear();
    let mut locks = Locks::new(me, Incarnation(1), &settings, AbandonedMarks::None);
    let mut out = LockOutput::default();
    let alone = Arc::new(view(&[me]));
    locks.install(alone, &Summary::default(), true, &mut out);
    let caller = |ticket| Waiting {
        ticket: Ticket(ticket),
        wish: None,
        mode: Mode::Exclusive,
        wait: Wait::Cancelled,
        since: Time::ZERO,
        is_inside: false,
    };
    locks.acquire(&name, caller(1), &mut out);
    assert!(locks.declare(&name, None, &mut out).is_some());
    locks.freeze(&mut out);
    locks.acquire(&name, caller(2), &mut out);
    locks.release(Ticket(1), Release::Unused, &mut out);
    let both = Arc::new(view(&[me, other]));
    locks.install(both, &Summary::default(), false, &mut out);
    assert_eq!(locks.table[&name].spec, None);
}

/// A message that found no room is lost, and the sender does not know. Room that is made later
/// in the epoch is not for the lock that it was for: its engine would lack a message.
#[test]
fn a_lock_that_missed_a_message_waits_for_the_next_view() {
    let [me, other] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
    let name = |n: usize| LockName::new(format!("{n}")).expect("a good name");
    let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
    let mut settings = settings(&name(0), spec);
    settings.locks.clear();
    let mut locks = Locks::new(me, Incarnation(1), &settings, AbandonedMarks::None);
    let mut out = LockOutput::default();
    let view = Arc::new(view(&[me, other]));
    let begin = |locks: &mut Locks, out: &mut LockOutput| {
        locks.install(Arc::clone(&view), &Summary::default(), false, out);
    };
    begin(&mut locks, &mut out);
    let hears_of = |locks: &mut Locks, n, out: &mut LockOutput| {
        let (node, incarnation, seq) = (other, Incarnation(1), 1);
        let id = RequestId {
            node,
            incarnation,
            seq,
        };
        let body = Message::RicartAgrawala(ricart_agrawala::Message::Reply { id });
        let message = LockMessage {
            lock: name(n),
            permits: spec.permits,
            priority: spec.priority,
            clock: 1,
            history: GrantHistory::default(),
            body,
        };
        locks.receive(other, message, out)
    };
    let caller = Waiting {
        ticket: Ticket(1),
        wish: None,
        mode: Mode::Exclusive,
        wait: Wait::Cancelled,
        since: Time::ZERO,
        is_inside: false,
    };
    locks.acquire(&name(MAX_LOCKS), caller, &mut out);
    for n in 1..MAX_LOCKS {
        assert!(hears_of(&mut locks, n, &mut out));
    }
    assert!(!hears_of(&mut locks, 0, &mut out) && out.wants_view);
    locks.end(Ticket(1), Refusal::Cancelled, &mut out);
    assert!(!locks.table.contains_key(&name(MAX_LOCKS)), "there is room");
    assert!(!hears_of(&mut locks, 0, &mut out), "and not for this one");
    assert!(hears_of(&mut locks, 1, &mut out), "others are served");
    locks.freeze(&mut out);
    begin(&mut locks, &mut out);
    assert!(hears_of(&mut locks, 0, &mut out));
}

/// `me` and `other` go on without `dead`, which may hold the lock `lost`; the lock `free` is named and
/// free, and all others are in quarantine.
fn quarantined(me: NodeId, other: NodeId, dead: NodeId) -> Locks {
    let name = |name| LockName::new(name).expect("a good name");
    let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
    let mut settings = settings(&name("lost"), spec);
    settings.locks.clear();
    let mut locks = Locks::new(me, Incarnation(1), &settings, AbandonedMarks::None);
    let mut lost = LockSummary::idle(spec, true);
    lost.suspects = vec![dead];
    let free = LockSummary::idle(spec, false);
    let table = Summary {
        locks: BTreeMap::from([(name("lost"), lost), (name("free"), free)]),
        quarantines_rest: true,
        ..Summary::default()
    };
    let view = Arc::new(view(&[me, other]));
    locks.install(view, &table, true, &mut LockOutput::default());
    locks
}

#[test]
fn a_lock_in_quarantine_is_served_when_that_is_lifted_or_its_first_message_comes() {
    let [me, other, dead] = [1, 2, 3].map(|id| NodeId::new(id).expect("not zero"));
    let name = |name| LockName::new(name).expect("a good name");
    let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
    let begin = || {
        let (mut locks, mut out) = (quarantined(me, other, dead), LockOutput::default());
        for (ticket, lock) in [(1, "lost"), (2, "free"), (3, "new")] {
            let caller = Waiting {
                ticket: Ticket(ticket),
                wish: None,
                mode: Mode::Exclusive,
                wait: Wait::Cancelled,
                since: Time::ZERO,
                is_inside: false,
            };
            locks.acquire(&name(lock), caller, &mut out);
        }
        locks.declare(&name("new"), None, &mut out);
        locks
    };
    let asks_for = |out: &LockOutput| -> Vec<LockName> {
        out.sends
            .iter()
            .map(|(_, sent)| sent.lock.clone())
            .collect()
    };

    let (mut locks, mut out) = (begin(), LockOutput::default());
    locks.lift(&mut out);
    assert_eq!(asks_for(&out), [name("lost"), name("new")]);
    let mut again = LockOutput::default();
    locks.lift(&mut again);
    assert_eq!(asks_for(&again), []);

    let message = |lock| LockMessage {
        lock: name(lock),
        permits: spec.permits,
        priority: spec.priority,
        clock: 1,
        history: GrantHistory::default(),
        body: Message::RicartAgrawala(ricart_agrawala::Message::Request {
            id: RequestId {
                node: other,
                incarnation: Incarnation(1),
                seq: 1,
            },
            stamp: Stamp {
                clock: 1,
                node: other,
            },
        }),
    };
    // That a lock is used which was free all along proves nothing.
    for (lock, lifts) in [
        ("free", false),
        ("lost", true),
        ("new", true),
        ("unheard of", true),
    ] {
        let (mut locks, mut out) = (begin(), LockOutput::default());
        assert!(locks.receive(other, message(lock), &mut out));
        let asked = asks_for(&out);
        assert_eq!(asked.contains(&name("lost")), lifts, "{lock}");
        assert_eq!(asked.contains(&name("new")), lifts, "{lock}");
    }
}

/// Nobody vouches for a lock in quarantine, nor for those that the view did not know.
#[test]
fn who_stops_during_a_quarantine_does_not_vouch() {
    let [me, other, dead, next] = [1, 2, 3, 4].map(|id| NodeId::new(id).expect("not zero"));
    let name = |name| LockName::new(name).expect("a good name");
    for lifts in [false, true] {
        let (mut locks, mut out) = (quarantined(me, other, dead), LockOutput::default());
        if lifts {
            locks.lift(&mut out);
        }
        locks.freeze(&mut out);
        let told = locks.summary(&without(&[me, other], &[dead, next]));
        let suspects = |lock| told.locks[&name(lock)].suspects.clone();
        assert_eq!(suspects("free"), []);
        let expected = if lifts { vec![] } else { vec![dead, next] };
        assert_eq!(suspects("lost"), expected);
        assert_eq!(told.is_complete, lifts);
        assert!(told.is_continued);
    }
}

/// Member 2 was lost and is back, in a view that has no quarantine any more here; and the next view,
/// in which it is still, counts it as lost once more, as not all have heard so. That is said of the
/// incarnation before.
#[test]
fn who_is_back_is_not_suspected_for_the_incarnation_before() {
    let [me, back] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
    let name = LockName::new("x").expect("a good name");
    let spec = LockSpec::exclusive(Algorithm::TokenRing);
    for is_lost_again in [false, true] {
        let settings = settings(&name, spec);
        let mut locks = Locks::new(me, Incarnation(1), &settings, AbandonedMarks::None);
        let mut out = LockOutput::default();
        let present = without(&[me, back], &[back]);
        locks.install(Arc::new(present), &Summary::default(), true, &mut out);
        // The token may be on its way to the next in the ring.
        locks.hop_timeout(&name, &mut out);
        locks.freeze(&mut out);
        let mut next = without(&[me, back], &[back]);
        if is_lost_again {
            next.members[1].incarnation = Incarnation(2);
        }
        let told = locks.summary(&next);
        assert_eq!(told.locks[&name].suspects.is_empty(), !is_lost_again);
    }
}
