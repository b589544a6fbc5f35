//! A view goes on without a member that died: locks for which nobody vouches wait for its lease, and
//! no others.

use distlock_protocol::{
    Algorithm, Command, Event, Failure, Input, Mode, Previous, Refusal, Ticket, Time, Wait,
};

use crate::group::{FOUNDING, Group, ms, node};

/// Members that all vote, with leases of a second.
fn group(size: u16, algorithm: Algorithm) -> Group {
    let voters = (1..=size).map(node).collect();
    Group::with_voters(size, algorithm, voters)
}

fn ask(group: &mut Group, me: u16, ticket: u64, lock: &str) {
    let wait = Wait::Cancelled;
    group.ask(me, ticket, lock, None, Mode::Exclusive, wait);
}

/// `me` holds that lock.
#[track_caller]
fn hold(group: &mut Group, me: u16, ticket: u64, lock: &str) {
    ask(group, me, ticket, lock);
    group.until_granted(ticket, ms(500));
}

/// These are in a view that is later than `epoch`.
fn go_on(group: &mut Group, epoch: u32, members: &[u16]) {
    group.until(ms(3000), |group| {
        let is_there = |&me: &u16| {
            let view = group.nodes[&node(me)].view();
            view.is_some_and(|view| {
                view.epoch.as_u32() > epoch
                    && view
                        .nodes()
                        .map(|id| id.as_u16())
                        .eq(members.iter().copied())
            })
        };
        members.iter().all(is_there)
    });
}

/// The caller is let in when the lease is over, and not before, and soon after.
#[track_caller]
fn waits_for(group: &mut Group, ticket: u64, until: Time) {
    group.until_granted(ticket, ms(15_000));
    assert!(group.now >= until, "too early");
    // A quarter of the lease, for the clocks' rates, and the time since it was renewed.
    let late = group.settings.lease / 2;
    assert!(
        group.now < until + late,
        "late: {:?}",
        group.now.since(until)
    );
    assert_eq!(group.told(ticket), Some(Previous::Abandoned));
}

/// Algorithms in which the holder of a lock knows that no other member holds it.
const VOUCHING: [Algorithm; 6] = [
    Algorithm::RicartAgrawala,
    Algorithm::Semaphore,
    Algorithm::SuzukiKasami,
    Algorithm::Lamport,
    Algorithm::TokenRing,
    Algorithm::Manager,
];

/// Member 3 dies inside of one lock. Another one is held by member 2, which hands it on at once; a
/// third has not been used before; and the lock of the dead waits for its lease.
#[test]
fn only_the_locks_that_the_lost_may_hold_wait_for_its_lease() {
    for algorithm in VOUCHING {
        let mut group = group(3, algorithm);
        group.run(FOUNDING);
        hold(&mut group, 3, 1, "lost");
        hold(&mut group, 2, 2, "held");
        let (epoch, until) = (group.epoch(1), group.lease_of(3));
        group.stop(3);
        for (ticket, lock) in [(3, "lost"), (4, "held")] {
            ask(&mut group, 1, ticket, lock);
        }
        go_on(&mut group, epoch, &[1, 2]);
        ask(&mut group, 1, 5, "new");
        assert!(group.now + ms(200) < until, "{algorithm}: not before");
        group.release(2, 2);
        group.run(ms(50));
        assert!(group.granted(4).is_some(), "{algorithm}: handed on");
        assert_eq!(group.told(4), Some(Previous::Clean));
        assert!(group.granted(5).is_some(), "{algorithm}: new");
        assert_eq!(group.granted(3), None, "{algorithm}");
        waits_for(&mut group, 3, until);
    }
}

/// All locks are declared at member 1, which dies: nobody knows of which it knew. What others hold is
/// handed on all the same.
#[test]
fn where_nobody_knows_all_locks_those_that_nobody_names_wait() {
    let mut group = group(3, Algorithm::RicartAgrawala);
    group.run(FOUNDING);
    hold(&mut group, 1, 1, "lost");
    hold(&mut group, 2, 2, "held");
    let (epoch, until) = (group.epoch(2), group.lease_of(1));
    group.stop(1);
    ask(&mut group, 3, 3, "held");
    go_on(&mut group, epoch, &[2, 3]);
    assert!(group.now + ms(200) < until);
    ask(&mut group, 3, 4, "new");
    group.release(2, 2);
    group.run(ms(50));
    assert!(group.granted(3).is_some(), "handed on");
    assert_eq!(group.granted(4), None);
    waits_for(&mut group, 4, until);
}

/// Whoever does not wait is told that the lock is held: the lost member may hold it.
#[test]
fn a_lock_in_quarantine_is_busy() {
    let mut group = group(3, Algorithm::RicartAgrawala);
    group.run(FOUNDING);
    hold(&mut group, 3, 1, "lost");
    let (epoch, until) = (group.epoch(1), group.lease_of(3));
    group.stop(3);
    go_on(&mut group, epoch, &[1, 2]);
    group.ask(1, 2, "lost", None, Mode::Exclusive, Wait::Try);
    assert_eq!(group.ended(2), Some(&Refusal::Busy), "at once");
    // A caller that gives up before the engine has heard of it leaves nothing behind.
    ask(&mut group, 1, 3, "lost");
    group.run(ms(10));
    let ticket = Ticket(3);
    group.input(node(1), Input::Command(&Command::Cancel { ticket }));
    ask(&mut group, 2, 4, "lost");
    waits_for(&mut group, 4, until);
    group.release(2, 4);
    group.run(ms(50));
    hold(&mut group, 1, 5, "lost");
}

/// The coordinator dies before it lifts the quarantine, and another one's view carries it on; or
/// members come and go meanwhile, and their views do.
#[test]
fn a_quarantine_outlives_the_view_that_began_it() {
    for lost in 1..=4 {
        let mut group = group(5, Algorithm::RicartAgrawala);
        group.run(FOUNDING);
        hold(&mut group, 5, 1, "lost");
        let (epoch, until) = (group.epoch(1), group.lease_of(5));
        group.stop(5);
        go_on(&mut group, epoch, &[1, 2, 3, 4]);
        let rest: Vec<u16> = (1..=4).filter(|&me| me != lost).collect();
        ask(&mut group, rest[0], 2, "lost");
        // One of the four leads, and is the coordinator.
        let epoch = group.epoch(rest[0]);
        group.stop(lost);
        go_on(&mut group, epoch, &rest);
        group.until_granted(2, ms(5000));
        assert!(group.now >= until, "{lost}: too early");
        assert_eq!(group.told(2), Some(Previous::Abandoned));
    }
}

/// Member 3 dies inside and is back at once, in a view that waits for its lease. It leaves in order,
/// and comes again: that says nothing of the incarnation that died.
#[test]
fn who_leaves_a_quarantine_does_not_vouch_for_the_incarnation_before() {
    let lease = ms(10_000);
    let mut group = Group::empty(3, Algorithm::RicartAgrawala, Failure::Quorum, lease);
    (1..=3).for_each(|me| group.start(me));
    group.run(lease * 5);
    hold(&mut group, 3, 1, "lost");
    let (mut epoch, until) = (group.epoch(1), group.lease_of(3));
    group.stop(3);
    ask(&mut group, 1, 2, "lost");
    for _ in 0..2 {
        group.events.retain(|(whose, _)| *whose != node(3));
        group.start(3);
        go_on(&mut group, epoch, &[1, 2, 3]);
        epoch = group.epoch(1);
        assert!(group.now + ms(50) < until, "in quarantine");
        group.leave(3);
        group.until(ms(500), |group| {
            group.events.contains(&(node(3), Event::Left))
        });
        group.stop(3);
    }
    assert!(group.now < until, "the lease is not over yet");
    waits_for(&mut group, 2, until);
}

/// Locks that member 2 has used, and no other member: some of them managed by the member that dies, for
/// which only their custodian can vouch, and the custodian has not used them.
#[test]
fn an_idle_manager_is_vouched_for() {
    for victim in [1, 3, 4] {
        let mut group = group(4, Algorithm::Manager);
        group.run(FOUNDING);
        let locks: Vec<String> = (0..40).map(|number| format!("lock {number}")).collect();
        for (ticket, lock) in (1..).zip(&locks) {
            hold(&mut group, 2, ticket, lock);
            group.release(2, ticket);
        }
        group.run(ms(100));
        let (epoch, until) = (group.epoch(2), group.lease_of(victim));
        group.stop(victim);
        let left: Vec<u16> = (1..=4).filter(|&id| id != victim).collect();
        go_on(&mut group, epoch, &left);
        for (ticket, lock) in (101..).zip(&locks) {
            ask(&mut group, left[2], ticket, lock);
        }
        group.run(ms(50));
        assert!(group.now < until, "before its lease is over");
        for (ticket, lock) in (101..).zip(&locks) {
            assert!(group.granted(ticket).is_some(), "{victim} died: {lock}");
            assert_eq!(group.told(ticket), Some(Previous::Clean), "{lock}");
        }
    }
}

/// Nobody hears that it leaves: it says so until they do, or half a second has passed.
#[test]
fn a_member_that_leaves_waits_until_the_others_know() {
    for heals in [false, true] {
        let mut group = Group::new(2, Algorithm::Semaphore);
        group.isolate(1);
        group.leave(1);
        let has_left = |group: &Group| group.events.contains(&(node(1), Event::Left));
        group.run(ms(200));
        assert!(!has_left(&group));
        if heals {
            group.heal();
        }
        let waited = group.until(ms(1000), has_left);
        assert_eq!(waited > ms(250), !heals, "{waited:?}");
    }
}
