use super::*;

fn permits(permits: u32) -> LockSpec {
    LockSpec {
        permits: NonZeroU32::new(permits).unwrap(),
        ..exclusive(Algorithm::Semaphore)
    }
}

/// The member that serves the lock, found by asking: it is the one that others send to.
pub(super) fn server(size: u16) -> u16 {
    let mut bench = Bench::new(size, permits(1));
    (1..=size).for_each(|me| _ = bench.acquire(me, 1));
    bench.wire[0].1
}

/// Three members: the server, and the two others.
fn bench(of: u32) -> (Bench, [u16; 3]) {
    let server = server(3);
    let [a, b] = [1, 2].map(|n| (server - 1 + n) % 3 + 1);
    (Bench::new(3, permits(of)), [server, a, b])
}

/// S2's V has no test of ownership, so that a repeated V manufactures a permit.
#[test]
fn v_frees_only_what_is_held_and_only_once() {
    let (mut bench, [server, a, b]) = bench(1);
    let first = bench.ask(a, 1);
    bench.release(first);
    let release = bench.deliver(a, server);
    let second = bench.ask(b, 2);
    bench.receive(a, server, &release);
    let third = bench.ask(a, 3);
    assert_eq!(bench.granted, [first, second]);
    bench.leave(second);
    assert_eq!(bench.granted, [first, second, third]);
}

#[test]
fn nobody_gives_back_what_another_holds() {
    let (mut bench, [server, a, b]) = bench(1);
    let first = bench.ask(a, 1);
    bench.release(first);
    let (_, _, release) = bench.wire.remove(0);
    bench.receive(b, server, &release);
    bench.ask(b, 2);
    assert_eq!(bench.granted, [first]);
}

#[test]
fn a_grant_that_crosses_its_cancel_goes_back() {
    let (mut bench, [server, a, b]) = bench(1);
    let given_up = bench.acquire(a, 1);
    bench.deliver(a, server);
    bench.cancel(given_up);
    bench.deliver_all();
    assert_eq!(bench.granted, []);
    let next = bench.ask(b, 2);
    assert_eq!(bench.granted, [next]);
}

/// G5: scenario 39 of the faults.
#[test]
fn a_request_that_comes_after_its_release_is_over() {
    let (mut bench, [server, a, b]) = bench(1);
    let given_up = bench.acquire(a, 1);
    bench.cancel(given_up);
    assert_eq!(bench.kinds(), ["REQUEST", "RELEASE"]);
    bench.wire.swap(0, 1);
    bench.deliver(a, server);
    bench.deliver(a, server);
    let next = bench.ask(b, 2);
    assert_eq!(bench.granted, [next]);
}

#[test]
fn as_many_enter_as_there_are_permits_in_the_order_of_arrival() {
    let mut bench = Bench::new(4, permits(2));
    let ids: Vec<_> = (1..=4).map(|me| bench.acquire(me, 9)).collect();
    bench.deliver_all();
    assert_eq!(bench.granted.len(), 2);
    for count in 3..=4 {
        bench.leave(bench.granted[count - 3]);
        assert_eq!(bench.granted.len(), count);
    }
    assert!(ids.iter().all(|id| bench.granted.contains(id)));
}

#[test]
fn one_member_may_hold_several_permits() {
    let (mut bench, [_, client, _]) = bench(2);
    let first = bench.ask(client, 1);
    let second = bench.ask(client, 2);
    assert_eq!(bench.granted, [first, second]);
    let third = bench.ask(client, 3);
    assert_eq!(bench.busy, [third]);
    bench.leave(first);
    assert_eq!(bench.granted, [first, second, third]);
}
