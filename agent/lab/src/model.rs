//! Small worlds for a model checker: every order of events, where the simulator tries some.
//!
//! A [`System`] is a state machine around the production core: its states can be compared and
//! copied, its actions are all that may happen next. What must hold is judged by the checkers of
//! the simulator, which are part of the state. Whatever could happen for ever has a bound.
//!
//! - [`ledger`]: ledgers that share a store, for two or three agents.
//! - [`locks`]: the table of locks with one of the engines, under views, for two or three members.
//! - [`views`]: voters, members and their leases, from endorsement to install.
//!
//! This knows nothing of the library that explores them; `agent/lab/examples/model_check` does.

pub mod ledger;
pub mod locks;
mod pool;
pub mod views;

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::{Hash, Hasher};

use super::checkers::{Process, Violation};
use distlock_protocol::membership::Member;
use distlock_protocol::{Incarnation, NodeId};

/// A state machine that a model checker can explore.
pub trait System {
    /// Everything that has a bearing on what may happen later.
    type State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static;
    /// One thing that may happen.
    type Action: Clone + Debug + PartialEq;

    /// The state in which everything begins.
    fn start(&self) -> Self::State;

    /// All that may happen in `state`, in an order that depends on `state` alone.
    fn actions(&self, state: &Self::State, out: &mut Vec<Self::Action>);

    /// What follows from `action`; `None` if nothing changes.
    fn after(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State>;

    /// Whether random walks should seldom choose it: it can only happen so often, and when it comes
    /// too soon much else does not.
    fn is_misfortune(action: &Self::Action) -> bool;

    /// At whom it happens, where random walks should leave one behind at times: what a member misses that
    /// stands still, it takes many steps of the others to show.
    fn happens_at(_action: &Self::Action) -> Option<NodeId> {
        None
    }

    /// The rule that was broken on the way to `state`.
    fn violation(state: &Self::State) -> Option<&Violation>;

    /// What must be found to happen, or the search has shown nothing: a name, and its number.
    fn goals(&self) -> Vec<(&'static str, Goal)>;

    /// Whether that has happened on the way to `state`.
    fn reached(state: &Self::State, goal: Goal) -> bool;
}

/// Something that must be found to happen.
pub type Goal = u8;

/// Of `goals` those that can be reached.
fn within_reach<const N: usize>(
    goals: [(bool, &'static str, Goal); N],
) -> Vec<(&'static str, Goal)> {
    let goals = goals.into_iter().filter(|(may_be, ..)| *may_be);
    goals.map(|(_, name, goal)| (name, goal)).collect()
}

/// What has happened on the way to a state. No two states differ in that alone.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    goals: u16,
    /// How often each member has entered in all its incarnations, up to two.
    entries: [u8; 3],
}

impl Seen {
    fn note(&mut self, goal: Goal) {
        self.goals |= 1 << goal;
    }

    fn has(self, goal: Goal) -> bool {
        self.goals & (1 << goal) != 0
    }
}

impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The members of a world of that size.
fn nodes(size: u16) -> impl Iterator<Item = NodeId> {
    (1..=size).filter_map(NodeId::new)
}

/// Where a state has its part of that member.
fn place(node: NodeId) -> usize {
    usize::from(node.as_u16()) - 1
}

/// As views have it: the incarnation that the simulator counts is the node's number of it.
fn member(process: Process) -> Member {
    Member {
        node: process.node,
        incarnation: Incarnation(u64::from(process.incarnation)),
    }
}
