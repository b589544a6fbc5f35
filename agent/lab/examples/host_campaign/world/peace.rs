//! What follows when nothing goes wrong any more: all is mended, and everybody has to enter.

use super::acts::Act;
use super::operator::Operator;
use super::{COMMAND, LONGEST_STAY_MS, MILLI, PEACE, PROGRAM, Result, SECOND, Trouble, World};

impl World<'_> {
    /// What stands still goes on, and what is missing is started.
    pub(super) fn heal(&mut self) -> Result<()> {
        // Before the founding they matter.
        self.keeps_voters |= self.kind == Trouble::Founding;
        for (at, act) in std::mem::take(&mut self.agenda) {
            if matches!(act, Act::Expect(..) | Act::GivesUp(_)) {
                self.agenda.insert(at, act);
            } else if !matches!(
                act,
                Act::Stop(_)
                    | Act::Kill(_)
                    | Act::LeaveOne(..)
                    | Act::LeaveAgentAtStalledDisk(_)
                    | Act::ForgetLast(..)
                    | Act::StopOthers(_)
                    | Act::SetLeaseOfOthers(_)
                    | Act::Suspend(_)
                    | Act::SuspendAll
                    | Act::CutOff(_)
                    | Act::CutLinks(_)
                    | Act::Split(_)
                    | Act::CutPower(_)
                    | Act::LoseState(_)
                    | Act::LoseSome
                    | Act::ChangeFiles
                    | Act::EndAgent(_)
                    | Act::SetClock(_)
                    | Act::OtherKey(_)
                    | Act::ExchangeKey
            ) {
                self.act(act)?;
            }
        }
        // The operator mends disks, clocks and files, and starts again whose was wrong.
        self.scheduler.stalled_until.fill(0);
        for host in 0..self.hosts {
            let off = std::mem::take(&mut self.clocks_off[host]);
            let clocks = &mut self.scheduler.page.get().hosts[host];
            clocks.realtime -= off;
            clocks.disk_error = 0;
            self.configure(host, self.lease_ms, None)?;
            if self.runs_with[host] != self.lease_ms || self.runs_lacking.contains(&host) {
                self.act(Act::EndAgent(host))?;
            }
        }
        self.act(Act::AddHost)?;
        // Whoever was removed is added again, one after the other: of two changes that an agent is asked for
        // it forgets the first, and a group without a quorum refuses all.
        let (hosts, times) = match self.operator {
            Operator::Removes => (0..self.hosts, 4),
            Operator::AddsAHost => (self.hosts - 1..self.hosts, 12),
            _ => (0..0, 0),
        };
        let mut at = self.scheduler.now();
        for host in std::iter::repeat_n(hosts, times).flatten() {
            self.plan(at, Act::Add(host));
            at += 2 * SECOND;
        }
        Ok(())
    }

    /// Whether it takes an operator until everybody has entered again.
    pub(super) fn is_stuck(&mut self) -> Result<bool> {
        match self.lacks_an_entry()? {
            None => Ok(false),
            Some(_) if self.kind == Trouble::Founding && self.has_lost => Ok(true),
            Some(_) if self.clusters.have_permit_of_another_file(&self.voters) => {
                *self.acts.entry("recovered by another file").or_default() += 1;
                Ok(true)
            }
            Some(what) => Err(what.into()),
        }
    }

    /// Has every agent say in its host's log how it stands.
    pub(super) fn ask_status(&mut self) -> Result<()> {
        let hosts: Vec<_> = self.agents.keys().copied().collect();
        for host in hosts {
            let mut command = self.command(host, self.program)?;
            command.args(["status", "--json"]);
            self.scheduler.start(host, &mut command)?;
        }
        let end = self.scheduler.now() + 2 * SECOND;
        self.until(end, false)
    }

    /// Waits until everybody has entered again on each host; where they have not in time. All others may stay inside
    /// before.
    pub(super) fn lacks_an_entry(&mut self) -> Result<Option<String>> {
        let before = self.judge.entries.clone();
        let all = u64::try_from(self.hosts * (self.programs + 1))?;
        let end = self.scheduler.now() + all * LONGEST_STAY_MS * MILLI + PEACE;
        loop {
            let Some(host) = (0..self.hosts).find(|host| {
                let lacks = |kind: usize| before[*host][kind] == self.judge.entries[*host][kind];
                if self.agentless == Some(*host) {
                    // Whichever it is.
                    return lacks(PROGRAM) && lacks(COMMAND);
                }
                lacks(PROGRAM) || lacks(COMMAND)
            }) else {
                return Ok(None);
            };
            if self.scheduler.now() >= end {
                self.ask_status()?;
                let (before, after) = (before[host], self.judge.entries[host]);
                return Ok(Some(format!(
                    "in peace, host {host} has entered {before:?}, {after:?} times"
                )));
            }
            let next = end.min(self.scheduler.now() + SECOND);
            self.until(next, false)?;
        }
    }
}
