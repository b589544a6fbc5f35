//! One caller's request, from the wish to the release, and the lease that its grant depends on.

pub(crate) mod announcer;
mod decision;
mod grant;
pub(crate) mod lease_page;
pub(crate) mod session;
mod waiting;

pub use decision::OnLoss;
pub(crate) use decision::{Granted, Handed, Owner, Request};
pub use grant::Grant;
pub(crate) use waiting::Limit;
pub use waiting::Waiting;
