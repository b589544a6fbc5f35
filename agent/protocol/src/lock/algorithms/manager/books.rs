//! What the manager of a lock knows: who has a place, in which order, and whether the token is at home.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Message, Place, Worth};
use crate::ids::NodeId;

/// What it makes the manager say, itself included.
type Said = Vec<(NodeId, Message)>;

#[derive(Clone, Debug, Hash)]
pub(super) struct Books {
    /// The places that are not known to be over, oldest first.
    list: VecDeque<Place>,
    /// The worth of loans, while the token is at home.
    home: Option<Worth>,
    /// The one TRY under way.
    probe: Option<Probe>,
    /// How many there were.
    probes: u64,
    /// Places that try, and wait for the probe to end.
    tries: VecDeque<Place>,
    /// The highest number of a place of each member (G5).
    newest: BTreeMap<NodeId, u64>,
    /// Who gave the token back last.
    returned: Option<NodeId>,
}

/// A question to the last in the list, whether a place that tries can have the token.
#[derive(Clone, Copy, Debug, Hash)]
struct Probe {
    number: u64,
    /// Who is asked, for its stay.
    at: Place,
    /// For whom.
    place: Place,
}

impl Books {
    pub(super) fn new(list: Vec<Place>) -> Self {
        Self {
            home: list.is_empty().then(Worth::default),
            newest: list.iter().map(|it| (it.node, it.number)).collect(),
            list: list.into(),
            probe: None,
            probes: 0,
            tries: VecDeque::new(),
            returned: None,
        }
    }

    /// Whether `node` has a place that may have the token.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        let probed = self.probe.map(|probe| probe.place);
        let mut places = self.list.iter().copied().chain(probed);
        places.any(|place| place.node == node)
    }

    pub(super) fn on_request(&mut self, place: Place, tries: bool, say: &mut Said) {
        let newest = self.newest.entry(place.node).or_default();
        if place.number <= *newest {
            return;
        }
        *newest = place.number;
        // Its owner has no other place: an older one is over, and all before that.
        if let Some(older) = self.list.iter().find(|older| older.node == place.node) {
            self.strike_through(*older);
        }
        if let Some(mut worth) = self.home {
            if self.returned == Some(place.node) {
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

    /// The stay `stay` is over, and the token is here.
    pub(super) fn on_return(&mut self, stay: Place, worth: Worth, say: &mut Said) {
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
        self.returned = Some(stay.node);
        let unanswered = unanswered.map(|probe| probe.place);
        match (self.list.front().copied(), unanswered) {
            (Some(first), unanswered) => {
                if let Some(Place { node, number }) = unanswered {
                    say.push((node, Message::Busy { number }));
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
        }
    }
}
