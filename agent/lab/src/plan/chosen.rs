//! Small groups that live for a few leases, so that many runs are tried: what a fuzzer decides, and what
//! is searched. The plan says which faults there are; what a fault does when it strikes is chosen then.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::{Callers, Misfortunes, Plan, Rhythm, Unrest, settings};
use crate::choices::{Choices, Permille};
use crate::clock::Clock;
use crate::cluster::Surroundings;
use crate::network::{Conditions, Delay};
use distlock_protocol::{Algorithm, Failure, LockName, LockSpec, NodeId};

const LEASE: Duration = Duration::from_secs(1);
const DELAY: Duration = Duration::from_millis(2);
/// Close to the bound of what clocks may drift.
const MOST_DRIFT: i32 = 99_000;
/// The rate of whatever may go wrong in a search, which takes both sides of every coin that is not certain.
pub(crate) const SEARCHED_RATE: Permille = 100;
/// How often each member enters, in the mean, before the faults of a searched run stop.
pub(crate) const SEARCHED_ENTRIES: u64 = 2;

/// What is on, one bit each.
struct Switches(u64);

impl Switches {
    fn next(&mut self) -> bool {
        let is_on = self.0 & 1 == 1;
        self.0 >>= 1;
        is_on
    }

    /// Every so often, if it is on.
    fn every(&mut self, interval: Duration) -> Option<Duration> {
        self.next().then_some(interval)
    }

    /// So many of a thousand, if it is on.
    fn rate(&mut self, rate: u32) -> u32 {
        if self.next() { rate } else { 0 }
    }
}

pub(super) fn plan(choices: &mut Choices) -> Plan {
    let members = choices.within(2..=4) as u16;
    let failure = [
        Failure::Quorum,
        Failure::Unanimity,
        Failure::PresumeFailed,
        Failure::Quorum,
    ][choices.index(4)];
    // Where a majority decides, no configuration may have one that excludes by chance.
    let can_serve = |it: &&Algorithm| failure != Failure::Quorum || !it.is_probabilistic();
    let algorithms: Vec<_> = Algorithm::ALL.iter().filter(can_serve).collect();
    let algorithm = *algorithms[choices.index(algorithms.len())];
    let on = Switches(choices.below(1 << 24));
    small(algorithm, failure, members, on)
}

pub(super) fn searched(algorithm: Algorithm, failure: Failure, members: u16) -> Plan {
    // Nothing that comes at a time of its own.
    let mut plan = small(algorithm, failure, members, Switches(0));
    plan.locks.truncate(1);
    plan.settings.locks = plan.locks.iter().cloned().collect();
    plan.surroundings.conditions = Conditions {
        loss: SEARCHED_RATE,
        duplication: SEARCHED_RATE,
        late: (SEARCHED_RATE, DELAY * 4),
        in_order: false,
        ..plan.surroundings.conditions
    };
    plan.surroundings.clocks = clocks(members, MOST_DRIFT);
    plan.surroundings.disk = DELAY;
    plan.callers = Callers {
        rhythm: Rhythm::Paused(LEASE / 5),
        stay: LEASE / 50,
        cancels: SEARCHED_RATE,
        patience: DELAY,
        tries: SEARCHED_RATE,
        shared: SEARCHED_RATE,
        deaths: SEARCHED_RATE,
        unaware: SEARCHED_RATE,
        ..plan.callers
    };
    plan.faults.at_steps = true;
    plan.unrest = Unrest {
        grants: SEARCHED_ENTRIES * u64::from(members),
        lasts: LEASE * 5,
        until_spent: false,
    };
    plan
}

/// A group of which `on` says what befalls it.
fn small(algorithm: Algorithm, failure: Failure, members: u16, mut on: Switches) -> Plan {
    let voters = if on.next() && failure == Failure::Quorum {
        1
    } else {
        members
    };
    let two = NonZeroU32::MIN.saturating_add(1);
    let name = |name| LockName::new(name).expect("a good name");
    let locks = vec![
        (name("printer"), LockSpec::exclusive(algorithm)),
        (name("pool"), LockSpec::counting(two)),
    ];
    let is_forged = on.next();
    Plan {
        members,
        voters,
        settings: settings(algorithm, failure, LEASE, (&locks, &BTreeMap::new())),
        locks,
        wishes: BTreeMap::new(),
        surroundings: surroundings(members, &mut on),
        callers: callers(&mut on),
        faults: faults(failure, is_forged, &mut on),
        unrest: Unrest {
            grants: 40,
            lasts: LEASE * 5,
            until_spent: true,
        },
    }
}

fn surroundings(members: u16, on: &mut Switches) -> Surroundings {
    let overtakes = on.next();
    let drift = if on.next() { MOST_DRIFT } else { 0 };
    Surroundings {
        conditions: Conditions {
            delay: if overtakes {
                Delay::Exponential(DELAY)
            } else {
                Delay::Constant(DELAY)
            },
            loss: on.rate(100),
            duplication: on.rate(100),
            corruption: on.rate(30),
            late: (0, Duration::ZERO),
            in_order: !overtakes,
        },
        clocks: clocks(members, drift),
        disk: Duration::from_millis(if on.next() { 10 } else { 0 }),
        lateness: Duration::from_millis(if on.next() { 2 } else { 0 }),
        wall_back: 0,
        early: on.rate(50),
        odd_file: None,
    }
}

/// Clocks that drift by `drift` millionths: those of even members gain, those of odd members lose.
fn clocks(members: u16, drift: i32) -> BTreeMap<NodeId, Clock> {
    let clock = |node: NodeId| {
        let is_even = node.as_u16().is_multiple_of(2);
        let clock = Clock {
            offset: Duration::from_secs(node.as_u16().into()),
            drift_ppm: if is_even { drift } else { -drift },
        };
        (node, clock)
    };
    (1..=members).filter_map(NodeId::new).map(clock).collect()
}

fn callers(on: &mut Switches) -> Callers {
    Callers {
        per_member: if on.next() { 2 } else { 1 },
        rhythm: Rhythm::Paused(LEASE / 20),
        stay: LEASE / 20,
        cancels: on.rate(200),
        patience: LEASE / 20,
        tries: 200,
        shared: on.rate(300),
        campaigns: on.rate(300),
        notes: on.rate(100),
        blunders: on.rate(200),
        deaths: on.rate(200),
        unaware: on.rate(100),
    }
}

fn faults(failure: Failure, is_forged: bool, on: &mut Switches) -> Misfortunes {
    let by_quorum = failure == Failure::Quorum;
    Misfortunes {
        crash: on.every(LEASE),
        crash_inside: 0,
        crash_all: 100,
        lost_record: 100,
        pause: on.every(LEASE).filter(|_| by_quorum),
        paused: LEASE,
        leave: on.every(LEASE * 2),
        leave_all: 100,
        operate: on.every(LEASE * 2).filter(|_| by_quorum),
        away: LEASE / 4,
        partition: on.every(LEASE),
        parted: LEASE,
        forge: is_forged.then_some(LEASE / 10),
        at_steps: false,
    }
}
