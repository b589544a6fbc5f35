//! The guard: proof of being inside.

mod lent;
mod loan_entry;
mod shared;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock_agent::protocol::{Fence, LockName, Release};
use distlock_agent::runtime::{Announcer, LeaseWatch, Loss};
use nix::sys::eventfd::{EfdFlags, EventFd};

pub(crate) use self::lent::Lent;
pub(crate) use self::loan_entry::LoanEntry;
use self::shared::Ending;
pub(crate) use self::shared::GuardShared;
use crate::GuardState;
use crate::error::{NotHeld, UnlockError};
use crate::lock::LockShared;
use crate::losing::{Invalid, Lost, Settled};
use crate::previous_owner::PreviousOwner;

/// A held lock, or a held permit of a [`Semaphore`](crate::Semaphore). Dropping it unlocks; if a
/// panic drops it, the next holder learns that it was [abandoned](PreviousOwner::Abandoned).
///
/// ```
/// use distlock::{Agent, DistMutex, PreviousOwner};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let guard = agent.mutex("printer")?.lock()?;
/// if guard.previous_owner() == PreviousOwner::Abandoned {
///     println!("the last page may be half printed");
/// }
/// guard.on_loss(|loss| eprintln!("stop printing: {loss:?}"));
/// let fence = guard.fence().expect("the local group gives fences");
/// println!("tell the printer {fence}, which refuses a lower one");
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
///
/// It may be sent to another thread and dropped there. For the detection of self-deadlocks the
/// thread that took it stays its holder. In a forked child it is a dead copy.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    /// Where the agent need not know: until something is wanted that it has to know for.
    entry: Option<LoanEntry>,
    shared: OnceLock<Arc<GuardShared>>,
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Guard {}
impl RefUnwindSafe for Guard {}

impl Guard {
    pub(crate) fn new(shared: Arc<GuardShared>) -> Self {
        Self {
            entry: None,
            shared: shared.into(),
        }
    }

    pub(crate) fn by_loan(entry: LoanEntry) -> Self {
        Self {
            entry: Some(entry),
            shared: OnceLock::new(),
        }
    }

    /// The entry, while the agent does not know of it.
    fn entry(&self) -> Option<&LoanEntry> {
        self.entry.as_ref().filter(|_| self.shared.get().is_none())
    }

    /// From now on the agent knows of it.
    fn shared(&self) -> &Arc<GuardShared> {
        let known = || self.entry.as_ref().map(LoanEntry::take_over);
        self.shared
            .get_or_init(|| known().expect("either is there"))
    }

    fn lock(&self) -> &LockShared {
        match self.entry() {
            Some(entry) => entry.lock(),
            None => &self.shared().lock,
        }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        self.lock().name()
    }

    /// The fencing token. That of a lock which one holder has alone is larger than those of all who
    /// had it alone before: hand it to the resource, and let the resource refuse a lower one than it
    /// has seen. Those of holders who share a lock, and of the permits of a semaphore that has
    /// several, tell grants apart and order nothing: such holders are inside together. `None` in a
    /// group with `failure = "presume-failed"`, where two can be inside.
    pub fn fence(&self) -> Option<Fence> {
        match self.entry() {
            Some(entry) => Some(entry.fence()),
            None => self.shared().fence,
        }
    }

    /// How the former holder left. In a configured group, that one died who only shared the lock is
    /// told to all who share it after that, and to the next who has it alone; in the local group it
    /// is not told.
    ///
    /// For a semaphore: in the local group the former holder of this permit; in a configured group
    /// some holder before, of whom at least one entry is told.
    ///
    /// It is told once. A holder that can do nothing about it ends with [`Guard::withdraw`], and the next one is told.
    pub fn previous_owner(&self) -> PreviousOwner {
        match self.entry() {
            // The lock is lent only when nobody has to be told anything.
            Some(_) => PreviousOwner::Clean,
            None => self.shared().previous,
        }
    }

    /// Whether the lock is held, and if not whether that may change. Local and cheap: a look at the
    /// clock, where there is a lease. On [`GuardState::Valid`] the lock was held a moment ago, so
    /// what must not happen without it needs the [`Guard::fence`] too.
    ///
    /// Where a group has a lease, a member that is not heard by a majority for as long holds nothing
    /// until it is heard again: its guards are [`GuardState::Suspended`]. If the others went on
    /// without it meanwhile they are [`GuardState::Lost`], and stay so whatever becomes of the
    /// member. In the local group a lock is valid until it is unlocked.
    pub fn state(&self) -> GuardState {
        if self.lock().is_forked() {
            return GuardState::Lost;
        }
        match self
            .entry()
            .map(|entry| (entry.state(), entry.knows_losses()))
        {
            // Or another thread has the agent know of it just now.
            None | Some((GuardState::Lost, false)) => self.shared().state(),
            Some((state, _)) => state,
        }
    }

    /// Whether the lock is held now: [`Guard::state`] is [`GuardState::Valid`].
    pub fn is_held(&self) -> bool {
        self.state() == GuardState::Valid
    }

    /// For how long the lock stays held even if nothing is heard from the group: zero while it is
    /// suspended and once it is lost, `None` where no lease bounds it, as in the local group.
    pub fn remaining(&self) -> Option<Duration> {
        // Before the state is looked at: what runs out in between shows there.
        let grace = self.grace();
        if self.is_held() {
            grace
        } else {
            Some(Duration::ZERO)
        }
    }

    /// For how long nobody else is let in, also if the lock is lost: so long there is to stop what
    /// goes on under it. `None` where no lease bounds it, as in the local group: then the next
    /// holder may be inside as soon as the lock is lost. Zero once it is unlocked.
    pub fn grace(&self) -> Option<Duration> {
        if self.lock().is_forked() {
            return Some(Duration::ZERO);
        }
        if let Some(grace) = self.entry().and_then(LoanEntry::grace) {
            return grace;
        }
        self.shared()
            .hold
            .lock()
            .as_ref()
            .map_or(Some(Duration::ZERO), |hold| hold.grace())
    }

    /// How often the lease has run out and was renewed after that, which nobody else used to enter: as
    /// after a suspend of the host, when the agent of this process may be heard before another thread
    /// has looked at [`Guard::state`]. A program that must not go on after that compares two looks,
    /// each made after one at [`Guard::grace`]. It counts for a process that is a member itself; in
    /// the local group, and through the host's agent, which ends the commands of its clients itself,
    /// it stays zero.
    pub fn lapses(&self) -> u64 {
        if self.lock().is_forked() {
            return 0;
        }
        self.shared().lapses()
    }

    /// Runs `callback` once when the lock is lost; at once if it has been. Never after an orderly
    /// unlock, and not while it is only suspended: time passes without a word, so a program that must
    /// stop then looks at [`Guard::state`], or sleeps no longer than [`Guard::remaining`]. It runs
    /// on a thread of the agent, so it should be quick and must not lock.
    pub fn on_loss(&self, callback: impl FnOnce(Loss) + Send + 'static) {
        if !self.lock().is_forked() {
            self.shared().loss.on_loss(Box::new(callback));
        }
    }

    /// A channel that carries the loss, and that ends without one when the lock is unlocked.
    pub fn loss(&self) -> Receiver<Loss> {
        if self.lock().is_forked() {
            return crossbeam_channel::bounded(0).1;
        }
        self.shared().loss.channel()
    }

    /// Waits until the lock is lost, as a future: `None` if it was unlocked in order, or this process was forked
    /// from its holder. It is not the end of a lease, of which nobody tells: [`Guard::invalid`] waits for both.
    ///
    /// ```
    /// # async fn print(guard: &distlock::Guard) {
    /// if let Some(loss) = guard.lost().await {
    ///     eprintln!("stop printing: {loss:?}");
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> Lost {
        let is_known = !self.lock().is_forked();
        Lost::new(is_known.then(|| self.shared().loss.clone()))
    }

    /// Waits until the guard proves nothing any more, as a future: the lease has run out
    /// ([`GuardState::Suspended`]), or the lock is lost or unlocked ([`GuardState::Lost`]), whichever is first.
    /// Where the process has no thread or descriptor left for that, the task polls all the time.
    pub fn invalid(&self) -> Invalid {
        Invalid::new(Arc::clone(self.shared()))
    }

    /// Does `work` as long as the lock is held, and drops it when it is not any more: its lease has run out, or
    /// it is lost. What the work has told others to do goes on: what must not happen without the lock needs the
    /// [`Guard::fence`] too.
    ///
    /// # Errors
    /// Why the work was dropped, if it was not done then.
    ///
    /// # Cancel safety
    /// As that of `work`, which is dropped with it.
    ///
    /// ```
    /// use distlock::{Agent, DistMutex};
    ///
    /// # async fn fetch() -> u32 { 7 }
    /// # async fn on_a_runtime() -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = Agent::open()?.mutex("prices")?.lock_async().await?;
    /// let price = guard.hold(fetch()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold<F: Future>(&self, work: F) -> Result<F::Output, NotHeld> {
        let mut invalid = self.invalid();
        let mut work = pin!(work);
        poll_fn(move |context| {
            if let Poll::Ready(state) = Pin::new(&mut invalid).poll(context) {
                return Poll::Ready(Err(NotHeld { state }));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// A descriptor that becomes readable when the lock is lost, at once if it has been: for
    /// poll(2) and its like. It is the caller's, close-on-exec, and does not become readable after
    /// an orderly unlock.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn loss_fd(&self) -> io::Result<OwnedFd> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags)?;
        let copy = event.as_fd().try_clone_to_owned()?;
        self.on_loss(move |_| {
            // It fails only at 2^64 - 2, and this is the only one.
            let _ = event.write(1);
        });
        Ok(copy)
    }

    /// Unlocks, and tells what dropping would not. A lock that is suspended is given back too; then
    /// this waits until it is known whether another had been let in, at most a lease.
    ///
    /// # Errors
    /// If the lock was lost before, or it is not known in that time: then another may have been
    /// inside since. Whatever it says, the lock is not held any more.
    pub fn unlock(self) -> Result<(), UnlockError> {
        if self.entry().is_some_and(LoanEntry::is_valid) && self.leave_at_once() {
            return Ok(());
        }
        self.end(Release::Given, Ending::Settle)
    }

    /// Unlocks as [`Guard::unlock`] does, as a future: that a lock was suspended when it was given back keeps no
    /// thread waiting.
    ///
    /// # Errors
    /// As for [`Guard::unlock`].
    ///
    /// # Cancel safety
    /// Dropped before it was polled it unlocks as a dropped guard does; later the lock has been given back, and only
    /// the word of how that ended is missed.
    pub async fn unlock_async(self) -> Result<(), UnlockError> {
        if self.entry().is_some_and(LoanEntry::is_valid) && self.leave_at_once() {
            return Ok(());
        }
        if self.lock().is_forked() {
            return Err(UnlockError::Forked);
        }
        let shared = Arc::clone(self.shared());
        let Some(settling) = shared.end_later(Release::Given)? else {
            return Ok(());
        };
        Settled::new(settling, shared.lock.session()).await
    }

    /// Unlocks, and lets the next holder know that what the lock protects may be half done: its
    /// [`Guard::previous_owner`] is [`PreviousOwner::Abandoned`].
    ///
    /// # Errors
    /// As for [`Guard::unlock`].
    pub fn abandon(self) -> Result<(), UnlockError> {
        self.end(Release::Abandoned, Ending::Settle)
    }

    fn end(&self, how: Release, ending: Ending) -> Result<(), UnlockError> {
        match self.entry() {
            Some(entry) if entry.lock().is_forked() => Err(UnlockError::Forked),
            _ => self.shared().end(how, ending),
        }
    }

    /// Leaves without the agent; whether that is possible. Then there is nothing left to end.
    fn leave_at_once(&self) -> bool {
        self.entry().is_some_and(LoanEntry::leave)
    }

    /// Unlocks, and says that nothing was done under the lock: [`Guard::previous_owner`] tells the next holder what
    /// it tells this one. For a holder that finds what a former one left half done, and cannot mend it.
    /// If the lock is not held any more, this is as dropping the guard.
    ///
    /// ```
    /// use distlock::{Agent, DistMutex, PreviousOwner};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let agent = Agent::local_in(directory.path())?;
    /// let printer = agent.mutex("printer")?;
    /// printer.lock()?.abandon()?;
    /// printer.lock()?.withdraw();
    /// assert_eq!(printer.lock()?.previous_owner(), PreviousOwner::Abandoned);
    /// # Ok(())
    /// # }
    /// ```
    pub fn withdraw(self) {
        match self.state() {
            GuardState::Valid => self.give_back_unused(),
            // It may have met another inside: that is told as ever. What it was told is to be told again, if not.
            GuardState::Suspended if self.previous_owner() == PreviousOwner::Abandoned => {
                let _ = self.end(Release::Abandoned, Ending::AtOnce);
            }
            _ => {}
        }
    }

    /// Gives back what its holder has done nothing under, or never saw.
    pub(crate) fn give_back_unused(self) {
        if self.lock().is_forked() || self.leave_at_once() {
            return;
        }
        let _ = self.end(Release::Unused, Ending::AtOnce);
    }

    /// Tells `status` the process that works under this lock, where it is not this one. For
    /// programs like `distlock run`.
    pub fn set_command_pid(&self, pid: u32) {
        if self.lock().is_forked() {
            return;
        }
        if let Some(hold) = self.shared().hold.lock().as_ref() {
            hold.set_command_pid(pid);
        }
    }

    /// By what a child process, between fork and exec, tells that it is the one of
    /// [`Guard::set_command_pid`]: then there is no moment at which the host's agent could not end
    /// it, or whoever takes a lock of the local group next could miss it. `None` for a member of the
    /// group, and if the lock is not held any more.
    ///
    /// ```
    /// use std::os::unix::process::CommandExt;
    /// use std::process::Command;
    ///
    /// use distlock::{Agent, DistMutex, LockOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let agent = Agent::local_in(directory.path())?;
    /// let options = LockOptions::new().inheritable(true);
    /// let guard = agent.mutex_with("printer", &options)?.lock()?;
    /// let lifeline = guard.inheritable_fd()?.expect("the lock is inheritable");
    /// let announcer = guard.announcer()?.expect("the local group takes announcements");
    /// assert!(guard.take_watch()?.is_none()); // no lease ends in the local group
    /// let mut child = Command::new("true");
    /// // SAFETY: the announcement is all that happens between fork and exec, and may happen there.
    /// unsafe { child.pre_exec(move || announcer.announce()) };
    /// let mut child = child.spawn()?; // it would print, with a copy of `lifeline`
    /// guard.set_command_pid(child.id());
    /// child.wait()?;
    /// # drop(lifeline);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn announcer(&self) -> io::Result<Option<Announcer>> {
        if self.lock().is_forked() {
            return Ok(None);
        }
        let hold = self.shared().hold.lock();
        hold.as_ref().map_or(Ok(None), |hold| hold.announcer())
    }

    /// A copy, close-on-exec, of a descriptor that keeps the lock where no lease bounds it: once one
    /// has been made, the lock is free only when all copies are closed, so that a child process that
    /// inherits one keeps the lock as long as it lives, as with flock(1).
    ///
    /// No descriptor outlasts a lease. In a group with `failure = "quorum"`, the default, others
    /// enter when [`Guard::grace`] is over although copies are left: if the agent is cut off from
    /// the others, stands still, or ends. So a child process must be ended by then, as `distlock run`
    /// does. Likewise with `failure = "presume-failed"`, where others do not even wait for a lease.
    ///
    /// Nobody can unlock anything with it, whatever user the child process is.
    ///
    /// In the local group it is the writing end of a FIFO in the group's directory, at which
    /// whoever comes next sees by the kernel's word whether a copy is left; it is not to be written
    /// to. If this process dies, the process that [`Guard::set_command_pid`] named keeps the lock as
    /// long as it lives, also if it has closed its copy. Through the host's agent it is the
    /// writing end of a pipe that the agent watches; if this process dies, the agent kills the
    /// process group that [`Guard::set_command_pid`] leads, and waits for the end of the pipe.
    /// For a member of the group the descriptor keeps its place, and not the lock: if the process
    /// dies, nobody can start as this member until all copies are closed; whether others enter
    /// meanwhile is for the group to decide, as above. In both there is one only if it was asked for
    /// with [`LockOptions::inheritable`](crate::LockOptions::inheritable); else `None`.
    ///
    /// # Errors
    /// If the lock is not held any more, or the descriptor cannot be copied.
    pub fn inheritable_fd(&self) -> io::Result<Option<OwnedFd>> {
        if self.lock().is_forked() {
            return Err(io::Error::other(UnlockError::Forked));
        }
        match self.shared().hold.lock().as_mut() {
            Some(hold) => hold.inheritable_fd(),
            None => Err(io::Error::other(UnlockError::Closed)),
        }
    }

    /// Closes this process's own copy of what [`Guard::inheritable_fd`] copies, where the lock is
    /// held without: so that nobody takes this process for the child that has inherited one. There
    /// is no further copy afterwards.
    pub fn close_inheritable(&self) {
        if self.lock().is_forked() {
            return;
        }
        if let Some(hold) = self.shared().hold.lock().as_mut() {
            hold.close_inheritable();
        }
    }

    /// By what a child process sees until when nobody else is let in, whether this process and the
    /// agent go on or not: then it can stop what goes on under the lock. It can be had once, where
    /// there is a lease and the lock was opened with
    /// [`LockOptions::inheritable`](crate::LockOptions::inheritable); else `None`. For programs
    /// like `distlock run`.
    ///
    /// # Errors
    /// If the lock is not held any more, or no memory or descriptor is left.
    pub fn take_watch(&self) -> io::Result<Option<LeaseWatch>> {
        if self.lock().is_forked() {
            return Err(io::Error::other(UnlockError::Forked));
        }
        match self.shared().hold.lock().as_mut() {
            Some(hold) => hold.take_watch(),
            None => Err(io::Error::other(UnlockError::Closed)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(entry) = self.entry() {
            let is_over = entry.has_left() || entry.lock().is_forked();
            if is_over || !entry.dies() && self.leave_at_once() {
                return;
            }
        }
        let died = thread::panicking() && !self.shared().in_panic;
        // Whoever wants to know calls `unlock`.
        let how = if died {
            Release::Abandoned
        } else {
            Release::Given
        };
        let _ = self.end(how, Ending::AtOnce);
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
