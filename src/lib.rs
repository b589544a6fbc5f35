#![doc = include_str!("../README.md")]

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
mod local;
mod loss;
mod member;
pub mod multicast;
mod mutex;
mod semaphore;
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
pub use election::{Election, Leader, Leadership};
pub use error::{
    DirectoryFault, HandleError, LockError, MembersError, OpenError, ProcessError, SignalError,
    StatusError, TimedLockError, TryLockError, UnlockError,
};
pub use event::Event;
pub use fence::{FenceChecker, FenceError};
pub use guard::{Guard, PreviousOwner};
pub use loss::Loss;
pub use mutex::DistMutex;
pub use semaphore::Semaphore;
pub use waiting::Waiting;
