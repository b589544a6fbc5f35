//! The keys of a group, and the file that has them.
//!
//! ```text
//! # A line that begins with # says nothing.
//! 6f1d2c9b kq0…(32 bytes, base64)
//! ```
//! Each line has a key's id and the key. The first key seals; all of them open. So a key is changed
//! without a pause: the new one is added below the old one in every member's file, then put above
//! it everywhere, then the old one is removed.

mod error;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::{fmt, io};

use base64ct::{Base64, Encoding};
use zeroize::{Zeroize, Zeroizing};

use crate::runtime::disk::trust::{self, PathTrustError};

pub use self::error::{KeyFileError, KeyWriteError};

/// The length of a key, in bytes.
pub(super) const KEY: usize = 32;
/// The most keys in one file: the present one, those before and after it, and one to spare.
pub const MAX_KEYS: usize = 4;
/// What the path of a key begins with that systemd keeps for the service (`LoadCredential=`).
pub const CREDENTIAL: &str = "$CREDENTIALS_DIRECTORY/";
pub(super) const ID_CONTEXT: &str = "distlock 2026-11 id of a group's key";

/// Which key it is, for people and in datagrams: it follows from the key, and tells nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; Self::LEN]);

impl KeyId {
    pub(crate) const LEN: usize = 4;

    pub(crate) fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// A secret that all members of a group have, and nobody else. Its memory is cleared at its end.
pub struct GroupKey {
    id: KeyId,
    secret: Zeroizing<[u8; KEY]>,
}

impl GroupKey {
    /// Draws a new one.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let mut secret = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut *secret)?;
        Ok(Self::new(secret))
    }

    /// The key that is `secret`.
    pub fn new(secret: Zeroizing<[u8; KEY]>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(ID_CONTEXT);
        hasher.update(&*secret);
        let mut id = [0; KeyId::LEN];
        finish(&mut hasher, &mut id);
        Self {
            id: KeyId(id),
            secret,
        }
    }

    /// Which one it is.
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(super) fn secret(&self) -> &[u8; KEY] {
        &self.secret
    }

    /// Writes it as the only key of the new file `path`, which its owner alone may read.
    ///
    /// # Errors
    /// If there is something called `path` already, which is left as it is, others can decide what
    /// is in its directory, or the file cannot be written; then none is left behind.
    pub fn write(&self, path: &Path) -> Result<(), KeyWriteError> {
        let failed = |source: io::Error| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::AlreadyExists => KeyWriteError::Exists { path },
                _ => KeyWriteError::Io { path, source },
            }
        };
        // The file itself is made anew, through no link.
        let directory = path.parent().unwrap_or(path);
        trust::way(&Path::new(".").join(directory)).map_err(|why| match why {
            PathTrustError::Io { source, .. } => failed(source),
            why => {
                let path = path.to_owned();
                KeyWriteError::Unsafe { path, why }
            }
        })?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        let text = Zeroizing::new(format!(
            "# The key of a distlock group: whoever has it can be a member. Keep it secret.\n\
             {} {}\n",
            self.id,
            *Zeroizing::new(Base64::encode_string(&*self.secret)),
        ));
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        written
            .inspect_err(|_| drop(std::fs::remove_file(path)))
            .map_err(failed)
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupKey({})", self.id)
    }
}

/// Fills `out` with what `hasher` makes, and clears it. Its reader has what was hashed last, which is
/// the secret itself, and is cleared too.
pub(super) fn finish(hasher: &mut blake3::Hasher, out: &mut [u8]) {
    let mut reader = hasher.finalize_xof();
    reader.fill(out);
    reader.zeroize();
    hasher.zeroize();
}

/// The keys of a group that are good at present; at least one.
#[derive(Debug)]
pub struct KeyRing(Vec<GroupKey>);

impl KeyRing {
    /// `keys`, of which there is at least one. The first one seals.
    pub fn new(keys: Vec<GroupKey>) -> Self {
        Self(keys)
    }

    /// The key that seals.
    pub(super) fn first(&self) -> &GroupKey {
        &self.0[0]
    }

    pub(super) fn find(&self, id: KeyId) -> Option<&GroupKey> {
        self.0.iter().find(|key| key.id == id)
    }

    /// Their ids; that of the key that seals comes first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.0.iter().map(GroupKey::id)
    }

    pub(super) fn parse(text: &str) -> Result<Self, Flaw> {
        // Were it to grow, it would leave keys behind that nothing clears.
        let mut keys: Vec<GroupKey> = Vec::with_capacity(MAX_KEYS);
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = parse_key(line).map_err(|why| Flaw::Line { number, why })?;
            if keys.iter().any(|known| known.id == key.id) {
                let why = "this key is there already: remove the line";
                return Err(Flaw::Line { number, why });
            }
            if keys.len() == MAX_KEYS {
                let why = "there are too many keys: remove those that no member seals with";
                return Err(Flaw::Line { number, why });
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(Flaw::Empty);
        }
        Ok(Self::new(keys))
    }
}

fn parse_key(line: &str) -> Result<GroupKey, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let (Some(id), Some(text), None) = (words.next(), words.next(), words.next()) else {
        return Err("a key's line has its id, a space, and the key, as distlock keygen writes it");
    };
    let mut secret = Zeroizing::new([0; KEY]);
    match Base64::decode(text, &mut *secret) {
        Ok(bytes) if bytes.len() == KEY => {}
        _ => return Err("this is no key of 32 bytes in base64: copy the line again"),
    }
    let key = GroupKey::new(secret);
    if key.id.to_string() != id {
        return Err("the id is not that of the key: one of them is damaged; copy the line again");
    }
    Ok(key)
}

/// What is wrong with the text of a key file.
#[derive(Debug)]
pub(super) enum Flaw {
    Line { number: usize, why: &'static str },
    Empty,
}
