//! The judge of fairness, with stories that break what it demands.

use distlock_lab::checkers::{Call, Fairness, Rule};
use distlock_protocol::{Mode, Ticket, Time};

use super::process;

fn call(node: u16, ticket: u64) -> Call {
    Call {
        process: process(node, 1),
        ticket: Ticket(ticket),
    }
}

/// Member 2 waits while so many requests (`times`) of member 1 that were made later are granted, and one of
/// member 3.
fn overtake(modes: (Mode, Mode), times: u64, known: bool) -> Result<(), Rule> {
    let mut fairness = Fairness::default();
    fairness.asks(call(2, 1), modes.0);
    if known {
        fairness.is_known(call(2, 1));
    }
    for ticket in 1..=times {
        fairness.asks(call(1, ticket), modes.1);
        let granted = fairness.grants(Time::ZERO, call(1, ticket));
        granted.map_err(|violation| violation.rule)?;
    }
    fairness.asks(call(3, 1), modes.1);
    let granted = fairness.grants(Time::ZERO, call(3, 1));
    granted.map_err(|violation| violation.rule)
}

#[test]
fn a_member_goes_before_another_twice_at_most() {
    let alone = Mode::Exclusive;
    for mode in [alone, Mode::Shared] {
        assert_eq!(overtake((alone, mode), 2, true), Ok(()));
        assert_eq!(overtake((alone, mode), 3, true), Err(Rule::Fairness));
        assert_eq!(
            overtake((alone, mode), 9, false),
            Ok(()),
            "nobody knew of it"
        );
    }
    let shared = Mode::Shared;
    assert_eq!(overtake((shared, shared), 9, true), Ok(()));
    assert_eq!(overtake((shared, alone), 3, true), Err(Rule::Fairness));
}

/// What was asked before all knew of the one that waits may have a place before it.
#[test]
fn requests_that_were_made_before_do_not_overtake() {
    let mut fairness = Fairness::default();
    fairness.asks(call(2, 1), Mode::Exclusive);
    for ticket in 1..=3 {
        fairness.asks(call(1, ticket), Mode::Exclusive);
    }
    fairness.is_known(call(2, 1));
    for ticket in 1..=3 {
        assert!(fairness.grants(Time::ZERO, call(1, ticket)).is_ok());
    }
}

/// In a new view all are asked for anew, and whoever waits no longer is not overtaken.
#[test]
fn a_view_and_an_end_begin_anew() {
    let mut fairness = Fairness::default();
    fairness.asks(call(2, 1), Mode::Exclusive);
    fairness.is_known(call(2, 1));
    fairness.begins_view();
    for ticket in 1..=5 {
        fairness.asks(call(1, ticket), Mode::Exclusive);
        assert!(fairness.grants(Time::ZERO, call(1, ticket)).is_ok());
    }
    fairness.is_known(call(2, 1));
    fairness.ends(call(2, 1));
    for ticket in 6..=9 {
        fairness.asks(call(1, ticket), Mode::Exclusive);
        assert!(fairness.grants(Time::ZERO, call(1, ticket)).is_ok());
    }
}
