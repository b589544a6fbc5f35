use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::RicartAgrawala);

/// S1, figure 6.16: P0 asks at 8, P2 at 12, P1 does not care.
#[test]
fn figure_6_16() {
    let mut bench = Bench::new(3, SPEC);
    let (first, second) = (bench.acquire(1, 8), bench.acquire(3, 12));
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    assert_eq!(bench.busy, [second], "who has to wait is told so");
    bench.release(first);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
}

#[test]
fn equal_clocks_are_ordered_by_id() {
    let mut bench = Bench::new(2, SPEC);
    let (second, first) = (bench.acquire(2, 8), bench.acquire(1, 8));
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    bench.release(first);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
}

/// G2: S2 and S4 count replies, and take one that comes twice for two.
#[test]
fn a_reply_that_comes_twice_counts_once() {
    let mut bench = Bench::new(3, SPEC);
    bench.acquire(1, 8);
    bench.deliver(1, 2);
    let reply = bench.deliver(2, 1);
    bench.receive(2, 1, &reply);
    assert_eq!(bench.granted, []);
}

#[test]
fn a_reply_to_an_earlier_request_is_nothing() {
    let mut bench = Bench::new(2, SPEC);
    let given_up = bench.acquire(1, 8);
    bench.deliver(1, 2);
    bench.cancel(given_up);
    bench.acquire(1, 9);
    bench.deliver(2, 1);
    assert_eq!(bench.granted, []);
}

/// G1: without it, reordering and cancelling left 197 of 300 runs stuck.
#[test]
fn an_old_request_does_not_displace_a_newer_one() {
    let mut bench = Bench::new(2, SPEC);
    let inside = bench.acquire(2, 1);
    bench.deliver_all();
    let given_up = bench.acquire(1, 8);
    let (_, _, old) = bench.wire.remove(0);
    bench.cancel(given_up);
    let wanted = bench.acquire(1, 9);
    bench.deliver_all();
    bench.receive(1, 2, &old);
    bench.release(inside);
    bench.deliver_all();
    assert_eq!(bench.granted, [inside, wanted]);
}

#[test]
fn after_a_view_change_the_holder_is_inside_and_the_waiter_asks_anew() {
    let (holder, waiter) = (request(2, 1, 5), request(1, 1, 9));
    let mut bench = Bench::rebuilt(3, SPEC, &[holder.id], &[waiter]);
    bench.deliver_all();
    assert_eq!(bench.granted, []);
    bench.release(holder.id);
    bench.deliver_all();
    assert_eq!(bench.granted, [waiter.id]);
}
