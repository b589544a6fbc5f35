//! `distlock audit verify`: whether an audit log is as it was written.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use super::line::Line;
use super::log::{FIRST, TORN, hash, hex};
use crate::args::{AuditCommand, AuditVerify};
use crate::exit::{self, Failure, NO_INPUT, NOT_ACQUIRED, one_line, quoted};
use crate::refusal;

const NO_LINE: &str = "is no line of an audit log";
/// The longest line that is read: twice the longest command line, as JSON writes it.
const MAX_LINE: u64 = 1 << 20;

/// Does what is asked about audit logs.
///
/// # Errors
/// As [`verify`].
pub(crate) fn audit(command: &AuditCommand) -> Result<ExitCode, Failure> {
    match command {
        AuditCommand::Verify(args) => verify(args),
    }
}

/// Reads the files as one log, the oldest first.
///
/// # Errors
/// 1 if something was changed or taken out; 66 or 77 if a file cannot be read.
fn verify(args: &AuditVerify) -> Result<ExitCode, Failure> {
    let mut chain = Chain::default();
    for path in &args.files {
        let input: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin())
        } else {
            let opened = File::open(path);
            Box::new(opened.map_err(|error| unreadable(path, &error))?)
        };
        chain.read(path, BufReader::new(input))?;
    }
    exit::print(format!("{chain}\n").as_bytes(), "the result")
}

/// What was read so far.
#[derive(Debug, Default)]
struct Chain {
    lines: u64,
    /// The number of the first line.
    first: u64,
    /// The number of the last line, and its hash.
    last: Option<(u64, [u8; 32])>,
    /// Whether the last line was none, which the next one is to tell of.
    is_torn: bool,
    gaps: u64,
    lost: u64,
    /// Whether the last line was an agent's last one, or an operator's.
    is_ended: bool,
    /// How many agents ended without a last line.
    killed: u64,
}

impl Chain {
    fn read(&mut self, path: &Path, mut input: impl BufRead) -> Result<(), Failure> {
        let mut number = 0;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut bytes);
            let len = read.map_err(|error| unreadable(path, &error))?;
            if len == 0 {
                break;
            }
            number += 1;
            let is_whole = bytes.pop_if(|byte| *byte == b'\n').is_some();
            if !is_whole {
                let what = "is not whole: the log was cut off there, or an agent was, which tells of it at \
                            its next start";
                return Err(broken(path, number, what));
            }
            self.add(&bytes)
                .map_err(|what| broken(path, number, what))?;
        }
        if self.is_torn {
            return Err(broken(path, number, NO_LINE));
        }
        Ok(())
    }

    /// Adds a line; why it does not belong there.
    fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let line: Option<Line> = serde_json::from_slice(bytes).ok();
        let Some(line) = line.filter(|line| line.seq > 0) else {
            if std::mem::replace(&mut self.is_torn, true) {
                return Err(NO_LINE.to_owned());
            }
            let seq = self.last.map_or(0, |(seq, _)| seq);
            self.last = Some((seq, hash(bytes)));
            return Ok(());
        };
        if self.is_torn && line.why.as_deref() != Some(TORN) {
            return Err(
                "follows what is no line of an audit log, and does not tell of it".to_owned(),
            );
        }
        if let Some((seq, before)) = self.last {
            if line.prev != hex(&before) {
                return Err(if line.seq == 1 && line.prev == hex(&FIRST) {
                    "begins another chain: the log before it was moved away while no agent ran, or was \
                     taken out; verify them one by one"
                        .to_owned()
                } else {
                    "does not have the hash of the line before: one of both was changed, or lines between \
                     them were taken out"
                        .to_owned()
                });
            }
            if line.seq != seq + 1 {
                return Err(format!(
                    "has the number {}, and follows number {seq}",
                    line.seq
                ));
            }
        } else {
            self.first = line.seq;
        }
        self.is_torn = false;
        let is_killed = line.event == "start" && self.lines > 0 && !self.is_ended;
        self.killed += u64::from(is_killed);
        self.is_ended = ["end", "recover"].contains(&line.event.as_str());
        self.lines += 1;
        if let Some(lost) = line.lost {
            self.gaps += 1;
            self.lost += lost;
        }
        self.last = Some((line.seq, hash(bytes)));
        Ok(())
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((last, hash)) = self.last else {
            return write!(f, "no lines");
        };
        let Self {
            lines,
            first,
            gaps,
            lost,
            killed,
            ..
        } = self;
        write!(
            f,
            "{lines} lines, number {first} to {last}, each with the hash of the one before; {gaps} gaps, in \
             which {lost} lines are missing; {killed} agents ended without a last line, before which a few may be \
             missing; the last line has the hash {}",
            hex(&hash)
        )
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => NO_INPUT,
        _ => refusal::code_of(error),
    };
    Failure::new(code, format_args!("cannot read {}: {error}", quoted(path)))
}

fn broken(path: &Path, number: u64, what: impl Display) -> Failure {
    let what = format!("{}: line {number} {what}", path.display());
    Failure::new(NOT_ACQUIRED, one_line(&what))
}
