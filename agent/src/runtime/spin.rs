//! A short wait without blocking, where it pays.
//!
//! Waking a thread on another core costs more than a round trip of datagrams between two processes
//! of one host. A waiter that calls `sched_yield` for about as long as a wake-up takes is often
//! there when its grant comes; one that only burns its core keeps the very thread from running
//! that is to post it. So: yield, briefly, one thread of an agent at a time, and only while that
//! paid lately.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::clock;

/// About what a wake-up across cores costs, its caller's part included, with some air.
const LIMIT: Duration = Duration::from_micros(50);
/// Credit of a spinner that always succeeds: so many failures in a row turn spinning off.
const MAX_CREDIT: u32 = 8;
/// While it is off, one wait of this many tries again.
const PROBE_EVERY: u32 = 64;

/// Whether spinning pays, and who does it.
#[derive(Debug)]
pub(crate) struct Spin {
    taken: AtomicBool,
    credit: AtomicU32,
    waits_since: AtomicU32,
}

impl Default for Spin {
    fn default() -> Self {
        Self {
            taken: AtomicBool::new(false),
            credit: AtomicU32::new(MAX_CREDIT),
            waits_since: AtomicU32::new(0),
        }
    }
}

impl Spin {
    /// Waits a little for `done`; whether it came.
    pub(crate) fn until(&self, done: impl Fn() -> bool) -> bool {
        if done() {
            return true;
        }
        if !self.may_start() {
            return false;
        }
        let end = clock::now() + LIMIT;
        let mut came = false;
        while !came && clock::now() < end {
            thread::yield_now();
            came = done();
        }
        self.learn(came);
        self.taken.store(false, Ordering::Release);
        came
    }

    fn may_start(&self) -> bool {
        let pays = self.credit.load(Ordering::Relaxed) > 0
            || self.waits_since.fetch_add(1, Ordering::Relaxed) % PROBE_EVERY == PROBE_EVERY - 1;
        pays && !self.taken.swap(true, Ordering::Acquire)
    }

    /// Called by the one spinner there is.
    fn learn(&self, came: bool) {
        let credit = self.credit.load(Ordering::Relaxed);
        let credit = if came {
            (credit + 2).min(MAX_CREDIT)
        } else {
            credit.saturating_sub(1)
        };
        self.credit.store(credit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn stops_when_it_does_not_pay_and_probes_again() {
        let spin = Spin::default();
        let looks = Cell::new(0u32);
        let never = || {
            looks.set(looks.get() + 1);
            false
        };
        for _ in 0..MAX_CREDIT {
            assert!(!spin.until(never));
        }
        // Off: one look a wait, until the probe.
        for _ in 1..PROBE_EVERY {
            let before = looks.get();
            assert!(!spin.until(never));
            assert_eq!(looks.get(), before + 1);
        }
        let third_look = Cell::new(0);
        assert!(spin.until(|| {
            third_look.set(third_look.get() + 1);
            third_look.get() == 3
        }));
        assert!(spin.credit.load(Ordering::Relaxed) > 0);
    }
}
