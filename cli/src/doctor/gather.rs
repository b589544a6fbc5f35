//! Looks at the host, reads the configuration, and asks the agent. Nothing is changed: no datagram is
//! sent, no member's address is bound, and the one file that is written is removed.

mod disk;
mod host;
mod network;
mod target;

use std::io;
use std::path::Path;
use std::time::Duration;

use distlock::{Agent as Client, Config, ConfigError, NodeConfig, NodeId, OpenError};
use distlock_agent::runtime::{CREDENTIAL, KeyFileError, clock, key_ids, trust, try_filter};
use nix::unistd::geteuid;

use self::target::Target;
use super::facts::{Agent, Answer, Facts, File, Keys, Node};
use crate::args;
use crate::exit::Failure;

/// How long the agent may take for all that it is asked. Monitoring gives a check some ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// All that there is to judge.
///
/// # Errors
/// 64 if the flags or the environment name no group that can be looked at.
pub(crate) fn gather(flags: &args::Group) -> Result<Facts, Failure> {
    let target = Target::choose(flags)?;
    let id = target.id()?;
    let mut facts = Facts {
        file: file(target.config.as_deref()),
        agent: ask(&target.socket),
        ..Facts::default()
    };
    facts.node = node(&facts, id, target.state_dir.as_deref());
    if let Some((group, member)) = other_member(&facts) {
        facts.agent.answer = Answer::Other { group, member };
    }
    facts.keys = facts.config().map(keys).unwrap_or_default();
    if let Node::Known(node) = &facts.node {
        let process = host::process_of(&node.state_dir());
        let state = disk::look(node);
        facts.address = Some(network::address_use(&node.members()[&node.me()]));
        facts.filter = Some(try_filter(
            node.me(),
            node.members(),
            node.multicast().is_some(),
        ));
        (facts.process, facts.state) = (process, Some(state));
    }
    if let Some((me, members)) = facts.members() {
        facts.routes = network::routes(me, &members);
    }
    let runs = facts.status().is_some() || facts.process.is_some();
    facts.host = host::look(facts.process, runs);
    Ok(facts)
}

fn file(path: Option<&Path>) -> File {
    let Some(path) = path else {
        return File::Unknown;
    };
    match Config::load(path) {
        Ok(config) => File::Read {
            path: path.to_owned(),
            config: Box::new(config),
            writers: writers(path),
        },
        Err(error) => File::Refused(error.to_string()),
    }
}

/// Why others can change the file `path`, if they can; and what to do.
fn writers(path: &Path) -> Option<(String, &'static str)> {
    let metadata = path.metadata().ok()?;
    let checked = trust::owned(path, &metadata)
        .and_then(|()| trust::shared_file(path, &metadata))
        .and_then(|()| trust::way(path).map(drop));
    match checked {
        Err(why) if !is_other_users(&why) => disk::told(&why),
        _ => None,
    }
}

/// Whether it is only that something is another user's, as whom the agent may run. Root, who looks at
/// it, does not use such things itself.
fn is_other_users(why: &trust::PathTrustError) -> bool {
    geteuid().is_root() && matches!(why, trust::PathTrustError::Stranger { .. })
}

/// Asks the agent at `socket` how its group is, as `distlock status` does.
fn ask(socket: &Path) -> Agent {
    let begin = clock::now();
    let refused = |error: String| match clock::now().since(begin) < PATIENCE {
        true => Answer::Refused(error),
        false => Answer::Silent(PATIENCE),
    };
    let answer = match Client::connect_within(socket, PATIENCE) {
        Ok(agent) => {
            let answer = match agent.status() {
                Ok(status) => Answer::Status {
                    status: Box::new(status),
                    lease: agent.lease(),
                },
                Err(error) => refused(error.to_string()),
            };
            // Its thread must not be there when signals are blocked.
            agent.close();
            answer
        }
        Err(OpenError::Unreachable { source, .. }) if is_of_connect(&source) => {
            match source.kind() {
                io::ErrorKind::ConnectionRefused => Answer::Unserved,
                _ => Answer::Absent,
            }
        }
        Err(error @ (OpenError::Permission { .. } | OpenError::Unsafe { .. })) => {
            Answer::Forbidden(error.to_string())
        }
        Err(error) => refused(error.to_string()),
    };
    Agent {
        socket: socket.to_owned(),
        answer,
    }
}

/// Whether no program serves the socket, as opposed to one that does not answer.
fn is_of_connect(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    [ConnectionRefused, NotADirectory, NotFound].contains(&error.kind())
}

/// Which member this host is: as it was said, or else as its agent says.
fn node(facts: &Facts, id: Option<NodeId>, state_dir: Option<&Path>) -> Node {
    let Some(config) = facts.config() else {
        return Node::NoFile;
    };
    let told = facts.status().filter(|status| {
        // Another group's number means nothing here.
        status.group == config.settings().group
    });
    let told = || NodeId::new(told?.member);
    let Some(id) = id.or_else(told) else {
        return Node::NoId;
    };
    match config.node(id.as_u16()) {
        Ok(node) => Node::Known(Box::new(with_state(node, state_dir))),
        Err(error @ ConfigError::NoSuchMember { .. }) => Node::Refused(error.to_string()),
        Err(_) => Node::NoFile,
    }
}

fn with_state(node: NodeConfig, base: Option<&Path>) -> NodeConfig {
    match base {
        Some(base) => node.with_state_dir(base),
        None => node,
    }
}

/// The group and the number of the member that answers, if it is another than the configuration's.
fn other_member(facts: &Facts) -> Option<(String, u16)> {
    let (status, config) = (facts.status()?, facts.config()?);
    let id = facts.node().map(|node| node.me().as_u16());
    let is_this =
        status.group == config.settings().group && id.is_none_or(|id| id == status.member);
    (!is_this).then(|| (status.group.clone(), status.member))
}

fn keys(config: &Config) -> Keys {
    let Some(path) = config.key_file() else {
        return Keys::None;
    };
    if path.starts_with(CREDENTIAL) {
        return Keys::Credential;
    }
    match key_ids(path) {
        Ok(ids) => Keys::Ids(ids.iter().map(ToString::to_string).collect()),
        Err(KeyFileError::Stranger { owner, .. }) if geteuid().is_root() => Keys::OfUser(owner),
        Err(error) => {
            let why = error.to_string();
            let source = match error {
                KeyFileError::Io { source, .. } => Some(source.kind()),
                _ => None,
            };
            match source {
                Some(io::ErrorKind::PermissionDenied) => Keys::Unreadable(why),
                _ => Keys::Refused(why),
            }
        }
    }
}
