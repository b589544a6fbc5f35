//! `distlock members add`, `remove` and `voters`.

use std::process::ExitCode;

use distlock::{Address, Agent, MembersError, NodeId};

use crate::args::{self, Change};
use crate::exit::{self, Failure, say};
use crate::group;
use crate::quorum;
use crate::way;

/// Changes who belongs to the group; `outer` are the options before the word that says how.
///
/// # Errors
/// 64 if it makes no sense, 69 without a quorum, 78 where files alone say who is a member.
pub(crate) fn change(change: &Change, outer: &args::Group) -> Result<ExitCode, Failure> {
    let (Change::Add { group, .. } | Change::Remove { group, .. } | Change::Voters { group, .. }) =
        change;
    let flags = if group.is_empty() { outer } else { group };
    let member = |id: u16| NodeId::new(id).expect("the command line was checked");
    let address = match change {
        Change::Add { address, .. } => Some(address.parse::<Address>().map_err(|error| {
            Failure::usage(
                format_args!("the address '{address}' is none: {error}"),
                "members",
            )
        })?),
        Change::Remove { .. } | Change::Voters { .. } => None,
    };
    let agent = way::open(&group::select(flags, "members")?)?;
    match (change, address) {
        (Change::Add { member: id, .. }, Some(address)) => agent.add_member(member(*id), &address),
        (Change::Add { member: id, .. } | Change::Remove { member: id, .. }, _) => {
            agent.remove_member(member(*id))
        }
        (Change::Voters { members, .. }, _) => {
            let voters: Vec<NodeId> = members.iter().map(|id| member(*id)).collect();
            agent.set_voters(&voters)
        }
    }?;
    if let Change::Add { member, .. } = change {
        tell_of_vote(*member, &agent);
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that the new member does not vote, where one more voter would help.
fn tell_of_vote(member: u16, agent: &Agent) {
    let Ok(status) = agent.status() else { return };
    if !status.quorum.voters.contains(&member) && quorum::lacks_a_voter(&status.quorum) {
        say(format_args!(
            "member {member} does not vote; when it runs, 'distlock status' says how to have it vote"
        ));
    }
}

impl From<MembersError> for Failure {
    fn from(error: MembersError) -> Self {
        let code = match &error {
            MembersError::Refused { .. } => exit::USAGE,
            MembersError::FilesOnly => exit::CONFIG,
            _ => exit::UNAVAILABLE,
        };
        Self::new(code, error)
    }
}
