//! `distlock config check`: what a configuration says, and what in it may be meant otherwise.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use distlock::Config;
use distlock::config::{Failure as FailureRule, StoreConfig};
use distlock_agent::runtime::{CREDENTIAL, KeyFileError, key_ids};

use crate::args::{ConfigCheck, ConfigCommand};
use crate::exit::{self, CONFIG, Failure};
use crate::{refusal, way};

/// A host under load may stand still for a third of a shorter lease.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(1);

/// Runs one of the commands about configurations.
///
/// # Errors
/// As for [`check`].
pub(crate) fn config(command: &ConfigCommand) -> Result<ExitCode, Failure> {
    match command {
        ConfigCommand::Check(args) => check(args),
    }
}

/// Tells what the file says. No group is needed, and none is asked.
///
/// # Errors
/// 66, 69 or 77 if the file, or the key file that it names, cannot be read; 78 if either is refused.
fn check(args: &ConfigCheck) -> Result<ExitCode, Failure> {
    way::tell_warnings();
    let config = Config::load(&args.file)?;
    let keys = keys(&config)?;
    let mut text = said(&config, &keys);
    for warning in warnings(&config) {
        let _ = writeln!(text, "warning: {warning}");
    }
    exit::print(text.as_bytes(), "what the configuration says")
}

/// By which keys datagrams are sealed, as text.
fn keys(config: &Config) -> Result<String, Failure> {
    let Some(path) = config.key_file() else {
        return Ok("no".to_owned());
    };
    let named = exit::one_line(&path.display().to_string());
    if path.starts_with(CREDENTIAL) {
        return Ok(format!("by the key in {named}, which the agent reads"));
    }
    let ids = key_ids(path).map_err(|error| {
        let code = match &error {
            KeyFileError::Io { source, .. } => refusal::code_of(source),
            _ => CONFIG,
        };
        Failure::new(code, error)
    })?;
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let (key, others) = ids.split_first().expect("a key file has a key");
    let mut text = format!("by the key {key} in {named}");
    if !others.is_empty() {
        let _ = write!(text, "; also opened by {}", others.join(", "));
    }
    Ok(text)
}

/// What a file says whose locks a store has.
fn said_of_store(config: &Config, store: &StoreConfig) -> String {
    let keeps = if store.requires_keeping() {
        "must keep what it acknowledges"
    } else {
        "may forget what it acknowledges"
    };
    let mut text = format!(
        "group: {}\nstore: {}, which {keeps}\nlease: {:?}\nlocks: {} listed\n",
        store.group(),
        exit::one_line(store.url()),
        store.lease(),
        config.settings().locks.len()
    );
    if let Some(metrics) = store.metrics() {
        let _ = writeln!(text, "metrics: {metrics}");
    }
    if let Some(audit) = store.audit() {
        let _ = writeln!(
            text,
            "audit: {}",
            exit::one_line(&audit.display().to_string())
        );
    }
    text
}

fn said(config: &Config, keys: &str) -> String {
    if let Some(store) = config.store() {
        return said_of_store(config, &store);
    }
    let settings = config.settings();
    let members = config.members().iter();
    let members: Vec<String> = members
        .map(|(id, address)| format!("{id} at {address}"))
        .collect();
    let (rule, voters) = match settings.failure {
        FailureRule::PresumeFailed => ("presume-failed", "none".to_owned()),
        // No file says another.
        FailureRule::Quorum | FailureRule::Unanimity => ("quorum", voters(config)),
    };
    let listed = match settings.locks.len() {
        0 => String::new(),
        1 => "; 1 lock is listed".to_owned(),
        many => format!("; {many} locks are listed"),
    };
    let lines = [
        ("group", settings.group.clone()),
        ("members", exit::one_line(&members.join(", "))),
        ("voters", voters),
        ("lease", format!("{:?}", settings.lease)),
        ("failure", rule.to_owned()),
        ("algorithm", format!("{}{listed}", settings.algorithm)),
        ("sealed", keys.to_owned()),
    ];
    let metrics = config.metrics().map(ToString::to_string);
    let audit = config.audit().map(|path| path.display().to_string());
    let optional = [("metrics", metrics), ("audit", audit)];
    let optional = optional
        .into_iter()
        .filter_map(|(name, value)| Some((name, exit::one_line(&value?))));
    let mut text = String::new();
    for (name, value) in lines.into_iter().chain(optional) {
        let _ = writeln!(text, "{name}: {value}");
    }
    text
}

fn voters(config: &Config) -> String {
    let voters = config.voters();
    let ids: Vec<String> = voters.iter().map(ToString::to_string).collect();
    let spared = spared(voters.len());
    format!(
        "{}; the group goes on without {spared} of them",
        ids.join(", ")
    )
}

/// Without how many of `voters` voters the group goes on.
const fn spared(voters: usize) -> usize {
    voters.saturating_sub(1) / 2
}

/// What the file is allowed to say, and the operator may not have meant.
fn warnings(config: &Config) -> Vec<String> {
    let settings = config.settings();
    let mut warnings = Vec::new();
    let count = config.voters().len();
    if config.store().is_some() {
        // Nobody votes.
    } else if settings.failure == FailureRule::PresumeFailed {
        warnings.push(
            "failure = \"presume-failed\" lets two members be inside of one lock where one is only \
             paused or cut off, and gives no fences: leave the key out, unless that is wanted"
                .to_owned(),
        );
    } else if count == 1 && config.members().len() > 1 {
        warnings.push("one member votes, and without it nobody enters: let three vote".to_owned());
    } else if count.is_multiple_of(2) {
        warnings.push(format!(
            "{count} members vote, and the group goes on without {} of them, as it would if {} \
             voted: let an odd number vote",
            spared(count),
            count - 1
        ));
    }
    if settings.lease < SHORT_LEASE {
        warnings.push(format!(
            "with a lease of {:?} a host that stands still for a third of that loses its locks: \
             choose a longer one, unless the hosts are never so busy",
            settings.lease
        ));
    }
    let is_udp = config.members().values().any(|its| its.as_path().is_none());
    if config.key_file().is_none() && is_udp {
        let whoever = match config.members().values().all(|its| its.is_loopback()) {
            true => "any user of this host",
            false => "any host that can reach a member",
        };
        warnings.push(format!(
            "datagrams are not sealed, and {whoever} can send some that let two in: make a key \
             with distlock keygen, and name it as key_file"
        ));
    }
    warnings
}
