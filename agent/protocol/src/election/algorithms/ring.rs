//! The ring algorithm of the lectures: a list goes round, and the highest on it leads (after Le Lann
//! 1977; Tanenbaum and van Steen, section 6.5).
//!
//! Who wants an election sends a list with itself on it to its successor, past those that are
//! silent. Everybody appends itself; when the list comes to one who is on it, it has been everywhere,
//! and goes round once more to tell who leads and who the members of the ring are.
//!
//! Messages: `ELECTION(initiator, list, leader)`, `COORDINATOR(initiator, leader, members)`.
//! `leader` is the highest so far of those on the list that stand.
//!
//! A list ends at *whoever* finds itself on it, so that it does not go round for ever when its
//! initiator has died. Two lists at once end with the same members, each from another one on: the
//! lecture's "in the same order" is not so, and only the set and its highest agree.
//!
//! Cost: 2n for each initiator, n members being reached; two initiators among seven: 28.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::election::engine::{AnswerTimer, Effects, Engine, Round};
use crate::ids::NodeId;

/// What the members say to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Message {
    /// Who is there?
    Election {
        initiator: NodeId,
        list: Vec<NodeId>,
        leader: NodeId,
    },
    /// These are, and this one leads.
    Coordinator {
        initiator: NodeId,
        leader: NodeId,
        members: Vec<NodeId>,
    },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Election { .. } => "ELECTION",
            Self::Coordinator { .. } => "COORDINATOR",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ring {
    me: NodeId,
    successor: NodeId,
    size: usize,
    stands: bool,
    /// Whether this member has sent a list of its own.
    has_begun: bool,
    /// Whose lists have come to an end, as far as is known here: what they tell stops here.
    concluded: BTreeSet<NodeId>,
    patience: Duration,
}

impl Ring {
    pub(crate) fn new(round: &Round<'_>) -> Self {
        Self {
            me: round.me,
            successor: round.successor(),
            size: round.members.len(),
            stands: round.stands,
            has_begun: false,
            concluded: BTreeSet::new(),
            patience: round.patience,
        }
    }

    /// Waits for the list to come round: twice there, so twice as long as for an answer.
    fn wait(&self, out: &mut Effects<Message>) {
        out.timer = Some(AnswerTimer::Set(self.patience * 2));
    }

    fn pass_on(
        &mut self,
        initiator: NodeId,
        list: &[NodeId],
        leader: NodeId,
        out: &mut Effects<Message>,
    ) {
        // No honest list is longer than the ring.
        if list.contains(&self.me) || list.len() >= self.size {
            return self.tell(initiator, leader, list, out);
        }
        let mut list = list.to_vec();
        list.push(self.me);
        let mut leader = leader;
        if self.stands {
            leader = leader.max(self.me);
            self.wait(out);
        }
        let election = Message::Election {
            initiator,
            list,
            leader,
        };
        self.send(election, out);
    }

    /// Passes on what a list has come to, once.
    fn tell(
        &mut self,
        initiator: NodeId,
        leader: NodeId,
        members: &[NodeId],
        out: &mut Effects<Message>,
    ) {
        if !self.concluded.insert(initiator) {
            return;
        }
        let coordinator = Message::Coordinator {
            initiator,
            leader,
            members: members.to_vec(),
        };
        self.send(coordinator, out);
        out.nominate(leader);
    }

    fn send(&self, message: Message, out: &mut Effects<Message>) {
        if self.successor != self.me {
            out.send(self.successor, message);
        }
    }
}

impl Engine<Message> for Ring {
    fn stand(&mut self, out: &mut Effects<Message>) {
        self.stands = true;
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        if self.successor == self.me {
            return out.nominate(self.me);
        }
        let election = Message::Election {
            initiator: self.me,
            list: vec![self.me],
            leader: self.me,
        };
        self.send(election, out);
        self.wait(out);
    }

    fn receive(&mut self, _: NodeId, message: &Message, out: &mut Effects<Message>) {
        match message {
            Message::Election {
                initiator,
                list,
                leader,
            } => self.pass_on(*initiator, list, *leader, out),
            Message::Coordinator {
                initiator,
                leader,
                members,
            } => self.tell(*initiator, *leader, members, out),
        }
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        out.hold_again = true;
    }
}
