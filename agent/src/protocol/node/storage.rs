//! What is on disk, and what is on its way there.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::protocol::face::{Output, Record};

/// What is on disk, and what is on its way there. One record at a time.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) record: Record,
    /// Whether this life is on disk: before, nothing is said.
    pub(super) born: bool,
    writing: bool,
    /// The record changed again while it was being written.
    dirty: bool,
}

impl Storage {
    pub(super) fn new(record: Record) -> Self {
        Self {
            record,
            born: false,
            writing: false,
            dirty: false,
        }
    }

    pub(super) fn put(&mut self, outputs: &mut VecDeque<Output>) {
        if self.writing {
            self.dirty = true;
        } else {
            self.writing = true;
            outputs.push_back(Output::Persist(Box::new(self.record.clone())));
        }
    }

    /// Whether all is on disk.
    pub(super) fn written(&mut self, outputs: &mut VecDeque<Output>) -> bool {
        self.writing = false;
        self.born = true;
        if core::mem::take(&mut self.dirty) {
            self.put(outputs);
        }
        !self.writing
    }
}
