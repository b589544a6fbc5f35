//! A disk that is soon full.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Process, wrapped};

/// A mount namespace in which a small file system of its own is at `path`. It ends with this.
pub(crate) struct SmallDisk(Process);

impl SmallDisk {
    pub(crate) fn at(path: &Path) -> Self {
        let script = "mount -t tmpfs -o size=64k,nr_inodes=64 tmpfs \"$0\" && echo there && cat";
        let mut keeper = Command::new("unshare");
        keeper.args(["--mount", "sh", "-c", script]).arg(path);
        let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut keeper = Process(keeper.expect("unshare(1) is there"));
        assert_eq!(keeper.first_line(), "there");
        Self(keeper)
    }

    /// `command`, where that disk is.
    pub(crate) fn with(&self, command: &Command) -> Command {
        let mut enter = Command::new("nsenter");
        enter.arg(format!("--mount=/proc/{}/ns/mnt", self.0.id()));
        wrapped(enter, command)
    }
}
