//! Small groups are searched: every run that deviates from the ordinary one in few choices. A slice;
//! `agent/lab/examples/sim_search.rs` goes through more, and plays a run that failed again.
use std::fmt::Display;

use distlock_lab::campaign::{Report, run_searched};
use distlock_lab::checkers::Violation;
use distlock_lab::choices::{Choices, Deviations, Search};
use distlock_lab::explorer::{Explored, explore_searched};
use distlock_protocol::{Algorithm, Failure};

/// Plays all runs of `search`; what came of each.
fn play_all<T, E: Display>(
    mut search: Search,
    mut play: impl FnMut(Choices) -> Result<T, E>,
) -> Vec<T> {
    let mut played = Vec::new();
    while let Some(choices) = search.next_run() {
        match play(choices) {
            Ok(outcome) => played.push(outcome),
            Err(violation) => panic!("deviations {}: {violation}", search.deviations()),
        }
    }
    played
}

fn with_one_deviation() -> Search {
    Search::new(Deviations::default(), 1, u64::MAX)
}

#[test]
fn engines_bear_any_one_thing_that_goes_wrong() {
    for algorithm in Algorithm::ALL {
        let play = |choices| explore_searched(algorithm, 3, choices, None);
        let played = play_all(with_one_deviation(), play);
        let (ordinary, others) = played.split_first().unwrap();
        let mut total = Explored::default();
        others.iter().for_each(|explored| total.add(explored));
        let often = |count: u64, what: &str| assert!(count > 0, "{algorithm}: {what}: {total:?}");
        often(total.cancelled, "cancelled");
        often(total.restarts, "members that restarted");
        often(total.deaths, "callers that died inside");
        often(total.network_stats.duplicated, "messages that came twice");
        often(total.network_stats.late, "messages that came late");
        let nothing = (ordinary.cancelled, ordinary.restarts, ordinary.deaths);
        assert_eq!(nothing, (0, 0, 0), "{algorithm}, where nothing goes wrong");
        assert_eq!(ordinary.network_stats.late, 0, "{algorithm}");
    }
}

fn play(failure: Failure, choices: Choices) -> Result<Report, Violation> {
    run_searched(Algorithm::Manager, failure, 2, choices, None).map(|(report, _)| report)
}

/// What befell the members in these runs, besides what does in the ordinary one.
fn must_befall(failure: Failure, ordinary: &Report, others: &[Report]) -> Report {
    let mut total = Report::default();
    others.iter().for_each(|report| total.add(report));
    let often = |of: fn(&Report) -> u64, what: &str| {
        let by_itself = of(ordinary) * others.len() as u64;
        assert!(of(&total) > by_itself, "{failure}: {what}: {total:?}");
    };
    often(|its| its.crashes, "crashes");
    often(|its| its.leaves, "members that left");
    often(|its| its.partitions, "members cut off");
    often(|its| its.network_stats.lost, "lost datagrams");
    often(
        |its| its.network_stats.duplicated,
        "datagrams that came twice",
    );
    often(|its| its.network_stats.late, "datagrams that came late");
    total
}

#[test]
fn nodes_bear_any_one_thing_that_goes_wrong() {
    for failure in [Failure::Unanimity, Failure::PresumeFailed] {
        let played = play_all(with_one_deviation(), |choices| play(failure, choices));
        let (ordinary, others) = played.split_first().unwrap();
        let total = must_befall(failure, ordinary, others);
        let often = |count: u64, what: &str| assert!(count > 0, "{failure}: {what}: {total:?}");
        often(total.by_loan, "entries by a loan");
        often(total.cancelled, "cancelled");
        often(total.busy, "tries that found the lock busy");
        often(total.crashes_inside, "crashes inside");
        often(total.abandoned, "grants that tell of one");
    }
}

/// Of each kind some, as there are thousands of them.
#[test]
fn quorums_bear_any_one_thing_that_goes_wrong() {
    let of_quorum = |choices| play(Failure::Quorum, choices);
    let mut search = Search::new(Deviations::default(), 0, 0);
    let ordinary = of_quorum(search.next_run().unwrap()).unwrap();
    // No multiple of the alternatives of any choice, so that all of them come.
    let some = search.successors().into_iter().step_by(37);
    let others: Vec<_> = some
        .flat_map(|first| play_all(Search::new(first, 0, 0), of_quorum))
        .collect();
    let total = must_befall(Failure::Quorum, &ordinary, &others);
    assert!(total.pauses > 0, "hosts that stood still: {total:?}");
}
