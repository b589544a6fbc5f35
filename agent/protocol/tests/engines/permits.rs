//! Permits that the manager of a semaphore lends. Of the lock "printer" member 1 is the manager.

use super::manager::{attempt, sweep, vouches, want};
use super::*;

/// A group with two permits.
fn group() -> Bench {
    let spec = LockSpec {
        permits: NonZeroU32::new(2).unwrap(),
        ..exclusive(Algorithm::Manager)
    };
    Bench::new(5, spec)
}

fn enter(bench: &mut Bench, me: u16) -> RequestId {
    let id = want(bench, me);
    bench.deliver_all();
    assert_eq!(bench.granted.last(), Some(&id));
    id
}

/// One permit is lent to each of members 2 and 4.
fn lent() -> Bench {
    let mut bench = group();
    for me in [2, 2, 2, 4, 4, 4] {
        let id = enter(&mut bench, me);
        bench.leave(id);
    }
    bench.granted.clear();
    bench
}

#[test]
fn a_permit_that_is_wanted_again_and_again_is_lent() {
    let mut bench = group();
    let mut said = Vec::new();
    for _ in 0..6 {
        let id = want(&mut bench, 2);
        let messages = bench.deliver_all();
        said.push(messages + bench.leave(id));
    }
    assert_eq!(said, [3, 3, 2, 0, 0, 1]);
}

#[test]
fn a_permit_that_nobody_uses_goes_to_whoever_waits() {
    let mut bench = lent();
    let inside = enter(&mut bench, 2);
    let third = want(&mut bench, 3);
    bench.deliver(3, 1);
    assert_eq!(bench.kinds(), ["RECALL", "RECALL"]);
    bench.deliver_all();
    assert_eq!(bench.granted, [inside, third]);
    // The other is recalled, and goes back when its user leaves.
    let fourth = want(&mut bench, 5);
    bench.deliver_all();
    assert_eq!(bench.granted, [inside, third]);
    bench.leave(inside);
    assert_eq!(bench.granted, [inside, third, fourth]);
}

#[test]
fn a_try_gets_a_permit_that_nobody_uses() {
    let mut bench = lent();
    let inside = enter(&mut bench, 2);
    let tried = attempt(&mut bench, 5);
    bench.deliver_all();
    assert_eq!(
        (&bench.granted[..], bench.busy.len()),
        (&[inside, tried][..], 0)
    );
}

#[test]
fn a_try_is_told_that_all_permits_are_used() {
    let mut bench = lent();
    let inside = [2, 4].map(|me| enter(&mut bench, me));
    let tried = attempt(&mut bench, 5);
    bench.deliver_all();
    assert_eq!(
        (&bench.granted[..], &bench.busy[..]),
        (&inside[..], &[tried][..])
    );
}

#[test]
fn a_permit_that_is_not_used_goes_back() {
    let mut bench = lent();
    assert!(!vouches(&bench, 1, 2));
    sweep(&mut bench, 2);
    assert_eq!(bench.kinds(), ["DROP"]);
    bench.deliver_all();
    assert!(vouches(&bench, 1, 2));
}

/// The manager lends nothing while it knows of a holder that ended inside: whoever enters next is told.
#[test]
fn whoever_enters_by_a_loan_does_not_miss_a_mark() {
    let mut bench = lent();
    let inside = enter(&mut bench, 2);
    bench.step(2, |engine, out| {
        engine.release(inside, Release::Abandoned, out)
    });
    assert_eq!(bench.deliver(2, 1).kind(), "DROP");
    assert!(bench.engines[&1].mark().is_some());
    assert_eq!(bench.deliver(1, 4).kind(), "RECALL");
    let id = want(&mut bench, 4);
    assert_eq!(bench.kinds(), ["DROP", "REQUEST"]);
    bench.deliver_all();
    assert_eq!(bench.granted.last(), Some(&id));
}
