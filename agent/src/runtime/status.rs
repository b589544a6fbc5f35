//! What an agent tells about its group: the view, the locks, who is inside and who waits.
//!
//! The field names are those of `distlock status --json`.

use serde::{Deserialize, Serialize};

/// A whole group, as one member sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The group's name; `local` for the processes of one user on one host.
    pub group: String,
    /// What a silent member means, as in the configuration: `quorum` or `presume-failed`. Empty for
    /// the local group.
    pub failure: String,
    /// The epoch of the view in force; 0 if there is none.
    pub epoch: u32,
    /// All configured members. Empty for the local group, where the kernel is the arbiter.
    pub members: Vec<MemberStatus>,
    /// The locks that are held or waited for, by name.
    pub locks: Vec<LockStatus>,
    /// What goes by multicast, as far as the member that is asked knows; `None` if it uses none.
    pub multicast: Option<MulticastStatus>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MemberState {
    /// In the view, and heard lately.
    Alive,
    /// In touch, and not in a view yet.
    Joining,
    /// Not heard for a while.
    Suspect,
    /// Never heard in this life.
    Unknown,
    /// It said that it leaves.
    Left,
    /// Its settings differ from ours.
    Refused,
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// Its name; bytes that are not UTF-8 are escaped.
    pub name: String,
    /// The algorithm that serves it.
    pub algorithm: String,
    /// Who is inside.
    pub holders: Vec<HolderStatus>,
    /// Who waits, in order as far as the algorithm has one.
    pub waiters: Vec<WaiterStatus>,
}

/// Who is inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderStatus {
    /// Its member; 0 in the local group.
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
    /// Since when it waits: RFC 3339, UTC.
    pub since: String,
}
