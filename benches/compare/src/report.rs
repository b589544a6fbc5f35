//! What was measured, as a table and as JSON.

use serde_json::{Map, Value, json};

/// What was measured of one system in one round, by column: in nanoseconds, or for a second where
/// the column's name says so; nothing where it could not be measured.
pub(crate) type Row = Vec<(&'static str, Option<f64>)>;

/// One round: the ping-pongs, by transport, and the systems, in the order in which they ran.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) floors: Vec<(String, f64)>,
    pub(crate) rows: Vec<(String, Row)>,
}

/// The medians of all rounds, as a table in Markdown.
pub(crate) fn table(rounds: &[Round]) -> String {
    let Some(first) = rounds.first() else {
        return String::new();
    };
    let floors: Vec<_> = (0..first.floors.len())
        .map(|at| median(rounds.iter().map(|round| round.floors[at].1)).expect("a round"))
        .collect();
    let mut text = "Ping-pong:".to_owned();
    for ((transport, _), floor) in first.floors.iter().zip(&floors) {
        text += &format!(" {} µs over {transport},", significant(floor / 1e3));
    }
    text += &format!(
        " medians of {} rounds. In brackets: times as multiples of the first one, pairs as how \
         many fit into it.\n\n",
        rounds.len()
    );
    for (at, (system, row)) in first.rows.iter().enumerate() {
        if at == 0 {
            let names = row.iter().map(|(name, _)| *name);
            text += &line("", names.map(str::to_owned));
            text += &format!("|-|{}\n", "-|".repeat(row.len()));
        }
        let cells = row.iter().enumerate().map(|(column, (name, _))| {
            let values = rounds.iter().map(|round| round.rows[at].1[column].1);
            median(values.flatten()).map_or("–".to_owned(), |it| cell(name, it, floors[0]))
        });
        text += &line(system, cells);
    }
    text
}

/// All rounds; times in nanoseconds.
pub(crate) fn json(rounds: &[Round], arguments: Value) -> Value {
    let rounds = rounds.iter().map(|round| {
        let rows = round.rows.iter().map(|(system, row)| {
            let cells = row.iter().map(|&(name, value)| (name, value));
            (system.as_str(), object(cells))
        });
        let floors = round.floors.iter().map(|(name, it)| (name.as_str(), *it));
        json!({ "ping-pong": object(floors), "systems": object(rows) })
    });
    json!({ "arguments": arguments, "rounds": rounds.collect::<Vec<_>>() })
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

fn object<'a>(entries: impl Iterator<Item = (&'a str, impl Into<Value>)>) -> Value {
    let entries = entries.map(|(name, value)| (name.to_owned(), value.into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn line(first: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("{cell} | ")).collect();
    format!("| {first} | {}\n", cells.trim_end())
}

/// A value beside the ping-pong.
fn cell(column: &str, value: f64, floor: f64) -> String {
    if column.contains("pairs/s") {
        return format!("{value:.0} ({})", significant(value * floor / 1e9));
    }
    let ratio = significant(value / floor);
    format!("{} µs ({ratio})", significant(value / 1e3))
}

/// Two significant digits, or three places.
fn significant(value: f64) -> String {
    let digits = match value {
        10.0.. => 0,
        1.0.. => 1,
        0.1.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}
