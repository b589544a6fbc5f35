//! What a [`RaftLog`](super::RaftLog) needs of a Raft library: a thin face, so that the rules
//! around the library, and what they are tested with, are the same for all of its versions.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::VoterId;

mod noraft;

pub use noraft::Noraft;

/// A place in the log. Of two logs the one with the greater last position is the newer one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// The term of the entry there.
    pub term: u64,
    /// Its number, from 1; 0 is before the first.
    pub index: u64,
}

/// Who votes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Voters {
    /// Of these a majority.
    pub now: BTreeSet<VoterId>,
    /// And of these too, while they are about to take over; else nobody.
    pub next: BTreeSet<VoterId>,
}

impl Voters {
    /// These alone.
    pub const fn only(now: BTreeSet<VoterId>) -> Self {
        Self {
            now,
            next: BTreeSet::new(),
        }
    }

    /// Whether a voter is among them.
    pub fn contains(&self, voter: VoterId) -> bool {
        self.now.contains(&voter) || self.next.contains(&voter)
    }

    /// All of them, each once.
    pub fn all(&self) -> impl Iterator<Item = VoterId> + '_ {
        self.now.union(&self.next).copied()
    }

    /// Whether others are about to take over.
    pub fn moving(&self) -> bool {
        !self.next.is_empty()
    }

    /// Whether `holds` is true of a majority, and of one of those who take over.
    pub fn majority(&self, mut holds: impl FnMut(VoterId) -> bool) -> bool {
        let mut most = |voters: &BTreeSet<VoterId>| {
            voters.iter().filter(|voter| holds(**voter)).count() * 2 > voters.len()
        };
        most(&self.now) && (self.next.is_empty() || most(&self.next))
    }
}

/// An entry of the log, as the library knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A leader's first.
    Term(u64),
    /// Other voters, from this entry on.
    Voters(Voters),
    /// A view, which the library does not know.
    View,
}

/// What libraries say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Vote for me; my log ends here.
    Vote {
        /// Where.
        last: Position,
    },
    /// The answer.
    Voted {
        /// Whether it is yes.
        granted: bool,
    },
    /// From the leader: append this.
    Append {
        /// All up to this index is committed.
        commit: u64,
        /// What comes before the entries.
        prev: Position,
        /// The entries; none is a heartbeat.
        entries: Vec<Entry>,
    },
    /// The answer: my log ends here.
    Appended {
        /// Where.
        last: Position,
    },
}

/// What the library wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Wind up the clock.
    Timer,
    /// Send this.
    Send {
        /// To whom.
        to: VoterId,
        /// In which term.
        term: u64,
        /// What.
        call: Call,
    },
    /// Send what is decided, for the entries are gone.
    Snapshot {
        /// To whom.
        to: VoterId,
    },
}

/// What a voter does in its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Listens.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
}

/// The library cannot go on: what it was told contradicts what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction;

/// One voter's Raft.
///
/// Its log is short, and begins behind the last thing committed: whoever drives it takes what is
/// committed away at once, with [`Library::compact`].
pub trait Library: Sized {
    /// A voter with this memory: a log of `entries` behind `snapshot`, where `voters` voted.
    fn restore(
        me: VoterId,
        term: u64,
        vote: Option<VoterId>,
        snapshot: Position,
        voters: &Voters,
        entries: &[Entry],
    ) -> Self;

    /// The term.
    fn term(&self) -> u64;
    /// Whom this voter voted for, or follows, in it.
    fn vote(&self) -> Option<VoterId>;
    /// What it does in it.
    fn role(&self) -> Role;
    /// All up to this index is committed.
    fn committed(&self) -> u64;
    /// What comes before the first entry.
    fn snapshot(&self) -> Position;
    /// The last entry's place, or what comes before the first if there is none.
    fn last(&self) -> Position;
    /// The term of the entry at `index`, or of what comes before the first.
    fn term_at(&self, index: u64) -> Option<u64>;
    /// The entry at `index`.
    fn entry_at(&self, index: u64) -> Option<Entry>;
    /// Who votes after the entry at `index`.
    fn voters_at(&self, index: u64) -> Option<Voters>;
    /// Who votes after the last entry.
    fn voters(&self) -> Voters;

    /// A call has come.
    ///
    /// # Errors
    /// If the log cannot be right.
    fn receive(&mut self, from: VoterId, term: u64, call: Call) -> Result<(), Contradiction>;
    /// The clock has run down: ask for votes, or as the leader send a heartbeat.
    fn timeout(&mut self);
    /// As the leader, appends a view. Whether it did.
    fn propose_view(&mut self) -> bool;
    /// As the leader, begins to move to other voters. Whether it did.
    fn propose_voters(&mut self, next: &BTreeSet<VoterId>) -> bool;
    /// Begins the log behind `position`, where `voters` vote: all up to there is committed, here
    /// or elsewhere. Whether it could.
    fn compact(&mut self, position: Position, voters: &Voters) -> bool;
    /// Appends to `outputs` what is to be done.
    fn outputs(&mut self, outputs: &mut Vec<Output>);
}
