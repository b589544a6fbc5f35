//! An operator's change of the members: asked for here, and by the core in its renewal requests until a view has it,
//! and answered then; or when that has taken too long, and nobody asks for it any more.

use std::collections::BTreeSet;

use crossbeam_channel::bounded;

use crate::protocol::{Change, Command, Input, MembershipOverrides, NodeId};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::error::{ChangeError, SessionEnd};
use crate::runtime::api::patience::{change_is_answered_within, change_takes};
use crate::runtime::frames::FromAgent;
use crate::runtime::os::clock;
use crate::runtime::shared::core_guard::{CoreGuard, Shared};
use crate::runtime::shared::entry::Asker;
use crate::runtime::shared::entry::Task;
use crate::runtime::shared::membership::{Asked, PATIENCE};

fn ids(members: &BTreeSet<NodeId>) -> String {
    let ids: Vec<String> = members.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

impl Shared {
    /// Changes who may be a member.
    pub(crate) fn change(&self, change: Change) -> Result<(), ChangeError> {
        if self.stamp.is_child() {
            return Err(ChangeError::Forked);
        }
        let (sender, receiver) = bounded(1);
        let mut core = self.lock_core();
        core.ask_change(change, Caller::current(), Asker::Thread(sender));
        core.finish_as_application();
        self.drive(None, &|| !receiver.is_empty());
        receiver
            .recv()
            .unwrap_or(Err(ChangeError::Closed(SessionEnd::Closed)))
    }
}

impl CoreGuard<'_> {
    /// Starts to change who may be a member.
    pub(crate) fn ask_change(
        &mut self,
        change: Change,
        caller: Caller,
        asker: Asker<Result<(), ChangeError>>,
    ) {
        if let Some(end) = self.end_of_session() {
            let end = ChangeError::Closed(end.clone());
            return self.answer_change(asker, Err(end));
        }
        let Some(members) = self.core.members() else {
            let why = "locks are kept in a store here, and agents need not be listed".to_owned();
            return self.answer_change(asker, Err(ChangeError::Refused(why)));
        };
        match members.membership.consider(&change) {
            Err(why) => return self.answer_change(asker, Err(ChangeError::Refused(why))),
            // A member that is in no view, or alone, may know of former views only.
            Ok(true) if self.is_current() => return self.answer_change(asker, Ok(())),
            Ok(_) => {}
        }
        let lease = self.shared.identity.settings.lease;
        let now = clock::now();
        let until = now + change_takes(lease);
        let deadline = now + change_is_answered_within(lease);
        let asked = Asked {
            change: change.clone(),
            deadline,
            caller,
            asker,
        };
        let members = self.core.members_mut();
        if let Some(before) = members.and_then(|it| it.membership.asked.replace(asked)) {
            self.answer_change(before.asker, Err(ChangeError::Replaced));
        }
        self.step(Input::Command(&Command::Change { change, until }));
    }

    /// Whether what this member knows is what the group has agreed on, as far as it can tell.
    fn is_current(&self) -> bool {
        let me = self.shared.identity.me;
        let members = self.core.members();
        let is_in_view = members.is_some_and(|members| members.node.is_in_view(me));
        is_in_view && self.missing().is_empty()
    }

    /// A view says who may be a member.
    pub(crate) fn read_book(&mut self, overrides: MembershipOverrides) {
        let is_removed = overrides.removed.contains(&self.shared.identity.me);
        let Some(membership) = self.core.members().map(|members| &members.membership) else {
            return;
        };
        let were_others = membership.overrides.voters != overrides.voters;
        if membership.has_read {
            let asked = membership.asked.as_ref();
            let asked = asked.filter(|asked| overrides.has(&asked.change));
            let before = &membership.overrides;
            self.audit_changes(before, &overrides, asked.map(|asked| &asked.caller));
        }
        let Some(members) = self.core.members_mut() else {
            return;
        };
        let membership = &mut members.membership;
        membership.read(overrides);
        if let Some(listed) = &self.shared.identity.file_voters
            && were_others
            && membership.is_other_than_agreed(listed)
        {
            let agreed = &membership.overrides.voters;
            tracing::warn!(
                event = "voters-differ",
                "this file lists other voters ({}) than the group has agreed on ({}), and is not \
                 asked any more: to change who votes, run 'distlock members voters ID…'",
                ids(listed),
                ids(agreed)
            );
        }
        if let Some(transport) = &mut members.transport {
            transport.read(&membership.known);
        }
        let done = membership
            .asked
            .take_if(|asked| membership.overrides.has(&asked.change));
        if let Some(done) = done {
            self.answer_change(done.asker, Ok(()));
        }
        if is_removed {
            self.end(SessionEnd::Removed);
        }
    }

    /// The agent has begun. If no view comes for some leases, the voters that this host's file leaves out may be why.
    pub(crate) fn expect_view(&mut self) {
        let at = clock::now() + self.shared.identity.settings.lease * PATIENCE;
        if let Some(members) = self.core.members_mut() {
            members.membership.look_at = Some(at);
        }
    }

    /// A view was proposed with members whom this host's file leaves out.
    pub(in crate::runtime::shared) fn note_unlisted(&mut self, unlisted: &[NodeId]) {
        if let Some(members) = self.core.members_mut() {
            members.membership.note_unlisted(unlisted);
        }
    }

    /// Looks for members that this host's file leaves out: those of a view, `view`, and the voters, which the view may
    /// be without.
    pub(in crate::runtime::shared) fn look_for_unlisted(&mut self, view: &[NodeId]) {
        if let Some(members) = self.core.members_mut() {
            let voters = members.node.quorum(clock::now()).voters;
            members.membership.note_members(view, &voters);
        }
    }

    /// Looks for voters that are not listed here, if no view has come for so long that it is time.
    pub(crate) fn look_for_unlisted_voters(&mut self) {
        let now = clock::now();
        if let Some(members) = self.core.members_mut()
            && members
                .membership
                .look_at
                .take_if(|at| *at <= now)
                .is_some()
        {
            let voters = members.node.quorum(now).voters;
            members.membership.note_unlisted(&voters);
        }
    }

    /// Only the files say who is a member.
    pub(crate) fn refuse_change(&mut self) {
        let members = self.core.members_mut();
        if let Some(asked) = members.and_then(|it| it.membership.asked.take()) {
            self.answer_change(asked.asker, Err(ChangeError::FilesOnly));
        }
    }

    /// Ends a change that has taken too long.
    pub(crate) fn expire_change(&mut self) {
        let now = clock::now();
        let is_due = |asked: &mut Asked| asked.deadline <= now;
        let members = self.core.members_mut();
        if let Some(due) = members.and_then(|it| it.membership.asked.take_if(is_due)) {
            let missing = self.missing();
            self.answer_change(due.asker, Err(ChangeError::NoQuorum { missing }));
        }
    }

    /// The session is over.
    pub(crate) fn end_change(&mut self, end: &SessionEnd) {
        let members = self.core.members_mut();
        if let Some(asked) = members.and_then(|it| it.membership.asked.take()) {
            self.answer_change(asked.asker, Err(ChangeError::Closed(end.clone())));
        }
    }

    fn answer_change(
        &mut self,
        asker: Asker<Result<(), ChangeError>>,
        outcome: Result<(), ChangeError>,
    ) {
        match asker {
            Asker::Thread(sender) => drop(sender.try_send(outcome)),
            Asker::Client { client, id } => {
                let message = FromAgent::Changed { id, outcome };
                self.core.tasks.push_back(Task::Tell { client, message });
            }
        }
    }
}
