//! How far another clock is ahead of this one, by questions and answers (RFC 5905, sections 8 and
//! 10; the lecture's Network Time Protocol).
//!
//! A question leaves at T1 by this clock and arrives at T2 by the other one; the answer leaves at
//! T3 by the other and arrives at T4 by this one. Then the other clock is ahead by
//! θ = ((T2-T1) + (T3-T4)) / 2, if both ways took equally long; and whatever they took, the error
//! is at most half of the round trip δ = (T4-T1) - (T3-T2), as both ways together took that. So of
//! the last eight answers the one with the shortest round trip is believed.
//!
//! The lecture's longer form of θ comes to the same. Its δ is half of this one, the time of one
//! way; which of the eight is believed does not change. What it says of T2-T1 and T4-T3 holds for
//! the true delays, not for the readings, which differ by twice θ.
//!
//! An answer that does not repeat the T1 of the question that is open is ignored (RFC 5905, section
//! 8): it is late, comes twice, or was made up.

use alloc::collections::VecDeque;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// How many answers are remembered (NSTAGE of RFC 5905).
const STAGES: usize = 8;

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// T1, from the question: nanoseconds of the asker's clock.
    pub asked_ns: u64,
    /// T2: when the question came, in nanoseconds of the answerer's clock.
    pub received_ns: u64,
    /// T3: when the answer left, in nanoseconds of the answerer's clock.
    pub answered_ns: u64,
}

/// What one question and its answer tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// θ: by how many nanoseconds the other clock is ahead of this one; negative if it is behind.
    pub offset_ns: i64,
    /// δ: the round trip, without the time at the other end.
    pub round_trip: Duration,
    /// T4: when the answer came, by this clock.
    pub at: Time,
}

/// What is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// By how many nanoseconds the other clock was ahead of this one; negative if it was behind.
    pub offset_ns: i64,
    /// How far from that the truth was at most, when `at` it was measured. Since then the clocks
    /// may have drifted.
    pub error: Duration,
    /// When it was measured, by this clock.
    pub at: Time,
}

impl Sample {
    /// What the answer `reply` tells that came at T4, `now`. To know the time there, *add* the
    /// offset to the time here.
    ///
    /// # Errors
    /// Why it can tell nothing.
    pub fn new(reply: Reply, now: Time) -> Result<Self, ReplyError> {
        let [t1, t2, t3, t4] = [
            reply.asked_ns,
            reply.received_ns,
            reply.answered_ns,
            now.as_nanos(),
        ]
        .map(i128::from);
        if t4 < t1 || t3 < t2 {
            return Err(ReplyError::Backwards);
        }
        let round_trip = (t4 - t1) - (t3 - t2);
        let offset = ((t2 - t1) + (t3 - t4)).div_euclid(2);
        let (Ok(round_trip), Ok(offset_ns)) = (u64::try_from(round_trip), i64::try_from(offset))
        else {
            return Err(if round_trip < 0 {
                ReplyError::HeldTooLong
            } else {
                ReplyError::OutOfRange
            });
        };
        Ok(Self {
            offset_ns,
            round_trip: Duration::from_nanos(round_trip),
            at: now,
        })
    }
}

/// The asker's side: the question that is open, and the last eight answers.
#[derive(Clone, Debug)]
pub struct OffsetFilter {
    max_age: Duration,
    /// T1 of the question that is open.
    asked: Option<Time>,
    /// The newest last.
    samples: VecDeque<Sample>,
}

impl OffsetFilter {
    /// Answers older than `max_age` count no more: the clocks drift meanwhile.
    pub const fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            asked: None,
            samples: VecDeque::new(),
        }
    }

    /// A question leaves now. It carries T1, the result; a question that is still open is given up.
    pub const fn ask(&mut self, now: Time) -> u64 {
        self.asked = Some(now);
        now.as_nanos()
    }

    /// An answer has come.
    ///
    /// # Errors
    /// Why it is ignored. A question that was open stays so, unless this was its answer.
    pub fn receive(&mut self, reply: Reply, now: Time) -> Result<Sample, ReplyError> {
        if self.asked.map(Time::as_nanos) != Some(reply.asked_ns) {
            return Err(ReplyError::NotAsked);
        }
        self.asked = None;
        let sample = Sample::new(reply, now)?;
        if self.samples.len() == STAGES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        Ok(sample)
    }

    /// What is believed now: of the last eight answers, of which none is too old, the one with the
    /// shortest round trip; of several the newest. `None` if there is none.
    pub fn estimate(&self, now: Time) -> Option<Estimate> {
        let fresh = self
            .samples
            .iter()
            .rev()
            .filter(|sample| now.since(sample.at) <= self.max_age);
        // The first of several that are least, which is the newest.
        let best = fresh.min_by_key(|sample| sample.round_trip)?;
        // θ was rounded down to the nanosecond.
        let error = best.round_trip.as_nanos().div_ceil(2);
        Some(Estimate {
            offset_ns: best.offset_ns,
            error: Duration::from_nanos(u64::try_from(error).unwrap_or(u64::MAX)),
            at: best.at,
        })
    }
}

/// Why an answer tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// It does not repeat the time of the question that is open: it is late, a copy, or made up.
    #[error("no question of that time is open: ignore the answer")]
    NotAsked,
    /// One of the clocks went back between two of its readings.
    #[error("a clock went back during the exchange: ask again")]
    Backwards,
    /// It says that it was held for longer than the whole exchange took: its clock runs faster than
    /// this one, and it took its time. RFC 5905 takes the round trip as the least that is possible
    /// then; but that answer would be believed before all others, and its offset is not known to
    /// within the half of it.
    #[error("the answer was held for longer than the exchange took: ask again")]
    HeldTooLong,
    /// The clocks are more than 292 years apart.
    #[error("the clocks are more than 292 years apart")]
    OutOfRange,
}
