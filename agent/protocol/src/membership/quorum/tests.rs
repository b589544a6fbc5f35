//! The parts by themselves: what each counts, and when. How they go together is simulated.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::affiliation::{Affiliation, Founding, Membership};
use super::certificate::ViewChange;
use super::config::QuorumConfig;
use super::coordinator::{Coordination, longest_lease};
use super::founding::FoundingPart;
use super::message::{QuorumMessage, Renew, Stage, VoterRecord};
use super::outbox::Outbox;
use super::session::Session;
use super::view_config::{Digest, ViewConfig, Voter};
use super::voter::endorser::Endorser;
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::Summary;
use crate::membership::{Action, Change, Member, MembershipOverrides, ViewMessage};
use crate::time::Time;

const LEASE: Duration = Duration::from_secs(1);

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn member(id: u16, incarnation: u64) -> Member {
    Member {
        node: node(id),
        incarnation: Incarnation(incarnation),
    }
}

fn voter(id: u16) -> Voter {
    Voter {
        node: node(id),
        birth: Incarnation(1),
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn config() -> QuorumConfig {
    QuorumConfig {
        group: "test".into(),
        lease: LEASE,
        members: (1..=5).map(node).collect(),
        voters: BTreeSet::from([node(1), node(2), node(3)]),
        cluster: None,
        wall: Duration::from_secs(100),
        lock_delay: Duration::ZERO,
    }
}

/// Three voters, of whom all are members, and two members more.
fn first() -> ViewConfig {
    let cluster = Digest::of_cluster(&"test");
    ViewConfig {
        cluster,
        epoch: Epoch::new(100).unwrap(),
        parent: cluster,
        members: (1..=5).map(|id| member(id, 1)).collect(),
        since: vec![Epoch::new(100).unwrap(); 5],
        voters: (1..=3).map(voter).collect(),
        coordinator: member(1, 1),
        unclean: Vec::new(),
        overrides: MembershipOverrides {
            voters: (1..=3).map(node).collect(),
            ..MembershipOverrides::default()
        },
        abandons: Vec::new(),
    }
}

/// What messages name a view by.
fn name(view: &ViewConfig) -> (Epoch, Digest) {
    (view.epoch, view.digest())
}

fn found() -> ViewChange {
    ViewChange {
        parent: None,
        view_config: first(),
    }
}

/// The next view, without member `gone`.
fn without(gone: u16) -> ViewChange {
    let parent = first();
    let mut view_config = ViewConfig {
        epoch: parent.epoch.next().unwrap(),
        parent: parent.digest(),
        ..parent.clone()
    };
    view_config.members.retain(|its| its.node != node(gone));
    view_config.since.pop();
    ViewChange {
        parent: Some(parent),
        view_config,
    }
}

fn leases(out: &mut Outbox) -> Vec<Time> {
    let lease = |action| match action {
        Action::Lease(until) => Some(until),
        _ => None,
    };
    out.take().into_iter().filter_map(lease).collect()
}

/// Member 5, in the first view, which is in force there.
fn installed(out: &mut Outbox) -> Session {
    let mut session = Session::new(member(5, 1), &config(), Vec::new(), false, at(0));
    session.flush(node(1), first(), out);
    session.persisted(out);
    session.install(node(1), name(&first()), Summary::default(), out);
    assert!(session.view().is_some());
    out.take();
    session
}

#[test]
fn a_lease_counts_from_when_its_wish_was_sent_and_needs_a_majority_under_one_view() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    session.timeout(at(100), &mut out);
    assert_eq!(out.take().len(), 3, "a renewal request to each voter");
    let (renewal, view) = ((Incarnation(1), 1), name(&first()));
    session.renewed(at(0), node(1), renewal, view, &mut out);
    // The same voter again, another incarnation's renewal, and another view do not count.
    session.renewed(at(0), node(1), renewal, view, &mut out);
    session.renewed(at(0), node(2), (Incarnation(2), 1), view, &mut out);
    let other = without(4).view_config;
    session.renewed(at(0), node(2), renewal, name(&other), &mut out);
    assert_eq!((leases(&mut out), session.until()), (vec![], Time::ZERO));
    session.renewed(at(0), node(3), renewal, view, &mut out);
    assert_eq!(leases(&mut out), [at(100) + LEASE]);
}

#[test]
fn a_member_that_leaves_or_was_excluded_gets_no_lease() {
    for leaves in [false, true] {
        let mut out = Outbox::new(node(5));
        let mut session = installed(&mut out);
        session.timeout(at(100), &mut out);
        match leaves {
            true => session.leave(),
            false => session.flush(node(1), without(5).view_config, &mut out),
        }
        let (renewal, view) = ((Incarnation(1), 1), name(&first()));
        for voter in [1, 2, 3].map(node) {
            session.renewed(at(0), voter, renewal, view, &mut out);
        }
        assert_eq!(leases(&mut out), [], "leaves: {leaves}");
    }
}

#[test]
fn what_was_renewed_under_the_view_before_does_not_count_in_the_next() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    session.timeout(at(100), &mut out);
    let (renewal, view) = ((Incarnation(1), 1), name(&first()));
    session.renewed(at(0), node(1), renewal, view, &mut out);
    let next = without(4).view_config;
    session.flush(node(1), next.clone(), &mut out);
    assert!(out.take().contains(&Action::Freeze));
    session.renewed(at(0), node(2), renewal, view, &mut out);
    session.renewed(at(0), node(2), renewal, name(&next), &mut out);
    assert_eq!(leases(&mut out), []);
    session.renewed(at(0), node(3), renewal, name(&next), &mut out);
    assert_eq!(leases(&mut out), [at(100) + LEASE]);
}

#[test]
fn who_is_not_in_a_certified_view_has_no_lease_any_more_and_never_again() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    session.timeout(at(100), &mut out);
    let (renewal, view) = ((Incarnation(1), 1), name(&first()));
    for id in [1, 2] {
        session.renewed(at(0), node(id), renewal, view, &mut out);
    }
    out.take();
    let next = without(5).view_config;
    session.refused(at(0), node(3), renewal, Some(&next), &mut out);
    assert_eq!(out.take(), [Action::Excluded(next.epoch)]);
    assert_eq!(session.until(), Time::ZERO);
    session.renewed(at(0), node(3), renewal, view, &mut out);
    session.flush(node(1), next, &mut out);
    assert_eq!((out.take(), session.next_timeout()), (vec![], None));
}

/// Who is in a view with this member knows it, and who has left does not hear.
#[test]
fn those_in_no_view_with_a_member_are_told_its_cluster_once_in_a_lease() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    for id in [4, 6] {
        session.meet(node(id));
    }
    let mut told = |session: &mut Session, until: u64| {
        (0..until)
            .step_by(10)
            .for_each(|ms| session.timeout(at(ms), &mut out));
        let to = |action: Action| match action {
            Action::Send(to, ViewMessage::Quorum(message)) => {
                matches!(*message, QuorumMessage::Cluster(_)).then_some(to)
            }
            _ => None,
        };
        out.take().into_iter().filter_map(to).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut session, 2_500), [node(6); 3]);
    session.part(node(6));
    assert_eq!(told(&mut session, 5_000), []);
}

#[test]
fn who_is_in_another_cluster_is_told_of_once() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    session.meet(node(6));
    let other = Membership {
        cluster: Digest::of_cluster(&"other"),
        epoch: first().epoch,
        voters: vec![voter(6)],
    };
    for _ in 0..2 {
        session.met_stranger(node(6), &other, &mut out);
    }
    let expected = Action::Stranger {
        peer: node(6),
        ours: vec![node(1), node(2), node(3)],
        theirs: vec![node(6)],
    };
    assert_eq!(out.take(), [expected]);
    assert!(session.is_stranger(node(6)));
    // It begins anew, in this one.
    session.meet(node(6));
    session.introduced(node(6), &Membership::of(&first()));
    assert!(!session.is_stranger(node(6)));
}

/// The voters that this member remembers may all be gone.
#[test]
fn a_member_asks_the_voters_of_a_later_view_that_others_tell_of() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    let mut later = Membership::of(&first());
    later.epoch = first().epoch.next().unwrap();
    later.voters = vec![voter(4)];
    session.introduced(node(4), &later);
    assert_eq!(session.voters(), [1, 2, 3, 4].map(node));
    // An older word does not take its place, nor one that makes no sense.
    session.introduced(node(4), &Membership::of(&first()));
    later.epoch = later.epoch.next().unwrap();
    for voters in [vec![], (1..=8).map(voter).collect()] {
        later.voters = voters;
        session.introduced(node(4), &later);
    }
    assert_eq!(session.voters(), [1, 2, 3, 4].map(node));
}

#[test]
fn a_session_is_not_revived() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    // It was out of the view in between, and has not heard of that one.
    let gone = without(5).view_config;
    let mut again = first();
    again.parent = gone.digest();
    again.epoch = gone.epoch.next().unwrap();
    again.since[4] = again.epoch;
    session.flush(node(1), again.clone(), &mut out);
    assert_eq!(out.take(), [Action::Excluded(again.epoch)]);
    assert_eq!(
        (session.until(), session.next_timeout()),
        (Time::ZERO, None)
    );
    // Nor by a view in which it might have gone on.
    let mut next = without(4).view_config;
    next.epoch = again.epoch.next().unwrap();
    session.flush(node(1), next, &mut out);
    assert_eq!(out.take(), []);
}

#[test]
fn only_its_coordinator_tells_of_a_view() {
    let mut out = Outbox::new(node(5));
    let mut session = installed(&mut out);
    for gone in [4, 5] {
        session.flush(node(2), without(gone).view_config, &mut out);
        assert_eq!(out.take(), [], "without {gone}");
    }
    session.flush(node(1), without(4).view_config, &mut out);
    assert!(out.take().contains(&Action::Freeze));
}

/// Of a voter that has endorsed the first view.
fn record(longest: Duration) -> VoterRecord {
    VoterRecord {
        endorsed: Some(found()),
        certified: true,
        ..VoterRecord::new(Incarnation(1), longest)
    }
}

/// Voter 1 with that record, in its incarnation so and so.
fn incarnation(incarnation: u64, record: &VoterRecord, now: Time) -> Endorser {
    let me = (voter(1), Incarnation(incarnation));
    Endorser::new(me, &config(), (record, Epoch::ZERO), now)
}

/// Voter 1, which has endorsed the first view at its start.
fn endorser() -> Endorser {
    incarnation(1, &record(LEASE), at(0))
}

fn renewal(seq: u64, stage: Stage) -> Renew {
    Renew {
        session: Incarnation(1),
        seq,
        answered: seq - 1,
        epoch: first().epoch,
        stage,
        wants_view: false,
        left: false,
        lease: LEASE,
        change: None,
    }
}

#[test]
fn a_voter_endorses_one_view_an_epoch_and_none_of_an_epoch_before() {
    let mut part = endorser();
    assert!(!part.endorse(found(), at(1)), "once more");
    assert!(part.endorse(without(5), at(1)));
    assert!(!part.endorse(without(4), at(1)), "the next is on its way");
    part.persisted(at(2));
    assert!(!part.endorse(without(4), at(3)) && !part.endorse(found(), at(3)));
    let mut unsound = without(4);
    unsound.view_config.epoch = Epoch::new(110).unwrap();
    assert!(!part.endorse(unsound, at(3)));
}

#[test]
fn the_age_counts_from_the_last_renewal_of_somebody_who_is_gone() {
    let mut out = Outbox::new(node(1));
    let mut part = endorser();
    assert_eq!(
        part.age(at(1)),
        Duration::MAX,
        "a newborn has renewed nothing"
    );
    part.renew(at(100), node(5), &renewal(1, Stage::Leased), &mut out);
    part.renew(at(150), node(4), &renewal(1, Stage::Leased), &mut out);
    assert!(part.endorse(without(5), at(160)));
    part.renew(at(200), node(5), &renewal(2, Stage::Leased), &mut out);
    part.persisted(at(250));
    // What came between decision and disk was still renewed; afterwards it is not.
    assert_eq!(part.age(at(260)), Duration::from_millis(60));
    out.take();
    part.renew(at(300), node(5), &renewal(3, Stage::Leased), &mut out);
    let said = out.take();
    let refused = |action: &Action| match action {
        Action::Send(_, ViewMessage::Quorum(said)) => {
            matches!(**said, QuorumMessage::Refused { .. })
        }
        _ => false,
    };
    assert!(!said.is_empty() && said.iter().all(refused));
    assert_eq!(part.age(at(300)), Duration::from_millis(100));
}

#[test]
fn a_restarted_voter_may_have_renewed_until_it_started() {
    let part = incarnation(2, &record(LEASE), at(500));
    assert_eq!(part.age(at(600)), Duration::from_millis(100));
}

/// What a member wanted is not wanted any more when it says so, and not wanted again when a request from before
/// comes late.
#[test]
fn a_change_is_wanted_as_the_newest_renewal_request_says() {
    let mut out = Outbox::new(node(1));
    let mut part = endorser();
    let wants = |seq, change: Option<Change>| Renew {
        change,
        ..renewal(seq, Stage::Leased)
    };
    let removal = || Some(Change::Remove(node(5)));
    let view_config = first();
    for (seq, change, is_wanted) in [
        (1, removal(), true),
        (2, None, false),
        (1, removal(), false),
        (3, removal(), true),
    ] {
        part.renew(at(100), node(4), &wants(seq, change), &mut out);
        let wanted = part.wanted_book(at(110), &view_config);
        assert_eq!(wanted.removed.contains(&node(5)), is_wanted, "{seq}");
    }
    // The voter has heard nothing of the member for a lease; or the view is without that member.
    let before = &view_config.overrides;
    assert_eq!(part.wanted_book(at(100) + LEASE, &view_config), *before);
    let mut others = view_config.clone();
    others.members.retain(|member| member.node != node(4));
    assert_eq!(part.wanted_book(at(110), &others), *before);
}

#[test]
fn nobody_waits_for_the_lease_of_one_that_left() {
    let mut out = Outbox::new(node(1));
    let mut part = endorser();
    part.renew(at(100), node(5), &renewal(1, Stage::Leased), &mut out);
    part.renew(at(110), node(5), &renewal(2, Stage::Leaving), &mut out);
    // A renewal from before overtook nothing: it is not renewed again.
    part.renew(at(120), node(5), &renewal(1, Stage::Leased), &mut out);
    assert!(part.endorse(without(5), at(130)));
    part.persisted(at(140));
    assert_eq!(part.age(at(150)), Duration::MAX);
}

/// A group that was stopped in order begins again at once, and not one of which a member was not.
#[test]
fn a_voter_that_ended_in_order_knows_whose_leases_there_may_be() {
    let mut out = Outbox::new(node(1));
    let before = endorser();
    assert!(before.is_quiet(at(0)));
    let record = VoterRecord {
        settled: true,
        ..record(LEASE)
    };
    let mut part = incarnation(2, &record, at(500));
    let anew = |left| Renew {
        session: Incarnation(2),
        epoch: Epoch::ZERO,
        left,
        ..renewal(1, Stage::Frozen)
    };
    for id in 1..=4 {
        part.renew(at(510), node(id), &anew(true), &mut out);
    }
    assert_eq!(part.leavers().count(), 4);
    part.renew(at(510), node(5), &anew(false), &mut out);
    let mut next = without(5);
    next.view_config.members = (1..=5).map(|id| member(id, 2)).collect();
    next.view_config.since = vec![next.view_config.epoch; 5];
    assert!(part.endorse(next, at(520)));
    part.persisted(at(530));
    // Its lease may have been renewed until the voter ended.
    assert_eq!(part.age(at(600)), Duration::from_millis(100));
    assert!(!part.is_quiet(at(600)));
}

/// What the members are told, in order: that the view is in force and whether locks are in quarantine,
/// or that the quarantine is lifted.
fn told(out: &mut Outbox) -> Vec<(NodeId, &'static str)> {
    let sends = out.take().into_iter().map(|action| match action {
        Action::Send(to, ViewMessage::Quorum(message)) => (to, *message),
        other => panic!("no message: {other:?}"),
    });
    sends
        .map(|(to, message)| match message {
            QuorumMessage::Flush(_) => (to, "flush"),
            QuorumMessage::Install { table, .. } if table.quarantines() => (to, "quarantine"),
            QuorumMessage::Install { .. } => (to, "install"),
            QuorumMessage::Lift { .. } => (to, "lift"),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn all(what: &'static str) -> Vec<(NodeId, &'static str)> {
    (1..=4).map(|id| (node(id), what)).collect()
}

/// The members of the view know, or do not know, that the lost member cannot hold any lock.
#[test]
fn a_view_quarantines_what_nobody_vouches_for() {
    for is_complete in [false, true] {
        let mut out = Outbox::new(node(9));
        let mut view_change = without(5);
        view_change.view_config.unclean = vec![node(5)];
        let view = name(&view_change.view_config);
        let mut coordination = Coordination::new(view_change, view.1);
        for id in 1..=3 {
            coordination.endorsed(at(10), voter(id), (Duration::ZERO, LEASE), &config());
        }
        coordination.advance(at(10), false, &mut out);
        assert_eq!(told(&mut out), all("flush"));
        for id in 1..=4 {
            let told = Summary {
                is_complete,
                ..Summary::default()
            };
            coordination.summary(node(id), view, told);
        }
        coordination.advance(at(11), false, &mut out);
        let expected = if is_complete { "install" } else { "quarantine" };
        assert_eq!(told(&mut out), all(expected));
        // A view without a quarantine has nothing to lift.
        let free = at(10) + longest_lease(LEASE);
        assert_eq!(
            coordination.next_timeout(at(11)),
            (!is_complete).then_some(free)
        );
        coordination.advance(free, false, &mut out);
        assert_eq!(told(&mut out).is_empty(), is_complete);
    }
}

#[test]
fn a_lock_delay_lengthens_the_quarantine_if_somebody_was_lost() {
    let delay = Duration::from_secs(7);
    let config = QuorumConfig {
        lock_delay: delay,
        ..config()
    };
    for lost in [vec![], vec![node(5)]] {
        let mut out = Outbox::new(node(9));
        let mut view_change = without(5);
        view_change.view_config.unclean = lost.clone();
        let view = name(&view_change.view_config);
        let mut coordination = Coordination::new(view_change, view.1);
        for id in 1..=3 {
            coordination.endorsed(at(10), voter(id), (LEASE * 2, LEASE), &config);
        }
        coordination.advance(at(10), false, &mut out);
        for id in 1..=4 {
            coordination.summary(node(id), view, Summary::default());
        }
        out.take();
        coordination.advance(at(11), false, &mut out);
        let is_free = lost.is_empty();
        let expected = if is_free { "install" } else { "quarantine" };
        assert_eq!(told(&mut out), all(expected));
        coordination.advance(at(10) + delay, false, &mut out);
        assert_eq!(told(&mut out).is_empty(), is_free);
    }
}

#[test]
fn a_quarantine_ends_when_a_majority_is_free_of_old_leases() {
    let mut out = Outbox::new(node(9));
    let view_change = without(5);
    let view = name(&view_change.view_config);
    let mut coordination = Coordination::new(view_change, view.1);
    let ms = Duration::from_millis;
    coordination.endorsed(at(1000), voter(1), (ms(100), LEASE), &config());
    coordination.advance(at(1000), false, &mut out);
    assert_eq!(told(&mut out), [], "one of three is no majority");
    coordination.endorsed(at(1010), voter(2), (ms(600), LEASE), &config());
    coordination.advance(at(1010), false, &mut out);
    assert_eq!(told(&mut out), all("flush"));
    for id in 1..=3 {
        coordination.summary(node(id), view, Summary::default());
    }
    coordination.advance(at(1015), false, &mut out);
    assert_eq!(told(&mut out), [], "not all have told");
    coordination.summary(node(4), view, Summary::default());
    coordination.advance(at(1020), false, &mut out);
    assert_eq!(told(&mut out), all("quarantine"), "leases may be alive");
    // A third voter that has renewed nothing for long makes a better certificate: with voter 2.
    coordination.endorsed(at(1030), voter(3), (LEASE * 2, LEASE), &config());
    let free = at(1010) + (longest_lease(LEASE) - ms(600));
    assert_eq!(coordination.next_timeout(at(1030)), Some(free));
    coordination.advance(free - Duration::from_nanos(1), false, &mut out);
    assert_eq!(told(&mut out), []);
    coordination.advance(free, false, &mut out);
    assert_eq!(told(&mut out), all("lift"));
}

/// Whatever a member has missed it is told when its renewal request shows so; and one that does not
/// come along for a lease is named, of the view and of the end of its quarantine alike.
#[test]
fn what_a_member_has_missed_of_a_quarantine_is_said_again() {
    let mut out = Outbox::new(node(9));
    let view_change = without(5);
    let (epoch, digest) = name(&view_change.view_config);
    let members = view_change.view_config.members.clone();
    let mut coordination = Coordination::new(view_change, digest);
    for id in 1..=2 {
        coordination.endorsed(at(0), voter(id), (Duration::ZERO, LEASE), &config());
    }
    coordination.advance(at(0), false, &mut out);
    for id in 1..=4 {
        coordination.summary(node(id), (epoch, digest), Summary::default());
    }
    coordination.advance(at(1), false, &mut out);
    out.take();
    let mut says = |coordination: &mut Coordination, ms: u64, id: usize, stage| {
        let renew = Renew {
            session: members[id - 1].incarnation,
            seq: ms,
            answered: 0,
            epoch,
            stage,
            wants_view: false,
            left: false,
            lease: LEASE,
            change: None,
        };
        let pause = LEASE / 10;
        coordination.renew(at(ms), members[id - 1], &renew, pause, &mut out);
        told(&mut out)
    };
    // Not at once: the answer may be on its way.
    assert_eq!(says(&mut coordination, 50, 1, Stage::Frozen), []);
    let again = [(node(1), "quarantine")];
    assert_eq!(says(&mut coordination, 150, 1, Stage::Frozen), again);
    assert_eq!(says(&mut coordination, 300, 2, Stage::Installed), []);
    let behind = coordination.unresponsive(at(1001), LEASE);
    assert_eq!(behind, BTreeSet::from([node(1), node(3), node(4)]));

    let mut out = Outbox::new(node(9));
    coordination.advance(Time::ZERO + longest_lease(LEASE), false, &mut out);
    assert_eq!(told(&mut out), all("lift"));
    let again = [(node(1), "install")];
    assert_eq!(says(&mut coordination, 1500, 1, Stage::Frozen), again);
    let again = [(node(2), "lift")];
    assert_eq!(says(&mut coordination, 1500, 2, Stage::Installed), again);
    assert_eq!(says(&mut coordination, 1550, 2, Stage::Installed), []);
    assert_eq!(says(&mut coordination, 1700, 3, Stage::Leased), []);
    assert_eq!(says(&mut coordination, 1700, 4, Stage::Leaving), []);
    let behind = coordination.unresponsive(at(2500), LEASE);
    assert_eq!(behind, BTreeSet::from([node(1), node(2)]));
}

/// W = L (1 + ρ) / (1 − ρ), with ρ = 0.1.
#[test]
fn the_wait_covers_clocks_that_are_a_tenth_off() {
    assert_eq!(
        longest_lease(Duration::from_millis(900)),
        Duration::from_millis(1100)
    );
}

/// What was endorsed may never come to be: of who may be a member it says nothing.
#[test]
fn what_is_not_known_to_be_certified_is_no_memory() {
    let epoch = |endorsed: &ViewChange, certified| {
        let record = VoterRecord {
            endorsed: Some(endorsed.clone()),
            certified,
            ..record(LEASE)
        };
        record.certified_view_config().map(|config| config.epoch)
    };
    let (first, second) = (found(), without(5));
    assert_eq!(epoch(&first, false), None);
    assert_eq!(epoch(&second, false), Some(first.view_config.epoch));
    assert_eq!(epoch(&second, true), Some(second.view_config.epoch));
}

/// 30 s under one file, 1 s under the next: what was renewed for 30 s may still run.
#[test]
fn a_lease_that_was_made_shorter_is_waited_for_as_long_as_it_was() {
    let (long, short) = (LEASE * 30, LEASE);
    let mut part = incarnation(2, &record(long), at(0));
    let longest = |part: &Endorser, now| part.own_status(now).endorsed.unwrap().longest;
    assert_eq!(longest(&part, at(0)), long);
    let mut out = Outbox::new(node(1));
    let nobody = BTreeSet::new();
    // What others hold under the file before, this voter does not renew for less.
    part.renew(at(10), node(5), &renewal(1, Stage::Leased), &mut out);
    let over = at(0) + longest_lease(long);
    part.timeout(over - Duration::from_nanos(1), &nobody, &mut out);
    assert_eq!(longest(&part, over), long);
    part.timeout(over, &nobody, &mut out);
    assert_eq!(longest(&part, over), short);
}

#[test]
fn a_lease_that_was_made_longer_is_renewed_when_the_disk_knows_it() {
    let mut part = incarnation(2, &record(LEASE), at(0));
    let mut out = Outbox::new(node(1));
    let long = |seq| Renew {
        lease: LEASE * 30,
        ..renewal(seq, Stage::Leased)
    };
    part.renew(at(10), node(5), &long(1), &mut out);
    assert_eq!(out.take(), []);
    // Nobody has to wait for what is not renewed yet.
    assert_eq!(part.longest(), LEASE);
    assert_eq!(part.longest_allowed(), LEASE * 30);
    part.longest_is_on_disk(LEASE * 30);
    part.renew(at(20), node(5), &long(2), &mut out);
    assert_eq!(out.take().len(), 1);
    assert_eq!(part.longest(), LEASE * 30);
}

/// Nobody has answered yet: those that are up have half a lease for that.
#[test]
fn voters_that_are_up_are_missed_after_half_a_lease() {
    let session = Session::new(member(5, 1), &config(), Vec::new(), false, at(0));
    let missing = |ms, absent: &[NodeId]| -> Vec<NodeId> {
        let overview = session.overview(at(ms), absent);
        overview.missing.iter().map(|its| its.member).collect()
    };
    assert_eq!(missing(0, &[]), []);
    assert_eq!(missing(499, &[node(2)]), [node(2)]);
    assert_eq!(missing(500, &[]), [1, 2, 3].map(node));
}

#[test]
fn a_member_notes_the_voters_of_its_cluster_when_they_change() {
    let mut out = Outbox::new(node(5));
    let own = Affiliation::new(Incarnation(1));
    let mut founding = FoundingPart::new(member(5, 1), own, (Epoch::ZERO, LEASE), at(0));
    let mut membership = Membership::of(&first());
    let mut written = |membership: &Membership| {
        founding.join(membership.clone(), &mut out);
        let actions = out.take();
        let noted = founding.affiliation().membership();
        assert_eq!(noted.map(|its| &its.voters), Some(&membership.voters));
        actions.len()
    };
    assert_eq!(written(&membership), 1);
    assert_eq!(written(&membership), 0, "it is on disk");
    membership.voters.pop();
    assert_eq!(written(&membership), 1);
}

/// What is not on disk may be forgotten, and then this member could accept the founding after all.
#[test]
fn a_member_says_that_it_is_in_another_cluster_when_that_is_on_disk() {
    let mut out = Outbox::new(node(5));
    let own = Affiliation::new(Incarnation(1));
    let mut part = FoundingPart::new(member(5, 1), own, (Epoch::ZERO, LEASE), at(0));
    part.join(Membership::of(&first()), &mut out);
    out.take();
    let mut view_config = first();
    view_config.cluster = Digest([7; 32]);
    let founding = Founding {
        view_config,
        parties: Vec::new(),
        longest: LEASE,
        abandons: None,
    };
    for is_on_disk in [false, true] {
        if is_on_disk {
            part.persisted();
        }
        part.offered(at(1), (node(1), founding.clone()), &config(), &mut out);
        assert_eq!(out.take().len(), usize::from(is_on_disk));
    }
}
