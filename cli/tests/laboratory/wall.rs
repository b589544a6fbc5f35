//! Wall clocks that the laboratory sets, one for each host: a library that its processes load before
//! all others answers who asks for the time of day, and counts how often.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `wall.c` reads where its page is from here.
const PAGE: &str = "DISTLOCK_LAB_WALL";

#[derive(Debug)]
pub(crate) struct Walls {
    library: PathBuf,
    /// How far the host's clock is ahead in seconds, and how often it was looked at.
    pages: Vec<(PathBuf, File)>,
}

impl Walls {
    pub(crate) fn new(directory: &Path, hosts: u16) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/laboratory/wall.c");
        let library = directory.join("wall.so");
        let mut compiler = Command::new("cc");
        compiler.args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
        ]);
        let built = compiler.arg(&library).arg(source).status();
        assert!(built.expect("the system has a C compiler").success());
        let page = |host| {
            let path = directory.join(format!("{host}.wall"));
            fs::write(&path, [0; 16]).expect("a file");
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

    /// The clock of `host` is `ahead` from now on, in seconds.
    pub(crate) fn set(&self, host: u16, ahead: i64) {
        let (_, page) = &self.pages[usize::from(host) - 1];
        page.write_all_at(&ahead.to_ne_bytes(), 0).expect("a page");
    }

    /// How often processes of `host` have asked for the time of day.
    pub(crate) fn asked(&self, host: u16) -> u64 {
        let (_, page) = &self.pages[usize::from(host) - 1];
        let mut asked = [0; 8];
        page.read_exact_at(&mut asked, 8).expect("a page");
        u64::from_ne_bytes(asked)
    }
}
