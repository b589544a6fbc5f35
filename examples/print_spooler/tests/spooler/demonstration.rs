//! The demonstration: four processes with four agents, 5 files of 200 lines each, by each engine.

use std::collections::BTreeMap;
use std::fs;

use crate::check::{self, Paper};
use crate::print_spooler;

const HOSTS: u32 = 4;
const FILES: u32 = 5;
const LINES: u32 = 200;

/// Runs the demonstration and reads its paper, besides the check it makes itself.
fn paper(arguments: &[&str]) -> Paper {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("paper");
    let run = print_spooler()
        .args(arguments)
        .arg("--output")
        .arg(&output)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );

    let mut files = BTreeMap::new();
    for host in 1..=HOSTS {
        for file in 1..=FILES {
            let name = format!("host{host}-file{file}");
            files.insert(name.clone(), check::text(&name, LINES));
        }
    }
    Paper::read(&fs::read_to_string(output).unwrap(), &files).unwrap()
}

fn takes_turns(algorithm: &str) {
    let paper = paper(&["--algorithm", algorithm]);
    assert_eq!(paper.torn, [""; 0]);
    assert_eq!(paper.whole.len(), (HOSTS * FILES) as usize);
    assert!(paper.whole.iter().all(|(_, fence)| fence.is_some()));
    assert!(
        paper.whole.is_sorted_by(|a, b| a.1 < b.1),
        "{:?}",
        paper.whole
    );
}

#[test]
fn without_a_lock_the_files_are_mixed() {
    let paper = paper(&["--no-lock"]);
    assert!(paper.changes > (HOSTS * FILES) as usize);
    assert!(!paper.torn.is_empty());
}

#[test]
fn takes_turns_by_the_kernel() {
    takes_turns("kernel");
}

#[test]
fn takes_turns_by_the_semaphore() {
    takes_turns("semaphore");
}

#[test]
fn takes_turns_by_the_bakery() {
    takes_turns("bakery");
}

#[test]
fn takes_turns_by_the_manager() {
    takes_turns("manager");
}

#[test]
fn takes_turns_by_ricart_agrawala() {
    takes_turns("ricart-agrawala");
}

#[test]
fn takes_turns_by_the_token_ring() {
    takes_turns("token-ring");
}

#[test]
fn takes_turns_by_the_token_ring_with_requests() {
    takes_turns("token-ring-requests");
}

#[test]
fn who_closes_its_output_does_not_make_it_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = print_spooler()
        .args(["--algorithm", "kernel", "--hosts", "2", "--lines", "10"])
        .stdout(writer)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    assert!(run.stderr.is_empty(), "{run:?}");
}

#[test]
fn a_wrong_command_line_is_64() {
    for arguments in [&["--lines"][..], &["--printer", "socket://127.0.0.1:1"]] {
        // Nobody reads why, and that changes nothing.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = print_spooler()
            .args(arguments)
            .stderr(writer)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(64), "{arguments:?}");
    }
}
