//! Commands that outlive the process that holds the lock for them.
//!
//! The command of `distlock run` may be another user's, and what it inherits must not let it unlock
//! anything: so not the open file that has the kernel's lock, of which any copy would do, but the
//! writing end of a [FIFO](Fifo), which lies beside the lock's file under its name with `.` and the
//! number of the record behind. The record says that it was handed out, and in which boot of the
//! host. Whoever has the kernel's lock next looks there, and if a writer is left gives the lock
//! back: it is still taken. So a lock is free when its holder and all that inherited are gone.
//!
//! A command that closes what it inherits, as sudo(8) does, is still waited for itself, if its holder
//! died: the kernel ends it together with `distlock run`, but a moment later, and if it has other
//! credentials by then not at all. It notes itself in the record before it becomes the command.
//!
//! In what order, for the case that a process dies in between:
//! - Handing it out: the FIFO is made, then noted in the record, then opened for writing. A FIFO that
//!   no record tells of has no writer; it is used by the next, or removed with the lock's file.
//! - At the end: the note is removed, then the FIFO. Where a record tells of one that is not there,
//!   somebody else has removed it, and nobody can tell whether commands are left: then nobody enters
//!   until an operator says so, by removing the lock's file.
//! - Of readers each has a FIFO of its own. That there may be some says a field of the lock's file,
//!   which is set before the first one is made, and cleared by one who has the lock alone and has
//!   seen that none is left. So one who enters looks through their records only if there is need.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use distlock_agent::runtime::Sighting;
use distlock_agent::runtime::fifo::Fifo;

use super::directory::Directory;
use super::file::LockFile;
use super::record::Record;

impl LockFile {
    fn lifeline_name(&self, number: u32) -> String {
        format!("{}.{number}", self.file_name)
    }

    /// Makes the lifeline of a record that we have locked. Commands inherit a
    /// [writing end](LockFile::open_lifeline).
    pub(crate) fn make_lifeline(&self, directory: &Directory, number: u32) -> io::Result<Fifo> {
        if self.is_reader(number) {
            self.write_readers(Some(directory.boot()))?;
        }
        let lifeline = Fifo::create(directory, &self.lifeline_name(number))?;
        if lifeline.has_writer()? {
            return Err(io::Error::other("somebody has its lifeline open already"));
        }
        self.write_inherited(number, Some(directory.boot()))?;
        Ok(lifeline)
    }

    /// What a command inherits.
    pub(crate) fn open_lifeline(
        &self,
        directory: &Directory,
        number: u32,
        lifeline: &Fifo,
    ) -> io::Result<OwnedFd> {
        lifeline.writer(directory, &self.lifeline_name(number))
    }

    /// At the holder's end: forgets the lifeline, unless a command is left.
    pub(crate) fn end_lifeline(
        &self,
        directory: &Directory,
        number: u32,
        lifeline: &Fifo,
    ) -> io::Result<()> {
        if lifeline.has_writer()? {
            return Ok(());
        }
        self.forget_lifeline(directory, number)
    }

    fn forget_lifeline(&self, directory: &Directory, number: u32) -> io::Result<()> {
        self.write_inherited(number, None)?;
        directory.remove(&self.lifeline_name(number))
    }

    /// Whether a command is left of the one that `record` tells of.
    pub(super) fn is_command_left(
        &self,
        directory: &Directory,
        number: u32,
        record: &Record,
    ) -> io::Result<bool> {
        if record.inherited != Some(directory.boot()) {
            return Ok(false);
        }
        let name = self.lifeline_name(number);
        match Fifo::open(directory, &name) {
            Ok(Some(lifeline)) => Ok(lifeline.has_writer()? || is_running(record)),
            Ok(None) => {
                let path = directory.path().join(name);
                let command = record.process.map_or(record.pid, |process| process.pid);
                let what = format!(
                    "somebody has removed {}, by which the end of the holder's command is seen; see \
                     that the command (process {command}) has ended, and remove the lock's file",
                    path.display()
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
            Err(error) => {
                let path = directory.path().join(name);
                let what = format!("{}: {error}", path.display());
                Err(io::Error::new(error.kind(), what))
            }
        }
    }

    /// Whether no command is left of the one that had the record, which we have locked, last:
    /// `last`. Then it has no lifeline any more.
    pub(super) fn is_unused(
        &self,
        directory: &Directory,
        number: u32,
        last: Option<&Record>,
    ) -> io::Result<bool> {
        let Some(last) = last.filter(|last| last.inherited.is_some()) else {
            return Ok(true);
        };
        if self.is_command_left(directory, number, last)? {
            return Ok(false);
        }
        self.forget_lifeline(directory, number)?;
        Ok(true)
    }

    /// The same of all readers, for one who has the lock alone. `readers`: the field that tells of
    /// them.
    pub(super) fn are_readers_gone(
        &self,
        directory: &Directory,
        readers: Option<NonZeroU64>,
    ) -> io::Result<bool> {
        if readers.is_none() {
            return Ok(true);
        }
        for number in self.permits().get()..self.count_records()? {
            let Some(last) = self.record(number)? else {
                continue;
            };
            if self.is_command_left(directory, number, &last)? {
                return Ok(false);
            }
            // Also one of which a dead process had no time to tell.
            self.forget_lifeline(directory, number)?;
        }
        self.write_readers(None)?;
        Ok(true)
    }

    /// Before the lock's file is removed, with everything locked: removes all lifelines. `false` if
    /// commands are left, or one has died inside and `even_abandoned` is not set.
    pub(super) fn remove_lifelines(
        &self,
        directory: &Directory,
        even_abandoned: bool,
    ) -> io::Result<bool> {
        let (readers, _) = self.last(0)?;
        if !self.are_readers_gone(directory, readers)? {
            return Ok(false);
        }
        let mut known = Vec::new();
        for permit in 0..self.permits().get().min(self.count_records()?) {
            let (_, Some(record)) = self.last(permit)? else {
                continue;
            };
            if record.is_inside && !even_abandoned
                || self.is_command_left(directory, permit, &record)?
            {
                return Ok(false);
            }
            known.push(permit);
        }
        // Also one of which a dead process had no time to tell.
        for permit in known {
            directory.remove(&self.lifeline_name(permit))?;
        }
        Ok(true)
    }

    /// The records of those whose commands are left, without those in `held`, whose holders are
    /// there too.
    pub(crate) fn left_commands(
        &self,
        directory: &Directory,
        held: &[u32],
    ) -> io::Result<Vec<Record>> {
        let mut left = Vec::new();
        let (readers, _) = self.last(0)?;
        let records = match readers {
            Some(_) => u32::MAX,
            None => self.permits().get(),
        };
        for number in 0..records.min(self.count_records()?) {
            if held.contains(&number) {
                continue;
            }
            if let Some(record) = self.record(number)?
                // Where it cannot be told nobody enters.
                && self
                    .is_command_left(directory, number, &record)
                    .unwrap_or(true)
            {
                left.push(record);
            }
        }
        Ok(left)
    }
}

/// Whether the command of a holder that died is still there itself.
fn is_running(record: &Record) -> bool {
    record.is_inside && record.process.is_some_and(Sighting::may_be_there)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use std::num::NonZeroU32;

    use distlock_agent::protocol::LockName;

    use super::*;
    use crate::local::file::Found;

    fn record(inherited: Option<NonZeroU64>) -> Record {
        Record {
            fence: 1,
            is_inside: true,
            pid: 1,
            since: SystemTime::now(),
            process: None,
            command: String::new(),
            inherited,
        }
    }

    fn lock() -> (tempfile::TempDir, Directory, LockFile) {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let name = LockName::new("x").unwrap();
        let lock = LockFile::open(&directory, &name, NonZeroU32::MIN).unwrap();
        (place, directory, lock)
    }

    /// A directory on a disk is still there after a crash of the host, and nobody who was inside.
    #[test]
    fn nobody_is_left_of_another_boot() {
        let (_place, directory, lock) = lock();
        let last = record(NonZeroU64::new(directory.boot().get() ^ 1));
        lock.write_record(0, &last).unwrap();
        let lifeline = Fifo::create(&directory, &lock.lifeline_name(0)).unwrap();
        let _left = lock.open_lifeline(&directory, 0, &lifeline).unwrap();
        let found = lock.try_permit(&directory, 0).unwrap();
        assert!(matches!(found, Found::Permit(0, Some(_))), "{found:?}");
        assert!(directory.look(&lock.lifeline_name(0)).unwrap().is_none());
        // And of this one it is.
        lock.release(0).unwrap();
        let lifeline = lock.make_lifeline(&directory, 0).unwrap();
        let _left = lock.open_lifeline(&directory, 0, &lifeline).unwrap();
        let found = lock.try_permit(&directory, 0).unwrap();
        assert!(matches!(found, Found::Taken), "{found:?}");
    }

    #[test]
    fn what_a_dead_reader_did_not_tell_of_is_removed() {
        let (place, directory, lock) = lock();
        let Found::Permit(reader, None) = lock.try_share(&directory, 7).unwrap() else {
            panic!("it is free");
        };
        lock.write_record(reader, &record(None)).unwrap();
        lock.make_lifeline(&directory, reader).unwrap();
        lock.write_inherited(reader, None).unwrap();
        lock.release(reader).unwrap();
        assert!(lock.retire(&directory, false).unwrap());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_command_is_of_interest_while_its_holder_is_inside() {
        let process = Sighting::now(std::process::id());
        let mut record = Record {
            process: Some(process),
            ..record(None)
        };
        assert!(is_running(&record));
        record.is_inside = false;
        assert!(!is_running(&record), "its holder has left it");
    }
}
