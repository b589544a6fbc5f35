//! Elections: among the members that stand for it, one is to lead.
//!
//! The algorithms ([`engine`], one file each) only **nominate**. Each of them rests on a synchrony
//! that no network gives: with an answer that comes too late, the textbooks' bully has two leaders.
//! What makes a nominee the leader is the group's own lock of the election's name: the nominee, and
//! nobody else, asks for it, and leads while it is inside. So whatever a nomination is worth, there
//! are never two leaders, and leadership has the lock's lease and its fence; the view in force
//! certifies it as it certifies every holder.
//!
//! A lower layer does what is the same for all algorithms: rounds, and who leads (`contest`); and
//! a member's local callers (`table`).

mod contest;
pub mod engine;

mod bully;
mod chang_roberts;
mod ring;
mod table;

pub use contest::{ElectionMessage, Leader};
pub use engine::{AnswerTimer, Effects, Engine, Message, Round};

pub(crate) use table::{ElectionOutput, Elections, Order};

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

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

/// Makes the engine for one round.
pub fn build(algorithm: Algorithm, round: &Round<'_>) -> Box<dyn Engine> {
    match algorithm {
        Algorithm::Bully => Box::new(bully::Bully::new(round)),
        Algorithm::Ring => Box::new(ring::Ring::new(round)),
        Algorithm::ChangRoberts => Box::new(chang_roberts::ChangRoberts::new(round)),
    }
}
