//! The seals of a group that has a key.

use crate::runtime::net::aead::{Destination, Seals};

/// The seals of a group that has a key.
#[derive(Debug)]
pub(super) struct Sealing {
    pub(super) seals: Seals,
    /// What was sealed last: its room is used again.
    scratch: Vec<u8>,
}

impl Sealing {
    pub(super) fn new(seals: Seals) -> Self {
        Self {
            seals,
            scratch: Vec::new(),
        }
    }

    /// Seals `bytes`. To be given back once it is sent.
    pub(super) fn seal(&mut self, to: Destination, bytes: &[u8]) -> Vec<u8> {
        let mut sealed = std::mem::take(&mut self.scratch);
        self.seals.seal(to, bytes, &mut sealed);
        sealed
    }

    pub(super) fn give_back(&mut self, sealed: Vec<u8>) {
        self.scratch = sealed;
    }
}
