//! Messages per entry, response time and synchronisation delay, against the reference table of the
//! algorithms: T is the one-way delay, E the time inside, N the number of members, `K` stands for
//! N − 1. What the table gives as a constant must be met exactly, what it gives as a mean over
//! random callers within 3 %.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;

use distlock_agent::protocol::Algorithm::{
    self, Bakery, RicartAgrawala, Semaphore, TokenRing, TokenRingRequests,
};
use distlock_agent::sim::costs::{Costs, E, Load, T, measure_bare};

/// The group sizes of the table.
const SIZES: [u16; 5] = [2, 3, 5, 8, 16];

fn measure(algorithm: Algorithm, size: u16, load: Load) -> Costs {
    let costs = measure_bare(algorithm, size, load);
    costs.unwrap_or_else(|broken| panic!("{algorithm}, N = {size}, {load:?}: {broken}"))
}

/// Asserts that `costs` are exactly `expected` messages of each kind per entry.
fn assert_messages(costs: &Costs, expected: &[(&'static str, u64)], what: &str) {
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(kind, per_entry)| (*kind, per_entry * costs.entries))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(
        costs.messages, expected,
        "{what}, {} entries",
        costs.entries
    );
}

/// Asserts that a measured mean is what it must be, to a billionth.
fn assert_exactly(measured: f64, expected: f64, what: &str) {
    assert!(
        (measured - expected).abs() < 1e-9,
        "{what}: {measured}, not {expected}"
    );
}

/// Asserts that a measured mean is within 3 % of what the table says.
fn assert_about(measured: f64, expected: f64, what: &str) {
    assert!(
        (measured / expected - 1.0).abs() < 0.03,
        "{what}: {measured}, not {expected}"
    );
}

/// E in units of T.
fn inside() -> f64 {
    E.as_secs_f64() / T.as_secs_f64()
}

/// 3(N−1)/N messages: 3, or 0 where the caller is the server. Each member asked equally often, so
/// the mean is exact. Response 2T(N−1)/N + E.
#[test]
fn semaphore() {
    for size in SIZES {
        let (n, k) = (f64::from(size), f64::from(size - 1));
        for load in [Load::Light, Load::Heavy, Load::Burst] {
            let costs = measure(Semaphore, size, load);
            let what = format!("N = {size}, {load:?}");
            assert_exactly(costs.per_entry(), 3.0 * k / n, &what);
            let third = costs.total() / 3;
            let each = ["REQUEST", "GRANT", "RELEASE"].map(|kind| (kind, third));
            assert_eq!(costs.messages, BTreeMap::from(each), "{what}");
        }
        let light = measure(Semaphore, size, Load::Light);
        assert_exactly(light.response.mean(T), 2.0 * k / n + inside(), "response");
        // 2T, and T where either of the two is the server itself.
        let heavy = measure(Semaphore, size, Load::Heavy);
        assert_exactly(heavy.sync.mean(T), 2.0 - 2.0 / n, "synchronisation delay");
        assert!(heavy.sync.longest <= T * 2);
    }
}

/// 6(N−1) messages, response 6T+E, synchronisation delay T.
#[test]
fn bakery() {
    for size in SIZES {
        let k = u64::from(size - 1);
        for load in [Load::Light, Load::Heavy, Load::Burst] {
            let costs = measure(Bakery, size, load);
            let what = format!("N = {size}, {load:?}");
            assert_messages(&costs, &[("READ", 3 * k), ("VALUE", 3 * k)], &what);
        }
        let light = measure(Bakery, size, Load::Light);
        assert_exactly(light.response.mean(T), 6.0 + inside(), "response");
        let heavy = measure(Bakery, size, Load::Heavy);
        assert_eq!(
            (heavy.sync.mean(T), heavy.sync.longest),
            (1.0, T),
            "synchronisation delay"
        );
    }
}

/// 2(N−1) messages, and one DEFERRED for each deferral: none under light load, N−1 under heavy
/// load, (N−1)/2 in a burst, where every pair is in conflict once. Response 2T+E, synchronisation
/// delay T.
#[test]
fn ricart_agrawala() {
    for size in SIZES {
        let k = u64::from(size - 1);
        let light = measure(RicartAgrawala, size, Load::Light);
        assert_messages(&light, &[("REQUEST", k), ("REPLY", k)], "light");
        assert_exactly(light.response.mean(T), 2.0 + inside(), "response");

        let heavy = measure(RicartAgrawala, size, Load::Heavy);
        assert_messages(
            &heavy,
            &[("REQUEST", k), ("REPLY", k), ("DEFERRED", k)],
            "heavy",
        );
        assert_eq!(
            (heavy.sync.mean(T), heavy.sync.longest),
            (1.0, T),
            "synchronisation delay"
        );

        let burst = measure(RicartAgrawala, size, Load::Burst);
        assert_exactly(burst.per_entry(), 2.5 * k as f64, "burst");
    }
}

/// Under heavy load 1 message and T. Under light load one message per T + d for ever, d ≤ 20 ms;
/// response NT/2 + E in the mean over all phases, NT + E at worst.
#[test]
fn token_ring() {
    for size in SIZES {
        let heavy = measure(TokenRing, size, Load::Heavy);
        assert_messages(&heavy, &[("TOKEN", 1)], "heavy");
        assert_eq!(
            (heavy.sync.mean(T), heavy.sync.longest),
            (1.0, T),
            "synchronisation delay"
        );

        let light = measure(TokenRing, size, Load::Light);
        let wait = light.response.mean(T) - inside();
        assert_about(
            wait,
            f64::from(size) / 2.0,
            &format!("N = {size}, mean wait"),
        );
        let longest = (light.response.longest - E).as_secs_f64() / T.as_secs_f64();
        assert!(
            longest <= f64::from(size) * 1.002,
            "N = {size}, longest wait {longest} T"
        );
        // The token does not go round while somebody is inside.
        let going_round = light.elapsed - E * light.entries as u32;
        let hops = going_round.as_secs_f64() / T.as_secs_f64();
        assert_about(light.total() as f64, hops, &format!("N = {size}, messages"));
    }
}

/// d hops cost 2d messages and 2dT: N−1 messages and (N−1)T + E in the mean, 2(N−1) at worst;
/// under heavy load 2 messages and T.
#[test]
fn token_ring_requests() {
    for size in SIZES {
        let k = f64::from(size - 1);
        let light = measure(TokenRingRequests, size, Load::Light);
        assert_exactly(light.per_entry(), k, &format!("N = {size}, light"));
        assert_eq!(
            light.messages["REQUEST"], light.messages["TOKEN"],
            "N = {size}, light"
        );
        assert_exactly(light.response.mean(T), k + inside(), "response");
        assert_eq!(
            light.response.longest,
            T * 2 * u32::from(size - 1) + E,
            "longest response"
        );

        let heavy = measure(TokenRingRequests, size, Load::Heavy);
        assert_messages(&heavy, &[("REQUEST", 1), ("TOKEN", 1)], "heavy");
        assert_eq!(
            (heavy.sync.mean(T), heavy.sync.longest),
            (1.0, T),
            "synchronisation delay"
        );
    }
}

/// Alone, nobody has to be asked.
#[test]
fn a_group_of_one_sends_nothing() {
    for algorithm in Algorithm::ALL {
        for load in [Load::Light, Load::Heavy, Load::Burst] {
            let costs = measure(algorithm, 1, load);
            assert_eq!(
                (costs.total(), costs.response.longest),
                (0, E),
                "{algorithm}, {load:?}"
            );
        }
    }
}
