//! The group: members that are missing, the voters, lost states, wrong clocks.

use distlock::config::Failure as FailureRule;
use distlock::status::{MemberState, Status};
use distlock_agent::protocol::membership::quorum::absences;

use super::named;
use crate::doctor::facts::{Facts, absent};
use crate::doctor::finding::Finding;

pub(super) fn members(facts: &Facts) -> Finding {
    const ID: &str = "members";
    let Some(status) = facts.status() else {
        return facts.without_agent(ID);
    };
    let missing: Vec<_> = absent(status)
        .map(|it| {
            let state = match it.state {
                MemberState::Joining => "is in no view yet",
                MemberState::Suspect => "is silent",
                MemberState::Left => "has ended in order",
                MemberState::Refused => "is refused",
                _ => "was not heard since this agent's start",
            };
            match it.detail.as_str() {
                "" => format!("member {} at {} {state}", it.id, it.address),
                detail => format!("member {} at {} {state} ({detail})", it.id, it.address),
            }
        })
        .collect();
    if missing.is_empty() {
        let all = status.members.len();
        return Finding::ok(ID, format_args!("all {all} are there"));
    }
    Finding::warn(
        ID,
        missing.join(", "),
        "start their agents, and see that datagrams get through to them and back; a member that is \
         gone for good is removed with distlock members remove",
    )
}

pub(super) fn quorum(facts: &Facts) -> Finding {
    const ID: &str = "quorum";
    let Some(status) = facts.status() else {
        return facts.without_agent(ID);
    };
    let quorum = &status.quorum;
    if !quorum.ok {
        return Finding::fail(
            ID,
            format_args!("there is no quorum: {}", absences(&quorum.absences())),
            lower(quorum.advice()),
        );
    }
    match quorum.voters.as_slice() {
        [] => Finding::ok(ID, "this member is in a view; nobody votes"),
        voters => Finding::ok(
            ID,
            format_args!("a majority of {} is heard", named(voters.iter().copied())),
        ),
    }
}

/// A sentence as what follows a semicolon.
fn lower(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

pub(super) fn voters(facts: &Facts) -> Finding {
    const ID: &str = "voters";
    let (voters, members) = match (facts.status(), facts.config()) {
        (Some(status), _) => (status.quorum.voters.clone(), status.members.len()),
        (None, Some(config)) => {
            let votes = config.settings().failure != FailureRule::PresumeFailed;
            let voters = config.voters().iter().filter(|_| votes);
            let voters = voters.map(|id| id.as_u16()).collect();
            (voters, config.members().len())
        }
        (None, None) => return facts.without_config(ID),
    };
    let count = voters.len();
    let spared = count.saturating_sub(1) / 2;
    if count == 1 && members > 1 {
        return Finding::warn(
            ID,
            format_args!(
                "member {} votes alone, and without it nobody enters",
                voters[0]
            ),
            "let three vote, with distlock members voters",
        );
    }
    if count > 0 && count.is_multiple_of(2) {
        return Finding::warn(
            ID,
            format_args!(
                "{count} vote, an even number: the group goes on without {spared} of them, as it \
                 would if {} voted",
                count - 1
            ),
            "let an odd number vote: before the group begins, by voters in all files, and else by \
             distlock members voters",
        );
    }
    match count {
        0 => Finding::ok(ID, "nobody votes"),
        _ => Finding::ok(
            ID,
            format_args!("{count} vote; the group goes on without {spared} of them"),
        ),
    }
}

pub(super) fn state(facts: &Facts) -> Finding {
    const ID: &str = "state";
    let Some(status) = facts.status() else {
        return facts.without_agent(ID);
    };
    let lost = &status.quorum.state_lost;
    if lost.is_empty() {
        return Finding::ok(ID, "no voter is known to have lost its state");
    }
    let verb = if lost.len() == 1 {
        "has lost its state"
    } else {
        "have lost their states"
    };
    let what = format!("{} {verb}", named(lost.iter().copied()));
    if status.quorum.needs_recovery() {
        return Finding::fail(ID, what, lower(status.quorum.advice()));
    }
    let advice = "the other voters take it in again when a majority of them is there; see why the \
                  state was lost, as that of a majority must never be";
    Finding::warn(ID, what, advice)
}

/// What agents say of others' clocks has this word, and nothing else that they say of a member has.
const CLOCK: &str = "clock";

pub(super) fn clock_rates(facts: &Facts) -> Finding {
    const ID: &str = "clock-rates";
    let Some(status) = facts.status() else {
        return facts.without_agent(ID);
    };
    let wrong = wrong_clocks(status);
    if wrong.is_empty() {
        return Finding::ok(ID, "no clock is known to run too fast or too slow");
    }
    Finding::fail(
        ID,
        wrong.join(", "),
        "leases are not safe between these hosts: find out whose clock is wrong (dmesg, chronyc \
         tracking), and choose another clock source there",
    )
}

fn wrong_clocks(status: &Status) -> Vec<String> {
    // Of a refused member it is told what its file says, which may be anything.
    let members = status.members.iter();
    let told = members.filter(|it| it.state != MemberState::Refused && it.detail.contains(CLOCK));
    told.map(|it| format!("of member {}: {}", it.id, it.detail))
        .collect()
}

#[cfg(test)]
mod tests {
    use distlock::status::{MemberStatus, QuorumStatus};

    use super::*;
    use crate::doctor::facts::Answer;
    use crate::doctor::finding::Outcome;

    fn status(states: &[MemberState]) -> Status {
        let members = (1..).zip(states).map(|(id, &state)| MemberStatus {
            id,
            address: format!("udp:10.0.0.{id}:7400"),
            state,
            detail: String::new(),
        });
        Status {
            member: 1,
            members: members.collect(),
            quorum: QuorumStatus {
                ok: true,
                voters: (1..=states.len()).map(|id| id as u16).collect(),
                founded: true,
                ..QuorumStatus::default()
            },
            ..Status::default()
        }
    }

    fn facts(status: Status) -> Facts {
        let mut facts = Facts::default();
        facts.agent.answer = Answer::Status {
            status: Box::new(status),
            lease: None,
        };
        facts
    }

    #[test]
    fn members_that_are_missing_are_named() {
        use MemberState::{Alive, Joining, Left, Refused, Suspect, Unknown};
        let told = members(&facts(status(&[Alive; 3])));
        assert_eq!(told.result, Outcome::Ok);
        for (state, word) in [
            (Joining, "in no view yet"),
            (Suspect, "silent"),
            (Unknown, "not heard"),
            (Left, "ended in order"),
            (Refused, "refused"),
        ] {
            let told = members(&facts(status(&[Alive, state, Alive])));
            assert_eq!(told.result, Outcome::Warn);
            assert!(
                told.what.contains("member 2 at udp:10.0.0.2:7400"),
                "{told}"
            );
            assert!(
                told.what.contains(word) && !told.what.contains("member 3"),
                "{told}"
            );
        }
        // This member is not heard by itself.
        assert_eq!(
            members(&facts(status(&[Joining, Alive]))).result,
            Outcome::Ok
        );
    }

    #[test]
    fn without_a_quorum_it_is_told_who_is_missing() {
        let mut status = status(&[MemberState::Alive; 3]);
        assert_eq!(quorum(&facts(status.clone())).result, Outcome::Ok);
        status.quorum.ok = false;
        status.quorum.missing = vec![2, 3];
        let told = quorum(&facts(status));
        assert_eq!(told.result, Outcome::Fail);
        assert!(told.what.contains("members 2, 3 are silent"), "{told}");
        assert!(
            told.advice.starts_with("this host is granted no lock"),
            "{told}"
        );
    }

    #[test]
    fn an_odd_number_votes() {
        for (count, expected) in [
            (1, Outcome::Ok),
            (2, Outcome::Warn),
            (3, Outcome::Ok),
            (4, Outcome::Warn),
            (5, Outcome::Ok),
        ] {
            let status = status(&vec![MemberState::Alive; count]);
            assert_eq!(voters(&facts(status)).result, expected, "{count}");
        }
        let mut alone = status(&[MemberState::Alive; 3]);
        alone.quorum.voters = vec![2];
        let told = voters(&facts(alone));
        assert_eq!(told.result, Outcome::Warn);
        assert!(told.what.contains("member 2 votes alone"), "{told}");
    }

    #[test]
    fn a_lost_state_is_worse_where_no_majority_remembers() {
        let mut status = status(&[MemberState::Alive; 3]);
        assert_eq!(state(&facts(status.clone())).result, Outcome::Ok);
        status.quorum.state_lost = vec![2];
        let told = state(&facts(status.clone()));
        assert_eq!(told.result, Outcome::Warn);
        assert!(told.what.contains("member 2 has lost its state"), "{told}");
        status.quorum.state_lost = vec![1, 2];
        let told = state(&facts(status));
        assert_eq!(told.result, Outcome::Fail);
        assert!(told.advice.contains("distlock recover"), "{told}");
    }

    #[test]
    fn what_is_said_of_clocks_is_found() {
        let mut status = status(&[MemberState::Alive; 3]);
        assert_eq!(clock_rates(&facts(status.clone())).result, Outcome::Ok);
        // As runtime/shared/peer_clocks.rs says it.
        let words = "this member's clock gains 12.5 % on its, and leases allow for 10 %";
        status.members[1].detail = words.to_owned();
        let told = clock_rates(&facts(status.clone()));
        assert_eq!(told.result, Outcome::Fail);
        assert!(
            told.what.contains("of member 2: this member's clock"),
            "{told}"
        );
        status.members[1].detail = "group: clock there, shop here".to_owned();
        status.members[1].state = MemberState::Refused;
        assert_eq!(clock_rates(&facts(status)).result, Outcome::Ok);
    }
}
