//! What a founder proposes.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::affiliation::{Founding, Party, Standing};
use super::super::process::Terms;
use super::super::view_config::{Digest, ViewConfig, Voter};
use super::FoundingPart;
use crate::ids::{Incarnation, NodeId};
use crate::membership::{Book, Member};
use crate::time::Time;

impl FoundingPart {
    /// The founding to be proposed now, by the lowest voter of its file.
    pub(in crate::membership::quorum) fn found(
        &self,
        now: Time,
        terms: &Terms,
    ) -> Option<Founding> {
        let is_founder = terms.voters.first() == Some(&self.me.node);
        if !is_founder
            || now < self.founds_at
            || !self.may_found(terms)
            || self.report(now, terms).is_some()
        {
            return None;
        }
        let abandons = self.own.permit.map(|permit| permit.abandoned);
        let parties: Option<Vec<Party>> =
            self.parties(terms).map(|node| self.party(node)).collect();
        let parties = parties?;
        let epoch = self
            .known
            .next()?
            .max(terms.first_epoch(now.since(self.started)));
        let members = parties.iter().map(|party| self.member(party.node));
        let members: Vec<Member> = members.collect::<Option<_>>()?;
        let voters = terms.voters.iter().map(|&node| Voter {
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
            unclean: self.may_have_been_inside(terms),
            book: Book {
                voters: terms.voters.clone(),
                ..Book::default()
            },
            abandons: abandons.into_iter().collect(),
        };
        let longest = self.longest_of_all(terms);
        let founding = Founding {
            view_config,
            parties,
            longest,
            abandons,
        };
        Some(founding.named(&terms.group))
    }

    /// Where a cluster is abandoned nobody knows what was held in it.
    fn may_have_been_inside(&self, terms: &Terms) -> Vec<NodeId> {
        if self.own.permit.is_none() {
            return Vec::new();
        }
        let all = terms.members.iter().chain(self.clusters.keys()).copied();
        let all: BTreeSet<NodeId> = all.collect();
        all.into_iter().collect()
    }

    fn may_found(&self, terms: &Terms) -> bool {
        self.own.standing == Standing::New && self.saved && terms.cluster.is_none()
    }

    /// Those who must accept: all that the file lists; on an operator's word its voters alone.
    pub(super) fn parties<'a>(&self, terms: &'a Terms) -> impl Iterator<Item = NodeId> + use<'a> {
        match self.own.permit {
            None => terms.members.iter().copied(),
            Some(_) => terms.voters.iter().copied(),
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
        let incarnation = self.status_of(node)?.life;
        Some(Member { node, incarnation })
    }

    pub(super) fn own_longest(&self, terms: &Terms) -> Duration {
        let permit = self.own.permit.map(|permit| permit.longest);
        terms
            .lease
            .max(self.longest)
            .max(permit.unwrap_or_default())
    }

    pub(super) fn longest_of_all(&self, terms: &Terms) -> Duration {
        let others = self.parties(terms).filter_map(|node| self.status_of(node));
        let longest = others.map(|status| status.longest).max();
        self.own_longest(terms).max(longest.unwrap_or_default())
    }
}
