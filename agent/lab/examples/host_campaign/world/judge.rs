//! Which programs and commands hold the lock, and whether they may at the same time.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{COMMAND, PROGRAM, Result, WAKING};
use crate::page::NEVER;
use crate::program::LOCKS;
use crate::scheduler::BEGIN;

/// How a lock was entered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Which of the locks.
    pub(super) lock: usize,
    pub(super) is_command: bool,
    pub(super) is_shared: bool,
    /// Whether the library is to abort the program when the lock is lost.
    pub(super) aborts: bool,
}

/// A program or a command that holds a lock.
#[derive(Clone, Copy, Debug)]
struct Inside {
    host: usize,
    /// The member by which it entered: the process of an agent, or of a runner.
    member: Option<u32>,
    how: Entry,
    /// What its guard said last, and when that was.
    is_valid: bool,
    said_at: u64,
    /// Whether another has entered since that may not be inside with it, or it has closed its agent.
    is_former: bool,
}

/// When the last lease is over that each member can have had, by its process.
pub(super) type Leases = BTreeMap<u32, u64>;

/// Sees every entry, and what guards say, in true time.
pub(super) struct Judge {
    inside: BTreeMap<u32, Inside>,
    /// Programs and commands that entered, on each host.
    pub(super) entries: Vec<[u64; 2]>,
    /// How many may be inside at once, without sharing the lock.
    pub(super) permits: usize,
    locks: [Lock; LOCKS.len()],
}

/// What is remembered of a lock.
#[derive(Default)]
struct Lock {
    /// All fences that were given, and the last of one that was alone inside.
    fences: BTreeSet<u64>,
    last_fence: u64,
    /// Whether a holder, a program, has ended inside, and nobody was told since that was alone inside.
    has_died_inside: bool,
}

impl Judge {
    pub(super) fn new(hosts: usize) -> Self {
        Self {
            inside: BTreeMap::new(),
            entries: vec![[0; 2]; hosts],
            permits: 1,
            locks: Default::default(),
        }
    }

    pub(super) fn entered(&mut self, pid: u32, (host, member): (usize, Option<u32>), how: Entry) {
        let kind = if how.is_command { COMMAND } else { PROGRAM };
        self.entries[host][kind] += 1;
        for former in self
            .inside
            .values_mut()
            .filter(|it| it.how.lock == how.lock)
        {
            former.is_former |= self.permits == 1 && !(how.is_shared && former.how.is_shared);
        }
        let inside = Inside {
            host,
            member,
            how,
            is_valid: true,
            said_at: 0,
            is_former: false,
        };
        self.inside.insert(pid, inside);
    }

    pub(super) fn left(&mut self, pid: u32) {
        self.inside.remove(&pid);
    }

    /// A program closes its agent. What it was doing then counts as done.
    pub(super) fn closes(&mut self, pid: u32) {
        if let Some(inside) = self.inside.get_mut(&pid) {
            inside.is_former = true;
        }
    }

    /// A process is no more. Where that is a program which held the lock, the next holder has to hear of it. How a
    /// command has ended its runner tells. Returns whether it is so, and what it was.
    pub(super) fn ended(&mut self, pid: u32) -> Option<&'static str> {
        let inside = self.inside.remove(&pid)?;
        let has_died = !inside.how.is_command && inside.is_valid && !inside.is_former;
        self.locks[inside.how.lock].has_died_inside |= has_died;
        let what = if inside.how.is_shared {
            "a reader ended inside"
        } else {
            "a holder ended inside"
        };
        has_died.then_some(what)
    }

    /// One was told that a holder has ended inside.
    pub(super) fn forget_the_dead(&mut self, lock: usize) {
        self.locks[lock].has_died_inside = false;
    }

    /// The voters have lost their states, and that with them.
    pub(super) fn forget_all_dead(&mut self) {
        for lock in 0..self.locks.len() {
            self.forget_the_dead(lock);
        }
    }

    /// The programs whose guards have said that the lock is lost.
    pub(super) fn lost(&self) -> impl Iterator<Item = u32> {
        let inside = self.inside.iter();
        inside
            .filter(|(_, inside)| !inside.is_valid)
            .map(|(pid, _)| *pid)
    }

    /// Those that have not.
    pub(super) fn valid(&self) -> impl Iterator<Item = u32> {
        let inside = self.inside.iter();
        inside
            .filter(|(_, inside)| inside.is_valid)
            .map(|(pid, _)| *pid)
    }

    /// What a program's guard says.
    pub(super) fn says(&mut self, now: u64, pid: u32, is_valid: bool) {
        if let Some(inside) = self.inside.get_mut(&pid) {
            (inside.is_valid, inside.said_at) = (is_valid, now);
        }
    }

    /// Whether several are inside that may be.
    pub(super) fn is_held_by_several(&self) -> bool {
        (0..self.locks.len()).any(|lock| {
            let valid = || self.holders(lock);
            valid().nth(1).is_some()
                && (self.permits > 1 || valid().all(|inside| inside.how.is_shared))
        })
    }

    /// Whether all locks are held.
    pub(super) fn are_held(&self) -> bool {
        (0..self.locks.len()).all(|lock| self.holders(lock).next().is_some())
    }

    /// What is inside, as far as is known.
    fn holders(&self, lock: usize) -> impl Iterator<Item = &Inside> {
        let inside = self.inside.values();
        inside.filter(move |inside| inside.is_valid && inside.how.lock == lock)
    }

    /// Whether there is more to see than that one is inside.
    pub(super) fn has_several(&self) -> bool {
        self.inside.len() > 1
    }

    pub(super) fn is_inside(&self, pid: u32) -> bool {
        self.inside.contains_key(&pid)
    }

    /// The host of a program or a command that is inside.
    pub(super) fn holder(&self) -> Option<usize> {
        self.inside.values().next().map(|inside| inside.host)
    }

    /// The commands that are inside on a host.
    pub(super) fn commands(&self, host: usize) -> Vec<u32> {
        let inside = self.inside.iter();
        let commands = inside.filter(|(_, inside)| inside.how.is_command && inside.host == host);
        commands.map(|(pid, _)| *pid).collect()
    }

    /// Fails if more are inside than may be, of which `entered` is one that has just entered. What sleeps does nothing,
    /// and a command that wakes may run on for a moment.
    pub(super) fn check(
        &self,
        now: u64,
        sleeps: impl Fn(usize) -> bool,
        woke: &[u64],
        entered: Option<u32>,
    ) -> Result<()> {
        let counts = |pid: u32, inside: &Inside| {
            let wakes = inside.how.is_command && now < woke[inside.host] + WAKING;
            // A program that is stopped while it gives its lock back says nothing before it has.
            let answers = inside.how.is_command || inside.said_at == now || entered == Some(pid);
            inside.is_valid && answers && !sleeps(inside.host) && !wakes
        };
        for lock in 0..self.locks.len() {
            let of_lock =
                |(pid, inside): &(&u32, &Inside)| inside.how.lock == lock && counts(**pid, inside);
            let inside: Vec<_> = self.inside.iter().filter(of_lock).collect();
            let are_readers = inside.iter().all(|(_, inside)| inside.how.is_shared);
            if inside.len() <= self.permits || are_readers {
                continue;
            }
            let at = (now - BEGIN) as f64 / 1e9;
            let count = if self.permits == 1 { "two" } else { "too many" };
            let what = format!("{count} inside, at {at:.6} s: {inside:?} (entered: {entered:?})");
            return Err(what.into());
        }
        Ok(())
    }

    /// When somebody is inside whose member's last lease is over, as `leases_end` has it.
    pub(super) fn due(&self, sleeps: impl Fn(usize) -> bool, leases_end: &Leases) -> u64 {
        let inside = self.inside.values();
        let counts = |inside: &&Inside| inside.is_valid || inside.how.aborts;
        let inside = inside.filter(|inside| counts(inside) && !sleeps(inside.host));
        let due = inside.map(|inside| {
            let is_guard = inside.is_valid && !inside.how.is_command;
            let grace = if is_guard { 0 } else { WAKING };
            let end = inside.member.and_then(|member| leases_end.get(&member));
            end.map_or(NEVER, |end| end + grace)
        });
        due.min().unwrap_or(NEVER)
    }

    /// Fails if a guard was valid, or what has to end runs, though the last lease is over that its member can have
    /// had. `runs_since`: when a process that stood still went on.
    pub(super) fn check_leases(
        &self,
        now: u64,
        sleeps: impl Fn(usize) -> bool,
        woke: &[u64],
        runs_since: impl Fn(u32) -> u64,
        leases_end: &Leases,
    ) -> Result<()> {
        for (&pid, inside) in &self.inside {
            let host = inside.host;
            let member = inside.member.unwrap_or_default();
            let Some(&end) = leases_end.get(&member) else {
                continue;
            };
            let awake = end.max(woke[host]);
            let aborts_by = awake.max(runs_since(pid)).saturating_add(WAKING);
            let what = if inside.how.is_command && inside.is_valid && now > awake + WAKING {
                "command"
            } else if !inside.how.is_command && inside.is_valid && inside.said_at > end {
                "the guard of program"
            } else if inside.how.aborts && now > aborts_by {
                "the program that is to abort,"
            } else {
                continue;
            };
            if !sleeps(host) {
                let since = (now - end) as f64 / 1e9;
                let what = format!(
                    "{what} {pid} of host {host} goes on {since:.3} s after the last lease"
                );
                return Err(what.into());
            }
        }
        Ok(())
    }

    /// Fails if an entry after a holder that has ended inside is not told of that. One that
    /// shares the lock, or has one of several permits, may have been let in before that was known.
    pub(super) fn check_previous_owner(&mut self, pid: u32, is_told: bool) -> Result<()> {
        let Some(inside) = self.inside.get(&pid) else {
            return Ok(());
        };
        if self.permits > 1 || inside.how.is_shared {
            return Ok(());
        }
        let lock = &mut self.locks[inside.how.lock];
        // One that is void already says nothing of what the next one is told.
        if lock.has_died_inside && inside.is_valid && !is_told {
            return Err(format!("a holder ended inside, and {pid} is not told").into());
        }
        lock.has_died_inside &= !inside.is_valid && !is_told;
        Ok(())
    }

    /// Fails if the fence of an entry is not a new one, or not above the last one of an exclusive holder. That of an
    /// exclusive holder must be above all others. Entries that are void already may have old ones.
    pub(super) fn check_fence(&mut self, pid: u32, fence: u64) -> Result<()> {
        let Some(inside) = self.inside.get(&pid) else {
            return Ok(());
        };
        let lock = &mut self.locks[inside.how.lock];
        let is_alone = self.permits == 1 && !inside.how.is_shared;
        let before = match is_alone {
            true => lock.fences.last().copied().unwrap_or_default(),
            false => lock.last_fence,
        };
        let is_new = lock.fences.insert(fence);
        if inside.is_valid && (fence <= before || !is_new) {
            return Err(format!("fence {fence} after {before}").into());
        }
        if is_alone {
            lock.last_fence = lock.last_fence.max(fence);
        }
        Ok(())
    }
}
