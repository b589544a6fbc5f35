//! For how long a member keeps what is lent to it, without a clock: by the sweeps of its hop timer.

use core::time::Duration;

use crate::lock::engine::{Effects, HopTimer};

/// A loan ends when the token has not been used for so long: four times the mean time between this
/// member's entries. Entries are counted, not timed: a sweep looks every so often whether there were any
/// since the last one (a second chance), and what is lent goes back if there were none. What is wanted
/// again within [`LONGEST`] was given back too early, and is kept for twice as long from then on.
///
/// A loan saves its member 50 µs each time the member enters again, and that member's crash costs the
/// others a quarantine: at one crash a day and 6 s of quarantine that is 70 µs for each second of loan. So
/// a loan that is not used is worth no more than 0.7 s.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Habit {
    patience: Duration,
    /// Entries since the last sweep.
    entries: u32,
    watch: Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Watch {
    /// No timer runs.
    Off,
    /// Something is lent here.
    Lent,
    /// What was lent here has gone back, because nobody used it.
    Returned,
}

/// Between these a loan that is not used comes to its end.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(640);

impl Default for Habit {
    fn default() -> Self {
        Self {
            patience: SHORTEST,
            entries: 0,
            watch: Watch::Off,
        }
    }
}

impl Habit {
    pub(super) const fn enters(&mut self, entries: u32) {
        self.entries = self.entries.saturating_add(entries);
    }

    /// Something is lent here: from now on sweeps look after it.
    pub(super) fn watch<M>(&mut self, out: &mut Effects<M>) {
        if self.watch != Watch::Lent {
            self.begin(Watch::Lent, self.patience, out);
        }
    }

    /// It went back because nobody used it.
    pub(super) fn was_returned<M>(&mut self, out: &mut Effects<M>) {
        // Not for the patience that was too short, perhaps: that would never become longer for what is
        // wanted more seldom.
        self.begin(Watch::Returned, LONGEST, out);
    }

    /// A caller wants to enter.
    pub(super) fn is_wanted<M>(&mut self, out: &mut Effects<M>) {
        if self.watch == Watch::Returned {
            self.patience = (self.patience * 2).min(LONGEST);
            self.watch = Watch::Off;
            out.hop_timer = Some(HopTimer::Clear);
        }
    }

    /// The timer ran out. Whether what is lent here has not been used since the last sweep.
    pub(super) fn is_over<M>(&mut self, out: &mut Effects<M>) -> bool {
        let watch = core::mem::replace(&mut self.watch, Watch::Off);
        let entries = core::mem::take(&mut self.entries);
        if watch != Watch::Lent || entries == 0 {
            return watch == Watch::Lent;
        }
        self.patience = (self.patience * 4 / entries).clamp(SHORTEST, LONGEST);
        self.begin(Watch::Lent, self.patience, out);
        false
    }

    fn begin<M>(&mut self, watch: Watch, lasts: Duration, out: &mut Effects<M>) {
        (self.watch, self.entries) = (watch, 0);
        out.hop_timer = Some(HopTimer::Set(lasts));
    }
}
