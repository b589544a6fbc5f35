//! The lectures' figures, played by the engines.

use alloc::vec::Vec;
use core::time::Duration;

use super::bare::{Bare, Turn};
use super::checkers::Violation;
use super::choices::Choices;
use super::history::Moment;
use super::network::{Conditions, Network};
use super::trace::Trace;
use distlock_protocol::lock::{Algorithm, LockSpec};
use distlock_protocol::{Mode, NodeId, Release, RequestId, Time};

/// A figure that was played.
#[derive(Clone, Debug)]
pub struct Scene {
    /// What happened.
    pub history: Vec<Moment>,
    /// When it was over.
    pub end: Time,
    /// The one-way delay, T.
    pub unit: Duration,
}

/// The one-way delay.
const T: Duration = Duration::from_secs(1);

/// Figure 6.16 (Tanenbaum and van Steen 2007): processes 0 and 2 (members 1 and 3) want to enter at
/// the same time, with the timestamps 8 and 12; process 1 does not. They stay inside for that many
/// T.
///
/// # Errors
/// An engine does what it may not.
///
/// # Panics
/// If `inside` is negative, or not a number.
pub fn figure_6_16(inside: f64) -> Result<Scene, Violation> {
    let network = Network::new(Conditions::perfect(T), Choices::new(0));
    let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
    let trace = Trace::new(None).with_history();
    let mut bare: Bare<RequestId> = Bare::new(spec, 3, network, trace)?;
    // A request's own tick makes it 8 and 12.
    for (member, clock) in [(1, 7), (3, 11)] {
        let node = NodeId::new(member).expect("not zero");
        bare.set_clock(node, clock);
        bare.ask(node, Mode::Exclusive, false)?;
    }
    // Everybody enters, leaves, and has answered by then.
    let end = Time::ZERO + T.mul_f64(inside) * 2 + T * 4;
    while let Some(turn) = bare.next(end)? {
        match turn {
            Turn::Granted(id) => bare.plan(T.mul_f64(inside), id),
            Turn::Act(id) => bare.release(id, Release::Given)?,
            Turn::Busy(_) => {}
        }
    }
    Ok(Scene {
        history: bare.history().to_vec(),
        end,
        unit: T,
    })
}
