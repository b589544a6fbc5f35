//! Two members that seal, and whoever is between them: he hears and keeps everything, and sends what
//! he likes, when he likes, to whom he likes.
//!
//! A model says of each datagram what the seals promise of it, in both directions:
//!
//! - What is opened was sealed by the other member, for this way, with a key that is good here; it
//!   is of the incarnation that is believed, after the answer for which it is, as it was, and comes
//!   once.
//! - An incarnation is believed for an answer that it gave, while it lived, to a challenge of the
//!   receiver's present incarnation, when no incarnation had been believed since the challenge.
//! - What is new, of the incarnation that is believed, and not too late is taken, whatever else came.
//! - Two members with keys in common come to believe each other if nothing is lost.

#![no_main]

use std::collections::BTreeSet;

use distlock_agent::protocol::NodeId;
use distlock_agent::runtime::aead::{
    Asked, Destination, GroupKey, KeyRing, MAX_KEYS, Opened, SEED, Seals, Why,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sealed(bytes));

/// How far behind the newest a datagram may come and must still be taken; how many may come in a turn
/// for which a key must be made. They are said here again: who changes them changes a promise.
const WINDOW: u64 = 1024;
const STRANGE_IN_A_TURN: u32 = 4;

/// Of so many keys those of a member are chosen.
const POOL: usize = MAX_KEYS + 2;

/// How much is sealed at most to get lost, and how much is kept, in one input: it must end.
const MAX_LOST: usize = 5_000;
const MAX_KEPT: usize = 2_000;

/// What was sealed.
#[derive(Clone)]
struct Sealed {
    from: usize,
    /// Which incarnation of that member it is of; no two incarnations of any member have the same
    /// number.
    incarnation: u32,
    way: Destination,
    key: usize,
    counter: u64,
    content: Content,
    bytes: Vec<u8>,
}

#[derive(Clone)]
enum Content {
    Said(Vec<u8>),
    Challenge {
        of: u32,
        by: Asker,
    },
    /// It answers a challenge by this one.
    Answer(Asker),
}

/// Who challenges: an incarnation, after it has believed so many of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asker {
    incarnation: u32,
    believed: u64,
}

struct Member {
    seals: Seals,
    incarnation: u32,
    /// Its keys, by their places in the pool. It seals with the first.
    ring: Vec<usize>,
    /// The counter of what it sealed last.
    sealed: u64,
    /// What of the other it believes.
    believed: Option<Believed>,
    /// How many of the other's incarnations it has believed.
    answers: u64,
    /// How much has come in this turn.
    came: u32,
}

struct Believed {
    incarnation: u32,
    /// The counter of its answer.
    since: u64,
    newest: u64,
    /// The counters of what was taken.
    taken: BTreeSet<u64>,
    /// With which key it came last, if that was good ever since.
    last_key: Option<usize>,
}

impl Member {
    fn new(index: usize, incarnation: u32, ring: Vec<usize>) -> Self {
        // All of it is of this incarnation alone: what it is known by, and what its challenges are
        // made of.
        let mut seed = [0; SEED];
        for (at, part) in seed.chunks_mut(4).enumerate() {
            part.copy_from_slice(&(incarnation << 8 | at as u32).to_be_bytes());
        }
        Self {
            seals: Seals::new(id(index), keys(&ring), &seed),
            incarnation,
            ring,
            sealed: 0,
            believed: None,
            answers: 0,
            came: 0,
        }
    }

    /// The counter of what it has just sealed, which is readable.
    fn count(&mut self, sealed: &[u8]) -> u64 {
        let counter = u64::from_be_bytes(sealed[28..36].try_into().expect("8 bytes"));
        assert!(counter > self.sealed, "a counter is used twice");
        self.sealed = counter;
        counter
    }

    fn begin_turn(&mut self) {
        self.seals.begin_turn();
        self.came = 0;
    }

    fn change_keys(&mut self, ring: Vec<usize>) {
        self.seals.change_keys(keys(&ring));
        if let Some(believed) = &mut self.believed {
            believed.last_key = believed.last_key.filter(|key| ring.contains(key));
        }
        self.ring = ring;
    }
}

impl Believed {
    /// Whether it may be taken: it did not come before, and was not said before the answer.
    fn is_new(&self, counter: u64) -> bool {
        counter > self.since && !self.taken.contains(&counter)
    }

    fn is_late(&self, counter: u64) -> bool {
        counter + WINDOW <= self.newest
    }

    fn take(&mut self, counter: u64, key: usize) {
        assert!(
            self.is_new(counter),
            "{counter} is taken twice, or is from before the answer"
        );
        self.taken.insert(counter);
        self.newest = self.newest.max(counter);
        self.last_key = Some(key);
    }
}

fn id(index: usize) -> NodeId {
    NodeId::new(index as u16 + 1).expect("not 0")
}

fn keys(ring: &[usize]) -> KeyRing {
    let keys = ring
        .iter()
        .map(|key| GroupKey::new([*key as u8; 32].into()));
    KeyRing::new(keys.collect())
}

/// One to four neighbours in the pool, up or down: what a file has while keys are changed, and
/// others.
fn ring(a: u8, b: u8) -> Vec<usize> {
    let step = if a & 4 == 0 { 1 } else { POOL - 1 };
    let ring = (0..=usize::from(a) % MAX_KEYS).map(|at| (usize::from(b) + at * step) % POOL);
    ring.collect()
}

/// Each step: who, what, and two parameters; and bytes, where they are wanted.
fn sealed(mut bytes: &[u8]) {
    let mut world = World::new();
    while let [what, a, b, rest @ ..] = bytes {
        bytes = rest;
        let who = usize::from(what >> 7);
        match what & 0x7f {
            // Much is said at once, and all of it lost.
            0 => world.lose(who, usize::from(*a) * 8),
            1 => world.lag(who, 1016 + usize::from(*a % 16), *b & 1 == 1),
            2..28 => world.say(who, Destination::Member(id(1 - who)), *a, *b),
            28..32 => world.say(who, Destination::Multicast, *a, *b),
            // Something comes as it was meant, now or again.
            32..76 => world.come(*a, *b, |_| {}),
            // Another way.
            76..80 => world.come(*a, *b, |it| it.by_multicast = !it.by_multicast),
            // To whom it is not for.
            80..84 => world.come(*a, *b, |it| it.to = 1 - it.to),
            // One bit of it is changed.
            84..92 => world.come(*a, 0, |it| {
                let at = usize::from(*b) % it.bytes.len();
                it.bytes[at] ^= 1 << (what % 8);
                it.sealed = None;
            }),
            // The end is missing, or other bytes are there.
            92..96 => {
                let (other, left) = rest.split_at(rest.len().min(usize::from(*what % 4) * 20));
                bytes = left;
                world.come(*a, 0, |it| {
                    it.bytes.truncate(usize::from(*b) % it.bytes.len());
                    it.bytes.extend_from_slice(other);
                    it.sealed = None;
                });
            }
            96..112 => world.introduce(who),
            112..120 => world.members[who].change_keys(ring(*a, *b)),
            120..124 => world.live_anew(who),
            _ => world.members[who].begin_turn(),
        }
        if world.kept.len() > MAX_KEPT {
            return;
        }
    }
}

struct World {
    members: [Member; 2],
    /// All that was sealed, but for what was lost.
    kept: Vec<Sealed>,
    incarnations: u32,
    lost: usize,
}

/// What comes, and as what.
struct Coming {
    to: usize,
    by_multicast: bool,
    bytes: Vec<u8>,
    /// What it was sealed as, unless it was changed since.
    sealed: Option<Sealed>,
}

impl World {
    fn new() -> Self {
        Self {
            members: [Member::new(0, 1, vec![0]), Member::new(1, 2, vec![0])],
            kept: Vec::new(),
            incarnations: 2,
            lost: 0,
        }
    }

    fn lose(&mut self, who: usize, count: usize) {
        if self.lost + count > MAX_LOST {
            return;
        }
        self.lost += count;
        let mut out = Vec::new();
        let member = &mut self.members[who];
        for _ in 0..count {
            let to = Destination::Member(id(1 - who));
            member.seals.seal(to, &[], &mut out);
            member.count(&out);
        }
    }

    fn say(&mut self, who: usize, way: Destination, a: u8, b: u8) {
        let len = match usize::from(b) {
            short @ 0..224 => short % 32,
            // Up to nearly the most that may be sealed.
            long => (long - 223) * 80,
        };
        let body = vec![a; len];
        let mut out = Vec::new();
        self.members[who].seals.seal(way, &body, &mut out);
        self.keep(who, way, Content::Said(body), out);
    }

    fn keep(&mut self, from: usize, way: Destination, content: Content, bytes: Vec<u8>) {
        let member = &mut self.members[from];
        let counter = member.count(&bytes);
        self.kept.push(Sealed {
            from,
            incarnation: member.incarnation,
            way,
            key: member.ring[0],
            counter,
            content,
            bytes,
        });
    }

    fn live_anew(&mut self, who: usize) {
        self.incarnations += 1;
        let ring = self.members[who].ring.clone();
        self.members[who] = Member::new(who, self.incarnations, ring);
    }

    /// Something comes after what was said so much later; and before it as well, if it comes `twice`.
    fn lag(&mut self, who: usize, lost: usize, twice: bool) {
        let [first, last] = [0, 1].map(|after| self.kept.len() + after);
        self.say(who, Destination::Member(id(1 - who)), 0, 0);
        self.lose(who, lost);
        self.say(who, Destination::Member(id(1 - who)), 0, 0);
        if twice {
            self.arrive(self.as_meant(first));
        }
        self.arrive(self.as_meant(last));
        self.arrive(self.as_meant(first));
    }

    /// Something that was sealed comes, after `change`. The newest is at 0.
    fn come(&mut self, a: u8, b: u8, change: impl FnOnce(&mut Coming)) {
        if self.kept.is_empty() {
            return;
        }
        let back = usize::from(u16::from_le_bytes([a, b])) % self.kept.len();
        let mut coming = self.as_meant(self.kept.len() - 1 - back);
        change(&mut coming);
        self.arrive(coming);
    }

    fn as_meant(&self, at: usize) -> Coming {
        let sealed = self.kept[at].clone();
        Coming {
            to: 1 - sealed.from,
            by_multicast: sealed.way == Destination::Multicast,
            bytes: sealed.bytes.clone(),
            sealed: Some(sealed),
        }
    }

    /// `who` speaks, and nobody is in between: whoever has its key believes it then.
    fn introduce(&mut self, who: usize) {
        self.members.iter_mut().for_each(Member::begin_turn);
        self.say(who, Destination::Member(id(1 - who)), 0, 0);
        let kept = self.kept.len() - 1;
        // That itself, and if need be the challenge and the answer.
        for next in kept..kept + 3 {
            if next < self.kept.len() {
                self.come(0, 0, |_| {});
            }
        }
        let [it, other] = [&self.members[who], &self.members[1 - who]];
        if other.ring.contains(&it.ring[0]) && it.ring.contains(&other.ring[0]) {
            let believed = other.believed.as_ref().map(|believed| believed.incarnation);
            assert_eq!(believed, Some(it.incarnation), "it was introduced");
        }
    }

    fn arrive(&mut self, mut coming: Coming) {
        let Coming { to, sealed, .. } = coming;
        let from = 1 - to;
        let member = &mut self.members[to];
        let way = match coming.by_multicast {
            true => Destination::Multicast,
            false => Destination::Member(id(to)),
        };
        let sealed = sealed.filter(|it| it.from == from && it.way == way);
        let sealed = sealed.filter(|it| member.ring.contains(&it.key));
        member.came += 1;
        let opened = member
            .seals
            .open(id(from), coming.by_multicast, &mut coming.bytes);
        let Some(sealed) = sealed else {
            assert!(
                matches!(opened, Opened::Dropped(_)),
                "nobody sealed it so: {opened:?}"
            );
            return;
        };

        let me = Asker {
            incarnation: member.incarnation,
            believed: member.answers,
        };
        let mut believed = member.believed.as_mut();
        believed = believed.filter(|it| it.incarnation == sealed.incarnation);
        let is_due = believed.as_ref().is_some_and(|it| {
            let is_looked_at = it.last_key == Some(sealed.key) || member.came <= STRANGE_IN_A_TURN;
            it.is_new(sealed.counter) && !it.is_late(sealed.counter) && is_looked_at
        });
        match (&opened, &sealed.content) {
            (Opened::Datagram(at), Content::Said(body)) => {
                assert!(believed.is_some(), "of an incarnation that is not believed");
                assert!(
                    coming.bytes[at.clone()] == body[..],
                    "it was something else"
                );
            }
            (Opened::Dropped(why), Content::Said(_)) => {
                assert!(!is_due, "{} is new, and {why:?}", sealed.counter);
            }
            (Opened::Dropped(why), Content::Challenge { of, .. }) => {
                assert!(
                    !is_due || *of != me.incarnation,
                    "{why:?}, and not answered"
                );
            }
            (Opened::Dropped(_), Content::Answer(_)) => {}
            (Opened::Reply { to: asked, .. }, content) => match content {
                Content::Said(_) => {
                    assert!(believed.is_none(), "of an incarnation that is believed");
                    assert_eq!(*asked, Asked::Unproven);
                }
                Content::Challenge { of, .. } => {
                    assert_eq!(*of, me.incarnation, "it is for another incarnation");
                    assert_eq!(*asked, Asked::Challenged);
                }
                Content::Answer(_) => panic!("an answer is replied to"),
            },
            (Opened::Believed, Content::Answer(asker)) => {
                assert_eq!(*asker, me, "it is the answer to something else");
                let last = member.believed.as_ref().map(|it| it.incarnation);
                assert!(last < Some(sealed.incarnation), "it has had a successor");
                member.answers += 1;
                member.believed = Some(Believed {
                    incarnation: sealed.incarnation,
                    since: sealed.counter,
                    newest: sealed.counter,
                    taken: BTreeSet::new(),
                    last_key: Some(sealed.key),
                });
                return;
            }
            (opened, _) => panic!("it is not what it was sealed as: {opened:?}"),
        }
        let was_taken = !matches!(opened, Opened::Dropped(why) if why != Why::Stale);
        if let Some(believed) = believed.filter(|_| was_taken) {
            believed.take(sealed.counter, sealed.key);
        }
        if let Opened::Reply { bytes, .. } = opened {
            let content = match sealed.content {
                Content::Challenge { by, .. } => Content::Answer(by),
                _ => Content::Challenge {
                    of: sealed.incarnation,
                    by: me,
                },
            };
            self.keep(to, Destination::Member(id(from)), content, bytes);
        }
    }
}
