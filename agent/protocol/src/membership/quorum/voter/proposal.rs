//! A view change as the log sees it: a proposal of voters that have numbers.

use crate::membership::greeting::first_8;
use crate::membership::quorum::certificate::ViewChange;
use crate::membership::quorum::log::{Proposal, VoterId};
use crate::membership::quorum::view_config::Voter;

pub(super) fn proposal_of(view_change: &ViewChange) -> Proposal {
    let voters = view_change.view_config.voters.iter();
    Proposal {
        epoch: view_change.view_config.epoch,
        digest: view_change.view_config.digest().0,
        voters: voters.map(|it| voter_id(*it)).collect(),
        view: postcard::to_allocvec(view_change).expect("a view_change can be written"),
    }
}

/// What was proposed.
pub(super) fn step_of(proposal: &Proposal) -> Option<ViewChange> {
    postcard::from_bytes(&proposal.view).ok()
}

/// A voter's number in the log.
pub(super) fn voter_id(voter: Voter) -> VoterId {
    let mut hasher = blake3::Hasher::new_derive_key("distlock 2026-11 number of a voter");
    hasher.update(&voter.node.as_u16().to_be_bytes());
    hasher.update(&voter.birth.0.to_be_bytes());
    VoterId(first_8(hasher.finalize().as_bytes()))
}
