//! What the agent thread and the application's threads share: the core behind its mutex, and all that
//! its events lead to.
//!
//! [`core_guard`] steps the core and hands each of its events to [`dispatch`]. Above are the requests
//! ([`hand_off`], [`requests`]), the thread that waits for the network ([`leader`]), what threads and
//! clients enter by themselves ([`loans`], [`client_loans`]; the core has each as a [`lending`]), the
//! session's end ([`leave`], [`lease`]). What decides about locks is the [`arbiter`]; and what members tell each other beside the protocol ([`membership`],
//! [`group_status`], [`peer_clocks`]).

pub(crate) mod arbiter;
mod audit;
mod client_loans;
pub(crate) mod contention;
pub(crate) mod core_guard;
mod dispatch;
pub(crate) mod entry;
pub(crate) mod group_status;
pub(crate) mod hand_off;
pub(crate) mod leader;
mod lease;
mod leave;
mod lending;
pub(crate) mod loans;
mod measure;
pub(crate) mod membership;
pub(crate) mod peer_clocks;
mod requests;
mod round;
mod sockets;
#[cfg(feature = "store")]
pub(crate) mod store;
pub(crate) mod wakeup;

pub(crate) use core_guard::Shared;
#[cfg(test)]
pub(crate) use hand_off::tests::alone;
