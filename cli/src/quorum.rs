//! What `status` says of the quorum: whether this host can be granted locks, who votes, who of the
//! voters is missing, and what to do.

use std::fmt::Write as _;

use distlock::status::{FoundingStatus, MemberState, MemberStatus, QuorumStatus, Status};
use distlock_agent::protocol::NodeId;
use distlock_agent::protocol::membership::quorum::{absences, members};

use crate::exit::{Failure, UNAVAILABLE};

/// How many can vote.
const MAX_VOTERS: usize = 7;

/// One paragraph for people; nothing of a group in which the kernel is the arbiter.
pub(crate) fn paragraph(status: &Status) -> String {
    if status.members.is_empty() {
        return String::new();
    }
    let quorum = &status.quorum;
    let founding = quorum.founding.as_ref().map(founding).unwrap_or_default();
    let text = who_is_missing(quorum);
    let file = match quorum.file_voters.as_slice() {
        [] => String::new(),
        listed => format!(
            "This host's file lists other voters ({}), and is not asked any more: to change who \
             votes, run 'distlock members voters ID…'.\n",
            list(listed)
        ),
    };
    text + &founding + &file + &unlisted(status)
}

/// The members that this host's file should list, and does not.
fn unlisted(status: &Status) -> String {
    let unlisted = &status.quorum.unlisted;
    if unlisted.is_empty() {
        return String::new();
    }
    format!(
        "This host's file does not list {}: nothing is heard from there. List all members, as \
         the files of other hosts do, and start this agent again.\n",
        named(unlisted)
    )
}

/// What the founding waits for, besides members that are missing.
fn founding(founding: &FoundingStatus) -> String {
    let mut text = String::new();
    for (member, cluster) in &founding.remember {
        let _ = writeln!(text, "Member {member} remembers cluster {cluster}.");
    }
    if !founding.differ.is_empty() {
        let differ = list(&founding.differ);
        let _ = writeln!(
            text,
            "The files of members {differ} list other members or voters."
        );
    }
    if founding.waits_ms > 0 {
        let seconds = founding.waits_ms.div_ceil(1000);
        let _ = writeln!(
            text,
            "The group begins in {seconds} s at the earliest, when no lease of former holders runs."
        );
    }
    text
}

fn list(ids: &[u16]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

/// Whether there is a quorum, and who is missing.
fn who_is_missing(quorum: &QuorumStatus) -> String {
    let absences = absences(&quorum.absences());
    match (quorum.ok, quorum.voters.is_empty()) {
        (true, true) => String::new(),
        (true, false) if quorum.missing.is_empty() => format!("Quorum: {}.\n", who_votes(quorum)),
        (true, false) => format!("Quorum: {}; {absences}.\n", who_votes(quorum)),
        (false, true) => format!("NO VIEW: {absences}. {}\n", quorum.advice()),
        (false, false) => {
            let who_votes = who_votes(quorum);
            format!("NO QUORUM: {who_votes}; {absences}. {}\n", quorum.advice())
        }
    }
}

/// Whether there is a quorum, as what follows the time on a line; `before` is whether there was one, if
/// that is known.
pub(crate) fn fact(quorum: &QuorumStatus, before: Option<bool>) -> String {
    let absences = absences(&quorum.absences());
    match (quorum.ok, quorum.voters.is_empty()) {
        (true, true) => "view: this member belongs to one".to_owned(),
        (true, false) if quorum.missing.is_empty() => format!("quorum: {}", who_votes(quorum)),
        (true, false) => format!("quorum: {}; {absences}", who_votes(quorum)),
        (false, true) => format!("no view: {absences}"),
        (false, false) if before == Some(true) => format!("quorum lost: {absences}"),
        (false, false) => format!("no quorum: {absences}"),
    }
}

/// Whether one more voter would help: an even number is no better than one fewer, and with fewer than
/// three all are needed.
pub(crate) fn lacks_a_voter(quorum: &QuorumStatus) -> bool {
    let voters = quorum.voters.len();
    voters > 0 && (voters < 3 || voters.is_multiple_of(2))
}

/// Which members do not vote though it would help, and what to do; nothing where all is well.
pub(crate) fn growth(status: &Status) -> String {
    let voters = &status.quorum.voters;
    if !status.quorum.ok || !lacks_a_voter(&status.quorum) {
        return String::new();
    }
    let is_there = |it: &&MemberStatus| it.state == MemberState::Alive;
    let others = status.members.iter().filter(is_there).map(|it| it.id);
    let wanted = if voters.len() < 3 {
        3
    } else {
        voters.len() + 1
    };
    let mut others: Vec<u16> = others.filter(|id| !voters.contains(id)).collect();
    others.truncate(wanted - voters.len());
    let mut all = [voters.clone(), others.clone()].concat();
    if all.len() < wanted || wanted > MAX_VOTERS {
        return String::new();
    }
    all.sort_unstable();
    let all: Vec<_> = all.iter().map(u16::to_string).collect();
    let verb = if others.len() == 1 { "does" } else { "do" };
    format!(
        "{} {verb} not vote, and {} of {} voters must be there; with 'distlock members voters {}' \
         it takes {} of {wanted}.\n",
        sentence(&named(&others)),
        voters.len() / 2 + 1,
        voters.len(),
        all.join(" "),
        wanted / 2 + 1,
    )
}

fn named(ids: &[u16]) -> String {
    let ids: Vec<_> = ids.iter().filter_map(|&id| NodeId::new(id)).collect();
    members(&ids)
}

/// `words`, beginning with a capital letter.
fn sentence(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Why `status --check` fails.
pub(crate) fn failure(quorum: &QuorumStatus) -> Failure {
    let absences = absences(&quorum.absences());
    let advice = quorum.advice();
    Failure::new(UNAVAILABLE, format_args!("no quorum: {absences}: {advice}"))
}

/// The voters, as the beginning of a sentence.
fn who_votes(quorum: &QuorumStatus) -> String {
    let verb = match (quorum.founded, quorum.voters.len()) {
        (true, 1) => "votes",
        (true, _) => "vote",
        (false, 1) => "is to vote",
        (false, _) => "are to vote",
    };
    format!("{} {verb}", named(&quorum.voters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ok: bool, missing: &[u16], state_lost: &[u16], founded: bool) -> Status {
        let member = MemberStatus {
            id: 1,
            address: String::new(),
            state: MemberState::Alive,
            detail: String::new(),
        };
        Status {
            members: vec![member],
            quorum: QuorumStatus {
                ok,
                voters: vec![1, 2, 3],
                missing: missing.to_vec(),
                state_lost: state_lost.to_vec(),
                founded,
                ..QuorumStatus::default()
            },
            ..Status::default()
        }
    }

    #[test]
    fn says_whether_there_is_a_quorum_and_who_is_missing() {
        let healthy = paragraph(&status(true, &[], &[], true));
        assert_eq!(healthy, "Quorum: members 1, 2, 3 vote.\n");
        let weak = paragraph(&status(true, &[3], &[], true));
        assert_eq!(weak, "Quorum: members 1, 2, 3 vote; member 3 is silent.\n");
        let mut unlisted = status(true, &[3], &[], true);
        unlisted.quorum.unlisted = vec![3];
        let unlisted = paragraph(&unlisted);
        assert!(
            unlisted.ends_with("start this agent again.\n")
                && unlisted.contains("file does not list member 3: "),
            "{unlisted}"
        );
        let none = paragraph(&status(false, &[2, 3], &[], true));
        let begins = "NO QUORUM: members 1, 2, 3 vote; members 2, 3 are silent. ";
        assert!(none.starts_with(begins), "{none}");
        assert!(!none.contains("recover"), "{none}");
        let joins = paragraph(&status(false, &[], &[], true));
        assert!(joins.contains("no view"), "{joins}");
    }

    #[test]
    fn says_what_the_first_formation_waits_for() {
        let text = paragraph(&status(false, &[3], &[], false));
        assert!(text.starts_with("NO QUORUM: members 1, 2, 3 are to vote; member 3 is silent"));
        assert!(text.contains("all are there at once"), "{text}");
    }

    #[test]
    fn says_who_does_not_vote_though_it_would_help() {
        let told = |voters: &[u16], members: u16| {
            let mut status = status(true, &[], &[], true);
            let mut member = status.members.remove(0);
            status.members.extend((1..=members).map(|id| {
                member.id = id;
                member.clone()
            }));
            status.quorum.voters = voters.to_vec();
            growth(&status)
        };
        assert_eq!(
            told(&[1, 2], 3),
            "Member 3 does not vote, and 2 of 2 voters must be there; with 'distlock members voters \
             1 2 3' it takes 2 of 3.\n"
        );
        assert!(told(&[2], 4).starts_with("Members 1, 3 do not vote, and 1 of 1"));
        assert!(
            told(&[1, 2, 3, 5], 5).contains("'distlock members voters 1 2 3 4 5' it takes 3 of 5")
        );
        for (voters, members) in [
            (&[1, 2][..], 2),
            (&[1], 2),
            (&[1, 2, 3], 9),
            (&[1, 2, 3, 4], 4),
        ] {
            assert_eq!(told(voters, members), "", "{voters:?} {members}");
        }
    }

    #[test]
    fn says_recover_where_a_majority_has_lost_its_state() {
        let text = paragraph(&status(false, &[1, 2], &[1, 2], true));
        assert!(
            text.contains("members 1, 2 have lost their states"),
            "{text}"
        );
        assert!(text.contains("'distlock recover'"), "{text}");
        // One of three is no majority, and is taken back in by the others when the third is there.
        let text = paragraph(&status(false, &[1, 2], &[1], true));
        assert!(
            text.contains("member 2 is silent, and member 1 has lost its state"),
            "{text}"
        );
        assert!(!text.contains("recover"), "{text}");
    }
}
