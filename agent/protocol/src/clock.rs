//! Clocks: logical ones, which order events, and estimates of how far apart physical ones are.
//!
//! - [`LamportClock`] and [`Stamp`]: numbers that agree with cause and effect (Lamport 1978).
//! - [`VectorClock`]: which also tell when two events have nothing to do with each other (Fidge
//!   1988, Mattern 1989).
//! - [`OffsetFilter`]: how far another clock is ahead, by questions and answers (RFC 5905).
//! - [`DriftWatch`]: whether another clock's rate is out of bounds, proven by the same answers.
//! - [`SlewedClock`]: a clock that is corrected without ever going back.
//!
//! Nothing here reads a clock or sends a message: readings come in, and numbers come out. Locks
//! rest on none of the estimates. An offset may be as wrong as its bound says, and a peer may lie;
//! a lease counts on one clock at each end.

mod drift;
mod lamport;
mod offset;
mod slew;
mod vector;

pub use drift::{DriftWatch, Rate};
pub use lamport::{ClockTooFar, LamportClock, Stamp};
pub use offset::{Estimate, OffsetFilter, Reply, ReplyError, Sample};
pub use slew::SlewedClock;
pub use vector::{Causality, ImpossibleStamp, VectorClock};
