//! Counts the instructions of a function, as valgrind sees them.

use std::env;
use std::process::Command;

/// In which a test runs that is to be counted.
const ROLE: &str = "DISTLOCK_TEST_IS_COUNTED";

/// Whether this process is the one that is counted.
pub(crate) fn is_counted() -> bool {
    env::var_os(ROLE).is_some()
}

/// How many instructions the function `counted` takes, with all that it calls, where this program plays
/// `test` alone once more; [`is_counted`] says so there. `None`: there is no valgrind, or the processor is
/// another than that of which the limits are.
///
/// # Panics
/// The test fails, or there has to be a valgrind.
pub(crate) fn instructions(test: &str, counted: &str) -> Option<u64> {
    if !cfg!(target_arch = "x86_64") {
        println!("SKIPPED: instructions are counted on x86-64");
        return None;
    }
    let played = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--collect-atstart=no")
        .arg(format!("--toggle-collect=*{counted}*"))
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, "1")
        .output();
    let played = match played {
        Ok(played) => played,
        Err(error) => {
            let required = env::var("DISTLOCK_TESTS").is_ok_and(|tests| tests == "all");
            assert!(!required, "DISTLOCK_TESTS=all, and valgrind: {error}");
            println!("SKIPPED: valgrind: {error}");
            return None;
        }
    };
    let told = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{told}");
    let collected = told
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, collected) = collected.unwrap_or_else(|| panic!("valgrind tells no number: {told}"));
    let collected = collected.trim().parse().unwrap();
    assert!(collected > 0, "{counted} was never called: {told}");
    Some(collected)
}

/// Demands that `each` is at most `most`, and not so much less that something else was counted, or that
/// the limit is to be set anew.
pub(crate) fn expect(each: u64, most: u64) {
    println!("{each} instructions an entry");
    assert!(each <= most, "{each} instructions an entry, {most} allowed");
    let least = most * 3 / 4;
    assert!(
        each >= least,
        "{each} instructions an entry, expected were {least} to {most}"
    );
}
