//! The names of things: members, their incarnations, epochs, requests, locks, fences.
//!
//! Each is a type of its own, checked where it is made, so that the rules further in need not.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::{NonZeroU16, NonZeroU64, ParseIntError};
use core::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A member's number in the configuration: 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(NonZeroU16);

impl NodeId {
    /// The member with this number; `None` for 0, which names nobody.
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0.get()
    }
}

impl From<NodeId> for u16 {
    fn from(id: NodeId) -> Self {
        id.as_u16()
    }
}

impl TryFrom<u16> for NodeId {
    type Error = ParseNodeIdError;

    fn try_from(id: u16) -> Result<Self, ParseNodeIdError> {
        Self::new(id).ok_or(ParseNodeIdError)
    }
}

impl FromStr for NodeId {
    type Err = ParseNodeIdError;

    fn from_str(text: &str) -> Result<Self, ParseNodeIdError> {
        text.parse().map(Self).map_err(|_| ParseNodeIdError)
    }
}

/// Why a number or a text is no [`NodeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a member's number is a whole number from 1 to 65535")]
pub struct ParseNodeIdError;

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One incarnation of a member: it rises with every start, so that what an earlier incarnation sent,
/// held or promised is never taken for the present one's.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Incarnation(pub u64);

/// The number of a view. Epochs only rise, also over restarts, and fit 31 bits (the upper half of
/// a [`Fence`]). Zero is "no view yet".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(u32);

impl Epoch {
    /// Before the first view.
    pub const ZERO: Self = Self(0);
    /// The last epoch there can be: one view a second reaches it in 2093.
    pub const MAX: Self = Self((1 << 31) - 1);

    /// The epoch with this number; `None` above [`Epoch::MAX`].
    pub const fn new(epoch: u32) -> Option<Self> {
        if epoch <= Self::MAX.0 {
            Some(Self(epoch))
        } else {
            None
        }
    }

    /// The epoch after this one; `None` after the last.
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The number.
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One wish to enter, unique for ever: the member, its incarnation, and a number that rises within
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// Who asks.
    pub node: NodeId,
    /// In which incarnation.
    pub incarnation: Incarnation,
    /// Which of that incarnation's requests.
    pub seq: u64,
}

/// What a local caller calls its request: chosen by the caller, unique within one [`Node`].
///
/// [`Node`]: super::Node
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A lock's name: 1 to 255 bytes, none of them NUL. Two names are the same lock only if every byte
/// is the same. A clone shares the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<[u8]>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Checks `name`.
    ///
    /// # Errors
    /// What is wrong with it: empty, longer than [`LockName::MAX_LEN`], or with a NUL byte.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let name = name.as_ref();
        if name.is_empty() {
            Err(NameError::Empty)
        } else if name.len() > Self::MAX_LEN {
            Err(NameError::TooLong { len: name.len() })
        } else if name.contains(&0) {
            Err(NameError::Nul)
        } else {
            Ok(Self(name.into()))
        }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for LockName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

/// As bytes, which in postcard are what a sequence of bytes is.
impl Serialize for LockName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for LockName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl<'de> Visitor<'de> for Name {
            type Value = LockName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a lock's name")
            }

            fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<LockName, E> {
                LockName::new(name).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<LockName, A::Error> {
                let mut name = Vec::new();
                while let Some(byte) = bytes.next_element()? {
                    name.push(byte);
                }
                self.visit_bytes(&name)
            }
        }

        deserializer.deserialize_bytes(Name)
    }
}

/// Whether `c` is seen as what it is. Control characters are not, nor those that are not seen at
/// all, or change how others are: as U+202E does, which reverses what follows.
pub fn is_displayable(c: char) -> bool {
    // The standard library knows which these are. It also escapes quotes, and a mark that has no
    // character to stand on: so it is given one.
    let mut buffer = [b'x'; 5];
    let len = 1 + c.encode_utf8(&mut buffer[1..]).len();
    let text = core::str::from_utf8(&buffer[..len]).unwrap_or_default();
    matches!(c, '\\' | '\'' | '"') || text.escape_debug().count() == 2
}

/// As text; bytes that are not UTF-8, characters that are not [displayable](is_displayable) and the
/// backslash are escaped, so that two names never look the same.
impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if !is_displayable(c) || c == '\\' {
                    write!(f, "{}", c.escape_default())?
                } else {
                    write!(f, "{c}")?
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Why a name is no lock's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It has no bytes.
    #[error("a lock's name may not be empty")]
    Empty,
    /// It has more than [`LockName::MAX_LEN`] bytes.
    #[error("a lock's name may have at most 255 bytes, this one has {len}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// It has a NUL byte.
    #[error("a lock's name may not contain a NUL byte")]
    Nul,
}

/// A fencing token: every grant of a lock has a larger one than all grants before it, also over
/// restarts. Hand it to the resource, and let the resource refuse a lower one than it has seen.
///
/// The upper half is the [`Epoch`] (31 bits, so that a fence fits a signed 64-bit integer), the
/// lower half a counter of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(NonZeroU64);

impl Fence {
    /// The fence with this value; `None` for 0, which is no fence, and above `i64::MAX`.
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(value) if value.get() <= i64::MAX as u64 => Some(Self(value)),
            _ => None,
        }
    }

    /// The fence of grant number `counter` of a lock in `epoch`; `None` if both are zero.
    pub const fn from_parts(epoch: Epoch, counter: u32) -> Option<Self> {
        Self::new(((epoch.0 as u64) << 32) | counter as u64)
    }

    /// The value.
    pub const fn as_u64(self) -> u64 {
        self.0.get()
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.as_u64()
    }
}

impl TryFrom<u64> for Fence {
    type Error = ParseFenceError;

    fn try_from(value: u64) -> Result<Self, ParseFenceError> {
        Self::new(value).ok_or(ParseFenceError::OutOfRange)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Fence {
    type Err = ParseFenceError;

    fn from_str(text: &str) -> Result<Self, ParseFenceError> {
        Self::try_from(text.parse::<u64>()?)
    }
}

/// Why a text is no [`Fence`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseFenceError {
    /// It is not a decimal number.
    #[error("a fence is a decimal number: {0}")]
    NotANumber(ParseIntError),
    /// It is 0 or above 2^63 - 1.
    #[error("a fence lies between 1 and 9223372036854775807")]
    OutOfRange,
}

impl From<ParseIntError> for ParseFenceError {
    fn from(error: ParseIntError) -> Self {
        Self::NotANumber(error)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_fence_comes_back_from_its_words_and_its_number() {
        let fence = Fence::new(77).unwrap();
        assert_eq!(fence.to_string().parse(), Ok(fence));
        assert_eq!(Fence::try_from(u64::from(fence)), Ok(fence));
        for wrong in ["0", "9223372036854775808"] {
            assert_eq!(wrong.parse::<Fence>(), Err(ParseFenceError::OutOfRange));
        }
        assert!("-1".parse::<Fence>().is_err());
    }

    #[test]
    fn names_that_differ_look_different() {
        let shown = |name: &[u8]| LockName::new(name).unwrap().to_string();
        assert_eq!(shown(b"printer 1"), "printer 1");
        assert_eq!(shown("\u{fc}\n".as_bytes()), "\u{fc}\\n");
        // Four characters behind a backslash, and one byte.
        assert_eq!(shown(br"back\xff"), r"back\\xff");
        assert_eq!(shown(b"back\xff"), r"back\xff");
    }

    #[test]
    fn what_could_mislead_is_escaped() {
        let shown = |name: &str| LockName::new(name).unwrap().to_string();
        for plain in [
            "a b",
            "Zähler",
            "नमस्ते",
            "e\u{301}",
            "印",
            "it's \"x\"",
            "🔒",
        ] {
            assert_eq!(shown(plain), plain);
        }
        for (name, escaped) in [
            ("a\u{202e}b", r"a\u{202e}b"),
            ("\u{2066}x\u{200b}", r"\u{2066}x\u{200b}"),
            ("a\u{a0}b\u{2028}", r"a\u{a0}b\u{2028}"),
            ("\n\u{1b}[m", r"\n\u{1b}[m"),
            (r"\n", r"\\n"),
        ] {
            assert_eq!(shown(name), escaped);
        }
    }
}
