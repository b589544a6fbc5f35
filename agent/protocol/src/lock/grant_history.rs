//! How the former holder left, and how the next one learns it.
//!
//! A grant is *abandoned* when its holder ended inside without giving it back. Whoever enters next
//! is told, since what the lock protects may be half done. Two ways lead there:
//!
//! - The holder's member lives: it was a client that died. Then every message about the lock
//!   carries the mark beside the counter of the fences ([`GrantHistory`]). Fences rise, so the next
//!   holder has heard the last counter before it is granted the lock, and the mark with it. No
//!   message is added. Where several are inside at once no chain of messages joins one grant to the
//!   next; there the server keeps the mark in its books, and its grants tell it. Readers whom a manager
//!   lets in leave the mark where it is, for the first that is inside alone.
//! - The holder's member died. Then the next view marks every lock that it may have been inside
//!   of: all but those for which a survivor vouches
//!   ([`Engine::may_be_inside`](super::Engine::may_be_inside)). Nobody can be asked who is not
//!   there any more, so what nobody can deny counts as abandoned.
//!
//! A member that leaves and is alone in knowing of a mark puts that on its disk; whoever loses that
//! record loses the mark.
//!
//! A mark outlives views ([`LockSummary`](super::LockSummary)) until somebody enters. Of locks that
//! are shared, or have several permits, it stays until somebody has been told who is not a mere
//! reader, and a view may make it be told a second time: at least once, where one at a time is
//! told exactly once.

use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::engine::Mark;
use super::request::Mode;
use super::spec::LockSpec;

/// How far the grants of a lock have come in an epoch, and how the last of them ended.
///
/// The greater of two is the later: a grant raises the counter, and that it was abandoned can only
/// be said after it was given.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct GrantHistory {
    /// The highest counter of a fence; 0 if there was no grant in this epoch.
    pub counter: u32,
    /// Whether that grant was abandoned; of counter 0, whether the last one before the epoch was.
    pub abandoned: bool,
}

/// What a member knows of the last grant of a lock when a view ends. Of several words on one grant
/// the greatest is the last.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Ending {
    /// It was given. The holder that entered by it took the mark away, if there was one.
    #[default]
    Heard,
    /// It was given together with the mark by the server, who has not heard whether it was entered.
    Conferred,
    /// It was entered here.
    Entered,
    /// It was abandoned.
    Abandoned,
}

impl GrantHistory {
    /// The history of a lock that was abandoned before this epoch, or may have been.
    pub(crate) const fn doubtful() -> Self {
        Self {
            counter: 0,
            abandoned: true,
        }
    }

    /// The view ends. `entered`: the last grant that was entered here. `mark`: where the engine's
    /// books had the mark. Returns what the next view is to be told of the last grant, and whether
    /// it must be told of a mark all the same.
    pub fn end_view(self, entered: u32, mark: Option<Mark>, permits: NonZeroU32) -> (Ending, bool) {
        let ending = if self.abandoned {
            Ending::Abandoned
        } else if self.counter == entered {
            Ending::Entered
        } else {
            Ending::Heard
        };
        match mark {
            None => (ending, false),
            Some(Mark::Conferred) if permits == NonZeroU32::MIN => (Ending::Conferred, false),
            Some(Mark::Kept | Mark::Conferred) => (ending, true),
        }
    }

    /// Takes in what another member has seen.
    pub fn hear(&mut self, other: Self) {
        *self = other.max(*self);
    }

    /// The next grant, which takes the mark away; `None` if there are no more counters.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Some(Self {
            counter: self.counter.checked_add(1)?,
            abandoned: false,
        })
    }

    /// The next grant, of that mode, of a lock that is served so. One that others share leaves the mark
    /// for the first that is inside alone; `None` if there are no more counters.
    #[must_use]
    pub fn after(self, spec: LockSpec, mode: Mode) -> Option<Self> {
        let next = self.next()?;
        let abandoned = self.abandoned && !spec.takes_mark(mode);
        Some(Self { abandoned, ..next })
    }
}

/// What an incarnation knew, when it left, of locks that were abandoned and that nobody had entered
/// since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AbandonedMarks {
    /// There were none.
    #[default]
    None,
    /// The others knew as much.
    Shared,
    /// It may have been alone in knowing some.
    Own,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn after(counter: u32, abandoned: bool) -> GrantHistory {
        GrantHistory { counter, abandoned }
    }

    /// Whatever order the messages come in, the last word on the last grant is believed.
    #[test]
    fn the_last_word_on_the_last_grant_wins() {
        let history = [after(1, false), after(1, true), after(2, false)];
        for [a, b, c] in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut heard = GrantHistory::default();
            for place in [a, b, c] {
                heard.hear(history[place]);
            }
            assert_eq!(heard, after(2, false));
        }
        let mut heard = after(1, false);
        heard.hear(after(1, true));
        heard.hear(after(1, false));
        assert_eq!(heard, after(1, true));
    }

    #[test]
    fn a_grant_takes_the_mark_away() {
        assert_eq!(after(4, true).next(), Some(after(5, false)));
        assert_eq!(after(u32::MAX, true).next(), None);
    }
}
