//! What is seen to happen, of views.

use alloc::collections::BTreeSet;

use super::super::host::Host;
use super::super::{ANOTHER_LEADS, DEPARTED, NEXT_VIEW, OTHER_VOTERS, REPLACED, WAITED};
use super::Turn;
use crate::checkers::Process;
use crate::model::pool::Shared;
use distlock_protocol::NodeId;
use distlock_protocol::membership::View;
use distlock_protocol::membership::quorum::{ViewConfig, Voter};

impl Turn<'_> {
    /// A view has come into force; `certified`: the newest that is known to be certified there.
    pub(super) fn note_view(&mut self, view: &View, certified: Option<ViewConfig>) {
        let Some(first) = self.model.first.get() else {
            return;
        };
        if view.epoch <= first.epoch {
            return;
        }
        self.note(NEXT_VIEW);
        let departs = |host: &Host| host.running.as_ref().is_some_and(|it| it.departs);
        let has_departed =
            |host: &Shared<Host>| departs(host) && !view.nodes().any(|node| node == host.node());
        if self.state.hosts.iter().any(has_departed) {
            self.note(DEPARTED);
        }
        let Some(config) = certified.filter(|config| config.epoch == view.epoch) else {
            return;
        };
        if config.coordinator.node != first.coordinator.node {
            self.note(ANOTHER_LEADS);
        }
        let voters = |config: &ViewConfig| -> BTreeSet<NodeId> {
            config.voters.iter().map(|voter| voter.node).collect()
        };
        if voters(&config) != voters(first) {
            self.note(OTHER_VOTERS);
        }
        let is_new = |voter: &Voter| voter.birth.0 > 1;
        if config.voters.iter().any(is_new) {
            self.note(REPLACED);
        }
    }

    /// A view waits for leases.
    pub(super) fn note_wait(&mut self) {
        let is_gone = |process: &Process| {
            let host = self.state.host(process.node);
            host.process != *process || host.running.is_none()
        };
        if self.checker.is_inside(self.state.now, is_gone) {
            self.note(WAITED);
        }
    }
}
