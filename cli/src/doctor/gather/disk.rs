//! Where this member keeps its state, and how long a write takes until it is on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock::NodeConfig;
use distlock_agent::runtime::{clock, trust};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::is_other_users;
use crate::doctor::checks::slow_write;
use crate::doctor::facts::{NotMeasured, StateDirectory};

/// How many writes are timed.
const WRITES: usize = 32;
/// What is written each time: more than a state has.
const BLOCK: [u8; 4096] = [0; 4096];
/// No more writes are begun after this.
const ENOUGH: Duration = Duration::from_secs(5);

/// Looks at the state directory of `node`'s member.
pub(super) fn look(node: &NodeConfig) -> StateDirectory {
    let path = node.state_dir();
    StateDirectory {
        is_there: path.try_exists().ok(),
        is_in_memory: existing(&path).is_some_and(|path| is_in_memory(&path)),
        refused: refused(&path),
        writes: time_writes(&path, node.settings().lease),
        path,
    }
}

/// What there is of `path`.
fn existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    let found = absolute.ancestors().find(|path| path.exists());
    found.map(Path::to_owned)
}

fn is_in_memory(path: &Path) -> bool {
    statfs(path).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC)
}

/// Why an agent of this user would refuse the directory, if it would.
fn refused(path: &Path) -> Option<(String, &'static str)> {
    let checked = match path.symlink_metadata() {
        Ok(_) => trust::directory(path),
        Err(error) if error.kind() == ErrorKind::NotFound => trust::way_so_far(path),
        // Of what this user may not look at nothing is known.
        Err(_) => return None,
    };
    match checked {
        Err(why) if !is_other_users(&why) => told(&why),
        _ => None,
    }
}

/// `why` in words, and what to do; nothing of what the system did not let this user look at.
pub(super) fn told(why: &trust::PathTrustError) -> Option<(String, &'static str)> {
    match why {
        trust::PathTrustError::Io { .. } => None,
        why => Some((why.to_string(), why.advice())),
    }
}

/// How long each of some writes took beside the state directory `path`; or why that was not measured.
fn time_writes(path: &Path, lease: Duration) -> Result<Vec<Duration>, NotMeasured> {
    let base = path.parent().filter(|base| base.is_dir());
    let base = base.ok_or_else(|| NotMeasured::NotThere(path.to_owned()))?;
    let failed = |error: io::Error| {
        let why = format!("cannot write in {}: {error}", base.display());
        match error.kind() {
            ErrorKind::PermissionDenied => NotMeasured::Forbidden(why),
            _ => NotMeasured::Failed(why),
        }
    };
    // A signal that ends this program would leave the file. No other thread is there to get it.
    let mask = deadly()
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(|errno| failed(errno.into()))?;
    let measured = Scratch::new(base).and_then(|scratch| scratch.time(lease));
    // One that came meanwhile acts here.
    mask.thread_set_mask()
        .map_err(|errno| failed(errno.into()))?;
    measured.map_err(failed)
}

fn deadly() -> SigSet {
    [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGALRM,
        Signal::SIGPIPE,
        Signal::SIGXCPU,
        Signal::SIGXFSZ,
    ]
    .into_iter()
    .collect()
}

/// A file that is there as long as this.
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn new(base: &Path) -> io::Result<Self> {
        let path = base.join(format!(".distlock-doctor-{}.tmp", std::process::id()));
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        Ok(Self {
            file: options.open(&path)?,
            path,
        })
    }

    /// Writes as often as it takes to judge the disk by `lease`.
    fn time(&self, lease: Duration) -> io::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(WRITES);
        let begin = clock::now();
        // If all were just fast enough, so much would be over: then one was not.
        let end = begin + ENOUGH.min(slow_write(lease) * WRITES as u32);
        while times.len() < WRITES && (times.is_empty() || clock::now() < end) {
            let before = clock::now();
            self.file.write_all_at(&BLOCK, 0)?;
            self.file.sync_all()?;
            times.push(clock::now().since(before));
        }
        Ok(times)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Somebody may have been faster.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_empty(directory: &Path) -> bool {
        fs::read_dir(directory).unwrap().next().is_none()
    }

    #[test]
    fn writes_are_timed_and_nothing_is_left() {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().join("shop-1");
        let times = time_writes(&state, Duration::from_secs(60)).unwrap();
        assert!((1..=WRITES).contains(&times.len()), "{times:?}");
        assert!(is_empty(base.path()));
        let nowhere = base.path().join("none/shop-1");
        let why = time_writes(&nowhere, Duration::from_secs(60)).unwrap_err();
        assert_eq!(why, NotMeasured::NotThere(nowhere));
        assert!(is_empty(base.path()));
    }

    #[test]
    fn a_file_that_is_there_already_is_not_touched() {
        let base = tempfile::tempdir().unwrap();
        let kept = Scratch::new(base.path()).unwrap();
        fs::write(&kept.path, "kept").unwrap();
        let why = time_writes(&base.path().join("shop-1"), Duration::from_secs(60)).unwrap_err();
        assert!(
            matches!(&why, NotMeasured::Failed(why) if why.contains("exists")),
            "{why:?}"
        );
        assert_eq!(fs::read(&kept.path).unwrap(), b"kept");
        drop(kept);
        assert!(is_empty(base.path()));
    }

    #[test]
    fn a_disk_that_is_slow_is_not_waited_for_again() {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(base.path()).unwrap();
        // One write takes longer than all may.
        assert_eq!(scratch.time(Duration::ZERO).unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_there_yet_will_be_where_its_directory_is() {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().join("none/shop-1");
        assert_eq!(existing(&state).as_deref(), Some(base.path()));
        assert_eq!(existing(base.path()).as_deref(), Some(base.path()));
    }
}
