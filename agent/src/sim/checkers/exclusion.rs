//! Mutual exclusion.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{Call, Process, Violation, violation};
use crate::protocol::{LockName, Mode, NodeId, Time};

/// Never more inside than there are permits; who shares a lock is inside with any number of those
/// who share it too, and with nobody else.
///
/// The set of those who are inside grows by grants alone, so that a check at every grant is a
/// check after every event. What crashed inside stays inside: its clients are processes of their
/// own, and they are gone only when the lease has run out that they had from their agent, which is
/// known to be over when the next life of that member has waited it out.
#[derive(Clone, Debug, Hash)]
pub struct Exclusion {
    locks: BTreeMap<LockName, Lock>,
}

#[derive(Clone, Debug, Hash)]
struct Lock {
    permits: NonZeroU32,
    inside: BTreeMap<Call, (Mode, Presence)>,
}

/// Until when somebody is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Presence {
    /// It has not left.
    Live,
    /// Its process crashed, and that member has not come back.
    Ghost,
    /// Its process crashed, and the next life waits until then.
    Until(Time),
}

impl Exclusion {
    /// Locks with that many permits.
    pub fn new(locks: BTreeMap<LockName, NonZeroU32>) -> Self {
        let lock = |permits| Lock {
            permits,
            inside: BTreeMap::new(),
        };
        Self {
            locks: locks
                .into_iter()
                .map(|(name, permits)| (name, lock(permits)))
                .collect(),
        }
    }

    /// `call` enters `name`.
    ///
    /// # Errors
    /// All permits are taken, or those who are inside share it with others than `call`.
    pub fn enters(
        &mut self,
        now: Time,
        call: Call,
        name: &LockName,
        mode: Mode,
    ) -> Result<(), Violation> {
        let lock = self
            .locks
            .get_mut(name)
            .expect("only known locks are asked for");
        lock.inside
            .retain(|_, (_, presence)| !matches!(presence, Presence::Until(end) if *end <= now));
        let permits = lock.permits.get() as usize;
        let fits = match mode {
            Mode::Shared => lock.inside.values().all(|(with, _)| *with == Mode::Shared),
            Mode::Exclusive => {
                lock.inside.len() < permits
                    && lock
                        .inside
                        .values()
                        .all(|(with, _)| *with == Mode::Exclusive)
            }
        };
        if !fits {
            let inside: Vec<String> = lock
                .inside
                .iter()
                .map(|(call, (_, presence))| match presence {
                    Presence::Live => format!("{call}"),
                    Presence::Ghost => format!("{call} (crashed inside, not yet back)"),
                    Presence::Until(end) => {
                        format!(
                            "{call} (crashed inside, may act until {} ns)",
                            end.as_nanos()
                        )
                    }
                })
                .collect();
            let (permits, inside) = (lock.permits, inside.join(", "));
            return Err(violation!(
                now,
                Exclusion,
                "{call} enters {name} ({mode:?}, {permits} permit(s)), while inside are: {inside}"
            ));
        }
        lock.inside.insert(call, (mode, Presence::Live));
        Ok(())
    }

    /// `call` enters `name`, whoever else is inside.
    pub fn intrudes(&mut self, call: Call, name: &LockName, mode: Mode) {
        let lock = self
            .locks
            .get_mut(name)
            .expect("only known locks are asked for");
        lock.inside.insert(call, (mode, Presence::Live));
    }

    /// Nobody has intruded, or all who are too many have been told.
    ///
    /// # Errors
    /// More are inside than may be.
    pub fn is_kept(&self, now: Time) -> Result<(), Violation> {
        let is_broken = |(_, lock): &(&LockName, &Lock)| {
            let mut modes = lock.inside.values().map(|(mode, _)| *mode);
            let is_shared = modes.next() == Some(Mode::Shared);
            if is_shared {
                return modes.any(|mode| mode == Mode::Exclusive);
            }
            modes.any(|mode| mode == Mode::Shared)
                || lock.inside.len() > lock.permits.get() as usize
        };
        match self.locks.iter().find(is_broken) {
            None => Ok(()),
            Some((name, lock)) => Err(violation!(
                now,
                Exclusion,
                "all are in one view again, and inside of {name} are still {:?}",
                lock.inside.keys()
            )),
        }
    }

    /// `process` ends, and whoever it let in with it.
    pub fn forgets(&mut self, process: Process) {
        for lock in self.locks.values_mut() {
            lock.inside.retain(|call, _| call.process != process);
        }
    }

    /// `call` leaves whatever it is inside of.
    pub fn leaves(&mut self, call: Call) {
        for lock in self.locks.values_mut() {
            lock.inside.remove(&call);
        }
    }

    /// `process` ends without a word.
    pub fn crashes(&mut self, process: Process) {
        self.turn(|call, presence| {
            if call.process == process {
                *presence = Presence::Ghost;
            }
        });
    }

    /// `node` is back, and waits until `quarantine_ends` for what its earlier lives left behind.
    pub fn begins(&mut self, node: NodeId, quarantine_ends: Time) {
        self.turn(|call, presence| {
            if call.process.node == node && *presence == Presence::Ghost {
                *presence = Presence::Until(quarantine_ends);
            }
        });
    }

    fn turn(&mut self, mut change: impl FnMut(&Call, &mut Presence)) {
        for (call, (_, presence)) in self.locks.values_mut().flat_map(|lock| &mut lock.inside) {
            change(call, presence);
        }
    }
}
