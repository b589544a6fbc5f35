//! The rules that a run can break, the process that broke one, and how a breach is told.

use alloc::string::String;
use core::fmt;

use distlock_protocol::{NodeId, Ticket, Time};

/// One process: a member, and which of its incarnations (counted by the simulator, not by the node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The member.
    pub node: NodeId,
    /// Its incarnation: 1 is the first.
    pub incarnation: u32,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {} (incarnation {})", self.node, self.incarnation)
    }
}

/// One caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Where it was made.
    pub process: Process,
    /// What the caller calls it.
    pub ticket: Ticket,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ticket {} of {}", self.ticket.0, self.process)
    }
}

/// Which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Never more inside than there are permits.
    Exclusion,
    /// What is granted is valid as long as the lease, and told only while it is.
    Leases,
    /// Where requests are served in order, nobody is let in before another too often.
    Fairness,
    /// Fences of an exclusive lock rise with every grant; no two grants share one.
    Fences,
    /// The leader that members name was granted the lock.
    Leaders,
    /// Who enters is told whether a holder before ended inside.
    Abandonment,
    /// Every request ends exactly once, in a way that its caller asked for.
    Requests,
    /// Epochs only rise, and an epoch has one list of members.
    Views,
    /// What one member sends to another arrives whole, once, and in order.
    Notes,
    /// Nothing is said that the disk must remember before it does.
    Durability,
    /// Once faults stop, everybody who waits is served, within a bound.
    Progress,
    /// What is multicast is delivered once, and by all in one order.
    Order,
    /// A node at rest is at rest: it does not ask to be woken again and again at the same time,
    /// and a run does not take more steps than anything sensible does.
    Restraint,
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// When, in the simulation's time.
    pub at: Time,
    /// Which rule.
    pub rule: Rule,
    /// By whom, and how.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.at.as_nanos() / 1000;
        let (secs, micros) = (micros / 1_000_000, micros % 1_000_000);
        write!(
            f,
            "{:?} broken at {secs}.{micros:06} s: {}",
            self.rule, self.detail
        )
    }
}

impl core::error::Error for Violation {}

/// A breach of `rule`, in words.
macro_rules! violation {
    ($at:expr, $rule:ident, $($words:tt)*) => {
        $crate::checkers::Violation {
            at: $at,
            rule: $crate::checkers::Rule::$rule,
            detail: alloc::format!($($words)*),
        }
    };
}
pub(crate) use violation;
