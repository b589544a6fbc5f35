//! Who ended inside is told of.

use super::*;

#[test]
fn who_ended_inside_must_be_told_of_and_nobody_else() {
    // A caller of a member that lives.
    let ends = |how: Release| {
        let mut history = History::new();
        history.ask(1, 1, 1, "printer", Wait::Lease);
        history.ask(2, 1, 1, "printer", Wait::Lease);
        history.grant(1, 1, 1, fence(1, 1)).unwrap();
        history.release_as(how, 1, 1);
        history
    };
    let second = (2, 1, 1);
    assert_broken(
        ends(Release::Abandoned).grant(2, 1, 1, fence(1, 2)),
        Rule::Abandonment,
        "is not told",
    );
    assert_broken(
        ends(Release::Given).grant_after(Previous::Abandoned, second, fence(1, 2)),
        Rule::Abandonment,
        "but none did",
    );
    // Once it was told, it is over; unless that one never knew.
    for (how, next) in [
        (Release::Given, Previous::Clean),
        (Release::Unused, Previous::Abandoned),
    ] {
        for told in [Previous::Clean, Previous::Abandoned] {
            let mut history = ends(Release::Abandoned);
            history
                .grant_after(Previous::Abandoned, second, fence(1, 2))
                .unwrap();
            history.release_as(how, 2, 1);
            history.ask(1, 1, 2, "printer", Wait::Lease);
            let third = history.grant_after(told, (1, 1, 2), fence(1, 3));
            if told == next {
                third.unwrap();
            } else {
                assert_broken(third, Rule::Abandonment, "told");
            }
        }
    }
}

#[test]
fn a_view_without_somebody_may_tell_of_any_lock_once() {
    let mut history = History::new();
    for ticket in 1..=2 {
        history.ask(2, 1, ticket, "printer", Wait::Lease);
    }
    // Nobody was inside, but who can tell?
    history.checkers.crashes(process(1, 1));
    history.begins(1, 2, 0);
    for (node, incarnation) in [(1, 2), (2, 1), (3, 1)] {
        history.view(node, incarnation, 2).unwrap();
    }
    history
        .grant_after(Previous::Abandoned, (2, 1, 1), fence(2, 1))
        .unwrap();
    history.release(2, 1);
    assert_broken(
        history.grant_after(Previous::Abandoned, (2, 1, 2), fence(2, 2)),
        Rule::Abandonment,
        "but none did",
    );
}

#[test]
fn in_the_end_one_of_several_was_told_of() {
    let mut history = History::new();
    for ticket in 1..=2 {
        history.ask(1, 1, ticket, "licences", Wait::Lease);
    }
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    history.release_as(Release::Abandoned, 1, 1);
    assert_broken(
        history.checkers.all_told(Time::ZERO),
        Rule::Abandonment,
        "nobody was ever told",
    );
    // Who was let in before it was known need not be told.
    history.grant(1, 1, 2, fence(1, 2)).unwrap();
    history.ask(2, 1, 1, "licences", Wait::Lease);
    history
        .grant_after(Previous::Abandoned, (2, 1, 1), fence(1, 3))
        .unwrap();
    history.checkers.all_told(Time::ZERO).unwrap();
}

/// Who was told did not enter after all, and says so when a view has gone on without it: in that
/// one somebody else was told.
#[test]
fn what_a_removed_member_did_not_use_is_owed_to_nobody() {
    let told_and_unused = |is_removed: bool| {
        let mut history = History::leasing();
        for (node, ticket) in [(1, 2), (1, 3)] {
            history.ask(node, 1, ticket, "licences", Wait::Lease);
        }
        history.grant(1, 1, 2, fence(1, 1)).unwrap();
        history.release_as(Release::Abandoned, 1, 2);
        history
            .grant_after(Previous::Abandoned, (1, 1, 3), fence(1, 2))
            .unwrap();
        if is_removed {
            history.sees_without_1(2).unwrap();
        }
        history.release_as(Release::Unused, 1, 3);
        history.checkers.all_told(Time::ZERO)
    };
    told_and_unused(true).unwrap();
    assert_broken(
        told_and_unused(false),
        Rule::Abandonment,
        "nobody was ever told",
    );
}

/// A view has gone on without member 1, and does not know whether that one holds the lock. It enters,
/// as its lease still runs, and leaves: the next holder in the view may be told of a former one.
#[test]
fn who_enters_in_a_view_before_does_not_settle_what_the_newest_may_tell() {
    let mut history = History::leasing();
    history.sees_without_1(2).unwrap();
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    history.release(1, 1);
    history
        .grant_after(Previous::Abandoned, (2, 1, 1), fence(2, 1))
        .unwrap();
}
