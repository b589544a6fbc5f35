//! What is done to the hosts, from a seed; and who has to go on meanwhile, and who has to stop.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::rng::Rng;
use crate::switch::Link;

/// What can be done. The names are FAULTS of hosts 1 and up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// All links lose, double, damage and delay.
    Storm(Link),
    /// Nothing arrives from the first at the second.
    OneWay(u16, u16),
    /// Nothing passes between hosts of different sides.
    Split(Vec<BTreeSet<u16>>),
    /// In this order each reaches its neighbours alone: with five, everybody sees a majority.
    Ring(Vec<u16>),
    /// The host is cut off and joined again, faster than anybody suspects.
    Flap(u16),
    Kill(u16, Target),
    Stop(u16, Target),
    /// The agent is killed, and a bit of its state file flipped: it must refuse to start with it.
    DamageState(u16),
    /// The agent is killed, and its state file is gone.
    LoseState(u16),
}

/// Which processes of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Agent,
    /// The process with the library.
    Program,
    /// `distlock run`.
    Runner,
    /// The command of `distlock run`.
    Command,
    /// All of them.
    Host,
}

/// Faults at the same time, until all is healed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Episode {
    pub(crate) faults: Vec<Fault>,
    pub(crate) lasts: Duration,
    /// Whoever is inside stays there, as long as it may: for longer than a lease, perhaps.
    pub(crate) is_long_inside: bool,
}

/// The kinds of faults; a campaign goes through all of them again and again, in another order
/// every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Storm,
    HeavyLoss,
    OneWay,
    Isolation,
    Minority,
    EvenSplit,
    Ring,
    Flap,
    Kill(Target),
    Stop(Target),
    DamageState,
    LoseState,
}

const KINDS: [Kind; 20] = [
    Kind::Storm,
    Kind::HeavyLoss,
    Kind::OneWay,
    Kind::Isolation,
    Kind::Minority,
    Kind::EvenSplit,
    Kind::Ring,
    Kind::Flap,
    Kind::Kill(Target::Agent),
    Kind::Kill(Target::Program),
    Kind::Kill(Target::Runner),
    Kind::Kill(Target::Command),
    Kind::Kill(Target::Host),
    Kind::Stop(Target::Agent),
    Kind::Stop(Target::Program),
    Kind::Stop(Target::Runner),
    Kind::Stop(Target::Command),
    Kind::Stop(Target::Host),
    Kind::DamageState,
    Kind::LoseState,
];

/// So many datagrams may get lost, and all go on.
const BEARABLE_PER_MILLE: u64 = 300;

/// The episodes, without an end.
#[derive(Debug)]
pub(crate) struct Plan {
    rng: Rng,
    hosts: u16,
    deck: Vec<Kind>,
    shortest: Duration,
    longest: Duration,
}

impl Plan {
    /// For so many hosts, with episodes between `shortest` and `longest`.
    pub(crate) fn new(seed: u64, hosts: u16, shortest: Duration, longest: Duration) -> Self {
        assert!(hosts >= 3, "a majority without one takes three hosts");
        Self {
            rng: Rng::new(seed),
            hosts,
            deck: Vec::new(),
            shortest,
            longest,
        }
    }

    /// After so many episodes every kind of fault has been there.
    pub(crate) fn round() -> usize {
        KINDS.len().div_ceil(2)
    }

    fn kind(&mut self) -> Kind {
        if self.deck.is_empty() {
            self.deck = KINDS.to_vec();
            self.rng.shuffle(&mut self.deck);
        }
        self.deck.pop().expect("it was filled")
    }

    fn fault(&mut self, kind: Kind) -> Fault {
        let mut hosts: Vec<u16> = (1..=self.hosts).collect();
        self.rng.shuffle(&mut hosts);
        let (one, other) = (hosts[0], hosts[1]);
        let split = |hosts: &[u16], at: usize| {
            let (left, right) = hosts.split_at(at);
            [left, right]
                .map(|side| side.iter().copied().collect())
                .to_vec()
        };
        match kind {
            Kind::Storm => Fault::Storm(Link {
                is_cut: false,
                lose_per_mille: self.rng.range(50, 150),
                duplicate_per_mille: self.rng.range(50, 150),
                corrupt_per_mille: self.rng.range(50, 150),
                delay_ms: self.rng.range(1, 20),
            }),
            Kind::HeavyLoss => Fault::Storm(Link {
                lose_per_mille: BEARABLE_PER_MILLE,
                ..Link::default()
            }),
            Kind::OneWay => Fault::OneWay(one, other),
            Kind::Isolation => Fault::Split(split(&hosts, 1)),
            Kind::Minority => Fault::Split(split(&hosts, (hosts.len() - 1) / 2)),
            Kind::EvenSplit => {
                let mut sides = split(&hosts[hosts.len() % 2..], hosts.len() / 2);
                // Of an odd number one is alone, and no side has a majority.
                sides.extend((hosts.len() % 2 == 1).then(|| [one].into()));
                Fault::Split(sides)
            }
            Kind::Ring => Fault::Ring(hosts),
            Kind::Flap => Fault::Flap(one),
            Kind::Kill(target) => Fault::Kill(one, target),
            Kind::Stop(target) => Fault::Stop(one, target),
            Kind::DamageState => Fault::DamageState(one),
            Kind::LoseState => Fault::LoseState(one),
        }
    }
}

impl Iterator for Plan {
    type Item = Episode;

    fn next(&mut self) -> Option<Episode> {
        let [shortest, longest] = [self.shortest, self.longest].map(|d| d.as_millis() as u64);
        let lasts = Duration::from_millis(self.rng.range(shortest, longest + 1));
        let first = self.kind();
        let mut second = self.kind();
        // From one round to the next. Twice the loss of a state may be more than a group survives.
        while second == first {
            second = self.kind();
        }
        let mut faults = [first, second].map(|kind| self.fault(kind)).to_vec();
        // Processes first, while they are inside.
        faults.sort_by_key(Fault::is_of_network);
        Some(Episode {
            faults,
            lasts,
            is_long_inside: self.rng.happens(500),
        })
    }
}

impl Fault {
    fn is_of_network(&self) -> bool {
        matches!(
            self,
            Self::Storm(_) | Self::OneWay(..) | Self::Split(_) | Self::Ring(_) | Self::Flap(_)
        )
    }

    /// The host whose agent cannot take part meanwhile.
    fn absent(&self) -> Option<u16> {
        match *self {
            Self::Kill(host, Target::Agent | Target::Host)
            | Self::Stop(host, Target::Agent | Target::Host)
            | Self::DamageState(host)
            | Self::LoseState(host) => Some(host),
            _ => None,
        }
    }

    /// The host that has nobody who would enter.
    fn idle(&self) -> Option<u16> {
        match *self {
            Self::Kill(host, Target::Program) | Self::Stop(host, Target::Program) => Some(host),
            // It may be stopped inside, and has the others wait.
            _ => None,
        }
    }

    /// The host of a holder that may be stopped inside, while its agent goes on for it.
    fn stands_still(&self) -> Option<u16> {
        match *self {
            Self::Stop(host, Target::Program | Target::Runner | Target::Command) => Some(host),
            _ => None,
        }
    }

    /// What it does to packets between two hosts.
    fn cuts(&self, from: u16, to: u16) -> bool {
        match self {
            Self::OneWay(a, b) => (from, to) == (*a, *b),
            Self::Split(sides) => !sides
                .iter()
                .any(|side| side.contains(&from) && side.contains(&to)),
            Self::Ring(order) => {
                let place = |host| order.iter().position(|&other| other == host);
                let (Some(from), Some(to)) = (place(from), place(to)) else {
                    return false;
                };
                let apart = from.abs_diff(to);
                apart > 1 && apart < order.len() - 1
            }
            Self::Flap(host) => from == *host || to == *host,
            _ => false,
        }
    }
}

impl Episode {
    /// What packets from one host to another suffer. What flaps is cut if `is_flapped`.
    pub(crate) fn link(&self, from: u16, to: u16, is_flapped: bool) -> Link {
        let mut link = self.storm().unwrap_or_default();
        for fault in &self.faults {
            let is_now = is_flapped || !matches!(fault, Fault::Flap(_));
            link.is_cut |= is_now && fault.cuts(from, to);
        }
        link
    }

    /// Whether the agent of `host` cannot take part.
    pub(crate) fn is_absent(&self, host: u16) -> bool {
        let mut absent = self.faults.iter().filter_map(Fault::absent);
        absent.any(|absent| absent == host)
    }

    /// What all links suffer, apart from cuts. Two storms at a time lose and damage no more than is to
    /// be borne: with a lease of one second, members that lose more are taken for gone too often.
    pub(crate) fn storm(&self) -> Option<Link> {
        let storms = self.faults.iter().filter_map(|fault| match fault {
            Fault::Storm(link) => Some(*link),
            _ => None,
        });
        storms.reduce(|one, other| {
            let lose_per_mille = one.lose_per_mille.max(other.lose_per_mille);
            let corrupt_per_mille = one.corrupt_per_mille.max(other.corrupt_per_mille);
            Link {
                is_cut: false,
                lose_per_mille: lose_per_mille.min(BEARABLE_PER_MILLE - corrupt_per_mille),
                duplicate_per_mille: one.duplicate_per_mille.max(other.duplicate_per_mille),
                corrupt_per_mille,
                delay_ms: one.delay_ms.max(other.delay_ms),
            }
        })
    }

    /// Whether a voter forgets that it was one, and another may not until it is one again.
    pub(crate) fn loses_state(&self) -> bool {
        let is_loss = |fault: &Fault| matches!(fault, Fault::LoseState(_));
        self.faults.iter().any(is_loss)
    }

    pub(crate) fn flaps(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(fault, Fault::Flap(_)))
    }
}

/// Which hosts an episode leaves together. All of them vote.
struct Company<'a> {
    episode: &'a Episode,
    hosts: u16,
    /// Whether what flaps counts as cut.
    is_flapped: bool,
}

impl Company<'_> {
    fn present(&self) -> impl Iterator<Item = u16> {
        let is_present = |&host: &u16| !self.episode.is_absent(host);
        (1..=self.hosts).filter(is_present)
    }

    fn is_majority(&self, hosts: usize) -> bool {
        2 * hosts > usize::from(self.hosts)
    }

    /// Both ways.
    fn is_linked(&self, a: u16, b: u16) -> bool {
        let is_open = |from, to| !self.episode.link(from, to, self.is_flapped).is_cut;
        a == b || is_open(a, b) && is_open(b, a)
    }

    /// Whether the two reach each other, or one of `relays` passes on what they say.
    fn reach(&self, a: u16, b: u16, relays: &BTreeSet<u16>) -> bool {
        let mut relays = relays.iter();
        self.is_linked(a, b) || relays.any(|&it| self.is_linked(a, it) && self.is_linked(it, b))
    }

    /// Those whom a majority of voters hears, and does not miss therefore.
    fn heard(&self) -> BTreeSet<u16> {
        let all: BTreeSet<u16> = self.present().collect();
        let voters = |&a: &u16| all.iter().filter(|&&b| self.reach(a, b, &all)).count();
        let is_heard = |host: &&u16| self.is_majority(voters(host));
        all.iter().filter(is_heard).copied().collect()
    }

    /// All that `host` has anything to do with, by whatever detour.
    fn connected(&self, host: u16) -> BTreeSet<u16> {
        let mut found: BTreeSet<u16> = self.present().filter(|&it| it == host).collect();
        loop {
            let is_next = |&it: &u16| found.iter().any(|&other| self.is_linked(it, other));
            let next: BTreeSet<u16> = self.present().filter(is_next).collect();
            if next == found {
                return found;
            }
            found = next;
        }
    }
}

impl Episode {
    /// The hosts that have to go on entering, once what happened is detected and the leases of those
    /// who are gone are over. A majority goes on without the others. Where two of its members do not
    /// reach each other, not even by one that both reach, nothing is said; nor where what is passed
    /// on can be lost on two links: views may change more often than they can be formed then.
    pub(crate) fn who_goes_on(&self, hosts: u16) -> BTreeSet<u16> {
        let company = Company {
            episode: self,
            hosts,
            is_flapped: true,
        };
        let heard = company.heard();
        let relays = match self.storm() {
            Some(_) => BTreeSet::new(),
            None => heard.clone(),
        };
        let reaches_all = |&a: &u16| heard.iter().all(|&b| company.reach(a, b, &relays));
        // All have to wait for a holder that is stopped while its lease is renewed.
        let stops = self.who_stops(hosts);
        let mut still = self.faults.iter().filter_map(Fault::stands_still);
        let is_held_up = self.is_long_inside || still.any(|host| !stops.contains(&host));
        if is_held_up || !heard.iter().all(reaches_all) {
            return BTreeSet::new();
        }
        let idle: BTreeSet<_> = self.faults.iter().filter_map(Fault::idle).collect();
        heard.difference(&idle).copied().collect()
    }

    /// The hosts where nobody may be inside, once a lease is over: their agents are gone, or have
    /// nothing to do with a majority.
    pub(crate) fn who_stops(&self, hosts: u16) -> BTreeSet<u16> {
        let company = Company {
            episode: self,
            hosts,
            is_flapped: false,
        };
        let stops = |&host: &u16| !company.is_majority(company.connected(host).len());
        (1..=hosts).filter(stops).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn episode(faults: &[Fault]) -> Episode {
        Episode {
            faults: faults.to_vec(),
            lasts: SECOND,
            is_long_inside: false,
        }
    }

    fn goes_on(faults: &[Fault]) -> Vec<u16> {
        episode(faults).who_goes_on(5).into_iter().collect()
    }

    fn stops(faults: &[Fault]) -> Vec<u16> {
        episode(faults).who_stops(5).into_iter().collect()
    }

    fn split(sides: &[&[u16]]) -> Fault {
        Fault::Split(
            sides
                .iter()
                .map(|side| side.iter().copied().collect())
                .collect(),
        )
    }

    #[test]
    fn a_seed_is_a_plan() {
        let plan = |seed| -> Vec<_> { Plan::new(seed, 5, SECOND, SECOND).take(30).collect() };
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn a_round_has_every_kind_of_fault() {
        let faults: Vec<_> = Plan::new(1, 5, SECOND, SECOND)
            .take(Plan::round())
            .flat_map(|episode| episode.faults)
            .collect();
        let has = |wanted: fn(&Fault) -> bool| assert!(faults.iter().any(wanted), "{faults:?}");
        has(|fault| matches!(fault, Fault::Storm(_)));
        has(|fault| matches!(fault, Fault::OneWay(..)));
        has(|fault| matches!(fault, Fault::Split(sides) if sides.len() == 3));
        has(|fault| matches!(fault, Fault::Split(sides) if sides.len() == 2));
        has(|fault| matches!(fault, Fault::Ring(_)));
        has(|fault| matches!(fault, Fault::Flap(_)));
        has(|fault| matches!(fault, Fault::Kill(_, Target::Host)));
        has(|fault| matches!(fault, Fault::Stop(_, Target::Host)));
        has(|fault| matches!(fault, Fault::DamageState(_)));
        has(|fault| matches!(fault, Fault::LoseState(_)));
    }

    #[test]
    fn in_a_ring_of_five_everybody_sees_a_majority_and_nobody_the_same() {
        let episode = episode(&[Fault::Ring(vec![3, 1, 4, 5, 2])]);
        let sees = |host| -> Vec<u16> {
            let others = (1..=5).filter(|&other| !episode.link(host, other, false).is_cut);
            others.collect()
        };
        assert_eq!([1, 2, 3].map(sees), [[1, 3, 4], [2, 3, 5], [1, 2, 3]]);
    }

    #[test]
    fn faults_of_the_network_add_up() {
        let storm = Link {
            lose_per_mille: 300,
            ..Link::default()
        };
        let faults = [Fault::OneWay(1, 2), Fault::Storm(storm), Fault::Flap(3)];
        let episode = episode(&faults);
        assert!(episode.link(1, 2, false).is_cut);
        assert_eq!(episode.link(1, 2, false).lose_per_mille, 300);
        assert_eq!(episode.link(2, 1, false), storm);
        assert!(episode.link(3, 1, true).is_cut && !episode.link(3, 1, false).is_cut);
    }

    #[test]
    fn storms_at_the_same_time_are_one() {
        let one = Link {
            lose_per_mille: 300,
            ..Link::default()
        };
        let other = Link {
            lose_per_mille: 50,
            corrupt_per_mille: 100,
            delay_ms: 7,
            ..Link::default()
        };
        let both = Link {
            lose_per_mille: 200,
            corrupt_per_mille: 100,
            delay_ms: 7,
            ..Link::default()
        };
        let episode = episode(&[Fault::Storm(one), Fault::Storm(other)]);
        assert_eq!(episode.storm(), Some(both));
    }

    #[test]
    fn all_go_on_where_nobody_is_away() {
        assert_eq!(goes_on(&[Fault::Storm(Link::default())]), [1, 2, 3, 4, 5]);
        let at_two = |fault: fn(u16, Target) -> Fault, target| goes_on(&[fault(2, target)]);
        assert_eq!(at_two(Fault::Kill, Target::Program), [1, 3, 4, 5]);
        assert_eq!(at_two(Fault::Kill, Target::Runner), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_stopped_holder_is_waited_for_while_its_lease_is_renewed() {
        let program = Fault::Stop(2, Target::Program);
        assert_eq!(goes_on(std::slice::from_ref(&program)), [0; 0]);
        assert_eq!(goes_on(&[Fault::Stop(2, Target::Host)]), [1, 3, 4, 5]);
        let agent = Fault::Kill(2, Target::Agent);
        assert_eq!(goes_on(&[program.clone(), agent]), [1, 3, 4, 5]);
        assert_eq!(
            goes_on(&[program, split(&[&[1, 2], &[3, 4, 5]])]),
            [3, 4, 5]
        );
    }

    #[test]
    fn a_majority_goes_on_without_the_others() {
        let cut = split(&[&[1, 2], &[3, 4, 5]]);
        let cases: [(&[Fault], &[u16], &[u16]); 4] = [
            (std::slice::from_ref(&cut), &[3, 4, 5], &[1, 2]),
            (
                &[cut.clone(), Fault::Kill(3, Target::Agent)],
                &[],
                &[1, 2, 3, 4, 5],
            ),
            (&[Fault::LoseState(1)], &[2, 3, 4, 5], &[1]),
            (&[split(&[&[1], &[2, 3], &[4, 5]])], &[], &[1, 2, 3, 4, 5]),
        ];
        for (faults, expected, stopped) in cases {
            assert_eq!(goes_on(faults), expected, "{faults:?}");
            assert_eq!(stops(faults), stopped, "{faults:?}");
        }
    }

    #[test]
    fn one_that_both_reach_passes_on_what_they_say() {
        let ring = Fault::Ring(vec![1, 2, 3, 4, 5]);
        for fault in [Fault::OneWay(1, 2), ring.clone()] {
            assert_eq!(goes_on(std::slice::from_ref(&fault)), [1, 2, 3, 4, 5]);
        }
        let storm = Fault::Storm(Link::default());
        assert_eq!(goes_on(&[ring.clone(), storm]), [0; 0]);
        // Two of its neighbours are too far apart, and neither is cut off.
        let broken = [ring, Fault::Kill(3, Target::Agent)];
        assert_eq!((goes_on(&broken), stops(&broken)), (vec![], vec![3]));
    }

    #[test]
    fn what_flaps_is_neither_there_nor_gone() {
        let flap = [Fault::Flap(4)];
        assert_eq!((goes_on(&flap), stops(&flap)), (vec![1, 2, 3, 5], vec![]));
        let held_up = [Fault::Stop(4, Target::Runner), Fault::Flap(4)];
        assert_eq!(goes_on(&held_up), [0; 0]);
    }
}
