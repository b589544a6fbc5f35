//! What the coordinator of a view waits for, and which members it tells.

use super::*;

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
