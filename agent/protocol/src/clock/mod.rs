//! Clocks: logical ones, which order events, and estimates of how far apart physical ones are.
//!
//! - [`LamportClock`] and [`Stamp`]: numbers that agree with cause and effect (Lamport 1978).
//! - [`VectorClock`]: which also tell when two events have nothing to do with each other (Fidge
//!   1988, Mattern 1989).
//! - [`OffsetFilter`]: how far another clock is ahead, by questions and answers (RFC 5905).
//! - [`DriftWatch`]: whether another clock's rate is out of bounds, proven by the same answers.
//! - [`AveragingRound`]: what each clock of a group has to be set forward or back by, so that all
//!   agree (the Berkeley algorithm: Gusella and Zatti 1989).
//! - [`BeaconLog`] and [`OffsetFit`]: how far two clocks are apart that heard the same broadcasts
//!   (reference-broadcast synchronisation: Elson, Girod and Estrin 2002).
//! - [`SlewedClock`]: a clock that is corrected without ever going back.
//!
//! Nothing here reads a clock or sends a message: readings come in, and numbers come out. Locks
//! rest on none of the estimates. An offset may be as wrong as its bound says, and a peer may lie;
//! a lease counts on one clock at each end.

mod averaging;
mod broadcast;
mod drift;
mod lamport;
mod offset;
mod slew;
mod vector;

pub use averaging::{AveragingError, AveragingLimits, AveragingRound, Corrections};
pub use broadcast::{BeaconLog, OffsetFit};
pub use drift::{DriftWatch, Rate};
pub use lamport::{ClockTooFar, LamportClock, Stamp};
pub use offset::{Estimate, OffsetFilter, Reply, ReplyError, Sample};
pub use slew::SlewedClock;
pub use vector::{Causality, ImpossibleStamp, VectorClock};
