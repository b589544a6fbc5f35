//! What befalls whom, and when: chosen by the kind of the world.

use super::acts::Act;
use super::{COMMAND, DELAY, LEASE_MS, MILLI, RECOVERY, Result, SECOND, WAKING, World};

/// What befalls a world above all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Trouble {
    /// Whatever can.
    All,
    /// What is inside outlasts its lease, and all but one of those that are to end it stand still.
    Leases,
    /// The power goes while something is being written, and disks fail.
    Disks,
    /// Agents stand still, and hosts sleep, several at a time.
    Wakes,
    /// The operator changes members, voters and leases while hosts are cut off.
    Members,
    /// Hosts are late, cut off or down while they found their cluster, and their files list other voters.
    Founding,
}

impl Trouble {
    pub(super) const EACH: [Self; 6] = [
        Self::All,
        Self::Leases,
        Self::Disks,
        Self::Wakes,
        Self::Members,
        Self::Founding,
    ];

    /// As the command line names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Leases => "leases",
            Self::Disks => "disks",
            Self::Wakes => "wakes",
            Self::Members => "members",
            Self::Founding => "founding",
        }
    }

    /// What befalls a host at any time. What is there twice comes twice as often.
    fn at_any_time(self) -> &'static [Mishap] {
        use Mishap::*;
        match self {
            Self::All => &[
                StopAny, StopAgent, KillAny, KillAgent, Suspend, Suspend, CutOff, Split, CutPower,
                EndAgent, SetClock, SetRate, DiskFails, OtherKey, Operates, Operates,
            ],
            // Only what is inside is meddled with.
            Self::Leases => &[],
            Self::Disks => &[KillAgent, CutPower, DiskFails],
            Self::Wakes => &[StopAgent, StopAgent, Suspend, CutOff, Split],
            Self::Members => &[StopAgent, CutOff, Split, Operates, Operates, Operates],
            Self::Founding => &[
                StopAgent, KillAgent, EndAgent, Suspend, CutOff, Split, CutPower, DiskFails,
                SetRate, OtherKey, Operates,
            ],
        }
    }

    /// What befalls a host where a program, or a command, is inside.
    fn inside(self, kind: usize) -> &'static [Mishap] {
        use Mishap::*;
        match self {
            Self::Leases if kind == COMMAND => &[
                LeaveOne, LeaveOne, LeaveOne, KillRunner, StallDisk, StopOthers, StopOthers,
            ],
            Self::Leases => &[
                KillAgent, StopAgent, Suspend, CutOff, Split, StopOthers, StopOthers, KillHolder,
            ],
            Self::Wakes => &[
                StopAgent, Suspend, SuspendAll, CutOff, StopOthers, StopOthers,
            ],
            Self::All | Self::Disks | Self::Members | Self::Founding if kind == COMMAND => &[
                LeaveOne, LeaveOne, LeaveOne, LeaveOne, EndAgent, KillAgent, StopAgent, Suspend,
                CutOff, KillAny,
            ],
            Self::All | Self::Disks | Self::Members | Self::Founding => &[
                EndAgent, EndAgent, EndAgent, EndAgent, EndAgent, KillAgent, StopAgent, Suspend,
                CutOff, KillHolder, KillHolder,
            ],
        }
    }
}

/// What befalls a host where some have accepted a founding.
const WHILE_FOUNDING: [Mishap; 9] = [
    Mishap::KillAgent,
    Mishap::StopAgent,
    Mishap::StopAgent,
    Mishap::Suspend,
    Mishap::CutOff,
    Mishap::CutOff,
    Mishap::Split,
    Mishap::CutPower,
    Mishap::Operates,
];

/// What befalls a host, or one of its processes.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    StopAny,
    StopAgent,
    KillAny,
    KillAgent,
    KillRunner,
    /// The program that is inside.
    KillHolder,
    EndAgent,
    LeaveOne,
    StallDisk,
    StopOthers,
    Suspend,
    SuspendAll,
    CutOff,
    /// Some hosts and the others do not reach each other.
    Split,
    CutPower,
    SetClock,
    SetRate,
    DiskFails,
    OtherKey,
    /// The operator does what this world's does.
    Operates,
}

impl World<'_> {
    /// Has something befall a host that was left in peace for a while.
    pub(super) fn trouble(&mut self) -> Result<()> {
        let host = self.choices.index(self.hosts);
        let now = self.scheduler.now();
        if self.peace[host] > now {
            return Ok(());
        }
        let there = self.there(host);
        let are_all_well = self.agents.len() == self.hosts
            && (0..self.hosts).all(|host| !self.scheduler.is_suspended(host));
        if self.kind == Trouble::Disks && are_all_well && self.choices.chance(300) {
            self.stall_disks();
            return Ok(());
        }
        // What is down already has enough.
        let is_down = there.is_empty() || self.scheduler.is_suspended(host);
        if is_down || (self.agentless != Some(host) && !self.agents.contains_key(&host)) {
            return Ok(());
        }
        let some = there[self.choices.index(there.len())];
        let agent = self.agents.get(&host).copied().unwrap_or(some);
        let is_soon_over = self.kind == Trouble::Wakes;
        let after = self.within_leases(match self.kind {
            Trouble::Wakes => 4,
            // So long that a founding may begin without a host, or end.
            Trouble::Founding => 6,
            _ => 2,
        });
        let mishaps = self.kind.at_any_time();
        if mishaps.is_empty() {
            return Ok(());
        }
        let (act, undone) = match mishaps[self.choices.index(mishaps.len())] {
            Mishap::StopAny => (Act::Stop(some), Some(Act::Continue(some))),
            Mishap::KillAny => (Act::Kill(some), None),
            Mishap::EndAgent => (Act::EndAgent(host), None),
            Mishap::CutPower => (Act::CutPower(host), None),
            // The incarnation of a member without a state comes from its clock, and is to be a higher one.
            Mishap::SetClock if self.operator.loses_states() => return Ok(()),
            Mishap::SetClock => (Act::SetClock(host), None),
            Mishap::SetRate => (Act::SetRate(host), None),
            Mishap::DiskFails if self.kind == Trouble::Disks => {
                (Act::DiskFails(host), Some(Act::CutPower(host)))
            }
            Mishap::DiskFails => (Act::DiskFails(host), Some(Act::DiskHeals(host))),
            Mishap::OtherKey if self.is_sealed => (Act::OtherKey(host), Some(Act::RightKey(host))),
            Mishap::OtherKey | Mishap::Operates => match self.operators_act(host) {
                Some(acts) => acts,
                None => return Ok(()),
            },
            Mishap::CutOff if self.choices.chance(400) => {
                (Act::CutLinks(host), Some(Act::Connect(host)))
            }
            other => outage(other, host, agent),
        };
        // Of what has to end a command only the agent stands still, or all do.
        self.peace[host] = after + if is_soon_over { SECOND / 2 } else { RECOVERY };
        self.act(act)?;
        if let Some(undone) = undone {
            self.plan(after, undone);
        }
        Ok(())
    }

    /// Plans that something befalls a host, as one has just accepted a founding.
    pub(super) fn trouble_founding(&mut self) {
        let now = self.scheduler.now();
        let host = self.choices.index(self.hosts);
        let is_aimed = self.kind == Trouble::Founding && self.is_troubled;
        if !is_aimed || self.peace[host] > now || !self.choices.chance(400) {
            return;
        }
        let at = now + self.choices.below(LEASE_MS * MILLI / 4);
        // A voter gives up after four leases, or some more.
        let after = at + self.choices.below(8 * LEASE_MS * MILLI);
        let mishap = WHILE_FOUNDING[self.choices.index(WHILE_FOUNDING.len())];
        let (act, undone) = match (mishap, self.agents.get(&host)) {
            (Mishap::CutPower, _) => (Act::CutPower(host), None),
            (Mishap::Operates, _) => match self.operators_act(host) {
                Some(acts) => acts,
                None => return,
            },
            (other, Some(agent)) => outage(other, host, *agent),
            (_, None) => return,
        };
        self.peace[host] = after + RECOVERY;
        self.plan(at, act);
        if let Some(undone) = undone {
            self.plan(after, undone);
        }
    }

    /// Where a process has ended, others may be slow to notice.
    pub(super) fn delay_others(&mut self, host: usize) {
        let now = self.scheduler.now();
        let is_awake = now > self.woke[host] + WAKING && !self.scheduler.is_suspended(host);
        if !self.is_troubled || !is_awake {
            return;
        }
        for pid in self.there(host) {
            if self.choices.chance(300) && !self.scheduler.processes[&pid].is_stopped {
                self.stop(pid);
                let until = now + self.choices.below(DELAY);
                self.plan(until, Act::Continue(pid));
            }
        }
    }

    /// Plans that something befalls the host of `pid`, which has just entered, while it is inside.
    pub(super) fn trouble_inside(&mut self, pid: u32, host: usize, kind: usize) {
        let now = self.scheduler.now();
        let is_aimed = self.kind == Trouble::Leases;
        let share = if is_aimed { 1000 } else { 700 };
        if !self.is_troubled || self.peace[host] > now || !self.choices.chance(share) {
            return;
        }
        let at = now + self.choices.below(LEASE_MS * MILLI / 4);
        let longest = if is_aimed { 4 } else { 2 };
        let after = at + self.choices.below(longest * LEASE_MS * MILLI);
        let agent = self.agents.get(&host).copied().unwrap_or(pid);
        let mishaps = self.kind.inside(kind);
        let mut mishap = mishaps[self.choices.index(mishaps.len())];
        let is_member = kind == COMMAND && self.agentless == Some(host);
        if self.kind == Trouble::Wakes && is_member && self.choices.chance(500) {
            mishap = Mishap::SuspendAll;
        }
        let runner = self.runner(host);
        if matches!(mishap, Mishap::KillRunner) && runner.is_none() {
            mishap = Mishap::KillAny;
        }
        let (act, undone) = match (mishap, runner) {
            (Mishap::LeaveOne, _) => {
                let one = self.choices.index(4);
                (Act::LeaveOne(host, one, self.guardian(host)), None)
            }
            (Mishap::StallDisk, _) => (Act::LeaveAgentAtStalledDisk(host), None),
            (Mishap::EndAgent, _) => (Act::EndAgent(host), None),
            (Mishap::StopOthers, _) => (Act::StopOthers(host), None),
            (Mishap::SuspendAll, _) => (Act::SuspendAll, None),
            (Mishap::KillRunner, Some(runner)) => {
                // The command keeps the lock, and only the agent is left to end it, if that is another process.
                if self.agentless != Some(host)
                    && let Some(guardian) = self.guardian(host)
                    && self.choices.chance(500)
                {
                    self.plan(at, Act::Stop(guardian));
                    self.plan(after, Act::Continue(guardian));
                }
                (Act::Kill(runner), None)
            }
            (Mishap::KillHolder, _) => (Act::Kill(pid), None),
            (Mishap::KillAny, _) => {
                let there = self.there(host);
                (Act::Kill(there[self.choices.index(there.len())]), None)
            }
            (other, _) => outage(other, host, agent),
        };
        self.peace[host] = after + RECOVERY;
        self.plan(at, act);
        if let Some(undone) = undone {
            self.plan(after, undone);
        }
    }
}

/// What befalls a host or its agent alike, whatever runs there.
fn outage(mishap: Mishap, host: usize, agent: u32) -> (Act, Option<Act>) {
    match mishap {
        Mishap::StopAgent => (Act::Stop(agent), Some(Act::Continue(agent))),
        Mishap::KillAgent => (Act::Kill(agent), None),
        Mishap::Suspend => (Act::Suspend(host), Some(Act::Wake(host))),
        Mishap::CutOff => (Act::CutOff(host), Some(Act::Connect(host))),
        Mishap::Split => (Act::Split(host), Some(Act::Connect(host))),
        other => unreachable!("{other:?} is not among them here"),
    }
}
