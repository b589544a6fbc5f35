//! Who may be a member, where they are, and an operator's changes of that.
//!
//! The file says it, and views say what has changed since (`distlock members add`): the last word is
//! theirs. A change is asked for here, and answered when a view has it, or when that has taken too long.

mod changes;

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::membership::quorum::log::MAX_VOTERS;
use crate::protocol::{Change, MembershipOverrides, NodeId, Time};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::error::ChangeError;
use crate::runtime::net::address::Address;
use crate::runtime::net::transport::can_reach;
use crate::runtime::shared::entry::Asker;

/// For how many leases a view is waited for before voters that are not listed are looked for.
const PATIENCE: u32 = 4;

/// Who may be a member, and what is to change of that.
#[derive(Debug)]
pub(crate) struct Membership {
    /// By the file.
    listed: BTreeMap<NodeId, Address>,
    /// What views have changed.
    overrides: MembershipOverrides,
    /// Both together.
    present: BTreeMap<NodeId, Address>,
    /// Those, and where removed ones were, so that they can be told.
    known: BTreeMap<NodeId, Address>,
    /// Whether datagrams may leave the host, as they are sealed.
    is_sealed: bool,
    /// Whether a view has said what has changed: the first one tells no news.
    has_read: bool,
    /// The members of the group whose addresses neither the file nor a view says, as the log has told.
    unlisted: BTreeSet<NodeId>,
    /// When the voters are looked through for unlisted ones, if no view is in force by then. A view says which
    /// members were added or removed, so that none is called unlisted too early.
    look_at: Option<Time>,
    asked: Option<Asked>,
}

/// A change that is under way.
#[derive(Debug)]
struct Asked {
    change: Change,
    deadline: Time,
    caller: Caller,
    asker: Asker<Result<(), ChangeError>>,
}

impl Membership {
    pub(crate) fn new(listed: BTreeMap<NodeId, Address>, is_sealed: bool) -> Self {
        Self {
            present: listed.clone(),
            known: listed.clone(),
            listed,
            overrides: MembershipOverrides::default(),
            is_sealed,
            has_read: false,
            unlisted: BTreeSet::new(),
            look_at: None,
            asked: None,
        }
    }

    /// All members, with their addresses.
    pub(crate) fn members(&self) -> &BTreeMap<NodeId, Address> {
        &self.present
    }

    /// Whether the group has agreed on other voters than these.
    pub(crate) fn is_other_than_agreed(&self, voters: &BTreeSet<NodeId>) -> bool {
        !self.overrides.voters.is_empty() && self.overrides.voters != *voters
    }

    /// When a change has taken too long, or unlisted voters are to be looked for.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let change = self.asked.as_ref().map(|asked| asked.deadline);
        change.into_iter().chain(self.look_at).min()
    }

    /// Members of the group that this host's file should list, and does not.
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = NodeId> {
        self.unlisted.iter().copied()
    }

    /// These are in a view, and those vote.
    fn note_members(&mut self, view: &[NodeId], voters: &[NodeId]) {
        self.look_at = None;
        if !voters.is_empty() {
            // The voters agree on the members: this host's file need not list anybody else.
            self.unlisted
                .retain(|node| view.contains(node) || voters.contains(node));
        }
        self.note_unlisted(view);
        self.note_unlisted(voters);
    }

    /// Tells the operator which of these members of the group have no address here.
    fn note_unlisted(&mut self, members: &[NodeId]) {
        for &node in members {
            let is_known =
                self.present.contains_key(&node) || self.overrides.removed.contains(&node);
            if !is_known && self.unlisted.insert(node) {
                tracing::warn!(
                    event = "member-unlisted",
                    member = node.as_u16(),
                    "member {node} is in the group, but this host's file does not list it: they do not hear \
                     each other, and the group goes on without one of them; list all members, as the files of \
                     other hosts do, and start this agent again"
                );
            }
        }
    }

    fn read(&mut self, overrides: MembershipOverrides) {
        self.present = self.listed.clone();
        for (&node, address) in &overrides.added {
            match address.parse() {
                Ok(address) => drop(self.present.insert(node, address)),
                Err(error) => tracing::error!(
                    event = "address-unusable",
                    member = node.as_u16(),
                    "member {node} cannot be reached: {error}"
                ),
            }
        }
        self.present
            .retain(|node, _| !overrides.removed.contains(node));
        let present = &self.present;
        self.known
            .retain(|_, address| !present.values().any(|its| its == address));
        self.known.extend(present.clone());
        self.overrides = overrides;
        self.has_read = true;
    }

    /// Whether `change` is made already; otherwise what speaks against it, if anything does.
    fn consider(&self, change: &Change) -> Result<bool, String> {
        match change {
            Change::Remove(node) if !self.present.contains_key(node) => {
                if self.overrides.has(change) {
                    return Ok(true);
                }
                Err(format!("there is no member {node}: see distlock members"))
            }
            Change::Remove(node) if self.present.len() == 1 => Err(format!(
                "member {node} is the last one: stop its agent instead"
            )),
            Change::Remove(node) if self.overrides.with(change).is_none() => Err(format!(
                "member {node} is the last voter: name others with distlock members voters first"
            )),
            Change::Remove(_) => Ok(false),
            Change::Voters(_) if self.overrides.has(change) => Ok(true),
            Change::Voters(voters) => {
                if let Some(node) = voters.iter().find(|it| !self.present.contains_key(it)) {
                    return Err(format!(
                        "there is no member {node}: add it first (distlock members add)"
                    ));
                }
                if self.overrides.with(change).is_none() {
                    return Err(format!(
                        "{} members cannot vote: name one to {MAX_VOTERS}",
                        voters.len()
                    ));
                }
                Ok(false)
            }
            Change::Add(node, text) => {
                let address: Address = text
                    .parse()
                    .map_err(|error| format!("the address {text:?} is none: {error}"))?;
                if let Some(present) = self.present.get(node) {
                    return if *present == address {
                        Ok(true)
                    } else {
                        Err(format!(
                            "member {node} is at {present}: remove it first, or choose another id"
                        ))
                    };
                }
                let mut others = self.present.iter();
                if let Some((other, _)) = others.find(|(_, its)| **its == address) {
                    return Err(format!("{address} is the address of member {other}"));
                }
                let mut present = self.present.values();
                if present.any(|present| !can_reach(present, &address)) {
                    return Err(format!(
                        "{address} cannot be reached by all members: give it an address of their kind"
                    ));
                }
                let is_allowed = self.is_sealed || !self.present.values().all(Address::is_loopback);
                if !address.is_loopback() && !is_allowed {
                    return Err(format!(
                        "{address} is on another host, and the members' files do not allow that: \
                         write a key with distlock keygen, and set key_file in all of them"
                    ));
                }
                if self.overrides.with(change).is_none() {
                    return Err(format!(
                        "{} members are added to the files' already, and there is no room for more: \
                         list some in the files, and remove them from those that were added",
                        self.overrides.added.len()
                    ));
                }
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing::subscriber;

    use super::*;
    use crate::runtime::warnings::Warnings;

    #[test]
    fn a_member_that_the_file_leaves_out_is_told_of_as_long_as_it_is_in_the_group() {
        let node = |id| NodeId::new(id).unwrap();
        let address = |id: u16| format!("udp:127.0.0.1:{}", 10_000 + id);
        let listed = [1, 2].map(|id| (node(id), address(id).parse().unwrap()));
        let mut membership = Membership::new(listed.into(), false);
        let warnings = Warnings::default();
        let told = Arc::clone(&warnings.told);
        let added = MembershipOverrides::default().with(&Change::Add(node(4), address(4)));
        membership.read(added.unwrap().with(&Change::Remove(node(5))).unwrap());
        subscriber::with_default(warnings, || {
            // One was added, another one removed, and votes until a third takes its place.
            membership.note_members(&[1, 2, 4].map(node), &[1, 2, 5].map(node));
            assert_eq!(*told.lock().unwrap(), "");
            for members in [&[1, 2, 3][..], &[1, 2, 3], &[1, 2], &[1, 2, 3]] {
                let members: Vec<_> = members.iter().map(|id| node(*id)).collect();
                membership.note_members(&members, &[1, 2].map(node));
                let unlisted = membership.unlisted().collect::<Vec<_>>();
                assert_eq!(unlisted, members[2..]);
            }
            // Where nobody votes, views go on without it as long as it is not listed.
            membership.note_members(&[1, 2].map(node), &[]);
            assert_eq!(membership.unlisted().collect::<Vec<_>>(), [node(3)]);
        });
        let told = told.lock().unwrap();
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.starts_with("member 3 is in the group, but"), "{told}");
    }

    /// Views have no room for more: whoever asks hears it at once, and not after some leases that no
    /// quorum was there.
    #[test]
    fn one_more_than_there_is_room_for_is_refused() {
        let node = |id| NodeId::new(id).unwrap();
        let address = |id: u16| format!("udp:127.0.0.1:{}", 10_000 + id);
        let add = |id| Change::Add(node(id), address(id));
        let listed = BTreeMap::from([(node(1), address(1).parse().unwrap())]);
        let mut membership = Membership::new(listed, false);
        for id in 2.. {
            match membership.consider(&add(id)) {
                Ok(is_done) => assert!(!is_done),
                Err(why) => {
                    assert_eq!(id, 130, "{why}");
                    assert!(why.starts_with("128 members are added"), "{why}");
                    break;
                }
            }
            let overrides = membership.overrides.with(&add(id)).expect("there is room");
            membership.read(overrides);
        }
    }

    #[test]
    fn what_would_leave_no_member_or_no_voter_is_refused() {
        let node = |id| NodeId::new(id).unwrap();
        let address = |id: u16| format!("udp:127.0.0.1:{}", 10_000 + id);
        let listed = |ids: &[u16]| {
            let members = ids
                .iter()
                .map(|&id| (node(id), address(id).parse().unwrap()));
            Membership::new(members.collect(), false)
        };
        let voters = |ids: &[u16]| Change::Voters(ids.iter().map(|&id| node(id)).collect());
        let eight = [1, 2, 3, 4, 5, 6, 7, 8];
        for (members, change, why) in [
            (
                &[1][..],
                Change::Remove(node(1)),
                "member 1 is the last one",
            ),
            (&[1, 2], Change::Remove(node(3)), "there is no member 3"),
            (&[1, 2], voters(&[1, 3]), "there is no member 3"),
            (&eight, voters(&eight), "8 members cannot vote"),
        ] {
            let refused = listed(members).consider(&change).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
        let mut membership = listed(&[1, 2]);
        assert_eq!(membership.consider(&Change::Remove(node(1))), Ok(false));
        let overrides = membership.overrides.with(&voters(&[1]));
        membership.read(overrides.expect("it may vote alone"));
        let refused = membership.consider(&Change::Remove(node(1))).unwrap_err();
        assert!(
            refused.starts_with("member 1 is the last voter"),
            "{refused}"
        );
    }

    /// A key lets datagrams leave the host.
    #[test]
    fn who_is_on_another_host_needs_a_key() {
        let node = |id| NodeId::new(id).unwrap();
        let listed = BTreeMap::from([(node(1), "udp:127.0.0.1:7400".parse().unwrap())]);
        let add = Change::Add(node(2), "udp:192.0.2.1:7400".to_owned());
        let refused = Membership::new(listed.clone(), false).consider(&add);
        assert!(refused.unwrap_err().contains("keygen"));
        assert_eq!(Membership::new(listed, true).consider(&add), Ok(false));
    }
}
