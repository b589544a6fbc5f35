//! Who watches the order: by payloads alone, each of which names its sender and counts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Violation, violation};
use distlock_protocol::{Epoch, NodeId, Time};

/// A message: its sender, and which of its messages it is, from 0.
pub(crate) type Payload = (NodeId, u64);

/// The rules: all deliver prefixes of one sequence; each message once, no earlier one of its sender
/// left out; and in the end nothing is missing of those who are there, nor with them.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// The sequence, as far as anybody has come, or a view has settled it: those who were to deliver
    /// the last of it may all have crashed.
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

impl Deliveries {
    /// `node` multicasts: what.
    pub(crate) fn says(&mut self, node: NodeId) -> Payload {
        let said = self.said.entry(node).or_default();
        *said += 1;
        (node, *said - 1)
    }

    /// `node` could not say it after all.
    pub(crate) fn is_not_said(&mut self, payload: Payload) {
        self.said.insert(payload.0, payload.1);
    }

    /// A view is decided. `settled` has what is to be delivered before it begins.
    pub(crate) fn decides(
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
            let rest: Vec<_> = rest.copied().collect();
            let start = place + rest.len();
            for (place, payload) in (place..).zip(rest) {
                self.is_next(at, *node, place, payload)?;
            }
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
    pub(crate) fn delivers(
        &mut self,
        at: Time,
        node: NodeId,
        payload: Payload,
    ) -> Result<(), Violation> {
        let place = self.place(node);
        self.is_next(at, node, place, payload)?;
        self.places.insert(node, place + 1);
        Ok(())
    }

    /// For `node`, `payload` comes as number `place`, which is at most the first that is not known.
    fn is_next(
        &mut self,
        at: Time,
        node: NodeId,
        place: usize,
        payload: Payload,
    ) -> Result<(), Violation> {
        let due = self.order.get(place).copied();
        if due.is_some_and(|due| due != payload) {
            return Err(violation!(
                at,
                Order,
                "for member {node} {payload:?} is number {place}, and for another {due:?}"
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
            assert_eq!(place, self.order.len(), "nobody is beyond what is settled");
            self.order.push(payload);
        }
        Ok(())
    }

    /// All is over; `members` are those of the last view.
    pub(crate) fn ends(&self, at: Time, members: &[NodeId]) -> Result<(), Violation> {
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

    /// Messages that were multicast, and are not in the sequence.
    pub(crate) fn lost(&self) -> u64 {
        let said: u64 = self.said.values().sum();
        said - self.order.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u16) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn epoch(epoch: u32) -> Epoch {
        Epoch::new(epoch).unwrap()
    }

    /// A view settles a message of its only survivor, which crashes before it delivers that: a
    /// newcomer's next view goes on after it. (`--world multicast --seeds 2861..2862`)
    #[test]
    fn what_is_settled_has_its_place_even_if_nobody_delivers_it() {
        let mut checker = Deliveries::default();
        let now = Time::ZERO;
        let [old, new] = [1, 2].map(node);
        checker.decides(now, epoch(1), (&[], &[old]), &[]).unwrap();
        let lost = checker.says(old);
        let first = checker.decides(now, epoch(2), (&[old], &[new]), &[lost]);
        first.unwrap();
        let said = checker.says(new);
        let second = checker.decides(now, epoch(3), (&[new], &[]), &[said]);
        second.unwrap();
        checker.delivers(now, new, said).unwrap();
        checker.ends(now, &[new]).unwrap();
        assert_eq!(checker.lost(), 0);
    }

    #[test]
    fn members_that_settle_differently_are_caught() {
        let mut checker = Deliveries::default();
        let now = Time::ZERO;
        let [one, two] = [1, 2].map(node);
        let all = &[one, two][..];
        checker.decides(now, epoch(1), (&[], all), &[]).unwrap();
        let [first, second] = [one, two].map(|node| checker.says(node));
        checker.delivers(now, one, first).unwrap();
        checker.delivers(now, two, second).unwrap_err();
        // In the order of one, and not in that of the other.
        let who = (&[two][..], &[][..]);
        checker
            .decides(now, epoch(2), who, &[second, first])
            .unwrap_err();
    }
}
