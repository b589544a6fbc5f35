//! The records in a lock's file.
//!
//! Those of the first permits are on the file's first page, where the process that has a permit locked
//! reads and writes them in memory; all others are read and written by the kernel.

use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use distlock_agent::runtime::{Announcer, Sighting};

use super::file::{LockFile, READERS_AT, READERS_LEN};
use super::mapping::{LEN, Mapping};
use super::record::{self, BLOCK, Record};

impl LockFile {
    /// The record of a permit; `None` if none was written yet, or if another process is writing it now.
    pub(crate) fn record(&self, number: u32) -> io::Result<Option<Record>> {
        let mut block = [0; BLOCK];
        match self.file.read_exact_at(&mut block, record_at(number)) {
            Ok(()) => Ok(Record::decode(&block)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The record of a permit that we have locked, of its last holder, and for the first permit the
    /// field of readers before it.
    pub(super) fn last(&self, permit: u32) -> io::Result<(Option<NonZeroU64>, Option<Record>)> {
        let mut both = [0; READERS_LEN + BLOCK];
        let at = record_at(permit) - READERS_LEN as u64;
        if let Some(mapping) = self.mapped(permit) {
            let (words, _) = both.as_chunks_mut();
            for (word, at) in words.iter_mut().zip((at as usize..).step_by(8)) {
                *word = mapping.word64(at).load(Ordering::Relaxed).to_ne_bytes();
            }
        } else {
            match self.file.read_exact_at(&mut both, at) {
                // It was never written.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                read => read?,
            }
        }
        let (before, block) = both.split_first_chunk().expect("it is longer");
        let readers = match permit {
            0 => NonZeroU64::new(u64::from_le_bytes(*before)),
            _ => None,
        };
        let block = block.first_chunk().expect("it is as long");
        Ok((readers, Record::of_last(block)))
    }

    /// The mapping, if the record is in it, and if it could be touched when the file was looked at last.
    fn mapped(&self, number: u32) -> Option<&Mapping> {
        let end = record_at(number) + BLOCK as u64;
        let mapping = self.mapping.as_ref()?;
        (end <= LEN as u64 && self.is_whole.load(Ordering::Relaxed)).then_some(mapping)
    }

    /// How many records the file has room for as it is.
    pub(super) fn count_records(&self) -> io::Result<u32> {
        let records = (self.file.metadata()?.len() / BLOCK as u64).saturating_sub(1);
        Ok(u32::try_from(records).unwrap_or(u32::MAX))
    }

    /// Writes the record of a permit that we have locked.
    pub(crate) fn write_record(&self, number: u32, record: &Record) -> io::Result<()> {
        let block = record.encode();
        let Some(mapping) = self.mapped(number) else {
            return self.file.write_all_at(&block, record_at(number));
        };
        // Backwards: whoever reads it forwards, and finds one fence at both ends, has all of it.
        let (words, _) = block.as_chunks();
        for (index, word) in words.iter().enumerate().rev() {
            let at = record_at(number) as usize + 8 * index;
            let word = u64::from_ne_bytes(*word);
            mapping.word64(at).store(word, Ordering::Release);
        }
        Ok(())
    }

    /// Writes one of its fields.
    fn write_field(&self, number: u32, field: usize, bytes: &[u8]) -> io::Result<()> {
        self.file
            .write_all_at(bytes, record_at(number) + field as u64)
    }

    /// Notes that the permit's holder leaves in order.
    pub(crate) fn write_left(&self, number: u32) -> io::Result<()> {
        let left = record::LEFT.to_le_bytes();
        self.look_at_length()?;
        match self.mapped(number) {
            None => self.write_field(number, record::STATE_AT, &left),
            Some(mapping) => {
                let at = record_at(number) as usize + record::STATE_AT;
                let word = mapping.word32(at);
                word.store(u32::from_ne_bytes(left), Ordering::Release);
                Ok(())
            }
        }
    }

    /// Notes the process that works under the permit.
    pub(crate) fn write_process(&self, number: u32, process: Sighting) -> io::Result<()> {
        self.write_field(number, record::PROCESS_AT, &process.encode())
    }

    /// By what that process notes it itself.
    pub(crate) fn announcer(&self, number: u32) -> io::Result<Announcer> {
        let at = record_at(number) + record::PROCESS_AT as u64;
        Ok(Announcer::in_record(self.file.try_clone()?, at))
    }

    /// Notes in which boot commands inherited what shows whether they are left, if they did.
    pub(super) fn write_inherited(&self, number: u32, boot: Option<NonZeroU64>) -> io::Result<()> {
        let boot = boot.map_or(0, NonZeroU64::get);
        self.write_field(number, record::INHERITED_AT, &boot.to_le_bytes())
    }

    /// The same of any reader.
    pub(super) fn write_readers(&self, boot: Option<NonZeroU64>) -> io::Result<()> {
        let boot = boot.map_or(0, NonZeroU64::get);
        self.file.write_all_at(&boot.to_le_bytes(), READERS_AT)
    }
}

fn record_at(permit: u32) -> u64 {
    BLOCK as u64 * (1 + u64::from(permit))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::SystemTime;

    use distlock_agent::protocol::LockName;

    use super::super::directory::Directory;
    use super::*;

    fn record(fence: u64) -> Record {
        Record {
            fence,
            is_inside: true,
            pid: 1,
            since: SystemTime::UNIX_EPOCH,
            process: None,
            command: "sleep".to_owned(),
            inherited: None,
        }
    }

    /// The file of a lock with `permits` permits, opened twice: by a process that enters, which maps it, and
    /// by one that only reads its records, as `status` does.
    fn both(path: &std::path::Path, permits: u32) -> (LockFile, LockFile) {
        let directory = Directory::open(path).unwrap();
        let name = LockName::new("x").unwrap();
        let permits = NonZeroU32::new(permits).unwrap();
        let ours = LockFile::open(&directory, &name, permits).unwrap();
        let file_name = LockFile::file_name(&name);
        let other = LockFile::open_existing(&directory, &file_name).unwrap();
        (ours, other.unwrap())
    }

    #[test]
    fn all_see_what_is_written_in_memory_and_beyond() {
        let directory = tempfile::tempdir().unwrap();
        let (ours, other) = both(directory.path(), 20);
        for number in [0, 6, 7, 19] {
            assert_eq!(ours.mapped(number).is_some(), number < 7, "{number}");
            assert_eq!(ours.last(number).unwrap().1, None);
            let written = record(u64::from(number) + 5);
            ours.write_record(number, &written).unwrap();
            assert_eq!(other.record(number).unwrap(), Some(written.clone()));
            assert_eq!(ours.last(number).unwrap().1, Some(written.clone()));
            assert_eq!(other.last(number).unwrap().1, Some(written));
            ours.write_left(number).unwrap();
            assert!(!other.record(number).unwrap().unwrap().is_inside);
        }
    }

    /// The kernel would end whoever touches what is not there.
    #[test]
    fn a_file_that_is_cut_short_is_not_touched_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let (ours, other) = both(directory.path(), 1);
        ours.write_record(0, &record(5)).unwrap();
        other.file.set_len(0).unwrap();
        ours.write_left(0).unwrap();
        assert!(ours.mapped(0).is_none());
        let last = ours.last(0).unwrap().1;
        assert!(last.is_none_or(|last| !last.is_inside), "it left");
        ours.write_record(0, &record(6)).unwrap();
        assert_eq!(other.record(0).unwrap(), Some(record(6)));
    }
}
