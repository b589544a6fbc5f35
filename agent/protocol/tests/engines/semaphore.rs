use super::*;

fn permits(permits: u32) -> LockSpec {
    LockSpec::counting(NonZeroU32::new(permits).unwrap())
}

/// The member that serves the lock, found by asking: it is the one that others send to.
pub(super) fn server(size: u16) -> u16 {
    let mut bench = Bench::new(size, permits(1));
    (1..=size).for_each(|me| _ = bench.acquire(me, 1));
    bench.wire[0].1
}

/// Members that are not the server.
fn clients(size: u16) -> Vec<u16> {
    (1..=size).filter(|&me| me != server(size)).collect()
}

/// S2's V has no test of ownership, so that a repeated V manufactures a permit.
#[test]
fn v_frees_only_what_is_held_and_only_once() {
    let (server, clients) = (server(3), clients(3));
    let (a, b) = (clients[0], clients[1]);
    let mut bench = Bench::new(3, permits(1));
    let first = bench.acquire(a, 1);
    bench.deliver_all();
    bench.release(first);
    let release = bench.deliver(a, server);
    let second = bench.acquire(b, 2);
    bench.deliver_all();
    bench.receive(a, server, &release);
    let third = bench.acquire(a, 3);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
    bench.release(second);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second, third]);
}

#[test]
fn nobody_gives_back_what_another_holds() {
    let (server, clients) = (server(3), clients(3));
    let (a, b) = (clients[0], clients[1]);
    let mut bench = Bench::new(3, permits(1));
    let first = bench.acquire(a, 1);
    bench.deliver_all();
    bench.release(first);
    let (_, _, release) = bench.wire.remove(0);
    bench.receive(b, server, &release);
    bench.acquire(b, 2);
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
}

#[test]
fn a_grant_that_crosses_its_cancel_goes_back() {
    let (server, clients) = (server(3), clients(3));
    let (a, b) = (clients[0], clients[1]);
    let mut bench = Bench::new(3, permits(1));
    let given_up = bench.acquire(a, 1);
    bench.deliver(a, server);
    bench.cancel(given_up);
    bench.deliver_all();
    assert_eq!(bench.granted, []);
    let next = bench.acquire(b, 2);
    bench.deliver_all();
    assert_eq!(bench.granted, [next]);
}

/// G5: scenario 39 of the faults.
#[test]
fn a_request_that_comes_after_its_release_is_over() {
    let (server, clients) = (server(3), clients(3));
    let (a, b) = (clients[0], clients[1]);
    let mut bench = Bench::new(3, permits(1));
    let given_up = bench.acquire(a, 1);
    bench.cancel(given_up);
    assert_eq!(bench.kinds(), ["REQUEST", "RELEASE"]);
    bench.wire.swap(0, 1);
    bench.deliver(a, server);
    bench.deliver(a, server);
    let next = bench.acquire(b, 2);
    bench.deliver_all();
    assert_eq!(bench.granted, [next]);
}

#[test]
fn as_many_enter_as_there_are_permits_in_the_order_of_arrival() {
    let mut bench = Bench::new(4, permits(2));
    let ids: Vec<_> = (1..=4).map(|me| bench.acquire(me, 9)).collect();
    bench.deliver_all();
    assert_eq!(bench.granted.len(), 2);
    for count in 3..=4 {
        bench.release(bench.granted[count - 3]);
        bench.deliver_all();
        assert_eq!(bench.granted.len(), count);
    }
    assert!(ids.iter().all(|id| bench.granted.contains(id)));
}

#[test]
fn one_member_may_hold_several_permits() {
    let client = clients(3)[0];
    let mut bench = Bench::new(3, permits(2));
    let first = bench.acquire(client, 1);
    bench.deliver_all();
    let second = bench.acquire(client, 2);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
    let third = bench.acquire(client, 3);
    bench.deliver_all();
    assert_eq!(bench.busy, [third]);
    bench.release(first);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second, third]);
}

#[test]
fn after_a_view_change_the_server_has_the_books() {
    let (holder, waiter) = (request(1, 1, 5), request(2, 1, 9));
    let mut bench = Bench::rebuilt(3, permits(1), &[holder.id], &[waiter]);
    assert_eq!(bench.wire.len(), 0, "nobody has to say anything");
    bench.release(holder.id);
    bench.deliver_all();
    assert_eq!(bench.granted, [waiter.id]);
}
