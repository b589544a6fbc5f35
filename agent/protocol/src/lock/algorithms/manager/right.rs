//! Where the manager's right to enter is: with the manager, or parked at the custodian.

use crate::ids::NodeId;
use crate::lock::engine::Effects;

use super::Message;

/// As far as one member has to do with it.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Right {
    /// This member is neither manager nor custodian, or there is no custodian: the token is enough.
    Free,
    /// This is the manager.
    Manager {
        custodian: NodeId,
        state: State,
        /// How often it was asked for.
        time: u64,
        /// Whether the custodian may never have heard of this lock. Nobody vouches by a lock that is not in
        /// its table.
        is_unheard: bool,
    },
    /// This is the custodian.
    Custodian {
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
    /// right. `is_unheard`: whether nobody does.
    pub(super) fn new(
        me: NodeId,
        manager: NodeId,
        custodian: Option<NodeId>,
        (is_used, is_unheard): (bool, bool),
    ) -> Self {
        let time = 0;
        match custodian {
            Some(custodian) if manager == me => Self::Manager {
                custodian,
                state: if is_used { State::Here } else { State::Parked },
                time,
                is_unheard,
            },
            Some(custodian) if custodian == me => Self::Custodian {
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
                custodian,
                state: state @ State::Parked,
                time,
                is_unheard,
            } => {
                (*state, *is_unheard) = (State::Asked, false);
                *time += 1;
                out.send(*custodian, Message::Unpark { time: *time });
                false
            }
            Self::Manager { state, .. } => *state == State::Here,
            Self::Free | Self::Custodian { .. } => true,
        }
    }

    /// Whether this member may enter once it is let in.
    pub(super) const fn permits(&self) -> bool {
        !matches!(
            self,
            Self::Manager {
                state: State::Parked | State::Asked,
                ..
            }
        )
    }

    /// Another member wants the lock: the custodian is told of it, by what changes nothing there.
    pub(super) fn introduce(&mut self, out: &mut Effects<Message>) {
        if let Self::Manager {
            custodian,
            state: State::Parked,
            time,
            is_unheard: is_unheard @ true,
        } = self
        {
            *is_unheard = false;
            out.send(*custodian, Message::Park { time: *time });
        }
    }

    /// Whom the manager would have to ask.
    pub(super) const fn asks(&self) -> Option<&NodeId> {
        match self {
            Self::Manager {
                custodian,
                state: State::Parked,
                ..
            } => Some(custodian),
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

    /// What the custodian says to whether `node` may be inside.
    pub(super) fn says_of(&self, node: NodeId) -> Option<bool> {
        match self {
            Self::Custodian {
                manager, is_parked, ..
            } if node == *manager => Some(!is_parked),
            _ => None,
        }
    }

    pub(super) fn on_unpark(&mut self, from: NodeId, asked: u64, out: &mut Effects<Message>) {
        if let Self::Custodian {
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
        if let Self::Custodian {
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
            custodian,
            state: state @ State::Here,
            time,
            ..
        } = self
        {
            *state = State::Parked;
            out.send(*custodian, Message::Park { time: *time });
        }
    }
}
