//! Locks that are lent to a member's threads: how long a loan lasts, and which callers keep it from being made.

use std::time::Duration;

use distlock_protocol::lock::{EntryOwner, Left, SharedLoan};
use distlock_protocol::{Algorithm, Command, Event, Input, LockName, Mode, Ticket, Wait};

use crate::group::{Group, ms, node};

const ME: EntryOwner = EntryOwner::MEMBER;

fn printer() -> LockName {
    LockName::new("printer").unwrap()
}

/// Three members, and the loan of the printer to threads of the second, which is not made yet.
fn borrowing() -> (Group, SharedLoan) {
    let mut group = Group::new(3, Algorithm::Manager);
    let loan = SharedLoan::default();
    let command = Command::Borrow {
        ticket: Ticket(1_000),
        lock: printer(),
        loan: loan.clone(),
    };
    group.input(node(2), Input::Command(&command));
    (group, loan)
}

/// The same when it is made, and the next ticket.
fn lent() -> (Group, SharedLoan, u64) {
    let (mut group, loan) = borrowing();
    let mut ticket = 1;
    while !loan.is_lent() {
        assert!(ticket < 20, "it was never lent");
        group.enter(2, ticket, Duration::from_secs(1));
        group.release(2, ticket);
        ticket += 1;
    }
    (group, loan, ticket)
}

fn in_the_way(group: &Group) -> Vec<u64> {
    let tickets = group.nodes[&node(2)].in_the_way_of_loan(&printer(), 1);
    tickets.into_iter().map(|ticket| ticket.0).collect()
}

#[test]
fn a_loan_that_is_used_is_not_disturbed() {
    let (mut group, loan, _) = lent();
    assert!(loan.enter(ME).is_some());
    group.run(Duration::from_secs(5));
    assert_eq!(loan.leave(ME), Left::Alone, "it was not taken back");
    for _ in 0..5_000 {
        assert!(loan.enter(ME).is_some());
        assert_eq!(loan.leave(ME), Left::Alone);
        group.run(ms(1));
    }
    let sent = group.sent.len();
    group.run(Duration::from_secs(2));
    assert!(!loan.is_lent(), "nobody uses it any more");
    assert!(group.sent.len() > sent);
    let is_entered = |(_, event): &_| matches!(event, Event::Entered { .. });
    assert!(!group.events.iter().any(is_entered));
}

#[test]
fn those_that_wait_are_told_that_a_loan_was_taken_back() {
    let (mut group, loan, ticket) = lent();
    assert!(loan.enter(ME).is_some());
    assert!(!loan.begin_to_wait());
    group.acquire(1, ticket, Wait::Cancelled);
    group.run(ms(100));
    assert!(!loan.is_lent() && group.granted(ticket).is_none());
    let recalled = Event::Recalled {
        lock: printer(),
        entries: 1,
        is_waited: true,
    };
    assert!(group.events.contains(&(node(2), recalled)));
    assert_eq!(loan.leave(ME), Left::Recalled);
    group.release(2, 1_000);
    group.run(ms(100));
    assert!(group.granted(ticket).is_some());
}

#[test]
fn callers_that_wait_are_in_the_way_of_a_loan() {
    let (mut group, loan) = borrowing();
    for ticket in 1..=2 {
        group.acquire(2, ticket, Wait::Cancelled);
    }
    let mut held = 1;
    // The first stay has to show what a loan is worth.
    let first = loop {
        group.run(ms(100));
        assert!(group.granted(held).is_some());
        let waiting = in_the_way(&group);
        if !waiting.is_empty() {
            assert_eq!(waiting, [held + 1]);
            break held;
        }
        group.acquire(2, held + 2, Wait::Cancelled);
        group.release(2, held);
        held += 1;
    };
    assert!((5..20).contains(&first), "{first}");
    // A caller that only tries is refused; one that shares the lock cannot enter by the loan.
    group.acquire(2, 500, Wait::Try);
    assert!(group.ended(500).is_some(), "it is held");
    group.share(2, 501);
    assert_eq!(in_the_way(&group), [0; 0]);
    cancel(&mut group, 501);
    assert_eq!(in_the_way(&group), [first + 1]);
    group.acquire(2, 503, Wait::Cancelled);
    assert_eq!(in_the_way(&group), [0; 0], "they are too many");
    cancel(&mut group, 503);
    // Another member comes next.
    group.acquire(1, 502, Wait::Cancelled);
    group.run(ms(100));
    assert_eq!(in_the_way(&group), [0; 0]);
    cancel(&mut group, 502);
    // They step aside, and the lock is lent as soon as the holder has left.
    let (mut group, loan, ticket) = {
        drop((group, loan));
        lent()
    };
    group.acquire(2, ticket, Wait::Cancelled);
    group.acquire(2, ticket + 1, Wait::Cancelled);
    assert!(!loan.is_lent());
    assert_eq!(in_the_way(&group), [ticket + 1]);
    cancel(&mut group, ticket + 1);
    group.release(2, ticket);
    assert!(loan.is_lent());
    group.ask(
        2,
        ticket + 2,
        "printer",
        None,
        Mode::Exclusive,
        Wait::Cancelled,
    );
    assert!(!loan.is_lent());
}

fn cancel(group: &mut Group, ticket: u64) {
    let ticket = Ticket(ticket);
    for me in [1, 2] {
        group.input(node(me), Input::Command(&Command::Cancel { ticket }));
    }
}

/// How many of a hundred callers of one member enter in a row, each for so long, while another member waits.
fn entered_in_a_row(stay: Duration) -> usize {
    let mut group = Group::new(3, Algorithm::Manager);
    group.enter(1, 1, Duration::from_secs(1));
    for ticket in 100..200 {
        group.acquire(2, ticket, Wait::Cancelled);
    }
    group.run(ms(100));
    group.acquire(3, 3, Wait::Cancelled);
    group.run(ms(100));
    group.release(1, 1);
    group.until_granted(100, ms(100));
    let entered = (100..200).take_while(|&ticket| {
        let is_inside = group.granted(ticket).is_some();
        if is_inside {
            group.run(stay);
            group.release(2, ticket);
        }
        is_inside
    });
    let entered = entered.count();
    group.until_granted(3, ms(100));
    group.release(3, 3);
    group.until_granted(100 + entered as u64, ms(100));
    entered
}

#[test]
fn callers_of_one_member_enter_in_a_row_though_others_wait() {
    let stays = [100, 40_000, 200_000].map(Duration::from_nanos);
    // As many as there may be, or as long as they may go first.
    assert_eq!(stays.map(entered_in_a_row), [32, 3, 1]);
}
