//! Who runs next: of all threads of all processes of a world, one.

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
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::kernel::{
    are_ready, descriptor, descriptors, has_ended, has_pending, is_dying, is_readable, pidfd,
};
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

    /// Nothing that a process has open is open here, too, but epolls.
    fn give_up_copies(&mut self, pid: u32) {
        let threads = self.page.get().threads();
        for (slot, waited) in threads.iter().zip(&mut self.waited) {
            if slot.pid == pid {
                *waited = None;
            }
        }
    }

    /// Forgets the threads of a process but `keeps`, and its timers.
    fn forget(&mut self, pid: u32, keeps: Option<usize>) {
        self.give_up_copies(pid);
        let page = self.page.get();
        for (index, slot) in page.threads_mut().iter_mut().enumerate() {
            if slot.pid == pid && !slot.is(state::FREE) && Some(index) != keeps {
                slot.clear();
            }
        }
        for timer in page.timers_mut() {
            if timer.pid == pid {
                timer.used = 0;
            }
        }
        if keeps.is_none() {
            self.epolls.retain(|_, (owner, _)| *owner != pid);
        }
    }

    /// What is over takes effect: of a process that ends all is closed before anybody else runs, and
    /// those that end with it have ended.
    fn settle(&mut self, events: &mut Vec<Event>) -> Result<()> {
        loop {
            let dying: Vec<u32> = self
                .processes
                .iter()
                .filter(|(pid, process)| is_dying(**pid, &process.pidfd))
                .map(|(pid, _)| *pid)
                .collect();
            if dying.is_empty() {
                if !events.is_empty() {
                    self.wake_for_signals();
                }
                return Ok(());
            }
            for pid in dying {
                let process = self.processes.remove(&pid).expect("it was there");
                if !has_ended(&process.pidfd, LONG.into()) {
                    return Err(Broken::Keeps {
                        pid,
                        name: "one that ends".to_owned(),
                    });
                }
                self.hosts[process.host].generation += 1;
                self.forget(pid, None);
                let child = Pid::from_raw(pid as i32);
                let status = match self.reaped.remove(&pid) {
                    Some(status) => Ok(status),
                    None => waitpid(child, Some(WaitPidFlag::WNOHANG)),
                };
                self.note(format_args!("process {pid} has ended: {status:?}"));
                let (code, signal) = match status {
                    Ok(WaitStatus::Exited(_, code)) => (Some(code), None),
                    Ok(WaitStatus::Signaled(_, signal, _)) => (None, Some(signal)),
                    // The child of another.
                    _ => (None, None),
                };
                events.push(Event::Ended {
                    pid,
                    host: process.host,
                    code,
                    signal,
                    is_killed: false,
                });
            }
            // Those whose parent is gone are children of this process.
            while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                match status.pid().map(|pid| pid.as_raw() as u32) {
                    None => break,
                    Some(pid) if self.processes.contains_key(&pid) => {
                        self.reaped.insert(pid, status);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Kills a process.
    pub(crate) fn kill(&mut self, pid: u32) -> Result<Vec<Event>> {
        self.kill_all(&[pid])
    }

    /// Kills processes, at one moment.
    pub(crate) fn kill_all(&mut self, pids: &[u32]) -> Result<Vec<Event>> {
        self.note(format_args!("killed: {pids:?}"));
        let mut events = Vec::new();
        for pid in pids {
            let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
        }
        self.settle(&mut events)?;
        for event in &mut events {
            if let Event::Ended { pid, is_killed, .. } = event {
                *is_killed = pids.contains(pid);
            }
        }
        Ok(events)
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

    /// Whoever has a signal pending looks for it.
    fn wake_for_signals(&mut self) {
        let pids: Vec<u32> = self
            .processes
            .keys()
            .copied()
            .filter(|pid| has_pending(*pid))
            .collect();
        for slot in self.page.get().threads_mut() {
            if slot.is(state::PARKED)
                && pids.contains(&slot.pid)
                && slot.waits != waits::ASKED
                && slot.waits != waits::JOIN
            {
                slot.waits = waits::TURN;
                slot.woken = 0;
            }
        }
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

    fn fire(&mut self, now: u64) {
        let page = self.page.get();
        let mut due = Vec::new();
        for (index, timer) in page.timers().iter().enumerate() {
            let host = timer.host as usize;
            if timer.is_set()
                && self.hosts[host].suspended.is_none()
                && page.hosts[host].true_time(timer.clock, timer.deadline) <= now
            {
                due.push((index, *timer));
            }
        }
        for (index, timer) in due {
            self.page.get().timers_mut()[index].armed = 0;
            let Some(process) = self.processes.get(&timer.pid) else {
                continue;
            };
            if let Some(fd) = descriptor(&process.pidfd, timer.fd) {
                let _ = nix::unistd::write(&fd, &1_u64.to_ne_bytes());
                self.hosts[timer.host as usize].generation += 1;
            }
        }
    }

    /// The threads that can go on, and when the next one can if nothing happens.
    fn runnable(&mut self) -> (Vec<usize>, u64) {
        let page = self.page.get();
        let now = page.now;
        let mut runnable = Vec::new();
        let mut next = NEVER;
        for (index, slot) in page.threads().iter().enumerate() {
            if !slot.is(state::PARKED) {
                continue;
            }
            let host = &self.hosts[slot.host as usize];
            let Some(process) = self.processes.get(&slot.pid) else {
                continue;
            };
            if process.is_stopped || host.suspended.is_some() {
                continue;
            }
            let late_until = self.late.get(&slot.pid).filter(|_| slot.tid == slot.pid);
            if let Some(until) = late_until.filter(|until| **until > now) {
                next = next.min(*until);
                continue;
            }
            let due = match slot.deadline {
                NEVER => NEVER,
                at => page.hosts[slot.host as usize].true_time(slot.clock, at),
            };
            let is_due = due <= now;
            let is_ready = match slot.waits {
                waits::TURN => true,
                waits::RETRY if is_due => true,
                waits::RETRY if self.looked[index] == host.generation => false,
                waits::RETRY => {
                    let is_ready = match slot.fds() {
                        None => true,
                        Some([epoll]) if slot.epoll != 0 => {
                            if !self.epolls.contains_key(&slot.epoll)
                                && let Some(copy) = descriptor(&process.pidfd, epoll.fd as u32)
                            {
                                self.epolls.insert(slot.epoll, (slot.pid, copy));
                            }
                            let copy = self.epolls.get(&slot.epoll);
                            copy.is_none_or(|(_, copy)| is_readable(copy, PollTimeout::ZERO))
                        }
                        Some(fds) => {
                            let waited = &mut self.waited[index];
                            if waited.is_none() {
                                *waited = descriptors(&process.pidfd, fds);
                            }
                            waited.as_ref().is_none_or(|copies| are_ready(copies, fds))
                        }
                    };
                    if !is_ready {
                        self.looked[index] = host.generation;
                    }
                    is_ready
                }
                waits::SLEEP | waits::FUTEX => is_due,
                waits::JOIN => {
                    let other = &page.slots[slot.key as usize];
                    !(other.is(state::PARKED) || other.is(state::RUNNING)) || other.pid != slot.pid
                }
                _ => false,
            };
            if is_ready {
                runnable.push(index);
            } else if [waits::RETRY, waits::SLEEP, waits::FUTEX].contains(&slot.waits) {
                next = next.min(due);
            }
        }
        for timer in page.timers().iter().filter(|timer| timer.is_set()) {
            let host = timer.host as usize;
            let process = self.processes.get(&timer.pid);
            if self.hosts[host].suspended.is_none()
                && process.is_some_and(|process| !process.is_stopped)
            {
                next = next.min(page.hosts[host].true_time(timer.clock, timer.deadline));
            }
        }
        next = next.min(self.network.next());
        (runnable, next)
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
