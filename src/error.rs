//! What can go wrong: one small enum an operation.
//!
//! Each message is one line that says what, why and what to do.

use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;

use distlock_agent::protocol::membership::quorum::absences;
use distlock_agent::protocol::{Absence, Missing, NameError, NodeId};
use distlock_agent::runtime::{self, ChangeError, SessionEnd};

use crate::config::ConfigError;
use crate::{Algorithm, ElectionAlgorithm};

/// Why no [`Agent`](crate::Agent) could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The local group's directory is not safe to use.
    #[error(
        "the local group's directory {path} is refused: {fault}; {}", fault.advice(),
        path = path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        fault: DirectoryFault,
    },
    /// The system refuses this process something.
    #[error("{what}: {source}; {hint}")]
    Permission {
        /// What was tried, with the path or address.
        what: String,
        /// What the system says.
        source: io::Error,
        /// What to do.
        hint: String,
    },
    /// Another socket has the member's address.
    #[error(
        "the address {address} is in use: {source}; end that process, or, if it is this host's \
         agent, use it (Agent::open), or be another member, with an address of its own"
    )]
    AddressInUse {
        /// The address, as in the configuration.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Another agent serves the programs of this host at the socket.
    #[error(
        "another agent serves at {socket}{}; use that agent, end it, or serve at another socket",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(), socket = socket.display()
    )]
    SocketInUse {
        /// The socket's path.
        socket: PathBuf,
        /// The process that serves there, where it could be found.
        pid: Option<u32>,
    },
    /// The members' addresses are not those of a group with this member on this host.
    #[error("{reason}")]
    Address {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// The group's keys are refused.
    #[error("{reason}")]
    Keys {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// Others could have put, or could replace, what this process was to use.
    #[error("{reason}")]
    Unsafe {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// A process already runs as this member.
    #[error(
        "member {id} already runs on this host (its state is in {state}); use its socket, or end \
         it first", state = state.display()
    )]
    AlreadyRunning {
        /// The member.
        id: NodeId,
        /// The member's state directory.
        state: PathBuf,
    },
    /// No agent answers at the socket.
    #[error(
        "no agent answers at {socket}: {source}; start `distlock agent`, or name another socket",
        socket = socket.display()
    )]
    Unreachable {
        /// The socket's path.
        socket: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What answers at the socket speaks another version of the agents' protocol.
    #[error(
        "what answers at {socket} is no agent of this build of distlock: after an upgrade restart \
         the agent; or name another socket", socket = socket.display()
    )]
    OtherBuild {
        /// The socket's path.
        socket: PathBuf,
    },
    /// This host is in a configured group, and nobody serves the socket of its agent. The local
    /// group is not used in its place, where it would exclude nobody in the configured one.
    #[error(
        "no agent answers at {socket}: {source}, and this host is in a configured group, as {0} \
         shows; start the agent; or, if the host has left that group, remove {0}; or ask for the \
         local group (--local, Agent::local, DISTLOCK_LOCAL)",
        paths(evidence), socket = socket.display()
    )]
    HostGroup {
        /// Where the agent of this host is looked for.
        socket: PathBuf,
        /// What the system says.
        source: io::Error,
        /// The paths that show that this host is in a configured group.
        evidence: Vec<PathBuf>,
    },
    /// What was asked for, or what the environment says, names no group, or two.
    #[error("{reason}")]
    Options {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// The agent has as many clients as it can have, in all or of this process, or has too few
    /// descriptors for another.
    #[error(
        "the agent at {socket} has too many clients; close some if this process has 1024, end some \
         or try later if there are 4096, or else raise the limit of open files of the agent \
         (ulimit -n)",
        socket = socket.display()
    )]
    TooManyClients {
        /// The socket's path.
        socket: PathBuf,
    },
    /// A file of the group, or of the member's state, is not what it should be.
    #[error("{path} cannot be used: {reason}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A [`Driven`](crate::Driven) agent was to serve the programs of its host.
    #[error(
        "an agent that its application drives serves no other programs; leave its socket out, or \
         let it have a thread (Agent::from_config)"
    )]
    NoService,
    /// This process, or the system, has too many open files.
    #[error("{what}: {source}; close some, or raise the limit (ulimit -n)")]
    TooManyFiles {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
    /// The system failed otherwise.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried, with the path or address.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

impl OpenError {
    /// Sorts `source` into the fitting variant; `hint` says what to do where access is refused.
    pub(crate) fn io(what: impl Into<String>, source: io::Error, hint: &str) -> Self {
        let what = what.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Permission {
                    what,
                    source,
                    hint: hint.to_owned(),
                }
            }
            _ if is_file_limit(&source) => Self::TooManyFiles { what, source },
            _ => Self::Io { what, source },
        }
    }
}

/// As a list for a message.
fn paths(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(" and ")
}

/// For conversions into a configuration that cannot fail.
impl From<std::convert::Infallible> for OpenError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// What is wrong with the local group's directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryFault {
    /// It is a symbolic link, which may lead elsewhere tomorrow.
    #[error("it is a symbolic link")]
    Symlink,
    /// There is something else of that name.
    #[error("it is not a directory")]
    NotADirectory,
    /// Somebody else could replace the locks in it.
    #[error("it belongs to user {owner}, and this process is user {user}")]
    Stranger {
        /// Whose it is.
        owner: u32,
        /// Whose this process is.
        user: u32,
    },
    /// Others may write in it.
    #[error("others may write in it (mode {mode:03o}, at most 755 is allowed)")]
    Writable {
        /// Its mode.
        mode: u32,
    },
    /// Others may replace it, or a directory above it.
    #[error("{why}")]
    Replaceable {
        /// What lets them.
        why: String,
    },
}

impl DirectoryFault {
    /// What to do. What is not this user's to remove or change, this does not say to.
    fn advice(&self) -> &'static str {
        match self {
            Self::Symlink => "remove the link, or set DISTLOCK_DIR to a directory of yours",
            Self::Stranger { .. } => {
                "have its owner or root remove it, or set DISTLOCK_DIR to a directory of yours"
            }
            Self::NotADirectory | Self::Replaceable { .. } => {
                "set DISTLOCK_DIR to a directory of yours"
            }
            Self::Writable { .. } => {
                "set DISTLOCK_DIR to a directory of yours alone, or, if this is one, chmod go-w it"
            }
        }
    }
}

/// Why there is no handle for a mutex or semaphore.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The name is not a lock's name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The lock is served by another algorithm.
    #[error("this lock is served by {actual}, not by {asked}; ask for {actual}, or for none")]
    WrongAlgorithm {
        /// What the caller wants.
        asked: Algorithm,
        /// What the lock has.
        actual: Algorithm,
    },
    /// The local group elects nobody by an algorithm.
    #[error(
        "leaders are not elected by {asked} here: in the local group the kernel decides; leave the \
         algorithm out"
    )]
    NoElections {
        /// What the caller wants.
        asked: ElectionAlgorithm,
    },
    /// The group does not have this algorithm at all.
    #[error(
        "this group has no algorithm {asked}: the local group has kernel only, and a configured \
         group all but kernel"
    )]
    NotInThisGroup {
        /// What the caller wants.
        asked: Algorithm,
    },
    /// The algorithm lets two in with some probability, and the group promises more.
    #[error(
        "{asked} lets two in with some probability, which failure = \"quorum\" rules out; choose \
         another, or another group"
    )]
    OnlyProbable {
        /// What the caller wants.
        asked: Algorithm,
    },
    /// The lock has another number of permits.
    #[error("this lock has {actual} permits, not {asked}; ask for as many as it has")]
    WrongPermits {
        /// What the caller wants.
        asked: NonZeroU32,
        /// What the lock has.
        actual: NonZeroU32,
    },
    /// Nobody said how many permits the semaphore has.
    #[error("say how many permits this semaphore has: the configuration does not")]
    PermitsUnknown,
    /// More permits than the group can serve.
    #[error("a semaphore has at most {max} permits here, not {asked}")]
    TooManyPermits {
        /// What the caller wants.
        asked: NonZeroU32,
        /// The bound.
        max: u32,
    },
    /// The host's agent did not say in time how the lock is served.
    #[error("the agent does not answer; see that it runs and is not stopped")]
    NoAnswer,
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
}

/// Why [`Driven::process`](crate::Driven::process) does nothing any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The member's session is over: its state cannot be written, it was removed from the group, or
    /// another process has taken its place.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Ended {
        /// What happened.
        reason: String,
    },
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
}

impl From<runtime::ProcessError> for ProcessError {
    fn from(error: runtime::ProcessError) -> Self {
        match error {
            runtime::ProcessError::Forked => Self::Forked,
            runtime::ProcessError::Closed(SessionEnd::Closed) => Self::Closed,
            other => Self::Ended {
                reason: other.to_string(),
            },
        }
    }
}

/// Why [`Driven::set_sigio`](crate::Driven::set_sigio) changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// It would end the process, or do nothing.
    #[error("nothing expects SIGIO in this process; install a handler for it, or block it, first")]
    Unexpected,
    /// The agent was closed, or cannot be used any more.
    #[error("the agent was closed; open another")]
    Closed,
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
    /// The system refused.
    #[error("cannot have SIGIO sent: {source}; see the limit of pending signals (ulimit -i)")]
    Io {
        /// What the system says.
        source: io::Error,
    },
}

impl From<runtime::SignalError> for SignalError {
    fn from(error: runtime::SignalError) -> Self {
        match error {
            runtime::SignalError::Unexpected => Self::Unexpected,
            runtime::SignalError::Forked => Self::Forked,
            runtime::SignalError::System { source } => Self::Io { source },
            _ => Self::Closed,
        }
    }
}

/// Why [`Agent::add_member`](crate::Agent::add_member) or
/// [`Agent::remove_member`](crate::Agent::remove_member) changed nothing yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// It makes no sense.
    #[error("{reason}")]
    Refused {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// In this group only the members' files say who belongs to it (`failure = "presume-failed"`),
    /// or nothing does, as it is the local one.
    #[error(
        "in this group no view says who belongs to it; change the members' files, and restart the \
         agents"
    )]
    FilesOnly,
    /// No majority of the voters has agreed in time. It may still be done when they are back.
    #[error("{}", not_changed(missing))]
    NoQuorum {
        /// The voters that were missing then; empty if a majority was there, and something else
        /// took too long.
        missing: Vec<Missing>,
    },
    /// Another change was asked for meanwhile.
    #[error("another change was asked for meanwhile; look at the members, and ask again")]
    Replaced,
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The host's agent, whose client this is, is gone or stands still; or this member's own session
    /// is over.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Disconnected {
        /// What happened.
        reason: String,
    },
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
}

impl From<ChangeError> for MembersError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(reason) => Self::Refused { reason },
            ChangeError::FilesOnly => Self::FilesOnly,
            ChangeError::NoQuorum { missing } => Self::NoQuorum { missing },
            ChangeError::Replaced => Self::Replaced,
            ChangeError::Closed(SessionEnd::Closed) => Self::Closed,
            ChangeError::Forked => Self::Forked,
            other => Self::Disconnected {
                reason: other.to_string(),
            },
        }
    }
}

/// Why [`DistMutex::lock`](crate::DistMutex::lock) or
/// [`Semaphore::acquire`](crate::Semaphore::acquire) did not enter. The caller holds nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The group had no quorum for one lease, or none when the time to wait was over: no majority of
    /// its voters was heard.
    #[error("no quorum: {}; {}", absences(missing), remedy(missing))]
    NoQuorum {
        /// Who would have to be there: voters that are silent, or that have lost their states. Empty
        /// if this member is in no view yet, though they are there.
        missing: Vec<Missing>,
    },
    /// This thread holds it already, and would wait for itself for ever.
    #[error("this thread holds the lock already; unlock it first")]
    Deadlock,
    /// The agent was closed, also while waiting.
    #[error("the agent was closed; open another")]
    Closed,
    /// The lock is served by another algorithm than the caller said.
    #[error("this lock is served by {actual}, not by {asked}; ask for {actual}, or for none")]
    WrongAlgorithm {
        /// What the caller wants.
        asked: Algorithm,
        /// What the lock has.
        actual: Algorithm,
    },
    /// The group elects its leaders otherwise.
    #[error("this group elects its leaders by {actual}, not by {asked}; ask for {actual}")]
    WrongElection {
        /// What the caller wants.
        asked: ElectionAlgorithm,
        /// What the group has.
        actual: ElectionAlgorithm,
    },
    /// The lock cannot be shared.
    #[error(
        "this lock is served by {actual}, and cannot be shared: list it in the configuration with \
         algorithm = \"semaphore\""
    )]
    NotShareable {
        /// What the lock has.
        actual: Algorithm,
    },
    /// The lock is in use with another number of permits.
    #[error("this lock is in use with {actual} permits, not {asked}; ask for as many as it has")]
    WrongPermits {
        /// What the caller wants.
        asked: NonZeroU32,
        /// What the lock has.
        actual: NonZeroU32,
    },
    /// A bound is reached: too many locks, waiting requests or open files.
    #[error("a bound is reached: {what}")]
    Limit {
        /// Which, and what to do.
        what: String,
    },
    /// The host's agent, or the group, did not answer in time. Only a caller with a time limit is told:
    /// [`DistMutex::try_lock`](crate::DistMutex::try_lock) waits for the answer for one second, and a
    /// timed call for 0.2 seconds longer than for the lock.
    #[error(
        "no answer in time; see that the agent runs and is not stopped, and what 'distlock status' \
         tells of the group"
    )]
    NoAnswer,
    /// The host's agent, whose client this is, is gone; or this member's own session is over.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Disconnected {
        /// What happened.
        reason: String,
    },
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
    /// The system failed.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

impl LockError {
    /// Sorts `source` into the fitting variant.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        if is_file_limit(&source) {
            let what = format!("{what}: {source}; close some, or raise the limit (ulimit -n)");
            Self::Limit { what }
        } else {
            Self::Io { what, source }
        }
    }
}

/// Why [`DistMutex::try_lock`](crate::DistMutex::try_lock) did not enter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryLockError {
    /// The lock is not free.
    #[error("the lock is held by another")]
    WouldBlock,
    /// It could not be tried.
    #[error(transparent)]
    Failed(#[from] LockError),
}

/// Why [`DistMutex::try_lock_for`](crate::DistMutex::try_lock_for) did not enter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimedLockError {
    /// The time is over, and the lock was held by another. Without a quorum at the end it is
    /// [`LockError::NoQuorum`].
    #[error("the lock was not free in time")]
    TimedOut,
    /// It could not be waited for.
    #[error(transparent)]
    Failed(#[from] LockError),
}

/// Why [`Guard::unlock`](crate::Guard::unlock) was not a plain unlock. The caller holds nothing
/// any more in any case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// The lock had been lost before: another may have been inside since.
    #[error("the lock was lost before it was unlocked: another may have been inside since")]
    Lost,
    /// The agent was closed before, and released the lock then.
    #[error("the agent was closed before the lock was unlocked")]
    Closed,
    /// The guard is a copy in a forked child: the parent still holds the lock.
    #[error("the lock belongs to the parent of this process, which still holds it")]
    Forked,
    /// The system failed; the lock is free all the same, or will be when this process ends.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
    /// The host's agent, whose client this is, is gone; or this member's own session is over.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Disconnected {
        /// What happened.
        reason: String,
    },
    /// The agent is there, and cannot tell it.
    #[error("{reason}")]
    Unavailable {
        /// Why, and what to do.
        reason: String,
    },
    /// The system failed.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

/// What to do about what the system says.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "make what is missing, or choose another place",
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists => "something else is there: choose another place",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or choose another place"
        }
        io::ErrorKind::OutOfMemory => "end something that takes memory, and try again",
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => "choose another place",
        _ => "see what the system's log says about it",
    }
}

/// Whether `error` says that there are too many open files.
fn is_file_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What to do about those who would have to be there.
fn remedy(missing: &[Missing]) -> &'static str {
    let is_lost = |it: &Missing| it.why == Absence::StateLost;
    if missing.iter().any(is_lost) && missing.iter().all(is_lost) {
        "restore their state directories, or see 'distlock status' about 'distlock recover'"
    } else {
        match missing.len() {
            0 => "see in 'distlock status' who votes, and what the agent's log says",
            1 => "see that it runs and can be reached, and in 'distlock status' who votes",
            _ => "see that they run and can be reached, and in 'distlock status' who votes",
        }
    }
}

/// Why the members are as they were.
fn not_changed(missing: &[Missing]) -> String {
    if missing.is_empty() {
        "it was not done in time, though a majority of the voters is there; look at the members, \
         and ask again"
            .to_owned()
    } else {
        format!(
            "no quorum: {}; it may still be done when that has changed",
            absences(missing)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_missing() {
        let missing = |id, why| Missing {
            member: NodeId::new(id).unwrap(),
            why,
        };
        let told = |missing: &[Missing]| {
            let missing = missing.to_vec();
            LockError::NoQuorum { missing }.to_string()
        };
        let (two, three) = (missing(2, Absence::Silent), missing(3, Absence::Silent));
        let text = told(&[two]);
        assert!(
            text.contains("member 2 is silent; see that it runs"),
            "{text}"
        );
        let text = told(&[two, three]);
        assert!(
            text.contains("members 2, 3 are silent; see that they run"),
            "{text}"
        );
        let text = told(&[missing(2, Absence::StateLost)]);
        assert!(
            text.contains("member 2 has lost its state; restore"),
            "{text}"
        );
        assert!(text.contains("distlock recover"), "{text}");
        assert!(told(&[]).contains("in no view"));
    }

    #[test]
    fn advises_nobody_to_remove_a_directory_of_others() {
        let text = OpenError::Directory {
            path: "/tmp".into(),
            fault: DirectoryFault::Writable { mode: 0o777 },
        }
        .to_string();
        assert!(!text.contains("remove"), "{text}");
        assert!(text.contains("set DISTLOCK_DIR"), "{text}");
    }
}
