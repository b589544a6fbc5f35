//! Mutual exclusion across threads, processes and hosts, without a server.
//!
//! An [`Agent`] is the way to the locks: of this host's agent, of the processes of this user, or of an
//! agent that this process has itself. It gives a [`Mutex`], a counting [`Semaphore`] or an
//! [`Election`] by name, and these give a guard:
//!
//! ```
//! use distlock::{Agent, DistMutex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::open()?; // this host's agent, else the processes of this user
//! let printer = agent.mutex("printer")?;
//! let guard = printer.lock()?; // blocks until this thread holds the lock
//! if let Some(fence) = guard.fence() {
//!     println!("held, fence {fence}"); // pass it to the resource, which rejects older ones
//! }
//! guard.unlock()?; // or drop it
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |-|-|
//! | find the group of this host as the program `distlock` does | [`Agent::open`], [`discovery`] |
//! | exclude processes of this user on this host, with nothing configured | [`Agent::local`] |
//! | use the agent that runs on this host | [`Agent::connect`] |
//! | be a member of a group | [`Agent::from_config`], [`config`] |
//! | be a member without a thread, in a program with an event loop | [`Driven`] |
//! | learn that a lock was lost | [`Guard::state`], [`Guard::on_loss`], [`Guard::loss_fd`] |
//! | reject an old holder at the resource | [`FenceChecker`] |
//! | find the order of events | [`clock`], [`multicast`] |
//!
//! Every failure is a variant of a small enum; no call panics. Dropping a guard neither panics nor blocks.
//! Locks are neither reentrant nor poisoned: [`Guard::previous_owner`] tells whether the last holder died
//! while it held the lock. After a `fork` the child opens an agent of its own.

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
mod local;
mod lock;
mod loss;
mod member;
pub mod multicast;
mod mutex;
mod options;
mod previous_owner;
mod semaphore;
mod session;
mod thread;
mod waiting;
mod watch;

pub use agent::Agent;
pub use algorithm::{Algorithm, ParseAlgorithmError};
pub use config::{Address, Config, ConfigError, NodeConfig};
pub use distlock_agent::protocol::{
    Absence, ClusterId, ElectionAlgorithm, Fence, LockName, Missing, NameError, NodeId,
    ParseClusterIdError, ParseFenceError,
};
pub use distlock_agent::runtime::{Announcer, GuardState, LeaseWatch, status};
pub use driven::Driven;
pub use election::{Election, Leadership};
pub use error::{
    DirectoryFault, HandleError, LockError, MembersError, OpenError, ProcessError, SignalError,
    StatusError, TimedLockError, TryLockError, UnlockError,
};
pub use event::{Event, Leader};
pub use fence::{FenceChecker, FenceError};
pub use guard::Guard;
pub use loss::Loss;
pub use mutex::{DistMutex, Mutex};
pub use options::LockOptions;
pub use previous_owner::PreviousOwner;
pub use semaphore::Semaphore;
pub use waiting::Waiting;
