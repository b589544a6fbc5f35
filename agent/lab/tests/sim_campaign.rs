//! A slice of the campaign: whole nodes, with everything that may go wrong. The command for all of
//! it is in CONTRIBUTING.md; `agent/lab/examples/sim_campaign.rs` runs it.
use distlock_lab::campaign::{Report, play as play_as, run, run_chosen};
use distlock_lab::choices::Choices;
use distlock_protocol::{Algorithm, Failure};

/// How many seeds of each algorithm.
const SEEDS: u64 = 100;

/// Runs the slice of `algorithm`, and asserts that what a campaign is for did take place.
fn play(algorithm: Algorithm) {
    let mut total = Report::default();
    for seed in 0..SEEDS {
        match run(algorithm, Failure::Unanimity, seed, None) {
            Ok((report, _)) => total.add(&report),
            Err(violation) => panic!(
                "{algorithm}, seed {seed}: {violation}\nplay it again: cargo run --release -p \
                 distlock-lab --example sim_campaign -- \
                 --engine {algorithm} --seeds {seed}..{} --trace",
                seed + 1
            ),
        }
    }
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(
            count >= at_least,
            "{what} happened {count} times in {total:?}"
        );
    };
    often(total.grants, 20 * SEEDS, "grants");
    often(total.cancelled, 2 * SEEDS, "cancellations");
    often(total.busy, SEEDS / 2, "refused tries");
    often(
        total.wrong_spec,
        SEEDS / 20,
        "disagreements on how a lock is served",
    );
    often(total.notes, SEEDS, "notes");
    often(total.crashes, SEEDS, "crashes");
    often(total.crashes_inside, SEEDS / 10, "crashes inside");
    often(total.deaths, SEEDS, "callers that ended inside");
    often(total.abandoned, SEEDS, "grants that tell of one");
    often(total.leaves, SEEDS, "leaves");
    often(total.lost_records, SEEDS / 20, "lost records");
    often(total.partitions, SEEDS / 2, "partitions");
    often(total.suspicions, SEEDS, "suspicions");
    often(total.no_quorum, SEEDS / 10, "refusals for want of members");
    let network_stats = total.network_stats;
    often(network_stats.lost, network_stats.sent / 20, "losses");
    often(
        network_stats.duplicated,
        network_stats.sent / 20,
        "duplicates",
    );
    often(
        network_stats.reordered,
        network_stats.sent / 20,
        "overtakings",
    );
    often(
        network_stats.corrupted,
        network_stats.sent / 100,
        "corruptions",
    );
}

#[test]
fn semaphore() {
    play(Algorithm::Semaphore);
}

#[test]
fn bakery() {
    play(Algorithm::Bakery);
}

#[test]
fn ricart_agrawala() {
    play(Algorithm::RicartAgrawala);
}

#[test]
fn token_ring() {
    play(Algorithm::TokenRing);
}

#[test]
fn token_ring_requests() {
    play(Algorithm::TokenRingRequests);
}

#[test]
fn lamport() {
    play(Algorithm::Lamport);
}

#[test]
fn carvalho_roucairol() {
    play(Algorithm::CarvalhoRoucairol);
}

#[test]
fn suzuki_kasami() {
    play(Algorithm::SuzukiKasami);
}

#[test]
fn singhal() {
    play(Algorithm::Singhal);
}

#[test]
fn raymond() {
    play(Algorithm::Raymond);
}

#[test]
fn voting() {
    play(Algorithm::Voting);
}

#[test]
fn manager() {
    play(Algorithm::Manager);
}

/// The same seed is the same run, to the last byte.
#[test]
fn a_seed_decides_everything() {
    for algorithm in Algorithm::ALL {
        for seed in 1000..1005 {
            let (first, second) = (
                run(algorithm, Failure::Unanimity, seed, None),
                run(algorithm, Failure::Unanimity, seed, None),
            );
            assert_eq!(first, second, "{algorithm}, seed {seed}");
        }
        let prints =
            (1000..1005).map(|seed| run(algorithm, Failure::Unanimity, seed, None).unwrap().1);
        assert_eq!(prints.collect::<std::collections::BTreeSet<_>>().len(), 5);
    }
}

/// What a seed's run chose, written down, plays the same run; and more of the same kind, if a byte of it
/// is another.
#[test]
fn what_a_run_chose_plays_it_again() {
    for failure in [Failure::Unanimity, Failure::Quorum, Failure::PresumeFailed] {
        for seed in 0..2 {
            let algorithm = Algorithm::RicartAgrawala;
            let (choices, schedule) = Choices::record(!seed);
            let recorded = play_as(algorithm, failure, seed, choices, None);
            assert_eq!(recorded, run(algorithm, failure, seed, None), "seed {seed}");
            let again = Choices::from_bytes(&schedule.bytes());
            let played = play_as(algorithm, failure, seed, again, None);
            assert_eq!(played, recorded, "{failure:?}, seed {seed}");
        }
    }
}

/// A slice of what the fuzz target `core` does: small groups of all kinds, as bytes choose.
#[test]
fn bytes_choose_groups() {
    let mut total = Report::default();
    for seed in 0..150 {
        let mut choices = Choices::new(seed);
        let bytes = choices.filler(256);
        match run_chosen(Choices::from_bytes(&bytes), None) {
            Ok((report, _)) => total.add(&report),
            Err(violation) => panic!("{violation}, by {bytes:?}"),
        }
    }
    assert!(total.grants > 1000 && total.crashes > 30, "{total:?}");
    assert!(total.forged > 100 && total.pauses > 10, "{total:?}");
}
