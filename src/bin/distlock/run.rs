//! `distlock run`: holds a lock while a command runs.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock::{
    Agent, Algorithm, DistMutex, Guard, HandleError, LockError, LockName, ParseAlgorithmError,
    Semaphore, TimedLockError, TryLockError, UnlockError,
};
use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::args;
use crate::command::{End, Job, Recipe, Status, Tenure};
use crate::exit::{CONFIG, Failure, UNAVAILABLE, quoted, say};
use crate::group::Group;
use crate::refusal;
use crate::signals::{self, Signals};
use crate::waiting::{Broken, attend};
use crate::way;

/// Runs the command under the lock.
///
/// # Errors
/// Whatever keeps the command from running.
pub(crate) fn run(args: &args::Run) -> Result<ExitCode, Failure> {
    let algorithm = Wanted::parse(args.algorithm.as_deref())?;
    let group = Group::select(&args.group, "run")?;
    let block = || Signals::block().map_err(|error| refusal::system("read signals", error));
    if matches!(group, Group::Member(_)) || std::process::id() == 1 {
        // A member must leave before it dies, and the first process of a container is not ended
        // by a signal that it does not handle.
        let signals = block()?;
        let agent = way::open(&group)?;
        let guard = match attend(&agent, &signals, || enter(args, &agent, &algorithm)) {
            Ok(guard) => guard,
            Err(Broken::Failure(failure)) => return Err(failure),
            Err(Broken::Signal(number)) => {
                signals::die_of(number);
                return Ok(signaled(number));
            }
        };
        let outlives = matches!(group, Group::Member(_));
        hold(args, &agent, guard, &signals, outlives)
    } else {
        // A signal that ends this process ends the waiting too: the kernel or the agent of this
        // host sees its end. So nothing has to be arranged before the lock is held.
        let agent = way::open(&group)?;
        let guard = enter(args, &agent, &algorithm)?;
        hold(args, &agent, guard, &block()?, false)
    }
}

/// The algorithm that must serve the lock.
enum Wanted {
    Any,
    This(Algorithm),
    /// One that this version does not have. It is refused when it is known which one it should be.
    Missing(ParseAlgorithmError),
}

impl Wanted {
    fn parse(word: Option<&str>) -> Result<Self, Failure> {
        match word.map(str::parse).transpose() {
            Ok(None) => Ok(Self::Any),
            Ok(Some(algorithm)) => Ok(Self::This(algorithm)),
            Err(error @ ParseAlgorithmError::NotAvailable { .. }) => Ok(Self::Missing(error)),
            Err(error) => Err(error.into()),
        }
    }
}

/// What there is to acquire.
enum Entrance {
    Mutex(Arc<dyn DistMutex>),
    /// One of several permits, where the configuration says that there are several.
    Permit(Arc<Semaphore>),
}

impl Entrance {
    fn open(
        args: &args::Run,
        agent: &Agent,
        name: &LockName,
        wanted: &Wanted,
    ) -> Result<Self, Failure> {
        let mutex = match wanted {
            Wanted::This(algorithm) => agent.mutex_with(name.as_bytes(), *algorithm),
            Wanted::Any | Wanted::Missing(_) => agent.mutex(name.as_bytes()),
        };
        let entrance = match mutex {
            Ok(mutex) if args.shared => Self::Mutex(mutex.shared()),
            Ok(mutex) => Self::Mutex(mutex),
            Err(HandleError::WrongPermits { actual, .. }) if args.shared => {
                return Err(Failure::new(
                    CONFIG,
                    format_args!(
                        "'{name}' has {actual} permits, and only a lock with one can be shared; \
                         leave out -s"
                    ),
                ));
            }
            Err(HandleError::WrongPermits { actual, .. }) => {
                Self::Permit(agent.semaphore(name.as_bytes(), Some(actual))?)
            }
            Err(error) => return Err(error.into()),
        };
        match wanted {
            Wanted::Missing(error) => Err(Failure::new(
                CONFIG,
                format_args!(
                    "{error}; this group serves '{name}' by {}",
                    entrance.algorithm()
                ),
            )),
            Wanted::Any | Wanted::This(_) => Ok(entrance),
        }
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Mutex(mutex) => mutex.algorithm(),
            Self::Permit(_) => Algorithm::Semaphore,
        }
    }

    fn lock(&self) -> Result<Guard, LockError> {
        match self {
            Self::Mutex(mutex) => mutex.lock(),
            Self::Permit(semaphore) => semaphore.acquire(),
        }
    }

    fn try_lock(&self) -> Result<Guard, TryLockError> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock(),
            Self::Permit(semaphore) => semaphore.try_acquire(),
        }
    }

    fn try_lock_for(&self, limit: Duration) -> Result<Guard, TimedLockError> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock_for(limit),
            Self::Permit(semaphore) => semaphore.try_acquire_for(limit),
        }
    }
}

/// Acquires the lock, in the time that there is.
fn enter(args: &args::Run, agent: &Agent, wanted: &Wanted) -> Result<Guard, Failure> {
    let name = args.lock_name()?;
    let entrance = Entrance::open(args, agent, &name, wanted)?;
    agent.set_command(&command_line(args));
    agent.set_inheritable(true);
    let start = clock::now();
    let guard = match args.patience() {
        None => entrance.lock()?,
        Some(Duration::ZERO) => entrance.try_lock().map_err(|error| match error {
            TryLockError::Failed(error) => error.into(),
            busy => conflict(args, &name, &busy, "wait with -w"),
        })?,
        Some(limit) => entrance.try_lock_for(limit).map_err(|error| match error {
            TimedLockError::Failed(error) => error.into(),
            late => conflict(args, &name, &late, "wait longer with -w"),
        })?,
    };
    if args.verbose {
        let seconds = clock::now().since(start).as_secs_f64();
        let fence = guard
            .fence()
            .map_or_else(|| "no fence".to_owned(), |f| format!("fence {f}"));
        say(format_args!(
            "acquired '{name}' after {seconds:.6} s, {fence}"
        ));
    }
    Ok(guard)
}

/// Not acquired in time.
fn conflict(args: &args::Run, name: &LockName, why: &dyn Display, otherwise: &str) -> Failure {
    Failure::new(
        args.conflict_exit_code,
        format_args!("'{name}' not acquired: {why}; {otherwise}, or see 'distlock status'"),
    )
}

/// What the command and its descendants inherit, so that the lock is free only when they and this
/// process are gone, however they end. Where this process is the agent too, it stays as long as
/// they do: `lifeline` is the other end of a pipe that they have open.
struct Inheritance {
    fds: Vec<OwnedFd>,
    lifeline: Option<PipeReader>,
}

impl Inheritance {
    fn new(guard: &Guard, outlives: bool) -> Result<Self, Failure> {
        let failed = |error| refusal::system("hand the lock to the command", error);
        let mut fds = Vec::new();
        fds.extend(guard.inheritable_fd().map_err(failed)?);
        let pipe = outlives.then(io::pipe).transpose().map_err(failed)?;
        let (lifeline, writer) = pipe.unzip();
        fds.extend(writer.map(OwnedFd::from));
        for fd in &fds {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| failed(errno.into()))?;
        }
        Ok(Self { fds, lifeline })
    }
}

/// Runs the command, and unlocks when it has ended.
fn hold(
    args: &args::Run,
    agent: &Agent,
    guard: Guard,
    signals: &Signals,
    outlives: bool,
) -> Result<ExitCode, Failure> {
    let Inheritance { fds, lifeline } = Inheritance::new(&guard, outlives)?;
    let tenure = Tenancy::new(agent, &guard, lifeline)?;
    if !guard.is_held() {
        let what = "the lock was lost before the command was started; see what became of the agent";
        return Err(Failure::new(UNAVAILABLE, what));
    }
    let job = start(args, &guard, signals)?;
    // The guard has one of its own, where one is needed.
    drop(fds);
    let end = job
        .wait(&tenure)
        .map_err(|error| refusal::system("wait", error))?;
    let unlocked = match end.status {
        Status::Exited(_) => guard.unlock(),
        // It may have been in the middle of something: the next holder is to know.
        Status::Signaled(_) => guard.abandon(),
    };
    let is_lost = end.evicted || matches!(unlocked, Err(UnlockError::Lost));
    // A member says good-bye. Afterwards nothing is left to do but to end.
    agent.close();
    if is_lost {
        return Err(Failure::new(
            args.lost_exit_code,
            format_args!(
                "the lock {} was lost while the command ran, and {}; see what the command left \
                 half done, and what became of the agent",
                quoted(&args.name),
                if end.evicted {
                    "the command was ended"
                } else {
                    "the command has ended"
                },
            ),
        ));
    }
    Ok(leave(end))
}

/// Starts the command.
fn start<'a>(args: &args::Run, guard: &Guard, signals: &'a Signals) -> Result<Job<'a>, Failure> {
    let env = [
        ("DISTLOCK_NAME", Some(args.name.clone())),
        (
            "DISTLOCK_FENCE",
            guard.fence().map(|fence| fence.to_string().into()),
        ),
    ];
    let words = words(args);
    let (program, rest) = words.split_first().expect("clap asks for a command");
    let announcer = guard
        .announcer()
        .map_err(|error| refusal::system("hand the lock to the command", error))?;
    let recipe = Recipe {
        program,
        args: rest,
        env: &env,
    };
    let job = Job::start(&recipe, signals, announcer)?;
    // Of a host's agent for the case that it did not take the command's own word.
    guard.set_command_pid(job.pid());
    Ok(job)
}

/// The command and its arguments. A string is run as flock(1) runs it: by the user's shell.
fn words(args: &args::Run) -> Vec<OsString> {
    match &args.script {
        None => args.program().to_vec(),
        Some(script) => {
            let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty());
            vec![
                shell.unwrap_or_else(|| "/bin/sh".into()),
                "-c".into(),
                script.clone(),
            ]
        }
    }
}

/// The command as `status` shows it.
fn command_line(args: &args::Run) -> String {
    words(args)
        .join(" ".as_ref())
        .to_string_lossy()
        .into_owned()
}

/// How long the lock is good: until its group says otherwise. In the local group it never does.
struct Tenancy {
    /// Ends when the lock is lost.
    bell: PipeReader,
    lost: Arc<OnceLock<Time>>,
    /// From the loss until the command must be gone. Nobody else is let in before a lease is
    /// over, and half of it is left for what took long to be noticed.
    grace: Duration,
    lifeline: Option<PipeReader>,
}

impl Tenancy {
    fn new(agent: &Agent, guard: &Guard, lifeline: Option<PipeReader>) -> Result<Self, Failure> {
        let (bell, rope) = io::pipe().map_err(|error| refusal::system("open a pipe", error))?;
        let lost = Arc::new(OnceLock::new());
        let rope = Rope {
            lost: Arc::clone(&lost),
            _end: rope,
        };
        guard.on_loss(move |_| drop(rope));
        Ok(Self {
            bell,
            lost,
            grace: agent.lease().unwrap_or_default() / 2,
            lifeline,
        })
    }
}

/// Dropped when the lock is lost, and also if whoever should tell is gone.
struct Rope {
    lost: Arc<OnceLock<Time>>,
    _end: PipeWriter,
}

impl Drop for Rope {
    fn drop(&mut self) {
        // Set before the pipe ends, which wakes who waits.
        let _ = self.lost.set(clock::now());
    }
}

impl Tenure for Tenancy {
    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn lost(&self) -> Option<Time> {
        self.lost.get().map(|&at| at + self.grace)
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_ref().map(AsFd::as_fd)
    }
}

/// How this program ends, now that the command has.
fn leave(end: End) -> ExitCode {
    match end.status {
        Status::Exited(code) => ExitCode::from(code),
        Status::Signaled(number) => {
            if number == libc::SIGINT && end.in_foreground {
                // The interrupt key: a shell ends its loop only if it sees its child die of that.
                signals::die_of(number);
            }
            signaled(number)
        }
    }
}

fn signaled(number: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
