//! The status of the whole group: what this member knows, and what the others report of theirs.
//!
//! Each member knows only its own callers. So who asks one member gets them all: it sends a query
//! to the members it hears, and gives them a short time to report. Whoever does not answer is
//! missing from the list of holders, and its state among the members says why.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use serde::{Deserialize, Serialize};

use super::address::Address;
use super::clock;
use super::error::StatusError;
use super::frames::FromAgent;
use super::handoff::Shared;
use super::status::{
    HolderStatus, LockStatus, MemberState, MemberStatus, Protection, Status, WaiterStatus,
};
use super::turn::{ClientId, Entry, Task, Turn};
use crate::protocol::clock::Reply;
use crate::protocol::node::PeerState;
use crate::protocol::{Algorithm, Command, Fence, Input, LockName, NodeId, Settings, Time};

/// How long the other members have.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a thread waits for the agent thread beyond that.
const GRACE: Duration = Duration::from_secs(2);
/// How many may ask at once.
const MAX_OPEN: usize = 64;
/// And one client, so that it leaves room for others.
const MAX_OPEN_OF_ONE: usize = 8;
const VERSION: u8 = 1;
/// What a holder or waiter takes in a report, beyond its command line.
const ITEM_LEN: usize = 64;
const HEADER_LEN: usize = 1_024;

/// Who this member is, for the status.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) me: NodeId,
    pub(crate) settings: Settings,
    pub(crate) host: String,
    /// A copy of the descriptor by which this process has the member's place for itself.
    pub(crate) place: OwnedFd,
}

/// The questions that are open, and what members were told apart from the view.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    open: BTreeMap<u64, Open>,
    last: u64,
    disagreements: BTreeMap<NodeId, String>,
}

#[derive(Debug)]
struct Open {
    missing: BTreeSet<NodeId>,
    parts: BTreeMap<NodeId, Part>,
    deadline: Time,
    asker: Asker,
}

/// Who wants to know.
#[derive(Debug)]
pub(crate) enum Asker<T = Status> {
    Thread(Sender<T>),
    Client { client: ClientId, id: u64 },
}

impl<T> Asker<T> {
    /// Whether the same client asks. Threads are this process's own.
    fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Client { client: one, .. }, Self::Client { client: two, .. })
            if one == two)
    }
}

/// What members say to each other. Append only.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Note {
    Query {
        query: u64,
    },
    Report {
        query: u64,
        part: Part,
    },
    /// What time is it there? ([`super::offsets`])
    AskTime {
        asked_ns: u64,
    },
    Time {
        life: u64,
        reply: Reply,
    },
}

/// What one member knows of its own callers.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    host: String,
    locks: Vec<PartLock>,
    /// How many callers found no room.
    left_out: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartLock {
    name: LockName,
    algorithm: String,
    holders: Vec<HolderStatus>,
    waiters: Vec<WaiterStatus>,
}

impl Reports {
    /// When the first open question has waited long enough.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.open.values().map(|open| open.deadline).min()
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

impl Shared {
    /// How the group is.
    pub(crate) fn status(&self) -> Result<Status, StatusError> {
        if self.stamp.is_child() {
            return Err(StatusError::Forked);
        }
        let (sender, receiver) = bounded(1);
        let mut turn = self.turn();
        if let Some(end) = turn.end_of_session() {
            return Err(StatusError::Closed(end.clone()));
        }
        let asked = turn.ask_status(Asker::Thread(sender));
        turn.finish_as_application();
        asked?;
        let deadline = clock::now() + PATIENCE + GRACE;
        self.drive(Some(deadline), &|| !receiver.is_empty());
        await_status(&receiver, deadline)
    }
}

fn await_status(answer: &Receiver<Status>, deadline: Time) -> Result<Status, StatusError> {
    answer
        .recv_timeout(deadline.since(clock::now()))
        .map_err(|_| StatusError::TimedOut)
}

impl Turn<'_> {
    /// Starts to find out how the group is.
    pub(crate) fn ask_status(&mut self, asker: Asker) -> Result<(), StatusError> {
        let open = &self.core.reports.open;
        let of_one = open.values().filter(|other| other.asker.is_same(&asker));
        if open.len() >= MAX_OPEN || of_one.count() >= MAX_OPEN_OF_ONE {
            return Err(StatusError::Limit);
        }
        let heard: BTreeSet<_> = self
            .core
            .roster
            .members()
            .keys()
            .copied()
            .filter(|&id| id != self.shared.identity.me)
            .filter(|&id| self.is_heard(id))
            .collect();
        self.core.reports.last += 1;
        let query = self.core.reports.last;
        let open = Open {
            missing: heard.clone(),
            parts: BTreeMap::new(),
            deadline: clock::now() + PATIENCE,
            asker,
        };
        self.core.reports.open.insert(query, open);
        for to in heard {
            self.send_note(to, &Note::Query { query });
        }
        self.finish_report_if_complete(query);
        Ok(())
    }

    /// Handles another member's note. What cannot be read is dropped: a member of another version
    /// is missing from the report, as one that does not answer.
    pub(crate) fn handle_note(&mut self, from: NodeId, bytes: &[u8]) {
        let Some((&VERSION, body)) = bytes.split_first() else {
            return;
        };
        match postcard::from_bytes(body) {
            Ok(Note::Query { query }) => {
                let part = self.own_part(Command::MAX_NOTE - HEADER_LEN);
                self.send_note(from, &Note::Report { query, part });
            }
            Ok(Note::Report { query, part }) => {
                let Some(open) = self.core.reports.open.get_mut(&query) else {
                    return;
                };
                if open.missing.remove(&from) {
                    open.parts.insert(from, part);
                    self.finish_report_if_complete(query);
                }
            }
            Ok(Note::AskTime { asked_ns }) => self.answer_time(from, asked_ns),
            Ok(Note::Time { life, reply }) => self.hear_time(from, life, reply),
            Err(error) => tracing::debug!("a note of member {from} cannot be read: {error}"),
        }
    }

    /// Answers who has waited long enough, without the members that did not report.
    pub(crate) fn expire_reports(&mut self) {
        let now = clock::now();
        let open = &self.core.reports.open;
        let due: Vec<_> = open
            .iter()
            .filter(|(_, open)| open.deadline <= now)
            .map(|(&query, _)| query)
            .collect();
        for query in due {
            self.finish_report(query);
        }
    }

    pub(super) fn send_note(&mut self, to: NodeId, note: &Note) {
        match postcard::to_extend(note, vec![VERSION]) {
            Ok(bytes) if bytes.len() <= Command::MAX_NOTE => {
                self.step(Input::Command(&Command::Note { to, bytes }));
            }
            Ok(bytes) => tracing::error!("a note of {} bytes is too long", bytes.len()),
            Err(error) => tracing::error!("a note cannot be written: {error}"),
        }
    }

    fn finish_report_if_complete(&mut self, query: u64) {
        if self
            .core
            .reports
            .open
            .get(&query)
            .is_some_and(|open| open.missing.is_empty())
        {
            self.finish_report(query);
        }
    }

    fn finish_report(&mut self, query: u64) {
        let Some(mut open) = self.core.reports.open.remove(&query) else {
            return;
        };
        let me = self.shared.identity.me;
        open.parts.insert(me, self.own_part(usize::MAX));
        let status = self.put_together(open.parts);
        match open.asker {
            // The channel has room for one answer; who asked may have given up.
            Asker::Thread(sender) => drop(sender.try_send(status)),
            Asker::Client { client, id } => {
                let status = Box::new(status);
                let message = FromAgent::Status { id, status };
                self.core.tasks.push_back(Task::Tell { client, message });
            }
        }
    }

    fn put_together(&self, parts: BTreeMap<NodeId, Part>) -> Status {
        let identity = &self.shared.identity;
        let votes = self.core.node.voters(clock::now());
        let members = self.core.roster.members().iter();
        let mut members: Vec<_> = members
            .map(|(&id, address)| self.member((id, address), &votes))
            .collect();
        let mut locks: BTreeMap<LockName, LockStatus> = BTreeMap::new();
        for (id, part) in parts {
            if part.left_out > 0
                && let Some(member) = members.iter_mut().find(|m| m.id == id.as_u16())
            {
                member.detail = format!("{} more callers of it are not listed", part.left_out);
            }
            for lock in part.locks {
                let name = lock.name.to_string();
                let status = locks.entry(lock.name).or_insert_with(|| LockStatus {
                    name,
                    algorithm: lock.algorithm,
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
        Status {
            group,
            failure: identity.settings.failure.to_string(),
            epoch: self.core.node.view().map_or(0, |view| view.epoch.as_u32()),
            members,
            locks,
            multicast: self.multicast(),
            protection: Some(self.protection()),
            clients: self.core.clients.clone(),
        }
    }

    /// `votes`: those who are to vote, and whether each does.
    fn member(
        &self,
        (id, address): (NodeId, &Address),
        votes: &BTreeMap<NodeId, bool>,
    ) -> MemberStatus {
        let state = self.member_state(id);
        let is_there = matches!(state, MemberState::Alive | MemberState::Joining);
        let detail = match self.core.reports.disagreements.get(&id) {
            Some(words) => words.clone(),
            None if is_there && votes.get(&id) == Some(&false) => "does not vote yet".to_owned(),
            None => self.core.offsets.complaint(id).unwrap_or_default(),
        };
        MemberStatus {
            id: id.as_u16(),
            address: address.to_string(),
            state,
            detail,
        }
    }

    /// What this member knows of its own callers, in about `room` bytes.
    fn own_part(&self, room: usize) -> Part {
        let identity = &self.shared.identity;
        let mut part = Part {
            host: identity.host.clone(),
            ..Part::default()
        };
        let (algorithms, default) = (self.algorithms(), identity.settings.algorithm);
        let mut locks: BTreeMap<&LockName, PartLock> = BTreeMap::new();
        let mut left = room.saturating_sub(part.host.len());
        let (held, waiting): (Vec<_>, Vec<_>) = self
            .core
            .requests
            .values()
            .partition(|entry| entry.held.is_some());
        // Holders first: if there is no room for all, they matter more.
        for entry in held.into_iter().chain(waiting) {
            let known = locks.contains_key(&entry.lock);
            let name_len = if known {
                0
            } else {
                entry.lock.as_bytes().len() + ITEM_LEN
            };
            let len = ITEM_LEN + identity.host.len() + entry.caller.command.len() + name_len;
            let Some(rest) = left.checked_sub(len) else {
                part.left_out += 1;
                continue;
            };
            left = rest;
            let lock = locks.entry(&entry.lock).or_insert_with(|| PartLock {
                name: entry.lock.clone(),
                algorithm: algorithms.get(&entry.lock).unwrap_or(&default).to_string(),
                holders: Vec::new(),
                waiters: Vec::new(),
            });
            list(lock, entry, identity);
        }
        part.locks = locks.into_values().collect();
        part
    }
}

/// Adds a caller to the holders or the waiters.
fn list(lock: &mut PartLock, entry: &Entry, identity: &Identity) {
    let (member, host) = (identity.me.as_u16(), identity.host.clone());
    let caller = &entry.caller;
    if let Some(held) = entry.held {
        lock.holders.push(HolderStatus {
            member,
            host,
            pid: caller.pid,
            command: caller.command.to_string(),
            command_pid: caller.command_pid,
            since: clock::rfc3339(held.since),
            fence: held.fence.map(Fence::as_u64),
        });
    } else {
        let since = clock::rfc3339(entry.asked);
        lock.waiters.push(WaiterStatus {
            member,
            host,
            pid: caller.pid,
            since,
        });
    }
}

impl Turn<'_> {
    /// How this member's datagrams are protected.
    fn protection(&self) -> Protection {
        let keys: Vec<_> = self.keys().map(|key| key.to_string()).collect();
        let addresses = self.core.roster.members().values();
        let insecure = keys.is_empty() && !{ addresses }.all(Address::is_loopback);
        let counters = self.counters();
        let dropped = counters.dropped();
        let by_kernel = self.core.dropped_by_kernel();
        let by_kernel = (by_kernel > 0).then_some(("by-kernel", by_kernel));
        let dropped = dropped.chain(by_kernel);
        let dropped = dropped.map(|(why, count)| (why.to_owned(), count));
        Protection {
            keys,
            insecure,
            received: counters.transport.received,
            handshakes: counters.transport.handshakes,
            dropped: dropped.collect(),
        }
    }

    /// Whether the member is in the view, and not silent.
    pub(super) fn is_heard(&self, id: NodeId) -> bool {
        self.member_state(id) == MemberState::Alive
    }

    fn member_state(&self, id: NodeId) -> MemberState {
        let node = &self.core.node;
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
        let locks = self.core.node.locks();
        locks
            .filter_map(|lock| Some((lock.name, lock.spec?.algorithm)))
            .collect()
    }
}
