//! Bare engines over a network that reorders and duplicates: a slice of the exploration that
//! `agent/lab/examples/sim_campaign.rs --bare` runs at length.
use distlock_lab::explorer::{Explored, explore};
use distlock_protocol::Algorithm;

/// Explores `seeds` runs of `algorithm` and asserts that what they are for took place.
fn explore_all(algorithm: Algorithm, seeds: u64) {
    let mut total = Explored::default();
    for seed in 0..seeds {
        match explore(algorithm, seed, None) {
            Ok(explored) => total.add(&explored),
            Err(violation) => panic!("{algorithm}, seed {seed}: {violation}"),
        }
    }
    assert!(
        total.grants > 40 * seeds,
        "hardly anybody entered: {total:?}"
    );
    assert!(
        total.cancelled > seeds,
        "hardly anybody cancelled: {total:?}"
    );
    assert!(
        total.installs > seeds && total.restarts > seeds / 4,
        "few new views: {total:?}"
    );
    let network_stats = total.network_stats;
    assert!(
        network_stats.duplicated * 20 > network_stats.sent,
        "few duplicates: {network_stats:?}"
    );
    assert!(
        network_stats.reordered > seeds,
        "little reordering: {network_stats:?}"
    );
    if algorithm == Algorithm::Manager {
        // Of nine members one is the manager, which enters without a message in any case.
        assert!(
            total.at_once * 10 > total.grants,
            "hardly anything was lent: {total:?}"
        );
    }
}

#[test]
fn semaphore() {
    explore_all(Algorithm::Semaphore, 500);
}

#[test]
fn bakery() {
    explore_all(Algorithm::Bakery, 500);
}

#[test]
fn ricart_agrawala() {
    explore_all(Algorithm::RicartAgrawala, 500);
}

#[test]
fn token_ring() {
    explore_all(Algorithm::TokenRing, 500);
}

#[test]
fn token_ring_requests() {
    explore_all(Algorithm::TokenRingRequests, 500);
}

#[test]
fn lamport() {
    explore_all(Algorithm::Lamport, 500);
}

#[test]
fn carvalho_roucairol() {
    explore_all(Algorithm::CarvalhoRoucairol, 1000);
}

#[test]
fn maekawa() {
    explore_all(Algorithm::Maekawa, 500);
}

#[test]
fn majority() {
    explore_all(Algorithm::Majority, 500);
}

#[test]
fn suzuki_kasami() {
    explore_all(Algorithm::SuzukiKasami, 500);
}

#[test]
fn singhal() {
    explore_all(Algorithm::Singhal, 500);
}

#[test]
fn raymond() {
    explore_all(Algorithm::Raymond, 500);
}

#[test]
fn voting() {
    explore_all(Algorithm::Voting, 500);
}

#[test]
fn manager() {
    explore_all(Algorithm::Manager, 1000);
}

/// The same seed is the same run.
#[test]
fn a_seed_decides_everything() {
    for algorithm in Algorithm::ALL {
        assert_eq!(explore(algorithm, 42, None), explore(algorithm, 42, None));
        assert_ne!(explore(algorithm, 42, None), explore(algorithm, 43, None));
    }
}
