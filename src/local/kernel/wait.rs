//! A thread or a task that waits for a permit.
//!
//! Waiting is looking again and again. A look is due when the [`Bell`](crate::local::page::Bell) of
//! the lock rings, as every unlocking makes it; and now and then, for the holder that was killed.
//! How often the waiters settle among themselves ([`Pace`]). Rejected: one waiter blocking in
//! fcntl(2), which would learn of the death at once; stopped by a signal there, it is granted the
//! lock by the kernel, and everybody waits for a process that does not run.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use distlock_agent::runtime::queue::{Closed, Place};

use super::KernelLock;
use super::hold::KernelHold;
use super::pace::Pace;
use crate::Algorithm;
use crate::backend::{Hold, Lock, Patience, Request, Waiting};
use crate::error::LockError;
use crate::local::file::LockFile;
use crate::local::listener::{HeardBell, Listening};
use crate::local::shared::Awaited;

impl Lock for KernelLock {
    fn algorithm(&self) -> Algorithm {
        Algorithm::Kernel
    }

    fn permits(&self) -> NonZeroU32 {
        self.permits
    }

    fn begin(self: Arc<Self>, request: Request) -> Box<dyn Waiting> {
        let deadline = match request.patience {
            Patience::Try => Some(clock::now()),
            Patience::For(timeout) => Some(clock::now() + timeout),
            Patience::Lease | Patience::Forever => None,
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
            listening: None,
        })
    }
}

/// A thread or a task that waits for a permit.
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
    /// Wakes a task when the bell rings.
    listening: Option<Listening>,
}

impl Waiting for KernelWaiting {
    fn ask(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        match self.wait(Some(Duration::ZERO)) {
            Poll::Pending => Ok(None),
            Poll::Ready(outcome) => outcome,
        }
    }

    fn wait(&mut self, slice: Option<Duration>) -> Poll<Result<Option<Box<dyn Hold>>, LockError>> {
        let entered = match self.request.patience {
            Patience::Try | Patience::For(Duration::ZERO) => self.lock.attempt(&self.request),
            _ => self.wait_until(slice.map(|slice| clock::now() + slice)),
        };
        match entered? {
            Some(hold) => Poll::Ready(Ok(Some(Box::new(hold)))),
            None if is_over(self.deadline) => Poll::Ready(Ok(None)),
            None => Poll::Pending,
        }
    }

    fn wake_by(&mut self, task: &Waker) -> Time {
        let look = self.look_at(task);
        self.deadline.map_or(look, |deadline| deadline.min(look))
    }
}

impl KernelWaiting {
    /// Waits for a permit, until `pause` if there is one.
    fn wait_until(&mut self, pause: Option<Time>) -> Result<Option<KernelHold>, LockError> {
        let until = [pause, self.deadline].into_iter().flatten().min();
        if !self.take_turn(until)? {
            return Ok(None);
        }
        if self.file.is_none() && !self.lock.group.is_closed() {
            // Who comes in at once listens to no bell.
            if let Some(hold) = self.lock.look(&mut self.file, &self.request)? {
                return Ok(Some(hold));
            }
            self.mark()?;
        }
        loop {
            let count = self.lock.bell(|bell| bell.count())?;
            if self.lock.group.is_closed() {
                return Err(LockError::Closed);
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
                Some(file) if !file.is_marked() => self.mark()?,
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
                    if until.is_some_and(is_due) {
                        return Ok(None);
                    }
                    let until = until.map_or(at, |until| until.min(at));
                    self.lock
                        .bell(|bell| bell.listen(count, until.since(now)))?;
                }
            }
        }
    }

    /// Has the task woken when there is a reason to look; when it has to look without one.
    fn look_at(&mut self, task: &Waker) -> Time {
        let Some(place) = &mut self.place else {
            return Time::ZERO;
        };
        if !place.wake_by(task) {
            return Time::MAX;
        }
        if !self.is_courteous {
            return self.lock.courtesy_end();
        }
        let Some((heard, at)) = self.sleep else {
            return Time::ZERO;
        };
        let group = &self.lock.group;
        self.listening = group.page().ok().and_then(|page| {
            let hash = self.lock.hash;
            let bell = HeardBell { page, hash, heard };
            group.listener.listen(bell, task.clone())
        });
        at
    }

    /// Tells others that this thread waits. Then it has to look again: whoever removes the file, or
    /// unlocks, has seen the mark, or is done.
    fn mark(&mut self) -> Result<(), LockError> {
        if let Some(file) = &mut self.file {
            file.mark().map_err(|error| self.lock.failed(error))?;
        }
        self.sleep = None;
        Ok(())
    }

    /// Waits until it is this thread's turn to contend; whether it is.
    fn take_turn(&mut self, until: Option<Time>) -> Result<bool, LockError> {
        if self.awaited.is_none() {
            self.awaited = Some(Awaited::new(
                &self.lock.group,
                &self.lock.queue,
                self.lock.hash,
            ));
        }
        let closed = |Closed| LockError::Closed;
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
}

fn is_over(deadline: Option<Time>) -> bool {
    deadline.is_some_and(|at| at <= clock::now())
}
