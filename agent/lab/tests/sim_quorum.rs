//! A slice of the campaign of quorum views, by themselves: see `agent/lab/src/quorum`. The command
//! for all of it is in CONTRIBUTING.md.
use std::collections::BTreeSet;
use std::time::Duration;

use distlock_lab::quorum::{Explored, LogKind, explore, take_over};

/// How many seeds on each log.
const SEEDS: u64 = 80;

/// Runs the slice, and asserts that what it is for did take place.
fn play(log: LogKind, name: &str) -> Explored {
    let mut total = Explored::default();
    for seed in 0..SEEDS {
        match explore(log, seed, None) {
            Ok((explored, _)) => total.add(&explored),
            Err(violation) => panic!(
                "quorum views on the log {name}, seed {seed}: {violation}\nplay it again: cargo \
                 run --release -p distlock-lab --example \
                 sim_campaign -- --quorum {name} --seeds {seed}..{} --trace",
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
    often(total.entries, 50 * SEEDS, "entries");
    often(total.views, 3 * SEEDS, "views");
    often(total.new_voters, SEEDS / 10, "changes of voters");
    often(total.exclusions, SEEDS / 4, "exclusions");
    often(total.lapses, SEEDS / 10, "leases that ran out inside");
    often(total.crashes, 2 * SEEDS, "crashes");
    often(total.crashes_inside, SEEDS / 4, "crashes inside");
    often(total.pauses, SEEDS, "pauses");
    often(total.partitions, SEEDS, "partitions");
    often(total.leaves, SEEDS / 2, "leaves");
    often(total.lost_states, SEEDS / 40, "lost states");
    total
}

#[test]
fn on_raft() {
    let total = play(LogKind::Raft, "raft");
    assert!(total.views >= 5 * SEEDS, "{total:?}");
}

/// Safety does not rest on the log.
#[test]
fn on_a_log_that_lies() {
    play(LogKind::Lying, "lying");
}

/// The same seed is the same run.
#[test]
fn a_seed_decides_everything() {
    for log in [LogKind::Raft, LogKind::Lying] {
        let prints = (1000..1005).map(|seed| {
            let (first, second) = (explore(log, seed, None), explore(log, seed, None));
            assert_eq!(first, second, "{log:?}, seed {seed}");
            first.unwrap().1
        });
        assert_eq!(prints.collect::<BTreeSet<_>>().len(), 5);
    }
}

/// With a lease of 1 s the next is inside 1.5 s after a holder's host has crashed, in the median,
/// and in 3 s at worst, when the voters' leader has crashed with it.
#[test]
fn another_takes_over_from_a_host_that_crashed() {
    let lease = Duration::from_secs(1);
    let mut times: Vec<_> = (0..100)
        .map(|seed| take_over(3 + (seed % 3) as u16, lease, seed).unwrap())
        .collect();
    times.sort();
    let (median, worst) = (times[50], times[99]);
    println!("median {median:?}, worst {worst:?}, best {:?}", times[0]);
    assert!(median <= lease * 3 / 2, "median {median:?}");
    assert!(worst <= lease * 3, "worst {worst:?}");
    // Nobody may be inside before the lease is over that the dead one may have.
    assert!(times[0] >= lease * 4 / 5, "best {:?}", times[0]);
}
