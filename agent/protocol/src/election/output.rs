//! What elections want done.

use alloc::vec::Vec;

use super::contest::ElectionMessage;
use super::engine::AnswerTimer;
use crate::api::Event;
use crate::ids::{LockName, NodeId, Ticket};
use crate::lock::Waiting;

/// What the table wants done. The node takes everything out after each call.
#[derive(Debug, Default)]
pub(crate) struct ElectionOutput {
    /// Messages to other members.
    pub(crate) sends: Vec<(NodeId, ElectionMessage)>,
    /// What callers and observers are told.
    pub(crate) events: Vec<Event>,
    /// What to do about the timers of elections.
    pub(crate) timers: Vec<(LockName, AnswerTimer)>,
    /// What to do at the table of locks, in this order.
    pub(crate) orders: Vec<Order>,
}

/// What to do at the table of locks.
#[derive(Debug)]
pub(crate) enum Order {
    /// This caller is to lead: it wants to enter.
    Enter(LockName, Waiting),
    /// It is not any more, and waits here again: its request ends, and it is not told.
    StandBack(Ticket),
}
