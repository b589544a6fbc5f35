//! Quorum views: members come and go by the certificate of a majority of voters, and nobody who is
//! gone can be inside when the next view begins.
//!
//! Every process has a session, its membership with its lease. Some are voters besides, with what
//! they must remember on disk. The voters' leader proposes the next view, a [`log`] decides on it,
//! voters endorse it, and the coordinator that it names puts it in force:
//!
//! 1. *Endorse*, at most once an epoch, on disk before it is said; from then on a voter renews the
//!    leases of that view's members only.
//! 2. *Certificate*: a majority of the voters before and of those after has endorsed it.
//! 3. *Flush*: the members stop, and tell what they have.
//! 4. *Install*, when all have told and the leases of those who are gone are over.
//!
//! Safety rests on these four alone. The log may lie: decide twice, forget, repeat. Then views
//! may stop to come; two never come in one epoch. Lock traffic never waits for any of this.
//!
//! Structure: Vertical Paxos (Lamport, Malkhi and Zhou 2009), a configuration in every epoch and a
//! master that chooses it; the messages are those of virtual synchrony's flush (Birman 1987).
//! Rejected: to let the log alone decide, and count a leader's lease: then a fault in the library
//! would be two holders.

mod affiliation;
mod certificate;
mod config;
mod coordinator;
mod founding;
pub mod log;
mod message;
mod outbox;
pub(crate) mod overview;
mod process;
mod proposer;
mod session;
mod view_config;
mod voter;

pub use self::{
    affiliation::Affiliation,
    certificate::{Endorsement, ViewChange},
    config::{QuorumConfig, RecoveredState},
    log::{LogInit, MakeLog, Rafts},
    message::{QuorumMessage, VoterRecord},
    overview::{Absence, FoundingReport, Missing, QuorumOverview, absences, from_members, members},
    process::Quorum,
    view_config::{Digest, ViewConfig, Voter},
};

#[cfg(test)]
mod tests;
