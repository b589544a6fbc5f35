//! What the manager of a lock knows: the places of the members, in their order, and whether the token is at
//! home or with a phase of readers.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::line::{FIRST_PHASE, Line, WAITING_PHASE};
use super::{Message, Place, Worth};
use crate::ids::NodeId;
use crate::lock::request::{Mode, Release};

/// What it makes the manager say, itself included.
pub(super) type Said = Vec<(NodeId, Message)>;

#[derive(Clone, Debug, Hash)]
pub(super) struct Books {
    me: NodeId,
    /// The places that are not known to be over, oldest first.
    list: VecDeque<Place>,
    /// The worth of loans, while the token is at home.
    home: Option<Worth>,
    /// Those of the places that are phases, and those that try.
    phases: Vec<Phase>,
    /// Those in which nobody waits any more.
    ghosts: Vec<Place>,
    /// The one TRY under way.
    probe: Option<Probe>,
    /// How many there were.
    probes: u64,
    /// Places that try, and wait for the probe to end.
    tries: VecDeque<Place>,
    /// The highest number of a place of each member (G5).
    newest: BTreeMap<NodeId, u64>,
    /// The member that gave the token back last.
    returned: Option<NodeId>,
}

/// A question to the last in the list, whether a place that tries can have the token.
#[derive(Clone, Copy, Debug, Hash)]
struct Probe {
    number: u64,
    /// The place whose owner is asked.
    at: Place,
    /// The place that tries.
    place: Place,
}

/// A place of those that share the lock.
#[derive(Clone, Debug, Hash)]
struct Phase {
    number: u64,
    /// Whether it is in no list before it has the token. Only readers that try join it.
    tries: bool,
    waiting: Vec<Place>,
    inside: Vec<Place>,
    /// The worth of loans, while it has the token.
    worth: Option<Worth>,
    /// Which place comes after it.
    next: Option<Place>,
}

impl Books {
    pub(super) fn new(me: NodeId, line: Line) -> Self {
        let mut newest = BTreeMap::new();
        for Place { node, number } in line.members() {
            let newest: &mut u64 = newest.entry(node).or_default();
            *newest = number.max(*newest);
        }
        let Line {
            places,
            inside,
            joining,
            waiting,
        } = line;
        let after = |number| {
            let mut behind = places.iter().copied();
            behind.find(|place| *place == Place { node: me, number });
            behind.next()
        };
        let mut phases = Vec::new();
        if !inside.is_empty() {
            phases.push(Phase {
                inside,
                worth: Some(Worth::default()),
                next: after(FIRST_PHASE),
                ..Phase::new(FIRST_PHASE, joining)
            });
        }
        if !waiting.is_empty() {
            phases.push(Phase {
                next: after(WAITING_PHASE),
                ..Phase::new(WAITING_PHASE, waiting)
            });
        }
        Self {
            me,
            home: places.is_empty().then(Worth::default),
            newest,
            list: places.into(),
            phases,
            ghosts: Vec::new(),
            probe: None,
            probes: 0,
            tries: VecDeque::new(),
            returned: None,
        }
    }

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

    /// Whether `node` has a place that may have the token, or share it.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        let probed = self.probe.map(|probe| probe.place);
        let readers = self.phases.iter().flat_map(|phase| &phase.inside);
        let mut places = self.list.iter().chain(readers).copied().chain(probed);
        places.any(|place| place.node == node)
    }

    pub(super) fn has_phase(&self, number: u64) -> bool {
        self.phases.iter().any(|phase| phase.number == number)
    }

    fn is_phase(&self, place: Place) -> bool {
        place.node == self.me && self.has_phase(place.number)
    }

    fn phase(&mut self, number: u64) -> Option<&mut Phase> {
        self.phases.iter_mut().find(|phase| phase.number == number)
    }

    /// `fresh`: a number for a phase.
    pub(super) fn on_request(
        &mut self,
        place: Place,
        (mode, tries): (Mode, bool),
        fresh: &mut u64,
        say: &mut Said,
    ) {
        let newest = self.newest.entry(place.node).or_default();
        if place.number <= *newest {
            return;
        }
        *newest = place.number;
        match mode {
            Mode::Exclusive => {
                // Its owner has no other place: an older one is over, and all before that.
                let mut list = self.list.iter().copied();
                let older = list.find(|it| it.node == place.node && !self.is_phase(*it));
                if let Some(older) = older {
                    self.strike_through(older);
                }
                self.add(place, tries, say);
            }
            Mode::Shared => self.add_reader(place, tries, fresh, say),
        }
    }

    fn add(&mut self, place: Place, tries: bool, say: &mut Said) {
        if let Some(mut worth) = self.home {
            if self.returned == Some(place.node) && !self.is_phase(place) {
                worth.rise();
            }
            self.begin(place, worth, say);
        } else if tries {
            self.tries.push_back(place);
            self.try_next(say);
        } else {
            if let Some(last) = self.list.back() {
                let stay = last.number;
                say.push((last.node, Message::Next { stay, place }));
            }
            self.list.push_back(place);
        }
    }

    fn add_reader(&mut self, reader: Place, tries: bool, fresh: &mut u64, say: &mut Said) {
        let last = self.list.back().copied();
        let is_last = |number| {
            last == Some(Place {
                node: self.me,
                number,
            })
        };
        let has_room = |it: &&mut Phase| it.worth.is_some() && is_last(it.number);
        if let Some(phase) = self.phases.iter_mut().find(has_room) {
            phase.inside.push(reader);
            let number = reader.number;
            return say.push((reader.node, Message::Share { number }));
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

    /// The stay `stay` is over, and the token is here.
    pub(super) fn on_return(&mut self, stay: Place, worth: Worth, say: &mut Said) {
        self.end_stay(stay, (worth, false), say);
    }

    /// `of_phase`: whether it was readers'. What they did says nothing of loans.
    fn end_stay(&mut self, stay: Place, (worth, of_phase): (Worth, bool), say: &mut Said) {
        let mut unanswered = None;
        if let Some(probe) = self.probe.take_if(|probe| probe.place == stay) {
            // That try succeeded: PASSED is on its way, from another member.
            self.strike_through(probe.at);
        } else if self.list.contains(&stay) {
            self.strike_through(stay);
            // The TRY came after the end of the stay, and was dropped.
            unanswered = self.probe.take_if(|probe| probe.at == stay);
        } else {
            return;
        }
        self.returned = (!of_phase).then_some(stay.node);
        let unanswered = unanswered.map(|probe| probe.place);
        match (self.list.front().copied(), unanswered) {
            (Some(first), unanswered) => {
                if let Some(place) = unanswered {
                    refuse(place, say);
                }
                self.grant(first, worth, say);
            }
            (None, Some(place)) => self.begin(place, worth, say),
            (None, None) => self.home = Some(worth),
        }
        self.try_next(say);
    }

    /// The token has gone to the place that tried.
    pub(super) fn on_passed(&mut self, from: NodeId, number: u64, say: &mut Said) {
        let Some(probe) = self.answered(from, number) else {
            return;
        };
        self.strike_through(probe.at);
        let stay = probe.place.number;
        if let Some(&place) = self.list.front() {
            // What the one before was told of it was dropped.
            say.push((probe.place.node, Message::Next { stay, place }));
        }
        self.list.push_front(probe.place);
        self.try_next(say);
    }

    pub(super) fn on_refused(&mut self, from: NodeId, number: u64, say: &mut Said) {
        if self.answered(from, number).is_some() {
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

    /// A reader waits no longer, or has left. Whether it ended inside.
    pub(super) fn on_drop(&mut self, reader: Place, how: Release, say: &mut Said) -> bool {
        let is_it = |it: &Place| *it == reader;
        for phase in &mut self.phases {
            phase.waiting.retain(|it| *it != reader);
        }
        let mut phases = self.phases.iter_mut();
        let Some(phase) = phases.find(|phase| phase.inside.iter().any(is_it)) else {
            return false;
        };
        phase.inside.retain(|it| *it != reader);
        let number = phase.number;
        self.end_if_empty(number, say);
        how == Release::Abandoned
    }

    fn let_readers_in(&mut self, number: u64, worth: Worth, say: &mut Said) {
        let Some(phase) = self.phase(number) else {
            return;
        };
        phase.worth = Some(worth);
        for Place { node, number } in phase.waiting.drain(..) {
            say.push((node, Message::Share { number }));
            phase.inside.push(Place { node, number });
        }
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
    fn pass_ghosts(&mut self, say: &mut Said) {
        let Some(first) = self.list.front().copied() else {
            return;
        };
        let has_token = |phase: &mut Phase| phase.worth.is_some();
        if !self.is_phase(first) || !self.phase(first.number).is_some_and(has_token) {
            return;
        }
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
            if let Some(probe) = self.probe.take_if(|probe| probe.at == second) {
                refuse(probe.place, say);
            }
        }
        for Place { node, number } in &joining {
            say.push((*node, Message::Share { number: *number }));
        }
        let next = self.list.get(1).copied();
        if let Some(phase) = self.phase(first.number) {
            phase.next = next;
            phase.inside.extend(joining);
        }
        self.try_next(say);
    }

    /// Nobody of the phase is inside any more: the token goes on.
    fn end_if_empty(&mut self, number: u64, say: &mut Said) {
        let is_over = |phase: &mut Phase| phase.number == number && phase.inside.is_empty();
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

    fn answered(&mut self, from: NodeId, number: u64) -> Option<Probe> {
        self.probe
            .take_if(|probe| probe.number == number && probe.at.node == from)
    }

    /// Asks for the next place that tries, if no question is under way.
    fn try_next(&mut self, say: &mut Said) {
        if self.probe.is_some() {
            return;
        }
        let Some(place) = self.tries.pop_front() else {
            return;
        };
        if let Some(worth) = self.home {
            self.begin(place, worth, say);
            return self.try_next(say);
        }
        if let Some(&at) = self.list.back() {
            self.probes += 1;
            let (stay, probe) = (at.number, self.probes);
            let number = probe;
            self.probe = Some(Probe { number, at, place });
            say.push((at.node, Message::Try { stay, place, probe }));
        }
    }

    /// The only place gets the token.
    fn begin(&mut self, place: Place, worth: Worth, say: &mut Said) {
        self.list.push_back(place);
        self.grant(place, worth, say);
    }

    fn grant(&mut self, Place { node, number }: Place, worth: Worth, say: &mut Said) {
        self.home = None;
        say.push((node, Message::Token { number, worth }));
    }

    /// That place is over, and all before it.
    fn strike_through(&mut self, place: Place) {
        if let Some(position) = self.list.iter().position(|it| *it == place) {
            self.list.drain(..=position);
            self.forget_ghosts();
        }
    }

    fn forget_ghosts(&mut self) {
        let list = &self.list;
        self.ghosts.retain(|ghost| list.contains(ghost));
    }
}

impl Phase {
    const fn new(number: u64, waiting: Vec<Place>) -> Self {
        Self {
            number,
            tries: false,
            waiting,
            inside: Vec::new(),
            worth: None,
            next: None,
        }
    }
}

/// That place is over before it had the token.
fn refuse(Place { node, number }: Place, say: &mut Said) {
    say.push((node, Message::Busy { number }));
}
