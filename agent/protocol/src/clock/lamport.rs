//! Lamport's clock (Lamport 1978, CACM 21(7)): a counter that every message carries.
//!
//! Count one up for every event; whoever receives a message goes on from the higher of the two
//! numbers. So what caused an event always has a lower number than the event. The converse does not
//! hold: of two numbers the lower need not have caused anything.
//!
//! The lecture's "fast forward" tells only of a receiver that lags. The rule is the maximum plus
//! one, also when both numbers are the same.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// A Lamport timestamp, made unique by the member: totally ordered (Lamport 1978).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The member's logical clock at the event.
    pub clock: u64,
    /// The member.
    pub node: NodeId,
}

/// A process's Lamport clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LamportClock(u64);

impl LamportClock {
    /// The highest number that is believed of another process: 2^62, which no group of processes
    /// reaches in a thousand years. So a damaged number cannot bring a clock to its end.
    pub const MAX_RECEIVED: u64 = 1 << 62;

    /// A clock before its first event.
    pub const fn new() -> Self {
        Self(0)
    }

    /// A clock whose last event had this number: for a process that goes on where another one, or
    /// a group, has got to.
    pub const fn starting_at(time: u64) -> Self {
        Self(time)
    }

    /// The number of the last event.
    pub const fn time(self) -> u64 {
        self.0
    }

    /// The number of a new event: something local, or the sending of a message.
    pub const fn tick(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// The number of the receipt of a message that was sent at `sent`.
    ///
    /// # Errors
    /// `sent` is above [`LamportClock::MAX_RECEIVED`]; the clock is unchanged.
    pub const fn receive(&mut self, sent: u64) -> Result<u64, ClockTooFar> {
        if sent > Self::MAX_RECEIVED {
            return Err(ClockTooFar { sent });
        }
        if sent > self.0 {
            self.0 = sent;
        }
        Ok(self.tick())
    }
}

/// Why a number is no Lamport clock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a Lamport clock of {sent} is beyond all that a group can reach: drop the message")]
pub struct ClockTooFar {
    /// The number.
    pub sent: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S1, Figure 6.8: P2's clock goes up by 8 at a time, P1's by 6. What left P3 at 60 arrives at
    /// 61 instead of 56, and what P2 sends eight later, at 69, arrives at P1 at 70 instead of 54.
    #[test]
    fn lecture_figure_6_8() {
        let mut p2 = LamportClock::starting_at(56);
        assert_eq!(p2.receive(60), Ok(61));
        let mut p2 = LamportClock::starting_at(p2.time() + 7);
        let sent = p2.tick();
        assert_eq!(sent, 69);
        assert_eq!(LamportClock::starting_at(54).receive(sent), Ok(70));
        // Where the receiver is ahead nothing is put forward: m1 leaves at 6 and arrives at 16.
        assert_eq!(LamportClock::starting_at(15).receive(6), Ok(16));
    }

    /// S1, 6.2, step 3: the maximum, then one more. A receiver that shows the very same number
    /// must go on too, or cause and effect would have one number.
    #[test]
    fn lecture_6_2_equal_clocks_go_on() {
        assert_eq!(LamportClock::starting_at(60).receive(60), Ok(61));
    }

    #[test]
    fn a_number_beyond_reach_changes_nothing() {
        let mut clock = LamportClock::starting_at(5);
        let sent = LamportClock::MAX_RECEIVED + 1;
        assert_eq!(clock.receive(sent), Err(ClockTooFar { sent }));
        assert_eq!(clock.time(), 5);
        assert_eq!(clock.receive(sent - 1), Ok(sent));
    }
}
