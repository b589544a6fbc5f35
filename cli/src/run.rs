//! `distlock run`: holds a lock while a command runs; and `distlock elect`: leads while it does.

mod acquire;
mod leftover;
mod notice;

use std::cell::Cell;
use std::io::{self, PipeReader};
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::ExitCode;

use distlock::{Agent, Guard, LeaseWatch, PreviousOwner, UnlockError};
use distlock_agent::runtime::clock;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::args;
use crate::cgroup::Cgroup;
use crate::command::{CommandSpec, End, Job, Status, is_alive};
use crate::exit::{Failure, UNAVAILABLE, quoted, say};
use crate::group;
use crate::guardian::Guardian;
use crate::lease_monitor::{LeaseMonitor, Why};
use crate::refusal;
use crate::signals::{self, Signals};
use crate::waiting::{Broken, attend};
use crate::way;
use acquire::{Aim, answer_time, enter};
use leftover::Leftover;

/// Runs the command under the lock.
///
/// # Errors
/// Whatever keeps the command from running.
pub(crate) fn run(args: &args::Run) -> Result<ExitCode, Failure> {
    let aim = Aim::Lock {
        algorithm: args.algorithm.as_deref().map(str::parse).transpose()?,
        is_shared: args.shared,
    };
    work(&args.work, &aim)
}

/// Runs the command while this process leads.
///
/// # Errors
/// Whatever keeps the command from running.
pub(crate) fn elect(args: &args::Elect) -> Result<ExitCode, Failure> {
    let aim = Aim::Lead {
        algorithm: args.algorithm.clone(),
    };
    work(&args.work, &aim)
}

fn work(args: &args::Work, aim: &Aim) -> Result<ExitCode, Failure> {
    let start = clock::now();
    let group = group::select(&args.group, aim.command())?;
    if args.verbose {
        say(format_args!("using {group}"));
    }
    let open = || way::open_within(&group, answer_time(args));
    let block = || Signals::block().map_err(|error| refusal::system("read signals", error));
    if group.has_own_agent() || std::process::id() == 1 {
        // A member must leave before it dies, and the first process of a container is not ended
        // by a signal that it does not handle.
        let signals = block()?;
        let agent = open()?;
        // However this ends, and whoever else has a clone of it.
        let _leaves = Leaves(&agent);
        let guard = match attend(&agent, &signals, || enter(args, &agent, aim, start)) {
            Ok(guard) => guard,
            Err(Broken::Failure(failure)) => return Err(failure),
            Err(Broken::Signal(number)) => {
                signals::die_of(number);
                return Ok(signaled(number));
            }
        };
        let outlives = group.has_own_agent();
        hold(args, &agent, guard, &signals, outlives)
    } else {
        // A signal that ends this process ends the waiting too: the kernel or the agent of this
        // host sees its end. So nothing has to be arranged before the lock is held.
        let agent = open()?;
        let guard = enter(args, &agent, aim, start)?;
        hold(args, &agent, guard, &block()?, false)
    }
}

/// Has an agent say good-bye: a member that just goes is missed by all the others.
struct Leaves<'a>(&'a Agent);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
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

/// The guard of a command. If the command is not started, the lock is given back as not used: what a former
/// holder left half done is still to be told.
struct CommandGuard {
    guard: Option<Guard>,
    is_started: Cell<bool>,
}

impl CommandGuard {
    const HELD: &str = "only dropping takes it";

    fn new(guard: Guard) -> Self {
        Self {
            guard: Some(guard),
            is_started: Cell::new(false),
        }
    }

    fn into_inner(mut self) -> Guard {
        self.guard.take().expect(Self::HELD)
    }
}

impl Deref for CommandGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        self.guard.as_ref().expect(Self::HELD)
    }
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take_if(|_| !self.is_started.get()) {
            guard.withdraw();
        }
    }
}

/// Runs the command, and unlocks when it has ended.
fn hold(
    args: &args::Work,
    agent: &Agent,
    guard: Guard,
    signals: &Signals,
    outlives: bool,
) -> Result<ExitCode, Failure> {
    let guard = CommandGuard::new(guard);
    let Inheritance { fds, lifeline } = Inheritance::new(&guard, outlives)?;
    let watch = guard
        .take_watch()
        .map_err(|error| refusal::system("watch the lease", error))?;
    let lease = LeaseMonitor::new(agent, &guard, lifeline)?;
    if !lease.may_begin() {
        return Err(not_started(lease.why()));
    }
    let guardian = guardian(&guard, watch.as_ref(), &lease)?;
    let guardian = guardian.as_ref();
    let leftover = watch.as_ref().zip(guardian);
    let leftover = leftover.map(|(watch, guardian)| Leftover::new(watch, guardian, lease.lease()));
    let mut leftover = leftover.transpose()?;
    let job = start(args, &guard, signals, guardian)?;
    guard.is_started.set(true);
    // From now on the command and what it starts have them, and nobody else: this process may be
    // stopped when they end.
    drop(fds);
    guard.close_inheritable();
    let waits = |error| refusal::system("wait", error);
    let end = job.wait(&lease).map_err(waits)?;
    let why = lease.why();
    drop(lease);
    let lifeline = watch.as_ref().and_then(LeaseWatch::lifeline);
    let guard = guard.into_inner();
    let leave = move || leave(guard, guardian, lifeline, end.status);
    let (unlocked, left) = match &mut leftover {
        Some(leftover) => leftover.during(leave).map_err(waits)?,
        None => leave(),
    };
    let is_lost = end.evicted || matches!(unlocked, Err(UnlockError::Lost));
    // A member says good-bye.
    agent.close();
    if let (Some(Left::Unguarded), Some(leftover), Some(lifeline)) = (left, &mut leftover, lifeline)
    {
        leftover.stay(lifeline, signals).map_err(waits)?;
    }
    if is_lost {
        return Err(ended(args, why.filter(|_| end.evicted)));
    }
    Ok(exit_as(end))
}

/// What a command has left behind, when this process has let the lock go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Its guardian goes on, and ends it with the lease.
    Guarded,
    /// Its guardian did not answer, and was ended.
    Unguarded,
}

/// Lets the lock go as far as this process holds it: what the command has left behind has `lifeline` open,
/// and keeps the lock.
fn leave(
    guard: Guard,
    guardian: Option<&Guardian>,
    lifeline: Option<BorrowedFd<'_>>,
    status: Status,
) -> (Result<(), UnlockError>, Option<Left>) {
    // Otherwise it would keep the lock a moment longer than the command.
    let is_there = guardian.is_some_and(Guardian::settle);
    let is_left = lifeline.is_some_and(is_alive);
    if !is_left {
        // It ends meanwhile.
        guardian.inspect(|guardian| guardian.dismiss());
    }
    let unlocked = match status {
        Status::Exited(_) => guard.unlock(),
        // It may have been in the middle of something: the next holder is to know.
        Status::Signaled(_) => guard.abandon(),
    };
    let left = is_left.then(|| match guardian {
        Some(guardian) if is_there && guardian.leave() => Left::Guarded,
        _ => Left::Unguarded,
    });
    (unlocked, left)
}

/// Whoever ends the command if this process cannot. In the local group no lease ends.
fn guardian(
    guard: &Guard,
    watch: Option<&LeaseWatch>,
    lease: &LeaseMonitor<'_>,
) -> Result<Option<Guardian>, Failure> {
    let Some(watch) = watch else {
        return Ok(None);
    };
    let Some(lifeline) = watch.lifeline().or(lease.lifeline()) else {
        return Ok(None);
    };
    let started = || {
        // Of the lifeline that the agent looks at: the other one this process itself waits for.
        let keeps = watch.lifeline().map(|_| guard.inheritable_fd());
        let keeps = keeps.transpose()?.flatten();
        Guardian::start(watch, lifeline, keeps, Cgroup::new(), lease.lease())
    };
    started()
        .map(Some)
        .map_err(|error| refusal::system("start the command's guardian", error))
}

/// The lock was not held for long enough to start the command.
fn not_started(why: Option<Why>) -> Failure {
    let message = match why {
        Some(Why::Lost) | None => {
            "the lock was lost before the command was started; see what became of the agent"
        }
        Some(Why::NotRenewed) => {
            "the command was not started, because the lease is over or nearly so and is not \
             renewed; see whether this host reaches a majority of the members, or the store"
        }
    };
    Failure::new(UNAVAILABLE, message)
}

/// The lock was not held until the command's end. `why`: the command was ended for that.
fn ended(args: &args::Work, why: Option<Why>) -> Failure {
    let what = match why {
        None => "was lost while the command ran, and the command has ended",
        Some(Why::Lost) => "was lost while the command ran, and the command was ended",
        Some(Why::NotRenewed) => {
            "was about to be lost, since its lease was not renewed, and the command was ended"
        }
    };
    let look = match why {
        None | Some(Why::Lost) => "what became of the agent",
        Some(Why::NotRenewed) => {
            "whether this host reaches a majority of the members, or the store"
        }
    };
    Failure::new(
        args.lost_exit_code,
        format_args!(
            "the lock {} {what}; see what the command left half done, and {look}",
            quoted(&args.name)
        ),
    )
}

/// Starts the command.
fn start<'a>(
    args: &args::Work,
    guard: &Guard,
    signals: &'a Signals,
    guardian: Option<&'a Guardian>,
) -> Result<Job<'a>, Failure> {
    let env = [
        ("DISTLOCK_NAME", Some(args.name.clone())),
        (
            "DISTLOCK_FENCE",
            guard.fence().map(|fence| fence.to_string().into()),
        ),
        (
            "DISTLOCK_PREVIOUS_OWNER",
            Some(match guard.previous_owner() {
                PreviousOwner::Clean => "clean".into(),
                _ => "abandoned".into(),
            }),
        ),
    ];
    let words = args.words();
    let (program, rest) = words.split_first().expect("clap asks for a command");
    let failed = |error| refusal::system("hand the lock to the command", error);
    let announcer = guard.announcer().map_err(failed)?;
    let spec = CommandSpec {
        program,
        args: rest,
        env: &env,
    };
    let job = Job::start(&spec, signals, announcer, guardian)?;
    // Of a host's agent for the case that it did not take the command's own word.
    guard.set_command_pid(job.pid());
    Ok(job)
}

/// How this program ends, now that the command has.
fn exit_as(end: End) -> ExitCode {
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
