//! The resource's side of a lock: a file that remembers the highest fence.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;

use distlock::{Fence, FenceChecker, FenceError};
use tempfile::TempDir;

fn fence(value: u64) -> Fence {
    Fence::new(value).unwrap()
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("printer.fence");
    (directory, file)
}

#[test]
fn a_lower_fence_is_refused_and_an_equal_one_is_not() {
    let (_directory, file) = place();
    let checker = FenceChecker::new(&file);
    assert_eq!(checker.highest().unwrap(), None);
    for value in [5, 5, 7, 1 << 40, i64::MAX as u64] {
        checker.check(fence(value)).unwrap();
        assert_eq!(checker.highest().unwrap(), Some(fence(value)));
    }
    let refused = checker.check(fence(7)).unwrap_err();
    assert!(
        matches!(&refused, FenceError::Refused { fence: f, highest, .. }
            if *f == fence(7) && *highest == fence(i64::MAX as u64)),
        "{refused}"
    );
    // Another checker, as after a restart.
    let again = FenceChecker::new(&file);
    assert!(again.check(fence(7)).is_err());
    again.check(fence(i64::MAX as u64)).unwrap();
}

#[test]
fn threads_check_one_after_the_other() {
    let (_directory, file) = place();
    thread::scope(|scope| {
        for start in 0..8 {
            let checker = FenceChecker::new(&file);
            scope.spawn(move || {
                for step in 0..20 {
                    let value = fence(1 + start + step * 8);
                    let highest = checker.highest().unwrap();
                    match checker.check(value) {
                        Ok(()) => assert!(highest <= Some(value)),
                        Err(FenceError::Refused { highest, .. }) => assert!(highest > value),
                        Err(error) => panic!("{error}"),
                    }
                    assert!(checker.highest().unwrap() >= highest.max(Some(value)));
                }
            });
        }
    });
    assert_eq!(
        FenceChecker::new(&file).highest().unwrap(),
        Some(fence(160))
    );
}

/// Nothing that is not whole is ever taken for an empty file.
#[test]
fn what_is_damaged_lets_nothing_through() {
    let (directory, file) = place();
    let checker = FenceChecker::new(&file);
    checker.check(fence(7)).unwrap();
    let good = fs::read(&file).unwrap();
    for len in 0..good.len() {
        fs::write(&file, &good[..len]).unwrap();
        let error = checker.check(fence(9)).unwrap_err();
        assert!(matches!(error, FenceError::Damaged { .. }), "{error}");
        assert_eq!(
            fs::read(&file).unwrap(),
            &good[..len],
            "it is left as it is"
        );
    }
    for other in [&b"7\n"[..], b"\xff\xfe\n", &[b'7'; 4096]] {
        fs::write(&file, other).unwrap();
        let error = checker.check(fence(9)).unwrap_err();
        assert!(matches!(error, FenceError::Damaged { .. }), "{error}");
    }
    fs::write(&file, &good).unwrap();
    fs::hard_link(&file, directory.path().join("second name")).unwrap();
    let error = checker.check(fence(9)).unwrap_err();
    assert!(error.to_string().contains("several names"), "{error}");
    let error = FenceChecker::new(directory.path())
        .check(fence(9))
        .unwrap_err();
    assert!(error.to_string().contains("regular file"), "{error}");
}

#[test]
fn a_link_leads_to_the_one_file() {
    let (directory, file) = place();
    let link = directory.path().join("link");
    symlink(&file, &link).unwrap();
    let error = FenceChecker::new(&link).check(fence(7)).unwrap_err();
    assert!(error.to_string().contains("link to nothing"), "{error}");
    FenceChecker::new(&file).check(fence(7)).unwrap();
    FenceChecker::new(&link).check(fence(9)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(FenceChecker::new(&file).check(fence(8)).is_err());
}

/// What a checker that was killed left behind is in nobody's way.
#[test]
fn leftovers_are_replaced_and_nothing_is_left() {
    let (directory, file) = place();
    fs::write(directory.path().join("printer.fence.new"), "half").unwrap();
    FenceChecker::new(&file).check(fence(7)).unwrap();
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["printer.fence", "printer.fence.lock"]);
}

#[test]
fn the_file_keeps_its_mode() {
    let (_directory, file) = place();
    let checker = FenceChecker::new(&file);
    checker.check(fence(7)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    checker.check(fence(8)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
}
