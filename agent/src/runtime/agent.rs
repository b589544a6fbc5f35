//! An agent: one member of a group, in a thread of this process, or driven by it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::os::unix::thread::JoinHandleExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use mio::{Poll, Registry};
use nix::sys::pthread::pthread_self;
use nix::sys::signal::{SigSet, SigmaskHow};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::address::{Address, MulticastAddress};
use super::ask::{Caller, Patience};
use super::clients::Service;
use super::clock;
use super::disk::Disk;
use super::driven::{Driven, Driver, Runner};
use super::durable::{Owner, StateDir, StateError};
use super::endpoint::Endpoint;
use super::error::{AcquireError, ChangeError, StartError, StatusError};
use super::event_loop::{AgentThread, EventLoop, Files, SERVICE};
use super::events::{AgentEvent, Leader};
use super::fork::ForkStamp;
use super::handoff::{Shared, watch};
use super::lifeline::{Former, LifelineDir};
use super::membership::Membership;
use super::report::Identity;
use super::request::{Grant, Waiting};
use super::seal::{self, KeyFile, KeyRing, Seals};
use super::status::Status;
use super::sync::Mutex;
use super::trace::{self, TraceWriter, Tracer, Writer};
use super::transport::{Faults, Transport, TransportCounters};
use super::watchdog::{Watchdog, WatchdogTimer};
use crate::protocol::lock::{violation_probability, votes_needed};
use crate::protocol::wire::{Drop as Dropped, GroupId};
use crate::protocol::{
    Boot, Change, ClusterId, Failure, LockName, LockSpec, Mode, Node, NodeConfig, NodeId, Settings,
    node,
};

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// This member.
    pub me: NodeId,
    /// All members and their addresses, this one's among them.
    pub members: BTreeMap<NodeId, Address>,
    /// Who of them votes on views.
    pub voters: BTreeSet<NodeId>,
    /// Whether its configuration lists them, or has them by default.
    pub voters_are_listed: bool,
    /// The only cluster that this member may be in, if the configuration names one.
    pub cluster: Option<ClusterId>,
    /// What all members must have alike.
    pub settings: Settings,
    /// Where this member keeps what must outlive it. Created if it does not exist.
    pub state_dir: PathBuf,
    /// Where local programs are served, if they are.
    pub socket: Option<Endpoint>,
    /// What is to be done in the event loop again and again while it is well.
    pub watchdog: Option<Watchdog>,
    /// In which directory what happens is written down, if it is: [`super::trace`].
    pub trace: Option<PathBuf>,
    /// Where what goes to several members alike is sent by multicast, if it is.
    pub multicast: Option<MulticastAddress>,
    /// The file that has the group's keys, if datagrams are sealed. It is read again when it changes.
    pub key_file: Option<PathBuf>,
    /// Whether the other members and all clients are told callers' whole command lines, and not the
    /// programs' names alone.
    pub command_lines: bool,
    /// For tests only: what happens to outgoing datagrams.
    pub faults: Option<Faults>,
}

/// A running agent. Dropping it closes it.
///
/// All methods may be called from any thread. In a process that was forked from the agent's, each
/// of them fails or does nothing, and the agent of the parent is not touched. The child has copies
/// of the agent's descriptors until it ends or runs another program: as long as it does, this
/// member's address stays taken after the parent's end.
#[derive(Debug)]
pub struct Agent {
    pub(super) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How long a lock is held, and how long a member runs, in what is told of voting: the example of
/// the lecture.
const TYPICAL_STAY: Duration = Duration::from_secs(30);
const TYPICAL_LIFE: Duration = Duration::from_secs(3600);

/// Says how probably locks that are served by voting exclude, if there are any.
fn warn_of_voting(settings: &Settings, members: usize) {
    let mut specs = settings.locks.values();
    if !settings.algorithm.is_probabilistic()
        && !specs.any(|spec| spec.algorithm.is_probabilistic())
    {
        return;
    }
    let votes = votes_needed(members);
    let forgets = TYPICAL_STAY.as_secs_f64() / TYPICAL_LIFE.as_secs_f64();
    let probability = violation_probability(members as u32, votes as u32, forgets);
    tracing::warn!(
        "algorithm = \"voting\" excludes with some probability only: a lock is held with {votes} of \
         {members} votes; if each member forgot its vote once an hour, a second one would get in \
         beside one that is inside for 30 s with a probability of {probability:.1e}; there are no \
         fences"
    );
}

/// How the group's configuration says that a lock is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// How, if nobody who uses the lock says otherwise.
    pub spec: LockSpec,
    /// Whether the configuration lists the lock. Then nobody may say otherwise.
    pub is_listed: bool,
    /// Whether a majority decides who belongs to the group. Then no algorithm is served that lets
    /// two in with some probability.
    pub by_quorum: bool,
}

impl Description {
    pub(super) fn of(lock: &LockName, settings: &Settings) -> Self {
        let listed = settings.locks.get(lock).copied();
        let spec = listed.unwrap_or_else(|| LockSpec::exclusive(settings.algorithm));
        Self {
            spec,
            is_listed: listed.is_some(),
            by_quorum: settings.failure == Failure::Quorum,
        }
    }
}

/// What an agent has counted since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// What the protocol counted: engines' messages by kind, datagrams dropped by reason.
    pub node: node::Counters,
    /// What the sockets saw.
    pub transport: TransportCounters,
    /// Notes of other agents that found no room.
    pub notes_lost: u64,
    /// Notes of other agents that could not be read, as of another version.
    pub notes_malformed: u64,
}

impl Counters {
    /// What was dropped, by reason; without reasons for which nothing was. First the datagrams that do
    /// not count as received, then those that do, then what was in datagrams that were taken, of which
    /// there may be several in one, and last what was to be sent.
    pub(super) fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let socket = &self.transport;
        let by_socket = [
            ("by-kernel", socket.dropped_by_kernel),
            ("foreign", socket.dropped_foreign),
            ("too-long", socket.dropped_truncated),
            ("malformed", socket.dropped_malformed),
            ("not-sealed", socket.dropped_unsealed),
            ("sealed", socket.dropped_sealed),
            ("unknown-key", socket.dropped_unknown_key),
            ("forged", socket.dropped_forged),
            ("replayed", socket.dropped_replayed),
            ("unproven", socket.dropped_unproven),
            ("stale-handshake", socket.dropped_stale),
            ("strange", socket.dropped_strange),
            ("receive-error", socket.receive_errors),
            ("malformed-multicast", socket.dropped_multicast),
        ];
        let by_core = self.node.dropped.iter().map(|(why, &count)| {
            let why = match why {
                Dropped::Length => "length",
                Dropped::Version => "version",
                Dropped::Checksum => "checksum",
                Dropped::Group => "group",
                Dropped::Address => "address",
                Dropped::Malformed => "malformed-content",
                Dropped::Stale => "stale",
                Dropped::Stranger => "stranger",
                Dropped::Early => "early",
            };
            (why, count)
        });
        let messages = [
            ("past-view", self.node.past_view),
            ("misplaced", self.node.misplaced),
            ("too-many-notes", self.notes_lost),
            ("malformed-note", self.notes_malformed),
            ("unsent-note", self.node.notes_lost),
            ("unsent-notice", self.node.notices_unsent),
        ];
        let all: Vec<_> = by_socket
            .into_iter()
            .chain(by_core)
            .chain(messages)
            .collect();
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

impl Agent {
    /// Starts an agent. When this returns, its address and its socket are bound; the group forms
    /// in the background, and the first requests wait for it.
    ///
    /// # Errors
    /// If the state directory, the address or the socket cannot be had (another process may have
    /// them), or the system refuses a thread, memory or descriptors. Nothing is left behind.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let event_loop = prepare(options, |registry| {
            let thread = AgentThread::new(registry).map_err(system("open a timer"))?;
            Ok(Runner::Thread(thread))
        })?;
        let event_loop = event_loop
            .start_disk()
            .map_err(system("start the disk's thread"))?;
        let shared = event_loop.shared();
        let thread = spawn("distlock-agent", move || event_loop.run())
            .map_err(system("start the agent thread"))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Starts an agent without a thread: the application makes it go on, by [`Driver::process`], or
    /// by waiting for a lock. While it does neither, this member is silent, and its lease runs out.
    ///
    /// # Errors
    /// As for [`Agent::start`], and [`StartError::Service`].
    pub fn start_driven(options: Options) -> Result<(Self, Driver), StartError> {
        if options.socket.is_some() {
            return Err(StartError::Service);
        }
        Self::driven(options)
    }

    /// As [`Agent::start_driven`], also with a service for clients: they wait for whoever drives.
    ///
    /// # Errors
    /// As for [`Agent::start`].
    #[doc(hidden)]
    pub fn driven(options: Options) -> Result<(Self, Driver), StartError> {
        let event_loop = prepare(options, |registry| {
            let driven = Driven::new(registry).map_err(system("open a timer"))?;
            Ok(Runner::Callers(Box::new(driven)))
        })?;
        let agent = Self {
            shared: event_loop.shared(),
            thread: Mutex::new(None),
        };
        let driver = Driver::new(event_loop);
        Ok((agent, driver))
    }

    /// Waits for `lock`, for itself alone, as long as `patience` says. Threads of one agent that want the same lock
    /// are served in the order in which they asked.
    ///
    /// `spec` says how the lock is to be served, or takes it as it is.
    ///
    /// # Errors
    /// [`AcquireError`] says why there is no grant.
    pub fn acquire(
        &self,
        lock: &LockName,
        spec: Option<LockSpec>,
        patience: Patience,
        caller: Caller,
    ) -> Result<Grant, AcquireError> {
        self.begin(lock, spec, Mode::Exclusive, patience, caller)?
            .finish()
    }

    /// Asks for `lock`, alone or with all who share it, to be waited for bit by bit.
    ///
    /// # Errors
    /// [`AcquireError`] says why it cannot be asked for.
    pub fn begin(
        &self,
        lock: &LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        caller: Caller,
    ) -> Result<Waiting, AcquireError> {
        self.shared.begin(lock, spec, mode, patience, caller)
    }

    /// How the whole group is. Other members are asked, and have 300 ms to answer; the callers of
    /// those who do not are missing.
    ///
    /// # Errors
    /// [`StatusError`] says why it cannot be told.
    pub fn status(&self) -> Result<Status, StatusError> {
        self.shared.status()
    }

    /// Changes who may be a member of the group, beyond what files say. When it returns, the view that
    /// says so is in force here, and no other will be anywhere. It may take as long as it takes to exclude a member that does not
    /// answer.
    ///
    /// # Errors
    /// [`ChangeError`] says why it is not done.
    pub fn change(&self, change: Change) -> Result<(), ChangeError> {
        self.shared.change(change)
    }

    /// Which members' settings differ, and what happens to the group from now on. Each call makes a
    /// channel of its own; a listener that does not read misses the newest events and is told how
    /// many ([`AgentEvent::Missed`]). After [`AgentEvent::Ended`] the channel is disconnected.
    pub fn events(&self) -> Receiver<AgentEvent> {
        self.events_as(|event| Some(event.clone()))
    }

    /// As [`Agent::events`], each event as `map` makes it, without those it makes nothing of.
    pub fn events_as<T: Send + 'static>(&self, map: fn(&AgentEvent) -> Option<T>) -> Receiver<T> {
        if self.shared.stamp.is_child() {
            return bounded(1).1;
        }
        self.shared.hub.subscribe(map)
    }

    /// Who leads in the election called `lock`, as far as this member knows: now, and from now on.
    /// While it is cut off from the group it hears of nothing. In a forked child the channel is at
    /// its end.
    pub fn observe(&self, lock: &LockName) -> Receiver<Option<Leader>> {
        self.observe_as(lock, |leader| leader)
    }

    /// As [`Self::observe`], each leader as `map` makes it.
    pub fn observe_as<T: Send + 'static>(
        &self,
        lock: &LockName,
        map: fn(Leader) -> T,
    ) -> Receiver<Option<T>> {
        if self.shared.stamp.is_child() {
            return bounded(1).1;
        }
        self.shared.turn().observe(lock, map)
    }

    /// How the configuration says that `lock` is served.
    pub fn describe(&self, lock: &LockName) -> Description {
        Description::of(lock, &self.shared.identity.settings)
    }

    /// What the agent has counted. In a forked child all is zero.
    pub fn counters(&self) -> Counters {
        if self.shared.stamp.is_child() {
            return Counters::default();
        }
        self.shared.turn().counters()
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.shared.identity.settings.group
    }

    /// The group's lease.
    pub fn lease(&self) -> Duration {
        self.shared.identity.settings.lease
    }

    /// This member.
    pub fn me(&self) -> NodeId {
        self.shared.identity.me
    }

    /// Leaves the group: waiting requests end, what is held is released and lost to its guards,
    /// the others are told. When it returns the thread, the sockets and their files are gone: at
    /// most about a second later, and a lease more while clients do not come out. Does nothing
    /// the second time.
    pub fn close(&self) {
        if self.shared.stamp.is_child() {
            return;
        }
        self.leave();
        self.shared.drive_to_the_end();
        join(&self.thread);
    }

    /// Begins to leave, and waits for nothing: [`Agent::close`] waits for the end.
    #[doc(hidden)]
    pub fn leave(&self) {
        self.shared.leave();
    }
}

/// All that an agent is, but for who runs its loop, which `runner` makes.
fn prepare(
    options: Options,
    runner: impl FnOnce(&Registry) -> Result<Runner, StartError>,
) -> Result<EventLoop, StartError> {
    let Options {
        me,
        members,
        voters,
        voters_are_listed,
        cluster,
        settings,
        state_dir,
        socket,
        watchdog,
        trace,
        multicast,
        key_file,
        command_lines,
        faults,
    } = options;
    if !members.contains_key(&me) {
        return Err(StartError::NotAMember { me });
    }
    let keys = key_file.as_deref().map(KeyFile::open).transpose()?;
    let (key_file, seals) = match keys {
        Some((file, keys)) => (Some(file), Some(begin_to_seal(me, keys)?)),
        None => {
            warn_of_insecurity(&members);
            (None, None)
        }
    };
    let owner = Owner::here(&settings.group, me, members[&me].to_string());
    let (state, record) = StateDir::open(&state_dir, owner)?;
    let remembers = record
        .as_ref()
        .and_then(|record| record.affiliation.cluster_id());
    if let Some(cluster) = remembers.filter(|_| settings.failure != Failure::Quorum) {
        let path = state_dir;
        return Err(StateError::HasQuorum { path, cluster }.into());
    }
    let (lifelines, left) = LifelineDir::open(&state_dir)
        .map_err(system("look for commands of this agent's last life"))?;
    let former = Former::new(left, settings.lease);
    let place = state
        .try_clone_lock()
        .map_err(system("copy a descriptor"))?;
    let group = GroupId::of(&settings.group);
    let multicast = multicast.map(|address| (group, address));
    let transport = Transport::bind(me, &members, multicast, seals, faults)?;
    let poll = Poll::new().map_err(system("open an epoll instance"))?;
    let runner = runner(poll.registry())?;
    transport
        .sockets()
        .try_for_each(|fd| watch(poll.registry(), fd))
        .map_err(system("wait for the member's socket"))?;
    let registry = poll
        .registry()
        .try_clone()
        .map_err(system("copy the epoll instance"))?;
    let service = socket
        .map(|endpoint| Service::open(&endpoint, lifelines, poll.registry(), SERVICE))
        .transpose()?;
    let stamp = ForkStamp::new()
        .map_err(io::Error::from)
        .map_err(system("mark this process"))?;

    let listed = voters.clone();
    let config = NodeConfig {
        me,
        members: members.keys().copied().collect(),
        voters,
        cluster,
        settings: settings.clone(),
    };
    if settings.failure == Failure::PresumeFailed {
        tracing::warn!(
            "failure = \"presume-failed\": a member that is silent is presumed gone, so two can \
             hold a lock at once when one of them only stood still or was cut off, and there \
             are no fences; to be safe from that, leave the key out"
        );
    }
    warn_of_voting(&settings, members.len());
    let boot = Boot {
        record,
        wall: clock::wall(),
        seed: chance()?,
    };
    let node = Node::new(config, boot, clock::now());
    let host = nix::unistd::gethostname().map_or_else(
        |_| String::new(),
        |name| name.to_string_lossy().into_owned(),
    );
    let trace = trace.and_then(|dir| trace::open(&dir, me, &settings, &host, node.incarnation()));
    let (tracer, writer) = trace.and_then(|pair| writing(pair, &runner)).unzip();
    let identity = Identity {
        me,
        file_voters: Some(listed).filter(|_| voters_are_listed),
        settings,
        host,
        command_lines,
        place,
    };
    let membership = Membership::new(members, key_file.is_some());
    let shared = Shared::new(
        node, transport, membership, runner, registry, stamp, identity,
    );
    let watchdog_timer = watchdog.map(WatchdogTimer::new);
    let mut event_loop = EventLoop::new(
        shared.clone(),
        poll,
        Files {
            disk: Disk::Here(state),
            keys: key_file,
        },
        service,
        watchdog_timer,
        writer,
    );
    let mut turn = shared.turn();
    if let Some(former) = former {
        turn.hold_back();
        event_loop.wait_for(former);
    }
    turn.begin(tracer);
    turn.finish();
    // The first record is written here, so that a failure is the start's.
    event_loop.persist_once()?;
    event_loop.prepare()?;
    Ok(event_loop)
}

/// A number by chance.
fn chance() -> Result<u64, StartError> {
    // The kernel's: what a process keeps for itself, as the standard library's `RandomState` does, a
    // forked child and its parent go on with alike.
    getrandom::u64()
        .map_err(io::Error::from)
        .map_err(system("draw random numbers"))
}

/// What a new life of member `me` seals with.
fn begin_to_seal(me: NodeId, keys: KeyRing) -> Result<Seals, StartError> {
    let mut seed = Zeroizing::new([0; seal::SEED]);
    getrandom::fill(&mut *seed)
        .map_err(io::Error::from)
        .map_err(system("draw random numbers"))?;
    Ok(Seals::new(me, keys, &seed))
}

/// Says what a group without a key risks, if its datagrams leave the host.
fn warn_of_insecurity(members: &BTreeMap<NodeId, Address>) {
    if members.values().all(Address::is_loopback) {
        if members
            .values()
            .any(|address| matches!(address, Address::Udp(_)))
        {
            tracing::warn!(
                "datagrams on loopback are not sealed: any user of this host can end an agent, or \
                 let two in at once; to be safe from that, write a key with distlock keygen, and \
                 give all members key_file, or use unix addresses"
            );
        }
    } else {
        tracing::warn!(
            "datagrams leave this host and are not sealed (insecure = true): whoever can send some to a \
             member can let two in at once; to be safe from that, write a key with distlock keygen, \
             and give all members key_file"
        );
    }
}

/// Who writes a trace: a thread, where the agent has one. A trace that cannot be had is done without.
fn writing((tracer, writer): (Tracer, TraceWriter), runner: &Runner) -> Option<(Tracer, Writer)> {
    match runner {
        Runner::Callers(_) => Some((tracer, Writer::in_loop(writer))),
        Runner::Thread(_) => match Writer::thread(writer) {
            Ok(writer) => Some((tracer, writer)),
            Err(error) => {
                tracing::warn!("cannot start a thread for the trace: {error}; there is none");
                None
            }
        },
    }
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { doing, source }
}

/// After the states of a majority of the voters were lost, for good: leaves an operator's word, for
/// member `me`, at `address`, of `group`, which must not run, that its cluster is abandoned. `abandoned` names
/// that cluster where the member's state is lost, too. When all voters of the file have the same
/// word, they found the group anew, above all epochs that any of them knows, and no earlier than the
/// longest lease that any of them remembers.
///
/// Whoever could still have a majority of the old voters, on the other side of a cut, must not be
/// left running: two groups would be the result.
///
/// # Errors
/// If the member runs, its state cannot be read or written, or nothing names the cluster.
pub fn recover(
    state_dir: &Path,
    (group, me, address): (&str, NodeId, &Address),
    abandoned: Option<ClusterId>,
) -> Result<(), StateError> {
    let owner = Owner::here(group, me, address.to_string());
    StateDir::recover(state_dir, owner, abandoned)
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.shared.stamp.is_child() {
            // The thread exists only in the parent: there is nothing to join or detach here.
            mem::forget(self.thread.get_mut().take());
        } else {
            self.close();
        }
    }
}

/// Starts a thread that takes no signals: they are for the application's own threads.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask()?;
    thread
}

/// Waits for the end of a thread that was told to end. Called on that very thread, by what its
/// owner wants done at a loss, it goes on: the thread ends by itself afterwards.
pub(super) fn join(thread: &Mutex<Option<JoinHandle<()>>>) {
    let mut slot = thread.lock();
    let Some(thread) = slot.take() else { return };
    // `std::thread::current` panics in the destructors of a C thread's data.
    if thread.as_pthread_t() != pthread_self() && thread.join().is_err() {
        tracing::error!("a thread of the agent panicked at its end");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn a_forked_child_has_other_chances() {
        let (mut theirs, mut out) = io::pipe().unwrap();
        // What is kept for each thread is there before the fork.
        chance().unwrap();
        #[expect(unsafe_code, reason = "fork is what is tested")]
        // SAFETY: the child makes system calls only, and exits without running destructors.
        let forked = unsafe { fork() }.unwrap();
        let child = match forked {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let chance = chance().unwrap_or_default();
                let code = i32::from(out.write_all(&chance.to_le_bytes()).is_err());
                #[expect(unsafe_code, reason = "no destructor may run in the child of a test")]
                // SAFETY: `_exit` takes no locks and does not return.
                unsafe {
                    libc::_exit(code)
                }
            }
        };
        let mut other = [0; 8];
        theirs.read_exact(&mut other).unwrap();
        assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        assert_ne!(u64::from_le_bytes(other), chance().unwrap());
    }

    /// What sockets and nodes count as dropped, each under a word of its own.
    #[test]
    fn all_that_is_dropped_is_shown() {
        let mut counters = Counters::default();
        assert_eq!(counters.dropped().count(), 0);
        let socket = &mut counters.transport;
        (socket.receive_errors, socket.dropped_multicast) = (1, 2);
        (socket.dropped_malformed, socket.dropped_strange) = (3, 4);
        let node = &mut counters.node;
        (node.past_view, node.misplaced) = (5, 6);
        (node.notes_lost, node.notices_unsent) = (10, 11);
        node.dropped = BTreeMap::from([(Dropped::Malformed, 7)]);
        (counters.notes_lost, counters.notes_malformed) = (8, 9);
        let dropped: BTreeMap<_, _> = counters.dropped().collect();
        let expected = [
            ("receive-error", 1),
            ("malformed-multicast", 2),
            ("malformed", 3),
            ("strange", 4),
            ("past-view", 5),
            ("misplaced", 6),
            ("malformed-content", 7),
            ("too-many-notes", 8),
            ("malformed-note", 9),
            ("unsent-note", 10),
            ("unsent-notice", 11),
        ];
        assert_eq!(dropped, BTreeMap::from(expected));
    }
}
