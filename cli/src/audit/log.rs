//! Writes the audit log: a queue, a thread, and the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use distlock::audit::{AuditRecord, Auditor};
use distlock_agent::runtime::trust::{self, PathTrustError};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use super::line::Line;
use crate::exit::{CONFIG, Failure, NO_PERMISSION, UNAVAILABLE};
use crate::refusal;

/// How many records wait for the thread at most; more find no room.
const MAX_WAITING: usize = 16_384;
/// How many are written at once at most.
const BATCH: usize = 1_024;
/// How often a gap that could not be told of is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an agent that ends waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);
/// The hash in the first line of a chain.
pub(super) const FIRST: [u8; 32] = [0; 32];

/// What the thread hears.
enum Word {
    /// Something has happened. `lost`: how many before it found no room.
    Record { record: Box<AuditRecord>, lost: u64 },
    /// The agent has ended.
    End { lost: u64 },
}

/// An audit log that is being written.
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: Sender<Word>,
    unheard: Arc<AtomicU64>,
    is_done: Receiver<()>,
}

/// Begins to write at `path` what the agent of `member` tells the [`Auditor`].
///
/// # Errors
/// If the file cannot be had, or is another process's or no audit log; or there is no thread.
pub(crate) fn open(path: &Path, member: u16) -> Result<(AuditLog, Auditor), Failure> {
    let (log, note, lost) = begin(path, member, MAX_WAITING)?;
    Ok((log, Auditor::new(note, lost)))
}

/// Begins to write at `path` with a queue of `room` records: the log, the function that queues a record, and the
/// count of the records for which the queue had no room.
fn begin(
    path: &Path,
    member: u16,
    room: usize,
) -> Result<
    (
        AuditLog,
        impl Fn(AuditRecord) + Send + Sync + 'static,
        Arc<AtomicU64>,
    ),
    Failure,
> {
    let mut file = AuditFile::open(path, member)?;
    file.write([Line::now("start")])
        .map_err(|error| refused(path, &error))?;
    let (queue, words) = bounded(room);
    let (done, is_done) = bounded(0);
    let lost = Arc::new(AtomicU64::new(0));
    // Those since the last record that found room.
    let unheard = Arc::new(AtomicU64::new(0));
    let mut writer = Writer {
        words,
        file,
        missing: 0,
        lost: Arc::clone(&lost),
    };
    let work = move || {
        writer.run();
        drop(done);
    };
    thread::Builder::new()
        .name("distlock-audit".to_owned())
        .spawn(work)
        .map_err(|error| refusal::system("start the audit's thread", error))?;
    let log = AuditLog {
        queue: queue.clone(),
        unheard: Arc::clone(&unheard),
        is_done,
    };
    let counter = Arc::clone(&lost);
    // One thread at a time calls it: the agent's mutex is held.
    let note = move |record| {
        let record = Box::new(record);
        let lost = unheard.swap(0, Ordering::Relaxed);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            queue.try_send(Word::Record { record, lost })
        {
            unheard.store(lost + 1, Ordering::Relaxed);
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    Ok((log, note, lost))
}

impl AuditLog {
    /// The agent has ended: writes what is left, if the disk takes it in time.
    pub(crate) fn close(self) {
        let lost = self.unheard.swap(0, Ordering::Relaxed);
        if self
            .queue
            .send_timeout(Word::End { lost }, PATIENCE)
            .is_ok()
        {
            let _ = self.is_done.recv_timeout(PATIENCE);
        }
    }
}

/// The thread's.
struct Writer {
    words: Receiver<Word>,
    file: AuditFile,
    /// How many lines are to be told of as missing.
    missing: u64,
    lost: Arc<AtomicU64>,
}

impl Writer {
    fn run(&mut self) {
        loop {
            let mut lines = Vec::new();
            let mut is_over = false;
            let first = match self.words.recv_timeout(AGAIN) {
                Ok(word) => Some(word),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for word in first.into_iter().chain(self.words.try_iter()) {
                let (line, lost) = match word {
                    Word::Record { record, lost } => (Line::from(*record), lost),
                    Word::End { lost } => {
                        is_over = true;
                        (Line::now("end"), lost)
                    }
                };
                if lost > 0 {
                    lines.push(gap(lost, "the queue was full"));
                }
                lines.push(line);
                if is_over || lines.len() >= BATCH {
                    break;
                }
            }
            self.write(lines);
            if is_over {
                return;
            }
        }
    }

    /// Writes them all, or none: then they are missing.
    fn write(&mut self, lines: Vec<Line>) {
        if lines.is_empty() && self.missing == 0 {
            return;
        }
        let count = lines.iter().map(|line| line.lost.unwrap_or(1)).sum::<u64>();
        let news = lines.iter().filter(|line| line.lost.is_none()).count();
        let missing =
            (self.missing > 0).then(|| gap(self.missing, "the file could not be written"));
        match self.file.write(missing.into_iter().chain(lines)) {
            Ok(()) => self.missing = 0,
            Err(error) => {
                self.missing += count;
                self.lost.fetch_add(news as u64, Ordering::Relaxed);
                if news > 0 {
                    tracing::error!(
                        event = "audit-failed",
                        "the audit log {} cannot be written: {error}; locks are granted without it, \
                         and it will tell how many lines are missing: make room",
                        self.file.path.display()
                    );
                }
            }
        }
    }
}

/// A line that tells of missing ones.
fn gap(lost: u64, why: &str) -> Line {
    Line {
        lost: Some(lost),
        why: Some(why.to_owned()),
        ..Line::now("gap")
    }
}

/// The file, and the end of its chain.
pub(crate) struct AuditFile {
    path: PathBuf,
    member: u16,
    file: Flock<File>,
    inode: (u64, u64),
    /// The length of its whole lines, if there is something behind them that could not be taken away.
    cut_at: Option<u64>,
    seq: u64,
    hash: [u8; 32],
}

impl AuditFile {
    /// Goes on in the file at `path`, or begins it.
    ///
    /// # Errors
    /// If it cannot be had, others can change it, another process has it, or it is no audit log.
    pub(crate) fn open(path: &Path, member: u16) -> Result<Self, Failure> {
        let file = open_file(path).map_err(|error| refused(path, &error))?;
        let inode = inode(&file).map_err(|error| refused(path, &error))?;
        let mut log = Self {
            path: path.to_owned(),
            member,
            file,
            inode,
            cut_at: None,
            seq: 0,
            hash: FIRST,
        };
        log.find_end().map_err(|error| refused(path, &error))?;
        Ok(log)
    }

    /// Notes that an operator abandons the cluster of this member, which does not run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn note_recovery(mut self) -> Result<(), Failure> {
        let line = Line {
            uid: Some(geteuid().as_raw()),
            pid: Some(std::process::id()),
            ..Line::now("recover")
        };
        let written = self.write([line]);
        written.map_err(|error| refused(&self.path, &error))
    }

    /// Reads the last line. One that a power cut has torn is ended, and told of as a gap.
    fn find_end(&mut self) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        if len == 0 {
            return Ok(());
        }
        let (lines, is_torn) = last_lines(&mut self.file, len)?;
        let (torn, whole) = match lines.as_slice() {
            [.., whole, torn] if is_torn => (Some(torn), Some(whole)),
            [torn] if is_torn => (Some(torn), None),
            [.., whole] => (None, Some(whole)),
            [] => (None, None),
        };
        if let Some(whole) = whole {
            let last: Line = serde_json::from_slice(whole)
                .ok()
                .filter(|line: &Line| line.seq > 0)
                .ok_or_else(not_ours)?;
            self.seq = last.seq;
            self.hash = hash(whole);
        }
        if let Some(torn) = torn {
            let shorter = torn.len().min(BEGINNING.len());
            if torn[..shorter] != BEGINNING[..shorter] {
                return Err(not_ours());
            }
            self.hash = hash(torn);
            self.file.write_all(b"\n")?;
            self.write([gap(1, TORN)])?;
        }
        Ok(())
    }

    /// Adds lines, all or none of them.
    pub(super) fn write(&mut self, lines: impl IntoIterator<Item = Line>) -> io::Result<()> {
        self.follow()?;
        let (mut seq, mut hash_before) = (self.seq, self.hash);
        let mut bytes = Vec::new();
        for mut line in lines {
            seq += 1;
            line.seq = seq;
            line.member = self.member;
            line.prev = hex(&hash_before);
            let begin = bytes.len();
            serde_json::to_writer(&mut bytes, &line)?;
            hash_before = hash(&bytes[begin..]);
            bytes.push(b'\n');
        }
        if let Some(len) = self.cut_at {
            self.file.set_len(len)?;
            self.cut_at = None;
        }
        let len = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(&bytes) {
            // What there was room for is half a batch, or half a line.
            if self.file.set_len(len).is_err() {
                self.cut_at = Some(len);
            }
            return Err(error);
        }
        (self.seq, self.hash) = (seq, hash_before);
        Ok(())
    }

    /// Begins a new file where the old one has been moved away. The chain goes on.
    fn follow(&mut self) -> io::Result<()> {
        let is_there = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.inode);
        if is_there {
            return Ok(());
        }
        let file = open_file(&self.path)?;
        if file.metadata()?.len() > 0 {
            return Err(io::Error::other(
                "another file with something in it has taken its place",
            ));
        }
        (self.inode, self.cut_at) = (inode(&file)?, None);
        self.file = file;
        Ok(())
    }
}

/// How each line begins.
const BEGINNING: &[u8] = b"{\"seq\":";

fn not_ours() -> io::Error {
    io::Error::other("its last line is not a line of an audit log")
}

/// What the gap after a torn line says.
pub(super) const TORN: &str = "the line before is torn";

/// The last two lines, or the last one where there is no other; and whether the last of them is torn.
fn last_lines(file: &mut File, len: u64) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let mut size = 4_096;
    loop {
        let from = len.saturating_sub(size);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        file.take(len - from).read_to_end(&mut end)?;
        let is_torn = end.last() != Some(&b'\n');
        let whole = end.strip_suffix(b"\n").unwrap_or(&end);
        let lines: Vec<_> = whole
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        // The first of them may have begun before.
        if from == 0 {
            return Ok((lines, is_torn));
        }
        if lines.len() > 2 {
            return Ok((lines[lines.len() - 2..].to_vec(), is_torn));
        }
        size *= 4;
    }
}

pub(super) fn hash(line: &[u8]) -> [u8; 32] {
    *blake3::hash(line).as_bytes()
}

pub(super) fn hex(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

fn inode(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Its own user's alone: it tells what runs where, and is evidence.
fn open_file(path: &Path) -> io::Result<Flock<File>> {
    trust::way_so_far(path).map_err(untrusted)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let (file, metadata) = trust::open(&mut options, path).map_err(untrusted)?;
    trust::file(path, &metadata).map_err(untrusted)?;
    if metadata.nlink() > 1 {
        return Err(io::Error::other("it has another name, too"));
    }
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    locked.map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process writes to it; give each agent a file of its own",
        ),
        errno => errno.into(),
    })
}

fn untrusted(why: PathTrustError) -> io::Error {
    match why {
        PathTrustError::Io { source, .. } => source,
        why => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{why}; {}", why.advice()),
        ),
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied => NO_PERMISSION,
        io::ErrorKind::Other => CONFIG,
        _ => UNAVAILABLE,
    };
    let what = format!(
        "the audit log {} cannot be written: {error}; no lock is granted without it: mend that, move \
         the file away, or change [audit] file",
        path.display()
    );
    Failure::new(code, what)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use distlock::audit::AuditEvent;
    use distlock_agent::runtime::clock;

    use super::*;

    /// The queue is full most of the time, as its only place is taken until the disk has the lines before.
    #[test]
    fn what_finds_no_room_is_told_of_where_it_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (log, note, lost) = begin(&path, 1, 1).unwrap();
        let all = 20_000;
        for epoch in 1..=all {
            note(AuditRecord {
                wall: SystemTime::now(),
                at: clock::now(),
                event: AuditEvent::Excluded { epoch },
            });
        }
        log.close();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        // Between two lines as many are told of as are missing.
        let mut next = 1;
        for line in &lines[1..lines.len() - 1] {
            match (line.lost, line.epoch) {
                (Some(lost), _) => next += u32::try_from(lost).unwrap(),
                (None, epoch) => {
                    assert_eq!(epoch, Some(next));
                    next += 1;
                }
            }
        }
        assert_eq!(next, all + 1);
        let told: u64 = lines.iter().filter_map(|line| line.lost).sum();
        assert_eq!(told, lost.load(Ordering::Relaxed));
        assert!(told > 0, "there was room for all of them");
        assert_eq!(lines.last().unwrap().event, "end");
    }
}
