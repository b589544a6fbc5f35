//! Section 2.12. Of four members one enters with three votes, of five with four.

use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Voting);

/// 3N messages, of which those to oneself are none.
#[test]
fn everybody_is_asked_and_told_when_it_is_over() {
    let mut bench = Bench::new(5, SPEC);
    let id = bench.acquire(2, 1);
    assert_eq!(bench.deliver_all(), 8);
    assert_eq!(bench.granted, [id]);
    assert_eq!(bench.leave(id), 4);
    let next = bench.ask(5, 2);
    assert_eq!(bench.granted, [id, next]);
}

/// Nobody is put into a queue: who does not win gives its votes back, and tries again after a
/// random time, twice as long at most as before.
#[test]
fn who_does_not_win_tries_again_later_and_later() {
    let mut bench = Bench::new(4, SPEC);
    let inside = bench.ask(1, 1);
    let waits = bench.acquire(2, 2);
    let mut longest = Vec::new();
    for _ in 0..12 {
        bench.deliver_all();
        assert_eq!(bench.granted, [inside]);
        assert_eq!(bench.busy.last(), Some(&waits));
        let HopTimer::Within(pause) = bench.timers[&2] else {
            panic!("it does not pause: {:?}", bench.timers);
        };
        longest.push(pause.as_millis());
        bench.step(2, |engine, out| engine.timeout(out));
    }
    let doubled = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096];
    assert_eq!(longest, doubled);
    bench.deliver_all();
    bench.leave(inside);
    bench.step(2, |engine, out| engine.timeout(out));
    bench.deliver_all();
    assert_eq!(bench.granted, [inside, waits]);
}

/// Two and two: neither has three.
#[test]
fn split_votes_are_given_back() {
    let mut bench = Bench::new(4, SPEC);
    let (one, two) = (bench.acquire(1, 1), bench.acquire(2, 1));
    bench.deliver(1, 3);
    bench.deliver(2, 4);
    bench.deliver_all();
    assert_eq!(bench.granted, []);
    bench.step(1, |engine, out| engine.timeout(out));
    bench.deliver_all();
    assert_eq!(bench.granted, [one]);
    bench.leave(one);
    bench.step(2, |engine, out| engine.timeout(out));
    bench.deliver_all();
    assert_eq!(bench.granted, [one, two]);
}

/// A vote for a request that is over is given back, in whatever order messages come.
#[test]
fn a_vote_that_comes_too_late_is_given_back() {
    let mut bench = Bench::new(4, SPEC);
    let given_up = bench.acquire(1, 1);
    let (_, _, request) = bench.wire[0].clone();
    bench.cancel(given_up);
    bench.deliver_all();
    bench.receive(1, 2, &request);
    assert_eq!(bench.kinds(), ["VOTE"]);
    assert_eq!(bench.deliver_all(), 2, "the vote, and RELEASE");
    let next = bench.ask(3, 2);
    assert_eq!(bench.granted, [next]);
}

/// Whoever is inside has all votes in the next view, and those who wait ask for them.
#[test]
fn a_view_gives_all_votes_to_its_holder() {
    let (holder, waiter) = (request(2, 1, 5).id, request(3, 1, 7));
    let mut bench = Bench::rebuilt(3, SPEC, &[holder], &[waiter]);
    bench.deliver_all();
    assert_eq!(bench.granted, []);
    bench.leave(holder);
    bench.step(3, |engine, out| engine.timeout(out));
    bench.deliver_all();
    assert_eq!(bench.granted, [waiter.id]);
}
