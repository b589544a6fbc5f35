//! What who enters is told of the holder before.

use std::time::Duration;

use distlock_protocol::{Algorithm, Command, Input, LockSpec, Mode, Previous, Release, Wait};

use crate::group::{Group, node};

const LONG: Duration = Duration::from_secs(5);

impl Group {
    /// `me` enters and leaves; what it was told.
    fn visit(&mut self, me: u16, ticket: u64, how: Release) -> Previous {
        self.acquire(me, ticket, Wait::Cancelled);
        self.run(LONG);
        let told = self.told(ticket).expect("granted");
        self.release_as(me, ticket, how);
        self.run(LONG);
        told
    }

    fn leave_and_return(&mut self, me: u16) {
        self.input(node(me), Input::Command(&Command::Leave));
        self.run(LONG);
        self.start(me);
        self.run(LONG);
    }
}

#[test]
fn a_client_that_died_is_told_of_once() {
    for algorithm in Algorithm::ALL {
        for next in 1..=3 {
            let mut group = Group::new(3, algorithm);
            assert_eq!(group.visit(2, 1, Release::Abandoned), Previous::Clean);
            let told = [2, 3, 4].map(|ticket| group.visit(next, ticket, Release::Given));
            let once = [Previous::Abandoned, Previous::Clean, Previous::Clean];
            assert_eq!(told, once, "{algorithm}, next at {next}");
        }
    }
}

#[test]
fn who_never_knew_of_its_grant_was_not_told() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(3, algorithm);
        group.visit(1, 1, Release::Abandoned);
        assert_eq!(group.visit(2, 2, Release::Unused), Previous::Abandoned);
        assert_eq!(group.visit(3, 3, Release::Given), Previous::Abandoned);
        assert_eq!(group.visit(1, 4, Release::Unused), Previous::Clean);
        assert_eq!(group.visit(2, 5, Release::Given), Previous::Clean);
    }
}

#[test]
fn a_mark_outlives_views_until_somebody_enters() {
    for algorithm in Algorithm::ALL {
        for leaver in 1..=3 {
            let mut group = Group::new(3, algorithm);
            group.visit(2, 1, Release::Abandoned);
            for _ in 0..3 {
                group.leave_and_return(leaver);
            }
            let told = group.visit(3, 2, Release::Given);
            assert_eq!(told, Previous::Abandoned, "{algorithm}, {leaver} left");
            group.leave_and_return(leaver);
            let told = group.visit(1, 3, Release::Given);
            // That somebody was told is known best by who was: if it left, the others cannot tell.
            if leaver != 3 {
                assert_eq!(told, Previous::Clean, "{algorithm}, {leaver} left");
            }
        }
    }
}

#[test]
fn a_mark_outlives_the_whole_group() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(2, algorithm);
        group.visit(1, 1, Release::Abandoned);
        (1..=2).for_each(|me| group.leave(me));
        group.run(LONG);
        (1..=2).for_each(|me| group.start(me));
        group.run(LONG);
        let told = group.visit(2, 2, Release::Given);
        assert_eq!(told, Previous::Abandoned, "{algorithm}");
    }
}

#[test]
fn a_member_that_died_inside_is_told_of() {
    for algorithm in Algorithm::ALL {
        for victim in 1..=3 {
            let mut group = Group::new(3, algorithm);
            group.acquire(victim, 1, Wait::Cancelled);
            group.run(LONG);
            assert!(group.told(1).is_some());
            group.start(victim);
            group.run(LONG);
            let told = group.visit(1 + victim % 3, 2, Release::Given);
            assert_eq!(told, Previous::Abandoned, "{algorithm}, {victim} died");
            let told = group.visit(victim, 3, Release::Given);
            assert_eq!(told, Previous::Clean, "{algorithm}, {victim} died");
        }
    }
}

/// Another one is inside when a member dies: it vouches that nobody else was.
#[test]
fn a_member_that_died_outside_is_no_reason_for_alarm() {
    for algorithm in Algorithm::ALL {
        for victim in 2..=3 {
            let mut group = Group::new(3, algorithm);
            group.visit(victim, 1, Release::Given);
            group.acquire(1, 2, Wait::Cancelled);
            group.run(LONG);
            group.start(victim);
            group.run(LONG);
            group.release(1, 2);
            let told = group.visit(2, 3, Release::Given);
            assert_eq!(told, Previous::Clean, "{algorithm}, {victim} died");
        }
    }
}

/// Nobody is inside. Who has asked nobody, or has not the token, or is not in the server's books,
/// cannot have been.
#[test]
fn a_member_that_used_nothing_is_vouched_for() {
    for algorithm in Algorithm::ALL {
        let mut clean = 0;
        for victim in 2..=3 {
            let mut group = Group::new(3, algorithm);
            group.visit(1, 1, Release::Given);
            group.start(victim);
            group.run(LONG);
            clean += usize::from(group.visit(1, 2, Release::Given) == Previous::Clean);
        }
        let (at_least, why) = match algorithm {
            Algorithm::TokenRing => (0, "the token may have been anywhere"),
            Algorithm::Semaphore => (1, "one of the two may be the server"),
            Algorithm::Maekawa | Algorithm::Majority => {
                (1, "the other voter of one of the two was never asked")
            }
            Algorithm::Voting => (0, "the others may have voted for it"),
            _ => (2, "somebody knows"),
        };
        assert!(clean >= at_least, "{algorithm}: {clean} of 2, {why}");
    }
}

/// Nobody is left who could tell, of any lock.
#[test]
fn a_group_of_one_cannot_vouch_for_itself() {
    let ask = |group: &mut Group, ticket: u64, lock: &str| {
        group.ask(1, ticket, lock, None, Mode::Exclusive, Wait::Cancelled);
        group.run(LONG);
        let told = group.told(ticket).expect("granted");
        group.release(1, ticket);
        told
    };
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(1, algorithm);
        assert_eq!(ask(&mut group, 1, "a"), Previous::Clean);
        group.start(1);
        for (ticket, lock) in [(2, "a"), (3, "b")] {
            let told = ask(&mut group, ticket, lock);
            assert_eq!(told, Previous::Abandoned, "{algorithm}, {lock}");
            let told = ask(&mut group, ticket + 10, lock);
            assert_eq!(told, Previous::Clean, "{algorithm}, {lock}");
        }
        // Nothing is left to tell, once it has ended in order.
        group.leave_and_return(1);
        assert_eq!(ask(&mut group, 20, "a"), Previous::Clean, "{algorithm}");
        assert_eq!(ask(&mut group, 21, "c"), Previous::Clean, "{algorithm}");
    }
}

/// The coordinator, who knows all locks, is among those who died: of a lock that the others do not
/// know they cannot tell. What somebody has entered since they do know, over views.
#[test]
fn a_lock_that_nobody_knows_is_in_doubt_until_it_is_entered() {
    let mut group = Group::new(3, Algorithm::RicartAgrawala);
    group.start(1);
    group.run(LONG);
    for _ in 0..2 {
        group.leave_and_return(2);
    }
    assert_eq!(group.visit(2, 1, Release::Given), Previous::Abandoned);
    for _ in 0..2 {
        group.leave_and_return(3);
        group.leave_and_return(1);
    }
    assert_eq!(group.visit(3, 2, Release::Given), Previous::Clean);
    // The coordinator is there, and vouches for what it does not know.
    let mut group = Group::new(3, Algorithm::RicartAgrawala);
    group.start(2);
    group.run(LONG);
    assert_eq!(group.visit(3, 1, Release::Given), Previous::Clean);
}

/// A reader may have been let in before another one's end was known, and cannot repair anything:
/// readers are told, and the mark stays for who is alone.
#[test]
fn a_reader_that_died_is_told_of_until_a_writer_knows() {
    let mut group = Group::new(3, Algorithm::Semaphore);
    for me in 1..=2 {
        group.share(me, u64::from(me));
    }
    group.run(LONG);
    group.release_as(1, 1, Release::Abandoned);
    group.run(LONG);
    for ticket in [3, 4] {
        group.share(3, ticket);
        group.run(LONG);
        assert_eq!(group.told(ticket), Some(Previous::Abandoned));
        group.release(3, ticket);
    }
    group.release(2, 2);
    assert_eq!(group.visit(2, 5, Release::Given), Previous::Abandoned);
    assert_eq!(group.visit(1, 6, Release::Given), Previous::Clean);
    group.share(3, 7);
    group.run(LONG);
    assert_eq!(group.told(7), Some(Previous::Clean));
}

/// Of several permits it is some holder before, and one entry at least is told.
#[test]
fn one_of_several_is_told() {
    let mut group = Group::new(3, Algorithm::Semaphore);
    let two = LockSpec {
        permits: 2.try_into().unwrap(),
        ..LockSpec::exclusive(Algorithm::Semaphore)
    };
    let mut ask = |me: u16, ticket: u64| {
        let spec = Some(two);
        group.ask(
            me,
            ticket,
            "licences",
            spec,
            Mode::Exclusive,
            Wait::Cancelled,
        );
        group.run(LONG);
        let told = group.told(ticket);
        match ticket {
            1 => (),
            2 => group.release_as(me, ticket, Release::Abandoned),
            _ => group.release(me, ticket),
        }
        group.run(LONG);
        told.expect("granted")
    };
    assert_eq!(ask(1, 1), Previous::Clean);
    assert_eq!(ask(2, 2), Previous::Clean);
    assert_eq!(ask(3, 3), Previous::Abandoned);
    assert_eq!(ask(2, 4), Previous::Clean);
}

/// It costs no datagram: what is told rides on what is said anyway.
#[test]
fn no_datagram_more_is_sent() {
    for algorithm in Algorithm::ALL {
        let sent = [Release::Given, Release::Abandoned].map(|how| {
            let mut group = Group::new(3, algorithm);
            group.visit(2, 1, Release::Given);
            let before = group.sent.len();
            for ticket in 2..10 {
                let how = if ticket == 4 { how } else { Release::Given };
                group.acquire(1 + ticket as u16 % 3, ticket, Wait::Cancelled);
                group.run(Duration::from_millis(100));
                assert!(group.told(ticket).is_some());
                group.release_as(1 + ticket as u16 % 3, ticket, how);
                group.run(Duration::from_millis(100));
            }
            group.sent.len() - before
        });
        assert_eq!(sent[0], sent[1], "{algorithm}");
    }
}
