//! What goes out together, and what comes in so.

use super::group::{self, Group};
use super::reachability::Verdict;
use super::{BindError, Medium, Received, Transport, udp};
use crate::protocol::wire::GroupId;
use crate::protocol::wire::merged::{self, Mergeable, Multicast};
use crate::protocol::{NodeId, Time};
use crate::runtime::api::status::MulticastStatus;
use crate::runtime::net::address::{Address, MulticastAddress};
use crate::runtime::net::aead::Destination;
use crate::runtime::os::clock;

/// Joins the group `address`, from the socket of member `me` at `own`.
pub(super) fn join(
    id: GroupId,
    me: NodeId,
    address: MulticastAddress,
    own: &Address,
    medium: &Medium,
) -> Result<Group, BindError> {
    match (own, medium) {
        (Address::Udp(at), Medium::Udp { socket, .. }) if address.is_of_the_kind_of(*at) => {
            Group::join(id, me, address, socket, clock::now())
                .map_err(|source| BindError::Multicast { address, source })
        }
        _ => Err(BindError::MulticastKind {
            own: own.clone(),
            address,
        }),
    }
}

impl Transport {
    /// Sends `bytes` to member `to`, or loses them: at once, or with others at the next
    /// [`Self::flush`].
    pub(crate) fn post(&mut self, to: NodeId, bytes: Vec<u8>) {
        if let Some(group) = &mut self.group
            && let Some(part) = Mergeable::new(&bytes)
        {
            match group.reachability.judge(to, part) {
                Verdict::Multicast => return group.said.push((to, bytes)),
                Verdict::Lost => self.counters.multicast_lost += 1,
                Verdict::Directly => {}
            }
        }
        self.send(to, &bytes);
    }

    /// Sends what was posted and waits for its like: the end of a step.
    pub(crate) fn flush(&mut self) {
        let Some(group) = &mut self.group else { return };
        if group.said.is_empty() {
            return;
        }
        let mut said = std::mem::take(&mut group.said);
        let mut runs = group::runs(&said, group.reachability.size());
        let mut is_sent = vec![false; said.len()];
        for (place, (to, bytes)) in said.iter().enumerate() {
            if let Some((places, merger)) = runs.remove(&place)
                && self.send_to_group(&merger.encode())
            {
                self.counters.multicast_merged += places.len() as u64;
                for place in places {
                    is_sent[place] = true;
                    self.note_use(said[place].0);
                }
            }
            if !is_sent[place] {
                self.send(*to, bytes);
            }
        }
        drop(runs);
        said.clear();
        if let Some(group) = &mut self.group {
            group.said = said;
        }
    }

    /// Member `to` was sent something by multicast.
    fn note_use(&mut self, to: NodeId) {
        if let Some(group) = &mut self.group {
            group.reachability.used_for(to);
        }
    }

    /// When [`Self::report`] has something to do.
    pub(crate) fn next_report(&self) -> Option<Time> {
        self.group.as_ref().map(|group| group.reachability.next())
    }

    /// Tells the others whom this member hears by multicast, if it is time.
    pub(crate) fn report(&mut self) {
        let Some(group) = &mut self.group else { return };
        let Some((heard, found)) = group.reachability.report(clock::now()) else {
            return;
        };
        if !found.unreached.is_empty() {
            let ids: Vec<_> = found.unreached.iter().map(NodeId::to_string).collect();
            tracing::warn!(
                event = "multicast-unreached",
                "multicast does not reach {}, and all is sent there directly: see that the files \
                 there have multicast = \"{}\", and that the network carries that",
                ids.join(", "),
                group.address
            );
        }
        self.counters.multicast_lost += found.lost;
        let bytes = merged::report(group.id, self.me, &heard);
        self.send_to_group(&bytes);
    }

    /// What there is to tell of multicast.
    pub(crate) fn multicast(&self) -> Option<MulticastStatus> {
        let group = self.group.as_ref()?;
        Some(MulticastStatus {
            address: group.address.to_string(),
            reached: group.reachability.reached().map(NodeId::as_u16).collect(),
            sent: self.counters.multicast_sent,
            merged: self.counters.multicast_merged,
            received: self.counters.multicast_received,
            lost: self.counters.multicast_lost,
        })
    }

    /// This member's part of what comes by multicast. Its sender is known by the same address as
    /// that of any other datagram.
    pub(super) fn receive_by_multicast(&mut self, buffer: &mut [u8]) -> Received {
        let (Some(group), Medium::Udp { sources, .. }) = (&mut self.group, &self.medium) else {
            return Received::Empty;
        };
        let received = group.socket.recv_from(&mut group.buffer);
        let received = received.map(|(len, from)| (len, sources.get(&udp::spelled(from)).copied()));
        let mut own = std::mem::take(&mut group.buffer);
        let received = self.note(received, Self::BUFFER);
        let received = self.unseal(received, true, &mut own);
        let received = match received {
            Received::Datagram { from, at } => self.take_part(from, &own[at], buffer),
            other => other,
        };
        if let Some(group) = &mut self.group {
            group.buffer = own;
        }
        received
    }

    /// Puts into `buffer` what of `bytes`, which `from` sent by multicast, is for this member.
    fn take_part(&mut self, from: NodeId, bytes: &[u8], buffer: &mut [u8]) -> Received {
        let Some(group) = &mut self.group else {
            return Received::Dropped;
        };
        match merged::read(group.id, from, self.me, bytes) {
            Ok(what) => {
                self.counters.multicast_received += 1;
                group.reachability.heard(from);
                match what {
                    Multicast::Part(part) => {
                        buffer[..part.len()].copy_from_slice(&part);
                        let at = 0..part.len();
                        return Received::Datagram { from, at };
                    }
                    Multicast::Report { hears_me } => {
                        let is_lost = group.reachability.reported(from, hears_me);
                        self.counters.multicast_lost += u64::from(is_lost);
                    }
                    Multicast::ForOthers => {}
                }
            }
            Err(_) => self.counters.dropped_multicast += 1,
        }
        Received::Dropped
    }

    /// Whether the kernel took it.
    pub(super) fn send_to_group(&mut self, bytes: &[u8]) -> bool {
        let Some(to) = self.group.as_ref().map(|group| group.to.clone()) else {
            return false;
        };
        let is_sent = self.transmit(Destination::Multicast, &to, bytes);
        self.counters.multicast_sent += u64::from(is_sent);
        is_sent
    }
}
