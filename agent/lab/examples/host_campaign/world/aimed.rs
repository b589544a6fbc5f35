//! What befalls several hosts or processes at once, so that one rule alone keeps the worst from happening.

use std::collections::BTreeSet;
use std::fs;

use super::acts::Act;
use super::{
    DELAY, LEASE_IS_OVER, LEASE_MS, LONGEST_LEASE_MS, MILLI, RECOVERY, Result, SECOND,
    SHORTEST_LEASE_MS, World,
};
use crate::scheduler::Midway;

impl World<'_> {
    /// The runner of a host, if there is one.
    pub(super) fn runner(&self, host: usize) -> Option<u32> {
        let mut clients = self.clients.iter();
        let found = clients.find(|(_, client)| client.host == host && client.is_runner);
        found.map(|(pid, _)| *pid)
    }

    /// What the others then find in their sockets first has been there for a while. Those that stop in the
    /// middle of what they do may take it for older than it is, if they have looked at the clock before.
    pub(super) fn stop_others(&mut self, host: usize) {
        let now = self.scheduler.now();
        let lease = LEASE_MS * MILLI;
        let (midway, longest) = match self.choices.index(4) {
            0 => (None, lease),
            1 => (Some(Midway::Anywhere), lease / 2),
            // They take all that is there in one batch.
            _ => (Some(Midway::BetweenDatagrams), lease / 4),
        };
        let until = now + lease / 2 + self.choices.below(longest);
        let others = self.agents.iter().filter(|(other, _)| **other != host);
        let others: Vec<_> = others.map(|(_, pid)| *pid).collect();
        for pid in others {
            if self.is_needed(pid) {
                continue;
            }
            match midway {
                Some(at) => self.scheduler.stop_midway(pid, at),
                None => self.stop(pid),
            }
            self.plan(until, Act::Continue(pid));
        }
        let at = until + self.choices.below(lease / 20);
        self.plan(at, Act::CutOff(host));
        self.plan(at + 2 * lease, Act::Connect(host));
        for peace in &mut self.peace {
            *peace = (*peace).max(at + 2 * lease);
        }
    }

    /// Cuts off a host in a part; the name of that.
    pub(super) fn cut_links(&mut self, host: usize) -> &'static str {
        let way = self.choices.index(3);
        let one = (host + 1 + self.choices.index(self.hosts - 1)) % self.hosts;
        let others = (0..self.hosts).filter(|other| *other != host);
        let network = &mut self.scheduler.network;
        match way {
            0 => others.for_each(|other| network.cut(host, other, host)),
            1 => others.for_each(|other| network.cut(other, host, host)),
            _ => {
                network.cut(host, one, host);
                network.cut(one, host, host);
            }
        }
        ["mute", "deaf", "two do not reach each other"][way]
    }

    /// Some hosts, of which this is one, and the others do not reach each other.
    pub(super) fn split(&mut self, host: usize) {
        let mut side = BTreeSet::from([host]);
        for other in 0..self.hosts {
            if side.len() + 1 < self.hosts && self.choices.chance(400) {
                side.insert(other);
            }
        }
        self.scheduler.network.split(&side, self.hosts, host);
    }

    /// The guardian of a host's runner.
    pub(super) fn guardian(&self, host: usize) -> Option<u32> {
        let runner = self.runner(host)?;
        // What a runner has left behind, which is no more, has a guardian too.
        let is_its_guardian = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let says = |what: &str| status.lines().any(|line| line == what);
            says("Name:\tdistlock-guard") && says(&format!("PPid:\t{runner}"))
        };
        self.there(host).into_iter().find(is_its_guardian)
    }

    /// Has all but one of a runner, its guardian and the agent stand still, as long as a lease and more:
    /// the one that is left has to end the command. Of the agent that is so if its lease ends. `guardian`: that of
    /// the command that was inside when this was planned. If the runner has ended since, only the guardian is left.
    pub(super) fn leave_one(
        &mut self,
        host: usize,
        one: usize,
        guardian: Option<u32>,
    ) -> Result<()> {
        let now = self.scheduler.now();
        let runner = self.runner(host);
        let agent = self.agents.get(&host).copied();
        // It may have had no turn yet when this was planned, and no name by which it is known.
        let guardian = guardian.or_else(|| self.guardian(host));
        let (Some(guardian), Some(agent)) = (guardian, agent) else {
            return Ok(());
        };
        let commands = self.judge.commands(host);
        let until = now + 2 * LONGEST_LEASE_MS * MILLI;
        let (stopped, name): (&[u32], _) = match (runner, one) {
            (None, _) if commands.is_empty() => return Ok(()),
            (None, _) => (&[agent], "the runner has ended and the agent stops"),
            // The runner has another command, or none, by now.
            (Some(_), _) if self.guardian(host) != Some(guardian) => return Ok(()),
            (Some(_), 0) => (&[guardian, agent], "all but the runner stop"),
            (Some(runner), 1) => (&[runner, agent], "all but the guardian stop"),
            (Some(runner), 2) => (&[runner, guardian], "all but the agent stop"),
            (Some(runner), _) => (&[runner], "the runner stops and the agent is killed"),
        };
        let left = match (runner, one) {
            (Some(runner), 0) => runner,
            (Some(_), 2) => agent,
            _ => guardian,
        };
        let stands = |pid| {
            self.scheduler
                .processes
                .get(&pid)
                .is_none_or(|it| it.is_stopped)
        };
        if stands(left) {
            return Ok(());
        }
        self.peace[host] = until + RECOVERY;
        for pid in stopped {
            self.stop(*pid);
            self.plan(until, Act::Continue(*pid));
        }
        match (runner, one) {
            (Some(runner), 0) => {
                self.alone.insert(runner, guardian);
            }
            (Some(_), 2) => {
                self.scheduler.network.cut_off.insert(host);
                self.plan(until, Act::Connect(host));
            }
            (Some(_), 3..) => {
                for event in self.scheduler.kill(agent)? {
                    self.note(&event)?;
                }
            }
            _ => {}
        }
        // Where the agent goes on and is the only voter, it renews its own lease. Else no lease is renewed from
        // now on.
        if runner.is_none() || one != 2 {
            for pid in commands {
                self.plan(now + LEASE_IS_OVER, Act::Expect(pid, Some(agent)));
            }
        }
        *self.acts.entry(name).or_default() += 1;
        Ok(())
    }

    /// Has a voter endorse a view, as another agent is killed, and its disk take several leases for that.
    pub(super) fn stall_disk(&mut self, host: usize) -> Result<()> {
        let now = self.scheduler.now();
        let lease = LEASE_MS * MILLI;
        self.scheduler.stalled_until[host] = now + 5 * lease;
        let others = self.agents.iter().filter(|(other, _)| **other != host);
        let others: Vec<_> = others.map(|(_, pid)| *pid).collect();
        if !others.is_empty() {
            let other = others[self.choices.index(others.len())];
            self.act(Act::Kill(other))?;
        }
        // A voter that was not heard for half a lease is left out of the next view.
        let at = now + lease / 2 + self.choices.below(lease);
        self.plan(at, Act::LeaveOne(host, 2, self.guardian(host)));
        Ok(())
    }

    /// All voters but two write nothing to their disks, which are slow or fail, and of the two the second is cut
    /// off: they cannot agree with the first on a view without that one, as they could forget it.
    pub(super) fn stall_disks(&mut self) {
        let now = self.scheduler.now();
        let lease = LEASE_MS * MILLI;
        let one = self.choices.index(self.hosts);
        let other = (one + 1 + self.choices.index(self.hosts - 1)) % self.hosts;
        // A view without the one that is cut off takes more than half a lease, and a lock that it may hold
        // is free after its lease.
        let at = now + 3 * lease / 2 + self.choices.below(3 * lease / 2);
        let fails = self.choices.chance(500);
        let name = if fails {
            "disks fail together"
        } else {
            "disks stall"
        };
        *self.acts.entry(name).or_default() += 1;
        for host in (0..self.hosts).filter(|host| ![one, other].contains(host)) {
            match fails {
                true => self.fail_disk(host),
                false => self.scheduler.stalled_until[host] = at + lease,
            }
        }
        self.scheduler.network.cut_off.insert(other);
        let end = at + 4 * lease;
        self.plan(at, Act::ForgetLast(one, other));
        self.plan(at, Act::Connect(other));
        self.plan(end, Act::Connect(one));
        for peace in &mut self.peace {
            *peace = (*peace).max(end + RECOVERY);
        }
    }

    pub(super) fn forget_last(&mut self, one: usize, other: usize) -> Result<()> {
        for host in (0..self.hosts).filter(|host| ![one, other].contains(host)) {
            self.scheduler.stalled_until[host] = 0;
            self.act(Act::CutPower(host))?;
        }
        self.scheduler.network.cut_off.insert(one);
        Ok(())
    }

    /// All hosts sleep for longer than a lease, so that none misses another. When they wake, leases may be
    /// renewed before anybody else has looked at them.
    pub(super) fn suspend_all(&mut self) -> Result<()> {
        let lease = LONGEST_LEASE_MS * MILLI;
        let until = self.scheduler.now() + 4 * lease / 3 + self.choices.below(lease);
        for host in 0..self.hosts {
            self.act(Act::Suspend(host))?;
            let at = until + self.choices.below(DELAY / 4);
            self.plan(at, Act::Wake(host));
            // Another host's agent ends the commands there. What is left of one that the agent never knew,
            // as it had ended before, its guardian has to end in time.
            if self.agentless == Some(host) {
                self.plan(at, Act::HoldFirstThreads(host));
            }
            self.peace[host] = at + SECOND;
        }
        Ok(())
    }

    /// So that another thread does first what is due. A runner that is the member itself has one for that.
    pub(super) fn hold_first_threads(&mut self, host: usize) {
        let until = self.scheduler.now() + DELAY / 2 + self.choices.below(DELAY / 2);
        for pid in self.there(host) {
            self.scheduler.hold_first_thread(pid, until);
        }
    }

    /// Cuts off the host of the holder, and kills all other agents. These start again with a shorter lease,
    /// which is over sooner than the holder's.
    pub(super) fn set_lease_of_others(&mut self, host: usize) -> Result<()> {
        self.lease_ms = SHORTEST_LEASE_MS / 2;
        self.scheduler.network.cut_off.insert(host);
        let others: Vec<_> = (0..self.hosts).filter(|other| *other != host).collect();
        for other in others {
            self.configure(other, self.lease_ms, None)?;
            if let Some(pid) = self.agents.get(&other).copied() {
                self.act(Act::Kill(pid))?;
                let at = self.scheduler.now() + self.choices.below(SECOND / 10);
                self.plan(at, Act::StartAgent(other));
            }
        }
        let at = self.scheduler.now() + LONGEST_LEASE_MS * MILLI + self.choices.below(2 * SECOND);
        self.plan(at, Act::Connect(host));
        Ok(())
    }
}
