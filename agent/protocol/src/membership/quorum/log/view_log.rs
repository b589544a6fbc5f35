//! The interface of a log: what it is told, and what it wants done.

use alloc::vec::Vec;

use super::message::LogMessage;
use super::proposal::{Decided, NotNow, Proposal, VoterId};
use super::record::LogRecord;
use crate::ids::Epoch;
use crate::time::Time;

/// What a log wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// Send this; it may get lost, come twice, and overtake others.
    Send(VoterId, LogMessage),
    /// Make this durable in the place of the record before, in one step; then call
    /// [`ViewLog::persisted`]. One is outstanding at a time.
    Persist(LogRecord),
    /// This view is decided. Epochs rise from one to the next; each comes at most once in an
    /// incarnation, and one that was decided while this voter was away may be passed over: the
    /// chain has its name. After a restart [`ViewLog::decided`] tells where the log stands, and
    /// what was decided but not durable here may come again.
    Decided(Decided),
    /// Ask [`ViewLog::leader`] again.
    LeaderChanged,
    /// The log contradicts itself, or the library says it does. It is silent from now on; this
    /// voter must come back as another one, without this log's record.
    Broken(&'static str),
}

/// What orders the proposals for the next view. Everything that follows from a call is appended
/// to `out`.
pub trait ViewLog {
    /// A message has come from the voter `from`. What cannot be meant for this log is dropped.
    fn receive(&mut self, now: Time, from: VoterId, message: LogMessage, out: &mut Vec<LogAction>);

    /// The answer to a voter that asks for votes, has none itself any more, and does not know it. It may
    /// have been removed several views ago.
    fn answer_former(&self, _from: VoterId, _message: &LogMessage) -> Option<LogMessage> {
        None
    }

    /// The time that [`ViewLog::next_timeout`] names has come, or not: too early does no harm.
    fn timeout(&mut self, now: Time, out: &mut Vec<LogAction>);

    /// When to call [`ViewLog::timeout`].
    fn next_timeout(&self) -> Option<Time>;

    /// The last [`LogAction::Persist`] is durable.
    fn persisted(&mut self, now: Time, out: &mut Vec<LogAction>);

    /// Proposes the view after the last decided one. It may get lost nevertheless, with the
    /// leadership; if it is decided, [`LogAction::Decided`] says so.
    ///
    /// # Errors
    /// Why it cannot be proposed here, or now. Nothing has changed then.
    fn propose(
        &mut self,
        now: Time,
        proposal: Proposal,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow>;

    /// The view of this epoch is in force with all its members, each with a lease under it: only
    /// now may the next view have other voters. To be told again after a restart.
    fn installed(&mut self, epoch: Epoch);

    /// Asks another voter to lead, as one must that wants itself removed. It may come to nothing;
    /// then this voter leads on, and is to ask again.
    ///
    /// # Errors
    /// Why it cannot be asked. Nothing has changed then.
    fn hand_over(&mut self, now: Time, to: VoterId, out: &mut Vec<LogAction>)
    -> Result<(), NotNow>;

    /// Who leads, as far as is known here.
    fn leader(&self) -> Option<VoterId>;

    /// Whether this voter leads.
    fn is_leader(&self) -> bool;

    /// The term, which rises with every attempt at leading.
    fn term(&self) -> u64;

    /// The last view that is known here to be decided.
    fn decided(&self) -> Option<&Decided>;

    /// Whether this voter is removed, and needed no more: only now may it stop for good. That the
    /// decided view is without it is not enough, as the move to the other voters comes after it.
    fn retired(&self) -> bool;
}
