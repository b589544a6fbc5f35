//! The page that the scheduler shares with all simulated processes, laid out as `hosts/shim.c` says.
#![allow(unsafe_code, reason = "memory that is shared with other processes")]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock_lab::dissect;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

use crate::sealed::{self, Opened};

pub(crate) const HOSTS: usize = 16;
pub(crate) const SLOTS: usize = 256;
const TIMERS: usize = 256;
const PARCELS: usize = 64;
const ROOM: usize = 4096;
const WAITED: usize = 6;
const CLOSED: usize = 16;
/// The group of all worlds.
pub(crate) const GROUP: &str = "shop";
pub(crate) const NEVER: u64 = u64::MAX;

/// The states of a slot.
pub(crate) mod state {
    pub(crate) const FREE: u32 = 0;
    pub(crate) const PARKED: u32 = 1;
    pub(crate) const RUNNING: u32 = 2;
    pub(crate) const ENDED: u32 = 3;
}

/// What a parked thread waits for.
pub(crate) mod waits {
    pub(crate) const TURN: u32 = 0;
    pub(crate) const RETRY: u32 = 1;
    pub(crate) const SLEEP: u32 = 2;
    pub(crate) const FUTEX: u32 = 3;
    pub(crate) const JOIN: u32 = 4;
    pub(crate) const ASKED: u32 = 5;
}

/// What a thread has said as it gave the turn back.
pub(crate) mod said {
    pub(crate) const NOTHING: u32 = 0;
    pub(crate) const EXITS: u32 = 1;
    pub(crate) const SYNCED: u32 = 2;
    pub(crate) const TOLD: u32 = 3;
    pub(crate) const SIGNALLED: u32 = 4;
    pub(crate) const EXECUTED: u32 = 5;
    pub(crate) const SYNCS: u32 = 6;
    pub(crate) const UNSYNCED: u32 = 7;
}

/// What the clocks of a host show at the true time `base`, and by how much they are too fast.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) base: i64,
    /// In parts per thousand million.
    pub(crate) gains: i64,
    pub(crate) monotonic: i64,
    pub(crate) boottime: i64,
    pub(crate) realtime: i64,
    pub(crate) random: u64,
    /// What its disk answers, if that is not 0; and whether only when something is to be synced.
    pub(crate) disk_error: u32,
    pub(crate) fails_at_sync_only: u32,
}

impl Clocks {
    /// How much the clocks have gone on since `base`.
    pub(crate) fn passed(&self, now: u64) -> i64 {
        let passed = now as i64 - self.base;
        passed + (i128::from(passed) * i128::from(self.gains) / 1_000_000_000) as i64
    }

    /// When `clock` shows `at`.
    pub(crate) fn true_time(&self, clock: u32, at: u64) -> u64 {
        let shows = match clock as i32 {
            libc::CLOCK_REALTIME => self.realtime,
            libc::CLOCK_BOOTTIME => self.boottime,
            _ => self.monotonic,
        };
        let left = i128::from(at) - i128::from(shows);
        let left = left * 1_000_000_000 / i128::from(1_000_000_000 + self.gains) + 2;
        u64::try_from(i128::from(self.base) + left.max(0)).unwrap_or(NEVER)
    }
}

/// A thread.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    go: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) host: u32,
    pub(crate) waits: u32,
    pub(crate) clock: u32,
    pub(crate) woken: u32,
    pub(crate) deadline: u64,
    pub(crate) key: u64,
    pub(crate) quantum: i32,
    pub(crate) said: u32,
    pub(crate) words: [u64; 4],
    waits_for: u32,
    /// Where it is about to take a datagram: how many it has taken since it waited for some.
    pub(crate) taken: u32,
    /// Whether it has just sent something.
    pub(crate) sent: u32,
    /// The number of the epoll for which it waits, if it waits for one; or 0.
    pub(crate) epoll: u32,
    fds: [PollFd; WAITED],
    name: [u8; 16],
}

/// As poll(2) takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollFd {
    pub(crate) fd: i32,
    pub(crate) events: i16,
    revents: i16,
}

impl Slot {
    pub(crate) fn name(&self) -> String {
        let name = self.name.split(|byte| *byte == 0).next();
        String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
    }

    /// The descriptors for which it waits, if it waits for nothing else, but for signals.
    pub(crate) fn fds(&self) -> Option<&[PollFd]> {
        self.fds.get(..(self.waits_for as usize).checked_sub(1)?)
    }

    pub(crate) fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::SeqCst) == state
    }

    pub(crate) fn clear(&mut self) {
        self.waits = waits::TURN;
        self.words = [0; 4];
        self.state.store(state::FREE, Ordering::SeqCst);
    }
}

/// A timer of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    pub(crate) pid: u32,
    pub(crate) fd: u32,
    pub(crate) host: u32,
    pub(crate) clock: u32,
    pub(crate) deadline: u64,
    pub(crate) used: u32,
    pub(crate) armed: u32,
}

impl Timer {
    pub(crate) fn is_set(&self) -> bool {
        self.used != 0 && self.armed != 0
    }
}

/// A datagram that was sent.
#[repr(C)]
struct Parcel {
    from: u32,
    to: u32,
    from_port: u16,
    to_port: u16,
    len: u32,
    host: u32,
    pad: u32,
    at: u64,
    data: [u8; ROOM],
}

/// The same, in the room that it takes.
#[derive(Clone)]
pub(crate) struct Datagram {
    /// The host from which it comes, and when it was sent.
    pub(crate) host: usize,
    pub(crate) at: u64,
    /// The address and the port to which it goes.
    pub(crate) to: ([u8; 4], u16),
    pub(crate) data: Vec<u8>,
}

impl Datagram {
    /// From which address and port it comes, before what the sender has written.
    const HEAD: usize = 6;

    /// What it says.
    pub(crate) fn in_words(&self) -> String {
        let written = self.data.get(Self::HEAD..).unwrap_or_default();
        if !sealed::is_sealed(written) {
            return dissect::in_words(GROUP, written);
        }
        match sealed::open(written) {
            None => "what no member can open".to_owned(),
            Some(Opened::Challenge) => "a challenge".to_owned(),
            Some(Opened::Answer) => "the answer to a challenge".to_owned(),
            Some(Opened::Datagram(opened)) => dissect::in_words(GROUP, &opened),
        }
    }
}

impl From<&Parcel> for Datagram {
    fn from(parcel: &Parcel) -> Self {
        Self {
            host: parcel.host as usize,
            at: parcel.at,
            to: (parcel.to.to_ne_bytes(), u16::from_be(parcel.to_port)),
            data: parcel.data[..parcel.len as usize].to_vec(),
        }
    }
}

/// What all share.
#[repr(C)]
pub(crate) struct Shared {
    turn: AtomicU32,
    spawning: AtomicU32,
    pub(crate) now: u64,
    point: u64,
    sent: u32,
    port: u32,
    /// Whether something was done for which another thread of the host may wait.
    pub(crate) stirred: u32,
    full: u32,
    slots_used: u32,
    timers_used: u32,
    epolls: u32,
    closed: u32,
    closed_epolls: [u32; CLOSED],
    pub(crate) hosts: [Clocks; HOSTS],
    pub(crate) slots: [Slot; SLOTS],
    timers: [Timer; TIMERS],
    parcels: [Parcel; PARCELS],
}

impl Shared {
    /// The slots that have ever been used.
    pub(crate) fn threads(&self) -> &[Slot] {
        &self.slots[..self.slots_used as usize]
    }

    pub(crate) fn threads_mut(&mut self) -> &mut [Slot] {
        &mut self.slots[..self.slots_used as usize]
    }

    /// The timers that have ever been used.
    pub(crate) fn timers(&self) -> &[Timer] {
        &self.timers[..self.timers_used as usize]
    }

    pub(crate) fn timers_mut(&mut self) -> &mut [Timer] {
        &mut self.timers[..self.timers_used as usize]
    }

    /// The numbers of the epolls that were closed since the last call.
    pub(crate) fn closed_epolls(&mut self) -> impl Iterator<Item = u32> {
        let closed = std::mem::take(&mut self.closed) as usize;
        self.closed_epolls.into_iter().take(closed)
    }
}

pub(crate) struct Page(NonNull<Shared>);

impl Page {
    /// A page of zeros at `path`.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn create(path: &Path, point: Duration) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        let len = NonZeroUsize::new(size_of::<Shared>()).expect("it has a size");
        file.set_len(len.get() as u64)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: nobody makes the file shorter.
        let at = unsafe { mmap(None, len, rights, MapFlags::MAP_SHARED, &file, 0)? };
        let mut page = Self(at.cast());
        page.get().point = u64::try_from(point.as_nanos()).expect("it is short");
        Ok(page)
    }

    /// All of it. The scheduler only looks while no process has the turn.
    pub(crate) fn get(&mut self) -> &mut Shared {
        // SAFETY: it is mapped for ever; zeros are a value of every field; whoever else has it mapped
        // waits for its turn, but for the words that are atomic.
        unsafe { self.0.as_mut() }
    }

    /// The datagrams that were sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Datagram> {
        let page = self.get();
        let sent = &page.parcels[..page.sent as usize];
        let sent = sent.iter().map(Datagram::from).collect();
        page.sent = 0;
        sent
    }

    /// Gives the turn to the thread of `slot`: it ends after `quantum` points, if the thread does not
    /// block before.
    pub(crate) fn give_turn(&mut self, slot: usize, quantum: i32) {
        let page = self.get();
        page.turn.store(1, Ordering::SeqCst);
        let slot = &mut page.slots[slot];
        slot.quantum = quantum;
        slot.waits = waits::TURN;
        slot.said = 0;
        slot.state.store(state::RUNNING, Ordering::SeqCst);
        slot.go.store(1, Ordering::SeqCst);
        let _ = futex(&slot.go, libc::FUTEX_WAKE, 1, None);
    }

    /// Waits until the turn comes back; whether it did in that time.
    pub(crate) fn take_turn(&mut self, patience: Duration) -> bool {
        let turn = &self.get().turn;
        wait(turn, patience)
    }

    /// The next process that begins is not exec'd by one that has the turn.
    pub(crate) fn spawning(&mut self) {
        self.get().spawning.store(1, Ordering::SeqCst);
    }

    /// Waits until it has begun; whether it did in that time.
    pub(crate) fn spawned(&mut self, patience: Duration) -> bool {
        wait(&self.get().spawning, patience)
    }
}

/// Waits until `word` is no longer 1.
fn wait(word: &AtomicU32, patience: Duration) -> bool {
    while word.load(Ordering::SeqCst) == 1 {
        // What wakes it may belong to a turn that was given back, and seen, before.
        if futex(word, libc::FUTEX_WAIT, 1, Some(patience)) == Err(Errno::ETIMEDOUT) {
            return false;
        }
    }
    true
}

fn futex(
    word: &AtomicU32,
    operation: i32,
    value: u32,
    timeout: Option<Duration>,
) -> nix::Result<i64> {
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout) };
    Errno::result(done)
}
