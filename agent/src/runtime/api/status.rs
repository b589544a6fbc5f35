//! What an agent tells about its group: the view, the locks, their holders and waiters.
//!
//! The field names are those of `distlock status --json`, which begins with [`SCHEMA`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::{Absence, Missing, NodeId, QuorumOverview, Time};

/// The number of the JSON's schema. Fields may be added under the same number; it is raised when one
/// is taken away or changes its meaning.
pub const SCHEMA: u32 = 1;

/// How long the other members have to report. A status that took as long may lack the callers of a member
/// that is alive, and did not answer.
pub const REPORT_TIME: Duration = Duration::from_millis(300);

/// A whole group, as one member sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The group's name; `local` for the processes of one user on one host.
    pub group: String,
    /// The member that is asked; 0 for the local group, and with a store.
    pub member: u16,
    /// Whether that member can be granted locks, and who votes on it.
    pub quorum: QuorumStatus,
    /// The epoch of the view in force; 0 if there is none.
    pub epoch: u32,
    /// All configured members. Empty for the local group, where the kernel is the arbiter.
    pub members: Vec<MemberStatus>,
    /// The locks that are held or waited for, by name. Without a quorum: those of the members that
    /// still answer.
    pub locks: Vec<LockStatus>,
    /// What a silent member means, as in the configuration: `quorum` or `presume-failed`. Empty for
    /// the local group.
    pub failure: String,
    /// What goes by multicast, as far as the member that is asked knows; `None` if it uses none.
    pub multicast: Option<MulticastStatus>,
    /// How the datagrams of the member that is asked are protected. `None` for the local group, which
    /// sends none.
    #[serde(default)]
    pub protection: Option<Protection>,
    /// The programs that use the agent that is asked. `None` for the local group, and for a member
    /// that serves no programs.
    #[serde(default)]
    pub clients: Option<ClientsStatus>,
    /// The store that has the locks; `None` where members or the kernel decide.
    #[serde(default)]
    pub store: Option<StoreStatus>,
}

/// The store that has a group's locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Where it is.
    pub at: String,
    /// Whether it answered just now. If it did not, only the asked agent's own callers are listed.
    pub ok: bool,
    /// Why it did not; empty if it did.
    pub reason: String,
    /// Whether it keeps what it acknowledges; `None` before the first connection.
    pub keeps: Option<bool>,
    /// How often it was found to have lost what it had acknowledged, since the agent's start.
    pub forgot: u64,
    /// Records that cannot be read, and why.
    pub unreadable: Vec<String>,
}

/// Whether a member can be granted locks, and who votes on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumStatus {
    /// Whether it can: it hears a majority of the voters, and its lease runs. Where nobody votes,
    /// whether it belongs to a view; in the local group always.
    pub ok: bool,
    /// The members that vote; before the group begins for the first time, those that will. Empty
    /// where nobody votes.
    pub voters: Vec<u16>,
    /// Who of them is silent, or has lost its state. Where nobody votes: the silent members without
    /// which this one cannot go on.
    pub missing: Vec<u16>,
    /// Who of the missing answers, and has lost its state.
    pub state_lost: Vec<u16>,
    /// Whether the group has ever begun, as far as is known: for that, all must be there at once.
    pub founded: bool,
    /// The cluster that the member is in: what `[group] cluster` may name, and `recover --cluster`.
    /// Empty before the group begins, and where nobody votes.
    #[serde(default)]
    pub cluster: String,
    /// The voters that this member's file lists, if the group has agreed on others since.
    #[serde(default)]
    pub file_voters: Vec<u16>,
    /// The members of the group that this member's file does not list, and that were not added: they and this one do
    /// not hear each other.
    #[serde(default)]
    pub unlisted: Vec<u16>,
    /// Before the group begins: what keeps it from that, besides those that are missing.
    #[serde(default)]
    pub founding: Option<FoundingStatus>,
}

/// What keeps a group from beginning, besides the members that are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundingStatus {
    /// Members that remember a cluster, and which: no other is founded beside it.
    pub remember: BTreeMap<u16, String>,
    /// Members whose files list other members, or other voters.
    pub differ: Vec<u16>,
    /// Voters without the operator's word that others have (`distlock recover`).
    pub unrecovered: Vec<u16>,
    /// For how many milliseconds yet it is waited for leases of which nobody may know any more.
    pub waits_ms: u64,
}

impl QuorumStatus {
    /// Those that are missing, and why.
    pub fn absences(&self) -> Vec<Missing> {
        let absence = |&id: &u16| {
            let why = match self.state_lost.contains(&id) {
                true => Absence::StateLost,
                false if self.founded => Absence::Silent,
                false if self.is_unrecovered(id) => Absence::Unrecovered,
                false => Absence::Unfounded,
            };
            NodeId::new(id).map(|member| Missing { member, why })
        };
        self.missing.iter().filter_map(absence).collect()
    }

    fn is_unrecovered(&self, id: u16) -> bool {
        let founding = self.founding.as_ref();
        founding.is_some_and(|founding| founding.unrecovered.contains(&id))
    }

    fn files_differ(&self) -> bool {
        let founding = self.founding.as_ref();
        founding.is_some_and(|founding| !founding.differ.is_empty())
    }

    /// Whether so many voters have lost their states that no majority comes back by itself: it takes
    /// an operator's word (`distlock recover`).
    pub fn needs_recovery(&self) -> bool {
        let lost = self.state_lost.len();
        lost > 0 && 2 * lost >= self.voters.len()
    }

    /// What it means that there is no quorum, and what to do: a sentence without its full stop.
    pub fn advice(&self) -> &'static str {
        if self.needs_recovery() {
            "No majority of the voters knows what it voted for, and none comes back by itself: \
             restore their state directories; if those are lost, stop these agents and run \
             'distlock recover' for each"
        } else if self
            .founding
            .as_ref()
            .is_some_and(|its| !its.unrecovered.is_empty())
        {
            "Run 'distlock recover' at every voter that the file lists, for the same cluster"
        } else if self
            .founding
            .as_ref()
            .is_some_and(|its| !its.remember.is_empty())
        {
            "Where voters of a cluster that others remember have lost their states, stop their \
             agents and run 'distlock recover' for each"
        } else if !self.founded && self.missing.is_empty() && self.files_differ() {
            "Nobody is granted a lock before: if that lasts, make the files of all members the same, and \
             start their agents again"
        } else if !self.founded && self.missing.is_empty() {
            "Nobody is granted a lock before"
        } else if !self.founded {
            "Nobody is granted a lock before: start the agents that are missing, and see that they \
             can be reached"
        } else if self.missing.is_empty() {
            "This host is granted no lock yet: if that lasts, see what its agent's log says"
        } else {
            "This host is granted no lock, and loses those that it holds when its lease ends: see \
             that they run and can be reached"
        }
    }
}

impl QuorumStatus {
    /// What `overview` says at `now`.
    pub(crate) fn of(overview: QuorumOverview, now: Time) -> Self {
        let lost = |it: &&Missing| it.why == Absence::StateLost;
        let ids = |ids: &[NodeId]| ids.iter().map(|id| id.as_u16()).collect();
        let ok = overview.is_ok();
        let missing = overview.missing.iter();
        let founding = overview.founding.map(|report| FoundingStatus {
            remember: report
                .remember
                .iter()
                .map(|(node, cluster)| (node.as_u16(), cluster.to_string()))
                .collect(),
            differ: ids(&report.differ),
            unrecovered: ids(&report.without_permit),
            waits_ms: report
                .waits_until
                .map_or(0, |until| until.since(now).as_millis())
                .try_into()
                .unwrap_or(u64::MAX),
        });
        Self {
            ok,
            voters: ids(&overview.voters),
            missing: missing.clone().map(|it| it.member.as_u16()).collect(),
            state_lost: missing.filter(lost).map(|it| it.member.as_u16()).collect(),
            founded: overview.is_founded,
            cluster: overview
                .cluster
                .map_or_else(String::new, |id| id.to_string()),
            file_voters: Vec::new(),
            unlisted: Vec::new(),
            founding,
        }
    }
}

/// The programs that use an agent by its socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// How many are connected.
    pub connected: u64,
    /// Whether commands that the agent's last incarnation let in still run. Until they have ended, no
    /// program is let in by this one.
    #[serde(default)]
    pub waits_for_former: bool,
    /// How many were turned away or cut off since the agent's start, by reason; those of which there
    /// were none are left out. `too-many-requests`, `too-many-questions` and `missed-event` count
    /// what connected programs were refused or not told, `few-descriptors` and `too-much` such
    /// things, too.
    pub dropped: BTreeMap<String, u64>,
}

/// How one member's datagrams are protected, and what it has dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// The ids of the keys that open datagrams; the first one seals. Empty if nothing is sealed.
    pub keys: Vec<String>,
    /// Whether datagrams go by UDP and are not sealed: whoever can send some to a member can let
    /// two in at once, or end an agent. Where all addresses are loopback ones, that is every user
    /// of the host.
    pub insecure: bool,
    /// How many datagrams were taken since the member's start. What is dropped after that, as it
    /// makes no sense or comes too late, is counted below, too.
    pub received: u64,
    /// Of sealed members' handshakes: challenges that were answered, and answers that were right.
    pub handshakes: u64,
    /// The members from whose addresses floods come: more of it is dropped than is taken. It waits
    /// in a queue apart, if that can be had, which the log tells.
    pub flooded: Vec<u16>,
    /// How many datagrams were dropped since the member's start, by reason; those of which there
    /// were none are left out. `by-kernel` are those that never reached the agent: they came from no
    /// member's address, or found the socket's queue full. `past-view`, `misplaced`, `too-many-notes`
    /// and `malformed-note` are of messages in datagrams that were taken, of which one may have
    /// several; `unsent-note` and `unsent-notice` of messages that were not sent.
    pub dropped: BTreeMap<String, u64>,
}

/// What one member sends and gets by multicast. The numbers count from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastStatus {
    /// Where it is sent to.
    pub address: String,
    /// The members that it reaches at present; to all others goes everything directly.
    pub reached: Vec<u16>,
    /// Datagrams sent by multicast.
    pub sent: u64,
    /// How many datagrams those have replaced.
    pub merged: u64,
    /// Datagrams that came by multicast.
    pub received: u64,
    /// How many times a member was found not to be reached any more.
    pub lost: u64,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its number in the configuration.
    pub id: u16,
    /// Its address in the configuration.
    pub address: String,
    /// How it is.
    pub state: MemberState,
    /// Words on that, for a person: since when, what differs. Empty if there is nothing to say.
    #[serde(default)]
    pub detail: String,
}

/// How a member is, as far as the one who is asked can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MemberState {
    /// In the view, and heard lately.
    Alive,
    /// In touch, and not in a view yet.
    Joining,
    /// Not heard for a while.
    Suspect,
    /// Never heard in this incarnation.
    Unknown,
    /// It said that it leaves.
    Left,
    /// Its settings differ from ours.
    Refused,
}

impl MemberState {
    pub(crate) const ALL: [Self; 6] = [
        Self::Alive,
        Self::Joining,
        Self::Suspect,
        Self::Unknown,
        Self::Left,
        Self::Refused,
    ];
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// Its name; bytes that are not UTF-8 are escaped.
    pub name: String,
    /// The algorithm that serves it.
    pub algorithm: String,
    /// Whether nobody is let in until the lease of a lost member is over that may hold the lock, as
    /// far as the member knows that is asked. Never in the local group.
    pub quarantined: bool,
    /// Who is inside.
    pub holders: Vec<HolderStatus>,
    /// Who waits, in order as far as the algorithm has one.
    pub waiters: Vec<WaiterStatus>,
}

/// Who is inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderStatus {
    /// Its member; 0 in the local group, and with a store.
    pub member: u16,
    /// Its host's name.
    pub host: String,
    /// The program that called; for `distlock run` the runner.
    pub pid: u32,
    /// That program's command line; for `distlock run` the command's.
    pub command: String,
    /// The process that `distlock run` runs.
    pub command_pid: Option<u32>,
    /// When it entered: RFC 3339, UTC.
    pub since: String,
    /// Its fencing token.
    pub fence: Option<u64>,
}

/// Who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterStatus {
    /// Its member; 0 in the local group.
    pub member: u16,
    /// Its host's name.
    pub host: String,
    /// The program that called.
    pub pid: u32,
    /// Since when it waits: RFC 3339, UTC. Empty for one that a store lists, and another agent has.
    pub since: String,
}
