//! What a member can tell of its quorum: who votes, who of the voters is missing and why, and
//! whether the others suffice. Status, log and refusals all say what stands here.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::membership::ClusterId;
use crate::time::Time;

/// The quorum, as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumOverview {
    /// Whether the cluster was founded, as far as this member knows. Before that it takes all
    /// members that files list, afterwards a majority of [`voters`](Self::voters).
    pub is_founded: bool,
    /// Who votes, by id; before the founding, who will. Empty where nobody votes.
    pub voters: Vec<NodeId>,
    /// Who of them is missing, by id. Where nobody votes: the members that are waited for.
    pub missing: Vec<Missing>,
    /// Whether those who are not missing suffice.
    pub suffices: bool,
    /// Whether this member belongs to a view, and its lease runs.
    pub is_leased: bool,
    /// The cluster that this member is in.
    pub cluster: Option<ClusterId>,
    /// Before the founding: what keeps a cluster from being founded.
    pub founding: Option<FoundingReport>,
}

/// Why there is no cluster yet, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundingReport {
    /// Members that must be there once and are not heard.
    pub absent: Vec<NodeId>,
    /// Members that remember a cluster, and which. There is a way into it or a word of an
    /// operator's; no other is founded while they are heard.
    pub remember: Vec<(NodeId, ClusterId)>,
    /// Members whose files name other voters or list other members.
    pub differ: Vec<NodeId>,
    /// Voters by this file without the permit that others have, or with another; this member, if its permit
    /// is for other voters than its file's.
    pub without_permit: Vec<NodeId>,
    /// Whether members have accepted a founding that is not complete.
    pub is_under_way: bool,
    /// Until when leases of incarnations before may still run, if they may.
    pub waits_until: Option<Time>,
}

impl FoundingReport {
    /// Whether one of these keeps a cluster from being founded. Files that differ do not, unless no file
    /// names its own host as the lowest voter.
    pub(crate) fn keeps_from_founding(&self) -> bool {
        self.is_under_way
            || !self.absent.is_empty()
            || !self.remember.is_empty()
            || !self.without_permit.is_empty()
            || self.waits_until.is_some()
    }
}

/// A member that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Missing {
    /// Which.
    pub member: NodeId,
    /// Why it counts as missing.
    pub why: Absence,
}

/// Why a member counts as missing.
///
/// Clients are sent a variant by its position: append new ones at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Absence {
    /// Nothing was heard from it lately.
    Silent,
    /// It answers, and has lost its state: it does not know what it voted for.
    StateLost,
    /// The cluster is not founded yet, for which it must be there, and nothing was heard from it
    /// lately.
    Unfounded,
    /// It votes by this member's file, other voters there were recovered on an operator's word, and
    /// it was not, or for another cluster.
    Unrecovered,
}

impl QuorumOverview {
    /// Where nobody votes: `missing` are silent members without which this one cannot go on, and
    /// `is_in_view` says whether it belongs to a view.
    pub(crate) fn without_voters(missing: Vec<NodeId>, is_in_view: bool) -> Self {
        let silent = |member| Missing {
            member,
            why: Absence::Silent,
        };
        Self {
            is_founded: true,
            voters: Vec::new(),
            suffices: missing.is_empty(),
            missing: missing.into_iter().map(silent).collect(),
            is_leased: is_in_view,
            cluster: None,
            founding: None,
        }
    }

    /// Whether this member can be granted locks, as far as the other members go.
    pub fn is_ok(&self) -> bool {
        self.suffices && self.is_leased
    }

    /// Those who would have to be there for this member to go on; empty if the others suffice.
    pub fn lacking(self) -> Vec<Missing> {
        if self.suffices {
            Vec::new()
        } else {
            self.missing
        }
    }
}

/// What is wrong with those who are missing, as part of a sentence: `member 2 is silent, and members
/// 3, 4 have lost their states`. Of nobody it says that this member is in no view.
pub fn absences(missing: &[Missing]) -> String {
    let mut text = String::new();
    let all = [
        Absence::Silent,
        Absence::StateLost,
        Absence::Unfounded,
        Absence::Unrecovered,
    ];
    for why in all {
        let of_kind = missing.iter().filter(|it| it.why == why);
        let ids: Vec<NodeId> = of_kind.map(|it| it.member).collect();
        let (one, many) = match why {
            Absence::Silent => ("is silent", "are silent"),
            Absence::StateLost => ("has lost its state", "have lost their states"),
            Absence::Unfounded => (
                "is silent, and the group begins only when all are there at once",
                "are silent, and the group begins only when all are there at once",
            ),
            Absence::Unrecovered => (
                "was not recovered as the other voters of this file were",
                "were not recovered as the other voters of this file were",
            ),
        };
        if ids.is_empty() {
            continue;
        }
        let and = if text.is_empty() { "" } else { ", and " };
        let verb = if ids.len() == 1 { one } else { many };
        let _ = write!(text, "{and}{} {verb}", members(&ids));
    }
    if text.is_empty() {
        text.push_str("this member is in no view of the group yet");
    }
    text
}

/// Those members as words: `member 2`, `members 2, 3`.
pub fn members(ids: &[NodeId]) -> String {
    let list: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let noun = if ids.len() == 1 { "member" } else { "members" };
    let mut text = String::from(noun);
    let _ = write!(text, " {}", list.join(", "));
    text
}

/// ` from member 2`, to go on a sentence with; nothing for no members.
pub fn from_members(ids: &[NodeId]) -> String {
    if ids.is_empty() {
        return String::new();
    }
    alloc::format!(" from {}", members(ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(member: u16, why: Absence) -> Missing {
        let member = NodeId::new(member).expect("not 0");
        Missing { member, why }
    }

    #[test]
    fn absences_of_both_kinds_are_told_apart() {
        let (silent, lost) = (Absence::Silent, Absence::StateLost);
        assert_eq!(absences(&[missing(2, silent)]), "member 2 is silent");
        assert_eq!(
            absences(&[missing(2, lost), missing(3, silent), missing(4, lost)]),
            "member 3 is silent, and members 2, 4 have lost their states"
        );
        assert!(absences(&[missing(3, Absence::Unfounded)]).contains("all are there at once"));
        assert!(absences(&[]).contains("no view"));
    }
}
