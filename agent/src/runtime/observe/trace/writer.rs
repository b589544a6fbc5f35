//! Writes entries to a file: in a thread of its own, or between an application's rounds.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, bounded};

use super::{Entry, FORMAT, Head};
use crate::protocol::NodeId;
use crate::runtime::disk::trust::{self, PathTrustError};
use crate::runtime::os::clock;
use crate::runtime::os::thread::spawn;

/// The longest file, in bytes. There are at most two.
const LIMIT: u64 = 32 << 20;
/// How much is gathered for one call of the system.
const CHUNK: usize = 64 << 10;
/// How long an agent that ends waits for the disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes the entries that come.
#[derive(Debug)]
pub(crate) struct TraceWriter {
    entries: Receiver<Entry>,
    path: PathBuf,
    file: File,
    /// What the file has.
    len: u64,
    limit: u64,
    /// What is to be written, in whole lines.
    buffer: Vec<u8>,
    head: Head,
}

impl TraceWriter {
    /// Goes on in the file of member `me` of `group` in `dir`, or begins one.
    pub(super) fn open(
        dir: &Path,
        group: &str,
        me: NodeId,
        host: &str,
        entries: Receiver<Entry>,
    ) -> io::Result<Self> {
        trust::way_so_far(dir).map_err(refused)?;
        DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
        let path = dir.join(file_name(group, me));
        let (file, len) = open_file(&path)?;
        let mut writer = Self {
            entries,
            path,
            file,
            len,
            limit: LIMIT,
            buffer: Vec::new(),
            head: Head {
                distlock_trace: FORMAT,
                group: group.to_owned(),
                member: me.as_u16(),
                host: host.to_owned(),
                clock: clock_identity(),
                at: 0,
                wall: 0,
            },
        };
        writer.end_torn_line()?;
        writer.write_head();
        writer.flush()?;
        Ok(writer)
    }

    /// Writes until nobody has anything to say any more, or it is not possible.
    fn run(mut self) {
        while let Ok(entry) = self.entries.recv() {
            let written = self.write(&entry).and_then(|()| self.drain());
            if let Err(error) = written {
                return self.give_up(&error);
            }
        }
    }

    /// Writes what has come.
    fn drain(&mut self) -> io::Result<()> {
        while let Ok(entry) = self.entries.try_recv() {
            self.write(&entry)?;
        }
        self.flush()
    }

    /// Says why the trace ends. The receiver goes with it, and then nothing is noted any more.
    fn give_up(self, error: &io::Error) {
        tracing::warn!(
            event = "trace-failed",
            "the trace {} ends here: {error}; the agent goes on without; make room, or name \
             another directory, and start it again to trace it",
            self.path.display()
        );
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        if self.len + self.buffer.len() as u64 >= self.limit {
            self.flush()?;
            self.turn_over()?;
        }
        put(&mut self.buffer, entry);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = mem::take(&mut self.buffer);
        self.file.write_all(&bytes)?;
        self.len += bytes.len() as u64;
        self.buffer = bytes;
        self.buffer.clear();
        Ok(())
    }

    /// Keeps the full file under another name, and begins a new one.
    fn turn_over(&mut self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension("1.trace"))?;
        (self.file, self.len) = open_file(&self.path)?;
        self.write_head();
        Ok(())
    }

    fn write_head(&mut self) {
        self.head.at = clock::now().as_nanos();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        self.head.wall = wall.map_or(0, |wall| u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX));
        put(&mut self.buffer, &self.head);
    }

    /// An incarnation that ended in the middle of a line leaves the next one a line of its own.
    fn end_torn_line(&mut self) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        self.file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        self.file.read_exact(&mut last)?;
        if last != *b"\n" {
            self.buffer.push(b'\n');
        }
        Ok(())
    }
}

/// Who has entries written.
#[derive(Debug)]
pub(crate) enum Writer {
    /// A thread, which is done when this is at its end.
    Thread(Receiver<()>),
    /// Whoever runs the loop; `None` once it is not possible any more.
    Loop(Option<TraceWriter>),
}

impl Writer {
    /// A thread, for an agent that has one itself.
    pub(super) fn thread(writer: TraceWriter) -> io::Result<Self> {
        let (done, is_done) = bounded(0);
        spawn("distlock-trace", move || {
            writer.run();
            drop(done);
        })?;
        Ok(Self::Thread(is_done))
    }

    /// Nobody, but for [`Writer::work`].
    pub(super) const fn in_loop(writer: TraceWriter) -> Self {
        Self::Loop(Some(writer))
    }

    /// Writes what has come, where no thread does.
    pub(crate) fn work(&mut self) {
        if let Self::Loop(slot) = self
            && let Some(mut writer) = slot.take()
        {
            match writer.drain() {
                Ok(()) => *slot = Some(writer),
                Err(error) => writer.give_up(&error),
            }
        }
    }
}

/// What was noted last is written, if the disk takes it in time.
impl Drop for Writer {
    fn drop(&mut self) {
        self.work();
        if let Self::Thread(is_done) = self {
            let _ = is_done.recv_timeout(PATIENCE);
        }
    }
}

/// What tells the clock of this process from others: the boot of the kernel, and the time namespace. Where it
/// cannot be known it is like no other.
fn clock_identity() -> String {
    match (clock::boot(), clock::time_namespace()) {
        (Ok(boot), Some(namespace)) => format!("{boot}/{namespace}"),
        _ => format!("unknown/{}/{}", std::process::id(), clock::now().as_nanos()),
    }
}

/// Its own user's alone, as what locks there are is nobody else's business.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    // The directory may be one in which everybody can plant a link, or a pipe that nobody reads.
    let (file, metadata) = trust::open(&mut options, path).map_err(refused)?;
    trust::file(path, &metadata).map_err(refused)?;
    if metadata.nlink() > 1 {
        return Err(io::Error::other("it has another name, too"));
    }
    Ok((file, metadata.len()))
}

fn refused(why: PathTrustError) -> io::Error {
    match why {
        PathTrustError::Io { source, .. } => source,
        why => io::Error::new(io::ErrorKind::PermissionDenied, why),
    }
}

/// A name of its own for each member of each group.
fn file_name(group: &str, me: NodeId) -> String {
    let mut name = String::new();
    for byte in group.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(byte.into());
        } else {
            name += &format!("%{byte:02x}");
        }
    }
    // With room for the rest within what file systems allow.
    if name.len() > 200 {
        name = blake3::hash(group.as_bytes()).to_hex().to_string();
    }
    format!("{name}-{me}.trace")
}

/// Adds a line.
fn put(buffer: &mut Vec<u8>, line: &impl serde::Serialize) {
    serde_json::to_writer(&mut *buffer, line).expect("what is in a trace can be written");
    buffer.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use crossbeam_channel::Sender;
    use nix::sys::stat::Mode;

    use super::*;
    use crate::runtime::observe::trace::What;

    fn writer(dir: &Path) -> (Sender<Entry>, TraceWriter) {
        let (sender, receiver) = bounded(1_000);
        let me = NodeId::new(3).expect("an id");
        let writer = TraceWriter::open(dir, "a shop", me, "alpha", receiver);
        (sender, writer.expect("a file"))
    }

    fn entry(n: u64) -> Entry {
        Entry {
            incarnation: 1,
            n,
            at: n,
            what: What::Began,
        }
    }

    fn text(dir: &Path, name: &str) -> String {
        fs::read_to_string(dir.join(name)).expect("a trace")
    }

    #[test]
    fn goes_on_after_a_line_that_was_torn() {
        let dir = tempfile::tempdir().expect("a directory");
        let (sender, writer) = writer(dir.path());
        sender.send(entry(1)).expect("room");
        drop(sender);
        writer.run();
        let name = "a%20shop-3.trace";
        let mut whole = text(dir.path(), name);
        assert_eq!(whole.lines().count(), 2);
        whole.truncate(whole.len() - 5);
        fs::write(dir.path().join(name), &whole).expect("room");

        let (sender, mut writer) = self::writer(dir.path());
        sender.send(entry(1)).expect("room");
        writer.drain().expect("room");
        let text = text(dir.path(), name);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(serde_json::from_str::<Head>(lines[0]).is_ok());
        assert!(serde_json::from_str::<Entry>(lines[1]).is_err(), "torn");
        assert!(serde_json::from_str::<Head>(lines[2]).is_ok());
        assert_eq!(
            serde_json::from_str::<Entry>(lines[3]).expect("an entry"),
            entry(1)
        );
    }

    #[test]
    fn takes_two_files_and_no_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let (_sender, mut writer) = writer(dir.path());
        writer.limit = 2_000;
        for n in 1..=500 {
            writer.write(&entry(n)).expect("room");
        }
        writer.flush().expect("room");
        let files = fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(files, 2);
        let [old, new] =
            ["a%20shop-3.1.trace", "a%20shop-3.trace"].map(|name| text(dir.path(), name));
        for text in [&old, &new] {
            assert!(text.len() < 2_200, "{}", text.len());
            let head: Head = serde_json::from_str(text.lines().next().expect("a line")).unwrap();
            assert_eq!((head.member, head.group.as_str()), (3, "a shop"));
        }
        let last = |text: &str| serde_json::from_str::<Entry>(text.lines().last().unwrap());
        assert_eq!(last(&new).unwrap().n, 500);
        let first: Entry = serde_json::from_str(new.lines().nth(1).unwrap()).unwrap();
        assert_eq!(last(&old).unwrap().n + 1, first.n, "nothing is between");
    }

    /// What others could have put there is not written to.
    #[test]
    fn writes_to_no_file_but_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("victim"), "precious").expect("room");
        let open = |dir: &Path| {
            let (_, receiver) = bounded(1);
            TraceWriter::open(
                dir,
                "shop",
                NodeId::new(3).expect("an id"),
                "alpha",
                receiver,
            )
        };
        let name = || path("shop-3.trace");
        let link = || std::os::unix::fs::symlink("victim", name()).expect("a link");
        let hard_link = || fs::hard_link(path("victim"), name()).expect("a link");
        let pipe = || nix::unistd::mkfifo(&name(), Mode::S_IRWXU).expect("a pipe");
        let shared = || {
            fs::write(name(), "").expect("a file");
            fs::set_permissions(name(), Permissions::from_mode(0o666)).expect("its mode");
        };
        for plant in [&link as &dyn Fn(), &hard_link, &pipe, &shared] {
            plant();
            let refused = open(dir.path()).expect_err("a refusal");
            assert_eq!(fs::read_to_string(path("victim")).expect("it"), "precious");
            fs::remove_file(name()).expect("it was there");
            drop(refused);
        }
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("its mode");
        open(&path("below")).expect_err("a refusal");
        assert!(!path("below").exists());
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("its mode");
        open(&path("below")).expect("a file");
        let mode = fs::metadata(path("below"))
            .expect("it")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o700);
    }

    /// What is full takes the trace, and whoever notes something goes on.
    #[test]
    fn ends_when_the_disk_is_full() {
        let dir = tempfile::tempdir().expect("a directory");
        let (sender, mut writer) = writer(dir.path());
        writer.file = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("a full disk");
        sender.send(entry(1)).expect("room");
        writer.run();
        assert!(sender.send(entry(2)).is_err(), "nobody reads any more");
    }
}
