//! Starts the command's process, in its control group from the first moment.
//!
//! [`std::process::Command`] cannot do that: a process that moves to another control group after it
//! was started waits for all others of the host (`cgroup_threadgroup_rwsem`, milliseconds), and what
//! it has started before stays behind.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr;

use distlock_agent::runtime::environment;
use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, setpgid};

/// What a process is to become: made before the fork, since nothing can be allocated after it.
pub(crate) struct Program {
    argv: Strings,
    environment: Strings,
}

/// Strings as execve(2) takes them.
struct Strings {
    /// What the pointers point to.
    _owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Strings {
    fn new(strings: impl Iterator<Item = Vec<u8>>) -> io::Result<Self> {
        let owned: Vec<CString> = strings.map(CString::new).collect::<Result<_, _>>()?;
        let pointers = owned.iter().map(|string| string.as_ptr());
        let pointers = pointers.chain([ptr::null()]).collect();
        Ok(Self {
            _owned: owned,
            pointers,
        })
    }
}

impl Program {
    /// `program` is looked up in PATH. `changes` are made to this process's environment: with `None` a
    /// variable is removed.
    ///
    /// # Errors
    /// If a zero byte is in one of the strings.
    pub(crate) fn new(
        program: &OsStr,
        args: &[OsString],
        changes: &[(&str, Option<OsString>)],
    ) -> io::Result<Self> {
        let words = [program].into_iter().chain(args.iter().map(AsRef::as_ref));
        let is_kept = |name: &OsStr| !changes.iter().any(|(changed, _)| name == *changed);
        let kept = environment::for_child().filter(|(name, _)| is_kept(name));
        let set = changes
            .iter()
            .filter_map(|(name, value)| Some((OsString::from(name), value.clone()?)));
        let variable = |(name, value): (OsString, OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        Ok(Self {
            argv: Strings::new(words.map(|word| word.as_bytes().to_vec()))?,
            environment: Strings::new(kept.chain(set).map(variable))?,
        })
    }

    /// Starts it: a child of this process that leads a process group of its own, in the control group
    /// of which `cgroup` is the directory, where the kernel does that. The child calls `setup` before
    /// it becomes the program; it may make system calls only, and not allocate or lock.
    ///
    /// # Errors
    /// If there is no room for a process, `setup` fails, or the program cannot be executed.
    pub(crate) fn start(
        &self,
        cgroup: Option<BorrowedFd<'_>>,
        setup: impl FnOnce() -> nix::Result<()>,
    ) -> io::Result<Pid> {
        // It ends when the child becomes the program, and tells before that why it does not.
        let (failure, tell) = io::pipe()?;
        let forked = match cgroup.map(fork_into) {
            Some(Ok(forked)) => forked,
            #[expect(unsafe_code, reason = "a child that makes system calls only")]
            // SAFETY: see `become_it`.
            Some(Err(_)) | None => unsafe { fork() }?,
        };
        match forked {
            ForkResult::Child => self.become_it(setup, &tell),
            ForkResult::Parent { child } => {
                drop(tell);
                outcome(child, failure)
            }
        }
    }

    fn become_it(&self, setup: impl FnOnce() -> nix::Result<()>, tell: &PipeWriter) -> ! {
        let own = Pid::from_raw(0);
        let why = match setpgid(own, own).and_then(|()| setup()) {
            Ok(()) => {
                let (argv, environment) = (&self.argv.pointers, &self.environment.pointers);
                #[expect(unsafe_code, reason = "nix allocates in between")]
                // SAFETY: both arrays and what they point to live as long as `self`, and end with
                // null; the first has one string at least.
                unsafe {
                    libc::execvpe(argv[0], argv.as_ptr(), environment.as_ptr());
                }
                Errno::last_raw()
            }
            Err(errno) => errno as i32,
        };
        let _ = nix::unistd::write(tell, &why.to_ne_bytes());
        #[expect(
            unsafe_code,
            reason = "what the parent arranged for its end is not the child's"
        )]
        // SAFETY: it ends the process at once.
        unsafe {
            libc::_exit(127)
        }
    }
}

/// Whether the child became the program.
fn outcome(child: Pid, mut failure: PipeReader) -> io::Result<Pid> {
    let mut why = [0; size_of::<i32>()];
    match failure.read_exact(&mut why) {
        Err(_) => Ok(child),
        Ok(()) => {
            while waitpid(child, None) == Err(Errno::EINTR) {}
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(why)))
        }
    }
}

/// How the child `pid` has ended, if it has.
///
/// # Errors
/// If there is no such child.
pub(crate) fn try_wait(pid: Pid) -> nix::Result<Option<ExitStatus>> {
    let mut status = 0;
    #[expect(unsafe_code, reason = "nix knows no real-time signals")]
    // SAFETY: the pointer is to a number that lives until the call is over.
    let waited = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::WNOHANG) };
    let has_ended = Errno::result(waited)? != 0;
    Ok(has_ended.then(|| ExitStatus::from_raw(status)))
}

/// The libc package has it with too few bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// As clone(2) has it, in its version of 88 bytes.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Forks a child into a control group.
fn fork_into(cgroup: BorrowedFd<'_>) -> nix::Result<ForkResult> {
    let mut args = CloneArgs {
        flags: CLONE_INTO_CGROUP,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.as_raw_fd() as u64,
        ..CloneArgs::default()
    };
    #[expect(unsafe_code, reason = "no library forks into a control group")]
    // SAFETY: without a stack and without shared memory this is a fork. The child makes system calls
    // only: nothing that the C library does at a fork is needed for that.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    Ok(match Errno::result(pid)? {
        0 => ForkResult::Child,
        pid => ForkResult::Parent {
            child: Pid::from_raw(i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?),
        },
    })
}
