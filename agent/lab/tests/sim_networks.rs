//! Slices of the campaigns of elections in particular networks: see `agent/lab/src/networks`. The
//! commands for all of them are in CONTRIBUTING.md.
use distlock_lab::checkers::Violation;
use distlock_lab::networks::{tokens, wireless};

fn play<T>(name: &str, seeds: u64, run: impl Fn(u64) -> Result<(T, u64), Violation>) -> Vec<T> {
    let outcome = |seed| match run(seed) {
        Ok((explored, _)) => explored,
        Err(violation) => panic!(
            "{name}, seed {seed}: {violation}\nplay it again: cargo run --release -p \
             distlock-lab --example sim_campaign -- \
             --world {name} --seeds {seed}..{} --trace",
            seed + 1
        ),
    };
    (0..seeds).map(outcome).collect()
}

#[test]
fn all_in_reach_know_the_best() {
    const SEEDS: u64 = 1_000;
    let mut total = wireless::Explored::default();
    for explored in play("wireless", SEEDS, |seed| wireless::explore(seed, None)) {
        total.add(&explored);
    }
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(count >= at_least, "{what}: {count} in {total:?}");
    };
    often(total.started, 2 * SEEDS, "elections");
    often(total.messages, 100 * SEEDS, "messages");
    often(total.duplicated, 5 * SEEDS, "copies");
    often(total.dropped, SEEDS, "messages lost with their links");
    often(total.lost, 3 * SEEDS, "links lost");
    often(total.found, SEEDS, "links found");
    often(total.crashes, SEEDS / 2, "crashes");
    often(total.pieces, SEEDS + SEEDS / 10, "pieces");
}

#[test]
fn tokens_are_conserved_and_come_to_rest() {
    const SEEDS: u64 = 25;
    let mut total = tokens::Explored::default();
    for explored in play("tokens", SEEDS, |seed| tokens::explore(seed, None)) {
        total.add(&explored);
    }
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(count >= at_least, "{what}: {count} in {total:?}");
    };
    often(total.moves, SEEDS, "moves");
    often(total.refused, SEEDS / 10, "refusals");
    often(total.views, SEEDS, "views");
    often(total.reissued, SEEDS / 5, "tokens issued anew");
    often(total.cut_off, SEEDS / 10, "moves that a view cut off");
    often(total.super_peers, 2 * SEEDS, "super-peers");
    // They have spread out.
    assert!(
        2 * total.closest_after > 3 * total.closest_before,
        "{total:?}"
    );
}

/// The same seed is the same run.
#[test]
fn a_seed_is_a_run() {
    assert_eq!(wireless::explore(3, None), wireless::explore(3, None));
    assert_eq!(tokens::explore(3, None), tokens::explore(3, None));
}
