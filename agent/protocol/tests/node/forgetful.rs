//! Voters that lose their states while the next view is on its way.

use std::collections::BTreeSet;

use distlock_protocol::membership::quorum::ViewConfig;
use distlock_protocol::{Absence, Algorithm, Change, Missing, NodeId, Refusal, Wait};

use crate::group::{Group, missing, ms, node};
use crate::quorum::group;
use crate::voters::recover;

/// The newest view configuration that a voter's disk has.
fn endorsed(group: &Group, me: NodeId) -> Option<&ViewConfig> {
    group.records.get(&me)?.voter.as_ref()?.view_config()
}

/// Voter 1 is to vote no more. The leader alone has endorsed the next view, without voter 1, when
/// two of the other voters lose their states: returns who still has one, and whose are lost.
/// `with_first`: voter 1 is one of the two.
fn loses_two_meanwhile(group: &mut Group, with_first: bool) -> (Vec<u16>, Vec<u16>) {
    let all: BTreeSet<NodeId> = group.records.keys().copied().collect();
    let others = all.iter().copied().filter(|it| *it != node(1)).collect();
    group.change(1, Change::Voters(others));
    let has_next = |group: &Group, me: &NodeId| {
        endorsed(group, *me).is_some_and(|its| its.voters.len() < all.len())
    };
    group.until(ms(3000), |group| all.iter().any(|me| has_next(group, me)));
    let leader: Vec<&NodeId> = all.iter().filter(|me| has_next(group, me)).collect();
    assert_eq!(leader.len(), 1, "it is decided there first");
    let first = all.iter().filter(|_| with_first).take(1);
    let others = all.iter().skip(1).filter(|me| !leader.contains(me));
    let lost: Vec<u16> = first.chain(others).map(|id| id.as_u16()).take(2).collect();
    let left = all.iter().map(|id| id.as_u16());
    (left.filter(|me| !lost.contains(me)).collect(), lost)
}

/// Five vote, and four are to: of these two lose their states, when no other view can be decided on
/// any more. Or four vote, and three are to: one of these loses its state, and the fourth. A majority
/// of those before, or of those after, remembers; but the next view takes both. Nobody is let in
/// before an operator says so, and all voters that are left name the cause, whether they ran on or
/// have begun anew.
#[test]
fn a_view_that_too_few_can_certify_is_told_of() {
    for (size, runs_on) in [(5, true), (5, false), (4, true), (4, false)] {
        let words = format!("{size} voters, running on: {runs_on}");
        let mut group = group(size, Algorithm::Semaphore);
        let (left, lost) = loses_two_meanwhile(&mut group, size == 4);
        for &me in &lost {
            group.lose(me);
        }
        group.run(ms(2000));
        for &me in left.iter().filter(|_| !runs_on) {
            group.stop(me);
        }
        for me in (1..=size).filter(|me| !runs_on || lost.contains(me)) {
            group.start(me);
        }
        group.run(ms(5000));
        for me in 1..=size {
            group.acquire(me, u64::from(me), Wait::Lease);
        }
        group.run(ms(5000));
        let voters: Vec<NodeId> = match size {
            4 => (1..=4).map(node).collect(),
            _ => (2..=5).map(node).collect(),
        };
        let missing = missing(&lost, Absence::StateLost);
        for &me in &left {
            let overview = group.nodes[&node(me)].quorum(group.now);
            assert_eq!(overview.voters, voters, "{words}: {me}");
            assert_eq!(overview.missing, missing, "{words}: {me}");
            assert!(!overview.suffices, "{words}: {me}");
            let missing = missing.clone();
            let refusal = Refusal::NoQuorum { missing };
            assert_eq!(group.ended(u64::from(me)), Some(&refusal), "{words}: {me}");
        }
        // Those who have lost their states know at least that an operator is needed.
        for &me in &lost {
            let overview = group.nodes[&node(me)].quorum(group.now);
            let is_lost = |its: &&Missing| its.why == Absence::StateLost;
            let count = overview.missing.iter().filter(is_lost).count();
            assert!(2 * count > overview.voters.len(), "{words}: {me}");
            let absent = overview.founding.map(|its| its.absent).unwrap_or_default();
            assert_eq!(absent, [], "{words}: {me}");
        }
        for ticket in 1..=size {
            assert_eq!(group.granted(u64::from(ticket)), None, "{words}");
        }
        let cluster = group.cluster_of(left[0]).expect("it is in one");
        for &me in &left {
            group.stop(me);
            let record = group.records[&node(me)].recover(None, &group.voters);
            group
                .records
                .insert(node(me), record.expect("it remembers"));
            group.start(me);
        }
        recover(&mut group, &lost, cluster);
        group.acquire(1, 10, Wait::Cancelled);
        group.until_granted(10, ms(12_000));
        assert_ne!(group.cluster_of(1), Some(cluster), "{words}");
    }
}
