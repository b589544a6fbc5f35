//! Mutual exclusion across threads, processes and hosts, without a server.
//!
//! For a printer, a licence, or a nightly job that must never run twice at once: each process asks
//! the *agent* of its host, the agents agree by datagrams which of them may enter, and the lock
//! comes with a *fence*, a number by which the resource refuses a holder that was held up too long.
//! On a host without a configured group nothing has to be started or configured: there the kernel
//! decides.
//!
//! ```
//! use distlock::{Agent, DistMutex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let printer = Agent::open()?.mutex("printer")?; // this host's group
//! let guard = printer.lock()?; // blocks until this thread holds the lock
//! println!("held, fence {:?}", guard.fence()); // until the guard is dropped
//! # Ok(())
//! # }
//! ```
//!
//! # The types, by task
//!
//! | to | use |
//! |-|-|
//! | find the group of this host as the program `distlock` does | [`Agent::open`], [`discovery`] |
//! | exclude processes of this user on this host, with nothing configured | [`Agent::local`] |
//! | use the agent that runs on this host | [`Agent::connect`] |
//! | be a member of a group | [`Agent::from_config`], [`config`], [`Config`] |
//! | be a member without a thread, in a program with an event loop | [`Driven`] |
//! | lock, alone or shared | [`Mutex`], and [`DistMutex`] for code that takes any lock |
//! | let several in at a time | [`Semaphore`] |
//! | have one leader | [`Election`], [`Leadership`], [`Leader`] |
//! | choose an algorithm, or how a lock is shown, inherited and lost | [`LockOptions`], [`Algorithm`] |
//! | ask now, and look later | [`DistMutex::begin`], [`Waiting`], [`TimedWaiting`] |
//! | know that the lock is held, and how the last holder left it | [`Guard`], [`GuardState`], [`PreviousOwner`] |
//! | learn that a lock was lost | [`Guard::on_loss`], [`Guard::loss`], [`Guard::loss_fd`], [`Loss`] |
//! | reject an old holder at the resource | [`Fence`], [`FenceChecker`] |
//! | hand a lock to a child process | [`Guard::inheritable_fd`], [`Announcer`], [`LeaseWatch`] |
//! | see members, holders and waiters, and what happens to them | [`Agent::status`], [`status`], [`Agent::events`], [`Event`] |
//! | learn how often, and how long, locks are waited for and held | [`Agent::metrics`], [`metrics`] |
//! | change who belongs to the group | [`Agent::add_member`], [`Agent::remove_member`], [`Agent::set_voters`] |
//! | find the order of events | [`clock`], [`multicast`] |
//!
//! # What holds of all of them
//!
//! - Every failure is a variant of a small enum, one an operation, and no call panics. An error's
//!   `Display` is the whole line: what, why, and what to do.
//! - Locks are not reentrant: a thread that waits for itself gets [`LockError::Deadlock`]. They are
//!   not poisoned: [`Guard::previous_owner`] tells whether the last holder died while it held the
//!   lock.
//! - Dropping a guard neither panics nor blocks. [`Guard::unlock`] tells what dropping would not.
//! - Agents and all that comes from them are `Send` and `Sync` (a [`Waiting`] is `Send`), and their
//!   clones are cheap and the same. After a `fork` the child opens an agent of its own.
//!
//! # Features
//!
//! - `capi`: the functions of the C library. `packaging/install-c.sh` makes the library of them, and
//!   libdistlock(3) is its manual; it adds nothing to Rust.
//! - `etcd`, `postgresql`: locks that are kept in such a store ([`Agent::open_at`], `[store]` of a
//!   configuration). The program has both. They add rustls and `serde_json`, or `postgres-protocol`.
//! - `trace`: agents write traces for `distlock trace`, where [`NodeConfig::with_trace`] or
//!   `DISTLOCK_TRACE` says. The program and the C library have it. In other programs that are asked for
//!   a trace, the agent warns that it has none. It adds `serde_json` and three more crates.
//!
//! # More
//!
//! [Programming with distlock](https://github.com/distlock/distlock/blob/main/doc/programming.md),
//! [the algorithms](https://github.com/distlock/distlock/blob/main/doc/algorithms.md), and
//! [the examples](https://github.com/distlock/distlock/tree/main/examples). The manual page distlock(7)
//! says what holds when hosts, disks and networks fail, and distlock.toml(5) what a configuration
//! says.

/// The programs of these documents are documentation tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../doc/programming.md")]
    struct Programming;
}

mod agent;
mod algorithm;
mod backend;
mod client;
pub mod clock;
pub mod config;
pub mod discovery;
mod driven;
mod election;
mod error;
mod event;
mod fence;
#[cfg(feature = "capi")]
mod ffi;
mod group;
mod guard;
mod handle;
#[cfg(feature = "store")]
mod kept;
mod local;
mod lock;
mod locking;
mod losing;
mod member;
pub mod multicast;
mod mutex;
mod options;
mod previous_owner;
mod semaphore;
mod session;
#[cfg(feature = "store")]
pub mod store;
mod thread;
mod waiting;
mod watch;

pub use agent::Agent;
pub use algorithm::{Algorithm, ParseAlgorithmError};
pub use config::{Address, Config, ConfigError, NodeConfig};
pub use distlock_agent::protocol::election::UnknownAlgorithm as ParseElectionAlgorithmError;
pub use distlock_agent::runtime::trust::PathTrustError;
pub use distlock_agent::runtime::{audit, metrics, status};
pub use driven::Driven;
pub use election::{Campaigning, Election, Leadership, Observing, TimedCampaigning};
pub use error::{
    DirectoryFault, HandleError, LockError, MembersError, NotHeld, OpenError, ProcessError,
    SignalError, StatusError, TimedLockError, TryLockError, UnlockError,
};
pub use event::{Event, Leader};
pub use fence::{FenceChecker, FenceError};
pub use guard::Guard;
pub use locking::{Locking, TimedLocking};
pub use losing::{Invalid, Lost};

pub use mutex::{DistMutex, Mutex};
pub use options::LockOptions;
pub use previous_owner::PreviousOwner;
pub use semaphore::Semaphore;
pub use waiting::{TimedWaiting, Waiting};

/// ```
/// use distlock::{NameError, LockName};
///
/// let name: LockName = "printer".parse()?;
/// assert_eq!(name.to_string(), "printer");
/// assert_eq!("".parse::<LockName>(), Err(NameError::Empty));
/// # Ok::<(), NameError>(())
/// ```
pub use distlock_agent::protocol::LockName;

/// ```
/// use distlock::{LockName, NameError};
///
/// assert_eq!(LockName::new([b'x'; 256]), Err(NameError::TooLong { len: 256 }));
/// assert_eq!(LockName::new("a\0b"), Err(NameError::Nul));
/// ```
pub use distlock_agent::protocol::NameError;

/// ```
/// use distlock::{NodeId, ParseNodeIdError};
///
/// let id: NodeId = "7".parse()?;
/// assert_eq!(NodeId::new(7), Some(id));
/// assert_eq!(NodeId::try_from(0), Err(ParseNodeIdError));
/// # Ok::<(), ParseNodeIdError>(())
/// ```
pub use distlock_agent::protocol::NodeId;

pub use distlock_agent::protocol::ParseNodeIdError;

/// ```
/// use distlock::{Fence, ParseFenceError};
///
/// let fence: Fence = "4294967297".parse()?; // as a command finds it in DISTLOCK_FENCE
/// assert!(Fence::new(4_294_967_298) > Some(fence));
/// assert_eq!("0".parse::<Fence>(), Err(ParseFenceError::OutOfRange));
/// # Ok::<(), ParseFenceError>(())
/// ```
pub use distlock_agent::protocol::Fence;

pub use distlock_agent::protocol::ParseFenceError;

/// ```
/// use distlock::{ClusterId, ParseClusterIdError};
///
/// let cluster: ClusterId = "00012fabff000010".parse()?; // as `distlock status` shows it
/// assert_eq!(cluster.to_string(), "00012fabff000010");
/// # Ok::<(), ParseClusterIdError>(())
/// ```
pub use distlock_agent::protocol::ClusterId;

pub use distlock_agent::protocol::ParseClusterIdError;

/// ```
/// use distlock::{ElectionAlgorithm, ParseElectionAlgorithmError};
///
/// let algorithm: ElectionAlgorithm = "chang-roberts".parse()?;
/// assert_eq!(algorithm, ElectionAlgorithm::ChangRoberts);
/// assert_eq!("raft".parse::<ElectionAlgorithm>(), Err(ParseElectionAlgorithmError));
/// # Ok::<(), ParseElectionAlgorithmError>(())
/// ```
pub use distlock_agent::protocol::ElectionAlgorithm;

/// ```
/// use distlock::{Absence, LockError};
///
/// fn whom_to_call(error: &LockError) -> Vec<u16> {
///     let LockError::NoQuorum { missing } = error else {
///         return Vec::new();
///     };
///     let silent = missing.iter().filter(|missing| missing.why == Absence::Silent);
///     silent.map(|missing| missing.member.as_u16()).collect()
/// }
/// # assert!(whom_to_call(&LockError::Closed).is_empty());
/// ```
pub use distlock_agent::protocol::{Absence, Missing};

/// ```
/// use distlock::{Agent, DistMutex, GuardState};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let guard = agent.mutex("printer")?.lock()?;
/// match guard.state() {
///     GuardState::Valid => println!("print on"),
///     GuardState::Suspended => println!("pause, until the group is heard again"),
///     GuardState::Lost => println!("stop: another may be printing"),
/// #   _ => unreachable!(),
/// }
/// # assert_eq!(guard.state(), GuardState::Valid);
/// # Ok(())
/// # }
/// ```
pub use distlock_agent::runtime::GuardState;

/// ```
/// use distlock::{Agent, DistMutex, Loss};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let guard = agent.mutex("printer")?.lock()?;
/// let loss = guard.loss();
/// agent.close();
/// assert_eq!(loss.recv()?, Loss::Closed);
/// # Ok(())
/// # }
/// ```
pub use distlock_agent::runtime::Loss;

pub use distlock_agent::runtime::{Announcer, LeaseWatch};
