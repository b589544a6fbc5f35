//! Files that name different voters: whether there is one cluster, and what is told if not.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock_agent::protocol::{Algorithm, Event, Failure, NodeId, PeerState, Wait};

use crate::group::{Group, node};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ids(ids: &[u16]) -> BTreeSet<NodeId> {
    ids.iter().copied().map(node).collect()
}

fn empty(size: u16, lease: Duration) -> Group {
    Group::empty(size, Algorithm::Semaphore, Failure::Quorum, lease)
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

/// Each had a group of its own before it heard of the other: nothing can make one of the two, and
/// whoever looks must see it.
#[test]
fn two_clusters_of_one_name_are_told() {
    let mut group = empty(2, ms(1000));
    for me in [1, 2] {
        group.isolate(me);
    }
    for me in [1, 2] {
        group.voters = ids(&[me]);
        group.start(me);
    }
    group.run(ms(1000));
    assert_eq!((told(&group, 1), told(&group, 2)), (vec![], vec![]));
    group.heal();
    group.run(ms(3000));
    for (me, other) in [(1, 2), (2, 1)] {
        assert_eq!(group.view(me).expect("its own").1, [me]);
        let (ours, theirs) = (me.to_string(), other.to_string());
        assert_eq!(told(&group, me), [(node(other), ours, theirs)], "once");
        let state = group.nodes[&node(me)].peer_state(node(other));
        assert_eq!(state, PeerState::Disagrees);
    }
    // Files that are made the same afterwards are no help, and no harm.
    for me in [1, 2] {
        group.nodes.remove(&node(me));
        group.voters = ids(&[1, 2]);
        group.start(me);
    }
    group.run(ms(5000));
    for (me, other) in [(1, 2), (2, 1)] {
        assert_eq!(group.view(me).expect("its own").1, [me]);
        assert_eq!(told(&group, me).len(), 2, "once in each life");
        let state = group.nodes[&node(me)].peer_state(node(other));
        assert_eq!(state, PeerState::Disagrees);
        group.acquire(me, u64::from(me), Wait::Cancelled);
        group.run(ms(100));
        assert!(group.granted(u64::from(me)).is_some());
        group.release(me, u64::from(me));
    }
    // One of them is told to forget, as the message says.
    group.nodes.remove(&node(2));
    group.records.remove(&node(2));
    group.start(2);
    group.run(ms(3000));
    assert_eq!(group.view(2).expect("the same").1, [1, 2]);
    let state = group.nodes[&node(1)].peer_state(node(2));
    assert_eq!(state, PeerState::Up);
}

/// Who has no state yet asks those who have, though its file names itself as the only voter.
#[test]
fn nobody_founds_a_cluster_beside_one_that_it_hears_of() {
    let mut group = empty(2, ms(1000));
    group.voters = ids(&[1]);
    group.start(1);
    group.run(ms(1000));
    group.acquire(1, 1, Wait::Cancelled);
    group.run(ms(100));
    let first = group.granted(1).expect("it is free");
    group.voters = ids(&[2]);
    group.start(2);
    group.acquire(2, 2, Wait::Cancelled);
    group.run(ms(3000));
    for me in [1, 2] {
        assert_eq!(group.view(me).expect("one of both").1, [1, 2]);
        assert_eq!(told(&group, me), []);
    }
    assert_eq!(group.granted(2), None, "somebody is inside");
    group.release(1, 1);
    group.run(ms(100));
    assert!(group.granted(2).expect("it is free") > first);
}

/// By the first's file the second and the third are to vote, by the second's the first and the
/// third: whoever of the two leads wants the other to. What is due comes before that.
#[test]
fn leaders_that_hand_over_to_each_other_form_views() {
    // In half of this time, after which each may hand over again, no view is due.
    let mut group = empty(3, ms(300));
    for me in 1..=3 {
        group.start(me);
    }
    group.run(ms(1000));
    for (me, voters) in [(1, [2, 3]), (2, [1, 3])] {
        group.nodes.remove(&node(me));
        group.run(ms(500));
        group.voters = ids(&voters);
        group.start(me);
        group.run(ms(4000));
    }
    for me in [1, 2] {
        assert_eq!(group.view(me).expect("all").1, [1, 2, 3]);
    }
    for _ in 0..5 {
        group.nodes.remove(&node(3));
        let died = group.now;
        while group.view(1).is_none_or(|view| view.1 != [1, 2]) {
            assert!(group.now.since(died) < ms(4000), "{:?}", group.view(1));
            group.run(ms(10));
        }
        group.start(3);
        group.run(ms(3000));
        assert_eq!(group.view(3).expect("all").1, [1, 2, 3]);
    }
}
