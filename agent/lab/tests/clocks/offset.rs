//! Offsets by questions and answers, and clocks that are corrected.

use std::time::Duration;

use distlock_lab::choices::Choices;
use distlock_protocol::Time;
use distlock_protocol::clock::{OffsetFilter, Reply, ReplyError, Sample, SlewedClock};

use crate::{at, minutes};

const fn reply(asked_ns: u64, received_ns: u64, answered_ns: u64) -> Reply {
    Reply {
        asked_ns,
        received_ns,
        answered_ns,
    }
}

/// S1, 6.1, Network Time Protocol, and RFC 5905, section 8: 100, 160, 165, 115.
#[test]
fn lecture_6_1_the_offset_is_55_and_the_round_trip_10() {
    let sample = Sample::new(reply(100, 160, 165), at(115)).unwrap();
    assert_eq!(sample.offset_ns, 55);
    assert_eq!(sample.round_trip, Duration::from_nanos(10));
    // The lecture's long form: T3 + ((T2-T1) + (T4-T3))/2 - T4.
    assert_eq!(165 + ((160 - 100) + (115 - 165)) / 2 - 115, 55);
    // Whoever asks adds it: the other clock shows 170 when this one shows 115.
    let behind = Sample::new(reply(1160, 1100, 1105), at(1175)).unwrap();
    assert_eq!(behind.offset_ns, -65);
}

/// RFC 5905, section 8: only the answer to the question that is open counts, and once.
#[test]
fn answers_that_were_not_asked_for_are_ignored() {
    let mut filter = OffsetFilter::new(minutes(1));
    assert_eq!(
        filter.receive(reply(0, 5, 5), at(9)),
        Err(ReplyError::NotAsked)
    );
    let first = filter.ask(at(100));
    let second = filter.ask(at(200));
    let late = reply(first, 150, 150);
    assert_eq!(filter.receive(late, at(210)), Err(ReplyError::NotAsked));
    let right = reply(second, 205, 206);
    assert!(filter.receive(right, at(212)).is_ok());
    assert_eq!(filter.receive(right, at(213)), Err(ReplyError::NotAsked));
    assert_eq!(filter.estimate(at(213)).unwrap().at, at(212));
}

#[test]
fn impossible_answers_are_told_from_good_ones() {
    let backwards = Sample::new(reply(100, 160, 159), at(115));
    assert_eq!(backwards, Err(ReplyError::Backwards));
    let backwards = Sample::new(reply(100, 160, 165), at(99));
    assert_eq!(backwards, Err(ReplyError::Backwards));
    let held = Sample::new(reply(100, 160, 176), at(115));
    assert_eq!(held, Err(ReplyError::HeldTooLong));
    let far = Sample::new(reply(100, u64::MAX, u64::MAX), at(115));
    assert_eq!(far, Err(ReplyError::OutOfRange));
}

/// Answers with these offsets and round trips, one a second.
fn filter_of(samples: &[(u64, u64)]) -> (OffsetFilter, Time) {
    let mut filter = OffsetFilter::new(minutes(1));
    let mut now = at(0);
    for &(offset, round_trip) in samples {
        now = now + Duration::from_secs(1);
        let asked = filter.ask(now);
        let there = asked + offset + round_trip / 2;
        let back = now + Duration::from_nanos(round_trip);
        let sample = filter.receive(reply(asked, there, there), back).unwrap();
        assert_eq!(sample.offset_ns, offset as i64);
    }
    (filter, now)
}

/// S1, 6.1 and RFC 5905, section 10: of eight pairs the one with the least delay.
#[test]
fn lecture_6_1_the_shortest_round_trip_of_eight_is_believed() {
    let mut samples = vec![(50, 40), (55, 10), (70, 80), (56, 20)];
    let (filter, now) = filter_of(&samples);
    assert_eq!(filter.estimate(now).unwrap().offset_ns, 55);
    assert_eq!(filter.estimate(now).unwrap().error, Duration::from_nanos(5));
    // Six worse ones do not drive it out, a seventh does; then the next best is believed.
    samples.extend([(90, 100); 6]);
    let (filter, now) = filter_of(&samples[..9]);
    assert_eq!(filter.estimate(now).unwrap().offset_ns, 55);
    let (filter, now) = filter_of(&samples);
    assert_eq!(filter.estimate(now).unwrap().offset_ns, 56);
    // Of two that are as good the newer.
    let (filter, now) = filter_of(&[(1, 10), (2, 10), (3, 12)]);
    assert_eq!(filter.estimate(now).unwrap().offset_ns, 2);
}

#[test]
fn old_answers_count_no_more() {
    let (filter, now) = filter_of(&[(55, 10), (80, 90)]);
    // Both came within a few nanoseconds of full seconds: one at 1 s, one at 2 s.
    let later = now + minutes(1);
    assert_eq!(filter.estimate(later).unwrap().offset_ns, 80);
    let much_later = later + Duration::from_secs(1);
    assert_eq!(filter.estimate(much_later), None);
}

/// Whatever the two ways take, the true offset is within half of the round trip, and the filter's
/// estimate within its error; and the filter is much better than the last answer.
#[test]
fn the_truth_is_within_half_of_the_round_trip() {
    let mean = Duration::from_millis(1);
    let (mut filtered, mut last) = (0, 0);
    for seed in 0..300 {
        let mut choices = Choices::new(seed);
        let truth = choices.within(0..=2_000_000_000) as i64 - 1_000_000_000;
        let there = |now: Time| now.as_nanos().strict_add_signed(truth);
        let mut filter = OffsetFilter::new(minutes(1));
        let mut now = at(2_000_000_000);
        let mut newest = 0;
        for _ in 0..8 {
            now = now + Duration::from_millis(100);
            let asked = filter.ask(now);
            let arrived = now + choices.exponential(mean);
            let left = arrived + choices.exponential(mean / 4);
            let back = left + choices.exponential(mean);
            let answer = reply(asked, there(arrived), there(left));
            let sample = filter.receive(answer, back).unwrap();
            let wrong = Duration::from_nanos(sample.offset_ns.abs_diff(truth));
            assert!(wrong <= sample.round_trip.div_f64(2.0), "seed {seed}");
            now = back;
            newest = sample.offset_ns.abs_diff(truth);
        }
        let estimate = filter.estimate(now).unwrap();
        let wrong = estimate.offset_ns.abs_diff(truth);
        assert!(Duration::from_nanos(wrong) <= estimate.error, "seed {seed}");
        filtered += wrong;
        last += newest;
    }
    assert!(filtered * 3 < last, "{filtered} ns and {last} ns in sum");
}

/// S1, 6.1: a clock that is ahead is slowed down, never set back.
#[test]
fn lecture_6_1_a_clock_never_goes_back() {
    let mut clock = SlewedClock::new(at(0), 500);
    assert_eq!(clock.time(at(1_000_000)), at(1_000_000));
    clock.correct(at(1_000_000), -1_000);
    assert_eq!(clock.time(at(1_000_000)), at(1_000_000));
    // 500 millionths of a millisecond: it has lost 500 ns, and after another one all.
    assert_eq!(clock.time(at(2_000_000)), at(1_999_500));
    assert_eq!(clock.time(at(3_000_000)), at(2_999_000));
    assert_eq!(clock.time(at(9_000_000)), at(8_999_000));
    assert_eq!(clock.excess(at(9_000_000)), Duration::ZERO);
    clock.correct(at(9_000_000), 1_000);
    assert_eq!(clock.time(at(9_000_000)), at(9_000_000));
}

#[test]
fn any_corrections_leave_a_clock_monotone_and_add_up() {
    for seed in 0..200 {
        let mut choices = Choices::new(seed);
        let mut clock = SlewedClock::new(at(0), 1 + choices.below(999_999) as u32);
        let (mut now, mut shown, mut sum) = (0, Time::ZERO, 0_i64);
        for _ in 0..100 {
            now += choices.below(1_000_000);
            if choices.chance(200) {
                let correction = choices.within(0..=2_000_000) as i64 - 1_000_000;
                clock.correct(at(now), correction);
                sum += correction;
            }
            assert!(clock.time(at(now)) >= shown, "seed {seed}");
            shown = clock.time(at(now));
        }
        let settled = at(now + 1_000_000_000_000_000);
        let end = clock.time(settled).as_nanos().cast_signed();
        assert_eq!(end, settled.as_nanos().cast_signed() + sum, "seed {seed}");
        assert_eq!(clock.excess(settled), Duration::ZERO);
    }
}
