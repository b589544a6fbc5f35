//! One caller's request, from the wish to the release, and the lease that its grant depends on.

pub(crate) mod announcer;
mod decision;
mod grant;
pub(crate) mod lease_page;
pub(crate) mod loan_page;
mod loss;
pub(crate) mod session;
mod waiting;

pub(crate) use decision::{Granted, Handed, Owner, Request};
pub use grant::{Grant, Settling};
pub use loss::{Loss, LossFuture, LossSignal, OnLoss};
pub(crate) use waiting::Limit;
pub use waiting::Waiting;
