//! The algorithms, one file each: which holds an election, and what engines say to each other.
//!
//! An algorithm's engine has messages of its own. What goes over links is a [`Message`], which says of
//! which algorithm it is; [`build`] puts one around each engine's messages, and takes it off again.

mod bully;
mod chang_roberts;
mod ring;

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use self::bully::Bully;
use self::chang_roberts::ChangRoberts;
use self::ring::Ring;
use super::engine::{self, Engine, Round};
use crate::ids::NodeId;

/// What a round's engine wants done, whichever its algorithm is.
pub type Effects = engine::Effects<Message>;

/// How a leader is found.
///
/// The order is that of the wire format: append only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[non_exhaustive]
pub enum Algorithm {
    /// `bully`: Garcia-Molina 1982.
    #[default]
    Bully,
    /// `ring`: a list that goes round, after Le Lann 1977.
    Ring,
    /// `chang-roberts`: Chang and Roberts 1979.
    ChangRoberts,
}

impl Algorithm {
    /// All algorithms, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Bully, Self::Ring, Self::ChangRoberts];

    /// The name in configuration files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bully => "bully",
            Self::Ring => "ring",
            Self::ChangRoberts => "chang-roberts",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or(UnknownAlgorithm)
    }
}

/// The name of no algorithm by which a leader is elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no election is held by an algorithm of that name; choose bully, ring or chang-roberts")]
pub struct UnknownAlgorithm;

/// A message between the engines of one election.
///
/// The order is that of the wire format: append only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "each variant is documented in its algorithm's file"
)]
pub enum Message {
    Bully(bully::Message),
    Ring(ring::Message),
    ChangRoberts(chang_roberts::Message),
}

impl Message {
    /// What it is called in counts and traces.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bully(message) => message.kind(),
            Self::Ring(message) => message.kind(),
            Self::ChangRoberts(message) => message.kind(),
        }
    }
}

/// Makes the engine for one round.
pub fn build(algorithm: Algorithm, round: &Round<'_>) -> Box<dyn Engine<Message>> {
    macro_rules! engine {
        ($algorithm:ident) => {
            Box::new(Wrapped {
                engine: $algorithm::new(round),
                wrap: Message::$algorithm,
                unwrap: |message| match message {
                    Message::$algorithm(message) => Some(message),
                    _ => None,
                },
            })
        };
    }
    match algorithm {
        Algorithm::Bully => engine!(Bully),
        Algorithm::Ring => engine!(Ring),
        Algorithm::ChangRoberts => engine!(ChangRoberts),
    }
}

/// An algorithm's engine, among those of all algorithms.
struct Wrapped<E, M> {
    engine: E,
    wrap: fn(M) -> Message,
    unwrap: fn(&Message) -> Option<&M>,
}

impl<E, M> Wrapped<E, M> {
    fn step(&mut self, out: &mut Effects, step: impl FnOnce(&mut E, &mut engine::Effects<M>)) {
        let mut own = engine::Effects::default();
        step(&mut self.engine, &mut own);
        out.extend(own, self.wrap);
    }
}

impl<E: fmt::Debug, M> fmt::Debug for Wrapped<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

impl<E: Engine<M>, M> Engine<Message> for Wrapped<E, M> {
    fn stand(&mut self, out: &mut Effects) {
        self.step(out, Engine::stand);
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects) {
        if let Some(message) = (self.unwrap)(message) {
            self.step(out, |engine, own| engine.receive(from, message, own));
        }
    }

    fn timeout(&mut self, out: &mut Effects) {
        self.step(out, Engine::timeout);
    }
}
