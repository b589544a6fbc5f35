//! The manager's phases of readers: which readers wait in each, and which members have a share.

use alloc::vec;
use alloc::vec::Vec;

use super::books::{Books, Probe, Said, refuse};
use super::lending::Share;
use super::line::{FIRST_PHASE, Line, WAITING_PHASE};
use super::{Message, Place, Worth};
use crate::ids::NodeId;
use crate::lock::request::Release;

/// A place of those that share the lock.
#[derive(Clone, Debug, Hash)]
pub(super) struct Phase {
    number: u64,
    /// Whether it is in no list before it has the token. Only readers that try join it.
    tries: bool,
    waiting: Vec<Place>,
    /// The shares of those that may be inside.
    shares: Vec<Share>,
    /// The worth of loans, while it has the token.
    worth: Option<Worth>,
    /// Which place comes after it.
    next: Option<Place>,
}

impl Phase {
    const fn new(number: u64, waiting: Vec<Place>) -> Self {
        Self {
            number,
            tries: false,
            waiting,
            shares: Vec::new(),
            worth: None,
            next: None,
        }
    }

    /// Those with which a view begins.
    pub(super) fn all(me: NodeId, line: &Line) -> Vec<Self> {
        let after = |number| {
            let mut behind = line.places.iter().copied();
            behind.find(|place| *place == Place { node: me, number });
            behind.next()
        };
        let mut phases = Vec::new();
        if !line.inside.is_empty() {
            phases.push(Self {
                shares: line.inside.iter().copied().map(Share::once).collect(),
                worth: Some(Worth::default()),
                next: after(FIRST_PHASE),
                ..Self::new(FIRST_PHASE, line.joining.clone())
            });
        }
        if !line.waiting.is_empty() {
            phases.push(Self {
                next: after(WAITING_PHASE),
                ..Self::new(WAITING_PHASE, line.waiting.clone())
            });
        }
        phases
    }

    /// The members that may be inside.
    pub(super) fn inside(&self) -> impl Iterator<Item = Place> + '_ {
        self.shares.iter().map(|share| share.place)
    }
}

impl Books {
    /// The view has begun: lets readers in, if it is their turn.
    pub(super) fn begin_view(&mut self, say: &mut Said) {
        match self.list.front() {
            Some(first) if self.is_phase(*first) => {
                let number = first.number;
                self.let_readers_in(number, Worth::default(), say);
            }
            _ => {}
        }
    }

    pub(super) fn has_phase(&self, number: u64) -> bool {
        self.phases.iter().any(|phase| phase.number == number)
    }

    pub(super) fn is_phase(&self, place: Place) -> bool {
        place.node == self.me && self.has_phase(place.number)
    }

    fn phase(&mut self, number: u64) -> Option<&mut Phase> {
        self.phases.iter_mut().find(|phase| phase.number == number)
    }

    /// The place of the phase that has the token.
    fn present(&self) -> Option<Place> {
        let mut phases = self.phases.iter();
        let phase = phases.find(|phase| phase.worth.is_some())?;
        Some(Place {
            node: self.me,
            number: phase.number,
        })
    }

    pub(super) fn add_reader(
        &mut self,
        reader: Place,
        tries: bool,
        fresh: &mut u64,
        say: &mut Said,
    ) {
        self.lending.is_asked(reader.node);
        if let Some(present) = self.present()
            && self.list.back() == Some(&present)
        {
            self.refuse_probe_at(present, say);
            self.admit(present.number, vec![reader], say);
            return self.try_next(say);
        }
        // Readers that try do not join those for whom the last in the list has been asked.
        let asked = self.probe.filter(|probe| probe.place.node == self.me);
        let asked = asked.map(|probe| probe.place.number);
        let waits =
            |it: &&mut Phase| it.worth.is_none() && it.tries == tries && asked != Some(it.number);
        if let Some(phase) = self.phases.iter_mut().find(waits) {
            return phase.waiting.push(reader);
        }
        *fresh += 1;
        self.phases.push(Phase {
            tries,
            ..Phase::new(*fresh, vec![reader])
        });
        let phase = Place {
            node: self.me,
            number: *fresh,
        };
        self.add(phase, tries, say);
    }

    /// Readers join the phase that has the token.
    fn admit(&mut self, number: u64, readers: Vec<Place>, say: &mut Said) {
        let is_followed = self.list.len() > 1;
        let Some(phase) = self.phases.iter_mut().find(|phase| phase.number == number) else {
            return;
        };
        for place in readers {
            let share = self.lending.give(place, is_followed);
            say.push((place.node, share.message(false)));
            phase.shares.push(share);
        }
    }

    /// Something has come behind a place: if that is the phase that has the token, its readers do not keep
    /// their shares.
    pub(super) fn recall_if_followed(&mut self, say: &mut Said) {
        let present = self.present();
        let Some(present) = present.filter(|present| self.list.front() == Some(present)) else {
            return;
        };
        if self.list.len() < 2 {
            return;
        }
        self.refuse_probe_at(present, say);
        let phases = self.phases.iter_mut();
        for share in phases.flat_map(|phase| &mut phase.shares) {
            if share.recall() {
                let Place { node, number } = share.place;
                let tries = false;
                say.push((node, Message::Recall { number, tries }));
            }
        }
    }

    /// By that probe a place that tries wants the token of the phase `number`. It gets it if all shares are
    /// lent, and nobody uses them.
    pub(super) fn on_try(&mut self, (number, probe): (u64, u64), say: &mut Said) {
        let node = self.me;
        let at = Place { node, number };
        let is_it = |its: &Probe| its.number == probe && its.at == at;
        if !self.probe.as_ref().is_some_and(is_it) {
            return;
        }
        let mut phases = self.phases.iter().filter(|phase| phase.number == number);
        match phases.find(|phase| phase.worth.is_some() && phase.shares.iter().all(Share::is_lent))
        {
            Some(phase) => {
                let tries = true;
                let recall = |Place { node, number }| (node, Message::Recall { number, tries });
                say.extend(phase.inside().map(recall));
            }
            None => {
                self.refuse_probe_at(at, say);
                self.try_next(say);
            }
        }
    }

    /// Somebody is inside by that share.
    pub(super) fn on_reads(&mut self, reader: Place, say: &mut Said) {
        let is_inside = |phase: &&Phase| phase.inside().any(|place| place == reader);
        if let Some(phase) = self.phases.iter().find(is_inside) {
            let (node, number) = (self.me, phase.number);
            self.refuse_probe_at(Place { node, number }, say);
            self.try_next(say);
        }
    }

    /// The token has come for the phase `number`.
    pub(super) fn on_token(&mut self, number: u64, worth: Worth, say: &mut Said) {
        let place = Place {
            node: self.me,
            number,
        };
        if let Some(position) = self.list.iter().position(|it| *it == place) {
            self.list.drain(..position);
            self.forget_ghosts();
        }
        if self
            .phase(number)
            .is_some_and(|phase| phase.worth.is_none())
        {
            self.let_readers_in(number, worth, say);
        }
    }

    pub(super) fn on_next(&mut self, number: u64, place: Place, say: &mut Said) {
        if let Some(phase) = self.phase(number) {
            phase.next = Some(place);
        }
        self.pass_ghosts(say);
    }

    /// The phase `number`, which tried, does not get the token.
    pub(super) fn on_busy(&mut self, number: u64, say: &mut Said) {
        let is_it = |phase: &mut Phase| phase.number == number && phase.worth.is_none();
        for phase in self.phases.extract_if(.., is_it) {
            for reader in phase.waiting {
                refuse(reader, say);
            }
        }
    }

    /// A reader waits no longer, or its share is over after `used` entries. Whether one ended inside.
    pub(super) fn on_drop(
        &mut self,
        reader: Place,
        (used, how): (u32, Release),
        say: &mut Said,
    ) -> bool {
        for phase in &mut self.phases {
            phase.waiting.retain(|it| *it != reader);
        }
        let is_it = |share: &mut Share| share.place == reader;
        let over = self.phases.iter_mut().find_map(|phase| {
            let share = phase.shares.extract_if(.., is_it).next()?;
            Some((phase.number, share))
        });
        let Some((number, share)) = over else {
            return false;
        };
        self.lending.end(share, used);
        self.end_if_empty(number, say);
        how == Release::Abandoned
    }

    fn let_readers_in(&mut self, number: u64, worth: Worth, say: &mut Said) {
        let Some(phase) = self.phase(number) else {
            return;
        };
        phase.worth = Some(worth);
        let waiting = core::mem::take(&mut phase.waiting);
        self.admit(number, waiting, say);
        self.pass_ghosts(say);
        self.end_if_empty(number, say);
    }

    /// Nobody waits in that place any more.
    pub(super) fn on_ghost(&mut self, place: Place, say: &mut Said) {
        if self.list.contains(&place) && !self.ghosts.contains(&place) {
            self.ghosts.push(place);
            self.pass_ghosts(say);
        }
    }

    /// While a phase has the token: takes ghosts out that come next, and lets readers in behind them.
    pub(super) fn pass_ghosts(&mut self, say: &mut Said) {
        let Some(first) = self.present().filter(|it| self.list.front() == Some(it)) else {
            return;
        };
        while let Some(&ghost) = self.list.get(1)
            && self.ghosts.contains(&ghost)
        {
            self.list.remove(1);
            self.ghosts.retain(|it| *it != ghost);
            refuse(ghost, say);
        }
        let second = self.list.get(1).copied();
        let mut joining = Vec::new();
        if let Some(second) = second.filter(|second| self.is_phase(*second)) {
            self.list.remove(1);
            let is_it = |phase: &mut Phase| phase.number == second.number;
            let phases = self.phases.extract_if(.., is_it);
            joining.extend(phases.flat_map(|phase| phase.waiting));
            // Nobody is left there to answer.
            self.refuse_probe_at(second, say);
        }
        let next = self.list.get(1).copied();
        if let Some(phase) = self.phase(first.number) {
            phase.next = next;
        }
        self.admit(first.number, joining, say);
        self.try_next(say);
    }

    /// Nobody of the phase is inside any more: the token goes on.
    fn end_if_empty(&mut self, number: u64, say: &mut Said) {
        let is_over = |phase: &mut Phase| phase.number == number && phase.shares.is_empty();
        let phase = self.phases.extract_if(.., is_over).next();
        let Some((worth, next)) = phase.and_then(|phase| Some((phase.worth?, phase.next))) else {
            return;
        };
        let place = Place {
            node: self.me,
            number,
        };
        match next {
            Some(next) => {
                self.strike_through(place);
                self.grant(next, worth, say);
            }
            None => self.end_stay(place, (worth, true), say),
        }
    }
}
