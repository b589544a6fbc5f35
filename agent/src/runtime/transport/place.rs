//! A Unix socket's file: taken over from a dead process, never from a live one, and removed at the
//! end.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use super::who;

/// How often another process's take-over in the same directory is waited for, 10 ms each time. It
/// takes microseconds; a directory's lock held for longer is not one of ours.
const LOCK_TRIES: u32 = 100;

/// The file of a bound socket; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that a successor's file is not removed in place of ours.
    identity: (u64, u64),
}

/// Why a socket cannot be had at a path.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// A living process serves it.
    InUse { pid: Option<u32> },
    /// Something else has that name.
    NotASocket,
    /// A dead process of another user left it.
    NotOurs { uid: u32 },
    /// Others may put sockets of theirs into the directory, in the place of other members'.
    OpenDirectory { mode: u32 },
    /// The directory's owner may.
    TheirDirectory { uid: u32 },
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for PlaceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for PlaceError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Binds `socket` to `path` with the permissions `mode`. A file that a dead process left there is
/// replaced; no client can reach the socket before its permissions are set.
pub(crate) fn bind(socket: &Socket, path: &Path, mode: Mode) -> Result<SocketFile, PlaceError> {
    // One take-over at a time: between the look at the old file and its removal another process
    // could have bound the same path. The lock is the directory's own, so nothing is left behind.
    let directory = path.parent().expect("a socket's path is absolute");
    let _lock = lock(File::open(directory)?)?;
    remove_stale(path, socket.r#type()?)?;
    // On Linux a socket's file gets the mode that the socket had when it was bound, less the
    // umask: so it is never open wider, not even between bind(2) and chmod(2).
    fchmod(socket, mode)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = fs::symlink_metadata(path)?;
    Ok(SocketFile {
        path: path.to_owned(),
        identity: (file.dev(), file.ino()),
    })
}

/// Whether nobody but this process's user and root can put sockets into the directory of `path`. Who
/// can could be taken for a member whose address is there, and who is not running.
pub(crate) fn check_directory(path: &Path) -> Result<(), PlaceError> {
    let directory = path.parent().expect("a socket's path is absolute");
    let directory = fs::metadata(directory)?;
    let mode = directory.mode() & 0o7777;
    if directory.uid() != geteuid().as_raw() && directory.uid() != 0 {
        return Err(PlaceError::TheirDirectory {
            uid: directory.uid(),
        });
    }
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(PlaceError::OpenDirectory { mode }),
    }
}

fn lock(mut directory: File) -> Result<Flock<File>, PlaceError> {
    for _ in 0..LOCK_TRIES {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => directory = back,
            Err((_, errno)) => return Err(errno.into()),
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(Errno::EWOULDBLOCK.into())
}

fn remove_stale(path: &Path, kind: Type) -> Result<(), PlaceError> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !file.file_type().is_socket() {
        return Err(PlaceError::NotASocket);
    }
    if is_served(path, kind)? {
        return Err(PlaceError::InUse {
            pid: who::has_path(path),
        });
    }
    let me = geteuid();
    if !me.is_root() && file.uid() != me.as_raw() {
        return Err(PlaceError::NotOurs { uid: file.uid() });
    }
    Ok(fs::remove_file(path)?)
}

/// Whether a process has a socket bound there: the kernel refuses connections to files whose
/// process is gone.
fn is_served(path: &Path, kind: Type) -> io::Result<bool> {
    let probe = Socket::new(Domain::UNIX, kind, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.raw_os_error() == Some(Errno::ECONNREFUSED as i32) => Ok(false),
        // Permission denied, a full queue, another kind of socket: there is somebody.
        _ => Ok(true),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if ours {
            // If it fails the file stays, stale, and the next agent replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    fn socket() -> Socket {
        Socket::new(Domain::UNIX, Type::DGRAM, None).unwrap()
    }

    #[test]
    fn has_its_mode_and_goes_away() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        let file = bind(&socket(), &path, Mode::from_bits_truncate(0o600)).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn replaces_the_dead_and_refuses_the_living() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        let mode = Mode::from_bits_truncate(0o600);
        let living = UnixDatagram::bind(&path).unwrap();
        let refused = bind(&socket(), &path, mode).unwrap_err();
        assert!(
            matches!(refused, PlaceError::InUse { pid: Some(pid) } if pid == std::process::id()),
            "{refused:?}"
        );
        drop(living);
        let socket = socket();
        let ours = bind(&socket, &path, mode).unwrap();

        // A successor's file is left alone.
        fs::remove_file(&path).unwrap();
        let successor = UnixListener::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
        drop(successor);
    }

    #[test]
    fn a_directory_of_others_is_found_out() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        check_directory(&path).unwrap();
        for mode in [0o770, 0o702, 0o1777] {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = check_directory(&path).unwrap_err();
            let told = matches!(refused, PlaceError::OpenDirectory { mode: told } if told == mode);
            assert!(told, "{refused:?}");
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        check_directory(&path).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(root.path(), Some(12_345), None).unwrap();
            let refused = check_directory(&path).unwrap_err();
            let told = matches!(refused, PlaceError::TheirDirectory { uid: 12_345 });
            assert!(told, "{refused:?}");
        }
    }

    #[test]
    fn leaves_other_files_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        fs::write(&path, "precious").unwrap();
        let refused = bind(&socket(), &path, Mode::from_bits_truncate(0o600)).unwrap_err();
        assert!(matches!(refused, PlaceError::NotASocket), "{refused:?}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
