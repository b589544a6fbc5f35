//! The decoder of datagrams: what it takes is what it would write. Checksums are made right, as
//! nothing behind them would be reached otherwise.
#![no_main]

use distlock_agent::protocol::NodeId;
use distlock_agent::protocol::membership::greeting::Greeting;
use distlock_agent::protocol::wire::{self, Body, GroupId, Kind, merged};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
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
});
