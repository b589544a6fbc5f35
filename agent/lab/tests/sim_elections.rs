//! Elections among whole nodes, with everything that may go wrong: at most one leads, who is said to
//! lead was let in, and everybody who wants to lead comes to it, or is told why not.
use distlock_lab::campaign::{Report, run_elections};
use distlock_protocol::{ElectionAlgorithm, Failure};

/// How many seeds of each algorithm.
const SEEDS: u64 = 100;
/// How many where a majority decides on views.
const BY_QUORUM: u64 = 12;

fn run_all(algorithm: ElectionAlgorithm, failure: Failure, seeds: u64) -> Report {
    let mut total = Report::default();
    for seed in 0..seeds {
        match run_elections(algorithm, failure, seed, None) {
            Ok((report, _)) => total.add(&report),
            Err(violation) => panic!(
                "elections by {algorithm}, seed {seed}: {violation}\nplay it again: cargo run \
                 --release -p distlock-lab --example \
                 sim_campaign -- --elections {algorithm} --failure {failure} --seeds {seed}..{} \
                 --trace",
                seed + 1
            ),
        }
    }
    total
}

/// Those who lead are excluded, too, and whoever is elected next may be in another view.
#[test]
fn by_quorum() {
    for algorithm in [
        ElectionAlgorithm::Bully,
        ElectionAlgorithm::Ring,
        ElectionAlgorithm::ChangRoberts,
    ] {
        let total = run_all(algorithm, Failure::Quorum, BY_QUORUM);
        for (count, what) in [
            (total.led, "leaders"),
            (total.leaders_told, "news of leaders"),
            (total.exclusions, "exclusions"),
            (total.operations, "acts of operators"),
        ] {
            assert!(count >= BY_QUORUM / 4, "{what}: {count} in {total:?}");
        }
    }
}

fn play(algorithm: ElectionAlgorithm) {
    let total = run_all(algorithm, Failure::Unanimity, SEEDS);
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(
            count >= at_least,
            "{what} happened {count} times in {total:?}"
        );
    };
    often(total.campaigns, 20 * SEEDS, "campaigns");
    often(total.led, 10 * SEEDS, "leaders");
    often(total.leaders_told, 20 * SEEDS, "news of leaders");
    often(
        total.grants - total.led,
        SEEDS,
        "entries without an election",
    );
    often(total.cancelled, 2 * SEEDS, "cancellations");
    often(total.busy, SEEDS / 2, "refused tries");
    often(total.crashes_inside, SEEDS / 10, "crashes of leaders");
    often(total.leaves, SEEDS, "leaves");
    often(total.partitions, SEEDS / 2, "partitions");
}

#[test]
fn bully() {
    play(ElectionAlgorithm::Bully);
}

#[test]
fn ring() {
    play(ElectionAlgorithm::Ring);
}

#[test]
fn chang_roberts() {
    play(ElectionAlgorithm::ChangRoberts);
}
