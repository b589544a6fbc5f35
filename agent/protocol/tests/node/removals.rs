//! Members that operators add and remove, also those that vote.

use distlock_protocol::{Absence, Algorithm, Change, Event, MembershipOverrides, Refusal, Wait};

use crate::group::{Group, missing, ms, node};
use crate::quorum::group;

/// Its file lists all, and nobody else's file lists it.
#[test]
fn a_member_that_no_file_lists_is_added_and_removed() {
    let mut group = group(3, Algorithm::RicartAgrawala);
    group.start_listing(4, (1..=4).map(node).collect());
    group.run(ms(1500));
    assert_eq!(group.members(1), [1, 2, 3], "nobody knows it");
    group.change(2, Change::Add(node(4), "udp:127.0.0.1:4".into()));
    group.run(ms(1500));
    group.are_together(&[1, 2, 3, 4]);
    group.enter(4, 1, ms(200));
    // It stays so when all begin anew.
    for me in 1..=4 {
        group.stop(me);
    }
    (1..=3).for_each(|me| group.start(me));
    group.start_listing(4, (1..=4).map(node).collect());
    group.run(ms(3000));
    assert_eq!(group.members(3), [1, 2, 3, 4]);

    group.change(1, Change::Remove(node(4)));
    group.run(ms(3000));
    assert_eq!(group.members(1), [1, 2, 3]);
    assert!(is_told_that_it_is_removed(&group, 4));
}

/// Whoever it is, also the one that leads: the voters that are left decide by themselves.
#[test]
fn a_voter_that_is_removed_is_needed_no_more() {
    for removed in 1..=3 {
        let mut group = group(3, Algorithm::Semaphore);
        group.change(2, Change::Remove(node(removed)));
        group.run(ms(6000));
        let others: Vec<u16> = (1..=3).filter(|it| *it != removed).collect();
        for &me in &others {
            assert_eq!(group.members(me), others, "{removed}");
        }
        group.stop(removed);
        group.run(ms(500));
        // Both are needed now: without one of them nothing goes.
        group.acquire(others[0], 1, Wait::Cancelled);
        group.run(ms(300));
        assert!(group.granted(1).is_some(), "{removed}");
        group.stop(others[1]);
        group.release(others[0], 1);
        group.run(ms(3000));
        group.acquire(others[0], 2, Wait::Lease);
        group.run(ms(3000));
        let missing = missing(&others[1..2], Absence::Silent);
        assert_eq!(group.ended(2), Some(&Refusal::NoQuorum { missing }));
    }
}

/// An agent ends when it is told that its member was removed: by then the others decide without it.
#[test]
fn a_voter_that_is_removed_and_ends_stops_nobody() {
    for (size, removed) in [(2, 1), (2, 2), (3, 1), (3, 3)] {
        let mut group = group(size, Algorithm::Semaphore);
        let other = if removed == 1 { 2 } else { 1 };
        group.change(other, Change::Remove(node(removed)));
        let began = group.now;
        while !is_told_that_it_is_removed(&group, removed) {
            group.run(ms(1));
            assert!(group.now.since(began) < ms(6000), "{removed} of {size}");
        }
        group.stop(removed);
        group.run(ms(6000));
        group.acquire(other, 1, Wait::Lease);
        group.run(ms(1000));
        assert!(group.granted(1).is_some(), "{removed} of {size}");
    }
}

/// The agent of a removed voter ends when it is told, and another voter loses its state at some
/// moment. Three of four are needed until the removed one votes no more, and two of three from then
/// on.
#[test]
fn a_removed_voter_is_told_when_the_others_can_do_without_it() {
    for after in (0..3000).step_by(100) {
        let mut group = group(4, Algorithm::Semaphore);
        group.change(1, Change::Remove(node(4)));
        for elapsed in 0..12_000 {
            if elapsed == after {
                group.lose(3);
            }
            if is_told_that_it_is_removed(&group, 4) {
                group.stop(4);
            }
            group.run(ms(1));
        }
        assert!(!group.nodes.contains_key(&node(4)), "{after} ms");
        group.acquire(1, 1, Wait::Lease);
        group.run(ms(1000));
        assert!(group.granted(1).is_some(), "{after} ms");
    }
}

/// A host that begins anew does not greet a removed member by itself. The removed member takes the
/// host for up as soon as it is greeted, and greets only once: if that greeting is lost, what it
/// says next is answered all the same, as its vote is needed yet.
#[test]
fn a_removed_voter_is_answered_by_a_host_that_begins_anew() {
    for greeted in 0..10 {
        let mut group = group(2, Algorithm::Semaphore);
        group.change(2, Change::Remove(node(1)));
        while group.view(2).is_none_or(|(_, members)| members != [2]) {
            group.run(ms(1));
        }
        group.start(2);
        group.run(ms(greeted));
        group.cut.insert((node(1), node(2)));
        group.run(ms(100));
        group.heal();
        group.run(ms(6000));
        group.acquire(2, 1, Wait::Lease);
        group.run(ms(1000));
        assert!(group.granted(1).is_some(), "cut after {greeted} ms");
        assert!(
            is_told_that_it_is_removed(&group, 1),
            "cut after {greeted} ms"
        );
    }
}

/// A voter that was removed while it was cut off, several views ago: those who vote now do not know it any
/// more, and answer it all the same. It would wait for a quorum for ever.
#[test]
fn a_voter_that_was_removed_views_ago_is_told() {
    for (remaining, views) in [(2, 1), (2, 3), (3, 3)] {
        let mut group = group(1 + remaining, Algorithm::Semaphore);
        let others = 2..=1 + remaining;
        for other in others.clone() {
            group.cut.insert((node(1), node(other)));
            group.cut.insert((node(other), node(1)));
        }
        group.change(2, Change::Remove(node(1)));
        group.run(ms(6000));
        for _ in 0..views {
            group.start(3);
            group.run(ms(3000));
        }
        assert_eq!(group.members(2), others.collect::<Vec<_>>());
        group.heal();
        group.run(ms(6000));
        assert!(is_told_that_it_is_removed(&group, 1), "{views} views ago");
    }
}

/// The first member does not vote any more, and was told of the third's removal when it did.
#[test]
fn a_former_voter_does_not_speak_for_those_who_vote() {
    let mut group = group(3, Algorithm::Semaphore);
    group.change(1, Change::Remove(node(3)));
    group.run(ms(3000));
    group.stop(3);
    group.change(1, Change::Voters([node(2)].into()));
    group.run(ms(6000));
    group.change(2, Change::Add(node(3), "udp:127.0.0.1:3".into()));
    group.run(ms(3000));
    group.events.clear();
    // It hears the former voter first.
    group.start(3);
    group.slow_links.insert((node(2), node(3)), ms(20));
    group.run(ms(3000));
    assert!(!is_told_that_it_is_removed(&group, 3));
    assert_eq!(group.members(1), [1, 2, 3]);
}

/// The changes to the files' members that a member was told of.
fn overrides(group: &Group, me: u16) -> impl Iterator<Item = &MembershipOverrides> {
    group.events.iter().filter_map(move |told| match told {
        (whose, Event::Members { overrides }) if *whose == node(me) => Some(overrides),
        _ => None,
    })
}

fn is_told_that_it_is_removed(group: &Group, me: u16) -> bool {
    overrides(group, me).any(|overrides| overrides.removed.contains(&node(me)))
}

/// Whether the fifth member was added, by each of those that the fourth member was told of.
fn is_told_of_an_added_member(group: &Group) -> Vec<bool> {
    let told = overrides(group, 4);
    told.map(|overrides| overrides.added.contains_key(&node(5)))
        .collect()
}

/// The third voter was cut off when it ceased to vote, and a member was added after that. It is the
/// only one that is there.
#[test]
fn a_former_voter_tells_of_views_that_it_has_not_voted_for() {
    let mut group = Group::with_voters(4, Algorithm::Semaphore, [1, 2, 3].map(node).into());
    group.isolate(3);
    group.run(ms(3000));
    group.change(1, Change::Voters([1, 2].map(node).into()));
    group.run(ms(4000));
    group.change(1, Change::Add(node(5), "udp:127.0.0.1:5".into()));
    group.run(ms(4000));
    group.heal();
    group.run(ms(4000));
    assert_eq!(group.members(3), [1, 2, 3, 4]);
    for me in [1, 2, 4] {
        group.stop(me);
    }
    group.events.clear();
    group.start(4);
    group.run(ms(3000));
    assert_eq!(is_told_of_an_added_member(&group), [true]);
}

/// The first voter was cut off when a member was added, and its word comes last.
#[test]
fn an_old_word_on_the_members_does_not_outdo_a_newer_one() {
    let mut group = Group::with_voters(4, Algorithm::Semaphore, [1, 2, 3].map(node).into());
    group.isolate(1);
    group.run(ms(3000));
    group.change(2, Change::Add(node(5), "udp:127.0.0.1:5".into()));
    group.run(ms(3000));
    group.cut.remove(&(node(1), node(4)));
    group.cut.remove(&(node(4), node(1)));
    group.slow_links.insert((node(1), node(4)), ms(20));
    group.stop(4);
    group.events.clear();
    group.start(4);
    group.run(ms(3000));
    let told = is_told_of_an_added_member(&group);
    assert_eq!(told, [true], "once, and never taken back");
}

/// Its own record says that it was removed; whether that is so yet, only the others know.
#[test]
fn a_voter_that_was_removed_comes_back_when_it_is_added_again() {
    let is_told = |group: &Group| is_told_that_it_is_removed(group, 3);
    let mut group = group(3, Algorithm::Semaphore);
    group.change(1, Change::Remove(node(3)));
    group.run(ms(3000));
    assert!(is_told(&group), "while it runs");
    for added in [false, true] {
        group.stop(3);
        if added {
            group.change(2, Change::Add(node(3), "udp:127.0.0.1:3".into()));
            group.run(ms(3000));
        }
        group.events.clear();
        group.start(3);
        group.run(ms(3000));
        assert_eq!(is_told(&group), !added);
    }
    assert_eq!(group.members(1), [1, 2, 3]);
    // It votes again: two of three suffice.
    group.stop(2);
    group.run(ms(3000));
    group.acquire(3, 1, Wait::Lease);
    group.run(ms(3000));
    assert!(group.granted(1).is_some());
}

/// The second command found done what it wanted, and was kept: it took back what was added later.
#[test]
fn a_removal_that_was_said_twice_does_not_hold_against_an_addition() {
    let mut group = group(3, Algorithm::Semaphore);
    for member in [1, 2] {
        group.change(member, Change::Remove(node(3)));
        group.run(ms(3000));
    }
    group.stop(3);
    group.change(1, Change::Add(node(3), "udp:127.0.0.1:3".into()));
    group.run(ms(3000));
    group.start(3);
    group.run(ms(3000));
    assert_eq!(group.members(1), [1, 2, 3]);
}

/// Nobody waits for it any more.
#[test]
fn a_change_that_was_given_up_is_not_made_later() {
    for (patience, members) in [(ms(2000), vec![1, 2, 3]), (ms(60_000), vec![1, 3])] {
        let mut group = group(3, Algorithm::Semaphore);
        group.isolate(3);
        group.change_until(3, Change::Remove(node(2)), patience);
        group.run(ms(5000));
        group.heal();
        group.run(ms(6000));
        assert_eq!(group.members(1), members, "{patience:?}");
    }
}

/// The others go on without the member that was asked, which comes back as another incarnation.
#[test]
fn what_an_excluded_member_was_asked_is_done_when_it_is_back() {
    let mut group = group(3, Algorithm::Semaphore);
    group.isolate(3);
    group.change(3, Change::Add(node(4), "udp:127.0.0.1:4".into()));
    group.run(ms(3000));
    assert_eq!(group.members(1), [1, 2]);
    group.heal();
    group.start_listing(4, (1..=4).map(node).collect());
    group.run(ms(3000));
    group.are_together(&[1, 2, 3, 4]);
}
