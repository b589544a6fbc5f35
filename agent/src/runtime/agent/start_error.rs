//! Why an agent does not start.

use crate::protocol::NodeId;
use crate::runtime::disk::state_dir::{self, StateError};
use crate::runtime::net::aead::KeyFileError;
use crate::runtime::net::transport::BindError;

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration does not list this member.
    #[error("member {me} is not in the configuration: give the id of a member that is")]
    NotAMember {
        /// The id that was given.
        me: NodeId,
    },
    /// The state directory cannot be used, or is another process's.
    #[error(transparent)]
    State(#[from] StateError),
    /// The member's address or the socket for local programs cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The group's keys cannot be had.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// An agent without a thread was to serve local programs.
    #[error(
        "an agent that its application drives serves no other programs: leave its socket out, or \
         let it have a thread"
    )]
    Service,
    /// The system refused a thread, memory or descriptors.
    #[error("cannot {doing}: {source}{}", state_dir::advice(source))]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        r#source: std::io::Error,
    },
}
