//! Tests that cannot run everywhere say so, and fail where all were demanded.

use nix::unistd::geteuid;

/// A test does not run.
#[track_caller]
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
    let all = std::env::var("DISTLOCK_TESTS");
    assert_ne!(all.as_deref(), Ok("all"), "{why}");
}

/// Whether this process is root's; if not, a test does not run.
#[track_caller]
pub(crate) fn is_root() -> bool {
    if !geteuid().is_root() {
        skipped("this test needs root");
    }
    geteuid().is_root()
}
