//! The file `state` and the one that takes its place, `state.new`: two files that take turns.
//!
//! Both stay open, and exchange their names. A server whose descriptors are used up by those who
//! connect to it could not open a file, and what a member cannot write down ends it.
//!
//! Where a file system cannot exchange names (NFS does not), the new file is renamed, and one is
//! opened for the next time as soon as a descriptor is free for it: who takes that first leaves none.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::files::give;

/// Has two files take each other's name at once.
pub(super) type Exchange = fn(&Path, &Path) -> Result<(), Errno>;

#[derive(Debug)]
pub(super) struct Slots {
    state: PathBuf,
    new: PathBuf,
    keeper: Option<u32>,
    /// What was written last, at `state`; `None` where it cannot be kept.
    pub(super) written: Option<File>,
    /// What is written to next, at `new`, with nothing in it.
    blank: Option<File>,
    /// `None` once it has turned out that it cannot be done here.
    pub(super) exchange: Option<Exchange>,
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
            exchange: Some(exchange),
        }
    }

    /// Where the state is.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Has a file open to be written to.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        if self.blank.is_none() {
            self.blank = Some(self.make()?);
        }
        Ok(())
    }

    /// Replaces the state by `bytes`, on disk when this returns. `handle` is the directory's.
    pub(super) fn replace(&mut self, handle: &File, bytes: &[u8]) -> io::Result<()> {
        // Not if somebody put another one there, which would become the state.
        self.blank.take_if(|blank| !is_fit(blank, &self.new));
        self.prepare()?;
        let file = self.blank.take().expect("it was prepared");
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        let old = self.put(&file)?;
        handle.sync_all()?;
        self.written = self.exchange.is_some().then_some(file);
        // Only now, when the new one is certain to be there after a crash.
        self.blank = old.filter(|old| is_fit(old, &self.new) && old.set_len(0).is_ok());
        if let Err(error) = self.prepare() {
            tracing::debug!(
                "{} is opened when it is needed: {error}",
                self.new.display()
            );
        }
        Ok(())
    }

    /// Has `file`, which is at `new`, be the state; what was it before, if that is at `new` then.
    fn put(&mut self, file: &File) -> io::Result<Option<File>> {
        let mut old = self.written.take();
        let exchange = self.exchange.filter(|_| old.is_some());
        match exchange.map(|exchange| exchange(&self.new, &self.state)) {
            Some(Ok(())) => {}
            // These say that nothing was done. After any other, nobody knows what is where, and to
            // rename could put the old one back.
            Some(Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EPERM)) => {
                self.exchange = None;
                old = None;
            }
            // Somebody took the state away.
            Some(Err(Errno::ENOENT)) => old = None,
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
        if old.is_none() {
            // What it replaces is closed by now: what is open, NFS gives another name before, and a
            // crash would leave none in between.
            fs::rename(&self.new, &self.state)?;
        }
        if is_at(file, &self.state)?.is_none() {
            return Err(io::Error::other("another file has come to be there"));
        }
        Ok(old)
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

/// Whether `file` is at `path` as this process made it: under no other name, and nobody else's to
/// write to.
fn is_fit(file: &File, path: &Path) -> bool {
    let found = is_at(file, path).unwrap_or_default();
    found.is_some_and(|found| found.nlink() == 1 && found.mode() & 0o022 == 0)
}

/// What is at `path`, if that is `file`.
fn is_at(file: &File, path: &Path) -> io::Result<Option<Metadata>> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => {
            let is_same = (found.dev(), found.ino()) == (opened.dev(), opened.ino());
            Ok(is_same.then_some(found))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(target_env = "gnu")]
pub(super) fn exchange(one: &Path, other: &Path) -> Result<(), Errno> {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE)
}

/// The nix crate has it for glibc only.
#[cfg(not(target_env = "gnu"))]
pub(super) fn exchange(_: &Path, _: &Path) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}
