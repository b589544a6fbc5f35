//! What a command has left behind, as long as `run` is there.
//!
//! When the command has ended, `run` asks its guardian and its agent to let the lock go, and either may
//! stand still for longer than the lease lasts. So `run` asks by a thread of its own, and meanwhile ends
//! what the command has left when the lease is nearly over. Where no guardian can take that over, `run`
//! stays as long as something is left.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use distlock::LeaseWatch;
use distlock_agent::protocol::Time;
use distlock_agent::runtime::{Alarm, clock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::command::is_alive;
use crate::exit::Failure;
use crate::guardian::Guardian;
use crate::refusal;
use crate::signals::{self, Signals};

/// After what time those are killed again that are left.
const AGAIN: Duration = Duration::from_millis(5);

/// Ends what a command has left behind when its lease is nearly over.
#[derive(Debug)]
pub(super) struct Leftover<'a> {
    watch: &'a LeaseWatch,
    guardian: &'a Guardian,
    /// How long before the end of the lease.
    margin: Duration,
    alarm: Alarm,
    /// Its writing end is closed when the work is done that is waited for.
    done: Option<(PipeReader, PipeWriter)>,
    /// Whether the lease was seen to be nearly over. There is no way back.
    is_over: bool,
}

impl<'a> Leftover<'a> {
    /// Of a command that `guardian` watches, under a lease of this length.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(super) fn new(
        watch: &'a LeaseWatch,
        guardian: &'a Guardian,
        lease: Duration,
    ) -> Result<Self, Failure> {
        let pipe = io::pipe().map_err(|error| refusal::system("open a pipe", error))?;
        Ok(Self {
            watch,
            guardian,
            margin: lease / 10,
            alarm: Alarm::new().map_err(|error| refusal::system("open a timer", error))?,
            done: Some(pipe),
            is_over: false,
        })
    }

    /// Does `work`, which may have to wait for long, and watches the lease meanwhile. Where the system has
    /// no room for a thread, only the guardian and the agent watch it.
    ///
    /// # Errors
    /// Only what cannot happen: the kernel refuses to wait.
    pub(super) fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let (reader, writer) = self.done.take().unzip();
        let mut work = Some(work);
        let worker = || {
            // Closed when this has ended, however it ends.
            let _writer = writer;
            work.take().map(|work| work())
        };
        let done = thread::scope(|scope| {
            let Ok(worker) = thread::Builder::new().spawn_scoped(scope, worker) else {
                return Ok(None);
            };
            let watched = reader.map(|reader| self.watch_until_closed(reader.as_fd(), None));
            let done = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            watched.transpose().map(|_| done)
        })?;
        Ok(match (done, work) {
            (Some(done), _) => done,
            (None, Some(work)) => work(),
            (None, None) => unreachable!("a thread that began has ended"),
        })
    }

    /// Stays until `lifeline` has ended, as nothing is left of the command; or ends this process by a
    /// signal that was sent to it.
    ///
    /// # Errors
    /// As [`Self::during`].
    pub(super) fn stay(&mut self, lifeline: BorrowedFd<'_>, signals: &Signals) -> io::Result<()> {
        self.watch_until_closed(lifeline, Some(signals))
    }

    fn watch_until_closed(
        &mut self,
        end: BorrowedFd<'_>,
        signals: Option<&Signals>,
    ) -> io::Result<()> {
        while is_alive(end) {
            let next = self.end_if_over();
            self.alarm.set(next)?;
            let mut fds = vec![
                PollFd::new(end, PollFlags::empty()),
                PollFd::new(self.alarm.as_fd(), PollFlags::POLLIN),
            ];
            fds.extend(signals.map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            while let Some(number) = signals.map_or(Ok(None), Signals::next)? {
                match number {
                    libc::SIGCHLD => self.guardian.reap_adopted(None),
                    number if signals::is_deadly(number) => signals::die_of(number),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Kills what is left if the lease is nearly over; when to be called again.
    fn end_if_over(&mut self) -> Option<Time> {
        let now = clock::now();
        let limit = self.watch.limit();
        let kill_at = (limit != Time::MAX).then(|| limit - self.margin);
        self.is_over |= kill_at.is_some_and(|at| at <= now);
        if !self.is_over {
            return kill_at;
        }
        self.guardian.kill_descendants().then(|| now + AGAIN)
    }
}
