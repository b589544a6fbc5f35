//! How the clocks of a group are set, or compared, by algorithms of the lectures that no lock needs.
//!
//! - [`AveragingRound`]: what each clock of a group has to be set forward or back by, so that all
//!   agree (the Berkeley algorithm: Gusella and Zatti 1989).
//! - [`BeaconLog`] and [`OffsetFit`]: how far two clocks are apart that heard the same broadcasts
//!   (reference-broadcast synchronisation: Elson, Girod and Estrin 2002).

mod averaging;
mod broadcast;

pub use averaging::{AveragingError, AveragingLimits, AveragingRound, Corrections};
pub use broadcast::{BeaconLog, OffsetFit};
