//! The checkers are checked: each rule lets a clean history pass and catches its planted breach.
mod abandonment;
mod fairness;
mod leases;
mod presumed;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use distlock_lab::checkers::{Checkers, Process, Rule, Violation};
use distlock_protocol::{
    Absence, Algorithm, Command, Epoch, Event, Fence, LockName, LockSpec, Missing, Mode, NodeId,
    Previous, Refusal, Release, Ticket, Time, Wait,
};

/// Three members; `printer` is exclusive, `licences` has two permits.
struct History {
    checkers: Checkers,
    now: u64,
}

impl History {
    /// All three have begun, and are in epoch 1.
    fn new() -> Self {
        Self::judged_by(Checkers::new(locks(), members()))
    }

    /// The same where the silent are presumed gone.
    fn presuming() -> Self {
        Self::judged_by(Checkers::presuming(locks(), members()))
    }

    fn judged_by(checkers: Checkers) -> Self {
        let mut history = Self { checkers, now: 0 };
        for node in 1..=3 {
            history.begins(node, 1, 0);
            history.view(node, 1, 1).unwrap();
        }
        history
    }

    fn tick(&mut self) -> Time {
        self.now += 1;
        Time::from_nanos(self.now)
    }

    fn begins(&mut self, node: u16, incarnation: u32, quarantine_ends: u64) {
        self.checkers.begins(
            process(node, incarnation),
            Time::from_nanos(quarantine_ends),
        );
    }

    fn command(&mut self, node: u16, incarnation: u32, command: &Command) -> Result<(), Violation> {
        let now = self.tick();
        self.checkers
            .commands(now, process(node, incarnation), command)
    }

    fn event(&mut self, node: u16, incarnation: u32, event: &Event) -> Result<(), Violation> {
        let now = self.tick();
        self.checkers.hears(now, process(node, incarnation), event)
    }

    fn ask(&mut self, node: u16, incarnation: u32, ticket: u64, lock: &str, wait: Wait) {
        self.ask_as(Mode::Exclusive, (node, incarnation, ticket), lock, wait);
    }

    /// Asks for `printer`, to share it.
    fn share(&mut self, node: u16, ticket: u64) {
        self.ask_as(Mode::Shared, (node, 1, ticket), "printer", Wait::Lease);
    }

    fn ask_as(
        &mut self,
        mode: Mode,
        (node, incarnation, ticket): (u16, u32, u64),
        lock: &str,
        wait: Wait,
    ) {
        let (ticket, lock) = (Ticket(ticket), name(lock));
        self.command(
            node,
            incarnation,
            &Command::Acquire {
                ticket,
                lock,
                spec: None,
                mode,
                wait,
            },
        )
        .unwrap();
    }

    fn grant(
        &mut self,
        node: u16,
        incarnation: u32,
        ticket: u64,
        fence: u64,
    ) -> Result<(), Violation> {
        self.grant_after(Previous::Clean, (node, incarnation, ticket), fence)
    }

    fn grant_after(
        &mut self,
        previous: Previous,
        (node, incarnation, ticket): (u16, u32, u64),
        fence: u64,
    ) -> Result<(), Violation> {
        let fence = Fence::new(fence).unwrap();
        let ticket = Ticket(ticket);
        self.event(
            node,
            incarnation,
            &Event::Granted {
                ticket,
                fence,
                previous,
            },
        )
    }

    fn end(&mut self, node: u16, ticket: u64, refusal: Refusal) -> Result<(), Violation> {
        self.event(
            node,
            1,
            &Event::Ended {
                ticket: Ticket(ticket),
                refusal,
            },
        )
    }

    fn release(&mut self, node: u16, ticket: u64) {
        self.release_as(Release::Given, node, ticket);
    }

    fn release_as(&mut self, how: Release, node: u16, ticket: u64) {
        let ticket = Ticket(ticket);
        self.command(node, 1, &Command::Release { ticket, how })
            .unwrap();
    }

    fn cancel(&mut self, node: u16, ticket: u64) {
        self.command(
            node,
            1,
            &Command::Cancel {
                ticket: Ticket(ticket),
            },
        )
        .unwrap();
    }

    fn view(&mut self, node: u16, incarnation: u32, epoch: u32) -> Result<(), Violation> {
        let epoch = Epoch::new(epoch).unwrap();
        self.event(
            node,
            incarnation,
            &Event::View {
                epoch,
                members: members(),
            },
        )
    }

    fn settle(&mut self) -> Result<(), Violation> {
        let now = self.tick();
        self.checkers.settles(now)
    }

    fn rest(&mut self) -> Result<(), Violation> {
        let now = self.tick();
        self.checkers.at_rest(now)
    }
}

fn locks() -> BTreeMap<LockName, NonZeroU32> {
    BTreeMap::from([
        (name("printer"), NonZeroU32::MIN),
        (name("licences"), NonZeroU32::new(2).unwrap()),
    ])
}

fn process(node: u16, incarnation: u32) -> Process {
    Process {
        node: id(node),
        incarnation,
    }
}

/// That member, as one that is missing.
fn silent(node: u16) -> Missing {
    Missing {
        member: id(node),
        why: Absence::Silent,
    }
}

fn id(node: u16) -> NodeId {
    NodeId::new(node).unwrap()
}

fn members() -> Vec<NodeId> {
    (1..=3).map(id).collect()
}

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

const fn ring() -> LockSpec {
    LockSpec::exclusive(Algorithm::TokenRing)
}

/// A fence of epoch `epoch`.
const fn fence(epoch: u64, counter: u64) -> u64 {
    (epoch << 32) | counter
}

#[track_caller]
fn assert_broken(result: Result<(), Violation>, rule: Rule, words: &str) {
    let violation = result.expect_err("the breach goes unnoticed");
    assert_eq!(violation.rule, rule, "{violation}");
    assert!(violation.detail.contains(words), "{violation}");
}

#[test]
fn a_clean_history_passes() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.ask(2, 1, 1, "printer", Wait::Lease);
    history.ask(3, 1, 1, "printer", Wait::Try);
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    history.end(3, 1, Refusal::Busy).unwrap();
    history.release(1, 1);
    history.grant(2, 1, 1, fence(1, 2)).unwrap();
    history.ask(1, 1, 2, "printer", Wait::Cancelled);
    history.cancel(1, 2);
    history.end(1, 2, Refusal::Cancelled).unwrap();
    history.settle().unwrap();
    history.release(2, 1);
    history.rest().unwrap();
}

#[test]
fn two_inside_break_exclusion() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.ask(2, 1, 1, "printer", Wait::Lease);
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    let second = history.grant(2, 1, 1, fence(1, 2));
    assert_broken(second, Rule::Exclusion, "ticket 1 of member 1");
}

#[test]
fn two_threads_of_one_member_inside_break_exclusion() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.ask(1, 1, 2, "printer", Wait::Lease);
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    assert_broken(
        history.grant(1, 1, 2, fence(1, 2)),
        Rule::Exclusion,
        "1 permit",
    );
}

#[test]
fn one_more_than_the_permits_breaks_exclusion() {
    let mut history = History::new();
    for node in 1..=3 {
        history.ask(node, 1, 1, "licences", Wait::Lease);
    }
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    history.grant(2, 1, 1, fence(1, 2)).unwrap();
    assert_broken(
        history.grant(3, 1, 1, fence(1, 3)),
        Rule::Exclusion,
        "2 permit",
    );
}

#[test]
fn who_shares_a_lock_is_inside_with_those_who_do() {
    let shared = || {
        let mut history = History::new();
        history.share(1, 1);
        history.share(2, 1);
        history.ask(3, 1, 1, "printer", Wait::Lease);
        history.grant(1, 1, 1, fence(1, 2)).unwrap();
        history.grant(2, 1, 1, fence(1, 1)).unwrap();
        history
    };
    assert_broken(
        shared().grant(3, 1, 1, fence(1, 3)),
        Rule::Exclusion,
        "member 3 (incarnation 1) (Exclusive)",
    );
    // One of them leaves, and the other is inside yet.
    let mut history = shared();
    history.release(1, 1);
    assert_broken(
        history.grant(3, 1, 1, fence(1, 3)),
        Rule::Exclusion,
        "member 2",
    );
    // Who shares may not enter while somebody is alone inside.
    let mut history = shared();
    history.release(1, 1);
    history.release(2, 1);
    history.grant(3, 1, 1, fence(1, 3)).unwrap();
    history.share(1, 2);
    assert_broken(
        history.grant(1, 1, 2, fence(1, 4)),
        Rule::Exclusion,
        "member 3",
    );
    // Fences of those who share are distinct, and lie between those of who is alone.
    let mut history = shared();
    history.share(3, 2);
    assert_broken(
        history.grant(3, 1, 2, fence(1, 2)),
        Rule::Fences,
        "given before",
    );
    let mut history = shared();
    history.release(1, 1);
    history.release(2, 1);
    assert_broken(history.grant(3, 1, 1, fence(1, 0)), Rule::Fences, "below");
    let mut history = shared();
    history.release(1, 1);
    history.release(2, 1);
    history.grant(3, 1, 1, fence(1, 5)).unwrap();
    history.release(3, 1);
    history.share(1, 2);
    assert_broken(history.grant(1, 1, 2, fence(1, 4)), Rule::Fences, "after");
}

#[test]
fn what_crashed_inside_stays_inside_until_its_lease_is_waited_out() {
    let crash_inside = || {
        let mut history = History::new();
        history.ask(1, 1, 1, "printer", Wait::Lease);
        history.ask(2, 1, 1, "printer", Wait::Lease);
        history.grant(1, 1, 1, fence(1, 1)).unwrap();
        history.checkers.crashes(process(1, 1));
        history
    };
    // The member has not come back.
    let mut history = crash_inside();
    assert_broken(
        history.grant(2, 1, 1, fence(1, 2)),
        Rule::Exclusion,
        "not yet back",
    );
    // It has, and nobody waited.
    let mut history = crash_inside();
    history.begins(1, 2, 1000);
    assert_broken(
        history.grant(2, 1, 1, fence(1, 2)),
        Rule::Exclusion,
        "may act until",
    );
    // It has, and everybody waited; a second crash does not revive what is over.
    let mut history = crash_inside();
    history.begins(1, 2, 1000);
    history.checkers.crashes(process(1, 2));
    history.begins(1, 3, 5000);
    history.now = 1000;
    history
        .grant_after(Previous::Abandoned, (2, 1, 1), fence(1, 2))
        .unwrap();
}

#[test]
fn a_fence_must_rise() {
    for (second, words) in [(fence(1, 1), "after"), (fence(1, 0), "after")] {
        let mut history = History::new();
        history.ask(1, 1, 1, "printer", Wait::Lease);
        history.ask(2, 1, 1, "printer", Wait::Lease);
        history.grant(1, 1, 1, fence(1, 1)).unwrap();
        history.release(1, 1);
        assert_broken(history.grant(2, 1, 1, second), Rule::Fences, words);
    }
}

#[test]
fn a_fence_must_rise_over_restarts() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.grant(1, 1, 1, fence(1, 7)).unwrap();
    history.release(1, 1);
    history.checkers.crashes(process(1, 1));
    history.begins(1, 2, 0);
    history.view(1, 2, 2).unwrap();
    history.ask(1, 2, 1, "printer", Wait::Lease);
    assert_broken(
        history.grant(1, 2, 1, fence(1, 8)),
        Rule::Fences,
        "of another",
    );
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    assert_broken(
        history.grant(1, 1, 1, fence(0, 9)),
        Rule::Fences,
        "of another",
    );
}

#[test]
fn fences_of_a_semaphore_are_distinct() {
    let mut history = History::new();
    history.ask(1, 1, 1, "licences", Wait::Lease);
    history.ask(2, 1, 1, "licences", Wait::Lease);
    history.ask(3, 1, 1, "licences", Wait::Lease);
    history.grant(1, 1, 1, fence(1, 2)).unwrap();
    history.grant(2, 1, 1, fence(1, 1)).unwrap();
    history.release(1, 1);
    assert_broken(
        history.grant(3, 1, 1, fence(1, 2)),
        Rule::Fences,
        "given before",
    );
}

#[test]
fn a_request_ends_once() {
    let granted = || {
        let mut history = History::new();
        history.ask(1, 1, 1, "licences", Wait::Lease);
        history.grant(1, 1, 1, fence(1, 1)).unwrap();
        history
    };
    assert_broken(
        granted().grant(1, 1, 1, fence(1, 2)),
        Rule::Requests,
        "twice",
    );
    assert_broken(
        granted().end(1, 1, Refusal::Closed),
        Rule::Requests,
        "after it was granted",
    );
    let mut history = granted();
    history.release(1, 1);
    assert_broken(
        history.grant(1, 1, 1, fence(1, 2)),
        Rule::Requests,
        "after its end",
    );

    let ended = || {
        let mut history = History::new();
        history.ask(1, 1, 1, "printer", Wait::Try);
        history.end(1, 1, Refusal::Busy).unwrap();
        history
    };
    assert_broken(ended().end(1, 1, Refusal::Busy), Rule::Requests, "twice");
    assert_broken(
        ended().grant(1, 1, 1, fence(1, 1)),
        Rule::Requests,
        "after its end",
    );
}

#[test]
fn nobody_is_answered_who_did_not_ask() {
    let unasked = History::new().grant(1, 1, 9, fence(1, 1));
    assert_broken(unasked, Rule::Requests, "did not ask");
    let unasked = History::new().end(1, 9, Refusal::Busy);
    assert_broken(unasked, Rule::Requests, "without having begun");
    // What an earlier incarnation asked for is nobody's now.
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.checkers.crashes(process(1, 1));
    history.begins(1, 2, 0);
    history.view(1, 2, 2).unwrap();
    assert_broken(
        history.grant(1, 2, 1, fence(2, 1)),
        Rule::Requests,
        "did not ask",
    );
}

#[test]
fn a_ticket_is_for_one_use() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    let again = Command::Acquire {
        ticket: Ticket(1),
        lock: name("licences"),
        spec: None,
        mode: Mode::Exclusive,
        wait: Wait::Lease,
    };
    assert_broken(history.command(1, 1, &again), Rule::Requests, "second time");
}

#[test]
fn a_refusal_needs_its_reason() {
    let refused = |wait, refusal| {
        let mut history = History::new();
        history.ask(1, 1, 1, "printer", wait);
        history.end(1, 1, refusal)
    };
    let missing = || Refusal::NoQuorum {
        missing: vec![silent(2)],
    };
    refused(Wait::Try, Refusal::Busy).unwrap();
    refused(Wait::Lease, missing()).unwrap();
    for (wait, refusal) in [
        (Wait::Lease, Refusal::Busy),
        (Wait::Lease, Refusal::Cancelled),
        (Wait::Lease, Refusal::Closed),
        (Wait::Lease, Refusal::Limit),
        (Wait::Lease, Refusal::WrongSpec { actual: ring() }),
        (Wait::Lease, Refusal::NoQuorum { missing: vec![] }),
        (Wait::Cancelled, missing()),
    ] {
        assert_broken(refused(wait, refusal), Rule::Requests, "nothing explains");
    }
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.command(1, 1, &Command::Leave).unwrap();
    history.end(1, 1, Refusal::Closed).unwrap();
    history.event(1, 1, &Event::Left).unwrap();
}

#[test]
fn a_cancellation_is_answered_at_once() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.cancel(1, 1);
    assert_broken(history.settle(), Rule::Requests, "got no answer");

    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.cancel(1, 1);
    assert_broken(
        history.grant(1, 1, 1, fence(1, 1)),
        Rule::Requests,
        "after it cancelled",
    );
}

#[test]
fn leaving_answers_everybody() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.command(1, 1, &Command::Leave).unwrap();
    assert_broken(
        history.event(1, 1, &Event::Left),
        Rule::Requests,
        "not answered",
    );
}

#[test]
fn whoever_still_waits_at_the_end_is_stuck() {
    let mut history = History::new();
    history.ask(2, 1, 5, "printer", Wait::Lease);
    assert_broken(history.rest(), Rule::Progress, "ticket 5 of member 2");
    history.checkers.crashes(process(2, 1));
    history.rest().unwrap();
}

#[test]
fn nothing_is_lost_where_nobody_is_removed() {
    let mut history = History::new();
    history.ask(1, 1, 1, "printer", Wait::Lease);
    history.grant(1, 1, 1, fence(1, 1)).unwrap();
    let lost = Event::Lost { ticket: Ticket(1) };
    assert_broken(
        history.event(1, 1, &lost),
        Rule::Requests,
        "nobody takes away",
    );
    // But it goes with the node that leaves, once.
    history.command(1, 1, &Command::Leave).unwrap();
    history.event(1, 1, &lost).unwrap();
    assert_broken(
        history.event(1, 1, &lost),
        Rule::Requests,
        "nobody takes away",
    );
}

#[test]
fn epochs_rise_over_incarnations() {
    let mut history = History::new();
    history.view(1, 1, 3).unwrap();
    assert_broken(history.view(1, 1, 3), Rule::Views, "after epoch 3");
    let mut history = History::new();
    history.view(1, 1, 3).unwrap();
    history.checkers.crashes(process(1, 1));
    history.begins(1, 2, 0);
    assert_broken(history.view(1, 2, 2), Rule::Views, "after epoch 3");
}

#[test]
fn a_view_has_all_members_once() {
    for wrong in [vec![], vec![id(1), id(2)], vec![id(1), id(2), id(3), id(3)]] {
        let epoch = Epoch::new(2).unwrap();
        let view = History::new().event(
            1,
            1,
            &Event::View {
                epoch,
                members: wrong,
            },
        );
        assert_broken(view, Rule::Views, "not the group");
    }
}

#[test]
fn nobody_grants_without_a_view() {
    let mut history = History::new();
    history.checkers.crashes(process(1, 1));
    history.begins(1, 2, 0);
    history.ask(1, 2, 1, "printer", Wait::Lease);
    assert_broken(
        history.grant(1, 2, 1, fence(1, 1)),
        Rule::Views,
        "without a view",
    );
}

#[test]
fn suspicion_comes_and_goes_in_turns() {
    let (suspect, alive) = (Event::Suspect { peer: id(2) }, Event::Alive { peer: id(2) });
    let mut history = History::new();
    history.event(1, 1, &suspect).unwrap();
    assert_broken(history.rest(), Rule::Progress, "still suspects");
    history.event(1, 1, &alive).unwrap();
    history.rest().unwrap();
    assert_broken(history.event(1, 1, &alive), Rule::Views, "never suspected");
    history.event(1, 1, &suspect).unwrap();
    assert_broken(history.event(1, 1, &suspect), Rule::Views, "second time");
    assert_broken(history.event(2, 1, &suspect), Rule::Views, "no peer");
}

#[test]
fn nobody_disagrees_or_is_superseded_for_no_reason() {
    let superseded = History::new().event(1, 1, &Event::Superseded { by: id(2) });
    assert_broken(superseded, Rule::Views, "there is none");
    let disagreement = Event::Disagreement {
        peer: id(2),
        key: "lease".into(),
        ours: "5s".into(),
        theirs: "6s".into(),
        refused: false,
    };
    assert_broken(
        History::new().event(1, 1, &disagreement),
        Rule::Views,
        "does not",
    );
}

#[test]
fn notes_arrive_whole_once_and_in_order() {
    let send = |history: &mut History, bytes: &[u8]| {
        let bytes = bytes.to_vec();
        history
            .command(1, 1, &Command::Note { to: id(2), bytes })
            .unwrap();
    };
    let arrive = |history: &mut History, bytes: &[u8]| {
        let (from, bytes) = (id(1), bytes.to_vec());
        history.event(2, 1, &Event::Note { from, bytes })
    };
    let mut history = History::new();
    for note in [b"one", b"two", b"six"] {
        send(&mut history, note);
    }
    arrive(&mut history, b"one").unwrap();
    assert_broken(
        arrive(&mut history, b"one"),
        Rule::Notes,
        "is number 0, after 1",
    );
    assert_broken(arrive(&mut history, b"ten"), Rule::Notes, "nobody sent");
    // The second was lost with an incarnation; it may not come any more.
    arrive(&mut history, b"six").unwrap();
    assert_broken(
        arrive(&mut history, b"two"),
        Rule::Notes,
        "is number 1, after 3",
    );
}
