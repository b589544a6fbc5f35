//! The watchdog of an agent: a word from its thread again and again, by which a watchdog knows that
//! the whole loop still goes round.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::Time;
use crate::runtime::os::clock;

/// More often it would be nothing but work.
const SHORTEST: Duration = Duration::from_millis(1);

/// What the agent thread does again and again, as long as it does everything else.
///
/// A thread that is stuck, as in a mutex, has none: so whoever misses it knows that this
/// agent serves nobody.
#[derive(Clone)]
pub struct Watchdog {
    every: Duration,
    beat: Arc<dyn Fn() + Send + Sync>,
}

impl Watchdog {
    /// Calls `beat` at least every `every`, if the system lets the thread run. It should be quick:
    /// locks wait for it.
    pub fn new(every: Duration, beat: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            every: every.max(SHORTEST),
            beat: Arc::new(beat),
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// Two are the same if they are copies of one.
impl PartialEq for Watchdog {
    fn eq(&self, other: &Self) -> bool {
        self.every == other.every && Arc::ptr_eq(&self.beat, &other.beat)
    }
}

impl Eq for Watchdog {}

/// A watchdog, and when it beats next.
#[derive(Debug)]
pub(crate) struct WatchdogTimer {
    watchdog: Watchdog,
    next: Time,
}

impl WatchdogTimer {
    pub(crate) fn new(watchdog: Watchdog) -> Self {
        Self {
            watchdog,
            next: Time::ZERO,
        }
    }

    /// When it wants to beat.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Beats, if it is time.
    pub(crate) fn work(&mut self) {
        let now = clock::now();
        if self.next <= now {
            self.next = now + self.watchdog.every;
            (self.watchdog.beat)();
        }
    }
}
