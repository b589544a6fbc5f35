//! The rules of ShiViz, which refuses a log that breaks one.

use std::collections::BTreeMap;

/// A log's events, each with its host, in order.
pub(crate) struct Checked {
    pub(crate) events: Vec<(String, String)>,
}

impl Checked {
    /// How many events have `word` in them.
    pub(crate) fn count(&self, word: &str) -> usize {
        let events = self.events.iter();
        events.filter(|(_, event)| event.contains(word)).count()
    }
}

/// Each process's clock counts its own events without a gap, it knows of no event that is not in
/// the log, and it learns only from what arrives.
#[track_caller]
pub(crate) fn check(text: &str) -> Checked {
    let mut lines = text.lines();
    let expression = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})";
    assert_eq!(lines.next(), Some(expression));
    assert_eq!(lines.next(), Some(""));
    let mut last: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let mut events = Vec::new();
    while let (Some(event), Some(stamp)) = (lines.next(), lines.next()) {
        let (host, clock) = stamp.split_once(' ').expect("a host and a clock");
        let clock: BTreeMap<String, u64> = serde_json::from_str(clock).expect("JSON");
        for (other, ticks) in &clock {
            let there = last.get(other).and_then(|clock| clock.get(other));
            let is_there = other == host || there.is_some_and(|there| there >= ticks);
            assert!(
                is_there,
                "{event}: event {ticks} of {other} is not before it"
            );
        }
        let before = last.entry(host.to_owned()).or_default();
        let own = before.get(host).copied().unwrap_or(0);
        assert_eq!(clock[host], own + 1, "{event}");
        for (other, ticks) in before.iter() {
            assert!(clock[other] >= *ticks, "{event}");
        }
        let learns = clock.iter().any(|(other, ticks)| {
            other != host && *ticks > before.get(other).copied().unwrap_or(0)
        });
        assert!(!learns || event.contains(": gets "), "{event}");
        *before = clock;
        events.push((host.to_owned(), event.to_owned()));
    }
    Checked { events }
}
