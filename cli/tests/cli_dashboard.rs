//! The dashboard for Grafana asks for what agents tell: a real Prometheus reads an agent, and answers each of its
//! questions.

mod cli_support;

use std::fs;

use cli_support::group::Group;
use cli_support::prometheus::{Prometheus, free_port};
use cli_support::{eventually, exits, refuses, skipped};
use serde_json::Value;

const DASHBOARD: &str = include_str!("../../packaging/grafana/distlock.json");

/// What a panel asks for that a group in which all is well has nothing of.
const EMPTY: [&str; 3] = [
    "distlock_clock_rate_difference",
    "distlock_clients_refused_total",
    "distlock_datagrams_dropped_total",
];

/// Each `expr` in `value`, wherever it is.
fn questions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" => found.push(text.clone()),
                    value => questions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| questions(value, found)),
        _ => {}
    }
}

#[test]
fn each_panel_has_an_answer() {
    let group = Group::unix(1);
    let port = free_port();
    let text = fs::read_to_string(group.config()).expect("the configuration");
    let more = format!(
        "[metrics]\nlisten = \"tcp:127.0.0.1:{port}\"\n[audit]\nfile = {:?}\n",
        group.file("audit.jsonl")
    );
    fs::write(group.config(), format!("{text}{more}")).expect("a file");
    let _agent = group.agent(1);
    let reads = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: distlock\n    \
         static_configs: [{{targets: [\"127.0.0.1:{port}\"]}}]\n"
    );
    let directory = group.file("prometheus");
    fs::create_dir(&directory).expect("a directory");
    let Some(prometheus) = Prometheus::start(&directory, &reads) else {
        return skipped("prometheus is not here");
    };
    let enters = |id: u32| {
        let lock = ["x", "licences"][id as usize % 2];
        exits(group.client(1, ["run", "-w", "30", lock, "true"]), 0);
    };
    (0..4).for_each(enters);
    let holder = group.hold(1, "x");
    refuses(group.client(1, ["run", "-n", "x", "true"]), 1, &["x"]);
    holder.let_go();
    // Rates take two readings with something between them.
    eventually("two readings are there", || {
        enters(0);
        prometheus
            .query("sum(increase(distlock_grants_total[10s])) > 0")
            .is_some_and(|series| !series.is_empty())
    });

    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut asked = Vec::new();
    questions(&dashboard["panels"], &mut asked);
    assert!(asked.len() > 30, "{asked:?}");
    for question in asked {
        let filled = question
            .replace("$instance", ".*")
            .replace("$lock", ".*")
            .replace("$__rate_interval", "10s");
        assert!(!filled.contains('$'), "{filled}");
        let series = prometheus.query(&filled).expect("it answers");
        let is_empty = EMPTY.iter().any(|name| filled.contains(name));
        assert!(!series.is_empty() || is_empty, "nothing for {filled}");
    }
}
