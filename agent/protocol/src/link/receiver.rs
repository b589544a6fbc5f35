//! The receiving half of a link: frames are delivered once, in order, and bodies put together again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::WINDOW;
use crate::ids::Epoch;
use crate::wire::Frame;

/// The longest body, in bytes; only the tables of views come near it.
const MAX_BODY: usize = 64 << 20;

/// What comes from the peer.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// All frames up to this number have been delivered.
    delivered: u64,
    /// Frames that came ahead of others: within one window, so at most 64.
    ahead: BTreeMap<u64, (Epoch, Frame)>,
    /// The first frames of a body whose last has not come yet.
    partial: Vec<u8>,
}

/// What the frames of one datagram came to.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    pub(super) bodies: Vec<(Epoch, Vec<u8>)>,
    /// A new frame wants to be acknowledged at once.
    pub(super) prompt: bool,
    /// A new frame may be acknowledged later.
    pub(super) lazy: bool,
    /// A frame was here before.
    pub(super) again: bool,
}

impl Receiver {
    pub(super) fn take(&mut self, number: u64, epoch: Epoch, frame: Frame, arrival: &mut Arrival) {
        if number <= self.delivered || self.ahead.contains_key(&number) {
            arrival.again = true;
            return;
        }
        if number > self.delivered + WINDOW as u64 {
            return;
        }
        if frame.prompt {
            arrival.prompt = true;
        } else {
            arrival.lazy = true;
        }
        if number == self.delivered + 1 && self.ahead.is_empty() {
            self.delivered = number;
            return self.deliver(epoch, frame, arrival);
        }
        self.ahead.insert(number, (epoch, frame));
        while let Some((epoch, frame)) = self.ahead.remove(&(self.delivered + 1)) {
            self.delivered += 1;
            self.deliver(epoch, frame, arrival);
        }
    }

    fn deliver(&mut self, epoch: Epoch, frame: Frame, arrival: &mut Arrival) {
        if self.partial.is_empty() && !frame.more {
            arrival.bodies.push((epoch, frame.bytes));
            return;
        }
        // A body beyond all bounds cannot come from this program: it is cut, and then malformed.
        if self.partial.len() + frame.bytes.len() <= MAX_BODY {
            self.partial.extend_from_slice(&frame.bytes);
        }
        if !frame.more {
            arrival
                .bodies
                .push((epoch, core::mem::take(&mut self.partial)));
        }
    }

    pub(super) fn acknowledgement(&self) -> (u64, u64) {
        let mut selective = 0;
        for number in self.ahead.keys() {
            let bit = number - self.delivered - 2;
            selective |= 1 << bit;
        }
        (self.delivered, selective)
    }
}
