//! Section 2.11. The tree of seven is 1 above 2 and 3, 2 above 4 and 5, 3 above 6 and 7.

use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Raymond);

/// Everybody who waits is served, one after the other.
fn serve_all(bench: &mut Bench) {
    let mut left = 0;
    bench.deliver_all();
    while let Some(&inside) = bench.granted.get(left) {
        bench.leave(inside);
        left += 1;
    }
}

/// S3: the request goes up the branch and the token comes down, d messages each.
#[test]
fn the_token_comes_the_way_the_request_went() {
    for (asker, hops) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 2)] {
        let mut bench = Bench::new(7, SPEC);
        let id = bench.acquire(asker, 1);
        assert_eq!(bench.deliver_all(), 2 * hops);
        bench.release(id);
        // Over the root to the other side.
        let id = bench.acquire(4, 2);
        let hops_to_4 = [2, 1, 3, 0, 2, 4, 4][usize::from(asker - 1)];
        assert_eq!(bench.deliver_all(), 2 * hops_to_4);
        assert_eq!(bench.granted.last(), Some(&id));
    }
}

/// A member asks once for all that are behind it, and again when it sends the token away while
/// others wait.
#[test]
fn one_request_is_enough_for_all_behind() {
    let mut bench = Bench::new(7, SPEC);
    let inside = bench.acquire(1, 1);
    for me in [4, 5, 2] {
        bench.acquire(me, 2);
    }
    assert_eq!(bench.deliver_all(), 3, "from 4 and 5 to 2, and from 2 to 1");
    bench.release(inside);
    assert_eq!(bench.kinds(), ["TOKEN"], "nobody waits at 1 any more");
    bench.deliver(1, 2);
    assert_eq!(bench.kinds(), ["REQUEST"; 0], "2 asked first, for itself");
    serve_all(&mut bench);
    assert_eq!(bench.entered(), [1, 2, 4, 5]);
}

/// S3, steps 3 and 4: the token stays while it is used, and then goes to the first, which may be
/// the member itself.
#[test]
fn a_queue_is_served_in_order() {
    let mut bench = Bench::new(3, SPEC);
    let inside = bench.acquire(1, 1);
    bench.ask(3, 2);
    assert_eq!(bench.entered(), [1], "it is in use");
    bench.release(inside);
    bench.acquire(1, 3);
    bench.acquire(2, 4);
    serve_all(&mut bench);
    assert_eq!(bench.entered(), [1, 3, 1, 2]);
}

/// Sent away, the token may be overtaken by the request for it: then its two ends name each other.
#[test]
fn a_request_may_overtake_the_token() {
    let mut bench = Bench::new(3, SPEC);
    let inside = bench.acquire(1, 1);
    bench.acquire(2, 2);
    bench.ask(3, 2);
    bench.release(inside);
    assert_eq!(bench.kinds(), ["TOKEN", "REQUEST"]);
    let request = bench.wire.remove(1).2;
    bench.receive(1, 2, &request);
    serve_all(&mut bench);
    assert_eq!(bench.entered(), [1, 2, 3]);
}

#[test]
fn only_neighbours_are_heard_and_the_token_comes_from_where_it_was() {
    let mut bench = Bench::new(7, SPEC);
    bench.acquire(7, 1);
    let request = bench.deliver(7, 3);
    bench.receive(7, 1, &request);
    bench.receive(4, 1, &request);
    assert_eq!(bench.kinds(), ["REQUEST"], "that of 3");
    bench.deliver(3, 1);
    let token = bench.deliver(1, 3);
    let other = bench.acquire(2, 2);
    for from in [3, 4, 5] {
        bench.receive(from, 2, &token);
    }
    assert!(!bench.granted.contains(&other));
}
