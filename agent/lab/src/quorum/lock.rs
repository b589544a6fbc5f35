//! One lock, served by the production table of locks and one of its engines: what quorum views
//! freeze and build anew.
//!
//! The links between the engines are not what is tried here: what one of them says arrives once
//! and in order, sooner or later, as long as both processes live.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use distlock_protocol::lock::{HopTimer, LockMessage, LockOutput, Locks, Summary, Waiting};
use distlock_protocol::membership::{Member, View};
use distlock_protocol::{
    AbandonedMarks, Epoch, Event, Fence, LockName, Mode, NodeId, Release, Settings, Ticket, Time,
    Wait,
};

/// One member's part in the lock, and its only caller.
#[derive(Debug)]
pub(super) struct Lock {
    me: Member,
    name: LockName,
    locks: Locks,
    view: Option<Arc<View>>,
    caller: Caller,
    tickets: u64,
    /// Messages of an epoch to come.
    early: Vec<(NodeId, Epoch, LockMessage)>,
    /// What is to be sent.
    pub(super) out: Vec<(NodeId, Epoch, LockMessage)>,
    /// Which of the alarms that were set is the present one.
    hop: u64,
    /// The alarm that is to be set.
    pub(super) hop_in: Option<(Duration, u64)>,
    /// Whether only a new view gives back what runs out.
    pub(super) wants_view: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Idle,
    Wants(Ticket),
    /// It may enter as long as it has a lease.
    Granted(Ticket, Fence),
    Inside(Ticket),
}

impl Caller {
    pub(super) fn is_inside(self) -> bool {
        matches!(self, Self::Inside(_))
    }
}

impl Lock {
    pub(super) fn new(me: Member, settings: &Settings) -> Self {
        let name = settings.locks.keys().next().expect("one lock").clone();
        Self {
            me,
            name,
            locks: Locks::new(me.node, me.incarnation, settings, AbandonedMarks::None),
            view: None,
            caller: Caller::Idle,
            tickets: 0,
            early: Vec::new(),
            out: Vec::new(),
            hop: 0,
            hop_in: None,
            wants_view: false,
        }
    }

    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    pub(super) fn want(&mut self, now: Time) {
        if self.caller != Caller::Idle {
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.caller = Caller::Wants(ticket);
        let waiting = Waiting {
            ticket,
            wish: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
            since: now,
        };
        let mut out = LockOutput::default();
        self.locks.acquire(&self.name, waiting, &mut out);
        self.absorb(out);
    }

    /// The caller goes in, with its fence.
    pub(super) fn enter(&mut self) {
        if let Caller::Granted(ticket, _) = self.caller {
            self.caller = Caller::Inside(ticket);
        }
    }

    pub(super) fn exit(&mut self) {
        if let Caller::Inside(ticket) = self.caller {
            self.caller = Caller::Idle;
            let mut out = LockOutput::default();
            self.locks.release(ticket, Release::Given, &mut out);
            self.absorb(out);
        }
    }

    /// Nobody of this process is inside, or will ever be.
    pub(super) fn leave(&mut self) {
        let mut out = LockOutput::default();
        self.locks.leave(&BTreeSet::new(), &mut out);
        self.absorb(out);
        self.caller = Caller::Idle;
    }

    pub(super) fn freeze(&mut self) {
        self.view = None;
        let mut out = LockOutput::default();
        self.locks.freeze(&mut out);
        self.absorb(out);
    }

    pub(super) fn summary(&self, unclean: &[NodeId]) -> Summary {
        self.locks.summary(unclean)
    }

    pub(super) fn install(&mut self, view: Arc<View>, table: &Summary) {
        let epoch = view.epoch;
        self.view = Some(Arc::clone(&view));
        let coordinates = view.nodes().next() == Some(self.me.node);
        let mut out = LockOutput::default();
        self.locks.install(view, table, coordinates, &mut out);
        self.absorb(out);
        for (from, of, message) in core::mem::take(&mut self.early) {
            if of >= epoch {
                self.receive(from, of, message);
            }
        }
    }

    /// What belongs to a view is nothing to the next, and waits for it if it comes too early.
    pub(super) fn receive(&mut self, from: NodeId, epoch: Epoch, message: LockMessage) {
        let present = self.view.as_ref().map(|view| view.epoch);
        if present.is_none_or(|present| epoch > present) {
            self.early.push((from, epoch, message));
        } else if present == Some(epoch) {
            let mut out = LockOutput::default();
            self.locks.receive(from, message, &mut out);
            self.absorb(out);
        }
    }

    /// The alarm with this number rings.
    pub(super) fn hop(&mut self, number: u64) {
        if self.hop == number {
            let mut out = LockOutput::default();
            self.locks.hop_timeout(&self.name, &mut out);
            self.absorb(out);
        }
    }

    fn absorb(&mut self, out: LockOutput) {
        let LockOutput {
            sends,
            events,
            hops,
            declares,
            wants_view,
        } = out;
        debug_assert!(declares.is_empty(), "the lock is listed");
        self.wants_view |= wants_view;
        for (to, message) in sends {
            let epoch = self.view.as_ref().expect("engines speak in views").epoch;
            let sends = to.into_iter().map(|to| (to, epoch, message.clone()));
            self.out.extend(sends);
        }
        for event in events {
            if let Event::Granted { ticket, fence, .. } = event {
                debug_assert_eq!(self.caller, Caller::Wants(ticket), "it asked once");
                self.caller = Caller::Granted(ticket, fence);
            }
        }
        for (_, timer) in hops {
            self.hop += 1;
            self.hop_in = match timer {
                HopTimer::Set(stay) | HopTimer::Within(stay) => Some((stay, self.hop)),
                HopTimer::Clear => None,
            };
        }
    }
}
