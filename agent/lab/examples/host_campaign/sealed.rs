//! Opens the datagrams of worlds whose members seal them, for traces: by the format that `aead.rs` of the agent
//! documents, and with the keys of the world.

use aes_gcm_siv::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use base64ct::{Base64, Encoding as _};

/// The lines of keys: of the group's, of the one for which an operator exchanges that, and of one that no member has.
const KEY: &str = "2532abf4 64JPJoNWAGqDRXMlp86NJOn4Pm79z/RFgXWNuF0ROFw=\n";
const NEXT_KEY: &str = "5051f793 OljLGFWHWoM1f/ZlrQhbgfOI43XZSpGhAmAvyHN6o38=\n";
const OTHER_KEY: &str = "c49150ba THlfwFv1+3J0Q/YbAnroQXZ52turDt8e6il+321yOwo=\n";
const CONTEXT: &str = "distlock 2026-11 datagrams of one life of one member";
const SEALED: u8 = 0x80;
const HEADER: usize = 36;
const TAG: usize = 16;

/// How often an operator replaces a key file to exchange the group's key: see distlock.toml(5), KEYS.
pub(crate) const ROUNDS: usize = 3;

/// What a key file has after `round` rounds. Each has another length, so that an agent sees that its file has changed.
pub(crate) fn key_file(round: usize) -> String {
    match round {
        0 => KEY.to_owned(),
        1 => [KEY, NEXT_KEY].concat(),
        2 => ["# the new one seals\n", NEXT_KEY, KEY].concat(),
        _ => ["# the new one\n", NEXT_KEY].concat(),
    }
}

/// What the key file of a host has that is not to be in the group.
pub(crate) fn other_key_file() -> String {
    ["# another\n", OTHER_KEY].concat()
}

/// A sealed datagram that was opened.
#[derive(Debug)]
pub(crate) enum Opened {
    /// It is a datagram of the core.
    Datagram(Vec<u8>),
    Challenge,
    Answer,
}

/// Whether `bytes` are a sealed datagram.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|version| version & SEALED != 0)
}

/// What is in a sealed datagram, if it is authentic by any of the keys.
pub(crate) fn open(bytes: &[u8]) -> Option<Opened> {
    [KEY, NEXT_KEY, OTHER_KEY]
        .iter()
        .find_map(|key| open_with(key, bytes))
}

fn open_with(key: &str, bytes: &[u8]) -> Option<Opened> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let (body, tag) = rest.split_last_chunk::<TAG>()?;
    let key = key.split_ascii_whitespace().next_back()?;
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&Base64::decode_vec(key).ok()?);
    // From which member, and of which incarnation.
    hasher.update(&header[4..6]).update(&header[12..28]);
    let cipher = Aes256GcmSiv::new(hasher.finalize().as_bytes().into());
    let mut nonce = Nonce::default();
    nonce[4..].copy_from_slice(&header[28..]);
    let mut body = body.to_vec();
    let inout = body.as_mut_slice().into();
    cipher
        .decrypt_inout_detached(&nonce, header, inout, tag.into())
        .ok()?;
    Some(match header[1] {
        0 => Opened::Datagram(body),
        1 => Opened::Challenge,
        _ => Opened::Answer,
    })
}
