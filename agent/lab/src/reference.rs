//! What entries must cost, and what the books say they do: the reference table that the engines are
//! measured against ([`costs`](super::costs)), by the tests and by `distlock sim`.
//!
//! The books are the lectures' sources: Tanenbaum and van Steen (2007) for the central server and
//! the ring, Jones's lecture for the bakery, and for the rest Table 6.1 of Singhal and Shivaratri
//! (1994); for the manager Li and Hudak (1989), 2.3: a request, passed on to the owner of a page,
//! and the page. T is the one-way delay, E the time inside, N the number of members, K the size of a set
//! of voters.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::choices::{FRACTION, log2};
use super::costs::Load;
use distlock_protocol::Algorithm;

/// What one algorithm costs in a group of one size.
#[derive(Clone, Debug)]
pub struct Reference {
    /// From request to exit under light load, less E, in T.
    pub response: Value,
    /// From exit to entry under heavy load, in T.
    pub sync: Value,
    /// Messages an entry under light load.
    pub light: Messages,
    /// The same under heavy load.
    pub heavy: Messages,
    /// The same in a burst.
    pub burst: Messages,
    /// What the book says.
    pub book: Book,
    /// Why the book says otherwise, in one short line; empty where it does not.
    pub deviation: &'static str,
}

impl Reference {
    /// Messages an entry.
    pub const fn messages(&self, load: Load) -> &Messages {
        match load {
            Load::Light => &self.light,
            Load::Heavy => &self.heavy,
            Load::Burst => &self.burst,
        }
    }
}

/// A mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Exactly that.
    Exactly(f64),
    /// Within 3 % of that: a mean over what is random.
    About(f64),
    /// Between the two, both included.
    Between(f64, f64),
    /// No bound, however many entries there are.
    Unbounded,
    /// A matter of chance, with no bound either, but some mean in each run.
    ByChance,
}

impl Value {
    /// Whether `measured` is as it must be.
    pub fn admits(self, measured: f64) -> bool {
        match self {
            Self::Exactly(value) => (measured - value).abs() < 1e-9,
            Self::About(value) => (measured / value - 1.0).abs() < 0.03,
            Self::Between(low, high) => (low - 1e-9..=high + 1e-9).contains(&measured),
            Self::Unbounded | Self::ByChance => true,
        }
    }
}

/// Messages an entry, in the mean.
#[derive(Clone, Debug)]
pub struct Messages {
    /// Of all kinds.
    pub total: Value,
    /// Of each kind, exactly; empty where only the total is known.
    pub kinds: Vec<(&'static str, f64)>,
}

impl Messages {
    fn exactly(kinds: Vec<(&'static str, f64)>) -> Self {
        Self {
            total: Value::Exactly(kinds.iter().map(|(_, count)| count).sum()),
            kinds,
        }
    }

    const fn total(total: Value) -> Self {
        Self {
            total,
            kinds: Vec::new(),
        }
    }
}

/// What the book says: formulas with their values, times in T and less E.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Book {
    /// From request to exit under light load.
    pub response: Option<Said>,
    /// From exit to entry under heavy load.
    pub sync: Option<Said>,
    /// Messages an entry under light load.
    pub light: Option<Said>,
    /// The same under heavy load.
    pub heavy: Option<Said>,
}

/// A formula of a book, and what it comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    /// As printed.
    pub formula: &'static str,
    /// For this size; infinite where the book knows no bound.
    pub value: f64,
}

const fn said(formula: &'static str, value: f64) -> Option<Said> {
    Some(Said { formula, value })
}

/// What entries by `algorithm` cost among `size` members.
pub fn reference(algorithm: Algorithm, size: u16) -> Reference {
    let n = f64::from(size);
    match algorithm {
        Algorithm::Semaphore => semaphore(n),
        Algorithm::Bakery => bakery(n),
        Algorithm::RicartAgrawala => ricart_agrawala(n),
        Algorithm::TokenRing => token_ring(n),
        Algorithm::TokenRingRequests => token_ring_requests(n),
        Algorithm::Lamport => lamport(n),
        Algorithm::CarvalhoRoucairol => carvalho_roucairol(n),
        Algorithm::Maekawa => maekawa(size),
        Algorithm::Majority => majority(size),
        Algorithm::SuzukiKasami => suzuki_kasami(n),
        Algorithm::Singhal => singhal(n),
        Algorithm::Raymond => raymond(size),
        Algorithm::Voting => voting(n),
        Algorithm::Manager => manager(n),
    }
}

/// 3 messages, or 0 where the caller is the server; from an exit to the next entry 2T, or T where
/// either of the two is.
fn semaphore(n: f64) -> Reference {
    let each = (n - 1.0) / n;
    let messages = || {
        let kinds = ["REQUEST", "GRANT", "RELEASE"].map(|kind| (kind, each));
        Messages::exactly(kinds.to_vec())
    };
    Reference {
        response: Value::Exactly(2.0 * each),
        sync: Value::Exactly(2.0 * each),
        light: messages(),
        heavy: messages(),
        burst: messages(),
        book: Book {
            response: said("2T+E", 2.0),
            sync: said("2T", 2.0),
            light: said("3", 3.0),
            heavy: said("3", 3.0),
        },
        deviation: "the server is a member, and sends itself nothing: (N-1)/N of the book's",
    }
}

/// Three rounds of questions and answers, whatever the load.
fn bakery(n: f64) -> Reference {
    let messages = || {
        let each = 3.0 * (n - 1.0);
        Messages::exactly(vec![("READ", each), ("VALUE", each)])
    };
    let about = said("6N", 6.0 * n);
    Reference {
        response: Value::Exactly(6.0),
        sync: Value::Exactly(1.0),
        light: messages(),
        heavy: messages(),
        burst: messages(),
        book: Book {
            light: about,
            heavy: about,
            ..Book::default()
        },
        deviation: "nobody asks itself; answers that must wait are kept back, not asked for again",
    }
}

/// One DEFERRED for each deferral: none under light load, from all under heavy load, and in a
/// burst, where every pair is in conflict once, from half of them.
fn ricart_agrawala(n: f64) -> Reference {
    let k = n - 1.0;
    let messages = |deferred: f64| {
        let mut kinds = vec![("REQUEST", k), ("REPLY", k), ("DEFERRED", deferred)];
        kinds.retain(|(_, count)| *count > 0.0);
        Messages::exactly(kinds)
    };
    Reference {
        response: Value::Exactly(if k > 0.0 { 2.0 } else { 0.0 }),
        sync: Value::Exactly(1.0),
        light: messages(0.0),
        heavy: messages(k),
        burst: messages(k / 2.0),
        book: Book {
            response: said("2T+E", 2.0),
            sync: said("T", 1.0),
            light: said("2(N-1)", 2.0 * k),
            heavy: said("2(N-1)", 2.0 * k),
        },
        deviation: "who cannot reply yet says so, as Jones's lecture wants it: DEFERRED",
    }
}

/// The token goes on for ever; under heavy load everybody uses it.
fn token_ring(n: f64) -> Reference {
    let endless = said("1 to infinity", f64::INFINITY);
    Reference {
        response: Value::About(n / 2.0),
        sync: Value::Exactly(1.0),
        light: Messages::total(Value::Unbounded),
        heavy: Messages::exactly(vec![("TOKEN", 1.0)]),
        burst: Messages::total(Value::Unbounded),
        book: Book {
            response: said("NT/2+E", n / 2.0),
            sync: said("NT/2", n / 2.0),
            light: endless,
            heavy: endless,
        },
        deviation: "under heavy load every hop is used; the book has one figure for all loads",
    }
}

/// Whoever has entered since one's own last time is asked, and who has the token asks nobody: of
/// members drawn at random, (N-1)/2 requests and (N-1)/N tokens in the mean, by 1/N less than the
/// table's (N+1)/2. Under heavy load all ask all, and in a burst all but who has the token do.
fn singhal(n: f64) -> Reference {
    let k = n - 1.0;
    let asking = |share: f64| Messages::exactly(vec![("REQUEST", k * share), ("TOKEN", share)]);
    Reference {
        response: Value::About(2.0 * k / n),
        sync: Value::Exactly(1.0),
        light: Messages::total(Value::About(k / 2.0 + k / n)),
        heavy: asking(1.0),
        burst: asking(k / n),
        book: Book {
            response: said("2T+E", 2.0),
            sync: said("T", 1.0),
            light: said("N/2", n / 2.0),
            heavy: said("N", n),
        },
        deviation: "the token is asked for too: (N-1)/2 requests, and it, unless it is here",
    }
}

/// 2d messages and 2dT for a token that is d hops away, every d from 0 to N-1 equally often.
fn token_ring_requests(n: f64) -> Reference {
    let k = n - 1.0;
    let each = |count: f64| Messages::exactly(vec![("REQUEST", count), ("TOKEN", count)]);
    Reference {
        response: Value::Exactly(k),
        sync: Value::Exactly(1.0),
        light: each(k / 2.0),
        heavy: each(1.0),
        burst: Messages::total(Value::Unbounded),
        book: Book::default(),
        deviation: "",
    }
}

/// Under heavy load, too, all must acknowledge, as who asks is the last; in a burst one of every
/// two requests that cross is not acknowledged.
fn lamport(n: f64) -> Reference {
    let k = n - 1.0;
    let messages =
        |acks: f64| Messages::exactly(vec![("REQUEST", k), ("ACK", acks), ("RELEASE", k)]);
    Reference {
        response: Value::Exactly(if k > 0.0 { 2.0 } else { 0.0 }),
        sync: Value::Exactly(1.0),
        light: messages(k),
        heavy: messages(k),
        burst: messages(k / 2.0),
        book: Book {
            response: said("2T+E", 2.0),
            sync: said("T", 1.0),
            light: said("3(N-1)", 3.0 * k),
            heavy: said("3(N-1)", 3.0 * k),
        },
        deviation: "",
    }
}

/// 2 messages for each permission that is elsewhere, and none for who was the last: of two members
/// each is as likely to have the permission under light load, and under heavy load it is always the
/// other. A burst begins with all permissions at the lower ids.
fn carvalho_roucairol(n: f64) -> Reference {
    let k = n - 1.0;
    Reference {
        response: Value::About(2.0 * k / n),
        sync: Value::Exactly(1.0),
        light: Messages::total(Value::About(k)),
        heavy: Messages::exactly(vec![("ASK", k), ("PERM", k)]),
        burst: Messages::total(Value::Between(0.0, 2.0 * k)),
        book: Book::default(),
        deviation: "",
    }
}

/// Maekawa's sets of voters: K in the mean over the members, as those of a folded plane are not
/// equal.
fn maekawa(size: u16) -> Reference {
    let root = f64::from(size).sqrt();
    Reference {
        book: Book {
            response: said("2T+E", 2.0),
            sync: said("2T", 2.0),
            light: said("3 sqrt N", 3.0 * root),
            heavy: said("5 sqrt N", 5.0 * root),
        },
        deviation: "K-1 others vote; who comes last everywhere pays 4(K-1); its own vote saves T",
        ..votes(voters(size))
    }
}

/// Any majority.
fn majority(size: u16) -> Reference {
    votes(f64::from(size / 2 + 1))
}

/// 3(K-1) messages under light load; 4(K-1) under heavy load, as whoever asks comes too late
/// everywhere, and at most that in a burst. From an exit to the next entry 2T, or T where either of
/// the two is the only voter that both need.
fn votes(voters: f64) -> Reference {
    let k = voters - 1.0;
    let each = |kinds: &[&'static str]| {
        Messages::exactly(kinds.iter().map(|kind| (*kind, k)).collect::<Vec<_>>())
    };
    Reference {
        response: Value::Exactly(if k > 0.0 { 2.0 } else { 0.0 }),
        sync: Value::Between(1.0, 2.0),
        light: each(&["REQUEST", "GRANT", "RELEASE"]),
        heavy: each(&["REQUEST", "FAILED", "GRANT", "RELEASE"]),
        burst: Messages::total(Value::Between(3.0 * k, 4.0 * k)),
        book: Book::default(),
        deviation: "",
    }
}

/// Who asks asks all others, and gets the token from one; who has the token asks nobody. In a
/// burst, too, that is one of N.
fn suzuki_kasami(n: f64) -> Reference {
    let k = n - 1.0;
    let asking = |share: f64| Messages::exactly(vec![("REQUEST", k * share), ("TOKEN", share)]);
    Reference {
        response: Value::Exactly(2.0 * k / n),
        sync: Value::Exactly(1.0),
        light: asking(k / n),
        heavy: asking(1.0),
        burst: asking(k / n),
        book: Book {
            response: said("2T+E", 2.0),
            sync: said("T", 1.0),
            light: said("N", n),
            heavy: said("N", n),
        },
        deviation: "under light load who still has the token sends nothing, once in N times",
    }
}

/// 2d messages and 2dT for a token that is d hops away in the tree, any two members equally often;
/// under heavy load the token goes round the tree, twice over each edge. The book's row is that of
/// Table 6.1 in print; the lecture's copy is cut off above it.
fn raymond(size: u16) -> Reference {
    let (n, k) = (f64::from(size), f64::from(size - 1));
    let pairs = (0..size).flat_map(|one| (0..size).map(move |other| hops(one, other)));
    let distance = f64::from(pairs.sum::<u32>()) / (n * n);
    // Without the library of functions that the whole program would load for this one.
    let log = (log2(u64::from(size)) >> (FRACTION - 16)) as f64 / 65536.0;
    Reference {
        response: Value::Exactly(2.0 * distance),
        sync: Value::Exactly(2.0 * k / n),
        light: Messages::exactly(vec![("REQUEST", distance), ("TOKEN", distance)]),
        heavy: Messages::total(Value::Exactly(4.0 * k / n)),
        burst: Messages::total(Value::Between(0.0, 4.0 * k / n)),
        book: Book {
            response: said("T log N+E", log),
            sync: said("T log N/2", log / 2.0),
            light: said("log N", log),
            heavy: said("4", 4.0),
        },
        deviation: "log N is an order: here 2d, d hops apart; heavily used, the token goes round",
    }
}

/// A round of questions and answers, and one that it is over. Who does not win asks again after a
/// random pause, any number of times.
fn voting(n: f64) -> Reference {
    let k = n - 1.0;
    let by_chance = || Messages::total(Value::ByChance);
    Reference {
        response: Value::Exactly(if k > 0.0 { 2.0 } else { 0.0 }),
        sync: Value::ByChance,
        light: Messages::exactly(vec![("REQUEST", k), ("VOTE", k), ("RELEASE", k)]),
        heavy: by_chance(),
        burst: by_chance(),
        book: Book::default(),
        deviation: "",
    }
}

/// What is lent goes back before the next one asks, T being long beside it: 3 messages. A manager sends
/// itself none, but has 3 others to fetch its right to enter from the custodian and to give it back, in a
/// group that has one. Under heavy load the token goes from each to the next, and the manager tells itself
/// nothing. In a burst the manager is first, and the last one gives the token back.
fn manager(n: f64) -> Reference {
    let k = n - 1.0;
    let (other, any) = (k / n, k.min(1.0));
    let right = if n > 2.0 { 1.0 / n } else { 0.0 };
    let right = ["UNPARK", "UNPARKED", "PARK"].map(|kind| (kind, right));
    let messages = |kinds: &[(&'static str, f64)]| {
        let kinds = kinds.iter().copied();
        Messages::exactly(kinds.filter(|(_, count)| *count > 0.0).collect())
    };
    let asked = [("REQUEST", other), ("TOKEN", other)];
    let back = [("RETURN", other)];
    let heavy = [("REQUEST", other), ("NEXT", other), ("TOKEN", any)];
    let line = [("NEXT", (n - 2.0).max(0.0) / n), ("RETURN", any / n)];
    Reference {
        response: Value::Exactly(if n > 2.0 { 2.0 } else { 2.0 * other }),
        sync: Value::Exactly(1.0),
        light: messages(&[&asked[..], &back, &right].concat()),
        heavy: messages(&heavy),
        burst: messages(&[&asked[..], &line, &right].concat()),
        book: Book {
            response: said("3T+E", 3.0),
            light: said("3", 3.0),
            heavy: said("3", 3.0),
            ..Book::default()
        },
        deviation: "the book's page stays where it was, 3T away; here it has gone back by then",
    }
}

/// How many hops two places of a heap are apart: the greater is never above the other.
fn hops(mut one: u16, mut other: u16) -> u32 {
    let mut hops = 0;
    while one != other {
        (one, other) = (one.max(other), one.min(other));
        one = (one - 1) / 2;
        hops += 1;
    }
    hops
}

/// Perfect difference sets: the first voters of the planes, the others' by counting on.
const PLANES: [(u16, &[u16]); 9] = [
    (7, &[0, 1, 3]),
    (13, &[0, 1, 3, 9]),
    (21, &[0, 1, 4, 14, 16]),
    (31, &[0, 1, 3, 8, 12, 18]),
    (57, &[0, 1, 3, 13, 32, 36, 43, 52]),
    (73, &[0, 1, 3, 7, 15, 31, 36, 54, 63]),
    (91, &[0, 1, 3, 9, 27, 49, 56, 61, 77, 81]),
    (133, &[0, 1, 3, 12, 20, 34, 38, 81, 88, 94, 104, 109]),
    (
        183,
        &[0, 1, 3, 16, 23, 28, 42, 76, 82, 86, 119, 137, 154, 175],
    ),
];

/// How many voters one of `size` members has by Maekawa, in the mean: those of the next larger
/// plane, with its surplus members played by real ones; in groups larger than all planes a row and
/// a column of a square.
fn voters(size: u16) -> f64 {
    let sum: usize = match PLANES.iter().find(|(order, _)| *order >= size) {
        Some((order, first)) => (0..size)
            .map(|i| {
                let voters = first.iter().map(|d| (i + d) % order % size);
                voters.collect::<BTreeSet<_>>().len()
            })
            .sum(),
        None => (0..size).map(|i| row_and_column(i, size)).sum(),
    };
    sum as f64 / f64::from(size)
}

/// How many members are in the row or the column of member `i`, in a square of `size` whose last
/// row may be ragged: the cell above stands for one that is missing there.
fn row_and_column(i: u16, size: u16) -> usize {
    let width = (1..=size).find(|c| u32::from(*c).pow(2) >= size.into());
    let width = width.unwrap_or(1);
    let rows = size.div_ceil(width);
    let row = (0..size).filter(|j| j / width == i / width);
    let column = (0..rows).map(|r| {
        let cell = r * width + i % width;
        if cell < size { cell } else { cell - width }
    });
    row.chain(column).collect::<BTreeSet<_>>().len()
}
