//! The list with which a view begins: everybody makes the same of the view's table.

use alloc::vec::Vec;

use crate::ids::{NodeId, RequestId};
use crate::lock::engine::Rebuild;
use crate::lock::request::Mode;

use super::Place;

/// The number of the phase that waits as the view begins.
pub(super) const WAITING_PHASE: u64 = 0;
/// The number of the phase whose readers are inside then.
pub(super) const FIRST_PHASE: u64 = 1;
/// Places are numbered from here on.
const FIRST_PLACE: u64 = 2;

/// The holder, or the phase of those that hold it together, and then the waiters by their stamps. Readers
/// that wait are one phase, at the place of the first of them, or belong to the first phase if nobody waits
/// between the two.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) places: Vec<Place>,
    /// The readers that are inside: the first phase.
    pub(super) inside: Vec<Place>,
    /// The readers that wait, and belong to the first phase.
    pub(super) joining: Vec<Place>,
    /// The readers of the other phase.
    pub(super) waiting: Vec<Place>,
}

impl Line {
    pub(super) fn new(from: &Rebuild<'_>, manager: NodeId) -> Self {
        let phase = |number| Place {
            node: manager,
            number,
        };
        let mut line = Self::default();
        let holders = from.holders.iter().map(Place::of);
        match from.held {
            Mode::Exclusive => line.places.extend(holders),
            Mode::Shared => line.inside.extend(holders),
        }
        if !line.inside.is_empty() {
            line.places.push(phase(FIRST_PHASE));
        }
        for request in from.waiters {
            let place = Place::of(&request.id);
            let waits = !line.waiting.is_empty();
            match request.mode {
                Mode::Exclusive => line.places.push(place),
                Mode::Shared if line.places == [phase(FIRST_PHASE)] => line.joining.push(place),
                Mode::Shared => {
                    line.waiting.push(place);
                    if !waits {
                        line.places.push(phase(WAITING_PHASE));
                    }
                }
            }
        }
        line
    }

    /// All places of members, of those that share the lock too.
    pub(super) fn members(&self) -> impl Iterator<Item = Place> + '_ {
        let alone = self.places.iter().filter(|place| !place.is_first_phase());
        let shared = [&self.inside, &self.joining, &self.waiting];
        alone.chain(shared.into_iter().flatten()).copied()
    }

    /// Where this member's own place is among those of the list.
    pub(super) fn position(&self, me: NodeId) -> Option<usize> {
        let mut places = self.places.iter();
        places.position(|place| place.node == me && !place.is_first_phase())
    }

    /// Whether this member's reader that waits is let in at once.
    pub(super) fn lets_in(&self, place: Place) -> bool {
        let is_first = self
            .places
            .first()
            .is_some_and(|it| it.number == WAITING_PHASE);
        self.joining.contains(&place) || is_first && self.waiting.contains(&place)
    }
}

impl Place {
    pub(super) const fn of(id: &RequestId) -> Self {
        Self {
            node: id.node,
            number: id.seq.saturating_add(FIRST_PLACE),
        }
    }

    /// Whether this is a phase with which the view began.
    const fn is_first_phase(&self) -> bool {
        self.number < FIRST_PLACE
    }
}
