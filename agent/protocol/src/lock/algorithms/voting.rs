//! Lin, Lian, Chen and Zhang 2004 (IPTPS): votes of replicas that remember nothing else, and trying
//! again by chance.
//!
//! Each member has a replica of the lock. A member that wants to enter asks all replicas, its own
//! included, and enters with m votes, three quarters of all. A replica gives its one vote to the
//! first request, refuses all others, and queues none. A member that cannot reach m any more gives
//! its votes back, waits for a random time, twice as long in the mean as before, and asks again
//! with a new number.
//!
//! Messages: `REQUEST(n)`; `VOTE(n, granted)`; `RELEASE(n)`, also to give back what was won in
//! vain. A member talks to its own replica without messages.
//!
//! Invariant: a vote is given to one request at a time, and m is more than half. That holds while
//! no replica forgets its vote. In the paper replicas do, as they restart, and exclusion is
//! *probable*: [`violation_probability`] says how much so. Here a member that restarts is a new
//! one, and the view that takes it in gives all votes to the holder; what can still go wrong is
//! what goes wrong with views where the silent are presumed gone, which is the only rule this
//! algorithm is offered under. So there is no fence.
//!
//! Progress: none is guaranteed, and nobody is served before another. Votes can be split so that
//! nobody wins, again and again, each time with less probability; and a member that leaves and asks
//! again at once wins again, as its request comes right behind its RELEASE while all others pause.
//!
//! Two rules of the paper are left out. Its clients give up on silent replicas after a while; here
//! one is waited for as by all other algorithms, until it answers or a view goes on without it. And
//! its votes expire; here they end with the view.
//!
//! Cost: 3N messages under light load, of which the 3 to oneself are none; response 2T+E. Under
//! heavy load there is no bound.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, HopTimer, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Your vote, please, for my attempt of this number.
    Request { number: u64 },
    /// My vote is yours, or another's.
    Vote { number: u64, granted: bool },
    /// I need your vote no more.
    Release { number: u64 },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Vote { .. } => "VOTE",
            Self::Release { .. } => "RELEASE",
        }
    }

    pub(crate) const fn is_request(&self) -> bool {
        matches!(self, Self::Request { .. })
    }
}

/// The longest pause after the first attempt in vain; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
/// After so many attempts it doubles no more.
const DOUBLINGS: u32 = 10;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Voting {
    me: NodeId,
    others: Vec<NodeId>,
    /// To whom this member's replica has given its vote, and for which attempt.
    vote: Option<(NodeId, u64)>,
    /// The number of this member's last attempt. The grant of a member that holds the lock as the
    /// view begins counts as attempt 0.
    number: u64,
    phase: Phase,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    Idle,
    Asking {
        request: Request,
        attempt: u32,
        granted: BTreeSet<NodeId>,
        refused: BTreeSet<NodeId>,
    },
    /// In vain so far, and waiting to try again.
    Pausing {
        request: Request,
        attempts: u32,
    },
    Held {
        id: RequestId,
    },
}

impl Voting {
    /// All votes are for the holder; each waiter asks for them.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let holder = from.holders.first();
        let mut engine = Self {
            me: from.me,
            others: from.others().collect(),
            vote: holder.map(|id| (id.node, 0)),
            number: 0,
            phase: match from.my_holder() {
                Some(id) => Phase::Held { id },
                None => Phase::Idle,
            },
        };
        if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    /// N.
    fn replicas(&self) -> usize {
        self.others.len() + 1
    }

    /// m.
    fn needed(&self) -> usize {
        votes_needed(self.replicas())
    }

    fn ask(&mut self, request: Request, attempt: u32, out: &mut Effects<Message>) {
        self.number += 1;
        self.phase = Phase::Asking {
            request,
            attempt,
            granted: BTreeSet::new(),
            refused: BTreeSet::new(),
        };
        let number = self.number;
        out.send_to_all(&self.others, Message::Request { number });
        let granted = self.poll(self.me, number);
        self.count(self.me, granted, out);
    }

    /// This member's replica is asked for its vote: whether it is given, or was.
    fn poll(&mut self, node: NodeId, number: u64) -> bool {
        *self.vote.get_or_insert((node, number)) == (node, number)
    }

    /// What a replica has answered to the attempt that is under way.
    fn count(&mut self, voter: NodeId, is_granted: bool, out: &mut Effects<Message>) {
        let (replicas, needed) = (self.replicas(), self.needed());
        let Phase::Asking {
            request,
            attempt,
            granted,
            refused,
        } = &mut self.phase
        else {
            return;
        };
        if is_granted {
            granted.insert(voter);
        } else {
            refused.insert(voter);
        }
        let (request, attempts) = (*request, *attempt + 1);
        if granted.len() >= needed {
            self.phase = Phase::Held { id: request.id };
            out.grant(request.id);
        } else if refused.len() > replicas - needed {
            self.give_back(out);
            self.phase = Phase::Pausing { request, attempts };
            out.busy = Some(request.id);
            let pause = FIRST_PAUSE * (1 << (attempts - 1).min(DOUBLINGS));
            out.hop_timer = Some(HopTimer::Within(pause));
        }
    }

    /// All votes of the last attempt, won or not.
    fn give_back(&mut self, out: &mut Effects<Message>) {
        let number = self.number;
        out.send_to_all(&self.others, Message::Release { number });
        self.take_back(self.me, number);
    }

    /// This member's replica has its vote again, if it was given so.
    fn take_back(&mut self, node: NodeId, number: u64) {
        self.vote.take_if(|vote| *vote == (node, number));
    }
}

impl Engine<Message> for Voting {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(matches!(self.phase, Phase::Idle), "one request at a time");
        self.ask(request, 0, out);
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if matches!(self.phase, Phase::Held { id: held } if held == id) {
            self.phase = Phase::Idle;
            self.give_back(out);
        }
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        match &self.phase {
            Phase::Asking { request, .. } if request.id == id => {
                self.phase = Phase::Idle;
                self.give_back(out);
            }
            Phase::Pausing { request, .. } if request.id == id => {
                self.phase = Phase::Idle;
                out.hop_timer = Some(HopTimer::Clear);
            }
            _ => {}
        }
    }

    /// Nobody is inside beside this member; of others a replica knows only whether they may have
    /// won without its vote.
    fn may_be_inside(&self, node: NodeId) -> bool {
        let is_needed = self.needed() == self.replicas();
        let is_given = self.vote.is_some_and(|(voted, _)| voted == node);
        !matches!(self.phase, Phase::Held { .. }) && (is_given || !is_needed)
    }

    fn asks(&self) -> &[NodeId] {
        &self.others
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            Message::Request { number } => {
                let granted = self.poll(from, number);
                let vote = Message::Vote { number, granted };
                out.send(from, vote);
            }
            Message::Vote { number, granted } => {
                let is_mine = number == self.number;
                let counts = is_mine && matches!(self.phase, Phase::Asking { .. });
                let is_kept = is_mine && matches!(self.phase, Phase::Held { .. });
                if counts {
                    self.count(from, granted, out);
                } else if granted && !is_kept {
                    // The request has overtaken its RELEASE, or came twice.
                    out.send(from, Message::Release { number });
                }
            }
            Message::Release { number } => self.take_back(from, number),
        }
    }

    /// The pause is over.
    fn timeout(&mut self, out: &mut Effects<Message>) {
        if let Phase::Pausing { request, attempts } = self.phase {
            self.ask(request, attempts, out);
        }
    }
}

/// m: how many votes of `replicas` one enters with, three quarters of them.
pub const fn votes_needed(replicas: usize) -> usize {
    (3 * replicas).div_ceil(4)
}

/// The probability that a second one enters beside one that is inside with `votes` of `replicas`
/// votes, when each replica forgets its vote meanwhile with probability `forgets` (0 to 1), on its
/// own: about the time that one is inside by the mean time between two restarts of a replica.
///
/// A rival needs as many votes, and `replicas - votes` have not voted, so that `2 * votes -
/// replicas` or more must forget (Tanenbaum and van Steen 2007, section 6.3.3). The lecture counts
/// from half as many, which no rival can win with: its sum is too large. What it says of its
/// example of nine votes of sixteen, below 10^-18, is neither: that is 0.0024.
///
/// # Panics
/// `votes` is not more than half of `replicas`, or more than all.
pub fn violation_probability(replicas: u32, votes: u32, forgets: f64) -> f64 {
    assert!(
        votes <= replicas && 2 * votes > replicas,
        "exclusion takes more than half of the votes"
    );
    at_least(2 * votes - replicas, votes, forgets)
}

/// The probability that of `all` independent events of probability `each` so `many` happen or more.
fn at_least(many: u32, all: u32, each: f64) -> f64 {
    // From the least probable on, so that small terms are not lost in a large sum.
    (many..=all).rev().map(|k| exactly(k, all, each)).sum()
}

fn exactly(many: u32, all: u32, each: f64) -> f64 {
    let ways: f64 = (0..many)
        .map(|k| f64::from(all - k) / f64::from(k + 1))
        .product();
    ways * power(each, many) * power(1.0 - each, all - many)
}

fn power(base: f64, exponent: u32) -> f64 {
    (0..exponent).map(|_| base).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 2.12: p = 30 s by an hour.
    #[test]
    fn the_lecture_s_example_and_what_is_right() {
        let p = 30.0 / 3600.0;
        for (replicas, votes, lecture, right) in [
            (16, 9, 7.25e-2, 2.40e-3),
            (16, 12, 2.26e-6, 1.12e-14),
            (16, 13, 4.89e-8, 4.5e-19),
            (32, 24, 1.52e-11, 3.7e-28),
        ] {
            let close = |measured: f64, expected: f64| {
                let ratio = measured / expected;
                assert!((ratio - 1.0).abs() < 0.02, "{measured} {expected}");
            };
            close(at_least(votes - replicas / 2, votes, p), lecture);
            close(violation_probability(replicas, votes, p), right);
        }
        let all_forget = power(p, 9);
        assert!((all_forget / 1.94e-19 - 1.0).abs() < 0.01);
    }

    #[test]
    fn probabilities_add_up() {
        for all in 1..20 {
            for each in [0.0, 0.25, 0.5, 1.0] {
                assert!((at_least(0, all, each) - 1.0).abs() < 1e-12);
            }
        }
        assert!((violation_probability(1, 1, 0.5) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn three_quarters_are_more_than_half() {
        let needed = [1, 2, 3, 4, 5, 8, 16, 32].map(votes_needed);
        assert_eq!(needed, [1, 2, 3, 3, 4, 6, 12, 24]);
        assert!((1..1000).all(|replicas| 2 * votes_needed(replicas) > replicas));
    }
}
