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

use crate::runtime::os::clock;

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

/// The one thread that may spin; dropping it lets another one.
#[derive(Debug)]
pub(crate) struct Spinner<'a> {
    spin: &'a Spin,
}

impl Spin {
    /// The right to spin, if it pays and nobody else does.
    pub(crate) fn start(&self) -> Option<Spinner<'_>> {
        let pays = self.credit.load(Ordering::Relaxed) > 0
            || self.waits_since.fetch_add(1, Ordering::Relaxed) % PROBE_EVERY == PROBE_EVERY - 1;
        // Made only where it is given out: one that is dropped lets the next one in.
        (pays && !self.taken.swap(true, Ordering::Acquire)).then(|| Spinner { spin: self })
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

impl Spinner<'_> {
    /// Waits a little for `done`; whether it came.
    pub(crate) fn until(&self, mut done: impl FnMut() -> bool) -> bool {
        let end = clock::now() + LIMIT;
        let mut came = done();
        while !came && clock::now() < end {
            thread::yield_now();
            came = done();
        }
        self.spin.learn(came);
        came
    }
}

impl Drop for Spinner<'_> {
    fn drop(&mut self) {
        self.spin.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin_for(spin: &Spin, done: bool) -> Option<bool> {
        spin.start().map(|spinner| spinner.until(|| done))
    }

    #[test]
    fn stops_when_it_does_not_pay_and_probes_again() {
        let spin = Spin::default();
        for _ in 0..MAX_CREDIT {
            assert_eq!(spin_for(&spin, false), Some(false));
        }
        for _ in 1..PROBE_EVERY {
            assert_eq!(spin_for(&spin, false), None);
        }
        assert_eq!(spin_for(&spin, true), Some(true), "the probe");
        assert_eq!(spin_for(&spin, true), Some(true), "it paid");
    }

    #[test]
    fn one_at_a_time() {
        let spin = Spin::default();
        let first = spin.start();
        assert!(first.is_some());
        assert!(spin.start().is_none());
        assert!(spin.start().is_none());
        drop(first);
        assert!(spin.start().is_some());
    }
}
