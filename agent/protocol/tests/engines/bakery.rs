use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Bakery);

#[test]
fn three_rounds_of_reads_and_values() {
    let mut bench = Bench::new(4, SPEC);
    let id = bench.acquire(1, 1);
    assert_eq!(bench.deliver_all(), 6 * 3);
    assert_eq!(bench.granted, [id]);
}

/// S2's "my ticket is the minimum" lets both in when two took the same ticket.
#[test]
fn a_tie_is_broken_by_the_id() {
    let mut bench = Bench::new(2, SPEC);
    let (second, first) = (bench.acquire(2, 1), bench.acquire(1, 1));
    // Both read 0, and both take ticket 1.
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    assert_eq!(bench.busy, [second]);
    bench.leave(first);
    assert_eq!(bench.granted, [first, second]);
}

#[test]
fn who_is_taking_a_ticket_is_waited_for() {
    let mut bench = Bench::new(2, SPEC);
    let slow = bench.acquire(1, 1);
    let (_, _, reads_max) = bench.wire.remove(0);
    // 2 takes ticket 1 meanwhile, and asks whether 1 is choosing. It is.
    let quick = bench.acquire(2, 1);
    bench.deliver(2, 1);
    bench.deliver(1, 2);
    bench.deliver(2, 1);
    assert_eq!(bench.wire.len(), 0, "the read is parked");
    bench.receive(1, 2, &reads_max);
    bench.deliver_all();
    // 1 read ticket 1 of 2, and has ticket 2.
    assert_eq!(bench.granted, [quick]);
    bench.leave(quick);
    assert_eq!(bench.granted, [quick, slow]);
}

#[test]
fn who_gives_up_holds_nobody_up() {
    let mut bench = Bench::new(3, SPEC);
    let inside = bench.ask(1, 1);
    let given_up = bench.ask(2, 1);
    let last = bench.ask(3, 1);
    bench.cancel(given_up);
    bench.leave(inside);
    assert_eq!(bench.granted, [inside, last]);
}
