//! How the former holder left, and how the next one learns it.
//!
//! A grant is *abandoned* when its holder ended inside without giving it back. Whoever enters next
//! is told, since what the lock protects may be half done. Two ways lead there:
//!
//! - The holder's member lives: it was a client that died. Then the mark travels with the counter
//!   of the fences ([`Trail`]), which every message carries: who is let in next has heard the last
//!   counter, for fences to rise, and so it has heard the mark too. Not a message more is sent.
//!   Where several are inside at once no chain of messages joins one grant to the next; there the
//!   server keeps the mark in its books, and its grants tell it.
//! - The holder's member died. Then the next view marks every lock that it may have been inside
//!   of: all but those for which a survivor vouches
//!   ([`Engine::may_be_inside`](super::Engine::may_be_inside)). Nobody can be asked who is not
//!   there any more, so what nobody can deny counts as abandoned.
//!
//! A mark outlives views ([`LockSummary`](super::LockSummary)) until somebody enters. Of locks that
//! are shared, or have several permits, it stays until somebody has been told who is not a mere
//! reader, and a view may make it be told a second time: at least once, where one at a time is
//! told exactly once.

use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::Mark;

/// How far the grants of a lock have come in an epoch, and how the last of them ended.
///
/// The greater of two is the later: a grant raises the counter, and that it was abandoned can only
/// be said after it was given.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Trail {
    /// The highest counter of a fence; 0 if there was no grant in this epoch.
    pub counter: u32,
    /// Whether that grant was abandoned; of counter 0, whether the last one before the epoch was.
    pub abandoned: bool,
}

impl Trail {
    /// The trail of a lock that was abandoned before this epoch, or may have been.
    pub(crate) const fn doubtful() -> Self {
        Self {
            counter: 0,
            abandoned: true,
        }
    }

    /// The view ends, and `mark` is where the engine's books had the mark. Whether the view that
    /// follows must be told of a mark that the trail does not show.
    pub(crate) fn end_view(&mut self, mark: Option<Mark>, permits: NonZeroU32) -> bool {
        match mark {
            None => false,
            // Who was let in alone says so itself, with this counter. If nobody does, it never was
            // inside.
            Some(Mark::Conferred) if permits == NonZeroU32::MIN => {
                self.counter = self.counter.saturating_sub(1);
                self.abandoned = true;
                false
            }
            Some(Mark::Kept | Mark::Conferred) => true,
        }
    }

    /// Takes in what another member has seen.
    pub fn hear(&mut self, other: Self) {
        *self = other.max(*self);
    }

    /// The next grant; `None` if there are no more counters.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Some(Self {
            counter: self.counter.checked_add(1)?,
            abandoned: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn trail(counter: u32, abandoned: bool) -> Trail {
        Trail { counter, abandoned }
    }

    /// Whatever order the messages come in, the last word on the last grant is believed.
    #[test]
    fn the_last_word_on_the_last_grant_wins() {
        let history = [trail(1, false), trail(1, true), trail(2, false)];
        for [a, b, c] in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut heard = Trail::default();
            for place in [a, b, c] {
                heard.hear(history[place]);
            }
            assert_eq!(heard, trail(2, false));
        }
        let mut heard = trail(1, false);
        heard.hear(trail(1, true));
        heard.hear(trail(1, false));
        assert_eq!(heard, trail(1, true));
    }

    #[test]
    fn a_grant_takes_the_mark_away() {
        assert_eq!(trail(4, true).next(), Some(trail(5, false)));
        assert_eq!(trail(u32::MAX, true).next(), None);
    }
}
