//! One datagram for several members, where the network has multicast.
//!
//! What goes to several members at once, a request or a release, has the same body for all of them.
//! In front of it in a datagram there may be a reply, which names each one's own request: a member
//! that leaves and asks again at once says both. What links say differs, too: acknowledgements,
//! sequence numbers, incarnations. A merged datagram has what differs once for each receiver, and the
//! rest once for all. Each receiver takes its own out of it: the very datagram of kind 1 that it would
//! have been sent. So links, and all above them, know nothing of it.
//!
//! ```text
//!  0 version (1)   1 kind: 3   2 zero   3 how many receivers
//!  4 from          6 zero (2)
//!  8 group         16 epoch of the frames         20 sender's incarnation
//! 28 where in the frames that part begins which differs (2)   30 its length (1)   31 zero
//! 32 the receivers, by ascending number, each: flags (1: 1 ping, 8 deaf), to (2), receiver's
//!    incarnation (8), acknowledged (8), selective (8), sequence number of the first frame (8),
//!    its part of the frames
//!    the frames, at least one, as in kind 1, without that part
//! -4 CRC-32C of all before it
//! ```
//!
//! Not every network carries multicast to everybody, and none says so. So each member reports, by
//! multicast, whose multicast has reached it; who finds itself there is heard, and hears:
//!
//! ```text
//!  0 version (1)   1 kind: 4   2 zero (2)
//!  4 from          6 how many members
//!  8 group
//! 16 the members that it hears (2 each), ascending
//! -4 CRC-32C of all before it
//! ```
//!
//! Only frames are merged, and only when they are sent for the first time: what a link repeats goes
//! to its member alone. So where multicast is lost without a word everything still arrives, one
//! repetition later. Greetings, pings and bare acknowledgements, by which members know that others
//! are there, and notices, which nobody repeats, never depend on it.

//!
//! What comes back could be merged as well, along a tree: each relay would wait for the replies
//! below it, and pass on one. It is not done. The group is small, so there is little to gain, and
//! much to lose: each level of the tree adds the time of a datagram to every entry; a relay that
//! crashes holds up all below it until the next view; and each reply is a permission, which the
//! requester must know to have of each member by itself.

use alloc::vec::Vec;
use core::iter;
use core::ops::Range;

use super::{
    CHECKSUM, DEAF, Drop, FLAGS, GroupId, HEADER, MAX_DATAGRAM, PING, VERSION, checked, seal, take,
};
use crate::ids::NodeId;

const FRAMES: u8 = 1;
const MERGED: u8 = 3;
const REPORT: u8 = 4;
/// Where in a datagram of kind 1 things begin.
const TO: usize = 6;
const GROUP: usize = 8;
const FROM_INCARNATION: usize = 20;
const TO_INCARNATION: usize = 28;
const ACKNOWLEDGED: usize = 36;
const FIRST: usize = 52;
/// The length of what all receivers have in common before their own, and of one's without frames.
const COMMON: usize = 32;
const RECEIVER: usize = 35;
/// The longest part of frames, in bytes, in which those that are merged may differ: a reply's, with
/// which another member's request is named.
const MAX_DIFFERENCE: usize = 64;
const REPORT_HEADER: usize = 16;
/// The most members that one report can list.
pub const MAX_REPORTED: usize = (MAX_DATAGRAM - REPORT_HEADER - CHECKSUM) / 2;

/// A whole datagram of frames that goes from its sender to its receiver itself: one that can be
/// merged with its like.
#[derive(Clone, Copy, Debug)]
pub struct Mergeable<'a>(&'a [u8]);

/// What tells a frame of one link from all others on it: the incarnations of both ends, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    pub incarnations: &'a [u8],
    pub first: u64,
}

impl<'a> Mergeable<'a> {
    /// `bytes`, which this program has encoded, if they can be merged.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let has_frames = bytes.len() > HEADER + CHECKSUM && bytes[1] == FRAMES;
        let is_direct = has_frames && bytes[FLAGS] & !(PING | DEAF) == 0;
        is_direct.then_some(Self(bytes))
    }

    /// The receiver's number.
    pub(crate) fn to(self) -> u16 {
        u16::from_be_bytes([self.0[TO], self.0[TO + 1]])
    }

    /// Where on its link it stands.
    pub fn place(self) -> Place<'a> {
        let mut first = &self.0[FIRST..];
        Place {
            incarnations: &self.0[FROM_INCARNATION..ACKNOWLEDGED],
            first: u64::from_be_bytes(take(&mut first)),
        }
    }

    /// What those that can be merged have alike: the length of the frames, and their epoch.
    pub fn key(self) -> (usize, &'a [u8]) {
        (self.0.len(), &self.0[GROUP..TO_INCARNATION])
    }

    fn frames(self) -> &'a [u8] {
        &self.0[HEADER..self.0.len() - CHECKSUM]
    }

    /// Where its frames differ from others that are as long; empty if they do not.
    fn difference(self, other: Self) -> Range<usize> {
        let pairs = || iter::zip(self.frames(), other.frames());
        let Some(start) = pairs().position(|(a, b)| a != b) else {
            return 0..0;
        };
        let end = pairs().rposition(|(a, b)| a != b);
        start..end.map_or(start, |last| last + 1)
    }
}

/// Datagrams that go out as one.
#[derive(Debug)]
pub struct Merger<'a> {
    /// At least one, by ascending receivers.
    parts: Vec<Mergeable<'a>>,
    /// Where their frames differ.
    differs: Range<usize>,
}

impl<'a> Merger<'a> {
    pub fn new(first: Mergeable<'a>) -> Self {
        Self {
            parts: alloc::vec![first],
            differs: 0..0,
        }
    }

    /// Adds a datagram, unless it is too different, there is no room for it, or its receiver does
    /// not come after the last; whether it was added.
    pub fn add(&mut self, part: Mergeable<'a>) -> bool {
        let (first, last) = (self.parts[0], self.parts[self.parts.len() - 1]);
        if part.key() != first.key() || part.to() <= last.to() {
            return false;
        }
        let differs = union(&self.differs, first.difference(part));
        let len = COMMON
            + (self.parts.len() + 1) * (RECEIVER + differs.len())
            + (first.frames().len() - differs.len())
            + CHECKSUM;
        let is_full = self.parts.len() == usize::from(u8::MAX);
        if differs.len() > MAX_DIFFERENCE || len > MAX_DATAGRAM || is_full {
            return false;
        }
        self.differs = differs;
        self.parts.push(part);
        true
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// The one datagram.
    pub fn encode(&self) -> Vec<u8> {
        let first = self.parts[0];
        let mut bytes = Vec::with_capacity(MAX_DATAGRAM);
        bytes.extend_from_slice(&[VERSION, MERGED, 0, self.parts.len() as u8]);
        bytes.extend_from_slice(&first.0[4..TO]);
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&first.0[GROUP..TO_INCARNATION]);
        bytes.extend_from_slice(&(self.differs.start as u16).to_be_bytes());
        bytes.extend_from_slice(&[self.differs.len() as u8, 0]);
        for part in &self.parts {
            bytes.push(part.0[FLAGS]);
            bytes.extend_from_slice(&part.0[TO..GROUP]);
            bytes.extend_from_slice(&part.0[TO_INCARNATION..HEADER]);
            bytes.extend_from_slice(&part.frames()[self.differs.clone()]);
        }
        bytes.extend_from_slice(&first.frames()[..self.differs.start]);
        bytes.extend_from_slice(&first.frames()[self.differs.end..]);
        seal(bytes)
    }
}

/// The least range that has both in it; an empty one is in all.
fn union(a: &Range<usize>, b: Range<usize>) -> Range<usize> {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b,
        (_, true) => a.clone(),
        _ => a.start.min(b.start)..a.end.max(b.end),
    }
}

/// Says whom `from` hears by multicast: at most [`MAX_REPORTED`], ascending.
pub fn report(group: GroupId, from: NodeId, heard: &[NodeId]) -> Vec<u8> {
    let count = u16::try_from(heard.len()).expect("at most MAX_REPORTED");
    let mut bytes = Vec::with_capacity(REPORT_HEADER + 2 * heard.len() + CHECKSUM);
    bytes.extend_from_slice(&[VERSION, REPORT, 0, 0]);
    bytes.extend_from_slice(&from.as_u16().to_be_bytes());
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(&group.0.to_be_bytes());
    for node in heard {
        bytes.extend_from_slice(&node.as_u16().to_be_bytes());
    }
    seal(bytes)
}

/// What came by multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Multicast {
    /// The receiver's own datagram out of a merged one.
    Part(Vec<u8>),
    /// A merged datagram for others.
    ForOthers,
    /// Whether the sender is reached by the receiver's multicast.
    Report { hears_me: bool },
}

/// Reads what member `me` of `group` got by multicast from the address of member `from`.
///
/// # Errors
/// What is wrong with it. Nothing of it counts then.
pub fn read(group: GroupId, from: NodeId, me: NodeId, bytes: &[u8]) -> Result<Multicast, Drop> {
    if bytes.len() < REPORT_HEADER + CHECKSUM || bytes.len() > MAX_DATAGRAM {
        return Err(Drop::Length);
    }
    let sealed = checked(bytes)?;
    if sealed[GROUP..GROUP + 8] != group.0.to_be_bytes() {
        return Err(Drop::Group);
    }
    if sealed[4..TO] != from.as_u16().to_be_bytes() {
        return Err(Drop::Address);
    }
    match sealed[1] {
        MERGED => read_merged(me, sealed),
        REPORT => read_report(me, sealed),
        _ => Err(Drop::Malformed),
    }
}

fn read_merged(me: NodeId, sealed: &[u8]) -> Result<Multicast, Drop> {
    if sealed.len() < COMMON {
        return Err(Drop::Malformed);
    }
    let receivers = usize::from(sealed[3]);
    let differs_at = usize::from(u16::from_be_bytes([
        sealed[TO_INCARNATION],
        sealed[TO_INCARNATION + 1],
    ]));
    let differs = usize::from(sealed[TO_INCARNATION + 2]);
    let frames_at = COMMON + receivers * (RECEIVER + differs);
    let is_plain = sealed[2] == 0 && sealed[TO..GROUP] == [0, 0] && sealed[TO_INCARNATION + 3] == 0;
    let is_long_enough = sealed.len() + differs > frames_at && sealed.len() >= frames_at;
    if !is_plain || receivers == 0 || differs > MAX_DIFFERENCE || !is_long_enough {
        return Err(Drop::Malformed);
    }
    let (common, rest) = sealed.split_at(COMMON);
    let (listed, frames) = rest.split_at(frames_at - COMMON);
    let (before, after) = frames.split_at_checked(differs_at).ok_or(Drop::Malformed)?;
    let mut own = None;
    let mut last = 0;
    for receiver in listed.chunks_exact(RECEIVER + differs) {
        let to = u16::from_be_bytes([receiver[1], receiver[2]]);
        if to <= last || receiver[0] & !(PING | DEAF) != 0 {
            return Err(Drop::Malformed);
        }
        last = to;
        if to == me.as_u16() {
            own = Some(receiver.split_at(RECEIVER));
        }
    }
    let Some((link, part)) = own else {
        return Ok(Multicast::ForOthers);
    };
    let mut bytes = Vec::with_capacity(HEADER + frames.len() + differs + CHECKSUM);
    bytes.extend_from_slice(&[VERSION, FRAMES, link[0], 0]);
    bytes.extend_from_slice(&common[4..TO]);
    bytes.extend_from_slice(&link[1..3]);
    bytes.extend_from_slice(&common[GROUP..TO_INCARNATION]);
    bytes.extend_from_slice(&link[3..]);
    for piece in [before, part, after] {
        bytes.extend_from_slice(piece);
    }
    Ok(Multicast::Part(seal(bytes)))
}

fn read_report(me: NodeId, sealed: &[u8]) -> Result<Multicast, Drop> {
    let count = usize::from(u16::from_be_bytes([sealed[TO], sealed[TO + 1]]));
    let listed = &sealed[REPORT_HEADER..];
    if sealed[2..4] != [0, 0] || listed.len() != 2 * count {
        return Err(Drop::Malformed);
    }
    let numbers = || {
        listed
            .chunks_exact(2)
            .map(|id| u16::from_be_bytes([id[0], id[1]]))
    };
    if !iter::once(0).chain(numbers()).is_sorted_by(|a, b| a < b) {
        return Err(Drop::Malformed);
    }
    let hears_me = numbers().any(|id| id == me.as_u16());
    Ok(Multicast::Report { hears_me })
}

#[cfg(test)]
mod tests;
