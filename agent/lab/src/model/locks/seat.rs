//! One member: its table of locks, and its callers, one after the other.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use distlock_protocol::lock::{
    HopTimer, LockMessage, LockOutput, Locks, Receivers, Summary, Waiting,
};
use distlock_protocol::membership::{Member, View};
use distlock_protocol::{
    AbandonedMarks, Algorithm, ElectionAlgorithm, Epoch, Event, Failure, LockName, LockSpec, Mode,
    NodeId, Refusal, Release, Settings, Ticket, Time, Wait,
};

/// One incarnation of one member.
#[derive(Clone, Debug, Hash)]
pub(in crate::model) struct Seat {
    me: Member,
    locks: Locks,
    /// The last view that came into force here.
    epoch: Epoch,
    /// Whether it still is.
    in_force: bool,
    caller: Caller,
    asked: u8,
    /// Whether a ring's token is waiting for somebody here to want it.
    hops: bool,
}

/// Those who want something, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::model) enum Caller {
    Idle,
    Waits(Ticket),
    Inside(Ticket),
}

/// What a member says when something has happened to it.
#[derive(Debug, Default)]
pub(in crate::model) struct Said {
    pub(in crate::model) sends: Vec<(Receivers, LockMessage)>,
    pub(in crate::model) events: Vec<Event>,
}

/// The lock.
pub(in crate::model) fn name() -> LockName {
    LockName::new("lock").expect("a good name")
}

impl Seat {
    pub(in crate::model) fn new(me: Member, algorithm: Algorithm) -> Self {
        let settings = Settings {
            group: String::from("model"),
            lease: Duration::from_secs(1),
            // Of all there are, the one that serves any algorithm.
            failure: Failure::Unanimity,
            lock_delay: Duration::ZERO,
            election: ElectionAlgorithm::Bully,
            algorithm,
            locks: BTreeMap::from([(name(), LockSpec::exclusive(algorithm))]),
        };
        Self {
            locks: Locks::new(me.node, me.incarnation, &settings, AbandonedMarks::None),
            me,
            epoch: Epoch::ZERO,
            in_force: false,
            caller: Caller::Idle,
            asked: 0,
            hops: false,
        }
    }

    pub(in crate::model) fn me(&self) -> Member {
        self.me
    }

    pub(in crate::model) fn caller(&self) -> Caller {
        self.caller
    }

    /// How many of its callers have wanted something.
    pub(in crate::model) fn asked(&self) -> u8 {
        self.asked
    }

    pub(in crate::model) fn hops(&self) -> bool {
        self.hops
    }

    /// The view in force.
    pub(in crate::model) fn epoch(&self) -> Option<Epoch> {
        self.in_force.then_some(self.epoch)
    }

    /// Whether what belongs to the view of `epoch` can be taken in now. What comes too early would
    /// wait here for its view; it may as well wait on its way.
    pub(in crate::model) fn takes(&self, epoch: Epoch, any: bool) -> bool {
        self.in_force && (epoch == self.epoch || any)
    }

    /// Whether what belongs to the view of `epoch` will never be taken in any more.
    pub(in crate::model) fn is_past(&self, epoch: Epoch) -> bool {
        epoch < self.epoch || epoch == self.epoch && !self.in_force
    }

    /// The ticket of the next caller.
    pub(in crate::model) fn next_ticket(&self) -> Ticket {
        Ticket(u64::from(self.asked) + 1)
    }

    pub(in crate::model) fn ask(&mut self) -> Said {
        let ticket = self.next_ticket();
        self.asked += 1;
        self.caller = Caller::Waits(ticket);
        let waiting = Waiting {
            ticket,
            wish: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
            since: Time::ZERO,
            is_inside: false,
        };
        self.give(|locks, out| locks.acquire(&name(), waiting, out))
    }

    pub(in crate::model) fn cancel(&mut self) -> Said {
        let Caller::Waits(ticket) = self.caller else {
            return Said::default();
        };
        self.give(|locks, out| locks.end(ticket, Refusal::Cancelled, out))
    }

    pub(in crate::model) fn leave(&mut self, how: Release) -> Said {
        let Caller::Inside(ticket) = self.caller else {
            return Said::default();
        };
        self.caller = Caller::Idle;
        self.give(|locks, out| locks.release(ticket, how, out))
    }

    pub(in crate::model) fn hop(&mut self) -> Said {
        self.hops = false;
        self.give(|locks, out| locks.hop_timeout(&name(), out))
    }

    pub(in crate::model) fn receive(&mut self, from: NodeId, message: LockMessage) -> Said {
        self.give(|locks, out| {
            locks.receive(from, message, out);
        })
    }

    pub(in crate::model) fn freeze(&mut self) -> Said {
        self.in_force = false;
        self.give(Locks::freeze)
    }

    pub(in crate::model) fn summary(&self, next: &View) -> Summary {
        self.locks.summary(next)
    }

    pub(in crate::model) fn install(&mut self, view: &Arc<View>, table: &Summary) -> Said {
        (self.epoch, self.in_force) = (view.epoch, true);
        let coordinates = view.nodes().next() == Some(self.me.node);
        let view = Arc::clone(view);
        self.give(|locks, out| locks.install(view, table, coordinates, out))
    }

    pub(in crate::model) fn lift(&mut self) -> Said {
        self.give(Locks::lift)
    }

    fn give(&mut self, input: impl FnOnce(&mut Locks, &mut LockOutput)) -> Said {
        let mut out = LockOutput::default();
        input(&mut self.locks, &mut out);
        debug_assert!(out.declares.is_empty(), "the lock is listed");
        for (_, timer) in out.hops {
            self.hops = timer != HopTimer::Clear;
        }
        for event in &out.events {
            match *event {
                Event::Granted { ticket, .. } => self.caller = Caller::Inside(ticket),
                Event::Ended { .. } => self.caller = Caller::Idle,
                _ => {}
            }
        }
        Said {
            sends: out.sends,
            events: out.events,
        }
    }
}
