//! What `status` says of the quorum: whether this host can be granted locks, who votes, who of the
//! voters is missing, and what to do.

use distlock::status::{QuorumStatus, Status};
use distlock_agent::protocol::NodeId;
use distlock_agent::protocol::membership::quorum::{absences, members};

use crate::exit::{Failure, UNAVAILABLE};

/// One paragraph for people; nothing of a group in which the kernel is the arbiter.
pub(crate) fn paragraph(status: &Status) -> String {
    if status.members.is_empty() {
        return String::new();
    }
    let quorum = &status.quorum;
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

/// Why `status --check` fails.
pub(crate) fn failure(quorum: &QuorumStatus) -> Failure {
    let absences = absences(&quorum.absences());
    let advice = quorum.advice();
    Failure::new(UNAVAILABLE, format_args!("no quorum: {absences}: {advice}"))
}

/// The voters, as the beginning of a sentence.
fn who_votes(quorum: &QuorumStatus) -> String {
    let ids: Vec<_> = { quorum.voters.iter() }
        .filter_map(|&id| NodeId::new(id))
        .collect();
    let verb = match (quorum.founded, ids.len()) {
        (true, 1) => "votes",
        (true, _) => "vote",
        (false, 1) => "is to vote",
        (false, _) => "are to vote",
    };
    format!("{} {verb}", members(&ids))
}

#[cfg(test)]
mod tests {
    use distlock::status::{MemberState, MemberStatus};

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
