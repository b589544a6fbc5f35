//! Which programs and commands hold the lock, and whether they may at the same time.

use std::collections::BTreeMap;

use super::{COMMAND, Result, WAKING};
use crate::page::NEVER;
use crate::program::told;
use crate::scheduler::BEGIN;

/// A program or a command that holds the lock.
#[derive(Clone, Copy, Debug)]
struct Inside {
    host: usize,
    /// The member by which it entered: the process of an agent, or of a runner.
    member: Option<u32>,
    is_command: bool,
    /// What its guard said last, and when that was.
    is_valid: bool,
    said_at: u64,
    /// Whether another has entered since.
    is_former: bool,
}

/// When the last lease is over that each member can have had, by its process.
pub(super) type Leases = BTreeMap<u32, u64>;

/// Sees every entry, and what guards say, in true time.
pub(super) struct Judge {
    inside: BTreeMap<u32, Inside>,
    /// Programs and commands that entered, on each host.
    pub(super) entries: Vec<[u64; 2]>,
    fence: u64,
    /// Whether the last holder, a program, has ended inside.
    has_died_inside: bool,
}

impl Judge {
    pub(super) fn new(hosts: usize) -> Self {
        Self {
            inside: BTreeMap::new(),
            entries: vec![[0; 2]; hosts],
            fence: 0,
            has_died_inside: false,
        }
    }

    pub(super) fn entered(&mut self, pid: u32, host: usize, member: Option<u32>, kind: usize) {
        self.entries[host][kind] += 1;
        for former in self.inside.values_mut() {
            former.is_former = true;
        }
        let inside = Inside {
            host,
            member,
            is_command: kind == COMMAND,
            is_valid: true,
            said_at: 0,
            is_former: false,
        };
        self.inside.insert(pid, inside);
    }

    pub(super) fn left(&mut self, pid: u32) {
        self.inside.remove(&pid);
    }

    /// A process is no more. Where that is a program which held the lock, the next holder has to hear of it. How a
    /// command has ended its runner tells.
    pub(super) fn ended(&mut self, pid: u32) {
        if let Some(inside) = self.inside.remove(&pid) {
            self.has_died_inside |= !inside.is_command && inside.is_valid && !inside.is_former;
        }
    }

    /// The voters have lost their states, and with these that a holder has ended inside.
    pub(super) fn forget_the_dead(&mut self) {
        self.has_died_inside = false;
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

    /// Whether there is more to see than that one is inside.
    pub(super) fn has_several(&self) -> bool {
        self.inside.len() > 1
    }

    pub(super) fn is_inside(&self, pid: u32) -> bool {
        self.inside.contains_key(&pid)
    }

    /// The host of a program or a command that holds the lock.
    pub(super) fn holder(&self) -> Option<usize> {
        self.inside.values().next().map(|inside| inside.host)
    }

    /// The commands that are inside on a host.
    pub(super) fn commands(&self, host: usize) -> Vec<u32> {
        let inside = self.inside.iter();
        let commands = inside.filter(|(_, inside)| inside.is_command && inside.host == host);
        commands.map(|(pid, _)| *pid).collect()
    }

    /// Fails if two are inside, of which `entered` is one that has just entered. What sleeps does nothing,
    /// and a command that wakes may run on for a moment.
    pub(super) fn check(
        &self,
        now: u64,
        sleeps: impl Fn(usize) -> bool,
        woke: &[u64],
        entered: Option<u32>,
    ) -> Result<()> {
        let counts = |inside: &Inside| {
            let wakes = inside.is_command && now < woke[inside.host] + WAKING;
            inside.is_valid && !sleeps(inside.host) && !wakes
        };
        let inside = self.inside.iter().filter(|(_, inside)| counts(inside));
        let inside: Vec<_> = inside.collect();
        if inside.len() > 1 {
            let at = (now - BEGIN) as f64 / 1e9;
            let what = format!("two inside, at {at:.6} s: {inside:?} (entered: {entered:?})");
            return Err(what.into());
        }
        Ok(())
    }

    /// When somebody is inside whose member's last lease is over, as `leases_end` has it.
    pub(super) fn due(&self, sleeps: impl Fn(usize) -> bool, leases_end: &Leases) -> u64 {
        let inside = self.inside.values();
        let inside = inside.filter(|inside| inside.is_valid && !sleeps(inside.host));
        let due = inside.map(|inside| {
            let grace = if inside.is_command { WAKING } else { 0 };
            let end = inside.member.and_then(|member| leases_end.get(&member));
            end.map_or(NEVER, |end| end + grace)
        });
        due.min().unwrap_or(NEVER)
    }

    /// Fails if a guard was valid, or a command runs, though the last lease is over that its member can have had.
    pub(super) fn check_leases(
        &self,
        now: u64,
        sleeps: impl Fn(usize) -> bool,
        woke: &[u64],
        leases_end: &Leases,
    ) -> Result<()> {
        for (pid, inside) in self.inside.iter().filter(|(_, inside)| inside.is_valid) {
            let host = inside.host;
            let member = inside.member.unwrap_or_default();
            let Some(&end) = leases_end.get(&member) else {
                continue;
            };
            let (what, at, over) = match inside.is_command {
                true => ("command", now, end.max(woke[host]) + WAKING),
                false => ("the guard of program", inside.said_at, end),
            };
            if at > over && !sleeps(host) {
                let since = (at - end) as f64 / 1e9;
                let what = format!(
                    "{what} {pid} of host {host} goes on {since:.3} s after the last lease"
                );
                return Err(what.into());
            }
        }
        Ok(())
    }

    /// Fails if an entry after a holder that has ended inside is not told of that. `how` it has entered.
    pub(super) fn check_previous_owner(&mut self, pid: u32, how: u64) -> Result<()> {
        let has_died = std::mem::take(&mut self.has_died_inside);
        let is_valid = self.inside.get(&pid).is_some_and(|inside| inside.is_valid);
        if has_died && is_valid && how == told::AFTER_CLEAN {
            return Err(format!("a holder ended inside, and program {pid} is not told").into());
        }
        Ok(())
    }

    /// Fails if the fence of an entry is no higher than one before, though its guard is valid.
    pub(super) fn check_fence(&mut self, pid: u32, fence: u64) -> Result<()> {
        let is_valid = self.inside.get(&pid).is_some_and(|inside| inside.is_valid);
        if fence <= self.fence && is_valid {
            return Err(format!("fence {fence} after {}", self.fence).into());
        }
        self.fence = self.fence.max(fence);
        Ok(())
    }
}
