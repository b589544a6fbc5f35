//! The programs of a simulated world: one that takes a lock, and the command of `distlock run`. Both tell the judge
//! when they are inside.
#![allow(unsafe_code, reason = "what the shim gives is found by name")]

use std::ffi::CStr;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use distlock::{
    Agent, DistMutex, Guard, GuardState, LockError, LockOptions, PreviousOwner, Semaphore,
    TimedLockError,
};

/// What programs tell.
pub(crate) mod told {
    pub(crate) const ENTERED: u64 = 1;
    pub(crate) const LEAVES: u64 = 2;
    pub(crate) const STATE: u64 = 3;
    /// What a program has given back was lost.
    pub(crate) const LOST: u64 = 4;
    /// Its agent is about to cut it off.
    pub(crate) const GARBLED: u64 = 5;
    /// It closes its agent while it is inside.
    pub(crate) const CLOSES: u64 = 6;
    /// A command is told that a holder of this lock before it has ended inside, whatever it does about that.
    pub(crate) const LEARNS: u64 = 7;
    /// A program begins to wait for the lock, for at most this many milliseconds; and a program has given up waiting.
    pub(crate) const WAITS: u64 = 8;
    pub(crate) const GAVE_UP: u64 = 9;
    /// Bits of how something has entered: as a command, after a holder that has ended inside, and sharing the lock.
    pub(crate) const AS_COMMAND: u64 = 1;
    pub(crate) const AFTER_ABANDONED: u64 = 2;
    pub(crate) const SHARED: u64 = 4;
    /// The second lock.
    pub(crate) const OTHER_LOCK: u64 = 8;
}

/// How many of a thousand programs close their agent while they are inside, and how many entries are waited for for a
/// moment only, at most so long.
const MEMBERS_CLOSE: u32 = 500;
const CLIENTS_CLOSE: u32 = 100;
const IMPATIENT: u32 = 300;
const LONGEST_MOMENT: Duration = Duration::from_secs(2);

/// The locks of all worlds; of most the first alone.
pub(crate) const LOCKS: [&str; 2] = ["x", "y"];

fn number_of(lock: &str) -> u64 {
    u64::from(lock == LOCKS[1])
}

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

/// A function of the shim.
fn hook(name: &CStr) -> *mut libc::c_void {
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "this runs in a simulated world only");
    found
}

fn tell(what: u64, a: u64, b: u64) {
    let hook = hook(c"distlock_simulated_tell");
    // SAFETY: the shim declares it so.
    let hook: extern "C" fn(u64, u64, u64) = unsafe { std::mem::transmute(hook) };
    hook(what, a, b);
}

/// Waits until the judge asks.
fn judge_asks() -> bool {
    let hook = hook(c"distlock_simulated_judge_asks");
    // SAFETY: the shim declares it so.
    let hook: extern "C" fn() -> i32 = unsafe { std::mem::transmute(hook) };
    hook() != 0
}

/// Acquires the lock `times` times, through the agent at `socket` or as a member itself, holds it each time for at
/// most `stay`, and mostly comes back at once, so that it is lent the lock.
/// `mode`: how it takes it. `garbles`: inside, the first time, it says what its agent cannot understand. `aborts`: the
/// library aborts it when the lock is lost.
pub(crate) fn enters(
    socket: Option<&Path>,
    name: &str,
    (times, stay): (u32, Duration),
    (mode, garbles, aborts): (Mode, bool, bool),
) -> Result {
    let held: Arc<Mutex<Option<Arc<Guard>>>> = Arc::default();
    let asked = Arc::clone(&held);
    thread::spawn(move || {
        while judge_asks() {
            let guard = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let is_valid = guard.is_some_and(|guard| guard.state() == GuardState::Valid);
            tell(told::STATE, u64::from(is_valid), 0);
        }
    });
    let agent = match socket {
        Some(socket) => Agent::connect(socket)?,
        None => Agent::open()?,
    };
    let options = LockOptions::new().abort_on_loss(aborts);
    let lock = match mode {
        Mode::Exclusive => Lock::Mutex(Arc::new(agent.mutex_with(name, &options)?)),
        Mode::Shared => Lock::Mutex(agent.mutex_with(name, &options)?.shared()),
        Mode::Permit => Lock::Semaphore(agent.semaphore_with(name, None, &options)?),
    };
    for entry in 1..=times {
        let guard = Arc::new(lock.acquire()?);
        *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&guard));
        let how =
            mode.bits() | bit_of(name) | after(guard.previous_owner() == PreviousOwner::Abandoned);
        tell(told::ENTERED, guard.fence().map_or(0, u64::from), how);
        if let Some(socket) = socket.filter(|_| garbles && entry == 1) {
            garble(socket)?;
            tell(told::GARBLED, 0, 0);
        }
        thread::sleep(some(stay));
        let per_mille = if socket.is_some() {
            CLIENTS_CLOSE
        } else {
            MEMBERS_CLOSE
        };
        let closes = entry == times && !aborts && chance(per_mille);
        if closes {
            tell(told::CLOSES, 0, 0);
            agent.close();
            thread::sleep(some(stay));
        }
        tell(told::LEAVES, 0, 0);
        held.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread that answers the judge may still have it.
        let mut guard = guard;
        let guard = loop {
            match Arc::try_unwrap(guard) {
                Ok(guard) => break guard,
                Err(shared) => guard = shared,
            }
            thread::yield_now();
        };
        if guard.unlock().is_err() && !closes {
            tell(told::LOST, 0, 0);
        }
        if entry.is_multiple_of(3) {
            thread::sleep(some(stay));
        }
    }
    Ok(())
}

/// What a program acquires.
enum Lock {
    Mutex(Arc<dyn DistMutex>),
    Semaphore(Semaphore),
}

impl Lock {
    /// Waits until it has the lock; now and then for a moment only at first, once or more.
    fn acquire(&self) -> std::result::Result<Guard, Box<dyn std::error::Error>> {
        while chance(IMPATIENT) {
            let moment = some(some(LONGEST_MOMENT));
            tell(told::WAITS, moment.as_millis() as u64, 0);
            let guard = match self {
                Self::Mutex(mutex) => mutex.try_lock_for(moment),
                Self::Semaphore(semaphore) => semaphore.try_acquire_for(moment),
            };
            match guard {
                Ok(guard) => return Ok(guard),
                // Of a member that has just begun the latter.
                Err(
                    TimedLockError::TimedOut | TimedLockError::Failed(LockError::NoQuorum { .. }),
                ) => tell(told::GAVE_UP, 0, 0),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(match self {
            Self::Mutex(mutex) => mutex.lock(),
            Self::Semaphore(semaphore) => semaphore.acquire(),
        }?)
    }
}

/// Writes into this program's stream to its agent what is no message.
fn garble(socket: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let fd = entry?.file_name().to_string_lossy().parse::<i32>();
        // SAFETY: it is not closed here, and whatever else it is of, it is only asked for its peer's name.
        let stream = fd.map(|fd| ManuallyDrop::new(unsafe { UnixStream::from_raw_fd(fd) }));
        let is_to_agent = |stream: &UnixStream| {
            let peer = stream.peer_addr();
            peer.is_ok_and(|peer| peer.as_pathname() == Some(socket))
        };
        if let Ok(stream) = stream
            && is_to_agent(&stream)
        {
            (&*stream).write_all(&[0xff; 64])?;
        }
    }
    Ok(())
}

/// How a program takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    Exclusive,
    /// As a reader.
    Shared,
    /// As one of several.
    Permit,
}

impl Mode {
    /// As the command line names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit => "permit",
        }
    }

    const fn bits(self) -> u64 {
        match self {
            Self::Shared => told::SHARED,
            Self::Exclusive | Self::Permit => 0,
        }
    }
}

/// How a command behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Manner {
    Plain,
    /// It takes no notice of SIGTERM.
    Stubborn,
    /// It closes what it has inherited of the lock.
    Closing,
    /// A child of it does the work, and takes no notice of SIGTERM; it waits for that.
    Waiting,
    /// A child of it does the work; it does not wait for that.
    Leaving,
}

impl Manner {
    pub(crate) const ALL: [Self; 5] = [
        Self::Plain,
        Self::Stubborn,
        Self::Closing,
        Self::Waiting,
        Self::Leaving,
    ];

    /// As the command line names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Stubborn => "stubborn",
            Self::Closing => "closing",
            Self::Waiting => "waiting",
            Self::Leaving => "leaving",
        }
    }
}

/// What `distlock run` runs.
pub(crate) fn command(stay_ms: u64, manner: Manner, (mode, lock): (Mode, &str)) -> Result {
    let child = |manner: Manner| {
        let mut child = std::process::Command::new(std::env::current_exe()?);
        child
            .args([
                "command",
                &stay_ms.to_string(),
                manner.word(),
                mode.word(),
                lock,
            ])
            .spawn()
    };
    // A child that does the work may not come to it.
    if is_after_abandoned() && mode == Mode::Exclusive {
        tell(told::LEARNS, number_of(lock), 0);
    }
    match manner {
        Manner::Plain => {}
        Manner::Stubborn => {
            // SAFETY: nothing is called.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
        }
        Manner::Closing => close_lifelines()?,
        Manner::Waiting => {
            child(Manner::Stubborn)?.wait()?;
            return Ok(());
        }
        Manner::Leaving => {
            child(Manner::Plain)?;
            return Ok(());
        }
    }
    work(Duration::from_millis(stay_ms), mode, lock);
    Ok(())
}

/// Closes what keeps the lock of a host's agent.
fn close_lifelines() -> std::io::Result<()> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_one = std::fs::read_link(entry.path())
            .is_ok_and(|path| path.to_string_lossy().contains("/lifelines/"));
        let fd = entry.file_name().to_string_lossy().parse::<i32>();
        if let (true, Ok(fd)) = (is_one, fd) {
            found.push(fd);
        }
    }
    for fd in found {
        // SAFETY: nobody else in this process has it.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

fn work(stay: Duration, mode: Mode, lock: &str) {
    let fence = std::env::var("DISTLOCK_FENCE")
        .ok()
        .and_then(|fence| fence.parse().ok());
    let how = told::AS_COMMAND | mode.bits() | bit_of(lock) | after(is_after_abandoned());
    tell(told::ENTERED, fence.unwrap_or_default(), how);
    thread::sleep(some(stay));
    tell(told::LEAVES, 0, 0);
}

fn bit_of(lock: &str) -> u64 {
    number_of(lock) * told::OTHER_LOCK
}

fn is_after_abandoned() -> bool {
    std::env::var("DISTLOCK_PREVIOUS_OWNER").is_ok_and(|how| how == "abandoned")
}

const fn after(is_abandoned: bool) -> u64 {
    if is_abandoned {
        told::AFTER_ABANDONED
    } else {
        0
    }
}

/// So many times of a thousand.
fn chance(per_mille: u32) -> bool {
    some(Duration::from_millis(1000)) < Duration::from_millis(per_mille.into())
}

/// A while of up to `most`.
fn some(most: Duration) -> Duration {
    let mut bytes = [0; 4];
    // SAFETY: the buffer has that room.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, 4, "chance is never refused");
    most.mul_f64(f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX))
}
