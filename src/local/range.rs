//! The kernel's locks: ranges of a file, locked by one open file.
//!
//! These are the "open file description locks" of fcntl(2). As flock(2)'s they belong to the open
//! file, are inherited with the descriptor, and end when its last copy is closed. Unlike flock's
//! there can be many in one file (the permits of a semaphore), and one can ask who has them
//! without taking them for a moment, so that `status` disturbs nobody.
//!
//! No call here waits. A process that is stopped while it waits in the kernel for a lock would be
//! granted it all the same, and hold up the others until somebody continues it.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

/// Bytes of a file, by their numbers; they need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    start: i64,
    /// The first byte after it.
    end: i64,
}

impl Range {
    /// The bytes from `start` up to `end` exclusive; it may not be empty.
    pub(crate) const fn new(start: i64, end: i64) -> Self {
        assert!(0 <= start && start < end);
        Self { start, end }
    }

    /// One byte.
    pub(crate) const fn byte(at: i64) -> Self {
        Self::new(at, at + 1)
    }

    pub(crate) const fn start(self) -> i64 {
        self.start
    }

    pub(crate) const fn is_byte(self) -> bool {
        self.end - self.start == 1
    }

    fn request(self, kind: i32) -> libc::flock {
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: self.start,
            l_len: self.end - self.start,
            l_pid: 0,
        }
    }
}

/// Locks `range` for this open file; `false` if another has part of it.
pub(crate) fn try_lock(file: &File, range: Range) -> io::Result<bool> {
    try_set(file, range.request(libc::F_WRLCK))
}

/// Locks `range` for this open file and all others that share it; `false` if another has part of
/// it for itself. The file must be open for reading.
pub(crate) fn try_share(file: &File, range: Range) -> io::Result<bool> {
    try_set(file, range.request(libc::F_RDLCK))
}

fn try_set(file: &File, request: libc::flock) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&request)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Unlocks `range`, for all copies of this open file.
pub(crate) fn unlock(file: &File, range: Range) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&range.request(libc::F_UNLCK)))?;
    Ok(())
}

/// A range that another open file has locked, as far as it lies in `within`; any one of them.
pub(crate) fn find(file: &File, within: Range) -> io::Result<Option<Range>> {
    find_against(file, within.request(libc::F_WRLCK))
}

/// A range that would stand against `answer`, which becomes what the kernel says of it.
fn find_against(file: &File, mut answer: libc::flock) -> io::Result<Option<Range>> {
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut answer))?;
    if i32::from(answer.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    // A length of zero means up to the end of all files.
    let end = if answer.l_len == 0 {
        i64::MAX
    } else {
        answer.l_start + answer.l_len
    };
    Ok(Some(Range::new(answer.l_start, end)))
}

/// All ranges that other open files have locked in `within` and do not share, in order; at most
/// [`MOST`].
pub(crate) fn find_all(file: &File, within: Range) -> io::Result<Vec<Range>> {
    let mut found = Vec::new();
    let mut unsearched = vec![within];
    while let Some(part) = unsearched.pop() {
        let Some(range) = find_against(file, part.request(libc::F_RDLCK))? else {
            continue;
        };
        if part.start < range.start {
            unsearched.push(Range::new(part.start, range.start));
        }
        if range.end < part.end {
            unsearched.push(Range::new(range.end, part.end));
        }
        found.push(range);
        if found.len() == MOST {
            break;
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// How many ranges are looked for in one file.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_others_have_and_not_what_it_has() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [ours, theirs] = [0, 1].map(|_| File::options().write(true).open(path.path()).unwrap());
        let all = Range::new(0, i64::MAX);
        for at in [7, 1 << 62, 3, 9] {
            assert!(try_lock(&theirs, Range::byte(at)).unwrap());
        }
        assert!(try_lock(&ours, Range::byte(5)).unwrap());
        assert!(!try_lock(&ours, Range::byte(7)).unwrap());
        assert!(!try_lock(&ours, all).unwrap());
        let found = find_all(&ours, all).unwrap();
        assert_eq!(found, [3, 7, 9, 1 << 62].map(Range::byte));
        assert!(found.iter().all(|range| range.is_byte()));
        unlock(&theirs, all).unwrap();
        assert_eq!(find_all(&ours, all).unwrap(), []);
        assert_eq!(find_all(&theirs, all).unwrap(), [Range::byte(5)]);
    }

    #[test]
    fn a_range_is_shared_by_many_or_had_by_one() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut options = File::options();
        let [ours, theirs, third] =
            [0; 3].map(|_| options.read(true).write(true).open(path.path()).unwrap());
        assert!(try_share(&ours, Range::byte(0)).unwrap());
        assert!(try_share(&theirs, Range::byte(0)).unwrap());
        assert!(!try_lock(&third, Range::byte(0)).unwrap());
        assert!(find(&third, Range::byte(0)).unwrap().is_some());
        assert_eq!(find_all(&third, Range::byte(0)).unwrap(), []);
        unlock(&ours, Range::byte(0)).unwrap();
        unlock(&theirs, Range::byte(0)).unwrap();
        assert!(try_lock(&third, Range::byte(0)).unwrap());
        assert!(!try_share(&ours, Range::byte(0)).unwrap());
    }

    #[test]
    fn a_lock_ends_with_the_last_copy() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [ours, theirs] = [0, 1].map(|_| File::options().write(true).open(path.path()).unwrap());
        assert!(try_lock(&theirs, Range::byte(0)).unwrap());
        let copy = theirs.try_clone().unwrap();
        drop(theirs);
        assert!(!try_lock(&ours, Range::byte(0)).unwrap());
        drop(copy);
        assert!(try_lock(&ours, Range::byte(0)).unwrap());
    }
}
