use alloc::vec::Vec;

use super::*;
use crate::ids::Epoch;
use crate::lock::Left;
use crate::lock::loan::tests::Changed;

fn owner(number: u16) -> EntryOwner {
    EntryOwner::new(number).unwrap()
}

fn lent() -> Loan {
    let loan = Loan::default();
    assert!(loan.lend(Epoch::new(1).unwrap(), 7));
    loan
}

/// Whoever of these are called, of seats 0 and up.
fn called<const N: usize>(seats: &Seats<AtomicU32, N>) -> Vec<usize> {
    let is_called =
        |&index: &usize| seats.seats[index].word.load(Ordering::Relaxed) & STATE == CALLED;
    (0..N).filter(is_called).collect()
}

#[test]
fn who_has_waited_longest_is_called() {
    let (loan, seats) = (lent(), Seats::<AtomicU32, 3>::default());
    let [a, b, c] = [9, 8, 7].map(|number| seats.sit(owner(number), 0).unwrap());
    assert_eq!([a, b, c], [0, 1, 2]);
    assert_eq!(seats.sit(owner(6), 0), None, "all are taken");
    seats.rise(a, owner(9));
    let d = seats.sit(owner(6), 40).unwrap();
    assert_eq!(d, a, "the seat of the first is the last one's");
    let taken = [(6, 40), (8, 0), (7, 0)].map(|(number, since)| (owner(number), since));
    assert_eq!(seats.taken().collect::<Vec<_>>(), taken);
    assert!(!loan.begin_to_wait());
    assert!(seats.call_next(&loan).is_some());
    assert_eq!(seats.call(b, owner(8)), Call::Enter);
    assert!(seats.call_next(&loan).is_none(), "it is on its way");
    assert_eq!(called(&seats), [b]);
    seats.wait_again(b, owner(8));
    assert_eq!(seats.call(b, owner(8)), Call::None);
    assert!(seats.call_next(&loan).is_some());
    assert_eq!(called(&seats), [b], "it keeps its place");
    seats.rise(b, owner(8));
    for (seat, number) in [(c, 7), (d, 6)] {
        assert!(seats.call_next(&loan).is_some());
        assert_eq!(called(&seats), [seat]);
        seats.rise(seat, owner(number));
    }
}

#[test]
fn stamps_come_again() {
    let (loan, seats) = (lent(), Seats::<AtomicU32, 2>::default());
    seats.last.store(u32::MAX - 1, Ordering::Relaxed);
    let [_, _] = [1, 2].map(|number| seats.sit(owner(number), 0).unwrap());
    assert!(seats.call_next(&loan).is_some());
    assert_eq!(called(&seats), [0]);
}

#[test]
fn who_leaves_alone_calls_nobody() {
    let (loan, seats) = (lent(), Seats::<AtomicU32, 2>::default());
    assert!(loan.enter(owner(1)).is_some() && !loan.begin_to_wait());
    assert_eq!(loan.leave(owner(1)), Left::Waited);
    assert!(seats.call_next(&loan).is_none());
    assert!(loan.enter(owner(1)).is_some());
    assert_eq!(loan.leave(owner(1)), Left::Alone, "nobody waits any more");
}

#[test]
fn who_is_sent_away_asks() {
    let seats = Seats::<AtomicU32, 3>::default();
    let [a, b, c] = [4, 5, 4].map(|number| seats.sit(owner(number), 0).unwrap());
    assert_eq!(seats.send_away(Some(owner(4))).count(), 2);
    let calls = [(a, 4), (b, 5), (c, 4)].map(|(seat, number)| seats.call(seat, owner(number)));
    assert_eq!(calls, [Call::Leave, Call::None, Call::Leave]);
    assert_eq!(seats.send_away(None).count(), 1);
    assert_eq!(seats.call(b, owner(5)), Call::Leave);
    assert_eq!(seats.send_away(None).count(), 0);
    assert!(seats.call_next(&lent()).is_none());
}

#[test]
fn who_is_sent_away_asks_in_the_order_in_which_it_came() {
    let seats = Seats::<AtomicU32, 3>::default();
    let [first, second, third] = [4, 5, 6].map(|number| seats.sit(owner(number), 0).unwrap());
    seats.rise(first, owner(4));
    let last = seats.sit(owner(7), 0).unwrap();
    assert_eq!(last, first);
    let woken: Vec<*const AtomicU32> = seats.send_away(None).map(core::ptr::from_ref).collect();
    let order = [second, third, last].map(|seat| core::ptr::from_ref(&seats.seats[seat].word));
    assert_eq!(woken, order);
}

/// The seats of the dead are others', who are not disturbed by what the dead might still do.
#[test]
fn the_dead_have_no_seats() {
    let seats = Seats::<AtomicU32, 1>::default();
    let seat = seats.sit(owner(4), 0).unwrap();
    seats.clear(owner(5));
    assert_eq!(seats.call(seat, owner(4)), Call::None);
    seats.clear(owner(4));
    assert_eq!(seats.call(seat, owner(4)), Call::Leave);
    assert_eq!(seats.sit(owner(5), 0), Some(seat));
    seats.rise(seat, owner(4));
    seats.wait_again(seat, owner(4));
    assert_eq!(seats.call(seat, owner(5)), Call::None);
}

/// Whatever a broken program writes there, nobody goes round for ever.
#[test]
fn nonsense_is_borne() {
    let (loan, seats) = (lent(), Seats::<AtomicU32, 4>::default());
    for (seat, word) in seats.seats.iter().zip([u32::MAX, AWAY, WAITS, CALLED | 3]) {
        seat.word.store(word, Ordering::Relaxed);
    }
    assert_eq!(seats.taken().count(), 2);
    let _ = seats.call_next(&loan);
    seats.clear(EntryOwner::MAX);
    assert_eq!(seats.taken().count(), 1);
}

/// A thread that stands still is stepped over once, and not each time it is the first again.
#[test]
fn whoever_is_called_and_does_not_come_loses_its_seat() {
    let (loan, seats) = (lent(), Seats::<AtomicU32, 3>::default());
    let [stopped, next, last] = [9, 8, 7].map(|number| seats.sit(owner(number), 0).unwrap());
    assert!(seats.call_next(&loan).is_some());
    assert_eq!(
        seats.pass_called(stopped).count(),
        0,
        "nobody passes itself"
    );
    assert!(seats.call_next(&loan).is_none());
    assert_eq!(seats.pass_called(last).count(), 1);
    assert_eq!(seats.call(stopped, owner(9)), Call::Leave);
    for (seat, number) in [(next, 8), (last, 7), (next, 8), (last, 7)] {
        assert!(seats.call_next(&loan).is_some());
        assert_eq!(called(&seats), [seat]);
        seats.rise(seat, owner(number));
        assert_eq!(seats.sit(owner(number), 0), Some(seat));
    }
}

#[test]
fn the_dead_have_no_seats_though_they_are_called_meanwhile() {
    let seats = Seats::<Changed, 1>::default();
    let seat = seats.sit(owner(4), 0).unwrap();
    seats.seats[seat].word.change_to(4 | CALLED);
    seats.clear(owner(4));
    assert_eq!(seats.taken().count(), 0);
    // Nor do others lose the seat that was theirs.
    let seat = seats.sit(owner(4), 0).unwrap();
    seats.seats[seat].word.change_to(5 | WAITS);
    seats.clear(owner(4));
    assert_eq!(seats.call(seat, owner(5)), Call::None);
}
