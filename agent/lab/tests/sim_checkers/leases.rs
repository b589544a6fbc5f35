//! The rules where views go on without members, and grants are valid as long as leases.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_lab::checkers::{Checkers, Leases, Rule, Violation};
use distlock_lab::clock::Clock;
use distlock_protocol::{Command, Epoch, Event, Previous, Refusal, Ticket, Time, Wait};

use super::{History, assert_broken, fence, id, locks, members, process, silent};

/// In nanoseconds.
const LEASE: u64 = 1_000;
/// What the clock of member 2 shows at the start.
const OFFSET: u64 = 500_000;

impl History {
    /// All three are in epoch 1, and have just got a lease.
    pub(super) fn leasing() -> Self {
        let clock = Clock {
            offset: Duration::from_nanos(OFFSET),
            drift_ppm: 0,
        };
        let leases = Leases::new(
            Duration::from_nanos(LEASE),
            BTreeMap::from([(id(2), clock)]),
        );
        let first = Epoch::new(1).unwrap();
        let mut history = Self::judged_by(Checkers::with_leases(locks(), members(), leases, first));
        for node in 1..=3 {
            history.lease(node, LEASE).unwrap();
            history.ask(node, 1, 1, "printer", Wait::Lease);
        }
        history
    }

    /// The lease of `node` runs until then, in the simulation's time.
    fn lease(&mut self, node: u16, until: u64) -> Result<(), Violation> {
        let offset = if node == 2 { OFFSET } else { 0 };
        let until = Time::from_nanos(until + offset);
        self.event(node, 1, &Event::Lease { until })
    }

    fn wait_until(&mut self, now: u64) {
        assert!(self.now < now, "time does not run backwards");
        self.now = now;
    }

    fn excluded(&mut self, node: u16, epoch: u32) -> Result<(), Violation> {
        let epoch = Epoch::new(epoch).unwrap();
        self.event(node, 1, &Event::Excluded { epoch })
    }

    fn lost(&mut self, node: u16) -> Result<(), Violation> {
        self.event(node, 1, &Event::Lost { ticket: Ticket(1) })
    }

    pub(super) fn sees_without_1(&mut self, node: u16) -> Result<(), Violation> {
        let (epoch, members) = (Epoch::new(2).unwrap(), vec![id(2), id(3)]);
        self.event(node, 1, &Event::View { epoch, members })
    }

    /// 1 is inside, cut off, and removed; 2 has a lease in the view without it.
    fn goes_on_without_1() -> Self {
        let mut history = Self::leasing();
        history.grant(1, 1, 1, fence(1, 1)).unwrap();
        history.wait_until(LEASE);
        for node in [2, 3] {
            history.lease(node, 2 * LEASE).unwrap();
            history.sees_without_1(node).unwrap();
        }
        history
    }
}

#[test]
fn another_may_be_inside_when_the_lease_is_over_and_not_before() {
    let mut history = History::leasing();
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    history.wait_until(LEASE - 10);
    history.lease(2, LEASE + 100).unwrap();
    assert_broken(
        history.grant(2, 1, 1, fence(1, 2)),
        Rule::Exclusion,
        "ticket 1 of member 1",
    );
    let mut history = History::goes_on_without_1();
    let told = (2, 1, 1);
    history
        .grant_after(Previous::Abandoned, told, fence(2, 1))
        .unwrap();
}

#[test]
fn who_was_replaced_may_not_be_valid_again() {
    let mut history = History::goes_on_without_1();
    let told = (2, 1, 1);
    history
        .grant_after(Previous::Abandoned, told, fence(2, 1))
        .unwrap();
    let again = history.lease(1, 2 * LEASE);
    assert_broken(again, Rule::Exclusion, "ticket 1 of member 1");
}

/// Its clients are processes of their own, and act until the lease is over that they know of.
#[test]
fn a_crash_ends_no_lease() {
    for (at, is_over) in [(LEASE - 10, false), (LEASE, true)] {
        let mut history = History::leasing();
        history.grant(1, 1, 1, fence(1, 1)).unwrap();
        history.checkers.crashes(process(1, 1));
        history.wait_until(at);
        history.lease(2, LEASE + 100).unwrap();
        let granted = history.grant_after(Previous::Abandoned, (2, 1, 1), fence(1, 2));
        if is_over {
            granted.unwrap();
        } else {
            assert_broken(granted, Rule::Exclusion, "crashed inside");
        }
    }
}

#[test]
fn the_next_is_told_that_one_was_removed_inside() {
    let mut history = History::goes_on_without_1();
    assert_broken(
        history.grant(2, 1, 1, fence(2, 1)),
        Rule::Abandonment,
        "is not told",
    );
}

#[test]
fn nobody_is_told_of_a_grant_without_a_lease() {
    let mut history = History::leasing();
    history.wait_until(LEASE);
    assert_broken(
        history.grant(2, 1, 1, fence(1, 1)),
        Rule::Leases,
        "not valid",
    );
    let mut history = History::leasing();
    history.excluded(1, 2).unwrap();
    assert_broken(
        history.grant(1, 1, 1, fence(1, 1)),
        Rule::Leases,
        "not valid",
    );
}

#[test]
fn a_lease_is_no_longer_than_a_lease() {
    let mut history = History::leasing();
    let now = history.now;
    assert_broken(history.lease(2, now + LEASE + 10), Rule::Leases, "from now");
}

#[test]
fn a_refusal_for_want_of_a_quorum_needs_a_lease_of_silence() {
    let refusal = || Refusal::NoQuorum {
        missing: vec![silent(1)],
    };
    // Asked too short a while ago.
    let early = History::leasing().end(2, 1, refusal());
    assert_broken(early, Rule::Leases, "after");
    // Renewed a moment ago.
    let mut history = History::leasing();
    history.wait_until(2 * LEASE);
    let now = history.now;
    history.lease(2, now + LEASE * 2 / 3).unwrap();
    assert_broken(history.end(2, 1, refusal()), Rule::Leases, "runs for");
    // By others than are asked for the next view.
    let mut history = History::leasing();
    history.wait_until(2 * LEASE);
    let now = history.now;
    history.lease(2, now + LEASE * 2 / 3).unwrap();
    history.checkers.stops(process(2, 1));
    history.end(2, 1, refusal()).unwrap();
    // By those of the view before, when the next is in force.
    let mut history = History::leasing();
    history.wait_until(2 * LEASE);
    let now = history.now;
    history.lease(2, now + LEASE * 2 / 3).unwrap();
    history.sees_without_1(2).unwrap();
    history.end(2, 1, refusal()).unwrap();
    let mut history = History::leasing();
    history.wait_until(2 * LEASE);
    history.end(2, 1, refusal()).unwrap();
}

#[test]
fn what_is_lost_is_lost_because_a_view_goes_on_without_it() {
    let mut history = History::goes_on_without_1();
    history.lost(1).unwrap();
    history.excluded(1, 2).unwrap();
    history.settle().unwrap();
    // For no reason.
    let mut history = History::goes_on_without_1();
    history.lost(1).unwrap();
    assert_broken(history.settle(), Rule::Requests, "no view");
    // Not told at all.
    let mut history = History::goes_on_without_1();
    assert_broken(history.excluded(1, 2), Rule::Requests, "not told");
}

#[test]
fn a_view_that_has_a_member_does_not_go_on_without_it() {
    let mut history = History::leasing();
    assert_broken(history.excluded(1, 1), Rule::Views, "went on without");
    assert_broken(History::new().excluded(1, 2), Rule::Views, "went on");
}

#[test]
fn an_epoch_has_one_list_of_members() {
    let mut history = History::goes_on_without_1();
    assert_broken(history.view(1, 1, 2), Rule::Views, "not the group");
    let mut history = History::leasing();
    assert_broken(history.sees_without_1(1), Rule::Views, "not the group");
}

/// What was granted while there was no lease is told when there is one again.
#[test]
fn a_fence_may_be_of_an_epoch_before_and_must_rise() {
    let mut history = History::leasing();
    for node in 1..=3 {
        history.view(node, 1, 3).unwrap();
    }
    history.grant(1, 1, 1, fence(2, 7)).unwrap();
    let how = distlock_protocol::Release::Given;
    let ticket = Ticket(1);
    history
        .command(1, 1, &Command::Release { ticket, how })
        .unwrap();
    assert_broken(
        history.grant(2, 1, 1, fence(2, 6)),
        Rule::Fences,
        "after ticket 1 of member 1",
    );
    let mut history = History::leasing();
    let later = history.grant(1, 1, 1, fence(2, 1));
    assert_broken(later, Rule::Fences, "of another");
}
