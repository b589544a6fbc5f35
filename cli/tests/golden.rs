//! What others rest on, as it was recorded: the options of every command, what the C library exports, and the
//! documents' diagrams. `DISTLOCK_BLESS=1 cargo test --test golden` writes it down anew.

mod cli_support;

use std::fs;
use std::path::Path;

use cli_support::{distlock, exits, output, stdout};
use distlock::Algorithm;

#[track_caller]
fn assert_golden(file: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    if std::env::var_os("DISTLOCK_BLESS").is_some() {
        fs::write(&path, made).expect("room");
    }
    let golden = fs::read_to_string(&path).expect("it is there");
    for (made, golden) in made.lines().zip(golden.lines()) {
        assert_eq!(made, golden, "{file}");
    }
    assert_eq!(made, golden, "{file}: more, or less");
}

/// The help of a command, and of all commands below it.
fn help(command: &[&str], text: &mut String) {
    let said = stdout(&output(distlock().arg("help").args(command)));
    assert!(said.contains("Usage: "), "{command:?}: {said}");
    let below = said.split("\nCommands:\n").nth(1).unwrap_or_default();
    let below = below.split("\n\n").next().unwrap_or_default().to_owned();
    *text += &format!("$ distlock help {}\n{said}\n", command.join(" "));
    let names = below.lines().filter_map(|line| line.strip_prefix("  "));
    for name in names.filter_map(|line| line.split(' ').next()) {
        if !name.is_empty() && name != "help" {
            help(&[command, &[name]].concat(), text);
        }
    }
}

/// The diagrams of doc/algorithms.md.
#[test]
fn pictures_are_golden() {
    let algorithms = Algorithm::ALL.map(Algorithm::name);
    let simulated = algorithms
        .iter()
        .filter(|name| !["kernel", "ledger"].contains(name));
    let directory = tempfile::tempdir().expect("a directory");
    for name in simulated {
        let file = directory.path().join("drawn.svg");
        let mut sim = distlock();
        sim.args(["sim", name, "--nodes", "3", "--load", "burst", "--cs", "2"]);
        exits(sim.arg("--trace").arg(&file), 0);
        let drawn = fs::read_to_string(&file).expect("a picture");
        assert_golden(&format!("../../../doc/pictures/{name}.svg"), &drawn);
    }
}

#[test]
fn options_are_golden() {
    let mut text = String::new();
    help(&[], &mut text);
    assert_golden("help.txt", &text);
}

/// As the linker has them; `.ci/c-library` sees that the library exports these and no others.
#[test]
fn exported_symbols_are_golden() {
    let map = include_str!("../../packaging/libdistlock.map");
    let header = include_str!("../../include/distlock.h");
    let symbols: Vec<_> = map
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("distlock_"))
        .collect();
    for name in &symbols {
        assert!(
            header.contains(&format!("{name}(")),
            "{name} is in no header"
        );
    }
    assert_golden("symbols.txt", &(symbols.join("\n") + "\n"));
}
