//! The decoders of what a client says to its agent, and an agent to its client.
#![no_main]

use distlock_agent::runtime::frames::{self, FromAgent, ToAgent};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((message, len))) = frames::take::<ToAgent>(rest, frames::MAX_TO_AGENT) {
        assert!(len <= rest.len() && len > 0, "{message:?}");
        rest = &rest[len..];
    }
    let _ = frames::take::<FromAgent>(bytes, frames::MAX_FROM_AGENT);
});
