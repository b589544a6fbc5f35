//! Small groups are searched: every run that deviates from the ordinary one in few choices. A slice;
//! `agent/lab/examples/sim_search.rs` goes through more, and plays a run that failed again.
use distlock_lab::campaign::{Report, run_searched};
use distlock_lab::choices::{Deviations, Search};
use distlock_lab::explorer::{Explored, explore_searched};
use distlock_protocol::{Algorithm, Failure};

/// Plays every run with at most `most` deviations; how many there are.
fn all<T, E: std::fmt::Display>(
    most: usize,
    mut play: impl FnMut(distlock_lab::choices::Choices) -> Result<T, E>,
    mut add: impl FnMut(T),
) -> usize {
    let mut search = Search::new(Deviations::default(), most, u64::MAX);
    let mut runs = 0;
    while let Some(choices) = search.next_run() {
        match play(choices) {
            Ok(played) => add(played),
            Err(violation) => panic!("deviations {}: {violation}", search.deviations()),
        }
        runs += 1;
    }
    runs
}

#[test]
fn engines_bear_any_one_thing_that_goes_wrong() {
    for algorithm in Algorithm::ALL {
        let mut total = Explored::default();
        let play = |choices| explore_searched(algorithm, 3, choices, None);
        let runs = all(1, play, |explored| total.add(&explored));
        let often = |count: u64, what: &str| assert!(count > 0, "{algorithm}: {what}: {total:?}");
        assert!(runs > 60, "{algorithm}: {runs} runs");
        often(total.cancelled, "cancelled");
        often(total.restarts, "members that restarted");
        often(total.deaths, "callers that died inside");
        often(total.network_stats.duplicated, "messages that came twice");
        often(total.network_stats.late, "messages that came late");
    }
}

#[test]
fn nodes_bear_any_one_thing_that_goes_wrong() {
    for failure in [Failure::Unanimity, Failure::PresumeFailed] {
        let mut total = Report::default();
        let play = |choices| run_searched(Algorithm::Manager, failure, 2, choices, None);
        let runs = all(1, play, |(report, _)| total.add(&report));
        let often = |count: u64, what: &str| assert!(count > 0, "{failure}: {what}: {total:?}");
        assert!(runs > 200, "{failure}: {runs} runs");
        often(total.by_loan, "entries by a loan");
        often(total.cancelled, "cancelled");
        often(total.busy, "tries that found the lock busy");
        often(total.crashes_inside, "crashes inside");
        often(total.abandoned, "grants that tell of one");
        often(total.partitions, "members cut off");
        often(total.leaves, "members that left");
        often(total.network_stats.lost, "lost datagrams");
        often(total.network_stats.duplicated, "datagrams that came twice");
        often(total.network_stats.late, "datagrams that came late");
    }
}
