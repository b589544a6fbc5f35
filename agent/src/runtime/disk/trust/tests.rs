//! Paths as they can be found, in directories of all modes and of other users.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::sync::Arc;

use tracing::subscriber;

use super::walk::{MAX_LINKS, stands_for_the_unnamed};
use super::*;
use crate::runtime::skipped::is_root;
use crate::runtime::warnings::Warnings;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_that_everybody_may_write_to_must_be_sticky() {
    let root = tempfile::tempdir().unwrap();
    let inner = root.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for (mode, is_fine) in [
        (0o700, true),
        (0o755, true),
        (0o775, true),
        (0o777, false),
        (0o702, false),
        (0o1777, true),
    ] {
        chmod(root.path(), mode);
        for looked in [way(&inner).map(drop), directory(&inner)] {
            assert_eq!(looked.is_ok(), is_fine, "{mode:o}: {looked:?}");
        }
        let missing = way_so_far(&root.path().join("a/b"));
        assert_eq!(missing.is_ok(), is_fine, "{mode:o}: {missing:?}");
    }
}

/// In a namespace where only the caller has a number, root's `/tmp` is shown as the overflow user's.
#[test]
fn a_user_without_a_number_is_known_where_not_all_have_one() {
    let (all, one) = ("0 0 4294967295\n", "1000 1000 1\n");
    for (owner, overflow_uid, uid_map, stands) in [
        (65_534, "65534\n", one, true),
        (1000, "65534\n", one, false),
        (65_534, "65534\n", all, false),
        (1000, "65534\n", all, false),
        (65_534, "", one, false),
    ] {
        let found = stands_for_the_unnamed(owner, overflow_uid, uid_map);
        assert_eq!(found, stands, "{owner} {overflow_uid:?} {uid_map:?}");
    }
}

#[test]
fn a_configuration_that_everybody_can_change_is_told_of() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("distlock.toml");
    fs::write(&path, "").unwrap();
    for (mode, is_told) in [(0o664, false), (0o666, true), (0o602, true)] {
        chmod(&path, mode);
        let warnings = Warnings::default();
        let told = Arc::clone(&warnings.told);
        subscriber::with_default(warnings, || {
            tell_of_writers(&path, &fs::metadata(&path).unwrap());
        });
        let told = told.lock().unwrap();
        assert_eq!(told.contains("distlock.toml"), is_told, "{mode:o}: {told}");
    }
}

#[test]
fn in_the_directory_itself_nobody_else_may_write() {
    let root = tempfile::tempdir().unwrap();
    for mode in [0o770, 0o702, 0o1777] {
        chmod(root.path(), mode);
        let refused = directory(root.path()).unwrap_err();
        let is_told = refused.to_string().contains(&format!("{mode:04o}"));
        assert!(is_told, "{refused}");
    }
    chmod(root.path(), 0o755);
    directory(root.path()).unwrap();
}

#[test]
fn what_is_missing_is_made_by_no_stranger() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir(path("there")).unwrap();
    chmod(&path("there"), 0o755);
    symlink("tmp/a", path("link")).unwrap();
    fs::create_dir(path("tmp")).unwrap();
    chmod(&path("tmp"), 0o1777);
    for name in ["there", "there/a", "a/b"] {
        directory_to_be(&path(name)).unwrap();
    }
    for name in ["tmp/a", "tmp/a/b", "link", "link/b"] {
        let refused = directory_to_be(&path(name)).unwrap_err();
        let PathTrustError::Missing { above, .. } = &refused else {
            panic!("{name}: {refused}");
        };
        assert!(above.ends_with("tmp"), "{refused}");
    }
    chmod(&path("there"), 0o770);
    directory_to_be(&path("there")).unwrap_err();
}

#[test]
fn links_are_followed_to_where_they_lead() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir_all(path("open/inner")).unwrap();
    symlink("open/../open/inner", path("link")).unwrap();
    directory(&path("link")).unwrap();
    chmod(&path("open"), 0o777);
    let refused = directory(&path("link")).unwrap_err();
    assert!(
        matches!(&refused, PathTrustError::Open { path, mode: 0o777, .. } if path.ends_with("open"))
    );
    symlink("loop", path("loop")).unwrap();
    // Not `Io`, after which the callers go on.
    for looped in [way(&path("loop")).map(drop), way_so_far(&path("loop/a"))] {
        assert!(
            matches!(looped, Err(PathTrustError::Links { .. })),
            "{looped:?}"
        );
    }
    symlink("nowhere", path("broken")).unwrap();
    assert!(way(&path("broken")).unwrap_err().is_missing());
    way_so_far(&path("broken")).unwrap();
}

/// As many as the kernel follows, whether a link is in what another leads to, or leads by way of
/// another.
#[test]
fn links_are_counted_as_the_kernel_counts_them() {
    let root = tempfile::tempdir().unwrap();
    let path = |number: u32| root.path().join(number.to_string());
    fs::create_dir(path(0)).unwrap();
    symlink("../0", path(0).join("back")).unwrap();
    for number in 1..=MAX_LINKS + 1 {
        symlink(format!("{}/../0", number - 1), path(number)).unwrap();
    }
    let back = |times| (0..times).fold(path(0), |path, _| path.join("back"));
    for number in [6, MAX_LINKS] {
        for fine in [back(number), path(number)] {
            fs::metadata(&fine).unwrap();
            directory(&fine).unwrap();
        }
    }
    for too_many in [back(MAX_LINKS + 1), path(MAX_LINKS + 1)] {
        let told = fs::metadata(&too_many).unwrap_err().raw_os_error();
        assert_eq!(told, Some(libc::ELOOP));
        let refused = way(&too_many).unwrap_err();
        assert!(matches!(refused, PathTrustError::Links { .. }), "{refused}");
    }
}

#[test]
fn steps_are_taken_as_the_kernel_takes_them() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir_all(path("a/b")).unwrap();
    fs::write(path("file"), "").unwrap();
    symlink(path("a/b"), path("link")).unwrap();
    let inode = |name: &str| way(&path(name)).unwrap().ino();
    for name in ["link/..", "link/../b/..", "a/./b/../../link/.."] {
        assert_eq!(
            inode(name),
            fs::metadata(path(name)).unwrap().ino(),
            "{name}"
        );
    }
    for name in ["file/..", "file/x", "missing/..", "link/x"] {
        let seen = fs::metadata(path(name)).unwrap_err();
        let Err(PathTrustError::Io { source, .. }) = way(&path(name)) else {
            panic!("{name}");
        };
        assert_eq!(source.raw_os_error(), seen.raw_os_error(), "{name}");
    }
    assert_eq!(
        way(Path::new("/../..")).unwrap().ino(),
        fs::metadata("/").unwrap().ino()
    );
}

/// What others can have made where everybody may write. It takes root to make it here.
#[test]
fn what_is_planted_is_found_out() {
    if !is_root() {
        return;
    }
    const STRANGER: u32 = 12_345;
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::create_dir_all(path("theirs/below")).unwrap();
    fs::create_dir(path("ours")).unwrap();
    symlink("ours", path("link")).unwrap();
    for name in ["theirs", "link"] {
        std::os::unix::fs::lchown(path(name), Some(STRANGER), None).unwrap();
    }
    // Where root alone may write, root has let them.
    way(&path("theirs/below")).unwrap();
    way(&path("link")).unwrap();
    chmod(root.path(), 0o1777);
    for name in ["theirs/below", "theirs/missing", "link", "link/missing"] {
        let refused = way_so_far(&path(name)).unwrap_err();
        let is_told = matches!(refused, PathTrustError::Planted { owner, .. } if owner == STRANGER);
        assert!(is_told, "{name}: {refused}");
    }
    way(&path("ours")).unwrap();
    chmod(root.path(), 0o755);
    // Sticky or not, its owner can replace what is in it.
    fs::create_dir_all(path("tmp/ours")).unwrap();
    chmod(&path("tmp"), 0o1777);
    way(&path("tmp/ours")).unwrap();
    chown(path("tmp"), Some(STRANGER), None).unwrap();
    for name in ["tmp", "tmp/ours", "tmp/missing"] {
        let refused = way_so_far(&path(name)).unwrap_err();
        let is_told = matches!(refused, PathTrustError::Hosted { owner, .. } if owner == STRANGER);
        assert!(is_told, "{refused}");
    }
    let refused = directory(&path("theirs")).unwrap_err();
    let is_told = matches!(refused, PathTrustError::Stranger { owner, .. } if owner == STRANGER);
    assert!(is_told, "{refused}");
    // It may be theirs, but then theirs alone.
    assert_eq!(directory_of_one(&path("theirs")).unwrap(), Some(STRANGER));
    assert_eq!(directory_of_one(&path("ours")).unwrap(), None);
    for mode in [0o770, 0o1777] {
        chmod(&path("theirs"), mode);
        directory_of_one(&path("theirs")).unwrap_err();
    }
    chmod(&path("theirs"), 0o755);
    // Of root's and of theirs they may be believed to serve what is there, not of others'.
    directory_of(STRANGER, &path("theirs")).unwrap();
    directory_of(STRANGER, &path("ours")).unwrap();
    chown(path("theirs"), Some(STRANGER + 1), None).unwrap();
    directory_of(STRANGER, &path("theirs")).unwrap_err();
    chmod(&path("ours"), 0o1777);
    directory_of(STRANGER, &path("ours")).unwrap_err();
}
