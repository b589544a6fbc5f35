//! A slice of the schedules for what orders the views, and what they must find in libraries that
//! are wrong. The command for all of it is in CONTRIBUTING.md.
use std::collections::BTreeSet;

use distlock_lab::checkers::Rule;
use distlock_lab::view_log::{Report, run};
use distlock_protocol::membership::quorum::log::VoterId;
use distlock_protocol::membership::quorum::log::library::{
    Call, Contradiction, Entry, Library, Noraft, Output, Position, Role, Voters,
};
use old_release::OldRelease;

#[path = "../examples/support/old_release.rs"]
mod old_release;

/// How many schedules.
const SCHEDULES: u64 = 300;

#[test]
fn schedules_pass_and_are_worth_it() {
    let mut total = Report::default();
    for schedule in 0..SCHEDULES {
        let first = run::<Noraft>(schedule, None);
        match first {
            Ok((report, _)) => total.add(&report),
            Err(violation) => panic!(
                "schedule {schedule}: {violation}\nplay it again: cargo run --release -p \
                 distlock-lab --example sim_campaign -- \
                 --world view-log --seeds {schedule}..{} --trace",
                schedule + 1
            ),
        }
    }
    let often = |count: u64, at_least: u64, what: &str| {
        assert!(
            count >= at_least,
            "{what} happened {count} times in {total:?}"
        );
    };
    let sent = total.network_stats.sent;
    often(total.proposed, 5 * SCHEDULES, "proposals");
    often(total.changes, SCHEDULES / 4, "changes of voters");
    often(total.told, 10 * SCHEDULES, "decisions");
    often(total.crashes, 2 * SCHEDULES, "crashes");
    often(total.blackouts, SCHEDULES, "failures of power");
    often(total.voter_flaps, SCHEDULES, "crashes right after a vote");
    often(total.torn, SCHEDULES / 5, "crashes with a record half-way");
    often(total.pauses, 2 * SCHEDULES, "pauses");
    often(total.cuts, 2 * SCHEDULES, "cuts");
    often(total.network_stats.lost, sent / 20, "losses");
    often(
        total.network_stats.duplicated,
        sent / 20,
        "doubled messages",
    );
    often(total.network_stats.late, sent / 200, "late messages");
    often(total.snapshots, SCHEDULES, "snapshots");
    often(total.retired, SCHEDULES / 10, "words to removed voters");
    often(total.take_overs, SCHEDULES / 2, "hand-overs");
    often(total.stopped, SCHEDULES / 20, "removed voters that stopped");
    often(total.spared, SCHEDULES / 10, "heals without a voter");
}

#[test]
fn a_schedule_is_the_same_each_time() {
    for schedule in 0..20 {
        let played = run::<Noraft>(schedule, None);
        assert_eq!(played, run::<Noraft>(schedule, None));
    }
}

/// Whether the library breaks this rule in one of the first `schedules`.
///
/// So many are five times what a library needs in the mean, or more: any change of the log gives all
/// schedules other elections, and fewer would find a library by luck.
fn caught<L: Library>(schedules: u64, rule: Rule) -> bool {
    let mut violations = (0..schedules).filter_map(|schedule| run::<L>(schedule, None).err());
    violations.any(|violation| violation.rule == rule)
}

/// It has more than one thing wrong; what is noticed first is that a leader which removes the last
/// other voter never commits alone.
#[test]
fn the_old_release_is_caught() {
    assert!(caught::<OldRelease>(600, Rule::Progress));
}

#[test]
fn a_library_that_forgets_its_vote_is_caught() {
    assert!(caught::<Wrong<FORGETS_VOTE>>(1000, Rule::Leaders));
}

#[test]
fn a_library_that_votes_for_everybody_is_caught() {
    assert!(caught::<Wrong<VOTES_FOR_ALL>>(100, Rule::Leaders));
}

#[test]
fn a_library_that_forgets_its_log_is_caught() {
    assert!(caught::<Wrong<FORGETS_LOG>>(1000, Rule::Views));
}

/// What the old release had wrong in votes, in the present one. Those who know what is committed do
/// not believe a leader that lacks it, so the group stands still.
#[test]
fn a_library_that_ignores_terms_in_votes_is_caught() {
    assert!(caught::<Wrong<IGNORES_TERMS>>(12_000, Rule::Progress));
}

/// The vote is not durable.
const FORGETS_VOTE: u8 = 0;
/// Whoever asks gets a vote, also in the same term.
const VOTES_FOR_ALL: u8 = 1;
/// What is not committed is not durable.
const FORGETS_LOG: u8 = 2;
/// Voters look at the length of a candidate's log, and not at its last term.
const IGNORES_TERMS: u8 = 3;

/// The present release with something wrong.
struct Wrong<const WHAT: u8> {
    right: Noraft,
    votes: Vec<(VoterId, u64)>,
}

impl<const WHAT: u8> Library for Wrong<WHAT> {
    fn restore(
        me: VoterId,
        term: u64,
        vote: Option<VoterId>,
        snapshot: Position,
        voters: &Voters,
        entries: &[Entry],
    ) -> Self {
        let vote = vote.filter(|_| WHAT != FORGETS_VOTE);
        let entries = if WHAT == FORGETS_LOG { &[] } else { entries };
        Self {
            right: Noraft::restore(me, term, vote, snapshot, voters, entries),
            votes: Vec::new(),
        }
    }

    fn receive(&mut self, from: VoterId, term: u64, mut call: Call) -> Result<(), Contradiction> {
        if WHAT == IGNORES_TERMS
            && let Call::Vote { last } = &mut call
            && last.index >= self.last().index
        {
            last.term = last.term.max(self.last().term);
        }
        if WHAT == VOTES_FOR_ALL && matches!(call, Call::Vote { .. }) && term == self.term() {
            self.votes.push((from, term));
        }
        self.right.receive(from, term, call)
    }

    fn outputs(&mut self, outputs: &mut Vec<Output>) {
        self.right.outputs(outputs);
        let call = Call::Voted { granted: true };
        outputs.extend(self.votes.drain(..).map(|(to, term)| Output::Send {
            to,
            term,
            call: call.clone(),
        }));
    }

    fn term(&self) -> u64 {
        self.right.term()
    }
    fn committed(&self) -> u64 {
        self.right.committed()
    }
    fn vote(&self) -> Option<VoterId> {
        self.right.vote()
    }
    fn role(&self) -> Role {
        self.right.role()
    }
    fn snapshot(&self) -> Position {
        self.right.snapshot()
    }
    fn last(&self) -> Position {
        self.right.last()
    }
    fn term_at(&self, index: u64) -> Option<u64> {
        self.right.term_at(index)
    }
    fn entry_at(&self, index: u64) -> Option<Entry> {
        self.right.entry_at(index)
    }
    fn voters_at(&self, index: u64) -> Option<Voters> {
        self.right.voters_at(index)
    }
    fn voters(&self) -> Voters {
        self.right.voters()
    }
    fn timeout(&mut self) {
        self.right.timeout();
    }
    fn propose_view(&mut self) -> bool {
        self.right.propose_view()
    }
    fn propose_voters(&mut self, next: &BTreeSet<VoterId>) -> bool {
        self.right.propose_voters(next)
    }
    fn compact(&mut self, position: Position, voters: &Voters) -> bool {
        self.right.compact(position, voters)
    }
}
