//! What must hold of logs that order views, judged by what they tell.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::{Violation, violation};
use distlock_protocol::membership::quorum::log::{Decided, Digest, MAX_CHAIN, ViewRef, VoterId};
use distlock_protocol::{Epoch, Time};

/// Agreement, order, nothing lost, one leader a term.
///
/// All decisions must form one chain: each has one digest, one predecessor and one successor. So a
/// decision that was told once and is missing later shows as a second successor of the one before.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    digests: BTreeMap<Epoch, Digest>,
    before: BTreeMap<Epoch, Option<Epoch>>,
    after: BTreeMap<Option<Epoch>, Epoch>,
    voters: BTreeMap<Epoch, BTreeSet<VoterId>>,
    leaders: BTreeMap<u64, VoterId>,
}

impl Decisions {
    /// A voter says what is decided, and that `before` was the last it said so of in this
    /// incarnation.
    pub(crate) fn told(
        &mut self,
        at: Time,
        voter: VoterId,
        before: Option<Epoch>,
        decided: &Decided,
    ) -> Result<(), Violation> {
        let link = decided.link();
        if before.is_some_and(|before| before >= link.epoch) {
            return Err(violation!(
                at,
                Views,
                "voter {voter} tells of view {} after {before:?}",
                link.epoch
            ));
        }
        let links = || decided.chain.iter().copied().chain([link]);
        for ViewRef { epoch, digest } in links() {
            if *self.digests.entry(epoch).or_insert(digest) != digest {
                return Err(violation!(
                    at,
                    Views,
                    "voter {voter} has another view {epoch} than was decided"
                ));
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
                    return Err(violation!(
                        at,
                        Views,
                        "a decision is lost: voter {voter} has view {epoch} after {last:?}, and \
                         {:?} came after that",
                        self.after.get(&last)
                    ));
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
    pub(crate) fn leads(&mut self, at: Time, voter: VoterId, term: u64) -> Result<(), Violation> {
        match *self.leaders.entry(term).or_insert(voter) {
            leader if leader == voter => Ok(()),
            leader => Err(violation!(
                at,
                Leaders,
                "two leaders in term {term}: voters {leader} and {voter}"
            )),
        }
    }

    /// Nothing new was decided by all in all this time.
    pub(crate) fn stall(&self, at: Time, patience: Duration, before: Option<Epoch>) -> Violation {
        let last = self.last();
        violation!(
            at,
            Progress,
            "{patience:?} after healing the last view is {last:?}, before it was {before:?}"
        )
    }

    /// The last view that anybody told of.
    pub(crate) fn last(&self) -> Option<Epoch> {
        self.voters.last_key_value().map(|(epoch, _)| *epoch)
    }

    /// The same, if it came after `before`.
    pub(crate) fn decided_since(&self, before: Option<Epoch>) -> Option<Epoch> {
        self.last().filter(|last| Some(*last) > before)
    }

    /// The voters of a view that somebody told of.
    pub(crate) fn voters(&self, epoch: Epoch) -> &BTreeSet<VoterId> {
        &self.voters[&epoch]
    }

    /// Whether a voter was one in any view that somebody told of.
    pub(crate) fn has_voted(&self, voter: VoterId) -> bool {
        self.voters.values().any(|voters| voters.contains(&voter))
    }
}
