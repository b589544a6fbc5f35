//! Whether another clock runs faster or slower than this one by more than it may.
//!
//! Two of the exchanges of [`super::offset`] tell. From when the first question arrived to when the
//! second answer left, the other clock has counted T3' - T2; that took this clock no longer than
//! from the first question's start to the second answer's arrival, T4' - T1. So the other clock
//! runs at least (T3' - T2) / (T4' - T1) times as fast. It runs at most (T2' - T3) / (T1' - T4)
//! times as fast, as from the first answer's start to the second question's arrival it took this
//! one at least that long.
//!
//! Nothing is assumed of how long messages take, nor that both ways take equally long: what is told
//! is true of every clock that it is told of. Messages that take long only make the bounds wide.
//! The usual estimate, a regression over offsets, is sharper, and wrong where delays change.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::offset::Reply;
use crate::time::Time;

/// How many exchanges are compared with each other.
const EXCHANGES: usize = 8;
const MILLION: i128 = 1_000_000;

/// How another clock's rate stands to this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As far as is known, it differs by no more than it may.
    Within,
    /// Too fast: the other clock gains at least this, in parts per million.
    Fast(u64),
    /// Too slow: this clock gains at least this on the other one, in parts per million.
    Slow(u64),
}

/// Looks for a drift beyond a bound, in the exchanges with one other clock.
#[derive(Clone, Debug)]
pub struct DriftWatch {
    bound_ppm: u64,
    max_age: Duration,
    /// The newest last.
    exchanges: VecDeque<Exchange>,
}

#[derive(Clone, Copy, Debug)]
struct Exchange {
    reply: Reply,
    /// T4.
    at: Time,
}

impl DriftWatch {
    /// Rates may differ so that the faster clock gains up to `bound_ppm`, in parts per million.
    /// Exchanges older than `max_age` count no more.
    pub const fn new(bound_ppm: u64, max_age: Duration) -> Self {
        Self {
            bound_ppm,
            max_age,
            exchanges: VecDeque::new(),
        }
    }

    /// The answer `reply` came at T4, `at`.
    pub fn receive(&mut self, reply: Reply, at: Time) {
        let max_age = self.max_age;
        self.exchanges
            .retain(|exchange| at.since(exchange.at) <= max_age);
        if self.exchanges.len() == EXCHANGES {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(Exchange { reply, at });
    }

    /// What any two of the last eight exchanges prove; of several drifts the greatest.
    pub fn rate(&self) -> Rate {
        let later = |place| self.exchanges.iter().skip(place + 1);
        let firsts = self.exchanges.iter().enumerate();
        let pairs =
            firsts.flat_map(|(place, first)| later(place).map(move |second| (first, second)));
        let drifts = pairs.map(|(first, second)| first.drift(second, self.bound_ppm));
        drifts
            .max_by_key(|drift| match drift {
                Rate::Within => 0,
                Rate::Fast(ppm) | Rate::Slow(ppm) => *ppm,
            })
            .unwrap_or(Rate::Within)
    }
}

impl Exchange {
    /// What this exchange and a later one prove.
    fn drift(&self, later: &Self, bound_ppm: u64) -> Rate {
        let time = |nanos: u64| i128::from(nanos);
        let (first, second) = (&self.reply, &later.reply);
        let longest_here = time(later.at.as_nanos()) - time(first.asked_ns);
        let shortest_here = time(second.asked_ns) - time(self.at.as_nanos());
        let longest_there = time(second.answered_ns) - time(first.received_ns);
        let shortest_there = time(second.received_ns) - time(first.answered_ns);
        let gains = |counted: i128, meanwhile: i128| -> Option<u64> {
            // Who stood still loses without bound.
            let gained = (counted - meanwhile) * MILLION / meanwhile.max(1);
            u64::try_from(gained).ok().filter(|ppm| *ppm > bound_ppm)
        };
        if let Some(ppm) = gains(longest_there, longest_here) {
            return Rate::Fast(ppm);
        }
        match gains(shortest_here, shortest_there) {
            Some(ppm) => Rate::Slow(ppm),
            None => Rate::Within,
        }
    }
}
