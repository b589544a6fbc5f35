//! Datagrams: a fixed header, frames, and a checksum.
//!
//! ```text
//!  0 version (1)   1 kind   2 flags (1 ping, 2 to be passed on, 4 passed on, 8 deaf)   3 zero
//!  4 from          6 to
//!  8 group: the first 8 bytes of BLAKE3 of the group's name
//! 16 epoch of the frames
//! 20 sender's incarnation
//! 28 receiver's incarnation, as far as the sender knows it; else 0
//! 36 acknowledged: all frames up to this one have arrived
//! 44 selective: bit i is set if frame acknowledged + 2 + i has arrived
//! 52 sequence number of the first frame
//! 60 kind 0: a greeting; kind 1: frames, each flags (1 byte), length (2 bytes), bytes; kind 2: one
//!    body, which is not repeated if it is lost; kinds 3 and 4 are for multicast (`merged.rs`)
//! -4 CRC-32C (RFC 3720, Castagnoli) of all before it
//! ```
//! All numbers are big-endian. What stands in greetings and frames is postcard's wire format,
//! version 1. Nothing is read past the checksum before the checksum is found right; UDP's own is
//! optional, and too weak.

pub mod merged;

use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::checksum::crc_32c;
use super::election::ElectionMessage;
use super::ids::{Epoch, Incarnation, LockName, NodeId};
use super::lock::{LockMessage, LockSpec};
use super::membership::ViewMessage;
use super::membership::greeting::first_8;

/// The version of the wire format.
pub const VERSION: u8 = 5;
/// The longest datagram, in bytes: with a seal 1400, which fit one Ethernet frame, with IPv6 and some
/// tunnels.
pub const MAX_DATAGRAM: usize = 1348;

const HEADER: usize = 60;
const CHECKSUM: usize = 4;
/// Where the flags are, and what they are.
const FLAGS: usize = 2;
const PING: u8 = 1;
const PASS_ON: u8 = 2;
const PASSED: u8 = 4;
const DEAF: u8 = 8;
const FRAME_HEADER: usize = 3;
/// The longest payload of one frame, in bytes; longer bodies are cut into several frames.
pub(crate) const MAX_FRAME: usize = MAX_DATAGRAM - HEADER - CHECKSUM - FRAME_HEADER;

/// The number of a group, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(u64);

impl GroupId {
    pub fn of(name: &str) -> Self {
        Self(first_8(blake3::hash(name.as_bytes()).as_bytes()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Greeting,
    Frames,
    /// One body that nobody repeats if it is lost: whatever matters of it is said again.
    Notice,
}

/// How a datagram reaches its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// From the sender itself.
    #[default]
    Direct,
    /// It is for another member, and whoever gets it is to pass it on there.
    PassOn,
    /// Another member has passed it on.
    Passed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Whether an answer is wanted: "are you still there?"
    pub ping: bool,
    pub route: Route,
    /// Whether the sender hears the receiver only by way of others.
    pub deaf: bool,
    pub from: NodeId,
    pub to: NodeId,
    pub epoch: Epoch,
    pub from_incarnation: Incarnation,
    pub to_incarnation: Incarnation,
    pub acknowledged: u64,
    pub selective: u64,
    pub first: u64,
}

/// A piece of a body, or a whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whether the body goes on in the next frame.
    pub more: bool,
    /// Whether it wants to be acknowledged at once, as nothing else need come back.
    pub prompt: bool,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn wire_len(&self) -> usize {
        FRAME_HEADER + self.bytes.len()
    }
}

/// The room for frames in one datagram, in bytes.
pub(crate) const FRAMES_ROOM: usize = MAX_DATAGRAM - HEADER - CHECKSUM;

/// What links carry. The order is that of the wire format: append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    View(ViewMessage),
    Lock(LockMessage),
    /// To the coordinator: how is this lock served? I wish it were so.
    Declare {
        lock: LockName,
        wish: Option<LockSpec>,
    },
    /// From the coordinator: so; `None`: there is no room for another lock.
    Declared {
        lock: LockName,
        spec: Option<LockSpec>,
    },
    Note {
        bytes: Vec<u8>,
    },
    /// I leave.
    Bye,
    Election(ElectionMessage),
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drop {
    /// Shorter or longer than any datagram of ours, or cut off.
    Length,
    /// Of another version of the wire format.
    Version,
    /// Damaged on the way.
    Checksum,
    /// Of another group.
    Group,
    /// Not for this member, or not from the member whose address it came from.
    Address,
    /// The checksum is right and the content is not.
    Malformed,
    /// Of a former incarnation of the sender, or for one of the receiver.
    Stale,
    /// From a member whose settings differ, or that has not said yet.
    Stranger,
    /// For an epoch to come, while too much of it waits already. It will be repeated.
    Early,
}

pub fn encode_frames<'a>(
    group: GroupId,
    header: &Header,
    frames: impl Iterator<Item = &'a Frame>,
) -> Vec<u8> {
    let mut bytes = encode_header(group, header);
    for frame in frames {
        bytes.push(u8::from(frame.more) | u8::from(frame.prompt) << 1);
        let len = u16::try_from(frame.bytes.len()).expect("a frame is at most MAX_FRAME long");
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&frame.bytes);
    }
    seal(bytes)
}

pub(crate) fn encode_greeting(
    group: GroupId,
    header: &Header,
    greeting: &impl Serialize,
) -> Vec<u8> {
    let bytes = encode_header(group, header);
    let bytes = postcard::to_extend(greeting, bytes).expect("a greeting can be written");
    seal(bytes)
}

pub(crate) fn encode_notice(group: GroupId, header: &Header, body: &[u8]) -> Vec<u8> {
    let mut bytes = encode_header(group, header);
    bytes.extend_from_slice(body);
    seal(bytes)
}

fn encode_header(group: GroupId, header: &Header) -> Vec<u8> {
    let kind = match header.kind {
        Kind::Greeting => 0,
        Kind::Frames => 1,
        Kind::Notice => 2,
    };
    let ping = if header.ping { PING } else { 0 };
    let deaf = if header.deaf { DEAF } else { 0 };
    let flags = ping | deaf | route_flags(header.route);
    let mut head = [0; HEADER];
    head[..4].copy_from_slice(&[VERSION, kind, flags, 0]);
    head[4..6].copy_from_slice(&header.from.as_u16().to_be_bytes());
    head[6..8].copy_from_slice(&header.to.as_u16().to_be_bytes());
    head[8..16].copy_from_slice(&group.0.to_be_bytes());
    head[16..20].copy_from_slice(&header.epoch.as_u32().to_be_bytes());
    let (numbers, _) = head[20..].as_chunks_mut();
    for (place, number) in numbers.iter_mut().zip([
        header.from_incarnation.0,
        header.to_incarnation.0,
        header.acknowledged,
        header.selective,
        header.first,
    ]) {
        *place = number.to_be_bytes();
    }
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&head);
    bytes
}

const fn route_flags(route: Route) -> u8 {
    match route {
        Route::Direct => 0,
        Route::PassOn => PASS_ON,
        Route::Passed => PASSED,
    }
}

/// The same datagram for another way to its receiver. `bytes` must be a whole one.
pub(crate) fn reroute(bytes: &[u8], route: Route) -> Vec<u8> {
    let mut bytes = bytes[..bytes.len() - CHECKSUM].to_vec();
    bytes[FLAGS] = (bytes[FLAGS] & !(PASS_ON | PASSED)) | route_flags(route);
    seal(bytes)
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc_32c(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Makes version, group and checksum right; whether there is room for them.
pub fn correct(group: GroupId, bytes: &mut [u8]) -> bool {
    if bytes.len() < HEADER + CHECKSUM {
        return false;
    }
    bytes[0] = VERSION;
    bytes[8..16].copy_from_slice(&group.0.to_be_bytes());
    let (sealed, checksum) = bytes.split_at_mut(bytes.len() - CHECKSUM);
    checksum.copy_from_slice(&crc_32c(sealed).to_be_bytes());
    true
}

/// Reads and checks all of a datagram but its payload, which is returned.
pub fn decode(group: GroupId, bytes: &[u8]) -> Result<(Header, &[u8]), Drop> {
    // Greetings may be longer than MAX_DATAGRAM, by one long line of settings.
    if bytes.len() < HEADER + CHECKSUM || bytes.len() > 2 * MAX_DATAGRAM {
        return Err(Drop::Length);
    }
    let sealed = checked(bytes)?;
    let (mut header, payload) = sealed.split_at(HEADER);
    let [_, kind, flags, zero] = take(&mut header);
    let from = u16::from_be_bytes(take(&mut header));
    let to = u16::from_be_bytes(take(&mut header));
    if u64::from_be_bytes(take(&mut header)) != group.0 {
        return Err(Drop::Group);
    }
    let epoch = u32::from_be_bytes(take(&mut header));
    let [
        from_incarnation,
        to_incarnation,
        acknowledged,
        selective,
        first,
    ] = core::array::from_fn(|_| u64::from_be_bytes(take(&mut header)));
    let kind = match kind {
        0 => Kind::Greeting,
        1 => Kind::Frames,
        2 => Kind::Notice,
        _ => return Err(Drop::Malformed),
    };
    let route = match flags & (PASS_ON | PASSED) {
        0 => Route::Direct,
        PASS_ON => Route::PassOn,
        PASSED => Route::Passed,
        _ => return Err(Drop::Malformed),
    };
    if flags & !(PING | DEAF | PASS_ON | PASSED) != 0 || zero != 0 {
        return Err(Drop::Malformed);
    }
    let header = Header {
        kind,
        ping: flags & PING != 0,
        route,
        deaf: flags & DEAF != 0,
        from: NodeId::new(from).ok_or(Drop::Malformed)?,
        to: NodeId::new(to).ok_or(Drop::Malformed)?,
        epoch: Epoch::new(epoch).ok_or(Drop::Malformed)?,
        from_incarnation: Incarnation(from_incarnation),
        to_incarnation: Incarnation(to_incarnation),
        acknowledged,
        selective,
        first,
    };
    Ok((header, payload))
}

/// All of a datagram but its checksum, which is right. It must be longer than that.
fn checked(bytes: &[u8]) -> Result<&[u8], Drop> {
    if bytes[0] != VERSION {
        return Err(Drop::Version);
    }
    let (sealed, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    if crc_32c(sealed).to_be_bytes() != checksum {
        return Err(Drop::Checksum);
    }
    Ok(sealed)
}

/// Who sent a whole datagram, of whatever group.
pub(crate) fn sender(bytes: &[u8]) -> Option<NodeId> {
    NodeId::new(u16::from_be_bytes([*bytes.get(4)?, *bytes.get(5)?]))
}

/// The next `N` bytes of a header, whose length was checked.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes
        .split_first_chunk()
        .expect("the header's length was checked");
    *bytes = rest;
    *first
}

/// The frames of a payload, which must be exactly filled by them.
pub fn decode_frames(mut payload: &[u8]) -> Result<Vec<Frame>, Drop> {
    let mut frames = Vec::new();
    while !payload.is_empty() {
        let (&[flags, high, low], rest) = payload.split_first_chunk().ok_or(Drop::Malformed)?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if flags > 3 || len > rest.len() {
            return Err(Drop::Malformed);
        }
        let (bytes, rest) = rest.split_at(len);
        frames.push(Frame {
            more: flags & 1 != 0,
            prompt: flags & 2 != 0,
            bytes: bytes.to_vec(),
        });
        payload = rest;
    }
    Ok(frames)
}

pub(crate) fn encode_body(body: &Body) -> Vec<u8> {
    // Long enough for what locks say.
    let bytes = Vec::with_capacity(128);
    postcard::to_extend(body, bytes).expect("a body can be written")
}

/// Reads all of `bytes` as a `T`.
pub fn decode_all<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Drop> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Drop::Malformed),
    }
}

#[cfg(test)]
mod tests;
