//! What the engines say on its way: once, in order, and as late as the network makes it.

use alloc::collections::{BTreeMap, VecDeque};

use crate::checkers::Process;
use distlock_protocol::lock::LockMessage;
use distlock_protocol::{Epoch, NodeId};

/// From one process to another host.
pub(super) type Way = (Process, NodeId);

/// A message with its number on its way.
pub(super) type Parcel = (u64, Epoch, LockMessage);

#[derive(Debug, Default)]
pub(super) struct Channels(BTreeMap<Way, Channel>);

#[derive(Debug, Default)]
struct Channel {
    waiting: VecDeque<Parcel>,
    sent: u64,
    delivered: u64,
}

impl Channels {
    /// Queues a message. Returns whether it is the first, and is to be sent now.
    pub(super) fn push(&mut self, way: Way, epoch: Epoch, message: LockMessage) -> bool {
        let channel = self.0.entry(way).or_default();
        channel.sent += 1;
        channel.waiting.push_back((channel.sent, epoch, message));
        channel.waiting.len() == 1
    }

    /// What is to be sent, again or for the first time.
    pub(super) fn first(&self, way: Way) -> Option<&Parcel> {
        self.0.get(&way)?.waiting.front()
    }

    /// Number `number` has arrived. Returns whether it had not before.
    pub(super) fn arrives(&mut self, way: Way, number: u64) -> bool {
        let Some(channel) = self.0.get_mut(&way) else {
            return false;
        };
        if channel.delivered >= number {
            return false;
        }
        channel.delivered = number;
        channel.waiting.pop_front();
        true
    }

    /// The life of `process` is over, and what it did not get rid of is lost.
    pub(super) fn forget(&mut self, process: Process) {
        self.0.retain(|(from, _), _| *from != process);
    }
}
