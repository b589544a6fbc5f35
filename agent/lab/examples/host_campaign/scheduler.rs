//! Who runs next: of all threads of all processes of a world, one.

mod ends;
mod ready;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use distlock_lab::choices::Choices;
use nix::poll::PollTimeout;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use crate::kernel::{has_ended, pidfd};
use crate::network::{Network, host_of};
use crate::page::{HOSTS, NEVER, Page, SLOTS, Slot, said, state, waits};

/// How long a turn may take that should take microseconds, where others use the processors.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for poll(2), in milliseconds.
const LONG: u16 = 60_000;
/// The true time at which a world begins.
pub(crate) const BEGIN: u64 = 1_000_000_000_000;
/// Worlds have 20,000 to 300,000 turns. Where a thread spins, time hardly goes on, and there is no end to them.
const MOST_TURNS: u64 = 2_000_000;
/// How long a call of the system takes.
const POINT: Duration = Duration::from_nanos(200);

/// What has happened that others want to know.
#[derive(Debug)]
pub(crate) enum Event {
    /// A program has said this, by `distlock_simulated_tell`.
    Told { pid: u32, words: [u64; 3] },
    Ended {
        pid: u32,
        host: usize,
        /// What it has ended with, if no signal has ended it.
        code: Option<i32>,
        signal: Option<Signal>,
        /// Whether the world has killed it.
        is_killed: bool,
    },
    /// A process has begun to sync something.
    Syncs { host: usize },
    /// A process has synced this descriptor.
    Synced { pid: u32, fd: u64 },
    /// It could not: the disk failed.
    Unsynced { pid: u32, fd: u64 },
}

/// What must not happen to the simulation itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    #[error("thread {name} of process {pid} keeps its turn")]
    Keeps { pid: u32, name: String },
    #[error("a process does not begin: it is not of this world")]
    Begins,
    #[error(
        "thread {name} of process {pid}, and perhaps others, do not rest: this is turn {MOST_TURNS}"
    )]
    Spins { pid: u32, name: String },
}

type Result<T> = std::result::Result<T, Broken>;

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Broken {
    move |error| Broken::System(doing, error)
}

/// What a host is to its processes.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Counts what has happened there: whoever waits for anything looks again.
    generation: u64,
    /// Since when it is suspended.
    suspended: Option<u64>,
}

/// Where a process stops as soon as a thread of it stands still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Midway {
    /// Between two calls of the system.
    Anywhere,
    /// Where it has taken a datagram, and is about to take the next one of the same batch.
    BetweenDatagrams,
    /// Right behind what it has sent.
    BehindSent,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) host: usize,
    pidfd: OwnedFd,
    pub(crate) is_stopped: bool,
}

pub(crate) struct Scheduler {
    pub(crate) page: Page,
    path: PathBuf,
    shim: PathBuf,
    pub(crate) choices: Choices,
    pub(crate) hosts: [Host; HOSTS],
    pub(crate) network: Network,
    /// The mean time that fsync(2) takes.
    pub(crate) disk_takes: Duration,
    /// Until when each host's disk takes at least, if it stalls.
    pub(crate) stalled_until: [u64; HOSTS],
    pub(crate) processes: BTreeMap<u32, Process>,
    /// How some have ended of which it was not noted yet.
    reaped: BTreeMap<u32, WaitStatus>,
    /// Those that are to stop, and where.
    midway: BTreeMap<u32, Midway>,
    /// Until when the first thread of each process is not run: others of it may be.
    late: BTreeMap<u32, u64>,
    /// What each slot's host had seen when its thread looked last.
    looked: [u64; SLOTS],
    /// Copies of epolls, by their numbers, and of which process, until that closes them. A copy of anything else might
    /// keep it open beyond its process.
    epolls: BTreeMap<u32, (u32, OwnedFd)>,
    /// Copies of what each slot's thread waits for, until a thread of its process has a turn, which may close it.
    waited: Vec<Option<Vec<OwnedFd>>>,
    pub(crate) turns: u64,
    /// The process that had the last turn, and its host.
    pub(crate) last: Option<(u32, usize)>,
    /// What two runs of one seed have in common: who ran, and when.
    pub(crate) digest: u64,
    trace: Option<Box<dyn io::Write>>,
}

impl Scheduler {
    /// A world below `dir` in which nothing runs yet.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn new(dir: &Path, shim: &Path, mut choices: Choices, trace: bool) -> Result<Self> {
        let path = dir.join("page");
        let mut page = Page::create(&path, POINT).map_err(system("the page"))?;
        let shared = page.get();
        shared.now = BEGIN;
        for host in &mut shared.hosts {
            host.base = BEGIN as i64;
            host.monotonic = choices.within(10_000_000_000..=1_000_000_000_000) as i64;
            host.boottime = host.monotonic;
            // Others were never suspended.
            if choices.chance(500) {
                host.boottime += choices.below(1_000_000_000_000) as i64;
            }
            host.realtime = 1_790_000_000_000_000_000 + choices.below(1_000_000_000) as i64;
            host.random = choices.next_u64();
        }
        Ok(Self {
            page,
            path,
            shim: shim.to_owned(),
            choices,
            hosts: Default::default(),
            disk_takes: Duration::ZERO,
            stalled_until: [0; HOSTS],
            network: Network::new().map_err(system("the network"))?,
            processes: BTreeMap::new(),
            reaped: BTreeMap::new(),
            midway: BTreeMap::new(),
            late: BTreeMap::new(),
            looked: [NEVER; SLOTS],
            epolls: BTreeMap::new(),
            waited: std::iter::repeat_with(|| None).take(SLOTS).collect(),
            turns: 0,
            last: None,
            digest: 0,
            trace: trace.then(|| Box::new(io::stderr()) as Box<dyn io::Write>),
        })
    }

    pub(crate) fn now(&mut self) -> u64 {
        self.page.get().now
    }

    /// Writes a line into the trace.
    pub(crate) fn note(&mut self, what: fmt::Arguments<'_>) {
        if self.trace.is_some() {
            let now = self.now();
            let trace = self.trace.as_mut().expect("it is there");
            let _ = writeln!(trace, "{:>12.6} {what}", (now - BEGIN) as f64 / 1e9);
        }
    }

    /// Starts `command` on a host.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start(&mut self, host: usize, command: &mut Command) -> Result<u32> {
        command
            .env("LD_PRELOAD", &self.shim)
            .env("DISTLOCK_SIMULATED_PAGE", &self.path)
            .env("DISTLOCK_SIMULATED_HOST", host.to_string());
        self.page.spawning();
        let child = command.spawn().map_err(system("starting a process"))?;
        if !self.page.spawned(PATIENCE) {
            return Err(Broken::Begins);
        }
        self.note(format_args!(
            "host {host}: process {} starts: {command:?}",
            child.id()
        ));
        self.meet()?;
        Ok(child.id())
    }

    /// Takes note of processes that are new.
    fn meet(&mut self) -> Result<()> {
        let mut ended = Vec::new();
        for (index, slot) in self.page.get().threads_mut().iter_mut().enumerate() {
            if slot.is(state::FREE) {
                continue;
            }
            if slot.is(state::ENDED) {
                ended.push(index);
                continue;
            }
            if !self.processes.contains_key(&slot.pid) && slot.pid != 0 {
                let process = Process {
                    host: slot.host as usize,
                    pidfd: pidfd(slot.pid).map_err(system("a process"))?,
                    is_stopped: false,
                };
                self.processes.insert(slot.pid, process);
                // What it does not keep across its exec is closed.
                self.hosts[slot.host as usize].generation += 1;
            }
        }
        for index in ended {
            self.page.get().slots[index].clear();
            self.looked[index] = NEVER;
        }
        Ok(())
    }

    /// Sends a process a signal that it handles.
    pub(crate) fn signal(&mut self, pid: u32, signal: Signal) {
        self.note(format_args!("process {pid} gets {signal}"));
        let _ = kill(Pid::from_raw(pid as i32), signal);
        self.wake_for_signals();
    }

    pub(crate) fn stop(&mut self, pid: u32, is_stopped: bool) {
        self.note(format_args!("process {pid} is stopped: {is_stopped}"));
        self.midway.remove(&pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.is_stopped = is_stopped;
        }
    }

    /// Stops a process in the middle of what it does next: between a look at the clock, for one, and what it
    /// does by that.
    pub(crate) fn stop_midway(&mut self, pid: u32, at: Midway) {
        self.note(format_args!("process {pid} is to stop: {at:?}"));
        self.midway.insert(pid, at);
    }

    /// The first thread of a process does not run before `until`, as where others have the processors.
    pub(crate) fn hold_first_thread(&mut self, pid: u32, until: u64) {
        self.note(format_args!("the first thread of process {pid} is late"));
        self.late.insert(pid, until);
    }

    pub(crate) fn suspend(&mut self, host: usize) {
        self.note(format_args!("host {host} is suspended"));
        let now = self.now();
        self.hosts[host].suspended.get_or_insert(now);
    }

    /// `CLOCK_BOOTTIME` and the wall clock have gone on meanwhile, and `CLOCK_MONOTONIC` has not. Returns
    /// since when it was suspended.
    pub(crate) fn resume(&mut self, host: usize) -> Option<u64> {
        let now = self.now();
        let since = self.hosts[host].suspended.take()?;
        self.note(format_args!("host {host} wakes"));
        let clocks = &mut self.page.get().hosts[host];
        clocks.monotonic += clocks.passed(since);
        clocks.boottime += clocks.passed(now);
        clocks.realtime += clocks.passed(now);
        clocks.base = now as i64;
        self.hosts[host].generation += 1;
        Some(since)
    }

    /// From now on the clocks of a host gain so much, in parts per thousand million.
    pub(crate) fn drift(&mut self, host: usize, gains: i64) {
        let now = self.now();
        let clocks = &mut self.page.get().hosts[host];
        let passed = clocks.passed(now);
        clocks.monotonic += passed;
        clocks.boottime += passed;
        clocks.realtime += passed;
        clocks.base = now as i64;
        clocks.gains = gains;
    }

    pub(crate) fn is_suspended(&self, host: usize) -> bool {
        self.hosts[host].suspended.is_some()
    }

    /// Carries what was sent, and what is due.
    fn carry(&mut self, now: u64) -> Result<()> {
        for datagram in self.page.sent() {
            if self.trace.is_some() {
                let (from, to, said) = (datagram.host, host_of(&datagram), datagram.in_words());
                self.note(format_args!("host {from} sends host {to}: {said}"));
            }
            self.network.take(datagram, &mut self.choices);
        }
        let arrived = self.network.deliver(now).map_err(system("the network"))?;
        for host in arrived {
            self.hosts[host].generation += 1;
        }
        Ok(())
    }

    /// Lets one thread run for a while, or time pass, but not beyond `until`.
    ///
    /// # Errors
    /// If a thread does not give its turn back.
    pub(crate) fn step(&mut self, until: u64) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let now = self.now();
        self.carry(now)?;
        self.fire(now);
        let (runnable, next) = self.runnable();
        if runnable.is_empty() {
            let page = self.page.get();
            page.now = page.now.max(next.min(until));
            return Ok(events);
        }
        let chosen = runnable[self.choices.index(runnable.len())];
        // Mostly a thread goes on until it would block; where it does not, it stops anywhere.
        let pid = self.page.get().slots[chosen].pid;
        if self.turns >= MOST_TURNS {
            let name = self.page.get().slots[chosen].name();
            return Err(Broken::Spins { pid, name });
        }
        let midway = self.midway.get(&pid).copied();
        let quantum = match midway {
            Some(Midway::BetweenDatagrams | Midway::BehindSent) => 1,
            None if !self.choices.chance(200) => 400,
            _ => 1 + self.choices.below(12),
        };
        self.give(chosen, quantum as i32, &mut events)?;
        let slot = &self.page.get().slots[chosen];
        let stands = slot.is(state::PARKED) && slot.waits == waits::TURN;
        let is_there = match midway {
            None => false,
            Some(Midway::Anywhere) => true,
            Some(Midway::BetweenDatagrams) => slot.taken > 0,
            Some(Midway::BehindSent) => slot.sent > 0,
        };
        if stands && is_there {
            self.stop(pid, true);
        }
        Ok(events)
    }

    /// Gives a thread the turn, and takes it back.
    fn give(&mut self, chosen: usize, quantum: i32, events: &mut Vec<Event>) -> Result<()> {
        let page = self.page.get();
        let slot = &mut page.slots[chosen];
        let (host, pid) = (slot.host as usize, slot.pid);
        self.turns += 1;
        self.last = Some((pid, host));
        self.give_up_copies(pid);
        let now = self.now();
        self.digest = (self.digest ^ now ^ (chosen as u64) << 48)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(7);
        self.page.give_turn(chosen, quantum);
        if !self.page.take_turn(PATIENCE) {
            if has_ended(&self.processes[&pid].pidfd, PollTimeout::ZERO) {
                return self.settle(events);
            }
            return Err(self.keeps(pid, chosen));
        }
        let slot = &mut self.page.get().slots[chosen];
        let (said, words, waits) = (slot.said, slot.words, slot.waits);
        slot.said = 0;
        let is_running = slot.is(state::RUNNING);
        if std::mem::take(&mut self.page.get().stirred) != 0 {
            self.hosts[host].generation += 1;
        }
        for number in self.page.get().closed_epolls() {
            self.epolls.remove(&number);
        }
        // Whatever it did itself, it has looked after that.
        self.looked[chosen] = self.hosts[host].generation;
        if self.trace.is_some() {
            let name = self.page.get().slots[chosen].name();
            self.note(format_args!(
                "host {host} process {pid} {name}: waits {waits}, said {said} {:?}",
                &words[..3]
            ));
        }
        match said {
            said::EXITS => {
                // What ends by a signal ends now.
                if !has_ended(&self.processes[&pid].pidfd, LONG.into()) {
                    return Err(self.keeps(pid, chosen));
                }
                self.settle(events)?;
            }
            said::TOLD => events.push(Event::Told {
                pid,
                words: [words[0], words[1], words[2]],
            }),
            said::SIGNALLED => {
                self.settle(events)?;
                self.wake_for_signals();
            }
            said::SYNCS => {
                let takes = self.choices.exponential(self.disk_takes).as_nanos();
                let takes = takes.max(self.stalled_until[host].saturating_sub(self.now()).into());
                let page = self.page.get();
                let clocks = &page.hosts[host];
                let until = clocks.monotonic + clocks.passed(page.now) + takes as i64;
                page.slots[chosen].words[0] = until as u64;
                events.push(Event::Syncs { host });
            }
            said::SYNCED => events.push(Event::Synced { pid, fd: words[0] }),
            said::UNSYNCED => events.push(Event::Unsynced { pid, fd: words[0] }),
            said::NOTHING => {}
            other => unreachable!("a thread says {other}"),
        }
        // An exec has ended the other threads.
        if is_running && self.processes.contains_key(&pid) {
            let image = |slot: &Slot| slot.pid == pid && slot.said == said::EXECUTED;
            let image = self.page.get().threads().iter().position(image);
            if image.is_none() {
                return Err(self.keeps(pid, chosen));
            }
            self.forget(pid, image);
            self.hosts[host].generation += 1;
        }
        self.meet()
    }

    fn keeps(&mut self, pid: u32, slot: usize) -> Broken {
        let name = self.page.get().slots[slot].name();
        Broken::Keeps { pid, name }
    }

    /// Has the threads that wait for the judge answer; what they say.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub(crate) fn ask(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let asked: Vec<usize> = self
            .page
            .get()
            .threads()
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.is(state::PARKED) && slot.waits == waits::ASKED)
            .filter(|(_, slot)| self.hosts[slot.host as usize].suspended.is_none())
            .map(|(index, _)| index)
            .collect();
        for index in asked {
            for _ in 0..100 {
                self.give(index, i32::MAX, &mut events)?;
                let slot = &self.page.get().slots[index];
                if !slot.is(state::PARKED) || slot.waits != waits::TURN {
                    break;
                }
            }
        }
        // What answers does nothing else.
        self.last = None;
        Ok(events)
    }
}
