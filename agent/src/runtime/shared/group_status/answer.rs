//! What this member knows of the group and of its own callers, put together.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::node::PeerState;
use crate::protocol::{Absence, Algorithm, Fence, LockName, Missing, NodeId, QuorumOverview};
use crate::runtime::api::caller::as_told;
use crate::runtime::api::status::{
    ClientsStatus, HolderStatus, LockStatus, MemberState, MemberStatus, Protection, QuorumStatus,
    Status, WaiterStatus,
};
use crate::runtime::net::address::Address;
use crate::runtime::os::clock;
use crate::runtime::shared::arbiter::Members;
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::entry::Listed;
use crate::runtime::shared::group_status::{ITEM_LEN, Identity, Part, PartLock};

impl CoreGuard<'_> {
    pub(super) fn put_together(&mut self, parts: BTreeMap<NodeId, Part>) -> Status {
        match self.core.members() {
            Some(its) => self.put_members_together(its, parts),
            #[cfg(feature = "store")]
            None => self.put_store_together(parts),
            #[cfg(not(feature = "store"))]
            None => Status::default(),
        }
    }

    fn put_members_together(&self, its: &Members, parts: BTreeMap<NodeId, Part>) -> Status {
        let identity = &self.shared.identity;
        let now = clock::now();
        let votes = its.node.voters(now);
        let quorum = its.node.quorum(now);
        let members = its.membership.members().iter();
        let mut members: Vec<_> = members
            .map(|(&id, address)| self.member(its, (id, address), &votes, &quorum))
            .collect();
        let in_quarantine = its.node.locks().filter(|lock| lock.is_quarantined);
        let in_quarantine: BTreeSet<_> = in_quarantine.map(|lock| lock.name).collect();
        let mut locks: BTreeMap<LockName, LockStatus> = BTreeMap::new();
        for (id, part) in parts {
            if part.left_out > 0
                && let Some(member) = members.iter_mut().find(|m| m.id == id.as_u16())
            {
                member.detail = format!("{} more callers of it are not listed", part.left_out);
            }
            for lock in part.locks {
                let name = lock.name.to_string();
                let quarantined = in_quarantine.contains(&lock.name);
                let status = locks.entry(lock.name).or_insert_with(|| LockStatus {
                    name,
                    algorithm: lock.algorithm,
                    quarantined,
                    holders: Vec::new(),
                    waiters: Vec::new(),
                });
                status.holders.extend(lock.holders);
                status.waiters.extend(lock.waiters);
            }
        }
        let mut locks: Vec<_> = locks.into_values().collect();
        for lock in &mut locks {
            // No member knows the order over all members; the clocks of well-kept hosts tell it
            // nearly. The sort is stable: within one member it is the order of its queue.
            lock.waiters.sort_by(|a, b| a.since.cmp(&b.since));
            lock.holders.sort_by_key(|holder| holder.fence);
        }
        let group = identity.settings.group.clone();
        let mut quorum = QuorumStatus::of(quorum, now);
        if let Some(listed) = &identity.file_voters
            && its.membership.is_other_than_agreed(listed)
        {
            quorum.file_voters = listed.iter().map(|id| id.as_u16()).collect();
        }
        quorum.unlisted = its.membership.unlisted().map(|id| id.as_u16()).collect();
        Status {
            group,
            member: identity.told(),
            quorum,
            failure: identity.settings.failure.to_string(),
            epoch: its.node.view().map_or(0, |view| view.epoch.as_u32()),
            members,
            locks,
            multicast: self.multicast(),
            protection: Some(self.protection(its)),
            clients: self.clients_status(),
            store: None,
        }
    }

    /// The programs that use this agent.
    pub(in crate::runtime::shared) fn clients_status(&self) -> Option<ClientsStatus> {
        let clients = self.core.clients.clone();
        clients.map(|clients| ClientsStatus {
            waits_for_former: self.core.held_back.is_some(),
            ..clients
        })
    }

    /// `votes`: those who are to vote, and whether each does.
    fn member(
        &self,
        its: &Members,
        (id, address): (NodeId, &Address),
        votes: &BTreeMap<NodeId, bool>,
        quorum: &QuorumOverview,
    ) -> MemberStatus {
        let state = self.member_state(id);
        let is_there = matches!(state, MemberState::Alive | MemberState::Joining);
        let has_lost_state = |it: &Missing| it.member == id && it.why == Absence::StateLost;
        let fault = self.fault_of(id);
        let detail = match self.core.reports.disagreements.get(&id) {
            // One that has come back with another file may agree.
            Some(words) if state == MemberState::Refused => words.clone(),
            _ if fault.is_some() => fault.unwrap_or_default(),
            _ if quorum.missing.iter().any(has_lost_state) => "has lost its state".to_owned(),
            _ if is_there && votes.get(&id) == Some(&false) => "does not vote yet".to_owned(),
            _ if state == MemberState::Suspect => silence(its, id),
            _ => its.peer_clocks.complaint(id).unwrap_or_default(),
        };
        MemberStatus {
            id: id.as_u16(),
            address: address.to_string(),
            state,
            detail,
        }
    }

    /// What this member knows of its own callers, in about `room` bytes.
    pub(super) fn own_part(&self, room: usize) -> Part {
        let identity = &self.shared.identity;
        let mut part = Part {
            host: identity.host.clone(),
            ..Part::default()
        };
        let (algorithms, default) = (self.algorithms(), identity.settings.algorithm);
        let mut locks: BTreeMap<&LockName, PartLock> = BTreeMap::new();
        let mut left = room.saturating_sub(part.host.len());
        let entries = self.core.requests.values().map(Listed::from);
        let entries = entries.chain(self.listed_by_loan());
        let (held, waiting): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.held.is_some());
        // Holders first: if there is no room for all, they matter more.
        for entry in held.iter().chain(&waiting) {
            let known = locks.contains_key(entry.lock);
            let name_len = if known {
                0
            } else {
                entry.lock.as_bytes().len() + ITEM_LEN
            };
            let command = as_told(&entry.caller.command, identity.command_lines);
            let len = ITEM_LEN + identity.host.len() + command.len() + name_len;
            let Some(rest) = left.checked_sub(len) else {
                part.left_out += 1;
                continue;
            };
            left = rest;
            let lock = locks.entry(entry.lock).or_insert_with(|| PartLock {
                name: entry.lock.clone(),
                algorithm: algorithms.get(entry.lock).unwrap_or(&default).to_string(),
                holders: Vec::new(),
                waiters: Vec::new(),
            });
            list(lock, entry, identity);
        }
        part.locks = locks.into_values().collect();
        part
    }
}

/// For how long nothing was heard from that member.
fn silence(its: &Members, id: NodeId) -> String {
    let heard = its.node.last_heard(id);
    let silent = heard.map(|heard| clock::now().since(heard).as_secs());
    silent.map_or_else(String::new, |seconds| format!("silent for {seconds} s"))
}

/// Adds a caller to the holders or the waiters.
fn list(lock: &mut PartLock, entry: &Listed<'_>, identity: &Identity) {
    let (member, host) = (identity.told(), identity.host.clone());
    let caller = &entry.caller;
    if let Some(held) = entry.held {
        lock.holders.push(HolderStatus {
            member,
            host,
            pid: caller.pid,
            command: as_told(&caller.command, identity.command_lines).into_owned(),
            command_pid: caller.command_pid,
            since: clock::rfc3339(held.since.wall),
            fence: held.fence.map(Fence::as_u64),
        });
    } else {
        let since = clock::rfc3339(entry.asked.wall);
        lock.waiters.push(WaiterStatus {
            member,
            host,
            pid: caller.pid,
            since,
        });
    }
}

impl CoreGuard<'_> {
    /// How this member's datagrams are protected.
    fn protection(&self, its: &Members) -> Protection {
        let keys: Vec<_> = self.keys().map(|key| key.to_string()).collect();
        // On loopback any user of the host can send some; to a Unix datagram address nobody else can.
        let mut addresses = its.membership.members().values();
        let insecure = keys.is_empty() && addresses.any(|it| matches!(it, Address::Udp(_)));
        let counters = self.counters();
        let dropped = counters.dropped();
        let dropped = dropped.map(|(why, count)| (why.to_owned(), count));
        Protection {
            keys,
            insecure,
            received: counters.transport.received,
            handshakes: counters.transport.handshakes,
            flooded: self.flooded().map(NodeId::as_u16).collect(),
            dropped: dropped.collect(),
        }
    }

    /// Whether the member is in the view, and not silent.
    pub(crate) fn is_heard(&self, id: NodeId) -> bool {
        self.member_state(id) == MemberState::Alive
    }

    pub(in crate::runtime::shared) fn member_state(&self, id: NodeId) -> MemberState {
        let Some(Members { node, .. }) = self.core.members() else {
            return MemberState::Unknown;
        };
        match node.peer_state(id) {
            PeerState::Up if node.is_in_view(id) => MemberState::Alive,
            PeerState::Up => MemberState::Joining,
            PeerState::Suspect => MemberState::Suspect,
            PeerState::Left => MemberState::Left,
            PeerState::Disagrees => MemberState::Refused,
            _ => MemberState::Unknown,
        }
    }

    /// How the locks are served. While the group is asked how, it is not known yet.
    fn algorithms(&self) -> BTreeMap<&LockName, Algorithm> {
        let members = self.core.members().into_iter();
        let locks = members.flat_map(|members| members.node.locks());
        locks
            .filter_map(|lock| Some((lock.name, lock.spec?.algorithm)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Mode;
    use crate::runtime::api::caller::Caller;
    use crate::runtime::api::patience::Patience;
    use crate::runtime::shared::hand_off::tests::alone;

    /// A message has no room for all that are many.
    #[test]
    fn callers_that_are_not_listed_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let detail = |left_out| {
            let part = Part {
                left_out,
                ..Part::default()
            };
            let mut core = agent.shared.lock_core();
            let status = core.put_together(BTreeMap::from([(agent.shared.identity.me, part)]));
            core.finish_as_application();
            status.members[0].detail.clone()
        };
        assert_eq!(detail(3), "3 more callers of it are not listed");
        assert_eq!(detail(0), "");
    }

    #[test]
    fn holders_are_listed_first_and_all_for_whom_there_is_no_room_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let (name, command) = ("printer", "lp");
        let lock = LockName::new(name).unwrap();
        let caller = || Caller {
            command: command.into(),
            ..Caller::current()
        };
        let inside = agent.acquire(&lock, None, Patience::Try, caller()).unwrap();
        let waits = agent.begin(&lock, None, Mode::Exclusive, Patience::Forever, caller());
        let core = agent.shared.lock_core();
        let host = agent.shared.identity.host.len();
        let second = ITEM_LEN + host + command.len();
        let first = second + name.len() + ITEM_LEN;
        for (room, listed) in [
            (host, [0, 0]),
            (host + first - 1, [0, 0]),
            (host + first, [1, 0]),
            (host + first + second - 1, [1, 0]),
            (host + first + second, [1, 1]),
        ] {
            let part = core.own_part(room);
            let there = part.locks.first();
            let there = there.map_or([0, 0], |it| [it.holders.len(), it.waiters.len()]);
            let there = there.map(|count| count as u64);
            assert_eq!(there, listed, "{room}");
            assert_eq!(part.left_out, 2 - listed.iter().sum::<u64>());
        }
        drop(core);
        drop(waits.unwrap());
        inside.release().unwrap();
    }
}
