//! The file `state` and the one that takes its place, `state.new`: two files that take turns.
//!
//! Both stay open. A server whose descriptors are used up by those who connect to it could not open a
//! file, and what a member cannot write down ends it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::files::give;

#[derive(Debug)]
pub(super) struct Slots {
    state: PathBuf,
    new: PathBuf,
    keeper: Option<u32>,
    /// What was written last, at `state`.
    written: Option<File>,
    /// Nothing is in it yet, at `new`.
    blank: Option<File>,
}

impl Slots {
    /// Of the directory `path`; `keeper` as it has it.
    pub(super) fn of(path: &Path, keeper: Option<u32>) -> Self {
        Self {
            state: path.join("state"),
            new: path.join("state.new"),
            keeper,
            written: None,
            blank: None,
        }
    }

    /// Where the state is.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Replaces the state by `bytes`, on disk when this returns. `handle` is the directory's.
    pub(super) fn replace(&mut self, handle: &File, bytes: &[u8]) -> io::Result<()> {
        let file = match self.blank.take() {
            // Not if somebody took it away or put another one there, which would become the state.
            Some(blank) if is_at(&blank, &self.new)? => blank,
            _ => self.make()?,
        };
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        let old = self.written.take();
        let is_kept = old.is_some() && self.exchange();
        if !is_kept {
            fs::rename(&self.new, &self.state)?;
        }
        handle.sync_all()?;
        self.written = Some(file);
        // If there is none in the end, the next one to write makes it.
        self.blank = match old {
            Some(old) if is_kept => old.set_len(0).ok().map(|()| old),
            // Closed before another is opened: it may be the last descriptor.
            old => {
                drop(old);
                self.make().ok()
            }
        };
        Ok(())
    }

    /// Has both take each other's place at once, if the file system can do that.
    fn exchange(&self) -> bool {
        let flags = RenameFlags::RENAME_EXCHANGE;
        renameat2(AT_FDCWD, &self.new, AT_FDCWD, &self.state, flags).is_ok()
    }

    fn make(&self) -> io::Result<File> {
        // What a crash has left; and should it be a link, what it leads to is not ours to write.
        match fs::remove_file(&self.new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.new)?;
        give(&file, self.keeper)?;
        Ok(file)
    }
}

/// Whether `path` is a name of `file`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
