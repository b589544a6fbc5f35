//! The names of registers: which lock or session each is of, and back.
//!
//! A lock's name may have any bytes, and a key only plain ones. What is no letter, digit, `-` or `_` is
//! percent-encoded, so that each name has one key, and each key is of one name.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::record::SessionName;
use super::store::Key;
use crate::ids::LockName;

/// What the keys of a group's locks begin with.
pub fn lock_prefix(group: &str) -> Key {
    Key::new(format!("distlock/{group}/lock/"))
}

/// What the keys of a group's sessions begin with.
pub fn session_prefix(group: &str) -> Key {
    Key::new(format!("distlock/{group}/session/"))
}

/// Where the record of `lock` is.
pub fn lock_key(group: &str, lock: &LockName) -> Key {
    let mut key = String::from(lock_prefix(group).as_str());
    for byte in lock.as_bytes() {
        // A name of dots alone means something else to some stores.
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            key.push(char::from(*byte));
        } else {
            let _ = write!(key, "%{byte:02X}");
        }
    }
    Key::new(key)
}

/// Where the record of that session is.
pub fn session_key(group: &str, session: &SessionName) -> Key {
    Key::new(format!("{}{session}", session_prefix(group)))
}

/// The lock whose record is at `key`; `None` if no lock's of this group is.
pub fn lock_at(group: &str, key: &Key) -> Option<LockName> {
    let encoded = key.as_str().strip_prefix(lock_prefix(group).as_str())?;
    let mut name = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            byte => byte,
        });
    }
    // Whatever else may be decoded, a lock's record is at one key.
    let lock = LockName::new(name).ok()?;
    (lock_key(group, &lock) == *key).then_some(lock)
}

/// The session whose record is at `key`; `None` if no session's of this group is.
pub fn session_at(group: &str, key: &Key) -> Option<SessionName> {
    let name = key.as_str().strip_prefix(session_prefix(group).as_str())?;
    SessionName::from_key(name)
}

fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_plain_whatever_the_name() {
        let key = |name: &[u8]| lock_key("g", &LockName::new(name).unwrap());
        assert_eq!(key(b"a/b").as_str(), "distlock/g/lock/a%2Fb");
        assert_eq!(key(b"..").as_str(), "distlock/g/lock/%2E%2E");
        assert_eq!(key(b"\xff _-Z9").as_str(), "distlock/g/lock/%FF%20_-Z9");
    }

    #[test]
    fn each_key_is_of_the_lock_that_it_was_made_of() {
        for byte in 1..=u8::MAX {
            let lock = LockName::new([byte, b'a', byte]).unwrap();
            assert_eq!(lock_at("g", &lock_key("g", &lock)), Some(lock));
        }
        let session = SessionName::new(5);
        assert_eq!(session_at("g", &session_key("g", &session)), Some(session));
    }

    #[test]
    fn no_lock_is_at_a_key_that_no_lock_has() {
        for wrong in ["", "%2f", "%41", "%4", "%", "%zz", "a/b", "%00", "."] {
            let key = Key::new(format!("distlock/g/lock/{wrong}"));
            assert_eq!(lock_at("g", &key), None, "{wrong}");
        }
        let lock = LockName::new("a").unwrap();
        assert_eq!(lock_at("h", &lock_key("g", &lock)), None);
        assert_eq!(session_at("g", &Key::new("distlock/g/session/")), None);
        assert_eq!(session_at("g", &Key::new("distlock/g/session/a/b")), None);
    }
}
