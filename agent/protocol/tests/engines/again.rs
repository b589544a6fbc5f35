//! What is cheap for few of many members that ask, while the others do not: the guide to the
//! algorithms, in distlock(7), has these numbers.

use super::*;

/// Messages of the last entry, where `callers` of `size` members enter one after the other, and
/// nobody waits.
fn messages(algorithm: Algorithm, size: u16, callers: &[u16]) -> usize {
    let mut bench = Bench::new(size, exclusive(algorithm));
    let mut messages = 0;
    for (turn, &caller) in callers.iter().enumerate() {
        let id = bench.acquire(caller, 100 * (turn as u64 + 1));
        messages = bench.deliver_all();
        assert_eq!(bench.granted.last(), Some(&id), "{algorithm}");
        messages += bench.leave(id);
    }
    messages
}

/// What one of 5 and of 16 pays that asks again, and one of two of 16 that ask in turn. A perpetual
/// token is not asked for.
#[test]
fn permissions_and_tokens_that_stay_cost_little() {
    for (algorithm, alone, two) in [
        (Algorithm::Semaphore, [3, 3], 3),
        (Algorithm::Bakery, [24, 90], 90),
        (Algorithm::RicartAgrawala, [8, 30], 30),
        (Algorithm::TokenRingRequests, [0, 0], 2),
        (Algorithm::Lamport, [12, 45], 45),
        (Algorithm::CarvalhoRoucairol, [0, 0], 2),
        (Algorithm::Maekawa, [6, 12], 12),
        (Algorithm::Majority, [6, 24], 24),
        (Algorithm::SuzukiKasami, [0, 0], 16),
        (Algorithm::Singhal, [0, 0], 2),
        (Algorithm::Raymond, [0, 0], 4),
        (Algorithm::Voting, [12, 45], 45),
        (Algorithm::Manager, [3, 3], 3),
    ] {
        let measured = [5, 16].map(|size| messages(algorithm, size, &[size - 1; 2]));
        let in_turn = messages(algorithm, 16, &[14, 15, 14, 15, 14, 15]);
        assert_eq!((measured, in_turn), (alone, two), "{algorithm}");
    }
    assert!(![4, 14, 15].contains(&semaphore::server(5)));
}
