//! Files that name different voters: whether there is one cluster, and what is told if not.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_protocol::{
    Absence, Algorithm, Change, Event, Failure, NodeId, PeerState, Record, Wait,
};

use crate::group::{Group, missing, ms, node};

fn ids(ids: &[u16]) -> BTreeSet<NodeId> {
    ids.iter().copied().map(node).collect()
}

fn empty(size: u16, lease: Duration) -> Group {
    Group::empty(size, Algorithm::Semaphore, Failure::Quorum, lease)
}

/// Members that have all been up for `time`. The first three vote.
fn started(size: u16, lease: Duration, time: Duration) -> Group {
    let mut group = empty(size, lease);
    group.voters = ids(&[1, 2, 3]);
    (1..=size).for_each(|me| group.start(me));
    group.run(time);
    group
}

/// What `me` was told of voters that differ: of whom, its own, and theirs.
fn told(group: &Group, me: u16) -> Vec<(NodeId, String, String)> {
    let events = group.events.iter().filter(|(whose, _)| *whose == node(me));
    let differs = |event: &Event| match event {
        Event::Disagreement {
            peer,
            key,
            ours,
            theirs,
            refused: false,
        } if key == "voters" => Some((*peer, ours.clone(), theirs.clone())),
        _ => None,
    };
    events.filter_map(|(_, event)| differs(event)).collect()
}

#[test]
fn a_member_that_does_not_vote_has_no_voter_record() {
    let group = started(4, ms(1000), ms(6000));
    group.are_together(&[1, 2, 3, 4]);
    let votes = |me: u16| group.records[&node(me)].voter.is_some();
    assert_eq!([1, 2, 3, 4].map(votes), [true, true, true, false]);
}

/// Each had a group of its own before it heard of the other: nothing can make one of the two, and
/// whoever looks must see it.
#[test]
fn two_clusters_of_one_name_are_told() {
    let mut group = empty(2, ms(1000));
    for me in [1, 2] {
        group.voters = ids(&[me]);
        group.start_listing(me, ids(&[me]));
    }
    group.run(ms(5000));
    assert_eq!((told(&group, 1), told(&group, 2)), (vec![], vec![]));
    // Files that are made the same afterwards are no help, and no harm.
    for me in [1, 2] {
        group.stop(me);
        group.voters = ids(&[1, 2]);
        group.start(me);
    }
    group.run(ms(5000));
    for (me, other) in [(1, 2), (2, 1)] {
        assert_eq!(group.members(me), [me]);
        let differs = (node(other), me.to_string(), other.to_string());
        assert_eq!(told(&group, me), [differs], "once in each incarnation");
        let state = group.nodes[&node(me)].peer_state(node(other));
        assert_eq!(state, PeerState::Disagrees);
        group.enter(me, u64::from(me), ms(100));
        group.release(me, u64::from(me));
    }
    // One of them is told to forget, as the message says.
    group.lose(2);
    group.start(2);
    group.run(ms(3000));
    assert_eq!(group.members(2), [1, 2]);
    let state = group.nodes[&node(1)].peer_state(node(2));
    assert_eq!(state, PeerState::Up);
}

/// Who has no state yet asks those who have, though its file names itself as the only voter.
#[test]
fn nobody_founds_a_cluster_beside_one_that_it_hears_of() {
    let mut group = empty(2, ms(1000));
    group.voters = ids(&[1]);
    group.start_listing(1, ids(&[1]));
    group.run(ms(5000));
    group.start(1);
    group.run(ms(3000));
    let first = group.enter(1, 1, ms(100));
    group.voters = ids(&[2]);
    group.start(2);
    group.acquire(2, 2, Wait::Cancelled);
    group.run(ms(3000));
    for me in [1, 2] {
        assert_eq!(group.members(me), [1, 2]);
        assert_eq!(told(&group, me), []);
    }
    assert_eq!(group.granted(2), None, "somebody is inside");
    group.release(1, 1);
    group.run(ms(100));
    assert!(group.granted(2).expect("it is free") > first);
}

/// Six members, all up; voters 1 to 3. The files come to say 4 to 6, and these hosts restart.
#[test]
fn files_with_other_voters_found_no_second_cluster() {
    for together in [false, true] {
        let mut group = started(6, ms(5000), ms(8000));
        let cluster = group.cluster_of(1);
        group.enter(1, 1, ms(500));
        group.voters = ids(&[4, 5, 6]);
        for me in [4, 5, 6] {
            group.start(me);
            if !together {
                group.run(ms(10_000));
            }
        }
        group.acquire(6, 2, Wait::Cancelled);
        group.run(ms(60_000));
        assert_eq!(group.granted(2), None, "somebody is inside");
        assert_eq!(group.cluster_of(6), cluster);
        group.release(1, 1);
        group.run(ms(500));
        assert!(group.granted(2) > group.granted(1));
    }
}

/// The same, where the files leave out who votes, and the new voters have lost their states: more
/// than half of the listed members are not enough.
#[test]
fn a_list_that_more_than_doubles_founds_no_second_cluster() {
    let mut group = empty(5, ms(1000));
    group.voters = ids(&[1, 2]);
    for me in [1, 2] {
        group.start_listing(me, ids(&[1, 2]));
    }
    group.run(ms(5000));
    assert!(group.cluster_of(1).is_some());
    group.voters = ids(&[3, 4, 5]);
    [3, 4, 5].into_iter().for_each(|me| group.start(me));
    group.run(ms(30_000));
    for me in [3, 4, 5] {
        assert_eq!(group.cluster_of(me), None);
        let report = group.founding(me).expect("none");
        assert_eq!(report.absent, [node(1), node(2)]);
    }
}

/// By each file another host is to found, and that one's file names another: nobody does, and each says
/// whose files differ.
#[test]
fn files_by_which_nobody_founds_are_told() {
    let mut group = empty(4, ms(1000));
    let files: [&[u16]; 4] = [&[2, 3, 4], &[1, 2, 4], &[2, 4], &[1, 2, 3]];
    for (me, voters) in (1..).zip(files) {
        group.voters = ids(voters);
        group.start(me);
    }
    group.run(ms(30_000));
    for me in 1..=4 {
        assert_eq!(group.cluster_of(me), None);
        let others = ids(&[1, 2, 3, 4]).into_iter().filter(|it| *it != node(me));
        let report = group.founding(me).expect("there is no cluster");
        assert_eq!(report.differ, others.collect::<Vec<_>>());
    }
    // Files that are made the same help.
    for me in [1, 2, 4] {
        group.voters = ids(files[2]);
        group.start(me);
    }
    group.run(ms(10_000));
    assert!(group.cluster_of(1).is_some());
}

/// All end in order, all files name other voters, all start.
#[test]
fn all_begin_with_other_voters_in_their_files_and_go_on() {
    let mut group = started(6, ms(1000), ms(5500));
    let cluster = group.cluster_of(1);
    for me in 1..=6 {
        group.leave(me);
    }
    group.run(ms(3000));
    group.voters = ids(&[4, 5, 6]);
    (1..=6).for_each(|me| group.start(me));
    group.run(ms(4000));
    for me in 1..=6 {
        assert_eq!(group.cluster_of(me), cluster);
        assert_eq!(group.members(me), [1, 2, 3, 4, 5, 6]);
    }
}

/// Its voters gave way to others, one after the other, while it was away.
#[test]
fn a_member_whose_voters_are_all_gone_is_told_and_comes_back() {
    let mut group = started(7, ms(1000), ms(5500));
    group.enter(7, 1, ms(300));
    for cut_off in [true, false] {
        group.isolate(7);
        if !cut_off {
            group.stop(7);
        }
        let next = if cut_off { [4, 5, 6] } else { [1, 2, 3] };
        group.change(4, Change::Voters(ids(&next)));
        group.run(ms(20_000));
        let votes = next.map(|id| (node(id), true)).into();
        assert_eq!(group.votes(4), votes);
        let before = if cut_off { [1, 2, 3] } else { [4, 5, 6] };
        for gone in &before[1..] {
            group.stop(*gone);
        }
        group.run(ms(3000));
        group.heal();
        group.events.clear();
        if !cut_off {
            group.start(7);
        }
        group.run(ms(6000));
        let excluded =
            |event: &(_, Event)| matches!(event, (who, Event::Excluded { .. }) if *who == node(7));
        assert_eq!(group.events.iter().any(excluded), cut_off);
        assert!(group.members(7).contains(&7));
        before[1..].iter().for_each(|me| group.start(*me));
        group.run(ms(4000));
    }
}

/// A holder under leases of 30 s is cut off, and all voters restart with 1 s.
#[test]
fn a_lease_that_became_shorter_is_waited_for() {
    for sloppy in [false, true] {
        let mut group = started(4, ms(30_000), ms(45_000));
        group.enter(4, 1, ms(500));
        let until = group.lease_of(4);
        group.isolate(4);
        group.settings.lease = ms(1000);
        for me in 1..=3 {
            group.start(me);
            if sloppy {
                // Twice, so that a voter has a whole incarnation under the shorter one in between.
                group.run(ms(3000));
                group.start(me);
            }
        }
        group.acquire(1, 2, Wait::Cancelled);
        while group.granted(2).is_none() {
            group.run(ms(10));
            assert!(group.now < until + ms(30_000));
        }
        assert!(group.now >= until, "{:?} before", until.since(group.now));
    }
}

/// No lease as long as the file has was renewed yet. Both end without a word.
#[test]
fn a_lease_that_became_longer_is_not_waited_for() {
    let mut group = empty(3, ms(500));
    (1..=3).for_each(|me| group.start(me));
    group.run(ms(8000));
    group.settings.lease = ms(5000);
    (1..=3).for_each(|me| group.start(me));
    group.acquire(1, 1, Wait::Cancelled);
    let waited = group.until_granted(1, ms(30_000));
    assert!(waited > ms(500) && waited < ms(3000), "{waited:?}");
}

/// Who founds is not decided by who is heard: half-way foundings by different files give way.
#[test]
fn founders_with_different_files_do_not_block_each_other_for_ever() {
    let mut group = empty(4, ms(500));
    for (me, voters) in [(1, [1, 2]), (2, [1, 2]), (3, [3, 4]), (4, [3, 4])] {
        group.voters = ids(&voters);
        group.start(me);
    }
    group.run(ms(30_000));
    let clusters: BTreeSet<_> = (1..=4).map(|me| group.cluster_of(me)).collect();
    assert_eq!(clusters.len(), 1, "{clusters:?}");
    assert!(clusters.first().unwrap().is_some());
    group.are_together(&[1, 2, 3, 4]);
}

/// A file can name the cluster: then no other is ever founded or joined with it.
#[test]
fn a_file_that_names_the_cluster_founds_none() {
    let mut group = empty(2, ms(500));
    group.start_listing(1, ids(&[1, 2]));
    group.start(2);
    group.run(ms(6000));
    let cluster = group.cluster_of(1).expect("founded");
    group.records.clear();
    group.cluster = Some(cluster);
    [1, 2].into_iter().for_each(|me| group.start(me));
    group.run(ms(20_000));
    assert_eq!(group.cluster_of(1), None, "its states are lost");
    group.cluster = None;
    group.records.clear();
    (1..=2).for_each(|me| group.start(me));
    group.run(ms(6000));
    assert_ne!(group.cluster_of(1).expect("another"), cluster);
}

/// It ended before the cluster that it had accepted came to be, and the voters' disks are lost
/// since. Its operator need not know the cluster's name, and need not do anything.
#[test]
fn a_member_that_only_accepted_a_founding_joins_the_cluster_that_took_its_place() {
    let mut group = empty(4, ms(200));
    group.voters = ids(&[1, 2, 3]);
    (1..=4).for_each(|me| group.start(me));
    let accepted = |group: &Group| {
        let affiliation = &group.records.get(&node(4))?.affiliation;
        affiliation.cluster()
    };
    group.until(ms(20_000), |group| accepted(group).is_some());
    group.stop(4);
    let record = group.records[&node(4)].clone();
    assert_eq!(record.affiliation.cluster_id(), None, "it is in none yet");
    group.run(ms(2000));
    let cluster = group.cluster_of(1).expect("it is founded without that one");
    let recovered = record.recover(None, &group.voters);
    let recovered = recovered.expect("it names what it accepted");
    let permit = recovered.affiliation.permit.expect("an operator's word");
    assert_eq!(permit.abandoned, cluster);
    for me in 1..=3 {
        group.stop(me);
        group
            .records
            .insert(node(me), Record::recover_lost(cluster, &group.voters));
        group.start(me);
    }
    group.run(ms(12_000));
    let next = group.cluster_of(1).expect("another is founded");
    assert_ne!(next, cluster);
    group.start(4);
    group.run(ms(4000));
    assert_eq!(group.cluster_of(4), Some(next));
    assert_eq!(group.members(4), [1, 2, 3, 4]);
}

/// The states of all voters are lost, and an operator says so at each. Before they have founded the next
/// cluster their files change, so that each could found one by its own.
#[test]
fn a_word_that_was_given_to_some_voters_founds_no_cluster_of_others() {
    let mut group = empty(3, ms(200));
    group.voters = ids(&[1, 2]);
    (1..=3).for_each(|me| group.start(me));
    group.run(ms(6000));
    let cluster = group.cluster_of(1).expect("it is founded");
    group.stop(3);
    let recover = |group: &mut Group, files: [&[u16]; 2]| {
        for (me, file) in [1, 2].into_iter().zip(files) {
            group.stop(me);
            group.voters = ids(&[1, 2]);
            group
                .records
                .insert(node(me), Record::recover_lost(cluster, &group.voters));
            group.voters = ids(file);
            group.start(me);
        }
    };
    recover(&mut group, [&[1], &[2]]);
    group.run(ms(12_000));
    for me in [1, 2] {
        assert_eq!(group.cluster_of(me), None, "{me}");
        let overview = group.nodes[&node(me)].quorum(group.now);
        let report = overview.founding.expect("it says what is missing");
        assert_eq!(report.without_permit, [node(me)]);
    }
    // Said once more, with the file that is everywhere.
    recover(&mut group, [&[1, 2], &[1, 2]]);
    group.run(ms(12_000));
    let next = group.cluster_of(1).expect("another is founded");
    assert_ne!(next, cluster);
    assert_eq!(group.cluster_of(2), Some(next));
}

/// A voter is killed while it takes note that the cluster which it founded is live, and another one loses
/// its state before there is a second view. Those that are left are a majority, and go on.
#[test]
fn a_founder_that_is_killed_as_the_cluster_goes_live_votes_on() {
    let lease = Duration::from_secs(1);
    for killed in (4_400..5_200).step_by(8) {
        let mut group = empty(4, lease);
        group.disk = ms(20);
        (1..=4).for_each(|me| group.start(me));
        group.run(ms(killed));
        if (1..=4).any(|me| group.cluster_of(me).is_none()) {
            continue;
        }
        (1..=4).for_each(|me| group.stop(me));
        group.lose(1);
        (1..=4).for_each(|me| group.start(me));
        group.run(ms(15_000));
        group.acquire(2, 1, Wait::Lease);
        group.run(ms(1000));
        assert!(group.granted(1).is_some(), "killed after {killed} ms");
    }
}

/// A voter is killed before it has noted that the cluster which it founded is live, and another one, which
/// could tell that all have completed it, is away, or has lost its state. The third tells, which runs on, and may
/// be in the first view, or begins anew. With the first one it is a majority.
#[test]
fn a_founder_that_was_killed_before_the_cluster_went_live_is_told_and_votes_on() {
    let lease = Duration::from_secs(1);
    let is_member = |group: &Group, me: u16| {
        let record = group.records.get(&node(me));
        record.is_some_and(|record| record.affiliation.cluster_id().is_some())
    };
    let has_completed = |group: &Group| {
        let voter = group
            .records
            .get(&node(1))
            .and_then(|its| its.voter.as_ref());
        voter.is_some_and(|voter| voter.epoch().is_some())
    };
    for (is_away, begins_anew) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut told = 0;
        for killed_after in (0..=40).step_by(20) {
            let mut group = empty(3, lease);
            group.disk = ms(20);
            (1..=3).for_each(|me| group.start(me));
            group.until(ms(10_000), has_completed);
            group.run(ms(killed_after));
            group.stop(1);
            // What it had said is heard, and noted.
            group.run(ms(100));
            if is_member(&group, 1) || !is_member(&group, 3) {
                continue;
            }
            told += 1;
            if is_away {
                group.stop(2);
            } else {
                group.lose(2);
                group.start(2);
            }
            if begins_anew {
                group.start(3);
            }
            group.start(1);
            group.run(ms(10_000));
            group.acquire(1, 1, Wait::Lease);
            group.run(ms(1000));
            assert!(
                group.granted(1).is_some(),
                "away: {is_away}, begins anew: {begins_anew}, killed after {killed_after} ms"
            );
        }
        assert!(told > 0);
    }
}

/// Members begin anew with files that name another voter, when those who found the cluster have
/// completed it and do not know yet that it is live. It is, and its voters are those that it was
/// founded with: so these ask each other, whatever their files say.
#[test]
fn files_that_change_while_a_cluster_is_founded_stop_nobody() {
    let has_completed = |group: &Group, me: u16| {
        let record = group.records.get(&node(me));
        let voter = record.and_then(|record| record.voter.as_ref());
        voter.is_some_and(|voter| voter.epoch().is_some())
    };
    let mut group = empty(3, Duration::from_secs(1));
    group.voters = ids(&[1, 2]);
    group.disk = ms(20);
    (1..=3).for_each(|me| group.start(me));
    group.until(ms(10_000), |group| {
        [1, 2].iter().all(|&me| has_completed(group, me))
    });
    let affiliation = |me| group.records[&node(me)].affiliation.cluster_id();
    assert_eq!([1, 2, 3].map(affiliation), [None; 3], "it is not live yet");
    (1..=3).for_each(|me| group.stop(me));
    group.voters = ids(&[3]);
    (1..=3).for_each(|me| group.start(me));
    group.run(ms(10_000));
    group.are_together(&[1, 2, 3]);
    let votes = [1, 2].map(|id| (node(id), true)).into();
    (1..=3).for_each(|me| assert_eq!(group.votes(me), votes, "{me}"));
}

/// The founder loses its state before the other voter has its offer, and one that does not vote has accepted it. The
/// other voter accepts and refuses it in the end; or refuses it at once, if its file has a longer lease now.
#[test]
fn a_founding_that_no_voter_remembers_is_given_up() {
    for lease in [ms(1000), ms(2000)] {
        let mut group = empty(3, ms(1000));
        group.voters = ids(&[1, 2]);
        group.slow_links.insert((node(1), node(2)), ms(100));
        (1..=3).for_each(|me| group.start(me));
        let cluster = |group: &Group, me| {
            let record = group.records.get(&node(me));
            record.and_then(|record| record.affiliation.cluster())
        };
        group.until(ms(10_000), |group| cluster(group, 3).is_some());
        let first = cluster(&group, 3);
        assert_eq!(cluster(&group, 2), None);
        group.lose(1);
        [2, 3].into_iter().for_each(|me| group.stop(me));
        group.settings.lease = lease;
        (1..=3).for_each(|me| group.start(me));
        group.run(ms(30_000));
        group.are_together(&[1, 2, 3]);
        assert_ne!(cluster(&group, 3), first, "{lease:?}");
    }
}

/// One of two voters loses its state when both have completed a founding. It may be live, so the other one keeps to
/// it; and only an operator knows that nobody has ever been in it.
#[test]
fn a_founding_that_too_few_voters_remember_is_told() {
    let mut group = empty(3, ms(1000));
    group.voters = ids(&[1, 2]);
    // So the first does not hear in time that the second has completed it.
    group.slow_links.insert((node(2), node(1)), ms(50));
    (1..=3).for_each(|me| group.start(me));
    let completed = |group: &Group| {
        let voter = group
            .records
            .get(&node(2))
            .and_then(|its| its.voter.as_ref());
        voter.is_some_and(|voter| voter.epoch().is_some())
    };
    group.until(ms(10_000), completed);
    (1..=3).for_each(|me| group.stop(me));
    group.lose(1);
    (1..=3).for_each(|me| group.start(me));
    group.run(ms(20_000));
    for me in 1..=3 {
        let overview = group.nodes[&node(me)].quorum(group.now);
        assert_eq!(overview.missing, missing(&[1], Absence::StateLost), "{me}");
        let founding = group.founding(me).expect("none is founded");
        let remember: Vec<_> = founding.remember.iter().map(|(node, _)| *node).collect();
        assert_eq!(remember, [node(2)], "{me}");
    }
}

/// One that does not vote has accepted a founding, and is left out of the files when the others found a cluster: its
/// founder has lost its state, and the other voters have never heard of it. It joins when it is added.
#[test]
fn a_founding_is_given_up_when_its_voters_are_in_another_cluster() {
    for voters in [&[1, 2][..], &[1]] {
        let mut group = empty(4, ms(1000));
        group.voters = ids(&[1, 2]);
        for other in [2, 3] {
            group.slow_links.insert((node(1), node(other)), ms(100));
        }
        (1..=4).for_each(|me| group.start(me));
        let has_accepted = |group: &Group, me| {
            let record = group.records.get(&node(me));
            record.is_some_and(|record| record.affiliation.cluster().is_some())
        };
        group.until(ms(10_000), |group| has_accepted(group, 4));
        assert!(!has_accepted(&group, 2));
        (1..=4).for_each(|me| group.stop(me));
        group.lose(1);
        group.voters = ids(voters);
        (1..=3).for_each(|me| group.start_listing(me, ids(&[1, 2, 3])));
        group.run(ms(10_000));
        group.are_together(&[1, 2, 3]);
        group.change(2, Change::Add(node(4), "udp:127.0.0.1:4".into()));
        group.run(ms(3000));
        group.start(4);
        group.run(ms(15_000));
        group.are_together(&[1, 2, 3, 4]);
    }
}

/// The first voter has completed a founding, as it heard that all accept it; the second does not hear that, and
/// refuses it in the end. What the first has endorsed for it does not stand against the next founding.
#[test]
fn a_founding_that_one_has_completed_and_another_refuses_is_forgotten() {
    let mut group = empty(3, ms(1000));
    // So the second accepts before the third does.
    group.slow_links.insert((node(1), node(3)), ms(20));
    (1..=3).for_each(|me| group.start(me));
    let accepts = |group: &Group| {
        let record = group.records.get(&node(2));
        record.is_some_and(|record| record.affiliation.cluster().is_some())
    };
    group.until(ms(6000), accepts);
    group.cut = [1, 3].map(|other| (node(other), node(2))).into();
    let completed = |group: &Group| {
        let voter = group.records.get(&node(1))?.voter.as_ref()?;
        Some(voter.endorsed.as_ref()?.view_config.cluster)
    };
    group.until(ms(1000), |group| completed(group).is_some());
    let first = completed(&group);
    group.run(ms(6000));
    assert_eq!(completed(&group), None, "the second has refused");
    group.heal();
    group.run(ms(15_000));
    group.are_together(&[1, 2, 3]);
    assert_ne!(completed(&group), first);
}
