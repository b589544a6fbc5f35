//! Rates that are out of bounds, and those that are not.

use std::time::Duration;

use distlock_lab::choices::Choices;
use distlock_protocol::Time;
use distlock_protocol::clock::{DriftWatch, Rate, Reply};

use crate::{at, minutes};

/// The tenth that leases allow for.
const RHO_PPM: u64 = 100_000;
const SECOND: u64 = 1_000_000_000;

/// A clock that began at `start` and counts `ppm` parts of a million.
#[derive(Clone, Copy)]
struct Clock {
    start: u64,
    ppm: u64,
}

impl Clock {
    fn at(&self, truth: u64) -> u64 {
        let counted = u128::from(truth) * u128::from(self.ppm) / 1_000_000;
        self.start + u64::try_from(counted).unwrap()
    }
}

/// `here` asks `there` every `every` ns, up to 200 times. What both ways take, and the answer in
/// between, is up to `jitter` ns each: what was told after each answer.
fn told(here: Clock, there: Clock, every: u64, jitter: u64, choices: &mut Choices) -> Vec<Rate> {
    let mut watch = DriftWatch::new(RHO_PPM, minutes(60));
    let mut now = SECOND;
    let exchanges = (0..200).map(|_| {
        let asked = now;
        let [there_at, held, back] = [(); 3].map(|()| choices.below(jitter + 1));
        let received = asked + there_at;
        let answered = received + held;
        let arrived = answered + back;
        now = arrived.max(asked + every);
        let reply = Reply {
            asked_ns: here.at(asked),
            received_ns: there.at(received),
            answered_ns: there.at(answered),
        };
        watch.receive(reply, at(here.at(arrived)));
        watch.rate()
    });
    exchanges.collect()
}

/// Whatever the jitter, even where it is as long as the pauses: delays prove nothing.
#[test]
fn a_clock_within_the_bound_is_never_told() {
    let mut choices = Choices::new(1);
    for round in 0..400 {
        let jitter = [0, 1_000, 50_000_000, 10 * SECOND, 60 * SECOND][round % 5];
        // Up to a tenth faster, one way or the other.
        let slower = 900_000 + choices.below(200_000);
        let faster = slower + slower * choices.below(RHO_PPM + 1) / 1_000_000;
        let [slower, faster] = [slower, faster].map(|ppm| Clock {
            start: choices.below(1_000_000 * SECOND),
            ppm,
        });
        for (here, there) in [(slower, faster), (faster, slower)] {
            let told = told(here, there, 10 * SECOND, jitter, &mut choices);
            assert!(told.iter().all(|rate| *rate == Rate::Within), "{round}");
        }
    }
}

/// Two tenths are told from the second answer on where these are quick, and soon where not.
#[test]
fn a_clock_twice_beyond_the_bound_is_told() {
    let mut choices = Choices::new(2);
    let clocks = [1_000_000, 1_200_000].map(|ppm| Clock { start: 5, ppm });
    let [slow, fast] = clocks;
    for (jitter, answers) in [(0, 2), (1_000_000, 2), (300_000_000, 3), (2 * SECOND, 8)] {
        let fast_there = told(slow, fast, 20 * SECOND, jitter, &mut choices);
        let first = fast_there.iter().position(|rate| *rate != Rate::Within);
        assert!(
            first.is_some_and(|first| first < answers),
            "{jitter} {first:?}"
        );
        for rate in &fast_there[answers..] {
            let Rate::Fast(ppm) = rate else {
                panic!("{rate:?} with {jitter}");
            };
            assert!(
                (RHO_PPM + 1..=200_000).contains(ppm),
                "never more than it is: {ppm}"
            );
        }
        let slow_there = told(fast, slow, 20 * SECOND, jitter, &mut choices);
        for rate in &slow_there[answers..] {
            assert!(
                matches!(rate, Rate::Slow(ppm) if *ppm <= 200_000),
                "{rate:?}"
            );
        }
    }
}

#[test]
fn a_clock_that_stood_still_is_told_and_forgotten() {
    let mut watch = DriftWatch::new(RHO_PPM, minutes(60));
    let mut ask = |here: u64, there: u64| {
        let [asked_ns, received_ns] = [here, there].map(|secs| secs * SECOND);
        let reply = Reply {
            asked_ns,
            received_ns,
            answered_ns: received_ns,
        };
        watch.receive(reply, at(asked_ns + 1_000));
        watch.rate()
    };
    assert_eq!(ask(10, 10), Rate::Within);
    assert_eq!(ask(20, 20), Rate::Within);
    assert!(matches!(ask(30, 20), Rate::Slow(ppm) if ppm > 1_000_000));
    // Eight answers later nothing of it is left.
    for i in 1..7 {
        assert!(
            matches!(ask(30 + 10 * i, 20 + 10 * i), Rate::Slow(_)),
            "{i}"
        );
    }
    assert_eq!(ask(100, 90), Rate::Within);
}

#[test]
fn old_answers_count_no_more() {
    let mut watch = DriftWatch::new(RHO_PPM, Duration::from_secs(15));
    let reply = |here: u64, there: u64| Reply {
        asked_ns: here * SECOND,
        received_ns: there * SECOND,
        answered_ns: there * SECOND,
    };
    let arrival = |secs: u64| -> Time { at(secs * SECOND + 5) };
    watch.receive(reply(10, 10), arrival(10));
    watch.receive(reply(20, 30), arrival(20));
    assert!(matches!(watch.rate(), Rate::Fast(_)));
    watch.receive(reply(30, 40), arrival(30));
    assert_eq!(watch.rate(), Rate::Within);
}
