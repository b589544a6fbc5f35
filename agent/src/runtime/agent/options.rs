//! What an agent is started with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::protocol::{ClusterId, NodeId, Settings};
use crate::runtime::api::audit::Auditor;
use crate::runtime::clients::endpoint::Endpoint;
use crate::runtime::net::address::{Address, MulticastAddress};
use crate::runtime::net::transport::Faults;
use crate::runtime::observe::watchdog::Watchdog;

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// This member.
    pub me: NodeId,
    /// All members and their addresses, this one's among them.
    pub members: BTreeMap<NodeId, Address>,
    /// Who of them votes on views.
    pub voters: BTreeSet<NodeId>,
    /// Whether its configuration lists them, or has them by default.
    pub voters_are_listed: bool,
    /// The only cluster that this member may be in, if the configuration names one.
    pub cluster: Option<ClusterId>,
    /// What all members must have alike.
    pub settings: Settings,
    /// Where this member keeps what must outlive it. Created if it does not exist.
    pub state_dir: PathBuf,
    /// Where local programs are served, if they are.
    pub socket: Option<Endpoint>,
    /// What is to be done in the event loop again and again while it is well.
    pub watchdog: Option<Watchdog>,
    /// In which directory what happens is written down, if it is. That takes the feature `trace`;
    /// without it the agent warns, and writes none.
    pub trace: Option<PathBuf>,
    /// Is told of each grant and how it ends, for an audit, if there is one. Then no lock is lent to callers.
    pub auditor: Option<Auditor>,
    /// Where what goes to several members alike is sent by multicast, if it is.
    pub multicast: Option<MulticastAddress>,
    /// The file that has the group's keys, if datagrams are sealed. It is read again when it changes.
    pub key_file: Option<PathBuf>,
    /// Whether the other members and all clients are told callers' whole command lines, and not the
    /// programs' names alone.
    pub command_lines: bool,
    /// For tests only: what happens to outgoing datagrams.
    pub faults: Option<Faults>,
}

impl Options {
    /// A member of a group of which the first seven vote, and that wants nothing else.
    pub fn new(
        me: NodeId,
        members: BTreeMap<NodeId, Address>,
        settings: Settings,
        state_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            me,
            voters: members.keys().copied().take(7).collect(),
            voters_are_listed: true,
            cluster: None,
            members,
            settings,
            state_dir: state_dir.into(),
            socket: None,
            watchdog: None,
            trace: None,
            auditor: None,
            multicast: None,
            key_file: None,
            command_lines: false,
            faults: None,
        }
    }
}
