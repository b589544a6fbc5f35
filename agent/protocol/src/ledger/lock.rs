//! What the ledger knows of one lock: the record, what is under way, and its callers' requests.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::leader::Observer;
use super::record::{LockRecord, SessionName};
use super::store::{Key, OpId, Version};
use crate::api::Wait;
use crate::ids::{Fence, Ticket};
use crate::lock::{Mode, Previous, Release};
use crate::time::Time;

/// One lock.
#[derive(Clone, Debug, Hash)]
pub(super) struct Lock {
    pub(super) key: Key,
    /// The record as it is known.
    pub(super) seen: Option<Seen>,
    /// The read under way.
    pub(super) reading: Option<OpId>,
    /// The write under way: what it would make of the record.
    pub(super) writing: Option<LockRecord>,
    /// Whether a write on the version that was seen may have been done, or may be done later.
    pub(super) is_unsettled: bool,
    /// Whether the record is to be read, whatever is known of it.
    pub(super) is_doubted: bool,
    /// No operation is submitted before.
    pub(super) quiet_until: Time,
    /// The requests of this agent's callers, in the order in which they came.
    pub(super) requests: BTreeMap<u64, Request>,
    /// The sessions that are watched for this lock's sake.
    pub(super) watched: BTreeSet<SessionName>,
    /// The highest fence that the record is known to have had.
    pub(super) highest_fence: u64,
    /// When the last claim of this agent was taken out.
    pub(super) left_at: Option<Time>,
    /// What was told of who is inside, if somebody wants to know.
    pub(super) observer: Option<Observer>,
}

/// A record as it was at some time.
#[derive(Clone, Debug, Hash)]
pub(super) struct Seen {
    /// `None` if there is none.
    pub(super) version: Option<Version>,
    pub(super) record: LockRecord,
    /// Whether the store said so in answer to a write, so that every earlier write of this agent is either
    /// in it or will never be.
    pub(super) is_fresh: bool,
    /// When it was heard of.
    pub(super) at: Time,
    /// The operation that showed it; 0 of a hint.
    pub(super) by: OpId,
}

/// What a caller wants.
#[derive(Clone, Debug, Hash)]
pub(super) struct Request {
    pub(super) ticket: Ticket,
    pub(super) mode: Mode,
    pub(super) wait: Wait,
    /// With how many permits the caller says that the lock is served.
    pub(super) permits: Option<NonZeroU32>,
    pub(super) since: Time,
    /// The last operation that was submitted before.
    pub(super) after: OpId,
    pub(super) caller: Option<(u32, String)>,
    pub(super) state: State,
    /// Whether a write with its claim was ever submitted in this session.
    pub(super) is_written: bool,
    /// The last operation that was submitted before its claim was seen inside: what an earlier read shows
    /// says nothing of it.
    pub(super) inside_from: OpId,
}

/// What a record has no more though it was seen inside.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Those of whom the callers were told.
    pub(super) told: Vec<Ticket>,
    pub(super) is_any: bool,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Its claim is to come into the record, or waits there.
    Waiting,
    /// Its claim was seen inside; the caller is not told, for want of a lease.
    Inside { fence: Fence, previous: Previous },
    /// The caller was told.
    Granted,
    /// Its claim is to be taken out.
    Leaving(Release),
}

impl State {
    /// Whether its claim is inside, as far as this agent knows, and stays there.
    pub(super) const fn is_inside(self) -> bool {
        matches!(self, Self::Inside { .. } | Self::Granted)
    }

    /// Whether its caller waits for an answer.
    pub(super) const fn is_undecided(self) -> bool {
        matches!(self, Self::Waiting | Self::Inside { .. })
    }
}

impl Lock {
    pub(super) const fn new(key: Key) -> Self {
        Self {
            key,
            seen: None,
            reading: None,
            writing: None,
            is_unsettled: false,
            is_doubted: false,
            quiet_until: Time::ZERO,
            requests: BTreeMap::new(),
            watched: BTreeSet::new(),
            highest_fence: 0,
            left_at: None,
            observer: None,
        }
    }

    /// Whether a caller waits for it.
    pub(super) fn is_waited(&self) -> bool {
        let mut requests = self.requests.values();
        requests.any(|request| request.state == State::Waiting)
    }

    /// Whether claims of this agent are inside, as far as it knows.
    pub(super) fn is_held(&self) -> bool {
        let mut requests = self.requests.values();
        requests.any(|request| request.state.is_inside())
    }

    /// The session has ended: claims that it has in the record are another's now.
    pub(super) fn forget_session(&mut self) {
        let is_leaving = |request: &Request| matches!(request.state, State::Leaving(_));
        self.requests.retain(|_, request| !is_leaving(request));
        for request in self.requests.values_mut() {
            request.state = State::Waiting;
            request.is_written = false;
        }
        self.left_at = None;
    }

    /// Grants of which no caller was told have to be seen again.
    pub(super) fn doubt_grants(&mut self) {
        for request in self.requests.values_mut() {
            if matches!(request.state, State::Inside { .. }) {
                request.state = State::Waiting;
            }
        }
    }

    /// What `record` lacks, which the operation `op` has shown, of what was seen inside before that. Those
    /// of whom no caller was told ask again.
    pub(super) fn missing(
        &mut self,
        session: &SessionName,
        record: Option<&LockRecord>,
        op: OpId,
    ) -> Missing {
        let mut missing = Missing::default();
        for (number, request) in &mut self.requests {
            let claim = record.and_then(|record| record.find(session, *number));
            let is_there = claim.is_some_and(|(_, is_inside)| is_inside);
            if is_there || !request.state.is_inside() || op <= request.inside_from {
                continue;
            }
            missing.is_any = true;
            match request.state {
                State::Inside { .. } => request.state = State::Waiting,
                _ => missing.told.push(request.ticket),
            }
        }
        missing
    }

    /// Whether nothing but a look at it is wanted, and nothing can come after.
    pub(super) fn is_settled(&self) -> bool {
        self.requests.is_empty() && self.writing.is_none() && !self.is_unsettled
    }
}
