//! Servers that a test starts, and ends.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;

/// The program of that name, in one of these directories or on the path. Where there is none the test says
/// so, or fails if the environment demands all tests.
pub(crate) fn program(name: &str, package: &str, directories: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = directories.iter().map(|&directory| Path::new(directory));
    let found = all
        .chain(on_path.iter().map(PathBuf::as_path))
        .map(|directory| directory.join(name))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {package} is not installed");
        let all = std::env::var("DISTLOCK_TESTS");
        assert_ne!(all.as_deref(), Ok("all"), "{package} is not installed");
    }
    found
}

/// Ports of loopback that nobody listened at a moment ago, no two of which are the same.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let listeners: Vec<_> = listeners.collect();
    let ports = listeners.iter().map(|its| its.local_addr().unwrap().port());
    ports.collect()
}

/// A server's process, which ends with the test.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        // If it has ended already there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
