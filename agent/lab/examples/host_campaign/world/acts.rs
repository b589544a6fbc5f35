//! What befalls hosts and processes.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::{LEASE_IS_OVER, LONGEST_LEASE_MS, RECOVERY, Result, SECOND, Trouble, WAKING, World};
use crate::disk::Disk;
use crate::network::address;
use crate::page::GROUP;

/// What happens to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    Stop(u32),
    Continue(u32),
    Kill(u32),
    /// All agents but this host's stop; it is cut off when they go on.
    StopOthers(usize),
    /// Of a runner, its guardian and its host's agent only one goes on: chosen by the number. The guardian is that
    /// of the command that is inside.
    LeaveOne(usize, usize, Option<u32>),
    /// As 2 of these, where the disk stalls, and the agent has something to write.
    LeaveAgentAtStalledDisk(usize),
    /// The voters but these two lose what they have written since the second was cut off. From then on the
    /// first is cut off.
    ForgetLast(usize, usize),
    Suspend(usize),
    /// All hosts sleep, and wake soon one after the other.
    SuspendAll,
    Wake(usize),
    /// The first threads of a host's processes are late to run.
    HoldFirstThreads(usize),
    CutOff(usize),
    /// Nothing that it sends arrives, or nothing that is sent to it, or it and another do not reach each other.
    CutLinks(usize),
    /// Two groups of hosts do not reach each other, until this one is connected.
    Split(usize),
    Connect(usize),
    CutPower(usize),
    StartAgent(usize),
    EndAgent(usize),
    StartProgram(usize),
    StartRunner(usize),
    /// On the host that has no agent: one of these.
    StartMember(usize),
    SetClock(usize),
    /// From now on its clocks gain otherwise.
    SetRate(usize),
    DiskFails(usize),
    DiskHeals(usize),
    /// The host gets another disk, with nothing on it.
    LoseState(usize),
    /// Two of five voters, or of six, get other disks.
    LoseSome,
    /// So many voters get other disks that no majority remembers its cluster.
    LoseStates,
    /// The operator abandons that cluster: first all voters' agents are ended.
    Recover,
    /// The operator says so at this host.
    RecoverAt(usize),
    /// Its key file has the group's key, or another one.
    OtherKey(usize),
    RightKey(usize),
    /// The operator begins to exchange the group's key.
    ExchangeKey,
    /// The key file of this host gets what it has after this round of the exchange.
    GiveKeys(usize, usize),
    /// A host more: the group is told of it, and its agent is started.
    AddHost,
    /// Other members are to vote.
    SetVoters,
    /// From now on all files list some others as voters. All agents end, and start again: at once, or one after the
    /// other.
    ChangeFiles,
    Remove(usize),
    Add(usize),
    /// All members end, and start again with another lease.
    SetLease,
    /// All but this one are killed, and start again with another lease; it is cut off.
    SetLeaseOfOthers(usize),
    /// By now this command must have ended. With an agent: that one stood still, or was killed; this is
    /// dropped when it goes on.
    Expect(u32, Option<u32>),
    /// By now this runner or program must have entered, or given up.
    GivesUp(u32),
}

impl World<'_> {
    /// Whether nobody else is left to end a command of its host: that is not covered (distlock(1), CAVEATS). A
    /// runner knows of its own command only.
    pub(super) fn is_needed(&self, pid: u32) -> bool {
        let Some(process) = self.scheduler.processes.get(&pid) else {
            return false;
        };
        let host = process.host;
        let knows = self.agent_knows_commands(host);
        let ends = |other: &u32| {
            let comm = || fs::read_to_string(format!("/proc/{other}/comm")).unwrap_or_default();
            (knows && self.agents.get(&host) == Some(other)) || comm() == "distlock-guard\n"
        };
        let runs = |other: &u32| !self.scheduler.processes[other].is_stopped;
        let is_one = ends(&pid) || self.runner(host) == Some(pid);
        let others = self.there(host).into_iter().filter(|other| *other != pid);
        is_one
            && !self.judge.commands(host).is_empty()
            && !others.filter(runs).any(|other| ends(&other))
    }

    /// Whether the agent of a host knows the commands of all lifelines there. Of one that has ended before the agent
    /// read of it, it knows nothing, nor whom it has left behind.
    fn agent_knows_commands(&self, host: usize) -> bool {
        let lifelines = self.file(host, &format!("state/{GROUP}-{}/lifelines", host + 1));
        let is_known = |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains('.');
        let mut entries = fs::read_dir(lifelines).into_iter().flatten();
        entries.all(|entry| entry.is_ok_and(is_known))
    }

    pub(super) fn stop(&mut self, pid: u32) {
        self.scheduler.stop(pid, true);
        self.excuse_one(pid);
    }

    /// From now on nothing gets onto a host's disk.
    pub(super) fn fail_disk(&mut self, host: usize) {
        let which = self.choices.index(3);
        let clocks = &mut self.scheduler.page.get().hosts[host];
        clocks.disk_error = [Errno::EIO, Errno::ENOSPC, Errno::EIO][which] as u32;
        clocks.fails_at_sync_only = u32::from(which == 2);
    }

    /// The processes of a host.
    pub(super) fn there(&self, host: usize) -> Vec<u32> {
        let processes = self.scheduler.processes.iter();
        let there = processes.filter(|(_, process)| process.host == host);
        there.map(|(pid, _)| *pid).collect()
    }

    pub(super) fn act(&mut self, act: Act) -> Result<()> {
        self.scheduler.note(format_args!("{act:?}"));
        let name = match act {
            Act::Stop(pid) | Act::Kill(pid) if self.is_needed(pid) => return Ok(()),
            Act::Stop(pid) => {
                self.stop(pid);
                "stop"
            }
            Act::Continue(pid) => {
                self.scheduler.stop(pid, false);
                self.continued.insert(pid, self.scheduler.now());
                let rests = |act: &Act| matches!(act, Act::Expect(_, Some(agent)) if *agent == pid);
                self.agenda.retain(|_, act| !rests(act));
                self.look(None)?;
                return Ok(());
            }
            Act::Kill(pid) => {
                for event in self.scheduler.kill(pid)? {
                    self.note(&event)?;
                }
                "kill"
            }
            Act::StopOthers(host) => {
                self.stop_others(host);
                "the other agents stop"
            }
            Act::LeaveOne(host, one, guardian) => return self.leave_one(host, one, guardian),
            Act::LeaveAgentAtStalledDisk(host) => {
                self.stall_disk(host)?;
                "disk stalls"
            }
            Act::ForgetLast(one, other) => {
                self.forget_last(one, other)?;
                "voters forget"
            }
            Act::Suspend(host) => {
                self.scheduler.suspend(host);
                self.excuse(|client| client.host == host);
                "suspend"
            }
            Act::SuspendAll => {
                self.suspend_all()?;
                "all sleep"
            }
            Act::HoldFirstThreads(host) => {
                self.hold_first_threads(host);
                return Ok(());
            }
            Act::Wake(host) => {
                let now = self.scheduler.now();
                let slept = now.saturating_sub(self.scheduler.resume(host).unwrap_or(now));
                self.woke[host] = now;
                // By any clock that leases can be measured by, they are over. The only voter renews its own before
                // anybody looks: nobody else was let in meanwhile.
                if slept > LEASE_IS_OVER && !self.may_vote_alone() {
                    for pid in self.judge.commands(host) {
                        self.plan(now + WAKING, Act::Expect(pid, None));
                    }
                }
                self.look(None)?;
                return Ok(());
            }
            Act::CutOff(host) => {
                self.scheduler.network.cut_off.insert(host);
                "cut off"
            }
            Act::CutLinks(host) => self.cut_links(host),
            Act::Split(host) => {
                self.split(host);
                "two sides"
            }
            Act::Connect(host) => {
                self.scheduler.network.connect(host);
                return Ok(());
            }
            Act::CutPower(host) => {
                self.crash(host)?;
                self.scheduler.page.get().hosts[host].disk_error = 0;
                let state = self.file(host, "state");
                self.disks[host].lose(&state, &mut self.choices)?;
                self.look_at_disk(host)?;
                "cut power"
            }
            Act::LoseState(host) => {
                self.crash(host)?;
                let state = self.file(host, "state");
                fs::remove_dir_all(&state)?;
                fs::create_dir(&state)?;
                self.disks[host] = Disk::default();
                self.has_lost = true;
                // No majority knows the dead any more.
                if self.voters.len() <= 2 {
                    self.judge.forget_all_dead();
                }
                self.look_at_disk(host)?;
                "lose state"
            }
            Act::LoseSome => {
                let mut left = self.voters.clone();
                for _ in 0..2 {
                    let id = left.remove(self.choices.index(left.len()));
                    self.act(Act::LoseState(id - 1))?;
                }
                "two lose states"
            }
            Act::LoseStates => {
                self.lose_states()?;
                "lose states"
            }
            Act::Recover => {
                self.recover()?;
                "recover"
            }
            Act::RecoverAt(host) => return self.recover_at(host),
            Act::DiskFails(host) => {
                self.fail_disk(host);
                "disk fails"
            }
            Act::DiskHeals(host) => {
                self.scheduler.page.get().hosts[host].disk_error = 0;
                return Ok(());
            }
            Act::OtherKey(host) => {
                self.write_key(host, false)?;
                "another key"
            }
            Act::RightKey(host) => return self.write_key(host, true),
            Act::EndAgent(host) => {
                if let Some(pid) = self.agents.get(&host) {
                    self.told_to_end.insert(*pid);
                    self.scheduler.signal(*pid, Signal::SIGTERM);
                }
                "end agent"
            }
            Act::StartAgent(host) if self.agents.contains_key(&host) => return Ok(()),
            // It is started when that is done.
            Act::StartAgent(host) if self.is_in_recovery(host) => return Ok(()),
            Act::StartAgent(host) => {
                if !self.keeps_voters && self.choices.chance(300) {
                    let others = match self.kind {
                        // Where two files list no voter in common, two clusters might be founded.
                        Trouble::Founding if self.choices.chance(300) => self.unlisted_ids(),
                        Trouble::Founding => self.some_voters(),
                        _ => vec![1 + self.choices.index(self.listed())],
                    };
                    self.configure(host, self.lease_ms, Some(&others))?;
                    *self.acts.entry("other voters in the file").or_default() += 1;
                } else if self.is_troubled && !self.keeps_lease() && self.choices.chance(150) {
                    let lease_ms = self.some_lease();
                    self.configure(host, lease_ms, None)?;
                    *self.acts.entry("another lease in the file").or_default() += 1;
                } else if self.may_list_fewer(host) && self.choices.chance(100) {
                    let missing = (host + 1 + self.choices.index(self.hosts - 1)) % self.hosts;
                    let mut others = self.voters.clone();
                    others.retain(|id| *id != missing + 1);
                    if others.is_empty() {
                        self.configure(host, self.lease_ms, None)?;
                    } else {
                        self.configure_without(missing, host, self.lease_ms, Some(&others))?;
                        *self.acts.entry("a member is not in the file").or_default() += 1;
                    }
                } else {
                    self.configure(host, self.lease_ms, None)?;
                }
                self.start_agent(host)?;
                // It has hardly said that it is there again.
                if self.kind == Trouble::Disks && self.is_troubled && self.choices.chance(300) {
                    let at = self.scheduler.now() + self.choices.below(SECOND / 5);
                    self.peace[host] = at + RECOVERY;
                    self.plan(at, Act::CutPower(host));
                }
                return Ok(());
            }
            Act::Expect(pid, agent) => {
                let now = self.scheduler.now();
                let process = self.scheduler.processes.get(&pid);
                if let Some(host) = process.map(|process| process.host)
                    && (self.scheduler.is_suspended(host) || now < self.woke[host] + WAKING)
                {
                    self.plan(now + WAKING, Act::Expect(pid, agent));
                    return Ok(());
                }
                if self.judge.is_inside(pid) {
                    return Err(format!("command {pid} runs on after its lease").into());
                }
                return Ok(());
            }
            Act::GivesUp(pid) => {
                let now = self.scheduler.now();
                if let Some(client) = self.clients.get(&pid)
                    && client.waits_until.is_some_and(|until| until <= now)
                {
                    let what = if client.is_runner {
                        "runner"
                    } else {
                        "program"
                    };
                    return Err(format!("{what} {pid} waits longer than it was told to").into());
                }
                return Ok(());
            }
            Act::SetClock(host) => {
                let by = self.choices.below(200_000 * SECOND) as i64 - 100_000 * SECOND as i64;
                self.clocks_off[host] += by;
                self.scheduler.page.get().hosts[host].realtime += by;
                "set clock"
            }
            Act::SetRate(host) => {
                let gains = self.some_rate();
                self.scheduler.drift(host, gains);
                "set rate"
            }
            Act::ExchangeKey => {
                self.exchange_key();
                return Ok(());
            }
            Act::GiveKeys(host, round) => return self.give_keys(host, round),
            Act::AddHost => {
                let Some(newcomer) = self.newcomer.take() else {
                    return Ok(());
                };
                // Whoever begins before the group knows of it has to wait.
                self.act(Act::Add(newcomer))?;
                let at = self.within_leases(1);
                self.plan(at, Act::StartAgent(newcomer));
                self.plan_clients(at, newcomer);
                "add a host"
            }
            Act::SetVoters => {
                let voters = self.other_voters().into_iter();
                let voters: Vec<_> = voters.map(|host| (host + 1).to_string()).collect();
                let mut command = vec!["voters".to_owned()];
                command.extend(voters);
                self.change_members("voters set", &command, None)?;
                "set voters"
            }
            Act::ChangeFiles => {
                self.change_files()?;
                "other voters in all files"
            }
            Act::Remove(host) => {
                let command = ["remove".to_owned(), (host + 1).to_string()];
                self.change_members("removed", &command, None)?;
                "remove"
            }
            Act::Add(host) => {
                let command = ["add".to_owned(), (host + 1).to_string(), address(host)];
                // A removed member is told to ask another.
                self.change_members("added", &command, Some(host))?;
                return Ok(());
            }
            Act::SetLease => {
                self.lease_ms = match self.kind {
                    Trouble::Members => LONGEST_LEASE_MS,
                    _ => self.some_lease(),
                };
                for host in 0..self.hosts {
                    self.configure(host, self.lease_ms, None)?;
                    self.act(Act::EndAgent(host))?;
                }
                "set lease"
            }
            Act::SetLeaseOfOthers(host) => {
                self.set_lease_of_others(host)?;
                "set lease of others"
            }
            Act::StartProgram(host) => return self.start_client(host, false),
            Act::StartRunner(host) => return self.start_client(host, true),
            Act::StartMember(host) => {
                let is_runner = self.choices.chance(500);
                return self.start_client(host, is_runner);
            }
        };
        *self.acts.entry(name).or_default() += 1;
        Ok(())
    }

    /// All processes of a host end at once; what was to befall them befalls nobody.
    fn crash(&mut self, host: usize) -> Result<()> {
        let there = self.there(host);
        self.agents.remove(&host);
        for event in self.scheduler.kill_all(&there)? {
            self.note(&event)?;
        }
        self.boot(host)?;
        if self.agentless != Some(host) {
            let at = match self.kind {
                // What others were told is fresh.
                Trouble::Disks => self.scheduler.now() + self.choices.below(SECOND / 2),
                _ => self.within_leases(2),
            };
            self.plan(at, Act::StartAgent(host));
        }
        Ok(())
    }
}
