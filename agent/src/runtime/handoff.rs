//! The hand-off: how the threads of an application and the agent thread share the protocol.
//!
//! The core sits in a mutex. An application's thread that wants a lock takes the mutex, reads the
//! clock, steps the protocol and sends the datagrams itself, then lets go and blocks on its
//! request, its own local semaphore. The agent thread waits for the network: it steps the protocol
//! with what arrives and posts the request that was granted. So the first datagram leaves without
//! any switch of threads, and an uncontended entry costs one round trip and one wake-up; not even
//! that, while a waiting thread has the [`NetworkRole`].

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::unix::SourceFd;
use mio::{Interest, Registry};

use super::announcer::Announcer;
use super::ask::{Caller, Patience};
use super::driven::Runner;
use super::error::{AcquireError, ReleaseError, SessionEnd};
use super::event_loop::TRANSPORT;
use super::events::Hub;
use super::fork::ForkStamp;
use super::membership::Membership;
use super::report::Identity;
use super::request::{Limit, Owner, Request, Waiting};
use super::seal;
use super::spin::{Spin, Spinner};
use super::sync::Mutex;
use super::transport::Transport;
use super::turn::{Core, Sink, Turn};
use crate::protocol::{LockName, LockSpec, Missing, Mode, Node, Release, Ticket, Time};

/// How many datagrams a waiting thread takes at once, before it looks for its grant.
const ROLE_RECEIVE_LIMIT: usize = 8;
const _: () = assert!(ROLE_RECEIVE_LIMIT <= seal::IN_A_TURN, "as it is said there");

/// What the threads of an agent's process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) stamp: ForkStamp,
    pub(crate) hub: Hub,
    core: Mutex<Core>,
    pub(super) runner: Runner,
    /// Of the event loop's poll.
    pub(super) registry: Registry,
    pub(super) spin: Spin,
    /// Whether the last request was decided in its own step: then there is no network to wait for.
    grants_at_once: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        node: Node,
        transport: Transport,
        membership: Membership,
        runner: Runner,
        registry: Registry,
        stamp: ForkStamp,
        identity: Identity,
    ) -> Arc<Self> {
        Arc::new(Self {
            stamp,
            hub: Hub::default(),
            core: Mutex::new(Core::new(
                node,
                transport,
                membership,
                identity.settings.lease,
            )),
            runner,
            registry,
            spin: Spin::default(),
            grants_at_once: AtomicBool::new(false),
            identity,
        })
    }

    /// Takes the mutex.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn::new(self, self.core.lock())
    }

    /// Takes the mutex, unless somebody has it.
    fn try_turn(&self) -> Option<Turn<'_>> {
        Some(Turn::new(self, self.core.try_lock()?))
    }

    /// Asks for `lock`.
    pub(crate) fn begin(
        self: &Arc<Self>,
        lock: &LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        caller: Caller,
    ) -> Result<Waiting, AcquireError> {
        if self.stamp.is_child() {
            return Err(AcquireError::Forked);
        }
        let limit = Limit::new(patience);
        let lifeline = caller
            .has_lifeline
            .then(|| self.identity.place.try_clone())
            .transpose()
            .map_err(|_| AcquireError::Limit)?;
        let request = Request::new();
        let role = self.take_role();
        let mut turn = self.turn();
        let sink = Sink::Thread(request.clone());
        let asked = turn.ask(lock.clone(), spec, mode, patience.wait(), caller, sink);
        turn.finish_as_application();
        let ticket = asked?;
        let at_once = request.is_decided();
        self.grants_at_once.store(at_once, Ordering::Relaxed);
        if let Some(role) = role
            && !at_once
        {
            role.wait_for(&request);
        }
        Ok(Waiting::new(self.clone(), ticket, request, limit, lifeline))
    }

    /// The network role for the request that is made next, if it is likely to pay. Before the
    /// request is sent, so that its answer wakes nobody.
    fn take_role(&self) -> Option<NetworkRole<'_>> {
        // Without an agent thread the one that waits does everything anyway, once it waits.
        let is_threaded = matches!(self.runner, Runner::Thread(_));
        if !is_threaded || self.grants_at_once.load(Ordering::Relaxed) {
            return None;
        }
        let spinner = self.spin.start()?;
        let mut turn = self.turn();
        if turn.end_of_session().is_some() {
            return None;
        }
        let is_mine = |fd: &RawFd| self.registry.deregister(&mut SourceFd(fd)).is_ok();
        let (all, mine) = (
            turn.sockets().count(),
            turn.sockets().take_while(is_mine).count(),
        );
        if mine < all {
            let mut given_back = turn.sockets().take(mine);
            let registered = given_back.try_for_each(|fd| watch(&self.registry, fd));
            turn.end_if_failed(registered);
            turn.finish();
            return None;
        }
        turn.finish();
        Some(NetworkRole {
            shared: self,
            spinner,
        })
    }

    /// Ends the session in good order: nobody is inside any more, and the others are told.
    pub(crate) fn leave(&self) {
        let mut turn = self.turn();
        turn.leave();
        turn.finish_as_application();
    }
}

/// Has the event loop wait for what arrives at the socket `fd`.
pub(super) fn watch(registry: &Registry, fd: RawFd) -> io::Result<()> {
    registry.register(&mut SourceFd(&fd), TRANSPORT, Interest::READABLE)
}

impl Turn<'_> {
    /// Ends the session if its sockets cannot be waited for.
    fn end_if_failed(&mut self, waiting: io::Result<()>) {
        if let Err(error) = waiting {
            self.end(SessionEnd::Poll {
                what: error.to_string(),
            });
        }
    }
}

/// The network role: for a moment, a thread that waits does the agent thread's job itself. It
/// receives, steps, answers others, and so gets its own grant without being woken for it. The
/// agent thread is not woken by datagrams meanwhile; its timers go on, and when one runs out it
/// looks at the socket too, so a thread that is not scheduled for long keeps nobody waiting.
/// Dropping it hands the role back.
#[derive(Debug)]
struct NetworkRole<'a> {
    shared: &'a Shared,
    spinner: Spinner<'a>,
}

impl NetworkRole<'_> {
    /// Waits until the request is decided, or the short time is over that this lasts.
    fn wait_for(&self, request: &Request) {
        self.spinner.until(|| {
            if let Some(mut turn) = self.shared.try_turn() {
                turn.receive(ROLE_RECEIVE_LIMIT);
                turn.finish_as_application();
            }
            request.is_decided()
        });
    }
}

impl Drop for NetworkRole<'_> {
    fn drop(&mut self) {
        let mut turn = self.shared.turn();
        // What has arrived in the meantime wakes the agent thread now.
        let registry = &self.shared.registry;
        let registered = turn.sockets().try_for_each(|fd| watch(registry, fd));
        turn.end_if_failed(registered);
        turn.finish_as_application();
    }
}

impl Owner for Shared {
    fn release(&self, ticket: Ticket, request: &Request, how: Release) -> Result<(), ReleaseError> {
        let mut turn = self.turn();
        // Looked at under the mutex: a loss comes before or after, and not in between.
        if !request.release() {
            return Err(ReleaseError::Lost);
        }
        turn.release(ticket, how);
        turn.finish_as_application();
        Ok(())
    }

    fn cancel(&self, ticket: Ticket, request: &Request, _: Time) -> Result<(), AcquireError> {
        // The grant may have come at this very moment. Then the cancellation does nothing, and the
        // caller gets what it was granted.
        let mut turn = self.turn();
        turn.cancel(ticket);
        turn.finish_as_application();
        assert!(
            request.is_decided(),
            "the core answers a cancellation at once"
        );
        Ok(())
    }

    fn withdraw(&self, ticket: Ticket, _: &Request) {
        let mut turn = self.turn();
        turn.withdraw(ticket, Release::Unused);
        turn.finish_as_application();
    }

    fn set_command_pid(&self, ticket: Ticket, pid: u32) {
        self.turn().set_command_pid(ticket, pid);
    }

    fn announcer(&self, _: Ticket) -> io::Result<Option<Announcer>> {
        Ok(None)
    }

    fn missing(&self) -> Vec<Missing> {
        self.turn().missing()
    }

    fn is_child(&self) -> bool {
        self.stamp.is_child()
    }

    fn drive(&self, deadline: Option<Time>, is_done: &dyn Fn() -> bool) {
        Self::drive(self, deadline, is_done);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use crossbeam_channel::TryRecvError;

    use super::*;
    use crate::protocol::{Algorithm, ElectionAlgorithm, Failure, NodeId, Settings};
    use crate::runtime::report::Asker;
    use crate::runtime::{Address, Agent, AgentEvent, Options, StatusError, Watchdog};

    /// The only member of its group.
    pub(in crate::runtime) fn alone(
        directory: &std::path::Path,
        watchdog: Option<Watchdog>,
    ) -> Agent {
        let me = NodeId::new(1).unwrap();
        let address = Address::unix(directory.join("1")).unwrap();
        Agent::start(Options {
            me,
            members: BTreeMap::from([(me, address)]),
            voters: BTreeSet::from([me]),
            voters_are_listed: true,
            cluster: None,
            settings: Settings {
                group: "test".to_owned(),
                lease: Duration::from_secs(5),
                failure: Failure::Unanimity,
                lock_delay: Duration::ZERO,
                election: ElectionAlgorithm::Bully,
                algorithm: Algorithm::RicartAgrawala,
                locks: BTreeMap::new(),
            },
            state_dir: directory.join("state"),
            socket: None,
            watchdog,
            trace: None,
            multicast: None,
            key_file: None,
            command_lines: false,
            faults: None,
        })
        .unwrap()
    }

    /// A watchdog must notice a thread that is alive and gets nothing done.
    #[test]
    fn a_loop_that_is_stuck_calls_no_watchdog() {
        let directory = tempfile::tempdir().unwrap();
        let (beat, beats) = crossbeam_channel::unbounded();
        let every = Duration::from_millis(20);
        let watchdog = Watchdog::new(every, move || beat.send(()).unwrap_or_default());
        let agent = alone(directory.path(), Some(watchdog));
        let long = Duration::from_secs(30);
        for _ in 0..3 {
            beats.recv_timeout(long).unwrap();
        }
        let turn = agent.shared.turn();
        while beats.recv_timeout(10 * every).is_ok() {}
        assert!(beats.recv_timeout(10 * every).is_err());
        turn.finish_as_application();
        beats.recv_timeout(long).unwrap();
        agent.close();
        while beats.recv_timeout(long).is_ok() {}
    }

    /// More notes at once than there is room for, of which none can be read.
    #[test]
    fn notes_that_are_dropped_are_shown() {
        const NOTES: u64 = 300;
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let mut turn = agent.shared.turn();
        for _ in 0..NOTES {
            let (from, bytes) = (NodeId::new(2).unwrap(), vec![0]);
            turn.pretend(crate::protocol::Event::Note { from, bytes });
        }
        turn.finish_as_application();
        let dropped = || agent.status().unwrap().protection.unwrap().dropped;
        while dropped().values().sum::<u64>() < NOTES {
            std::thread::sleep(Duration::from_millis(1));
        }
        let words = ["too-many-notes", "malformed-note"].map(|why| dropped()[why]);
        assert!(words.iter().all(|count| *count > 0), "{words:?}");
        assert_eq!(words.iter().sum::<u64>(), NOTES);
    }

    /// Who asks for the status when the session ends heard that nobody answers, and late.
    #[test]
    fn who_asks_for_the_status_is_not_left_waiting_by_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let (sender, answer) = crossbeam_channel::bounded(1);
        let mut turn = agent.shared.turn();
        turn.ask_status(Asker::Thread(sender)).unwrap();
        turn.end(SessionEnd::Panicked);
        assert!(matches!(answer.try_recv(), Err(TryRecvError::Disconnected)));
        turn.finish();
        let told = agent.status().unwrap_err();
        assert_eq!(told, StatusError::Closed(SessionEnd::Panicked));
    }

    /// A defect in the protocol, as far as the rest can tell: guards are lost, who waits is told,
    /// nothing more is sent, and the agent thread ends.
    #[test]
    fn a_panic_in_a_step_ends_the_session() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let events = agent.events();
        let lock = LockName::new("x").unwrap();
        let ask = |patience| agent.begin(&lock, None, Mode::Exclusive, patience, Caller::default());
        let grant = ask(Patience::Forever).unwrap().finish().unwrap();
        let waiting = ask(Patience::Forever).unwrap();

        let mut turn = agent.shared.turn();
        turn.guarded(|_| panic!("a defect"));
        assert_eq!(turn.sockets().next(), None);
        turn.finish_as_application();

        assert!(!grant.is_held());
        assert_eq!(grant.release(), Err(ReleaseError::Lost));
        let panicked = AcquireError::Closed(SessionEnd::Panicked);
        assert_eq!(waiting.finish().unwrap_err(), panicked);
        assert_eq!(ask(Patience::Try).unwrap_err(), panicked);
        let last = events.iter().last();
        assert_eq!(last, Some(AgentEvent::Ended(SessionEnd::Panicked)));
        agent.close();
    }
}
