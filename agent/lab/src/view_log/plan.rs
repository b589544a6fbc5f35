//! What a schedule's seed decides at first.

use core::time::Duration;

use crate::choices::{Choices, Permille};

/// How long a record takes at most, in the mean, to a disk that is well.
pub(super) const USUAL_DISK: Duration = Duration::from_millis(30);
/// And to one that holds elections up: half the time that they have.
const SLOW_DISK: Duration = Duration::from_millis(125);

/// Network, disks, faults, and what is wanted of the logs.
#[derive(Debug)]
pub(super) struct Plan {
    /// Messages that are lost.
    pub(super) loss: Permille,
    /// Messages that come twice.
    pub(super) doubled: Permille,
    /// Messages that come so late that everybody has forgotten them.
    pub(super) late: Permille,
    /// How long a message takes, in the mean.
    pub(super) delay: Duration,
    /// How long a record takes to the disk, in the mean.
    pub(super) disk: Duration,
    /// How long the unrest lasts.
    pub(super) unrest: Duration,
    /// The mean time between two crashes, if there are any.
    pub(super) crashes: Option<Duration>,
    /// Of these: most voters at once, as where power fails.
    pub(super) blackouts: Permille,
    /// The same for links that are cut.
    pub(super) cuts: Option<Duration>,
    /// The same for voters that stand still.
    pub(super) pauses: Option<Duration>,
    /// Records after which, just durable, a voter crashes, to come back at once.
    pub(super) flaps: Permille,
    /// The same for records with a new vote for another voter.
    pub(super) voter_flaps: Permille,
    /// How long a crashed voter is away, in the mean.
    pub(super) away: Duration,
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
        Self {
            loss: share(lossy, 350, choices),
            doubled: share(doubling, 300, choices),
            late: share(lating, 60, choices),
            delay: choices.duration(ms(1)..=ms(40)),
            disk: choices.duration(ms(0)..=slowest),
            unrest: choices.duration(ms(500)..=ms(5000)),
            crashes: crashing.then_some(crashes),
            blackouts: share(crashing, 800, choices),
            cuts: cutting.then_some(cuts),
            pauses: pausing.then_some(pauses),
            work: choices.duration(ms(5)..=ms(120)),
            flaps: share(crashing, 150, choices),
            // A voter that forgot its vote shows it only where it is back before the other candidate asks.
            voter_flaps: share(crashing, 700, choices),
            changes: share(changing, 900, choices),
            hand_overs: share(changing, 200, choices),
            away: choices.duration(ms(20)..=ms(700)),
        }
    }
}
