//! Clocks: logical ones, which order events, and estimates of how far apart physical ones are.
//!
//! All of this is arithmetic: readings and messages come in, numbers come out, and how they travel
//! is up to the program. No lock rests on it.
//!
//! # Which event came first
//!
//! A [`LamportClock`] gives every event a number that is higher than those of all events that could
//! have caused it. With the process's id it makes a [`Stamp`], and stamps are totally ordered
//! (Lamport 1978).
//!
//! ```
//! use distlock::clock::LamportClock;
//!
//! let (mut printer, mut spooler) = (LamportClock::new(), LamportClock::starting_at(41));
//! let sent = spooler.tick(); // the message carries this number
//! assert_eq!(printer.receive(sent)?, 43);
//! # Ok::<(), distlock::clock::ClockTooFar>(())
//! ```
//!
//! The lower of two numbers need not have caused anything. A [`VectorClock`] also tells that two
//! events knew nothing of each other (Fidge 1988, Mattern 1989).
//!
//! ```
//! use distlock::clock::{Causality, VectorClock};
//!
//! let (mut a, mut b) = (VectorClock::new(), VectorClock::new());
//! a.tick(&"a"); // something happens at a
//! b.tick(&"b"); // and at b
//! assert_eq!(a.compare(&b), Causality::Concurrent);
//!
//! a.tick(&"a"); // a sends a message, with its clock
//! let sent = a.clone();
//! b.receive(&"b", &sent)?;
//! assert_eq!(sent.compare(&b), Causality::Before);
//! assert_eq!(b.to_string(), "{a:2, b:2}");
//! # Ok::<(), distlock::clock::ImpossibleStamp>(())
//! ```
//!
//! # How far another clock is ahead
//!
//! An [`OffsetFilter`] asks another process for its time again and again, and believes the answer
//! with the shortest round trip of the last eight (RFC 5905).
//!
//! ```
//! use std::time::Duration;
//! use distlock::clock::{OffsetFilter, Reply, Time};
//!
//! let mut filter = OffsetFilter::new(Duration::from_secs(600));
//! let asked_ns = filter.ask(Time::from_nanos(100)); // the question carries it
//! // There it is 160 when the question comes, and 165 when the answer leaves.
//! let reply = Reply { asked_ns, received_ns: 160, answered_ns: 165 };
//! filter.receive(reply, Time::from_nanos(115))?;
//!
//! let estimate = filter.estimate(Time::from_nanos(115)).expect("there was an answer");
//! assert_eq!(estimate.offset_ns, 55); // to know the time there, add it to the time here
//! assert_eq!(estimate.error, Duration::from_nanos(5)); // and it is right within this
//! # Ok::<(), distlock::clock::ReplyError>(())
//! ```
//!
//! Two answers, some time apart, tell whether its rate is out of bounds: a [`DriftWatch`] tells of
//! no clock that is within them, whatever messages take.
//!
//! # A clock that never goes back
//!
//! What is ahead is not set back but slowed down: [`SlewedClock`].
//!
//! ```
//! use distlock::clock::{SlewedClock, Time};
//!
//! let three = Time::from_nanos(10_800_000_000_000);
//! let mut clock = SlewedClock::new(three, 500);
//! clock.correct(three, -1_000_000); // a millisecond ahead
//! assert_eq!(clock.time(three), three); // it does not go back, but loses 500 µs a second
//! ```

pub use distlock_agent::protocol::Time;
pub use distlock_agent::protocol::clock::{
    Causality, ClockTooFar, DriftWatch, Estimate, ImpossibleStamp, LamportClock, OffsetFilter,
    Rate, Reply, ReplyError, Sample, SlewedClock, Stamp, VectorClock,
};
