//! One lock of the local group: how a thread gets in, and out.
//!
//! Waiting is looking again and again. A look is due when the [`Bell`](super::page::Bell) of the
//! lock rings, as every unlocking makes it; and now and then, for the holder that was killed. How
//! often the waiters settle among themselves ([`Pace`]). Rejected: one waiter blocking in
//! fcntl(2), which would learn of the death at once; stopped by a signal there, it is granted the
//! lock by the kernel, and everybody waits for a process that does not run.
//!
//! A process that unlocks while others wait and wants in again would nearly always win against
//! the one it has just woken. It waits for [`COURTESY`] first.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use distlock_agent::protocol::{Fence, LockName, Mode, Release, Time};
use distlock_agent::runtime::fifo::Fifo;
use distlock_agent::runtime::queue::{Closed, Place, Queue};
use distlock_agent::runtime::sync::Mutex;
use distlock_agent::runtime::{Announcer, Sighting, clock};

use super::Shared;
use super::file::{Found, LockFile};
use super::page::Bell;
use super::record::Record;
use crate::backend::{AcquireError, Hold, Lock, Patience, Request, Waiting};
use crate::error::{LockError, UnlockError};
use crate::{Algorithm, GuardState, PreviousOwner};

/// How often somebody should look. A single waiter looks a little more often.
const LOOK: Duration = Duration::from_millis(30);

/// How seldom one of many waiters looks. It bounds the delay when all the others are stopped.
const SELDOM: Duration = Duration::from_millis(250);

/// How long a process that unlocks leaves the lock to those that wait, before it competes with
/// them again.
const COURTESY: Duration = Duration::from_millis(1);

/// How often an attempt starts again when the file is replaced under it.
const MAX_REPLACEMENTS: u32 = 1_000;

/// How long an attempt that may not wait bears with the removal of the file, which takes
/// microseconds unless the remover is stopped.
const MAX_REMOVAL: Duration = Duration::from_millis(20);

/// One lock, for all threads of this process.
pub(crate) struct KernelLock {
    group: Arc<Shared>,
    name: LockName,
    hash: u64,
    permits: NonZeroU32,
    queue: Arc<Queue>,
    /// Where the search for a free permit starts.
    first_permit: AtomicU32,
    /// Whether there may be a file to remove at the end.
    is_used: AtomicBool,
    /// An open file without locks, for the next attempt.
    spare: Mutex<Option<LockFile>>,
    /// The last unlocking while others waited: what the bell said then, and when that is stale.
    courtesy: Mutex<Option<(u32, Time)>>,
}

impl KernelLock {
    pub(super) fn new(group: Arc<Shared>, name: LockName, permits: NonZeroU32) -> Self {
        Self {
            hash: super::hash64(name.as_bytes()),
            group,
            name,
            permits,
            queue: Arc::default(),
            first_permit: AtomicU32::new(std::process::id()),
            is_used: AtomicBool::new(false),
            spare: Mutex::new(None),
            courtesy: Mutex::new(None),
        }
    }

    /// Ends the waiting of all threads of this process.
    pub(super) fn close(&self) {
        self.queue.close();
        // Who waits looks by itself, too.
        let _ = self.bell(|bell| bell.ring_all());
    }

    /// Does one thing with this lock's bell. A second one takes another call, which looks again
    /// whether somebody has cut the page short.
    fn bell<R>(&self, action: impl FnOnce(Bell<'_>) -> R) -> Result<R, LockError> {
        Ok(action(self.group.page()?.bell(self.hash)))
    }

    /// Enters if there is a permit now.
    fn attempt(self: &Arc<Self>, request: &Request) -> Result<KernelHold, AcquireError> {
        let mut file = None;
        let give_up = clock::now() + MAX_REMOVAL;
        loop {
            if let Some(hold) = self.look(&mut file, request)? {
                return Ok(hold);
            }
            let is_retiring = match &file {
                Some(file) => file.is_retiring().map_err(|error| self.failed(error))?,
                None => false,
            };
            if !is_retiring || clock::now() >= give_up {
                self.keep(file);
                return Err(AcquireError::WouldBlock);
            }
            std::thread::yield_now();
        }
    }

    /// Leaves the lock for a moment to those that waited when this process unlocked, at most until
    /// `deadline`; whether that moment is over.
    fn be_courteous(&self, deadline: Option<Time>) -> bool {
        let Some((count, end)) = self.courtesy.lock().take() else {
            return true;
        };
        let rest = deadline.map_or(end, |deadline| deadline.min(end));
        let rest = rest.since(clock::now());
        if !rest.is_zero() && self.bell(|bell| bell.listen(count, rest)).is_err() {
            return true;
        }
        let has_rung = self.bell(|bell| bell.count()).ok() != Some(count);
        let is_over = has_rung || end <= clock::now();
        if !is_over {
            *self.courtesy.lock() = Some((count, end));
        }
        is_over
    }

    /// Looks whether there is a permit, and enters. `file` is the open file, kept between looks.
    fn look(
        self: &Arc<Self>,
        file: &mut Option<LockFile>,
        request: &Request,
    ) -> Result<Option<KernelHold>, LockError> {
        for _ in 0..MAX_REPLACEMENTS {
            let open = match file.take().or_else(|| self.spare.lock().take()) {
                Some(open) => open,
                None => self.open()?,
            };
            let start = self.first_permit.fetch_add(1, Ordering::Relaxed);
            let directory = &self.group.directory;
            let found = match request.wish.mode {
                Mode::Exclusive => open.try_permit(directory, start),
                Mode::Shared => open.try_share(directory, start),
            };
            match found.map_err(|error| self.failed(error))? {
                Found::Permit(permit, last) => {
                    return self.enter(open, (permit, last), request).map(Some);
                }
                Found::Taken => {
                    *file = Some(open);
                    return Ok(None);
                }
                Found::Replaced => {}
            }
        }
        Err(self.is_replaced_all_the_time())
    }

    /// With the permit locked: takes the fence and writes the record. An error gives the permit
    /// back, since it drops the file.
    fn enter(
        self: &Arc<Self>,
        mut file: LockFile,
        (permit, last): (u32, Option<Record>),
        request: &Request,
    ) -> Result<KernelHold, LockError> {
        let has_waited = file.is_marked();
        file.unmark().map_err(|error| self.failed(error))?;
        let fence = self
            .group
            .next_fence(last.as_ref().map_or(0, |last| last.fence))?;
        let record = Record {
            fence: fence.as_u64(),
            is_inside: true,
            pid: std::process::id(),
            since: SystemTime::now(),
            process: None,
            command: request.command.as_deref().unwrap_or_default().to_owned(),
            inherited: None,
        };
        file.write_record(permit, &record)
            .map_err(|error| self.failed(error))?;
        if has_waited && file.is_reader(permit) {
            // One was woken, and all who would share it can come in.
            self.bell(|bell| bell.ring_all())?;
        }
        let previous = last.map_or(PreviousOwner::Clean, |last| last.as_previous_owner());
        Ok(KernelHold {
            lock: Arc::clone(self),
            file,
            permit,
            fence,
            previous,
            lifeline: None,
        })
    }

    /// Opens the lock's file. If that is for another number of permits and nobody uses it, it is
    /// replaced.
    fn open(&self) -> Result<LockFile, LockError> {
        self.is_used.store(true, Ordering::Relaxed);
        let directory = &self.group.directory;
        for _ in 0..MAX_REPLACEMENTS {
            let file = LockFile::open(directory, &self.name, self.permits)
                .map_err(|error| self.failed(error))?;
            if file.name() != &self.name {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it is another lock's");
                return Err(self.failed(error));
            }
            if file.permits() == self.permits {
                return Ok(file);
            }
            let is_gone = file
                .retire(directory, true)
                .map_err(|error| self.failed(error))?;
            if !is_gone && !file.is_retiring().map_err(|error| self.failed(error))? {
                let (asked, actual) = (self.permits, file.permits());
                return Err(LockError::WrongPermits { asked, actual });
            }
            std::thread::yield_now();
        }
        Err(self.is_replaced_all_the_time())
    }

    /// Keeps an open file for the next attempt.
    fn keep(&self, file: Option<LockFile>) {
        *self.spare.lock() = file;
    }

    /// After a permit was given back: wakes a waiter, if there is one. It may just be awake.
    fn leave_to_waiters(&self, is_awaited: bool) {
        // Where there is no page nobody can be woken, and they look by themselves.
        let rung = is_awaited
            .then(|| self.bell(|bell| bell.ring()).ok())
            .flatten();
        *self.courtesy.lock() = rung.map(|count| (count, clock::now() + COURTESY));
    }

    fn is_replaced_all_the_time(&self) -> LockError {
        let what = format!(
            "the file of the lock {} is replaced all the time",
            self.name
        );
        LockError::Limit { what }
    }

    fn failed(&self, source: io::Error) -> LockError {
        let file = self
            .group
            .directory
            .path()
            .join(LockFile::file_name(&self.name));
        LockError::io(
            format!("the file {} of the lock {}", file.display(), self.name),
            source,
        )
    }
}

impl Lock for KernelLock {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Kernel
    }

    fn permits(&self) -> NonZeroU32 {
        self.permits
    }

    fn begin(self: Arc<Self>, request: Request) -> Box<dyn Waiting> {
        let deadline = match request.patience {
            Patience::For(timeout) => Some(clock::now() + timeout),
            Patience::Lease | Patience::Try => None,
        };
        Box::new(KernelWaiting {
            awaited: None,
            lock: self,
            request,
            deadline,
            place: None,
            is_courteous: false,
            file: None,
            pace: None,
            sleep: None,
        })
    }
}

impl Drop for KernelLock {
    /// Removes the file if nobody needs it.
    fn drop(&mut self) {
        if !*self.is_used.get_mut() {
            return;
        }
        let directory = &self.group.directory;
        let file = match self.spare.get_mut().take() {
            Some(file) => Some(file),
            None => {
                LockFile::open_existing(directory, &LockFile::file_name(&self.name)).unwrap_or(None)
            }
        };
        if let Some(file) = file {
            // What cannot be removed now, the next user or `status` removes.
            let _ = file.retire(directory, false);
            drop(file);
            // A waiter may have found all permits locked by the removal.
            let _ = self.bell(|bell| bell.ring());
        }
    }
}

/// A thread that waits for a permit.
struct KernelWaiting {
    /// These two from the first waiting on. The turn goes on before the group forgets us.
    place: Option<Place>,
    awaited: Option<Awaited>,
    lock: Arc<KernelLock>,
    request: Request,
    deadline: Option<Time>,
    /// Whether those that this process has woken have had their moment.
    is_courteous: bool,
    /// The open file, kept between looks.
    file: Option<LockFile>,
    pace: Option<Pace>,
    /// After a look: what the bell said before it, and when to look again if it does not ring.
    sleep: Option<(u32, Time)>,
}

impl Waiting for KernelWaiting {
    fn ask(&mut self) -> Result<Option<Box<dyn Hold>>, AcquireError> {
        match self.wait(Some(Duration::ZERO)) {
            Poll::Pending => Ok(None),
            Poll::Ready(outcome) => outcome.map(Some),
        }
    }

    fn wait(&mut self, slice: Option<Duration>) -> Poll<Result<Box<dyn Hold>, AcquireError>> {
        let outcome = match self.request.patience {
            Patience::Try => self.lock.attempt(&self.request).map(Some),
            Patience::For(Duration::ZERO) => match self.lock.attempt(&self.request) {
                Err(AcquireError::WouldBlock) => Err(timed_out()),
                outcome => outcome.map(Some),
            },
            Patience::For(_) | Patience::Lease => {
                self.wait_until(slice.map(|slice| clock::now() + slice))
            }
        };
        match outcome {
            Ok(None) => Poll::Pending,
            Ok(Some(hold)) => Poll::Ready(Ok(Box::new(hold))),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl KernelWaiting {
    /// Waits for a permit, until `pause` if there is one.
    fn wait_until(&mut self, pause: Option<Time>) -> Result<Option<KernelHold>, AcquireError> {
        let until = [pause, self.deadline].into_iter().flatten().min();
        if !self.take_turn(until)? {
            return self.pause();
        }
        loop {
            let count = self.lock.bell(|bell| bell.count())?;
            if self.lock.group.is_closed() {
                return Err(LockError::Closed.into());
            }
            let is_due = |at| at <= clock::now();
            let mut sleep = self.sleep;
            if sleep.is_none_or(|(heard, at)| heard != count || is_due(at)) {
                if let Some(hold) = self.lock.look(&mut self.file, &self.request)? {
                    return Ok(Some(hold));
                }
                sleep = None;
            }
            match &mut self.file {
                // Marked, look again: whoever removes the file has seen the mark, or is done.
                Some(file) if !file.is_marked() => {
                    file.mark().map_err(|error| self.lock.failed(error))?;
                    self.sleep = None;
                }
                _ if until.is_some_and(is_due) => {
                    self.sleep = sleep;
                    return self.pause();
                }
                _ => {
                    let now = clock::now();
                    let at = match sleep {
                        Some((_, at)) => at,
                        None => {
                            let looks = self.lock.bell(|bell| bell.look())?;
                            let pace = self.pace.get_or_insert_with(|| Pace::new(looks, now));
                            now + pace.next(looks, now)
                        }
                    };
                    self.sleep = Some((count, at));
                    let until = until.map_or(at, |until| until.min(at));
                    self.lock
                        .bell(|bell| bell.listen(count, until.since(now)))?;
                }
            }
        }
    }

    /// Waits until it is this thread's turn to contend; whether it is.
    fn take_turn(&mut self, until: Option<Time>) -> Result<bool, AcquireError> {
        if self.awaited.is_none() {
            self.awaited = Some(Awaited::new(Arc::clone(&self.lock)));
        }
        let closed = |Closed| AcquireError::Failed(LockError::Closed);
        let place = match &mut self.place {
            Some(place) => place,
            None => self.place.insert(self.lock.queue.join().map_err(closed)?),
        };
        if !place.wait(until).map_err(closed)? {
            return Ok(false);
        }
        // At its deadline a request looks once, whatever others wait.
        if !self.is_courteous {
            self.is_courteous = self.lock.be_courteous(until) || is_over(self.deadline);
        }
        Ok(self.is_courteous)
    }

    /// At the end of a slice of waiting, or of all of it.
    fn pause(&self) -> Result<Option<KernelHold>, AcquireError> {
        if is_over(self.deadline) {
            return Err(timed_out());
        }
        Ok(None)
    }
}

fn is_over(deadline: Option<Time>) -> bool {
    deadline.is_some_and(|at| at <= clock::now())
}

fn timed_out() -> AcquireError {
    AcquireError::TimedOut
}

/// A thread of this process that waits, so that closing the group finds it.
struct Awaited {
    lock: Arc<KernelLock>,
}

impl Awaited {
    fn new(lock: Arc<KernelLock>) -> Self {
        lock.group.awaited.lock().push(Arc::clone(&lock));
        Self { lock }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut awaited = self.lock.group.awaited.lock();
        if let Some(at) = awaited
            .iter()
            .position(|other| Arc::ptr_eq(other, &self.lock))
        {
            awaited.swap_remove(at);
        }
    }
}

/// A held permit.
struct KernelHold {
    lock: Arc<KernelLock>,
    file: LockFile,
    permit: u32,
    fence: Fence,
    previous: PreviousOwner,
    /// By which it is seen whether the commands are gone that have inherited its other end.
    lifeline: Option<Fifo>,
}

impl Hold for KernelHold {
    fn fence(&self) -> Option<Fence> {
        Some(self.fence)
    }

    fn previous_owner(&self) -> PreviousOwner {
        self.previous
    }

    fn state(&self) -> GuardState {
        GuardState::Valid
    }

    fn grace(&self) -> Option<Duration> {
        None
    }

    fn release(self: Box<Self>, how: Release) -> Result<(), UnlockError> {
        let Self {
            lock,
            file,
            permit,
            previous,
            lifeline,
            ..
        } = *self;
        // What says that somebody is inside stays, and tells the next one.
        let is_told = match how {
            Release::Abandoned => true,
            Release::Unused => previous == PreviousOwner::Abandoned,
            Release::Given => false,
        };
        let noted = if is_told {
            Ok(())
        } else {
            file.write_left(permit)
        };
        if let Some(lifeline) = lifeline {
            // What is left behind now, the next one finds, and waits for it or removes it.
            let _ = file.end_lifeline(&lock.group.directory, permit, &lifeline);
        }
        let released = file.release(permit);
        // Afterwards: who waits from now on looks once more before it sleeps.
        let is_awaited = file.is_awaited().unwrap_or(true);
        if released.is_ok() {
            lock.keep(Some(file));
        }
        lock.leave_to_waiters(is_awaited);
        noted.and(released).map_err(|source| UnlockError::Io {
            what: format!("the lock {} was not unlocked in order", lock.name),
            source,
        })
    }

    fn forget(self: Box<Self>) {
        // Dropping closes the child's copy of the descriptor, and unlocks nothing.
    }

    fn set_command_pid(&self, pid: u32) {
        // `status` does without, and so does who looks whether the command is left: there is the
        // lifeline.
        let _ = self.file.write_process(self.permit, Sighting::now(pid));
    }

    fn announcer(&self) -> io::Result<Option<Announcer>> {
        self.file.announcer(self.permit).map(Some)
    }

    fn inheritable_fd(&mut self) -> io::Result<Option<OwnedFd>> {
        let directory = &self.lock.group.directory;
        let inherited = match &mut self.lifeline {
            Some(lifeline) => Ok(lifeline),
            none => (self.file.make_lifeline(directory, self.permit))
                .map(|lifeline| none.insert(lifeline)),
        };
        inherited
            .and_then(|lifeline| self.file.open_lifeline(directory, self.permit, lifeline))
            .map(Some)
            .map_err(|error| {
                let what = format!("a FIFO in {}: {error}", directory.path().display());
                io::Error::new(error.kind(), what)
            })
    }
}

/// How long a waiter sleeps between its looks. Where many wait each looks seldom: it sees by the
/// count of all looks whether the others look enough. A waiter that is killed or stopped no longer
/// counts, without anybody's help.
struct Pace {
    sleep: Duration,
    looks: u32,
    at: Time,
}

impl Pace {
    fn new(looks: u32, now: Time) -> Self {
        Self {
            sleep: LOOK,
            looks,
            at: now,
        }
    }

    /// After a look without success: how long to sleep. `looks` counts all looks.
    fn next(&mut self, looks: u32, now: Time) -> Duration {
        let elapsed = now.since(self.at);
        // A ring that came early says nothing about how often the others look by themselves.
        if elapsed >= self.sleep / 2 {
            let expected = LOOK * looks.wrapping_sub(self.looks).min(10_000);
            if expected > elapsed * 3 / 2 {
                self.sleep = (self.sleep * 3 / 2).min(SELDOM);
            } else if expected < elapsed {
                self.sleep = (self.sleep / 2).max(LOOK);
            }
            (self.looks, self.at) = (looks, now);
        }
        // Those that were woken together should not stay together.
        let jitter = u32::try_from(now.as_nanos() / 1_000 % 1_000).expect("less than 1000");
        self.sleep - self.sleep * jitter / 2_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Ask, Backend};
    use crate::local::Group;
    use crate::loss::LossSignal;

    /// Enters and leaves, and tells how long the entering took.
    fn enter_and_leave(lock: &Arc<dyn Lock>) -> Duration {
        let request = Request {
            wish: Mode::Exclusive.into(),
            patience: Patience::Lease,
            command: None,
            is_inheritable: false,
            loss: LossSignal::new(),
        };
        let start = clock::now();
        let Poll::Ready(hold) = Arc::clone(lock).begin(request).wait(None) else {
            panic!("it was waited for without end");
        };
        let hold = hold.unwrap();
        let time = clock::now().since(start);
        hold.release(Release::Given).unwrap();
        time
    }

    #[test]
    fn who_unlocks_leaves_the_lock_to_those_that_wait_but_not_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let group = Group::open(directory.path()).unwrap();
        let name = LockName::new("x").unwrap();
        let lock = group.open(
            &name,
            Ask {
                algorithm: None,
                permits: Some(NonZeroU32::MIN),
            },
        );
        let lock = lock.unwrap();
        // One that waits, and is stopped.
        let mut stopped = LockFile::open(&group.shared.directory, &name, NonZeroU32::MIN).unwrap();
        stopped.mark().unwrap();
        enter_and_leave(&lock);
        for _ in 0..10 {
            assert!(enter_and_leave(&lock) >= COURTESY);
        }
        stopped.unmark().unwrap();
        enter_and_leave(&lock);
        let alone = (0..10).map(|_| enter_and_leave(&lock)).min().unwrap();
        assert!(alone < COURTESY, "{alone:?}");
    }

    #[test]
    fn many_waiters_look_as_often_as_one() {
        // A minute of their life, without the sleeping.
        let looks_of = |count: usize| {
            let mut now = Time::ZERO;
            let mut waiters: Vec<_> = (0..count).map(|_| (now, Pace::new(0, now))).collect();
            let mut looks = 0;
            while now < Time::ZERO + Duration::from_secs(60) {
                let (due, pace) = waiters.iter_mut().min_by_key(|(due, _)| *due).unwrap();
                now = *due + Duration::from_micros(13);
                looks += 1;
                *due = now + pace.next(looks, now);
            }
            looks
        };
        let one = looks_of(1);
        assert!((60_000 / 30..60_000 / 15).contains(&one), "{one}");
        for count in [2, 5, 8] {
            let looks = looks_of(count);
            assert!(
                (one / 2..one * 3).contains(&looks),
                "{looks} of {count}, {one} of one"
            );
        }
        // From there on each looks as seldom as it may.
        assert!(looks_of(100) < 60_000 / 125 * 110);
    }
}
