//! Which traits the public types have: what threads may do with them, what a panic may leave them in,
//! and what can be done with their values.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::str::FromStr;

use distlock::config::{AddressError, Failure, Listener, ListenerError, LockSpec, Priority};
use distlock::config::{MulticastAddress, Settings, Watchdog};
use distlock::discovery::{GroupChoice, GroupOptions, MemberChoice};
use distlock::status::{QuorumStatus, Status};
use distlock::*;

/// Asserts that each of these types has all of these traits.
macro_rules! all {
    ($($of:ty),* $(,)? : $($has:tt)*) => {{
        fn has<T: ?Sized + $($has)*>() {}
        $(has::<$of>();)*
    }};
}

#[test]
fn threads_share_handles_and_guards() {
    all!(Agent, Mutex, Semaphore, Election, Guard, Leadership: Send + Sync + 'static);
    all!(Driven, FenceChecker, Announcer, LeaseWatch: Send + Sync + 'static);
    all!(dyn DistMutex, &dyn DistMutex, Box<dyn DistMutex>: Send + Sync);
    // Looked at by one thread at a time, as its `poll` says.
    all!(Waiting, TimedWaiting: Send + 'static);
    all!(Listener, Watchdog: Send + Sync + 'static);
}

#[test]
fn a_panic_leaves_handles_and_guards_whole() {
    all!(Agent, Mutex, Semaphore, Election, Guard, Leadership: UnwindSafe + RefUnwindSafe);
    all!(FenceChecker, Config, NodeId, Fence: UnwindSafe + RefUnwindSafe);
    all!(Waiting, TimedWaiting: UnwindSafe);
}

#[test]
fn handles_are_cloned_and_guards_are_not() {
    all!(Agent, Mutex, Semaphore, Election: Clone + Debug);
    all!(Guard, Leadership, Waiting, Driven: Debug);
    all!(FenceChecker, LockOptions: Clone + Debug + Eq + Hash);
}

#[test]
fn values_are_compared_hashed_printed_and_read() {
    all!(NodeId, Fence, ClusterId, LockName: Clone + Debug + Ord + Hash + Display + FromStr);
    all!(Algorithm, ElectionAlgorithm: Copy + Debug + Ord + Hash + Display + FromStr);
    all!(Address: Clone + Debug + Ord + Hash + Display + FromStr);
    all!(MulticastAddress: Copy + Debug + Eq + Hash + Display + FromStr);
    all!(Failure, LockSpec, Priority: Copy + Debug + Eq + Hash);
    all!(GuardState, Loss, PreviousOwner: Copy + Debug + Eq + Hash);
    all!(Leader: Clone + Debug + Eq + Hash);
    all!(Missing, Absence: Copy + Debug + Ord + Hash);
    all!(Config, NodeConfig, Settings, Event: Clone + Debug + Eq);
    all!(Config: FromStr);
    all!(Status, QuorumStatus: Clone + Debug + Default + Eq);
    all!(GroupOptions: Clone + Debug + Default + Eq + Hash);
    all!(GroupChoice, MemberChoice: Clone + Debug + Eq + Hash);
}

#[test]
fn errors_go_anywhere() {
    use std::error::Error;
    all!(OpenError, ConfigError, HandleError: Error + Send + Sync + 'static);
    all!(LockError, TryLockError, TimedLockError, UnlockError: Error + Send + Sync + 'static);
    all!(MembersError, StatusError, ProcessError, SignalError: Error + Send + Sync + 'static);
    all!(FenceError, PathTrustError, DirectoryFault: Debug + Display + Send + Sync + 'static);
    all!(NameError, AddressError, ListenerError, ParseAlgorithmError: Error + Send + Sync + 'static);
    all!(ParseFenceError, ParseNodeIdError, ParseClusterIdError: Error + Send + Sync + 'static);
    all!(ParseElectionAlgorithmError: Error + Send + Sync + 'static);
}
