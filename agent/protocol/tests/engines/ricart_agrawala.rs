use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::RicartAgrawala);

/// G1: without it, reordering and cancelling left 197 of 300 runs stuck.
#[test]
fn an_old_request_does_not_displace_a_newer_one() {
    let mut bench = Bench::new(2, SPEC);
    let inside = bench.ask(2, 1);
    let given_up = bench.acquire(1, 8);
    let (_, _, old) = bench.wire.remove(0);
    bench.cancel(given_up);
    let wanted = bench.ask(1, 9);
    bench.receive(1, 2, &old);
    bench.leave(inside);
    assert_eq!(bench.granted, [inside, wanted]);
}
