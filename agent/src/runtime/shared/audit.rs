//! Tells the audit, if there is one, what becomes of callers' requests and of the group.

use nix::unistd::geteuid;

use crate::protocol::{MembershipOverrides, Mode, NodeId, Release, Ticket};
use crate::runtime::api::audit::{AuditCaller, AuditEntry, AuditEvent, AuditRecord};
use crate::runtime::api::caller::{Caller, as_told};
use crate::runtime::os::clock::Moment;
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::entry::Entry;

impl CoreGuard<'_> {
    /// Has the audit take note of `event`, if there is an audit.
    pub(super) fn audit(&self, event: impl FnOnce(&Self) -> AuditEvent) {
        if let Some(auditor) = &self.core.auditor {
            let Moment { wall, at } = Moment::now();
            let event = event(self);
            auditor.note(AuditRecord { wall, at, event });
        }
    }

    /// Whether a trace or an audit is to have every entry, so that no lock is lent to callers.
    pub(super) fn has_every_entry(&self) -> bool {
        self.core.tracer.is_some() || self.core.auditor.is_some()
    }

    /// A caller is inside.
    pub(super) fn audit_grant(&self, ticket: Ticket, is_abandoned: bool) {
        if let Some(entry) = self.core.requests.get(&ticket) {
            self.audit(|core| AuditEvent::Granted {
                entry: core.audited(entry),
                is_abandoned,
            });
        }
    }

    /// A caller has left, if it was inside.
    pub(super) fn audit_release(&self, entry: &Entry, how: Release) {
        if entry.held.is_some() {
            self.audit(|core| {
                let entry = core.audited(entry);
                match how {
                    Release::Abandoned => AuditEvent::Abandoned { entry },
                    Release::Given => AuditEvent::Released {
                        entry,
                        is_unused: false,
                    },
                    Release::Unused => AuditEvent::Released {
                        entry,
                        is_unused: true,
                    },
                }
            });
        }
    }

    pub(super) fn audited(&self, entry: &Entry) -> AuditEntry {
        AuditEntry {
            lock: entry.lock.to_string(),
            is_shared: entry.mode == Mode::Shared,
            fence: entry.held.and_then(|held| Some(held.fence?.as_u64())),
            caller: self.audited_caller(&entry.caller),
        }
    }

    fn audited_caller(&self, caller: &Caller) -> AuditCaller {
        let is_whole = self.shared.identity.command_lines;
        AuditCaller {
            uid: caller.uid.unwrap_or_else(|| geteuid().as_raw()),
            pid: caller.pid,
            command_pid: caller.command_pid,
            command: as_told(&caller.command, is_whole).into_owned(),
        }
    }

    /// Tells each change of the members and of the voters. `by` is the operator's program, if the change was
    /// asked for at this member.
    pub(super) fn audit_changes(
        &self,
        before: &MembershipOverrides,
        now: &MembershipOverrides,
        by: Option<&Caller>,
    ) {
        let by = || by.map(|caller| self.audited_caller(caller));
        let number = |id: &NodeId| id.as_u16();
        for (id, address) in &now.added {
            if before.added.get(id) != Some(address) {
                self.audit(|_| AuditEvent::MemberAdded {
                    id: number(id),
                    address: address.clone(),
                    by: by(),
                });
            }
        }
        for id in now.removed.difference(&before.removed) {
            self.audit(|_| AuditEvent::MemberRemoved {
                id: number(id),
                by: by(),
            });
        }
        if now.voters != before.voters {
            self.audit(|_| AuditEvent::Voters {
                ids: now.voters.iter().map(number).collect(),
                by: by(),
            });
        }
    }
}
