//! What voters remember, endorse and renew.

use super::*;

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

/// W = L (1 + ρ) / (1 − ρ), with ρ = 0.1.
#[test]
fn the_wait_covers_clocks_that_are_a_tenth_off() {
    assert_eq!(
        longest_lease(Duration::from_millis(900)),
        Duration::from_millis(1100)
    );
}

/// A view that was endorsed may never be certified: its members and voters are not remembered.
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

/// Others may have renewed for 30 s what a new voter, whose file says 1 s, is to vouch for.
#[test]
fn a_new_voter_remembers_the_longest_lease_of_the_others() {
    let (long, short) = (LEASE * 30, LEASE);
    let other = (voter(2), Incarnation(2));
    let other = Endorser::new(other, &config(), (&record(long), Epoch::ZERO), at(0));
    let new = VoterRecord::new(Incarnation(1), short);
    let mut part = incarnation(1, &new, at(0));
    part.status(at(5), node(2), other.own_status(at(5)));
    assert!(part.endorse(found(), at(10)));
    part.persisted(at(20));
    let mut out = Outbox::new(node(1));
    let nobody = BTreeSet::new();
    let over = at(10) + longest_lease(long);
    part.timeout(over - Duration::from_nanos(1), &nobody, &mut out);
    assert_eq!(part.longest(), long);
    part.timeout(over, &nobody, &mut out);
    assert_eq!(part.longest(), short);
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
