//! The status of a group whose locks a store has: what its records say, page by page, and what this agent
//! knows of its own callers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{PAGES, StoreSide};
use crate::protocol::ledger::survey::{Life, Overview, Party, Survey};
use crate::protocol::ledger::{OpId, Reply};
use crate::protocol::{Fence, NodeId};
use crate::runtime::api::status::{
    HolderStatus, LockStatus, QuorumStatus, Status, StoreStatus, WaiterStatus,
};
use crate::runtime::os::clock;
use crate::runtime::shared::arbiter::Arbiter;
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::group_status::Part;

impl StoreSide {
    /// Asks for the next page of what the store has, if somebody wants it, and there is a connection.
    pub(super) fn survey(&mut self) {
        if !self.is_connected {
            return;
        }
        if let Some(op) = self.survey.as_mut().and_then(Survey::op) {
            self.last_page += 1;
            let id = OpId(PAGES | self.last_page);
            self.client.submit(clock::now(), id, op);
        }
    }

    /// A page has come, or none does.
    pub(super) fn page(&mut self, id: OpId, reply: Reply) {
        // A page that an earlier survey asked for does not belong to this survey.
        let is_awaited = id == OpId(PAGES | self.last_page);
        let Some(survey) = self.survey.as_mut().filter(|_| is_awaited) else {
            return;
        };
        if reply == Reply::Unknown {
            // From the beginning, with the next connection.
            *survey = survey.again();
            return;
        }
        if let Err(why) = survey.reply(reply) {
            tracing::debug!("the store's records cannot be listed: {why}");
        }
        if survey.is_over() {
            self.overview = self.survey.take().and_then(Survey::finish);
        } else {
            self.survey();
        }
    }

    /// What is known of the store, and of what it has: the latter once.
    fn status(&mut self) -> (StoreStatus, Option<Overview>) {
        self.survey = None;
        let overview = self.overview.take();
        let unreadable = overview.iter().flat_map(|overview| &overview.unreadable);
        let status = StoreStatus {
            at: self.at.to_string(),
            ok: overview.is_some(),
            reason: match &overview {
                Some(_) => String::new(),
                None => match self.ledger.reason() {
                    "" => "it does not answer".to_owned(),
                    reason => reason.to_owned(),
                },
            },
            keeps: self.facts.as_ref().map(|facts| !facts.may_forget),
            forgot: self.forgot,
            unreadable: unreadable
                .map(|(key, error)| format!("{key}: {error}"))
                .collect(),
        };
        (status, overview)
    }
}

impl CoreGuard<'_> {
    /// Has everything read that the group has in the store.
    pub(in crate::runtime::shared) fn begin_survey(&mut self) {
        let Arbiter::Store(side) = &mut self.core.arbiter else {
            return;
        };
        side.overview = None;
        side.survey = Some(Survey::new(&self.shared.identity.settings.group));
        side.survey();
        self.guarded(Self::go_around);
    }

    /// The status, where a store decides: what the store has, and more of this agent's own callers.
    pub(in crate::runtime::shared) fn put_store_together(
        &mut self,
        parts: BTreeMap<NodeId, Part>,
    ) -> Status {
        let mut own = BTreeMap::new();
        for lock in parts.into_values().flat_map(|part| part.locks) {
            own.insert(lock.name.clone(), lock);
        }
        let clients = self.clients_status();
        let Arbiter::Store(side) = &mut self.core.arbiter else {
            return Status::default();
        };
        let (store, overview) = side.status();
        let overview = overview.unwrap_or_default();
        let session = side.ledger.session();
        let names: BTreeSet<_> = own.keys().chain(overview.locks.keys()).cloned().collect();
        let locks = names.into_iter().map(|name| {
            let (mut holders, mut waiters) = match own.remove(&name) {
                Some(lock) => (lock.holders, lock.waiters),
                None => (Vec::new(), Vec::new()),
            };
            let is_others =
                |party: &Party<'_>| Some(party.session) != session && party.life != Life::Dead;
            holders.extend(overview.inside(&name).filter(is_others).map(holder));
            let mut queue = Vec::new();
            for party in overview.waiting(&name) {
                // This agent knows more of its own callers.
                let its = |waiter: &WaiterStatus| Some(waiter.pid) == party.pid;
                match waiters.iter().position(its) {
                    Some(place) if !is_others(&party) => queue.push(waiters.remove(place)),
                    _ if is_others(&party) => queue.push(waiter(party)),
                    _ => {}
                }
            }
            queue.append(&mut waiters);
            LockStatus {
                name: name.to_string(),
                algorithm: "ledger".to_owned(),
                quarantined: false,
                holders,
                waiters: queue,
            }
        });
        let locks = locks.filter(|lock| !lock.holders.is_empty() || !lock.waiters.is_empty());
        Status {
            group: self.shared.identity.settings.group.clone(),
            quorum: QuorumStatus {
                ok: store.ok,
                founded: true,
                ..QuorumStatus::default()
            },
            locks: locks.collect(),
            clients,
            store: Some(store),
            ..Status::default()
        }
    }
}

/// A holder, as the store's record shows it.
fn holder(party: Party<'_>) -> HolderStatus {
    HolderStatus {
        member: 0,
        host: party.host.to_owned(),
        pid: party.pid.unwrap_or_default(),
        command: party.command.unwrap_or_default().to_owned(),
        command_pid: None,
        since: party.fence.map_or_else(String::new, since),
        fence: party.fence.map(Fence::as_u64),
    }
}

/// When a fence was given: it is the time, in seconds with 32 binary places, unless one before it was
/// higher.
fn since(fence: Fence) -> String {
    let fence = fence.as_u64();
    let nanos = ((fence & 0xFFFF_FFFF) * 1_000_000_000) >> 32;
    let time = Duration::from_secs(fence >> 32) + Duration::from_nanos(nanos);
    clock::rfc3339(clock::since_2025(time))
}

/// One that waits, as the store's record shows it.
fn waiter(party: Party<'_>) -> WaiterStatus {
    WaiterStatus {
        member: 0,
        host: party.host.to_owned(),
        pid: party.pid.unwrap_or_default(),
        since: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_says_when_it_was_given() {
        for (seconds, fraction, time) in [
            (0, 1 << 30, "2025-01-01T00:00:00.250Z"),
            (86_399, 0xFFFF_FFFF, "2025-01-01T23:59:59.999Z"),
            (86_400, 1 << 31, "2025-01-02T00:00:00.500Z"),
        ] {
            let fence = Fence::new((seconds << 32) | fraction).unwrap();
            assert_eq!(since(fence), time);
        }
    }
}
