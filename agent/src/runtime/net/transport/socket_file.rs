//! A Unix socket's file: taken over from a dead process, never from a live one, and removed at the
//! end.

use std::fs::{self, File, Metadata};
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

use super::socket_owner;
use crate::runtime::disk::trust::{self, PathTrustError};
use crate::runtime::net::address::{AddressError, check_socket_path};

/// How long a take-over by another process has to be over, where it could not be kept out.
const SETTLING: Duration = Duration::from_millis(50);

/// How often another process's take-over in the same directory is waited for, 10 ms each time. It
/// takes microseconds; a directory's lock held for longer is not one of ours.
const LOCK_TRIES: u32 = 100;

/// The file of a bound socket; dropping it removes the file, unless it is kept.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// So that a successor's file is not removed in place of ours.
    identity: Identity,
    is_kept: bool,
}

/// Device, inode, and when it was made: a file system gives the inode of what is gone to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64, (i64, i64));

/// Why a socket cannot be had at a path.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// A living process serves it.
    InUse { pid: Option<u32> },
    /// Something else has that name.
    NotASocket,
    /// A dead process of another user left it.
    NotOurs { uid: u32 },
    /// Others could put a socket of theirs in its place.
    Unsafe(PathTrustError),
    /// No socket can be there.
    Name(AddressError),
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

impl From<PathTrustError> for PlaceError {
    fn from(error: PathTrustError) -> Self {
        match error {
            PathTrustError::Io { source, .. } => Self::Io(source),
            error => Self::Unsafe(error),
        }
    }
}

/// Binds `socket` to `path` with the permissions `mode`, in a directory from which nobody else can
/// remove it. A file that a dead process left there is replaced; no client can reach the socket
/// before its permissions are set.
pub(crate) fn bind(socket: &Socket, path: &Path, mode: Mode) -> Result<SocketFile, PlaceError> {
    open(socket, path, mode, None)
}

/// The same, and has `socket` listen with a queue of `backlog` connections. A file whose socket does
/// not listen looks like a dead process's, so nobody else may look before it does.
pub(crate) fn listen(
    socket: &Socket,
    path: &Path,
    mode: Mode,
    backlog: i32,
) -> Result<SocketFile, PlaceError> {
    open(socket, path, mode, Some(backlog))
}

fn open(
    socket: &Socket,
    path: &Path,
    mode: Mode,
    backlog: Option<i32>,
) -> Result<SocketFile, PlaceError> {
    // A path that begins with a NUL would be an abstract name: those have no owner and no mode.
    check_socket_path(path).map_err(PlaceError::Name)?;
    let directory = path.parent().expect("it is absolute, and has a name");
    trust::own_directory(directory)?;
    // One take-over at a time: between the look at the old file and its removal another process
    // could have bound the same path. The lock is the directory's own, so nothing is left behind.
    let lock = lock(File::open(directory)?)?;
    if lock.is_none() {
        tracing::warn!(
            event = "directory-locked",
            "another process keeps the directory {0} locked, which is there so that no two agents \
             take one socket over at once; see who does (fuser {0}), and let only who has to read \
             that directory",
            directory.display()
        );
    }
    remove_stale(path, socket.r#type()?, lock.is_some())?;
    // On Linux a socket's file gets the mode that the socket had when it was bound, less the
    // umask: so it is never open wider, not even between bind(2) and chmod(2).
    fchmod(socket, mode)?;
    match socket.bind(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(in_use(path)),
        bound => bound?,
    }
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path)?,
        is_kept: false,
    };
    // Under the lock: whoever has it next finds a socket that is served.
    backlog.map_or(Ok(()), |backlog| socket.listen(backlog))?;
    if lock.is_none() {
        thread::sleep(SETTLING);
        if identity(path)? != file.identity {
            return Err(PlaceError::InUse { pid: None });
        }
    }
    Ok(file)
}

/// Whether nobody but this process's user and root can put sockets into the directory of `path`.
/// Another user that can could pose as a member whose address is there while that member is not
/// running.
pub(crate) fn check_directory(path: &Path) -> Result<(), PlaceError> {
    let directory = path.parent().expect("a socket's path is absolute");
    Ok(trust::directory(directory)?)
}

/// The same of another member's path. Its directory may be missing yet, if not everybody can make
/// it; and where this process may not look, it may not send.
pub(crate) fn check_other_directory(path: &Path) -> Result<(), PathTrustError> {
    let directory = path.parent().expect("a socket's path is absolute");
    match trust::directory_to_be(directory) {
        Ok(()) | Err(PathTrustError::Io { .. }) => Ok(()),
        Err(why) => Err(why),
    }
}

/// `None` if somebody keeps it locked: whoever may read the directory can, and would keep agents
/// from starting. Without it two may take over at once, of which [`take_away`] leaves one.
fn lock(mut directory: File) -> Result<Option<Flock<File>>, PlaceError> {
    for _ in 0..LOCK_TRIES {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => directory = back,
            Err((_, errno)) => return Err(errno.into()),
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(None)
}

fn remove_stale(path: &Path, kind: Type, is_alone: bool) -> Result<(), PlaceError> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !file.file_type().is_socket() {
        return Err(PlaceError::NotASocket);
    }
    if is_served(path, kind)? {
        return Err(in_use(path));
    }
    let me = geteuid();
    if !me.is_root() && file.uid() != me.as_raw() {
        return Err(PlaceError::NotOurs { uid: file.uid() });
    }
    if is_alone {
        return Ok(fs::remove_file(path)?);
    }
    take_away(path, Identity::of(&file))
}

/// Removes the file `stale` from `path`; what another process has bound there since stays.
fn take_away(path: &Path, stale: Identity) -> Result<(), PlaceError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    match fs::rename(path, &aside) {
        // That process was faster in this, and will be in the rest.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    if Identity::of(&fs::symlink_metadata(&aside)?) == stale {
        return Ok(fs::remove_file(&aside)?);
    }
    // Back, if its name is still free.
    match fs::hard_link(&aside, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(&aside, path)?,
        _ => fs::remove_file(&aside)?,
    }
    Err(in_use(path))
}

fn in_use(path: &Path) -> PlaceError {
    PlaceError::InUse {
        pid: socket_owner::of_path(path),
    }
}

/// Of what this process has bound at `path`; if it is gone, another one has taken it away.
fn identity(path: &Path) -> Result<Identity, PlaceError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(PlaceError::InUse { pid: None })
        }
        found => Ok(Identity::of(&found?)),
    }
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

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino(), (file.mtime(), file.mtime_nsec()))
    }
}

impl SocketFile {
    /// Leaves the file where it is. The next agent finds it unserved, and replaces it.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|file| Identity::of(&file) == self.identity);
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
        let bind = || bind(&socket(), &path, Mode::from_bits_truncate(0o600));
        // What is in a sticky directory is its owner's alone; others' sockets may be beside it.
        for (mode, is_fine) in [
            (0o770, true),
            (0o777, false),
            (0o702, false),
            (0o1777, true),
        ] {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = check_directory(&path).unwrap_err();
            assert!(matches!(refused, PlaceError::Unsafe(_)), "{refused:?}");
            assert_eq!(bind().is_ok(), is_fine, "{mode:o}");
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        check_directory(&path).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(root.path(), Some(12_345), None).unwrap();
            for refused in [check_directory(&path).unwrap_err(), bind().unwrap_err()] {
                let PlaceError::Unsafe(why) = refused else {
                    panic!("{refused:?}");
                };
                assert!(why.to_string().contains("belongs to user 12345"), "{why}");
            }
        }
    }

    #[test]
    fn who_keeps_the_directory_locked_is_in_nobodys_way() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        let held = File::open(root.path()).unwrap();
        let _held = Flock::lock(held, FlockArg::LockExclusive).unwrap();
        drop(UnixDatagram::bind(&path).unwrap());
        let _file = bind(&socket(), &path, Mode::from_bits_truncate(0o600)).unwrap();
        let names = fs::read_dir(root.path()).unwrap();
        assert_eq!(names.count(), 1, "what was taken away is gone");
    }

    /// Between bind(2) and listen(2) the kernel refuses connections, and another agent took the
    /// socket of one that was just starting for a dead one's.
    #[test]
    fn is_never_there_without_being_served() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        let directory = root.path().to_owned();
        // What another agent finds as soon as it has the lock.
        let look = {
            let path = path.clone();
            move || {
                let _lock = lock(File::open(&directory).unwrap()).unwrap().unwrap();
                path.exists()
                    .then(|| is_served(&path, Type::STREAM).unwrap())
            }
        };
        let looks = thread::spawn(move || {
            let found = std::iter::repeat_with(look).take(100_000).flatten();
            found.take(200).filter(|is_served| !is_served).count()
        });
        while !looks.is_finished() {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            let mode = Mode::from_bits_truncate(0o600);
            let file = listen(&socket, &path, mode, 1).unwrap();
            drop(file);
        }
        assert_eq!(looks.join().unwrap(), 0);
    }

    /// Two that take over at once, where the lock does not keep them apart: the slower one has looked
    /// at the old file, and finds the faster one's in its place.
    #[test]
    fn what_was_bound_since_is_not_taken_away() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        drop(UnixDatagram::bind(&path).unwrap());
        let stale = Identity::of(&fs::symlink_metadata(&path).unwrap());
        fs::remove_file(&path).unwrap();
        take_away(&path, stale).unwrap();
        // Files are dated by the clock's ticks.
        thread::sleep(Duration::from_millis(20));
        let living = UnixDatagram::bind(&path).unwrap();
        let refused = take_away(&path, stale).unwrap_err();
        assert!(matches!(refused, PlaceError::InUse { .. }), "{refused:?}");
        let probe = UnixDatagram::unbound().unwrap();
        probe.send_to(b"hello", &path).unwrap();
        assert_eq!(living.recv(&mut [0; 8]).unwrap(), 5);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn names_that_are_no_paths_are_refused() {
        for name in ["\0abstract", "@abstract", "s", "", "/", "/tmp/a\0b"] {
            let refused = bind(&socket(), Path::new(name), Mode::S_IRUSR).unwrap_err();
            assert!(
                matches!(refused, PlaceError::Name(_)),
                "{name:?}: {refused:?}"
            );
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

        let link = root.path().join("link");
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        let pipe = root.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR).unwrap();
        for path in [&link, &pipe] {
            let refused = bind(&socket(), path, Mode::from_bits_truncate(0o600)).unwrap_err();
            assert!(matches!(refused, PlaceError::NotASocket), "{refused:?}");
            fs::symlink_metadata(path).expect("it is left alone");
        }
        assert!(!root.path().join("elsewhere").exists());
    }
}
