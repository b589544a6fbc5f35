//! The status of the whole group: what this member knows, and what the others report of theirs.
//!
//! Each member knows only its own callers. So who asks one member gets them all: it sends a query
//! to the members it hears, and gives them a short time to report. Whoever does not answer is
//! missing from the list of holders, and its state among the members says why.
//!
//! To list thousands of callers takes milliseconds of the mutex, and megabytes. So one question is
//! out at a time, and of one answer, the event loop's only one in a round, come the statuses of all
//! who had asked before the question left. Who asks later waits for the next: it is to find what
//! others did before it asked. However many ask, members say what they know once in a round trip.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use serde::{Deserialize, Serialize};

use super::address::Address;
use super::ask::as_told;
use super::clock;
use super::error::StatusError;
use super::frames::MAX_FROM_AGENT;
use super::handoff::Shared;
use super::status::{
    ClientsStatus, HolderStatus, LockStatus, MemberState, MemberStatus, Protection, QuorumStatus,
    Status, WaiterStatus,
};
use super::turn::{ClientId, Entry, Turn};
use crate::protocol::clock::Reply;
use crate::protocol::node::PeerState;
use crate::protocol::{
    Absence, Algorithm, Command, Fence, Input, LockName, Missing, NodeId, QuorumOverview, Settings,
    Time,
};

/// How long the other members have.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long a thread waits for the agent thread, beyond the time of two questions: another may be out.
const GRACE: Duration = Duration::from_secs(2);
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
    pub(crate) host: String,
    /// Whether others are told callers' whole command lines, and not the programs' names alone.
    pub(crate) command_lines: bool,
    /// A copy of the descriptor by which this process has the member's place for itself.
    pub(crate) place: OwnedFd,
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
}

/// How the group is, and who wants to know, of whom none has been told yet.
#[derive(Debug)]
pub(crate) struct Report {
    status: Status,
    askers: Vec<Asker>,
}

/// Who wants to know.
#[derive(Debug)]
pub(crate) enum Asker<T = Arc<Status>> {
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

impl Question {
    /// When it is answered, with what has come by then.
    fn due(&self) -> Time {
        if self.missing.is_empty() {
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
        if turn.heard().is_empty() {
            // Nobody is to be waited for, the event loop neither.
            let report = turn.report(BTreeMap::new(), 0, Vec::new());
            turn.finish_as_application();
            return Ok(report.status);
        }
        let asked = turn.ask_status(Asker::Thread(sender));
        turn.finish_as_application();
        asked?;
        let deadline = clock::now() + 2 * PATIENCE + GRACE;
        self.drive(Some(deadline), &|| !receiver.is_empty());
        match receiver.recv_timeout(deadline.since(clock::now())) {
            Ok(status) => Ok(Arc::unwrap_or_clone(status)),
            // The end of the session drops who asks.
            Err(_) => Err(match self.turn().end_of_session() {
                Some(end) => StatusError::Closed(end.clone()),
                None => StatusError::TimedOut,
            }),
        }
    }
}

impl Turn<'_> {
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
            deadline: clock::now() + PATIENCE,
            askers: mem::take(&mut reports.waiting),
        });
        for to in heard {
            self.send_note(to, &Note::Query { query });
        }
    }

    /// The other members that would answer.
    fn heard(&self) -> BTreeSet<NodeId> {
        let members = self.core.membership.members().keys().copied();
        members
            .filter(|&id| id != self.shared.identity.me)
            .filter(|&id| self.is_heard(id))
            .collect()
    }

    /// Handles another member's note. What cannot be read is dropped: a member of another version
    /// is missing from the report, as one that does not answer.
    pub(crate) fn handle_note(&mut self, from: NodeId, bytes: &[u8]) {
        let Some((&VERSION, body)) = bytes.split_first() else {
            self.core.notes_malformed += 1;
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
            Ok(Note::Time { life, reply }) => self.hear_time(from, life, reply),
            Err(error) => {
                self.core.notes_malformed += 1;
                tracing::debug!("a note of member {from} cannot be read: {error}");
            }
        }
    }

    /// What is known of the group, if all have answered or had their time; the next question is out
    /// then, if somebody waits for that.
    pub(crate) fn take_report(&mut self) -> Option<Report> {
        let now = clock::now();
        let due = |open: &mut Question| open.due() <= now;
        let open = self.core.reports.open.take_if(due)?;
        let report = self.report(open.parts, open.len, open.askers);
        self.ask_members();
        Some(report)
    }

    /// All that is known, with these reports of others, which took so many bytes.
    fn report(&self, mut parts: BTreeMap<NodeId, Part>, len: usize, askers: Vec<Asker>) -> Report {
        // No more than a message has room for; of this member at least what it would tell others.
        let members = self.core.membership.members().len() * 2 * ITEM_LEN;
        let room = MAX_FROM_AGENT.saturating_sub(len + members + HEADER_LEN);
        let room = room.max(MAX_PART);
        parts.insert(self.shared.identity.me, self.own_part(room));
        Report {
            status: self.put_together(parts),
            askers,
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

    fn put_together(&self, parts: BTreeMap<NodeId, Part>) -> Status {
        let identity = &self.shared.identity;
        let now = clock::now();
        let votes = self.core.node.voters(now);
        let quorum = self.core.node.quorum(now);
        let members = self.core.membership.members().iter();
        let mut members: Vec<_> = members
            .map(|(&id, address)| self.member((id, address), &votes, &quorum))
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
        let mut quorum = QuorumStatus::of(quorum, now);
        if let Some(listed) = &identity.file_voters
            && self.core.membership.is_other_than_agreed(listed)
        {
            quorum.file_voters = listed.iter().map(|id| id.as_u16()).collect();
        }
        Status {
            group,
            member: identity.me.as_u16(),
            quorum,
            failure: identity.settings.failure.to_string(),
            epoch: self.core.node.view().map_or(0, |view| view.epoch.as_u32()),
            members,
            locks,
            multicast: self.multicast(),
            protection: Some(self.protection()),
            clients: self.core.clients.clone().map(|clients| ClientsStatus {
                waits_for_former: self.core.held_back.is_some(),
                ..clients
            }),
        }
    }

    /// `votes`: those who are to vote, and whether each does.
    fn member(
        &self,
        (id, address): (NodeId, &Address),
        votes: &BTreeMap<NodeId, bool>,
        quorum: &QuorumOverview,
    ) -> MemberStatus {
        let state = self.member_state(id);
        let is_there = matches!(state, MemberState::Alive | MemberState::Joining);
        let has_lost_state = |it: &Missing| it.member == id && it.why == Absence::StateLost;
        let fault = self.fault_of(id);
        let detail = match self.core.reports.disagreements.get(&id) {
            Some(words) => words.clone(),
            None if fault.is_some() => fault.unwrap_or_default(),
            None if quorum.missing.iter().any(has_lost_state) => "has lost its state".to_owned(),
            None if is_there && votes.get(&id) == Some(&false) => "does not vote yet".to_owned(),
            None if state == MemberState::Suspect => self.silence(id),
            None => self.core.offsets.complaint(id).unwrap_or_default(),
        };
        MemberStatus {
            id: id.as_u16(),
            address: address.to_string(),
            state,
            detail,
        }
    }

    /// For how long nothing was heard from that member.
    fn silence(&self, id: NodeId) -> String {
        let heard = self.core.node.last_heard(id);
        let silent = heard.map(|heard| clock::now().since(heard).as_secs());
        silent.map_or_else(String::new, |seconds| format!("silent for {seconds} s"))
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
            let command = as_told(&entry.caller.command, identity.command_lines);
            let len = ITEM_LEN + identity.host.len() + command.len() + name_len;
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
            command: as_told(&caller.command, identity.command_lines).into_owned(),
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
        // On loopback any user of the host can send some; to a Unix datagram address nobody else can.
        let mut addresses = self.core.membership.members().values();
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
