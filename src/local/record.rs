//! What a lock's file says of one who holds a permit, or held it last:
//!
//! ```text
//! 0   fence 8 | state 4 | pid 4 | since 8 | length 2 | command up to 448
//! 480 the boot in which commands inherited the holder's lifeline 8
//! 488 the command's process 12
//! 504 fence 8
//! ```

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_agent::runtime::Sighting;

use crate::PreviousOwner;

/// How long a record is, and what else stands in a lock's file.
pub(super) const BLOCK: usize = 512;

const INSIDE: u32 = 1;
pub(super) const LEFT: u32 = 2;
pub(super) const STATE_AT: usize = 8;
const COMMAND_AT: usize = 26;
const MAX_COMMAND: usize = 448;
pub(super) const INHERITED_AT: usize = 480;
pub(super) const PROCESS_AT: usize = 488;
const END_AT: usize = BLOCK - 8;

/// Who holds a permit, or held it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) fence: u64,
    /// Whether it has not left in order.
    pub(crate) is_inside: bool,
    pub(crate) pid: u32,
    pub(crate) since: SystemTime,
    /// The process that works under the permit, where it is not the holder's.
    pub(crate) process: Option<Sighting>,
    /// As much of it as there is room for; may be empty.
    pub(crate) command: String,
    /// The boot of the host in which commands inherited the lifeline, if they did.
    pub(crate) inherited: Option<NonZeroU64>,
}

impl Record {
    /// How a holder that finds this record came by the permit.
    pub(crate) fn as_previous_owner(&self) -> PreviousOwner {
        if self.is_inside {
            PreviousOwner::Abandoned
        } else {
            PreviousOwner::Clean
        }
    }

    /// What there is to know of the last holder. One that ended while it wrote that it had come in
    /// counts as inside: what its record said before is lost, and it may have been the same.
    pub(super) fn of_last(block: &[u8; BLOCK]) -> Option<Self> {
        let fences = [0, END_AT].map(|at| u64::from_le_bytes(array(block, at)));
        let torn = || Self {
            fence: fences[0].max(fences[1]),
            is_inside: true,
            pid: 0,
            since: UNIX_EPOCH,
            process: None,
            command: String::new(),
            inherited: NonZeroU64::new(u64::from_le_bytes(array(block, INHERITED_AT))),
        };
        let is_torn = fences[0] != fences[1];
        Self::decode(block).or_else(|| is_torn.then(torn))
    }

    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        let since = self
            .since
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let longest = MAX_COMMAND.min(self.command.len());
        let fits = (0..=longest)
            .rev()
            .find(|&len| self.command.is_char_boundary(len));
        let command = &self.command[..fits.expect("zero is a boundary")];
        let len = u16::try_from(command.len()).expect("shortened above");
        put(0, &self.fence.to_le_bytes());
        put(
            STATE_AT,
            &(if self.is_inside { INSIDE } else { LEFT }).to_le_bytes(),
        );
        put(12, &self.pid.to_le_bytes());
        put(16, &since_ms.to_le_bytes());
        put(24, &len.to_le_bytes());
        put(COMMAND_AT, command.as_bytes());
        let inherited = self.inherited.map_or(0, NonZeroU64::get);
        put(INHERITED_AT, &inherited.to_le_bytes());
        if let Some(process) = self.process {
            put(PROCESS_AT, &process.encode());
        }
        put(END_AT, &self.fence.to_le_bytes());
        block
    }

    pub(super) fn decode(block: &[u8; BLOCK]) -> Option<Self> {
        let fence = u64::from_le_bytes(array(block, 0));
        let state = u32::from_le_bytes(array(block, STATE_AT));
        let len = usize::from(u16::from_le_bytes(array(block, 24)));
        let is_whole = fence == u64::from_le_bytes(array(block, END_AT)) && len <= MAX_COMMAND;
        if !is_whole || !matches!(state, INSIDE | LEFT) {
            return None;
        }
        let since_ms = u64::from_le_bytes(array(block, 16));
        let command = &block[COMMAND_AT..COMMAND_AT + len];
        Some(Self {
            fence,
            is_inside: state == INSIDE,
            pid: u32::from_le_bytes(array(block, 12)),
            since: UNIX_EPOCH + Duration::from_millis(since_ms),
            process: Some(Sighting::decode(&array(block, PROCESS_AT)))
                .filter(|process| process.pid != 0),
            command: String::from_utf8_lossy(command).into_owned(),
            inherited: NonZeroU64::new(u64::from_le_bytes(array(block, INHERITED_AT))),
        })
    }
}

/// `N` bytes of `block` from `at`, which lie within it.
pub(super) fn array<const N: usize>(block: &[u8; BLOCK], at: usize) -> [u8; N] {
    block[at..at + N].try_into().expect("N bytes are N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(command: &str) -> Record {
        Record {
            fence: 77,
            is_inside: true,
            pid: 4_000_000,
            since: UNIX_EPOCH + Duration::from_millis(1_800_000_000_123),
            process: Some(Sighting { pid: 7, by: 9 }),
            command: command.to_owned(),
            inherited: NonZeroU64::new(8),
        }
    }

    #[test]
    fn a_record_is_read_back() {
        for command in ["", "sleep 3", &"x".repeat(MAX_COMMAND)] {
            let record = record(command);
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let long = format!("x{}", "ü".repeat(MAX_COMMAND));
        let read = Record::decode(&record(&long).encode()).unwrap();
        assert_eq!(read.command.len(), MAX_COMMAND - 1);
        assert!(long.starts_with(&read.command));
    }

    #[test]
    fn who_ends_while_it_writes_counts_as_inside() {
        let (old, new) = (record("old"), record("new"));
        let old = Record {
            is_inside: false,
            ..old
        };
        let new = Record { fence: 78, ..new };
        // Written backwards, word by word.
        for from in (8..BLOCK).step_by(8) {
            let mut torn = old.encode();
            torn[from..].copy_from_slice(&new.encode()[from..]);
            assert_eq!(Record::decode(&torn), None);
            let last = Record::of_last(&torn).unwrap();
            assert!(last.is_inside && last.fence == 78, "{from}: {last:?}");
        }
        assert_eq!(Record::of_last(&old.encode()), Some(old));
        assert_eq!(Record::of_last(&[0; BLOCK]), None);
    }

    #[test]
    fn half_a_record_is_none() {
        let (old, new) = (
            record("old").encode(),
            Record {
                fence: 78,
                ..record("new")
            }
            .encode(),
        );
        for cut in 1..BLOCK {
            let mut torn = old;
            torn[..cut].copy_from_slice(&new[..cut]);
            let read = Record::decode(&torn);
            assert!(
                read.is_none() || read == Record::decode(&new),
                "{cut}: {read:?}"
            );
        }
        assert_eq!(Record::decode(&[0; BLOCK]), None);
    }
}
