//! What a seed decides where faults are aimed: a group in which little else goes wrong.
//!
//! The lease is the default one. Changes are collected for 200 ms, and views come at most a second
//! apart in the mean: with the short leases of the other seeds no two views come within one lease,
//! and what rests on leases that are still alive has no time to go wrong.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::{Callers, Misfortunes, Plan, Rhythm, Unrest, Wishes, settings};
use crate::choices::Choices;
use crate::clock::Clock;
use crate::cluster::Surroundings;
use crate::network::Conditions;
use distlock_protocol::{Algorithm, Failure, LockName, LockSpec, NodeId, Priority};

const LEASE: Duration = Duration::from_secs(5);
/// So many that most are not in use, and only some members know of each that is.
const LOCKS: [&str; 6] = [
    "printer", "licences", "scanner", "plotter", "backup", "modem",
];

pub(super) fn plan(algorithm: Algorithm, seed: u64) -> Plan {
    let mut choices = Choices::new(seed).fork();
    let members = choices.within(3..=5) as u16;
    let voters = [1, 3, 3, members][choices.index(4)];
    let spec = LockSpec {
        algorithm,
        permits: NonZeroU32::MIN,
        priority: Priority::Lamport,
    };
    let name = |name| LockName::new(name).expect("a good name");
    let locks: Vec<_> = LOCKS.map(|it| (name(it), spec)).into();
    let wishes: Wishes = LOCKS.map(|it| (name(it), vec![Some(spec)])).into();
    Plan {
        members,
        voters,
        settings: settings(algorithm, Failure::Quorum, LEASE, (&locks, &wishes)),
        locks,
        wishes,
        surroundings: surroundings(members, &mut choices),
        callers: Callers {
            per_member: [1, 2][choices.index(2)],
            rhythm: Rhythm::Paused(LEASE / [2, 10][choices.index(2)]),
            stay: LEASE / [10, 2, 1][choices.index(3)],
            cancels: 0,
            patience: Duration::ZERO,
            tries: 0,
            shared: 0,
            campaigns: 0,
            notes: 0,
            blunders: 0,
            deaths: [0, 50][choices.index(2)],
            unaware: 0,
        },
        faults: Misfortunes {
            away: LEASE / [50, 10][choices.index(2)],
            ..Misfortunes::NONE
        },
        unrest: Unrest {
            grants: 1000,
            lasts: LEASE * 60,
            until_spent: false,
        },
    }
}

fn surroundings(members: u16, choices: &mut Choices) -> Surroundings {
    let delay = LEASE / [10_000, 1000][choices.index(2)];
    let drifts = choices.chance(500);
    let mut clock = |node| {
        let drift_ppm = if drifts {
            [-99_000, 99_000][choices.index(2)]
        } else {
            0
        };
        let offset = Duration::from_millis(choices.below(1_000_000));
        (node, Clock { offset, drift_ppm })
    };
    let clocks = (1..=members)
        .filter_map(NodeId::new)
        .map(&mut clock)
        .collect();
    Surroundings {
        conditions: Conditions {
            loss: [0, 20][choices.index(2)],
            ..Conditions::perfect(delay)
        },
        clocks,
        disk: delay,
        lateness: Duration::ZERO,
        wall_back: 0,
        early: 0,
        odd_file: None,
    }
}
