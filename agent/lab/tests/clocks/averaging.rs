//! The Berkeley algorithm.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use distlock_lab::choices::Choices;
use distlock_lab::clock_sync::{AveragingError, AveragingLimits, AveragingRound};
use distlock_protocol::Time;

use crate::{at, id, minutes};

const MINUTE_NS: i64 = 60_000_000_000;

const fn limits(max_round_trip: Duration, max_deviation: Duration) -> AveragingLimits {
    AveragingLimits {
        max_round_trip,
        max_deviation,
    }
}

/// The time of day.
fn oclock(hour: u64, minute: u64) -> Time {
    Time::ZERO + minutes(60 * hour + minute)
}

/// S1, 6.1, Figure 6.6: the daemon at 3:00, the others at 3:25 and 2:50.
#[test]
fn lecture_figure_6_6_all_go_to_3_05() {
    let wide = limits(Duration::from_secs(1), minutes(60));
    let mut round = AveragingRound::new(1, id(1), [id(2), id(3)], wide, oclock(3, 0));
    round
        .receive(id(2), 1, oclock(3, 25), oclock(3, 0))
        .unwrap();
    assert!(!round.is_complete());
    round
        .receive(id(3), 1, oclock(2, 50), oclock(3, 0))
        .unwrap();
    assert!(round.is_complete());
    let corrections = round.conclude();
    assert_eq!(corrections.mean_ns, 5 * MINUTE_NS);
    // The daemon's own is +5.
    let expected = [(1, 5), (2, -20), (3, 15)].map(|(node, min)| (id(node), min * MINUTE_NS));
    assert_eq!(corrections.by_node, BTreeMap::from(expected));
    assert!(corrections.outliers.is_empty());
}

/// The lecture leaves out the delay: what came half a round trip ago has gone on since.
#[test]
fn answers_are_as_old_as_half_of_their_round_trip() {
    let mut round = AveragingRound::new(
        7,
        id(1),
        [id(2)],
        limits(minutes(1), minutes(1)),
        at(10_000),
    );
    // Both clocks are the same, and either way takes 500.
    round.receive(id(2), 7, at(10_500), at(11_000)).unwrap();
    let corrections = round.conclude();
    assert_eq!(corrections.by_node.values().copied().max(), Some(0));
    assert_eq!(corrections.by_node.values().copied().min(), Some(0));
}

/// Gusella and Zatti: a clock that is far off does not draw the others along, and is corrected.
#[test]
fn a_clock_that_is_far_off_does_not_count() {
    let others = [2, 3, 4].map(id);
    let mut round = AveragingRound::new(1, id(1), others, limits(minutes(1), minutes(1)), at(0));
    round.receive(id(2), 1, at(30), at(0)).unwrap();
    round.receive(id(3), 1, at(60), at(0)).unwrap();
    round.receive(id(4), 1, oclock(5, 0), at(0)).unwrap();
    let corrections = round.conclude();
    assert_eq!(corrections.outliers, BTreeSet::from([id(4)]));
    assert_eq!(corrections.mean_ns, 30);
    assert_eq!(corrections.by_node[&id(1)], 30);
    assert_eq!(corrections.by_node[&id(4)], 30 - 300 * MINUTE_NS);
}

/// Of two clocks that are far apart the median must be one, not the middle, far from both.
#[test]
fn somebody_always_counts() {
    let mut round = AveragingRound::new(1, id(1), [id(2)], limits(minutes(1), minutes(1)), at(0));
    round.receive(id(2), 1, oclock(5, 0), at(0)).unwrap();
    let corrections = round.conclude();
    assert_eq!(corrections.outliers, BTreeSet::from([id(2)]));
    assert_eq!(corrections.mean_ns, 0);
    assert_eq!(corrections.by_node[&id(2)], -300 * MINUTE_NS);
}

#[test]
fn answers_count_once_in_their_round_and_in_time() {
    let limits = limits(Duration::from_nanos(100), minutes(1));
    let mut round = AveragingRound::new(2, id(1), [id(2), id(3)], limits, at(0));
    let not_asked = Err(AveragingError::NotAsked);
    assert_eq!(round.receive(id(2), 1, at(5), at(5)), not_asked);
    assert_eq!(round.receive(id(4), 2, at(5), at(5)), not_asked);
    assert_eq!(round.receive(id(1), 2, at(5), at(5)), not_asked);
    assert_eq!(round.receive(id(2), 2, at(5), at(10)), Ok(()));
    assert_eq!(round.receive(id(2), 2, at(5), at(10)), not_asked);
    let round_trip = Duration::from_nanos(101);
    let slow = Err(AveragingError::Slow { round_trip });
    assert_eq!(round.receive(id(3), 2, at(7), at(101)), slow);
    assert!(round.is_complete());
    assert!(!round.conclude().by_node.contains_key(&id(3)));
}

/// After one round all clocks that answered are within the round trips of each other, wherever they
/// were before, and together they are where their average was.
#[test]
fn a_round_brings_clocks_together() {
    for seed in 0..300 {
        let mut choices = Choices::new(seed);
        let size = choices.within(2..=12) as u16;
        let start = 1_000_000_000_000;
        let ahead: Vec<i64> = (1..=size)
            .map(|node| {
                if node == 1 {
                    0
                } else {
                    choices.below(2_000_000_000) as i64 - 1_000_000_000
                }
            })
            .collect();
        let limits = limits(minutes(1), minutes(60));
        let others = (2..=size).map(id);
        let mut round = AveragingRound::new(9, id(1), others, limits, at(start));
        let mut slowest = 0;
        for node in 2..=size {
            let there = start + choices.below(1_000_000);
            let back = there + choices.below(1_000_000);
            let clock = there.strict_add_signed(ahead[usize::from(node) - 1]);
            round.receive(id(node), 9, at(clock), at(back)).unwrap();
            slowest = slowest.max(back - start);
        }
        let corrections = round.conclude();
        let after: Vec<i64> = (1..=size)
            .zip(&ahead)
            .map(|(node, ahead)| ahead + corrections.by_node[&id(node)])
            .collect();
        let spread = after.iter().max().unwrap() - after.iter().min().unwrap();
        assert!(spread as u64 <= slowest + 2, "seed {seed}: {spread} ns");
        let sum: i64 = corrections.by_node.values().sum();
        assert!(sum.unsigned_abs() < u64::from(size), "seed {seed}");
    }
}
