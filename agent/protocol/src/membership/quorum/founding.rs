//! Founding a cluster: how members agree that it is the first under their group's name.
//!
//! Safety: two clusters of one name never come of any files, whichever hosts have which of them.
//!
//! 1. *Found*: the lowest voter of a file proposes a cluster when **every member that the file
//!    lists** is heard, never was in a cluster, and has been up for longer than any lease that an
//!    incarnation before could have renewed; and when nobody is heard that is in a cluster.
//! 2. *Accept*: a listed member, on its disk, if it never was in a cluster and hears of no other.
//! 3. *Complete*: a voter that has accepted, and knows that all have, endorses the first view.
//! 4. *Live*: all voters have completed; or a majority has, and each of these has heard the others
//!    with new births: so those lost their states, and can never refuse what they accepted.
//!    A voter that has completed takes the word of any member, too: where other voters are away, or
//!    have lost their states since, it could not find that out again.
//!
//! A voter that has accepted and not completed may refuse, and counts that on its disk. A founding
//! that was refused by a voter can never be live: the others give it up, and count that too. Nobody
//! else gives up, and a member of a live cluster never does. So a member that has accepted and does not
//! vote offers the founding to the voters itself, if nothing has come of it: the founder may have lost
//! its state, and no other voter know of it.
//!
//! Weaker rules fail. A majority of the listed members: two clusters without any loss, where a list
//! more than doubles. Dropping an accepted founding without counting: stuck, or a late message makes
//! it live. To let a majority complete while the others may have refused: two clusters, as a refusal
//! may be on its way from a voter that has lost its state since.
//!
//! Where a cluster's voters have lost their states, `recover` leaves a *permit* at each voter of the
//! file, which names these voters: with the same one at all of them, these alone accept, and members of
//! the abandoned cluster may be heard, and join the new one, as that names the one it abandons. Where a
//! file names other voters by then, nobody founds by it: with other files, a word that was given once
//! could become two clusters.

mod proposal;
mod report;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::affiliation::{Affiliation, Founding, Membership, Party, Permit, Standing};
use super::config::QuorumConfig;
use super::message::{FoundingStatus, QuorumMessage, Stance};
use super::outbox::Outbox;
use super::view_config::{Digest, Voter};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::membership::greeting::first_8;
use crate::membership::{Action, Member};
use crate::time::Time;

/// How often in a lease's time a member says how it stands to those who found with it.
const STATUSES: u32 = 10;
/// For how many leases a voter keeps to what it has accepted, before it may refuse.
const PATIENCE: u32 = 4;
/// For how many leases a cluster that was heard of counts as heard. Its members say so once a lease.
const HEARD: u32 = 3;
/// What [`FoundingPart::chance`] is below.
const CHANCES: u32 = 256;
/// How many members that are not in the file are remembered.
const MAX_UNLISTED: usize = 1024;

/// One process's part in founding.
#[derive(Clone, Debug, Hash)]
pub(super) struct FoundingPart {
    me: Member,
    own: Affiliation,
    /// Whether `own` is on disk as it is. Before, nothing is said of it.
    saved: bool,
    /// The highest epoch of a former incarnation.
    known: Epoch,
    /// The longest lease that the voter here remembers.
    longest: Duration,
    started: Time,
    /// Since when the present founding is accepted, in this incarnation.
    accepted_at: Time,
    /// When this member may found again, after it has given up.
    founds_at: Time,
    heard: BTreeMap<NodeId, Heard>,
    /// The clusters that others are in, and when they last said so.
    clusters: BTreeMap<NodeId, (Digest, Time)>,
    /// When this member says next how it stands: to those who found with it, and to all.
    say_at: Time,
    say_to_all_at: Time,
    /// What it said last.
    told: Option<(Stance, Vec<NodeId>)>,
}

#[derive(Clone, Debug, Hash)]
struct Heard {
    at: Time,
    status: FoundingStatus,
}

/// What has become of a founding that this member accepted.
#[derive(Debug)]
pub(super) enum Progress {
    /// All have accepted: the voter here endorses it.
    Complete(Box<Founding>),
    /// It is the group's cluster from now on.
    Live(Digest),
    /// It never will be: the voter here forgets it.
    GivenUp(Digest),
}

impl FoundingPart {
    pub(super) fn new(
        me: Member,
        own: Affiliation,
        (known, longest): (Epoch, Duration),
        now: Time,
    ) -> Self {
        Self {
            me,
            own,
            saved: true,
            known,
            longest,
            started: now,
            accepted_at: now,
            founds_at: now,
            heard: BTreeMap::new(),
            clusters: BTreeMap::new(),
            say_at: now,
            say_to_all_at: now,
            told: None,
        }
    }

    /// This member lives anew; what it has heard is true still.
    pub(super) fn begin_anew(&mut self, now: Time, me: Member) {
        self.me = me;
        self.say_at = now;
        self.say_to_all_at = now;
    }

    /// This member's incarnation.
    pub(super) fn incarnation(&self) -> Incarnation {
        self.me.incarnation
    }

    /// Somebody may not know how this member stands.
    pub(super) fn speak_up(&mut self, now: Time) {
        (self.say_at, self.say_to_all_at) = (now, now);
    }

    pub(super) fn affiliation(&self) -> &Affiliation {
        &self.own
    }

    /// The voter that this member is, should it vote.
    pub(super) fn voter(&self) -> Voter {
        Voter {
            node: self.me.node,
            birth: self.own.birth,
        }
    }

    /// Whether this member shall vote in what it has accepted.
    pub(super) fn founds_as_voter(&self) -> bool {
        let accepted = self.own.accepted();
        accepted.is_some_and(|founding| founding.has_voter(self.me.node))
    }

    fn save(&mut self, out: &mut Outbox) {
        self.saved = false;
        self.say_at = Time::ZERO;
        out.act(Action::PersistAffiliation(Box::new(self.own.clone())));
    }

    /// The last [`Action::PersistAffiliation`] is on disk.
    pub(super) fn persisted(&mut self) {
        self.saved = true;
    }

    /// This member is in that cluster from now on, where these vote. Nothing is written if that is
    /// on disk already.
    pub(super) fn join(&mut self, membership: Membership, out: &mut Outbox) {
        let is_known = self.own.membership().is_some_and(|its| {
            its.cluster == membership.cluster && its.voters == membership.voters
        });
        if !is_known {
            self.own.standing = Standing::Member(membership);
            self.own.permit = None;
            self.save(out);
        }
    }

    /// This member leaves its cluster for that one, in which it has endorsed nothing. It gets another
    /// birth, so that no voter takes it for the one that endorsed the views of the former cluster.
    pub(super) fn follow(&mut self, membership: Membership, out: &mut Outbox) {
        let latest = self.own.birth.max(self.me.incarnation);
        self.own.birth = Incarnation(latest.0.saturating_add(1));
        self.join(membership, out);
    }

    /// Somebody is in that cluster.
    pub(super) fn hear_of_cluster(&mut self, now: Time, from: NodeId, cluster: Digest) {
        if self.clusters.len() < MAX_UNLISTED || self.clusters.contains_key(&from) {
            self.clusters.insert(from, (cluster, now));
        }
    }

    /// There has been that epoch: whatever is founded begins above it.
    pub(super) fn hear_of_epoch(&mut self, epoch: Epoch) {
        self.known = self.known.max(epoch);
    }

    /// Another member says how it stands.
    pub(super) fn hear(&mut self, now: Time, from: NodeId, status: FoundingStatus) {
        self.hear_of_epoch(status.known);
        let known = self.heard.get(&from);
        let is_old = known.is_some_and(|known| {
            let known = &known.status;
            (status.incarnation, status.refusals, status.running_for)
                < (known.incarnation, known.refusals, known.running_for)
        });
        if is_old || (known.is_none() && self.heard.len() >= MAX_UNLISTED) {
            return;
        }
        if let Stance::Member(cluster) = status.stance {
            self.hear_of_cluster(now, from, cluster);
        } else {
            self.clusters.remove(&from);
        }
        self.heard.insert(from, Heard { at: now, status });
    }

    /// A founder, or a voter of what it founds, asks for this member's word.
    pub(super) fn offered(
        &mut self,
        now: Time,
        (from, founding): (NodeId, Founding),
        config: &QuorumConfig,
        out: &mut Outbox,
    ) {
        if let Standing::Member(membership) = &self.own.standing
            && membership.cluster != founding.view_config.cluster
        {
            // Otherwise it might come back as one that can still accept.
            if !self.saved {
                return;
            }
            // Members of a view do not say by themselves how they stand to foundings.
            let stance = Stance::Member(membership.cluster);
            let status = self.status(now, config, (stance, Vec::new()));
            return out.send(from, QuorumMessage::Founding(Box::new(status)));
        }
        let party = founding.party(self.me.node);
        let is_for_me = party.is_some_and(|party| {
            (party.birth, party.refusals) == (self.own.birth, self.own.refusals)
        });
        let may = self.own.standing == Standing::New
            && self.saved
            && is_for_me
            && config.cluster.is_none()
            && founding.abandons == self.own.abandoned()
            && self.is_for_voters(founding.voters())
            && founding.is_sound(&config.group)
            && self.others_in_clusters(now, config).next().is_none();
        if may && founding.longest < config.lease {
            // It was made before this file had such a lease. Who waits for this member's word is to know.
            if founding.has_voter(self.me.node) {
                self.refuse(out);
            }
        } else if may {
            self.own.standing = Standing::Accepted(Box::new(founding));
            self.own.permit = None;
            self.accepted_at = now;
            self.save(out);
        }
    }

    /// From now on this member accepts nothing that was made before.
    fn refuse(&mut self, out: &mut Outbox) {
        self.own.standing = Standing::New;
        self.own.refusals = self.own.refusals.saturating_add(1);
        self.save(out);
    }

    /// Whether the operator's word, if there is one, was given to these voters.
    fn is_for_voters(&self, voters: impl Iterator<Item = NodeId>) -> bool {
        let permit = self.own.permit.as_ref();
        permit.is_none_or(|permit| permit.voters.iter().copied().eq(voters))
    }

    /// Those heard lately that are in a cluster, other than one that an operator has abandoned.
    fn others_in_clusters<'a>(
        &'a self,
        now: Time,
        config: &QuorumConfig,
    ) -> impl Iterator<Item = (NodeId, Digest)> + 'a {
        let window = config.lease * HEARD;
        let abandoned = self.own.abandoned();
        let clusters = self.clusters.iter();
        clusters.filter_map(move |(&node, &(cluster, at))| {
            let counts = now < at + window && Some(cluster.id()) != abandoned;
            counts.then_some((node, cluster))
        })
    }

    /// What has become of the founding that was accepted here. `completed`: what the voter here has
    /// endorsed, and whether that is on disk.
    pub(super) fn progress(
        &mut self,
        now: Time,
        completed: Option<(Digest, bool)>,
        lease: Duration,
        out: &mut Outbox,
    ) -> Option<Progress> {
        let founding = self.own.accepted().filter(|_| self.saved)?;
        let cluster = founding.view_config.cluster;
        let refuses = founding.view_config.voters.iter().any(|voter| {
            let status = self.status_of(voter.node);
            let party = founding.party(voter.node);
            status.zip(party).is_some_and(|(status, party)| {
                // One that is in another cluster has refused it, or never heard of it, and never will accept it.
                let is_elsewhere =
                    matches!(status.stance, Stance::Member(theirs) if theirs != cluster);
                let has_refused = status.refusals > party.refusals || is_elsewhere;
                status.birth == party.birth && has_refused
            })
        });
        let votes = founding.has_voter(self.me.node);
        let voters_gone = !votes
            && founding
                .view_config
                .voters
                .iter()
                .all(|voter| self.is_reborn(*voter));
        let has_begun = completed.is_some();
        let is_impatient = votes && !has_begun && now >= self.refuses_at(founding, lease);
        if refuses || voters_gone || is_impatient {
            let pause = lease * 2 * self.chance(cluster) / CHANCES;
            self.founds_at = now + pause;
            self.refuse(out);
            return Some(Progress::GivenUp(cluster));
        }
        if !votes {
            return None;
        }
        let accepted = |party: &Party| {
            let status = self.status_of(party.node);
            party.node == self.me.node
                || status.is_some_and(|status| {
                    status.birth == party.birth && status.stance.accepted() == Some(cluster)
                })
        };
        match completed {
            None if founding.parties.iter().all(accepted) => {
                Some(Progress::Complete(Box::new(founding.clone())))
            }
            Some((_, true)) if self.is_live(founding) => Some(Progress::Live(cluster)),
            _ => None,
        }
    }

    /// Whether somebody is in it, or all voters have completed it, or a majority, each of which knows
    /// that the others lost their states. This one has.
    fn is_live(&self, founding: &Founding) -> bool {
        let view_config = &founding.view_config;
        if self.has_member(view_config.cluster) {
            return true;
        }
        let is_reborn = |voter: &Voter| self.is_reborn(*voter);
        let reborn: BTreeSet<NodeId> = {
            let reborn = view_config.voters.iter().filter(|voter| is_reborn(voter));
            reborn.map(|voter| voter.node).collect()
        };
        let knows = |status: &FoundingStatus| reborn.iter().all(|it| status.reborn.contains(it));
        let completed = |voter: Voter| {
            let status = self.status_of(voter.node);
            voter == self.voter()
                || status.is_some_and(|status| {
                    status.stance == Stance::Completed(view_config.cluster)
                        && status.birth == voter.birth
                        && knows(status)
                })
        };
        let all = view_config.voters.iter();
        let mut rest = all.filter(|voter| !reborn.contains(&voter.node));
        view_config.has_majority(completed) && rest.all(|voter| completed(*voter))
    }

    /// Whether somebody was heard that is in that cluster: then it is live, for good.
    fn has_member(&self, cluster: Digest) -> bool {
        self.clusters.values().any(|(its, _)| *its == cluster)
    }

    /// Whether that voter was heard with another birth: it has lost its state.
    fn is_reborn(&self, voter: Voter) -> bool {
        let status = self.status_of(voter.node);
        voter.node != self.me.node && status.is_some_and(|status| status.birth != voter.birth)
    }

    /// The same, and it was heard lately.
    pub(super) fn is_back_without_state(&self, now: Time, voter: Voter, lease: Duration) -> bool {
        let heard = self.heard.get(&voter.node);
        heard.is_some_and(|its| now < its.at + lease * HEARD) && self.is_reborn(voter)
    }

    /// Voters that have lost their states since another one completed their founding, if those that are left are no
    /// majority: nobody gives it up, and it never goes live. Also that other one, and the cluster. `completed`: what
    /// the voter here has completed.
    pub(super) fn lost_voters(
        &self,
        now: Time,
        completed: Option<Digest>,
        lease: Duration,
    ) -> Option<(NodeId, Digest, Vec<NodeId>)> {
        let heard = self.heard.iter();
        let lately = heard.filter(|(_, its)| now < its.at + lease * HEARD);
        let others = lately.filter_map(|(&node, its)| match its.status.stance {
            Stance::Completed(cluster) => Some((node, cluster, its.status.reborn.as_slice())),
            _ => None,
        });
        let mine = completed.map(|cluster| (self.me.node, cluster, [].as_slice()));
        mine.into_iter()
            .chain(others)
            .find_map(|(node, cluster, reborn)| match self.own.accepted() {
                Some(founding) if founding.view_config.cluster == cluster => {
                    let view_config = &founding.view_config;
                    let is_lost = |voter: &Voter| self.is_back_without_state(now, *voter, lease);
                    let lost = view_config.voters.iter().filter(|voter| is_lost(voter));
                    let is_open = view_config.has_majority(|voter| !is_lost(&voter));
                    (!is_open).then(|| (node, cluster, lost.map(|voter| voter.node).collect()))
                }
                None if self.own.membership().is_none() && reborn.contains(&self.me.node) => {
                    Some((node, cluster, reborn.to_vec()))
                }
                _ => None,
            })
    }

    fn status_of(&self, node: NodeId) -> Option<&FoundingStatus> {
        self.heard.get(&node).map(|heard| &heard.status)
    }

    /// When a voter may refuse what it has accepted.
    fn refuses_at(&self, founding: &Founding, lease: Duration) -> Time {
        let part = lease * 2 * self.chance(founding.view_config.cluster) / CHANCES;
        self.accepted_at + lease * PATIENCE + part
    }

    /// Another number below [`CHANCES`] for each member and founding: two founders, with different
    /// files, do not get in each other's way again and again.
    fn chance(&self, cluster: Digest) -> u32 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&cluster.0);
        hasher.update(&self.me.node.as_u16().to_be_bytes());
        hasher.update(&self.me.incarnation.0.to_be_bytes());
        u32::try_from(first_8(hasher.finalize().as_bytes()) % u64::from(CHANCES)).unwrap_or(0)
    }

    /// Says how this member stands, and repeats what is missing of a founding. `met`: those that it
    /// has talked to, whether its file lists them or not. Nothing is said in a view: there others are
    /// told of the cluster itself.
    pub(super) fn announce(
        &mut self,
        now: Time,
        (config, completed): (&QuorumConfig, Option<Digest>),
        met: impl Iterator<Item = NodeId>,
        out: &mut Outbox,
    ) {
        if !self.saved {
            return;
        }
        let stance = match &self.own.standing {
            Standing::New => Stance::New,
            Standing::Member(membership) => Stance::Member(membership.cluster),
            Standing::Accepted(founding) => match completed {
                Some(its) if its == founding.view_config.cluster => Stance::Completed(its),
                _ => Stance::Accepted(founding.view_config.cluster),
            },
        };
        let accepted = self.own.accepted();
        let of_voters = accepted.map(|founding| &founding.view_config.voters);
        let reborn = of_voters
            .into_iter()
            .flatten()
            .filter(|it| self.is_reborn(**it));
        let reborn: Vec<NodeId> = reborn.map(|voter| voter.node).collect();
        let is_news = self.told.as_ref() != Some(&(stance, reborn.clone()));
        let to_all = is_news || now >= self.say_to_all_at;
        if !to_all && now < self.say_at {
            return;
        }
        self.say_at = now + config.lease / STATUSES;
        if to_all {
            self.say_to_all_at = now + config.lease;
        }
        let votes = config.voters.contains(&self.me.node) || self.founds_as_voter();
        let status = self.status(now, config, (stance, reborn.clone()));
        self.told = Some((stance, reborn));
        let is_member = matches!(stance, Stance::Member(_));
        let mut peers: BTreeSet<NodeId> = met.chain(config.members.iter().copied()).collect();
        peers.remove(&self.me.node);
        for peer in peers {
            let founds = |founding: &Founding| founding.has_voter(peer);
            let matters = !is_member
                && (votes
                    || config.voters.contains(&peer)
                    || self.own.accepted().is_some_and(founds));
            if to_all || matters {
                out.send(peer, QuorumMessage::Founding(Box::new(status.clone())));
            }
        }
        if let Some(founding) = self.own.accepted() {
            let cluster = founding.view_config.cluster;
            let votes = founding.has_voter(self.me.node);
            let is_overdue = now >= self.accepted_at + config.lease * PATIENCE;
            let is_to_hear = |party: &&Party| {
                let asks = votes || (is_overdue && founding.has_voter(party.node));
                party.node != self.me.node && asks
            };
            for party in founding.parties.iter().filter(is_to_hear) {
                let known = self.status_of(party.node);
                if known.is_none_or(|known| known.stance.accepted() != Some(cluster)) {
                    let offer = QuorumMessage::Found(Box::new(founding.clone()));
                    out.send(party.node, offer);
                }
            }
        }
    }

    fn status(
        &self,
        now: Time,
        config: &QuorumConfig,
        (stance, reborn): (Stance, Vec<NodeId>),
    ) -> FoundingStatus {
        FoundingStatus {
            incarnation: self.me.incarnation,
            birth: self.own.birth,
            refusals: self.own.refusals,
            stance,
            permit: self.own.permit.as_ref().map(Permit::id),
            longest: self.own_longest(config),
            running_for: now.since(self.started),
            known: self.known,
            reborn,
            voters: voters_of(config),
            members: digest_of(config),
        }
    }

    /// When there may be something to do: nothing before what was accepted is on disk.
    pub(super) fn next_timeout(&self, now: Time, lease: Duration) -> Option<Time> {
        if !self.saved {
            return None;
        }
        let refuses_at = self.own.accepted().map(|its| self.refuses_at(its, lease));
        let mut next = self.say_at.min(self.say_to_all_at);
        if self.founds_at > now {
            next = next.min(self.founds_at);
        }
        let refuses_at = refuses_at.filter(|at| *at > now && self.founds_as_voter());
        Some(refuses_at.map_or(next, |at| next.min(at)))
    }
}

fn voters_of(config: &QuorumConfig) -> Vec<NodeId> {
    config.voters.iter().copied().collect()
}

/// Stands for the members of a file, of which there may be many.
fn digest_of(config: &QuorumConfig) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for node in &config.members {
        hasher.update(&node.as_u16().to_be_bytes());
    }
    first_8(hasher.finalize().as_bytes())
}
