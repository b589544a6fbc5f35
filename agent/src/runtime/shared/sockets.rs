//! What the member's sockets tell.

use std::os::fd::RawFd;

use crate::protocol::NodeId;
use crate::runtime::api::error::SessionEnd;
use crate::runtime::api::status::{ClientsStatus, MulticastStatus};
use crate::runtime::net::aead::KeyId;
use crate::runtime::net::transport::Transport;
use crate::runtime::observe::counters::Counters;
use crate::runtime::shared::core_guard::{CoreGuard, Phase};

impl CoreGuard<'_> {
    /// The member's sockets, while there are any.
    fn transport(&self) -> Option<&Transport> {
        self.core.members()?.transport.as_ref()
    }

    /// The member's sockets; none once the session is over.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = RawFd> + use<> {
        let transport = self.transport();
        transport.map(Transport::sockets).into_iter().flatten()
    }

    /// The members from whose addresses floods come.
    pub(crate) fn flooded(&self) -> impl Iterator<Item = NodeId> {
        let transport = self.transport();
        transport.map(Transport::flooded).into_iter().flatten()
    }

    /// What is wrong with all that comes from that member's address, if its key or its version
    /// differs from ours.
    pub(crate) fn fault_of(&self, member: NodeId) -> Option<String> {
        let transport = self.transport();
        let fault = transport.and_then(|transport| transport.fault_of(member));
        fault.map(|fault| format!("what comes from its address {fault}"))
    }

    /// What there is to tell of multicast.
    pub(crate) fn multicast(&self) -> Option<MulticastStatus> {
        self.transport()?.multicast()
    }

    /// The ids of the keys that open datagrams; the first one seals.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        let transport = self.transport().into_iter();
        transport.flat_map(Transport::keys)
    }

    /// Notes who uses the service for clients, for the status.
    pub(crate) fn set_clients(&mut self, status: ClientsStatus) {
        self.core.clients = Some(status);
    }

    pub(crate) fn counters(&self) -> Counters {
        let Some(members) = self.core.members() else {
            return Counters::default();
        };
        let transport = members.transport.as_ref();
        Counters {
            node: members.node.counters().clone(),
            transport: transport.map_or(members.last_counters, Transport::counters),
            notes_lost: members.notes_lost,
            notes_malformed: members.notes_malformed,
        }
    }

    /// Why the session is over, if it is.
    pub(crate) fn end_of_session(&self) -> Option<&SessionEnd> {
        match &self.core.phase {
            Phase::Over(end) => Some(end),
            Phase::Running | Phase::Draining { .. } | Phase::Leaving { .. } => None,
        }
    }
}
