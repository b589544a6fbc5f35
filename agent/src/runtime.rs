//! The thread that runs the core: the only place with a clock, sockets, files and threads.
//!
//! [`Agent`] is a member of a group in this process, with a thread of its own, or a [`Driver`] in
//! its place; [`Client`] uses the agent of another process on this host. All give out [`Grant`]s.
//!
//! The rooms, each above what it uses:
//!
//! | module | what is there |
//! |-|-|
//! | `client` | a program that uses the agent of another process |
//! | `agent` | the agent: how it starts and ends, its event loop, the loop that callers drive |
//! | `clients` | the service for clients: their connections, what their commands keep open |
//! | `shared` | what steps the core: the mutex around it, and all that its events lead to |
//! | `request` | one caller's request, its grant, and the lease that this depends on |
//! | `frames` | what agents and clients say to each other |
//! | `observe` | what is told to nobody in particular: traces, the watchdog |
//! | `api` | what callers say and are told: who asks, errors, events, the status |
//! | `net` | members' addresses, sockets and sealed datagrams |
//! | `disk` | the state directory, and whether paths can be trusted |
//! | `os` | what the system gives: clocks, timers, threads, descriptors, signals |
//!
//! `aead`, `fd_passing` and `frames` are public for the fuzz targets, which feed them; they promise
//! nobody anything.

mod agent;
mod api;
mod client;
mod clients;
mod disk;
#[doc(hidden)]
pub mod frames;
mod net;
mod observe;
mod os;
mod request;
mod shared;
#[cfg(test)]
mod skipped;
#[cfg(test)]
mod warnings;

#[cfg(feature = "store")]
pub use agent::LedgerOptions;
pub use agent::driven::Driver;
pub use agent::{Agent, Options, StartError, recover};
pub use api::caller::{Caller, Purpose, as_told, command_line};
pub use api::description::Description;
pub use api::error::{
    AcquireError, ChangeError, ProcessError, ReleaseError, SessionEnd, SignalError, StatusError,
};
pub use api::events::{AgentEvent, Leader, LeaderProcess, Observed};
pub use api::patience::Patience;
pub use api::{audit, metrics, status};
pub use client::{Client, ClientLoan, ConnectError, Turn};
pub use clients::endpoint::{Endpoint, Listener, ListenerError};
pub use disk::state_dir::StateError;
pub use disk::trust;
pub use net::address::{self, Address, AddressError, MulticastAddress};
#[doc(hidden)]
pub use net::aead;
pub use net::aead::{CREDENTIAL, GroupKey, KeyFileError, KeyId, KeyWriteError, MAX_KEYS, key_ids};
#[cfg(feature = "store")]
pub use net::console::StoreConsole;
pub use net::transport::{
    BindError, DATAGRAM, Faults, RECEIVE_BUFFER, SocketHolder, TransportCounters, holder_of,
    try_filter,
};
pub use observe::counters::Counters;
#[cfg(feature = "trace")]
pub use observe::trace;
pub use observe::watchdog::Watchdog;
pub use os::alarm::Alarm;
#[doc(hidden)]
pub use os::fd_passing;
pub use os::fork::ForkStamp;
pub use os::pidfd::ProcessGroup;
pub use os::{clock, environment, fifo, futex, queue, sync, thread};
pub use request::announcer::{Announcer, Sighting};
pub use request::lease_page::LeaseWatch;
pub use request::session::GuardState;
pub use request::{Grant, Loss, LossFuture, LossSignal, OnLoss, Settling, Waiting};
pub use shared::loans::LentLock;
