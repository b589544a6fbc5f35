//! Turns, tries, restarts and leaving: the first thing to look at when all else fails.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_protocol::{
    Absence, Algorithm, Event, Failure, LockSpec, MAX_TRY_TIME, Refusal, Wait,
};

use crate::group::{Group, missing, node};

#[test]
fn members_take_turns_with_every_algorithm() {
    for algorithm in Algorithm::ALL {
        for size in [1, 2, 3, 5] {
            let mut group = Group::new(size, algorithm);
            for me in 1..=size {
                group.acquire(me, u64::from(me), Wait::Cancelled);
            }
            let mut fences = Vec::new();
            let mut served = BTreeSet::new();
            for _ in 0..size {
                // Who has voted in vain may pause for four seconds.
                let turn = if algorithm.is_probabilistic() { 10 } else { 1 };
                group.run(Duration::from_secs(turn));
                let inside: Vec<_> = (1..=u64::from(size))
                    .filter(|ticket| !served.contains(ticket) && group.granted(*ticket).is_some())
                    .collect();
                assert_eq!(inside.len(), 1, "{algorithm}, {size} members");
                fences.push(group.granted(inside[0]).unwrap());
                served.insert(inside[0]);
                group.release(inside[0] as u16, inside[0]);
            }
            assert!(fences.is_sorted_by(|a, b| a < b), "{algorithm}: {fences:?}");
        }
    }
}

#[test]
fn a_try_finds_the_lock_busy_and_then_free() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(3, algorithm);
        group.enter(1, 1, Duration::from_secs(1));
        group.acquire(2, 2, Wait::Try);
        group.run(Duration::from_secs(1));
        assert_eq!(group.ended(2), Some(&Refusal::Busy), "{algorithm}");
        group.release(1, 1);
        group.run(Duration::from_secs(1));
        group.acquire(2, 3, Wait::Try);
        group.run(Duration::from_secs(1));
        assert!(group.granted(3).is_some(), "{algorithm}");
    }
}

/// Programs are promised an answer within a second, however many members there are.
#[test]
fn a_try_in_a_large_group_finds_the_lock_busy_in_time() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(16, algorithm);
        group.enter(1, 1, Duration::from_secs(1));
        group.acquire(9, 2, Wait::Try);
        group.run(MAX_TRY_TIME + Duration::from_millis(1));
        assert_eq!(group.ended(2), Some(&Refusal::Busy), "{algorithm}");
    }
}

/// Members whose lease is long beside the time of a try, after their quarantine.
fn settled(size: u16, algorithm: Algorithm) -> Group {
    let lease = Duration::from_secs(5);
    let mut group = Group::empty(size, algorithm, Failure::Unanimity, lease);
    (1..=size).for_each(|member| group.start(member));
    group.run(lease * 3);
    group
}

/// Nobody holds the lock, and member 3 is silent for less than a lease: its silence does not tell
/// that the lock is held.
#[test]
fn a_try_that_a_silent_member_leaves_unanswered_names_that_member() {
    let mut unanswered = 0;
    for algorithm in Algorithm::ALL {
        let mut group = settled(3, algorithm);
        group.stop(3);
        group.acquire(1, 1, Wait::Try);
        group.run(Duration::from_secs(1));
        let silent = vec![node(3)];
        match group.ended(1) {
            None => assert!(group.granted(1).is_some(), "{algorithm}: neither"),
            Some(refusal) => {
                assert_eq!(*refusal, Refusal::NoAnswer { silent }, "{algorithm}");
                unanswered += 1;
            }
        }
    }
    assert!(unanswered > 0);
}

/// The only voter answers later than a lease lasts, and the lease of member 2 is over. What member 2
/// grants itself, as the last holder, is held back: another member does not hold the lock.
#[test]
fn a_try_whose_grant_is_held_back_is_not_told_that_the_lock_is_held() {
    for algorithm in [
        Algorithm::TokenRing,
        Algorithm::TokenRingRequests,
        Algorithm::CarvalhoRoucairol,
        Algorithm::SuzukiKasami,
        Algorithm::Singhal,
        Algorithm::Raymond,
    ] {
        let mut group = Group::with_voters(2, algorithm, [node(1)].into());
        group.enter(2, 1, Duration::from_secs(1));
        group.release(2, 1);
        group.run(Duration::from_secs(1));
        let later = Duration::from_millis(1_300);
        group.slow_links.insert((node(1), node(2)), later);
        group.run(Duration::from_millis(1_100));
        assert!(group.lease_of(2) <= group.now, "{algorithm}");
        group.acquire(2, 2, Wait::Try);
        group.run(MAX_TRY_TIME);
        let silent = Vec::new();
        let refusal = Refusal::NoAnswer { silent };
        assert_eq!(group.ended(2), Some(&refusal), "{algorithm}");
    }
}

/// A member that has nothing else to say is asked more than once whether it is there.
#[test]
fn lost_datagrams_do_not_make_a_member_silent_to_a_try() {
    let mut group = settled(4, Algorithm::Raymond);
    group.enter(1, 1, Duration::from_secs(1));
    group.loss = 15;
    for ticket in 2..32 {
        group.acquire(2, ticket, Wait::Try);
        group.run(MAX_TRY_TIME);
        assert_eq!(group.ended(ticket), Some(&Refusal::Busy));
    }
}

#[test]
fn a_member_that_comes_back_is_waited_for_and_holds_nothing() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(3, algorithm);
        let first = group.enter(2, 1, Duration::from_secs(1));
        // It dies inside, and comes back at once: nobody may enter for lease * 1.1 / 0.9.
        group.start(2);
        group.acquire(3, 2, Wait::Cancelled);
        group.run(Duration::from_millis(1200));
        assert_eq!(group.granted(2), None, "{algorithm}");
        group.run(Duration::from_secs(1));
        let second = group
            .granted(2)
            .unwrap_or_else(|| panic!("{algorithm}: not granted"));
        assert!(second > first);
    }
}

/// Rule 8 (doc/design.md) holds also where the record was lost: the others remember.
#[test]
fn a_member_that_lost_its_state_is_remembered_and_waited_for() {
    for coordinator in [false, true] {
        let victim = if coordinator { 1 } else { 2 };
        let mut group = Group::new(3, Algorithm::RicartAgrawala);
        let first = group.enter(victim, 1, Duration::from_secs(1));
        group.records.remove(&node(victim));
        group.start(victim);
        group.acquire(3, 2, Wait::Cancelled);
        group.run(Duration::from_millis(1200));
        assert_eq!(group.granted(2), None);
        group.run(Duration::from_secs(1));
        assert!(group.granted(2).expect("granted") > first);
    }
}

#[test]
fn a_silent_member_is_named_after_one_lease() {
    let mut group = Group::new(3, Algorithm::RicartAgrawala);
    group.stop(3);
    group.acquire(1, 1, Wait::Lease);
    group.run(Duration::from_secs(3));
    assert_eq!(
        group.ended(1),
        Some(&Refusal::NoQuorum {
            missing: missing(&[3], Absence::Silent)
        })
    );
}

#[test]
fn who_leaves_tells_the_others_and_needs_no_quarantine() {
    let mut group = Group::new(2, Algorithm::TokenRingRequests);
    group.acquire(1, 1, Wait::Cancelled);
    group.run(Duration::from_secs(1));
    group.acquire(2, 2, Wait::Cancelled);
    group.leave(1);
    group.run(Duration::from_millis(100));
    assert!(group.granted(2).is_some(), "the token was passed on");
    assert!(group.events.contains(&(node(1), Event::Left)));
    assert!(group.records[&node(1)].clean);
    group.release(2, 2);
    group.start(1);
    group.enter(1, 3, Duration::from_millis(200));
}

/// Readers of one member and of several are inside together, also over a new view.
#[test]
fn readers_share_and_writers_do_not() {
    let mut group = Group::new(3, Algorithm::Semaphore);
    group.share(1, 1);
    group.share(1, 2);
    group.share(2, 3);
    group.run(Duration::from_secs(1));
    assert!((1..=3).all(|ticket| group.granted(ticket).is_some()));
    group.acquire(3, 4, Wait::Cancelled);
    group.run(Duration::from_millis(100));
    group.share(1, 5);
    group.run(Duration::from_secs(1));
    assert_eq!((group.granted(4), group.granted(5)), (None, None));
    group.leave(2);
    group.run(Duration::from_millis(100));
    group.start(2);
    group.run(Duration::from_secs(1));
    assert_eq!(
        group.granted(4),
        None,
        "the readers of member 1 are inside in the new view"
    );
    group.release(1, 1);
    group.release(1, 2);
    group.run(Duration::from_secs(1));
    assert!(group.granted(4).is_some() && group.granted(5).is_none());
    group.release(3, 4);
    group.run(Duration::from_secs(1));
    assert!(group.granted(5).is_some());
}

#[test]
fn what_cannot_be_shared_says_so() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.share(2, 1);
    group.run(Duration::from_secs(1));
    let actual = LockSpec::exclusive(Algorithm::RicartAgrawala);
    assert_eq!(group.ended(1), Some(&Refusal::NotShareable { actual }));
}

/// It was said to be silent and heard again about once a second: greetings were too seldom.
#[test]
fn a_member_whose_file_differs_is_named_once_and_not_taken_for_silent() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.settings.lease = Duration::from_millis(900);
    group.start(2);
    group.run(Duration::from_secs(10));
    let told = |is_it: fn(&Event) -> bool| group.events.iter().filter(|(_, e)| is_it(e)).count();
    assert_eq!(told(|event| matches!(event, Event::Suspect { .. })), 0);
    let named = |event: &Event| matches!(event, Event::Disagreement { key, ours, .. } if key == "lease" && ours == "1s");
    let mut named = group.events.iter().filter(|(_, event)| named(event));
    assert_eq!(named.next().map(|(id, _)| *id), Some(node(1)));
    assert!(named.next().is_none());
}

/// Two groups of different names ignored each other, and each waited for members it saw.
#[test]
fn a_member_of_another_group_at_a_members_address_is_named() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.settings.group = "another".into();
    group.start(2);
    group.run(Duration::from_secs(1));
    let named = |event: &Event| match event {
        Event::Disagreement { key, ours, .. } => key == "group.name" && ours == "another",
        _ => false,
    };
    assert_eq!(
        group
            .events
            .iter()
            .filter(|(_, event)| named(event))
            .count(),
        1
    );
    group.settings.group = "smoke".into();
    group.start(2);
    group.run(Duration::from_secs(3));
    group.acquire(2, 1, Wait::Cancelled);
    group.run(Duration::from_secs(1));
    assert!(
        group.granted(1).is_some(),
        "with the name mended, it is a member"
    );
}
