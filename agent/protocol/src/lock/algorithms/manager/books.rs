//! What the manager of a lock knows: the places of the members, in their order, and whether the token is at
//! home or with a phase of readers.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::lending::Lending;
use super::line::Line;
use super::phases::Phase;
use super::{Message, Place, Worth};
use crate::ids::NodeId;
use crate::lock::request::Mode;

/// What it makes the manager say, itself included.
pub(super) type Said = Vec<(NodeId, Message)>;

#[derive(Clone, Debug, Hash)]
pub(super) struct Books {
    pub(super) me: NodeId,
    /// The places that are not known to be over, oldest first.
    pub(super) list: VecDeque<Place>,
    /// The worth of loans, while the token is at home.
    home: Option<Worth>,
    /// Those of the places that are phases, and those that try.
    pub(super) phases: Vec<Phase>,
    /// Those in which nobody waits any more.
    pub(super) ghosts: Vec<Place>,
    /// The one TRY under way.
    pub(super) probe: Option<Probe>,
    /// How many there were.
    probes: u64,
    /// Places that try, and wait for the probe to end.
    tries: VecDeque<Place>,
    /// The highest number of a place of each member (G5).
    newest: BTreeMap<NodeId, u64>,
    /// The member that gave the token back last.
    returned: Option<NodeId>,
    /// What is lent of shares.
    pub(super) lending: Lending,
}

/// A question to the last in the list, whether a place that tries can have the token.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Probe {
    pub(super) number: u64,
    /// The place whose owner is asked.
    pub(super) at: Place,
    /// The place that tries.
    pub(super) place: Place,
}

impl Books {
    pub(super) fn new(me: NodeId, line: Line) -> Self {
        let mut newest = BTreeMap::new();
        for Place { node, number } in line.members() {
            let newest: &mut u64 = newest.entry(node).or_default();
            *newest = number.max(*newest);
        }
        Self {
            me,
            home: line.places.is_empty().then(Worth::default),
            newest,
            phases: Phase::all(me, &line),
            list: line.places.into(),
            ghosts: Vec::new(),
            probe: None,
            probes: 0,
            tries: VecDeque::new(),
            returned: None,
            lending: Lending::default(),
        }
    }

    /// Whether `node` has a place that may have the token, or share it.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        let probed = self.probe.map(|probe| probe.place);
        let readers = self.phases.iter().flat_map(Phase::inside);
        let mut places = self.list.iter().copied().chain(readers).chain(probed);
        places.any(|place| place.node == node)
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
                self.lending.is_wanted();
                self.add(place, tries, say);
            }
            Mode::Shared => self.add_reader(place, tries, fresh, say),
        }
    }

    pub(super) fn add(&mut self, place: Place, tries: bool, say: &mut Said) {
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
            self.recall_if_followed(say);
        }
    }

    /// The stay `stay` is over, and the token is here.
    pub(super) fn on_return(&mut self, stay: Place, worth: Worth, say: &mut Said) {
        self.end_stay(stay, (worth, false), say);
    }

    /// `of_phase`: whether it was readers'. What they did says nothing of loans.
    pub(super) fn end_stay(
        &mut self,
        stay: Place,
        (worth, of_phase): (Worth, bool),
        say: &mut Said,
    ) {
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
        self.recall_if_followed(say);
        self.try_next(say);
    }

    pub(super) fn on_refused(&mut self, from: NodeId, number: u64, say: &mut Said) {
        if self.answered(from, number).is_some() {
            self.try_next(say);
        }
    }

    /// The place that tries, and for which the owner of that place was asked, does not get the token.
    pub(super) fn refuse_probe_at(&mut self, at: Place, say: &mut Said) {
        if let Some(probe) = self.probe.take_if(|probe| probe.at == at) {
            refuse(probe.place, say);
        }
    }

    fn answered(&mut self, from: NodeId, number: u64) -> Option<Probe> {
        self.probe
            .take_if(|probe| probe.number == number && probe.at.node == from)
    }

    /// Asks for the next place that tries, if no question is under way.
    pub(super) fn try_next(&mut self, say: &mut Said) {
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

    pub(super) fn grant(&mut self, Place { node, number }: Place, worth: Worth, say: &mut Said) {
        self.home = None;
        say.push((node, Message::Token { number, worth }));
    }

    /// That place is over, and all before it.
    pub(super) fn strike_through(&mut self, place: Place) {
        if let Some(position) = self.list.iter().position(|it| *it == place) {
            self.list.drain(..=position);
            self.forget_ghosts();
        }
    }

    pub(super) fn forget_ghosts(&mut self) {
        let list = &self.list;
        self.ghosts.retain(|ghost| list.contains(ghost));
    }
}

/// That place is over before it had the token.
pub(super) fn refuse(Place { node, number }: Place, say: &mut Said) {
    say.push((node, Message::Busy { number }));
}
