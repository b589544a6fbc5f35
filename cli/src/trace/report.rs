//! What there is in traces, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use super::align::Alignment;
use super::merge::Merged;
use super::read::Logs;
use super::when::date;
use crate::diagram::timeline::What;

/// What is shown, counted.
#[derive(Debug)]
pub(super) struct Facts {
    /// From when to when, in nanoseconds since 1970.
    span: (u64, u64),
    /// How many events, entries and crashes each lane has.
    lanes: Vec<Counts>,
    /// How many entries each lock has.
    pub(super) locks: BTreeMap<Rc<str>, u64>,
    /// How long callers waited, in nanoseconds, in order.
    waits: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    events: u64,
    entries: u64,
    incarnations: u64,
    crashes: u64,
}

impl Facts {
    pub(super) fn of(merged: &Merged, span: (u64, u64)) -> Self {
        let mut facts = Self {
            span,
            lanes: vec![Counts::default(); merged.lanes.len()],
            locks: BTreeMap::new(),
            waits: Vec::new(),
        };
        let mut asked = BTreeMap::new();
        let shown = merged.history.iter();
        for moment in shown.filter(|moment| moment.at >= span.0 && moment.at <= span.1) {
            let lane = &mut facts.lanes[moment.lane];
            lane.events += 1;
            if let Some(lock) = &moment.lock {
                facts.locks.entry(Rc::clone(lock)).or_default();
            }
            match &moment.what {
                What::Asked { request, .. } => {
                    asked.insert((moment.lane, *request), moment.at);
                }
                What::Entered { request, .. } => {
                    lane.entries += 1;
                    let lock = moment.lock.iter();
                    lock.for_each(|lock| *facts.locks.entry(Rc::clone(lock)).or_default() += 1);
                    let since = asked.remove(&(moment.lane, *request));
                    facts.waits.extend(since.map(|since| moment.at - since));
                }
                What::Began => lane.incarnations += 1,
                What::Crashed => lane.crashes += 1,
                _ => {}
            }
        }
        facts.waits.sort_unstable();
        facts
    }
}

/// What there is, and what is missing or doubtful.
pub(super) fn report(logs: &Logs, alignment: &Alignment, merged: &Merged, facts: &Facts) -> String {
    let group = logs.group.as_ref().map_or("", |(group, _)| group);
    let (since, until) = facts.span;
    let events: u64 = facts.lanes.iter().map(|lane| lane.events).sum();
    let mut text = format!(
        "Group {group}, from {} on for {:.3} s: {events} events.\n\n",
        date(since),
        (until - since) as f64 / 1e9
    );
    // Columns of fixed widths, for which `format!` does.
    let _ = writeln!(
        text,
        "{:<8}{:<20}{:>8}{:>9}{:>7}{:>9}",
        "member", "host", "events", "entries", "incarnations", "crashes"
    );
    for (lane, counts) in merged.lanes.iter().zip(&facts.lanes) {
        let host = logs
            .members
            .get(&lane.number)
            .map(|member| &member.host[..]);
        let _ = writeln!(
            text,
            "{:<8}{:<20}{:>8}{:>9}{:>7}{:>9}",
            lane.number,
            host.unwrap_or("no trace"),
            counts.events,
            counts.entries,
            counts.incarnations,
            counts.crashes
        );
    }
    text.push('\n');
    for (lock, entries) in &facts.locks {
        let _ = writeln!(text, "{lock}: {entries} entries");
    }
    times(&mut text, "Callers waited", &facts.waits);
    times(&mut text, "Messages took", &merged.transits);
    doubts(&mut text, logs, alignment, merged);
    text
}

/// The middle and the end of `times`, which are in order.
fn times(text: &mut String, what: &str, times: &[u64]) {
    if let Some(longest) = times.last() {
        let millis = |nanos: u64| nanos as f64 / 1e6;
        let _ = writeln!(
            text,
            "{what} {:.3} ms in the median, {:.3} ms at most.",
            millis(times[times.len() / 2]),
            millis(*longest)
        );
    }
}

/// What is not as good as it could be.
fn doubts(text: &mut String, logs: &Logs, alignment: &Alignment, merged: &Merged) {
    let mut say = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    if alignment.clocks() > 1 {
        say(match alignment.error() {
            Some(error) => format!(
                "The clocks of {} hosts are compared by the messages between them, to within {:.3} \
                 ms.",
                alignment.clocks(),
                error as f64 / 1e6
            ),
            None => "Some clocks are compared by what the hosts took for the date, as no messages \
                     between them tell."
                .to_owned(),
        });
    }
    if merged.moved > 0 {
        say(format!(
            "{} events come before their causes by the clocks, by up to {:.3} ms; they are shown \
             after them.",
            merged.moved,
            merged.farthest as f64 / 1e6
        ));
    }
    if merged.to_nowhere > 0 {
        say(format!(
            "{} messages are from or to members without a trace: only one end is shown.",
            merged.to_nowhere
        ));
    }
    for (id, member) in &logs.members {
        let missing: u64 = member
            .incarnations
            .values()
            .map(|incarnation| incarnation.missing())
            .sum();
        let lacks_first = member
            .incarnations
            .values()
            .any(|incarnation| incarnation.first > 1);
        if missing > 0 {
            say(format!(
                "{missing} events of member {id} were lost; messages among them look lost, too."
            ));
        }
        if lacks_first {
            say(format!(
                "The first events of member {id} are not there any more."
            ));
        }
    }
    if logs.damaged > 0 {
        say(format!(
            "{} lines cannot be read, such as the last of an agent that was killed.",
            logs.damaged
        ));
    }
    if merged.cycles > 0 {
        say(format!(
            "{} messages come before their causes in the files themselves: they are not of one \
             group.",
            merged.cycles
        ));
    }
}
