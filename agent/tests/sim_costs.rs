//! Messages per entry, response time and synchronisation delay, against the reference table of the
//! algorithms: T is the one-way delay, E the time inside, N the number of members, `K` stands for
//! N − 1. What the table gives as a constant must be met exactly, what it gives as a mean over
//! random callers within 3 %.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_agent::protocol::Algorithm::{
    self, Bakery, Lamport, Maekawa, Majority, Raymond, RicartAgrawala, Semaphore, SuzukiKasami,
    TokenRing, TokenRingRequests,
};
use distlock_agent::sim::costs::{Costs, INSIDE, Load, measure_bare, measure_nodes};

/// The group sizes of the table.
const SIZES: [u16; 5] = [2, 3, 5, 8, 16];

/// Bare engines, and the engines of whole nodes as the nodes count them: both must keep to the
/// table.
type Measure = fn(Algorithm, u16, Load) -> Costs;

fn bare(algorithm: Algorithm, size: u16, load: Load) -> Costs {
    let costs = measure_bare(algorithm, size, load);
    costs.unwrap_or_else(|broken| panic!("{algorithm}, N = {size}, {load:?}: {broken}"))
}

fn nodes(algorithm: Algorithm, size: u16, load: Load) -> Costs {
    let costs = measure_nodes(algorithm, size, load);
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

/// The response time in the mean, without the time inside, in units of T.
fn wait(costs: &Costs) -> f64 {
    costs.response.mean_in(costs.unit) - f64::from(INSIDE)
}

/// Asserts that the synchronisation delay is always T.
fn assert_sync_is_t(costs: &Costs) {
    let sync = costs.sync;
    assert!(sync.count > 0, "nobody waited");
    assert_eq!(
        (sync.sum, sync.longest),
        (costs.unit * sync.count, costs.unit)
    );
}

#[test]
fn semaphore_bare() {
    semaphore(bare);
}

#[test]
fn semaphore_in_nodes() {
    semaphore(nodes);
}

#[test]
fn bakery_bare() {
    bakery(bare);
}

#[test]
fn bakery_in_nodes() {
    bakery(nodes);
}

#[test]
fn ricart_agrawala_bare() {
    ricart_agrawala(bare);
}

#[test]
fn ricart_agrawala_in_nodes() {
    ricart_agrawala(nodes);
}

#[test]
fn token_ring_requests_bare() {
    token_ring_requests(bare);
}

#[test]
fn token_ring_requests_in_nodes() {
    token_ring_requests(nodes);
}

#[test]
fn lamport_bare() {
    lamport(bare);
}

#[test]
fn lamport_in_nodes() {
    lamport(nodes);
}

#[test]
fn suzuki_kasami_bare() {
    suzuki_kasami(bare);
}

#[test]
fn suzuki_kasami_in_nodes() {
    suzuki_kasami(nodes);
}

/// 3(N−1)/N messages: 3, or 0 where the caller is the server. Each member asked equally often, so
/// the mean is exact. Response 2T(N−1)/N + E.
fn semaphore(measure: Measure) {
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
        assert_exactly(wait(&light), 2.0 * k / n, "response");
        // 2T, and T where either of the two is the server itself.
        let heavy = measure(Semaphore, size, Load::Heavy);
        assert_exactly(
            heavy.sync.mean_in(heavy.unit),
            2.0 - 2.0 / n,
            "synchronisation delay",
        );
        assert!(heavy.sync.longest <= heavy.unit * 2);
    }
}

/// 6(N−1) messages, response 6T+E, synchronisation delay T.
fn bakery(measure: Measure) {
    for size in SIZES {
        let k = u64::from(size - 1);
        for load in [Load::Light, Load::Heavy, Load::Burst] {
            let costs = measure(Bakery, size, load);
            let what = format!("N = {size}, {load:?}");
            assert_messages(&costs, &[("READ", 3 * k), ("VALUE", 3 * k)], &what);
        }
        let light = measure(Bakery, size, Load::Light);
        assert_exactly(wait(&light), 6.0, "response");
        let heavy = measure(Bakery, size, Load::Heavy);
        assert_sync_is_t(&heavy);
    }
}

/// 2(N−1) messages, and one DEFERRED for each deferral: none under light load, N−1 under heavy
/// load, (N−1)/2 in a burst, where every pair is in conflict once. Response 2T+E, synchronisation
/// delay T.
fn ricart_agrawala(measure: Measure) {
    for size in SIZES {
        let k = u64::from(size - 1);
        let light = measure(RicartAgrawala, size, Load::Light);
        assert_messages(&light, &[("REQUEST", k), ("REPLY", k)], "light");
        assert_exactly(wait(&light), 2.0, "response");

        let heavy = measure(RicartAgrawala, size, Load::Heavy);
        assert_messages(
            &heavy,
            &[("REQUEST", k), ("REPLY", k), ("DEFERRED", k)],
            "heavy",
        );
        assert_sync_is_t(&heavy);

        let burst = measure(RicartAgrawala, size, Load::Burst);
        assert_exactly(burst.per_entry(), 2.5 * k as f64, "burst");
    }
}

/// 3(N−1) messages, under heavy load too: who asks is the last, so that all must acknowledge. In a
/// burst one of every two requests that cross is not acknowledged: 2.5(N−1). Response 2T+E,
/// synchronisation delay T.
fn lamport(measure: Measure) {
    for size in SIZES {
        let k = u64::from(size - 1);
        let each = [("REQUEST", k), ("ACK", k), ("RELEASE", k)];
        let light = measure(Lamport, size, Load::Light);
        assert_messages(&light, &each, "light");
        assert_exactly(wait(&light), 2.0, "response");

        let heavy = measure(Lamport, size, Load::Heavy);
        assert_messages(&heavy, &each, "heavy");
        assert_sync_is_t(&heavy);

        let burst = measure(Lamport, size, Load::Burst);
        assert_exactly(burst.per_entry(), 2.5 * k as f64, "burst");
    }
}

/// Under heavy load 1 message and T. Under light load one message per T + d for ever, d ≤ 20 ms;
/// response NT/2 + E in the mean over all phases, NT + E at worst.
#[test]
fn token_ring_bare() {
    token_ring_under_heavy_load(bare);
    for size in SIZES {
        let light = bare(TokenRing, size, Load::Light);
        assert_about(
            wait(&light),
            f64::from(size) / 2.0,
            &format!("N = {size}, mean wait"),
        );
        let longest = light.response.longest - light.unit * INSIDE;
        let bound = light.unit * u32::from(size) + Duration::from_millis(20) * u32::from(size);
        assert!(longest <= bound, "N = {size}, longest wait {longest:?}");
        // The token does not go round while somebody is inside.
        let going_round = light.elapsed - light.unit * INSIDE * light.entries as u32;
        let hops = going_round.as_secs_f64() / light.unit.as_secs_f64();
        assert_about(light.total() as f64, hops, &format!("N = {size}, messages"));
    }
}

#[test]
fn token_ring_in_nodes() {
    token_ring_under_heavy_load(nodes);
}

fn token_ring_under_heavy_load(measure: Measure) {
    for size in SIZES {
        let heavy = measure(TokenRing, size, Load::Heavy);
        assert_messages(&heavy, &[("TOKEN", 1)], "heavy");
        assert_sync_is_t(&heavy);
    }
}

/// d hops cost 2d messages and 2dT: N−1 messages and (N−1)T + E in the mean, 2(N−1) at worst;
/// under heavy load 2 messages and T.
fn token_ring_requests(measure: Measure) {
    for size in SIZES {
        let k = f64::from(size - 1);
        let light = measure(TokenRingRequests, size, Load::Light);
        assert_exactly(light.per_entry(), k, &format!("N = {size}, light"));
        assert_eq!(
            light.messages["REQUEST"], light.messages["TOKEN"],
            "N = {size}, light"
        );
        assert_exactly(wait(&light), k, "response");
        let longest = light.unit * (2 * u32::from(size - 1) + INSIDE);
        assert_eq!(light.response.longest, longest, "longest response");

        let heavy = measure(TokenRingRequests, size, Load::Heavy);
        assert_messages(&heavy, &[("REQUEST", 1), ("TOKEN", 1)], "heavy");
        assert_sync_is_t(&heavy);
    }
}

#[test]
fn maekawa_bare() {
    voting(bare, Maekawa, &PLANES);
}

#[test]
fn maekawa_in_nodes() {
    voting(nodes, Maekawa, &PLANES[..2]);
}

#[test]
fn majority_bare() {
    voting(bare, Majority, &MAJORITIES);
}

#[test]
fn majority_in_nodes() {
    voting(nodes, Majority, &MAJORITIES);
}

/// Sizes with the sizes of their voting sets: N = K(K−1)+1.
const PLANES: [(u16, u64); 4] = [(7, 3), (13, 4), (31, 6), (57, 8)];
/// K = ⌊N/2⌋+1.
const MAJORITIES: [(u16, u64); 5] = [(2, 2), (3, 2), (5, 3), (8, 5), (16, 9)];

/// 3(K−1) messages and 2T+E under light load; 4(K−1) under heavy load.
fn voting(measure: Measure, algorithm: Algorithm, sizes: &[(u16, u64)]) {
    for &(size, k) in sizes {
        let what = format!("{algorithm}, N = {size}");
        let k = k - 1;
        let light = measure(algorithm, size, Load::Light);
        let each = [("REQUEST", k), ("GRANT", k), ("RELEASE", k)];
        assert_messages(&light, &each, &what);
        assert_exactly(wait(&light), 2.0, &what);
        voting_under_heavy_load(measure, algorithm, size, k);
    }
}

/// 4(K−1) messages, as whoever asks comes too late everywhere; from an exit to the next entry 2T,
/// or T where either of the two is the only voter that both need. In a burst no vote is asked for
/// again either, as everybody has its own, and then the earliest come first.
fn voting_under_heavy_load(measure: Measure, algorithm: Algorithm, size: u16, k: u64) {
    let what = format!("{algorithm}, N = {size}");
    let heavy = measure(algorithm, size, Load::Heavy);
    let each = ["REQUEST", "FAILED", "GRANT", "RELEASE"].map(|kind| (kind, k));
    assert_messages(&heavy, &each, &what);
    let sync = heavy.sync.mean_in(heavy.unit);
    assert!((1.0..=2.0).contains(&sync), "{what}: {sync}");
    assert!(heavy.sync.longest <= heavy.unit * 2, "{what}");

    let burst = measure(algorithm, size, Load::Burst);
    assert!(burst.per_entry() <= (4 * k) as f64, "{what}: {burst:?}");
}

/// A square of 14 by 14, the first that no plane of the table is large enough for.
#[test]
fn a_grid_bare() {
    voting_under_heavy_load(bare, Maekawa, 196, 2 * 14 - 2);
}

/// Groups that are no plane have the next larger one folded: in the mean over members whose sets
/// are not equal, 3(K−1) and 4(K−1) too. The grids of these sizes would take K = 3.4, 4.5, 7, 10.1.
#[test]
fn folded_planes_bare() {
    for (size, k) in [
        (3, 2.0),
        (5, 14.0 / 5.0),
        (8, 3.5),
        (16, 75.0 / 16.0),
        (32, 231.0 / 32.0),
    ] {
        let what = format!("N = {size}");
        let light = bare(Maekawa, size, Load::Light);
        assert_exactly(light.per_entry(), 3.0 * (k - 1.0), &what);
        assert_exactly(wait(&light), 2.0, &what);
        let heavy = bare(Maekawa, size, Load::Heavy);
        assert_exactly(heavy.per_entry(), 4.0 * (k - 1.0), &what);
        assert!(heavy.sync.longest <= heavy.unit * 2, "{what}");
    }
}

/// N messages, or 0 where the token is: N−1 in the mean under light load, each member asked equally
/// often; N under heavy load. In a burst, too, only who has the token asks nobody. Response 2T + E,
/// or E where the token is; synchronisation delay T.
fn suzuki_kasami(measure: Measure) {
    for size in SIZES {
        let (n, k) = (f64::from(size), f64::from(size - 1));
        for load in [Load::Light, Load::Heavy, Load::Burst] {
            let costs = measure(SuzukiKasami, size, load);
            let what = format!("N = {size}, {load:?}");
            // Who asks asks all others, and gets the token from one.
            let tokens = costs.messages["TOKEN"];
            assert_eq!(
                costs.messages["REQUEST"],
                tokens * u64::from(size - 1),
                "{what}"
            );
            let per_entry = if load == Load::Heavy { n } else { k };
            assert_exactly(costs.per_entry(), per_entry, &what);
        }
        let light = measure(SuzukiKasami, size, Load::Light);
        assert_exactly(wait(&light), 2.0 * k / n, "response");
        assert_eq!(light.response.longest, light.unit * (2 + INSIDE));
        assert_sync_is_t(&measure(SuzukiKasami, size, Load::Heavy));
    }
}

#[test]
fn raymond_bare() {
    raymond(bare, &[2, 3, 5, 8, 16, 31, 32, 64]);
}

#[test]
fn raymond_in_nodes() {
    raymond(nodes, &SIZES);
}

/// How many hops two places of a heap are apart: the greater is never above the other.
fn hops_apart(mut one: u16, mut other: u16) -> u32 {
    let mut hops = 0;
    while one != other {
        (one, other) = (one.max(other), one.min(other));
        one = (one - 1) / 2;
        hops += 1;
    }
    hops
}

/// 2d messages, for each pair of members once, and a response of 2dT + E: 6.875 in the mean at 16
/// members, 9.590 at 31. Under heavy load the token goes round the tree: 4(N−1)/N messages, and the
/// synchronisation delay is 2(N−1)T/N in the mean. A burst is such a round, at most.
fn raymond(measure: Measure, sizes: &[u16]) {
    for &size in sizes {
        let (n, k) = (f64::from(size), f64::from(size - 1));
        let pairs = (0..size).flat_map(|one| (0..size).map(move |other| hops_apart(one, other)));
        let hops: Vec<u32> = pairs.collect();
        let mean = f64::from(2 * hops.iter().sum::<u32>()) / (n * n);
        match size {
            16 => assert_exactly(mean, 6.875, "the table"),
            31 => assert_about(mean, 9.60, "the table"),
            _ => {}
        }
        let what = format!("N = {size}");
        let light = measure(Raymond, size, Load::Light);
        assert_exactly(light.per_entry(), mean, &what);
        assert_eq!(light.messages["REQUEST"], light.messages["TOKEN"], "{what}");
        assert_exactly(wait(&light), mean, &what);
        let longest = 2 * hops.iter().max().expect("not nobody") + INSIDE;
        assert_eq!(light.response.longest, light.unit * longest, "{what}");

        let heavy = measure(Raymond, size, Load::Heavy);
        assert_exactly(heavy.per_entry(), 4.0 * k / n, &what);
        let sync = heavy.sync.mean_in(heavy.unit);
        assert_exactly(sync, 2.0 * k / n, &what);

        let burst = measure(Raymond, size, Load::Burst);
        assert!(burst.per_entry() <= 4.0 * k / n, "{what}: {burst:?}");
    }
}

/// Alone, nobody has to be asked.
#[test]
fn a_group_of_one_sends_nothing() {
    for (algorithm, load) in Algorithm::ALL
        .into_iter()
        .flat_map(|algorithm| [Load::Light, Load::Heavy, Load::Burst].map(|load| (algorithm, load)))
    {
        for costs in [bare(algorithm, 1, load), nodes(algorithm, 1, load)] {
            assert_eq!(costs.total(), 0, "{algorithm}, {load:?}");
            assert_eq!(
                costs.response.longest,
                costs.unit * INSIDE,
                "{algorithm}, {load:?}"
            );
        }
    }
}
