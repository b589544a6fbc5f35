//! `distlock sim`: what it counts, what it draws, what it refuses, and that doc/algorithms.md shows
//! what it prints.

mod cli_support;

use std::path::PathBuf;
use std::process::Command;

use cli_support::{distlock, exits, refuses, shiviz, stdout};
use distlock_agent::protocol::Algorithm;
use tempfile::TempDir;

const ALGORITHMS: &str = include_str!("../../doc/algorithms.md");

/// `distlock sim` with these arguments.
fn command(args: &str) -> Command {
    let mut command = distlock();
    command.arg("sim").args(args.split_whitespace());
    command
}

/// What that prints.
#[track_caller]
fn sim(args: &str) -> String {
    let said = exits(command(args), 0);
    assert!(said.stderr.is_empty(), "{args}: {said:?}");
    stdout(&said)
}

/// The numbers of the line that begins with `name`.
#[track_caller]
fn line(report: &str, name: &str) -> Vec<String> {
    let line = report
        .lines()
        .find_map(|line| line.trim().strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name:?} in {report}"));
    line.split_whitespace().map(str::to_owned).collect()
}

/// A place for files, and a name in it.
fn file(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join(name);
    (dir, path)
}

#[test]
fn counts_the_messages_of_an_entry() {
    let report = sim("ricart-agrawala --nodes 4");
    assert_eq!(line(&report, "messages an entry")[..2], ["9.00", "9.00"]);
    for kind in ["REQUEST", "REPLY", "DEFERRED"] {
        assert_eq!(line(&report, kind)[..2], ["3.00", "3.00"], "{kind}");
    }
    // The book knows no DEFERRED.
    assert!(report.contains("2(N-1) = 6.00"), "{report}");
    assert_eq!(
        line(&report, "synchronisation delay")[..4],
        ["1.00", "T", "1.00", "T"]
    );

    let report = sim("semaphore --nodes 4 --load light");
    assert_eq!(line(&report, "messages an entry")[..2], ["2.25", "2.25"]);
    assert_eq!(line(&report, "response time")[..2], ["1.50", "T"]);

    let report = sim("bakery --nodes 3 --load burst");
    assert_eq!(line(&report, "messages an entry")[..2], ["12.00", "12.00"]);
}

#[test]
fn the_time_inside_counts_as_e() {
    for stay in ["2", "6", "7.5"] {
        let report = sim(&format!("bakery --nodes 3 --load light --cs {stay}"));
        let response = &line(&report, "response time")[..4];
        assert_eq!(response, ["6.00", "T", "+", "E"], "{report}");
        assert!(report.contains(&format!("E = {stay} T")), "{report}");
    }
}

#[test]
fn a_seed_decides_everything() {
    let run = "token-ring-requests --nodes 3 --delay exponential --loss 5% --entries 30";
    let [one, again, other] = [1, 1, 2].map(|seed| sim(&format!("{run} --seed {seed}")));
    assert_eq!(one, again);
    assert_ne!(one, other);
}

/// What is lost is sent again by the links, and engines need not know.
#[test]
fn loss_costs_time_and_no_message_of_the_engines() {
    let report = sim("ricart-agrawala --nodes 3 --load light --loss 10% --entries 40");
    assert_eq!(line(&report, "messages an entry")[..2], ["4.00", "4.00"]);
    let response: f64 = line(&report, "response time")[0].parse().expect("a number");
    assert!(response > 2.5, "some waited for another try: {report}");
    assert!(report.contains(" were lost."), "{report}");
}

#[test]
fn the_others_go_on_when_a_holder_crashes() {
    for algorithm in Algorithm::ALL {
        let algorithm = algorithm.name();
        let report = sim(&format!(
            "{algorithm} --nodes 3 --load burst --crash 2@inside"
        ));
        assert!(report.contains("; 2 entries;"), "{report}");
        assert!(report.contains("taken for dead: 1."), "{report}");
    }
}

#[test]
fn serves_a_thousand_nodes() {
    for algorithm in ["suzuki-kasami", "token-ring-requests"] {
        let report = sim(&format!(
            "{algorithm} --nodes 1000 --load light --entries 20"
        ));
        assert!(report.contains("N = 1000"), "{report}");
    }
}

#[test]
fn figure_6_16_is_the_lectures() {
    let (_dir, path) = file("figure.svg");
    let svg = path.display();
    let story = sim(&format!("ricart-agrawala --figure 6.16 --trace {svg}"));
    let events: Vec<_> = story
        .lines()
        .filter(|line| line.contains("asks") || line.contains("enters") || line.contains("leaves"))
        .map(str::trim)
        .collect();
    assert_eq!(
        events,
        [
            "0.00 T  process 0 asks with timestamp 8",
            "0.00 T  process 2 asks with timestamp 12",
            "2.00 T  process 0 enters",
            "5.00 T  process 0 leaves",
            "6.00 T  process 2 enters",
            "9.00 T  process 2 leaves",
        ]
    );
    assert!(!story.contains("process 1 asks"), "{story}");
    let drawn = std::fs::read_to_string(&path).expect("a diagram");
    for word in [
        "process 0",
        "process 1",
        "process 2",
        "REQUEST 8",
        "REQUEST 12",
        "inside",
    ] {
        assert!(drawn.contains(&format!(">{word}</text>")), "{word}");
    }
}

#[test]
fn diagrams_show_all_and_need_nothing_else() {
    for name in ["run.svg", "run.html"] {
        let (_dir, path) = file(name);
        let trace = path.display();
        let run = "token-ring-requests --nodes 3 --load burst --crash 2@inside";
        sim(&format!("{run} --trace {trace}"));
        let text = std::fs::read_to_string(&path).expect("a diagram");
        let count = |what: &str| text.matches(what).count();
        assert_eq!(count("class=\"stay\" x="), 3, "three were inside");
        assert_eq!(count("crashes at"), 1);
        assert_eq!(count("class=\"lane dead\""), 1);
        assert!(count("class=\"tip\" d=\"M") > 3, "messages");
        assert!(text.contains("prefers-color-scheme: dark"));
        // Browsers alone know CSS variables: all else would draw everything black.
        assert!(!text.contains("var(--"), "{name}");
        // The name of the SVG namespace is nothing that anybody fetches.
        let addresses = text.replace("http://www.w3.org/2000/svg", "");
        for word in ["http", "src=", "url(", "@import", "<script"] {
            assert!(!addresses.contains(word), "{name} has {word}");
        }
        assert_eq!(count("<svg "), 1);
        assert_eq!(count("<html"), usize::from(name == "run.html"));
    }
}

#[test]
fn the_shiviz_log_has_vector_clocks() {
    let (_dir, path) = file("run.log");
    let log = path.display();
    sim(&format!(
        "suzuki-kasami --nodes 3 --load burst --shiviz {log}"
    ));
    let checked = shiviz::check(&std::fs::read_to_string(&path).expect("a log"));
    // Two ask the two others each, and get the token; the first has it.
    assert_eq!(
        (checked.count(": sends "), checked.count(": gets ")),
        (6, 6)
    );
}

#[test]
fn what_cannot_be_run_is_64() {
    for (args, word) in [
        ("", "ALGORITHM"),
        ("kernel", "kernel"),
        ("frobnicate", "ricart-agrawala"),
        ("bakery --nodes 0", "0"),
        ("bakery --nodes 1025", "1025"),
        ("bakery --nodes 3,5", "--compare"),
        ("bakery --load some", "some"),
        ("bakery --delay 5ms", "5ms"),
        ("bakery --cs -1", "0 to 1000"),
        ("bakery --cs nan", "0 to 1000"),
        ("bakery --loss 51%", "50%"),
        ("bakery --loss -1", "50%"),
        ("bakery --crash 2", "2@inside"),
        ("bakery --crash 0@1", "2@inside"),
        ("bakery --crash 2@-1", "2@inside"),
        ("bakery --crash 6@1", "1 to 5"),
        ("bakery --crash 2@1 --crash 2@3", "only once"),
        ("bakery --nodes 2 --crash 2@1", "more than half"),
        ("bakery --nodes 65 --loss 1%", "64"),
        ("bakery --entries 0", "0"),
        ("bakery --load burst --entries 3", "--entries"),
        ("bakery --seed -1", "-1"),
        ("bakery --trace run.png", ".svg"),
        ("bakery --figure 6.17", "6.16"),
        ("bakery --figure 6.16", "ricart-agrawala"),
        ("ricart-agrawala --figure 6.16 --nodes 3", "--nodes"),
        ("--compare --load light", "--load"),
    ] {
        refuses(command(args), 64, &[word]);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told() {
    let path = "/nonexistent/run.svg";
    refuses(command(&format!("bakery --trace {path}")), 66, &[path]);
}

/// The table in doc/algorithms.md is the program's. Here the smallest groups are compared; after a
/// change `DISTLOCK_BLESS=1 cargo test --release --test cli_sim table` writes all of it anew.
#[test]
fn the_document_shows_the_table() {
    let fence = "```text\n$ distlock sim --compare\n";
    let (before, rest) = ALGORITHMS.split_once(fence).expect("it has the table");
    let (shown, after) = rest.split_once("```").expect("it ends");
    if std::env::var_os("DISTLOCK_BLESS").is_some() {
        let whole = format!("{before}{fence}{}```{after}", sim("--compare"));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../doc/algorithms.md");
        std::fs::write(path, whole).expect("room");
        return;
    }
    let bless = "DISTLOCK_BLESS=1 cargo test --release --test cli_sim table";
    let short = sim("--compare --nodes 3,5");
    for line in short.lines() {
        assert!(
            shown.lines().any(|other| other == line),
            "not in doc/algorithms.md: {line}; {bless}"
        );
    }
    let rows: Vec<_> = shown
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for algorithm in Algorithm::ALL {
        let rows = rows.iter().filter(|row| **row == algorithm.name()).count();
        let sizes = if algorithm == Algorithm::Maekawa {
            10
        } else {
            6
        };
        assert_eq!(rows, sizes, "rows of {algorithm}; {bless}");
    }
}
