//! Mutual exclusion.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{Call, Process, Violation, violation};
use distlock_protocol::{LockName, Mode, NodeId, Time};

/// Never more inside than there are permits; who shares a lock is inside with any number of those
/// who share it too, and with nobody else.
///
/// The set of those who are inside grows by grants, and by leases that run on though they were over,
/// so that a check at each of those is a check after every event. What crashed inside stays inside:
/// its clients are processes of their own, and they are gone only when the lease has run out that
/// they had from their agent. Where nobody is ever removed that has no end of its own; it is known to
/// be over when the next incarnation of that member has waited it out.
#[derive(Clone, Debug, Hash)]
pub struct Exclusion {
    locks: BTreeMap<LockName, Lock>,
    /// Until when what a process was granted is valid; for ever, if it has never said.
    leases: BTreeMap<Process, Time>,
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
    /// Its process crashed, and the next incarnation waits until then.
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
            leases: BTreeMap::new(),
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
        lock.inside.insert(call, (mode, Presence::Live));
        self.check(now, name)
    }

    /// What `process` was granted is valid until `end`.
    ///
    /// # Errors
    /// It was not any more, and others are inside by now.
    pub fn extends(&mut self, now: Time, process: Process, end: Time) -> Result<(), Violation> {
        let before = self.leases.insert(process, end);
        if before.is_none_or(|before| before > now) {
            return Ok(());
        }
        self.holds(now)
    }

    /// Whether all is as it should be now, whatever was before.
    ///
    /// # Errors
    /// Too many are inside that are valid.
    pub fn holds(&mut self, now: Time) -> Result<(), Violation> {
        let names: Vec<LockName> = self.locks.keys().cloned().collect();
        names.iter().try_for_each(|name| self.check(now, name))
    }

    fn check(&mut self, now: Time, name: &LockName) -> Result<(), Violation> {
        let lock = self.locks.get_mut(name).expect("as above");
        lock.inside
            .retain(|_, (_, presence)| !matches!(presence, Presence::Until(end) if *end <= now));
        let leases = &self.leases;
        let is_valid = |(call, (_, presence)): &(&Call, &(Mode, Presence))| {
            let end = leases.get(&call.process);
            *presence != Presence::Live || end.is_none_or(|end| now < *end)
        };
        let inside: Vec<_> = lock.inside.iter().filter(is_valid).collect();
        let share = |how| inside.iter().all(|(_, (mode, _))| *mode == how);
        let permits = lock.permits.get() as usize;
        if share(Mode::Shared) || share(Mode::Exclusive) && inside.len() <= permits {
            return Ok(());
        }
        let inside: Vec<String> = inside
            .into_iter()
            .map(|(call, (mode, presence))| match presence {
                Presence::Live => format!("{call} ({mode:?})"),
                Presence::Ghost => format!("{call} ({mode:?}, crashed inside, not yet back)"),
                Presence::Until(end) => format!(
                    "{call} ({mode:?}, crashed inside, may act until {} ns)",
                    end.as_nanos()
                ),
            })
            .collect();
        let inside = inside.join(", ");
        Err(violation!(
            now,
            Exclusion,
            "inside {name} ({permits} permit(s)) are: {inside}"
        ))
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
        let end = self.leases.remove(&process);
        self.turn(|call, presence| {
            if call.process == process {
                *presence = end.map_or(Presence::Ghost, Presence::Until);
            }
        });
    }

    /// `node` is back, and waits until `quarantine_ends` for what its earlier incarnations left
    /// behind.
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
