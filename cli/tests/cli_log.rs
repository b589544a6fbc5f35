//! `distlock agent --log-format json`: what happens, by words that stay.

mod cli_support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use cli_support::group::{AgentProcess, Group};
use cli_support::{eventually, exits, files, refuses};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The lines that an agent has written to `log`; one that is being written is left out.
fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).expect("the log");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    whole.lines().map(line).collect()
}

fn has(log: &Path, event: &str, member: u64) -> bool {
    let lines = lines(log);
    let mut lines = lines.iter();
    lines.any(|line| line["event"] == event && line["member"] == member)
}

#[test]
fn each_event_is_one_line_of_json() {
    let group = Group::unix(3);
    let log = group.file("log");
    let mut command = group.agent_command(1);
    command.args(["--log-format", "json"]);
    let first = AgentProcess::start_with_log(&mut command, File::create(&log).expect("a file"));
    let second = group.agent(2);
    let _third = group.agent(3);
    exits(group.client(1, ["run", "-w", "30", "x", "true"]), 0);
    second.end_by(Signal::SIGKILL);
    eventually("it is told", || has(&log, "silent", 2));
    let _second = group.agent(2);
    eventually("it is told", || {
        has(&log, "heard", 2)
            || lines(&log)
                .iter()
                .filter(|line| line["event"] == "view")
                .count()
                > 2
    });
    assert!(first.end_by(Signal::SIGTERM).success());
    let lines = lines(&log);
    let view = lines.iter().find(|line| line["event"] == "view");
    let view = view.expect("a view");
    assert!(
        view["epoch"].as_u64().is_some_and(|epoch| epoch > 0),
        "{view}"
    );
    for line in &lines {
        assert!(
            line["ts"].as_str().is_some_and(|ts| ts.ends_with('Z')),
            "{line}"
        );
        assert!(["error", "warn", "info"].contains(&line["level"].as_str().unwrap_or_default()));
        assert!(
            line["msg"].as_str().is_some_and(|msg| !msg.is_empty()),
            "{line}"
        );
    }
}

/// Also what keeps an agent from its start.
#[test]
fn the_last_word_of_an_agent_is_a_line_too() {
    let group = Group::unix(1);
    fs::write(group.config(), "nonsense").expect("a file");
    let mut command = group.agent_command(1);
    let told = exits(command.args(["--log-format", "json"]), 78);
    let line: Value = serde_json::from_slice(&told.stderr).expect("one line");
    assert_eq!(
        (&line["event"], &line["level"]),
        (&"ended".into(), &"error".into())
    );
    refuses(group.agent_command(1), 78, &["group.toml:1"]);
}

/// Whatever is told has a word, the manual names it, and the runbooks say what to do.
#[test]
fn every_word_is_in_the_manual() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manual = fs::read_to_string(root.join("man/distlock.1")).expect("the manual");
    let begin = manual
        .find("What happens in the group:")
        .expect("the words");
    let end = begin + manual[begin..].find("Of anything else").expect("their end");
    let words: BTreeSet<_> = manual[begin..end]
        .lines()
        .filter_map(|line| line.strip_prefix(".Cm "))
        .flat_map(|line| line.split([' ', ',', '.']))
        .filter(|word| !word.is_empty())
        .collect();
    let mut told = BTreeSet::new();
    let sources = ["agent/src", "src", "cli/src"].map(|dir| files(&root.join(dir)));
    for source in sources.iter().flatten() {
        let text = fs::read_to_string(source).expect("a source");
        for kind in ["error", "warn", "info"] {
            for (at, call) in text.match_indices(&format!("tracing::{kind}!(")) {
                let rest = text[at + call.len()..].trim_start();
                let word = rest.strip_prefix("event = \"");
                let word = word.and_then(|rest| rest.split_once('"'));
                let (word, _) = word.unwrap_or_else(|| {
                    panic!("{}: a line without a word: {rest:.60}", source.display())
                });
                told.insert(word.to_owned());
            }
        }
    }
    let told: BTreeSet<_> = told.iter().map(String::as_str).collect();
    assert_eq!(told, words);
    let runbooks = fs::read_to_string(root.join("doc/runbooks.md")).expect("the runbooks");
    let rows = runbooks.lines().filter(|line| line.starts_with("| `"));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let mut rows: BTreeSet<_> = first.flat_map(|cell| cell.split('`')).collect();
    rows.retain(|word| !["", " ", ", ", "other"].contains(word));
    assert_eq!(rows, told);
}
