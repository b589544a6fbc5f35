use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::SuzukiKasami);

/// S3: N messages, and none where the token is.
#[test]
fn everybody_is_asked_and_one_has_the_token() {
    let mut bench = Bench::new(5, SPEC);
    let first = bench.acquire(4, 1);
    assert_eq!(bench.deliver_all(), 5);
    bench.release(first);
    let again = bench.acquire(4, 2);
    assert_eq!(bench.deliver_all(), 0, "it is here");
    assert_eq!(bench.granted, [first, again]);
}

/// Who leaves puts those who have asked into the queue from its own id on, round the ring of ids.
#[test]
fn service_goes_round_from_who_leaves() {
    let mut bench = Bench::new(5, SPEC);
    let all = [3, 1, 2, 4, 5].map(|me| (me, bench.acquire(me, 1)));
    assert_eq!(bench.granted, [all[1].1], "the token's home");
    for _ in 1..5 {
        bench.deliver_all();
        bench.release(*bench.granted.last().unwrap());
    }
    bench.deliver_all();
    assert_eq!(bench.entered(), [1, 2, 3, 4, 5]);
}

/// The published test, RN = LN+1, waits for ever for the request that is left out.
#[test]
fn a_number_that_is_left_out_does_not_wedge() {
    let mut bench = Bench::new(3, SPEC);
    let request = message(SPEC.algorithm, r#"{"Request":{"number":2,"tries":false}}"#);
    bench.receive(3, 1, &request);
    assert_eq!(bench.kinds(), ["TOKEN"]);
    // Inside, it is the exit that compares.
    let mut bench = Bench::new(3, SPEC);
    let inside = bench.acquire(1, 1);
    bench.receive(3, 1, &request);
    assert_eq!(bench.kinds(), [""; 0]);
    bench.release(inside);
    assert_eq!(bench.kinds(), ["TOKEN"]);
}

/// A request that is served has been heard of by all the others too, if late.
#[test]
fn a_request_that_comes_late_or_twice_moves_nothing() {
    let mut bench = Bench::new(3, SPEC);
    let first = bench.acquire(2, 1);
    let request = bench.deliver(2, 1);
    bench.deliver(1, 2);
    bench.release(first);
    let second = bench.acquire(3, 1);
    bench.deliver(3, 2);
    bench.deliver(2, 3);
    bench.leave(second);
    bench.receive(2, 3, &request);
    assert_eq!(bench.kinds(), [""; 0], "the token knows that it was served");
}

/// An old request does not take the place of a newer one (G1).
#[test]
fn the_newest_request_wins() {
    let mut bench = Bench::new(2, SPEC);
    let first = bench.acquire(2, 1);
    let request = bench.deliver(2, 1);
    bench.deliver(1, 2);
    bench.release(first);
    let inside = bench.ask(1, 2);
    let second = bench.ask(2, 3);
    bench.receive(2, 1, &request);
    bench.leave(inside);
    assert_eq!(bench.granted, [first, inside, second]);
}

/// The view's table is the queue, and its requests are numbered as all others are.
#[test]
fn a_waiter_of_the_view_before_asks_again() {
    let (holder, waiter) = (request(2, 1, 5).id, request(3, 1, 7));
    let mut bench = Bench::rebuilt(3, SPEC, &[holder], &[waiter]);
    assert_eq!(bench.leave(holder), 1);
    bench.release(waiter.id);
    let other = bench.ask(1, 9);
    bench.release(other);
    let again = bench.ask(3, 12);
    assert_eq!(bench.granted, [waiter.id, other, again]);
}

#[test]
fn a_token_that_names_strangers_or_one_member_twice_is_put_right() {
    let mut bench = Bench::new(3, SPEC);
    bench.step(1, |engine, out| engine.leave(out));
    bench.wire.clear();
    let token = r#"{"Token":{"hop":1,"served":{"9":5},"queue":[3,9,2,3]}}"#;
    bench.receive(1, 2, &message(SPEC.algorithm, token));
    assert_eq!(bench.wire.len(), 1);
    let (_, to, token) = bench.wire.pop().unwrap();
    assert_eq!(
        (to, token),
        (
            3,
            message(
                SPEC.algorithm,
                r#"{"Token":{"hop":2,"served":{},"queue":[]}}"#
            )
        )
    );
}
