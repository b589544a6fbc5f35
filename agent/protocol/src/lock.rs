//! Locks: the face of an algorithm ([`engine`]), the algorithms, one file each, and what stands
//! around them in every member: the local queue, and the table of locks.

mod bakery;
mod carvalho_roucairol;
mod coterie;
pub mod engine;
mod grant_history;
mod lamport;
mod maekawa;
mod queue;
mod raymond;
mod request;
mod ricart_agrawala;
mod semaphore;
mod settle;
mod singhal;
mod spec;
mod summary;
mod suzuki_kasami;
mod table;
mod token;
mod token_ring;
mod token_ring_requests;
mod voting;

pub use crate::clock::Stamp;
pub use engine::{Effects, Engine, HopTimer, Mark, Message, Rebuild};
pub use request::{Mode, Previous, Release, Request};
pub use spec::{Algorithm, AlgorithmNames, LockSpec, Priority, UnknownAlgorithm, UnknownPriority};

pub use grant_history::{AbandonedMarks, Ending, GrantHistory};
pub use summary::{Last, LockSummary, Summary};
pub use table::LockView;
pub use voting::{violation_probability, votes_needed};

pub use queue::Waiting;
pub use settle::{LockMessage, LockOutput};
pub use table::Locks;

use alloc::boxed::Box;

/// Makes a lock's engine anew, as every view does: from its members, holders and waiters alone.
/// What it has to say at once goes to `out`.
pub fn build(spec: LockSpec, from: &Rebuild<'_>, out: &mut Effects) -> Box<dyn Engine> {
    match spec.algorithm {
        Algorithm::Semaphore => Box::new(semaphore::Semaphore::new(spec.permits, from, out)),
        Algorithm::Bakery => Box::new(bakery::Bakery::new(from, out)),
        Algorithm::RicartAgrawala => Box::new(ricart_agrawala::RicartAgrawala::new(from, out)),
        Algorithm::TokenRing => Box::new(token_ring::TokenRing::new(from, out)),
        Algorithm::TokenRingRequests => {
            Box::new(token_ring_requests::TokenRingRequests::new(from, out))
        }
        Algorithm::Lamport => Box::new(lamport::Lamport::new(from, out)),
        Algorithm::CarvalhoRoucairol => Box::new(carvalho_roucairol::CarvalhoRoucairol::new(
            spec.priority,
            from,
            out,
        )),
        Algorithm::Maekawa => Box::new(maekawa::Maekawa::new(maekawa::Rule::Small, from, out)),
        Algorithm::Majority => Box::new(maekawa::Maekawa::new(maekawa::Rule::Majority, from, out)),
        Algorithm::SuzukiKasami => Box::new(suzuki_kasami::SuzukiKasami::new(from, out)),
        Algorithm::Singhal => Box::new(singhal::Singhal::new(from, out)),
        Algorithm::Raymond => Box::new(raymond::Raymond::new(from, out)),
        Algorithm::Voting => Box::new(voting::Voting::new(from, out)),
    }
}
