//! A slice of the campaign of totally ordered multicast: see `agent/lab/src/multicast`. The command
//! for all of it is in CONTRIBUTING.md.
use distlock_lab::multicast::{Explored, explore};

const SEEDS: u64 = 100;

#[test]
fn all_deliver_prefixes_of_one_sequence() {
    let mut total = Explored::default();
    for seed in 0..SEEDS {
        match explore(seed, None) {
            Ok((explored, _)) => total.add(&explored),
            Err(violation) => panic!(
                "multicast, seed {seed}: {violation}\nplay it again: cargo run --release -p \
                 distlock-lab --example sim_campaign -- \
                 --world multicast --seeds {seed}..{} --trace",
                seed + 1
            ),
        }
    }
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(count >= at_least, "{what}: {count} in {total:?}");
    };
    often(total.multicasts, 50 * SEEDS, "messages");
    often(total.deliveries, 150 * SEEDS, "deliveries");
    often(total.settled, 10 * SEEDS, "deliveries by a view");
    often(
        total.lost_with_sender,
        SEEDS,
        "messages lost with their senders",
    );
    often(total.views, 4 * SEEDS, "views");
    often(total.given_up, SEEDS / 20, "views given up");
    often(total.crashes, SEEDS, "crashes");
    often(total.removed, SEEDS / 4, "members removed alive");
    often(total.joined, SEEDS / 2, "newcomers");
    often(total.full, 10 * SEEDS, "full windows");
    often(total.network_stats.lost, 50 * SEEDS, "datagrams lost");
    often(
        total.network_stats.reordered,
        300 * SEEDS,
        "datagrams overtaken",
    );
    assert!(total.acknowledgements < 2 * total.multicasts, "{total:?}");
}

/// The same seed is the same run.
#[test]
fn a_seed_is_a_run() {
    assert_eq!(explore(3, None), explore(3, None));
}
