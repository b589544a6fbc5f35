//! Views, and what members believe of each other.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Process, Violation, violation};
use crate::protocol::{Epoch, NodeId, Time};

/// The epochs of a member only rise, over all its lives; an epoch has one list of members, and
/// since nobody is ever removed, that is all of them; nobody grants before its process has a view;
/// suspicion comes and goes in turns, and is gone when everybody can be heard.
#[derive(Debug)]
pub struct Views {
    members: BTreeSet<NodeId>,
    /// The last epoch of each member, and the life that installed it.
    installed: BTreeMap<NodeId, (Epoch, u32)>,
    lives: BTreeMap<NodeId, u32>,
    /// Who suspects whom.
    suspected: BTreeSet<(NodeId, NodeId)>,
}

impl Views {
    /// Rules for a group of `members`.
    pub fn new(members: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            members: members.into_iter().collect(),
            installed: BTreeMap::new(),
            lives: BTreeMap::new(),
            suspected: BTreeSet::new(),
        }
    }

    /// A new life, which has seen nobody yet.
    pub fn begins(&mut self, process: Process) {
        self.lives.insert(process.node, process.life);
        self.suspected.retain(|(who, _)| *who != process.node);
    }

    /// `process` says that a view is in force.
    ///
    /// # Errors
    /// Its epoch does not rise, or its members are not the group's.
    pub fn installs(
        &mut self,
        now: Time,
        process: Process,
        epoch: Epoch,
        members: &[NodeId],
    ) -> Result<(), Violation> {
        if let Some((before, life)) = self.installed.insert(process.node, (epoch, process.life))
            && epoch <= before
        {
            return Err(violation!(
                now,
                Views,
                "{process} installs epoch {epoch} after epoch {before} (in life {life})"
            ));
        }
        let distinct: BTreeSet<NodeId> = members.iter().copied().collect();
        if distinct != self.members || distinct.len() != members.len() {
            let ids: Vec<u16> = members.iter().map(|id| id.as_u16()).collect();
            return Err(violation!(
                now,
                Views,
                "{process} installs epoch {epoch} with members {ids:?}, which is not the group"
            ));
        }
        Ok(())
    }

    /// The epoch that is in force in `process`.
    ///
    /// # Errors
    /// There is none in this life, and yet it grants.
    pub fn epoch_of(&self, now: Time, process: Process) -> Result<Epoch, Violation> {
        match self.installed.get(&process.node) {
            Some((epoch, life)) if *life == process.life => Ok(*epoch),
            _ => Err(violation!(now, Views, "{process} grants without a view")),
        }
    }

    /// `process` suspects `peer`.
    ///
    /// # Errors
    /// It did already, or the peer is itself or nobody.
    pub fn suspects(&mut self, now: Time, process: Process, peer: NodeId) -> Result<(), Violation> {
        if peer == process.node || !self.members.contains(&peer) {
            return Err(violation!(
                now,
                Views,
                "{process} suspects {peer}, no peer of it"
            ));
        }
        if !self.suspected.insert((process.node, peer)) {
            return Err(violation!(
                now,
                Views,
                "{process} suspects {peer} a second time"
            ));
        }
        Ok(())
    }

    /// `process` hears again of `peer`.
    ///
    /// # Errors
    /// It did not suspect it.
    pub fn hears_of(&mut self, now: Time, process: Process, peer: NodeId) -> Result<(), Violation> {
        if !self.suspected.remove(&(process.node, peer)) {
            return Err(violation!(
                now,
                Views,
                "{process} never suspected {peer}, now alive"
            ));
        }
        Ok(())
    }

    /// Everybody has had time to hear everybody.
    ///
    /// # Errors
    /// Who still suspects whom.
    pub fn nobody_suspected(&self, now: Time) -> Result<(), Violation> {
        match self.suspected.first() {
            None => Ok(()),
            Some((who, whom)) => Err(violation!(
                now,
                Progress,
                "member {who} still suspects member {whom}"
            )),
        }
    }
}
