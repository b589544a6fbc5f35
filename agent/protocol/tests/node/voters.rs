//! Voters that operators name, and that lose their states.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_protocol::{
    Absence, Affiliation, Algorithm, Change, ClusterId, Event, Failure, Record, Refusal, Wait,
};

use crate::group::{Group, missing, ms, node};
use crate::quorum::{ALL, group};

/// An operator says at these members, whose states are lost, that their cluster is abandoned.
pub(crate) fn recover(group: &mut Group, lost: &[u16], cluster: ClusterId) {
    for &me in lost {
        let record = Record::recover_lost(cluster, &group.voters);
        group.stop(me);
        group.records.insert(node(me), record);
        group.start(me);
    }
}

/// An operator names others, of whom none has voted before: one voter comes or goes in a view, and
/// the group goes on meanwhile.
#[test]
fn voters_that_an_operator_names_vote() {
    for (before, after) in [
        (&[1, 2, 3][..], &[1][..]),
        (&[1], &[1, 2, 3]),
        (&[1, 2, 3], &[4, 5, 6]),
    ] {
        let voters = |ids: &[u16]| ids.iter().copied().map(node).collect();
        let mut group = Group::with_voters(6, Algorithm::Semaphore, voters(before));
        group.change(6, Change::Voters(voters(after)));
        let votes = after.iter().map(|&id| (node(id), true)).collect();
        let began = group.now;
        for ticket in 1.. {
            group.acquire(6, ticket, Wait::Cancelled);
            group.run(ms(1000));
            assert!(group.granted(ticket).is_some(), "{before:?} {after:?}");
            group.release(6, ticket);
            if (1..=6).all(|me| group.votes(me) == votes) {
                break;
            }
            assert!(group.now.since(began) < ms(20_000), "{before:?} {after:?}");
        }
        // Those who voted are needed no more.
        for &gone in before.iter().filter(|id| !after.contains(id)) {
            group.stop(gone);
        }
        group.run(ms(4000));
        group.acquire(after[0], 100, Wait::Lease);
        group.run(ms(500));
        assert!(group.granted(100).is_some(), "{before:?} {after:?}");
    }
}

/// `voters` in a file counts when the group is founded, and never again.
#[test]
fn other_voters_in_the_files_change_nothing() {
    for after in [&[1][..], &[1, 2], &[3, 4], &[2, 3, 4]] {
        let voters = |ids: &[u16]| ids.iter().copied().map(node).collect();
        let mut group = Group::with_voters(4, Algorithm::Semaphore, voters(&[1, 2, 3]));
        let cluster = group.cluster_of(1);
        assert!(cluster.is_some());
        group.voters = voters(after);
        for me in [4, 3, 2, 1] {
            group.stop(me);
            group.run(ms(500));
            group.start(me);
            group.run(ms(4000));
        }
        let votes = [1, 2, 3].map(|id| (node(id), true)).into();
        for me in 1..=4 {
            assert_eq!(group.votes(me), votes, "{after:?}");
            assert_eq!(group.cluster_of(me), cluster);
        }
    }
}

/// What is shown of it: it does not vote, until two views have put it in its own place.
#[test]
fn a_voter_that_lost_its_state_is_known_not_to_vote_until_it_does() {
    let mut group = group(3, Algorithm::Semaphore);
    let all = [1, 2, 3].map(|id| (node(id), true)).into();
    for me in 1..=3 {
        assert_eq!(group.votes(me), all, "{me}");
    }
    group.lose(2);
    group.start(2);
    let mut seen = [false; 2];
    for _ in 0..300 {
        group.run(ms(10));
        for (seen, me) in seen.iter_mut().zip([1, 2]) {
            let votes = group.votes(me);
            *seen |= votes.get(&node(2)) == Some(&false);
            assert_ne!(votes.get(&node(1)), Some(&false), "{me}");
        }
    }
    assert_eq!(seen, [true; 2], "it is told");
    for me in 1..=3 {
        assert_eq!(group.votes(me), all, "{me}");
    }
}

/// Who waits for what cannot come is told so, though all voters answer.
#[test]
fn voters_that_lost_their_states_are_no_quorum() {
    for running in [false, true] {
        let mut group = group(3, Algorithm::Semaphore);
        for lost in [1, 2] {
            group.lose(lost);
        }
        if !running {
            group.start(3);
        }
        [1, 2].into_iter().for_each(|lost| group.start(lost));
        for me in 1..=3 {
            group.acquire(me, u64::from(me), Wait::Lease);
        }
        group.run(ms(3000));
        for ticket in 1..=3 {
            let missing = missing(&[1, 2], Absence::StateLost);
            let refusal = Refusal::NoQuorum { missing };
            assert_eq!(group.ended(ticket), Some(&refusal), "{running} {ticket}");
        }
    }
}

#[test]
fn where_nobody_votes_files_say_who_is_a_member() {
    let mut group = Group::new(2, Algorithm::Semaphore);
    group.change(1, Change::Remove(node(2)));
    assert!(group.events.contains(&(node(1), Event::Unchangeable)));
}

/// The only voter has lost its state, and its file lists others: it answers no renewals, and all are told
/// that it is there, and what it lacks.
#[test]
fn a_voter_that_lost_its_state_and_its_place_in_the_file_is_told() {
    let mut group = Group::empty(3, Algorithm::Bakery, Failure::Quorum, ms(1000));
    group.voters = BTreeSet::from([node(2)]);
    (1..=3).for_each(|me| group.start(me));
    group.run(ms(8000));
    assert!(group.cluster_of(3).is_some());
    group.lose(2);
    group.voters = BTreeSet::from([node(1), node(3)]);
    group.start(2);
    group.run(ms(10_000));
    for me in 1..=3 {
        let overview = group.nodes[&node(me)].quorum(group.now);
        assert_eq!(overview.voters, [node(2)], "{me}");
        assert_eq!(overview.missing, missing(&[2], Absence::StateLost), "{me}");
    }
}

/// Two of three have lost all they knew, and an operator says so at each: the epochs go on above
/// what is known, and nobody is let in before any former lease is over.
#[test]
fn a_majority_that_lost_its_states_is_recovered() {
    let mut group = group(3, Algorithm::Bakery);
    let before = group.enter(3, 1, ms(200));
    let cluster = group.cluster_of(3).expect("it is in one");
    for me in 1..=3 {
        group.stop(me);
    }
    for lost in [1, 2] {
        group.records.remove(&node(lost));
    }
    // Without the operator nobody founds a second group.
    (1..=3).for_each(|me| group.start(me));
    group.acquire(1, 2, Wait::Cancelled);
    group.run(ms(12_000));
    assert_eq!(group.granted(2), None);
    assert_eq!(group.founding(1), None, "it knows whose voters are missing");
    for me in 1..=3 {
        group.stop(me);
    }
    assert_eq!(
        group.records[&node(1)].recover(None, &group.voters),
        None,
        "nothing names it"
    );
    let third = group.records[&node(3)].recover(None, &group.voters);
    let third = third.expect("it remembers");
    group.records.insert(node(3), third);
    for lost in [1, 2] {
        group
            .records
            .insert(node(lost), Record::recover_lost(cluster, &group.voters));
    }
    // One voter alone does not do.
    [1, 3].into_iter().for_each(|me| group.start(me));
    group.acquire(1, 2, Wait::Cancelled);
    group.run(ms(8000));
    assert_eq!(group.granted(2), None);
    group.start(2);
    let took = group.until_granted(2, ms(6000));
    assert!(took > ms(1200), "{took:?}");
    assert!(group.granted(2) > Some(before));
    assert_ne!(group.cluster_of(1), Some(cluster));
}

/// The voters' disks are restored from a backup, and their wall clocks are behind: only one member
/// remembers how high fences were. It is one that does not vote, or a voter whose disk was not
/// restored.
#[test]
fn what_is_founded_anew_begins_above_all_that_is_heard() {
    for remembers in [4, 3] {
        let mut group = Group::with_voters(4, Algorithm::Semaphore, [1, 2, 3].map(node).into());
        let backup = group.records.clone();
        for _ in 0..4 {
            group.start(4);
            group.run(ms(3000));
        }
        let before = group.enter(4, 1, ms(200));
        group.release(4, 1);
        group.run(ms(200));
        group.behind = Duration::from_secs(3600);
        for me in [1, 2, 3].map(node) {
            group.nodes.remove(&me);
            let disks = if me == node(remembers) {
                &group.records
            } else {
                &backup
            };
            let recovered = disks[&me].recover(None, &group.voters);
            let recovered = recovered.expect("it was in a cluster");
            group.records.insert(me, recovered);
        }
        if remembers != 4 {
            group.stop(4);
        }
        (1..=3).for_each(|me| group.start(me));
        group.acquire(1, 2, Wait::Cancelled);
        group.run(ms(10_000));
        let after = group.granted(2);
        assert!(after > Some(before), "{remembers}: {after:?}, {before}");
    }
}

/// A founder of the next cluster that is in no view hears nobody but a member of the abandoned one.
#[test]
fn nobody_goes_back_to_an_abandoned_cluster() {
    let mut group = Group::with_voters(4, Algorithm::Semaphore, [1, 2, 3].map(node).into());
    let cluster = group.cluster_of(4).expect("it is in one");
    group.isolate(4);
    recover(&mut group, &[1, 2, 3], cluster);
    group.run(ms(8000));
    let next = group.cluster_of(1).expect("another one");
    assert_ne!(next, cluster);
    group.isolate(2);
    group.isolate(3);
    group.start(1);
    group.cut.remove(&(node(1), node(4)));
    group.cut.remove(&(node(4), node(1)));
    group.run(ms(4000));
    assert_eq!(group.cluster_of(1), Some(next));
    group.heal();
    group.run(ms(6000));
    assert_eq!(group.cluster_of(4), Some(next));
    assert_eq!(group.members(1), [1, 2, 3, 4]);
}

/// The third voter was away when the cluster was abandoned, and still knows what it voted for there.
/// It joins the next one as another voter, and votes there when it is told to: also where its disk
/// has the new cluster and still the votes of the old one, as it ended between two writings.
#[test]
fn a_voter_of_an_abandoned_cluster_joins_the_next_one_as_another() {
    for (was_running, ends) in [(false, false), (true, false), (true, true)] {
        let mut group = group(3, Algorithm::Semaphore);
        let cluster = group.cluster_of(3).expect("it is in one");
        let voted = group.records[&node(3)].voter.clone();
        group.isolate(3);
        if !was_running {
            group.stop(3);
        }
        group.voters = [1, 2].map(node).into();
        recover(&mut group, &[1, 2], cluster);
        group.run(ms(8000));
        let next = group.cluster_of(1).expect("another one");
        assert_ne!(next, cluster);
        group.heal();
        if !was_running {
            group.start(3);
        }
        group.run(ms(8000));
        assert_eq!(group.cluster_of(3), Some(next), "{was_running}");
        assert_eq!(group.members(3), [1, 2, 3], "{was_running}");
        if ends {
            group.stop(3);
            group.records.get_mut(&node(3)).expect("it was there").voter = voted;
            group.start(3);
            group.run(ms(4000));
        }
        group.change(1, Change::Voters([1, 2, 3].map(node).into()));
        group.run(ms(8000));
        let votes = [1, 2, 3].map(|id| (node(id), true)).into();
        assert_eq!(group.votes(1), votes);
        // Without one of those who recovered it, the group goes on by its vote.
        group.stop(1);
        group.run(ms(4000));
        group.acquire(2, 1, Wait::Lease);
        group.run(ms(500));
        assert!(group.granted(1).is_some(), "{was_running}");
    }
}

/// The member that is inside remembers the cluster: no other is founded beside it, whether it is
/// heard or not, until an operator says so; and then not before its lease is over.
#[test]
fn all_voters_lose_their_states_while_a_member_is_inside() {
    for algorithm in ALL {
        let lease = Duration::from_secs(5);
        let mut group = Group::empty(4, algorithm, Failure::Quorum, lease);
        group.voters.remove(&node(4));
        (1..=4).for_each(|me| group.start(me));
        group.run(ms(7500));
        let first = group.enter(4, 1, ms(500));
        let cluster = group.cluster_of(4).expect("it is in one");
        for me in 1..=3 {
            group.lose(me);
        }
        (1..=3).for_each(|me| group.start(me));
        group.run(ms(100));
        group.isolate(4);
        group.acquire(1, 2, Wait::Cancelled);
        group.run(ms(60_000));
        assert_eq!(group.granted(2), None, "{algorithm}");
        let overview = group.nodes[&node(1)].quorum(group.now);
        assert_eq!(overview.missing, missing(&[1, 2, 3], Absence::StateLost));
        group.heal();
        group.run(ms(20_000));
        assert_eq!(group.granted(2), None, "{algorithm}");
        // It goes on when an operator says that the cluster is abandoned, and the member that was in
        // it joins the next one.
        recover(&mut group, &[1, 2, 3], cluster);
        group.acquire(1, 3, Wait::Cancelled);
        let took = group.until_granted(3, ms(8000));
        assert!(took > ms(6000), "{algorithm}: {took:?}");
        assert!(group.granted(3) > Some(first));
        group.run(ms(20_000));
        assert_eq!(group.members(4), [1, 2, 3, 4], "{algorithm}");
    }
}

/// An operator names 1 in the place of 4, and 1 is there. A voter that dies with its state at the
/// same time is one of three: the others go on without it, whenever in the exchange that is.
#[test]
fn a_voter_that_loses_its_state_while_another_is_exchanged_stops_nobody() {
    let voters = |ids: [u16; 3]| ids.into_iter().map(node).collect();
    for lost in [2, 3] {
        for after in (0..3000).step_by(150) {
            let mut group = Group::with_voters(4, Algorithm::Semaphore, voters([2, 3, 4]));
            group.change(1, Change::Voters(voters([1, 2, 3])));
            group.run(ms(after));
            group.lose(lost);
            group.run(ms(2000));
            group.acquire(1, 1, Wait::Cancelled);
            group.run(ms(4000));
            assert!(group.granted(1).is_some(), "{lost} after {after} ms");
            group.start(lost);
            group.run(ms(6000));
            let votes = [1, 2, 3].map(|id| (node(id), true)).into();
            for me in 1..=4 {
                let told = group.votes(me);
                assert_eq!(told, votes, "{me}, {lost} after {after} ms");
            }
        }
    }
}

/// One that is not wanted any more, and is there, votes until those who are wanted are as many
/// without it: two voters would need both.
#[test]
fn a_voter_stands_in_for_one_that_has_not_come() {
    let voters = |ids: [u16; 3]| ids.into_iter().map(node).collect();
    let mut group = Group::with_voters(4, Algorithm::Semaphore, voters([2, 3, 4]));
    let votes = |group: &Group, ids: &[u16]| {
        let told = group.votes(2);
        let voting = told.into_iter().filter(|(_, votes)| *votes);
        voting.map(|(id, _)| id.as_u16()).collect::<Vec<_>>() == ids
    };
    group.stop(1);
    group.run(ms(3000));
    group.change(2, Change::Voters(voters([1, 2, 3])));
    group.run(ms(5000));
    assert!(votes(&group, &[2, 3, 4]), "1 is not there");
    group.start(1);
    group.run(ms(5000));
    assert!(votes(&group, &[1, 2, 3]));
    // One that is not wanted and not there need not be waited for.
    for gone in [3, 4] {
        group.stop(gone);
        group.run(ms(3000));
    }
    group.change(2, Change::Voters(voters([1, 2, 4])));
    group.run(ms(5000));
    assert!(votes(&group, &[1, 2]));
}

/// A cluster that is founded when all is lost begins with the seconds of the wall clock, and above
/// all former epochs: these stay behind the clock, also where every incarnation uses up what may
/// come at once.
#[test]
fn epochs_do_not_outrun_the_wall_clock_by_a_burst_in_each_incarnation() {
    let mut group = group(1, Algorithm::Semaphore);
    let epoch = |group: &Group| group.view(1).map_or(0, |(epoch, _)| epoch);
    let (mut adds, mut views) = (true, 0);
    for _ in 0..10 {
        group.start(1);
        let end = group.now + ms(3000);
        while group.now < end {
            let before = epoch(&group);
            let wish = match adds {
                true => Change::Add(node(9), "udp:127.0.0.1:9".into()),
                false => Change::Remove(node(9)),
            };
            group.change(1, wish);
            while group.now < end && epoch(&group) == before {
                group.run(ms(50));
            }
            if epoch(&group) != before {
                (adds, views) = (!adds, views + 1);
            }
            let ahead = u64::from(epoch(&group)).saturating_sub(group.wall().as_secs());
            assert!(ahead <= 3, "{ahead} ahead of the clock after {views} views");
        }
    }
    assert!(views >= 30, "{views} views were wanted in 30 s");
}

/// Incarnations that end before the pace lets a second view come, as where an agent crashes at each
/// start: one view in each is too many, and the next cluster would begin below the epochs of the lost
/// one.
#[test]
fn fences_rise_though_all_is_lost_after_many_short_incarnations() {
    for (size, incarnation) in [(1, 300), (3, 600)] {
        let mut group = group(size, Algorithm::Semaphore);
        for _ in 0..100 {
            (1..=size).for_each(|me| group.start(me));
            group.run(ms(incarnation));
        }
        let before = group.enter(1, 1, ms(4000));
        group.nodes.clear();
        group.records.clear();
        (1..=size).for_each(|me| group.start(me));
        group.run(ms(8000));
        group.acquire(1, 2, Wait::Cancelled);
        group.run(ms(1000));
        let after = group.granted(2);
        assert!(after > Some(before), "{size}: {after:?}, {before}");
    }
}

/// The coordinator died after the voters endorsed a view, so that one of them was a member of none
/// yet. With that voter those that are left decide.
#[test]
fn a_voter_that_was_in_no_view_yet_remembers_what_it_endorsed() {
    let mut group = group(3, Algorithm::Semaphore);
    // Another view than the first.
    group.stop(3);
    group.run(ms(3000));
    group.start(3);
    group.run(ms(3000));
    for me in 1..=3 {
        group.stop(me);
    }
    let record = group.records.get_mut(&node(2)).unwrap();
    assert!(format!("{:?}", record.voter).contains("parent: Some("));
    record.affiliation = Affiliation::new(record.affiliation.birth);
    group.records.remove(&node(1));
    // The files of these two have come to list each other alone.
    group.start(3);
    group.voters = [node(1), node(2)].into();
    for me in 1..=2 {
        group.start_listing(me, [node(1), node(2)].into());
    }
    group.run(ms(12_000));
    let cluster = |me| group.records[&node(me)].affiliation.cluster_id();
    assert_eq!(cluster(2), cluster(3));
    assert_eq!(group.members(3), [1, 2, 3]);
}

/// Seven vote, and no more can: one goes before another comes.
#[test]
fn of_seven_voters_one_is_replaced() {
    let voters = |ids: core::ops::RangeInclusive<u16>| ids.map(node).collect();
    let mut group = Group::with_voters(8, Algorithm::Semaphore, voters(1..=7));
    group.change(1, Change::Voters(voters(2..=8)));
    group.run(ms(10_000));
    let votes = (2..=8).map(|id| (node(id), true)).collect();
    assert_eq!(group.votes(1), votes);
}
