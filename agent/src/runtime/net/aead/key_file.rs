//! The file that has the group's keys: checked, read, and read again when it has changed.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::unistd::geteuid;
use zeroize::Zeroizing;

use crate::runtime::disk::trust::{self, PathTrustError};
use crate::runtime::net::aead::keys::{CREDENTIAL, Flaw, KeyFileError, KeyId, KeyRing};
use crate::runtime::os::environment;

/// No key file is longer.
const MAX_FILE: u64 = 16 * 1024;

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

/// The ids of the keys in the file `path`, which may begin with [`CREDENTIAL`]. The first key seals datagrams;
/// the others only open them.
///
/// # Errors
/// If an agent would refuse the file.
pub fn key_ids(path: &Path) -> Result<Vec<KeyId>, KeyFileError> {
    let (_, ring) = KeyFile::open(path)?;
    Ok(ring.ids().collect())
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
