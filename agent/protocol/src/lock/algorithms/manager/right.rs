//! Where the manager's right to enter is: with the manager, or parked at the witness.

use crate::ids::NodeId;
use crate::lock::engine::Effects;

use super::Message;

/// As far as one member has to do with it.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Right {
    /// This member is neither manager nor witness, or there is no witness: it enters with the token alone.
    Free,
    /// This is the manager.
    Manager {
        witness: NodeId,
        state: State,
        /// How often it was asked for.
        time: u64,
    },
    /// This is the witness.
    Witness {
        manager: NodeId,
        is_parked: bool,
        /// How often it was asked for.
        time: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Parked,
    Asked,
    Here,
}

impl Right {
    /// `is_used`: whether the manager holds the lock or waits for it as the view begins. Then it has its
    /// right.
    pub(super) fn new(me: NodeId, manager: NodeId, witness: Option<NodeId>, is_used: bool) -> Self {
        let time = 0;
        match witness {
            Some(witness) if manager == me => Self::Manager {
                witness,
                state: if is_used { State::Here } else { State::Parked },
                time,
            },
            Some(witness) if witness == me => Self::Witness {
                manager,
                is_parked: !is_used,
                time,
            },
            _ => Self::Free,
        }
    }

    /// Whether this member may enter once it is let in. If not, it asks for what it lacks.
    pub(super) fn fetch(&mut self, out: &mut Effects<Message>) -> bool {
        match self {
            Self::Manager {
                witness,
                state: state @ State::Parked,
                time,
            } => {
                *state = State::Asked;
                *time += 1;
                out.send(*witness, Message::Unpark { time: *time });
                false
            }
            Self::Manager { state, .. } => *state == State::Here,
            Self::Free | Self::Witness { .. } => true,
        }
    }

    /// Whom the manager would have to ask.
    pub(super) const fn asks(&self) -> Option<&NodeId> {
        match self {
            Self::Manager {
                witness,
                state: State::Parked,
                ..
            } => Some(witness),
            _ => None,
        }
    }

    /// Whether it is to be parked once the manager needs it no more.
    pub(super) const fn is_here(&self) -> bool {
        matches!(
            self,
            Self::Manager {
                state: State::Here,
                ..
            }
        )
    }

    /// What the witness says to whether `node` may be inside.
    pub(super) fn says_of(&self, node: NodeId) -> Option<bool> {
        match self {
            Self::Witness {
                manager, is_parked, ..
            } if node == *manager => Some(!is_parked),
            _ => None,
        }
    }

    pub(super) fn on_unpark(&mut self, from: NodeId, asked: u64, out: &mut Effects<Message>) {
        if let Self::Witness {
            manager,
            is_parked,
            time,
        } = self
            && from == *manager
            && asked > *time
        {
            (*is_parked, *time) = (false, asked);
            out.send(from, Message::Unparked { time: asked });
        }
    }

    /// Whether the manager has it now, and had not before.
    pub(super) fn on_unparked(&mut self, asked: u64) -> bool {
        match self {
            Self::Manager { state, time, .. } if *state == State::Asked && asked == *time => {
                *state = State::Here;
                true
            }
            _ => false,
        }
    }

    pub(super) fn on_park(&mut self, from: NodeId, asked: u64) {
        if let Self::Witness {
            manager,
            is_parked,
            time,
        } = self
            && from == *manager
        {
            *is_parked |= asked == *time;
        }
    }

    /// The manager needs it no more.
    pub(super) fn park(&mut self, out: &mut Effects<Message>) {
        if let Self::Manager {
            witness,
            state: state @ State::Here,
            time,
        } = self
        {
            *state = State::Parked;
            out.send(*witness, Message::Park { time: *time });
        }
    }
}
