//! What a fuzzer plays with: everything that bytes from elsewhere get to. Only there when it does.
//!
//! A panic is a finding, and so is what the assertions here say. Checksums are made right, as nothing
//! behind them would be reached otherwise.

mod core;
mod sealed;
mod service;

pub use self::core::core;
pub use self::sealed::sealed;
pub use self::service::service;

use crate::protocol::NodeId;
use crate::protocol::membership::greeting::Greeting;
use crate::protocol::wire::{self, Body, GroupId, Kind, merged};
use crate::runtime::frames;

/// The decoder of datagrams: what it takes is what it would write.
pub fn datagram(bytes: &[u8]) {
    let group = GroupId::of("fuzz");
    let mut bytes = bytes.to_vec();
    // As they are, and as they would be if nothing were wrong with their frame.
    let _ = wire::decode(group, &bytes);
    if !wire::correct(group, &mut bytes) {
        return;
    }
    let (one, two) = (NodeId::new(1), NodeId::new(2));
    if let (Some(one), Some(two)) = (one, two) {
        let _ = merged::read(group, one, two, &bytes);
    }
    let Ok((header, payload)) = wire::decode(group, &bytes) else {
        return;
    };
    match header.kind {
        Kind::Greeting => drop(wire::decode_all::<Greeting>(payload)),
        Kind::Notice => drop(wire::decode_all::<Body>(payload)),
        Kind::Frames => {
            let Ok(frames) = wire::decode_frames(payload) else {
                return;
            };
            assert_eq!(wire::encode_frames(group, &header, frames.iter()), bytes);
            for frame in &frames {
                drop(wire::decode_all::<Body>(&frame.bytes));
            }
        }
    }
}

/// The decoders of what a client says to its agent, and an agent to its client.
pub fn client(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((message, len))) = frames::take(rest, frames::MAX_TO_AGENT) {
        let message: frames::ToAgent = message;
        assert!(len <= rest.len() && len > 0, "{message:?}");
        rest = &rest[len..];
    }
    let _ = frames::take::<frames::FromAgent>(bytes, frames::MAX_FROM_AGENT);
}
