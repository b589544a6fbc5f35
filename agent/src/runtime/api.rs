//! What callers say and are told, whichever process their agent is in.

pub mod audit;
pub(crate) mod caller;
pub(crate) mod description;
pub(crate) mod error;
pub(crate) mod events;
pub mod metrics;
pub(crate) mod patience;
pub mod status;
