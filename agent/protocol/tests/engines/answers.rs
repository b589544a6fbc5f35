//! What is alike wherever a member asks others, and enters when they have answered.

use super::*;

/// S1, figure 6.16: 1 asks at 8, 3 at 12, 2 does not care. All have been there before, so that
/// both have to ask, also where permissions stay good.
#[test]
fn figure_6_16() {
    for algorithm in [
        Algorithm::RicartAgrawala,
        Algorithm::Lamport,
        Algorithm::CarvalhoRoucairol,
    ] {
        let mut bench = Bench::new(3, exclusive(algorithm));
        for me in [3, 2] {
            let id = bench.ask(me, 1);
            bench.leave(id);
        }
        bench.granted.clear();
        let (first, second) = (bench.acquire(1, 8), bench.acquire(3, 12));
        bench.deliver_all();
        assert_eq!(bench.granted, [first], "{algorithm}");
        assert_eq!(bench.busy.last(), Some(&second), "who waits is told so");
        bench.leave(first);
        assert_eq!(bench.granted, [first, second], "{algorithm}");
    }
}

/// S3 compares bare clocks, and leaves it open what is to be where they are equal.
#[test]
fn equal_clocks_are_ordered_by_id() {
    for algorithm in [Algorithm::RicartAgrawala, Algorithm::Lamport] {
        let mut bench = Bench::new(2, exclusive(algorithm));
        let (second, first) = (bench.acquire(2, 8), bench.acquire(1, 8));
        bench.serves(&[first, second]);
    }
}

/// G2: S2 and S4 count replies, and take one that comes twice for two.
#[test]
fn an_answer_that_comes_twice_counts_once() {
    for (algorithm, size) in [
        (Algorithm::RicartAgrawala, 3),
        (Algorithm::Lamport, 3),
        (Algorithm::Maekawa, 7),
        (Algorithm::Majority, 5),
        (Algorithm::Voting, 5),
    ] {
        let mut bench = Bench::new(size, exclusive(algorithm));
        let id = bench.acquire(1, 8);
        bench.deliver(1, 2);
        let answer = bench.deliver(2, 1);
        for _ in 0..5 {
            bench.receive(2, 1, &answer);
        }
        assert_eq!(bench.granted, [], "{algorithm}");
        bench.deliver_all();
        assert_eq!(bench.granted, [id], "{algorithm}");
    }
}

/// G2.
#[test]
fn an_answer_to_an_earlier_request_is_nothing() {
    for algorithm in [Algorithm::RicartAgrawala, Algorithm::Majority] {
        let mut bench = Bench::new(2, exclusive(algorithm));
        let given_up = bench.acquire(1, 8);
        bench.deliver(1, 2);
        bench.cancel(given_up);
        let wanted = bench.acquire(1, 9);
        bench.deliver(2, 1);
        assert_eq!(bench.granted, [], "{algorithm}");
        bench.deliver_all();
        assert_eq!(bench.granted, [wanted], "{algorithm}");
    }
}
