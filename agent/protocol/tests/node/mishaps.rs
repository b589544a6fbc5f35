//! Mishaps of doc/faults.md that no other test has for itself, each by its number there.

use std::time::Duration;

use distlock_protocol::{Algorithm, Command, Event, Failure, Fence, Input, Refusal, Ticket, Wait};

use crate::group::{FOUNDING, Group, ms, node};
use crate::quorum::{ALL, group};

/// All members enter once, one after the other, with fences above `above`.
#[track_caller]
fn all_enter(group: &mut Group, size: u16, first: u64, above: Option<Fence>) {
    let mut above = above;
    for me in 1..=size {
        let ticket = first + u64::from(me);
        group.acquire(me, ticket, Wait::Cancelled);
        group.until_granted(ticket, ms(3000));
        assert!(group.granted(ticket) > above, "{me}");
        above = group.granted(ticket);
        group.release(me, ticket);
    }
}

/// Mishap 9. The state file of a voter is one of long ago: it is another incarnation, and those who
/// remember tell it what has been since. (Of what it alone with others who were not there had
/// endorsed meanwhile, nothing is promised.)
#[test]
fn a_voter_with_an_old_state_is_told_what_has_been_since() {
    for algorithm in ALL {
        let mut group = group(3, algorithm);
        all_enter(&mut group, 3, 10, None);
        let old = group.records[&node(3)].clone();
        for _ in 0..3 {
            group.stop(2);
            group.run(ms(2500));
            group.start(2);
            group.run(ms(2500));
        }
        let held = group.enter(1, 1, ms(100));
        let epoch = group.epoch(1);
        assert!(epoch > old.epoch.as_u32() + 3, "it is old");

        group.stop(3);
        group.records.insert(node(3), old);
        group.start(3);
        group.acquire(3, 3, Wait::Cancelled);
        group.run(ms(3000));
        assert_eq!(group.granted(3), None, "1 is inside: {algorithm}");
        assert!(!group.lost(1));
        for me in 1..=3 {
            let (now, members) = group.view(me).expect("a view");
            assert!(now > epoch && members == [1, 2, 3], "{algorithm} {me}");
        }
        group.release(1, 1);
        group.until_granted(3, ms(500));
        assert!(group.granted(3) > Some(held), "{algorithm}");
    }
}

/// Mishap 11. A holder whose clock runs at a third of its rate takes its lease for valid long after
/// the others have waited for it; its fence is the lower one.
#[test]
fn fences_tell_two_holders_apart_whose_clocks_are_too_far_apart() {
    for algorithm in ALL {
        let mut group = group(3, algorithm);
        group.slow_down(1, 3);
        // Renewals come more rarely by that clock, but often enough to stay.
        group.run(ms(2000));
        group.acquire(1, 1, Wait::Cancelled);
        group.until_granted(1, ms(500));
        group.isolate(1);
        group.acquire(2, 2, Wait::Cancelled);
        group.until_granted(2, ms(2500));
        let both = group.clock(1) < group.lease_of(1) && !group.lost(1);
        assert!(both, "two take their locks for valid: {algorithm}");
        assert!(group.granted(2) > group.granted(1), "{algorithm}");
        group.release(2, 2);
        group.heal();
        group.until(ms(5000), |group| group.lost(1));
        let second = group.granted(2);
        all_enter(&mut group, 3, 10, second);
    }
}

/// Mishap 18. The server of a lock has decided who is next, and dies before it has said so.
#[test]
fn a_grant_that_died_with_its_server_is_given_once_by_the_next_view() {
    let mut servers = 0;
    for server in 1..=3 {
        let others: Vec<u16> = (1..=3).filter(|me| *me != server).collect();
        let (holder, waiter) = (others[0], others[1]);
        let mut group = group(3, Algorithm::Semaphore);
        group.acquire(holder, 1, Wait::Cancelled);
        group.run(ms(100));
        group.acquire(waiter, 2, Wait::Cancelled);
        group.run(ms(100));
        assert!(group.granted(1).is_some() && group.granted(2).is_none());
        for other in others {
            group.cut.insert((node(server), node(other)));
        }
        let before = group.sent.len();
        group.release(holder, 1);
        // The release is there after one, the grant would be after two.
        group.run(Duration::from_micros(1500));
        let is_grant = |(from, to, bytes): &(_, _, Vec<u8>)| {
            // Of those that are repeated until they arrive.
            (*from, *to) == (node(server), node(waiter)) && bytes[1] == 1
        };
        let decided = group.sent[before..].iter().any(is_grant);
        servers += usize::from(decided);
        group.stop(server);
        group.run(ms(2500));
        assert_eq!(group.entries(2), 1, "server {server}");
        assert!(group.granted(2) > group.granted(1));
        // And it is the only one inside, in the books of the next server too.
        group.acquire(holder, 3, Wait::Cancelled);
        group.run(ms(500));
        assert_eq!(group.granted(3), None);
        group.release(waiter, 2);
        group.run(ms(100));
        assert!(group.granted(3) > group.granted(2));
    }
    assert_eq!(servers, 1, "one of them serves it, and had decided");
}

/// Mishap 30. Who hears nobody cannot be renewed, and who is heard by nobody is not: both are as
/// gone as a minority of one, with their lock, and come back as another incarnation.
#[test]
fn a_member_that_hears_nobody_or_is_heard_by_nobody_is_excluded() {
    for algorithm in ALL {
        for is_deaf in [true, false] {
            let mut group = group(3, algorithm);
            group.acquire(1, 1, Wait::Cancelled);
            group.run(ms(100));
            for other in [2, 3] {
                let lost = if is_deaf { (other, 1) } else { (1, other) };
                group.cut.insert((node(lost.0), node(lost.1)));
            }
            group.acquire(2, 2, Wait::Cancelled);
            let what = format!("{algorithm}, deaf: {is_deaf}");
            let began = group.now;
            while group.granted(2).is_none() {
                group.run(ms(1));
                assert!(group.now.since(began) < ms(4000), "{what}");
            }
            assert!(
                group.lease_of(1) < group.now,
                "nobody else is inside: {what}"
            );
            assert!(group.granted(2) > group.granted(1), "{what}");
            assert_eq!(group.members(2), [2, 3], "{what}");
            group.heal();
            group.run(ms(3000));
            assert!(group.lost(1), "{what}");
            assert_eq!(group.members(2), [1, 2, 3], "{what}");
            group.release(2, 2);
            let second = group.granted(2);
            all_enter(&mut group, 3, 10, second);
        }
    }
}

/// Mishap 33. Member 3 comes and goes, so quickly that it is hardly missed, and so slowly that it
/// is excluded each time.
#[test]
fn flapping_costs_at_most_a_view_a_second_and_nobody_else_their_places() {
    for algorithm in [Algorithm::Semaphore, Algorithm::Bakery] {
        let mut most = 0;
        for period in [100, 700, 2600] {
            let mut group = group(4, algorithm);
            group.acquire(1, 1, Wait::Cancelled);
            group.run(ms(100));
            group.acquire(2, 2, Wait::Cancelled);
            group.run(ms(100));
            group.acquire(4, 4, Wait::Cancelled);
            let (began, first) = (group.now, group.epoch(1));
            while group.now.since(began) < ms(11_000) {
                group.isolate(3);
                group.run(ms(period));
                group.heal();
                group.run(ms(period));
            }
            group.run(ms(4000));
            let views = group.epoch(1) - first;
            most = most.max(views);
            // A few may come ahead of the pace.
            let seconds = group.now.since(began).as_secs();
            assert!(u64::from(views) <= seconds + 4, "{period}: {views}");
            assert!(!group.lost(1), "{algorithm} {period}");
            assert_eq!(group.members(1), [1, 2, 3, 4]);
            assert!(group.granted(2).is_none() && group.granted(4).is_none());
            for (mine, me) in [(1, 1), (2, 2)] {
                group.release(me, mine);
                group.run(ms(200));
            }
            assert!(group.granted(2) > group.granted(1), "{algorithm} {period}");
            assert!(group.granted(4) > group.granted(2), "{algorithm} {period}");
            group.release(4, 4);
            let last = group.granted(4);
            all_enter(&mut group, 4, 10, last);
        }
        assert!(most >= 2, "some were excluded: {most} {algorithm}");
    }
}

/// Mishap 40. Whatever was sent within more than a lease before arrives once more, or for the first
/// time: member 1 was inside and cut off, has been excluded and is back; member 2 is inside.
#[test]
fn what_was_under_way_for_longer_than_a_lease_is_stale() {
    for algorithm in ALL {
        let mut group = group(3, algorithm);
        for round in 0..3 {
            all_enter(&mut group, 3, 100 + round * 10, None);
        }
        group.acquire(1, 1, Wait::Cancelled);
        group.run(ms(100));
        group.isolate(1);
        for (me, ticket) in [(2, 2), (3, 3)] {
            group.acquire(me, ticket, Wait::Cancelled);
        }
        group.run(ms(50));
        // Inside or not, it may still be so until its lease is over.
        group.release(1, 1);
        group.acquire(1, 4, Wait::Cancelled);
        let late = group.sent.len();
        group.run(ms(1500));
        let inside = if group.entries(2) == 1 { 2 } else { 3 };
        let count = |group: &Group| (2..=4).map(|it| group.entries(it)).sum::<usize>();
        let others = group.entries(5 - inside);
        assert_eq!((group.entries(inside), others), (1, 0), "{algorithm}");
        let before = count(&group);
        for is_back in [false, true] {
            if is_back {
                group.heal();
                group.run(ms(2500));
                assert_eq!(group.members(2), [1, 2, 3]);
            }
            for (from, to, bytes) in &group.sent.clone()[..late] {
                let (from, to) = (*from, *to);
                group.input(to, Input::Datagram { from, bytes });
            }
            group.run(ms(1500));
            assert_eq!(count(&group), before, "{algorithm}: nobody else entered");
            assert!(!group.lost(inside), "{algorithm}");
        }
        group.release(inside as u16, inside);
        let mut last = group.granted(inside);
        let waits = |ticket: &u64| group.entries(*ticket) == 0;
        let waiters: Vec<u64> = [5 - inside, 4].into_iter().filter(waits).collect();
        for _ in &waiters {
            group.run(ms(500));
            let next = waiters.iter().find(|it| group.granted(**it) > last);
            let next = *next.expect("all enter in turn");
            last = group.granted(next);
            group.release(if next == 4 { 1 } else { next as u16 }, next);
        }
        group.run(ms(100));
        all_enter(&mut group, 3, 200, last);
    }
}

/// Mishap 60. As many as there is room for wait, the others are told; some enter, the rest give up,
/// and nothing is left.
#[test]
fn a_hundred_thousand_waiters_of_one_member_are_bounded_and_leave_nothing() {
    const WAITERS: u64 = 100_000;
    const ROOM: u64 = 65_536;
    const ENTER: u64 = 1_000;
    let mut group = group(2, Algorithm::Semaphore);
    group.acquire(1, WAITERS + 1, Wait::Cancelled);
    group.run(ms(100));
    let sent = group.sent.len();
    for ticket in 1..=WAITERS {
        group.acquire(2, ticket, Wait::Cancelled);
    }
    let refused = |group: &Group| {
        let limit = |(_, event): &&(_, Event)| {
            matches!(
                event,
                Event::Ended {
                    refusal: Refusal::Limit,
                    ..
                }
            )
        };
        group.events.iter().filter(limit).count() as u64
    };
    assert_eq!(refused(&group), WAITERS - ROOM);
    assert!(
        group.sent.len() < sent + 10,
        "one asks for all of them: {}",
        group.sent.len() - sent
    );
    group.events.clear();
    group.release(1, WAITERS + 1);
    let mut last = None;
    for ticket in 1..=ENTER {
        while group.events.is_empty() || group.granted(ticket).is_none() {
            group.run(ms(1));
        }
        assert!(group.granted(ticket) > last);
        last = group.granted(ticket);
        group.events.clear();
        group.release(2, ticket);
    }
    for ticket in ENTER + 1..=ROOM {
        let ticket = Ticket(ticket);
        group.input(node(2), Input::Command(&Command::Cancel { ticket }));
    }
    group.run(ms(1000));
    for me in 1..=2 {
        let mut locks = group.nodes[&node(me)].locks();
        let idle =
            locks.all(|lock| lock.holders().next().is_none() && lock.waiters().next().is_none());
        assert!(idle, "{me}");
    }
}

/// Where all are needed, and all have lost what they knew, the epochs go on by the wall clock.
#[test]
fn fences_rise_where_all_are_needed_and_all_is_lost() {
    for algorithm in ALL {
        let mut group = Group::new(3, algorithm);
        let before = group.enter(1, 1, ms(1000));
        (1..=3).for_each(|me| group.lose(me));
        group.run(ms(5000));
        (1..=3).for_each(|me| group.start(me));
        group.run(ms(8000));
        let after = group.enter(2, 2, ms(1000));
        assert!(after > before, "{algorithm}: {after}, {before}");
    }
}

/// Mishap 61. A view forgets the names that nobody uses. Who uses one again gets a higher fence
/// than anybody had before, whichever member it is.
#[test]
fn fences_of_a_name_that_was_forgotten_go_on_rising() {
    for algorithm in ALL {
        let mut group = group(3, algorithm);
        let mut last = None;
        for round in 0..3 {
            all_enter(&mut group, 3, 10 * round, last);
            let fences = (1..=3).map(|me| group.granted(10 * round + me));
            last = fences.max().expect("three");
            group.leave(3);
            group.run(ms(1000));
            group.start(3);
            group.run(ms(2000));
            for me in 1..=3 {
                let known = group.nodes[&node(me)].locks().count();
                assert_eq!(known, 0, "member {me} has forgotten it");
            }
        }
    }
}

/// Who alone votes wakes twice in a short time. It has heard nobody meanwhile, itself not either, and
/// says nothing by that: whose lease is over goes on in a new one.
#[test]
fn a_voter_that_stood_still_misses_nobody() {
    for size in [1, 2] {
        for pause in [600, 3000] {
            let mut group = Group::empty(size, Algorithm::Semaphore, Failure::Quorum, ms(1000));
            group.voters = [node(1)].into();
            (1..=size).for_each(|me| group.start(me));
            group.run(FOUNDING + ms(1500));
            group.enter(size, 1, ms(100));
            for awake in [20, 1000] {
                // Its host stands still, and so does all that is on the way.
                group.now = group.now + ms(pause);
                group.run(ms(awake));
            }
            assert!(!group.lost(1), "{size} members, {pause} ms");
            group.release(size, 1);
            let held = group.granted(1);
            all_enter(&mut group, size, 10, held);
        }
    }
}
