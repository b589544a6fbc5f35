//! What the voters' leader proposes, and when.
//!
//! Suspicion alone removes nobody: a member goes when a majority of voters misses it, so that one
//! bad link never evicts. Changes are collected for a moment, so that five hosts that start
//! together are one view; somebody's leaving is not, as others may wait for it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::certificate::ViewChange;
use super::log::MAX_VOTERS;
use super::message::{Stage, Status};
use super::view_config::{Digest, ViewConfig, Voter};
use super::voter::endorser::{Endorsed, Endorser};
use crate::ids::{Epoch, NodeId};
use crate::membership::{Member, MembershipOverrides};
use crate::time::Time;

/// How long changes are collected.
const BATCH: Duration = Duration::from_millis(200);
/// Views are at least so far apart in the mean, so that epochs stay behind the seconds of the wall
/// clock, with which they begin: a second, also by a clock that is too fast by a tenth.
const PACE: Duration = Duration::from_millis(1125);
/// How many views may come ahead of that.
const AHEAD: u32 = 2;
/// For how long a cluster is not founded after the start of those who found it: by then the wall
/// clock has passed every epoch that one before can have come to, by more than a second, as epochs
/// are whole ones.
pub(super) const PASSES_EPOCHS: Duration = PACE.saturating_mul(AHEAD + 2);

#[derive(Clone, Debug, Hash)]
pub(super) struct Proposer {
    me: Member,
    lease: Duration,
    /// Since when this voter leads.
    leads_since: Option<Time>,
    /// When the changes that are needed are to be proposed.
    due: Option<Time>,
    /// When the next view would come if all had kept the pace, whoever proposed them.
    next_paced: Time,
    /// What was proposed last, and when.
    proposed: Option<(Epoch, Time)>,
    /// The epoch that the log was told is in force.
    told_installed: Option<Epoch>,
    /// When another voter was last asked to lead.
    handed_over: Option<Time>,
}

/// What the next view configuration should be.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) view_change: ViewChange,
    /// Whether others may be waiting for it.
    is_urgent: bool,
}

impl Proposer {
    /// `ahead`: how many epochs the newest that is known here is ahead of the wall clock. Where
    /// that is more than this process can have seen to, the clock is behind, and nothing is known
    /// of the pace.
    pub(super) fn new(me: Member, lease: Duration, ahead: u32, now: Time) -> Self {
        Self {
            me,
            lease,
            leads_since: None,
            due: None,
            next_paced: now + PACE * ahead.min(AHEAD + 1),
            proposed: None,
            told_installed: None,
            handed_over: None,
        }
    }

    pub(super) fn note_leadership(&mut self, now: Time, leads: bool) {
        if leads != self.leads_since.is_some() {
            self.leads_since = leads.then_some(now);
            self.due = None;
            self.proposed = None;
            self.told_installed = None;
        }
    }

    /// The view change to propose now, if any. `unresponsive`: members that do not come along with
    /// the newest view.
    pub(super) fn consider(
        &mut self,
        now: Time,
        voter: &Endorser,
        unresponsive: &BTreeSet<NodeId>,
    ) -> Option<ViewChange> {
        let wanted = self
            .leads_since
            .and_then(|since| self.next_step(now, since, voter, unresponsive));
        let Some(Wanted {
            view_change,
            is_urgent,
        }) = wanted
        else {
            self.due = None;
            return None;
        };
        let soon = if is_urgent { now } else { now + BATCH };
        let due = self.due.map_or(soon, |due| due.min(soon));
        self.due = Some(due);
        let waits = |(epoch, at): (Epoch, Time)| {
            epoch == view_change.view_config.epoch && now < at + self.lease / 2
        };
        if now < due || now < self.earliest() || self.proposed.is_some_and(waits) {
            return None;
        }
        Some(view_change)
    }

    /// It was accepted by the log.
    pub(super) fn note_proposed(&mut self, now: Time, epoch: Epoch) {
        self.proposed = Some((epoch, now));
        self.due = None;
    }

    /// A view was endorsed.
    pub(super) fn note_view(&mut self, now: Time) {
        self.next_paced = self.next_paced.max(now) + PACE;
    }

    /// What was to be proposed may be settled by what waits to be read.
    pub(super) fn begin_anew(&mut self) {
        self.due = None;
    }

    /// The log does not take it now.
    pub(super) fn note_refused(&mut self, now: Time) {
        self.due = Some(now + self.lease / 20);
    }

    /// The epoch of the newest view, if it has come into force everywhere, as far as the leader
    /// can tell, and the log does not know yet.
    pub(super) fn newly_installed(&mut self, voter: &Endorser, now: Time) -> Option<Epoch> {
        self.leads_since?;
        let newest = voter.certified()?;
        let epoch = newest.view_change.view_config.epoch;
        let is_news = self.told_installed != Some(epoch);
        if !is_news || !Census::new(now, voter, newest).is_installed() {
            return None;
        }
        self.told_installed = Some(epoch);
        Some(epoch)
    }

    /// Who shall lead instead of this voter, which is not to vote any more: a log does not let a
    /// leader remove itself. Not while a view is due, which would be lost.
    pub(super) fn successor(&mut self, now: Time, voter: &Endorser) -> Option<Voter> {
        self.leads_since.filter(|_| self.due.is_none())?;
        let lately = |at: Time| now.since(at) < self.lease / 2;
        let view_config = &voter.certified()?.view_change.view_config;
        let is_wanted = |node: &NodeId| view_config.overrides.wants_vote_of(*node);
        if is_wanted(&self.me.node) || self.handed_over.is_some_and(lately) {
            return None;
        }
        let others = view_config.voters.iter().copied();
        let mut others = others.filter(|it| *it != voter.me && voter.is_fresh(now, *it));
        let successor = others.find(|it| is_wanted(&it.node))?;
        self.handed_over = Some(now);
        Some(successor)
    }

    /// When the pace lets the next view come.
    fn earliest(&self) -> Time {
        self.next_paced - PACE * AHEAD
    }

    /// When to consider again, though nothing has happened.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let due = self.due?.max(self.earliest());
        let again = self
            .proposed
            .map_or(due, |(_, at)| due.max(at + self.lease / 2));
        Some(again)
    }

    /// What should follow the newest view, which must be certified: members that are missed go,
    /// those who came are let in, voters are replaced, and what another coordinator has left
    /// undone is done.
    fn next_step(
        &self,
        now: Time,
        leads_since: Time,
        voter: &Endorser,
        unresponsive: &BTreeSet<NodeId>,
    ) -> Option<Wanted> {
        let newest = voter.certified()?;
        let view_config = &newest.view_change.view_config;
        if !view_config.has_voter(voter.me) {
            return None;
        }
        let census = Census::new(now, voter, newest);
        let overrides = voter.wanted_book(now, view_config);
        let changes = census.changes(unresponsive, &overrides);
        let leads_lately = now < leads_since + self.lease / 2;
        if changes.left && leads_lately && census.misses_word_of(&changes.members) {
            // They may be about to say that nothing was lost with the one that leaves.
            return None;
        }
        let installed = census.is_installed();
        // One without members says nothing of the leases under those before it, whose majorities
        // must have a voter in common with the next.
        let voters = if installed && !view_config.members.is_empty() {
            self.next_voters(now, voter, view_config, &overrides)
        } else {
            None
        };
        let abandoned = view_config.coordinator != self.me
            && !installed
            && leads_since.max(newest.since()) + self.lease / 2 <= now;
        let is_needed = changes.any()
            || voters.is_some()
            || abandoned
            || census.somebody_wants_a_view()
            || overrides != view_config.overrides;
        if !is_needed {
            return None;
        }
        let unclean = changes.unclean(view_config, installed);
        let epoch = view_config.epoch.next()?;
        let members = changes.members.iter();
        let since = members.map(|its| view_config.member_since(*its).unwrap_or(epoch));
        let voters = voters.unwrap_or_else(|| view_config.voters.clone());
        let next = ViewConfig {
            coordinator: census.coordinator(self.me, &changes.members, &voters),
            cluster: view_config.cluster,
            epoch,
            parent: newest.digest,
            since: since.collect(),
            members: changes.members,
            voters,
            unclean,
            overrides,
            abandons: view_config.abandons.clone(),
        };
        Some(Wanted {
            view_change: ViewChange {
                parent: Some(view_config.clone()),
                view_config: next,
            },
            is_urgent: changes.left,
        })
    }

    /// The voters after the next change of one, if one is wanted: those who lost their state go
    /// first, and those who are not wanted and not there, as they are of no use; then the wanted
    /// ones that are there come; then the others that are not wanted go. They stand in for wanted
    /// ones that have not come: with fewer voters, fewer may fail, and one may at this moment.
    fn next_voters(
        &self,
        now: Time,
        voter: &Endorser,
        view_config: &ViewConfig,
        overrides: &MembershipOverrides,
    ) -> Option<Vec<Voter>> {
        let voters = &view_config.voters;
        let reborn = |it: &Voter| {
            let other = voter.others.get(&it.node);
            *it != voter.me && other.is_some_and(|other| other.status.voter.birth > it.birth)
        };
        let is_wanted = |node: &NodeId| overrides.wants_vote_of(*node);
        let unwanted = |it: &Voter| *it != voter.me && !is_wanted(&it.node);
        let absent = |it: &Voter| unwanted(it) && !voter.is_fresh(now, *it);
        let useless = voters.iter().position(reborn);
        let useless = useless.or_else(|| voters.iter().position(absent));
        let wanted = overrides.voters.iter().filter(|node| is_wanted(node));
        let comes = wanted.clone().find_map(|node| {
            let is_in = voters.iter().any(|it| it.node == *node);
            let status = &voter.others.get(node).filter(|_| !is_in)?.status;
            let endorsed = status.endorsed;
            let may_vote = endorsed.is_none_or(|its| its.cluster == view_config.cluster);
            (may_vote && voter.is_fresh(now, status.voter)).then_some(status.voter)
        });
        let mut voters = voters.clone();
        if useless.is_none()
            && voters.len() < MAX_VOTERS
            && let Some(comes) = comes
        {
            voters.push(comes);
            voters.sort_unstable();
            return Some(voters);
        }
        let is_spare = comes.is_some() || voters.len() > wanted.count();
        let spare = voters.iter().position(unwanted).filter(|_| is_spare);
        voters.remove(useless.or(spare)?);
        let there = voters.iter().filter(|it| voter.is_fresh(now, **it)).count();
        (2 * there > voters.len()).then_some(voters)
    }
}

/// What the voters of the newest view say of its members.
struct Census<'a> {
    now: Time,
    voter: &'a Endorser,
    view_config: &'a ViewConfig,
    digest: Digest,
    own: Status,
}

struct Changes {
    members: Vec<Member>,
    /// Those who are gone and did not leave.
    lost: Vec<NodeId>,
    left: bool,
    came: bool,
}

impl Changes {
    fn any(&self) -> bool {
        !self.lost.is_empty() || self.left || self.came
    }

    /// Those who are gone and did not leave, since the last view that came into force everywhere. One
    /// without members was in force nowhere: nobody has taken in what it had to tell.
    fn unclean(&self, view_config: &ViewConfig, installed: bool) -> Vec<NodeId> {
        let is_over = installed && !view_config.members.is_empty();
        let before = view_config.unclean.iter().filter(|_| !is_over);
        let unclean: BTreeSet<NodeId> = before.chain(&self.lost).copied().collect();
        unclean.into_iter().collect()
    }
}

impl<'a> Census<'a> {
    fn new(now: Time, voter: &'a Endorser, newest: &'a Endorsed) -> Self {
        Self {
            now,
            voter,
            view_config: &newest.view_change.view_config,
            digest: newest.digest,
            own: voter.own_status(now),
        }
    }

    /// The word of a voter who was heard lately, and speaks of the same view.
    fn status(&self, voter: Voter) -> Option<&Status> {
        if voter == self.voter.me {
            return Some(&self.own);
        }
        let other = self.voter.others.get(&voter.node)?;
        let same = other
            .status
            .endorsed
            .is_some_and(|its| its.digest == self.digest);
        let counts = same && self.voter.is_fresh(self.now, voter);
        Some(&other.status).filter(|_| counts)
    }

    fn majority_says(&self, what: impl Fn(&Status) -> bool) -> bool {
        self.view_config
            .has_majority(|voter| self.status(voter).is_some_and(&what))
    }

    fn anybody_says(&self, what: impl Fn(&Status) -> bool) -> bool {
        let mut statuses = self
            .view_config
            .voters
            .iter()
            .filter_map(|it| self.status(*it));
        statuses.any(what)
    }

    /// Who shall bring a view of these members and voters into force: the leader itself. If it leaves, it may be gone
    /// before that is done: then another voter that is there. Each by the incarnation in which it votes, which is not
    /// the one in which it is a member, if it was left out since and came back.
    fn coordinator(&self, leader: Member, members: &[Member], voters: &[Voter]) -> Member {
        let is_leaving = |its: &Member| its.node == leader.node && self.leaves(*its);
        if !self.view_config.members.iter().any(is_leaving) {
            return leader;
        }
        let mut stay = voters
            .iter()
            .filter(|voter| members.iter().any(|its| its.node == voter.node));
        let named = stay.find_map(|voter| {
            let incarnation = self.status(*voter)?.incarnation;
            let node = voter.node;
            Some(Member { node, incarnation })
        });
        named.unwrap_or(leader)
    }

    /// Whether anybody has heard that it leaves in order.
    fn leaves(&self, member: Member) -> bool {
        self.anybody_says(|status| status.leavers.contains(&member))
    }

    fn changes(&self, unresponsive: &BTreeSet<NodeId>, overrides: &MembershipOverrides) -> Changes {
        let mut changes = Changes {
            members: Vec::new(),
            lost: Vec::new(),
            left: false,
            came: false,
        };
        let newcomers = self.own.newcomers.iter().copied();
        let newcomers: Vec<Member> = newcomers
            .filter(|it| !overrides.removed.contains(&it.node))
            .filter(|it| self.majority_says(|status| status.newcomers.contains(it)))
            .collect();
        // Who has not yet got what the view began with may be the only one to stay.
        let mut staying = self
            .view_config
            .members
            .iter()
            .filter(|it| !self.leaves(**it))
            .peekable();
        let is_shared = staying.peek().is_some();
        let is_known = staying.all(|it| self.stage_of(*it) >= Some(Stage::Installed));
        for member in &self.view_config.members {
            let is_replaced = newcomers.iter().any(|it| it.node == member.node);
            if self.leaves(*member) {
                changes.left = true;
                if !(is_known && self.takes_nothing_along(*member, is_shared)) {
                    changes.lost.push(member.node);
                }
            } else if is_replaced
                || overrides.removed.contains(&member.node)
                || unresponsive.contains(&member.node)
                || self.majority_says(|status| status.suspects.contains(member))
            {
                changes.lost.push(member.node);
            } else {
                changes.members.push(*member);
            }
        }
        changes.came = !newcomers.is_empty();
        changes.members.extend(newcomers);
        changes.members.sort_unstable_by_key(|member| member.node);
        changes
    }

    /// Whether a leaving member, or its next incarnation, has said that its marks of abandoned locks
    /// are not lost with it. A leaver that was not heard here may not have said so. `is_shared`:
    /// whether a member stays that knows the marks of all.
    fn takes_nothing_along(&self, leaver: Member, is_shared: bool) -> bool {
        let heard = self.voter.heard(leaver.node);
        heard.is_some_and(|heard| {
            let leaves = match heard.stage {
                Stage::Leaving => true,
                Stage::LeavingWithSharedMarks => is_shared,
                _ => false,
            };
            heard.incarnation > leaver.incarnation && heard.left
                || heard.incarnation == leaver.incarnation && leaves
        })
    }

    /// How far a member has come in this view, as far as it was heard.
    fn stage_of(&self, member: Member) -> Option<Stage> {
        let heard = self.voter.heard(member.node)?;
        let is_in_it =
            heard.incarnation == member.incarnation && heard.epoch == self.view_config.epoch;
        is_in_it.then_some(heard.stage)
    }

    /// Whether this voter, which may have begun lately, has heard nothing yet of some members that
    /// stay.
    fn misses_word_of(&self, staying: &[Member]) -> bool {
        let is_heard = |member: &Member| {
            let heard = self.voter.heard(member.node);
            heard.is_some_and(|heard| heard.incarnation >= member.incarnation)
        };
        let mut staying = staying.iter();
        staying.any(|member| self.view_config.has_member(*member) && !is_heard(member))
    }

    /// Whether the view is in force in all its members, each with a lease under it. One that leaves
    /// does not say whether it was there.
    fn is_installed(&self) -> bool {
        let mut members = self.view_config.members.iter();
        members.all(|member| self.stage_of(*member) == Some(Stage::Leased))
    }

    fn somebody_wants_a_view(&self) -> bool {
        self.view_config.members.iter().any(|member| {
            self.voter.heard(member.node).is_some_and(|heard| {
                heard.incarnation == member.incarnation
                    && heard.epoch == self.view_config.epoch
                    && heard.wants_view
            })
        })
    }
}

#[cfg(test)]
mod tests;
