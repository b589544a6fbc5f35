//! What a session has: leases, views and words from others.

use super::*;

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

/// The members of the same view know the cluster; a member that has left hears nothing.
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
