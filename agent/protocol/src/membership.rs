//! Who makes up the group, in which epoch.
//!
//! A [`View`] is a member list with a number, the epoch. Engines see views only: one freezes
//! them, the next builds them anew. Where views come from is behind one trait, `ViewSource`:
//! from a majority of voters ([`quorum`]), from those that answer (`Presumed`), or, as a measure for
//! those, from all members unanimously (`Fixed`).

mod cluster_id;
mod fixed;
pub mod greeting;
mod overrides;
mod presumed;
pub mod quorum;
mod view;
mod view_source;

pub use cluster_id::{ClusterId, ParseClusterIdError};
pub(crate) use fixed::Fixed;
pub use overrides::{Change, MAX_ADDRESS, MembershipOverrides};
pub(crate) use presumed::{Presumed, UncleanRestart};
pub use view::{Member, View};
pub use view_source::{Action, ViewMessage, ViewSource};
