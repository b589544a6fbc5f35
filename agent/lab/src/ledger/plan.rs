//! What a seed decides at first.

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::choices::{Choices, Permille};
use distlock_protocol::LockName;

/// What kind of store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It keeps what it has acknowledged.
    Keeps,
    /// It forgets the last of it, when it was away for longer than any lease.
    Forgets,
    /// The same, also when it was away for less: then two may be valid for a while.
    ForgetsAtOnce,
    /// It is restored from a backup, after it was away for longer than any lease.
    Restored,
}

impl Kind {
    pub(super) const fn may_forget(self) -> bool {
        matches!(self, Self::Forgets | Self::ForgetsAtOnce)
    }

    /// Whether it comes back from being away with less than it had.
    pub(super) const fn rolls_back(self) -> bool {
        !matches!(self, Self::Keeps)
    }
}

/// One world.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) agents: usize,
    pub(super) locks: Vec<(LockName, NonZeroU32)>,
    /// Callers of each agent at most.
    pub(super) callers: u64,
    /// The mean time between two requests of an agent's callers, and how long one stays inside.
    pub(super) pause: Duration,
    pub(super) stay: Duration,
    /// The length of each agent's lease.
    pub(super) leases: Vec<Duration>,
    pub(super) lock_delay: Duration,
    /// Whether clocks run as differently as they may.
    pub(super) drift_ppm: u64,
    /// By how much wall clocks are off.
    pub(super) wall_skew: Duration,
    pub(super) collects: bool,
    /// How long there are faults.
    pub(super) unrest: Duration,
    pub(super) faults: Faults,
    pub(super) wishes: Wishes,
}

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// How long an operation takes, each way, in the mean.
    pub(super) delay: Duration,
    /// Operations that never arrive, replies that never do, and operations that arrive long after
    /// their connection has ended.
    pub(super) lost: Permille,
    pub(super) reply_lost: Permille,
    pub(super) late: Permille,
    pub(super) stale: Permille,
    /// Notifications that come; and that come for nothing.
    pub(super) hints: Permille,
    pub(super) spurious: Option<Duration>,
    /// The mean time between two of each.
    pub(super) crash: Option<Duration>,
    pub(super) pause: Option<Duration>,
    pub(super) cut: Option<Duration>,
    pub(super) outage: Option<Duration>,
    pub(super) close: Option<Duration>,
    /// Wall clocks that are set.
    pub(super) set_wall: Option<Duration>,
}

/// What callers want, of a thousand requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    pub(super) shared: Permille,
    pub(super) tries: Permille,
    pub(super) leases: Permille,
    /// Those that give up while they wait; and that end inside.
    pub(super) cancels: Permille,
    pub(super) ends: Permille,
    /// Those that say another number of permits.
    pub(super) wrong: Permille,
    /// Locks of an agent that somebody observes.
    pub(super) observes: Permille,
}

impl Plan {
    pub(super) fn new(choices: &mut Choices) -> Self {
        let kind = match choices.below(10) {
            0..=5 => Kind::Keeps,
            6..=7 => Kind::Forgets,
            8 => Kind::ForgetsAtOnce,
            _ => Kind::Restored,
        };
        // What goes wrong with many goes wrong with two or three.
        let agents = choices.within(1..=6).min(choices.within(2..=4)) as usize;
        let lease = Duration::from_millis([300, 900, 3000][choices.index(3)]);
        let mut leases: Vec<Duration> = (0..agents).map(|_| lease).collect();
        if choices.chance(200) {
            for other in &mut leases {
                *other = lease * choices.within(1..=3) as u32;
            }
        }
        let names = choices.within(1..=3).min(choices.within(1..=3));
        let locks = (0..names).map(|number| {
            let permits = if choices.chance(200) {
                choices.within(2..=3)
            } else {
                1
            };
            let name = LockName::new(alloc::format!("lock {number}")).expect("a name");
            (name, NonZeroU32::new(permits as u32).expect("not none"))
        });
        let locks = locks.collect();
        let all = choices.chance(400);
        let some = |choices: &mut Choices| all || choices.chance(500);
        let share = |choices: &mut Choices, most: u64| {
            let share = choices.below(most) as Permille;
            if some(choices) { share } else { 0 }
        };
        let often = |choices: &mut Choices, least: u32, most: u32| {
            let mean = choices.duration(lease * least..=lease * most);
            some(choices).then_some(mean)
        };
        let faults = Faults {
            delay: choices.duration(lease / 300..=lease / 20),
            lost: share(choices, 80),
            reply_lost: share(choices, 150),
            late: share(choices, 100),
            stale: if kind == Kind::Keeps {
                share(choices, 500)
            } else {
                0
            },
            hints: share(choices, 1001),
            spurious: often(choices, 1, 5),
            crash: often(choices, 2, 12),
            pause: often(choices, 2, 10),
            cut: often(choices, 1, 10),
            outage: often(choices, 4, 20).or(kind.rolls_back().then_some(lease * 4)),
            close: often(choices, 6, 30),
            set_wall: if kind.rolls_back() {
                None
            } else {
                often(choices, 3, 20)
            },
        };
        let wishes = Wishes {
            shared: [0, 0, 400, 800][choices.index(4)],
            tries: share(choices, 400),
            leases: share(choices, 400),
            cancels: share(choices, 300),
            ends: share(choices, 200),
            wrong: share(choices, 50),
            observes: share(choices, 700),
        };
        Self {
            kind,
            agents,
            locks,
            callers: choices.within(1..=3),
            pause: choices.duration(lease / 10..=lease),
            stay: choices.duration(lease / 30..=lease),
            leases,
            lock_delay: if choices.chance(250) {
                lease
            } else {
                Duration::ZERO
            },
            drift_ppm: [0, 50_000, 99_999][choices.index(3)],
            wall_skew: if kind.rolls_back() {
                Duration::ZERO
            } else {
                choices.duration(Duration::ZERO..=lease * 40)
            },
            collects: choices.chance(300),
            unrest: lease * choices.within(4..=14) as u32,
            faults,
            wishes,
        }
    }

    /// The longest lease of all, in true time.
    pub(super) fn longest_lease(&self) -> Duration {
        let longest = self.leases.iter().max().copied().unwrap_or_default();
        // The slowest clock counts nine tenths of the time.
        longest * 10 / 9 + Duration::from_nanos(1)
    }
}
