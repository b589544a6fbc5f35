use alloc::vec::Vec;

use super::*;
use crate::ids::Epoch;
use crate::lock::Left;

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
    assert_eq!(seats.send_away_of(owner(4)).count(), 2);
    let calls = [(a, 4), (b, 5), (c, 4)].map(|(seat, number)| seats.call(seat, owner(number)));
    assert_eq!(calls, [Call::Leave, Call::None, Call::Leave]);
    assert_eq!(seats.send_away().count(), 1);
    assert_eq!(seats.call(b, owner(5)), Call::Leave);
    assert_eq!(seats.send_away().count(), 0);
    assert!(seats.call_next(&lent()).is_none());
}

/// The seats of the dead are others', who are not disturbed by what the dead might still do.
#[test]
fn the_dead_have_no_seats() {
    let seats = Seats::<AtomicU32, 1>::default();
    let seat = seats.sit(owner(4), 0).unwrap();
    assert!(!seats.clear(owner(5)));
    assert!(seats.clear(owner(4)));
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
    assert!(seats.clear(EntryOwner::MAX));
}

#[test]
fn whoever_is_called_and_does_not_come_loses_its_place() {
    let (loan, seats) = (lent(), Seats::<AtomicU32, 3>::default());
    let [stopped, next, last] = [9, 8, 7].map(|number| seats.sit(owner(number), 0).unwrap());
    assert!(seats.call_next(&loan).is_some());
    seats.pass_called(stopped);
    assert!(seats.call_next(&loan).is_none(), "nobody passes itself");
    seats.pass_called(last);
    assert!(seats.call_next(&loan).is_some());
    assert_eq!(called(&seats), [stopped, next]);
    seats.wait_again(stopped, owner(9));
    seats.rise(next, owner(8));
    assert!(seats.call_next(&loan).is_some());
    assert_eq!(called(&seats), [last]);
}
