//! The simulator's checkers, as far as they are about one lock.

use alloc::collections::BTreeMap;
use core::num::NonZeroU32;

use super::seat::name;
use crate::checkers::{Abandonment, Call, Exclusion, Fences, Process, Requests, Terms, Violation};
use distlock_protocol::{
    Epoch, Fence, Mode, NodeId, Previous, Refusal, Release, Ticket, Time, Wait,
};

/// There is no time in this model.
const NOW: Time = Time::ZERO;

#[derive(Clone, Debug, Hash)]
pub(super) struct Checkers {
    exclusion: Exclusion,
    fences: Fences,
    abandonment: Abandonment,
    requests: Requests,
}

impl Checkers {
    pub(super) fn new() -> Self {
        let locks = BTreeMap::from([(name(), NonZeroU32::MIN)]);
        Self {
            fences: Fences::new(&locks),
            abandonment: Abandonment::new(&locks),
            exclusion: Exclusion::new(locks),
            requests: Requests::default(),
        }
    }

    pub(super) fn asks(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        let terms = Terms {
            wait: Wait::Cancelled,
            wish: None,
        };
        let call = Call { process, ticket };
        self.requests
            .asks(NOW, call, name(), Mode::Exclusive, terms)
    }

    pub(super) fn granted(
        &mut self,
        process: Process,
        ticket: Ticket,
        (fence, epoch): (Fence, Epoch),
        previous: Previous,
    ) -> Result<(), Violation> {
        let call = Call { process, ticket };
        let (lock, mode) = self.requests.grants(NOW, call)?;
        self.exclusion.enters(NOW, call, &lock, mode)?;
        self.fences.grants(NOW, call, (&lock, mode), fence, epoch)?;
        self.abandonment.grants(NOW, call, (&lock, mode), previous)
    }

    pub(super) fn ended(
        &mut self,
        process: Process,
        ticket: Ticket,
        refusal: &Refusal,
    ) -> Result<(), Violation> {
        self.requests.ends(NOW, Call { process, ticket }, refusal)
    }

    pub(super) fn cancels(&mut self, process: Process, ticket: Ticket) {
        self.requests.cancels(Call { process, ticket });
    }

    pub(super) fn leaves(&mut self, process: Process, ticket: Ticket, how: Release) {
        let call = Call { process, ticket };
        if self.requests.releases(call) {
            self.exclusion.leaves(call);
            self.abandonment.leaves(call, how);
        }
    }

    pub(super) fn installs(&mut self, process: Process, epoch: Epoch) {
        self.abandonment.installs(process, epoch);
    }

    pub(super) fn crashes(&mut self, process: Process) {
        self.exclusion.crashes(process);
        self.abandonment.crashes(process);
        self.requests.crashes(process);
    }

    /// What a dead incarnation of `node` was granted is in use no longer.
    pub(super) fn lease_over(&mut self, node: NodeId) {
        self.exclusion.begins(node, NOW);
    }

    /// A member is done with what happened to it.
    pub(super) fn settles(&mut self) -> Result<(), Violation> {
        self.requests.settles(NOW)
    }
}
