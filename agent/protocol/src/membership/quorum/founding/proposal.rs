//! What a founder proposes.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::affiliation::{Founding, Party, Standing};
use super::super::config::QuorumConfig;
use super::super::view_config::{Digest, ViewConfig, Voter};
use super::FoundingPart;
use crate::ids::{Incarnation, NodeId};
use crate::membership::{Member, MembershipOverrides};
use crate::time::Time;

impl FoundingPart {
    /// The founding to be proposed now, by the lowest voter of its file.
    pub(in crate::membership::quorum) fn found(
        &self,
        now: Time,
        config: &QuorumConfig,
    ) -> Option<Founding> {
        let is_founder = config.voters.first() == Some(&self.me.node);
        if !is_founder
            || now < self.founds_at
            || !self.may_found(config)
            || self.report(now, config)?.keeps_from_founding()
        {
            return None;
        }
        let abandons = self.own.abandoned();
        let parties: Option<Vec<Party>> =
            self.parties(config).map(|node| self.party(node)).collect();
        let parties = parties?;
        let epoch = self
            .known
            .next()?
            .max(config.first_epoch(now.since(self.started)));
        let members = parties.iter().map(|party| self.member(party.node));
        let members: Vec<Member> = members.collect::<Option<_>>()?;
        let voters = config.voters.iter().map(|&node| Voter {
            node,
            birth: parties
                .iter()
                .find(|its| its.node == node)
                .map_or(Incarnation(0), |its| its.birth),
        });
        let view_config = ViewConfig {
            // Both are named below.
            cluster: Digest([0; 32]),
            parent: Digest([0; 32]),
            epoch,
            since: members.iter().map(|_| epoch).collect(),
            members,
            voters: voters.collect(),
            coordinator: self.me,
            unclean: self.may_have_been_inside(config),
            overrides: MembershipOverrides {
                voters: config.voters.clone(),
                ..MembershipOverrides::default()
            },
            abandons: abandons.into_iter().collect(),
        };
        let longest = self.longest_of_all(config);
        let founding = Founding {
            view_config,
            parties,
            longest,
            abandons,
        };
        Some(founding.named(&config.group))
    }

    /// Where a cluster is abandoned nobody knows what was held in it.
    fn may_have_been_inside(&self, config: &QuorumConfig) -> Vec<NodeId> {
        if self.own.permit.is_none() {
            return Vec::new();
        }
        let all = config.members.iter().chain(self.clusters.keys()).copied();
        let all: BTreeSet<NodeId> = all.collect();
        all.into_iter().collect()
    }

    fn may_found(&self, config: &QuorumConfig) -> bool {
        self.own.standing == Standing::New && self.saved && config.cluster.is_none()
    }

    /// Those who must accept: all that the file lists; on an operator's word its voters alone.
    pub(super) fn parties<'a>(
        &self,
        config: &'a QuorumConfig,
    ) -> impl Iterator<Item = NodeId> + use<'a> {
        match &self.own.permit {
            None => config.members.iter().copied(),
            Some(_) => config.voters.iter().copied(),
        }
    }

    fn party(&self, node: NodeId) -> Option<Party> {
        let (birth, refusals) = if node == self.me.node {
            (self.own.birth, self.own.refusals)
        } else {
            let status = self.status_of(node)?;
            (status.birth, status.refusals)
        };
        Some(Party {
            node,
            birth,
            refusals,
        })
    }

    fn member(&self, node: NodeId) -> Option<Member> {
        if node == self.me.node {
            return Some(self.me);
        }
        let incarnation = self.status_of(node)?.incarnation;
        Some(Member { node, incarnation })
    }

    pub(super) fn own_longest(&self, config: &QuorumConfig) -> Duration {
        let permit = self.own.permit.as_ref().map(|permit| permit.longest);
        config
            .lease
            .max(self.longest)
            .max(permit.unwrap_or_default())
    }

    pub(super) fn longest_of_all(&self, config: &QuorumConfig) -> Duration {
        let others = self.parties(config).filter_map(|node| self.status_of(node));
        let longest = others.map(|status| status.longest).max();
        self.own_longest(config).max(longest.unwrap_or_default())
    }
}
