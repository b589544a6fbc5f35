//! Which members are reached by multicast. No configuration and no network says it, so it is found
//! out.
//!
//! Every member reports each second, by multicast, whose multicast has reached it lately. A member
//! that is listed there reaches the reporter; for as long as no such report comes, everything goes
//! there directly. So a member without multicast, in its file or in its network, takes part like
//! any other, and a network that stops to carry it, which it does without a word, costs a second or
//! two, in which links repeat, directly, what was lost.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::wire::merged::{MAX_REPORTED, Mergeable};
use crate::protocol::{NodeId, Time};

/// How often each member reports.
const EVERY: Duration = Duration::from_secs(1);
/// A member that was not heard before learns sooner that it is.
const SOON: Duration = Duration::from_millis(100);
/// After so many reports without a word from a member it is not heard any more, or not reached.
const LATELY: u8 = 3;
/// After so many reports it is told that a member that is there is not reached.
const PATIENCE: u8 = 10;

/// What is known of the other members.
#[derive(Debug)]
pub(super) struct MulticastReachability {
    others: BTreeMap<NodeId, Other>,
    /// When the next report is due by itself.
    next: Time,
    /// When the last was made.
    last: Time,
    /// Whether somebody was heard who was not before.
    owes_report: bool,
}

#[derive(Debug, Default)]
struct Other {
    /// How many reports more it counts as heard by multicast.
    heard: u8,
    /// How many reports more it counts as reached.
    reached: u8,
    /// Whether it came directly since the last report.
    is_there: bool,
    /// For how many reports it has been there and not reached; [`PATIENCE`] once that was told.
    missed: u8,
    /// The incarnations of both ends of its link, and the last of what was sent there.
    incarnations: Vec<u8>,
    first: u64,
    /// Whether multicast was used for it since it was last found to be reached.
    is_used: bool,
}

/// What a report brought to light.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// How many members are not reached any more that were.
    pub(super) lost: u64,
    /// Who is there and was not reached for some time. Each is told of once.
    pub(super) unreached: Vec<NodeId>,
}

impl MulticastReachability {
    pub(super) fn new(now: Time) -> Self {
        Self {
            others: BTreeMap::new(),
            next: now,
            last: Time::ZERO,
            owes_report: false,
        }
    }

    /// These are the other members from now on.
    pub(super) fn read(&mut self, others: impl Iterator<Item = NodeId>) {
        let mut before = std::mem::take(&mut self.others);
        self.others = others
            .map(|id| (id, before.remove(&id).unwrap_or_default()))
            .collect();
    }

    /// Something came from a member directly.
    pub(super) fn heard_directly(&mut self, from: NodeId) {
        if let Some(other) = self.others.get_mut(&from) {
            other.is_there = true;
        }
    }

    /// Something came from a member by multicast.
    pub(super) fn heard(&mut self, from: NodeId) {
        if let Some(other) = self.others.get_mut(&from) {
            self.owes_report |= other.heard == 0;
            other.heard = LATELY;
        }
    }

    /// A member has reported. Whether this one was reached by multicast, and is not any more.
    pub(super) fn reported(&mut self, from: NodeId, hears_me: bool) -> bool {
        let Some(other) = self.others.get_mut(&from) else {
            return false;
        };
        let was_reached = other.reached > 0;
        if hears_me {
            other.reached = LATELY;
            other.missed = 0;
        } else {
            other.reached = 0;
        }
        other.is_used = false;
        was_reached && !hears_me
    }

    /// How many members are reached.
    pub(super) fn size(&self) -> usize {
        self.reached().count()
    }

    /// The members that are reached.
    pub(super) fn reached(&self) -> impl Iterator<Item = NodeId> {
        let reached = self.others.iter().filter(|(_, other)| other.reached > 0);
        reached.map(|(&id, _)| id)
    }

    /// What becomes of a datagram for `to`. What goes there not for the first time was lost on the
    /// way, or is late: if that may have been by multicast, nothing more goes so until the next
    /// report.
    pub(super) fn judge(&mut self, to: NodeId, part: Mergeable<'_>) -> Verdict {
        let Some(other) = self.others.get_mut(&to) else {
            return Verdict::Directly;
        };
        let place = part.place();
        let is_new = place.incarnations != other.incarnations || place.first > other.first;
        if is_new {
            if place.incarnations != other.incarnations {
                other.incarnations = place.incarnations.to_vec();
            }
            other.first = place.first;
        } else if other.is_used {
            other.is_used = false;
            other.reached = 0;
            return Verdict::Lost;
        }
        if is_new && other.reached > 0 {
            Verdict::Multicast
        } else {
            Verdict::Directly
        }
    }

    /// Multicast was used for `to`.
    pub(super) fn used_for(&mut self, to: NodeId) {
        if let Some(other) = self.others.get_mut(&to) {
            other.is_used = true;
        }
    }

    /// When the next report is due.
    pub(super) fn next(&self) -> Time {
        if self.others.is_empty() {
            Time::MAX
        } else if self.owes_report {
            self.next.min(self.last + SOON)
        } else {
            self.next
        }
    }

    /// The members to be listed in the report that is due, if one is, and what came to light.
    pub(super) fn report(&mut self, now: Time) -> Option<(Vec<NodeId>, Found)> {
        if now < self.next() {
            return None;
        }
        let mut found = Found::default();
        if self.next <= now {
            self.next = now + EVERY;
            self.grow_old(&mut found);
        }
        self.last = now;
        self.owes_report = false;
        let heard = self.others.iter().filter(|(_, other)| other.heard > 0);
        let heard = heard.map(|(&id, _)| id).take(MAX_REPORTED).collect();
        Some((heard, found))
    }

    fn grow_old(&mut self, found: &mut Found) {
        for (&id, other) in &mut self.others {
            other.heard = other.heard.saturating_sub(1);
            if other.reached == 1 {
                found.lost += 1;
            }
            other.reached = other.reached.saturating_sub(1);
            let is_there = std::mem::take(&mut other.is_there);
            if is_there && other.reached == 0 && other.missed < PATIENCE {
                other.missed += 1;
                if other.missed == PATIENCE {
                    found.unreached.push(id);
                }
            }
        }
    }
}

/// How a datagram goes to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// By itself.
    Directly,
    /// By itself, as one that went by multicast seems to be lost.
    Lost,
    /// With others by multicast, if enough are alike.
    Multicast,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u16) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn reachability() -> MulticastReachability {
        let mut reachability = MulticastReachability::new(at(0));
        reachability.read([2, 3].map(node).into_iter());
        reachability
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(1) + Duration::from_millis(ms)
    }

    /// A datagram of kind 1 with a frame, the number `first`, in the receiver's incarnation
    /// `incarnation`.
    fn datagram(incarnation: u8, first: u8) -> Vec<u8> {
        let mut bytes = vec![0; 68];
        bytes[1] = 1;
        bytes[35] = incarnation;
        bytes[59] = first;
        bytes
    }

    fn judge(reachability: &mut MulticastReachability, to: u16, bytes: &[u8]) -> Verdict {
        reachability.judge(node(to), Mergeable::new(bytes).unwrap())
    }

    #[test]
    fn who_reports_to_hear_this_member_is_reached_until_it_is_silent() {
        let mut reachability = reachability();
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 1)),
            Verdict::Directly
        );
        assert!(!reachability.reported(node(2), true));
        assert_eq!(reachability.reached().collect::<Vec<_>>(), [node(2)]);
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 2)),
            Verdict::Multicast
        );
        assert_eq!(
            judge(&mut reachability, 3, &datagram(1, 2)),
            Verdict::Directly
        );
        let mut lost = 0;
        for second in 0..u64::from(LATELY) {
            assert_eq!((reachability.size(), lost), (1, 0));
            let (_, found) = reachability.report(at(1_000 * second)).unwrap();
            lost += found.lost;
        }
        assert_eq!((reachability.size(), lost), (0, 1));
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 3)),
            Verdict::Directly
        );
    }

    #[test]
    fn who_reports_not_to_hear_this_member_is_not_reached() {
        let mut reachability = reachability();
        reachability.reported(node(2), true);
        assert!(reachability.reported(node(2), false));
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 1)),
            Verdict::Directly
        );
        assert!(!reachability.reported(node(2), false));
    }

    #[test]
    fn what_is_repeated_goes_directly_and_so_does_the_rest_until_the_next_report() {
        let mut reachability = reachability();
        reachability.reported(node(2), true);
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 1)),
            Verdict::Multicast
        );
        reachability.used_for(node(2));
        assert_eq!(judge(&mut reachability, 2, &datagram(1, 1)), Verdict::Lost);
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 1)),
            Verdict::Directly
        );
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 2)),
            Verdict::Directly
        );
        reachability.reported(node(2), true);
        // Multicast is not to blame for what did not go by it.
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 2)),
            Verdict::Directly
        );
        assert_eq!(
            judge(&mut reachability, 2, &datagram(1, 3)),
            Verdict::Multicast
        );
        // A new incarnation counts from the beginning.
        assert_eq!(
            judge(&mut reachability, 2, &datagram(2, 1)),
            Verdict::Multicast
        );
    }

    #[test]
    fn reports_list_who_was_heard_lately_and_come_sooner_for_who_is_new() {
        let mut reachability = reachability();
        let nobody = (Vec::new(), Found::default());
        assert_eq!(reachability.report(at(0)), Some(nobody));
        assert_eq!(reachability.report(at(500)), None);
        assert_eq!(reachability.next(), at(1_000));
        reachability.heard(node(3));
        assert_eq!(reachability.next(), at(100));
        let listed =
            |reachability: &mut MulticastReachability, ms| reachability.report(at(ms)).unwrap().0;
        assert_eq!(listed(&mut reachability, 500), [node(3)]);
        reachability.heard(node(3));
        assert_eq!(reachability.next(), at(1_000), "it was told");
        for second in 1..u64::from(LATELY) {
            assert_eq!(listed(&mut reachability, 1_000 * second), [node(3)]);
        }
        assert_eq!(listed(&mut reachability, 1_000 * u64::from(LATELY)), []);
    }

    #[test]
    fn who_is_there_and_not_reached_is_told_of_once() {
        let mut reachability = reachability();
        let mut told = Vec::new();
        let mut seconds = 0..;
        let mut pass =
            |reachability: &mut MulticastReachability, reports: u8, told: &mut Vec<NodeId>| {
                for second in seconds.by_ref().take(reports.into()) {
                    reachability.heard_directly(node(2));
                    told.extend(reachability.report(at(1_000 * second)).unwrap().1.unreached);
                }
            };
        pass(&mut reachability, PATIENCE - 1, &mut told);
        assert_eq!(told, []);
        pass(&mut reachability, 2 * PATIENCE, &mut told);
        assert_eq!(told, [node(2)], "and nobody of member 3, who is not there");
        reachability.reported(node(2), true);
        pass(&mut reachability, PATIENCE + LATELY, &mut told);
        assert_eq!(told, [node(2), node(2)], "again, after it was reached");
    }

    #[test]
    fn who_leaves_the_group_is_forgotten() {
        let mut reachability = reachability();
        reachability.reported(node(2), true);
        reachability.reported(node(3), true);
        reachability.read([3, 4].map(node).into_iter());
        assert_eq!(reachability.reached().collect::<Vec<_>>(), [node(3)]);
        assert!(!reachability.reported(node(2), true));
        assert_eq!(reachability.size(), 1);
    }
}
