//! What the configuration says, and whether the members' are alike.

use distlock::Address;
use distlock::config::Failure as FailureRule;
use distlock::status::{MemberState, Status};

use super::named;
use super::service::nothing_is_found;
use crate::config;
use crate::doctor::facts::{Answer, Facts, File, Keys, Node, absent};
use crate::doctor::finding::{Finding, Outcome};
use crate::exit::quoted;

pub(super) fn configuration(facts: &Facts) -> Finding {
    const ID: &str = "configuration";
    let (path, config, writers) = match &facts.file {
        File::Unknown if nothing_is_found(facts) => {
            return Finding::warn(
                ID,
                "neither a configuration nor an agent is found on this host",
                "name one of them, with --config and --id or with --socket; if this host is in no \
                 group, there is nothing to look at",
            );
        }
        File::Unknown => return facts.without_config(ID),
        File::Refused(why) => {
            let advice = "no agent starts with it: correct it, and try distlock config check";
            return Finding::fail(ID, why, advice);
        }
        File::Read {
            path,
            config,
            writers,
        } => (path, config, writers),
    };
    if let Node::Refused(why) = &facts.node {
        return Finding::fail(ID, why, "say which member this host is with --id");
    }
    if let Some((why, advice)) = writers {
        let what = format!("others can change the configuration: {why}");
        return Finding::warn(ID, what, advice);
    }
    let (group, members) = (&config.settings().group, config.members().len());
    let which = match facts.node() {
        Some(node) => format!(
            "this host is member {} of {members} in group {group}",
            node.me()
        ),
        None => format!("group {group} has {members} members"),
    };
    Finding::ok(ID, format_args!("{} is valid: {which}", quoted(path)))
}

pub(super) fn keys(facts: &Facts) -> Finding {
    const ID: &str = "keys";
    let protection = facts.status().and_then(|it| it.protection.as_ref());
    if facts.config().is_none() && protection.is_none() {
        return facts.without_config(ID);
    }
    if let (Keys::Unreadable(why), Answer::Forbidden(_)) = (&facts.keys, &facts.agent.answer) {
        // It is the agent's user who must read it.
        return Finding::skipped(ID, why, "run this command as the user that runs the agent");
    }
    if let Keys::Refused(why) | Keys::Unreadable(why) = &facts.keys {
        return Finding::fail(ID, why, "no agent starts without it");
    }
    let dropped = facts.status().and_then(dropped_for_keys);
    if let Some(told) = dropped.as_ref().filter(|it| it.result == Outcome::Fail) {
        return told.clone();
    }
    match (&facts.keys, protection.map(|it| &it.keys)) {
        (Keys::Ids(file), Some(agent)) if file != agent => Finding::warn(
            ID,
            format_args!(
                "the key file has {}, and the agent has {}",
                list(file),
                list(agent)
            ),
            match agent.as_slice() {
                [] => {
                    "the configuration was changed since the agent's start: start the agent again"
                }
                _ => "the agent reads the file again within seconds; if that lasts, see its log",
            },
        ),
        (Keys::None, Some(agent)) if !agent.is_empty() && facts.config().is_some() => {
            Finding::warn(
                ID,
                format_args!(
                    "the configuration names no key file, and the agent has {}",
                    list(agent)
                ),
                "the configuration was changed since the agent's start: start the agent again",
            )
        }
        (_, Some(agent)) => dropped.unwrap_or_else(|| Finding::ok(ID, list(agent))),
        (Keys::Ids(file), None) => Finding::ok(ID, list(file)),
        (Keys::None, None) => Finding::ok(ID, "none"),
        (Keys::Credential, None) => Finding::skipped(
            ID,
            "the keys are among the agent's credentials",
            "start the agent, which tells their ids",
        ),
        (Keys::OfUser(user), None) => Finding::skipped(
            ID,
            format_args!("the key file is user {user}'s, and an agent of root's would refuse it"),
            "run this command as the user that runs the agent",
        ),
        (Keys::Refused(_) | Keys::Unreadable(_), None) => facts.without_config(ID),
    }
}

fn list(keys: &[String]) -> String {
    match keys.split_first() {
        None => "none".to_owned(),
        Some((first, [])) => format!("the key {first}"),
        Some((first, others)) => format!("the key {first}, and {} to open", others.join(", ")),
    }
}

/// What was dropped as members' keys differ, if members are missing that would explain it.
fn dropped_for_keys(status: &Status) -> Option<Finding> {
    const REASONS: [(&str, &str); 4] = [
        (
            "unknown-key",
            "sealed with a key that this member does not have",
        ),
        ("not-sealed", "not sealed, though this member has a key"),
        ("sealed", "sealed, though this member has no key"),
        ("forged", "changed on their way, or not their sender's"),
    ];
    let dropped = &status.protection.as_ref()?.dropped;
    let counts = REASONS.iter();
    let counts: Vec<_> = counts
        .filter_map(|(reason, words)| {
            let count = dropped.get(*reason).filter(|count| **count > 0)?;
            Some(format!("{count} datagrams were {words} ({reason})"))
        })
        .collect();
    // One who left said so, which its key let it say.
    let unheard = absent(status).filter(|it| it.state != MemberState::Left);
    let unheard: Vec<_> = unheard.map(|it| it.id).collect();
    if counts.is_empty() {
        return None;
    }
    if unheard.is_empty() {
        // It may have been before the keys were made alike.
        let counts = counts.join(", ");
        return Some(Finding::ok(
            "keys",
            format_args!("all members are heard; since the agent's start {counts}"),
        ));
    }
    let verb = if unheard.len() == 1 { "is" } else { "are" };
    Some(Finding::fail(
        "keys",
        format_args!(
            "{} {verb} not heard, and {}",
            named(unheard),
            counts.join(", ")
        ),
        "give all members the same key file; distlock config check tells the id of a file's key",
    ))
}

pub(super) fn sealing(facts: &Facts) -> Finding {
    const ID: &str = "sealing";
    let unsealed = match facts.status().and_then(|it| it.protection.as_ref()) {
        Some(protection) => Some(protection.insecure),
        None => facts.config().map(|config| config.key_file().is_none()),
    };
    let (Some(unsealed), Some(members)) = (unsealed, all_members(facts)) else {
        return facts.without_config(ID);
    };
    if members.iter().all(|it| it.as_path().is_some()) {
        return Finding::ok(ID, "Unix datagrams need no key");
    }
    if !unsealed {
        return Finding::ok(ID, "datagrams are sealed");
    }
    let (whom, how) = match members.iter().all(Address::is_loopback) {
        true => ("any user of this host", "members are on this host alone"),
        false => (
            "any host that can reach a member",
            "members are on other hosts",
        ),
    };
    Finding::warn(
        ID,
        format_args!(
            "datagrams are not sealed, and {how}: {whom} can let two in at once, or end an agent"
        ),
        "make a key with distlock keygen, copy it to all hosts, and name it as key_file, in place of \
         insecure = true where that is said",
    )
}

/// All members' addresses, by the agent, or else by the file, whichever member this is.
fn all_members(facts: &Facts) -> Option<Vec<Address>> {
    match facts.members() {
        Some((_, members)) => Some(members.into_values().collect()),
        None => Some(facts.config()?.members().values().cloned().collect()),
    }
}

pub(super) fn files(facts: &Facts) -> Finding {
    const ID: &str = "files";
    let Some(status) = facts.status() else {
        return facts.without_agent(ID);
    };
    let advice =
        "make the files of all members alike, and start the agents again whose files change";
    let refused = status.members.iter();
    let refused = refused.filter(|it| it.state == MemberState::Refused);
    let refused: Vec<_> = refused
        .map(|it| match it.detail.as_str() {
            "" => format!("the file of member {} differs", it.id),
            detail => format!("the file of member {} differs: {detail}", it.id),
        })
        .collect();
    if !refused.is_empty() {
        return Finding::fail(ID, refused.join(", "), advice);
    }
    if let Some(founding) = &status.quorum.founding
        && !founding.differ.is_empty()
    {
        let differ = named(founding.differ.iter().copied());
        return Finding::fail(
            ID,
            format_args!("the files of {differ} list other members or other voters"),
            advice,
        );
    }
    let changed = changes(facts, status);
    if !changed.is_empty() {
        let advice = "start the agent again, or put back what the file said";
        let what = format!(
            "the file was changed since the agent's start: {}",
            changed.join(", ")
        );
        return Finding::warn(ID, what, advice);
    }
    if !status.quorum.file_voters.is_empty() {
        let file = named(status.quorum.file_voters.iter().copied());
        let group = named(status.quorum.voters.iter().copied());
        return Finding::warn(
            ID,
            format_args!("the file lists {file} as voters, and the group has agreed on {group}"),
            "change who votes with distlock members voters, or write the group's voters into the file",
        );
    }
    Finding::ok(ID, "no member's file is known to differ")
}

/// What the file says now, and the agent does not know.
fn changes(facts: &Facts, status: &Status) -> Vec<String> {
    let Some(config) = facts.config() else {
        return Vec::new();
    };
    let mut changed = Vec::new();
    let settings = config.settings();
    if let Answer::Status {
        lease: Some(lease), ..
    } = facts.agent.answer
        && lease != settings.lease
    {
        changed.push(format!("lease {:?}, which was {lease:?}", settings.lease));
    }
    let rule = settings.failure.to_string();
    if !status.failure.is_empty() && status.failure != rule {
        changed.push(format!("failure {rule}, which was {}", status.failure));
    }
    for member in &status.members {
        let file = config.members().iter();
        let mut file = file.filter(|(id, _)| id.as_u16() == member.id);
        if let Some((id, address)) = file.next()
            && address.to_string() != member.address
        {
            changed.push(format!(
                "member {id} at {address}, which was at {}",
                member.address
            ));
        }
    }
    changed
}

pub(super) fn failure_rule(facts: &Facts) -> Finding {
    const ID: &str = "failure-rule";
    let told = facts.status().map(|status| status.failure.clone());
    let rule = told.or_else(|| Some(facts.config()?.settings().failure.to_string()));
    match rule {
        None => facts.without_config(ID),
        Some(rule) if rule == FailureRule::PresumeFailed.to_string() => Finding::warn(
            ID,
            "a silent member is presumed gone: two can hold a lock at once where one is only paused \
             or cut off, and there are no fences",
            "leave out failure = \"presume-failed\", unless that is wanted",
        ),
        Some(rule) => Finding::ok(ID, rule),
    }
}

pub(super) fn lease(facts: &Facts) -> Finding {
    const ID: &str = "lease";
    let Some(lease) = facts.lease() else {
        return facts.without_config(ID);
    };
    if lease < config::SHORT_LEASE {
        return Finding::warn(
            ID,
            format_args!("{lease:?}: a host that stands still for a third of that loses its locks"),
            "choose a longer one, unless the hosts are never so busy",
        );
    }
    Finding::ok(ID, format_args!("{lease:?}"))
}

#[cfg(test)]
mod tests;
