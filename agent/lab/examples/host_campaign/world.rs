//! One seed: hosts with their agents, programs that lock, and what befalls them; and who judges them.
//!
//! A program is inside from the moment it has its guard until it gives it back, as long as
//! `Guard::state` says, in true time, that it is valid. A command of `distlock run` is inside until it
//! has ended, whatever its lease: it must have been ended in time. Only where its host was suspended it
//! may run on for a tenth of a second after waking (doc/faults.md, row 8).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use distlock_lab::choices::Choices;
use distlock_protocol::Algorithm;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;

use crate::disk::Disk;
use crate::program::told;
use crate::scheduler::{BEGIN, Event, Scheduler};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
const LEASE_MS: u64 = 2_000;
/// Places in what is counted for programs and commands.
const PROGRAM: usize = 0;
/// How long things go wrong.
const TROUBLE: u64 = 40 * SECOND;
/// How long after that all have entered again, at the latest.
const PEACE: u64 = 40 * SECOND;
/// How much longer than others a process may take to notice what has happened: half of what a runner leaves
/// its guardian.
const DELAY: u64 = 50 * MILLI;
/// How long a command may go on after its host has woken.
const WAKING: u64 = 100 * MILLI;
/// How long one host is left in peace after something befell it, so that no two of a runner, its
/// guardian and its agent stand still at once: those cannot end their command (distlock(1), BUGS).
const RECOVERY: u64 = 3 * LEASE_MS * MILLI;

/// Somebody inside.
#[derive(Clone, Copy, Debug)]
struct Inside {
    host: usize,
    is_command: bool,
    /// What its guard said last.
    is_valid: bool,
}

/// What befalls the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Stop(u32),
    Continue(u32),
    Kill(u32),
    Suspend(usize),
    Wake(usize),
    CutOff(usize),
    Connect(usize),
    CutPower(usize),
    StartAgent(usize),
    EndAgent(usize),
    StartProgram(usize),
    StartRunner(usize),
    SetClock(usize),
    /// By now this command must have ended.
    Expect(u32),
}

struct World<'a> {
    scheduler: Scheduler,
    choices: Choices,
    program: &'a Path,
    dir: &'a Path,
    algorithm: &'a str,
    hosts: usize,
    agents: BTreeMap<usize, u32>,
    /// The host that has no agent: its runner is the member itself, which other programs there cannot use.
    agentless: Option<usize>,
    disks: Vec<Disk>,
    /// When each host woke last, and until when it is left in peace.
    woke: Vec<u64>,
    peace: Vec<u64>,
    agenda: BTreeMap<(u64, u64), Act>,
    planned: u64,
    inside: BTreeMap<u32, Inside>,
    /// What programs that were started are: their host, and whether they are runners.
    clients: BTreeMap<u32, (usize, bool)>,
    /// Programs and commands that entered, on each host.
    entries: Vec<[u64; 2]>,
    is_troubled: bool,
    acts: BTreeMap<&'static str, u64>,
    fence: u64,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Plays `seed`; by which algorithm, if not by any.
///
/// # Errors
/// If the system refuses something.
pub(crate) fn play(
    seed: u64,
    engine: Option<&str>,
    program: &Path,
    shim: &Path,
    trace: bool,
) -> Result<ExitCode> {
    let dir = tempfile::tempdir()?;
    // Its path is the same in every run; the mount is this world's own.
    let place = Path::new("/mnt");
    mount(
        Some(dir.path()),
        place,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )?;
    // Worlds that are played at the same time must not meet in the kernel's control groups.
    mount(
        Some("none"),
        "/sys/fs/cgroup",
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )?;
    let mut choices = Choices::new(seed);
    let hosts = 3 + choices.index(2);
    // Those that serve locks under quorum views.
    let mut engines = Algorithm::ALL.to_vec();
    engines.retain(|algorithm| !algorithm.is_probabilistic());
    let chosen = engines[choices.index(engines.len())].name();
    let algorithm = engine.unwrap_or(chosen);
    let scheduler = Scheduler::new(place, shim, choices.fork(), trace)?;
    let mut world = World {
        scheduler,
        choices,
        program,
        dir: place,
        algorithm,
        hosts,
        agents: BTreeMap::new(),
        agentless: None,
        disks: (0..hosts).map(|_| Disk::default()).collect(),
        woke: vec![0; hosts],
        peace: vec![0; hosts],
        agenda: BTreeMap::new(),
        planned: 0,
        inside: BTreeMap::new(),
        clients: BTreeMap::new(),
        entries: vec![[0; 2]; hosts],
        is_troubled: false,
        acts: BTreeMap::new(),
        fence: 0,
    };
    let outcome = world.run();
    if let Err(error) = outcome {
        println!("{error}");
        for host in 0..hosts {
            let log = fs::read_to_string(world.file(host, "log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = lines.len().saturating_sub(12);
            println!("host {host}:\n  {}", lines[last..].join("\n  "));
        }
        return Ok(ExitCode::FAILURE);
    }
    let World {
        algorithm,
        mut scheduler,
        entries,
        acts,
        ..
    } = world;
    let passed = (scheduler.now() - BEGIN) as f64 / 1e9;
    let (turns, digest) = (scheduler.turns, scheduler.digest);
    print!(
        "{algorithm}, {hosts} hosts, {turns} turns ({digest:016x}) in {passed:.1} s, entered \
         {entries:?}, {acts:?}"
    );
    Ok(ExitCode::SUCCESS)
}

impl World<'_> {
    fn file(&self, host: usize, name: &str) -> PathBuf {
        self.dir.join(host.to_string()).join(name)
    }

    fn command(&self, host: usize, program: &Path) -> Result<Command> {
        let mut command = Command::new(program);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.file(host, "log"))?;
        command
            .env_clear()
            .env("DISTLOCK_CONFIG", self.file(host, "distlock.toml"))
            .env("DISTLOCK_STATE_DIR", self.file(host, "state"))
            .env("DISTLOCK_SOCKET", self.file(host, "socket"))
            .env("DISTLOCK_SIMULATED_BOOT", self.file(host, "boot"))
            .env("DISTLOCK_ID", (host + 1).to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }

    /// Another boot of the host.
    fn boot(&mut self, host: usize) -> Result<()> {
        let [high, low] = [(); 2].map(|()| self.choices.next_u64());
        let id = format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}\n",
            high >> 32,
            high & 0xffff,
            low >> 52,
            low & 0xfff,
            low >> 16
        );
        Ok(fs::write(self.file(host, "boot"), id)?)
    }

    /// Writes the file of a host: whom it names as voters counts at the founding only.
    fn configure(&mut self, host: usize, voters: Option<&[usize]>) -> Result<()> {
        let voters = voters.map_or_else(String::new, |voters| format!("voters = {voters:?}\n"));
        let algorithm = self.algorithm;
        let mut text = format!(
            "insecure = true\nlease = \"{LEASE_MS}ms\"\nalgorithm = \"{algorithm}\"\n{voters}\
             [group]\nname = \"shop\"\n"
        );
        for id in 1..=self.hosts {
            text += &format!("[[member]]\nid = {id}\naddress = \"udp:10.0.0.{id}:7000\"\n");
        }
        Ok(fs::write(self.file(host, "distlock.toml"), text)?)
    }

    fn start_agent(&mut self, host: usize) -> Result<()> {
        let mut command = self.command(host, self.program)?;
        command
            .args(["agent", "--socket"])
            .arg(self.file(host, "socket"));
        let pid = self.scheduler.start(host, &mut command)?;
        self.agents.insert(host, pid);
        Ok(())
    }

    fn start_client(&mut self, host: usize, is_runner: bool) -> Result<()> {
        let own = std::env::current_exe()?;
        let stay = (20 + self.choices.below(3_000)).to_string();
        let mut command;
        if is_runner {
            command = self.command(host, self.program)?;
            if self.agentless == Some(host) {
                command.env_remove("DISTLOCK_SOCKET");
            }
            command
                .args(["run", "x", "--"])
                .arg(own)
                .args(["command", &stay]);
        } else {
            let times = (1 + self.choices.below(4)).to_string();
            command = self.command(host, &own)?;
            command
                .arg("enters")
                .arg(self.file(host, "socket"))
                .args(["x", &times, &stay]);
        }
        let pid = self.scheduler.start(host, &mut command)?;
        self.clients.insert(pid, (host, is_runner));
        Ok(())
    }

    fn plan(&mut self, at: u64, act: Act) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), act);
    }

    /// A time that is at most `most` leases from now.
    fn within_leases(&mut self, most: u64) -> u64 {
        self.scheduler.now() + self.choices.below(most * LEASE_MS * MILLI)
    }

    fn run(&mut self) -> Result<()> {
        let is_one_agentless = self.choices.chance(300);
        self.agentless = is_one_agentless.then(|| self.choices.index(self.hosts));
        let network = &mut self.scheduler.network;
        network.lost = self.choices.below(100) as u32;
        network.twice = self.choices.below(100) as u32;
        network.delay = Duration::from_micros(50 + self.choices.below(5_000));
        let slowest = if self.choices.chance(250) {
            100_000
        } else {
            20_000
        };
        self.scheduler.disk_takes = Duration::from_micros(1 + self.choices.below(slowest));
        for host in 0..self.hosts {
            fs::create_dir_all(self.file(host, "state"))?;
            self.configure(host, None)?;
            // Clocks whose rates differ by a tenth are none that leases can be measured by.
            let gains = self.choices.below(90_000_000) as i64 - 45_000_000;
            self.scheduler.drift(host, gains);
            self.boot(host)?;
            let at = self.scheduler.now() + self.choices.below(8 * SECOND);
            if self.agentless == Some(host) {
                self.start_client(host, true)?;
                continue;
            }
            self.start_agent(host)?;
            self.plan(at, Act::StartProgram(host));
            self.plan(at, Act::StartRunner(host));
        }
        let founded = self.scheduler.now() + 6 * SECOND;
        self.until(founded, false)?;
        self.until(founded + TROUBLE, true)?;
        self.heal()?;
        let before = self.entries.clone();
        let end = self.scheduler.now() + PEACE;
        while let Some(host) = self.lacks_an_entry(&before) {
            if self.scheduler.now() >= end {
                let (before, after) = (before[host], self.entries[host]);
                let what = format!("in peace, host {host} has entered {before:?}, {after:?} times");
                return Err(what.into());
            }
            let next = end.min(self.scheduler.now() + SECOND);
            self.until(next, false)?;
        }
        Ok(())
    }

    /// A host on which not everybody has entered since it was `before`.
    fn lacks_an_entry(&self, before: &[[u64; 2]]) -> Option<usize> {
        (0..self.hosts).find(|host| {
            let is_left_out = |kind| self.agentless == Some(*host) && kind == PROGRAM;
            let lacks = |kind: usize| before[*host][kind] == self.entries[*host][kind];
            (0..2).any(|kind| lacks(kind) && !is_left_out(kind))
        })
    }

    /// What stands still goes on, and what is missing is started.
    fn heal(&mut self) -> Result<()> {
        for act in std::mem::take(&mut self.agenda).into_values() {
            if !matches!(
                act,
                Act::Stop(_)
                    | Act::Kill(_)
                    | Act::Suspend(_)
                    | Act::CutOff(_)
                    | Act::CutPower(_)
                    | Act::EndAgent(_)
                    | Act::SetClock(_)
            ) {
                self.act(act)?;
            }
        }
        Ok(())
    }

    fn until(&mut self, end: u64, is_troubled: bool) -> Result<()> {
        self.is_troubled = is_troubled;
        let mut trouble = self.scheduler.now();
        let mut looked = 0;
        loop {
            let now = self.scheduler.now();
            if now >= end {
                return Ok(());
            }
            if is_troubled && now >= trouble {
                self.trouble()?;
                trouble = now + self.choices.below(2 * SECOND);
            }
            while let Some(entry) = self.agenda.first_entry()
                && entry.key().0 <= now
            {
                let act = entry.remove();
                self.act(act)?;
            }
            if self.inside.len() > 1 && now >= looked + 10 * MILLI {
                self.look(None)?;
                looked = now;
            }
            let mut next = self
                .agenda
                .first_key_value()
                .map_or(end, |((at, _), _)| end.min(*at));
            if is_troubled {
                next = next.min(trouble);
            }
            if self.inside.len() > 1 {
                next = next.min(looked + 10 * MILLI);
            }
            for event in self.scheduler.step(next)? {
                self.judge(&event)?;
            }
        }
    }

    /// Has something befall a host that was left in peace for a while.
    fn trouble(&mut self) -> Result<()> {
        let host = self.choices.index(self.hosts);
        let now = self.scheduler.now();
        if self.peace[host] > now {
            return Ok(());
        }
        let there = self.there(host);
        // What is down already has enough.
        let is_down = there.is_empty() || self.scheduler.is_suspended(host);
        if is_down || (self.agentless != Some(host) && !self.agents.contains_key(&host)) {
            return Ok(());
        }
        let some = there[self.choices.index(there.len())];
        let agent = self.agents.get(&host).copied().unwrap_or(some);
        let after = self.within_leases(2);
        let (act, undone) = match self.choices.below(10) {
            0 => (Act::Stop(some), Some(Act::Continue(some))),
            1 => (Act::Stop(agent), Some(Act::Continue(agent))),
            2 => (Act::Kill(some), None),
            3 => (Act::Kill(agent), None),
            4 | 5 => (Act::Suspend(host), Some(Act::Wake(host))),
            6 => (Act::CutOff(host), Some(Act::Connect(host))),
            7 => (Act::CutPower(host), None),
            8 => (Act::EndAgent(host), None),
            _ => (Act::SetClock(host), None),
        };
        self.peace[host] = after + RECOVERY;
        self.act(act)?;
        if let Some(undone) = undone {
            self.plan(after, undone);
        }
        Ok(())
    }

    /// Where a process has ended, others may be slow to notice.
    fn delay_others(&mut self, host: usize) {
        let now = self.scheduler.now();
        let is_awake = now > self.woke[host] + WAKING && !self.scheduler.is_suspended(host);
        if !self.is_troubled || !is_awake {
            return;
        }
        for pid in self.there(host) {
            if self.choices.chance(300) && !self.scheduler.processes[&pid].is_stopped {
                self.scheduler.stop(pid, true);
                let until = now + self.choices.below(DELAY);
                self.plan(until, Act::Continue(pid));
            }
        }
    }

    /// The processes of a host.
    fn there(&self, host: usize) -> Vec<u32> {
        let processes = self.scheduler.processes.iter();
        let there = processes.filter(|(_, process)| process.host == host);
        there.map(|(pid, _)| *pid).collect()
    }

    fn act(&mut self, act: Act) -> Result<()> {
        let name = match act {
            Act::Stop(pid) => {
                self.scheduler.stop(pid, true);
                "stop"
            }
            Act::Continue(pid) => {
                self.scheduler.stop(pid, false);
                self.look(None)?;
                return Ok(());
            }
            Act::Kill(pid) => {
                for event in self.scheduler.kill(pid)? {
                    self.judge(&event)?;
                }
                "kill"
            }
            Act::Suspend(host) => {
                self.scheduler.suspend(host);
                "suspend"
            }
            Act::Wake(host) => {
                let now = self.scheduler.now();
                let slept = now.saturating_sub(self.scheduler.resume(host).unwrap_or(now));
                self.woke[host] = now;
                // By any clock that leases can be measured by, they are over.
                if slept > LEASE_MS * MILLI * 5 / 4 {
                    let commands = self
                        .inside
                        .iter()
                        .filter(|(_, inside)| inside.is_command && inside.host == host);
                    let commands: Vec<u32> = commands.map(|(pid, _)| *pid).collect();
                    for pid in commands {
                        self.plan(now + WAKING, Act::Expect(pid));
                    }
                }
                self.look(None)?;
                return Ok(());
            }
            Act::CutOff(host) => {
                self.scheduler.network.cut_off.insert(host);
                "cut off"
            }
            Act::Connect(host) => {
                self.scheduler.network.cut_off.remove(&host);
                return Ok(());
            }
            Act::CutPower(host) => {
                // What was to befall its processes befalls nobody.
                let there = self.there(host);
                self.agents.remove(&host);
                for event in self.scheduler.kill_all(&there)? {
                    self.judge(&event)?;
                }
                let state = self.file(host, "state");
                self.disks[host].lose(&state, &mut self.choices)?;
                self.boot(host)?;
                if self.agentless != Some(host) {
                    let at = self.within_leases(2);
                    self.plan(at, Act::StartAgent(host));
                }
                "cut power"
            }
            Act::EndAgent(host) => {
                if let Some(pid) = self.agents.get(&host) {
                    self.scheduler.signal(*pid, Signal::SIGTERM);
                }
                "end agent"
            }
            Act::StartAgent(host) => {
                if self.choices.chance(300) {
                    let first = 1 + self.choices.index(self.hosts);
                    self.configure(host, Some(&[first]))?;
                    *self.acts.entry("other voters").or_default() += 1;
                }
                self.start_agent(host)?;
                return Ok(());
            }
            Act::Expect(pid) => {
                if self.inside.contains_key(&pid) {
                    let what =
                        format!("command {pid} runs on after a suspend that ended its lease");
                    return Err(what.into());
                }
                return Ok(());
            }
            Act::SetClock(host) => {
                let by = self.choices.below(200_000 * SECOND) as i64 - 100_000 * SECOND as i64;
                self.scheduler.page.get().hosts[host].realtime += by;
                "set clock"
            }
            Act::StartProgram(host) => return self.start_client(host, false),
            Act::StartRunner(host) => return self.start_client(host, true),
        };
        *self.acts.entry(name).or_default() += 1;
        Ok(())
    }

    /// Asks every program that is inside whether its guard is valid, and fails if two holders are inside.
    /// `entered`: the process that has just entered.
    fn look(&mut self, entered: Option<u32>) -> Result<()> {
        for event in self.scheduler.ask()? {
            match event {
                Event::Told {
                    pid,
                    words: [told::STATE, is_valid, _],
                } => {
                    if let Some(inside) = self.inside.get_mut(&pid) {
                        inside.is_valid = is_valid == 1;
                    }
                }
                other => self.judge(&other)?,
            }
        }
        let now = self.scheduler.now();
        let counts = |inside: &Inside| {
            let sleeps = self.scheduler.is_suspended(inside.host);
            let wakes = inside.is_command && now < self.woke[inside.host] + WAKING;
            inside.is_valid && !sleeps && !wakes
        };
        let inside: Vec<_> = self
            .inside
            .iter()
            .filter(|(_, inside)| counts(inside))
            .collect();
        if inside.len() > 1 {
            return Err(format!(
                "two inside, at {:.6} s: {inside:?} (entered: {entered:?})",
                (now - BEGIN) as f64 / 1e9
            )
            .into());
        }
        Ok(())
    }

    fn judge(&mut self, event: &Event) -> Result<()> {
        match *event {
            Event::Told {
                pid,
                words: [told::ENTERED, fence, kind],
            } => {
                let host = self.scheduler.processes[&pid].host;
                self.entries[host][kind as usize] += 1;
                let inside = Inside {
                    host,
                    is_command: kind == 1,
                    is_valid: true,
                };
                self.inside.insert(pid, inside);
                self.look(Some(pid))?;
                if fence <= self.fence
                    && self.inside.get(&pid).is_some_and(|inside| inside.is_valid)
                {
                    return Err(format!("fence {fence} after {}", self.fence).into());
                }
                self.fence = self.fence.max(fence);
            }
            Event::Told {
                pid,
                words: [told::LEAVES, ..],
            } => {
                self.inside.remove(&pid);
            }
            Event::Synced { pid, fd } => {
                if let Some(process) = self.scheduler.processes.get(&pid) {
                    let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
                    let host = process.host;
                    self.disks[host].synced(&path)?;
                }
            }
            Event::Ended { pid, host } => {
                self.inside.remove(&pid);
                self.delay_others(host);
                if let Some((host, is_runner)) = self.clients.remove(&pid) {
                    let at = self.within_leases(1) + 50 * MILLI;
                    let act = if is_runner {
                        Act::StartRunner
                    } else {
                        Act::StartProgram
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
                    && self.choices.chance(30) =>
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
}
