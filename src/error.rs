//! What can go wrong: one small enum an operation.
//!
//! Each message is one line that says what, why and what to do.

mod advice;
mod agent;
mod lock;
mod open;

pub use self::agent::{MembersError, ProcessError, SignalError, StatusError};
pub use self::lock::{HandleError, LockError, NotHeld, TimedLockError, TryLockError, UnlockError};
pub use self::open::{DirectoryFault, OpenError};
