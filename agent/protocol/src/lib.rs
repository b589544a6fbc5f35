//! The protocol of distlock, pure: bytes, commands and time go in; bytes, events and records come out.
//!
//! Nothing here knows a clock, a socket, a thread, a file or a random source, so the code that
//! runs in the agent is the very code that is simulated. [`Node`] is the whole of one member; its
//! interface is [`Node::handle`], [`Node::poll_output`] and [`Node::poll_timeout`].
//!
//! Top to bottom: [`node`] puts together [`link`] (reliable delivery to one peer), [`membership`]
//! (which members make up the group, in which epoch), [`lock`] (the algorithms) and [`election`]
//! (who is to lead). Beside them are [`clock`]s and [`multicast`].
//!
//! Applications use the crate `distlock`. The modules that this page does not list are public for the
//! agent and the laboratory, which step, count and judge what is in them; they promise nobody anything.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod api;
#[doc(hidden)]
pub mod chance;
#[doc(hidden)]
pub mod checksum;
pub mod clock;
#[doc(hidden)]
pub mod dissect;
#[doc(hidden)]
pub mod election;

pub mod ids;
#[cfg(feature = "ledger")]
pub mod ledger;
#[doc(hidden)]
pub mod link;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod membership;
pub mod multicast;
#[doc(hidden)]
pub mod node;
pub mod settings;
pub mod time;
#[doc(hidden)]
pub mod timers;
#[doc(hidden)]
pub mod wire;

pub use api::{
    Boot, Command, Event, Input, MAX_TRY_TIME, NodeConfig, Output, Record, Refusal, Wait,
};
pub use election::Algorithm as ElectionAlgorithm;
pub use ids::{
    Epoch, Fence, Incarnation, LockName, NameError, NodeId, ParseFenceError, ParseNodeIdError,
    RequestId, Ticket, is_displayable,
};
pub use lock::{
    AbandonedMarks, Algorithm, AlgorithmNames, EntryOwner, LockSpec, Mode, Previous, Priority,
    Release, SharedLoan, UnknownAlgorithm, UnknownPriority,
};
pub use membership::quorum::{
    Absence, Affiliation, FoundingReport, Missing, QuorumOverview, VoterRecord,
};
pub use membership::{Change, ClusterId, MembershipOverrides, ParseClusterIdError};
pub use node::{Node, PeerState};
pub use settings::{Failure, Settings};
pub use time::Time;
