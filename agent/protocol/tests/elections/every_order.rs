//! Small groups in every order of deliveries and timeouts, also far too early ones: those that stand
//! and live come to agree on the highest of them, or ask for another round.

use std::collections::BTreeSet;

use distlock_protocol::ElectionAlgorithm::{self, Bully};

use crate::electorate::{Electorate, id};

/// A group of one round.
#[derive(Clone, Copy, Debug)]
struct Case {
    algorithm: ElectionAlgorithm,
    members: &'static [u16],
    dead: &'static [u16],
    standing: &'static [u16],
    initiators: &'static [u16],
    /// How many letters may come twice.
    copies: usize,
    /// How often a time is over though messages are under way.
    hurries: usize,
}

/// One thing that can happen next.
#[derive(Clone, Copy, Debug)]
enum Act {
    Deliver(usize),
    Copy(usize),
    TimeOut(u16),
}

impl Case {
    /// All live, stand and begin; nothing comes twice, and no time is over too early.
    fn of(members: &'static [u16]) -> Self {
        Self {
            algorithm: Bully,
            members,
            dead: &[],
            standing: members,
            initiators: members,
            copies: 0,
            hurries: 0,
        }
    }

    fn explore_by_all(self) {
        for algorithm in ElectionAlgorithm::ALL {
            let states = Self { algorithm, ..self }.explore();
            assert!(states > 30, "{algorithm}: {states} states");
        }
    }

    fn begin(&self) -> Electorate {
        let stands = |member: u16| self.standing.contains(&member);
        let is_known = self.algorithm != Bully;
        let mut electorate =
            Electorate::new(self.algorithm, self.members, self.dead, is_known, stands);
        for initiator in self.initiators {
            electorate.stand(id(*initiator));
        }
        electorate
    }

    /// Plays `acts` from the beginning: engines have no copies.
    fn play(&self, acts: &[Act]) -> Electorate {
        let mut electorate = self.begin();
        for act in acts {
            match *act {
                Act::Deliver(place) => electorate.deliver(place),
                Act::Copy(place) => electorate.deliver_copy(place),
                Act::TimeOut(member) => electorate.time_out(id(member)),
            }
        }
        electorate
    }

    /// Goes every way there is; how many states it came through.
    fn explore(&self) -> usize {
        let living = self.standing.iter().filter(|m| !self.dead.contains(m));
        let highest = *living.max().expect("somebody stands");
        let mut seen = BTreeSet::new();
        let mut ways = vec![Vec::new()];
        let (mut ends, mut agreed) = (0, 0);
        while let Some(way) = ways.pop() {
            let electorate = self.play(&way);
            let count = |is_it: fn(&&Act) -> bool| way.iter().filter(is_it).count();
            let copies = count(|act| matches!(act, Act::Copy(_)));
            let hurries = count(|act| matches!(act, Act::TimeOut(_)));
            if !seen.insert((electorate.fingerprint(), copies, hurries)) {
                continue;
            }
            assert!(way.len() < 200, "it has no end: {self:?} {way:?}");
            let next = self.next(&electorate, copies, hurries);
            if next.is_empty() {
                ends += 1;
                let agree = electorate.agree_on(highest);
                agreed += usize::from(agree);
                assert!(
                    agree || !electorate.again.is_empty(),
                    "{self:?} {way:?}: {electorate:?}"
                );
            }
            ways.extend(next.into_iter().map(|act| {
                let mut way = way.clone();
                way.push(act);
                way
            }));
        }
        assert!(
            ends > 0 && agreed > 0,
            "{self:?}: {agreed} of {ends} ends agree"
        );
        seen.len()
    }

    fn next(&self, electorate: &Electorate, copies: usize, hurries: usize) -> Vec<Act> {
        let under_way = 0..electorate.under_way.len();
        let mut next: Vec<Act> = under_way.clone().map(Act::Deliver).collect();
        if copies < self.copies {
            next.extend(under_way.map(Act::Copy));
        }
        // Afterwards all that is under way comes before a time is over.
        if hurries < self.hurries || electorate.under_way.is_empty() {
            let waits = electorate.waits.iter();
            next.extend(waits.map(|member| Act::TimeOut(member.as_u16())));
        }
        next
    }
}

#[test]
fn everybody_begins() {
    Case {
        hurries: 1,
        ..Case::of(&[1, 2, 3])
    }
    .explore_by_all();
}

#[test]
fn two_begin_and_the_highest_is_dead() {
    Case {
        dead: &[4],
        initiators: &[1, 2],
        hurries: 1,
        ..Case::of(&[1, 2, 3, 4])
    }
    .explore_by_all();
}

#[test]
fn messages_come_twice() {
    Case {
        initiators: &[1, 3],
        copies: 1,
        ..Case::of(&[1, 2, 3])
    }
    .explore_by_all();
}

#[test]
fn who_does_not_stand_is_not_nominated() {
    Case {
        standing: &[1, 2],
        initiators: &[1, 2],
        copies: 1,
        ..Case::of(&[1, 2, 3, 4])
    }
    .explore_by_all();
}

#[test]
fn one_of_two_begins_far_too_hastily() {
    Case {
        dead: &[3],
        initiators: &[1],
        copies: 1,
        hurries: 3,
        ..Case::of(&[1, 2, 3])
    }
    .explore_by_all();
}
