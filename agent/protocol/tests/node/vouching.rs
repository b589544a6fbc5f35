//! Who says that nobody was inside, and until when a lease may be in use: what lets the next view
//! begin early must be so.

use std::time::Duration;

use distlock_protocol::{Algorithm, Event, Failure, Mode, NodeId, Previous, Release, Time, Wait};

use crate::group::{FOUNDING, Group, ms, node};

/// A group under quorum views in which these vote; nobody is started yet.
fn group(size: u16, voters: &[u16], lease: Duration) -> Group {
    let mut group = Group::empty(size, Algorithm::Semaphore, Failure::Quorum, lease);
    group.voters = voters.iter().copied().map(node).collect();
    group
}

/// The caller is let in when the lease is over, and not before, and soon after.
#[track_caller]
fn waits_for(group: &mut Group, ticket: u64, until: Time) {
    while group.told(ticket).is_none() {
        group.run(ms(1));
        assert!(group.now < until + ms(10_000), "nobody is let in");
    }
    assert!(
        group.now >= until,
        "{:?} too early",
        until - group.now.since(Time::ZERO)
    );
}

fn leave_and_wait(group: &mut Group, me: u16) {
    group.leave(me);
    let left = (node(me), Event::Left);
    group.until(ms(10_000), |group| group.events.contains(&left));
    group.events.retain(|told| *told != left);
    group.stop(me);
}

/// Member 1 has come, and the view with it is in force there and in one of the others, when it is
/// let in and dies. The third has stopped for that view and never seen it: what it knows is of the
/// one before, where nobody was inside.
#[test]
fn who_missed_a_view_does_not_say_who_was_inside() {
    let mut played = 0;
    for witness in 2..=4 {
        let other = if witness == 2 { 3 } else { 2 };
        let mut group = group(4, &[2, 3, 4], ms(1000));
        (1..=4).for_each(|me| group.start(me));
        group.run(FOUNDING + ms(1000));
        leave_and_wait(&mut group, 1);
        group.run(ms(1500));
        group.events.retain(|(whose, _)| *whose != node(1));
        for (ticket, me) in [(1, witness), (2, other)] {
            group.acquire(me, ticket, Wait::Cancelled);
            group.run(ms(50));
            group.release(me, ticket);
            group.run(ms(50));
        }
        let before = group.epoch(witness);
        group.start(1);
        group.until(ms(10_000), |group| {
            group.nodes[&node(witness)].view().is_none()
        });
        let deaf = (1..=4).map(|from| (node(from), node(witness)));
        group.cut.extend(deaf);
        group.run(ms(20));
        if group.view(1).is_none() {
            // It is the one that puts the view in force.
            continue;
        }
        played += 1;
        assert_eq!(group.epoch(witness), before);
        group.acquire(1, 3, Wait::Cancelled);
        group.run(ms(20));
        assert!(group.told(3).is_some());
        let until = group.lease_of(1);
        group.stop(1);
        group.acquire(other, 4, Wait::Cancelled);
        // Its next incarnation comes at once, and with it the next view.
        group.start(1);
        while group.epoch(witness) == before {
            group.run(ms(1));
            let is_next = group.nodes[&node(other)].view().is_none();
            if is_next {
                group.heal();
            }
            assert!(group.now < until + ms(5000));
        }
        waits_for(&mut group, 4, until);
        assert_eq!(group.told(4), Some(Previous::Abandoned));
    }
    assert_eq!(played, 2, "one of three puts the view in force");
}

/// While member 1 was away all locks were declared at member 2, which knew of each. Of the one that
/// is declared at member 1, served there and entered there nobody else knows when it dies.
#[test]
fn who_declared_locks_in_an_earlier_view_does_not_know_all() {
    let mut group = group(3, &[2, 3], ms(1000));
    (1..=3).for_each(|me| group.start(me));
    group.run(FOUNDING + ms(1500));
    leave_and_wait(&mut group, 1);
    group.run(ms(500));
    assert_eq!(group.members(2), [2, 3]);
    group.start(1);
    group.run(ms(1500));
    assert_eq!(group.members(2), [1, 2, 3]);
    group.acquire(1, 1, Wait::Cancelled);
    group.run(ms(20));
    assert!(group.told(1).is_some(), "declared and served here");
    let until = group.lease_of(1);
    group.stop(1);
    group.acquire(2, 2, Wait::Cancelled);
    waits_for(&mut group, 2, until);
    assert_eq!(group.told(2), Some(Previous::Abandoned));
}

/// The only voter has said yes to the view without member 3, and ends in order while that one's lease
/// may be in use. Its next incarnation says nothing of it, and is not to be believed quiet.
#[test]
fn a_voter_that_ends_in_order_does_not_forget_whose_leases_run() {
    for leaves_after in [2800, 3200, 3600] {
        let mut group = group(3, &[1], ms(5000));
        (1..=3).for_each(|me| group.start(me));
        group.run(ms(8000));
        group.acquire(3, 1, Wait::Cancelled);
        group.run(ms(1000));
        assert!(group.told(1).is_some());
        group.isolate(3);
        group.acquire(2, 2, Wait::Cancelled);
        let until = group.lease_of(3);
        group.run(ms(leaves_after));
        leave_and_wait(&mut group, 1);
        assert_eq!(group.told(2), None);
        group.start(1);
        waits_for(&mut group, 2, until);
        assert_eq!(group.told(2), Some(Previous::Abandoned));
    }
}

/// What a voter has renewed is on its way for longer than a lease's margin. The voter counts from
/// when it was asked, and so must who asked.
#[test]
fn a_lease_counts_from_when_it_was_asked_for_however_late_the_answer() {
    for slower in [100, 400, 700] {
        let mut group = group(3, &[1, 2, 3], ms(1000));
        (1..=3).for_each(|me| group.start(me));
        group.run(FOUNDING + ms(1500));
        let to_3 = |from| ((node(from), node(3)), ms(slower));
        group.slow_links = [1, 2].map(to_3).into();
        group.run(ms(1000));
        group.acquire(3, 1, Wait::Cancelled);
        let mut leases = std::collections::BTreeSet::new();
        for _ in 0..4000 {
            group.run(ms(1));
            let until = group.lease_of(3);
            leases.insert(until);
            let longest = group.now + ms(1000) - ms(slower);
            assert!(until <= longest, "{slower}: {until:?} at {:?}", group.now);
        }
        assert!(leases.len() > 5, "it is renewed");
        assert!(group.told(1).is_some(), "{slower}");
        // Nobody hears it any more, and what is on its way to it arrives.
        let from_3 = |to| -> (NodeId, NodeId) { (node(3), node(to)) };
        group.cut.extend([1, 2].map(from_3));
        group.acquire(1, 2, Wait::Cancelled);
        group.until_granted(2, ms(10_000));
        assert!(group.now >= group.lease_of(3), "{slower}");
    }
}

/// The only voter has just begun, and hears of a member that leaves in order before it hears of the
/// one that stays, which knows all that the leaver knew of an abandoned lock: no other lock is in
/// doubt.
#[test]
fn a_voter_that_has_just_begun_waits_for_the_word_of_those_that_stay() {
    // It waits for half a lease, which is half a second.
    for later in (0..150).step_by(10) {
        let mut group = Group::with_voters(3, Algorithm::Semaphore, [node(1)].into());
        group.enter(2, 1, ms(500));
        group.release_as(2, 1, Release::Abandoned);
        // The view that goes on without it tells both others of the mark.
        leave_and_wait(&mut group, 1);
        group.isolate(3);
        group.start(1);
        group.run(ms(later));
        group.leave(2);
        group.run(ms(100));
        group.heal();
        group.ask(3, 2, "other", None, Mode::Exclusive, Wait::Cancelled);
        group.until_granted(2, ms(3000));
        assert_eq!(group.told(2), Some(Previous::Clean), "{later} ms later");
    }
}
