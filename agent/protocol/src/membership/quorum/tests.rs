//! The parts by themselves: what each counts, and when. How they go together is simulated.

mod founding;
mod quarantine;
mod sessions;
mod voters;

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::affiliation::{Affiliation, Founding, Membership};
use super::certificate::ViewChange;
use super::config::QuorumConfig;
use super::coordinator::{Coordination, longest_lease};
use super::founding::FoundingPart;
use super::message::{QuorumMessage, Renew, Stage, VoterRecord};
use super::outbox::Outbox;
use super::session::Session;
use super::view_config::{Digest, ViewConfig, Voter};
use super::voter::endorser::Endorser;
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::Summary;
use crate::membership::{Action, Change, Member, MembershipOverrides, ViewMessage};
use crate::time::Time;

const LEASE: Duration = Duration::from_secs(1);

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn member(id: u16, incarnation: u64) -> Member {
    Member {
        node: node(id),
        incarnation: Incarnation(incarnation),
    }
}

fn voter(id: u16) -> Voter {
    Voter {
        node: node(id),
        birth: Incarnation(1),
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn config() -> QuorumConfig {
    QuorumConfig {
        group: "test".into(),
        lease: LEASE,
        members: (1..=5).map(node).collect(),
        voters: BTreeSet::from([node(1), node(2), node(3)]),
        cluster: None,
        wall: Duration::from_secs(100),
        lock_delay: Duration::ZERO,
    }
}

/// Three voters, of whom all are members, and two members more.
fn first() -> ViewConfig {
    let cluster = Digest::of_cluster(&"test");
    ViewConfig {
        cluster,
        epoch: Epoch::new(100).unwrap(),
        parent: cluster,
        members: (1..=5).map(|id| member(id, 1)).collect(),
        since: vec![Epoch::new(100).unwrap(); 5],
        voters: (1..=3).map(voter).collect(),
        coordinator: member(1, 1),
        unclean: Vec::new(),
        overrides: MembershipOverrides {
            voters: (1..=3).map(node).collect(),
            ..MembershipOverrides::default()
        },
        abandons: Vec::new(),
    }
}

/// What messages name a view by.
fn name(view: &ViewConfig) -> (Epoch, Digest) {
    (view.epoch, view.digest())
}

fn found() -> ViewChange {
    ViewChange {
        parent: None,
        view_config: first(),
    }
}

/// The next view, without member `gone`.
fn without(gone: u16) -> ViewChange {
    let parent = first();
    let mut view_config = ViewConfig {
        epoch: parent.epoch.next().unwrap(),
        parent: parent.digest(),
        ..parent.clone()
    };
    view_config.members.retain(|its| its.node != node(gone));
    view_config.since.pop();
    ViewChange {
        parent: Some(parent),
        view_config,
    }
}
