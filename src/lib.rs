//! Distributed mutual exclusion without a server.
//!
//! Processes take turns at what only one of them may use at a time: a printer, a licence, the one
//! run of a nightly job. With nothing configured they are the processes of one user on one host
//! (the *local group*, where the kernel decides); with one small file, the same on every host,
//! they are processes on several hosts.
//!
//! ```
//! use distlock::{Agent, DistMutex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let agent = Agent::local_in(directory.path())?;
//! # /*
//! let agent = Agent::local()?;
//! # */
//! let printer = agent.mutex("printer")?;
//! let guard = printer.lock()?;
//! if let Some(fence) = guard.fence() {
//!     println!("inside, fence {fence}");
//! }
//! drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//! - **Reentrancy**: there is none. A thread that waits for what it holds gets
//!   [`LockError::Deadlock`]. The thread that took a guard counts as its holder until the guard is
//!   dropped, wherever the guard has been moved.
//! - **Order**: threads of one process enter in the order in which they asked. Between processes
//!   the order is that of the [`Algorithm`].
//! - **Poisoning**: there is none. [`Guard::previous_owner`] tells whether the former holder died
//!   inside.
//! - **fork**: a child may use nothing that its parent opened: it gets an error, and never touches
//!   the parent's locks. It opens an [`Agent`] of its own.

mod agent;
mod algorithm;
mod backend;
mod client;
pub mod config;
mod error;
mod event;
mod group;
mod guard;
mod local;
mod loss;
mod member;
mod mutex;
mod semaphore;

pub use agent::Agent;
pub use algorithm::{Algorithm, ParseAlgorithmError};
pub use config::{Config, ConfigError, NodeConfig};
pub use distlock_agent::protocol::{Fence, LockName, NameError, NodeId, ParseFenceError};
pub use distlock_agent::runtime::status;
pub use error::{
    DirectoryFault, HandleError, LockError, OpenError, StatusError, TimedLockError, TryLockError,
    UnlockError,
};
pub use event::Event;
pub use guard::{Guard, PreviousOwner};
pub use loss::Loss;
pub use mutex::DistMutex;
pub use semaphore::Semaphore;
