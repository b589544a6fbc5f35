//! `distlock status`, `members` and `who`: tables for people, JSON for programs.

mod locks;
mod table;

use std::fmt::Write as _;
use std::process::ExitCode;

use distlock::discovery::GroupChoice;
use distlock::status::{SCHEMA, Status};
use distlock::{Address, Agent};
use distlock_agent::protocol::is_displayable;
use distlock_agent::runtime::clock;
use serde::Serialize;
use serde_json::json;

use crate::args;
use crate::colours::{self, Styles};
use crate::exit::{self, Failure, clean};
use crate::group;
use crate::members;
use crate::quorum;
use crate::watch;
use crate::way;

use self::locks::locks;
use self::table::members_table;
pub(crate) use self::table::state;

/// Shows the status.
///
/// # Errors
/// If there is no way to the group, or no way out; with `--check`, 69 if there is no quorum.
pub(crate) fn status(args: &args::Status) -> Result<ExitCode, Failure> {
    if let Some(interval) = args.watch.interval() {
        return watch::watch(&args.group, None, interval, args.json);
    }
    let status = ask(&args.group, "status")?;
    let code = if args.json {
        #[derive(Serialize)]
        struct Whole<'a> {
            schema: u32,
            #[serde(flatten)]
            status: &'a Status,
        }
        print_json(&Whole {
            schema: SCHEMA,
            status: &status,
        })?
    } else {
        let styles = Styles::of_output();
        print(&[
            styles.sentences(&heading(&status)),
            members_table(&status, styles),
            locks(&status, styles, colours::columns_of_output()),
        ])?
    };
    if let Some(store) = status
        .store
        .as_ref()
        .filter(|store| args.check && !store.ok)
    {
        let (at, reason) = (clean(&store.at), clean(&store.reason));
        let what = format!("the store {at} cannot be reached: {reason}; see that it runs");
        return Err(Failure::new(exit::UNAVAILABLE, what));
    }
    if args.check && !status.quorum.ok {
        return Err(quorum::failure(&status.quorum));
    }
    Ok(code)
}

/// Shows the members only.
///
/// # Errors
/// As for [`status`].
pub(crate) fn members(args: &args::Members) -> Result<ExitCode, Failure> {
    if let Some(change) = &args.change {
        return members::change(change, &args.group);
    }
    let status = ask(&args.group, "members")?;
    if args.json {
        return print_json(&cut(&status, "members", &status.members));
    }
    let styles = Styles::of_output();
    let table = match members_table(&status, styles) {
        empty if empty.is_empty() && status.store.is_some() => {
            "A store has the locks: agents need not be listed.\n".to_owned()
        }
        empty if empty.is_empty() => "The local group has no members.\n".to_owned(),
        table => table,
    };
    print(&[styles.sentences(&heading(&status)), table])
}

/// Shows one lock only.
///
/// # Errors
/// As for [`status`], and 64 if the name is invalid.
pub(crate) fn who(args: &args::Who) -> Result<ExitCode, Failure> {
    let name = args.lock_name()?.to_string();
    if let Some(interval) = args.watch.interval() {
        return watch::watch(&args.group, Some(&name), interval, args.json);
    }
    let mut status = ask(&args.group, "who")?;
    status.locks.retain(|lock| lock.name == name);
    if args.json {
        return print_json(&cut(&status, "locks", &status.locks));
    }
    let styles = Styles::of_output();
    let no_quorum = if status.quorum.ok {
        String::new()
    } else {
        styles.sentences(&(store(&status) + &quorum::paragraph(&status)))
    };
    let table = if status.locks.is_empty() {
        let whom = if status.quorum.ok {
            "Nobody"
        } else {
            "Nobody who is heard"
        };
        format!("{whom} holds '{}' or waits for it.\n", clean(&name))
    } else {
        locks(&status, styles, colours::columns_of_output())
    };
    print(&[no_quorum, table])
}

/// The status cut to one part of it.
fn cut(status: &Status, key: &str, part: &impl Serialize) -> serde_json::Value {
    json!({
        "schema": SCHEMA, "group": status.group, "member": status.member,
        "quorum": status.quorum, "epoch": status.epoch, "store": status.store, key: part,
    })
}

fn ask(flags: &args::Group, command: &str) -> Result<Status, Failure> {
    let group = group::select(flags, command)?;
    let agent = way::open(&group)?;
    if let GroupChoice::Member(_) = group {
        await_view(&agent);
    }
    Ok(agent.status()?)
}

fn print_json(value: &impl Serialize) -> Result<ExitCode, Failure> {
    exit::print(json_line(value).as_bytes(), "the status")
}

/// `value` on one line, with what would mislead who reads it escaped.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    let plain = serde_json::to_string(value).expect("plain data");
    let mut text = String::with_capacity(plain.len() + 1);
    for c in plain.chars() {
        if is_displayable(c) {
            text.push(c);
        } else {
            // What serde leaves so is part of a string.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text.push('\n');
    text
}

/// Prints what there is of `parts`, with empty lines between.
fn print(parts: &[String]) -> Result<ExitCode, Failure> {
    let parts: Vec<_> = parts.iter().filter(|part| !part.is_empty()).collect();
    let text: Vec<_> = parts.iter().map(|part| part.as_str()).collect();
    exit::print(text.join("\n").as_bytes(), "the status")
}

/// A new member knows nobody yet. Without a view within one lease, that is what there is to tell.
pub(crate) fn await_view(agent: &Agent) {
    let events = agent.events();
    let deadline = clock::now() + agent.lease().unwrap_or_default();
    while agent.status().is_ok_and(|status| status.epoch == 0) {
        match events.recv_timeout(deadline.since(clock::now())) {
            Ok(_) => {}
            Err(_) => break,
        }
    }
}

/// The store that has the locks, if one has, and what is wrong with it.
fn store(status: &Status) -> String {
    let Some(store) = &status.store else {
        return String::new();
    };
    let at = clean(&store.at);
    let mut text = match (store.ok, store.keeps) {
        (true, Some(false)) => {
            format!("Store: {at}, which may forget what it has acknowledged: check fences.\n")
        }
        (true, _) => format!("Store: {at}.\n"),
        (false, _) => format!(
            "STORE UNREACHABLE: {at}: {}. Only the callers of the agent that is asked are listed.\n",
            clean(&store.reason)
        ),
    };
    if store.forgot > 0 {
        let times = store.forgot;
        let _ = writeln!(
            text,
            "It was found to have lost acknowledged writes, {times} times."
        );
    }
    for unreadable in &store.unreadable {
        let _ = writeln!(text, "UNREADABLE: {}.", clean(unreadable));
    }
    text
}

/// The group, the member that is asked and the epoch on one line, and on further lines the quorum and what
/// endangers the group.
pub(crate) fn heading(status: &Status) -> String {
    let mut text = format!("Group {}", clean(&status.group));
    if status.member > 0 {
        let _ = write!(text, ", member {}", status.member);
    }
    if status.epoch > 0 {
        let _ = write!(text, ", epoch {}", status.epoch);
    }
    text.push('\n');
    text.push_str(&store(status));
    text.push_str(&quorum::paragraph(status));
    text.push_str(&quorum::growth(status));
    let clients = status.clients.as_ref();
    if clients.is_some_and(|clients| clients.waits_for_former) {
        text.push_str(
            "Commands that this host's agent let in before it was restarted still run: it lets no \
             program in before they have ended. Its log names them.\n",
        );
    }
    if status.failure == "presume-failed" {
        text.push_str(
            "A silent member is presumed gone: two can hold a lock at once, and there are no fences.\n",
        );
    }
    let Some(protection) = &status.protection else {
        return text;
    };
    if protection.insecure {
        text.push_str(match stays_here(status) {
            false => {
                "INSECURE: datagrams are not sealed (insecure = true): whoever can send some can let \
                 two in at once.\n"
            }
            true => {
                "INSECURE: datagrams on loopback are not sealed: any user of this host can let two in \
                 at once, or end an agent; write a key with 'distlock keygen'.\n"
            }
        });
    }
    if !protection.flooded.is_empty() {
        let ids: Vec<_> = protection.flooded.iter().map(u16::to_string).collect();
        let ids = ids.join(", ");
        let _ = writeln!(
            text,
            "Floods come from the addresses of members {ids}: find out who sends them."
        );
    }
    text
}

/// Whether all members are on this host.
fn stays_here(status: &Status) -> bool {
    let mut addresses = status.members.iter().map(|member| &member.address);
    addresses.all(|address| {
        let address = address.parse::<Address>();
        address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use distlock::status::Protection;

    use super::*;

    #[test]
    fn what_endangers_the_group_comes_first() {
        let mut status = Status {
            group: "shop".to_owned(),
            protection: Some(Protection::default()),
            ..Status::default()
        };
        assert_eq!(heading(&status), "Group shop\n");
        status.protection = Some(Protection {
            insecure: true,
            flooded: vec![2, 5],
            ..Protection::default()
        });
        let text = heading(&status);
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert!(lines[0].starts_with("INSECURE: "), "{text}");
        assert_eq!(
            lines[1],
            "Floods come from the addresses of members 2, 5: find out who sends them."
        );
    }
}
