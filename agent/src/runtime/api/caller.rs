//! Who asks, and what for.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::protocol::ElectionAlgorithm;
use crate::runtime::os::sync::Mutex;

/// Who asks: for `status`, for what the lock must outlast, and what for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The program that calls; for `distlock run` the runner.
    pub pid: u32,
    /// The user that it runs as; `None`: as this process.
    pub uid: Option<u32>,
    /// Its command line, each word ended by a NUL ([`command_line`]); for `distlock run` the
    /// command's. Or without NULs what the application calls its work.
    pub command: Arc<str>,
    /// The process that `distlock run` runs.
    pub command_pid: Option<u32>,
    /// Whether the grant is to have a descriptor that other processes can inherit, to keep the
    /// lock ([`Grant::lifeline`](crate::runtime::Grant::lifeline)).
    pub has_lifeline: bool,
    /// Whether it waits by itself for a lock that is lent to this process: then its request can end as
    /// [`AcquireError::Lent`](crate::runtime::AcquireError::Lent).
    pub waits_by_loan: bool,
    /// What it wants of the lock.
    pub purpose: Purpose,
}

/// What a caller wants of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To enter it.
    #[default]
    Enter,
    /// To lead: to be elected, and then to enter it.
    Lead {
        /// By which algorithm; `None`: by that of the group.
        algorithm: Option<ElectionAlgorithm>,
    },
}

/// This process's command line, once it has been read.
static COMMAND: Mutex<Option<Arc<str>>> = Mutex::new(None);

/// A command line as a caller says it: each word ended by a NUL, as in /proc/PID/cmdline.
pub fn command_line<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> String {
    let words = words.into_iter();
    words.fold(String::new(), |line, word| {
        line + &word.as_ref().to_string_lossy() + "\0"
    })
}

/// What others are told of a command line: the program's name, since the other words may be
/// passwords; with `is_whole` all words. What is no command line is told as it is.
pub fn as_told(command: &str, is_whole: bool) -> Cow<'_, str> {
    match command.split_once('\0') {
        None => command.into(),
        Some(_) if is_whole => command.trim_end_matches('\0').replace('\0', " ").into(),
        Some((program, _)) => program.rsplit('/').next().unwrap_or(program).into(),
    }
}

impl Caller {
    /// This process and its command line.
    pub fn current() -> Self {
        let read = || -> Arc<str> { command_line(std::env::args_os()).into() };
        // Another thread may have held it at a fork: in a child it is never waited for.
        let command = match COMMAND.try_lock() {
            Some(mut known) => Arc::clone(known.get_or_insert_with(read)),
            None => read(),
        };
        Self {
            pid: std::process::id(),
            uid: None,
            command,
            command_pid: None,
            has_lifeline: false,
            waits_by_loan: false,
            purpose: Purpose::Enter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a child of a fork that came while another thread had it.
    #[test]
    fn nobody_waits_for_the_command_line() {
        let known = Caller::current().command;
        let held = COMMAND.lock();
        assert_eq!(Caller::current().command, known);
        drop(held);
    }

    #[test]
    fn others_are_told_the_program_and_not_its_arguments() {
        let line = command_line(["/usr/bin/mysqldump", "--password=secret", "shop"]);
        assert_eq!(as_told(&line, false), "mysqldump");
        assert_eq!(
            as_told(&line, true),
            "/usr/bin/mysqldump --password=secret shop"
        );
        assert_eq!(as_told(&command_line(["sleep"]), false), "sleep");
        assert_eq!(
            as_told("prints invoices/2026", false),
            "prints invoices/2026"
        );
        assert_eq!(as_told("", false), "");
    }
}
