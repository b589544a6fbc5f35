//! Shares that the manager of a lock lends to its readers. Of the lock "printer" member 1 is the manager.

use super::manager::{attempt, group, read, sweep, vouches, want};
use super::*;

/// A group in which members 2 and 4 have read so often that their shares are lent.
fn lent() -> Bench {
    let mut bench = group(5);
    for me in [2, 2, 2, 4, 4, 4] {
        let id = read(&mut bench, me, false);
        bench.leave(id);
    }
    assert_eq!(bench.kinds(), Vec::<&str>::new());
    bench.granted.clear();
    bench
}

#[test]
fn a_share_that_is_wanted_again_and_again_is_lent() {
    let mut bench = group(4);
    let mut said = Vec::new();
    for _ in 0..9 {
        bench.seq += 1;
        let request = Request {
            mode: Mode::Shared,
            ..request(2, bench.seq, bench.seq)
        };
        bench.step(2, |engine, out| engine.acquire(request, out));
        let messages = bench.deliver_all();
        said.push(messages + bench.leave(request.id));
    }
    // REQUEST, SHARE and DROP; the first time the custodian is told, too. Four numbers come with the first
    // share that is lent, and when they are used up eight with the next.
    assert_eq!(said, [4, 3, 2, 0, 0, 1, 2, 0, 0]);
    assert!(!vouches(&bench, 1, 2), "it may read again at any time");
}

/// Whoever wants to be alone waits until those who read have left; what nobody uses comes back at once.
#[test]
fn shares_come_back_when_somebody_waits_behind_them() {
    let mut bench = lent();
    let reader = read(&mut bench, 2, false);
    let writer = want(&mut bench, 5);
    bench.deliver(5, 1);
    assert_eq!(bench.kinds(), ["RECALL", "RECALL"]);
    bench.deliver(1, 2);
    bench.deliver(1, 4);
    assert_eq!(bench.kinds(), ["DROP"]);
    bench.deliver_all();
    // Nobody reads by what is recalled.
    let late = read(&mut bench, 2, false);
    assert_eq!(bench.granted, [reader]);
    bench.leave(reader);
    assert_eq!(bench.granted, [reader, writer]);
    bench.leave(writer);
    assert_eq!(bench.granted, [reader, writer, late]);
}

/// Two readers of one member are inside by one share.
#[test]
fn a_share_ends_with_its_last_reader() {
    let mut bench = lent();
    let readers = [2, 2].map(|me| read(&mut bench, me, false));
    let writer = want(&mut bench, 5);
    bench.deliver_all();
    bench.leave(readers[0]);
    assert_eq!(bench.granted, readers);
    bench.leave(readers[1]);
    assert_eq!(bench.granted.last(), Some(&writer));
}

#[test]
fn a_try_gets_the_lock_of_shares_that_nobody_uses() {
    let mut bench = lent();
    let writer = attempt(&mut bench, 5);
    bench.deliver_all();
    assert_eq!((&bench.granted[..], bench.busy.len()), (&[writer][..], 0));
}

#[test]
fn a_try_is_told_that_a_share_is_used() {
    let mut bench = lent();
    let reader = read(&mut bench, 2, false);
    let writer = attempt(&mut bench, 5);
    bench.deliver_all();
    assert_eq!(bench.busy, [writer]);
    bench.cancel(writer);
    bench.deliver_all();
    // The share of that reader is still lent.
    bench.release(reader);
    let again = read(&mut bench, 2, false);
    assert_eq!(
        (bench.kinds().len(), bench.granted.last()),
        (0, Some(&again))
    );
}

/// Readers and writers that come while a try is asked for make it fail.
#[test]
fn a_try_is_told_of_whoever_comes_meanwhile() {
    for reads in [true, false] {
        let mut bench = lent();
        let tried = attempt(&mut bench, 5);
        bench.deliver(5, 1);
        assert_eq!(bench.kinds(), ["RECALL", "RECALL"]);
        let other = if reads {
            read(&mut bench, 3, false)
        } else {
            want(&mut bench, 3)
        };
        bench.deliver_all();
        assert_eq!(
            (&bench.busy[..], &bench.granted[..]),
            (&[tried][..], &[other][..])
        );
    }
}

#[test]
fn a_share_that_is_not_used_goes_back() {
    let mut bench = lent();
    sweep(&mut bench, 2);
    if bench.kinds().is_empty() {
        // It was used since the last sweep.
        sweep(&mut bench, 2);
    }
    assert_eq!(bench.kinds(), ["DROP"]);
    bench.deliver_all();
    assert!(vouches(&bench, 1, 2) && !vouches(&bench, 1, 4));
}

/// The manager hears of a reader that ended inside before its member reads again.
#[test]
fn a_share_by_which_a_reader_ended_inside_goes_back() {
    let mut bench = lent();
    let reader = read(&mut bench, 2, false);
    bench.step(2, |engine, out| {
        engine.release(reader, Release::Abandoned, out)
    });
    assert_eq!(bench.kinds(), ["DROP"]);
}

/// A member that wants to be alone gives up its own share first.
#[test]
fn a_reader_that_writes_does_not_wait_for_itself() {
    let mut bench = lent();
    want(&mut bench, 4);
    assert_eq!(bench.kinds(), ["DROP", "REQUEST"]);
}
