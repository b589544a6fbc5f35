//! Whose leases a voter renews, and how long those may still be in use that it renewed.

use core::time::Duration;

use super::{Endorser, Heard, MAX_NEWCOMERS};
use crate::ids::{Epoch, NodeId};
use crate::membership::Member;
use crate::membership::quorum::coordinator::longest_lease;
use crate::membership::quorum::message::{QuorumMessage, Renew, Stage};
use crate::membership::quorum::outbox::Outbox;
use crate::membership::quorum::view_config::ViewConfig;
use crate::time::Time;

impl Endorser {
    /// For how long at least no lease was renewed here but those of the endorsed view's members.
    pub(in crate::membership::quorum) fn age(&self, now: Time) -> Duration {
        let others = self
            .renewed
            .iter()
            .filter(|(session, _)| !self.endorses_member(**session));
        let last = others.map(|(_, at)| *at).max().max(self.forgets_before);
        last.map_or(Duration::MAX, |last| now.since(last))
    }

    /// A member's renewal request. Returns whether it changes more than the lease.
    pub(in crate::membership::quorum) fn renew(
        &mut self,
        now: Time,
        from: NodeId,
        renew: &Renew,
        out: &mut Outbox,
    ) -> bool {
        let session = Member {
            node: from,
            incarnation: renew.session,
        };
        let before = self.heard.get(&from).map(Heard::standing);
        if !self.note_heard(now, session, renew) {
            return false;
        }
        let mut is_news = before != self.heard.get(&from).map(Heard::standing);
        if renew.left {
            is_news |= self.forget_incarnations_before(session);
        }
        if renew.stage >= Stage::Leaving {
            // It is inside of nothing, so that nobody need wait for its lease.
            self.renewed.remove(&session);
            if self.endorses_member(session) {
                self.leavers.insert(session);
            }
        }
        let endorsed = self.endorsed.as_ref();
        let renewing = endorsed.filter(|endorsed| {
            let view_config = &endorsed.view_change.view_config;
            view_config.has_member(session)
                && view_config.has_voter(self.me)
                && !self.leavers.contains(&session)
        });
        if renewing.is_some() {
            if renew.lease > self.longest_on_disk {
                // It is renewed when the disk knows of leases that long. The member asks again.
                self.asked = self.asked.max(renew.lease);
                return is_news;
            }
            if renew.lease < self.longest {
                self.longest_since = self.longest_since.max(renew.lease);
            } else {
                (self.longest, self.longest_at) = (renew.lease, Some(now));
            }
        }
        let answer = match renewing {
            Some(endorsed) => {
                self.renewed.insert(session, now);
                QuorumMessage::Renewed {
                    session: renew.session,
                    seq: renew.seq,
                    epoch: endorsed.view_change.view_config.epoch,
                    digest: endorsed.digest,
                }
            }
            None => {
                let own = endorsed.filter(|_| self.certified);
                let known = own.map(|endorsed| &endorsed.view_change.view_config);
                let newest = known.into_iter().chain(self.heard_of.as_deref());
                let newest = newest.max_by_key(|view_config| view_config.epoch);
                let news = newest.filter(|view_config| view_config.epoch > renew.epoch);
                QuorumMessage::Refused {
                    session: renew.session,
                    seq: renew.seq,
                    certified: news.map(|view_config| view_config.clone().into()),
                }
            }
        };
        out.send(from, answer);
        is_news
    }

    /// The incarnation of `session` says that the one before it left: so those before are inside of
    /// nothing. Returns whether one of them is a member yet.
    fn forget_incarnations_before(&mut self, session: Member) -> bool {
        let is_before = |its: &Member| its.node == session.node && *its < session;
        self.renewed.retain(|its, _| !is_before(its));
        let endorsed = self.endorsed.as_ref();
        let incarnation = endorsed.and_then(|endorsed| {
            endorsed
                .view_change
                .view_config
                .incarnation_of(session.node)
        });
        let old = incarnation.map(|incarnation| Member {
            incarnation,
            ..session
        });
        old.is_some_and(|old| is_before(&old) && self.leavers.insert(old))
    }

    /// Takes a renewal request in, unless it is older than what is known already.
    fn note_heard(&mut self, now: Time, session: Member, renew: &Renew) -> bool {
        let view_config = self
            .endorsed
            .as_ref()
            .map(|endorsed| &endorsed.view_change.view_config);
        let is_member = view_config
            .is_some_and(|view_config| view_config.incarnation_of(session.node).is_some());
        let is_known = self.heard.contains_key(&session.node);
        if !is_known && !is_member && self.heard.len() >= MAX_NEWCOMERS + members(view_config) {
            return false;
        }
        let heard = self.heard.entry(session.node).or_insert(Heard {
            incarnation: session.incarnation,
            seq: 0,
            at: now,
            answered: 0,
            answered_at: now,
            epoch: Epoch::ZERO,
            stage: Stage::Frozen,
            wants_view: false,
            left: false,
            change: None,
        });
        if session.incarnation < heard.incarnation {
            return false;
        }
        if session.incarnation > heard.incarnation {
            heard.incarnation = session.incarnation;
            (heard.seq, heard.answered, heard.answered_at) = (0, 0, now);
        }
        if renew.seq <= heard.seq {
            return false;
        }
        heard.seq = renew.seq;
        heard.at = now;
        if renew.answered > heard.answered {
            heard.answered = renew.answered;
            heard.answered_at = now;
        }
        heard.epoch = renew.epoch;
        heard.stage = renew.stage;
        heard.wants_view = renew.wants_view;
        heard.left = renew.left;
        heard.change.clone_from(&renew.change);
        true
    }

    fn endorses_member(&self, session: Member) -> bool {
        let view_config = self
            .endorsed
            .as_ref()
            .map(|endorsed| &endorsed.view_change.view_config);
        view_config.is_some_and(|view_config| view_config.has_member(session))
    }

    /// Whether no leases are in use but those of the endorsed view's members, and nobody waits for a
    /// lock delay.
    pub(in crate::membership::quorum) fn is_quiet(&self, now: Time) -> bool {
        self.pending.is_none() && self.age(now) >= longest_lease(self.longest) + self.lock_delay
    }

    /// The longest lease that may still run because it was renewed here.
    pub(in crate::membership::quorum) const fn longest(&self) -> Duration {
        self.longest
    }

    /// The longest lease that may be renewed here, which the disk has to know before.
    pub(in crate::membership::quorum) fn longest_allowed(&self) -> Duration {
        self.longest.max(self.lease).max(self.asked)
    }

    /// That much is on disk.
    pub(in crate::membership::quorum) const fn longest_is_on_disk(&mut self, longest: Duration) {
        self.longest_on_disk = longest;
    }

    /// When the longest leases are over, the longest of the shorter ones since take their place.
    /// That of the file alone would not do: members and voters may have read different ones.
    pub(super) fn shorten(&mut self, now: Time) {
        let is_over = |at: Time| at + longest_lease(self.longest) <= now;
        if self.lease < self.longest && self.longest_at.is_none_or(is_over) {
            self.longest = self.longest_since.max(self.lease);
            (self.longest_at, self.longest_since) = (Some(now), Duration::ZERO);
            self.asked = Duration::ZERO;
        }
    }
}

fn members(view_config: Option<&ViewConfig>) -> usize {
    view_config.map_or(0, |view_config| view_config.members.len())
}
