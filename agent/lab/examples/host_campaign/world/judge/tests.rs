//! What the judge must not let pass, and what it must.

use super::super::WAKING;
use super::{Entry, Judge, Leases};
use crate::page::NEVER;
use crate::scheduler::BEGIN;

const MEMBER: u32 = 1;
const NOW: u64 = BEGIN + 1_000_000_000;
const PROGRAM: Entry = Entry {
    lock: 0,
    is_command: false,
    is_shared: false,
    aborts: false,
};
const COMMAND: Entry = Entry {
    is_command: true,
    ..PROGRAM
};
const READER: Entry = Entry {
    is_shared: true,
    ..PROGRAM
};

fn nobody_sleeps(_: usize) -> bool {
    false
}

/// Says that nobody stood still.
fn runs(_: u32) -> u64 {
    0
}

/// A judge in whose world these have entered, one after the other, by the member of host 0.
fn judge(entered: &[(u32, Entry)]) -> Judge {
    let mut judge = Judge::new(2);
    for (pid, how) in entered {
        judge.entered(*pid, (0, Some(MEMBER)), *how);
    }
    judge
}

/// Whether nobody is inside that may not be, at a time at which all programs have said that they hold the lock.
fn passes(judge: &mut Judge, now: u64) -> bool {
    for pid in judge.valid().collect::<Vec<_>>() {
        judge.says(now, pid, true);
    }
    judge.check(now, nobody_sleeps, &[0, 0], None).is_ok()
}

#[test]
fn two_must_not_be_inside() {
    for kinds in [
        [PROGRAM, PROGRAM],
        [PROGRAM, COMMAND],
        [COMMAND, PROGRAM],
        [COMMAND, COMMAND],
    ] {
        let mut judge = judge(&[(10, kinds[0]), (11, kinds[1])]);
        assert!(!passes(&mut judge, NOW), "{kinds:?}");
        judge.left(10);
        assert!(passes(&mut judge, NOW), "{kinds:?}");
    }
}

#[test]
fn a_guard_that_is_void_counts_for_nobody() {
    let mut judge = judge(&[(10, PROGRAM), (11, PROGRAM)]);
    judge.says(5, 10, false);
    judge.says(5, 11, true);
    assert!(judge.check(5, nobody_sleeps, &[0, 0], None).is_ok());
}

#[test]
fn a_command_counts_though_nobody_asks_it() {
    let judge = judge(&[(10, COMMAND), (11, COMMAND)]);
    let now = NOW;
    assert!(judge.check(now, nobody_sleeps, &[0, 0], None).is_err());
    // Of a host that sleeps, or has just woken, it does nothing yet.
    assert!(judge.check(now, |host| host == 0, &[0, 0], None).is_ok());
    assert!(judge.check(now, nobody_sleeps, &[now, 0], None).is_ok());
    let later = now + WAKING;
    assert!(judge.check(later, nobody_sleeps, &[now, 0], None).is_err());
}

#[test]
fn readers_are_inside_together_and_with_no_writer() {
    let mut readers = judge(&[
        (10, READER),
        (
            11,
            Entry {
                is_command: true,
                ..READER
            },
        ),
    ]);
    assert!(passes(&mut readers, NOW));
    readers.entered(12, (1, Some(MEMBER)), PROGRAM);
    assert!(!passes(&mut readers, NOW));
}

#[test]
fn no_more_are_inside_than_there_are_permits() {
    let mut judge = judge(&[(10, PROGRAM), (11, PROGRAM)]);
    judge.permits = 2;
    assert!(passes(&mut judge, NOW));
    judge.entered(12, (1, Some(MEMBER)), PROGRAM);
    assert!(!passes(&mut judge, NOW));
}

#[test]
fn nothing_goes_on_after_the_last_lease() {
    let end = NOW;
    let leases = Leases::from([(MEMBER, end)]);
    let check = |judge: &Judge, now: u64| {
        judge
            .check_leases(now, nobody_sleeps, &[0, 0], runs, &leases)
            .is_ok()
    };
    let mut program = judge(&[(10, PROGRAM)]);
    program.says(end, 10, true);
    assert!(check(&program, end));
    program.says(end + 1, 10, true);
    assert!(!check(&program, end + 1));
    program.says(end + 1, 10, false);
    assert!(check(&program, end + 1));

    let command = judge(&[(10, COMMAND)]);
    assert!(check(&command, end + WAKING));
    assert!(!check(&command, end + WAKING + 1));
    assert_eq!(command.due(nobody_sleeps, &leases), end + WAKING);

    let mut aborts = judge(&[(
        10,
        Entry {
            aborts: true,
            ..PROGRAM
        },
    )]);
    aborts.says(end + 1, 10, false);
    assert!(check(&aborts, end + WAKING));
    assert!(!check(&aborts, end + WAKING + 1));
    // It may go on as long after it has stood still.
    let late = |judge: &Judge, ran: u64| {
        let now = end + WAKING + 1;
        judge.check_leases(now, nobody_sleeps, &[0, 0], |_| ran, &leases)
    };
    assert!(late(&aborts, end + 1).is_ok());
    assert!(late(&aborts, NEVER).is_ok());
    assert!(late(&aborts, end).is_err());
}

#[test]
fn fences_rise() {
    let mut judge = judge(&[(10, PROGRAM)]);
    judge.check_fence(10, 5).unwrap();
    judge.check_fence(10, 5).unwrap_err();
    judge.check_fence(10, 4).unwrap_err();
    judge.check_fence(10, 6).unwrap();
    // What is void already may have an old one.
    judge.says(1, 10, false);
    judge.check_fence(10, 3).unwrap();
}

#[test]
fn a_readers_fence_is_above_those_of_earlier_writers_only() {
    let mut judge = judge(&[(10, PROGRAM)]);
    judge.check_fence(10, 5).unwrap();
    judge.left(10);
    judge.entered(11, (0, Some(MEMBER)), READER);
    judge.check_fence(11, 8).unwrap();
    judge.check_fence(11, 7).unwrap();
    judge.check_fence(11, 7).unwrap_err();
    judge.check_fence(11, 4).unwrap_err();
    judge.entered(12, (0, Some(MEMBER)), PROGRAM);
    judge.check_fence(12, 6).unwrap_err();
    judge.check_fence(12, 9).unwrap();
}

#[test]
fn the_next_holder_is_told_of_one_that_died_inside() {
    let dead = || {
        let mut judge = judge(&[(10, PROGRAM)]);
        assert!(judge.ended(10).is_some());
        judge
    };
    let next = |judge: &mut Judge, pid: u32, how: Entry, is_told: bool| {
        judge.entered(pid, (1, Some(MEMBER)), how);
        let is_right = judge.check_previous_owner(pid, is_told).is_ok();
        judge.left(pid);
        is_right
    };
    assert!(!next(&mut dead(), 11, PROGRAM, false));
    let mut told = dead();
    assert!(next(&mut told, 11, PROGRAM, true));
    assert!(next(&mut told, 12, PROGRAM, false));
    // One that shares the lock may not be; the next one that does not has to be.
    let mut shared = dead();
    assert!(next(&mut shared, 11, READER, false));
    assert!(!next(&mut shared, 12, PROGRAM, false));
}

#[test]
fn one_that_gave_its_lock_back_did_not_die_inside() {
    let mut left = judge(&[(10, PROGRAM)]);
    left.left(10);
    assert!(left.ended(10).is_none());
    let mut lost = judge(&[(10, PROGRAM)]);
    lost.says(1, 10, false);
    assert!(lost.ended(10).is_none());
    let mut closed = judge(&[(10, PROGRAM)]);
    closed.closes(10);
    assert!(closed.ended(10).is_none());
}

#[test]
fn two_locks_have_nothing_to_do_with_each_other() {
    let other = Entry { lock: 1, ..PROGRAM };
    let mut judge = judge(&[(10, PROGRAM), (11, other)]);
    assert!(passes(&mut judge, NOW));
    assert!(judge.are_held());
    judge.check_fence(10, 7).unwrap();
    judge.check_fence(11, 5).unwrap();
    assert!(judge.ended(11).is_some());
    judge.entered(12, (0, Some(MEMBER)), PROGRAM);
    judge.check_previous_owner(12, false).unwrap();
    judge.entered(13, (0, Some(MEMBER)), other);
    judge.check_previous_owner(13, false).unwrap_err();
}
