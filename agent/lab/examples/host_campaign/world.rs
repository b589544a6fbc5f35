//! One seed: hosts with their agents, programs that lock, and what befalls them; and who judges them.
//!
//! A program is inside from the moment it has its guard until it gives it back, as long as
//! `Guard::state` says, in true time, that it is valid. A command of `distlock run` is inside until it
//! has ended, whatever its lease: it must have been ended in time. Only where its host was suspended it
//! may run on for a tenth of a second after waking (doc/faults.md, row 8).

mod acts;
mod aimed;
mod choose;
mod clusters;
mod files;
mod judge;
mod notice;
mod operator;
mod peace;
mod recovery;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use distlock_lab::choices::Choices;
use distlock_protocol::{Affiliation, Algorithm};
use nix::mount::{MsFlags, mount};

use crate::disk::Disk;
use crate::outcome::Outcome;
use crate::page::GROUP;
use acts::Act;
use clusters::Clusters;
use judge::{Judge, Leases};
use notice::lost_in_peace;
use operator::Operator;
use recovery::Recovery;
pub(crate) use trouble::Trouble;

use crate::scheduler::{BEGIN, Scheduler};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
/// The lease that most groups are founded with, and those between which all are.
const LEASE_MS: u64 = 2_000;
const SHORTEST_LEASE_MS: u64 = LEASE_MS / 2;
const LONGEST_LEASE_MS: u64 = 3_000;
/// Places in what is counted for programs and commands.
const PROGRAM: usize = 0;
const COMMAND: usize = 1;
/// How long hosts have to found a cluster before things go wrong.
const FOUNDED: u64 = 6 * SECOND;
/// How long things go wrong; and where a host is so late that nobody can found before.
const TROUBLED: u64 = 40 * SECOND;
const LONG_TROUBLED: u64 = 180 * SECOND;
/// How long what is inside stays at most; and where nothing goes wrong.
const LONGEST_STAY_MS: u64 = 12_000;
const SHORT_STAY_MS: u64 = 3_000;
/// How long it takes until all have entered again, besides what they stay.
const PEACE: u64 = 30 * SECOND;
/// For how long, when nothing is lost any more, nobody may lose a lock.
const QUIET: u64 = 3 * SECOND;
/// What a runner ends with that has lost its lock, or whose command died of SIGTERM or SIGKILL.
const LOST: [i32; 3] = [79, 128 + libc::SIGTERM, 128 + libc::SIGKILL];
/// What a program ends with that panics, or aborts below a shell.
const CRASHED: [i32; 2] = [101, 128 + libc::SIGABRT];
/// How much longer than others a process may take to notice what has happened: half of what a runner leaves
/// its guardian.
const DELAY: u64 = 50 * MILLI;
/// How long a command may go on after its host has woken; and a program that is to abort, after its lease.
const WAKING: u64 = 100 * MILLI;
/// How long after the last renewal a lease is over by any clock that leases can be measured by.
const LEASE_IS_OVER: u64 = is_over_after(LONGEST_LEASE_MS);
/// The same of a lease so long.
const fn is_over_after(lease_ms: u64) -> u64 {
    lease_ms * MILLI * 11 / 10
}
/// How long one host is left in peace after something befell it, so that a runner, its guardian and its
/// agent do not all stand still at once: then nobody is left to end the command (distlock(1), CAVEATS).
const RECOVERY: u64 = 2 * LONGEST_LEASE_MS * MILLI;

/// A program that locks, or a runner.
#[derive(Clone, Copy, Debug)]
struct Client {
    host: usize,
    is_runner: bool,
    /// By when it has to give up, if it waits for a moment only and nothing has held it up itself.
    waits_until: Option<u64>,
    /// Whether it loses its lock by what it does itself: it closes its agent, or that will cut it off.
    loses_own_lock: bool,
    /// Whether the library aborts it when its lock is lost.
    aborts: bool,
}

struct World<'a> {
    scheduler: Scheduler,
    choices: Choices,
    program: &'a Path,
    dir: &'a Path,
    algorithm: &'a str,
    hosts: usize,
    agents: BTreeMap<usize, u32>,
    /// The agents that were told to end.
    told_to_end: BTreeSet<u32>,
    /// The host that has no agent: the only program or runner there at a time is the member itself.
    agentless: Option<usize>,
    disks: Vec<Disk>,
    /// When each host woke last, and until when it is left in peace.
    woke: Vec<u64>,
    peace: Vec<u64>,
    agenda: BTreeMap<(u64, u64), Act>,
    planned: u64,
    /// Whom the files list as voters, by id; but for a file that an operator has got wrong.
    voters: Vec<usize>,
    /// Whether no file gets others any more.
    keeps_voters: bool,
    operator: Operator,
    /// The cluster that the operator abandons, all that he has abandoned, and what he has begun for that.
    abandons: Option<String>,
    has_abandoned: BTreeSet<String>,
    recovery: Option<Recovery>,
    /// Whether states were lost.
    has_lost: bool,
    /// The lease of all files, but for one that an operator has got wrong.
    lease_ms: u64,
    /// How often the power is cut where something is synced.
    cuts_at_sync: u32,
    kind: Trouble,
    /// The lease in the file of each host, and the one in it when its agent began.
    files_say: Vec<u64>,
    runs_with: Vec<u64>,
    leases_end: Leases,
    /// The hosts whose members are the voters, by id, where that is known.
    known_voters: Option<Vec<usize>>,
    /// The last turn of each host's member in which there was a way from it to each other host.
    reached: Vec<Vec<u64>>,
    /// The process that was each host's member last.
    members: Vec<Option<u32>>,
    /// The voters in the file of each host, and those in it when its agent began.
    files_list: Vec<Vec<usize>>,
    runs_with_voters: Vec<Vec<usize>>,
    /// The hosts whose files do not list all members, and those whose agents began so.
    files_lack: BTreeSet<usize>,
    runs_lacking: BTreeSet<usize>,
    /// By how much the wall clocks of hosts were set.
    clocks_off: Vec<i64>,
    /// Whether datagrams are sealed; and how often each key file was replaced to exchange the key.
    is_sealed: bool,
    key_rounds: Vec<usize>,
    /// Whether the operator is to do so while things go wrong, and has not begun.
    exchanges_soon: bool,
    /// A host that no file but its own lists yet, and that the group does not know: the last one.
    newcomer: Option<usize>,
    /// How many may hold the lock at once, and whether some only share it.
    permits: usize,
    has_readers: bool,
    /// How many locks there are, and how many programs at a time want one on each host.
    locks: usize,
    programs: usize,
    /// The changes of members that an operator has asked for.
    changes: BTreeMap<u32, &'static str>,
    judge: Judge,
    clusters: Clusters,
    clients: BTreeMap<u32, Client>,
    /// When those that stood still went on last.
    continued: BTreeMap<u32, u64>,
    /// The runners beside which all stand still, and their guardians.
    alone: BTreeMap<u32, u32>,
    is_troubled: bool,
    /// Whether everybody has entered since the last trouble.
    is_quiet: bool,
    /// The programs that have had the lock since then.
    may_not_lose: BTreeSet<u32>,
    acts: BTreeMap<&'static str, u64>,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Plays `seed`; by which algorithm and of which kind, if not as it chooses.
///
/// # Errors
/// If the system refuses something.
pub(crate) fn play(
    seed: u64,
    engine: Option<&str>,
    trouble: Option<Trouble>,
    program: &Path,
    shim: &Path,
    trace: bool,
) -> Result<ExitCode> {
    // The mounts are this world's own: its files have the same paths in every run, and are listed in the same order
    // on every machine; and worlds that are played at the same time do not meet in the kernel's control groups.
    let place = Path::new("/mnt");
    for place in [place, Path::new("/sys/fs/cgroup")] {
        mount(
            Some("none"),
            place,
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )?;
    }
    // The stand-ins of UDP sockets have room for what comes while their process stands still, as those do.
    fs::write("/proc/sys/net/unix/max_dgram_qlen", "512")?;
    let mut choices = Choices::new(seed);
    // With five a minority is more than one, and voters can be replaced by others.
    let hosts = [3, 3, 3, 3, 3, 4, 4, 4, 5, 6][choices.index(10)];
    // Those that serve locks under quorum views.
    let mut engines = Algorithm::ALL.to_vec();
    engines.retain(|algorithm| !algorithm.is_probabilistic());
    // Many worlds are of the default, which nobody has to choose.
    let chosen = match choices.chance(200) {
        true => Algorithm::Manager,
        false => engines[choices.index(engines.len())],
    };
    let chosen = chosen.name();
    let algorithm = engine.unwrap_or(chosen);
    let chosen = Trouble::EACH[choices.index(Trouble::EACH.len())];
    let scheduler = Scheduler::new(place, shim, choices.fork(), trace)?;
    let mut world = World {
        scheduler,
        choices,
        program,
        dir: place,
        algorithm,
        hosts,
        agents: BTreeMap::new(),
        told_to_end: BTreeSet::new(),
        agentless: None,
        disks: (0..hosts).map(|_| Disk::default()).collect(),
        woke: vec![0; hosts],
        peace: vec![0; hosts],
        agenda: BTreeMap::new(),
        planned: 0,
        voters: (1..=hosts).collect(),
        keeps_voters: false,
        operator: Operator::Nothing,
        abandons: None,
        has_abandoned: BTreeSet::new(),
        recovery: None,
        has_lost: false,
        lease_ms: LEASE_MS,
        cuts_at_sync: 0,
        kind: trouble.unwrap_or(chosen),
        files_say: vec![LEASE_MS; hosts],
        runs_with: vec![LEASE_MS; hosts],
        leases_end: Leases::new(),
        known_voters: None,
        reached: vec![vec![0; hosts]; hosts],
        members: vec![None; hosts],
        files_list: vec![Vec::new(); hosts],
        runs_with_voters: vec![Vec::new(); hosts],
        files_lack: BTreeSet::new(),
        runs_lacking: BTreeSet::new(),
        clocks_off: vec![0; hosts],
        is_sealed: false,
        key_rounds: vec![0; hosts],
        exchanges_soon: false,
        newcomer: None,
        permits: 1,
        has_readers: false,
        locks: 1,
        programs: 1,
        changes: BTreeMap::new(),
        judge: Judge::new(hosts),
        clusters: Clusters::new(hosts),
        clients: BTreeMap::new(),
        continued: BTreeMap::new(),
        alone: BTreeMap::new(),
        is_troubled: false,
        is_quiet: false,
        may_not_lose: BTreeSet::new(),
        acts: BTreeMap::new(),
    };
    let outcome = world.run();
    if let Err(error) = outcome {
        println!("{error}\nwhat hosts remember: {:?}", world.clusters);
        for host in 0..hosts {
            let log = fs::read_to_string(world.file(host, "log")).unwrap_or_default();
            // Programs that are started again and again say the same again and again.
            let mut said = BTreeSet::new();
            let mut lines: Vec<_> = log
                .lines()
                .rev()
                .filter(|line| said.insert(*line))
                .collect();
            lines.truncate(40);
            lines.reverse();
            println!("host {host}:\n  {}", lines.join("\n  "));
        }
        return Ok(ExitCode::FAILURE);
    }
    let seconds = (world.scheduler.now() - BEGIN) as f64 / 1e9;
    let acts = world.acts.into_iter();
    let outcome = Outcome {
        algorithm: algorithm.to_owned(),
        kind: format!("{:?}", world.kind),
        hosts,
        turns: world.scheduler.turns,
        digest: format!("{:016x}", world.scheduler.digest),
        seconds: (seconds * 10.0).round() / 10.0,
        entries: world.judge.entries,
        acts: acts.map(|(act, count)| (act.to_owned(), count)).collect(),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(ExitCode::SUCCESS)
}

impl World<'_> {
    fn plan(&mut self, at: u64, act: Act) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), act);
    }

    /// Plans the start of what wants a lock on a host with an agent. Whatever of it ends starts again.
    fn plan_clients(&mut self, at: u64, host: usize) {
        for _ in 0..self.programs {
            self.plan(at, Act::StartProgram(host));
        }
        self.plan(at, Act::StartRunner(host));
    }

    /// A time that is at most `most` leases from now.
    fn within_leases(&mut self, most: u64) -> u64 {
        self.scheduler.now() + self.choices.below(most * LEASE_MS * MILLI)
    }

    /// Sees what is on a host's disk now.
    fn look_at_disk(&mut self, host: usize) -> Result<()> {
        let path = self.file(host, &format!("state/{GROUP}-{}/state", host + 1));
        let founded = self.clusters.founds(host);
        let now = clusters::on_disk(&path)?;
        if let Some(cluster) = now.as_ref().and_then(Affiliation::abandoned)
            && !self.has_abandoned.contains(&cluster.to_string())
        {
            let what = format!("host {host} has abandoned {cluster}, and no operator said so");
            return Err(what.into());
        }
        if let Some(news) = self.clusters.remembers(host, now)? {
            *self.acts.entry(news).or_default() += 1;
        }
        if self.clusters.founds(host) && !founded {
            self.trouble_founding();
        }
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        self.choose()?;
        let mut latest = 0;
        for host in 0..self.hosts {
            fs::create_dir_all(self.file(host, "state"))?;
            self.write_key(host, true)?;
            let gains = self.some_rate();
            self.scheduler.drift(host, gains);
            self.boot(host)?;
            if self.kind == Trouble::Founding {
                let late = self.some_delay();
                latest = latest.max(late);
                self.plan(BEGIN + late, Act::StartAgent(host));
            }
            if self.newcomer == Some(host) {
                continue;
            }
            let at = self.scheduler.now() + self.choices.below(8 * SECOND);
            if self.agentless == Some(host) {
                self.configure(host, self.lease_ms, None)?;
                self.act(Act::StartMember(host))?;
                continue;
            }
            if self.kind != Trouble::Founding {
                self.configure(host, self.lease_ms, None)?;
                self.start_agent(host)?;
            }
            self.plan_clients(at, host);
        }
        if self.kind == Trouble::Founding {
            self.until(BEGIN + TROUBLED.max(latest + 2 * FOUNDED), true)?;
        } else {
            self.until(BEGIN + FOUNDED, false)?;
            let is_founded = (0..self.hosts).any(|host| self.clusters.of(host).is_some());
            self.known_voters = is_founded.then(|| self.voters.clone());
            self.until(BEGIN + FOUNDED + TROUBLED, true)?;
        }
        self.heal()?;
        if self.kind == Trouble::Founding {
            self.mend_what_is_told()?;
        }
        if self.is_stuck()? {
            self.recover_what_is_told()?;
            if let Some(what) = self.lacks_an_entry()? {
                return Err(what.into());
            }
        }
        // Where datagrams are lost, a lease may once in a while be renewed too late.
        self.scheduler.network.lost = 0;
        let end = self.scheduler.now() + LONGEST_LEASE_MS * MILLI;
        self.until(end, false)?;
        self.look(None)?;
        let valid = self.judge.valid();
        self.may_not_lose = valid.filter(|pid| !self.loses_own_lock(*pid)).collect();
        self.is_quiet = true;
        let is_old = self.key_rounds.iter().all(|round| *round == 0);
        let done = match self.operator {
            Operator::ExchangesKey if is_old => self.exchange_key_in_peace(),
            _ => self.scheduler.now(),
        };
        self.until(done + QUIET, false)?;
        self.look(None)?;
        if let Some(pid) = self
            .judge
            .lost()
            .find(|pid| self.may_not_lose.contains(pid))
        {
            return Err(lost_in_peace(pid));
        }
        self.clusters.check_all_in_one()?;
        for host in 0..self.hosts {
            let log = fs::read(self.file(host, "log"))?;
            let log = String::from_utf8_lossy(&log);
            if let Some(line) = log.lines().find(|line| line.contains(" panicked at ")) {
                return Err(format!("on host {host}: {line}").into());
            }
        }
        Ok(())
    }

    /// What there is when several are inside at once: only where some share the lock, or it has several permits.
    fn several_inside(&self) -> Option<&'static str> {
        match self.permits {
            1 => self.has_readers.then_some("inside with other readers"),
            _ => Some("inside with another permit"),
        }
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
                let rests = match self.kind {
                    Trouble::Wakes => SECOND / 2,
                    Trouble::Founding => 6 * SECOND,
                    _ => 2 * SECOND,
                };
                trouble = now + self.choices.below(rests);
            }
            while let Some(entry) = self.agenda.first_entry()
                && entry.key().0 <= now
            {
                let act = entry.remove();
                self.act(act)?;
            }
            let is_one_due = self.lease_is_due() <= now;
            if (self.judge.has_several() || is_one_due) && now >= looked + 10 * MILLI {
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
            if self.judge.has_several() {
                next = next.min(looked + 10 * MILLI);
            }
            next = next.min(self.lease_is_due().max(looked + 10 * MILLI));
            let events = self.scheduler.step(next)?;
            self.note_renewal();
            for event in events {
                self.note(&event)?;
            }
        }
    }
}
