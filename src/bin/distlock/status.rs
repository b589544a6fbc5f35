//! `distlock status`: tables for people, JSON for programs.

use std::fmt::Write as _;
use std::process::ExitCode;

use distlock::Agent;
use distlock::status::{MemberState, Status};
use distlock_agent::runtime::clock;

use crate::args;
use crate::exit::{self, Failure};
use crate::group::Group;
use crate::way;

/// Shows the status.
///
/// # Errors
/// If there is no way to the group, or no way out.
pub(crate) fn status(args: &args::Status) -> Result<ExitCode, Failure> {
    let group = Group::select(&args.group, "status")?;
    let agent = way::open(&group)?;
    if let Group::Member(_) = group {
        await_view(&agent);
    }
    let status = agent.status()?;
    if args.json {
        let mut text = serde_json::to_string(&status).expect("plain data");
        text.push('\n');
        exit::print(text.as_bytes(), "the status")
    } else {
        exit::print(tables(&status).as_bytes(), "the status")
    }
}

/// A new member knows nobody yet. Without a view within one lease, that is what there is to tell.
fn await_view(agent: &Agent) {
    let events = agent.events();
    let deadline = clock::now() + agent.lease().unwrap_or_default();
    while agent.status().is_ok_and(|status| status.epoch == 0) {
        match events.recv_timeout(deadline.since(clock::now())) {
            Ok(_) => {}
            Err(_) => break,
        }
    }
}

/// The status for people.
fn tables(status: &Status) -> String {
    let mut text = format!("Group {}", clean(&status.group));
    if status.epoch > 0 {
        let _ = write!(text, ", epoch {}", status.epoch);
    }
    text.push('\n');

    if !status.members.is_empty() {
        let mut table = Table::new(["MEMBER", "ADDRESS", "STATE", ""]);
        for member in &status.members {
            table.row([
                member.id.to_string(),
                clean(&member.address),
                state(member.state).to_owned(),
                clean(&member.detail),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
    }

    text.push('\n');
    if status.locks.is_empty() {
        text.push_str("No lock is held or waited for.\n");
        return text;
    }
    let mut table = Table::new([
        "LOCK",
        "ALGORITHM",
        "",
        "MEMBER",
        "HOST",
        "PID",
        "SINCE",
        "FENCE",
        "COMMAND",
    ]);
    for lock in &status.locks {
        let (name, algorithm) = (clean(&lock.name), clean(&lock.algorithm));
        let member = |id: u16| {
            if id == 0 {
                "-".to_owned()
            } else {
                id.to_string()
            }
        };
        for holder in &lock.holders {
            table.row([
                name.clone(),
                algorithm.clone(),
                "holds".to_owned(),
                member(holder.member),
                clean(&holder.host),
                holder.pid.to_string(),
                clean(&holder.since),
                holder
                    .fence
                    .map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
                clean(&holder.command),
            ]);
        }
        for waiter in &lock.waiters {
            table.row([
                name.clone(),
                algorithm.clone(),
                "waits".to_owned(),
                member(waiter.member),
                clean(&waiter.host),
                waiter.pid.to_string(),
                clean(&waiter.since),
                "-".to_owned(),
                String::new(),
            ]);
        }
    }
    text.push_str(&table.render());
    text
}

/// The word that JSON has for it too.
fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Alive => "alive",
        MemberState::Joining => "joining",
        MemberState::Suspect => "suspect",
        MemberState::Left => "left",
        MemberState::Refused => "refused",
        _ => "unknown",
    }
}

/// What others chose, names and command lines, without what would upset a terminal.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
    }
    out
}

/// Columns as wide as their widest cell.
struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    fn new(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(str::to_owned)],
        }
    }

    fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    fn render(&self) -> String {
        let width = |text: &String| text.chars().count();
        let widths: [usize; N] = std::array::from_fn(|column| {
            self.rows
                .iter()
                .map(|row| width(&row[column]))
                .max()
                .unwrap_or(0)
        });
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}
