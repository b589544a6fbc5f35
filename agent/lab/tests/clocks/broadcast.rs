//! Reference-broadcast synchronisation.

use std::time::Duration;

use distlock_lab::choices::Choices;
use distlock_lab::clock_sync::{BeaconLog, OffsetFit};
use distlock_protocol::Time;

use crate::at;

fn log(heard: &[(u64, u64)]) -> BeaconLog {
    let mut log = BeaconLog::new(100);
    for (number, time) in heard {
        log.hear(*number, at(*time));
    }
    log
}

/// S1, 6.1: Offset[p, q] = sum of T_p,k - T_q,k over M. Of five beacons three were heard by both;
/// the lecture's M, all that were sent, would give 42 instead of 70.
#[test]
fn lecture_6_1_the_mean_is_over_the_beacons_that_both_heard() {
    let p = log(&[(1, 1_060), (2, 1_170), (3, 1_280), (5, 9_999)]);
    let q = log(&[(1, 1_000), (2, 1_100), (3, 1_200), (4, 7)]);
    let fit = OffsetFit::between(&p, &q).unwrap();
    assert_eq!((fit.beacons, fit.mean_ns), (3, 70));
    // C_p - C_q, so q's time is p's less the offset; Elson's sign is the other one.
    let back = OffsetFit::between(&q, &p).unwrap();
    assert_eq!(back.mean_ns, -70);
    assert_eq!(fit.translate(fit.centre), Some(at(1_100)));
}

#[test]
fn without_a_common_beacon_nothing_is_known() {
    assert_eq!(OffsetFit::between(&log(&[(1, 5)]), &log(&[(2, 5)])), None);
    let fit = OffsetFit::between(&log(&[(1, 5)]), &log(&[(1, 9)])).unwrap();
    assert_eq!((fit.mean_ns, fit.drift), (-4, 0.0));
    assert_eq!(fit.translate(at(100)), Some(at(104)));
    let wide = OffsetFit::between(&log(&[(1, u64::MAX)]), &log(&[(1, 0)]));
    assert_eq!(wide, None);
}

#[test]
fn the_newest_beacons_are_kept_and_the_first_of_two_copies() {
    let mut log = BeaconLog::new(2);
    for (number, time) in [(1, 10), (2, 20), (2, 99), (3, 30)] {
        log.hear(number, at(time));
    }
    assert_eq!(log.iter().collect::<Vec<_>>(), [(2, at(20)), (3, at(30))]);
}

/// Elson: with drift the mean is soon stale, and the least-squares line is not. Beacons once a
/// second, both receivers notice them within ten microseconds, q's clock gains 40 ppm.
#[test]
fn the_line_follows_a_drift_that_the_mean_misses() {
    for seed in 0..100 {
        let mut choices = Choices::new(seed);
        let start = 5_000_000_000_000;
        let (mut p, mut q) = (BeaconLog::new(64), BeaconLog::new(64));
        let there = |time: u64| 77_000_000_000 + time + (time - start) / 25_000;
        for number in 0..30 {
            let sent = start + number * 1_000_000_000;
            p.hear(number, at(sent + choices.below(10_000)));
            q.hear(number, at(there(sent + choices.below(10_000))));
        }
        let fit = OffsetFit::between(&p, &q).unwrap();
        assert!(
            (fit.drift + 40e-6).abs() < 1e-6,
            "seed {seed}: {}",
            fit.drift
        );
        let later = Time::from_nanos(start) + Duration::from_secs(60);
        let truth = there(later.as_nanos());
        let guess = fit.translate(later).unwrap().as_nanos();
        assert!(guess.abs_diff(truth) < 30_000, "seed {seed}");
        let stale = later.as_nanos().strict_add_signed(-fit.mean_ns);
        assert!(stale.abs_diff(truth) > 1_500_000, "seed {seed}");
    }
}
