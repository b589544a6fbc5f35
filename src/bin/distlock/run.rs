//! `distlock run`: holds a lock while a command runs.

use std::env;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use distlock::{Agent, Algorithm, Guard, TimedLockError, TryLockError};
use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::args;
use crate::command::{End, Job, Recipe, Status, Tenure};
use crate::exit::{self, Failure, say};
use crate::group::Group;
use crate::refusal;
use crate::signals::{self, Signals};

/// Runs the command under the lock.
///
/// # Errors
/// Whatever keeps the command from running.
pub(crate) fn run(args: &args::Run) -> Result<ExitCode, Failure> {
    let algorithm = args.algorithm.as_deref().map(str::parse).transpose()?;
    match Group::select(&args.group, "run")? {
        Group::Local => run_locally(args, algorithm),
        Group::Host(_) | Group::Member(_) => Err(Failure::new(
            exit::UNAVAILABLE,
            "only the local group can be used yet; leave --socket and --config away",
        )),
    }
}

/// In the local group the kernel guards the lock, and a signal that ends this process while it
/// waits ends the waiting too: nothing has to be arranged before the lock is held.
fn run_locally(args: &args::Run, algorithm: Option<Algorithm>) -> Result<ExitCode, Failure> {
    let agent = Agent::local()?;
    let guard = enter(args, &agent, algorithm)?;
    let signals = Signals::block().map_err(|error| refusal::system("read signals", error))?;
    let lock = inheritable(&guard)?;
    let job = start(args, &guard, &signals)?;
    let end = job
        .wait(&Endless)
        .map_err(|error| refusal::system("wait", error))?;
    drop(lock);
    // Whatever became of it: the command has run, and the kernel frees what this process holds.
    let _ = guard.unlock();
    Ok(leave(args, end))
}

/// Acquires the lock, in the time that there is.
fn enter(args: &args::Run, agent: &Agent, algorithm: Option<Algorithm>) -> Result<Guard, Failure> {
    let name = args.lock_name()?;
    let mutex = match algorithm {
        Some(algorithm) => agent.mutex_with(name.as_bytes(), algorithm)?,
        None => agent.mutex(name.as_bytes())?,
    };
    agent.set_command(&command_line(args));
    let start = clock::now();
    let guard = match args.patience() {
        None => mutex.lock()?,
        Some(Duration::ZERO) => mutex.try_lock().map_err(|error| match error {
            TryLockError::Failed(error) => error.into(),
            busy => conflict(args, &name, &busy, "wait with -w"),
        })?,
        Some(limit) => mutex.try_lock_for(limit).map_err(|error| match error {
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
fn conflict(
    args: &args::Run,
    name: &distlock::LockName,
    why: &dyn std::fmt::Display,
    otherwise: &str,
) -> Failure {
    Failure::new(
        args.conflict_exit_code,
        format_args!("'{name}' not acquired: {why}; {otherwise}, or see 'distlock status'"),
    )
}

/// The open file that is the lock, for the command to inherit: then the lock is free only when
/// this process and the command are both gone, however they end.
fn inheritable(guard: &Guard) -> Result<Option<OwnedFd>, Failure> {
    let failed = |error| refusal::system("hand the lock to the command", error);
    let lock = guard.inheritable_fd().map_err(failed)?;
    if let Some(lock) = &lock {
        fcntl(lock, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| failed(errno.into()))?;
    }
    Ok(lock)
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
    let job = Job::start(
        &Recipe {
            program,
            args: rest,
            env: &env,
        },
        signals,
    )?;
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

/// The kernel takes no lock away.
struct Endless;

impl Tenure for Endless {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn lost(&self) -> Option<Time> {
        None
    }
}

/// How this program ends, now that the command has.
fn leave(args: &args::Run, end: End) -> ExitCode {
    if end.evicted {
        return ExitCode::from(args.lost_exit_code);
    }
    match end.status {
        Status::Exited(code) => ExitCode::from(code),
        Status::Signaled(number) => {
            if number == libc::SIGINT && end.in_foreground {
                // The interrupt key: a shell ends its loop only if it sees its child die of that.
                signals::die_of(number);
            }
            ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
        }
    }
}
