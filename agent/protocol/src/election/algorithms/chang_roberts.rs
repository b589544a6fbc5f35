//! Chang and Roberts 1979 (CACM 22(5)): the highest id goes round.
//!
//! Send your id round the ring. Pass on a higher one than yours; in place of a lower one, send your
//! own, if you have not sent anything yet, and else swallow it: it has lost already. Your own id
//! comes back only if nobody swallowed it: you are elected, and tell so once round.
//!
//! Messages: `ELECTION(id)`, `ELECTED(id)`.
//!
//! The lecture has neither the swallowing nor the end of `ELECTED` at home, and so bears a single
//! initiator: with five of five the winner is elected five times, by 35 messages. A member that does
//! not stand passes on what comes. What is for one that is silent stops where it is passed by, as it
//! would go round for ever.
//!
//! Cost, with N members: 2N to 3N-1 with one initiator; if all begin, N·H_N+N in the mean and
//! N(N+1)/2+N at worst.

use alloc::collections::BTreeSet;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::election::engine::{AnswerTimer, Effects, Engine, Round};
use crate::ids::NodeId;

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Message {
    /// This one stands, and nobody behind it is higher.
    Election { id: NodeId },
    /// This one is elected.
    Elected { id: NodeId },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Election { .. } => "ELECTION",
            Self::Elected { .. } => "ELECTED",
        }
    }
}

#[derive(Debug)]
pub(crate) struct ChangRoberts {
    me: NodeId,
    successor: NodeId,
    members: BTreeSet<NodeId>,
    /// Those between this member and its successor.
    skipped: BTreeSet<NodeId>,
    stands: bool,
    /// Whether this member has sent its own id, or passed on a higher one.
    participates: bool,
    elected: Option<NodeId>,
    patience: Duration,
}

impl ChangRoberts {
    pub(crate) fn new(round: &Round<'_>) -> Self {
        Self {
            me: round.me,
            successor: round.successor(),
            members: round.members.iter().copied().collect(),
            skipped: round.skipped(),
            stands: round.stands,
            participates: false,
            elected: None,
            patience: round.patience,
        }
    }

    fn begin(&mut self, out: &mut Effects<Message>) {
        if self.successor == self.me {
            return self.elect(self.me, out);
        }
        self.participate(out);
        self.send(Message::Election { id: self.me }, out);
    }

    fn participate(&mut self, out: &mut Effects<Message>) {
        self.participates = true;
        if self.stands {
            // Round once to elect, and once to tell.
            out.timer = Some(AnswerTimer::Set(self.patience * 2));
        }
    }

    fn election(&mut self, id: NodeId, out: &mut Effects<Message>) {
        if self.elected.is_some_and(|elected| id <= elected) {
            // Late, and it has lost. The paper's members forget here that they took part, and what
            // is late would begin anew.
        } else if id == self.me {
            if self.stands {
                self.elect(id, out);
                self.send(Message::Elected { id }, out);
            }
        } else if id > self.me {
            self.participate(out);
            self.pass_on(id, Message::Election { id }, out);
        } else if !self.stands {
            self.pass_on(id, Message::Election { id }, out);
        } else if !self.participates {
            self.begin(out);
        }
    }

    fn elect(&mut self, id: NodeId, out: &mut Effects<Message>) {
        self.elected = self.elected.max(Some(id));
        out.nominate(id);
    }

    fn pass_on(&self, id: NodeId, message: Message, out: &mut Effects<Message>) {
        if !self.skipped.contains(&id) {
            self.send(message, out);
        }
    }

    fn send(&self, message: Message, out: &mut Effects<Message>) {
        out.send(self.successor, message);
    }
}

impl Engine<Message> for ChangRoberts {
    fn stand(&mut self, out: &mut Effects<Message>) {
        self.stands = true;
        if self.participates {
            // Its own id has gone round, or would be swallowed by what it passed on.
            self.participate(out);
        } else {
            self.begin(out);
        }
    }

    fn receive(&mut self, _: NodeId, message: &Message, out: &mut Effects<Message>) {
        let (Message::Election { id } | Message::Elected { id }) = *message;
        if !self.members.contains(&id) {
            return;
        }
        match message {
            Message::Election { .. } => self.election(id, out),
            Message::Elected { .. } if id == self.me => {}
            Message::Elected { .. } => {
                self.elect(id, out);
                self.pass_on(id, Message::Elected { id }, out);
            }
        }
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        out.hold_again = true;
    }
}
