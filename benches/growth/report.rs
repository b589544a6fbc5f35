//! What was measured, as a table and for plots.

use std::fmt::Write;

use serde_json::{Value, json};

/// One number.
pub(crate) struct Row {
    /// What grows, and how many of it there are.
    pub(crate) curve: &'static str,
    pub(crate) count: usize,
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    /// What theory says: the value itself, or what it grows with.
    pub(crate) theory: Theory,
}

#[derive(Clone, Copy)]
pub(crate) enum Theory {
    Is(f64),
    Grows(&'static str),
}

/// A line for each number.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = "| of | what | measured | in theory |\n|-|-|-|-|\n".to_owned();
    for row in rows {
        let theory = match row.theory {
            Theory::Is(value) => digits(value),
            Theory::Grows(with) => with.to_owned(),
        };
        let (count, curve) = (grouped(row.count), row.curve);
        writeln!(
            table,
            "| {count} {curve} | {} | {} | {theory} |",
            row.what,
            digits(row.value)
        )
        .expect("memory suffices");
    }
    table
}

pub(crate) fn json(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let theory = match row.theory {
            Theory::Is(value) => json!(value),
            Theory::Grows(with) => json!(with),
        };
        json!({
            "curve": row.curve,
            "count": row.count,
            "what": row.what,
            "value": row.value,
            "theory": theory,
        })
    };
    format!("{:#}\n", rows.iter().map(row).collect::<Value>())
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

/// As many as are worth reading.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.1 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// 100,000.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
