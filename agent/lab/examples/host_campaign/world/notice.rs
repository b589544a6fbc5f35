//! What a world makes of what happens: of the word of a program, an end, a write. It tells the judge, and
//! plans what follows.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::acts::Act;
use super::judge::Entry;
use super::{COMMAND, CRASHED, Client, LOST, MILLI, RECOVERY, Result, World, is_over_after};
use crate::page::NEVER;
use crate::program::told;
use crate::scheduler::{Event, Midway};

impl World<'_> {
    /// Asks every program that is inside whether its guard is valid, and fails if two holders are inside.
    /// `entered`: the process that has just entered.
    pub(super) fn look(&mut self, entered: Option<u32>) -> Result<()> {
        for event in self.scheduler.ask()? {
            match event {
                Event::Told {
                    pid,
                    words: [told::STATE, is_valid, _],
                } => {
                    let now = self.scheduler.now();
                    self.judge.says(now, pid, is_valid == 1);
                }
                other => self.note(&other)?,
            }
        }
        let now = self.scheduler.now();
        let sleeps = |host| self.scheduler.is_suspended(host);
        self.judge.check(now, sleeps, &self.woke, entered)?;
        let runs_since = |pid: u32| match self.scheduler.processes.get(&pid) {
            Some(process) if process.is_stopped => NEVER,
            _ => self.continued.get(&pid).copied().unwrap_or_default(),
        };
        self.judge
            .check_leases(now, sleeps, &self.woke, runs_since, &self.leases_end)
    }

    /// When somebody is inside whose host's last lease is over.
    pub(super) fn lease_is_due(&self) -> u64 {
        let sleeps = |host| self.scheduler.is_suspended(host);
        self.judge.due(sleeps, &self.leases_end)
    }

    /// The member of a host that has just had a turn may have asked for its lease to be renewed.
    pub(super) fn note_renewal(&mut self) {
        let Some((pid, host)) = self.scheduler.last.take() else {
            return;
        };
        let is_agent = self.agents.get(&host) == Some(&pid);
        let is_member =
            is_agent || (self.agentless == Some(host) && self.clients.contains_key(&pid));
        if !is_member {
            return;
        }
        let now = self.scheduler.now();
        self.members[host] = Some(pid);
        for other in self.scheduler.network.reached_from(host, self.hosts) {
            self.reached[host][other] = now;
        }
        let Some(voters) = self.voters() else {
            let is_heard = !self.scheduler.network.is_cut_off(host, self.hosts);
            if is_heard || self.may_vote_alone() {
                self.renewed_at(host, now);
            }
            return;
        };
        // It has asked a majority, and they have answered that. A lease begins when it is asked for.
        let of_majority = |mut times: Vec<u64>| {
            times.sort_unstable();
            times[times.len() - voters.len() / 2 - 1]
        };
        let ids = || voters.iter().map(|id| id - 1);
        let asked = of_majority(ids().map(|voter| self.reached[host][voter]).collect());
        let answered = of_majority(ids().map(|voter| self.reached[voter][host]).collect());
        self.renewed_at(host, asked.min(answered));
    }

    /// The hosts of the voters, by id, if nobody can have changed them.
    fn voters(&self) -> Option<Vec<usize>> {
        self.known_voters.clone().filter(|_| !self.has_lost)
    }

    /// The lease of a host's member may begin at that time.
    fn renewed_at(&mut self, host: usize, at: u64) {
        let Some(pid) = self.members[host] else {
            return;
        };
        let end = at + is_over_after(self.runs_with[host]);
        let known = self.leases_end.entry(pid).or_default();
        *known = end.max(*known);
    }

    /// Whether one host may be the only voter: then it renews its own lease.
    pub(super) fn may_vote_alone(&self) -> bool {
        self.known_voters
            .as_ref()
            .is_none_or(|voters| voters.len() == 1)
    }

    /// These need not give up in time any more.
    pub(super) fn excuse(&mut self, which: impl Fn(&Client) -> bool) {
        for client in self.clients.values_mut().filter(|client| which(client)) {
            client.waits_until = None;
        }
    }

    pub(super) fn excuse_one(&mut self, pid: u32) {
        if let Some(client) = self.clients.get_mut(&pid) {
            client.waits_until = None;
        }
    }

    pub(super) fn note(&mut self, event: &Event) -> Result<()> {
        match *event {
            Event::Told {
                pid,
                words: [told::ENTERED, fence, how],
            } => {
                let host = self.scheduler.processes[&pid].host;
                let is_shared = how & told::SHARED != 0;
                let kind = usize::from(how & told::AS_COMMAND != 0);
                let place = (host, self.members[host]);
                let entry = Entry {
                    lock: usize::from(how & told::OTHER_LOCK != 0),
                    is_command: kind == COMMAND,
                    is_shared,
                    aborts: self.aborts(pid),
                };
                self.judge.entered(pid, place, entry);
                match self.clients.get_mut(&pid) {
                    Some(program) => program.waits_until = None,
                    None => self.excuse(|client| client.is_runner && client.host == host),
                }
                self.look(Some(pid))?;
                if let (Some(name), true) = (self.several_inside(), self.judge.is_held_by_several())
                {
                    *self.acts.entry(name).or_default() += 1;
                }
                if self.judge.are_held() {
                    *self.acts.entry("inside with another lock").or_default() += 1;
                }
                self.judge.check_fence(pid, fence)?;
                self.judge
                    .check_previous_owner(pid, how & told::AFTER_ABANDONED != 0)?;
                if self.is_quiet && !self.loses_own_lock(pid) {
                    self.may_not_lose.insert(pid);
                }
                self.trouble_inside(pid, host, kind);
            }
            // It mostly stands still before it can notice.
            Event::Told {
                pid,
                words: [told::GARBLED, ..],
            } if self.is_troubled && self.choices.chance(800) => {
                self.stop(pid);
                let until = self.within_leases(2);
                self.plan(until, Act::Continue(pid));
            }
            Event::Told {
                pid,
                words: [told::CLOSES, ..],
            } => {
                self.judge.closes(pid);
                self.may_not_lose.remove(&pid);
                if let Some(client) = self.clients.get_mut(&pid) {
                    client.loses_own_lock = true;
                }
                *self.acts.entry("an agent is closed inside").or_default() += 1;
                if self.is_troubled && self.choices.chance(800) {
                    let at = match self.choices.chance(500) {
                        true => Midway::Anywhere,
                        false => Midway::BehindSent,
                    };
                    self.scheduler.stop_midway(pid, at);
                    let until = self.within_leases(2);
                    self.plan(until, Act::Continue(pid));
                }
            }
            Event::Told {
                pid,
                words: [told::LOST, ..],
            } if self.may_not_lose.contains(&pid) => return Err(lost_in_peace(pid)),
            Event::Told {
                words: [told::LEARNS, lock, _],
                ..
            } => self.judge.forget_the_dead(usize::try_from(lock)?),
            Event::Told {
                pid,
                words: [told::WAITS, millis, _],
            } => {
                let until = self.gives_up_by(Duration::from_millis(millis), Duration::ZERO)?;
                let host = self.scheduler.processes[&pid].host;
                let has_agent = self.agentless != Some(host);
                if let Some(client) = self.clients.get_mut(&pid)
                    && has_agent
                {
                    client.waits_until = Some(until);
                    self.plan(until, Act::GivesUp(pid));
                }
            }
            Event::Told {
                pid,
                words: [told::GAVE_UP, ..],
            } => self.excuse_one(pid),
            Event::Told {
                pid,
                words: [told::LEAVES, ..],
            } => {
                self.judge.left(pid);
            }
            Event::Synced { pid, fd } => {
                if let Some(process) = self.scheduler.processes.get(&pid) {
                    let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
                    let host = process.host;
                    self.disks[host].synced(&path)?;
                    if path.is_dir() {
                        self.look_at_disk(host)?;
                    }
                }
            }
            Event::Unsynced { pid, fd } => {
                if let Some(process) = self.scheduler.processes.get(&pid) {
                    let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
                    self.disks[process.host].not_synced(&path)?;
                }
            }
            Event::Ended {
                pid,
                host,
                code,
                signal,
                is_killed,
            } => {
                if !is_killed {
                    self.check_end(pid, host, code, signal)?;
                }
                if let Some(change) = self.changes.remove(&pid)
                    && code == Some(0)
                {
                    *self.acts.entry(change).or_default() += 1;
                }
                self.recovered(pid, code == Some(0));
                if self.aborts(pid) && signal == Some(Signal::SIGABRT) {
                    *self.acts.entry("aborted as its lock was lost").or_default() += 1;
                    self.judge.says(self.scheduler.now(), pid, false);
                }
                if let Some(what) = self.judge.ended(pid) {
                    *self.acts.entry(what).or_default() += 1;
                }
                // When it ends in order it has left that to its guardian.
                if let Some(guardian) = self.alone.remove(&pid) {
                    self.act(Act::Continue(guardian))?;
                }
                self.delay_others(host);
                if let Some(Client {
                    host, is_runner, ..
                }) = self.clients.remove(&pid)
                {
                    let at = self.within_leases(1) + 50 * MILLI;
                    let act = match is_runner {
                        _ if self.agentless == Some(host) => Act::StartMember,
                        true => Act::StartRunner,
                        false => Act::StartProgram,
                    };
                    self.plan(at, act(host));
                }
                if let Some((host, _)) = self.agents.iter().find(|(_, agent)| **agent == pid) {
                    let host = *host;
                    self.agents.remove(&host);
                    let at = self.within_leases(2);
                    self.plan(at, Act::StartAgent(host));
                }
            }
            // Where it shows what was acknowledged too early.
            Event::Syncs { host }
                if self.is_troubled
                    && self.peace[host] <= self.scheduler.now()
                    && self.choices.chance(self.cuts_at_sync) =>
            {
                let takes = u64::try_from(self.scheduler.disk_takes.as_nanos())?;
                let at = self.scheduler.now() + self.choices.below(2 * takes + MILLI);
                // They may all be on one circuit.
                let are_all = self.choices.chance(300);
                for host in (0..self.hosts).filter(|each| are_all || *each == host) {
                    self.peace[host] = at + RECOVERY;
                    self.plan(at, Act::CutPower(host));
                }
            }
            Event::Told { .. } | Event::Syncs { .. } => {}
        }
        Ok(())
    }

    /// Whether a program loses its lock by what it does itself.
    pub(super) fn loses_own_lock(&self, pid: u32) -> bool {
        self.clients
            .get(&pid)
            .is_some_and(|client| client.loses_own_lock)
    }

    /// Whether this is a program that the library aborts when its lock is lost.
    fn aborts(&self, pid: u32) -> bool {
        self.clients.get(&pid).is_some_and(|client| client.aborts)
    }

    /// Fails if a process that nobody has killed ends as none should.
    fn check_end(
        &self,
        pid: u32,
        host: usize,
        code: Option<i32>,
        signal: Option<Signal>,
    ) -> Result<()> {
        let client = self.clients.get(&pid);
        let what = match client {
            _ if self.agents.get(&host) == Some(&pid) => "agent",
            Some(client) if client.is_runner => "runner",
            Some(_) => "program",
            // Commands are killed.
            None => return Ok(()),
        };
        // It may not have begun to listen to that.
        let has_crashed = match code {
            None if signal == Some(Signal::SIGABRT) => !self.aborts(pid),
            None => signal != Some(Signal::SIGTERM) || !self.told_to_end.contains(&pid),
            Some(code) => CRASHED.contains(&code),
        };
        let is_unasked = self.is_quiet
            && match what {
                "agent" => !self.told_to_end.contains(&pid),
                "runner" => code.is_some_and(|code| LOST.contains(&code)),
                _ => code != Some(0) && !self.loses_own_lock(pid),
            };
        if has_crashed || is_unasked {
            let when = if is_unasked {
                "nothing befalls anybody, and "
            } else {
                ""
            };
            return Err(format!(
                "{when}{what} {pid} of host {host} ends with {code:?}, {signal:?}"
            )
            .into());
        }
        Ok(())
    }
}

pub(super) fn lost_in_peace(pid: u32) -> Box<dyn std::error::Error> {
    format!("nothing befalls anybody, and program {pid} loses its lock").into()
}
