//! What must hold of logs that order views, judged by what they tell.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use distlock_protocol::Epoch;
use distlock_protocol::membership::quorum::log::{Decided, Digest, MAX_CHAIN, ViewRef, VoterId};

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for Violation {}

/// Agreement, order, nothing lost, one leader a term.
///
/// All decisions must form one chain: each has one digest, one predecessor and one successor. So a
/// decision that was told once and is missing later shows as a second successor of the one before.
#[derive(Debug, Default)]
pub(super) struct Checker {
    digests: BTreeMap<Epoch, Digest>,
    before: BTreeMap<Epoch, Option<Epoch>>,
    after: BTreeMap<Option<Epoch>, Epoch>,
    voters: BTreeMap<Epoch, BTreeSet<VoterId>>,
    leaders: BTreeMap<u64, VoterId>,
}

impl Checker {
    /// A voter says what is decided, and that `before` was the last it said so of in this
    /// incarnation.
    pub(super) fn told(
        &mut self,
        voter: VoterId,
        before: Option<Epoch>,
        decided: &Decided,
    ) -> Result<(), Violation> {
        let link = decided.link();
        if before.is_some_and(|before| before >= link.epoch) {
            return Err(Violation(format!(
                "order: voter {voter} tells of view {} after {before:?}",
                link.epoch
            )));
        }
        let links = || decided.chain.iter().copied().chain([link]);
        for ViewRef { epoch, digest } in links() {
            if *self.digests.entry(epoch).or_insert(digest) != digest {
                return Err(Violation(format!(
                    "agreement: voter {voter} has another view {epoch} than was decided"
                )));
            }
        }
        let mut last = None;
        // The first of a full chain has a predecessor that is not told.
        let whole = decided.chain.len() < MAX_CHAIN;
        for ViewRef { epoch, .. } in links() {
            if last.is_some() || whole {
                let follows = *self.before.entry(epoch).or_insert(last) == last
                    && *self.after.entry(last).or_insert(epoch) == epoch;
                if !follows {
                    return Err(Violation(format!(
                        "a decision is lost: voter {voter} has view {epoch} after {last:?}, and \
                         {:?} came after that",
                        self.after.get(&last)
                    )));
                }
            }
            last = Some(epoch);
        }
        self.voters
            .entry(link.epoch)
            .or_insert_with(|| decided.proposal.voters.clone());
        Ok(())
    }

    /// A voter leads.
    pub(super) fn leads(&mut self, voter: VoterId, term: u64) -> Result<(), Violation> {
        match *self.leaders.entry(term).or_insert(voter) {
            leader if leader == voter => Ok(()),
            leader => Err(Violation(format!(
                "two leaders in term {term}: voters {leader} and {voter}"
            ))),
        }
    }

    /// A log has stopped, or has done what none may do.
    pub(super) fn broken(&self, voter: VoterId, why: &str) -> Violation {
        Violation(format!("voter {voter} is broken: {why}"))
    }

    /// Nothing new was decided by all in all this time.
    pub(super) fn stall(&self, patience: Duration, before: Option<Epoch>) -> Violation {
        let last = self.last();
        Violation(format!(
            "stall: {patience:?} after healing the last view is {last:?}, before it was {before:?}"
        ))
    }

    /// The last view that anybody told of.
    pub(super) fn last(&self) -> Option<Epoch> {
        self.voters.last_key_value().map(|(epoch, _)| *epoch)
    }

    /// The same, if it came after `before`.
    pub(super) fn decided_since(&self, before: Option<Epoch>) -> Option<Epoch> {
        self.last().filter(|last| Some(*last) > before)
    }

    /// The voters of a view that somebody told of.
    pub(super) fn voters(&self, epoch: Epoch) -> &BTreeSet<VoterId> {
        &self.voters[&epoch]
    }

    /// Whether a voter was one in any view that somebody told of.
    pub(super) fn has_voted(&self, voter: VoterId) -> bool {
        self.voters.values().any(|voters| voters.contains(&voter))
    }
}
