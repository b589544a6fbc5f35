//! The thread that runs the core: the only place with a clock, sockets, files and threads.
//!
//! [`Agent`] is a member of a group in this process, with a thread of its own, or a [`Driver`] in
//! its place; [`Client`] uses the agent of another process on this host. All give out [`Grant`]s.
//!
//! The modules that this page does not list are public for the fuzz targets, which feed them; they
//! promise nobody anything.

pub mod address;
mod agent;
mod alarm;
#[doc(hidden)]
pub mod ancillary;
mod announcer;
mod ask;
mod capability;
mod client;
mod clients;
pub mod clock;
mod descriptors;
mod disk;
mod driven;
mod durable;
mod endpoint;
pub mod environment;
mod error;
mod event_loop;
mod events;
pub mod fifo;
mod fork;
#[doc(hidden)]
pub mod frames;
mod handoff;
mod lease;
mod lease_page;
mod lifeline;
mod membership;
mod offsets;
pub(crate) mod process;
pub mod queue;
mod report;
mod request;
#[doc(hidden)]
pub mod seal;
mod session;
mod sigio;
mod spin;
pub mod status;
pub mod sync;
pub mod trace;
mod transport;
pub mod trust;
mod turn;
mod watchdog;

pub use address::{Address, AddressError, MulticastAddress};
pub use agent::{Agent, Counters, Description, Options, recover};
pub use alarm::Alarm;
pub use announcer::{Announcer, Sighting};
pub use ask::{Caller, Patience, Purpose, as_told, command_line};
pub use client::{Client, ConnectError};
pub use driven::Driver;
pub use durable::StateError;
pub use endpoint::{Endpoint, Listener, ListenerError};
pub use error::{
    AcquireError, ChangeError, ProcessError, ReleaseError, SessionEnd, SignalError, StartError,
    StatusError,
};
pub use events::{AgentEvent, Leader};
pub use fork::ForkStamp;
pub use lease_page::LeaseWatch;
pub use process::ProcessGroup;
pub use request::{Grant, OnLoss, Waiting};
pub use seal::{CREDENTIAL, GroupKey, KeyFileError, KeyId, KeyWriteError, MAX_KEYS};
pub use session::GuardState;
pub use transport::{BindError, Faults, TransportCounters};
pub use watchdog::Watchdog;
