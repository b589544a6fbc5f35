//! Engines in a row, and the messages between them, as tests want them delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use distlock_protocol::election::{self, AnswerTimer, Effects, Engine, Message, Round};
use distlock_protocol::{ElectionAlgorithm, NodeId};

pub(crate) fn id(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Letter {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) message: Message,
}

/// The members of one round.
#[derive(Debug)]
pub(crate) struct Electorate {
    engines: BTreeMap<NodeId, Box<dyn Engine<Message>>>,
    /// In the order in which they were sent.
    pub(crate) under_way: Vec<Letter>,
    /// Whose timers run.
    pub(crate) waits: BTreeSet<NodeId>,
    pub(crate) nominees: BTreeMap<NodeId, NodeId>,
    /// Who wants another round.
    pub(crate) again: BTreeSet<NodeId>,
    pub(crate) sent: BTreeMap<&'static str, usize>,
}

impl Electorate {
    /// `members` in the order of the ring; those of `dead` get nothing, and are known to be silent
    /// if `is_known`.
    pub(crate) fn new(
        algorithm: ElectionAlgorithm,
        members: &[u16],
        dead: &[u16],
        is_known: bool,
        stands: impl Fn(u16) -> bool,
    ) -> Self {
        let all: Vec<NodeId> = members.iter().map(|member| id(*member)).collect();
        let silent: BTreeSet<NodeId> = if is_known {
            dead.iter().map(|member| id(*member)).collect()
        } else {
            BTreeSet::new()
        };
        let living = members.iter().filter(|member| !dead.contains(member));
        let engines = living.map(|member| {
            let round = Round {
                me: id(*member),
                members: &all,
                silent: &silent,
                stands: stands(*member),
                patience: Duration::from_secs(1),
            };
            (id(*member), election::build(algorithm, &round))
        });
        Self {
            engines: engines.collect(),
            under_way: Vec::new(),
            waits: BTreeSet::new(),
            nominees: BTreeMap::new(),
            again: BTreeSet::new(),
            sent: BTreeMap::new(),
        }
    }

    pub(crate) fn stand(&mut self, member: NodeId) {
        self.step(member, |engine, out| engine.stand(out));
    }

    /// The letter in that place arrives.
    pub(crate) fn deliver(&mut self, place: usize) {
        let letter = self.under_way.remove(place);
        self.receive(&letter);
    }

    /// It arrives, and will once more.
    pub(crate) fn deliver_copy(&mut self, place: usize) {
        let letter = self.under_way[place].clone();
        self.receive(&letter);
    }

    fn receive(&mut self, letter: &Letter) {
        self.step(letter.to, |engine, out| {
            engine.receive(letter.from, &letter.message, out);
        });
    }

    pub(crate) fn time_out(&mut self, member: NodeId) {
        self.waits.remove(&member);
        self.step(member, |engine, out| engine.timeout(out));
    }

    /// Delivers everything in the order in which it was sent; when nothing is under way, the time of
    /// whoever waits is over, that of the highest first.
    pub(crate) fn run(&mut self) {
        loop {
            if !self.under_way.is_empty() {
                self.deliver(0);
            } else if let Some(&member) = self.waits.last() {
                self.time_out(member);
            } else {
                return;
            }
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.sent.values().sum()
    }

    /// Whether all that live have nominated `leader`.
    pub(crate) fn agree_on(&self, leader: u16) -> bool {
        self.engines
            .keys()
            .all(|member| self.nominees.get(member) == Some(&id(leader)))
    }

    /// All there is to know of its state, whatever way led to it.
    pub(crate) fn fingerprint(&self) -> String {
        let mut under_way = self.under_way.clone();
        under_way.sort();
        let Self {
            engines,
            waits,
            nominees,
            again,
            ..
        } = self;
        format!("{engines:?} {under_way:?} {waits:?} {nominees:?} {again:?}")
    }

    fn step(&mut self, member: NodeId, step: impl FnOnce(&mut dyn Engine<Message>, &mut Effects)) {
        let Some(engine) = self.engines.get_mut(&member) else {
            // The dead get letters, too.
            return;
        };
        let mut out = Effects::default();
        step(&mut **engine, &mut out);
        for (to, message) in out.sends {
            assert_ne!(to, member, "nobody writes to himself");
            *self.sent.entry(message.kind()).or_default() += 1;
            let from = member;
            self.under_way.push(Letter { from, to, message });
        }
        match out.timer {
            Some(AnswerTimer::Set(_)) => drop(self.waits.insert(member)),
            Some(AnswerTimer::Clear) => drop(self.waits.remove(&member)),
            None => {}
        }
        if let Some(leader) = out.nominated {
            // As a contest does: of several the highest counts.
            let nominee = self.nominees.entry(member).or_insert(leader);
            *nominee = leader.max(*nominee);
        }
        if out.hold_again {
            self.again.insert(member);
        }
    }
}
