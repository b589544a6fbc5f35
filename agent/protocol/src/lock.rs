//! Locks: the interface of an algorithm ([`engine`]), the `algorithms`, one file each, and what stands
//! around them in every member: the local queue, and the table of locks.

mod algorithms;
pub mod engine;
mod grant_history;
pub mod loan;
mod queue;
mod request;
pub mod seats;
mod settle;
mod spec;
mod summary;
mod table;

pub use crate::clock::Stamp;
pub use algorithms::{Effects, Message, build, violation_probability, votes_needed};
pub use loan::{EntryOwner, Left, Loan, SharedLoan};

pub use engine::{Engine, HopTimer, Mark, Rebuild, Receivers};
pub use request::{Mode, Previous, Release, Request};
pub use spec::{Algorithm, AlgorithmNames, LockSpec, Priority, UnknownAlgorithm, UnknownPriority};

pub use grant_history::{AbandonedMarks, Block, Ending, GrantHistory};
pub use summary::{Last, LockSummary, Summary};
pub use table::LockView;

pub use queue::Waiting;
pub use settle::{LockMessage, LockOutput};
pub use table::Locks;
