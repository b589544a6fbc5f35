//! Who waits for the disk. A sync can take longer than a lease, and meanwhile leases have to be
//! renewed, others answered, and commands ended: so an agent with a thread has another one for the
//! disk. What must not be said before a record is on disk waits in the core. An agent that its
//! application drives has no threads, and waits.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use crate::protocol::{Record, Time};
use crate::runtime::disk::state_dir::StateDir;
use crate::runtime::os::clock;
use crate::runtime::os::thread::spawn;

/// Puts records on disk.
#[derive(Debug)]
pub(crate) enum Disk {
    /// Whoever calls waits until it is done.
    Here(StateDir),
    /// Its thread does it.
    Thread(DiskThread),
    /// There are no records. The directory, if there is one, is this agent's as long as it is here.
    #[cfg(feature = "store")]
    Unused(#[expect(dead_code, reason = "it has the lock")] Option<StateDir>),
}

/// A thread that writes one record at a time.
#[derive(Debug)]
pub(crate) struct DiskThread {
    /// `None` once there is nothing more to write.
    records: Option<Sender<Record>>,
    outcomes: Receiver<Result<(), String>>,
    thread: Option<JoinHandle<()>>,
    /// Since when a record is written, if one is.
    since: Option<Time>,
    /// Whether the log was told that this takes long.
    is_told: bool,
}

impl DiskThread {
    /// Starts it. When a record is on disk, it calls `wake_loop`.
    pub(crate) fn start(
        mut state: StateDir,
        wake_loop: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (records, to_write) = bounded::<Record>(1);
        let (done, outcomes) = bounded(1);
        let thread = spawn("distlock-disk", move || {
            for record in to_write {
                let outcome = state.write(record).map_err(|error| error.to_string());
                // The loop takes it before it sends another record.
                if done.send(outcome).is_err() {
                    return;
                }
                wake_loop();
            }
        })?;
        Ok(Self {
            records: Some(records),
            outcomes,
            thread: Some(thread),
            since: None,
            is_told: false,
        })
    }

    /// What became of the record that is written, if that is known by now: why it is not on disk; and how
    /// long it took.
    pub(crate) fn take_outcome(&mut self) -> Option<(Result<(), String>, Duration)> {
        let since = self.since?;
        let outcome = match self.outcomes.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                Err("the thread that writes the state has panicked".to_owned())
            }
        };
        (self.since, self.is_told) = (None, false);
        Some((outcome, clock::now().since(since)))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.since.is_none()
    }

    /// Has `record` written, while none is.
    pub(crate) fn write(&mut self, record: Record) {
        debug_assert!(self.is_idle(), "the core has one record written at a time");
        self.since = Some(clock::now());
        if let Some(records) = &self.records {
            // If the thread is gone there is no outcome, and that is told instead.
            let _ = records.send(record);
        }
    }

    /// Tells the log, once, that a record has been on its way to the disk for longer than `lease`.
    pub(crate) fn tell_if_slow(&mut self, lease: Duration) {
        let is_slow = self.since.is_some_and(|since| since + lease < clock::now());
        if is_slow && !self.is_told {
            self.is_told = true;
            tracing::warn!(
                event = "disk-slow",
                "the disk takes longer than a lease to keep this member's state: until it is done, \
                 this member agrees to no view, and the others may have to do without it"
            );
        }
    }
}

/// Waits until the record that is written is on disk: the directory is not another incarnation's
/// before.
impl Drop for DiskThread {
    fn drop(&mut self) {
        self.records = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(
                event = "state-write-failed",
                "the thread that writes the state panicked"
            );
        }
    }
}
