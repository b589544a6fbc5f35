//! A host that is suspended, as its processes see it: `CLOCK_BOOTTIME` has gone on by so much, and
//! `CLOCK_MONOTONIC` has not, nor have the timeouts that it measures. `boottime.c` does that to
//! processes that are started with this.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// The processes of one host.
pub(crate) struct Host {
    dir: TempDir,
    page: File,
}

impl Host {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli_support/boottime.c");
        let mut compiler = Command::new("cc");
        compiler.args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o",
        ]);
        let built = compiler
            .arg(dir.path().join("boottime.so"))
            .arg(source)
            .status();
        assert!(built.expect("the system has a C compiler").success());
        let path = dir.path().join("page");
        fs::write(&path, [0; 16]).expect("a file");
        let page = File::options().read(true).write(true).open(path);
        Self {
            page: page.expect("it was made"),
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `command`, to run on this host.
    pub(crate) fn runs(&self, mut command: Command) -> Command {
        command.env("LD_PRELOAD", self.path("boottime.so"));
        command.env("DISTLOCK_TEST_BOOTTIME", self.path("page"));
        command
    }

    /// The host was suspended for so long, and wakes now.
    pub(crate) fn was_suspended_for(&self, time: Duration) {
        let nanos = i64::try_from(time.as_nanos()).expect("not for ever");
        let page = self.page.write_all_at(&nanos.to_ne_bytes(), 0);
        page.expect("a page");
    }
}
