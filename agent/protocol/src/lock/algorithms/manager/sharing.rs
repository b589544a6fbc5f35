//! This member's requests that share the lock.

use alloc::vec::Vec;

use super::Place;
use super::line::Line;
use crate::ids::RequestId;
use crate::lock::engine::Rebuild;
use crate::lock::request::{Mode, Request};

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Sharing {
    /// The one that waits.
    waiting: Option<Waiting>,
    /// Those that are inside.
    inside: Vec<Reader>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Waiting {
    id: RequestId,
    tries: bool,
    /// Its place; `None` if that was refused, and it has not asked again yet.
    number: Option<u64>,
    /// Whether it lacks the manager's right alone.
    is_let_in: bool,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Reader {
    id: RequestId,
    number: u64,
}

impl Sharing {
    pub(super) fn new(from: &Rebuild<'_>, line: &Line) -> Self {
        let inside = line.inside.iter().zip(from.holders);
        let inside = inside.filter(|(place, _)| place.node == from.me);
        let shares = |request: &Request| request.mode == Mode::Shared;
        Self {
            waiting: from.my_waiter().filter(shares).map(|request| Waiting {
                id: request.id,
                tries: request.tries,
                number: Some(Place::of(&request.id).number),
                is_let_in: false,
            }),
            inside: inside
                .map(|(place, &id)| Reader {
                    id,
                    number: place.number,
                })
                .collect(),
        }
    }

    pub(super) fn is_used(&self) -> bool {
        self.waiting.is_some() || !self.inside.is_empty()
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

    /// It may be inside.
    pub(super) fn let_in(&mut self, number: u64) {
        if let Some(waiting) = self.waiting.as_mut().filter(|it| it.number == Some(number)) {
            waiting.is_let_in = true;
        }
    }

    /// Whether one is let in, and waits for the manager's right.
    pub(super) fn is_let_in(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting.is_let_in)
    }

    /// The one that was let in is inside.
    pub(super) fn enter(&mut self) -> Option<RequestId> {
        let Waiting { id, number, .. } = self.waiting.take_if(|waiting| waiting.is_let_in)?;
        let number = number?;
        self.inside.push(Reader { id, number });
        Some(id)
    }

    /// It waits no longer, or has left. Returns its place.
    pub(super) fn end(&mut self, id: RequestId) -> Option<u64> {
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.id == id) {
            return waiting.number;
        }
        let place = self.inside.iter().position(|reader| reader.id == id)?;
        Some(self.inside.remove(place).number)
    }
}
