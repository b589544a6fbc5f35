//! Whom a voter hears, and whom it misses.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Endorser, MAX_TOLD, STATUSES};
use crate::ids::Epoch;
use crate::membership::Member;
use crate::membership::quorum::certificate::Endorsement;
use crate::membership::quorum::message::{Stage, Status};
use crate::membership::quorum::view_config::Voter;
use crate::time::Time;

impl Endorser {
    /// Whether a voter was heard lately.
    pub(in crate::membership::quorum) fn is_fresh(&self, now: Time, voter: Voter) -> bool {
        let other = self.others.get(&voter.node);
        let other = other.filter(|other| other.status.voter == voter);
        voter == self.me || other.is_some_and(|other| self.is_lately(now, other.at))
    }

    /// Whether that is so short ago that no voter takes longer from one word to the next.
    fn is_lately(&self, now: Time, at: Time) -> bool {
        now.since(at) < self.lease * 3 / STATUSES
    }

    /// This voter does what is due. Returns whether it stood still before: then it has heard nobody
    /// meanwhile, itself not either, and what came waits to be read. Nobody is missed for that.
    pub(in crate::membership::quorum) fn note_awake(&mut self, now: Time) -> bool {
        let stood_still = !self.is_lately(now, self.awake_at);
        self.awake_at = now;
        if stood_still {
            self.connected = None;
            self.note_connected(now);
        }
        stood_still
    }

    /// Begins or ends the time in which a majority of voters is heard. Only in it a voter judges
    /// whom it misses: one that was cut off itself misses everybody, and says nothing by that.
    pub(super) fn note_connected(&mut self, now: Time) {
        let connected = self.endorsed.as_ref().is_some_and(|endorsed| {
            let view_config = &endorsed.view_change.view_config;
            view_config.has_majority(|voter| self.is_fresh(now, voter))
        });
        self.connected = match (connected, self.connected) {
            (false, _) => None,
            (true, since) => Some(since.unwrap_or(now)),
        };
    }

    /// How long a member may be silent.
    pub(super) fn patience(&self) -> Duration {
        self.lease / 2
    }

    /// Since when each member of the endorsed view has been silent, or has heard nobody.
    pub(super) fn silences(&self) -> impl Iterator<Item = (Member, Time)> + '_ {
        let judged = self.endorsed.as_ref().zip(self.connected);
        judged.into_iter().flat_map(move |(endorsed, connected)| {
            let since = connected.max(endorsed.since).max(self.started);
            endorsed
                .view_change
                .view_config
                .members
                .iter()
                .map(move |member| {
                    let heard = self.heard.get(&member.node);
                    let heard = heard.filter(|heard| heard.incarnation == member.incarnation);
                    let last = heard.map(|heard| heard.at.min(heard.answered_at));
                    (*member, last.map_or(since, |last| last.max(since)))
                })
        })
    }

    /// The members that this voter misses.
    pub(in crate::membership::quorum) fn suspects(&self, now: Time) -> Vec<Member> {
        let patience = self.patience();
        let silent = self
            .silences()
            .filter(|(_, since)| *since + patience <= now);
        silent.map(|(member, _)| member).collect()
    }

    /// Incarnations heard lately that have never been in a view, and are later than those in the
    /// endorsed one. A member that a view left out comes back in another incarnation.
    pub(in crate::membership::quorum) fn newcomers(&self, now: Time) -> Vec<Member> {
        let view_config = self
            .endorsed
            .as_ref()
            .map(|endorsed| &endorsed.view_change.view_config);
        let incarnations = self.heard.iter().filter_map(|(&node, heard)| {
            let member = Member {
                node,
                incarnation: heard.incarnation,
            };
            let before = view_config.and_then(|view_config| view_config.incarnation_of(node));
            let lately = now.since(heard.at) < self.patience();
            let is_new = heard.epoch == Epoch::ZERO && before < Some(heard.incarnation);
            let comes = lately && is_new && heard.stage < Stage::Leaving;
            comes.then_some(member)
        });
        incarnations.collect()
    }

    pub(in crate::membership::quorum) fn leavers(&self) -> impl Iterator<Item = Member> + '_ {
        let view_config = self
            .endorsed
            .as_ref()
            .map(|endorsed| &endorsed.view_change.view_config);
        let leavers = self.leavers.iter().copied();
        leavers.filter(move |leaver| {
            view_config.is_some_and(|view_config| view_config.has_member(*leaver))
        })
    }

    /// What this voter says of itself.
    pub(in crate::membership::quorum) fn own_status(&self, now: Time) -> Status {
        let endorsed = self.endorsed.as_ref();
        let known = self.heard.values().map(|heard| heard.epoch).max();
        let known = known.max(endorsed.map(|endorsed| endorsed.view_change.view_config.epoch));
        let (mut suspects, mut newcomers) = (self.suspects(now), self.newcomers(now));
        suspects.truncate(MAX_TOLD);
        newcomers.truncate(MAX_TOLD);
        Status {
            voter: self.me,
            incarnation: self.incarnation,
            known: known.unwrap_or_default().max(self.known),
            endorsed: endorsed.map(|endorsed| Endorsement {
                epoch: endorsed.view_change.view_config.epoch,
                digest: endorsed.digest,
                cluster: endorsed.view_change.view_config.cluster,
                age: self.age(now),
                longest: self.longest,
            }),
            suspects,
            leavers: self.leavers().take(MAX_TOLD).collect(),
            newcomers,
        }
    }
}
