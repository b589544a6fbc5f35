//! A slice of the worlds in which ledgers share a store. The command for all of them is in
//! CONTRIBUTING.md.

use distlock_lab::ledger::{Report, run};

/// How many worlds.
const WORLDS: u64 = 600;

#[test]
fn worlds_pass_and_are_worth_it() {
    let mut total = Report::default();
    for world in 0..WORLDS {
        match run(world, None) {
            Ok((report, _)) => total.add(&report),
            Err(violation) => panic!(
                "world {world}: {violation}\nplay it again: cargo run --release -p distlock-lab \
                 --example sim_campaign -- --world ledger --seeds {world}..{} --trace",
                world + 1
            ),
        }
    }
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(
            count >= at_least,
            "{what} happened {count} times in {total:?}"
        );
    };
    often(total.grants, 10 * WORLDS, "grants");
    often(total.shared, WORLDS, "shared grants");
    often(total.abandoned, WORLDS / 2, "grants after one ended inside");
    often(total.lost, WORLDS / 20, "lost grants");
    often(total.revived, WORLDS / 20, "guards that became valid again");
    often(total.busy, WORLDS / 10, "tries of a lock that was not free");
    often(total.cancelled, WORLDS / 4, "requests that were cancelled");
    often(total.unreachable, WORLDS / 100, "requests without a store");
    often(
        total.wrong_spec,
        WORLDS / 100,
        "requests with other permits",
    );
    often(total.unknown, WORLDS, "operations of unknown outcome");
    often(total.late, WORLDS / 4, "operations after their connection");
    often(total.stale, WORLDS, "reads that were old");
    often(total.conflicts, WORLDS, "conflicts");
    often(total.declared_dead, WORLDS / 4, "sessions declared dead");
    often(total.lost_sessions, WORLDS / 20, "sessions lost");
    often(total.crashes_inside, WORLDS / 10, "crashes inside");
    often(total.long_pauses, WORLDS / 10, "pauses longer than a lease");
    often(total.outages, WORLDS / 4, "outages");
    often(
        total.rollbacks,
        WORLDS / 20,
        "stores that came back with less",
    );
    often(total.forgotten, WORLDS / 100, "ledgers that noticed it");
    often(total.closed, WORLDS / 4, "agents that closed");
    often(total.leaders, 2 * WORLDS, "observers that were told");
}

#[test]
fn a_world_is_the_same_each_time() {
    for world in 0..30 {
        assert_eq!(run(world, None), run(world, None));
    }
}
