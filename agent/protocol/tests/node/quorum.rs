//! Whole members whose views a majority of voters decides.

use std::time::Duration;

use distlock_protocol::{
    Absence, Algorithm, Event, Failure, Missing, Previous, Refusal, Release, Wait,
};

use crate::group::{FOUNDING, Group, missing, ms, node};

/// All but `voting`, which is refused where a majority decides.
pub(crate) const ALL: [Algorithm; Algorithm::ALL.len() - 1] = {
    let mut all = [Algorithm::ALL[0]; Algorithm::ALL.len() - 1];
    let (mut place, mut found) = (0, 0);
    while place < Algorithm::ALL.len() {
        if !Algorithm::ALL[place].is_probabilistic() {
            all[found] = Algorithm::ALL[place];
            found += 1;
        }
        place += 1;
    }
    assert!(found == all.len());
    all
};

pub(crate) fn group(size: u16, algorithm: Algorithm) -> Group {
    Group::with(size, algorithm, Failure::Quorum)
}

#[test]
fn all_enter_in_turn() {
    for algorithm in ALL {
        for size in [1, 2, 3, 5] {
            let mut group = group(size, algorithm);
            let all: Vec<u16> = (1..=size).collect();
            assert_eq!(group.members(1), all, "{algorithm}");
            let mut last = None;
            for me in 1..=size {
                group.acquire(me, u64::from(me), Wait::Cancelled);
            }
            for _ in 1..=size {
                group.run(ms(200));
                let inside: Vec<u16> = (1..=size)
                    .filter(|me| group.granted(u64::from(*me)) > last)
                    .collect();
                assert_eq!(inside.len(), 1, "{algorithm} {size}");
                last = group.granted(u64::from(inside[0]));
                group.release(inside[0], u64::from(inside[0]));
            }
        }
    }
}

/// The holder's lease is waited for, and nobody else needs anybody's help.
#[test]
fn another_takes_over_from_a_holder_that_died() {
    for algorithm in ALL {
        let mut group = group(3, algorithm);
        let first = group.enter(1, 1, ms(100));
        group.acquire(2, 2, Wait::Cancelled);
        group.run(ms(50));
        group.stop(1);
        // Renewed at most a fifth of a lease before.
        let took = group.until_granted(2, ms(2000));
        assert!(took > ms(700), "{algorithm} {took:?}");
        assert!(group.granted(2).unwrap() > first);
        assert_eq!(group.members(2), [2, 3]);
        // It comes back, as another incarnation.
        group.start(1);
        group.run(ms(1500));
        assert_eq!(group.members(3), [1, 2, 3], "{algorithm}");
        group.release(2, 2);
        group.acquire(1, 3, Wait::Cancelled);
        group.run(ms(200));
        assert!(group.granted(3) > group.granted(2));
    }
}

/// Its state was lost, and so it cannot know that there was an incarnation before it, whose clients
/// may be inside yet. That it was in no view and left says nothing of that one.
#[test]
fn an_incarnation_that_knew_of_none_before_it_does_not_vouch_for_one() {
    for algorithm in ALL {
        let mut group = group(3, algorithm);
        group.enter(1, 1, ms(100));
        group.acquire(2, 2, Wait::Cancelled);
        group.run(ms(50));
        group.lose(1);
        let died = group.now;
        group.isolate(1);
        group.start(1);
        group.leave(1);
        let left = (node(1), Event::Left);
        group.until(ms(500), |group| group.events.contains(&left));
        group.stop(1);
        assert!(!group.records[&node(1)].clean, "{algorithm}");
        group.heal();
        group.start(1);
        group.until_granted(2, ms(2500));
        let took = group.now.since(died);
        assert!(took > ms(700) && took < ms(2500), "{algorithm} {took:?}");
        assert_eq!(group.told(2), Some(Previous::Abandoned), "{algorithm}");
    }
}

/// A member that comes back at once is talked to before a view has it in this incarnation.
#[test]
fn an_incarnation_is_in_a_view_when_that_has_it() {
    let mut group = group(3, Algorithm::RicartAgrawala);
    assert!((1..=3).all(|me| group.nodes[&node(2)].is_in_view(node(me))));
    let epoch = group.epoch(2);
    group.start(1);
    let is_in = |group: &Group| group.nodes[&node(2)].is_in_view(node(1));
    group.until(ms(1000), |group| !is_in(group));
    assert_eq!(group.epoch(2), epoch, "its greeting tells");
    group.run(ms(3000));
    assert!(is_in(&group));
    assert!(group.epoch(2) > epoch);
}

/// However closely they follow each other, nobody takes anything along that nobody knew.
#[test]
fn who_begins_after_all_have_left_in_order_is_told_no_tales() {
    for algorithm in ALL {
        for apart in (0..60).step_by(6) {
            let mut group = group(3, algorithm);
            group.enter(1, 1, ms(100));
            group.release(1, 1);
            for me in 1..=3 {
                group.leave(me);
                group.run(ms(apart));
            }
            group.run(ms(3000));
            let is_left = |(_, event): &&(_, Event)| *event == Event::Left;
            assert_eq!(group.events.iter().filter(is_left).count(), 3);
            (1..=3).for_each(|me| group.start(me));
            group.acquire(2, 2, Wait::Cancelled);
            group.run(ms(2000));
            let told = group.told(2);
            assert_eq!(told, Some(Previous::Clean), "{algorithm}, {apart} ms apart");
        }
    }
}

/// All who know that a holder ended inside leave in order, and who is left has just come.
#[test]
fn marks_do_not_go_with_the_last_who_know_them() {
    for algorithm in ALL {
        let mut alone = 0;
        for later in (0..100).step_by(5) {
            let mut group = group(3, algorithm);
            group.enter(1, 1, ms(100));
            group.release_as(1, 1, Release::Abandoned);
            // The view that goes on without it tells both others.
            group.leave(3);
            group.run(ms(100));
            group.start(3);
            group.run(ms(later));
            for me in [1, 2] {
                group.leave(me);
            }
            group.acquire(3, 3, Wait::Cancelled);
            group.run(ms(2000));
            let told = group.told(3);
            alone += u32::from(told.is_some());
            assert_ne!(told, Some(Previous::Clean), "{algorithm}, {later} ms later");
        }
        assert!(alone > 0, "{algorithm}");
    }
}

/// Who was seen outside need not be waited for.
#[test]
fn an_idle_member_that_died_holds_nobody_up() {
    for algorithm in [Algorithm::RicartAgrawala, Algorithm::Bakery] {
        let mut group = group(3, algorithm);
        for (me, ticket) in [(3, 1), (2, 2)] {
            group.acquire(me, ticket, Wait::Cancelled);
            group.run(ms(50));
            group.release(me, ticket);
        }
        group.acquire(2, 3, Wait::Cancelled);
        group.run(ms(50));
        group.stop(3);
        group.release(2, 3);
        group.acquire(1, 4, Wait::Cancelled);
        group.until_granted(4, ms(800));
    }
}

#[test]
fn a_member_that_leaves_is_gone_at_once() {
    for algorithm in ALL {
        for leaver in [1, 3] {
            let mut group = group(3, algorithm);
            group.acquire(leaver, 1, Wait::Cancelled);
            group.run(ms(100));
            group.acquire(2, 2, Wait::Cancelled);
            group.run(ms(50));
            group.leave(leaver);
            group.run(ms(50));
            assert!(group.granted(2).is_some(), "{algorithm} {leaver}");
            group.run(ms(100));
            let is_left = |(who, event): &(_, Event)| *who == node(leaver) && *event == Event::Left;
            assert!(group.events.iter().any(is_left), "{algorithm} {leaver}");
            assert_eq!(group.members(2).len(), 2);
        }
    }
}

/// On slow disks it goes before the view without it is in force, and that may be the one who was to see to it.
#[test]
fn a_member_that_leaves_takes_no_lease_with_it_though_disks_are_slow() {
    for leaver in 1..=4 {
        for disk in [50, 80, 110] {
            let mut group = group(4, Algorithm::Manager);
            group.disk = ms(disk);
            group.run(ms(1000));
            leave_no_lease_behind(&mut group, leaver, &format!("disks take {disk} ms"));
            assert_eq!(group.members(1 + leaver % 4).len(), 3, "{leaver} {disk}");
        }
    }
}

/// A member that was left out comes back in another session, and is the same voter. It may be the coordinator of the view
/// without the member that leaves; or it leads, and leaves itself.
#[test]
fn a_member_that_leaves_takes_no_lease_with_it_after_others_came_back() {
    for returned in 1..=4 {
        for leaver in 1..=4 {
            let mut group = group(4, Algorithm::Manager);
            group.disk = ms(80);
            group.run(ms(1000));
            group.isolate(returned);
            let other = 1 + returned % 4;
            group.until(ms(5000), |group| group.members(other).len() == 3);
            group.heal();
            group.until(ms(5000), |group| group.members(other).len() == 4);
            group.run(ms(1000));
            leave_no_lease_behind(&mut group, leaver, &format!("{returned} came back"));
        }
    }
}

/// One of four members leaves, and its process ends. The others keep their leases.
fn leave_no_lease_behind(group: &mut Group, leaver: u16, when: &str) {
    group.leave(leaver);
    let left = (node(leaver), Event::Left);
    group.until(ms(1000), |group| group.events.contains(&left));
    group.stop(leaver);
    for _ in 0..3000 {
        group.run(ms(1));
        for other in (1..=4).filter(|other| *other != leaver) {
            let keeps = group.lease_of(other) > group.now;
            assert!(keeps, "{leaver} leaves, {when}: {other} loses its lease");
        }
    }
}

/// What member 1 was told is missing, each time.
fn told_missing(group: &Group) -> Vec<Vec<Missing>> {
    let told = group.events.iter();
    let told = told.filter_map(|(whose, event)| match event {
        Event::Quorum(quorum) if *whose == node(1) => Some(quorum.missing.clone()),
        _ => None,
    });
    told.collect()
}

/// What is missing is told when it has been for a lease, again when it is others, and when nothing is.
#[test]
fn who_is_missing_is_told_once() {
    let mut group = group(3, Algorithm::Manager);
    group.events.clear();
    group.isolate(1);
    group.run(ms(10_000));
    let all = [missing(&[2, 3], Absence::Silent), Vec::new()];
    assert_eq!(told_missing(&group), all[..1]);
    group.heal();
    group.run(ms(5000));
    assert_eq!(told_missing(&group), all);
}

/// That it is others is told a lease after the last time, and not earlier.
#[test]
fn who_is_missing_is_told_at_most_once_a_lease() {
    let mut group = group(5, Algorithm::Manager);
    group.events.clear();
    for gone in [3, 4, 5] {
        group.stop(gone);
    }
    group.until(ms(10_000), |group| told_missing(group).len() == 1);
    group.stop(2);
    let took = group.until(ms(10_000), |group| told_missing(group).len() == 2);
    assert!((ms(1000)..ms(1200)).contains(&took), "{took:?}");
    let all = [&[3, 4, 5][..], &[2, 3, 4, 5]].map(|ids| missing(ids, Absence::Silent));
    assert_eq!(told_missing(&group), all);
}

/// The minority's lease ends, its holder hears of it, the majority goes on; then all are together.
#[test]
fn a_minority_stops_and_comes_back_anew() {
    for algorithm in ALL {
        let mut group = group(3, algorithm);
        group.acquire(1, 1, Wait::Cancelled);
        group.run(ms(100));
        group.isolate(1);
        group.acquire(1, 4, Wait::Lease);
        group.enter(2, 2, ms(1400));
        let lost = |(_, event): &(_, Event)| matches!(event, Event::Lost { .. });
        let told = group.events.iter().any(lost);
        assert!(!told, "its lease alone tells so far");
        group.run(ms(2000));
        let missing = missing(&[2, 3], Absence::Silent);
        assert_eq!(group.ended(4), Some(&Refusal::NoQuorum { missing }));
        group.heal();
        group.run(ms(3000));
        assert_eq!(group.events.iter().filter(|it| lost(it)).count(), 1);
        let excluded = |(_, event): &(_, Event)| matches!(event, Event::Excluded { .. });
        assert_eq!(group.events.iter().filter(|it| excluded(it)).count(), 1);
        group.are_together(&[1, 2, 3]);
        group.release(2, 2);
        group.acquire(1, 5, Wait::Cancelled);
        group.run(ms(300));
        assert!(group.granted(5) > group.granted(2), "{algorithm}");
    }
}

/// A caller that waits in a member which is excluded goes on waiting in its next incarnation.
#[test]
fn who_waits_waits_on() {
    let mut group = group(3, Algorithm::RicartAgrawala);
    group.acquire(2, 2, Wait::Cancelled);
    group.run(ms(100));
    group.acquire(1, 1, Wait::Cancelled);
    group.run(ms(50));
    group.isolate(1);
    group.run(ms(3000));
    group.heal();
    group.run(ms(2000));
    group.release(2, 2);
    group.run(ms(300));
    assert!(group.granted(1) > group.granted(2));
}

/// With nobody's majority there is nothing, and with it all is as it was.
#[test]
fn without_any_majority_all_stop_and_nothing_is_lost() {
    let mut group = group(3, Algorithm::Semaphore);
    group.acquire(1, 1, Wait::Cancelled);
    group.run(ms(100));
    for one in 1..=3 {
        group.isolate(one);
    }
    group.acquire(2, 2, Wait::Cancelled);
    group.run(ms(5000));
    assert_eq!(group.granted(2), None);
    let epoch = group.epoch(1);
    group.heal();
    group.run(ms(1500));
    assert_eq!(group.epoch(1), epoch, "nobody was excluded");
    assert!(!group.lost(1));
    group.release(1, 1);
    group.run(ms(200));
    assert!(group.granted(2) > group.granted(1));
}

/// Groups that were stopped in order begin again without waiting for leases, also alone.
#[test]
fn what_was_stopped_in_order_begins_at_once() {
    for size in [1, 3] {
        let mut group = group(size, Algorithm::RicartAgrawala);
        let mut last = None;
        for round in 1..=20 {
            group.acquire(1, round, Wait::Cancelled);
            // An election takes half a lease.
            group.run(ms(1000));
            assert!(group.granted(round) > last, "{size} {round}");
            last = group.granted(round);
            for me in 1..=size {
                group.leave(me);
                group.run(ms(600));
            }
            for me in 1..=size {
                group.start(me);
            }
        }
    }
}

/// All crash, again and again: leases are waited for, and fences rise.
#[test]
fn fences_rise_over_total_restarts() {
    for size in [1, 3] {
        let mut group = group(size, Algorithm::TokenRing);
        let mut last = None;
        for round in 1..=20 {
            let began = group.now;
            group.acquire(1, round, Wait::Cancelled);
            while group.granted(round).is_none() {
                group.run(ms(10));
                assert!(group.now.since(began) < ms(3000), "{size} {round}");
            }
            if round > 1 {
                let waited = group.now.since(began);
                assert!(waited > ms(1200), "{size} {round} {waited:?}");
            }
            assert!(group.granted(round) > last);
            last = group.granted(round);
            for me in 1..=size {
                group.start(me);
            }
        }
    }
}
/// However close to each other they start: when no lease of a former cluster can run any more, they
/// found one, and not before.
#[test]
fn a_group_that_is_new_begins_soon() {
    for stagger in [0, 5, 30, 100, 250, 700] {
        let lease = Duration::from_secs(5);
        let mut group = Group::empty(4, Algorithm::RicartAgrawala, Failure::Quorum, lease);
        let mut all = group.now;
        for me in 1..=4 {
            all = group.now;
            group.start(me);
            group.run(ms(stagger));
        }
        let is_whole = |group: &Group| {
            let view = |me| group.view(me).map(|(_, members)| members);
            (1..=4).all(|me| view(me) == Some(vec![1, 2, 3, 4]))
        };
        let wait = lease * 11 / 9;
        while !is_whole(&group) {
            group.run(ms(10));
            assert!(group.now.since(all) < wait + ms(1000), "{stagger}");
        }
        assert!(group.now.since(all) >= wait, "{stagger}");
    }
}

/// One broken connection, in one direction or both, from the start or later: nobody is excluded, and
/// both ends take turns, by way of the third.
#[test]
fn a_broken_connection_is_gone_round() {
    for algorithm in ALL {
        for cut in [
            &[(1, 2), (2, 1)][..],
            &[(1, 2)],
            &[(2, 1)],
            &[(3, 1), (1, 3)],
        ] {
            for from_start in [true, false] {
                let lease = Duration::from_secs(1);
                let mut group = Group::empty(3, algorithm, Failure::Quorum, lease);
                let mut pairs = cut.iter().map(|&(from, to)| (node(from), node(to)));
                if from_start {
                    group.cut.extend(&mut pairs);
                }
                (1..=3).for_each(|me| group.start(me));
                group.run(ms(3000) + FOUNDING);
                let epoch = group.view(1).expect("a view");
                group.cut.extend(pairs);
                assert_eq!(epoch.1, [1, 2, 3], "{algorithm} {cut:?} {from_start}");
                group.run(ms(3000));
                for round in 1..=6 {
                    let me = (round % 3 + 1) as u16;
                    group.acquire(me, round, Wait::Cancelled);
                    group.run(ms(300));
                    assert!(group.granted(round).is_some(), "{algorithm} {cut:?} {me}");
                    group.release(me, round);
                }
                group.run(ms(3000));
                assert_eq!(group.view(1), Some(epoch), "{algorithm} {cut:?}");
                // When it is whole again, nobody passes anything on any more.
                group.heal();
                group.run(ms(2000));
                let sent = group.sent.len();
                group.run(ms(2000));
                let is_passed = |bytes: &[u8]| bytes[2] & 6 != 0;
                let passed = group.sent[sent..].iter().filter(|it| is_passed(&it.2));
                assert_eq!(passed.count(), 0);
            }
        }
    }
}

/// Each reaches its two neighbours alone, and everybody sees another majority. Of two that pass on
/// what goes to one further away only one reaches it: they are asked together, not one after the
/// other.
#[test]
fn a_ring_of_five_is_gone_round() {
    let order = [3, 5, 2, 4, 1];
    for algorithm in ALL {
        let mut group = Group::with(5, algorithm, Failure::Quorum);
        let epoch = group.view(1);
        for (place, &from) in order.iter().enumerate() {
            for further in [2, 3] {
                let to = order[(place + further) % order.len()];
                group.cut.insert((node(from), node(to)));
            }
        }
        group.run(ms(3000));
        for round in 1..=10 {
            group.acquire((round % 5 + 1) as u16, round, Wait::Cancelled);
            group.run(ms(50));
            assert!(group.granted(round).is_some(), "{algorithm} {round}");
            group.release((round % 5 + 1) as u16, round);
        }
        assert_eq!(group.view(1), epoch, "{algorithm}");
    }
}

/// Each that comes is in a view of its own, which comes before the one in which the locks open again.
#[test]
fn who_comes_meanwhile_lengthens_no_lock_delay() {
    let algorithm = Algorithm::RicartAgrawala;
    let mut group = Group::empty(5, algorithm, Failure::Quorum, Duration::from_secs(1));
    group.settings.lock_delay = ms(5000);
    group.voters = (1..=3).map(node).collect();
    (1..=5).for_each(|me| group.start(me));
    group.run(FOUNDING + ms(1500));
    for me in [4, 5] {
        group.leave(me);
        group.run(ms(1500));
        group.stop(me);
    }
    group.enter(1, 1, ms(100));
    group.acquire(2, 2, Wait::Cancelled);
    group.run(ms(50));
    group.stop(1);
    let died = group.now;
    for comes in [4, 5] {
        group.run(ms(2500));
        group.start(comes);
    }
    while group.granted(2).is_none() {
        group.run(ms(1));
        let waited = group.now.since(died);
        assert!(waited < ms(7000), "{waited:?}");
    }
    let waited = group.now.since(died);
    assert!(waited > ms(5700), "{waited:?}");
}

/// Leases are renewed beside the locks: an entry takes the same datagrams as where nobody votes.
#[test]
fn an_entry_takes_not_one_datagram_more() {
    for algorithm in ALL {
        let frames = |failure| {
            let mut group = Group::with(3, algorithm, failure);
            group.acquire(1, 1, Wait::Cancelled);
            group.run(ms(50));
            group.release(1, 1);
            group.run(ms(50));
            let before = group.sent.len();
            for entry in 2..=100 {
                let me = (entry % 3 + 1) as u16;
                group.enter(me, entry, ms(10));
                group.release(me, entry);
                group.run(ms(10));
            }
            // Of those that are repeated until they arrive.
            let is_frames = |bytes: &[u8]| bytes[1] == 1;
            let sent = group.sent[before..].iter();
            sent.filter(|(_, _, bytes)| is_frames(bytes)).count()
        };
        let (by_quorum, by_all) = (frames(Failure::Quorum), frames(Failure::Unanimity));
        assert!(
            by_quorum <= by_all,
            "{algorithm}: {by_quorum}, not {by_all}"
        );
    }
}

/// However much gets lost, members that live are hardly ever excluded: what nobody answers is
/// repeated long before they would be missed.
#[test]
fn who_is_hard_to_hear_stays() {
    for size in [3, 5] {
        let mut group = group(size, Algorithm::RicartAgrawala);
        let (before, _) = group.view(1).expect("a view");
        group.loss = 38;
        group.run(Duration::from_secs(60));
        let (after, _) = group.view(1).expect("a view");
        assert!(after - before < 10, "{size}: {} views", after - before);
    }
}

/// Where nothing gets lost nothing is repeated.
#[test]
fn a_lease_takes_five_renewal_requests() {
    let mut group = group(3, Algorithm::RicartAgrawala);
    group.run(ms(1000));
    let sent = group.sent.len();
    group.run(Duration::from_secs(10));
    // Of each to both others: in a lease five renewal requests, as many answers, ten statuses of the
    // voter, and the log's twenty heartbeats between its leader and the others, each with its answer.
    let in_a_lease = 6 * 5 + 6 * 5 + 6 * 10 + 4 * 20;
    assert_eq!(group.sent.len() - sent, 10 * in_a_lease);
}

/// It ended without a word once, and the view that took it in again has waited for its lease.
#[test]
fn a_member_that_leaves_in_order_has_ended_well_whatever_was_before() {
    let mut group = group(3, Algorithm::Semaphore);
    group.stop(3);
    group.run(ms(3000));
    group.start(3);
    group.run(ms(3000));
    group.are_together(&[1, 2, 3]);
    group.leave(3);
    group.run(ms(3000));
    assert!(group.records[&node(3)].clean);
}
