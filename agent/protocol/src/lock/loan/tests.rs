use core::cell;

use super::*;

const ME: EntryOwner = EntryOwner::MEMBER;

fn lent() -> Loan {
    let loan = Loan::default();
    assert!(!loan.is_lent());
    assert!(loan.lend(Epoch::new(1).unwrap(), 7));
    assert!(loan.is_lent());
    loan
}

#[test]
fn fences_rise_from_loan_to_loan() {
    let loan = lent();
    let mut last = 0;
    for counter in [7, 9, 40] {
        assert!(loan.lend(Epoch::new(1).unwrap(), counter));
        for _ in 0..2 {
            let fence = loan.enter(ME).unwrap().as_u64();
            assert!(fence > last);
            last = fence;
            assert_eq!(loan.leave(ME), Left::Alone);
        }
        assert_eq!(loan.recall().entries, 2);
    }
}

#[test]
fn who_is_inside_at_a_recall_leaves_by_the_core() {
    let loan = lent();
    let fence = loan.enter(ME).unwrap();
    assert!(loan.is_lent_to(ME, fence));
    let told = Recalled {
        entries: 1,
        inside: Some(ME),
        is_waited: false,
    };
    assert_eq!(loan.recall(), told);
    assert_eq!(loan.leave(ME), Left::Recalled);
    assert!(!loan.is_inside() && !loan.is_lent_to(ME, fence));
    assert!(!loan.lend(Epoch::new(1).unwrap(), 8), "one is inside");
    loan.end();
    assert!(loan.enter(ME).is_none());
    assert!(loan.lend(Epoch::new(1).unwrap(), 8));
    assert!(loan.enter(ME).unwrap() > fence);
    assert!(!loan.is_lent_to(ME, fence), "that entry is over");
}

/// Whoever shares the word leaves for itself alone.
#[test]
fn an_entry_is_its_owners() {
    let loan = lent();
    let [one, other] = [EntryOwner::new(2), Some(EntryOwner::MAX)].map(Option::unwrap);
    let fence = loan.enter(other).unwrap();
    assert_eq!(loan.inside(), Some(other));
    assert!(loan.is_lent_to(other, fence) && !loan.is_lent_to(one, fence));
    assert_eq!(loan.leave(one), Left::Recalled);
    assert!(loan.is_inside());
    assert_eq!(loan.recall().inside, Some(other));
    assert_eq!(loan.inside(), Some(other), "its holder has not left");
    loan.end();
    assert_eq!(loan.inside(), None);
    assert_eq!(EntryOwner::new(0), None);
    assert_eq!(EntryOwner::new(EntryOwner::MAX.get() + 1), None);
}

#[test]
fn an_entry_is_left_once() {
    let loan = lent();
    let one = loan.enter(ME).unwrap();
    assert_eq!(loan.leave(ME), Left::Alone);
    let two = loan.enter(ME).unwrap();
    assert_eq!(
        loan.leave_entry(ME, one),
        Left::Recalled,
        "another's by now"
    );
    assert_eq!(loan.leave_entry(ME, two), Left::Alone);
    assert_eq!(loan.leave_entry(ME, two), Left::Recalled);
}

/// What a broken program writes into a word that it shares lowers no fence.
#[test]
fn whatever_stands_there_the_table_counts_on() {
    let loan = lent();
    loan.word.store(LENT | ME.bits(), Ordering::Relaxed);
    let told = Recalled {
        entries: 1,
        inside: Some(ME),
        is_waited: false,
    };
    assert_eq!(loan.recall(), told);
    let loan = lent();
    loan.epoch.store(0, Ordering::Relaxed);
    loan.counter.store(u32::MAX, Ordering::Relaxed);
    assert!(loan.enter(ME).is_none() && loan.inside().is_none());
}

/// Numbers that are used up are the core's to renew.
#[test]
fn no_entry_is_without_a_number() {
    let loan = lent();
    loan.word.store(LENT | (COUNT - 1), Ordering::Relaxed);
    assert!(loan.enter(ME).is_some());
    assert_eq!(loan.leave(ME), Left::Alone);
    assert!(loan.enter(ME).is_none());
    assert_eq!(loan.enter_in_turn(ME), Err(Refused::NotLent));
    assert_eq!(loan.recall().entries, COUNT);
}

/// Whoever waited too long is let in before all who come later.
#[test]
fn the_next_turn_is_of_one_who_waits() {
    let loan = lent();
    let other = EntryOwner::new(2).unwrap();
    assert!(loan.enter(other).is_some());
    assert!(!loan.begin_to_wait());
    assert_eq!(loan.enter_in_turn(ME), Err(Refused::Busy));
    assert_eq!(loan.leave(other), Left::Waited);
    assert!(loan.enter(other).is_some(), "nobody is next");
    loan.take_next_turn();
    assert_eq!(loan.leave(other), Left::Waited);
    assert!(loan.enter(other).is_none() && loan.is_busy());
    assert!(loan.begin_to_wait(), "one is next");
    assert!(loan.enter_in_turn(ME).is_ok());
    assert_eq!(loan.leave(ME), Left::Waited);
    loan.wait_no_more();
    assert!(loan.enter(other).is_some());
    assert_eq!(loan.leave(other), Left::Alone);
}

#[test]
fn who_waits_is_known_from_loan_to_loan() {
    let loan = lent();
    loan.take_next_turn();
    assert!(loan.recall().is_waited);
    assert_eq!(loan.enter_in_turn(ME), Err(Refused::NotLent));
    assert!(loan.lend(Epoch::new(1).unwrap(), 8));
    assert!(loan.enter(ME).is_some(), "nobody is next by a later loan");
    assert_eq!(loan.leave(ME), Left::Waited);
    loan.take_next_turn();
    loan.give_up_turn();
    assert!(loan.enter(ME).is_some() && loan.recall().is_waited);
}

/// A word that another changes once, just after it was looked at.
#[derive(Debug)]
pub(in crate::lock) struct Changed {
    word: AtomicU32,
    to: cell::Cell<Option<u32>>,
}

impl Changed {
    pub(in crate::lock) fn change_to(&self, word: u32) {
        self.to.set(Some(word));
    }
}

impl Cell for Changed {
    fn zero() -> Self {
        Self {
            word: AtomicU32::new(0),
            to: cell::Cell::new(None),
        }
    }

    fn load(&self, order: Ordering) -> u32 {
        let word = self.word.load(order);
        if let Some(to) = self.to.take() {
            self.word.store(to, Ordering::Release);
        }
        word
    }

    fn store(&self, value: u32, order: Ordering) {
        self.word.store(value, order);
    }

    fn swap_if(&self, is: u32, new: u32, (won, lost): (Ordering, Ordering)) -> Result<u32, u32> {
        self.word.compare_exchange(is, new, won, lost)
    }

    fn fetch_and(&self, mask: u32, order: Ordering) -> u32 {
        self.word.fetch_and(mask, order)
    }

    fn fetch_or(&self, mask: u32, order: Ordering) -> u32 {
        self.word.fetch_or(mask, order)
    }
}

/// Whatever a broken program writes there, the core goes on.
#[test]
fn what_another_has_written_over_is_not_lent() {
    let loan = Loan::<Changed>::default();
    loan.word.change_to(5 << OWNER_SHIFT);
    assert!(!loan.lend(Epoch::new(1).unwrap(), 7));
}
