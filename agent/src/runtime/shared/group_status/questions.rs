//! The question that is out to the other members, and those who wait for its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;

use crate::protocol::{Command, Input, NodeId};
use crate::runtime::api::error::StatusError;
use crate::runtime::api::status::{REPORT_TIME, Status};
use crate::runtime::frames::MAX_FROM_AGENT;
use crate::runtime::os::clock;
use crate::runtime::shared::core_guard::{CoreGuard, Shared};
use crate::runtime::shared::entry::Asker;
use crate::runtime::shared::group_status::{
    GRACE, HEADER_LEN, ITEM_LEN, MAX_OPEN, MAX_OPEN_OF_ONE, MAX_PART, Note, Part, Question, Report,
    STORE_TIME, VERSION,
};

impl Shared {
    /// How long the others, or the store, have to answer.
    fn report_time(&self) -> Duration {
        if self.identity.is_in_store {
            STORE_TIME
        } else {
            REPORT_TIME
        }
    }

    /// How the group is.
    pub(crate) fn status(&self) -> Result<Status, StatusError> {
        if self.stamp.is_child() {
            return Err(StatusError::Forked);
        }
        let (sender, receiver) = bounded(1);
        let mut core = self.lock_core();
        if let Some(end) = core.end_of_session() {
            return Err(StatusError::Closed(end.clone()));
        }
        if core.heard().is_empty() && !self.identity.is_in_store {
            // Nobody is to be waited for, the event loop neither.
            let report = core.report(BTreeMap::new(), 0, Vec::new());
            core.finish_as_application();
            return Ok(report.status);
        }
        let asked = core.ask_status(Asker::Thread(sender));
        core.finish_as_application();
        asked?;
        let deadline = clock::now() + 2 * self.report_time() + GRACE;
        self.drive(Some(deadline), &|| !receiver.is_empty());
        match receiver.recv_timeout(deadline.since(clock::now())) {
            Ok(status) => Ok(Arc::unwrap_or_clone(status)),
            // The end of the session drops who asks.
            Err(_) => Err(match self.lock_core().end_of_session() {
                Some(end) => StatusError::Closed(end.clone()),
                None => StatusError::TimedOut,
            }),
        }
    }
}

impl CoreGuard<'_> {
    /// Starts to find out how the group is, or has it found out next.
    pub(crate) fn ask_status(&mut self, asker: Asker) -> Result<(), StatusError> {
        let reports = &mut self.core.reports;
        let asked = reports.open.iter().flat_map(|open| &open.askers);
        let all = asked.chain(&reports.waiting);
        let of_one = all.clone().filter(|other| other.is_same(&asker));
        if all.clone().count() >= MAX_OPEN || of_one.count() >= MAX_OPEN_OF_ONE {
            return Err(StatusError::Limit);
        }
        reports.waiting.push(asker);
        self.ask_members();
        Ok(())
    }

    /// Asks the others for all who wait, unless something is asked already or nobody waits.
    fn ask_members(&mut self) {
        let reports = &self.core.reports;
        if reports.open.is_some() || reports.waiting.is_empty() {
            return;
        }
        let heard = self.heard();
        let reports = &mut self.core.reports;
        reports.last += 1;
        let query = reports.last;
        reports.open = Some(Question {
            query,
            missing: heard.clone(),
            parts: BTreeMap::new(),
            len: 0,
            deadline: clock::now() + self.shared.report_time(),
            askers: mem::take(&mut reports.waiting),
            is_surveying: self.shared.identity.is_in_store,
        });
        #[cfg(feature = "store")]
        self.begin_survey();
        for to in heard {
            self.send_note(to, &Note::Query { query });
        }
    }

    /// The other members that would answer.
    pub(in crate::runtime::shared) fn heard(&self) -> BTreeSet<NodeId> {
        let members = self.core.members().into_iter();
        let ids = members.flat_map(|members| members.membership.members().keys().copied());
        ids.filter(|&id| id != self.shared.identity.me)
            .filter(|&id| self.is_heard(id))
            .collect()
    }

    /// Handles another member's note. What cannot be read is dropped: a member of another version
    /// is missing from the report, as one that does not answer.
    pub(crate) fn handle_note(&mut self, from: NodeId, bytes: &[u8]) {
        let Some((&VERSION, body)) = bytes.split_first() else {
            self.note_is_malformed();
            return;
        };
        match postcard::from_bytes(body) {
            Ok(Note::Query { query }) => {
                let part = self.own_part(MAX_PART);
                self.send_note(from, &Note::Report { query, part });
            }
            Ok(Note::Report { query, part }) => {
                let open = self.core.reports.open.as_mut();
                if let Some(open) = open.filter(|open| open.query == query)
                    && open.missing.remove(&from)
                {
                    open.parts.insert(from, part);
                    open.len += bytes.len();
                }
            }
            Ok(Note::AskTime { asked_ns }) => self.answer_time(from, asked_ns),
            Ok(Note::Time { incarnation, reply }) => self.hear_time(from, incarnation, reply),
            Err(error) => {
                self.note_is_malformed();
                tracing::debug!("a note of member {from} cannot be read: {error}");
            }
        }
    }

    fn note_is_malformed(&mut self) {
        if let Some(members) = self.core.members_mut() {
            members.notes_malformed += 1;
        }
    }

    /// Whether all have answered what is asked of the group, or had their time.
    pub(crate) fn has_report(&self) -> bool {
        let due = self.core.reports.next_deadline();
        due.is_some_and(|due| due <= clock::now())
    }

    /// What is known of the group, if there is a report; the next question is out then, if somebody
    /// waits for that.
    pub(crate) fn take_report(&mut self) -> Option<Report> {
        let now = clock::now();
        let due = |open: &mut Question| open.due() <= now;
        let open = self.core.reports.open.take_if(due)?;
        let report = self.report(open.parts, open.len, open.askers);
        self.ask_members();
        Some(report)
    }

    /// All that is known, with these reports of others, which took so many bytes.
    fn report(
        &mut self,
        mut parts: BTreeMap<NodeId, Part>,
        len: usize,
        askers: Vec<Asker>,
    ) -> Report {
        // No more than a message has room for; of this member at least what it would tell others.
        let members = self
            .core
            .members()
            .map_or(0, |it| it.membership.members().len());
        let members = members * 2 * ITEM_LEN;
        let room = MAX_FROM_AGENT.saturating_sub(len + members + HEADER_LEN);
        let room = room.max(MAX_PART);
        parts.insert(self.shared.identity.me, self.own_part(room));
        Report {
            status: self.put_together(parts),
            askers,
        }
    }

    pub(crate) fn send_note(&mut self, to: NodeId, note: &Note) {
        match postcard::to_extend(note, vec![VERSION]) {
            Ok(bytes) if bytes.len() <= Command::MAX_NOTE => {
                self.step(Input::Command(&Command::Note { to, bytes }));
            }
            Ok(bytes) => tracing::error!(
                event = "note-failed",
                "a note of {} bytes is too long",
                bytes.len()
            ),
            Err(error) => {
                tracing::error!(event = "note-failed", "a note cannot be written: {error}")
            }
        }
    }
}
