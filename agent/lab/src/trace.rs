//! What happened in a run: a fingerprint always, words if somebody wants to read them, and its
//! history if somebody wants to draw it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::history::{Moment, What};
use distlock_protocol::{NodeId, Time};

/// Takes the words of a trace, line by line.
pub type Sink = Box<dyn FnMut(fmt::Arguments<'_>)>;

/// The record of one run.
pub struct Trace {
    fingerprint: u64,
    sink: Option<Sink>,
    history: Option<Vec<Moment>>,
}

impl Trace {
    /// A trace that is told to `sink`, or only fingerprinted.
    pub fn new(sink: Option<Sink>) -> Self {
        Self {
            fingerprint: 0xCBF2_9CE4_8422_2325,
            sink,
            history: None,
        }
    }

    /// The same trace, which keeps the run's history too.
    #[must_use]
    pub fn with_history(self) -> Self {
        Self {
            history: Some(Vec::new()),
            ..self
        }
    }

    /// The history so far, in order of time; empty if none is kept.
    pub fn history(&self) -> &[Moment] {
        self.history.as_deref().unwrap_or_default()
    }

    /// Whether somebody keeps the history.
    pub(super) const fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// Adds what happened at `node` to the history.
    pub(super) fn record(&mut self, at: Time, node: NodeId, what: What) {
        if let Some(history) = &mut self.history {
            history.push(Moment { at, node, what });
        }
    }

    /// Two runs with the same fingerprint put out the same bytes at the same times.
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Adds `bytes` to the fingerprint: FNV-1a (64 bits), of words instead of bytes.
    pub(super) fn mix(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.mix_u64(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix_u64(u64::from_le_bytes(last));
        self.mix_u64(bytes.len() as u64);
    }

    /// Adds a number to the fingerprint. The rotation lets high bits come to act on low ones.
    pub(super) fn mix_u64(&mut self, number: u64) {
        let mixed = (self.fingerprint ^ number).wrapping_mul(0x0000_0100_0000_01B3);
        self.fingerprint = mixed.rotate_left(29);
    }

    /// Whether somebody reads the words.
    pub(super) const fn is_read(&self) -> bool {
        self.sink.is_some()
    }

    /// Says what happened at `at`.
    pub(super) fn say(&mut self, at: Time, what: fmt::Arguments<'_>) {
        if let Some(sink) = &mut self.sink {
            let micros = at.as_nanos() / 1000;
            sink(format_args!(
                "{:>6}.{:06} {what}",
                micros / 1_000_000,
                micros % 1_000_000
            ));
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({:016x})", self.fingerprint)
    }
}
