//! `distlock run`: holds a lock while a command runs; and `distlock elect`: leads while it does.

use std::cell::OnceCell;
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock::discovery::GroupChoice;
use distlock::{
    Agent, Algorithm, DistMutex, Election, Guard, HandleError, Leadership, LeaseWatch, LockError,
    LockName, Semaphore, TimedLockError, TryLockError, UnlockError,
};
use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use distlock_agent::runtime::environment::variable;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::args;
use crate::cgroup::Cgroup;
use crate::command::{CommandSpec, End, Job, Leave, Status, Tenure, is_alive};
use crate::exit::{CONFIG, DEADLOCK, Failure, UNAVAILABLE, quoted, say};
use crate::group;
use crate::guardian::Guardian;
use crate::holder::held_by;
use crate::refusal;
use crate::signals::{self, Signals};
use crate::waiting::{Broken, attend};
use crate::way;

/// How long -n waits for the group's answer.
const TRY_TIME: Duration = Duration::from_secs(1);
/// How long after -w's time the host's agent may still answer.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// How often a lease is looked at that is to be renewed before the command may start.
const RENEWAL_POLL_MS: u8 = 5;

/// How long the group has to tell who holds a lock that was not acquired, beyond the time that the
/// caller gives for the lock itself.
const HOLDER_PATIENCE: Duration = Duration::from_millis(100);

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
    if matches!(group, GroupChoice::Member(_)) || std::process::id() == 1 {
        // A member must leave before it dies, and the first process of a container is not ended
        // by a signal that it does not handle.
        let signals = block()?;
        let agent = open()?;
        let guard = match attend(&agent, &signals, || enter(args, &agent, aim, start)) {
            Ok(guard) => guard,
            Err(Broken::Failure(failure)) => return Err(failure),
            Err(Broken::Signal(number)) => {
                signals::die_of(number);
                return Ok(signaled(number));
            }
        };
        let outlives = matches!(group, GroupChoice::Member(_));
        hold(args, &agent, guard, &signals, outlives)
    } else {
        // A signal that ends this process ends the waiting too: the kernel or the agent of this
        // host sees its end. So nothing has to be arranged before the lock is held.
        let agent = open()?;
        let guard = enter(args, &agent, aim, start)?;
        hold(args, &agent, guard, &block()?, false)
    }
}

/// What this process wants of the lock.
enum Aim {
    /// To hold it.
    Lock {
        /// The algorithm that must serve the lock, if one is named.
        algorithm: Option<Algorithm>,
        is_shared: bool,
    },
    /// To lead; to be elected by this algorithm, if it is named.
    Lead { algorithm: Option<String> },
}

impl Aim {
    /// The command by which it is reached.
    fn command(&self) -> &'static str {
        match self {
            Self::Lock { .. } => "run",
            Self::Lead { .. } => "elect",
        }
    }
}

/// What there is to acquire.
enum Entrance {
    Mutex(Arc<dyn DistMutex>),
    /// One of several permits, where the configuration says that there are several.
    Permit(Arc<Semaphore>),
    /// Of who leads.
    Election(Election),
}

impl Entrance {
    fn open(agent: &Agent, name: &LockName, aim: &Aim) -> Result<Self, Failure> {
        match aim {
            Aim::Lock {
                algorithm,
                is_shared,
            } => Self::lock_for(agent, name, *algorithm, *is_shared),
            Aim::Lead { algorithm } => Self::election(agent, name, algorithm.as_deref()),
        }
    }

    /// The local group elects by its kernel's lock, and by that name.
    fn election(agent: &Agent, name: &LockName, algorithm: Option<&str>) -> Result<Self, Failure> {
        let is_local = agent.lease().is_none();
        let election = match algorithm {
            None => agent.election(name.as_bytes()),
            Some("kernel") if is_local => agent.election(name.as_bytes()),
            Some(word) => {
                let algorithm = word.parse().map_err(|error| {
                    let word = quoted(word);
                    Failure::usage(format_args!("--algorithm {word}: {error}"), "elect")
                })?;
                agent.election_with(name.as_bytes(), algorithm)
            }
        };
        election.map(Self::Election).map_err(|error| match error {
            HandleError::WrongPermits { actual, .. } => Failure::new(
                CONFIG,
                format_args!(
                    "'{name}' has {actual} permits, and only the holder of a lock with one leads; \
                     choose another name"
                ),
            ),
            error => error.into(),
        })
    }

    fn lock_for(
        agent: &Agent,
        name: &LockName,
        algorithm: Option<Algorithm>,
        is_shared: bool,
    ) -> Result<Self, Failure> {
        let mutex = match algorithm {
            Some(algorithm) => agent.mutex_with(name.as_bytes(), algorithm),
            None => agent.mutex(name.as_bytes()),
        };
        match mutex {
            Ok(mutex) if is_shared => Ok(Self::Mutex(mutex.shared())),
            Ok(mutex) => Ok(Self::Mutex(Arc::new(mutex))),
            Err(HandleError::WrongPermits { actual, .. }) if is_shared => Err(Failure::new(
                CONFIG,
                format_args!(
                    "'{name}' has {actual} permits, and only a lock with one can be shared; \
                     leave out -s"
                ),
            )),
            Err(HandleError::WrongPermits { actual, .. }) => {
                let permit = agent.semaphore(name.as_bytes(), Some(actual))?;
                Ok(Self::Permit(permit))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self) -> Result<Guard, LockError> {
        match self {
            Self::Mutex(mutex) => mutex.lock(),
            Self::Permit(semaphore) => semaphore.acquire(),
            Self::Election(election) => election.campaign().map(Leadership::into_guard),
        }
    }

    fn try_lock(&self) -> Result<Guard, TryLockError> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock(),
            Self::Permit(semaphore) => semaphore.try_acquire(),
            Self::Election(election) => election.try_campaign().map(Leadership::into_guard),
        }
    }

    fn try_lock_for(&self, limit: Duration) -> Result<Guard, TimedLockError> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock_for(limit),
            Self::Permit(semaphore) => semaphore.try_acquire_for(limit),
            Self::Election(election) => {
                election.try_campaign_for(limit).map(Leadership::into_guard)
            }
        }
    }
}

/// How long all that comes before the command may take, where that is limited: with -n until the group
/// has said whether the lock is free, and with -w a little longer than that.
fn answer_time(args: &args::Work) -> Option<Duration> {
    let limit = args.patience()?;
    Some(if limit.is_zero() {
        TRY_TIME
    } else {
        limit.saturating_add(ANSWER_TIME)
    })
}

/// Acquires the lock, in the time that there is since `start`.
fn enter(args: &args::Work, agent: &Agent, aim: &Aim, start: Time) -> Result<Guard, Failure> {
    let name = args.lock_name(aim.command())?;
    let entrance = Entrance::open(agent, &name, aim)?;
    agent.set_command(&command_line(args));
    agent.set_inheritable(true);
    let asked = clock::now();
    let guard = match args.patience() {
        None => match enter_nested(agent, &entrance, &name)? {
            Some(guard) => guard,
            None => entrance.lock()?,
        },
        Some(Duration::ZERO) => entrance.try_lock().map_err(|error| match error {
            TryLockError::Failed(error) => error.into(),
            busy => conflict(args, agent, &name, &busy, "wait with -w"),
        })?,
        Some(limit) => {
            let left = limit.saturating_sub(asked.since(start));
            entrance.try_lock_for(left).map_err(|error| match error {
                TimedLockError::Failed(error) => error.into(),
                late => conflict(args, agent, &name, &late, "wait longer with -w"),
            })?
        }
    };
    if args.verbose {
        let seconds = clock::now().since(asked).as_secs_f64();
        let fence = guard
            .fence()
            .map_or_else(|| "no fence".to_owned(), |f| format!("fence {f}"));
        say(format_args!(
            "acquired '{name}' after {seconds:.6} s, {fence}"
        ));
    }
    Ok(guard)
}

/// Where this process belongs to a command that runs under a lock of this name: enters, if that can
/// be done at once.
///
/// # Errors
/// If the lock is held for that very command: it would wait for its own end. Its environment alone
/// proves nothing, since it is inherited by what outlives the lock, and names no group.
fn enter_nested(
    agent: &Agent,
    entrance: &Entrance,
    name: &LockName,
) -> Result<Option<Guard>, Failure> {
    let own_name = variable("DISTLOCK_NAME");
    let fence = variable("DISTLOCK_FENCE").and_then(|fence| fence.to_str()?.parse::<u64>().ok());
    let is_own = own_name.is_some_and(|own| own.as_bytes() == name.as_bytes());
    let (true, Some(fence)) = (is_own && !matches!(entrance, Entrance::Permit(_)), fence) else {
        return Ok(None);
    };
    match entrance.try_lock() {
        Ok(guard) => return Ok(Some(guard)),
        Err(TryLockError::Failed(error)) => return Err(error.into()),
        Err(_) => {}
    }
    // Who cannot tell is waited for, as ever.
    let locks = agent
        .status()
        .map(|status| status.locks)
        .unwrap_or_default();
    let shown = name.to_string();
    let holders = locks.iter().find(|lock| lock.name == shown);
    let holders = holders.map_or(&[][..], |lock| &lock.holders);
    match holders {
        [holder] if holder.fence == Some(fence) => Err(Failure::new(
            DEADLOCK,
            format_args!(
                "this command already runs under '{name}', with fence {fence}, and would wait for \
                 its own end; leave out the inner 'distlock', or use another name"
            ),
        )),
        _ => Ok(None),
    }
}

/// Not acquired in time: who holds it, if that is soon known.
fn conflict(
    args: &args::Work,
    agent: &Agent,
    name: &LockName,
    why: &dyn Display,
    otherwise: &str,
) -> Failure {
    let holder = held_by(agent, name, HOLDER_PATIENCE);
    let why = holder.map_or_else(|| why.to_string(), |holder| format!("held by {holder}"));
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
    args: &args::Work,
    agent: &Agent,
    guard: Guard,
    signals: &Signals,
    outlives: bool,
) -> Result<ExitCode, Failure> {
    let Inheritance { fds, lifeline } = Inheritance::new(&guard, outlives)?;
    let watch = guard
        .take_watch()
        .map_err(|error| refusal::system("watch the lease", error))?;
    let tenure = LeaseMonitor::new(agent, &guard, lifeline)?;
    if !tenure.may_begin() {
        return Err(not_started(tenure.why()));
    }
    let guardian = guardian(&guard, watch.as_ref(), &tenure)?;
    let job = start(args, &guard, signals, guardian.as_ref())?;
    // From now on the command and what it starts have them, and nobody else: this process may be
    // stopped when they end.
    drop(fds);
    guard.close_inheritable();
    let end = job
        .wait(&tenure)
        .map_err(|error| refusal::system("wait", error))?;
    let why = tenure.why();
    drop(tenure);
    // Otherwise it would keep the lock a moment longer than the command.
    guardian.iter().for_each(Guardian::settle);
    let left = watch.as_ref().and_then(LeaseWatch::lifeline);
    let is_left = left.is_some_and(is_alive);
    if !is_left {
        // It ends meanwhile.
        guardian.iter().for_each(Guardian::dismiss);
    }
    let unlocked = match end.status {
        Status::Exited(_) => guard.unlock(),
        // It may have been in the middle of something: the next holder is to know.
        Status::Signaled(_) => guard.abandon(),
    };
    let guardian = match guardian {
        Some(guardian) if is_left => {
            guardian.leave();
            None
        }
        guardian => guardian,
    };
    let is_lost = end.evicted || matches!(unlocked, Err(UnlockError::Lost));
    // A member says good-bye. Afterwards nothing is left to do but to end.
    agent.close();
    drop(guardian);
    if is_lost {
        return Err(ended(args, why.filter(|_| end.evicted)));
    }
    Ok(exit_as(end))
}

/// Whoever ends the command if this process cannot. In the local group no lease ends.
fn guardian(
    guard: &Guard,
    watch: Option<&LeaseWatch>,
    tenure: &LeaseMonitor<'_>,
) -> Result<Option<Guardian>, Failure> {
    let Some(watch) = watch else {
        return Ok(None);
    };
    let Some(lifeline) = watch.lifeline().or(tenure.lifeline()) else {
        return Ok(None);
    };
    let started = || {
        // Of the lifeline that the agent looks at: the other one this process itself waits for.
        let keeps = watch.lifeline().map(|_| guard.inheritable_fd());
        let keeps = keeps.transpose()?.flatten();
        Guardian::start(watch, lifeline, keeps, Cgroup::new(), tenure.lease)
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
             renewed; see whether this host reaches a majority of the members"
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
        Some(Why::NotRenewed) => "whether this host reaches a majority of the members",
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
    ];
    let words = words(args);
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

/// The command and its arguments. A string is run as flock(1) runs it: by the user's shell.
fn words(args: &args::Work) -> Vec<OsString> {
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

/// The command, for `status`.
fn command_line(args: &args::Work) -> String {
    distlock_agent::runtime::command_line(words(args))
}

/// How long the lock is good: until its group says otherwise, or its lease is nearly over. In the
/// local group neither happens.
struct LeaseMonitor<'a> {
    guard: &'a Guard,
    /// Ends when the lock is lost.
    bell: PipeReader,
    lost: Arc<OnceLock<Time>>,
    /// Why the command may not go on, as it was seen first.
    why: OnceCell<Why>,
    lease: Duration,
    lifeline: Option<PipeReader>,
}

/// Why a command may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The lock is lost.
    Lost,
    /// The lease is nearly over.
    NotRenewed,
}

impl<'a> LeaseMonitor<'a> {
    fn new(agent: &Agent, guard: &'a Guard, lifeline: Option<PipeReader>) -> Result<Self, Failure> {
        let (bell, rope) = io::pipe().map_err(|error| refusal::system("open a pipe", error))?;
        let lost = Arc::new(OnceLock::new());
        let rope = Rope {
            lost: Arc::clone(&lost),
            _end: rope,
        };
        guard.on_loss(move |_| drop(rope));
        Ok(Self {
            guard,
            bell,
            lost,
            why: OnceCell::new(),
            lease: agent.lease().unwrap_or_default(),
            lifeline,
        })
    }

    fn look(&self) -> Leave {
        // The clock is read first, so that the end is not taken to be later than it is.
        let now = clock::now();
        let end = self.guard.grace().map(|grace| now + grace);
        leave(now, self.lost.get().copied(), end, self.lease)
    }

    fn note_why(&self) {
        let is_lost = self.lost.get().is_some();
        let why = if is_lost { Why::Lost } else { Why::NotRenewed };
        self.why.get_or_init(|| why);
    }

    /// Why the command was not started, or ended.
    fn why(&self) -> Option<Why> {
        self.why.get().copied()
    }

    /// Whether the command may be started. A lease that is nearly over is about to be renewed, or
    /// else to run out: which of them, is known soon.
    fn may_begin(&self) -> bool {
        let limit = clock::now() + self.lease;
        loop {
            let Leave::Ended { .. } = self.look() else {
                return true;
            };
            if self.lost.get().is_some() || clock::now() >= limit {
                self.note_why();
                return false;
            }
            let mut bell = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
            // Interrupted or not, it is looked again.
            let _ = poll(&mut bell, PollTimeout::from(RENEWAL_POLL_MS));
        }
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

impl Tenure for LeaseMonitor<'_> {
    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn leave(&self) -> Leave {
        let leave = self.look();
        if matches!(leave, Leave::Ended { .. }) {
            self.note_why();
        }
        leave
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_ref().map(AsFd::as_fd)
    }
}

/// Whether a command may go on at `now` under a lock that was lost at `lost`, if it was, and that
/// nobody else is given before `end`, if there is a lease. It is told to end when the lock is lost,
/// or a quarter of the lease before its end; and killed a tenth before, or half a lease after the
/// loss: what is left is for what takes long to be noticed, and for clocks that do not run alike.
fn leave(now: Time, lost: Option<Time>, end: Option<Time>, lease: Duration) -> Leave {
    let kill = end.map(|end| end - lease / 10);
    if let Some(lost) = lost {
        let kill = kill.into_iter().chain([lost + lease / 2]).min();
        return Leave::Ended {
            kill: kill.unwrap_or(lost),
        };
    }
    let ask = end.map(|end| end - lease / 4);
    match (ask, kill) {
        (Some(ask), Some(kill)) if ask <= now => Leave::Ended { kill },
        _ => Leave::Granted { until: ask },
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(20);

    fn at(secs: u64) -> Time {
        Time::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn a_command_ends_before_its_lease_does() {
        let look = |now, lost: Option<u64>, end: Option<u64>| {
            leave(at(now), lost.map(at), end.map(at), LEASE)
        };
        let granted = |until: Option<u64>| Leave::Granted {
            until: until.map(at),
        };
        let ended = |kill| Leave::Ended { kill: at(kill) };
        assert_eq!(look(100, None, None), granted(None), "no lease");
        assert_eq!(look(100, None, Some(120)), granted(Some(115)));
        assert_eq!(look(114, None, Some(120)), granted(Some(115)));
        assert_eq!(look(115, None, Some(120)), ended(118));
        assert_eq!(look(500, None, Some(120)), ended(118), "it stood still");
        assert_eq!(look(101, Some(101), Some(120)), ended(111), "half a lease");
        assert_eq!(look(110, Some(110), Some(120)), ended(118), "no later");
        assert_eq!(look(101, Some(101), None), ended(111));
        assert_eq!(look(101, Some(101), Some(0)), ended(0), "nothing is left");
    }
}
