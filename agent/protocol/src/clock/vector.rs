//! Vector clocks (Fidge 1988; Mattern 1989): how many events of each process an event knows of.
//!
//! Each process counts its own events, and learns of the others' with every message. One event
//! caused another, or could have, exactly if all its counts are at most the other's; if neither is
//! so, they have nothing to do with each other.
//!
//! The lecture's "ts(a)\[i\] - 1 events precede" holds for the process of the event itself; of any
//! other process the entry counts as it is.

use alloc::collections::BTreeMap;
use core::cmp::Ordering;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// A vector clock, or the vector stamp of an event: processes, and how many events of each are
/// known. A process that is not named has had none.
///
/// `P` names a process. A process that comes back without its clock needs a new name: a member's
/// id alone will not do for what restarts, the id and its incarnation will.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(
    from = "BTreeMap<P, u64>",
    into = "BTreeMap<P, u64>",
    bound(
        serialize = "P: Ord + Clone + Serialize",
        deserialize = "P: Ord + Deserialize<'de>"
    )
)]
pub struct VectorClock<P: Ord = NodeId>(
    /// Without zeros, so that equal clocks are equal maps.
    BTreeMap<P, u64>,
);

/// How two events stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Causality {
    /// The first may have caused the second.
    Before,
    /// The second may have caused the first.
    After,
    /// They are the same event.
    Equal,
    /// Neither knew of the other.
    Concurrent,
}

impl<P: Ord> VectorClock<P> {
    /// A clock before all events.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// How many events of `process` are known.
    pub fn count(&self, process: &P) -> u64 {
        self.0.get(process).copied().unwrap_or_default()
    }

    /// The processes of which events are known, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (&P, u64)> {
        self.0.iter().map(|(process, count)| (process, *count))
    }

    /// How this event stands to `other`.
    pub fn compare(&self, other: &Self) -> Causality {
        match (self.is_within(other), other.is_within(self)) {
            (true, true) => Causality::Equal,
            (true, false) => Causality::Before,
            (false, true) => Causality::After,
            (false, false) => Causality::Concurrent,
        }
    }

    /// Whether nothing is known here that `other` does not know.
    fn is_within(&self, other: &Self) -> bool {
        self.iter()
            .all(|(process, count)| count <= other.count(process))
    }

    /// Whether nobody who has one of the clocks `live` can still learn of events of `process`: all
    /// know as many as this one. Stamps that are under way or kept count as clocks.
    ///
    /// Only then may all forget a process that has gone ([`VectorClock::forget`]).
    pub fn is_settled<'a>(&self, process: &P, live: impl IntoIterator<Item = &'a Self>) -> bool
    where
        P: 'a,
    {
        let known = self.count(process);
        live.into_iter().all(|clock| clock.count(process) == known)
    }

    /// Removes the entry of a process that has gone and is [settled](VectorClock::is_settled).
    /// Stamps from before can no longer be compared with those from after.
    pub fn forget(&mut self, process: &P) {
        self.0.remove(process);
    }
}

impl<P: Ord + Clone> VectorClock<P> {
    /// A new event of the process `me`, whose clock this is: something local, or the sending of a
    /// message, which carries a copy of the clock from after this call.
    pub fn tick(&mut self, me: &P) {
        match self.0.get_mut(me) {
            Some(count) => *count += 1,
            None => {
                self.0.insert(me.clone(), 1);
            }
        }
    }

    /// The receipt, by the process `me`, of a message with the stamp `sent`.
    ///
    /// # Errors
    /// `sent` tells of more events of `me` than there were; the clock is unchanged.
    pub fn receive(&mut self, me: &P, sent: &Self) -> Result<(), ImpossibleStamp> {
        let (claimed, known) = (sent.count(me), self.count(me));
        if claimed > known {
            return Err(ImpossibleStamp { claimed, known });
        }
        for (process, count) in sent.iter() {
            match self.0.get_mut(process) {
                Some(here) => *here = count.max(*here),
                None => {
                    self.0.insert(process.clone(), count);
                }
            }
        }
        self.tick(me);
        Ok(())
    }
}

impl<P: Ord> Default for VectorClock<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Cause before effect; clocks of which neither knew of the other have no order.
impl<P: Ord> PartialOrd for VectorClock<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.compare(other) {
            Causality::Before => Some(Ordering::Less),
            Causality::After => Some(Ordering::Greater),
            Causality::Equal => Some(Ordering::Equal),
            Causality::Concurrent => None,
        }
    }
}

impl<P: Ord> FromIterator<(P, u64)> for VectorClock<P> {
    fn from_iter<I: IntoIterator<Item = (P, u64)>>(entries: I) -> Self {
        Self(
            entries
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .collect(),
        )
    }
}

impl<P: Ord> From<BTreeMap<P, u64>> for VectorClock<P> {
    fn from(entries: BTreeMap<P, u64>) -> Self {
        entries.into_iter().collect()
    }
}

impl<P: Ord> From<VectorClock<P>> for BTreeMap<P, u64> {
    fn from(clock: VectorClock<P>) -> Self {
        clock.0
    }
}

/// Why a stamp cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stamp knows {claimed} events of this process, which has had {known}: it is damaged, or of \
     an earlier incarnation; give each incarnation a name of its own"
)]
pub struct ImpossibleStamp {
    /// How many events of the receiver the stamp tells of.
    pub claimed: u64,
    /// How many there were.
    pub known: u64,
}

/// As `{1:2, 3:5}`.
impl<P: Ord + fmt::Display> fmt::Display for VectorClock<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (place, (process, count)) in self.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{process}:{count}")?;
        }
        f.write_str("}")
    }
}
