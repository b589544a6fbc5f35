//! Signals: which ones a holder passes on to its command, and what the caller of this program had
//! set for them, so that the command starts with exactly that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// Signals that mean this process itself: faults of its own, its own limits, and its own writing
/// to a closed pipe.
const OWN: [Signal; 10] = [
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGSEGV,
    Signal::SIGPIPE,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGSYS,
];

/// Whether the caller ignored SIGPIPE.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`: the standard library makes every program ignore SIGPIPE, and afterwards
/// nobody could tell what the caller had set.
#[used]
#[expect(
    unsafe_code,
    reason = "the only way to look before the standard library does"
)]
// SAFETY: the section holds pointers to functions of the C ABI that the loader calls once, before
// `main`. This one needs nothing that is set up later: it makes one system call, and stores a flag.
#[unsafe(link_section = ".init_array")]
static LOOK_BEFORE_MAIN: extern "C" fn() = look_before_main;

extern "C" fn look_before_main() {
    PIPE_IGNORED.store(is_ignored(Signal::SIGPIPE), Ordering::Relaxed);
}

/// Whether `signal` is ignored now.
fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    #[expect(unsafe_code, reason = "nix can only ask by setting")]
    // SAFETY: the null pointer says that nothing is set; the kernel fills `action` when it
    // succeeds, and it is read only then.
    unsafe {
        libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// What the caller had set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    mask: SigSet,
    pipe_ignored: bool,
    child_ignored: bool,
}

impl Inherited {
    /// Sets all of it again. Async-signal-safe, for the child between fork and exec.
    pub(crate) fn restore(&self) -> nix::Result<()> {
        let of = |ignored| {
            if ignored {
                SigHandler::SigIgn
            } else {
                SigHandler::SigDfl
            }
        };
        set_action(Signal::SIGPIPE, of(self.pipe_ignored))?;
        set_action(Signal::SIGCHLD, of(self.child_ignored))?;
        self.mask.thread_set_mask()
    }
}

/// The signals of a process that holds a lock for its command: blocked, and read from a
/// descriptor, so that one thread can wait for them and for everything else at once.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    inherited: Inherited,
}

impl Signals {
    /// Blocks what is to be read. Threads that start afterwards inherit that: call it first.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub(crate) fn block() -> io::Result<Self> {
        let mut set = SigSet::all();
        for signal in OWN {
            set.remove(signal);
        }
        // A caller that ignores SIGCHLD would have the kernel throw the command's status away.
        let child_ignored = is_ignored(Signal::SIGCHLD);
        set_action(Signal::SIGCHLD, SigHandler::SigDfl)?;
        let mask = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let pipe_ignored = PIPE_IGNORED.load(Ordering::Relaxed);
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self {
            fd,
            inherited: Inherited {
                mask,
                pipe_ignored,
                child_ignored,
            },
        })
    }

    /// What the caller had set before.
    pub(crate) fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// The number of the next signal, if one is there.
    pub(crate) fn next(&self) -> io::Result<Option<i32>> {
        match self.fd.read_signal() {
            Ok(info) => Ok(info.map(|info| info.ssi_signo.cast_signed())),
            Err(Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sends signal number `number`, real-time signals included, to all of `group`. That the group is
/// gone already is no error.
pub(crate) fn send(group: Pid, number: i32) {
    #[expect(unsafe_code, reason = "nix knows no real-time signals")]
    // SAFETY: killpg takes two numbers and touches no memory of ours.
    unsafe {
        libc::killpg(group.as_raw(), number);
    }
}

/// Ends this process by signal `number`, as if it had never been blocked. Returns only if that
/// signal does not end a process.
pub(crate) fn die_of(number: i32) {
    let Ok(signal) = Signal::try_from(number) else {
        return;
    };
    let mut only = SigSet::empty();
    only.add(signal);
    let _ = set_action(signal, SigHandler::SigDfl);
    let _ = nix::sys::signal::raise(signal);
    let _ = only.thread_unblock();
}

/// Whether `signal` was sent to this process, is blocked and not read yet.
pub(crate) fn is_pending(signal: Signal) -> bool {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    #[expect(unsafe_code, reason = "nix has no sigpending")]
    // SAFETY: the kernel fills `set` when it succeeds, and it is read only then.
    unsafe {
        libc::sigpending(set.as_mut_ptr()) == 0
            && libc::sigismember(set.as_ptr(), signal as libc::c_int) == 1
    }
}

/// Whether signal `number` would end this process if nobody had blocked it.
pub(crate) fn is_deadly(number: i32) -> bool {
    match Signal::try_from(number) {
        Ok(
            Signal::SIGCHLD
            | Signal::SIGCONT
            | Signal::SIGURG
            | Signal::SIGWINCH
            | Signal::SIGTSTP
            | Signal::SIGTTIN
            | Signal::SIGTTOU,
        ) => false,
        Ok(signal) => !is_ignored(signal),
        // A real-time signal.
        Err(_) => true,
    }
}

/// Does what signal `number` would have done if nobody had blocked it: nothing, or a stop.
pub(crate) fn let_act(number: i32) {
    let Ok(signal) = Signal::try_from(number) else {
        return;
    };
    let only = SigSet::from(signal);
    if nix::sys::signal::raise(signal).is_ok() && only.thread_unblock().is_ok() {
        let _ = only.thread_block();
    }
}

/// Stops this process group, as the terminal's suspend key does, until somebody continues it. The
/// kernel does not stop a group that nobody could continue.
pub(crate) fn stop_own_group() {
    let mut only = SigSet::empty();
    only.add(Signal::SIGTSTP);
    send(Pid::from_raw(0), libc::SIGTSTP);
    // Pending until here; it takes effect now, and no code of ours runs before the continuation.
    if only.thread_unblock().is_ok() {
        let _ = only.thread_block();
    }
}

fn set_action(signal: Signal, handler: SigHandler) -> nix::Result<()> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    #[expect(unsafe_code, reason = "sigaction can install handlers")]
    // SAFETY: only SIG_IGN and SIG_DFL are set here, which run no code of ours.
    unsafe { sigaction(signal, &action) }.map(drop)
}
