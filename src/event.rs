//! What an agent tells about its group while it runs.

use distlock_agent::protocol::{Epoch, Fence, NodeId};
use distlock_agent::runtime::status::QuorumStatus;

/// Something that happened in the group. Events inform; no program needs them to be correct.
///
/// ```
/// use distlock::{Agent, Config, Event};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::Builder::new().prefix("dl").tempdir()?;
/// # let text = format!(
/// #     "lease = \"200ms\"\n[group]\nname = \"shop\"\n\
/// #      [[member]]\nid = 1\naddress = \"unix:{}/1\"\n",
/// #     directory.path().display()
/// # );
/// let node = Config::parse(&text)?.node(1)?;
/// # let node = node.with_state_dir(directory.path().join("state"));
/// let agent = Agent::from_config(node)?;
/// for event in agent.events() {
///     if let Event::View { epoch, members } = event {
///         println!("view {epoch} has {} members", members.len());
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A new view is in force.
    View {
        /// Its epoch.
        epoch: Epoch,
        /// Its members.
        members: Vec<NodeId>,
    },
    /// Nothing was heard from this member for a while. It may be dead, slow or cut off.
    Suspect {
        /// Which.
        member: NodeId,
    },
    /// A suspected member was heard again.
    Alive {
        /// Which.
        member: NodeId,
    },
    /// A member's settings differ from ours, and the group cannot form with both. Where `key` is
    /// `voters` both have formed without the other, as two groups of one name.
    Disagreement {
        /// Which member.
        member: NodeId,
        /// The first key that differs, as in the configuration file.
        key: String,
        /// Our value.
        ours: String,
        /// Its value.
        theirs: String,
        /// Whether that member is in a view, and this one is the odd one out.
        refused: bool,
    },
    /// Another process runs under this member's id; this one is silent from now on.
    Superseded,
    /// The group has gone on without this member, which was silent for longer than it may be: what
    /// it held is lost. It comes back by itself.
    Excluded {
        /// The epoch of the view that it is not in.
        epoch: Epoch,
    },
    /// There has been no quorum for one lease; or there is one again; or it is missing other voters
    /// than were told.
    Quorum(QuorumStatus),
    /// This member was removed from the group ([`Agent::remove_member`](crate::Agent::remove_member)):
    /// its agent has ended.
    Removed,
}

/// Who leads: see [`Election::observe`](crate::Election::observe).
///
/// ```
/// use distlock::{Agent, Config};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::Builder::new().prefix("dl").tempdir()?;
/// # let text = format!(
/// #     "lease = \"200ms\"\n[group]\nname = \"shop\"\n\
/// #      [[member]]\nid = 1\naddress = \"unix:{}/1\"\n",
/// #     directory.path().display()
/// # );
/// let node = Config::parse(&text)?.node(1)?;
/// # let node = node.with_state_dir(directory.path().join("state"));
/// let election = Agent::from_config(node)?.election("nightly report")?;
/// let leaders = election.observe();
/// let leadership = election.campaign()?;
/// let leader = leaders.iter().flatten().next().expect("the agent is open");
/// assert_eq!(leader.member.map(u16::from), Some(1));
/// assert_eq!(leader.fence, leadership.fence());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Leader {
    /// Its member; `None` where a store has the locks, which knows no members.
    pub member: Option<NodeId>,
    /// Its host, where a store has the locks.
    pub host: Option<String>,
    /// Its process there.
    pub pid: Option<u32>,
    /// Its fence: larger than that of every leader before it. `None` where the group gives none.
    pub fence: Option<Fence>,
}
