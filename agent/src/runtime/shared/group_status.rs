//! The status of the whole group: what this member knows, and what the others report of theirs.
//!
//! Each member knows only its own callers. So who asks one member gets them all: it sends a query
//! to the members it hears, and gives them a short time to report. Whoever does not answer is
//! missing from the list of holders, and its state among the members says why.
//!
//! To list thousands of callers takes milliseconds of the mutex, and megabytes. So one question is
//! out at a time, and of one answer, the event loop's only one in a round, come the statuses of all
//! callers that had asked before the question left. A caller that asks later waits for the next: it
//! is to find what others did before it asked. However many ask, members say what they know once in
//! a round trip.

mod answer;
mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::clock::Reply;
use crate::protocol::{Command, LockName, NodeId, Settings, Time};
use crate::runtime::api::status::{HolderStatus, Status, WaiterStatus};
use crate::runtime::shared::entry::{Asker, ClientId};

/// How long a thread waits for the agent thread, beyond the time of two questions: another may be
/// out.
const GRACE: Duration = Duration::from_secs(2);
/// How long a store has to show all of its records.
const STORE_TIME: Duration = Duration::from_secs(3);
/// How many may ask at once, each of whom gets a copy of the answer in the same round of the loop:
/// more than people and monitors of one host, and few enough for copies of megabytes.
const MAX_OPEN: usize = 64;
/// And one client, so that it leaves room for others: an eighth.
const MAX_OPEN_OF_ONE: usize = 8;
const VERSION: u8 = 1;
/// What a holder or waiter takes in a report, beyond its command line.
const ITEM_LEN: usize = 64;
const HEADER_LEN: usize = 1_024;
/// What a member says of its own callers to another.
const MAX_PART: usize = Command::MAX_NOTE - HEADER_LEN;

/// Who this member is, for the status.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) me: NodeId,
    /// Who votes by this member's file, if that lists voters.
    pub(crate) file_voters: Option<BTreeSet<NodeId>>,
    pub(crate) settings: Settings,
    /// Whether a store has the locks. Then `me` means nothing.
    pub(crate) is_in_store: bool,
    pub(crate) host: String,
    /// Whether others are told callers' whole command lines, and not the programs' names alone.
    pub(crate) command_lines: bool,
    /// A copy of the descriptor by which this process has the member's place for itself.
    pub(crate) place: OwnedFd,
}

impl Identity {
    /// The member's number, as it is told; 0 where a store has the locks.
    pub(super) fn told(&self) -> u16 {
        if self.is_in_store {
            0
        } else {
            self.me.as_u16()
        }
    }
}

/// What the other members are asked, and what members were told apart from the view.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    open: Option<Question>,
    /// Who came after that was asked.
    waiting: Vec<Asker>,
    last: u64,
    disagreements: BTreeMap<NodeId, String>,
}

#[derive(Debug)]
struct Question {
    query: u64,
    missing: BTreeSet<NodeId>,
    parts: BTreeMap<NodeId, Part>,
    /// What those took on their way.
    len: usize,
    deadline: Time,
    askers: Vec<Asker>,
    /// Whether the store is being asked.
    is_surveying: bool,
}

/// How the group is, and who wants to know, none of whom has been told yet.
#[derive(Debug)]
pub(crate) struct Report {
    status: Status,
    askers: Vec<Asker>,
}

/// What members say to each other. Append only.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Note {
    Query {
        query: u64,
    },
    Report {
        query: u64,
        part: Part,
    },
    /// What time is it there? ([`crate::runtime::shared::peer_clocks`])
    AskTime {
        asked_ns: u64,
    },
    Time {
        incarnation: u64,
        reply: Reply,
    },
}

/// What one member knows of its own callers.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    host: String,
    pub(in crate::runtime::shared) locks: Vec<PartLock>,
    /// How many callers found no room.
    left_out: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime::shared) struct PartLock {
    pub(in crate::runtime::shared) name: LockName,
    pub(in crate::runtime::shared) algorithm: String,
    pub(in crate::runtime::shared) holders: Vec<HolderStatus>,
    pub(in crate::runtime::shared) waiters: Vec<WaiterStatus>,
}

impl Question {
    /// When it is answered, with what has come by then.
    fn due(&self) -> Time {
        if self.missing.is_empty() && !self.is_surveying {
            Time::ZERO
        } else {
            self.deadline
        }
    }
}

impl Report {
    /// The status, and the clients that want it; threads are told.
    pub(crate) fn finish(self) -> (Arc<Status>, Vec<(ClientId, u64)>) {
        let mut clients = Vec::new();
        let status = Arc::new(self.status);
        for asker in self.askers {
            match asker {
                // The channel has room for one answer; who asked may have given up.
                Asker::Thread(sender) => drop(sender.try_send(Arc::clone(&status))),
                Asker::Client { client, id } => clients.push((client, id)),
            }
        }
        (status, clients)
    }
}

impl Reports {
    /// The store has been asked, or does not answer.
    #[cfg(feature = "store")]
    pub(crate) fn end_survey(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_surveying = false;
        }
    }

    /// When the open question has waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.open.as_ref().map(Question::due)
    }

    /// Whoever still asks gets no answer.
    pub(crate) fn end(&mut self) {
        self.open = None;
        self.waiting.clear();
    }

    pub(crate) fn note_disagreement(&mut self, peer: NodeId, key: &str, ours: &str, theirs: &str) {
        let words = format!("{key}: {theirs} there, {ours} here");
        self.disagreements.insert(peer, words);
    }

    /// Members of a view agree.
    pub(crate) fn note_view(&mut self, members: &[NodeId]) {
        self.disagreements.retain(|peer, _| !members.contains(peer));
    }
}
