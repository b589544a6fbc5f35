//! A member's way from one view to the next: it stops, tells what it has, and goes on.

use alloc::sync::Arc;

use super::{Known, Phase, Session};
use crate::ids::{Epoch, NodeId};
use crate::lock::Summary;
use crate::membership::Action;
use crate::membership::quorum::message::QuorumMessage;
use crate::membership::quorum::outbox::Outbox;
use crate::membership::quorum::view_config::{Digest, ViewConfig};
use crate::time::Time;

impl Session {
    /// Whether [`Session::flush`] takes that view in.
    pub(in crate::membership::quorum) fn takes(
        &self,
        from: NodeId,
        view_config: &ViewConfig,
    ) -> bool {
        let is_newer = self.known.as_ref().is_none_or(|known| {
            view_config.epoch > known.view_config.epoch
                && view_config.cluster == known.view_config.cluster
        });
        view_config.coordinator.node == from
            && !self.is_over
            && self.goes_on_in(view_config)
            && is_newer
    }

    /// The coordinator says that this is certified: stop, and tell.
    pub(in crate::membership::quorum) fn flush(
        &mut self,
        from: NodeId,
        view_config: ViewConfig,
        out: &mut Outbox,
    ) {
        if !self.takes(from, &view_config) {
            return self.pass_over(from, &view_config, out);
        }
        self.ignorant.clear();
        out.act(Action::Freeze);
        out.act(Action::Persist(view_config.epoch));
        self.known = Some(Known {
            digest: view_config.digest(),
            view_config,
            phase: Phase::Persisting,
            leased: false,
        });
        // What was renewed under the view before counts no more.
        for renewal in &mut self.renewals {
            renewal.renewed.clear();
        }
        self.renew_at = Time::ZERO;
    }

    /// What follows from a view that this member does not take in. If it is stopped for that very view, it
    /// tells its summary again; if the view goes on without it, that is its end.
    fn pass_over(&mut self, from: NodeId, view_config: &ViewConfig, out: &mut Outbox) {
        if view_config.coordinator.node != from || self.is_over {
            return;
        }
        if !self.goes_on_in(view_config) {
            return self.end_if_excluded(view_config, out);
        }
        if let Some(known) = &self.known
            && known.digest == view_config.digest()
            && matches!(known.phase, Phase::Frozen)
        {
            // The summary was lost, or is late.
            out.act(Action::Summarise(view_config.view()));
        }
    }

    /// That this member takes part is on disk.
    pub(in crate::membership::quorum) fn persisted(&mut self, out: &mut Outbox) {
        if let Some(known) = &mut self.known
            && matches!(known.phase, Phase::Persisting)
        {
            known.phase = Phase::Frozen;
            out.act(Action::Summarise(known.view_config.view()));
        }
    }

    pub(in crate::membership::quorum) fn summarised(&self, summary: Summary, out: &mut Outbox) {
        let Some(known) = &self.known else { return };
        if matches!(known.phase, Phase::Frozen) {
            let message = QuorumMessage::Summary {
                epoch: known.view_config.epoch,
                digest: known.digest,
                summary,
            };
            out.send(known.view_config.coordinator.node, message);
        }
    }

    /// The coordinator says that it is in force.
    pub(in crate::membership::quorum) fn install(
        &mut self,
        from: NodeId,
        view: (Epoch, Digest),
        table: Summary,
        out: &mut Outbox,
    ) {
        let Some(known) = &mut self.known else { return };
        let awaited = (known.view_config.epoch, known.digest) == view
            && known.view_config.coordinator.node == from;
        if awaited && matches!(known.phase, Phase::Frozen) && !self.is_over {
            let view = Arc::new(known.view_config.view());
            let quarantines = table.quarantines();
            known.phase = Phase::Installed {
                view: Arc::clone(&view),
                quarantines,
            };
            self.was_lifted |= !quarantines;
            self.renew_at = Time::ZERO;
            self.overrides.read(&known.view_config, out);
            out.act(Action::Install(view, table));
        }
    }

    /// The coordinator says that no lock is in quarantine any more.
    pub(in crate::membership::quorum) fn lift(
        &mut self,
        from: NodeId,
        view: (Epoch, Digest),
        out: &mut Outbox,
    ) {
        let Some(known) = &mut self.known else { return };
        let is_known = (known.view_config.epoch, known.digest) == view
            && known.view_config.coordinator.node == from;
        if let Phase::Installed { quarantines, .. } = &mut known.phase
            && is_known
            && !self.is_over
            && core::mem::take(quarantines)
        {
            self.was_lifted = true;
            self.renew_at = Time::ZERO;
            out.act(Action::Lift);
        }
    }

    /// Whether this session is in `view_config`. An incarnation that was left out of a view is not
    /// the same session when it is let in again: what it was inside of may be others' by now.
    fn goes_on_in(&self, view_config: &ViewConfig) -> bool {
        let Some(since) = view_config.member_since(self.me) else {
            return false;
        };
        let known = self.known.as_ref();
        known.is_none_or(|known| since <= known.view_config.epoch)
    }

    pub(super) fn end_if_excluded(&mut self, view_config: &ViewConfig, out: &mut Outbox) {
        let Some(known) = &self.known else { return };
        if view_config.cluster == known.view_config.cluster
            && view_config.epoch > known.view_config.epoch
            && !self.goes_on_in(view_config)
            && !self.is_over
        {
            self.is_over = true;
            self.until = Time::ZERO;
            self.renewals.clear();
            out.act(Action::Excluded(view_config.epoch));
        }
    }
}
