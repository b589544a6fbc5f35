//! The local queue: the callers of one member that want the same lock, first come first served.
//!
//! The engine sees one request at a time; everybody else waits here. Each caller's request ends
//! in exactly one of a grant and an end, also while a view changes: what callers give up or leave
//! then is remembered here, and played when the next engine stands.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::{LockSpec, Mode, Previous, Release, Request};
use crate::api::Wait;
use crate::ids::{Fence, RequestId, Ticket};
use crate::time::Time;

/// A caller that waits.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Waiting {
    pub ticket: Ticket,
    /// How it says the lock is served.
    pub wish: Option<LockSpec>,
    pub mode: Mode,
    pub wait: Wait,
    pub since: Time,
    /// Whether it has entered already, by a [`Loan`](super::Loan).
    pub is_inside: bool,
}

/// The request that the engine knows of.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Asking {
    pub(crate) request: Request,
    /// Whose it is; `None` once its caller gave it up, and the engine has not been told yet.
    pub(crate) caller: Option<Waiting>,
}

/// A request that is inside.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Held {
    pub(crate) id: RequestId,
    /// Whose it is; `None` once its caller left, and the engine has not been told yet.
    pub(crate) ticket: Option<Ticket>,
    /// What its caller asked for, should it have to ask again.
    asked: Option<Waiting>,
    pub(crate) fence: Fence,
    pub(crate) mode: Mode,
    /// What its caller was told of the grant before.
    pub(crate) previous: Previous,
    /// How its caller left, once it has.
    how: Release,
}

impl Held {
    /// How the grant ends for those who come after it.
    fn end(&self) -> Release {
        match (self.how, self.previous) {
            (Release::Unused, Previous::Abandoned) => Release::Abandoned,
            (Release::Unused, Previous::Clean) => Release::Given,
            (how, _) => how,
        }
    }
}

/// The callers of one member that want one lock.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct LocalQueue {
    waiting: VecDeque<Waiting>,
    asking: Option<Asking>,
    held: Vec<Held>,
}

impl LocalQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.asking.is_none() && self.held.is_empty()
    }

    pub(crate) fn asking(&self) -> Option<&Asking> {
        self.asking.as_ref()
    }

    pub(crate) fn held(&self) -> &[Held] {
        &self.held
    }

    /// The callers that wait, in order, the one that the engine knows of first.
    pub(crate) fn callers(&self) -> impl Iterator<Item = &Waiting> + Clone {
        self.asking
            .iter()
            .filter_map(|asking| asking.caller.as_ref())
            .chain(&self.waiting)
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Takes out all callers that the engine does not know of.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<Waiting> {
        core::mem::take(&mut self.waiting)
    }

    /// Whether one more caller of this member may be inside with those that are.
    pub(crate) fn has_room(&self, mode: Mode, permits: u32) -> bool {
        match self.held.first() {
            None => true,
            Some(held) if mode == Mode::Shared => held.mode == Mode::Shared,
            Some(held) => held.mode == Mode::Exclusive && self.held.len() < permits as usize,
        }
    }

    /// The caller whose request may go to the engine now.
    pub(crate) fn next(&mut self, permits: u32) -> Option<Waiting> {
        let first = self.waiting.front()?;
        let may_ask = self.asking.is_none() && self.has_room(first.mode, permits);
        if may_ask {
            self.waiting.pop_front()
        } else {
            None
        }
    }

    pub(crate) fn ask(&mut self, request: Request, caller: Waiting) {
        debug_assert!(self.asking.is_none(), "one request at a time");
        self.asking = Some(Asking {
            request,
            caller: Some(caller),
        });
    }

    /// Takes a waiting caller out, wherever it is. The engine's request stays until
    /// [`LocalQueue::withdraw`]. Returns whether the caller waited.
    pub(crate) fn give_up(&mut self, ticket: Ticket) -> bool {
        let is_it = |waiting: &Waiting| waiting.ticket == ticket;
        if let Some(asking) = &mut self.asking
            && asking.caller.as_ref().is_some_and(is_it)
        {
            asking.caller = None;
            return true;
        }
        let place = self.waiting.iter().position(is_it);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// Takes the engine's request out if its caller gave it up: the engine must cancel it.
    pub(crate) fn withdraw(&mut self) -> Option<RequestId> {
        let asking = self.asking.take_if(|asking| asking.caller.is_none())?;
        Some(asking.request.id)
    }

    /// The engine's request `id` is inside. Returns its caller, `None` if that gave up meanwhile;
    /// nothing at all if `id` is not the engine's request.
    pub(crate) fn grant(
        &mut self,
        id: RequestId,
        fence: Fence,
        previous: Previous,
    ) -> Option<Option<Waiting>> {
        let asking = self.asking.take_if(|asking| asking.request.id == id)?;
        let ticket = asking.caller.map(|caller| caller.ticket);
        let mode = asking.request.mode;
        self.held.push(Held {
            id,
            ticket,
            asked: asking.caller,
            fence,
            mode,
            previous,
            how: Release::Unused,
        });
        Some(asking.caller)
    }

    /// What a caller that is inside had asked for.
    pub(crate) fn asked(&self, ticket: Ticket) -> Option<&Waiting> {
        let mut held = self.held.iter();
        held.find(|held| held.ticket == Some(ticket))?
            .asked
            .as_ref()
    }

    /// Begins a new incarnation, in which nothing was asked and nothing is held. `unaware`: the
    /// tickets of callers that were let in and were not told; these wait again, before the others.
    /// Returns the tickets of the callers that were told.
    pub(crate) fn begin_anew(&mut self, unaware: &BTreeSet<Ticket>) -> Vec<Ticket> {
        if let Some(caller) = self.asking.take().and_then(|asking| asking.caller) {
            self.waiting.push_front(caller);
        }
        let mut lost = Vec::new();
        for held in self.held.drain(..) {
            let Some(ticket) = held.ticket else { continue };
            match held.asked.filter(|_| unaware.contains(&ticket)) {
                Some(caller) => self.waiting.push_front(caller),
                None => lost.push(ticket),
            }
        }
        lost
    }

    /// A caller that is inside leaves. The grant stays until [`LocalQueue::leave`]. Returns
    /// whether the caller was inside.
    pub(crate) fn release(&mut self, ticket: Ticket, how: Release) -> bool {
        let held = self
            .held
            .iter_mut()
            .find(|held| held.ticket == Some(ticket));
        held.map(|held| (held.ticket, held.how) = (None, how))
            .is_some()
    }

    /// Takes out a grant whose caller has left: the engine must release it.
    pub(crate) fn leave(&mut self) -> Option<(Held, Release)> {
        let place = self.held.iter().position(|held| held.ticket.is_none())?;
        let held = self.held.swap_remove(place);
        Some((held, held.end()))
    }

    /// Takes out what the members of the view do not know to be inside: its holders have lost it.
    pub(crate) fn lose_all_but(&mut self, holders: &[RequestId]) -> Vec<Ticket> {
        let lost = self.held.extract_if(.., |held| !holders.contains(&held.id));
        lost.filter_map(|held| held.ticket).collect()
    }

    /// Takes out the engine's request if the members of the view do not know it: it cannot be
    /// served as the lock is served now. Returns its caller.
    pub(crate) fn withdraw_unless(&mut self, waiters: &[Request]) -> Option<Waiting> {
        let is_unknown = |asking: &mut Asking| {
            let mut known = waiters.iter().map(|request| request.id);
            known.all(|id| id != asking.request.id)
        };
        self.asking.take_if(is_unknown)?.caller
    }

    /// Whether a grant was abandoned of which the engine has not been told yet.
    pub(crate) fn owes_mark(&self) -> bool {
        let mut left = self.held.iter().filter(|held| held.ticket.is_none());
        left.any(|held| held.end() == Release::Abandoned)
    }
}
