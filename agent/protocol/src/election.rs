//! Elections: among the members that stand for it, one is to lead.
//!
//! The `algorithms` (one file each, behind [`engine`]) only **nominate**. Each of them rests on a synchrony
//! that no network gives: with an answer that comes too late, the textbooks' bully has two leaders.
//! What makes a nominee the leader is the group's own lock of the election's name: the nominee, and
//! nobody else, asks for it, and leads while it is inside. So whatever a nomination is worth, there
//! are never two leaders, and leadership has the lock's lease and its fence; the view in force
//! certifies it as it certifies every holder.
//!
//! A lower layer does what is the same for all algorithms: rounds, and who leads (`contest`); and
//! a member's local callers (`table`).

mod algorithms;
mod contest;
pub mod engine;
mod output;
mod table;

pub use algorithms::{Algorithm, Effects, Message, UnknownAlgorithm, build};
pub use contest::{ElectionMessage, Leader};
pub use engine::{AnswerTimer, Engine, Round};

pub(crate) use output::{ElectionOutput, Order};
pub(crate) use table::Elections;
