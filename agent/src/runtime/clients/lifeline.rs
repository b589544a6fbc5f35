//! Lifelines: how an agent sees whether what a client runs under a lock is still there.
//!
//! A lifeline is a FIFO in the agent's state directory. `run` gets the writing end with its grant;
//! the command and all its descendants inherit it, and it ends with the last of them, whatever
//! becomes of `run`. The lock of a request with a lifeline is free only then. If the agent dies
//! first, its next incarnation finds the FIFO, and lets nobody in before it has ended.

mod directory;
mod former;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::errno::Errno;

use self::directory::Entry;
pub(crate) use self::directory::LifelineDir;
pub(crate) use self::former::Former;
use crate::protocol::{LockName, Release, Ticket, Time};
use crate::runtime::os::clock;
use crate::runtime::os::descriptors;
use crate::runtime::os::fifo::Fifo;
use crate::runtime::os::pidfd::ProcessGroup;
use crate::runtime::shared::Shared;
use crate::runtime::shared::entry::ClientId;

/// Tokens of lifelines are from here on.
pub(crate) const LIFELINES: usize = 1 << (usize::BITS - 1);
/// How often a lifeline is looked at of which the poll cannot tell.
const LOOK: Duration = Duration::from_millis(50);
/// How often, when there is no poll any more.
const GLANCE: Duration = Duration::from_millis(5);
/// How long after a command was killed the log tells that it still runs, or what it has started.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// The reading end of a FIFO that a command has open.
#[derive(Debug)]
pub(crate) struct Lifeline {
    fifo: Arc<Fifo>,
    entry: Entry,
    /// The command's process group.
    group: Option<ProcessGroup>,
    /// The user of the client that wants it.
    user: u32,
    /// The writing end, which the client is given. It stays open here until the command is known.
    /// Then it is closed to make room for the descriptor of the command's process group: a holder
    /// cannot be refused that one for want of descriptors.
    own: Option<Arc<OwnedFd>>,
    /// Whether this process may signal nobody of the command's process group.
    is_forbidden: bool,
}

impl Lifeline {
    fn new(fifo: Fifo, entry: Entry, user: u32) -> Self {
        Self {
            fifo: Arc::new(fifo),
            entry,
            group: None,
            user,
            own: None,
            is_forbidden: false,
        }
    }

    /// What its client is given with the grant: the writing end and the reading end.
    pub(crate) fn ends(&self) -> Option<(Arc<OwnedFd>, Arc<Fifo>)> {
        let own = self.own.as_ref()?;
        Some((Arc::clone(own), Arc::clone(&self.fifo)))
    }

    /// Whether there are descriptors enough for it, and for the group to come.
    fn is_spare(&self) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| descriptors::is_spare(&**own))
    }

    /// Notes the command's process: it leads a process group, and `runner` has started it.
    pub(crate) fn set_command(&mut self, pid: u32, runner: u32) {
        // The command and its runner tell of the same.
        if self
            .group
            .as_ref()
            .is_some_and(|group| group.number() == pid)
        {
            return;
        }
        drop(self.own.take());
        match ProcessGroup::of_client(pid, runner) {
            Ok((group, start)) => {
                self.entry.set_command(pid, start, self.user);
                self.group = Some(group);
            }
            // It cannot be ended from here. It is waited for all the same.
            Err(error) => tracing::debug!("the command {pid} of client {runner}: {error}"),
        }
    }

    /// Whether a command is known that it belongs to.
    pub(crate) fn has_command(&self) -> bool {
        self.group.is_some()
    }

    /// The number of the command's process group, if it is known.
    fn command(&self) -> Option<u32> {
        self.group.as_ref().map(ProcessGroup::number)
    }

    /// Whether nobody has the writing end any more, now that the client is done with it. A command
    /// that has closed it is still waited for itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        drop(self.own.take());
        let has_writer = self.fifo.has_writer().unwrap_or_else(|error| {
            tracing::warn!(
                event = "lifeline-failed",
                "a command's lifeline cannot be read: {error}; it counts as there"
            );
            true
        });
        !has_writer
            && self
                .group
                .as_ref()
                .is_none_or(ProcessGroup::has_leader_ended)
    }

    /// What changes when it may have ended.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let leader = self.group.as_ref().map(AsRawFd::as_raw_fd);
        [self.fifo.as_fd().as_raw_fd()].into_iter().chain(leader)
    }

    /// Asks the command to end. A stopped process takes note of it only when it is continued.
    fn ask(&mut self) {
        self.signal(libc::SIGTERM);
        self.signal(libc::SIGCONT);
    }

    fn kill(&mut self) {
        self.signal(libc::SIGKILL);
    }

    /// The group is signalled by its descriptor: whatever its number means by now, nobody else is.
    fn signal(&mut self, number: i32) {
        let Some(group) = &self.group else { return };
        let sent = group.signal_for(self.user, number);
        let errno = sent.err().and_then(|error| error.raw_os_error());
        self.is_forbidden |= errno == Some(Errno::EPERM as i32);
    }

    /// Tells the operator what runs on after all was killed that this process could kill, and keeps
    /// `lock` taken, if that was not lost.
    fn tell_that_it_stays(&self, lock: Option<&LockName>) {
        let lock = match lock {
            Some(lock) => format!("lock {lock} stays taken on this host"),
            None => "a lock was lost".to_owned(),
        };
        let what = match &self.group {
            None => "a command whose process this agent does not know".to_owned(),
            Some(group) if group.has_leader_ended() => {
                format!("what the command {} has started", group.number())
            }
            Some(group) => format!("the command {}", group.number()),
        };
        let why = if self.is_forbidden {
            ", and this agent may not signal it"
        } else {
            ""
        };
        tracing::warn!(
            event = "command-not-ended",
            "{lock}: {what} still runs{why}; end it, and as root what has {} \
             open for writing ('F' in 'fuser -v'), but no distlock-guard: that ends with the rest",
            self.entry.directory().join(&self.entry.name).display()
        );
    }
}

/// What nobody has open any more is of no use to the agent's next incarnation either.
impl Drop for Lifeline {
    fn drop(&mut self) {
        if self.has_ended() {
            self.entry.remove();
        }
    }
}

/// When a command is told to end whose lease ends at `limit` and is not renewed. Its runner does
/// the same a little earlier, at a quarter of the lease, and knows why; a command that takes long to
/// end is told twice.
pub(crate) fn ask_at(limit: Time, lease: Duration) -> Time {
    limit - lease / 5
}

/// When it is killed: the rest of the lease is for what the kernel may take for it, and for clocks
/// that do not run alike.
pub(crate) fn kill_at(limit: Time, lease: Duration) -> Time {
    limit - lease / 10
}

/// When a command whose lock is lost at `now` is told to end, and when it is killed: its runner has
/// the first quarter of a lease for it, if nobody else can be let in for as long.
pub(crate) fn eviction(now: Time, limit: Time, lease: Duration) -> [Time; 2] {
    [
        ask_at(limit, lease).min(now + lease / 4),
        kill_at(limit, lease).min(now + lease / 2),
    ]
}

/// Ends what still runs under locks that are lost with their agent's session, before `limit`.
/// Waits no longer than a lease, and calls `meanwhile` now and then. Tells of those that have not ended.
///
/// Without the agent's poll: that may be what has failed.
pub(crate) fn end_all(
    mut lifelines: Vec<Lifeline>,
    limit: Time,
    lease: Duration,
    mut meanwhile: impl FnMut(),
) {
    type Act = fn(&mut Lifeline);
    let start = clock::now();
    let [ask, kill] = eviction(start, limit, lease);
    let steps: [(Time, Act); 2] = [(ask, Lifeline::ask), (kill, Lifeline::kill)];
    let mut steps = steps.into_iter().peekable();
    loop {
        lifelines.retain_mut(|lifeline| !lifeline.has_ended());
        let now = clock::now();
        if lifelines.is_empty() {
            return;
        }
        if now >= start + lease {
            let left = lifelines.iter();
            return left.for_each(|lifeline| lifeline.tell_that_it_stays(None));
        }
        if let Some((_, act)) = steps.next_if(|(at, _)| *at <= now) {
            lifelines.iter_mut().for_each(act);
        }
        meanwhile();
        clock::sleep(GLANCE);
    }
}

/// Whose request it is, and the client's number for it.
type Owner = (ClientId, u64);

/// The lifelines whose end is all that is waited for before their locks are free.
#[derive(Debug)]
pub(crate) struct Lifelines {
    directory: Arc<LifelineDir>,
    waited: BTreeMap<usize, Waited>,
    next: usize,
    /// Those to look at.
    noted: BTreeSet<usize>,
    /// Whether a command was started since this was asked last.
    commands_noted: bool,
}

#[derive(Debug)]
struct Waited {
    lifeline: Lifeline,
    ticket: Ticket,
    how: Release,
    owner: Owner,
    /// When to tell it to end, and when to kill it.
    ask: Option<Time>,
    kill: Option<Time>,
    was_asked: bool,
    was_killed: bool,
    /// When to look, if the poll does not tell.
    look: Option<Time>,
    /// When to tell that it still runs, though it was killed.
    tell: Option<Time>,
}

impl Lifelines {
    pub(crate) fn new(directory: Arc<LifelineDir>) -> Self {
        Self {
            directory,
            waited: BTreeMap::new(),
            next: 0,
            noted: BTreeSet::new(),
            commands_noted: false,
        }
    }

    /// A lifeline for a client of `user`'s.
    ///
    /// # Errors
    /// If it cannot be made, or too few descriptors would be left.
    pub(crate) fn make(&self, user: u32) -> io::Result<Lifeline> {
        let (fifo, own, entry) = self.directory.make()?;
        let mut lifeline = Lifeline::new(fifo, entry, user);
        lifeline.own = Some(Arc::new(own));
        if lifeline.is_spare() {
            Ok(lifeline)
        } else {
            Err(Errno::EMFILE.into())
        }
    }

    /// Frees the lock of `ticket` when `lifeline` ends. `how`: how the client that asked for it left
    /// it.
    pub(crate) fn wait_for(
        &mut self,
        lifeline: Lifeline,
        (ticket, how): (Ticket, Release),
        owner: Owner,
        registry: &Registry,
    ) {
        let token = LIFELINES + self.next;
        self.next += 1;
        let mut waited = Waited {
            lifeline,
            ticket,
            how,
            owner,
            ask: None,
            kill: None,
            was_asked: false,
            was_killed: false,
            look: None,
            tell: None,
        };
        let registered = waited.lifeline.descriptors().try_for_each(|fd| {
            registry.register(&mut SourceFd(&fd), Token(token), Interest::READABLE)
        });
        if let Err(error) = registered {
            tracing::warn!(
                event = "lifeline-failed",
                "a command's lifeline cannot be waited for: {error}"
            );
            waited.look = Some(clock::now());
        }
        self.noted.insert(token);
        self.waited.insert(token, waited);
    }

    /// Notes that a command was started, which may have to end with the lease.
    pub(crate) fn note_command(&mut self) {
        self.commands_noted = true;
    }

    /// Notes the command of a lifeline that is waited for already, and does what it came too late
    /// for.
    pub(crate) fn set_command(&mut self, owner: Owner, pid: u32, runner: u32) {
        for waited in self.of(owner) {
            waited.lifeline.set_command(pid, runner);
            // The poll does not know its process.
            waited.look = Some(clock::now());
            if waited.was_killed {
                waited.kill();
            } else if waited.was_asked {
                waited.ask();
            }
        }
    }

    /// Whether any was started since this was asked last.
    pub(crate) fn take_commands_noted(&mut self) -> bool {
        mem::take(&mut self.commands_noted)
    }

    /// All of them, to be waited for in another way.
    pub(crate) fn into_all(self) -> impl Iterator<Item = Lifeline> {
        self.waited.into_values().map(|waited| waited.lifeline)
    }

    /// Notes what the poll says about one of the tokens.
    pub(crate) fn note(&mut self, token: Token) {
        self.noted.insert(token.0);
    }

    /// Tells the command to end at the time `ask`, and kills it at the time `kill`.
    pub(crate) fn evict(&mut self, owner: Owner, ask: Time, kill: Time) {
        for waited in self.of(owner) {
            waited.evict(ask, kill);
        }
    }

    /// The same with all commands; whether there are any.
    pub(crate) fn evict_all(&mut self, ask: Time, kill: Time) -> bool {
        for waited in self.waited.values_mut() {
            waited.evict(ask, kill);
        }
        !self.waited.is_empty()
    }

    /// Kills the command.
    pub(crate) fn kill(&mut self, owner: Owner) {
        for waited in self.of(owner) {
            waited.kill();
        }
    }

    fn of(&mut self, owner: Owner) -> impl Iterator<Item = &mut Waited> {
        let waited = self.waited.values_mut();
        waited.filter(move |waited| waited.owner == owner)
    }

    /// Tells those commands to end whose time is over, or kills them.
    pub(crate) fn end_overdue(&mut self) {
        let now = clock::now();
        let waited = self.waited.values_mut();
        waited.for_each(|waited| waited.end_if_overdue(now));
    }

    /// Frees what is free now, kills whose time is over, and tells of those that stay all the same;
    /// when it wants to be called again.
    pub(crate) fn work(&mut self, shared: &Shared) -> Option<Time> {
        let now = clock::now();
        let due = |(&token, waited): (&usize, &Waited)| {
            waited.due().is_some_and(|at| at <= now).then_some(token)
        };
        let due: Vec<_> = self.waited.iter().filter_map(due).collect();
        self.noted.extend(due);
        for token in mem::take(&mut self.noted) {
            let Some(waited) = self.waited.get_mut(&token) else {
                continue;
            };
            if waited.lifeline.has_ended() {
                let (ticket, how) = (waited.ticket, waited.how);
                // Closing the descriptor takes it out of the poll.
                self.waited.remove(&token);
                let mut core = shared.lock_core();
                core.withdraw(ticket, how);
                core.finish();
                continue;
            }
            waited.end_if_overdue(now);
            if waited.tell.is_some_and(|tell| tell <= now) {
                waited.tell = None;
                let lock = shared.lock_core().lock_of(waited.ticket);
                waited.lifeline.tell_that_it_stays(lock.as_ref());
            }
            if waited.look.is_some() {
                waited.look = Some(now + LOOK);
            }
        }
        self.waited.values().filter_map(Waited::due).min()
    }
}

impl Waited {
    /// Nobody is told twice, and what was to be done earlier stays so.
    fn evict(&mut self, ask: Time, kill: Time) {
        if !self.was_asked && !self.was_killed {
            self.ask = Some(self.ask.map_or(ask, |at| at.min(ask)));
        }
        if !self.was_killed {
            self.kill = Some(self.kill.map_or(kill, |at| at.min(kill)));
        }
    }

    fn end_if_overdue(&mut self, now: Time) {
        if self.kill.is_some_and(|kill| kill <= now) {
            self.kill();
        } else if self.ask.is_some_and(|ask| ask <= now) {
            self.ask();
        }
    }

    fn ask(&mut self) {
        self.lifeline.ask();
        (self.ask, self.was_asked) = (None, true);
    }

    fn kill(&mut self) {
        self.lifeline.kill();
        (self.ask, self.kill, self.was_killed) = (None, None, true);
        self.tell = Some(clock::now() + TELL_AFTER);
    }

    fn due(&self) -> Option<Time> {
        let times = [self.ask, self.kill, self.look, self.tell];
        times.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
