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

    /// A grant, of that mode, of a lock that is served so: its number, and what is known after it. Where
    /// several are inside together, a member that another lets in takes the numbers of its `block`.
    /// `None` if there are no more.
    #[must_use]
    pub fn grant(
        self,
        spec: LockSpec,
        mode: Mode,
        block: Option<&mut Block>,
    ) -> Option<(u32, Self)> {
        let is_joint = spec.permits > NonZeroU32::MIN || mode == Mode::Shared;
        let number = match block.filter(|_| is_joint) {
            Some(block) => block.take()?,
            None => self.counter.checked_add(1)?,
        };
        Some((number, self.at(number, spec, mode)))
    }

    /// So many numbers are another member's from now on, for grants of that mode. If there are not so
    /// many, there are none any more.
    #[must_use]
    pub fn set_aside(self, spec: LockSpec, mode: Mode, numbers: u32) -> Self {
        let counter = self.counter.checked_add(numbers);
        let after = counter.map(|counter| self.at(counter, spec, mode));
        after.unwrap_or(Self {
            counter: u32::MAX,
            ..self
        })
    }

    /// After the grant of that number, or a later one that is known already.
    /// One that others share leaves the mark for the first that is inside alone.
    fn at(self, number: u32, spec: LockSpec, mode: Mode) -> Self {
        Self {
            counter: number.max(self.counter),
            abandoned: self.abandoned && !spec.takes_mark(mode),
        }
    }
}

/// Numbers for fences that the manager of a lock has set aside for another member, in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Block {
    last: u32,
    left: u32,
}

impl Block {
    /// So many numbers after `counter`: none, if there are not so many.
    pub const fn after(counter: u32, numbers: u32) -> Self {
        let left = match counter.checked_add(numbers) {
            Some(_) => numbers,
            None => 0,
        };
        Self {
            last: counter,
            left,
        }
    }

    /// The next of them.
    fn take(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        self.last += 1;
        Some(self.last)
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

    /// Whoever sets numbers aside and whoever gets them agree on which they are, also where there are not
    /// enough.
    #[test]
    fn numbers_that_are_set_aside_are_given_once() {
        let spec = LockSpec::exclusive(crate::lock::Algorithm::Manager);
        let mode = Mode::Shared;
        for (counter, numbers, given, left) in [
            (4, 3, 3, 7),
            (u32::MAX - 3, 3, 3, u32::MAX),
            (u32::MAX - 2, 3, 0, u32::MAX),
        ] {
            let mut block = Block::after(counter, numbers);
            let here = after(counter, true);
            let grants = core::iter::from_fn(|| here.grant(spec, mode, Some(&mut block)));
            let expected = (1..=given).map(|n| (counter + n, after(counter + n, true)));
            assert!(grants.eq(expected), "{counter}");
            let manager = here.set_aside(spec, mode, numbers);
            assert_eq!(manager, after(left, true), "{counter}");
            // One that is alone follows the manager's count.
            let alone = manager.grant(spec, Mode::Exclusive, Some(&mut block));
            assert_eq!(alone.map(|(number, _)| number), left.checked_add(1));
        }
    }

    #[test]
    fn a_grant_takes_the_mark_away() {
        assert_eq!(after(4, true).next(), Some(after(5, false)));
        assert_eq!(after(u32::MAX, true).next(), None);
    }
}
