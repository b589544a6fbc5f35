//! The bully algorithm, Garcia-Molina 1982 (IEEE TC 31(1)).
//!
//! Ask everybody with a higher id whether he is there. If nobody is, you have won, and tell all; if
//! somebody is, your job is done: he holds an election himself, and the biggest in town wins.
//!
//! Messages: `ELECTION`; `OK`, "I am here, and take over"; `COORDINATOR`, "I have won"; and, as
//! here not every member stands, `ABSTAIN`, "I am here, and do not stand". A member that has heard
//! that of all above it need not wait for the time to be over.
//!
//! What is nominated: the highest member that stands, if all answers come in time. They need not:
//! then several are nominated in turn, and the last word is the highest's. That is why a nomination
//! is no authority.
//!
//! Cost, with the top of N members dead and all others standing: each member from the initiator up
//! sends `ELECTION` to all above it, one `OK` comes back for each pair of the living among them, and
//! N-2 `COORDINATOR`s end it: N-1 at best, N^2-N-1 at worst. The lecture's example (8 members, the
//! fifth detects that the top is dead) takes 6+3+6 = 15.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::election::engine::{AnswerTimer, Effects, Engine, Round};
use crate::ids::NodeId;

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Message {
    /// I hold an election: are you there?
    Election,
    /// I am here, and take over.
    Ok,
    /// I am here, and do not stand.
    Abstain,
    /// I have won.
    Coordinator,
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Election => "ELECTION",
            Self::Ok => "OK",
            Self::Abstain => "ABSTAIN",
            Self::Coordinator => "COORDINATOR",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Bully {
    me: NodeId,
    lower: Vec<NodeId>,
    higher: Vec<NodeId>,
    stands: bool,
    /// Those above that do not stand, and are there.
    abstaining: BTreeSet<NodeId>,
    patience: Duration,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Idle,
    /// These above have not answered; nobody above has said that it takes over.
    Asking {
        unheard: BTreeSet<NodeId>,
    },
    /// One above takes over, and is to say who has won.
    Yielding,
    /// This one has.
    Won(NodeId),
}

impl Bully {
    pub(crate) fn new(round: &Round<'_>) -> Self {
        let (me, members) = (round.me, round.members.iter().copied());
        Self {
            me,
            lower: members.clone().filter(|node| *node < me).collect(),
            higher: members.filter(|node| *node > me).collect(),
            stands: round.stands,
            abstaining: BTreeSet::new(),
            patience: round.patience,
            stage: Stage::Idle,
        }
    }

    /// Holds an election, unless one is being held or was.
    fn hold(&mut self, out: &mut Effects<Message>) {
        if !matches!(self.stage, Stage::Idle) {
            return;
        }
        self.ask(out);
    }

    fn ask(&mut self, out: &mut Effects<Message>) {
        for &node in &self.higher {
            out.send(node, Message::Election);
        }
        self.stage = Stage::Asking {
            unheard: self.higher.iter().copied().collect(),
        };
        out.timer = Some(AnswerTimer::Set(self.patience));
        self.win_if_highest(out);
    }

    fn win_if_highest(&mut self, out: &mut Effects<Message>) {
        if matches!(&self.stage, Stage::Asking { unheard } if unheard.is_empty()) {
            self.win(out);
        }
    }

    fn win(&mut self, out: &mut Effects<Message>) {
        for &node in self.lower.iter().chain(&self.abstaining) {
            out.send(node, Message::Coordinator);
        }
        self.stage = Stage::Won(self.me);
        out.nominate(self.me);
    }

    /// One below asks.
    fn answer(&mut self, from: NodeId, out: &mut Effects<Message>) {
        if !self.stands {
            return out.send(from, Message::Abstain);
        }
        match self.stage {
            // It asked before it could know.
            Stage::Won(leader) if leader == self.me => out.send(from, Message::Coordinator),
            _ => out.send(from, Message::Ok),
        }
        self.hold(out);
    }

    /// `from` says that it has won.
    fn yield_to(&mut self, from: NodeId, out: &mut Effects<Message>) {
        match self.stage {
            Stage::Won(leader) if leader >= from => {}
            // It had to wait too long for an answer, or this one did not stand then.
            _ if self.stands && from < self.me => self.hold(out),
            _ => {
                self.stage = Stage::Won(from);
                out.nominate(from);
            }
        }
    }
}

impl Engine<Message> for Bully {
    fn stand(&mut self, out: &mut Effects<Message>) {
        self.stands = true;
        match self.stage {
            Stage::Won(leader) if leader < self.me => self.ask(out),
            _ => self.hold(out),
        }
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            Message::Election if from < self.me => self.answer(from, out),
            Message::Ok if from > self.me => {
                if matches!(self.stage, Stage::Asking { .. }) {
                    self.stage = Stage::Yielding;
                    // Long enough for that one to find that those above it are dead. The lectures
                    // wait without end, for a winner that may have died.
                    out.timer = Some(AnswerTimer::Set(self.patience * 2));
                }
            }
            Message::Abstain if from > self.me => {
                self.abstaining.insert(from);
                if let Stage::Asking { unheard } = &mut self.stage {
                    unheard.remove(&from);
                    self.win_if_highest(out);
                }
            }
            Message::Coordinator if from != self.me => self.yield_to(from, out),
            Message::Election | Message::Ok | Message::Abstain | Message::Coordinator => {}
        }
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        match self.stage {
            Stage::Asking { .. } => self.win(out),
            Stage::Yielding => out.hold_again = true,
            Stage::Idle | Stage::Won(_) => {}
        }
    }
}
