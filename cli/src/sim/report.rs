//! What one run cost, as text.

use std::fmt::Write as _;

use distlock_lab::costs::{Body, Costs, Load, Run, Setup, Spread, Times};
use distlock_lab::reference::{Reference, Said, Value, reference};

/// Everything about one run: what ran, and what was measured, expected and printed in the book.
pub(crate) fn report(setup: &Setup, run: &Run) -> String {
    let costs = &run.costs;
    let known = reference(setup.algorithm, setup.members);
    let mut text = format!("{}\n\n", heading(setup, costs));
    let columns = ["", "here", "expected", "book"];
    row(&mut text, columns.map(str::to_owned));
    messages(&mut text, setup, costs, &known);
    let (wait, sync) = (
        setup.load == Load::Light,
        setup.load == Load::Heavy && costs.sync.count > 0,
    );
    let about = |is_known: bool, value: Value| if is_known { in_t(value) } else { none() };
    let book = |is_known: bool, said: Option<Said>| formula(said.filter(|_| is_known));
    let response = |longest: bool| {
        let unit = costs.unit.as_secs_f64();
        let whole = if longest {
            costs.response.longest.as_secs_f64() / unit
        } else {
            costs.response.mean_in(costs.unit)
        };
        format!("{:.2} T + E", (whole - setup.inside).max(0.0))
    };
    if costs.response.count > 0 {
        let with_e = |text: String| {
            if text == "-" {
                text
            } else {
                format!("{text} + E")
            }
        };
        let expected = with_e(about(wait, known.response));
        let said = book(wait, known.book.response);
        row(
            &mut text,
            ["response time".to_owned(), response(false), expected, said],
        );
        row(
            &mut text,
            [
                "  the longest".to_owned(),
                response(true),
                String::new(),
                String::new(),
            ],
        );
    }
    if costs.sync.count > 0 {
        let expected = about(sync, known.sync);
        let said = book(sync, known.book.sync);
        let mean = format!("{:.2} T", costs.sync.mean_in(costs.unit));
        row(
            &mut text,
            ["synchronisation delay".to_owned(), mean, expected, said],
        );
        let longest = format!("{:.2} T", longest_in_t(costs.sync, costs));
        row(
            &mut text,
            [
                "  the longest".to_owned(),
                longest,
                String::new(),
                String::new(),
            ],
        );
    }
    text.push_str(&remarks(setup, run, &known));
    text
}

/// What ran.
fn heading(setup: &Setup, costs: &Costs) -> String {
    let load = match setup.load {
        Load::Light => "light load, one request at a time",
        Load::Heavy => "heavy load, each asks again the instant it leaves",
        Load::Burst => "a burst, all ask once at the same time",
    };
    let body = match setup.body {
        Body::Engines => "the engines alone",
        Body::Nodes { .. } => "whole nodes",
    };
    let spread = match setup.spread {
        Spread::Constant => "every message takes T",
        Spread::Exponential => "messages take T in the mean, exponentially distributed",
    };
    format!(
        "{}, N = {}, {load}\n{body}; {spread}; E = {} T; {} entries; seed {}",
        setup.algorithm, setup.members, setup.inside, costs.entries, setup.seed
    )
}

/// Messages an entry, all and by kind.
fn messages(text: &mut String, setup: &Setup, costs: &Costs, known: &Reference) {
    let expected = known.messages(setup.load);
    let said = match setup.load {
        Load::Light => known.book.light,
        Load::Heavy => known.book.heavy,
        Load::Burst => None,
    };
    let total = per_entry(costs, costs.total());
    let name = "messages an entry".to_owned();
    row(text, [name, total, number(expected.total), formula(said)]);
    for (kind, count) in &costs.messages {
        let known = expected.kinds.iter().find(|(name, _)| name == kind);
        let known = known.map_or_else(String::new, |(_, count)| format!("{count:.2}"));
        let measured = per_entry(costs, *count);
        row(text, [format!("  {kind}"), measured, known, String::new()]);
    }
}

/// What else there is to say.
fn remarks(setup: &Setup, run: &Run, known: &Reference) -> String {
    let mut text = String::new();
    if known.book != Default::default() && !known.deviation.is_empty() {
        let _ = writeln!(text, "Where the book differs: {}.", known.deviation);
    }
    if setup.loss > 0 || !setup.crashes.is_empty() {
        let network_stats = run.network_stats;
        let _ = writeln!(
            text,
            "Of {} datagrams, with those of links, views and leases, {} were lost.",
            network_stats.sent, network_stats.lost
        );
    }
    if run.costs.lost > 0 {
        let _ = writeln!(
            text,
            "Holders that crashed or were taken for dead: {}. Their entries are not counted.",
            run.costs.lost
        );
    }
    if setup.load == Load::Light && setup.entries.is_some() {
        text.push_str("Who asks was drawn, so the means only come near what is expected.\n");
    }
    if setup.spread != Spread::Constant || setup.body != Body::Engines {
        text.push_str("What is expected, and the book, is for constant delays without faults.\n");
    }
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}

/// One line of the table. Its columns have fixed widths, for which `format!` does.
fn row(text: &mut String, [what, here, expected, book]: [String; 4]) {
    let line = format!("{what:<22} {here:>14} {expected:>16}   {book}");
    text.push_str(line.trim_end());
    text.push('\n');
}

fn per_entry(costs: &Costs, count: u64) -> String {
    format!("{:.2}", count as f64 / costs.entries as f64)
}

fn longest_in_t(times: Times, costs: &Costs) -> f64 {
    times.longest.as_secs_f64() / costs.unit.as_secs_f64()
}

fn none() -> String {
    "-".to_owned()
}

fn number(value: Value) -> String {
    match value {
        Value::Exactly(value) => format!("{value:.2}"),
        Value::About(value) => format!("about {value:.2}"),
        Value::Between(low, high) => format!("{low:.2} to {high:.2}"),
        Value::Unbounded | Value::ByChance => "no bound".to_owned(),
    }
}

fn in_t(value: Value) -> String {
    match value {
        Value::Unbounded | Value::ByChance => number(value),
        value => format!("{} T", number(value)),
    }
}

/// A formula of the book, and its value where that is not the same thing.
fn formula(said: Option<Said>) -> String {
    let Some(Said { formula, value }) = said else {
        return none();
    };
    let is_plain =
        formula.parse::<f64>().is_ok() || formula.contains('T') && !formula.contains('N');
    if is_plain || !value.is_finite() {
        formula.to_owned()
    } else {
        format!("{formula} = {value:.2}")
    }
}
