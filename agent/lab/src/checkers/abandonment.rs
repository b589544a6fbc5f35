//! What the next holder learns of those before.

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU32;

use super::{Call, Process, Violation, violation};
use distlock_protocol::{Epoch, LockName, Mode, NodeId, Previous, Release, Time};

/// Who is alone inside is told that a holder before it ended inside, if that is so and nobody was
/// told who was alone; and it is told nothing of the kind if no holder did, and none may have. Who
/// shares a lock, or has one of several permits, may have been let in before the end was known; it
/// is told no tales either, and in the end somebody is told.
///
/// This knows who really was inside. That nobody who is left can tell is possible only in a view
/// that begins without somebody who was in the last one: there the nodes may say so of any lock.
///
/// Where members are removed, a view ends the grants of those it goes on without: who is inside then
/// has ended inside for everybody else, though it may not know yet. What it says of its end later is
/// said to nobody; and which views went on without an incarnation only its member could tell. So from
/// the first fault on, each view may say so of any lock, and of one of several only those must be
/// told of who ended in the newest view.
#[derive(Clone, Debug, Hash)]
pub struct Abandonment {
    locks: BTreeMap<LockName, LockPast>,
    /// Who has left the group, and is about to be taken away.
    left: BTreeSet<Process>,
    /// The last incarnations that are gone, of which a view has to make what it can. It has when
    /// their members' next incarnations are in one.
    gone: BTreeMap<NodeId, u32>,
    /// Whether the silent are presumed gone. Then the dead may be told of twice, once when they are
    /// taken for dead, and once when their next incarnations tell it themselves; and when all are
    /// gone that remember, others begin without them.
    presumes: bool,
    /// Whether anybody ever ended without a word.
    ever: bool,
    /// Processes that are in a view, and remember.
    remember: BTreeSet<Process>,
    epoch: Epoch,
    /// Whether views can go on without members.
    removes: bool,
    /// The first epoch of all, there.
    first: Epoch,
    /// The newest epoch of each process, and the members of the newest of all.
    installed: BTreeMap<Process, Epoch>,
    members: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, Hash)]
struct LockPast {
    permits: NonZeroU32,
    inside: BTreeMap<Call, Entry>,
    /// Whether a holder ended inside of which nobody was told who was alone.
    debt: bool,
    /// Whether nobody may be left who can tell that none did.
    doubt: bool,
    /// Whether one of several ended inside. Then a view may make it be told again.
    repeats: bool,
    /// How many of several ended inside, less those who were told. One that is told may have been
    /// let in before the last of them ended.
    untold: u64,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Entry {
    mode: Mode,
    /// What was taken away by entering, and comes back if it was not entered.
    debt: bool,
    doubt: bool,
}

impl Abandonment {
    /// Locks with that many permits.
    pub fn new(locks: &BTreeMap<LockName, NonZeroU32>) -> Self {
        let past = |permits| LockPast {
            permits,
            inside: BTreeMap::new(),
            debt: false,
            doubt: false,
            repeats: false,
            untold: 0,
        };
        let locks = locks.iter();
        Self {
            locks: locks
                .map(|(name, permits)| (name.clone(), past(*permits)))
                .collect(),
            left: BTreeSet::new(),
            gone: BTreeMap::new(),
            presumes: false,
            ever: false,
            remember: BTreeSet::new(),
            epoch: Epoch::ZERO,
            removes: false,
            first: Epoch::ZERO,
            installed: BTreeMap::new(),
            members: BTreeSet::new(),
        }
    }

    /// The same where the silent are presumed gone.
    pub fn presuming(locks: &BTreeMap<LockName, NonZeroU32>) -> Self {
        Self {
            presumes: true,
            ..Self::new(locks)
        }
    }

    /// From now on views can go on without members; `first` is the first epoch of all.
    pub const fn remove_members(&mut self, first: Epoch) {
        self.removes = true;
        self.first = first;
    }

    /// From now on nobody vouches for what a view begins with: it may say so of any lock.
    pub const fn distrust(&mut self) {
        self.ever = true;
    }

    /// Whether what `process` knows is sure to be asked for.
    fn is_present(&self, process: Process) -> bool {
        !self.removes || self.installed.get(&process) == Some(&self.epoch)
    }

    /// `call` enters `name`, and is told `previous`.
    ///
    /// # Errors
    /// That is not so.
    pub fn grants(
        &mut self,
        now: Time,
        call: Call,
        (name, mode): (&LockName, Mode),
        previous: Previous,
    ) -> Result<(), Violation> {
        let is_present = self.is_present(call.process);
        let lock = self
            .locks
            .get_mut(name)
            .expect("only known locks are asked for");
        let alone = lock.permits == NonZeroU32::MIN && mode == Mode::Exclusive;
        if alone && self.removes {
            // They were removed, or there would be two inside.
            for (_, entry) in core::mem::take(&mut lock.inside) {
                lock.ends_inside(entry, true);
            }
        }
        let may_be_told = lock.debt || lock.doubt || lock.untold > 0 || self.ever && self.presumes;
        if previous.is_abandoned() && !may_be_told {
            return Err(violation!(
                now,
                Abandonment,
                "{call} enters {name} and is told that a holder before ended inside, but none did"
            ));
        }
        if alone && lock.debt && !previous.is_abandoned() {
            return Err(violation!(
                now,
                Abandonment,
                "{call} enters {name} and is not told that a holder before ended inside"
            ));
        }
        let mut entry = Entry {
            mode,
            debt: false,
            doubt: false,
        };
        if alone {
            entry.debt = core::mem::take(&mut lock.debt);
            // A view that has gone on without the process, and has the lock in quarantine, does not
            // hear of this.
            entry.doubt = is_present && core::mem::take(&mut lock.doubt);
        } else if mode == Mode::Exclusive && previous.is_abandoned() {
            entry.debt = lock.debt;
            lock.debt = false;
            lock.untold = lock.untold.saturating_sub(1);
        }
        lock.inside.insert(call, entry);
        Ok(())
    }

    /// `call` leaves whatever it is inside of.
    pub fn leaves(&mut self, call: Call, how: Release) {
        let is_present = self.is_present(call.process);
        for lock in self.locks.values_mut() {
            let Some(entry) = lock.inside.remove(&call) else {
                continue;
            };
            match how {
                Release::Given => {}
                Release::Abandoned => {
                    lock.ends_inside(entry, is_present);
                    self.ever = true;
                }
                Release::Unused => {
                    let several = lock.permits > NonZeroU32::MIN;
                    // A view that went on without the process has told somebody else.
                    lock.debt |= entry.debt && (!several || is_present);
                    lock.doubt |= entry.doubt;
                    if several {
                        lock.repeats = true;
                        lock.untold += 1;
                    }
                }
            }
        }
    }

    /// `process` ends without a word.
    pub fn crashes(&mut self, process: Process) {
        if self.left.remove(&process) {
            return;
        }
        self.remember.remove(&process);
        self.gone.insert(process.node, process.incarnation);
        self.all_end_inside(process);
        self.installed.remove(&process);
    }

    /// A view has gone on without `process`, which begins anew.
    pub fn excludes(&mut self, process: Process) {
        self.all_end_inside(process);
        self.remember.remove(&process);
        self.installed.remove(&process);
    }

    fn all_end_inside(&mut self, process: Process) {
        self.ever = true;
        let is_present = self.is_present(process);
        for lock in self.locks.values_mut() {
            let inside = core::mem::take(&mut lock.inside);
            for (call, entry) in inside {
                if call.process == process {
                    lock.ends_inside(entry, is_present);
                } else {
                    lock.inside.insert(call, entry);
                }
            }
        }
        if self.presumes {
            self.forget_if_nobody_remembers();
        }
    }

    /// `process` has left. What it knew of those who ended inside it has told as well as it could.
    pub fn left(&mut self, process: Process) {
        self.left.insert(process);
        // One that was in no view cannot tell whether it had lost the record of an incarnation
        // before.
        self.ever |= !self.remember.remove(&process);
        if self.ever {
            self.gone.insert(process.node, process.incarnation);
        }
        // The whole group has ended, the last of it in good order. Of locks that no file lists
        // nobody knows any more.
        self.forget_if_nobody_remembers();
    }

    /// No disk remembers that there ever was a cluster: whatever is founded next is the first.
    pub fn forgets_all(&mut self) {
        self.remember.clear();
        self.forget_if_nobody_remembers();
    }

    fn forget_if_nobody_remembers(&mut self) {
        if self.remember.is_empty() {
            for lock in self.locks.values_mut() {
                lock.doubt |= lock.debt;
                lock.debt = false;
            }
        }
    }

    /// A view of these is about to be in force. If one before it never was, somebody may have been
    /// in that one who is not in this.
    pub fn goes_on_with(&mut self, epoch: Epoch, members: &BTreeSet<NodeId>, is_whole: bool) {
        if epoch > self.epoch {
            self.ever |= !self.members.is_subset(members);
            let is_first = self.epoch == Epoch::ZERO;
            let next = if is_first {
                Some(self.first)
            } else {
                self.epoch.next()
            };
            self.ever |= next != Some(epoch) || is_first && !is_whole;
            self.members.clone_from(members);
        }
    }

    /// The view of `epoch` is in force in `process`.
    pub fn installs(&mut self, process: Process, epoch: Epoch) {
        if epoch > self.epoch {
            self.epoch = epoch;
            for lock in self.locks.values_mut() {
                let may_be_told = self.removes && self.ever;
                lock.doubt |= may_be_told || !self.gone.is_empty() || lock.repeats;
            }
        }
        self.installed.insert(process, epoch);
        self.remember.insert(process);
        let is_next = |incarnation: &u32| process.incarnation > *incarnation;
        if self.gone.get(&process.node).is_some_and(is_next) {
            self.gone.remove(&process.node);
        }
    }

    /// Everybody has entered once more.
    ///
    /// # Errors
    /// The end of one of several was never told.
    pub fn all_told(&self, now: Time) -> Result<(), Violation> {
        let owes = |(_, lock): &(&LockName, &LockPast)| lock.debt && lock.permits > NonZeroU32::MIN;
        match self.locks.iter().find(owes) {
            None => Ok(()),
            Some((name, _)) => Err(violation!(
                now,
                Abandonment,
                "a holder of {name} ended inside, and nobody was ever told"
            )),
        }
    }
}

impl LockPast {
    /// `is_present`: whether its member is in the newest view.
    fn ends_inside(&mut self, entry: Entry, is_present: bool) {
        let several = self.permits > NonZeroU32::MIN;
        self.debt |= !several || is_present;
        self.repeats |= entry.mode == Mode::Shared || several;
        self.untold += u64::from(several);
    }
}
