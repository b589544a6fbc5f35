//! What a client has asked for, and has not been answered.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::loan::ClientLoan;
use crate::protocol::{LockName, Time};
use crate::runtime::api::description::Description;
use crate::runtime::api::error::{ChangeError, SessionEnd, StatusError};
use crate::runtime::api::metrics::Metrics;
use crate::runtime::api::status::Status;
use crate::runtime::request::Request;
use crate::runtime::request::session::Session;

#[derive(Debug)]
pub(super) struct Table {
    pub(super) last: u64,
    /// What is granted now is valid in it, and its number.
    pub(super) session: (u64, Arc<Session>),
    pub(super) requests: BTreeMap<u64, Arc<Request>>,
    /// Cancelled, and not answered in time: if a grant comes, it goes back.
    pub(super) abandoned: BTreeSet<u64>,
    /// Asked for with a lifeline, and not answered.
    pub(super) wanting: BTreeSet<u64>,
    pub(super) questions: BTreeMap<u64, Sender<Result<Answer, StatusError>>>,
    /// What is entered without the agent while that lends it.
    pub(super) loans: BTreeMap<LockName, Weak<ClientLoan>>,
    pub(super) listens: bool,
    pub(super) ended: Option<SessionEnd>,
}

/// What an agent answers to a question.
#[derive(Debug)]
pub(super) enum Answer {
    Status(Box<Status>),
    Description(Description),
    Changed(Result<(), ChangeError>),
    Metrics(Box<Metrics>),
}

impl Table {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            last: 0,
            session: (0, Session::new(lease)),
            requests: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            wanting: BTreeSet::new(),
            questions: BTreeMap::new(),
            loans: BTreeMap::new(),
            listens: false,
            ended: None,
        }
    }

    /// The lease of the session `number` ends at `until`; the sessions that this changes.
    pub(super) fn lease(&mut self, number: u64, until: Time, lease: Duration) -> Vec<Arc<Session>> {
        let mut changed = Vec::new();
        if self.ended.is_some() {
            return changed;
        }
        if number != self.session.0 {
            let next = (number, Session::new(lease));
            let (_, last) = mem::replace(&mut self.session, next);
            last.end();
            changed.push(last);
        }
        self.session.1.renew(until);
        changed.push(Arc::clone(&self.session.1));
        changed
    }

    /// What is entered without the agent. To be dropped without the table's mutex, which its end takes.
    pub(super) fn open_loans(&self) -> Vec<Arc<ClientLoan>> {
        self.loans.values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn answer(&mut self, id: u64, answer: Result<Answer, StatusError>) {
        if let Some(question) = self.questions.remove(&id) {
            // The channel has room for one answer; who asked may have given up.
            let _ = question.try_send(answer);
        }
    }
}
