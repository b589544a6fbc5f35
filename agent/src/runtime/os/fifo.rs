//! FIFOs by which a process sees whether commands are left that another process has started, and
//! that may be another user's.
//!
//! The commands inherit the writing end, with which nobody can unlock anything, and the FIFO stays
//! in a directory of ours: so the next process finds it by its name, and the kernel says whether a
//! writer is left, also when the process that made it is dead.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{geteuid, mkfifoat, read};

/// How FIFOs are opened: nobody is waited for, and no link leads to another.
const OPEN: OFlag = OFlag::O_NONBLOCK
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NOFOLLOW);

/// How much is read before a FIFO with something in it counts as one with a writer: more than a
/// FIFO of the usual size has room for.
const READS: usize = 32;

/// The reading end of a FIFO.
#[derive(Debug)]
pub struct Fifo {
    reader: OwnedFd,
}

impl Fifo {
    /// Makes the FIFO `name` in `directory` with mode 0600, unless it is there, and opens it. The
    /// directory must be one where nobody but this user and root can put anything.
    ///
    /// # Errors
    /// If it cannot be made, as on a file system that has no FIFOs; and as [`Fifo::open`].
    pub fn create(directory: impl AsFd, name: &str) -> io::Result<Self> {
        let directory = directory.as_fd();
        match mkfifoat(directory, name, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => {}
            // What Linux says of a file system that has none.
            Err(errno @ (Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS)) => {
                let what = format!("its file system has none ({errno}); use another one");
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            Err(errno) => return Err(errno.into()),
        }
        Self::open(directory, name)?.ok_or_else(|| Errno::ENOENT.into())
    }

    /// Opens the FIFO `name` in `directory`; `None` if there is nothing of that name.
    ///
    /// # Errors
    /// If it is something else, or another user's, or the system refuses.
    pub fn open(directory: impl AsFd, name: &str) -> io::Result<Option<Self>> {
        match openat(directory, name, OFlag::O_RDONLY | OPEN, Mode::empty()) {
            Ok(reader) => {
                look(&reader)?;
                Ok(Some(Self { reader }))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens a writing end, close-on-exec, by the name that the FIFO was opened by.
    ///
    /// # Errors
    /// If the name means something else by now, or the system refuses.
    pub fn writer(&self, directory: impl AsFd, name: &str) -> io::Result<OwnedFd> {
        let writer = openat(directory, name, OFlag::O_WRONLY | OPEN, Mode::empty())?;
        let (found, own) = (look(&writer)?, look(&self.reader)?);
        if (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino) {
            return Err(io::Error::other("it was replaced by another FIFO"));
        }
        Ok(writer)
    }

    /// Whether somebody has a writing end open. What was written is read and dropped.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn has_writer(&self) -> io::Result<bool> {
        // To be read rather than polled: a FIFO that had no writer when it was opened never hangs
        // up.
        let mut noise = [0; 4096];
        for _ in 0..READS {
            match read(&self.reader, &mut noise) {
                Ok(0) => return Ok(false),
                Err(Errno::EAGAIN) => return Ok(true),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // It is about to be looked at again.
        Ok(true)
    }
}

impl AsFd for Fifo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// What is open, if it is a FIFO of this user's.
fn look(fd: impl AsFd) -> io::Result<FileStat> {
    let stat = fstat(fd)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFIFO || stat.st_uid != geteuid().as_raw() {
        let what = "it is no FIFO of this user's; remove it";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(stat)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;

    use super::*;

    fn place() -> (tempfile::TempDir, File) {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        (place, directory)
    }

    #[test]
    fn the_kernel_says_whether_a_writer_is_left_whatever_it_wrote() {
        let (_place, directory) = place();
        let ours = Fifo::create(&directory, "x").unwrap();
        assert!(!ours.has_writer().unwrap());
        let writer = ours.writer(&directory, "x").unwrap();
        let copy = writer.try_clone().unwrap();
        // Another that comes later, and one that was there before.
        let theirs = Fifo::open(&directory, "x").unwrap().unwrap();
        let mut file = File::from(writer);
        let full = loop {
            if let Err(error) = file.write_all(&[7; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock, "nobody waits");
        drop(file);
        assert!(ours.has_writer().unwrap());
        assert!(theirs.has_writer().unwrap());
        drop(copy);
        let late = Fifo::open(&directory, "x").unwrap().unwrap();
        for fifo in [&ours, &theirs, &late] {
            assert!(!fifo.has_writer().unwrap());
        }
    }

    #[test]
    fn what_was_written_by_a_dead_writer_makes_none() {
        let (_place, directory) = place();
        let ours = Fifo::create(&directory, "x").unwrap();
        let mut writer = File::from(ours.writer(&directory, "x").unwrap());
        while writer.write_all(&[7; 4096]).is_ok() {}
        drop(writer);
        assert!(!ours.has_writer().unwrap());
    }

    #[test]
    fn what_is_no_fifo_of_ours_is_refused() {
        let (place, directory) = place();
        assert!(Fifo::open(&directory, "x").unwrap().is_none());
        fs::write(place.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("x", place.path().join("link")).unwrap();
        for name in ["file", "link"] {
            assert!(Fifo::create(&directory, name).is_err(), "{name}");
        }
        let ours = Fifo::create(&directory, "x").unwrap();
        fs::remove_file(place.path().join("x")).unwrap();
        assert!(ours.writer(&directory, "x").is_err(), "it is gone");
        let other = Fifo::create(&directory, "x").unwrap();
        assert!(ours.writer(&directory, "x").is_err(), "it is another");
        drop(other);
    }
}
