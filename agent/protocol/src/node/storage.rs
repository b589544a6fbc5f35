//! What is on disk, and what is on its way there.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::api::{Output, Record};
use crate::membership::quorum::{Affiliation, VoterRecord};

/// What is on disk, and what is on its way there. One record at a time.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) record: Record,
    /// Whether this incarnation is on disk: before, nothing is said.
    pub(super) born: bool,
    writing: Option<Parts>,
    /// What changed again while the record was being written.
    dirty: Parts,
}

/// Whose part of the record is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) member: bool,
    pub(super) affiliation: bool,
    pub(super) voter: bool,
}

impl Storage {
    pub(super) fn new(record: Record) -> Self {
        Self {
            record,
            born: false,
            writing: None,
            dirty: Parts::default(),
        }
    }

    /// What the member must remember has changed.
    pub(super) fn put(&mut self, outputs: &mut VecDeque<Output>) {
        self.dirty.member = true;
        self.write(outputs);
    }

    /// What the member must remember of its cluster has changed.
    pub(super) fn put_affiliation(
        &mut self,
        affiliation: Affiliation,
        outputs: &mut VecDeque<Output>,
    ) {
        self.record.affiliation = affiliation;
        self.dirty.affiliation = true;
        self.write(outputs);
    }

    /// What the voter must remember has changed.
    pub(super) fn put_voter(&mut self, record: VoterRecord, outputs: &mut VecDeque<Output>) {
        self.record.voter = Some(Arc::new(record));
        self.dirty.voter = true;
        self.write(outputs);
    }

    fn write(&mut self, outputs: &mut VecDeque<Output>) {
        if self.writing.is_none() && self.dirty != Parts::default() {
            self.writing = Some(core::mem::take(&mut self.dirty));
            outputs.push_back(Output::Persist(Box::new(self.record.clone())));
        }
    }

    /// A record is on disk. Returns what of it is as it was last put.
    pub(super) fn written(&mut self, outputs: &mut VecDeque<Output>) -> Parts {
        let written = self.writing.take().unwrap_or_default();
        let current = Parts {
            member: written.member && !self.dirty.member,
            affiliation: written.affiliation && !self.dirty.affiliation,
            voter: written.voter && !self.dirty.voter,
        };
        // What was on its way when an incarnation began anew is of the incarnation before.
        self.born |= current.member;
        self.write(outputs);
        current
    }

    /// Whether all is on disk.
    pub(super) fn is_idle(&self) -> bool {
        self.writing.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Incarnation};
    use crate::lock::AbandonedMarks;

    /// An incarnation that begins while the one before is still being written may say nothing when
    /// that is on disk: it could be lived twice.
    #[test]
    fn an_incarnation_is_born_by_its_own_record() {
        let mut outputs = VecDeque::new();
        let mut storage = Storage::new(Record {
            incarnation: Incarnation(1),
            epoch: Epoch::ZERO,
            clean: false,
            marks: AbandonedMarks::None,
            affiliation: Affiliation::new(Incarnation(1)),
            voter: None,
        });
        storage.put(&mut outputs);
        assert!(storage.written(&mut outputs).member && storage.born);
        // An epoch is on its way to the disk when a view goes on without this incarnation.
        storage.put(&mut outputs);
        storage.record.incarnation = Incarnation(2);
        storage.born = false;
        storage.put(&mut outputs);
        assert!(!storage.written(&mut outputs).member && !storage.born);
        assert!(storage.written(&mut outputs).member && storage.born);
    }
}
