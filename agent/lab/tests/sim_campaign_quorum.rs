//! A slice of the campaign where a majority decides on views. The command for all of it is in
//! CONTRIBUTING.md; `agent/lab/examples/sim_campaign.rs --failure quorum` runs it.
use std::thread;

use distlock_lab::campaign::{Report, run, run_chosen, run_directed, run_on_lies};
use distlock_lab::choices::Choices;
use distlock_protocol::{Algorithm, Failure};

/// How many seeds of each algorithm.
const SEEDS: u64 = 20;
/// How many on a log that lies.
const LIES: u64 = 4;
/// How many with faults that are aimed.
const DIRECTED: u64 = 4;

/// Runs the slice of `algorithm`, and asserts that what a campaign is for did take place.
fn play(algorithm: Algorithm) -> Report {
    let mut total = Report::default();
    for seed in 0..SEEDS {
        match run(algorithm, Failure::Quorum, seed, None) {
            Ok((report, _)) => total.add(&report),
            Err(violation) => panic!(
                "{algorithm}, seed {seed}: {violation}\nplay it again: cargo run --release -p \
                 distlock-lab --example sim_campaign -- \
                 --failure quorum --engine {algorithm} --seeds {seed}..{} --trace",
                seed + 1
            ),
        }
    }
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(
            count >= at_least,
            "{what} happened {count} times with {algorithm} in {total:?}"
        );
    };
    often(total.grants, 50 * SEEDS, "grants");
    often(total.views, 5 * SEEDS, "views");
    often(total.exclusions, SEEDS / 4, "exclusions");
    often(total.crashes, SEEDS, "crashes");
    often(total.crashes_inside, SEEDS / 4, "crashes inside");
    often(total.abandoned, SEEDS, "grants that tell of one");
    often(total.lost_records, 1, "lost records");
    often(total.pauses, SEEDS, "hosts that stood still");
    often(total.partitions, SEEDS, "partitions");
    often(total.leaves, SEEDS, "leaves");
    often(total.no_quorum, SEEDS / 4, "refusals for want of a quorum");
    often(total.operations, 3 * SEEDS / 2, "acts of operators");
    often(total.lists, SEEDS / 4, "files with other members or voters");
    often(total.leases, SEEDS / 10, "files with another lease");
    often(total.revotes, SEEDS / 4, "commands that name voters");
    often(total.lost_majorities, 1, "losses of all voters' records");
    total
}

/// All at once, so that what is rare with one algorithm can be asserted of all together.
#[test]
fn every_algorithm_passes_and_operators_act() {
    let algorithms = [
        Algorithm::Semaphore,
        Algorithm::Bakery,
        Algorithm::RicartAgrawala,
        Algorithm::TokenRing,
        Algorithm::TokenRingRequests,
    ];
    let mut total = Report::default();
    thread::scope(|scope| {
        let slices = algorithms.map(|algorithm| scope.spawn(move || play(algorithm)));
        for slice in slices {
            total.add(&slice.join().expect("its slice passes"));
        }
    });
    assert!(total.removals >= 5, "few members were removed: {total:?}");
    let runs = total.runs;
    assert!(2 * total.exclusions >= runs, "few were excluded: {total:?}");
    assert!(
        total.recoveries >= 3,
        "few clusters were abandoned: {total:?}"
    );
    assert!(
        total.lost_together >= 1,
        "no records were lost together: {total:?}"
    );
}
/// Where the log that decides on views lies, nothing need go on, but nothing may go wrong either.
#[test]
fn a_log_that_lies_does_no_harm() {
    let mut total = Report::default();
    let algorithms = Algorithm::ALL.into_iter();
    let algorithms: Vec<_> = algorithms.filter(|it| !it.is_probabilistic()).collect();
    let runs = LIES * algorithms.len() as u64;
    for algorithm in algorithms {
        for seed in 0..LIES {
            match run_on_lies(algorithm, seed, None) {
                Ok((report, _)) => total.add(&report),
                Err(violation) => panic!("{algorithm}, seed {seed}, with lies: {violation}"),
            }
        }
    }
    assert!(total.grants > 20 * runs, "little was granted: {total:?}");
    assert!(total.views > 5 * runs, "few views came: {total:?}");
    assert!(total.exclusions > runs / 4, "few were excluded: {total:?}");
}

/// Misfortunes that are aimed at what lets a view begin early, or a lease run late.
#[test]
fn what_is_aimed_at_views_and_leases_does_no_harm() {
    let mut total = Report::default();
    for algorithm in [Algorithm::SuzukiKasami, Algorithm::Semaphore] {
        for seed in 0..DIRECTED {
            match run_directed(algorithm, seed, None) {
                Ok((report, _)) => total.add(&report),
                Err(violation) => panic!("{algorithm}, seed {seed}, directed: {violation}"),
            }
        }
    }
    let often = |count: u64, at_least: u64, what: &str| {
        let runs = total.runs;
        assert!(
            count >= at_least * runs / 2,
            "{what}: {count} in {runs} runs"
        );
    };
    often(total.aimed, 16, "what was aimed");
    often(total.crashes_inside, 8, "crashes inside");
    often(total.exclusions, 4, "exclusions");
    often(total.leaves, 4, "leaves");
    often(total.partitions, 2, "members that were cut off");
    often(total.pauses, 1, "hosts that stood still");
    assert!(total.revotes > 0, "no voters were exchanged");
}

/// Schedules that have shown a mistake, which is mended: bytes that choose a small group and what
/// goes wrong in it ([`run_chosen`]), as few as still show it where the mistake is made again.
#[test]
fn schedules_that_once_went_wrong() {
    let found = [
        // A view without members counted as in force everywhere.
        "0000cb3d62db0000ae8d00000000e4000000000000cf00007b00000000000072000000000000000000000000\
         5400f800000000e4000000007d00000005f90400000000000000000000000000000000000000000000000000\
         00a600000000000a00000000ed0000000000000000000000000000004d0000",
        // A member that left told callers that they had lost what they never had.
        "00000000c39c0000000000000000000000000000007900000000000000000000000000aa590000e000000000\
         000000ce000000000000002b00000000000000000000000000000000000000000030000000e9000000000000\
         0000000000002b",
        // A grant was told before the lease that covers it.
        "0000abed58280000fa0000a40000d90000000000000000000000000000000000b10000000000000000000000\
         00000000000000c9000000000000000000000000000000000000000000000000000000000000000000000000\
         000000000000000000000000ebd700000000000057008000",
        // Marks went with a member that left.
        "00000000c691000000000000000000000000000000000000000000000000000000000000006200e100000000\
         0000000000000000000000000000000000000000000000000000000000b80000000000000000db00b7000000\
         0000000000550000000000ce00ce000000ce0000000000000000000000000000000000000000000000000000\
         00000000000000000000000000000000",
    ];
    for schedule in found {
        let digits = schedule.as_bytes().chunks(2);
        let bytes: Vec<u8> = digits
            .map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap())
            .collect();
        if let Err(violation) = run_chosen(Choices::from_bytes(&bytes), None) {
            panic!("{schedule}: {violation}");
        }
    }
}

/// The same seed is the same run, to the last byte.
#[test]
fn a_seed_decides_everything() {
    let algorithm = Algorithm::Semaphore;
    for seed in 1000..1004 {
        let play = || run(algorithm, Failure::Quorum, seed, None);
        assert_eq!(play(), play(), "seed {seed}");
    }
}
