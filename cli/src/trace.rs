//! `distlock trace`: what agents have written down, merged.

mod align;
pub(crate) mod args;
mod merge;
mod read;
mod report;
mod when;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use distlock_agent::protocol::LockName;

use crate::diagram::timeline::{Measure, Timeline};
use crate::diagram::{self, Wanted};
use crate::exit::{self, Failure};
use align::Alignment;
use args::{Trace, usage};
use merge::Merged;
use read::Logs;
use when::date;

/// How long after it was sent a message may still be under way when a trace ends, in units.
const PATIENCE: f64 = 20.0;

/// Merges traces, and tells or draws what they say.
///
/// # Errors
/// 64 if the options make no sense, or the files are no traces of one group; 66, 69, 74 or 77 if a
/// file or standard output cannot be read or written.
pub(crate) fn trace(args: &Trace) -> Result<ExitCode, Failure> {
    let wanted = Wanted {
        diagram: args.diagram.as_deref(),
        shiviz: args.shiviz.as_deref(),
        less: "take fewer with --lock, --since and --until",
        command: "trace",
    };
    diagram::check(&wanted)?;
    let locks = locks(args)?;
    let logs = Logs::read(&args.files, &locks)?;
    let alignment = Alignment::of(&logs);
    let merged = merge::merge(&logs, &alignment);
    let span = span(args, &merged)?;
    let facts = report::Facts::of(&merged, span);
    let report = report::report(&logs, &alignment, &merged, &facts);
    let timeline = timeline(merged, span, facts.locks.len() > 1);
    let group = logs.group.map(|(group, _)| group).unwrap_or_default();
    let title = format!("group {group}, from {}", date(span.0));
    diagram::write(&wanted, &timeline, &title, &report)?;
    if args.story {
        return exit::print(diagram::story(&timeline).as_bytes(), "the story");
    }
    exit::print(report.as_bytes(), "the report")
}

/// The locks that are wanted, as traces have them; none for all.
fn locks(args: &Trace) -> Result<BTreeSet<String>, Failure> {
    let names = args.lock.iter().map(|name| LockName::new(name.as_bytes()));
    let names = names.map(|name| name.map(|name| name.to_string()));
    names.collect::<Result<_, _>>().map_err(usage)
}

/// From when to when is shown.
fn span(args: &Trace, merged: &Merged) -> Result<(u64, u64), Failure> {
    let (Some(first), Some(last)) = (merged.history.first(), merged.history.last()) else {
        return Err(usage(
            "the traces have no event that is wanted; name others",
        ));
    };
    let since = args.since.map_or(first.at, |since| since.nanos(first.at));
    let until = args.until.map_or(last.at, |until| until.nanos(first.at));
    let is_between = |at: u64| at >= since && at <= until;
    if since > until || !merged.history.iter().any(|moment| is_between(moment.at)) {
        return Err(usage(format_args!(
            "nothing happened from {} to {}: the traces are from {} to {}",
            date(since),
            date(until),
            date(first.at),
            date(last.at)
        )));
    }
    Ok((since, until))
}

/// What is shown. `has_locks`: it matters which lock it is.
fn timeline(merged: Merged, span: (u64, u64), has_locks: bool) -> Timeline {
    let unit = unit(&merged, span);
    let mut history = merged.history;
    if !has_locks {
        for moment in &mut history {
            moment.lock = None;
        }
    }
    Timeline {
        history,
        span,
        unit,
        measure: Measure::Millis(unit / 1e6),
        lanes: merged.lanes,
        has_stamps: false,
        patience: PATIENCE,
    }
}

/// A time that most messages take, in nanoseconds: 1, 2 or 5 times a power of ten.
fn unit(merged: &Merged, (since, until): (u64, u64)) -> f64 {
    let typical = match merged.transits.get(merged.transits.len() / 2) {
        Some(typical) => *typical,
        // Nobody speaks: it is all one long wait.
        None => (until - since) / 50,
    };
    let typical = typical.clamp(1_000, 10_000_000_000);
    let power = 10_u64.pow(typical.ilog10());
    let steps = [1, 2, 5].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= typical);
    step.unwrap_or(power * 10) as f64
}
