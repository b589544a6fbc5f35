//! The event loop: waits for the network, the timers, the clients and the application's threads,
//! and does what they cannot wait for themselves. The agent thread runs it; in an agent without a
//! thread ([`super::driven`]) the application does, round by round.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::alarm::Alarm;
use super::clients::Service;
use super::clock;
use super::disk::{Disk, DiskThread};
use super::driven::Runner;
use super::durable::StateError;
use super::error::SessionEnd;
use super::handoff::Shared;
use super::lifeline::{self, Former};
use super::seal::{self, KeyFile};
use super::trace::Writer;
use super::turn::Task;
use super::watchdog::WatchdogTimer;
use crate::protocol::{Input, Time};

pub(super) const TRANSPORT: Token = Token(0);
pub(super) const WAKER: Token = Token(1);
pub(super) const SERVICE: Token = Token(2);
/// Events taken from the poll at once: as many as clients are served in a turn. The poll keeps what
/// does not fit for the next round.
const EVENTS: usize = 256;
/// Datagrams taken in one stay in the mutex, for which the application's threads wait.
const RECEIVE_LIMIT: usize = seal::IN_A_TURN;
/// Records written in one round. The core has one outstanding at a time, and asks for the next
/// when it hears that the last is on disk.
const PERSIST_LIMIT: usize = 4;

/// How often it is looked whether the file with the group's keys has changed.
const KEYS_EVERY: Duration = Duration::from_secs(1);

/// A sleep up to this length is left to the poll's own timeout, which stands still while the host is
/// suspended: it ends that much later at most, and setting the alarm would be a system call more.
const SHORT: Duration = Duration::from_millis(2);

/// What the agent thread sleeps by, and what wakes it.
#[derive(Debug)]
pub(crate) struct AgentThread {
    waker: Waker,
    alarm: Alarm,
}

impl AgentThread {
    /// Both are events of the poll.
    pub(super) fn new(registry: &Registry) -> io::Result<Self> {
        let alarm = Alarm::new()?;
        let fd = alarm.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&fd), WAKER, Interest::READABLE)?;
        Ok(Self {
            waker: Waker::new(registry, WAKER)?,
            alarm,
        })
    }

    pub(super) fn wake(&self) -> io::Result<()> {
        self.waker.wake()
    }

    /// What timeout has the poll sleep until `until`. To be called by the thread itself, right before
    /// it sleeps.
    fn timeout(&self, until: Time) -> Option<Duration> {
        let left = until.since(clock::now());
        if left <= SHORT {
            return Some(left);
        }
        match self.alarm.set(Some(until)) {
            Ok(()) => None,
            Err(error) => {
                tracing::error!("cannot set the agent's timer: {error}");
                Some(SHORT)
            }
        }
    }
}

impl Runner {
    /// What timeout has the poll sleep until `until`, or with `None` until something happens.
    fn timeout(&self, until: Option<Time>) -> Option<Duration> {
        match self {
            Self::Thread(thread) => thread.timeout(until?),
            // Its poll has an alarm of its own, which is always set.
            Self::Callers(_) => Some(until?.since(clock::now())),
        }
    }
}

/// The files that are the loop's to read and write.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) disk: Disk,
    pub(super) keys: Option<KeyFile>,
}

/// What belongs to whoever runs the loop alone.
#[derive(Debug)]
pub(super) struct EventLoop {
    shared: Arc<Shared>,
    poll: Poll,
    events: Events,
    files: Files,
    /// When to look at the file with the keys again.
    keys_at: Time,
    service: Option<Service>,
    /// What runs under locks of the last life, if anything does.
    former: Option<Former>,
    watchdog_timer: Option<WatchdogTimer>,
    writer: Option<Writer>,
    /// Whether there may be something at the member's socket.
    readable: bool,
    /// When the clients want to be looked after, if nothing happens before.
    service_at: Option<Time>,
}

impl EventLoop {
    pub(super) fn new(
        shared: Arc<Shared>,
        poll: Poll,
        files: Files,
        service: Option<Service>,
        watchdog_timer: Option<WatchdogTimer>,
        writer: Option<Writer>,
    ) -> Self {
        Self {
            shared,
            poll,
            events: Events::with_capacity(EVENTS),
            files,
            keys_at: Time::ZERO,
            service,
            former: None,
            watchdog_timer,
            writer,
            readable: true,
            service_at: Some(Time::ZERO),
        }
    }

    /// Lets nobody in before `former` has ended; the turn holds them back already.
    pub(super) fn wait_for(&mut self, former: Former) {
        self.former = Some(former);
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Runs until the session is over, however it ends. When it returns, sockets, files and the
    /// lock on the state directory are gone.
    pub(super) fn run(mut self) {
        loop {
            let until = self.shared.turn().plan_sleep(self.next());
            let timeout = self.shared.runner.timeout(until);
            if !self.round(timeout) {
                return;
            }
        }
    }

    /// When it wants to go round for the clients, the watchdog, or what is left at the socket.
    pub(super) fn next(&self) -> Option<Time> {
        let beat_at = self.watchdog_timer.as_ref().map(WatchdogTimer::next);
        let readable = self.readable.then_some(Time::ZERO);
        let former_at = self.former.as_ref().map(Former::next);
        let times = [self.service_at, beat_at, readable, former_at];
        times.into_iter().flatten().min()
    }

    /// Waits until there is something to do, for at most `timeout`, and does it; whether the
    /// session goes on. If it does not, nothing may be done but to drop the loop.
    pub(super) fn round(&mut self, timeout: Option<Duration>) -> bool {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve(timeout)));
        let end = match served {
            Ok(Ok(true)) => return true,
            Ok(Ok(false)) => None,
            Ok(Err(error)) => Some(SessionEnd::Poll {
                what: error.to_string(),
            }),
            Err(_) => Some(SessionEnd::Panicked),
        };
        if let Some(end) = end {
            tracing::error!("{end}");
            let mut turn = self.shared.turn();
            turn.end(end);
            turn.finish();
        }
        // A panic here leaves the commands to their runners.
        let _ = catch_unwind(AssertUnwindSafe(|| self.end_commands()));
        false
    }

    /// Ends what clients run under locks that were lost with the session. Where the session was
    /// closed in order they had their time before it.
    fn end_commands(&mut self) {
        let Some(service) = self.service.take() else {
            return;
        };
        let commands = service.close();
        let turn = self.shared.turn();
        let is_closed = turn.end_of_session() == Some(&SessionEnd::Closed);
        let limit = turn.limit();
        drop(turn);
        if !is_closed {
            let lease = self.shared.identity.settings.lease;
            lifeline::end_all(commands, limit, lease, || {
                self.watchdog_timer.iter_mut().for_each(WatchdogTimer::work)
            });
        }
    }

    /// Whether the session goes on.
    fn serve(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &self.events {
            match event.token() {
                TRANSPORT => self.readable = true,
                WAKER => {}
                _ => self
                    .service
                    .iter_mut()
                    .for_each(|service| service.note(event)),
            }
        }
        // First of all: the host may have been suspended for longer than a lease.
        if let Some(service) = &mut self.service {
            service.evict(&self.shared, self.poll.registry());
        }
        // Of what a waiting thread takes off the socket, and may have left, no event tells.
        self.readable |= self.shared.spin.is_taken();
        self.readable = self.step(self.readable);
        self.persist();
        self.look_at_former();
        self.do_tasks();
        self.read_note();
        self.report();
        self.service_at = self.serve_clients();
        self.look_at_keys();
        self.writer.iter_mut().for_each(Writer::work);
        if self.shared.turn().end_of_session().is_some() {
            return Ok(false);
        }
        // Only here, when all of the round is done.
        self.watchdog_timer.iter_mut().for_each(WatchdogTimer::work);
        Ok(true)
    }

    /// Takes what has arrived and looks at the timers; whether more may have arrived.
    fn step(&self, readable: bool) -> bool {
        let mut turn = self.shared.turn();
        turn.awake();
        let more = (readable || turn.must_look()) && turn.receive(RECEIVE_LIMIT);
        turn.expire();
        turn.expire_change();
        turn.ask_for_time();
        turn.finish();
        more
    }

    /// Puts on disk what the core wants there, and tells it so.
    fn persist(&mut self) {
        let Disk::Thread(disk) = &mut self.files.disk else {
            for _ in 0..PERSIST_LIMIT {
                let persisted = self.persist_once();
                self.end_if_not_kept(persisted.map_err(|error| error.to_string()));
            }
            return;
        };
        disk.tell_if_slow(self.shared.identity.settings.lease);
        if let Some(outcome) = disk.take_outcome() {
            let persisted = outcome.map(|()| self.tell_persisted());
            self.end_if_not_kept(persisted);
        }
        if let Disk::Thread(disk) = &mut self.files.disk
            && disk.is_idle()
            && let Some(record) = self.shared.turn().take_persist()
        {
            disk.write(record);
        }
    }

    fn end_if_not_kept(&self, persisted: Result<(), String>) {
        if let Err(what) = persisted {
            tracing::error!("{what}");
            let mut turn = self.shared.turn();
            turn.end(SessionEnd::State { what });
            turn.finish();
        }
    }

    fn tell_persisted(&self) {
        let mut turn = self.shared.turn();
        turn.step(Input::Persisted);
        turn.finish();
    }

    /// Lets those in who were held back, once nothing runs any more that the last life let in.
    fn look_at_former(&mut self) {
        if self.former.as_mut().is_some_and(Former::work) {
            self.former = None;
            let mut turn = self.shared.turn();
            turn.let_in();
            turn.finish();
        }
    }

    /// Has all open that the rest of the session needs.
    pub(super) fn prepare(&mut self) -> Result<(), StateError> {
        match &mut self.files.disk {
            Disk::Here(state) => state.prepare(),
            Disk::Thread(_) => Ok(()),
        }
    }

    /// From now on the disk is waited for by a thread of its own.
    pub(super) fn start_disk(self) -> io::Result<Self> {
        let shared = self.shared();
        let Files { disk, keys } = self.files;
        let disk = match disk {
            Disk::Here(state) => Disk::Thread(DiskThread::start(state, shared)?),
            started => started,
        };
        let files = Files { disk, keys };
        Ok(Self { files, ..self })
    }

    /// Puts the next record on disk, and waits for it. The mutex is not held meanwhile.
    pub(super) fn persist_once(&mut self) -> Result<(), StateError> {
        let Disk::Here(state) = &mut self.files.disk else {
            return Ok(());
        };
        let record = self.shared.turn().take_persist();
        if let Some(record) = record {
            state.write(record)?;
            self.tell_persisted();
        }
        Ok(())
    }

    /// Takes new keys over, if the file has some. A group talks often enough to come by here.
    fn look_at_keys(&mut self) {
        let Some(file) = &mut self.files.keys else {
            return;
        };
        let now = clock::now();
        if now < self.keys_at {
            return;
        }
        self.keys_at = now + KEYS_EVERY;
        match file.read_again() {
            None => {}
            Some(Ok(keys)) => {
                let ids: Vec<_> = keys.ids().map(|id| id.to_string()).collect();
                let path = file.path().display();
                tracing::info!("{path} has changed: its keys are {}", ids.join(", "));
                self.shared.turn().change_keys(keys);
            }
            Some(Err(error)) => {
                tracing::error!("{error}; the keys that were read before stay in use");
            }
        }
    }

    fn do_tasks(&mut self) {
        let tasks = self.shared.turn().take_tasks();
        for task in tasks {
            match task {
                Task::Tell { client, message } => {
                    if let Some(service) = &mut self.service {
                        service.tell(client, &message);
                    }
                }
                Task::Hand { client, id, page } => {
                    if let Some(service) = &mut self.service {
                        service.hand(client, id, page);
                    }
                }
                Task::Lease(lease) => {
                    if let Some(service) = &mut self.service {
                        service.renew(lease, &self.shared);
                    }
                }
                Task::Lost { client, id, limit } => {
                    if let Some(service) = &mut self.service {
                        let registry = self.poll.registry();
                        service.lose(client, id, limit, &self.shared, registry);
                    }
                }
                Task::TellAll(event) => {
                    if let Some(service) = &mut self.service {
                        service.tell_listeners(&event);
                    }
                }
            }
        }
    }

    /// Reads one note of another agent. To answer it all callers may have to be looked at; so leases
    /// are renewed before the next.
    fn read_note(&self) {
        let mut turn = self.shared.turn();
        if let Some((from, bytes)) = turn.take_note() {
            turn.handle_note(from, &bytes);
        }
        turn.finish();
    }

    /// Answers those who want to know how the group is, if that is known by now. The mutex is held
    /// while it is put together, and not while it is written down.
    fn report(&mut self) {
        let mut turn = self.shared.turn();
        let report = turn.take_report();
        turn.finish();
        let Some(report) = report else {
            return;
        };
        let (status, clients) = report.finish();
        if let Some(service) = self.service.as_mut().filter(|_| !clients.is_empty()) {
            service.tell_status(&status, &clients);
        }
    }

    fn serve_clients(&mut self) -> Option<Time> {
        self.service
            .as_mut()
            .and_then(|service| service.work(&self.shared, self.poll.registry()))
    }
}
