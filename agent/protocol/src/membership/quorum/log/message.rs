//! What the voters' logs say to each other, and what of it can make sense.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::VoterId;
use super::entry::{
    LogEntry, MAX_NUMBER, Snapshot, decided_makes_sense, entries_make_sense, follows,
    voters_make_sense,
};
use super::library::Position;
use crate::ids::Epoch;

/// The most entries of one message; what is left follows when they have arrived.
pub(super) const MAX_ENTRIES: usize = 64;
/// By how much a message's term may be above one's own. Elections alone take years to get there,
/// so that no single forged message can bring terms to their end.
pub(super) const MAX_LEAP: u64 = 1 << 32;

/// A message from one voter's log to another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogMessage {
    /// Whom it is for, so that nobody takes it who has another's place.
    pub to: VoterId,
    /// The sender's term.
    pub term: u64,
    /// What it says.
    pub body: Body,
}

/// What a message says. The order is that of the wire format: append only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Vote for me; my log ends here (RequestVote).
    Vote {
        /// Where.
        last: Position,
        /// Whether the leader has asked me to; else I have not heard of one for long.
        handed_over: bool,
    },
    /// The answer.
    Voted {
        /// Whether it is yes.
        granted: bool,
    },
    /// From the leader: append this (AppendEntries).
    Append {
        /// All up to this index is committed.
        commit: u64,
        /// What comes before the entries.
        prev: Position,
        /// The entries.
        entries: Vec<LogEntry>,
    },
    /// The answer: my log ends here.
    Appended {
        /// Where.
        last: Position,
    },
    /// From the leader: begin your log with this (InstallSnapshot).
    Install(Box<Snapshot>),
    /// To one who asks for votes and has none itself: this is decided, you are out.
    Retired(Box<Snapshot>),
    /// From the leader: lead (TimeoutNow, Ongaro 2014, §3.10).
    TakeOver,
}

impl LogMessage {
    /// Whether a log of this protocol could have sent it. Nothing else is shown to the library,
    /// which counts on it.
    pub(super) fn makes_sense(&self) -> bool {
        let term = self.term;
        term <= MAX_NUMBER
            && match &self.body {
                Body::Vote { last, .. } | Body::Appended { last } => follows(*last, term),
                Body::Voted { .. } | Body::TakeOver => true,
                Body::Append {
                    commit,
                    prev,
                    entries,
                } => {
                    *commit <= MAX_NUMBER
                        && entries.len() <= MAX_ENTRIES
                        && follows(*prev, term)
                        && entries_make_sense(*prev, term, Epoch::ZERO, entries)
                }
                Body::Install(snapshot) | Body::Retired(snapshot) => {
                    follows(snapshot.position, term)
                        && voters_make_sense(&snapshot.voters)
                        && decided_makes_sense(snapshot.decided.as_ref())
                }
            }
    }
}
