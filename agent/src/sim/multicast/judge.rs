//! Who watches the order: by payloads alone, each of which names its sender and counts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::checkers::{Violation, violation};
use crate::protocol::{Epoch, NodeId, Time};

/// A message: its sender, and which of its messages it is, from 0.
pub(super) type Payload = (NodeId, u64);

/// The rules: all deliver prefixes of one sequence; each message once, no earlier one of its sender
/// left out; and in the end nothing is missing of those who are there, nor with them.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The sequence, as far as anybody has come.
    order: Vec<Payload>,
    /// How many of each member's messages are in it.
    ordered: BTreeMap<NodeId, u64>,
    /// How far each member has come in it; newcomers are not here until they deliver.
    places: BTreeMap<NodeId, usize>,
    /// Where the newcomers of a view begin, and where its other members go on.
    starts: BTreeMap<Epoch, usize>,
    newcomers: BTreeMap<NodeId, Epoch>,
    said: BTreeMap<NodeId, u64>,
}

impl Judge {
    /// `node` multicasts: what.
    pub(super) fn says(&mut self, node: NodeId) -> Payload {
        let said = self.said.entry(node).or_default();
        *said += 1;
        (node, *said - 1)
    }

    /// `node` could not say it after all.
    pub(super) fn is_not_said(&mut self, payload: Payload) {
        self.said.insert(payload.0, payload.1);
    }

    /// A view is decided. `settled` has what is to be delivered before it begins.
    pub(super) fn decides(
        &mut self,
        at: Time,
        epoch: Epoch,
        (survivors, newcomers): (&[NodeId], &[NodeId]),
        settled: &[Payload],
    ) -> Result<(), Violation> {
        for node in newcomers {
            self.newcomers.insert(*node, epoch);
        }
        if survivors.is_empty() {
            self.starts.insert(epoch, 0);
        }
        for node in survivors {
            let place = self.place(*node);
            let done = &self.order[..place];
            let rest = settled.iter().filter(|payload| !done.contains(payload));
            let start = place + rest.count();
            let agreed = *self.starts.entry(epoch).or_insert(start);
            if agreed != start {
                return Err(violation!(
                    at,
                    Order,
                    "epoch {epoch} would begin after {start} messages for member {node}, and after \
                     {agreed} for others"
                ));
            }
        }
        Ok(())
    }

    /// How far `node` has come.
    fn place(&self, node: NodeId) -> usize {
        let begins = || self.newcomers.get(&node).map(|epoch| self.starts[epoch]);
        self.places
            .get(&node)
            .copied()
            .or_else(begins)
            .unwrap_or_default()
    }

    /// `node` delivers.
    pub(super) fn delivers(
        &mut self,
        at: Time,
        node: NodeId,
        payload: Payload,
    ) -> Result<(), Violation> {
        let place = self.place(node);
        let due = self.order.get(place).copied();
        if due.is_some_and(|due| due != payload) {
            return Err(violation!(
                at,
                Order,
                "member {node} delivers {payload:?} as number {place}, where another delivered \
                 {due:?}"
            ));
        }
        if place > self.order.len() {
            return Err(violation!(
                at,
                Order,
                "member {node} delivers number {place} before anybody delivered what was settled"
            ));
        }
        if due.is_none() {
            let (sender, number) = payload;
            let next = self.ordered.entry(sender).or_default();
            if number != *next {
                return Err(violation!(
                    at,
                    Order,
                    "{payload:?} is delivered where the sender's number {next} is due"
                ));
            }
            *next += 1;
            self.order.push(payload);
        }
        self.places.insert(node, place + 1);
        Ok(())
    }

    /// All is over; `members` are those of the last view.
    pub(super) fn ends(&self, at: Time, members: &[NodeId]) -> Result<(), Violation> {
        for node in members {
            let (place, all) = (self.place(*node), self.order.len());
            let (ordered, said) = [&self.ordered, &self.said]
                .map(|counts| counts.get(node).copied().unwrap_or_default())
                .into();
            if place != all || ordered != said {
                return Err(violation!(
                    at,
                    Progress,
                    "member {node} has delivered {place} of {all} messages, and of its own \
                     {ordered} of {said} were delivered"
                ));
            }
        }
        Ok(())
    }

    /// Messages that were multicast, and that nobody delivered.
    pub(super) fn lost(&self) -> u64 {
        let said: u64 = self.said.values().sum();
        said - self.order.len() as u64
    }
}
