//! What is done to the hosts, from a seed; and who has to go on meanwhile.

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
                lose_per_mille: 300,
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

    /// Whether all have to wait for a holder that is stopped.
    fn holds_up(&self) -> bool {
        let is_client = |target| target != Target::Agent;
        matches!(*self, Self::Stop(_, target) if is_client(target))
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

    /// What all links suffer, apart from cuts.
    pub(crate) fn storm(&self) -> Option<Link> {
        let storms = self.faults.iter().filter_map(|fault| match fault {
            Fault::Storm(link) => Some(*link),
            _ => None,
        });
        storms.reduce(|one, other| Link {
            is_cut: false,
            lose_per_mille: one.lose_per_mille.max(other.lose_per_mille),
            duplicate_per_mille: one.duplicate_per_mille.max(other.duplicate_per_mille),
            corrupt_per_mille: one.corrupt_per_mille.max(other.corrupt_per_mille),
            delay_ms: one.delay_ms.max(other.delay_ms),
        })
    }

    pub(crate) fn flaps(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(fault, Fault::Flap(_)))
    }
}

/// Where a group's views come from: it decides who goes on during a fault. Safety, and that all go
/// on afterwards, are asked of every source alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Views {
    /// All members are waited for.
    Unanimity,
    /// A majority goes on without the others.
    Quorum,
}

impl Views {
    /// The hosts that have to go on entering during `episode`, once a lease and what the faults
    /// were detected by have passed.
    pub(crate) fn who_goes_on(self, episode: &Episode, hosts: u16) -> BTreeSet<u16> {
        if episode.is_long_inside || episode.faults.iter().any(Fault::holds_up) {
            return BTreeSet::new();
        }
        let absent: BTreeSet<_> = episode.faults.iter().filter_map(Fault::absent).collect();
        let idle: BTreeSet<_> = episode.faults.iter().filter_map(Fault::idle).collect();
        let all: Vec<u16> = (1..=hosts).collect();
        let reach = |a, b| a == b || !episode.link(a, b, true).is_cut;
        let is_whole = |side: &[u16]| {
            let pairs = |&a: &u16| side.iter().all(|&b| reach(a, b));
            side.iter()
                .all(|host| !absent.contains(host) && pairs(host))
        };
        let goes_on: BTreeSet<u16> = match self {
            Self::Unanimity if is_whole(&all) => all.iter().copied().collect(),
            Self::Unanimity => BTreeSet::new(),
            // Where several majorities are possible it is not said which of them will be one.
            Self::Quorum => {
                let sides = subsets(&all).filter(|side| side.len() > all.len() / 2);
                let common = sides.filter(|side| is_whole(side));
                // A part of a majority is none that somebody had to leave the others for.
                let mut common: Vec<BTreeSet<u16>> =
                    common.map(|side| side.into_iter().collect()).collect();
                let whole = common.clone();
                common.retain(|side| !whole.iter().any(|other| is_part(side, other)));
                let both =
                    |a: BTreeSet<u16>, b: BTreeSet<u16>| a.intersection(&b).copied().collect();
                common.into_iter().reduce(both).unwrap_or_default()
            }
        };
        goes_on.difference(&idle).copied().collect()
    }
}

fn is_part(side: &BTreeSet<u16>, other: &BTreeSet<u16>) -> bool {
    side.len() < other.len() && side.is_subset(other)
}

fn subsets(hosts: &[u16]) -> impl Iterator<Item = Vec<u16>> {
    (0..1_u32 << hosts.len()).map(|chosen| {
        let is_chosen = |&(index, _): &(usize, &u16)| chosen >> index & 1 == 1;
        let chosen = hosts.iter().enumerate().filter(is_chosen);
        chosen.map(|(_, &host)| host).collect()
    })
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

    fn goes_on(views: Views, faults: &[Fault]) -> Vec<u16> {
        views.who_goes_on(&episode(faults), 5).into_iter().collect()
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
            delay_ms: 7,
            ..Link::default()
        };
        let both = Link {
            lose_per_mille: 300,
            delay_ms: 7,
            ..Link::default()
        };
        let episode = episode(&[Fault::Storm(one), Fault::Storm(other)]);
        assert_eq!(episode.storm(), Some(both));
    }

    #[test]
    fn all_go_on_where_nobody_is_away() {
        let storm = [Fault::Storm(Link::default())];
        for views in [Views::Unanimity, Views::Quorum] {
            assert_eq!(goes_on(views, &storm), [1, 2, 3, 4, 5]);
            assert_eq!(
                goes_on(views, &[Fault::Kill(2, Target::Program)]),
                [1, 3, 4, 5]
            );
            assert_eq!(
                goes_on(views, &[Fault::Kill(2, Target::Runner)]),
                [1, 2, 3, 4, 5]
            );
            assert_eq!(goes_on(views, &[Fault::Stop(2, Target::Program)]), []);
        }
    }

    #[test]
    fn a_majority_goes_on_without_the_others_where_views_take_a_quorum() {
        let cut = split(&[&[1, 2], &[3, 4, 5]]);
        let cases: [(&[Fault], &[u16]); 6] = [
            (std::slice::from_ref(&cut), &[3, 4, 5]),
            (&[cut.clone(), Fault::Kill(3, Target::Agent)], &[]),
            (&[Fault::LoseState(1)], &[2, 3, 4, 5]),
            (&[split(&[&[1], &[2, 3], &[4, 5]])], &[]),
            (&[Fault::Ring(vec![1, 2, 3, 4, 5])], &[]),
            // Either of the two may be left behind.
            (&[Fault::OneWay(1, 2)], &[3, 4, 5]),
        ];
        for (faults, expected) in cases {
            assert_eq!(goes_on(Views::Quorum, faults), expected, "{faults:?}");
            assert_eq!(goes_on(Views::Unanimity, faults), [], "{faults:?}");
        }
    }
}
