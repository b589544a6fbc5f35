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
    bench.release(first);
    bench.deliver_all();
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
    bench.release(quick);
    bench.deliver_all();
    assert_eq!(bench.granted, [quick, slow]);
}

#[test]
fn who_gives_up_holds_nobody_up() {
    let mut bench = Bench::new(3, SPEC);
    let inside = bench.acquire(1, 1);
    bench.deliver_all();
    let given_up = bench.acquire(2, 1);
    bench.deliver_all();
    let last = bench.acquire(3, 1);
    bench.deliver_all();
    bench.cancel(given_up);
    bench.release(inside);
    bench.deliver_all();
    assert_eq!(bench.granted, [inside, last]);
}

#[test]
fn after_a_view_change_tickets_follow_the_order_of_waiting() {
    let holder = request(2, 1, 5);
    let waiters = [request(3, 1, 7), request(1, 1, 9)];
    let mut bench = Bench::rebuilt(3, SPEC, &[holder.id], &waiters);
    bench.deliver_all();
    bench.release(holder.id);
    bench.deliver_all();
    assert_eq!(bench.granted, [waiters[0].id]);
    bench.release(waiters[0].id);
    bench.deliver_all();
    assert_eq!(bench.granted, [waiters[0].id, waiters[1].id]);
}
