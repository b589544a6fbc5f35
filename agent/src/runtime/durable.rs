//! The state directory: what must outlive the process, and the lock that keeps a second process
//! from running under the same id.
//!
//! One small file, `state`, replaced as a whole ([`slots`]): written under another name and synced,
//! it takes the place of the last one, and the directory is synced, so that a crash leaves either the
//! old or the new one. A file that cannot be understood is an error, never a fresh start: a member
//! that forgot its epoch could grant what another one still holds.

mod error;
mod files;
mod record;
mod slots;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::Flock;
use nix::unistd::geteuid;

pub use error::StateError;
pub(crate) use error::advice;
use files::{create_dir, is_forgetful, lock_dir, open_file, refused};
use record::{Flaw, MAX_LEN, decode, encode};
use slots::Slots;

use super::trust;
use crate::protocol::{Epoch, NodeId, Record};

/// A state directory that this process has for itself.
#[derive(Debug)]
pub(crate) struct StateDir {
    handle: File,
    owner: Owner,
    lock: Flock<File>,
    /// The user whose state it is and stays, where that is not this process's: root may have it
    /// changed by an operator's word.
    keeper: Option<u32>,
    slots: Slots,
}

/// Whose state it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) group: String,
    pub(crate) node: NodeId,
}

impl StateDir {
    /// Takes the directory at `path` for this process, creating it if need be, and reads what the
    /// last life left there.
    pub(crate) fn open(path: &Path, owner: Owner) -> Result<(Self, Option<Record>), StateError> {
        Self::open_for(path, owner, false)
    }

    fn open_for(
        path: &Path,
        owner: Owner,
        is_operator: bool,
    ) -> Result<(Self, Option<Record>), StateError> {
        let failed = |doing| {
            move |source| StateError::Io {
                doing,
                path: path.to_owned(),
                source,
            }
        };
        trust::way_so_far(path)?;
        create_dir(path).map_err(failed("create the state directory"))?;
        let keeper = if is_operator && geteuid().is_root() {
            trust::directory_of_one(path)?
        } else {
            trust::directory(path)?;
            None
        };
        let handle = File::open(path).map_err(failed("open the state directory"))?;
        let lock = lock_dir(path, keeper)?;
        if is_forgetful(path) {
            tracing::warn!(
                "the state directory {} is in memory and lost at a reboot: choose one on a disk",
                path.display()
            );
        }
        let state = Self {
            handle,
            owner,
            lock,
            keeper,
            slots: Slots::of(path, keeper),
        };
        let record = state.read()?;
        Ok((state, record))
    }

    /// Has the member whose state this is begin as a new voter, on an operator's word. Returns the
    /// epoch it goes on from; `None` if there is no state to be changed.
    ///
    /// # Errors
    /// If the member runs, or its state cannot be read or written.
    pub(crate) fn forget_votes(path: &Path, owner: Owner) -> Result<Option<Epoch>, StateError> {
        let (mut state, record) = Self::open_for(path, owner, true)?;
        let Some(record) = record else {
            return Ok(None);
        };
        let record = record.forget_votes();
        let epoch = record.epoch;
        state.write(record)?;
        Ok(Some(epoch))
    }

    /// A copy of the descriptor that is the lock. If this process dies, the directory is free only
    /// when all copies are closed; dropping this frees it in any case.
    pub(crate) fn try_clone_lock(&self) -> io::Result<OwnedFd> {
        Ok(self.lock.try_clone()?.into())
    }

    /// Puts `record` on disk; when it returns, the record survives a crash of the host.
    pub(crate) fn write(&mut self, record: Record) -> Result<(), StateError> {
        let bytes = encode(&record, &self.owner);
        let replaced = self.slots.replace(&self.handle, &bytes);
        replaced.map_err(|source| self.failed_to_write(source))
    }

    /// Has what the next write needs. That one may come when no descriptor is left.
    pub(crate) fn prepare(&mut self) -> Result<(), StateError> {
        let prepared = self.slots.prepare();
        prepared.map_err(|source| self.failed_to_write(source))
    }

    fn failed_to_write(&self, source: io::Error) -> StateError {
        StateError::Io {
            doing: "write",
            path: self.slots.state().to_owned(),
            source,
        }
    }

    fn read(&self) -> Result<Option<Record>, StateError> {
        let path = self.slots.state().to_owned();
        let failed = |source| StateError::Io {
            doing: "read",
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        let file = match open_file(options.read(true), &path, self.keeper) {
            Err(missing) if missing.is_missing() => return Ok(None),
            opened => opened.map_err(|why| refused(why, failed))?,
        };
        let mut bytes = Vec::new();
        let limit = MAX_LEN as u64 + 1;
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        let (record, owner) = decode(&bytes).map_err(|why| match why {
            Flaw::Version(version) => StateError::Version {
                path: path.clone(),
                version,
            },
            Flaw::Damaged(why) => StateError::Damaged {
                path: path.clone(),
                why,
            },
        })?;
        if owner != self.owner {
            return Err(StateError::Foreign {
                path,
                group: owner.group,
                node: owner.node,
            });
        }
        Ok(Some(record))
    }
}
