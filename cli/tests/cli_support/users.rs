//! Several users, and hosts of their own: for tests that are root, or may make namespaces.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::unistd::geteuid;

use super::{output, skipped, stderr, stdout};

/// Users under whose ids nothing else runs.
pub(crate) const DAEMON: u32 = 61_234;
pub(crate) const STRANGER: u32 = 61_235;
/// The one whose processes are counted.
pub(crate) const LIMITED: u32 = 61_236;

/// Whether what follows can be done here; if not, that is said.
pub(crate) fn is_root() -> bool {
    if !geteuid().is_root() {
        skipped("this test needs root");
    }
    geteuid().is_root()
}

/// A setpriv(1) that becomes what its further arguments say, as this user.
pub(crate) fn as_user(user: u32) -> Command {
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command
}

/// The program, where every user can execute it, wherever it was built. Not written by this
/// process: a child that another thread forks meanwhile would have it open for writing, and what
/// is cannot be executed.
pub(crate) fn copy_of_program(dir: &Path) -> PathBuf {
    let program = dir.join("distlock");
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_distlock")).arg(&program);
    assert!(output(&mut copy).status.success());
    program
}

/// What a shell says that runs `script` on a host of its own, as far as distlock can tell: `/run` is
/// empty but for `/run/lock`, and so are `/etc` and `/var/lib`; `$0` is the program.
pub(crate) fn in_empty_run(script: &str, dir: &Path) -> Option<Output> {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let program = copy_of_program(dir);
    fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("its mode");
    let script = format!(
        "for place in /run /etc /var/lib; do
             mount -t tmpfs -o mode=755 tmpfs $place || exit 99
         done
         mkdir -m 1777 /run/lock || exit 99
         {script}"
    );
    command
        .args(["--mount", "bash", "-c", &script])
        .arg(program)
        .arg(dir);
    for (key, _) in std::env::vars_os() {
        if key.as_encoded_bytes().starts_with(b"DISTLOCK_") {
            command.env_remove(key);
        }
    }
    let said = output(&mut command);
    if said.status.code() == Some(99) || stderr(&said).contains("unshare") {
        skipped(&format!("no mount namespaces here: {said:?}"));
        return None;
    }
    Some(said)
}

pub(crate) fn in_empty_run_says(script: &str, dir: &Path, expected: &str) {
    if let Some(said) = in_empty_run(script, dir) {
        assert_eq!(stdout(&said), expected, "{}", stderr(&said));
    }
}
