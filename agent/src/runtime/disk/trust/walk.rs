//! The way to a path, step by step as the kernel takes it.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use super::path_trust_error::PathTrustError;
use super::users::{EVERYBODY, is_trusted};

/// As many symbolic links as the kernel follows.
pub(super) const MAX_LINKS: u32 = 40;
const STICKY: u32 = 0o1000;

/// How far a path leads.
pub(super) struct Way {
    /// What is there: the whole path, or the directory in which the next step is missing. There are
    /// no links in its name.
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
    /// What the system says of that step.
    pub(super) missing: Option<PathTrustError>,
}

/// Takes one step after the other, and never one of them twice: symbolic links put the steps to
/// where they lead before those that are left.
pub(super) fn look(path: &Path) -> Result<Way, PathTrustError> {
    let whole = std::path::absolute(path).map_err(|source| PathTrustError::io(path, source))?;
    let root = Path::new("/");
    let mut at = root.to_owned();
    let mut metadata = see(root)?;
    let mut ahead: Vec<OsString> = steps(&whole).collect();
    let mut links = 0;
    while let Some(step) = ahead.pop() {
        passable(&at, &metadata)?;
        if step == ".." {
            at.pop();
            metadata = see(&at)?;
            continue;
        }
        at.push(step);
        let next = match see(&at) {
            Err(missing) if missing.is_missing() => {
                at.pop();
                return Ok(Way {
                    path: at,
                    metadata,
                    missing: Some(missing),
                });
            }
            seen => seen?,
        };
        if metadata.mode() & EVERYBODY != 0 && !is_trusted(next.uid()) {
            return Err(PathTrustError::Planted {
                path: at,
                owner: next.uid(),
            });
        }
        if !next.is_symlink() {
            metadata = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(PathTrustError::Links {
                path: path.to_owned(),
            });
        }
        let target = fs::read_link(&at).map_err(|source| PathTrustError::io(&at, source))?;
        at.pop();
        if target.is_absolute() {
            at = root.to_owned();
            metadata = see(root)?;
        }
        ahead.extend(steps(&target));
    }
    if metadata.is_dir() {
        passable(&at, &metadata)?;
    }
    Ok(Way {
        path: at,
        metadata,
        missing: None,
    })
}

/// The names in `path`, the last one first.
fn steps(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    let names = path.components().rev();
    names
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
}

fn see(path: &Path) -> Result<Metadata, PathTrustError> {
    fs::symlink_metadata(path).map_err(|source| PathTrustError::io(path, source))
}

/// Checks the directory `path` as one in which what is a trusted user's stays what it is.
fn passable(path: &Path, metadata: &Metadata) -> Result<(), PathTrustError> {
    if !metadata.is_dir() {
        return Err(PathTrustError::io(path, Errno::ENOTDIR));
    }
    if metadata.mode() & EVERYBODY == 0 {
        return Ok(());
    }
    if metadata.mode() & STICKY == 0 {
        return Err(PathTrustError::Open {
            path: path.to_owned(),
            mode: metadata.mode() & 0o7777,
            owner: metadata.uid(),
        });
    }
    let owner = metadata.uid();
    if is_trusted(owner) || is_unnamed(owner) {
        return Ok(());
    }
    Err(PathTrustError::Hosted {
        path: path.to_owned(),
        owner,
    })
}

/// Whether `owner` stands for all users that have no number in this user namespace, as sandboxes have
/// one. Outside root has `/tmp` and `/run/lock`, and in there it is nobody's.
fn is_unnamed(owner: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    stands_for_the_unnamed(
        owner,
        &read("/proc/sys/kernel/overflowuid"),
        &read("/proc/self/uid_map"),
    )
}

/// Whether `owner` stands for users without a number here. `overflow_uid` and `uid_map`: what those two files in
/// /proc say (user_namespaces(7)).
pub(super) fn stands_for_the_unnamed(owner: u32, overflow_uid: &str, uid_map: &str) -> bool {
    let all_are_named = ["0", "0", "4294967295"];
    overflow_uid.trim().parse() == Ok(owner) && !uid_map.split_whitespace().eq(all_are_named)
}
