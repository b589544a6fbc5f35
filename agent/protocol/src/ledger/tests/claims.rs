//! Entering, leaving, and what callers are told.

use super::*;
use core::num::NonZeroU32;

#[test]
fn callers_enter_in_the_order_in_which_they_came() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    bench.ask(1, 1);
    bench.ask(0, 2);
    assert_eq!(bench.granted(0), [1]);
    assert_eq!(bench.granted(1), NOBODY);
    bench.release(0, 1);
    bench.wait(LEASE / 3, &[0, 1]);
    assert_eq!(bench.granted(0), [1]);
    assert_eq!(bench.granted(1), [1]);
    bench.release(1, 1);
    bench.wait(LEASE / 3, &[0, 1]);
    assert_eq!(bench.granted(0), [1, 2]);
    let fences: Vec<Fence> = [bench.grants(0), bench.grants(1)]
        .concat()
        .iter()
        .map(|grant| grant.1)
        .collect();
    assert!(fences[0] < fences[2] && fences[2] < fences[1], "{fences:?}");
}

#[test]
fn callers_of_one_agent_follow_each_other_at_once() {
    let mut bench = Bench::new(1);
    (1..=3).for_each(|ticket| bench.ask(0, ticket));
    bench.release(0, 1);
    bench.release(0, 2);
    assert_eq!(bench.granted(0), [1, 2, 3]);
}

#[test]
fn those_that_share_are_inside_together() {
    let mut bench = Bench::new(2);
    bench.ask_for(0, 1, Mode::Shared, Wait::Cancelled);
    bench.ask_for(1, 1, Mode::Shared, Wait::Cancelled);
    bench.ask(0, 2);
    assert_eq!(bench.granted(0), [1]);
    assert_eq!(bench.granted(1), [1]);
    bench.release(0, 1);
    bench.release(1, 1);
    bench.wait(LEASE / 3, &[0, 1]);
    assert_eq!(bench.granted(0), [1, 2]);
}

#[test]
fn a_lock_is_served_as_the_first_caller_says_until_nobody_wants_it() {
    let mut bench = Bench::new(1);
    let with = |bench: &mut Bench, ticket, permits, mode| {
        let permits = NonZeroU32::new(permits).unwrap();
        let command = Command::Acquire {
            ticket: Ticket(ticket),
            lock: lock(),
            spec: Some(crate::LockSpec::counting(permits)),
            mode,
            wait: Wait::Cancelled,
        };
        bench.input(0, LedgerInput::Command(&command));
    };
    with(&mut bench, 1, 2, Mode::Exclusive);
    with(&mut bench, 2, 2, Mode::Exclusive);
    with(&mut bench, 3, 3, Mode::Exclusive);
    with(&mut bench, 4, 2, Mode::Shared);
    assert_eq!(bench.granted(0), [1, 2]);
    let actual = crate::LockSpec::counting(NonZeroU32::new(2).unwrap());
    assert!(bench.has_ended(0, 3, Refusal::WrongSpec { actual }));
    assert!(bench.has_ended(0, 4, Refusal::NotShareable { actual }));
    bench.release(0, 1);
    bench.release(0, 2);
    with(&mut bench, 5, 1, Mode::Exclusive);
    assert_eq!(bench.granted(0), [1, 2, 5]);
    assert_eq!(bench.record().permits, NonZeroU32::MIN);
}

#[test]
fn the_next_is_told_of_one_that_ended_inside() {
    let mut bench = Bench::new(1);
    (1..=3).for_each(|ticket| bench.ask(0, ticket));
    bench.leave(0, 1, Release::Abandoned);
    bench.release(0, 2);
    let told: Vec<Previous> = bench.grants(0).iter().map(|grant| grant.2).collect();
    assert_eq!(
        told,
        [Previous::Clean, Previous::Abandoned, Previous::Clean]
    );
}

#[test]
fn a_caller_that_tries_is_told_at_once_that_the_lock_is_not_free() {
    let mut bench = Bench::new(2);
    bench.ask_for(0, 1, Mode::Exclusive, Wait::Try);
    assert_eq!(bench.granted(0), [1]);
    bench.ask_for(1, 1, Mode::Exclusive, Wait::Try);
    assert!(bench.has_ended(1, 1, Refusal::Busy));
    assert_eq!(bench.record().claims().count(), 1);
}

#[test]
fn a_caller_that_tries_waits_for_an_answer_for_a_while_only() {
    let mut bench = Bench::new(1);
    bench.hold(0);
    bench.ask_for(0, 1, Mode::Exclusive, Wait::Try);
    bench.wait(crate::MAX_TRY_TIME, &[0]);
    let silent = Vec::new();
    assert!(bench.has_ended(0, 1, Refusal::NoAnswer { silent }));
}

#[test]
fn a_caller_that_waits_for_a_lease_is_told_that_the_store_is_gone() {
    let mut bench = Bench::new(1);
    bench.down(0);
    bench.ask_for(0, 1, Mode::Exclusive, Wait::Lease);
    bench.ask(0, 2);
    bench.wait(LEASE - SECOND, &[0]);
    let refused = |bench: &Bench| {
        let refused = bench.said[0].iter().filter_map(|output| match output {
            LedgerOutput::Refused { ticket, why } => Some((ticket.0, why.to_string())),
            _ => None,
        });
        refused.collect::<Vec<_>>()
    };
    assert_eq!(refused(&bench), []);
    bench.wait(SECOND, &[0]);
    let words = "the store cannot be reached: pulled";
    assert_eq!(refused(&bench), [(1, words.to_string())]);
    assert!(bench.agents[0].unreachable(bench.now).is_some());
    bench.up(0);
    assert_eq!(bench.granted(0), [2]);
}

#[test]
fn what_is_no_record_is_refused_and_not_touched() {
    for value in [&b"{\"distlock\":2}"[..], b"none of ours"] {
        let mut bench = Bench::new(1);
        let key = bench.lock_key();
        bench.put(&key, value.to_vec());
        bench.ask(0, 1);
        let is_it = |output: &LedgerOutput| {
            let LedgerOutput::Refused { ticket, why } = output else {
                return false;
            };
            *ticket == Ticket(1) && why.to_string().contains("distlock/g/lock/a%2Fb")
        };
        assert!(bench.said[0].iter().any(is_it), "{:?}", bench.said[0]);
        bench.wait(LEASE, &[0]);
        assert_eq!(bench.registers[&key].value, value);
    }
}

#[test]
fn a_full_queue_takes_nobody() {
    let mut bench = Bench::new(1);
    let last = MAX_QUEUE as u64 + 2;
    bench.hold(0);
    (1..=last).for_each(|ticket| bench.ask(0, ticket));
    bench.let_go(0);
    let refused = bench.said[0].iter().filter_map(|output| match output {
        LedgerOutput::Refused { ticket, why } => Some((*ticket, why.clone())),
        _ => None,
    });
    let (key, claims) = (bench.lock_key(), MAX_QUEUE);
    let full = StoreRefusal::QueueFull { key, claims };
    assert_eq!(refused.collect::<Vec<_>>(), [(Ticket(last), full)]);
}

#[test]
fn an_agent_that_closes_leaves_nothing() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    bench.ask(0, 2);
    bench.ask(1, 1);
    let session = bench.session_key(0);
    bench.input(0, LedgerInput::Command(&Command::Leave));
    assert!(bench.is_lost(0, 1) && bench.has_ended(0, 2, Refusal::Closed));
    assert!(bench.has_said(0, &Event::Left));
    assert!(!bench.registers.contains_key(&session));
    assert!(bench.agents[0].poll_timeout().is_none());
    bench.wait(LEASE / 3, &[1]);
    assert_eq!(bench.granted(1), [1]);
    bench.ask(0, 3);
    assert!(bench.has_ended(0, 3, Refusal::Closed));
}

#[test]
fn an_agent_that_cannot_close_gives_up() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    bench.down(0);
    bench.input(0, LedgerInput::Command(&Command::Leave));
    assert!(!bench.has_said(0, &Event::Left));
    bench.wait(SECOND * 2, &[0]);
    assert!(bench.has_said(0, &Event::Left));
}

#[test]
fn who_asks_is_in_the_record() {
    let mut bench = Bench::new(1);
    let command = "é".repeat(60);
    let ticket = Ticket(1);
    bench.input(
        0,
        LedgerInput::Caller {
            ticket,
            pid: 77,
            command,
        },
    );
    bench.ask(0, 1);
    let claim = bench.record().inside.remove(0);
    assert_eq!((claim.pid, claim.command), (Some(77), Some("é".repeat(32))));
}
