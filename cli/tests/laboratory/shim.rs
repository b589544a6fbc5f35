//! Clocks that the laboratory sets, and disks that it makes slow, one for each host. The host's processes load the
//! library `shim.c` before all others: their questions for the time go to that library, which counts those for the
//! time of day.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::clock::now_ns;

/// `shim.c` reads where its page is from here.
const PAGE: &str = "DISTLOCK_LAB_PAGE";
/// Where in a page what is: see `shim.c`.
const AHEAD: u64 = 0;
const ASKED: u64 = 8;
const GAIN: u64 = 16;
const SINCE: u64 = 24;
const SYNC: u64 = 32;
const LEN: usize = 40;

#[derive(Debug)]
pub(crate) struct Shims {
    library: PathBuf,
    /// One for each host.
    pages: Vec<(PathBuf, File)>,
}

impl Shims {
    pub(crate) fn new(directory: &Path, hosts: u16) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/laboratory/shim.c");
        let library = directory.join("shim.so");
        let mut compiler = Command::new("cc");
        compiler.args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
        ]);
        let built = compiler.arg(&library).arg(source).status();
        assert!(built.expect("the system has a C compiler").success());
        let page = |host| {
            let path = directory.join(format!("{host}.page"));
            fs::write(&path, [0; LEN]).expect("a file");
            let mut options = File::options();
            let file = options.read(true).write(true).open(&path);
            (path, file.expect("it was made"))
        };
        Self {
            library,
            pages: (1..=hosts).map(page).collect(),
        }
    }

    /// What processes of `host` are to find in their environment.
    pub(crate) fn environment(&self, host: u16) -> [(&'static str, OsString); 2] {
        let (page, _) = &self.pages[usize::from(host) - 1];
        [
            ("LD_PRELOAD", self.library.clone().into()),
            (PAGE, page.into()),
        ]
    }

    /// The wall clock of `host` is `ahead` from now on, in seconds.
    pub(crate) fn set_wall(&self, host: u16, ahead: i64) {
        self.write(host, AHEAD, ahead);
    }

    /// From now on CLOCK_BOOTTIME on `host`, by which leases are measured, gains `per_mille` thousandths. To be
    /// called once for each host: that clock may not go back.
    pub(crate) fn speed_up(&self, host: u16, per_mille: i64) {
        self.write(host, SINCE, i64::try_from(now_ns()).expect("63 bits"));
        self.write(host, GAIN, per_mille);
    }

    /// Each fsync(2) on `host` takes so much longer from now on.
    pub(crate) fn slow_down(&self, host: u16, sync: Duration) {
        self.write(host, SYNC, i64::try_from(sync.as_millis()).expect("short"));
    }

    /// How often processes of `host` have asked for the time of day.
    pub(crate) fn asked(&self, host: u16) -> u64 {
        let (_, page) = &self.pages[usize::from(host) - 1];
        let mut asked = [0; 8];
        page.read_exact_at(&mut asked, ASKED).expect("a page");
        u64::from_ne_bytes(asked)
    }

    fn write(&self, host: u16, at: u64, value: i64) {
        let (_, page) = &self.pages[usize::from(host) - 1];
        page.write_all_at(&value.to_ne_bytes(), at).expect("a page");
    }
}
