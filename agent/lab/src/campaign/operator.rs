//! What operators do: other voters, members and leases in files, members and voters named by a
//! command, voters' states lost together, and the word that a cluster is abandoned.
//!
//! None of it is avoided, but for what no protocol can survive: to abandon a cluster of which a
//! majority of the voters still remembers what it promised; and to have members that remember nothing
//! found a cluster by files that list nobody else (doc/fail-closed.md, *Cannot*). All processes of the group are judged
//! together, whichever cluster they are in.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Act, Campaign, FOUNDING};
use crate::checkers::{Process, Violation, violation};
use distlock_protocol::membership::MembershipOverrides;
use distlock_protocol::membership::quorum::{ViewConfig, Voter};
use distlock_protocol::{
    Absence, Affiliation, Change, ClusterId, Node, NodeId, Record, VoterRecord,
};

/// How many members the files can have as voters.
const MAX_VOTERS: usize = 7;
/// How often an operator mends what is left when faults have stopped.
const REPAIRS: u32 = 8;

impl Campaign {
    pub(super) fn operate(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.plan_next(self.plan.faults.operate, Act::Operate);
        self.report.operations += 1;
        match self.choices.index(16) {
            0..4 => return self.name_voters(),
            4..6 => {
                let voters = self.some(MAX_VOTERS);
                self.list(None, Some(voters));
            }
            6..8 => {
                let members = self.some(usize::MAX);
                self.list(Some(members), None);
            }
            8..10 => self.change_lease(),
            10 => return self.remove_one(),
            11..13 => return self.add_one(),
            13 => self.lose_minority(),
            _ => self.lose_majority(),
        }
        Ok(())
    }

    /// One to `most` members, by chance: they may have nothing in common with those before.
    fn some(&mut self, most: usize) -> BTreeSet<NodeId> {
        let members = self.members();
        let first = members[self.choices.index(members.len())];
        let often = [200, 400, 800][self.choices.index(3)];
        let others = members.iter().copied();
        let others: Vec<NodeId> = others.filter(|_| self.choices.chance(often)).collect();
        [first].into_iter().chain(others).take(most).collect()
    }

    /// The files list other members or voters. Hosts read that when they start: in time, one after
    /// the other, or all at once.
    fn list(&mut self, members: Option<BTreeSet<NodeId>>, voters: Option<BTreeSet<NodeId>>) {
        let members = members.unwrap_or_else(|| self.cluster.listed().clone());
        let members = self.with_a_witness(members);
        let voters = voters.unwrap_or_else(|| self.cluster.voters().clone());
        let mut voters: BTreeSet<NodeId> = voters.intersection(&members).copied().collect();
        if voters.is_empty() {
            voters = members.iter().copied().take(MAX_VOTERS).collect();
        }
        let words = format!("the files list the members {members:?}, the voters {voters:?}");
        self.cluster.say(format_args!("{words}"));
        self.cluster.list(members, voters);
        self.report.lists += 1;
        let lease = self.plan.settings.lease;
        let rolling = lease * [0, 1, 5][self.choices.index(3)];
        if self.choices.chance(600) {
            let mut after = Duration::ZERO;
            for node in self.members() {
                self.cluster.plan(after, Act::Restart(node));
                after += rolling;
            }
        }
    }

    /// `members`, and whoever can tell them of the cluster that there is if none of them remembers it: its
    /// voters. Where nobody remembers one: a member that all files have had since.
    fn with_a_witness(&mut self, mut members: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let voters = self.newest_voters();
        if voters.is_empty() {
            let first = self.cluster.listed().first().copied();
            self.anchor = self.anchor.or(first);
            members.extend(self.anchor);
            return members;
        }
        self.anchor = None;
        let remembers = |node: &NodeId| {
            let disk = self.cluster.disk(*node);
            disk.is_some_and(|disk| disk.affiliation.cluster_id().is_some())
        };
        if !members.iter().any(remembers) {
            members.extend(voters);
        }
        members
    }

    /// `distlock members voters` at some host.
    fn name_voters(&mut self) -> Result<(), Violation> {
        let voters = self.some(MAX_VOTERS);
        self.report.revotes += 1;
        self.change_at_one(Change::Voters(voters))
    }

    /// `distlock members remove` at some host, of whichever member that names.
    fn remove_one(&mut self) -> Result<(), Violation> {
        let members = self.members();
        let node = members[self.choices.index(members.len())];
        self.report.removals += 1;
        self.change_at_one(Change::Remove(node))
    }

    /// `distlock members add` at some host, of one that was removed if there is one.
    fn add_one(&mut self) -> Result<(), Violation> {
        let removed = self
            .newest_view_config()
            .map(|view_config| &view_config.overrides.removed);
        let removed = removed.and_then(|removed| removed.first().copied());
        let members = self.members();
        let node = removed.unwrap_or(members[self.choices.index(members.len())]);
        self.plan_start(node);
        self.change_at_one(Change::Add(node, address(node)))
    }

    /// An agent ends when it is told that its member was removed.
    pub(super) fn end_removed(&mut self, process: Process) {
        if self.cluster.process(process.node) == Some(process) {
            self.cluster.crash(process.node);
            self.forget(process);
            self.gone.insert(process.node);
        }
    }

    pub(super) fn change_at_one(&mut self, change: Change) -> Result<(), Violation> {
        let members = self.members();
        let node = members[self.choices.index(members.len())];
        let after = self
            .newest_view_config()
            .map(|view_config| view_config.overrides.clone());
        let after = after.and_then(|overrides| overrides.with(&change));
        let voters = after.map_or(usize::MAX, |overrides| voters_of(&overrides));
        let forgetful = self.forgetful();
        // A voter that was heard a moment ago may be one that has lost its state.
        let is_borne = forgetful == 0 || voters > 2 * forgetful;
        if let Some(process) = self.cluster.process(node)
            && is_borne
            && !self.cluster.is_paused(node)
        {
            self.wishes.insert(process, change.clone());
            self.cluster.change(node, change)?;
        }
        Ok(())
    }

    /// How many voters there are at least when all is done that operators have commanded.
    pub(super) fn fewest_voters(&self) -> Option<usize> {
        let overrides = &self.newest_view_config()?.overrides;
        let after = self
            .outstanding()
            .filter_map(|change| overrides.with(change));
        after.map(|overrides| voters_of(&overrides)).min()
    }

    /// What operators have commanded, and is not done: also at a process that ended lately, since the
    /// others may have heard of it.
    fn outstanding(&self) -> impl Iterator<Item = &Change> {
        let overrides = self
            .newest_view_config()
            .map(|view_config| &view_config.overrides);
        let patience = self.cluster.lease() * 4;
        let is_known = move |process: &Process| {
            let ended = self.ended.get(process);
            self.cluster.process(process.node) == Some(*process)
                || ended.is_some_and(|ended| self.cluster.now() < *ended + patience)
        };
        let wishes = self
            .wishes
            .iter()
            .filter(move |(process, _)| is_known(process));
        let changes = wishes.map(|(_, change)| change);
        changes.filter(move |change| overrides.is_none_or(|overrides| !overrides.has(change)))
    }

    /// The files have another lease, and the hosts restart; some not before a while has passed.
    fn change_lease(&mut self) {
        let lease = Duration::from_millis([200, 500, 1000, 2000][self.choices.index(4)]);
        self.cluster
            .say(format_args!("the files have a lease of {lease:?}"));
        self.cluster.set_lease(lease);
        self.report.leases += 1;
        for node in self.members() {
            let after = match self.choices.chance(300) {
                true => self.choices.duration(lease..=lease * 10),
                false => self.choices.duration(Duration::ZERO..=lease),
            };
            self.cluster.plan(after, Act::Restart(node));
        }
    }

    /// The process at `node` ends without a word, and another begins at once.
    pub(super) fn restart(&mut self, node: NodeId) -> Result<(), Violation> {
        let Some(process) = self.cluster.process(node) else {
            return Ok(());
        };
        if self.cluster.is_paused(node) || self.leaving.contains(&process) {
            return Ok(());
        }
        self.cluster.crash(node);
        self.forget(process);
        self.start(node)
    }

    /// Fewer than half of the voters crash together, and lose what they knew.
    fn lose_minority(&mut self) {
        let mut voters = self.newest_voters();
        let many = voters.len().saturating_sub(1) / 2;
        while voters.len() > many {
            voters.remove(self.choices.index(voters.len()));
        }
        for node in voters {
            self.crash_and_forget(node, true);
        }
    }

    /// All that vote by any disk crash, and lose what they knew.
    fn lose_majority(&mut self) {
        let voters = self.newest_voters();
        if voters.iter().any(|node| self.cluster.is_paused(*node)) {
            return;
        }
        for node in voters {
            if let Some(process) = self.cluster.process(node) {
                self.cluster.crash(node);
                self.forget(process);
                self.plan_start(node);
            }
            self.cluster.lose_record(node);
        }
        // Where the files list other members too, those may found a cluster without hearing of this one.
        self.cluster.allow_other_cluster();
        self.report.lost_majorities += 1;
        // They are replaced all together, by an operator.
        self.lost.clear();
        let after = self.plan.settings.lease * 12;
        self.cluster.plan(after, Act::Recover);
    }

    pub(super) fn newest_voters(&self) -> Vec<NodeId> {
        let newest = self.newest_view_config();
        let voters =
            newest.map(|view_config| view_config.voters.iter().map(|its| its.node).collect());
        voters.unwrap_or_default()
    }

    /// The newest view that any disk has.
    pub(super) fn newest_view_config(&self) -> Option<&ViewConfig> {
        let members = self.cluster.members();
        let disks =
            members.filter_map(|node| self.cluster.disk(node)?.voter.as_ref()?.view_config());
        disks.max_by_key(|view_config| view_config.epoch)
    }

    /// The view whose voters may go on, as far as disks tell; `None` where no majority of any view's
    /// voters remembers what it promised, but for views that others have followed. A voter that has
    /// endorsed a later view does not count: it renews leases under that view only.
    fn living(&self) -> Option<&ViewConfig> {
        let voters = || {
            let members = self.cluster.members();
            members.filter_map(|node| self.cluster.disk(node)?.voter.as_ref())
        };
        let certified = voters().filter_map(|voter| voter.certified_view_config());
        let newest = certified.map(|view_config| view_config.epoch).max();
        let serves = |its: Voter, view_config: &ViewConfig| {
            let is_first = view_config.parent == view_config.cluster;
            self.memory_of(its).is_some_and(|record| {
                // A voter without any endorsement is a new voter, or gave a founding up.
                let latest = record.epoch();
                latest.map_or(!is_first, |latest| latest <= view_config.epoch)
            })
        };
        let mut view_configs = voters()
            .filter_map(|voter| voter.endorsed.as_ref())
            .flat_map(|view_change| [Some(&view_change.view_config), view_change.parent.as_ref()])
            .flatten()
            .filter(|view_config| Some(view_config.epoch) >= newest);
        view_configs.find(|view_config| view_config.has_majority(|its| serves(its, view_config)))
    }

    /// What a voter remembers; `None` if it has lost its state.
    pub(super) fn memory_of(&self, voter: Voter) -> Option<&VoterRecord> {
        let record = self.cluster.disk(voter.node)?.voter.as_ref()?;
        (record.birth == voter.birth).then_some(record)
    }

    /// The clusters that members remember.
    fn remembered(&self) -> BTreeSet<ClusterId> {
        let members = self.cluster.members();
        let disks = members.filter_map(|node| self.cluster.disk(node));
        disks
            .filter_map(|disk| disk.affiliation.cluster_id())
            .collect()
    }

    /// The newest cluster that a member remembers, or else the one that an operator has abandoned and
    /// that has no other in its place yet.
    fn newest_cluster(&self) -> Option<ClusterId> {
        let members = self.cluster.members();
        let disks: Vec<&Record> = members.filter_map(|node| self.cluster.disk(node)).collect();
        let newest = |cluster: fn(&Affiliation) -> Option<ClusterId>| {
            let its = disks
                .iter()
                .filter_map(|disk| Some((disk.epoch, cluster(&disk.affiliation)?)));
            its.max().map(|(_, cluster)| cluster)
        };
        newest(Affiliation::cluster_id).or_else(|| newest(Affiliation::abandoned))
    }

    /// The cluster that the file of `node` has to name: where it lists nobody that remembers one, and
    /// others do, no rule keeps these from founding a second one beside it.
    pub(super) fn cluster_to_name(&self, node: NodeId) -> Option<ClusterId> {
        let disk = |node: &NodeId| self.cluster.disk(*node);
        let cluster = |node: &NodeId| disk(node)?.affiliation.cluster_id();
        let listed = self.cluster.listed().iter().chain([&node]);
        let has_permit = disk(&node).is_some_and(|disk| disk.affiliation.permit.is_some());
        let is_blank = !has_permit && listed.filter_map(cluster).next().is_none();
        let clusters = self.remembered();
        clusters.first().copied().filter(|_| is_blank)
    }

    /// `distlock recover` at every voter that the files list, where it is certain that a majority has
    /// lost its state, and somebody remembers which cluster that was; and at those that remember an
    /// older one. Where the files have got other voters since an operator said so, some of them were
    /// not told. Returns whether it was done.
    ///
    /// # Errors
    ///
    /// If no fault took the states of a majority: then the members themselves have lost it. Or if no
    /// member asks for an operator though no faults happen any more.
    pub(super) fn recover(&mut self) -> Result<bool, Violation> {
        let Some(cluster) = self.newest_cluster() else {
            return Ok(false);
        };
        let voters = self.cluster.voters().clone();
        let stands_still = |node: &NodeId| self.cluster.is_paused(*node);
        if self.living().is_some() || voters.iter().any(stands_still) {
            return Ok(false);
        }
        if !self.was_majority_lost() {
            let now = self.cluster.now();
            let what = "no majority remembers, and never did a majority lose its state";
            return Err(violation!(now, Progress, "{cluster}: {what}"));
        }
        if self.calm && !self.is_recovery_asked_for() {
            let now = self.cluster.now();
            let what = "no majority remembers, and no member says so";
            return Err(violation!(now, Progress, "{cluster}: {what}"));
        }
        self.cluster
            .say(format_args!("{voters:?} abandon {cluster}"));
        for &node in &voters {
            self.recover_at(node, Some(cluster));
        }
        let is_older = |node: &NodeId| {
            let disk = self.cluster.disk(*node);
            let theirs = disk.and_then(|disk| disk.affiliation.cluster_id());
            theirs.is_some_and(|theirs| theirs != cluster) && !self.cluster.is_paused(*node)
        };
        let older: Vec<NodeId> = self.cluster.members().filter(is_older).collect();
        for node in older {
            self.recover_at(node, None);
        }
        self.cluster.allow_other_cluster();
        self.report.recoveries += 1;
        Ok(true)
    }

    /// Whether the status of some member asks for an operator. It does where too few voters have their
    /// states; where other members remember a cluster and this one is in none; and where a voter has not
    /// got the operator's word yet.
    fn is_recovery_asked_for(&self) -> bool {
        let mut overviews = self
            .cluster
            .members()
            .filter_map(|it| self.cluster.quorum(it));
        overviews.any(|overview| {
            let lost = overview.missing.iter();
            let lost = lost.filter(|its| its.why == Absence::StateLost).count();
            let founding = overview.founding.as_ref();
            !overview.is_ok()
                && (lost > 0 && 2 * lost >= overview.voters.len()
                    || founding.is_some_and(|its| !its.remember.is_empty())
                    || founding.is_some_and(|its| !its.without_permit.is_empty()))
        })
    }

    /// `distlock recover` at one host, which starts again.
    fn recover_at(&mut self, node: NodeId, abandoned: Option<ClusterId>) {
        if let Some(process) = self.cluster.process(node) {
            self.cluster.crash(node);
            self.forget(process);
        }
        let voters = self.cluster.voters();
        let record = match self.cluster.disk(node) {
            Some(record) => record.recover(abandoned, voters),
            None => abandoned.map(|abandoned| Record::recover_lost(abandoned, voters)),
        };
        self.cluster
            .put_record(node, record.expect("a cluster is named"));
        self.cluster.plan(Duration::ZERO, Act::Start(node));
    }

    /// Faults have stopped: an operator sees to it that the group comes to a view of all members,
    /// where that takes a file or a word.
    pub(super) fn repair(&mut self) -> Result<(), Violation> {
        let all: BTreeSet<NodeId> = self.members().into_iter().collect();
        let voters = self.cluster.voters().clone();
        self.cluster.list(all, voters);
        for node in self.members() {
            if self.cluster.has_old_file(node) {
                self.restart(node)?;
            }
        }
        for _ in 0..REPAIRS {
            let lease = self.cluster.lease();
            let end = self.cluster.now() + (FOUNDING + lease * 8) * 2;
            while !self.are_together()
                && let Some(turn) = self.cluster.next(end)?
            {
                self.take(turn)?;
            }
            // What somebody was told to change before may come only now.
            let end = self.cluster.now() + FOUNDING * 4;
            while self.outstanding().next().is_some()
                && let Some(turn) = self.cluster.next(end)?
            {
                self.take(turn)?;
            }
            let end = self.cluster.now() + lease * 4;
            while let Some(turn) = self.cluster.next(end)? {
                self.take(turn)?;
            }
            if self.are_together() {
                return Ok(());
            }
            if !self.recover()? && !self.bring_back() {
                self.add_all()?;
            }
        }
        Ok(())
    }

    /// `distlock recover` at members that remember another cluster than the one that lives: they join
    /// that as new ones. Returns whether there were any.
    fn bring_back(&mut self) -> bool {
        let Some(cluster) = self.living().map(|view_config| view_config.cluster) else {
            return false;
        };
        let remembers_other = |node: &NodeId| {
            let disk = self.cluster.disk(*node);
            let theirs = disk.and_then(|disk| disk.affiliation.cluster());
            theirs.is_some_and(|theirs| theirs != cluster)
        };
        let strayed: Vec<NodeId> = self.cluster.members().filter(remembers_other).collect();
        for &node in &strayed {
            self.recover_at(node, None);
        }
        !strayed.is_empty()
    }

    /// Adds the members that are in no view to one that others are in. A host carries one change at a
    /// time, so that the rest may have to wait for the next repair.
    fn add_all(&mut self) -> Result<(), Violation> {
        let view = |node: &NodeId| self.cluster.node(*node).and_then(Node::view);
        let (there, missing): (Vec<NodeId>, Vec<NodeId>) = self
            .members()
            .into_iter()
            .partition(|node| view(node).is_some());
        for (&host, node) in there.iter().zip(missing) {
            let change = Change::Add(node, address(node));
            self.cluster.change(host, change)?;
            if self.cluster.process(node).is_none() {
                self.plan_start(node);
            }
        }
        Ok(())
    }
}

pub(super) fn voters_of(overrides: &MembershipOverrides) -> usize {
    overrides.voters.difference(&overrides.removed).count()
}

/// Where a member is: datagrams go by its number here.
fn address(node: NodeId) -> String {
    format!("udp:127.0.0.1:{node}")
}
