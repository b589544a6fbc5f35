//! The state directory: what must outlive the process, and the lock that keeps a second process
//! from running under the same id.
//!
//! One small file, `state`, replaced as a whole ([`slots`]): written under another name and synced,
//! it takes the place of the last one, and the directory is synced, so that a crash leaves either the
//! old or the new one. A file that cannot be understood is an error, never a fresh start: a member
//! that forgot its epoch could grant what another one still holds.

mod error;
mod files;
mod owner;
mod record;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::Flock;
use nix::unistd::geteuid;

pub(crate) use self::owner::StateOwner;
pub use error::StateError;
pub(crate) use error::advice;
use files::{create_dir, is_forgetful, lock_dir, open_file, refused};
use record::{Flaw, MAX_LEN, decode, encode};
use slots::Slots;

use crate::protocol::{ClusterId, NodeId, Record};
use crate::runtime::disk::trust;

/// A state directory that this process has for itself.
#[derive(Debug)]
pub(crate) struct StateDir {
    handle: File,
    owner: StateOwner,
    lock: Flock<File>,
    /// The user whose state it is and stays, where that is not this process's: root may have it
    /// changed by an operator's word.
    keeper: Option<u32>,
    slots: Slots,
}

impl StateDir {
    /// Takes the directory at `path` for this process, creating it if need be, and reads what the
    /// last incarnation left there.
    pub(crate) fn open(
        path: &Path,
        owner: StateOwner,
    ) -> Result<(Self, Option<Record>), StateError> {
        Self::open_for(path, owner, false)
    }

    fn open_for(
        path: &Path,
        owner: StateOwner,
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
                event = "state-in-memory",
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
        if record.is_none() {
            refuse_renamed(path, &state.owner)?;
        }
        Ok((state, record))
    }

    /// Leaves an operator's word that the member's cluster is abandoned; `abandoned` names that
    /// cluster where the state does not. `voters`: those of the file.
    ///
    /// # Errors
    /// If the member runs, its state cannot be read or written, or the cluster is not named.
    pub(crate) fn recover(
        path: &Path,
        owner: StateOwner,
        abandoned: Option<ClusterId>,
        voters: &BTreeSet<NodeId>,
    ) -> Result<(), StateError> {
        let (mut state, record) = Self::open_for(path, owner, true)?;
        let recovered = match record {
            Some(record) => record.recover(abandoned, voters),
            None => abandoned.map(|abandoned| Record::recover_lost(abandoned, voters)),
        };
        let path = path.to_owned();
        state.write(recovered.ok_or(StateError::Unnamed { path })?)
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
        if (&owner.group, owner.node) != (&self.owner.group, self.owner.node) {
            return Err(StateError::Foreign {
                path,
                group: owner.group,
                node: owner.node,
            });
        }
        match (owner.machine, self.owner.machine) {
            (Some(then), Some(now)) if then != now => Err(StateError::OtherMachine { path }),
            (Some(_), None) => {
                tracing::warn!(
                    event = "machine-unknown",
                    "/etc/machine-id cannot be read, so nobody can tell whether {} was copied \
                     from another machine",
                    path.display()
                );
                Ok(Some(record))
            }
            _ => Ok(Some(record)),
        }
    }
}

/// How many neighbours of a state directory are looked at.
const MAX_NEIGHBOURS: usize = 1000;

/// Refuses a member that begins beside the state of one with its address and another group's name:
/// its group was renamed on this host, and goes on under the old name on the others.
fn refuse_renamed(path: &Path, owner: &StateOwner) -> Result<(), StateError> {
    let Some(entries) = path.parent().and_then(|base| base.read_dir().ok()) else {
        return Ok(());
    };
    for entry in entries.flatten().take(MAX_NEIGHBOURS) {
        let state = entry.path().join("state");
        if entry.path() == path {
            continue;
        }
        // A file that cannot be read, or is no state file, says nothing about this member.
        let Ok((file, _)) = trust::open(OpenOptions::new().read(true), &state) else {
            continue;
        };
        let mut bytes = Vec::new();
        if file.take(MAX_LEN as u64).read_to_end(&mut bytes).is_err() {
            continue;
        }
        let Ok((_, its)) = decode(&bytes) else {
            continue;
        };
        if its.address == owner.address && its.group != owner.group {
            return Err(StateError::Renamed {
                path: entry.path(),
                before: its.group,
                now: owner.group.clone(),
            });
        }
    }
    Ok(())
}
