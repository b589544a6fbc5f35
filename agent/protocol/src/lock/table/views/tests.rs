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
use crate::lock::{Algorithm, LockSpec, Message, Mode, Waiting};
use crate::membership::Member;
use crate::settings::{Failure, Settings};
use crate::time::Time;

fn settings(lock: &LockName, spec: LockSpec) -> Settings {
    Settings {
        lease: Duration::from_secs(1),
        failure: Failure::Unanimity,
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
        let mut told = locks.summary(&[dead]);
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
    };
    locks.acquire(&name, caller, &mut out);
    for vouches in [true, false] {
        locks.freeze(&mut out);
        let told = locks.summary(&[dead]);
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
