//! Views, and what members believe of each other.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Process, Violation, violation};
use distlock_protocol::{Epoch, NodeId, Time};

/// The epochs of a member only rise, over all its incarnations; an epoch has one list of members,
/// which are all of them where nobody is ever removed; nobody grants before its process has a view;
/// suspicion comes and goes in turns, and is gone when everybody can be heard.
///
/// Where the silent are presumed gone, a view has some of the members, and the one that installs it;
/// in the end all are in the same.
#[derive(Debug)]
pub struct Views {
    members: BTreeSet<NodeId>,
    /// Whether views may lack members.
    may_lack: bool,
    /// The members of each epoch, where a majority decides.
    decided: Option<BTreeMap<Epoch, BTreeSet<NodeId>>>,
    /// The last epoch of each member, and the incarnation that installed it.
    installed: BTreeMap<NodeId, (Epoch, u32)>,
    /// The members of that epoch's view.
    lists: BTreeMap<NodeId, BTreeSet<NodeId>>,
    incarnations: BTreeMap<NodeId, u32>,
    /// Who suspects whom.
    suspected: BTreeSet<(NodeId, NodeId)>,
}

impl Views {
    /// Rules for a group of `members`.
    pub fn new(members: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            members: members.into_iter().collect(),
            may_lack: false,
            decided: None,
            lists: BTreeMap::new(),
            installed: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            suspected: BTreeSet::new(),
        }
    }

    /// The same, where the silent are presumed gone.
    pub fn presuming(members: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            may_lack: true,
            ..Self::new(members)
        }
    }

    /// From now on a majority decides who is in a view.
    pub fn remove_members(&mut self) {
        self.may_lack = true;
        self.decided = Some(BTreeMap::new());
    }

    /// Whether these are all members.
    pub fn is_group(&self, members: &BTreeSet<NodeId>) -> bool {
        *members == self.members
    }

    /// A new incarnation, which has seen nobody yet.
    pub fn begins(&mut self, process: Process) {
        self.incarnations.insert(process.node, process.incarnation);
        self.suspected.retain(|(who, _)| *who != process.node);
    }

    /// The record of `node` is lost, and where the silent are presumed gone, the epochs in it.
    pub fn forgets(&mut self, node: NodeId) {
        if self.may_lack && self.decided.is_none() {
            self.installed.remove(&node);
        }
    }

    /// `process` says that `epoch` went on without it: what it knew of others is void.
    ///
    /// # Errors
    /// It is in that epoch, or in a later one, or nobody is ever removed.
    pub fn excludes(&mut self, now: Time, process: Process, epoch: Epoch) -> Result<(), Violation> {
        let known = self.installed.get(&process.node);
        // It may be one that it was about to install.
        let has_it = known.is_some_and(|(known, incarnation)| {
            *incarnation == process.incarnation && *known >= epoch
        });
        if self.decided.is_none() || has_it {
            return Err(violation!(
                now,
                Views,
                "{process} says that epoch {epoch} went on without it, and is in {known:?}"
            ));
        }
        self.suspected.retain(|(who, _)| *who != process.node);
        Ok(())
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
        if let Some((before, incarnation)) = self
            .installed
            .insert(process.node, (epoch, process.incarnation))
            && epoch <= before
        {
            return Err(violation!(
                now,
                Views,
                "{process} installs epoch {epoch} after epoch {before} (in incarnation {incarnation})"
            ));
        }
        let distinct: BTreeSet<NodeId> = members.iter().copied().collect();
        let mut is_right = if self.may_lack {
            distinct.contains(&process.node) && distinct.is_subset(&self.members)
        } else {
            distinct == self.members
        };
        if let Some(decided) = &mut self.decided {
            is_right &= *decided.entry(epoch).or_insert_with(|| distinct.clone()) == distinct;
        }
        if !is_right || distinct.len() != members.len() {
            let ids: Vec<u16> = members.iter().map(|id| id.as_u16()).collect();
            return Err(violation!(
                now,
                Views,
                "{process} installs epoch {epoch} with members {ids:?}, which is not the group"
            ));
        }
        self.lists.insert(process.node, distinct);
        Ok(())
    }

    /// Whether all of `running` are in one view, which has nobody else, and none of them is
    /// suspected by another.
    pub fn are_one(&self, running: &BTreeMap<NodeId, u32>) -> bool {
        let runs = |node: &NodeId| running.contains_key(node);
        let mut suspected = self.suspected.iter();
        if suspected.any(|(who, whom)| runs(who) && runs(whom)) {
            return false;
        }
        let epoch = |(node, incarnation): (&NodeId, &u32)| {
            let (epoch, of) = self.installed.get(node)?;
            let is_right = of == incarnation && self.lists.get(node)?.iter().eq(running.keys());
            is_right.then_some(*epoch)
        };
        let mut epochs = running.iter().map(epoch);
        let first = epochs.next().flatten();
        first.is_some() && epochs.all(|epoch| epoch == first)
    }

    /// The epoch that is in force in `process`.
    ///
    /// # Errors
    /// The process grants a lock, though no view is in force in its incarnation.
    pub fn epoch_of(&self, now: Time, process: Process) -> Result<Epoch, Violation> {
        match self.installed.get(&process.node) {
            Some((epoch, incarnation)) if *incarnation == process.incarnation => Ok(*epoch),
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
