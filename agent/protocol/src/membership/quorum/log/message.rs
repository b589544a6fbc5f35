//! What the voters' logs say to each other, and what of it can make sense.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::library::{Entry, Position, Voters};
use super::record::Snapshot;
use super::{Decided, MAX_CHAIN, MAX_VIEW, MAX_VOTERS, NotNow, Proposal, VoterId};
use crate::ids::Epoch;

/// The most entries of one message; what is left follows when they have arrived.
pub(super) const MAX_ENTRIES: usize = 64;
/// The highest term and index there can be: at any pace that elections have, never reached.
const MAX_NUMBER: u64 = u64::MAX / 2;
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

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogEntry {
    /// A leader's first.
    Term(u64),
    /// Other voters, from this entry on.
    Voters(Voters),
    /// A view.
    View(Proposal),
}

impl LogEntry {
    /// What the library is told of it.
    pub(super) fn shape(&self) -> Entry {
        match self {
            Self::Term(term) => Entry::Term(*term),
            Self::Voters(voters) => Entry::Voters(voters.clone()),
            Self::View(_) => Entry::View,
        }
    }
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

/// Whether a log in `term` can have something at `position`.
pub(super) fn follows(position: Position, term: u64) -> bool {
    term <= MAX_NUMBER && position.term <= term && position.index <= MAX_NUMBER
}

/// Whether `entries` can stand behind `prev` in a log in `term`: terms and epochs rise.
pub(super) fn entries_make_sense(
    prev: Position,
    term: u64,
    decided: Epoch,
    entries: &[LogEntry],
) -> bool {
    let mut at = prev.term;
    let mut epoch = decided;
    entries.iter().all(|entry| match entry {
        LogEntry::Term(next) => {
            let rises = at < *next && *next <= term;
            at = *next;
            rises
        }
        LogEntry::Voters(voters) => voters_make_sense(voters),
        LogEntry::View(proposal) => {
            let rises = epoch < proposal.epoch;
            epoch = proposal.epoch;
            rises && check_size(proposal).is_ok()
        }
    })
}

pub(super) fn voters_make_sense(voters: &Voters) -> bool {
    let few = |voters: &BTreeSet<VoterId>| voters.len() <= MAX_VOTERS;
    !voters.now.is_empty() && few(&voters.now) && few(&voters.next)
}

pub(super) fn decided_makes_sense(decided: Option<&Decided>) -> bool {
    decided.is_none_or(|decided| {
        let chain = decided.chain.iter().map(|link| link.epoch);
        decided.chain.len() <= MAX_CHAIN
            && chain
                .chain([decided.proposal.epoch])
                .is_sorted_by(|earlier, later| earlier < later)
            && decided.proposal.epoch > Epoch::ZERO
            && check_size(&decided.proposal).is_ok()
    })
}

/// # Errors
/// If the proposal has no voters, or too much of something.
pub(super) fn check_size(proposal: &Proposal) -> Result<(), NotNow> {
    let voters = 1..=MAX_VOTERS;
    if voters.contains(&proposal.voters.len()) && proposal.view.len() <= MAX_VIEW {
        Ok(())
    } else {
        Err(NotNow::Size)
    }
}
