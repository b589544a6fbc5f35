//! What a schedule's seed decides at first.

use core::time::Duration;

use super::ELECTION;
use crate::choices::{Choices, Permille};
use crate::cluster::Surroundings;
use crate::network::{Conditions, Delay};
use crate::plan::Misfortunes;

/// How long a record takes at most, in the mean, to a disk that is well.
pub(super) const USUAL_DISK: Duration = Duration::from_millis(30);
/// And to one that holds elections up: half the time that they have.
const SLOW_DISK: Duration = Duration::from_millis(125);

/// Network, disks, faults, and what is wanted of the logs.
#[derive(Debug)]
pub(super) struct Plan {
    /// The network, and how long a record takes to the disk, in the mean.
    pub(super) surroundings: Surroundings,
    /// Crashes, alone or of most voters as where power fails; voters that stand still; cuts.
    pub(super) faults: Misfortunes,
    /// How long the unrest lasts.
    pub(super) unrest: Duration,
    /// Records after which, just durable, a voter crashes, to come back at once.
    pub(super) flaps: Permille,
    /// The same for records with a new vote for another voter.
    pub(super) voter_flaps: Permille,
    /// The mean time between two proposals.
    pub(super) work: Duration,
    /// Of these: with other voters.
    pub(super) changes: Permille,
    /// A hand-over instead.
    pub(super) hand_overs: Permille,
}

impl Plan {
    pub(super) fn new(choices: &mut Choices) -> Self {
        let ms = Duration::from_millis;
        // Half of the schedules have everything; in the others each fault is on or off.
        let all = choices.chance(500);
        let some = |choices: &mut Choices| all || choices.chance(500);
        let share = |on: bool, most: u64, choices: &mut Choices| {
            let share = choices.below(most) as Permille;
            if on { share } else { 0 }
        };
        let (lossy, doubling, lating) = (some(choices), some(choices), some(choices));
        let (crashing, cutting, changing) = (some(choices), some(choices), some(choices));
        let crashes = choices.duration(ms(60)..=ms(900));
        let cuts = choices.duration(ms(60)..=ms(900));
        let pausing = some(choices);
        let pauses = choices.duration(ms(60)..=ms(900));
        // The log moves elections by the time that records take, which only such disks make long.
        let slowest = if choices.chance(200) {
            SLOW_DISK
        } else {
            USUAL_DISK
        };
        let conditions = Conditions {
            loss: share(lossy, 350, choices),
            duplication: share(doubling, 300, choices),
            late: (share(lating, 60, choices), ELECTION * 4),
            delay: Delay::Exponential(choices.duration(ms(1)..=ms(40))),
            corruption: 0,
            in_order: false,
        };
        let surroundings = Surroundings {
            conditions,
            disk: choices.duration(ms(0)..=slowest),
            ..Surroundings::perfect(Duration::ZERO)
        };
        Self {
            surroundings,
            unrest: choices.duration(ms(500)..=ms(5000)),
            faults: Misfortunes {
                crash: crashing.then_some(crashes),
                crash_all: share(crashing, 800, choices),
                partition: cutting.then_some(cuts),
                parted: ELECTION * 2,
                pause: pausing.then_some(pauses),
                paused: ELECTION,
                away: choices.duration(ms(20)..=ms(700)),
                ..Misfortunes::NONE
            },
            work: choices.duration(ms(5)..=ms(120)),
            flaps: share(crashing, 150, choices),
            // A voter that forgot its vote shows it only where it is back before the other candidate asks.
            voter_flaps: share(crashing, 700, choices),
            changes: share(changing, 900, choices),
            hand_overs: share(changing, 200, choices),
        }
    }
}
