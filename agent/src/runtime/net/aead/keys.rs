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

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use base64ct::{Base64, Encoding};
use nix::unistd::geteuid;
use zeroize::{Zeroize, Zeroizing};

use crate::runtime::os::environment;

pub use self::error::{KeyFileError, KeyWriteError};
use crate::runtime::disk::trust::{self, PathTrustError};

/// The length of a key, in bytes.
const KEY: usize = 32;
/// The most keys in one file: the present one, those before and after it, and one to spare.
pub const MAX_KEYS: usize = 4;
/// What the path of a key begins with that systemd keeps for the service (`LoadCredential=`).
pub const CREDENTIAL: &str = "$CREDENTIALS_DIRECTORY/";
/// No key file is longer.
const MAX_FILE: u64 = 16 * 1024;
const ID_CONTEXT: &str = "distlock 2026-11 id of a group's key";

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

    fn parse(text: &str) -> Result<Self, Flaw> {
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
enum Flaw {
    Line { number: usize, why: &'static str },
    Empty,
}

/// A key file, and what is known of it since it was last read.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    stamp: Stamp,
    /// How often in a row it could not be had.
    misses: u32,
}

/// A file that is being replaced may be away for a moment, and the system may be short of something;
/// what lasts for so many looks is told.
const MISSES: u32 = 5;

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
    len: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            len: metadata.len(),
        }
    }
}

impl KeyFile {
    /// Reads the keys in the file `path`, which may begin with [`CREDENTIAL`].
    pub(crate) fn open(path: &Path) -> Result<(Self, KeyRing), KeyFileError> {
        let path = resolve(path, credentials())?;
        // The process may go to another directory, and the file is read again.
        let path = &*std::path::absolute(&path).unwrap_or(path.into_owned());
        let failed = |source| KeyFileError::Io {
            path: path.to_owned(),
            source,
        };
        match trust::way(path) {
            // The system says so below.
            Ok(_) | Err(PathTrustError::Io { .. }) => {}
            Err(why) => {
                let path = path.to_owned();
                return Err(KeyFileError::Unsafe { path, why });
            }
        }
        // Without waiting, should it be a pipe.
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut file = options.open(path).map_err(failed)?;
        // Of the very file that is read, whatever the path leads to next.
        let metadata = file.metadata().map_err(failed)?;
        check(path, &metadata)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE as usize + 1));
        let mut limited = (&mut file).take(MAX_FILE + 1);
        limited.read_to_end(&mut bytes).map_err(failed)?;
        let not_keys = |what| KeyFileError::NotKeys {
            path: path.to_owned(),
            what,
        };
        if bytes.len() as u64 > MAX_FILE {
            return Err(not_keys("is longer than any key file"));
        }
        let text = str::from_utf8(&bytes).map_err(|_| not_keys("is not a text"))?;
        let path = path.to_owned();
        let ring = match KeyRing::parse(text) {
            Ok(ring) => ring,
            Err(Flaw::Empty) => return Err(KeyFileError::Empty { path }),
            Err(Flaw::Line { number: line, why }) => {
                return Err(KeyFileError::Damaged { path, line, why });
            }
        };
        let stamp = Stamp::of(&metadata);
        let misses = 0;
        let file = Self {
            path,
            stamp,
            misses,
        };
        Ok((file, ring))
    }

    /// The keys, if the file has changed since it was last looked at.
    pub(crate) fn read_again(&mut self) -> Option<Result<KeyRing, KeyFileError>> {
        let looked = std::fs::metadata(&self.path);
        let stamp = looked.as_ref().map(Stamp::of).unwrap_or(self.stamp);
        let read = match looked {
            Ok(_) if stamp == self.stamp => {
                self.misses = 0;
                return None;
            }
            Ok(_) => Self::open(&self.path),
            Err(source) => Err(KeyFileError::Io {
                path: self.path.clone(),
                source,
            }),
        };
        match read {
            Ok((file, ring)) => {
                *self = file;
                Some(Ok(ring))
            }
            Err(error @ KeyFileError::Io { .. }) => {
                self.misses = self.misses.saturating_add(1);
                (self.misses == MISSES).then_some(Err(error))
            }
            Err(error) => {
                // Each state of the file is told of once.
                self.misses = 0;
                self.stamp = stamp;
                Some(Err(error))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), KeyFileError> {
    let path = || path.to_owned();
    if !metadata.is_file() {
        return Err(KeyFileError::NotAFile { path: path() });
    }
    let user = geteuid().as_raw();
    if metadata.uid() != user && metadata.uid() != 0 {
        return Err(KeyFileError::Stranger {
            path: path(),
            owner: metadata.uid(),
            user,
        });
    }
    let mode = metadata.mode() & 0o777;
    // What systemd gives a service belongs to root, and an access list lets the service read it: the
    // mode shows that list's bounds as the group's rights.
    let is_credential = metadata.uid() == 0 && user != 0 && mode == 0o440 && is_given(&path());
    if mode & 0o077 != 0 && !is_credential {
        return Err(KeyFileError::Loose { path: path(), mode });
    }
    Ok(())
}

/// Whether a file is one of this service's credentials.
fn is_given(path: &Path) -> bool {
    let goes_up = path.components().any(|it| it == Component::ParentDir);
    !goes_up && credentials().is_some_and(|directory| path.starts_with(directory))
}

/// Where systemd keeps this service's credentials.
fn credentials() -> Option<OsString> {
    environment::variable("CREDENTIALS_DIRECTORY")
}

/// Where the key is that the configuration calls `path`.
fn resolve(path: &Path, credentials: Option<OsString>) -> Result<Cow<'_, Path>, KeyFileError> {
    let text = path.to_str();
    let Some(name) = text.and_then(|text| text.strip_prefix(CREDENTIAL)) else {
        return Ok(path.into());
    };
    let directory = credentials.ok_or_else(|| KeyFileError::NoCredentials {
        path: path.to_owned(),
    })?;
    Ok(Path::new(&directory).join(name).into())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A key file with `text`, which its owner alone can read.
    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("group.key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        (root, path)
    }

    fn line(key: &GroupKey) -> String {
        format!("{} {}\n", key.id(), Base64::encode_string(key.secret()))
    }

    fn refused(path: &Path) -> String {
        KeyFile::open(path).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_and_never_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("group.key");
        let key = GroupKey::generate().unwrap();
        key.write(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let (_, ring) = KeyFile::open(&path).unwrap();
        assert_eq!(ring.first().secret(), key.secret());
        let again = GroupKey::generate().unwrap().write(&path).unwrap_err();
        assert!(matches!(again, KeyWriteError::Exists { .. }), "{again}");
        assert_eq!(KeyFile::open(&path).unwrap().1.first().id(), key.id());
        assert!(!format!("{key:?}").contains(&Base64::encode_string(key.secret())));
    }

    #[test]
    fn who_cannot_read_one_is_told_what_helps() {
        let (_root, path) = file("");
        let below = refused(&path.join("group.key"));
        assert!(below.contains("; give the path of one"), "{below}");
        for errno in 1..=133 {
            let path = path.clone();
            let source = io::Error::from_raw_os_error(errno);
            let told = KeyFileError::Io { path, source }.to_string();
            assert!(told.contains(';'), "no advice: {told}");
        }
    }

    #[test]
    fn who_cannot_write_one_is_told_what_helps() {
        let told = |errno| {
            let path = PathBuf::from("group.key");
            let source = io::Error::from_raw_os_error(errno);
            KeyWriteError::Io { path, source }.to_string()
        };
        for (errno, advice) in [
            (libc::ENOENT, "; make its directory first"),
            (libc::ENOSPC, "; make room there"),
            (libc::EROFS, "; choose a place that can be written to"),
            (libc::EACCES, "; choose a directory of yours"),
            (libc::ENAMETOOLONG, "; choose another name"),
            (libc::EIO, "; choose another name"),
        ] {
            assert!(told(errno).contains(advice), "{}", told(errno));
        }
    }

    #[test]
    fn a_hasher_is_cleared_when_it_is_done_with() {
        let mut hasher = blake3::Hasher::new_derive_key(ID_CONTEXT);
        hasher.update(&[7; KEY]);
        let expected = *hasher.finalize().as_bytes();
        let mut out = [0; blake3::OUT_LEN];
        finish(&mut hasher, &mut out);
        assert_eq!(out, expected);
        assert_eq!(hasher.count(), 0);
        assert_ne!(*hasher.finalize().as_bytes(), expected);
    }

    #[test]
    fn the_first_key_seals_and_all_are_known() {
        let keys = [(); MAX_KEYS].map(|()| GroupKey::generate().unwrap());
        let text: String = keys.iter().map(line).collect();
        let (_root, path) = file(&format!("# ours\n\n{text}"));
        let (_, ring) = KeyFile::open(&path).unwrap();
        let ids: Vec<_> = ring.ids().collect();
        assert_eq!(ids, keys.each_ref().map(GroupKey::id));
        assert_eq!(ring.first().id(), keys[0].id());
        let unknown = GroupKey::generate().unwrap();
        assert!(ring.find(unknown.id()).is_none());

        let (_root, path) = file(&format!("{text}{}", line(&unknown)));
        let why = refused(&path);
        assert!(why.contains("line 5") && why.contains("too many"), "{why}");
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_line() {
        let key = GroupKey::generate().unwrap();
        let good = line(&key);
        let text = good.split_whitespace().nth(1).unwrap();
        let cases = [
            (String::new(), "has no key"),
            ("# nothing\n".to_owned(), "has no key"),
            (format!("# a\n{text}\n"), "line 2: a key's line has"),
            (format!("{good}{good}"), "line 2: this key is there already"),
            (format!("00000000 {text}\n"), "line 1: the id is not that"),
            (format!("{} {}\n", key.id(), &text[1..]), "base64"),
            (format!("{} AAAA\n", key.id()), "base64"),
            (format!("{} {text} {text}\n", key.id()), "a key's line has"),
            (
                "x".repeat(20_000),
                "longer than any key file: copy it again",
            ),
        ];
        for (text, why) in cases {
            let (_root, path) = file(&text);
            let refused = refused(&path);
            assert!(refused.contains(why), "{text:?}: {refused}");
            assert!(refused.contains("group.key"), "{refused}");
        }
        let (_root, path) = file("");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        let why = refused(&path);
        assert!(why.contains("is not a text: copy it again"), "{why}");
        assert!(!why.contains("line"), "{why}");
    }

    #[test]
    fn others_may_not_read_or_write_it() {
        let (_root, path) = file(&line(&GroupKey::generate().unwrap()));
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644, 0o440, 0o700 | 0o001] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let why = refused(&path);
            assert!(
                why.contains(&format!("{mode:04o}")) && why.contains("chmod"),
                "{why}"
            );
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        KeyFile::open(&path).unwrap();
        assert!(refused(path.parent().unwrap()).contains("is no file"));
        let pipe = path.with_extension("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(refused(&pipe).contains("is no file"));
        assert!(refused(&path.with_extension("missing")).contains("distlock keygen"));
        let directory = path.parent().unwrap();
        std::fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&path).contains("everybody can change"));
        std::fs::set_permissions(directory, Permissions::from_mode(0o1777)).unwrap();
        KeyFile::open(&path).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            assert!(refused(&path).contains("belongs to user 12345"));
        }
    }

    #[test]
    fn a_credential_is_where_the_service_manager_says() {
        let plain = Path::new("/etc/group.key");
        assert_eq!(resolve(plain, None).unwrap(), plain);
        let given = Path::new("$CREDENTIALS_DIRECTORY/group.key");
        let directory = || Some("/run/credentials/a".into());
        let expected = Path::new("/run/credentials/a/group.key");
        assert_eq!(resolve(given, directory()).unwrap(), expected);
        let refused = resolve(given, None).unwrap_err().to_string();
        assert!(refused.contains("LoadCredential"), "{refused}");
    }

    #[test]
    fn it_is_read_again_when_it_has_changed() {
        let [first, second] = [(); 2].map(|()| GroupKey::generate().unwrap());
        let (_root, path) = file(&line(&first));
        let (mut file, _) = KeyFile::open(&path).unwrap();
        assert!(file.read_again().is_none());
        let next = path.with_extension("next");
        std::fs::write(&next, line(&first) + &line(&second)).unwrap();
        std::fs::set_permissions(&next, Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&next, &path).unwrap();
        let ring = file.read_again().unwrap().unwrap();
        assert_eq!(ring.ids().count(), 2);
        assert!(file.read_again().is_none());
        // A wrong one is told of once; one that is away for a moment, not at all.
        std::fs::write(&path, "nonsense").unwrap();
        file.read_again().unwrap().unwrap_err();
        assert!(file.read_again().is_none());
        std::fs::remove_file(&path).unwrap();
        let told = (0..3 * MISSES).filter_map(|_| file.read_again()).count();
        assert_eq!(told, 1, "when it stays away");
        std::fs::write(&path, line(&second)).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            file.read_again().unwrap().unwrap().first().id(),
            second.id()
        );
    }
}
