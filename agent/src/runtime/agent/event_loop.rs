//! The event loop: waits for the network, the timers, the clients and the application's threads,
//! and does what they cannot wait for themselves. The agent thread runs it; in an agent without a
//! thread ([`crate::runtime::agent::driven`]) the application does, round by round.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::protocol::{NodeId, Record, Time};
use crate::runtime::api::error::SessionEnd;
use crate::runtime::clients::lifeline::Former;
use crate::runtime::clients::{Service, lifeline};
use crate::runtime::disk::state_dir::StateError;
use crate::runtime::disk::writer::{Disk, DiskThread};
use crate::runtime::net::aead;
use crate::runtime::net::aead::KeyFile;
use crate::runtime::observe::trace::Writer;
use crate::runtime::observe::watchdog::WatchdogTimer;
use crate::runtime::os::clock;
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::entry::Task;
use crate::runtime::shared::wakeup::TRANSPORT;

/// Of the service for clients, the first of many.
pub(crate) const SERVICE: Token = Token(2);
/// Events taken from the poll at once: as many as clients are served in a turn. The poll keeps what
/// does not fit for the next round.
const EVENTS: usize = 256;
/// Datagrams taken in one stay in the mutex, for which the application's threads wait.
const RECEIVE_LIMIT: usize = aead::IN_A_TURN;

/// Records written in one round, where no thread writes them. The core has one outstanding at a time,
/// and asks for the next when it hears that the last is on disk.
const PERSIST_LIMIT: usize = 4;

/// How often it is looked whether the file with the group's keys has changed.
const KEYS_EVERY: Duration = Duration::from_secs(1);

/// The files that are the loop's to read and write.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) disk: Disk,
    pub(crate) keys: Option<KeyFile>,
}

/// What belongs to whoever runs the loop alone.
#[derive(Debug)]
pub(crate) struct EventLoop {
    shared: Arc<Shared>,
    poll: Poll,
    events: Events,
    files: Files,
    /// When to look at the file with the keys again.
    keys_at: Time,
    service: Option<Service>,
    /// What runs under locks of the last incarnation, if anything does.
    former: Option<Former>,
    watchdog_timer: Option<WatchdogTimer>,
    writer: Option<Writer>,
    /// Whether there may be something at the member's socket.
    readable: bool,
    /// When the clients want to be looked after, if nothing happens before.
    service_at: Option<Time>,
    /// Until when to sleep before the next round.
    until: Option<Time>,
}

/// What a round's stay in the core's mutex leaves to be done without it.
#[derive(Debug)]
struct Work {
    record: Option<Record>,
    tasks: VecDeque<Task>,
    note: Option<(NodeId, Vec<u8>)>,
    has_report: bool,
}

/// Logs a failure: before the core's mutex is taken, as the log may be slow.
fn logged(persisted: Result<(), String>) -> Result<(), String> {
    persisted.inspect_err(|what| tracing::error!(event = "state-write-failed", "{what}"))
}

impl EventLoop {
    pub(crate) fn new(
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
            until: Some(Time::ZERO),
        }
    }

    /// Lets nobody in before `former` has ended; the turn holds them back already.
    pub(crate) fn wait_for(&mut self, former: Former) {
        self.former = Some(former);
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Runs until the session is over, however it ends. When it returns, sockets, files and the
    /// lock on the state directory are gone.
    pub(crate) fn run(mut self) {
        loop {
            let timeout = self.shared.wakeup.timeout(self.until);
            if !self.round(timeout) {
                return;
            }
        }
    }

    /// When it wants to go round for the clients, the watchdog, or what is left at the socket.
    fn next(&self) -> Option<Time> {
        let beat_at = self.watchdog_timer.as_ref().map(WatchdogTimer::next);
        let readable = self.readable.then_some(Time::ZERO);
        let former_at = self.former.as_ref().map(Former::next);
        let times = [self.service_at, beat_at, readable, former_at];
        times.into_iter().flatten().min()
    }

    /// Waits until there is something to do, for at most `timeout`, does it, and plans the next
    /// round; whether the session goes on. If it does not, nothing may be done but to drop the
    /// loop.
    pub(crate) fn round(&mut self, timeout: Option<Duration>) -> bool {
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
            tracing::error!(event = "agent-failed", "{end}");
            let mut core = self.shared.lock_core();
            core.end(end);
            core.finish();
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
        let core = self.shared.lock_core();
        let is_closed = core.end_of_session() == Some(&SessionEnd::Closed);
        let limit = core.limit();
        drop(core);
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
                token if token < SERVICE => {}
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
        self.readable |= self.shared.is_led();
        let Work {
            record,
            tasks,
            note,
            has_report,
        } = self.step();
        if let Some(record) = record {
            self.persist(record);
        }
        self.look_at_former();
        self.do_tasks(tasks);
        if note.is_some() || has_report {
            self.answer(note);
        }
        self.service_at = self.serve_clients();
        self.look_at_keys();
        self.writer.iter_mut().for_each(Writer::work);
        // Only here, when all of the round is done.
        self.watchdog_timer.iter_mut().for_each(WatchdogTimer::work);
        let mut core = self.shared.lock_core();
        let goes_on = core.end_of_session().is_none();
        if goes_on {
            self.until = core.plan(self.next());
        }
        Ok(goes_on)
    }

    /// Takes what has arrived and looks at the timers.
    fn step(&mut self) -> Work {
        let persisted = match &mut self.files.disk {
            Disk::Here(_) => None,
            #[cfg(feature = "store")]
            Disk::Unused(_) => None,
            Disk::Thread(disk) => {
                disk.tell_if_slow(self.shared.identity.settings.lease);
                let outcome = disk.take_outcome();
                outcome.map(|(persisted, took)| (logged(persisted), took))
            }
        };
        let planned = self.until.filter(|until| *until > Time::ZERO);
        let late = planned.map(|until| clock::now().since(until));
        let mut core = self.shared.lock_core();
        core.awake(late.unwrap_or_default());
        if let Some((persisted, took)) = persisted {
            core.persisted(persisted, took);
        }
        self.readable = (self.readable || core.must_look()) && core.receive(RECEIVE_LIMIT);
        core.expire();
        core.expire_change();
        core.look_for_unlisted_voters();
        core.ask_for_time();
        let work = Work {
            record: core.take_persist(),
            tasks: core.take_tasks(),
            note: core.take_note(),
            has_report: core.has_report(),
        };
        core.finish();
        work
    }

    /// Puts on disk what the core wants there. Where no thread does it, the core is told so, and the
    /// records that it wants there next follow, as far as one round writes them. The mutex is not
    /// held meanwhile.
    fn persist(&mut self, mut record: Record) {
        for written in 1..=PERSIST_LIMIT {
            let begun = clock::now();
            let persisted = match &mut self.files.disk {
                Disk::Here(state) => state.write(record),
                Disk::Thread(disk) => return disk.write(record),
                #[cfg(feature = "store")]
                Disk::Unused(_) => return,
            };
            let persisted = logged(persisted.map_err(|error| error.to_string()));
            let took = clock::now().since(begun);
            let mut core = self.shared.lock_core();
            core.persisted(persisted, took);
            let next = (written < PERSIST_LIMIT)
                .then(|| core.take_persist())
                .flatten();
            core.finish();
            match next {
                Some(next) => record = next,
                None => return,
            }
        }
    }

    /// Lets those in who were held back, once nothing runs any more that the last incarnation let in.
    fn look_at_former(&mut self) {
        if self.former.as_mut().is_some_and(Former::work) {
            self.former = None;
            let mut core = self.shared.lock_core();
            core.let_in();
            core.finish();
        }
    }

    /// Has all open that the rest of the session needs.
    pub(crate) fn prepare(&mut self) -> Result<(), StateError> {
        match &mut self.files.disk {
            Disk::Here(state) => state.prepare(),
            Disk::Thread(_) => Ok(()),
            #[cfg(feature = "store")]
            Disk::Unused(_) => Ok(()),
        }
    }

    /// From now on the disk is waited for by a thread of its own.
    pub(crate) fn start_disk(self) -> io::Result<Self> {
        let shared = self.shared();
        let Files { disk, keys } = self.files;
        let disk = match disk {
            Disk::Here(state) => {
                Disk::Thread(DiskThread::start(state, move || shared.wake_thread())?)
            }
            started => started,
        };
        let files = Files { disk, keys };
        Ok(Self { files, ..self })
    }

    /// Puts the first record on disk, and waits for it.
    pub(crate) fn persist_first(&mut self, record: Option<Record>) -> Result<(), StateError> {
        if let (Disk::Here(state), Some(record)) = (&mut self.files.disk, record) {
            let begun = clock::now();
            state.write(record)?;
            let took = clock::now().since(begun);
            let mut core = self.shared.lock_core();
            core.persisted(Ok(()), took);
            core.finish();
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
                tracing::info!(
                    event = "keys-changed",
                    "{path} has changed: its keys are {}",
                    ids.join(", ")
                );
                self.shared.lock_core().change_keys(keys);
            }
            Some(Err(error)) => {
                tracing::error!(
                    event = "keys-refused",
                    "{error}; the keys that were read before stay in use"
                );
            }
        }
    }

    fn do_tasks(&mut self, tasks: VecDeque<Task>) {
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
                Task::EndNobodys { slot } => {
                    let mut core = self.shared.lock_core();
                    core.end_nobodys(slot);
                    core.finish();
                }
                Task::TellLoss(request) => {
                    request.notify();
                }
                Task::TellAll(event) => {
                    if let Some(service) = &mut self.service {
                        service.tell_listeners(&event);
                    }
                }
            }
        }
    }

    /// Reads one note of another agent (to answer it all callers may have to be looked at; so leases
    /// are renewed before the next), and answers those who want to know how the group is, if that is
    /// known by now. The mutex is held while it is put together, and not while it is written down.
    fn answer(&mut self, note: Option<(NodeId, Vec<u8>)>) {
        let mut core = self.shared.lock_core();
        if let Some((from, bytes)) = note {
            core.handle_note(from, &bytes);
        }
        let report = core.take_report();
        core.finish();
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
