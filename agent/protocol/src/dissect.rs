//! Which of the algorithms' messages a datagram carries: for the traces of agents, and for the
//! history of simulated ones.

use alloc::vec::Vec;

use crate::ids::LockName;
use crate::wire::{Body, Header, Kind, decode_all, decode_frames};

/// A message between two members' engines.
#[derive(Debug)]
pub struct Carried {
    /// Its number on the link, from 1.
    pub number: u64,
    /// What the algorithm calls it.
    pub kind: &'static str,
    /// The lock, or the election.
    pub lock: LockName,
    /// Whether it is an election's.
    pub elects: bool,
}

/// The engines' messages in a datagram whose checksum was right. One that takes several frames is
/// not among them; engines' messages are short.
pub fn engine_messages(header: &Header, payload: &[u8]) -> Vec<Carried> {
    if header.kind != Kind::Frames {
        return Vec::new();
    }
    let frames = decode_frames(payload).unwrap_or_default();
    let mut messages = Vec::new();
    for (number, frame) in (header.first..).zip(frames) {
        if frame.more {
            continue;
        }
        let (kind, lock, elects) = match decode_all(&frame.bytes) {
            Ok(Body::Lock(message)) => (message.body.kind(), message.lock, false),
            Ok(Body::Election(message)) => (message.kind(), message.lock, true),
            _ => continue,
        };
        messages.push(Carried {
            number,
            kind,
            lock,
            elects,
        });
    }
    messages
}
