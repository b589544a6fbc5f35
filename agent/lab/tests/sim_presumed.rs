//! A slice of the campaign where the silent are presumed gone. The command for all of it is in
//! CONTRIBUTING.md; `agent/lab/examples/sim_campaign.rs --failure presume-failed` runs it.
use distlock_lab::campaign::{Report, run};
use distlock_protocol::{Algorithm, Failure};

/// How many seeds of each algorithm.
const SEEDS: u64 = 80;

/// Exclusion holds as long as nobody is presumed gone who runs; when the network is whole again, so
/// is the group, and what two sides held one has lost.
#[test]
fn exclusion_holds_without_cuts_and_sides_come_together_after_them() {
    let mut total = Report::default();
    for algorithm in Algorithm::ALL {
        for seed in 0..SEEDS {
            match run(algorithm, Failure::PresumeFailed, seed, None) {
                Ok((report, _)) => total.add(&report),
                Err(violation) => panic!(
                    "{algorithm}, seed {seed}: {violation}\nplay it again: cargo run --release -p \
                     distlock-lab --example sim_campaign \
                     -- --failure presume-failed --engine {algorithm} --seeds {seed}..{} --trace",
                    seed + 1
                ),
            }
        }
    }
    let seeds = SEEDS * Algorithm::ALL.len() as u64;
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(
            count >= at_least,
            "{what} happened {count} times in {total:?}"
        );
    };
    often(total.judged, 30 * seeds, "grants on one side");
    often(total.grants - total.judged, seeds, "grants on two sides");
    often(total.crashes, seeds, "crashes");
    often(total.crashes_inside, seeds / 10, "crashes inside");
    often(total.leaves, seeds, "leaves");
    often(total.odd_files, seeds / 8, "files that differ");
    often(total.partitions, seeds / 4, "cuts");
    often(total.splits, seeds / 4, "splits");
    often(total.lost, 1, "grants lost to another side");
    assert_eq!(total.splits, total.merges);
}
