//! What has come already, by its counter (RFC 6479's window, of bits in a ring).

/// How far behind the newest a datagram may come and still be taken: as many as a sender with a
/// burst for each of a hundred members sends before a slow network delivers the first of them.
pub(super) const WIDTH: u64 = 1024;
const WORDS: usize = (WIDTH / 64) as usize;

/// The counters of one sender's incarnation that were taken.
///
/// Invariant: of those below `next`, the last [`WIDTH`] have a bit each, which is set if it came;
/// all older ones count as having come.
#[derive(Debug)]
pub(super) struct Window {
    /// Above all that came.
    next: u64,
    seen: [u64; WORDS],
}

impl Window {
    /// Everything up to `counter` has come, or never will.
    pub(super) fn after(counter: u64) -> Self {
        Self {
            next: counter.saturating_add(1),
            seen: [u64::MAX; WORDS],
        }
    }

    /// Whether `counter` has not come, as far as that is known. Changes nothing, so that it may be
    /// asked of what is not authentic.
    pub(super) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return counter < u64::MAX;
        }
        let (word, bit) = place(counter);
        self.next - counter <= WIDTH && self.seen[word] & bit == 0
    }

    /// Takes `counter`, which must be authentic; whether it is new.
    #[must_use]
    pub(super) fn take(&mut self, counter: u64) -> bool {
        if !self.is_new(counter) {
            return false;
        }
        if counter >= self.next {
            let skipped = (counter - self.next).min(WIDTH);
            for skipped in counter - skipped..counter {
                let (word, bit) = place(skipped);
                self.seen[word] &= !bit;
            }
            self.next = counter + 1;
        }
        let (word, bit) = place(counter);
        self.seen[word] |= bit;
        true
    }
}

fn place(counter: u64) -> (usize, u64) {
    let at = counter % WIDTH;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_edges() {
        let mut window = Window::after(0);
        assert!(!window.is_new(0));
        assert!(window.take(WIDTH));
        // The oldest that is still known, and the one before it.
        assert!(window.is_new(1));
        assert!(window.take(WIDTH + 1));
        assert!(!window.is_new(1));
        assert!(window.take(2));
        assert!(!window.take(2), "a second time");
        assert!(!window.take(WIDTH), "a second time");
        assert!(window.take(u64::MAX - 1));
        assert!(!window.take(u64::MAX), "no counter is that high");
        assert!(!window.is_new(WIDTH + 2));
        assert!(window.take(u64::MAX - 2));
    }

    #[test]
    fn what_came_before_it_began_is_over() {
        let mut window = Window::after(5_000);
        for counter in 0..=5_000 {
            assert!(!window.take(counter), "{counter}");
        }
        assert!(window.take(5_001));
    }

    proptest! {
        /// Against a set of all that came, which forgets nothing.
        #[test]
        fn is_what_it_says(steps in prop::collection::vec((0u64..3, 0u64..2_600), 1..400)) {
            let mut window = Window::after(0);
            let mut came = BTreeSet::from([0]);
            for (kind, by) in steps {
                let last = *came.last().unwrap();
                let counter = match kind {
                    0 => last + by % 3,
                    1 => last.saturating_sub(by),
                    _ => last + by,
                };
                let is_recent = counter + WIDTH > last;
                prop_assert_eq!(window.take(counter), is_recent && came.insert(counter));
            }
        }
    }
}
