//! A log for ShiViz (<https://bestchai.bitbucket.io/shiviz/>), with vector clocks (Fidge 1988,
//! Mattern 1989). Its first line is the regular expression by which ShiViz reads it; the second,
//! for what separates several runs, is empty.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::story::tell;
use super::timeline::{Timeline, What};

/// How ShiViz finds events, hosts and clocks: its own default.
const EXPRESSION: &str = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})";

/// A vector clock: of each lane, how many events are known.
type Clock = BTreeMap<usize, u64>;

/// The log. The clocks count what it shows.
pub(crate) fn log(timeline: &Timeline) -> String {
    let mut text = format!("{EXPRESSION}\n\n");
    let mut clocks: BTreeMap<usize, Clock> = BTreeMap::new();
    let mut messages: BTreeMap<u64, Clock> = BTreeMap::new();
    for moment in timeline.shown() {
        let lane = moment.lane;
        let clock = clocks.entry(lane).or_default();
        if let What::Received { cause, .. } = &moment.what {
            let sent = cause.and_then(|cause| messages.get(&cause));
            for (lane, ticks) in sent.into_iter().flatten() {
                let known = clock.entry(*lane).or_default();
                *known = (*known).max(*ticks);
            }
        }
        *clock.entry(lane).or_default() += 1;
        if let What::Sent { message, .. } = &moment.what {
            messages.insert(*message, clock.clone());
        }
        let entries = clock.iter();
        let entries = entries.map(|(lane, ticks)| format!("\"{}\":{ticks}", host(timeline, *lane)));
        let _ = writeln!(
            text,
            "{}: {}\n{} {{{}}}",
            timeline.measure.tell_exactly(timeline.time(moment.at)),
            tell(timeline, moment),
            host(timeline, lane),
            entries.collect::<Vec<_>>().join(",")
        );
    }
    text
}

fn host(timeline: &Timeline, lane: usize) -> String {
    timeline.lanes[lane].name().replace(' ', "-")
}
