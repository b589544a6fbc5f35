//! The entries of a log, what stands for those that are gone, and what of it can make sense.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::library::{Entry, Position, Voters};
use super::proposal::{Decided, MAX_CHAIN, MAX_VIEW, MAX_VOTERS, NotNow, Proposal, VoterId};
use crate::ids::Epoch;

/// The highest term and index there can be: at any pace that elections have, never reached.
pub(super) const MAX_NUMBER: u64 = u64::MAX / 2;

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

/// What is decided, and stands for the log up to there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// The place of the last entry that is gone from the log.
    pub position: Position,
    /// Who votes behind it.
    pub voters: Voters,
    /// The last view decided up to there.
    pub decided: Option<Decided>,
}

/// The views among `entries`, and their places.
pub(super) fn views_of(prev: Position, entries: Vec<LogEntry>) -> Vec<(Position, Proposal)> {
    let mut at = prev;
    let views = entries.into_iter().filter_map(|entry| {
        at.index += 1;
        match entry {
            LogEntry::Term(term) => at.term = term,
            LogEntry::Voters(_) => {}
            LogEntry::View(proposal) => return Some((at, proposal)),
        }
        None
    });
    views.collect()
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
