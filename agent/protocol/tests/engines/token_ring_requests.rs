use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::TokenRingRequests);

/// S3: a member d hops after the holder pays 2d messages.
#[test]
fn the_token_comes_the_way_the_request_went() {
    for asker in 1..=5_u16 {
        let mut bench = Bench::new(5, SPEC);
        let id = bench.acquire(asker, 1);
        assert_eq!(bench.deliver_all(), 2 * usize::from(asker - 1));
        assert_eq!(bench.granted, [id]);
    }
}

/// The lecture passes it on though nobody waits: one cancelled request, and it never rests.
#[test]
fn a_token_that_nobody_wants_any_more_is_kept() {
    let mut bench = Bench::new(4, SPEC);
    let given_up = bench.acquire(3, 1);
    bench.cancel(given_up);
    bench.deliver_all();
    assert_eq!(bench.granted, []);
    let id = bench.acquire(3, 2);
    assert_eq!(bench.deliver_all(), 0, "it is here");
    assert_eq!(bench.granted, [id]);
}

#[test]
fn the_user_keeps_it_until_it_leaves() {
    let mut bench = Bench::new(3, SPEC);
    let first = bench.acquire(1, 1);
    let second = bench.ask(3, 1);
    assert_eq!(bench.granted, [first]);
    bench.leave(first);
    assert_eq!(bench.granted, [first, second]);
}
