//! Whether other members wait for what threads of this one enter by themselves.
//!
//! A thread that enters a lent lock again and again keeps its core busy, and the agent thread, which
//! hears of another member's request, often shares it: the kernel lets that run some ten
//! microseconds later. So a thread that entered within a millisecond after one of its member waited
//! for others looks at the member's sockets itself when it leaves, and hands the lock over in that
//! step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::protocol::Time;

/// How long after a wait others are taken to want the lock back.
const LASTS: Duration = Duration::from_millis(1);
/// Between two looks: one costs less than a microsecond, an entry a tenth of that.
const BETWEEN: Duration = Duration::from_micros(3);
/// Of what nobody waits for.
const NEVER: u64 = u64::MAX;

/// When to look next, and until when, in nanoseconds of the member's clock.
#[derive(Debug)]
pub(crate) struct Contention {
    next: AtomicU64,
    until: AtomicU64,
}

impl Default for Contention {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(NEVER),
            until: AtomicU64::new(0),
        }
    }
}

impl Contention {
    /// A thread has waited for others.
    pub(super) fn has_waited(&self, now: Time) {
        self.until
            .store((now + LASTS).as_nanos(), Ordering::Relaxed);
        self.next
            .store((now + BETWEEN).as_nanos(), Ordering::Relaxed);
    }

    /// Whether a thread that entered at `entered` and leaves now is to look at the sockets. One load,
    /// where nobody waits.
    pub(super) fn is_due(&self, entered: u64) -> bool {
        if entered < self.next.load(Ordering::Relaxed) {
            return false;
        }
        let lasts = entered < self.until.load(Ordering::Relaxed);
        let next = if lasts {
            entered + BETWEEN.as_nanos() as u64
        } else {
            NEVER
        };
        self.next.store(next, Ordering::Relaxed);
        lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_a_moment_after_a_wait_and_then_no_more() {
        let contention = Contention::default();
        assert!(!contention.is_due(1));
        let now = Time::from_nanos(1_000_000);
        contention.has_waited(now);
        let after = |micros| (now + Duration::from_micros(micros)).as_nanos();
        assert!(!contention.is_due(after(1)), "just got it");
        assert!(contention.is_due(after(3)));
        assert!(!contention.is_due(after(4)), "looked a moment ago");
        assert!(contention.is_due(after(9)));
        assert!(!contention.is_due(after(1000)));
        assert!(!contention.is_due(after(1001)), "for good");
        contention.has_waited(now + Duration::from_secs(1));
        assert!(contention.is_due(after(1_000_500)));
    }
}
