//! How a voter uses its log: it begins it, carries out what it wants done, and endorses what it decides.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::VoterRole;
use super::proposal::{step_of, voter_id};
use crate::membership::Action;
use crate::membership::quorum::log::{LogAction, LogInit, MakeLog, ViewLog, VoterId};
use crate::membership::quorum::message::QuorumMessage;
use crate::membership::quorum::outbox::Outbox;
use crate::membership::quorum::view_config::Voter;
use crate::time::Time;

impl<M: MakeLog> VoterRole<M> {
    /// A voter runs a log from its first endorsement on, of a cluster that is live.
    pub(super) fn start_log(&mut self, now: Time, out: &mut Outbox) {
        if self.log.is_some() || self.is_broken || !self.endorser.is_in_charge() {
            return;
        }
        let Some(endorsed) = self.endorser.endorsed() else {
            return;
        };
        let is_live = endorsed.view_change.parent.is_some() || self.endorser.certified().is_some();
        if !is_live {
            return;
        }
        let how = match (&self.record.log, &endorsed.view_change.parent) {
            (Some(record), _) => LogInit::Restored(Box::new(record.clone())),
            (None, None) => {
                let voters = endorsed.view_change.view_config.voters.iter();
                LogInit::Founded(voters.map(|it| voter_id(*it)).collect())
            }
            (None, Some(_)) => LogInit::Joined,
        };
        let mut actions = Vec::new();
        let me = voter_id(self.endorser.me);
        self.log = self.make.make(now, me, how, &mut actions);
        if self.log.is_none() {
            self.give_up_log("its record is damaged", out);
        }
        self.log_actions(now, actions, out);
        // What was decided, but not endorsed on disk, before the process ended.
        let decided = self.log.as_ref().and_then(ViewLog::decided);
        if let Some(view_change) = decided.and_then(|decided| step_of(&decided.proposal)) {
            self.endorse(now, view_change, out);
        }
    }

    fn give_up_log(&mut self, why: &'static str, out: &mut Outbox) {
        self.log = None;
        self.is_broken = true;
        out.act(Action::Broken(why));
    }

    pub(super) fn log_actions(&mut self, now: Time, actions: Vec<LogAction>, out: &mut Outbox) {
        for action in actions {
            match action {
                LogAction::Send(to, message) => {
                    if let Some(to) = self.voter_with(to) {
                        let from = self.endorser.me;
                        let message = QuorumMessage::Log { from, to, message };
                        out.send(to.node, message);
                    }
                }
                LogAction::Persist(record) => {
                    self.record.log = Some(record);
                    self.disk.log_waits = true;
                    self.put(out);
                }
                LogAction::Decided(decided) => {
                    if let Some(view_change) = step_of(&decided.proposal) {
                        self.endorse(now, view_change, out);
                    }
                }
                LogAction::LeaderChanged => {}
                LogAction::Broken(why) => self.give_up_log(why, out),
            }
        }
    }

    fn voter_with(&self, id: VoterId) -> Option<Voter> {
        self.voters().find(|voter| voter_id(*voter) == id)
    }
}
