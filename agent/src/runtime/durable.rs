//! The state directory: what must outlive the process, and the lock that keeps a second process
//! from running under the same id.
//!
//! One small file, `state`, replaced as a whole: written under another name, synced, renamed, and
//! the directory synced, so that a crash leaves either the old or the new one. A file that cannot
//! be understood is an error, never a fresh start: a member that forgot its epoch could grant what
//! another one still holds.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc::{CRC_32_ISCSI, Crc};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::geteuid;

use super::trust::{self, Distrust};
use crate::protocol::{Epoch, Incarnation, Marks, NodeId, Record, VoterRecord};

const MAGIC: [u8; 8] = *b"distlock";
/// The present version. Version 1 has no place for a voter's record, and is read as one without.
const VERSION: u8 = 2;
/// Magic, version, flags, node, incarnation, epoch, length of the group's name; then the name, from
/// version 2 on what a voter must remember (nothing, if it is none), and the checksum.
const FIXED_LEN: usize = 8 + 1 + 1 + 2 + 8 + 4 + 2;
const CRC_LEN: usize = 4;
/// A voter remembers two views, and those in its log that are not decided yet.
const MAX_VOTER_LEN: usize = 16 << 20;
/// No state file is longer; a longer one is not read into memory.
const MAX_LEN: usize = FIXED_LEN + u16::MAX as usize + MAX_VOTER_LEN + CRC_LEN;
/// The file `lock` has a number of a process in it, and nothing more.
const MAX_LOCK_LEN: u64 = 32;
/// CRC-32C, as in the datagrams.
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// A state directory that this process has for itself.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    handle: File,
    owner: Owner,
    lock: Flock<File>,
    /// The user whose state it is and stays, where that is not this process's: root may have it
    /// changed by an operator's word.
    keeper: Option<u32>,
}

/// Whose state it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) group: String,
    pub(crate) node: NodeId,
}

impl StateDir {
    /// Takes the directory at `path` for this process, creating it if need be, and reads what the
    /// last life left there.
    pub(crate) fn open(path: &Path, owner: Owner) -> Result<(Self, Option<Record>), StateError> {
        Self::open_for(path, owner, false)
    }

    fn open_for(
        path: &Path,
        owner: Owner,
        is_operator: bool,
    ) -> Result<(Self, Option<Record>), StateError> {
        let failed = |doing| {
            move |source| StateError::Io {
                doing,
                path: path.to_owned(),
                source,
            }
        };
        trust::way_so_far(path)?;
        create_dir(path).map_err(failed("create the state directory"))?;
        let keeper = if is_operator && geteuid().is_root() {
            trust::directory_of_one(path)?
        } else {
            trust::directory(path)?;
            None
        };
        let handle = File::open(path).map_err(failed("open the state directory"))?;
        let lock = lock_dir(path, keeper)?;
        if is_forgetful(path) {
            tracing::warn!(
                "the state directory {} is in memory and lost at a reboot: choose one on a disk",
                path.display()
            );
        }
        let state = Self {
            path: path.to_owned(),
            handle,
            owner,
            lock,
            keeper,
        };
        let record = state.read()?;
        Ok((state, record))
    }

    /// Has the member whose state this is begin as a new voter, on an operator's word. Returns the
    /// epoch it goes on from; `None` if there is no state to be changed.
    ///
    /// # Errors
    /// If the member runs, or its state cannot be read or written.
    pub(crate) fn forget_votes(path: &Path, owner: Owner) -> Result<Option<Epoch>, StateError> {
        let (state, record) = Self::open_for(path, owner, true)?;
        let Some(record) = record else {
            return Ok(None);
        };
        let record = record.forget_votes();
        let epoch = record.epoch;
        state.write(record)?;
        Ok(Some(epoch))
    }

    /// A copy of the descriptor that is the lock. If this process dies, the directory is free only
    /// when all copies are closed; dropping this frees it in any case.
    pub(crate) fn try_clone_lock(&self) -> io::Result<OwnedFd> {
        Ok(self.lock.try_clone()?.into())
    }

    /// Puts `record` on disk; when it returns, the record survives a crash of the host.
    pub(crate) fn write(&self, record: Record) -> Result<(), StateError> {
        self.replace(&encode(&record, &self.owner))
            .map_err(|source| StateError::Io {
                doing: "write",
                path: self.state_path(),
                source,
            })
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.path.join("state.new");
        // What a crash has left; and should it be a link, what it leads to is not ours to write.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        give(&file, self.keeper)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, self.state_path())?;
        self.handle.sync_all()
    }

    fn read(&self) -> Result<Option<Record>, StateError> {
        let path = self.state_path();
        let failed = |source| StateError::Io {
            doing: "read",
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        let file = match open_file(options.read(true), &path, self.keeper) {
            Err(missing) if missing.is_missing() => return Ok(None),
            opened => opened.map_err(|why| refused(why, failed))?,
        };
        let mut bytes = Vec::new();
        let limit = MAX_LEN as u64 + 1;
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        let (record, owner) = decode(&bytes).map_err(|why| match why {
            Flaw::Version(version) => StateError::Version {
                path: path.clone(),
                version,
            },
            Flaw::Damaged(why) => StateError::Damaged {
                path: path.clone(),
                why,
            },
        })?;
        if owner != self.owner {
            return Err(StateError::Foreign {
                path,
                group: owner.group,
                node: owner.node,
            });
        }
        Ok(Some(record))
    }

    fn state_path(&self) -> PathBuf {
        self.path.join("state")
    }
}

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another process has it.
    #[error(
        "the state directory {} is in use by {}: this member already runs; end that process, or \
         give each member a state directory of its own", path.display(), process(*pid)
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process, if it left its number.
        pid: Option<u32>,
    },
    /// The state file cannot be trusted.
    #[error(
        "the state file {} is damaged ({why}): remove it once every lock taken through this member \
         has been free for a lease, and the member begins as a new one; never put back an old copy, \
         and of several voters' files remove one at a time", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The state file is another member's.
    #[error(
        "the state file {} belongs to member {node} of group \"{group}\": give each member a \
         state directory of its own", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its group.
        group: String,
        /// Its member.
        node: NodeId,
    },
    /// The state file was written by a later version.
    #[error(
        "the state file {} has version {version}, and this program reads version {VERSION}: run \
         the version that wrote it, or a later one", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u8,
    },
    /// Others could change the state, or have put something else in its place.
    #[error("the state directory is refused: {why}; {}", why.advice())]
    Unsafe {
        /// What lets them.
        why: Distrust,
    },
    /// The system refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl From<Distrust> for StateError {
    fn from(why: Distrust) -> Self {
        match why {
            Distrust::Io { path, source } => Self::Io {
                doing: "look at",
                path,
                source,
            },
            why => Self::Unsafe { why },
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

/// What to do about `error`, as the end of a message; empty if there is no advice.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => {
            "; run as the user who owns it, or choose another place"
        }
        Some(Errno::EROFS) => "; choose a place that can be written to",
        Some(Errno::ENOSPC | Errno::EDQUOT) => "; make room there, or choose another place",
        Some(Errno::ENOTDIR | Errno::EEXIST) => "; a file is in the way: choose another place",
        Some(Errno::EMFILE) => "; raise this process's limit of open files (ulimit -n)",
        Some(Errno::ENFILE) => "; the system's table of open files is full",
        _ => "",
    }
}

fn create_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    // From the top: each new name must survive a crash of the host as what will be inside does.
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    parent.map_or(Ok(()), create_dir)?;
    match DirBuilder::new().mode(0o700).create(path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The lock is on a file of its own, which is never replaced: `state` is a new file every time.
/// It holds the number of the process, for the message that the next one prints.
fn lock_dir(path: &Path, keeper: Option<u32>) -> Result<Flock<File>, StateError> {
    let lock_path = path.join("lock");
    let failed = |source| StateError::Io {
        doing: "lock",
        path: lock_path.clone(),
        source,
    };
    let file = open_or_make(&lock_path, keeper).map_err(|why| refused(why, failed))?;
    if file.metadata().map_err(failed)?.len() > MAX_LOCK_LEN {
        // It would be lost: it is something else that was put here.
        let why = Distrust::OtherKind {
            path: lock_path,
            expected: "lock of a state directory",
        };
        return Err(why.into());
    }
    let mut lock =
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(file, errno)| {
            if errno == Errno::EWOULDBLOCK {
                StateError::InUse {
                    path: path.to_owned(),
                    pid: read_pid(file),
                }
            } else {
                failed(errno.into())
            }
        })?;
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(failed)?;
    Ok(lock)
}

/// Opens the file that is there, or makes one, `keeper`'s if there is a keeper. What was there stays
/// whose it is.
fn open_or_make(path: &Path, keeper: Option<u32>) -> Result<File, Distrust> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match open_file(&mut options, path, keeper) {
        Err(missing) if missing.is_missing() => {}
        opened => return opened,
    }
    let made = options.clone().create_new(true).mode(0o600).open(path);
    match made.and_then(|file| give(&file, keeper).map(|()| file)) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_file(&mut options, path, keeper)
        }
        made => made.map_err(|source| Distrust::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Opens a file of the state directory, which must be root's, this user's or `keeper`'s, nobody
/// else's to write to, and under this name only: of another one somebody else may have the use, and
/// a keeper can have linked root's here.
fn open_file(
    options: &mut OpenOptions,
    path: &Path,
    keeper: Option<u32>,
) -> Result<File, Distrust> {
    let (file, metadata) = trust::open(options, path)?;
    match trust::file(path, &metadata) {
        Err(Distrust::Stranger { owner, .. }) if Some(owner) == keeper => {}
        checked => checked?,
    }
    if metadata.nlink() != 1 {
        return Err(Distrust::OtherKind {
            path: path.to_owned(),
            expected: "regular file with one name",
        });
    }
    Ok(file)
}

/// Leaves `file` to `keeper`, if there is one. Not asked for in vain: services may be forbidden to.
fn give(file: &File, keeper: Option<u32>) -> io::Result<()> {
    keeper.map_or(Ok(()), |keeper| fchown(file, Some(keeper), None))
}

/// What the system refuses is told as `failed` has it.
fn refused(why: Distrust, failed: impl FnOnce(io::Error) -> StateError) -> StateError {
    match why {
        Distrust::Io { source, .. } => failed(source),
        why => why.into(),
    }
}

fn read_pid(mut file: File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(MAX_LOCK_LEN).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Whether what is written there is lost at a reboot. If the system does not say, it is not.
fn is_forgetful(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| fs.filesystem_type() == TMPFS_MAGIC)
}

fn encode(record: &Record, owner: &Owner) -> Vec<u8> {
    let group = owner.group.as_bytes();
    let group_len = u16::try_from(group.len()).expect("a group's name is short");
    let mut bytes = Vec::with_capacity(FIXED_LEN + group.len() + CRC_LEN);
    bytes.extend_from_slice(&MAGIC);
    let marks = match record.marks {
        Marks::None => 0,
        Marks::Shared => 1,
        Marks::Own => 2,
    };
    let flags = u8::from(record.clean) | marks << 1 | u8::from(record.recovers) << 3;
    bytes.extend_from_slice(&[VERSION, flags]);
    bytes.extend_from_slice(&owner.node.as_u16().to_be_bytes());
    bytes.extend_from_slice(&record.incarnation.0.to_be_bytes());
    bytes.extend_from_slice(&record.epoch.as_u32().to_be_bytes());
    bytes.extend_from_slice(&group_len.to_be_bytes());
    bytes.extend_from_slice(group);
    if let Some(voter) = &record.voter {
        bytes.extend_from_slice(&voter.to_bytes());
    }
    let crc = CRC.checksum(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    Version(u8),
    Damaged(&'static str),
}

fn decode(bytes: &[u8]) -> Result<(Record, Owner), Flaw> {
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_LEN>() else {
        return Err(Flaw::Damaged("it is too short"));
    };
    let Some(mut fields) = body.strip_prefix(&MAGIC) else {
        return Err(Flaw::Damaged("it does not start like a state file"));
    };
    if CRC.checksum(body) != u32::from_be_bytes(*crc) {
        return Err(Flaw::Damaged("its checksum is wrong"));
    }
    // From here on the bytes are as they were written: what does not fit is a defect of ours or
    // another version's.
    fn take<const N: usize>(fields: &mut &[u8]) -> Result<[u8; N], Flaw> {
        let Some((field, rest)) = fields.split_first_chunk::<N>() else {
            return Err(Flaw::Damaged("it ends too early"));
        };
        *fields = rest;
        Ok(*field)
    }
    let [version] = take(&mut fields)?;
    if !matches!(version, 1 | VERSION) {
        return Err(Flaw::Version(version));
    }
    let [flags] = take(&mut fields)?;
    let marks = match (flags >> 1) & 3 {
        0 => Marks::None,
        1 => Marks::Shared,
        2 => Marks::Own,
        _ => return Err(Flaw::Damaged("it has a mark that does not exist")),
    };
    if flags >> 4 != 0 {
        return Err(Flaw::Damaged("it has a flag that does not exist"));
    }
    let node = NodeId::new(u16::from_be_bytes(take(&mut fields)?))
        .ok_or(Flaw::Damaged("it names member 0"))?;
    let incarnation = Incarnation(u64::from_be_bytes(take(&mut fields)?));
    let epoch = Epoch::new(u32::from_be_bytes(take(&mut fields)?))
        .ok_or(Flaw::Damaged("its epoch is out of range"))?;
    let group_len = u16::from_be_bytes(take(&mut fields)?);
    let Some((group, voter)) = fields.split_at_checked(usize::from(group_len)) else {
        return Err(Flaw::Damaged("its length is wrong"));
    };
    let voter = match voter {
        [] => None,
        _ if version == 1 => return Err(Flaw::Damaged("its length is wrong")),
        voter => {
            let voter = VoterRecord::from_bytes(voter);
            let voter = voter.ok_or(Flaw::Damaged("what it says of a voter makes no sense"))?;
            Some(Arc::new(voter))
        }
    };
    let group = String::from_utf8(group.to_vec())
        .map_err(|_| Flaw::Damaged("its group's name is not UTF-8"))?;
    Ok((
        Record {
            incarnation,
            epoch,
            clean: flags & 1 != 0,
            marks,
            recovers: flags & 8 != 0,
            voter,
        },
        Owner { group, node },
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn owner() -> Owner {
        Owner {
            group: "shop".to_owned(),
            node: NodeId::new(3).unwrap(),
        }
    }

    fn record() -> Record {
        Record {
            incarnation: Incarnation(0x0102_0304_0506_0708),
            epoch: Epoch::new(0x1112_1314).unwrap(),
            clean: true,
            marks: Marks::None,
            recovers: false,
            voter: None,
        }
    }

    fn voter() -> Arc<VoterRecord> {
        // A birth, and nothing endorsed yet.
        Arc::new(VoterRecord::from_bytes(b"\x07\x00\x00\x00\x00").unwrap())
    }

    /// Version 2, byte for byte: what is on disks must stay readable.
    #[test]
    fn golden_bytes() {
        let bytes = encode(&record(), &owner());
        let mut expected = b"distlock\x02\x01\x00\x03".to_vec();
        expected.extend_from_slice(b"\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x00\x04shop");
        expected.extend_from_slice(&GOLDEN_CRC);
        assert_eq!(bytes, expected);
        assert_eq!(decode(&bytes), Ok((record(), owner())));
        let recovering = Record {
            recovers: true,
            ..record()
        };
        let bytes = encode(&recovering, &owner());
        assert_eq!(bytes[9], 9);
        assert_eq!(decode(&bytes), Ok((recovering, owner())));
        for (marks, flags) in [(Marks::Shared, 3), (Marks::Own, 5)] {
            let record = Record { marks, ..record() };
            let bytes = encode(&record, &owner());
            assert_eq!(bytes[9], flags);
            assert_eq!(decode(&bytes), Ok((record, owner())));
        }
        let record = Record {
            voter: Some(voter()),
            ..record()
        };
        let bytes = encode(&record, &owner());
        assert_eq!(bytes[..30], expected[..30]);
        assert_eq!(bytes[30..bytes.len() - CRC_LEN], *b"\x07\x00\x00\x00\x00");
        assert_eq!(decode(&bytes), Ok((record, owner())));
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = CRC.checksum(&bytes);
        bytes.extend_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// What version 1 left on disks.
    #[test]
    fn reads_what_has_no_voter() {
        let mut old = encode(&record(), &owner());
        old.truncate(old.len() - CRC_LEN);
        old[8] = 1;
        assert_eq!(decode(&sealed(old.clone())), Ok((record(), owner())));
        old.push(7);
        assert!(matches!(decode(&sealed(old)), Err(Flaw::Damaged(_))));
    }

    #[test]
    fn refuses_a_voter_that_makes_no_sense() {
        let mut bytes = encode(&record(), &owner());
        bytes.truncate(bytes.len() - CRC_LEN);
        bytes.extend_from_slice(b"\x07\x02");
        assert!(matches!(decode(&sealed(bytes)), Err(Flaw::Damaged(_))));
    }
    const GOLDEN_CRC: [u8; 4] = [0x38, 0xb6, 0x8e, 0xa1];

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = encode(
            &Record {
                voter: Some(voter()),
                ..record()
            },
            &owner(),
        );
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&bad), Err(Flaw::Damaged(_))), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(
                matches!(decode(&good[..len]), Err(Flaw::Damaged(_))),
                "length {len}"
            );
        }
    }

    #[test]
    fn keeps_the_last_record_over_lives() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        let (state, none) = StateDir::open(&path, owner()).unwrap();
        assert_eq!(none, None);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        state
            .write(Record {
                clean: false,
                ..record()
            })
            .unwrap();
        state.write(record()).unwrap();
        drop(state);
        let (_state, last) = StateDir::open(&path, owner()).unwrap();
        assert_eq!(last, Some(record()));
    }

    #[test]
    fn one_process_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let (first, _) = StateDir::open(root.path(), owner()).unwrap();
        let second = StateDir::open(root.path(), owner()).unwrap_err();
        assert!(matches!(second, StateError::InUse { pid: Some(pid), .. }
            if pid == std::process::id()));
        drop(first);
        StateDir::open(root.path(), owner()).unwrap();
    }

    fn refused(path: &Path) -> StateError {
        StateDir::open(path, owner()).unwrap_err()
    }

    /// What others could put there, or have put there while they could.
    #[test]
    fn refuses_what_others_could_change() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for mode in [0o770, 0o702, 0o1777] {
            chmod(root.path(), mode);
            let why = refused(root.path()).to_string();
            assert!(why.contains(&format!("{mode:04o}")), "{why}");
        }
        // Below one that everybody can change, nothing is even made.
        chmod(root.path(), 0o777);
        let why = refused(&path("a/b")).to_string();
        assert!(why.contains("everybody") && !path("a").exists(), "{why}");
        chmod(root.path(), 0o755);

        let victim = path("victim");
        let precious = "much longer than the number of any process";
        fs::write(&victim, precious).unwrap();
        for name in ["state", "lock"] {
            let link = || std::os::unix::fs::symlink("victim", path(name)).unwrap();
            let hard_link = || fs::hard_link(&victim, path(name)).unwrap();
            let pipe = || nix::unistd::mkfifo(&path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
            let directory = || fs::create_dir(path(name)).unwrap();
            let open = || {
                fs::write(path(name), "").unwrap();
                chmod(&path(name), 0o666);
            };
            // From before.
            let _ = fs::remove_file(path(name));
            for plant in [&link as &dyn Fn(), &hard_link, &pipe, &directory, &open] {
                plant();
                let error = refused(root.path());
                assert!(!matches!(error, StateError::InUse { .. }), "{error}");
                assert_eq!(fs::read_to_string(&victim).unwrap(), precious);
                let _ = fs::remove_file(path(name)).or_else(|_| fs::remove_dir(path(name)));
            }
            if geteuid().is_root() {
                fs::write(path(name), "").unwrap();
                std::os::unix::fs::chown(path(name), Some(12_345), None).unwrap();
                let why = refused(root.path()).to_string();
                assert!(why.contains("belongs to user 12345"), "{why}");
                fs::remove_file(path(name)).unwrap();
            }
        }
        let (state, _) = StateDir::open(root.path(), owner()).unwrap();
        std::os::unix::fs::symlink("victim", path("state.new")).unwrap();
        state.write(record()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), precious);
        assert!(!fs::symlink_metadata(path("state")).unwrap().is_symlink());
    }

    /// A second name of what is as short as a lock, which was written to, and given to the keeper of
    /// the directory. Who may not open a file could link it where links are not protected.
    #[test]
    fn refuses_other_names_of_other_files() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir(path("d")).unwrap();
        let refused = || {
            let operator = StateDir::forget_votes(&path("d"), owner()).map(drop);
            [refused(&path("d")), operator.unwrap_err()].map(|why| why.to_string())
        };
        fs::write(path("victim"), "12345\n").unwrap();
        for name in ["d/lock", "d/state"] {
            fs::hard_link(path("victim"), path(name)).unwrap();
            for why in refused() {
                assert!(why.contains("one name") && why.contains(name), "{why}");
            }
            fs::remove_file(path(name)).unwrap();
        }
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "12345\n");
        if !geteuid().is_root() {
            return;
        }
        let user = Some(12_345);
        fs::remove_file(path("d/lock")).unwrap();
        std::os::unix::fs::chown(path("d"), user, None).unwrap();
        fs::hard_link(path("victim"), path("d/lock")).unwrap();
        let [_, why] = refused();
        assert!(why.contains("one name"), "{why}");
        assert_eq!(fs::metadata(path("victim")).unwrap().uid(), 0);
        // A file of root's that is there stays root's; one that is made is the keeper's.
        fs::remove_file(path("victim")).unwrap();
        assert_eq!(StateDir::forget_votes(&path("d"), owner()).unwrap(), None);
        assert_eq!(fs::metadata(path("d/lock")).unwrap().uid(), 0);
        fs::remove_file(path("d/lock")).unwrap();
        assert_eq!(StateDir::forget_votes(&path("d"), owner()).unwrap(), None);
        assert_eq!(fs::metadata(path("d/lock")).unwrap().uid(), 12_345);
        // And others than the keeper may not write there, for root either.
        for (mode, word) in [(0o770, "0770"), (0o1777, "everybody's to write to")] {
            fs::set_permissions(path("d"), fs::Permissions::from_mode(mode)).unwrap();
            let [_, why] = refused();
            assert!(why.contains(word), "{why}");
        }
    }

    /// A link of this user's may lead to another disk, and a directory of another user's above is
    /// his who named it.
    #[test]
    fn follows_links_that_nobody_else_made() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("disk")).unwrap();
        std::os::unix::fs::symlink("disk", root.path().join("base")).unwrap();
        let path = root.path().join("base/shop-3");
        StateDir::open(&path, owner()).unwrap();
        assert!(root.path().join("disk/shop-3/lock").exists());
    }

    #[test]
    fn refuses_what_is_damaged_or_of_another() {
        let root = tempfile::tempdir().unwrap();
        let (state, _) = StateDir::open(root.path(), owner()).unwrap();
        state.write(record()).unwrap();
        drop(state);
        let other = Owner {
            node: NodeId::new(4).unwrap(),
            ..owner()
        };
        let error = StateDir::open(root.path(), other).unwrap_err();
        assert!(matches!(error, StateError::Foreign { .. }), "{error}");

        let file = root.path().join("state");
        fs::write(&file, b"").unwrap();
        let error = StateDir::open(root.path(), owner()).unwrap_err();
        assert!(matches!(error, StateError::Damaged { .. }), "{error}");

        let mut later = encode(&record(), &owner());
        later.truncate(later.len() - CRC_LEN);
        later[8] = 3;
        fs::write(&file, sealed(later)).unwrap();
        let error = StateDir::open(root.path(), owner()).unwrap_err();
        assert!(
            matches!(error, StateError::Version { version: 3, .. }),
            "{error}"
        );
    }
}
