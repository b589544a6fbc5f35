//! Which group a command works with, as its flags, the environment and this host say.

use distlock::discovery::{GroupChoice, GroupOptions, MemberChoice};
use distlock::{NodeId, OpenError};

use crate::args;
use crate::exit::Failure;

/// A host's configuration, if no flag and no variable names another: what the packaged agent is started with
/// (`packaging/systemd/distlock.service`).
pub(crate) const HOST_CONFIG: &str = "/etc/distlock/distlock.toml";

/// The group that the flags, the environment and this host say; `command` is whose flags.
///
/// # Errors
/// 64 when they contradict each other or are not complete, 69 when this host has a configured group
/// and no agent, 77 when it cannot be told whether it has.
pub(crate) fn select(flags: &args::Group, command: &str) -> Result<GroupChoice, Failure> {
    options(flags)
        .find()
        .map_err(|error| refusal(error, command))
}

/// The member that the flags and the environment say; `command` is whose flags.
///
/// # Errors
/// 64 when they do not say which.
pub(crate) fn member(flags: &args::Group, command: &str) -> Result<MemberChoice, Failure> {
    options(flags)
        .find_member()
        .map_err(|error| refusal(error, command))
}

/// Of what this process is to be an agent, as the flags and the environment say; `command` is whose flags.
///
/// # Errors
/// 64 when they do not say.
pub(crate) fn agent(flags: &args::Group, command: &str) -> Result<GroupChoice, Failure> {
    options(flags)
        .find_agent()
        .map_err(|error| refusal(error, command))
}

/// A wrong command line or environment names the help that helps.
pub(crate) fn refusal(error: OpenError, command: &str) -> Failure {
    match error {
        OpenError::Options { reason } => Failure::usage(reason, command),
        error => error.into(),
    }
}

fn options(flags: &args::Group) -> GroupOptions {
    let args::Group {
        at,
        local,
        socket,
        config,
        id,
        state_dir,
    } = flags.clone();
    let mut options = GroupOptions::new();
    if let Some(at) = at {
        options = options.at(at);
    }
    if local {
        options = options.local();
    }
    if let Some(socket) = socket {
        options = options.socket(socket);
    }
    if let Some(config) = config {
        options = options.config(config);
    }
    if let Some(id) = id {
        let id = NodeId::new(id).expect("the command line takes ids from 1");
        options = options.id(id);
    }
    if let Some(state_dir) = state_dir {
        options = options.state_dir(state_dir);
    }
    options
}
