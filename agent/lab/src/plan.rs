//! What a seed decides: the group, its surroundings, its callers and its faults.
//!
//! Half of the seeds have every fault at its full rate. The other half is a swarm (Groce et al.
//! 2012): each fault is on or off by a coin of its own and has a rate of its own, because faults
//! that are always on together hide what only some of them bring out.

pub(super) mod chosen;
mod directed;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::choices::{Choices, Permille};
use super::clock::Clock;
use super::cluster::Surroundings;
use super::network::{Conditions, Delay};
use distlock_protocol::{
    Algorithm, ElectionAlgorithm, Failure, LockName, LockSpec, NodeId, Priority, Settings,
};

/// One run, before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Members of the group, 1 to 9.
    pub members: u16,
    /// How many of them vote on views: the first ones.
    pub voters: u16,
    /// What the members' files say.
    pub settings: Settings,
    /// The locks that are asked for. The first is served by the algorithm under test, unless
    /// callers disagree on it.
    pub locks: Vec<(LockName, LockSpec)>,
    /// What callers say about the locks that no file lists. Where they disagree, the first to be
    /// heard is right until nobody uses the lock any more.
    pub wishes: Wishes,
    /// Network, clocks and disks.
    pub surroundings: Surroundings,
    /// How callers behave.
    pub callers: Callers,
    /// What goes wrong, besides the network.
    pub faults: Misfortunes,
    /// How long it does.
    pub unrest: Unrest,
}

/// What a seed chooses from where nobody says which algorithm. Not all there are: with each that is
/// added, the seeds that are kept because they showed a mistake would be other runs.
pub(super) const DRAWN: [Algorithm; 5] = [
    Algorithm::Semaphore,
    Algorithm::Bakery,
    Algorithm::RicartAgrawala,
    Algorithm::TokenRing,
    Algorithm::TokenRingRequests,
];

/// How callers behave.
#[derive(Clone, Copy, Debug)]
pub struct Callers {
    /// How many in each member.
    pub per_member: u16,
    /// When they ask again.
    pub rhythm: Rhythm,
    /// How long they stay inside, in the mean.
    pub stay: Duration,
    /// How many of a thousand requests are cancelled after a while.
    pub cancels: Permille,
    /// How long that while is, in the mean.
    pub patience: Duration,
    /// How many of a thousand are not willing to wait at all.
    pub tries: Permille,
    /// How many of a thousand share the lock with others who do, where that can be.
    pub shared: Permille,
    /// How many of a thousand requests for locks with one permit are to lead.
    pub campaigns: Permille,
    /// How many of a thousand requests come with a note to another member.
    pub notes: Permille,
    /// How many of a thousand commands are given twice, or too late.
    pub blunders: Permille,
    /// How many of a thousand end inside, though their members live.
    pub deaths: Permille,
    /// How many of a thousand never know that they were inside.
    pub unaware: Permille,
}

/// When callers ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rhythm {
    /// The instant they leave.
    ClosedLoop,
    /// After a pause of random length.
    Paused(Duration),
    /// All together, whenever so much time has passed.
    Bursts(Duration),
}

/// What goes wrong, besides the network. Each interval is a mean.
#[derive(Clone, Copy, Debug)]
pub struct Misfortunes {
    /// Between two crashes of some member.
    pub crash: Option<Duration>,
    /// How many of a thousand grants are followed by a crash of the granted member.
    pub crash_inside: Permille,
    /// How many of a thousand crashes take all members.
    pub crash_all: Permille,
    /// How many of a thousand crashes take the member's record with them.
    pub lost_record: Permille,
    /// Between two hosts that stand still for a while.
    pub pause: Option<Duration>,
    /// How long one does.
    pub paused: Duration,
    /// Between two members that leave and come back.
    pub leave: Option<Duration>,
    /// How many of a thousand times all leave, one soon after the other.
    pub leave_all: Permille,
    /// Between two acts of an operator's.
    pub operate: Option<Duration>,
    /// How long a member is away.
    pub away: Duration,
    /// Between two partitions.
    pub partition: Option<Duration>,
    /// How long a partition lasts.
    pub parted: Duration,
    /// Between two datagrams that are forged.
    pub forge: Option<Duration>,
    /// Whether a member may crash, stand still, be cut off or leave after any of its steps.
    pub at_steps: bool,
}

impl Misfortunes {
    /// Nothing.
    pub const NONE: Self = Self {
        crash: None,
        crash_inside: 0,
        crash_all: 0,
        lost_record: 0,
        pause: None,
        paused: Duration::ZERO,
        leave: None,
        leave_all: 0,
        operate: None,
        away: Duration::ZERO,
        partition: None,
        parted: Duration::ZERO,
        forge: None,
        at_steps: false,
    };
}

/// How long unrest lasts.
#[derive(Clone, Copy, Debug)]
pub struct Unrest {
    /// Grants after which it ends.
    pub grants: u64,
    /// After this time it ends in any case.
    pub lasts: Duration,
    /// Whether it ends, too, when the bytes are used up that the choices come from.
    pub until_spent: bool,
}

impl Plan {
    /// What `seed` means for `algorithm`, where `failure` decides on views.
    pub fn new(algorithm: Algorithm, failure: Failure, seed: u64) -> Self {
        match failure {
            Failure::Quorum => quorum(algorithm, seed),
            Failure::PresumeFailed => presuming(algorithm, seed),
            Failure::Unanimity => unanimity(algorithm, seed),
        }
    }

    /// What `seed` means for `algorithm` under quorum views, where faults are aimed.
    pub fn directed(algorithm: Algorithm, seed: u64) -> Self {
        directed::plan(algorithm, seed)
    }

    /// What `choices` say of everything, the algorithm and who decides on views as well: a small group
    /// for a short while.
    pub fn chosen(choices: &mut Choices) -> Self {
        chosen::plan(choices)
    }

    /// What is searched of `algorithm`, where `failure` decides on views: a small group in which each
    /// datagram may be lost, come twice or late, and something may befall each member at each step.
    pub fn searched(algorithm: Algorithm, failure: Failure, members: u16) -> Self {
        chosen::searched(algorithm, failure, members)
    }

    /// What `seed` means for elections by `algorithm`, where `failure` decides on views: another lock
    /// engine for each seed, and most callers want to lead.
    pub fn of_elections(algorithm: ElectionAlgorithm, failure: Failure, seed: u64) -> Self {
        let engine = DRAWN[(seed / 2) as usize % DRAWN.len()];
        let mut plan = Self::new(engine, failure, seed);
        plan.settings.election = algorithm;
        plan.callers.campaigns = 800;
        plan
    }
}

/// Members that wait for everybody: a run is over when they have entered often enough.
fn unanimity(algorithm: Algorithm, seed: u64) -> Plan {
    // Neighbouring seeds of neighbouring algorithms have nothing in common.
    let mut choices = Choices::new(seed).fork();
    let full = seed.is_multiple_of(2);
    let members = choices.within(1..=9) as u16;
    let lease = Duration::from_millis([200, 500, 1000][choices.index(3)]);
    let delay = Duration::from_micros([50, 500, 2000, 8000][choices.index(4)]);
    let (locks, wishes) = locks(algorithm, &mut choices);
    Plan {
        members,
        voters: members,
        settings: settings(algorithm, Failure::Unanimity, lease, (&locks, &wishes)),
        locks,
        wishes,
        surroundings: surroundings(members, delay, full, &mut choices),
        callers: callers(delay, full, &mut choices),
        faults: faults(lease, full, &mut choices),
        unrest: Unrest {
            grants: 60,
            lasts: lease * 20,
            until_spent: false,
        },
    }
}

/// Members that can be removed: that takes leases, and so does what callers do, or a run would be
/// over before anything has come of its faults.
fn quorum(algorithm: Algorithm, seed: u64) -> Plan {
    let mut choices = Choices::new(seed).fork();
    let full = seed.is_multiple_of(2);
    let members = choices.within(1..=7) as u16;
    let voters = if choices.chance(500) {
        members
    } else {
        choices.within(1..=u64::from(members)) as u16
    };
    let lease = Duration::from_millis([200, 500, 1000][choices.index(3)]);
    let delay = lease / [2000, 200, 50][choices.index(3)];
    let (locks, wishes) = locks(algorithm, &mut choices);
    let mut settings = settings(algorithm, Failure::Quorum, lease, (&locks, &wishes));
    if choices.chance(200) {
        settings.lock_delay = lease / 2;
    }
    let mut surroundings = surroundings(members, delay, full, &mut choices);
    surroundings.disk = surroundings.disk.min(delay);
    for clock in surroundings.clocks.values_mut() {
        // Close to the bound of 10 %, and to either side of it at once.
        let extreme = [-99_000, 99_000, clock.drift_ppm][choices.index(3)];
        clock.drift_ppm = if clock.drift_ppm == 0 { 0 } else { extreme };
    }
    let mut callers = callers(lease / 100, full, &mut choices);
    if callers.rhythm == Rhythm::ClosedLoop {
        callers.rhythm = Rhythm::Paused(lease / 20);
    }
    callers.stay = lease / [50, 5, 1][choices.index(3)];
    Plan {
        members,
        voters,
        settings,
        locks,
        wishes,
        surroundings,
        callers,
        faults: under_quorum(lease, full, &mut choices),
        unrest: Unrest {
            grants: 400,
            lasts: lease * 30,
            until_spent: false,
        },
    }
}

/// Members that presume gone who is silent. Half of the seeds have a network in which nobody is that
/// runs; in the others cuts last long enough for both sides to go on by themselves. In some the file of
/// one member differs.
fn presuming(algorithm: Algorithm, seed: u64) -> Plan {
    let mut plan = unanimity(algorithm, seed);
    let mut choices = Choices::new(seed).fork();
    let lease = plan.settings.lease;
    plan.settings.failure = Failure::PresumeFailed;
    plan.settings.lock_delay = lease * [0, 0, 1][choices.index(3)] / 4;
    if seed % 4 < 2 {
        let conditions = &mut plan.surroundings.conditions;
        (conditions.loss, conditions.corruption) = (0, 0);
        let mean = lease / 200;
        conditions.delay = match conditions.delay {
            Delay::Constant(delay) => Delay::Constant(delay.min(mean)),
            Delay::Exponential(delay) => Delay::Exponential(delay.min(mean)),
        };
        plan.faults.partition = None;
    } else {
        plan.faults.parted = lease * [1, 2, 4][choices.index(3)];
    }
    if choices.chance(250) {
        let odd = choices.within(1..=u64::from(plan.members)) as u16;
        plan.surroundings.odd_file = NodeId::new(odd);
    }
    plan
}

/// What the members' files say.
fn settings(
    algorithm: Algorithm,
    failure: Failure,
    lease: Duration,
    (locks, wishes): (&[(LockName, LockSpec)], &Wishes),
) -> Settings {
    let listed = locks
        .iter()
        .filter(|(name, _)| !wishes.contains_key(name))
        .cloned()
        .collect();
    Settings {
        group: String::from("sim"),
        lease,
        failure,
        lock_delay: Duration::ZERO,
        election: ElectionAlgorithm::Bully,
        algorithm,
        locks: listed,
    }
}

/// Whether a fault is on: always, or by a coin.
pub(super) fn on(full: bool, choices: &mut Choices) -> bool {
    choices.chance(500) || full
}

/// A rate: the full one, or none, or something up to it.
pub(super) fn rate(most: Permille, full: bool, choices: &mut Choices) -> Permille {
    let some = choices.within(1..=u64::from(most)) as Permille;
    match (on(full, choices), full) {
        (false, _) => 0,
        (true, true) => most,
        (true, false) => some,
    }
}

/// What callers say about a lock that no file lists.
pub type Wishes = BTreeMap<LockName, Vec<Option<LockSpec>>>;

/// How many permits the algorithm is to serve.
pub(super) fn permits(algorithm: Algorithm, choices: &mut Choices) -> NonZeroU32 {
    let permits = match algorithm {
        Algorithm::Semaphore => choices.within(1..=4) as u32,
        Algorithm::Manager => [1, 1, 1, 3][choices.index(4)],
        _ => 1,
    };
    NonZeroU32::new(permits).expect("at least one")
}

fn locks(algorithm: Algorithm, choices: &mut Choices) -> (Vec<(LockName, LockSpec)>, Wishes) {
    let mut locks = Vec::new();
    let mut wishes = BTreeMap::new();
    let count = [1, 1, 2, 3][choices.index(4)];
    for name in ["printer", "licences", "scanner"].into_iter().take(count) {
        let name = LockName::new(name).expect("a good name");
        let other = DRAWN[choices.index(DRAWN.len())];
        let algorithm = if locks.is_empty() || choices.chance(500) {
            algorithm
        } else {
            other
        };
        let permits = permits(algorithm, choices);
        let priority = if algorithm == Algorithm::CarvalhoRoucairol {
            Priority::ALL[choices.index(Priority::ALL.len())]
        } else {
            Priority::Lamport
        };
        let spec = LockSpec {
            algorithm,
            permits,
            priority,
        };
        if choices.chance(300) {
            // Permits are what the checkers count by, so nobody disagrees on those.
            let others = (spec.permits.get() == 1 && choices.chance(500))
                .then(|| [None, Some(LockSpec::exclusive(other))]);
            let all = core::iter::once(Some(spec)).chain(others.into_iter().flatten());
            wishes.insert(name.clone(), all.collect());
        }
        locks.push((name, spec));
    }
    (locks, wishes)
}

fn surroundings(members: u16, delay: Duration, full: bool, choices: &mut Choices) -> Surroundings {
    let in_order = !on(full, choices);
    let conditions = Conditions {
        delay: if in_order {
            Delay::Constant(delay)
        } else {
            Delay::Exponential(delay)
        },
        loss: rate(200, full, choices),
        duplication: rate(200, full, choices),
        corruption: rate(50, full, choices),
        late: (0, Duration::ZERO),
        in_order,
    };
    let drifts = on(full, choices);
    let clocks: BTreeMap<NodeId, Clock> = (1..=members)
        .filter_map(NodeId::new)
        .map(|node| {
            let offset = Duration::from_millis(choices.below(1_000_000));
            // Up to 9 %: inside the bound of 10 % that leases count on.
            let drift = choices.within(0..=180_000) as i32 - 90_000;
            (
                node,
                Clock {
                    offset,
                    drift_ppm: if drifts { drift } else { 0 },
                },
            )
        })
        .collect();
    Surroundings {
        conditions,
        clocks,
        disk: Duration::from_millis(if on(full, choices) { 10 } else { 0 }),
        lateness: Duration::from_millis(if on(full, choices) { 2 } else { 0 }),
        wall_back: rate(300, full, choices),
        early: rate(50, full, choices),
        odd_file: None,
    }
}

fn callers(delay: Duration, full: bool, choices: &mut Choices) -> Callers {
    let pause = delay * [2, 10, 50][choices.index(3)];
    Callers {
        per_member: [1, 1, 2, 4][choices.index(4)],
        rhythm: match choices.below(4) {
            0 | 1 => Rhythm::ClosedLoop,
            2 => Rhythm::Paused(pause),
            _ => Rhythm::Bursts(pause * 10),
        },
        stay: delay * [0, 1, 10][choices.index(3)],
        cancels: rate(300, full, choices),
        patience: delay * [1, 5, 50][choices.index(3)],
        tries: rate(200, full, choices),
        shared: [0, 300, 950][choices.index(3)],
        campaigns: 0,
        notes: rate(100, full, choices),
        blunders: rate(100, full, choices),
        deaths: rate(100, full, choices),
        unaware: rate(100, full, choices),
    }
}

fn faults(lease: Duration, full: bool, choices: &mut Choices) -> Misfortunes {
    let mut every = |leases: u32| on(full, choices).then(|| lease * leases);
    let (crash, leave, partition) = (every(3), every(5), every(3));
    Misfortunes {
        crash,
        crash_inside: if crash.is_some() {
            rate(20, full, choices)
        } else {
            0
        },
        crash_all: 100,
        lost_record: rate(100, full, choices),
        pause: None,
        paused: lease,
        leave,
        leave_all: 0,
        operate: None,
        away: lease / [20, 4, 1][choices.index(3)],
        partition,
        parted: lease / [10, 2, 1][choices.index(3)],
        forge: None,
        at_steps: false,
    }
}

fn under_quorum(lease: Duration, full: bool, choices: &mut Choices) -> Misfortunes {
    let mut every = |leases: u32| on(full, choices).then(|| lease * leases);
    let (crash, pause, partition) = (every(6), every(6), every(6));
    let (leave, operate) = (every(10), every(8));
    let mut long = || lease * [1, 5, 15][choices.index(3)] / 5;
    let (away, paused, parted) = (long(), long(), long());
    Misfortunes {
        crash,
        crash_inside: if crash.is_some() {
            rate(5, full, choices)
        } else {
            0
        },
        crash_all: 100,
        lost_record: rate(200, full, choices),
        pause,
        paused,
        leave,
        leave_all: 100,
        operate,
        away,
        partition,
        parted,
        forge: None,
        at_steps: false,
    }
}
