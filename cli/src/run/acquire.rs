//! Acquires the lock of a command: a mutex, one of several permits, or the lead.

use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use distlock::{
    Agent, Algorithm, DistMutex, Election, Guard, HandleError, Leadership, LockError, LockName,
    LockOptions, Semaphore, TimedLockError, TryLockError,
};
use distlock_agent::protocol::Time;
use distlock_agent::runtime::environment::variable;
use distlock_agent::runtime::{clock, command_line};

use crate::args;
use crate::exit::{CONFIG, DEADLOCK, Failure, quoted, say};
use crate::holder::held_by;

use super::notice::Notice;

/// How long -n waits for the group's answer.
const TRY_TIME: Duration = Duration::from_secs(1);
/// How long after -w's time the host's agent may still answer.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// How long the group has to tell who holds a lock that was not acquired, beyond the time that the
/// caller gives for the lock itself.
const HOLDER_PATIENCE: Duration = Duration::from_millis(100);

/// What this process wants of the lock.
pub(super) enum Aim {
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
    pub(super) fn command(&self) -> &'static str {
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
    Permit(Semaphore),
    /// Of who leads.
    Election(Election),
}

impl Entrance {
    fn open(
        agent: &Agent,
        name: &LockName,
        aim: &Aim,
        options: LockOptions,
    ) -> Result<Self, Failure> {
        match aim {
            Aim::Lock {
                algorithm,
                is_shared,
            } => {
                let options = match algorithm {
                    Some(algorithm) => options.algorithm(*algorithm),
                    None => options,
                };
                Self::lock_for(agent, name, *is_shared, &options)
            }
            Aim::Lead { algorithm } => Self::election(agent, name, algorithm.as_deref(), &options),
        }
    }

    /// The local group elects by its kernel's lock, and by that name.
    fn election(
        agent: &Agent,
        name: &LockName,
        algorithm: Option<&str>,
        options: &LockOptions,
    ) -> Result<Self, Failure> {
        let is_local = agent.lease().is_none();
        let algorithm = match algorithm {
            None => None,
            Some("kernel") if is_local => None,
            Some(word) => Some(word.parse().map_err(|error| {
                let word = quoted(word);
                Failure::usage(format_args!("--algorithm {word}: {error}"), "elect")
            })?),
        };
        let election = agent.election_with(name, algorithm, options);
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
        is_shared: bool,
        options: &LockOptions,
    ) -> Result<Self, Failure> {
        match agent.mutex_with(name, options) {
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
                let permit = agent.semaphore_with(name, Some(actual), options)?;
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
pub(super) fn answer_time(args: &args::Work) -> Option<Duration> {
    let limit = args.patience()?;
    Some(if limit.is_zero() {
        TRY_TIME
    } else {
        limit.saturating_add(ANSWER_TIME)
    })
}

/// Acquires the lock, in the time that there is since `start`.
pub(super) fn enter(
    args: &args::Work,
    agent: &Agent,
    aim: &Aim,
    start: Time,
) -> Result<Guard, Failure> {
    let name = args.lock_name(aim.command())?;
    let options = LockOptions::new()
        .command(command_line(args.words()))
        .inheritable(true);
    let entrance = Entrance::open(agent, &name, aim, options)?;
    let asked = clock::now();
    let notice = Notice::begin(agent, &name, args.patience());
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
    drop(notice);
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
