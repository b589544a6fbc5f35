//! What the manager lends of shares: to which member, and with how many numbers for fences.

use alloc::collections::BTreeMap;

use super::{Message, Place, Worth};
use crate::ids::NodeId;

/// The numbers that come with a share that is lent. Whoever has used all of them gets twice as many with
/// the next one, and whoever has used less than a quarter gets half as many: there are 2³² in an epoch.
const FIRST_BLOCK: u32 = 4;
const LARGEST_BLOCK: u32 = 65_536;

/// How shares were used by each member.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Lending {
    members: BTreeMap<NodeId, Use>,
    /// How often somebody had to wait for shares to come back.
    recalls: u64,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Use {
    worth: Worth,
    block: u32,
    /// How often somebody had had to wait when the last one was given.
    given: u64,
    /// Whether it had had another since somebody had to wait.
    again: bool,
}

/// A share that a member has.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Share {
    pub(super) place: Place,
    block: u32,
    terms: Terms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Terms {
    /// It was given recalled: somebody is inside by it, or the end of it is on its way.
    Once,
    /// It may be kept while nobody is inside by it.
    Lent,
    /// The same until its recall, which is on its way.
    Recalled,
}

impl Lending {
    /// A member asks for a share. One that pays for each entry with messages, though nobody had to wait
    /// meanwhile, had better keep it.
    pub(super) fn is_asked(&mut self, node: NodeId) {
        let recalls = self.recalls;
        if let Some(its) = self.members.get_mut(&node) {
            its.again = its.given == recalls;
            if its.again {
                its.worth.rise();
            }
        }
    }

    /// `is_wanted`: whether somebody waits for shares to come back.
    pub(super) fn give(&mut self, place: Place, is_wanted: bool) -> Share {
        let its = self.members.entry(place.node).or_insert(Use {
            worth: Worth::default(),
            block: FIRST_BLOCK,
            given: 0,
            again: false,
        });
        its.given = self.recalls;
        if is_wanted || !its.worth.pays() {
            Share::once(place)
        } else {
            let (block, terms) = (its.block, Terms::Lent);
            Share {
                place,
                block,
                terms,
            }
        }
    }

    /// Somebody has to wait for shares to come back.
    pub(super) const fn is_wanted(&mut self) {
        self.recalls += 1;
    }

    /// The share has come back: `used` callers have entered by it.
    pub(super) fn end(&mut self, share: Share, used: u32) {
        let Some(its) = self.members.get_mut(&share.place.node) else {
            return;
        };
        if used > 1 {
            its.worth.rise();
        } else if share.terms == Terms::Recalled && !its.again {
            its.worth.fall();
        }
        if share.terms == Terms::Once {
            return;
        }
        if used >= share.block {
            its.block = (share.block * 2).min(LARGEST_BLOCK);
        } else if used < share.block / 4 {
            its.block = (share.block / 2).max(FIRST_BLOCK);
        }
    }
}

impl Share {
    /// One that nobody uses again.
    pub(super) const fn once(place: Place) -> Self {
        Self {
            place,
            block: 1,
            terms: Terms::Once,
        }
    }

    /// What its owner is told. `abandoned`: that a holder before ended inside.
    pub(super) fn message(&self, abandoned: bool) -> Message {
        Message::Share {
            number: self.place.number,
            block: self.block,
            recalled: self.terms == Terms::Once,
            abandoned,
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.terms == Terms::Lent
    }

    /// Whether it was lent until now, and is to be recalled.
    pub(super) fn recall(&mut self) -> bool {
        let was_lent = self.is_lent();
        if was_lent {
            self.terms = Terms::Recalled;
        }
        was_lent
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn place(number: u64) -> Place {
        let node = NodeId::new(2).expect("not zero");
        Place { node, number }
    }

    /// Lends to one that has come twice more.
    fn lent() -> Lending {
        let mut lending = Lending::default();
        for number in 0..3 {
            lending.is_asked(place(number).node);
            assert!(!lending.give(place(number), false).is_lent() || number == 2);
        }
        lending
    }

    #[test]
    fn what_pays_is_lent() {
        let mut lending = lent();
        assert!(lending.give(place(4), false).is_lent());
        assert!(!lending.give(place(5), true).is_lent());
    }

    #[test]
    fn where_others_wait_between_nothing_is_lent() {
        let mut lending = Lending::default();
        for number in 0..9 {
            lending.is_asked(place(number).node);
            assert!(!lending.give(place(number), false).is_lent());
            lending.is_wanted();
        }
    }

    #[test]
    fn what_was_recalled_unused_is_lent_no_more() {
        let mut lending = lent();
        lending.is_wanted();
        lending.is_asked(place(4).node);
        let mut share = lending.give(place(4), false);
        assert!(share.recall() && !share.recall());
        lending.end(share, 1);
        assert!(!lending.give(place(5), false).is_lent());
    }

    /// It had come twice: a loan would have paid from the first time on.
    #[test]
    fn what_came_too_late_is_lent_earlier() {
        let mut lending = Lending::default();
        let mut lent = Vec::new();
        for _ in 0..3 {
            lending.is_wanted();
            for number in 0..2 {
                lending.is_asked(place(number).node);
                let mut share = lending.give(place(number), false);
                lent.push(share.recall());
                lending.end(share, 1);
            }
        }
        assert_eq!(lent, [false, false, false, true, true, true]);
    }

    #[test]
    fn blocks_are_as_large_as_they_are_used() {
        let mut lending = lent();
        for block in (2..18).map(|power| 1 << power) {
            let share = lending.give(place(4), false);
            assert_eq!(share.block, block.min(LARGEST_BLOCK));
            lending.end(share, share.block);
        }
        let mut after = |used: u32| {
            let share = lending.give(place(5), false);
            lending.end(share, used);
            lending.give(place(6), false).block
        };
        assert_eq!(after(LARGEST_BLOCK / 4), LARGEST_BLOCK);
        assert_eq!(after(LARGEST_BLOCK / 4 - 1), LARGEST_BLOCK / 2);
        assert_eq!((0..20).map(|_| after(1)).last(), Some(FIRST_BLOCK));
    }
}
