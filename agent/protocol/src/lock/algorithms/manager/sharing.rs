//! This member's requests that share the lock, and the shares that it has for them.

use alloc::vec::Vec;

use super::line::Line;
use super::{Message, Place};
use crate::ids::RequestId;
use crate::lock::engine::Rebuild;
use crate::lock::request::{Mode, Release, Request};

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Sharing {
    /// The request that waits.
    waiting: Option<Waiting>,
    shares: Vec<Share>,
    /// Whether one at a time may be inside by each.
    is_alone: bool,
    /// How many numbers for fences are left of those that came with the last share.
    numbers: u32,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Waiting {
    id: RequestId,
    tries: bool,
    /// Its place; `None` if that was refused, and it has not asked again yet.
    number: Option<u64>,
    /// Whether it has its share, and lacks the manager's right alone.
    is_let_in: bool,
}

#[derive(Clone, Debug, Hash)]
struct Share {
    number: u64,
    /// Those that are inside by it.
    inside: Vec<RequestId>,
    /// How many have been.
    used: u32,
    /// Whether nobody enters by it any more.
    is_recalled: bool,
    /// How it ends, as far as is known.
    how: Release,
}

impl Sharing {
    /// Readers: those that share the lock.
    pub(super) fn of_readers(from: &Rebuild<'_>) -> Self {
        Self::new(from, Mode::Shared)
    }

    /// Those that have one of several permits.
    pub(super) fn of_permits(from: &Rebuild<'_>) -> Self {
        Self {
            is_alone: true,
            ..Self::new(from, Mode::Exclusive)
        }
    }

    fn new(from: &Rebuild<'_>, mode: Mode) -> Self {
        let is_mine = |id: &&RequestId| id.node == from.me && from.held == mode;
        let inside = from.holders.iter().filter(is_mine);
        let waits = |request: &Request| request.mode == mode;
        Self {
            waiting: from.my_waiter().filter(waits).map(|request| Waiting {
                id: request.id,
                tries: request.tries,
                number: Some(Place::of(&request.id).number),
                is_let_in: false,
            }),
            shares: inside
                .map(|id| Share {
                    inside: alloc::vec![*id],
                    used: 1,
                    ..Share::new(Place::of(id).number, true)
                })
                .collect(),
            is_alone: false,
            numbers: 0,
        }
    }

    /// Whether somebody waits, or is inside.
    pub(super) fn is_used(&self) -> bool {
        let mut shares = self.shares.iter();
        self.waiting.is_some() || shares.any(|share| !share.inside.is_empty())
    }

    /// Whether there is a share that nobody uses.
    pub(super) fn has_idle(&self) -> bool {
        self.shares.iter().any(|share| self.is_idle(share))
    }

    fn is_idle(&self, share: &Share) -> bool {
        let is_let_in =
            |waiting: &Waiting| waiting.is_let_in && waiting.number == Some(share.number);
        share.inside.is_empty() && !self.waiting.as_ref().is_some_and(is_let_in)
    }

    pub(super) fn ask(&mut self, id: RequestId, tries: bool, number: u64) {
        debug_assert!(self.waiting.is_none(), "one request of a member waits");
        self.waiting = Some(Waiting {
            id,
            tries,
            number: Some(number),
            is_let_in: false,
        });
    }

    /// Whether the place of the one that waits was refused, and it is to ask again.
    pub(super) fn is_refused(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting.number.is_none())
    }

    pub(super) fn ask_again(&mut self, number: u64) {
        if let Some(waiting) = &mut self.waiting {
            (waiting.number, waiting.tries) = (Some(number), false);
        }
    }

    /// The one that waits, if it only tries and is not among those who are let in as the view begins.
    pub(super) fn tries_in_vain(&self, line: &Line, from: &Rebuild<'_>) -> Option<RequestId> {
        let waiting = self.waiting.filter(|waiting| waiting.tries)?;
        let place = Place {
            node: from.me,
            number: waiting.number?,
        };
        (!line.lets_in(place)).then_some(waiting.id)
    }

    /// Its place is refused. Returns whose that was.
    pub(super) fn refuse(&mut self, number: u64) -> Option<RequestId> {
        let is_it = |it: &&mut Waiting| it.number == Some(number) && !it.is_let_in;
        let waiting = self.waiting.as_mut().filter(is_it)?;
        waiting.number = None;
        Some(waiting.id)
    }

    /// The share of the one that waits has come, with so many numbers. Whether there is one that waits
    /// for it.
    pub(super) fn let_in(&mut self, number: u64, block: u32, recalled: bool) -> bool {
        let is_it = |it: &&mut Waiting| it.number == Some(number) && !it.is_let_in;
        let Some(waiting) = self.waiting.as_mut().filter(is_it) else {
            return false;
        };
        waiting.is_let_in = true;
        self.shares.push(Share::new(number, recalled));
        self.numbers = block;
        true
    }

    /// Whether one is let in, and waits for the manager's right.
    pub(super) fn is_let_in(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting.is_let_in)
    }

    /// The one that was let in is inside.
    pub(super) fn enter(&mut self) -> Option<RequestId> {
        let Waiting { id, number, .. } = self.waiting.take_if(|waiting| waiting.is_let_in)?;
        let mut shares = self.shares.iter_mut();
        let share = shares.find(|share| Some(share.number) == number)?;
        share.enter(id, &mut self.numbers);
        Some(id)
    }

    /// `id` is inside, if there is a share by which it may be without asking.
    pub(super) fn enter_by_loan(&mut self, id: RequestId) -> bool {
        let has_room = |share: &&mut Share| !self.is_alone || share.inside.is_empty();
        let mut shares = self.shares.iter_mut().filter(has_room);
        let share = shares.find(|share| !share.is_recalled && self.numbers > 0);
        let share = share.map(|share| share.enter(id, &mut self.numbers));
        share.is_some()
    }

    /// It waits no longer, or has left. What the manager is to be told at once.
    pub(super) fn end(&mut self, id: RequestId, how: Release) -> Option<Message> {
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.id == id) {
            let number = waiting.number?;
            let mut shares = self.shares.iter_mut();
            if let Some(share) = shares.find(|share| share.number == number) {
                share.is_recalled = true;
                return None;
            }
            return Some(Message::Drop {
                number,
                used: 0,
                how,
            });
        }
        let mut shares = self.shares.iter_mut();
        let share = shares.find(|share| share.inside.contains(&id))?;
        share.inside.retain(|it| *it != id);
        // A share's first entry did nothing: who comes next is told what that one was told, or would have been.
        let is_unused = how == Release::Unused && share.used == 1;
        if how == Release::Abandoned || is_unused {
            // The manager is to hear of it before others enter.
            (share.how, share.is_recalled) = (how, true);
        }
        None
    }

    /// The share of that number is wanted back. `tries`: at once or not at all. What the manager is to be
    /// told at once; if the share can go, that is said later.
    pub(super) fn recall(&mut self, number: u64, tries: bool) -> Option<Message> {
        let place = self.shares.iter().position(|it| it.number == number)?;
        if tries && !self.is_idle(&self.shares[place]) {
            return Some(Message::Reads { number });
        }
        self.shares[place].is_recalled = true;
        None
    }

    /// Shares that nobody uses, and that nobody can use again: what the manager is to be told. `all`: those
    /// too that could be used again.
    pub(super) fn give_back(&mut self, all: bool) -> Vec<Message> {
        let is_over =
            |share: &Share| self.is_idle(share) && (all || share.is_recalled || self.numbers == 0);
        let over: Vec<u64> = self
            .shares
            .iter()
            .filter(|it| is_over(it))
            .map(|it| it.number)
            .collect();
        let over = self
            .shares
            .extract_if(.., |share| over.contains(&share.number));
        over.map(|share| share.end()).collect()
    }
}

impl Share {
    const fn new(number: u64, is_recalled: bool) -> Self {
        Self {
            number,
            inside: Vec::new(),
            used: 0,
            is_recalled,
            how: Release::Given,
        }
    }

    fn enter(&mut self, id: RequestId, numbers: &mut u32) {
        self.inside.push(id);
        self.used = self.used.saturating_add(1);
        *numbers = numbers.saturating_sub(1);
    }

    fn end(self) -> Message {
        Message::Drop {
            number: self.number,
            used: self.used,
            how: self.how,
        }
    }
}
