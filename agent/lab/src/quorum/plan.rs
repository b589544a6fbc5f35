//! What a seed decides about a run of quorum views.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::super::choices::{Choices, Permille};
use super::super::clock::Clock;
use super::super::network::{Conditions, Delay};
use super::super::plan::{DRAWN, on, rate};
use distlock_protocol::{
    Algorithm, ElectionAlgorithm, Failure, LockName, LockSpec, NodeId, Settings,
};

/// One run, before it begins. Half of the seeds have every fault at its full rate, the other half
/// a random choice of them.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) hosts: u16,
    pub(super) voters: u16,
    /// How the lock is served.
    pub(super) algorithm: Algorithm,
    pub(super) lease: Duration,
    pub(super) conditions: Conditions,
    pub(super) clocks: BTreeMap<NodeId, Clock>,
    pub(super) disk: Duration,
    pub(super) lateness: Duration,
    /// How long a caller stays inside, in the mean.
    pub(super) stay: Duration,
    /// How many of a thousand times a member says something it wants a new view, for no reason.
    pub(super) wishes: Permille,
    /// How long unrest lasts.
    pub(super) unrest: Duration,
    pub(super) faults: Misfortunes,
}

/// What goes wrong, besides the network. Each interval is a mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Misfortunes {
    pub(super) crash: Option<Duration>,
    /// How many of a thousand crashes take all hosts.
    pub(super) crash_all: Permille,
    /// How many of a thousand crashes take a voter's state with them, where others have theirs.
    pub(super) lost_state: Permille,
    pub(super) away: Duration,
    pub(super) pause: Option<Duration>,
    pub(super) paused: Duration,
    pub(super) partition: Option<Duration>,
    pub(super) parted: Duration,
    pub(super) leave: Option<Duration>,
    /// Between two changes of who shall vote.
    pub(super) revote: Option<Duration>,
}

impl Plan {
    /// What the files say of locks.
    pub(super) fn settings(&self) -> Settings {
        let name = LockName::new("lock").expect("a good name");
        Settings {
            group: "sim".into(),
            lease: self.lease,
            failure: Failure::Unanimity,
            lock_delay: Duration::ZERO,
            election: ElectionAlgorithm::Bully,
            algorithm: self.algorithm,
            locks: BTreeMap::from([(name, LockSpec::exclusive(self.algorithm))]),
        }
    }

    /// A group in which nothing goes wrong by itself.
    pub(super) fn calm(hosts: u16, lease: Duration) -> Self {
        let clocks = (1..=hosts).filter_map(NodeId::new);
        Self {
            hosts,
            voters: hosts.min(5),
            algorithm: Algorithm::RicartAgrawala,
            lease,
            conditions: Conditions::perfect(lease / 2000),
            clocks: clocks.map(|node| (node, Clock::default())).collect(),
            disk: lease / 1000,
            lateness: Duration::ZERO,
            stay: lease / 5,
            wishes: 0,
            unrest: lease * 20,
            faults: Misfortunes {
                crash: None,
                crash_all: 0,
                lost_state: 0,
                away: lease,
                pause: None,
                paused: lease,
                partition: None,
                parted: lease,
                leave: None,
                revote: None,
            },
        }
    }

    pub(super) fn new(seed: u64) -> Self {
        let mut choices = Choices::new(seed).fork();
        let full = seed.is_multiple_of(2);
        let hosts = choices.within(1..=6) as u16;
        let voters = choices.within(1..=u64::from(hosts.min(5))) as u16;
        let lease = Duration::from_millis([200, 500, 1000][choices.index(3)]);
        let delay = lease / [2000, 200, 50][choices.index(3)];
        let drifts = on(full, &mut choices);
        let clocks = (1..=hosts).filter_map(NodeId::new).map(|node| {
            let offset = Duration::from_millis(choices.below(1_000_000));
            // Close to the bound of 10 %, and to either side of it at once.
            let drift =
                [-99_000, 99_000, choices.within(0..=198_000) as i32 - 99_000][choices.index(3)];
            let drift_ppm = if drifts { drift } else { 0 };
            (node, Clock { offset, drift_ppm })
        });
        let clocks = clocks.collect();
        let conditions = Conditions {
            delay: Delay::Exponential(delay),
            loss: rate(150, full, &mut choices),
            duplication: rate(150, full, &mut choices),
            corruption: 0,
            in_order: !on(full, &mut choices),
        };
        let stay = lease / [50, 5, 1][choices.index(3)];
        let disk = if on(full, &mut choices) {
            delay
        } else {
            Duration::ZERO
        };
        let lateness = if on(full, &mut choices) {
            lease / 50
        } else {
            Duration::ZERO
        };
        Self {
            hosts,
            voters,
            algorithm: DRAWN[choices.index(DRAWN.len())],
            lease,
            conditions,
            clocks,
            disk,
            lateness,
            stay,
            wishes: rate(2, full, &mut choices),
            unrest: lease * 40,
            faults: faults(lease, full, &mut choices),
        }
    }
}

fn faults(lease: Duration, full: bool, choices: &mut Choices) -> Misfortunes {
    let mut every = |leases: u32| on(full, choices).then(|| lease * leases);
    let (crash, pause, partition) = (every(8), every(8), every(8));
    let (leave, revote) = (every(20), every(20));
    let mut long = || lease * [1, 5, 15][choices.index(3)] / 5;
    let (away, paused, parted) = (long(), long(), long());
    Misfortunes {
        crash,
        crash_all: 100,
        lost_state: rate(200, full, choices),
        away,
        pause,
        paused,
        partition,
        parted,
        leave,
        revote,
    }
}
