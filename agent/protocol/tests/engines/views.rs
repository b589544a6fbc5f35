//! How a view begins, with the table of the one before it: 3 waits, and 1 behind it.

use super::*;

fn waiters() -> [Request; 2] {
    [request(3, 1, 7), request(1, 1, 9)]
}

/// 2 is inside. What is said at once, and who enters then.
#[test]
fn the_holder_is_inside_and_the_waiters_enter_after_it() {
    for (algorithm, size, said, order) in [
        (Algorithm::Semaphore, 3, &[][..], [3, 1]),
        (Algorithm::Bakery, 3, &["READ"; 4], [3, 1]),
        (Algorithm::RicartAgrawala, 3, &["REQUEST"; 4], [3, 1]),
        (Algorithm::TokenRing, 3, &[], [3, 1]),
        (Algorithm::TokenRingRequests, 3, &["REQUEST"; 2], [3, 1]),
        (Algorithm::Lamport, 3, &["REQUEST"; 4], [3, 1]),
        (Algorithm::CarvalhoRoucairol, 3, &["ASK"; 3], [3, 1]),
        (Algorithm::Maekawa, 7, &["REQUEST"; 4], [3, 1]),
        (Algorithm::Majority, 7, &["REQUEST"; 6], [3, 1]),
        // The view's table is the queue: nobody has to say anything.
        (Algorithm::SuzukiKasami, 3, &[], [3, 1]),
        (Algorithm::Manager, 3, &[], [3, 1]),
        // The lowest step is where the token is needed: 1 is above 3, and 3 above 2.
        (Algorithm::Singhal, 3, &["REQUEST"; 3], [3, 1]),
        // The root of the tree is where the token is needed: both are below 2.
        (Algorithm::Raymond, 3, &["REQUEST"; 2], [1, 3]),
    ] {
        let holder = request(2, 1, 5).id;
        let mut bench = Bench::rebuilt(size, exclusive(algorithm), &[holder], &waiters());
        assert_eq!(bench.kinds(), said, "{algorithm}");
        bench.deliver_all();
        assert_eq!(bench.granted, [], "{algorithm}");
        bench.leave(holder);
        for entered in [&order[..1], &order] {
            assert_eq!(bench.entered(), entered, "{algorithm}");
            bench.leave(*bench.granted.last().unwrap());
        }
    }
}

#[test]
fn where_nobody_is_inside_the_token_is_where_it_is_needed() {
    for algorithm in [
        Algorithm::TokenRing,
        Algorithm::TokenRingRequests,
        Algorithm::SuzukiKasami,
        Algorithm::Singhal,
        Algorithm::Raymond,
        Algorithm::Manager,
    ] {
        let bench = Bench::rebuilt(3, exclusive(algorithm), &[], &waiters());
        assert_eq!(bench.entered(), [3], "{algorithm}");
    }
}

/// The queue is the view's table, but everybody must be heard from anew, be it by its own request.
#[test]
fn lamport_s_first_waiter_waits_for_who_may_have_asked_since() {
    let mut bench = Bench::rebuilt(3, exclusive(Algorithm::Lamport), &[], &waiters());
    assert_eq!(bench.granted, [], "2 may have asked since, and earlier");
    bench.deliver_all();
    assert_eq!(bench.entered(), [3]);
}
