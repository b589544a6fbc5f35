use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use super::*;
use crate::protocol::lock::Left;
use crate::protocol::{Previous, Release};
use crate::runtime::clients::raw_client::{RawClient, Served, x};
use crate::runtime::frames::{FromAgent, LentEntry, ToAgent};
use crate::runtime::request::loan_page::LoanPage;
use crate::runtime::{AcquireError, Client, Turn};

/// Has `raw` gone, so that its number is nobody's.
fn waits_for_end_of(served: &Served, raw: RawClient, owner: EntryOwner) {
    drop(raw);
    let knows = || {
        let core = served.agent.shared.lock_core();
        core.core.client_loans.owners.contains_key(&owner)
    };
    while knows() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A client that has "x" open, with its slot and its number.
fn open(served: &Served) -> (RawClient, LoanSlot, EntryOwner) {
    let mut raw = served.client();
    let (lock, command) = (x(), "lp".to_owned());
    raw.say(&ToAgent::Borrow { lock, command });
    assert_eq!(raw.hear(), FromAgent::LoanPage);
    let entry = match raw.hear() {
        FromAgent::Lent { entry, .. } => entry.expect("it is lent"),
        other => panic!("{other:?}"),
    };
    let LentEntry { slot, owner } = entry;
    let [slots, session] = [(); 2].map(|()| raw.fds.pop_front().unwrap());
    let page = LoanPage::of(slots, session).unwrap();
    let slot = LoanSlot::new(&page, slot).unwrap();
    (raw, slot, EntryOwner::new(owner).unwrap())
}

/// The same, and it is lent.
fn lent(served: &Served) -> (RawClient, LoanSlot, EntryOwner) {
    let (raw, slot, owner) = open(served);
    lend(served, &slot);
    (raw, slot, owner)
}

/// What is not used goes back after a moment.
fn lend(served: &Served, slot: &LoanSlot) {
    for _ in 0..1_000 {
        if slot.loan().is_lent() {
            return;
        }
        drop(served.attempt());
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the lock was never lent");
}

#[test]
fn a_client_that_is_cut_off_keeps_what_it_entered_until_it_is_gone() {
    let served = Served::new();
    let (mut raw, slot, owner) = lent(&served);
    raw.stream.write_all(&[0; 64]).unwrap();
    assert_eq!(raw.stream.read(&mut [0]).unwrap(), 0, "it breaks the rules");
    // It does not know yet.
    lend(&served, &slot);
    slot.loan().enter(owner).unwrap();
    for _ in 0..3 {
        assert_eq!(served.attempt().unwrap_err(), AcquireError::Busy);
        thread::sleep(Duration::from_millis(20));
    }
    drop(raw);
    assert_eq!(served.next().previous(), Previous::Abandoned);
}

#[test]
fn an_entry_that_is_nobodys_ends() {
    let served = Served::new();
    let (_raw, slot, owner) = lent(&served);
    let nobody = EntryOwner::MAX;
    assert_ne!(nobody, owner);
    slot.loan().enter(nobody).unwrap();
    assert_eq!(served.next().previous(), Previous::Abandoned);
    assert_eq!(served.next().previous(), Previous::Clean);
}

/// A thread that was on its way in as its program closed the stream, and was killed then.
#[test]
fn an_entry_after_the_end_of_its_client_ends() {
    let served = Served::new();
    let (_other, _, _) = lent(&served);
    let (raw, slot, owner) = lent(&served);
    waits_for_end_of(&served, raw, owner);
    lend(&served, &slot);
    slot.loan().enter(owner).unwrap();
    assert_eq!(served.next().previous(), Previous::Abandoned);
}

/// What is left under a number is ended before another client gets that number.
#[test]
fn a_number_that_comes_again_is_of_nobody_before() {
    let served = Served::new();
    let (raw, slot, owner) = lent(&served);
    let (other, _, _) = lent(&served);
    waits_for_end_of(&served, raw, owner);
    lend(&served, &slot);
    slot.loan().enter(owner).unwrap();
    // As if all other numbers had been given since.
    served.agent.shared.lock_core().core.client_loans.last_owner = owner.get() - 1;
    let (_third, _, again) = open(&served);
    assert_eq!(again, owner);
    assert_eq!(served.next().previous(), Previous::Abandoned);
    drop(other);
}

/// The one that holds it by itself is told, and no other; then it is as any other request.
#[test]
fn an_entry_becomes_a_request_of_its_client() {
    let served = Served::new();
    let (mut raw, slot, owner) = lent(&served);
    let (mut other, _, _) = lent(&served);
    lend(&served, &slot);
    let fence = slot.loan().enter(owner).unwrap();
    let index = slot.index();
    let id = 7;
    other.say(&ToAgent::KnowEntry { id, slot: index });
    let why = AcquireError::Voided;
    assert_eq!(other.hear(), FromAgent::Refused { id, why });
    raw.say(&ToAgent::KnowEntry { id, slot: index });
    assert!(matches!(raw.hear(), FromAgent::Lease { .. }));
    let granted = FromAgent::Granted {
        id,
        fence: fence.as_u64(),
        abandoned: false,
    };
    assert_eq!(raw.hear(), granted);
    assert_eq!(served.attempt().unwrap_err(), AcquireError::Busy);
    // What it says of the slot now is of no entry.
    let how = Release::Given;
    raw.say(&ToAgent::Leave { slot: index, how });
    assert_eq!(raw.heard(), []);
    assert_eq!(served.attempt().unwrap_err(), AcquireError::Busy);
    raw.say(&ToAgent::Release { id, how });
    assert!(served.next().fence().unwrap() > fence);
}

/// It has neither a holder nor a place in line; and as all who want the lock wait in memory, nobody asks.
#[test]
fn what_is_nobodys_keeps_nobody_out_who_waits_by_the_loan() {
    let served = Served::new();
    let client = Client::connect(&served.socket()).unwrap();
    let loan = client.lend(&x()).unwrap();
    let (raw, slot, owner) = lent(&served);
    waits_for_end_of(&served, raw, owner);
    lend(&served, &slot);
    slot.loan().enter(owner).unwrap();
    slot.sit(owner).unwrap();
    let until = clock::now() + Duration::from_secs(5);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| loan.wait(Some(until)));
        while slot.waiting(clock::now()).count() < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        let mut core = served.agent.shared.lock_core();
        core.renewed(Time::MAX);
        core.finish_as_application();
        assert_ne!(waiter.join().unwrap(), Turn::TimedOut);
    });
    assert_eq!(slot.waiting(clock::now()).count(), 0);
}

/// A client that stands still is waited for once, also if those behind it wait only for a while.
#[test]
fn one_that_is_called_and_does_not_come_is_waited_for_once() {
    let served = Served::new();
    let (_stopped, slot, owner) = lent(&served);
    let clients = [(); 2].map(|()| Client::connect(&served.socket()).unwrap());
    let [holder, waiter] = clients.each_ref().map(|client| client.lend(&x()).unwrap());
    // The agent, which cannot have it back meanwhile, would have the waiter ask.
    let entered = (0..1_000).find_map(|_| {
        thread::sleep(Duration::from_millis(1));
        lend(&served, &slot);
        let core = served.agent.shared.lock_core();
        let fence = holder.enter()?;
        if waiter.is_inside() {
            return Some((core, fence));
        }
        holder.leave(fence);
        None
    });
    let (core, mut fence) = entered.expect("both know that it is lent");
    slot.sit(owner).unwrap();
    let limit = Duration::from_millis(200);
    let mut took = Vec::new();
    for _ in 0..3 {
        let before = slot.seats().taken().count();
        let until = clock::now() + limit;
        thread::scope(|scope| {
            let waits = scope.spawn(|| waiter.wait(Some(until)));
            while slot.seats().taken().count() == before && !waits.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            holder.leave(fence);
            let left = clock::now();
            let Turn::Entered(fence) = waits.join().unwrap() else {
                panic!("it has not entered");
            };
            took.push(clock::now().since(left));
            waiter.leave(fence);
        });
        fence = holder.enter().expect("nobody is inside");
    }
    holder.leave(fence);
    drop(core);
    let waited = took.iter().filter(|took| **took > limit / 2).count();
    assert_eq!(waited, 1, "{took:?}");
}

/// Whoever was next, and is stopped, has the lock no more than others: whoever tries asks the agent.
#[test]
fn a_turn_that_nobody_takes_is_no_holder() {
    let served = Served::new();
    let (_stopped, slot, _) = lent(&served);
    let client = Client::connect(&served.socket()).unwrap();
    let loan = client.lend(&x()).unwrap();
    let enters = |_| {
        thread::sleep(Duration::from_millis(1));
        lend(&served, &slot);
        loan.enter()
    };
    let fence = (0..1_000).find_map(enters).expect("it is lent");
    loan.leave(fence);
    slot.loan().take_next_turn();
    assert!(loan.enter().is_none());
    assert!(!loan.is_inside());
}

#[test]
fn more_locks_than_there_is_room_for_are_asked_for() {
    let served = Served::new();
    let mut raw = served.client();
    let mut lent = 0;
    for number in 0..=SLOTS {
        let lock = LockName::new(format!("lock-{number}")).unwrap();
        let command = String::new();
        raw.say(&ToAgent::Borrow { lock, command });
        loop {
            match raw.hear() {
                FromAgent::Lent { entry, .. } => {
                    lent += usize::from(entry.is_some());
                    break;
                }
                FromAgent::LoanPage => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(lent, SLOTS);
    raw.say(&ToAgent::Return { slot: 5 });
    let (lock, command) = (x(), String::new());
    raw.say(&ToAgent::Borrow { lock, command });
    let told = raw.hear();
    assert!(matches!(
        told,
        FromAgent::Lent {
            entry: Some(LentEntry { slot: 5, .. }),
            ..
        }
    ));
}

/// When all numbers of a loan are used up, the agent is asked, and lends anew.
#[test]
fn numbers_that_are_used_up_are_the_agents_to_renew() {
    let served = Served::new();
    let (mut raw, slot, owner) = lent(&served);
    let mut last = None;
    loop {
        match slot.loan().enter(owner) {
            Some(fence) => last = Some(fence),
            None if slot.loan().is_lent() => break,
            // It was taken back, as it is now and then to see whether it is used.
            None => lend(&served, &slot),
        }
        if slot.loan().inside().is_some() && slot.loan().leave(owner) == Left::Recalled {
            let (slot, how) = (slot.index(), Release::Given);
            raw.say(&ToAgent::Leave { slot, how });
        }
    }
    assert_eq!(slot.loan().inside(), None);
    assert!(served.next().fence() > last);
    lend(&served, &slot);
    assert!(slot.loan().enter(owner) > last);
}

/// The client was told that the entry is lost, and asks for it by another number.
#[test]
fn an_agent_that_leaves_waits_for_no_entry_that_is_given_back() {
    let served = Served::new();
    let (mut raw, slot, owner) = lent(&served);
    let fence = slot.loan().enter(owner).unwrap();
    served.agent.shared.leave();
    let lost = request_of(slot.index(), fence);
    assert_eq!(raw.hear(), FromAgent::Lost { id: lost });
    let id = 7;
    let slot = slot.index();
    raw.say(&ToAgent::KnowEntry { id, slot });
    assert!(matches!(raw.hear(), FromAgent::Lease { .. }));
    assert!(matches!(raw.hear(), FromAgent::Granted { id: 7, .. }));
    assert_eq!(raw.hear(), FromAgent::Lost { id });
    let how = Release::Given;
    raw.say(&ToAgent::Release { id, how });
    // Its lease is a minute.
    served.agent.close();
}

/// By what it sees in memory, its guard is valid however long ago it was told of a lease.
#[test]
fn a_request_that_was_an_entry_is_its_clients_until_that_is_gone() {
    let served = Served::new();
    let (mut raw, slot, owner) = lent(&served);
    slot.loan().enter(owner).unwrap();
    // It is told of a lease that is over soon.
    let soon = clock::now() + Duration::from_millis(200);
    let mut core = served.agent.shared.lock_core();
    core.renewed(soon);
    core.finish_as_application();
    let (id, slot) = (7, slot.index());
    raw.say(&ToAgent::KnowEntry { id, slot });
    while !matches!(raw.hear(), FromAgent::Granted { .. }) {}
    raw.stream.write_all(&[0; 64]).unwrap();
    assert_eq!(raw.stream.read(&mut [0]).unwrap(), 0, "it breaks the rules");
    while clock::now() <= soon {
        thread::sleep(Duration::from_millis(1));
    }
    let mut core = served.agent.shared.lock_core();
    core.renewed(Time::MAX);
    core.finish_as_application();
    assert_eq!(served.attempt().unwrap_err(), AcquireError::Busy);
    drop(raw);
    assert_eq!(served.next().previous(), Previous::Abandoned);
}

/// Three quarters of the seats, so that some are left for those that come meanwhile. Where more wait, nobody is sent
/// there, and the lock goes from one to the next.
#[test]
fn all_that_wait_are_sent_to_the_loan_if_there_are_seats_for_them() {
    for (count, are_sent) in [(48, true), (49, false)] {
        let served = Served::new();
        let (mut raw, _, _) = lent(&served);
        for id in 0..=count {
            raw.acquire_or_wait_by_loan(id, true);
        }
        assert_eq!(answer(&mut raw, 0), None);
        let how = Release::Given;
        raw.say(&ToAgent::Release { id: 0, how });
        if !are_sent {
            assert_eq!(answer(&mut raw, 1), None);
            continue;
        }
        for id in 1..=count {
            assert_eq!(answer(&mut raw, id), Some(AcquireError::Lent));
        }
    }
}

/// Why the client is refused what it asked for as `to`, if it is.
fn answer(raw: &mut RawClient, to: u64) -> Option<AcquireError> {
    loop {
        match raw.hear() {
            FromAgent::Granted { id, .. } if id == to => return None,
            FromAgent::Refused { id, why } if id == to => return Some(why),
            FromAgent::Lease { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
