//! The rules where the silent are presumed gone: what they judge, and when.

use distlock_lab::checkers::Rule;
use distlock_protocol::{Epoch, Event, Ticket, Wait};

use super::{History, assert_broken, fence, id, process};

impl History {
    fn sees(&mut self, node: u16, epoch: u32, members: &[u16]) {
        let epoch = Epoch::new(epoch).unwrap();
        let members = members.iter().map(|&member| id(member)).collect();
        self.event(node, 1, &Event::View { epoch, members })
            .unwrap();
    }

    fn suspects(&mut self, node: u16, peer: u16) {
        self.event(node, 1, &Event::Suspect { peer: id(peer) })
            .unwrap();
    }

    fn hears(&mut self, node: u16, peer: u16) {
        self.event(node, 1, &Event::Alive { peer: id(peer) })
            .unwrap();
    }
}

/// 1 and 2 want the printer, and 1 has it.
fn one_inside() -> History {
    let mut history = History::presuming();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.ask(2, 1, 1, "printer", Wait::Lease);
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    history
}

/// 2 and 3 take 1 for gone, and 2 enters too.
fn two_inside() -> History {
    let mut history = one_inside();
    history.suspects(2, 1);
    history.suspects(3, 1);
    history.sees(2, 2, &[2, 3]);
    history.sees(3, 2, &[2, 3]);
    history.grant(2, 1, 1, fence(2, 1)).unwrap();
    history.settle().unwrap();
    history
}

#[test]
fn two_inside_while_nobody_is_presumed_gone_break_exclusion() {
    let second = one_inside().grant(2, 1, 1, fence(1, 2));
    assert_broken(second, Rule::Exclusion, "ticket 1 of member 1");
}

#[test]
fn the_death_of_a_holder_is_no_split() {
    let mut history = one_inside();
    history.checkers.crashes(process(1, 1));
    history.suspects(2, 1);
    history.suspects(3, 1);
    history.sees(2, 2, &[2, 3]);
    history.ask(3, 1, 1, "printer", Wait::Lease);
    history.sees(3, 2, &[2, 3]);
    history.settle().unwrap();
    history
        .grant_after(
            distlock_protocol::Previous::Abandoned,
            (2, 1, 1),
            fence(2, 1),
        )
        .unwrap();
    let second = history.grant(3, 1, 1, fence(2, 2));
    assert_broken(second, Rule::Exclusion, "member 2");
}

#[test]
fn two_sides_are_not_judged_until_they_are_one() {
    let mut history = two_inside();
    history.hears(2, 1);
    history.hears(3, 1);
    for node in 1..=3 {
        history.sees(node, 3, &[1, 2, 3]);
    }
    assert_broken(history.settle(), Rule::Exclusion, "in one view again");
}

#[test]
fn who_is_told_of_the_loss_is_out() {
    let mut history = two_inside();
    history.hears(2, 1);
    history.hears(3, 1);
    history.sees(1, 3, &[1, 2, 3]);
    history.sees(2, 3, &[1, 2, 3]);
    let lost = Event::Lost { ticket: Ticket(1) };
    history.event(2, 1, &lost).unwrap();
    history.sees(3, 3, &[1, 2, 3]);
    history.settle().unwrap();
    history.rest().unwrap();
    let twice = history.event(2, 1, &lost);
    assert_broken(twice, Rule::Requests, "what it did not have");
    // From now on there is one side.
    history.ask(3, 1, 1, "printer", Wait::Lease);
    let second = history.grant(3, 1, 1, fence(3, 2));
    assert_broken(second, Rule::Exclusion, "member 1");
}

#[test]
fn nobody_loses_what_no_other_side_can_have() {
    let lost = Event::Lost { ticket: Ticket(1) };
    let event = one_inside().event(1, 1, &lost);
    assert_broken(event, Rule::Requests, "nobody takes away");
}

#[test]
fn sides_that_stay_apart_are_no_rest() {
    let mut history = two_inside();
    history.hears(2, 1);
    history.hears(3, 1);
    history.settle().unwrap();
    assert_broken(history.rest(), Rule::Progress, "not in one view");
}
