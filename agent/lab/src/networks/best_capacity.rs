//! The election of the best leader in a wireless network (Vasudevan, Kurose and Towsley 2004).
//!
//! Nodes reach their neighbours only. The source sends `ELECTION` to its neighbours; who gets it
//! for the first time takes the sender for its parent and passes it on to all others; who gets it
//! again answers that it is no child. Who has heard from all answers its parent with the best node
//! of its subtree. So the source learns the best of all, and tells it down the tree.
//!
//! Messages: `ELECTION(index)`, `ACK(index, child, best)`, `LEADER(index, best)`. With N nodes and
//! |E| links 2|E|-N+1 of the first, as many of the second, and N-1 of the third: 4|E|-N+1.
//!
//! Of several elections the one with the highest index (a number and the source) displaces the
//! others. Links come and go, which the lecture leaves out: a neighbour that is lost is not waited
//! for; and who loses its parent or a child begins anew, with a higher index, as what was reported
//! over that link may be out of reach. Nor does the lecture say which of two with the same capacity
//! is the better (the higher id), or how a parent tells children from others (a flag).
//!
//! Invariant: once links stay as they are and nothing is under way, all nodes that can reach each
//! other know the best of them, if any of them has begun since the last link came.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use distlock_protocol::NodeId;

/// A node and what it is worth: the higher is the better, and of two that are worth the same the
/// one with the higher id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Candidate {
    /// Battery, memory, or whatever makes a leader: all nodes use one measure.
    pub capacity: u64,
    /// The node.
    pub node: NodeId,
}

/// One election: the higher displaces the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Index {
    number: u64,
    source: NodeId,
}

/// What neighbours say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// An election is held.
    Election {
        /// Which.
        index: Index,
    },
    /// The answer.
    Ack {
        /// To which.
        index: Index,
        /// The best of the sender's subtree; `None` if the receiver is not its parent.
        best: Option<Candidate>,
    },
    /// The best of all.
    Leader {
        /// By which.
        index: Index,
        /// Who.
        best: Candidate,
    },
}

impl Message {
    /// What it is called in counts and traces.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Election { .. } => "ELECTION",
            Self::Ack { .. } => "ACK",
            Self::Leader { .. } => "LEADER",
        }
    }
}

/// Messages to neighbours.
pub type Sends = Vec<(NodeId, Message)>;

/// One node's part.
#[derive(Clone, Debug)]
pub struct BestCapacity {
    myself: Candidate,
    neighbours: BTreeSet<NodeId>,
    /// The highest number of an election that was heard of.
    highest: u64,
    election: Option<Election>,
}

/// The election that this node takes part in.
#[derive(Clone, Debug)]
struct Election {
    index: Index,
    /// `None` at the source.
    parent: Option<NodeId>,
    /// The neighbours that were sent the election, and were not lost since.
    asked: BTreeSet<NodeId>,
    /// Who of them has not answered.
    pending: BTreeSet<NodeId>,
    children: BTreeSet<NodeId>,
    /// The best so far of this node and its children.
    best: Candidate,
    leader: Option<Candidate>,
}

impl BestCapacity {
    /// A node that knows its neighbours, and takes part in no election yet.
    pub fn new(myself: Candidate, neighbours: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            myself,
            neighbours: neighbours.into_iter().collect(),
            highest: 0,
            election: None,
        }
    }

    /// The leader, as far as is known.
    pub fn leader(&self) -> Option<Candidate> {
        self.election.as_ref()?.leader
    }

    /// Holds an election, with this node as its source.
    pub fn start(&mut self, out: &mut Sends) {
        let index = Index {
            number: self.highest.saturating_add(1),
            source: self.myself.node,
        };
        self.join(index, None, out);
    }

    /// A neighbour says something. Something that comes twice, or late, does nothing; but nothing
    /// may come over a link that was lost since it was sent.
    pub fn receive(&mut self, from: NodeId, message: Message, out: &mut Sends) {
        // It may have found this node first.
        self.find(from, out);
        let (Message::Election { index }
        | Message::Ack { index, .. }
        | Message::Leader { index, .. }) = message;
        self.highest = self.highest.max(index.number);
        let present = self.election.as_ref().map(|election| election.index);
        if let Message::Election { index } = message
            && present.is_none_or(|present| present < index)
        {
            return self.join(index, Some(from), out);
        }
        let Some(election) = &mut self.election else {
            return;
        };
        if election.index != index {
            let is_known = election.asked.contains(&from) || election.parent == Some(from);
            if matches!(message, Message::Election { .. }) && !is_known {
                // It came into reach since, and would wait for ever in a lower election.
                self.start(out);
            }
            return;
        }
        match message {
            // A copy of what made this node a child must not make it none.
            Message::Election { .. } if election.parent == Some(from) => {}
            Message::Election { .. } => out.push((from, Message::Ack { index, best: None })),
            Message::Ack { best, .. } => {
                if election.pending.remove(&from) {
                    if let Some(best) = best {
                        election.children.insert(from);
                        election.best = best.max(election.best);
                    }
                    election.report_when_done(out);
                }
            }
            Message::Leader { best, .. } => {
                if election.parent == Some(from) && election.leader.is_none() {
                    election.announce(best, out);
                }
            }
        }
    }

    /// A neighbour is out of reach.
    pub fn lose(&mut self, neighbour: NodeId, out: &mut Sends) {
        self.neighbours.remove(&neighbour);
        let Some(election) = &mut self.election else {
            return;
        };
        election.asked.remove(&neighbour);
        if election.parent == Some(neighbour) || election.children.contains(&neighbour) {
            self.start(out);
        } else if election.pending.remove(&neighbour) {
            election.report_when_done(out);
        }
    }

    /// A node has come into reach. One of the two holds an election, as either may know of a better
    /// one than the other does.
    pub fn find(&mut self, neighbour: NodeId, out: &mut Sends) {
        if self.neighbours.insert(neighbour) && self.myself.node > neighbour {
            self.start(out);
        }
    }

    fn join(&mut self, index: Index, parent: Option<NodeId>, out: &mut Sends) {
        self.highest = self.highest.max(index.number);
        let others = self.neighbours.iter().copied();
        let asked: BTreeSet<NodeId> = others.filter(|node| Some(*node) != parent).collect();
        out.extend(
            asked
                .iter()
                .map(|node| (*node, Message::Election { index })),
        );
        let mut election = Election {
            index,
            parent,
            pending: asked.clone(),
            asked,
            children: BTreeSet::new(),
            best: self.myself,
            leader: None,
        };
        election.report_when_done(out);
        self.election = Some(election);
    }
}

impl Election {
    fn report_when_done(&mut self, out: &mut Sends) {
        if !self.pending.is_empty() {
            return;
        }
        match self.parent {
            Some(parent) => {
                let (index, best) = (self.index, Some(self.best));
                out.push((parent, Message::Ack { index, best }));
            }
            None => self.announce(self.best, out),
        }
    }

    fn announce(&mut self, best: Candidate, out: &mut Sends) {
        self.leader = Some(best);
        let index = self.index;
        let children = self.children.iter();
        out.extend(children.map(|child| (*child, Message::Leader { index, best })));
    }
}
