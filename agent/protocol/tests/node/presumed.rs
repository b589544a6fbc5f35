//! Whole members where the silent are presumed gone.

use std::time::Duration;

use distlock_protocol::{Algorithm, Failure, Previous, Refusal, Wait};

use crate::group::Group;

const LEASE: Duration = Duration::from_secs(1);

fn group(size: u16, algorithm: Algorithm) -> Group {
    Group::with(size, algorithm, Failure::PresumeFailed)
}

/// Half a lease of silence, and what the others need to agree.
#[test]
fn a_dead_holder_is_replaced_within_a_lease() {
    for algorithm in Algorithm::ALL {
        let mut group = group(3, algorithm);
        group.acquire(1, 1, Wait::Lease);
        group.run(LEASE);
        assert!(group.granted(1).is_some(), "{algorithm}");
        group.acquire(2, 2, Wait::Lease);
        group.acquire(3, 3, Wait::Cancelled);
        group.run(LEASE);
        assert_eq!((group.granted(2), group.granted(3)), (None, None));
        group.stop(1);
        group.run(LEASE * 7 / 10);
        let entered = [2, 3].map(|ticket| group.granted(ticket).is_some());
        assert_ne!(entered[0], entered[1], "{algorithm}: one of them");
        assert_eq!(group.members(2), [2, 3]);
        let told = group.told(2).or(group.told(3));
        let why = "its holder died inside";
        assert_eq!(told, Some(Previous::Abandoned), "{algorithm}: {why}");
    }
}

#[test]
fn both_sides_of_a_cut_go_on_and_one_gives_way_when_it_heals() {
    for algorithm in Algorithm::ALL {
        let mut group = group(3, algorithm);
        group.acquire(3, 1, Wait::Lease);
        group.run(LEASE);
        assert!(group.granted(1).is_some(), "{algorithm}");
        group.isolate(3);
        group.acquire(1, 2, Wait::Lease);
        group.run(LEASE);
        assert!(group.granted(2).is_some(), "{algorithm}: two are inside");
        assert_eq!(group.members(3), [3]);
        assert!(!group.lost(1) && !group.lost(2));
        group.heal();
        group.run(LEASE * 2);
        assert!(group.lost(1), "{algorithm}: the higher one gives way");
        assert!(!group.lost(2));
        group.are_together(&[1, 2, 3]);
        group.acquire(3, 3, Wait::Lease);
        group.run(LEASE / 2);
        assert_eq!(group.granted(3), None);
        group.release(1, 2);
        group.run(LEASE);
        assert!(group.granted(3).is_some(), "{algorithm}");
    }
}

#[test]
fn who_comes_back_is_a_member_again() {
    let mut group = group(3, Algorithm::Bakery);
    group.stop(2);
    group.run(LEASE);
    assert_eq!(group.members(1), [1, 3]);
    group.start(2);
    group.run(LEASE * 2);
    assert_eq!(group.members(2), [1, 2, 3]);
    group.acquire(2, 1, Wait::Lease);
    group.run(LEASE);
    assert!(group.granted(1).is_some());
}

#[test]
fn one_alone_goes_on_and_lacks_nobody() {
    let mut group = group(2, Algorithm::RicartAgrawala);
    group.stop(1);
    group.acquire(2, 1, Wait::Lease);
    group.run(LEASE * 2);
    assert!(group.granted(1).is_some());
    // Its own thread waits longer than a lease, though a member of the file is away.
    group.acquire(2, 2, Wait::Lease);
    group.run(LEASE * 3);
    assert_eq!(group.ended(2), None);
    group.acquire(2, 3, Wait::Try);
    group.run(LEASE);
    assert_eq!(group.ended(3), Some(&Refusal::Busy));
}

/// Each took the other for gone, as no view can have both, and two were inside: the rule is for the
/// silent, and these hear each other.
#[test]
fn members_whose_settings_differ_do_not_go_on_beside_each_other() {
    for lease in [LEASE * 9 / 10, LEASE * 5] {
        let mut group = group(3, Algorithm::RicartAgrawala);
        group.run(LEASE * 2);
        // One that is started with another file does not enter beside those that are there.
        group.settings.lease = lease;
        group.start(3);
        group.acquire(3, 1, Wait::Cancelled);
        group.acquire(1, 2, Wait::Lease);
        group.run(LEASE * 20);
        assert_eq!(group.granted(1), None, "{lease:?}");
        assert!(group.granted(2).is_some(), "{lease:?}: the others go on");
        group.release(1, 2);
        // Another follows, and the two wait for the last.
        group.start(2);
        group.run(LEASE * 20);
        assert_eq!(group.granted(1), None, "{lease:?}: member 1 is there");
        group.start(1);
        group.run(LEASE * 20);
        assert!(group.granted(1).is_some(), "{lease:?}");
        group.are_together(&[1, 2, 3]);
    }
}

/// Beside a member with another file, those with the group's come and go.
#[test]
fn a_view_goes_on_beside_a_member_whose_settings_differ() {
    let mut group = group(3, Algorithm::RicartAgrawala);
    group.run(LEASE * 2);
    let right = group.settings.lease;
    group.settings.lease = LEASE * 5;
    group.start(3);
    group.run(LEASE * 5);
    group.settings.lease = right;
    for (ticket, restarted) in (1..).zip([2, 1, 2, 1]) {
        group.start(restarted);
        group.acquire(restarted, ticket, Wait::Cancelled);
        group.run(LEASE * 10);
        assert!(group.granted(ticket).is_some(), "member {restarted}");
        assert_eq!(group.members(restarted), [1, 2]);
        group.release(restarted, ticket);
    }
}
