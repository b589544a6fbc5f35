//! `distlock fence check`: exit codes, many at once, deaths in the middle, and full disks.

mod cli_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cli_support::{assert_refused, distlock, exits, output, refuses, stderr};
use distlock::FenceChecker;
use nix::unistd::geteuid;

fn check(file: &Path, fence: &str) -> Command {
    let mut command = distlock();
    command.args(["fence", "check"]).arg(file).arg(fence);
    command
}

fn highest(file: &Path) -> Option<u64> {
    let highest = FenceChecker::new(file).highest().expect("a whole file");
    highest.map(|fence| fence.as_u64())
}

#[test]
fn the_exit_code_says_whether_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("printer.fence");
    for fence in ["7", "7", "4294967297", "9223372036854775807"] {
        let passed = exits(check(&file, fence), 0);
        assert!(passed.stdout.is_empty() && passed.stderr.is_empty());
    }
    let refused = output(&mut check(&file, "8"));
    assert_refused(&refused, 1, &["fence 8 is refused", "9223372036854775807"]);
    assert_eq!(highest(&file), Some(i64::MAX as u64));
}

#[test]
fn what_is_no_fence_is_wrong_usage() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("printer.fence");
    let wrong = [
        "", "0", "-1", "+1", "07", " 7", "7 ", "7\n", "0x7", "1e3", "seven",
    ];
    let too_high = ["9223372036854775808", "99999999999999999999"];
    for wrong in wrong.into_iter().chain(too_high) {
        assert_refused(&output(&mut check(&file, wrong)), 64, &["fence"]);
    }
    refuses(distlock().args(["fence", "check", "f"]), 64, &["FENCE"]);
    assert_refused(&output(distlock().arg("fence")), 64, &["--help"]);
    assert!(fs::read_dir(directory.path()).unwrap().next().is_none());
}

#[test]
fn what_cannot_be_known_is_never_let_through() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("printer.fence");
    let nowhere = directory.path().join("no/such/file");
    assert_refused(&output(&mut check(&nowhere, "7")), 66, &["no/such/file"]);
    refuses(check(directory.path(), "7"), 78, &["regular file"]);
    fs::write(&file, "").unwrap();
    assert_refused(&output(&mut check(&file, "7")), 78, &["empty"]);
    fs::write(&file, "7\n").unwrap();
    assert_refused(&output(&mut check(&file, "7")), 78, &["whole line"]);
    fs::remove_file(&file).unwrap();
    if !geteuid().is_root() {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
        let refused = output(&mut check(&file, "7"));
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_refused(&refused, 77, &["printer.fence"]);
    }
}

/// 200 at once: each one that is let through has a fence at least as high as all that were kept
/// when it started, and the highest of all is kept in the end.
#[test]
fn any_number_may_check_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("printer.fence");
    let start = |fence: u64| {
        let before = highest(&file);
        let mut command = check(&file, &fence.to_string());
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        (fence, before, child)
    };
    // Neither up nor down: 7 has no factor in common with 200.
    let checks: Vec<_> = (0..200).map(|n| start(1 + n * 7 % 200)).collect();
    let mut passed = 0;
    for (fence, before, mut child) in checks {
        match child.wait().unwrap().code() {
            Some(0) => {
                passed += 1;
                assert!(Some(fence) >= before, "{fence} after {before:?}");
            }
            code => assert_eq!(code, Some(1), "{fence}"),
        }
    }
    assert!(passed > 0);
    assert_eq!(highest(&file), Some(200));
}

/// Whoever may read the file beside it can keep it locked, and no longer keeps a resource waiting.
#[test]
fn who_keeps_the_lock_is_told_of_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("printer.fence");
    assert!(output(&mut check(&file, "7")).status.success());
    let lock = directory.path().join("printer.fence.lock");
    let kept = nix::fcntl::Flock::lock(
        fs::File::open(&lock).unwrap(),
        nix::fcntl::FlockArg::LockExclusive,
    );
    let start = std::time::SystemTime::now();
    let mut child = check(&file, "8").stderr(Stdio::piped()).spawn().unwrap();
    // It waited for as long before there was a limit; this test then does not, and fails.
    let limit = FenceChecker::PATIENCE * 2;
    while child.try_wait().unwrap().is_none() && start.elapsed().unwrap() < limit {
        std::thread::sleep(Duration::from_millis(20));
    }
    let is_waiting = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    let refused = child.wait_with_output().unwrap();
    assert!(!is_waiting && start.elapsed().unwrap() >= FenceChecker::PATIENCE);
    assert_refused(&refused, 69, &["printer.fence.lock locked", "fuser"]);
    assert_eq!(highest(&file), Some(7));
    drop(kept);
    assert!(output(&mut check(&file, "8")).status.success());
}

/// Killed at any moment it leaves the fence before or its own, and the next one goes on.
#[test]
fn a_checker_that_is_killed_leaves_a_whole_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("printer.fence");
    assert!(output(&mut check(&file, "1")).status.success());
    let mut last = 1;
    for round in 0..60_u64 {
        let next = last + 1;
        let mut child = check(&file, &next.to_string())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(round * 100));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        let kept = highest(&file).expect("there is one");
        assert!(kept == last || kept == next, "{kept}, not {last} or {next}");
        assert!(!ended.success() || kept == next, "it said yes and forgot");
        last = kept;
    }
    assert!(output(&mut check(&file, "1000")).status.success());
    assert_eq!(output(&mut check(&file, "999")).status.code(), Some(1));
}

/// A file system of a few blocks, in a namespace of its own.
#[test]
fn a_full_disk_is_an_error_and_the_old_fence_stays() {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"
        mount -t tmpfs -o size=16k,nr_inodes=64 tmpfs "$1" || exit 99
        "$2" fence check "$1/f" 7 || exit 98
        dd if=/dev/zero of="$1/filler" bs=4k 2>/dev/null
        "$2" fence check "$1/f" 8; code=$?
        rm "$1/filler"
        "$2" fence check "$1/f" 7 || exit 97
        exit $code"#;
    let ran = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(env!("CARGO_BIN_EXE_distlock"))
        .output();
    match ran {
        Ok(ran) if ran.status.code() == Some(99) || stderr(&ran).contains("unshare") => {
            println!("SKIPPED: no namespace of its own: {}", stderr(&ran));
        }
        Ok(ran) => {
            assert_eq!(ran.status.code(), Some(69), "{ran:?}");
            assert!(stderr(&ran).contains("No space left"), "{ran:?}");
        }
        Err(error) => println!("SKIPPED: {error}"),
    }
}
