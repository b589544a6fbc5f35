//! What is alike wherever a token is asked for and goes straight to who is next.

use super::*;

const ALL: [Algorithm; 3] = [
    Algorithm::SuzukiKasami,
    Algorithm::Singhal,
    Algorithm::Raymond,
];

fn bench(size: u16, algorithm: Algorithm) -> Bench {
    Bench::new(size, exclusive(algorithm))
}

#[test]
fn a_cancelled_request_leaves_a_ghost_that_lets_the_token_pass() {
    for algorithm in ALL {
        let mut bench = bench(3, algorithm);
        let inside = bench.acquire(1, 1);
        let given_up = bench.acquire(2, 1);
        let waits = bench.ask(3, 1);
        bench.cancel(given_up);
        bench.release(inside);
        let count = match algorithm {
            // To 2, asked back, to 1 and to 3.
            Algorithm::Raymond => 4,
            // To 2, and on to 3.
            _ => 2,
        };
        assert_eq!(bench.deliver_all(), count, "{algorithm}");
        assert_eq!(bench.granted, [inside, waits], "{algorithm}");
        assert_eq!(bench.leave(waits), 0, "{algorithm}: the ghost was served");
    }
}

#[test]
fn a_new_request_takes_the_ghost_s_place_and_says_nothing() {
    for algorithm in ALL {
        let mut bench = bench(3, algorithm);
        let inside = bench.acquire(1, 1);
        let given_up = bench.ask(2, 1);
        bench.cancel(given_up);
        let again = bench.acquire(2, 5);
        assert_eq!(bench.kinds(), [""; 0], "{algorithm}");
        bench.leave(inside);
        assert_eq!(bench.granted, [inside, again], "{algorithm}");
        assert_eq!(bench.leave(again), 0, "{algorithm}");
    }
}

/// G3.
#[test]
fn a_token_that_comes_twice_is_taken_once() {
    for algorithm in ALL {
        let mut bench = bench(3, algorithm);
        let first = bench.acquire(2, 1);
        bench.deliver(2, 1);
        let token = bench.deliver(1, 2);
        bench.release(first);
        let second = bench.ask(3, 1);
        let waits = bench.acquire(2, 2);
        bench.receive(1, 2, &token);
        assert_eq!(bench.granted, [first, second], "{algorithm}");
        bench.deliver_all();
        bench.leave(second);
        assert_eq!(bench.granted, [first, second, waits], "{algorithm}");
    }
}

/// G1: an old request is not taken for a new one, which would send the token to who does not want
/// it.
#[test]
fn a_request_that_comes_twice_moves_the_token_once() {
    for algorithm in ALL {
        let mut bench = bench(3, algorithm);
        let first = bench.acquire(2, 1);
        let request = bench.deliver(2, 1);
        bench.deliver_all();
        bench.release(first);
        let second = bench.ask(1, 2);
        assert_eq!(bench.granted, [first, second], "{algorithm}");
        bench.receive(2, 1, &request);
        bench.release(second);
        bench.receive(2, 1, &request);
        assert_eq!(bench.kinds(), [""; 0], "{algorithm}");
    }
}

/// In Raymond's tree the request stays with whoever is on the way, who cannot tell.
#[test]
fn who_is_inside_says_so_to_who_only_tries() {
    for algorithm in [Algorithm::SuzukiKasami, Algorithm::Singhal] {
        let mut bench = bench(3, algorithm);
        bench.acquire(1, 1);
        let tries = bench.ask(3, 1);
        assert_eq!(bench.busy, [tries], "{algorithm}");
        bench.cancel(tries);
        let late = message(algorithm, r#"{"Busy":{"number":1}}"#);
        bench.receive(1, 3, &late);
        assert_eq!(bench.busy, [tries], "{algorithm}: nobody waits any more");
    }
}

#[test]
fn who_leaves_passes_an_unused_token_on() {
    for algorithm in ALL.into_iter().chain([Algorithm::TokenRingRequests]) {
        for size in [2, 3] {
            let mut bench = bench(size, algorithm);
            bench.step(1, |engine, out| engine.leave(out));
            assert_eq!(bench.deliver_all(), 1, "{algorithm}");
            let id = bench.acquire(2, 1);
            assert_eq!(bench.granted, [id], "{algorithm}: it is here");
        }
        let mut alone = bench(1, algorithm);
        alone.step(1, |engine, out| engine.leave(out));
        assert_eq!(alone.kinds(), [""; 0], "{algorithm}");
    }
}
