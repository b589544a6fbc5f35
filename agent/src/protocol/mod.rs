//! The protocol, pure: bytes, commands and time go in; bytes, events and records come out.
//!
//! Nothing here knows a clock, a socket, a thread, a file or a random source, so the code that
//! runs in the agent is the very code that is simulated. [`Node`] is the whole of one member; its
//! face is [`Node::handle`], [`Node::poll_output`] and [`Node::poll_timeout`].
//!
//! Top to bottom: [`node`] puts together [`link`] (reliable delivery to one peer), [`membership`]
//! (which members make up the group, in which epoch), [`lock`] (the algorithms) and [`election`]
//! (who is to lead). Beside them are [`clock`]s and [`multicast`].

pub(crate) mod chance;
pub mod clock;
pub mod election;
pub mod face;
pub mod ids;
pub mod link;
pub mod lock;
pub mod membership;
pub mod multicast;
pub mod node;
pub mod time;
mod timers;
pub mod wire;

pub use election::Algorithm as ElectionAlgorithm;
pub use face::{
    Boot, Command, Event, Failure, Input, MAX_TRY_TIME, Marks, NodeConfig, Output, Previous,
    Record, Refusal, Release, Settings, Wait,
};
pub use ids::{
    Epoch, Fence, Incarnation, LockName, NameError, NodeId, ParseFenceError, RequestId, Ticket,
    is_displayable,
};
pub use lock::{
    Algorithm, AlgorithmNames, LockSpec, Mode, Priority, UnknownAlgorithm, UnknownPriority,
};
pub use membership::quorum::{
    Absence, Affiliation, FoundingReport, Missing, QuorumOverview, VoterRecord,
};
pub use membership::{Book, Change, ClusterId, ParseClusterIdError};
pub use node::{Node, PeerState};
pub use time::Time;
