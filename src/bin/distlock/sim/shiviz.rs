//! A run as a log for ShiViz (<https://bestchai.bitbucket.io/shiviz/>), with vector clocks (Fidge
//! 1988, Mattern 1989). Its first line is the regular expression by which ShiViz reads it; the
//! second, for what separates several runs, is empty.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use distlock_agent::protocol::NodeId;
use distlock_agent::sim::history::What;

use super::picture::Film;
use super::story::Teller;

/// How ShiViz finds events, hosts and clocks: its own default.
const EXPRESSION: &str = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})";

/// A vector clock.
type Clock = BTreeMap<NodeId, u64>;

/// The log.
pub(crate) fn log(film: &Film<'_>) -> String {
    let mut text = format!("{EXPRESSION}\n\n");
    let mut teller = Teller::new(film);
    let mut clocks: BTreeMap<NodeId, Clock> = BTreeMap::new();
    let mut messages: BTreeMap<u64, Clock> = BTreeMap::new();
    for moment in film.shown() {
        let node = moment.node;
        let clock = clocks.entry(node).or_default();
        if let What::Received { message } = &moment.what {
            for (node, ticks) in messages.get(message).into_iter().flatten() {
                let known = clock.entry(*node).or_default();
                *known = (*known).max(*ticks);
            }
        }
        *clock.entry(node).or_default() += 1;
        if let What::Sent { message, .. } = &moment.what {
            messages.insert(*message, clock.clone());
        }
        let entries = clock.iter();
        let entries = entries.map(|(node, ticks)| format!("\"{}\":{ticks}", host(film, *node)));
        let _ = writeln!(
            text,
            "{:.3} T: {}\n{} {{{}}}",
            film.time(moment.at),
            teller.tell(moment),
            host(film, node),
            entries.collect::<Vec<_>>().join(",")
        );
    }
    text
}

fn host(film: &Film<'_>, node: NodeId) -> String {
    format!("process-{}", film.name(node))
}
