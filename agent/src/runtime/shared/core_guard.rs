//! The core behind its mutex ([`Shared`]), and one stay in that mutex ([`CoreGuard`]).
//!
//! Whoever has the guard steps the protocol and does what it says at once, so that datagrams leave
//! in the order in which they were made. Everything that may take long (waking threads, files,
//! streams) is put off until after it, the latter two for the agent thread.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use crate::protocol::{Command, Input, Settings, Ticket, Time};
use crate::runtime::api::audit::Auditor;
use crate::runtime::api::error::SessionEnd;
use crate::runtime::api::events::Hub;
use crate::runtime::api::status::ClientsStatus;
use crate::runtime::observe::measured::Measured;
use crate::runtime::observe::trace::Tracer;
use crate::runtime::os::clock;
use crate::runtime::os::fork::ForkStamp;
use crate::runtime::os::socket_set::SocketSet;
use crate::runtime::os::spin::Spin;
use crate::runtime::os::sync::{Mutex, MutexGuard};
use crate::runtime::request::Request;
use crate::runtime::request::session::{OVER, Session};
use crate::runtime::shared::arbiter::{Arbiter, Members};
use crate::runtime::shared::client_loans::ClientLoans;
use crate::runtime::shared::contention::Contention;
use crate::runtime::shared::entry::{Entry, Task};
use crate::runtime::shared::group_status::{Identity, Reports};
use crate::runtime::shared::lending::Lending;
use crate::runtime::shared::wakeup::Wakeup;

/// The agent is not woken for a timer that is at most this much earlier than the one it sleeps
/// for: what such timers repair has taken longer already.
const SLACK: Duration = Duration::from_millis(1);

/// The event loop of an agent without a thread: whoever waits runs it.
pub(crate) trait Drive: Send + Sync + fmt::Debug {
    /// Runs it until `is_done` or until `deadline`, or until the session has ended.
    fn drive(&self, deadline: Option<Time>, is_done: &dyn Fn() -> bool);

    /// Runs it until the session has ended and all of it is gone, unless this thread is in a round.
    fn drive_to_the_end(&self);
}

/// What the threads of an agent's process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) stamp: ForkStamp,
    pub(crate) hub: Hub,
    core: Mutex<Core>,
    pub(crate) wakeup: Wakeup,
    /// What runs the event loop where callers do, until the session is over. It has this in turn:
    /// so in a forked child neither is dropped, which would remove the parent's sockets.
    driver: Mutex<Option<Arc<dyn Drive>>>,
    /// What whoever leads waits for, and else the event loop.
    pub(crate) socket_set: SocketSet,
    /// Whether an application's thread leads.
    pub(super) is_led: AtomicBool,
    pub(super) spin: Spin,
    /// The end of the lease, as the session has it: what is granted now is valid until then.
    pub(super) expiry: AtomicU64,
    /// Whether the last request was decided in its own step: then there is no network to wait for.
    pub(super) grants_at_once: AtomicBool,
    pub(super) contention: Contention,
}

impl Shared {
    pub(crate) fn new(
        arbiter: Arbiter,
        wakeup: Wakeup,
        socket_set: SocketSet,
        stamp: ForkStamp,
        identity: Identity,
    ) -> Arc<Self> {
        Arc::new(Self {
            stamp,
            hub: Hub::default(),
            core: Mutex::new(Core::new(arbiter, &identity.settings)),
            wakeup,
            driver: Mutex::new(None),
            socket_set,
            is_led: AtomicBool::new(false),
            spin: Spin::default(),
            expiry: AtomicU64::new(OVER),
            grants_at_once: AtomicBool::new(false),
            contention: Contention::default(),
            identity,
        })
    }

    /// Takes the mutex.
    pub(crate) fn lock_core(&self) -> CoreGuard<'_> {
        CoreGuard::new(self, self.core.lock())
    }

    /// Takes the mutex, unless somebody has it.
    pub(super) fn try_lock_core(&self) -> Option<CoreGuard<'_>> {
        Some(CoreGuard::new(self, self.core.try_lock()?))
    }

    /// From now on `driver` runs the event loop when callers wait.
    pub(crate) fn set_driver(&self, driver: Arc<dyn Drive>) {
        *self.driver.lock() = Some(driver);
    }

    /// The event loop is gone.
    pub(crate) fn forget_driver(&self) {
        let driver = self.driver.lock().take();
        drop(driver);
    }

    fn driver(&self) -> Option<Arc<dyn Drive>> {
        match self.wakeup {
            Wakeup::Thread(_) => None,
            Wakeup::Callers(_) => self.driver.lock().clone(),
        }
    }

    /// Runs the event loop until `is_done`, or until `deadline`, if that is the callers' business. If
    /// the session ends before, nothing more comes of it.
    pub(crate) fn drive(&self, deadline: Option<Time>, is_done: &dyn Fn() -> bool) {
        if let Some(driver) = self.driver() {
            driver.drive(deadline, is_done);
        }
    }

    /// Runs the event loop, if that is the callers' business, until the session, which was told to
    /// end, is over and all of it is gone. In a round of this very thread it leaves that to the
    /// next one.
    pub(crate) fn drive_to_the_end(&self) {
        if let Some(driver) = self.driver() {
            driver.drive_to_the_end();
        }
    }

    /// Wakes the agent thread, if there is one.
    pub(crate) fn wake_thread(&self) {
        if let Wakeup::Thread(thread) = &self.wakeup {
            thread.wake();
        }
    }
}

/// The protocol and what surrounds it, under the mutex.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) arbiter: Arbiter,
    pub(crate) requests: BTreeMap<Ticket, Entry>,
    /// What threads enter by themselves, by the tickets of those that will be inside.
    pub(super) lendings: BTreeMap<Ticket, Lending>,
    /// What clients enter by themselves.
    pub(super) client_loans: ClientLoans,
    pub(super) next_ticket: u64,
    /// What is granted now is valid in it.
    pub(crate) session: Arc<Session>,
    /// How many there were before it.
    pub(crate) session_number: u64,
    pub(crate) reports: Reports,
    pub(super) phase: Phase,
    /// What callers ask for while commands of this agent's last incarnation run; `None` once nothing
    /// does.
    pub(crate) held_back: Option<VecDeque<(Ticket, Command)>>,
    /// What is left for the agent thread.
    pub(crate) tasks: VecDeque<Task>,
    /// Until when the agent thread sleeps; `None` while it is awake, and will look for itself.
    pub(super) sleeps_until: Option<Time>,
    /// When an application's thread last stepped.
    pub(super) active_at: Time,
    /// Notes what happens, if somebody wants to know.
    pub(crate) tracer: Option<Tracer>,
    /// What is told each grant and how it ended, if there is an audit.
    pub(crate) auditor: Option<Auditor>,
    pub(crate) measured: Measured,
    /// Who uses the service for clients, as it has last told.
    pub(crate) clients: Option<ClientsStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// Clients are asked for what they hold.
    Draining {
        deadline: Time,
    },
    /// The group is being told.
    Leaving {
        deadline: Time,
    },
    Over(SessionEnd),
}

#[cfg(test)]
thread_local! {
    /// How often this thread has taken the mutex.
    pub(crate) static TAKINGS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// One stay in the mutex.
#[derive(Debug)]
pub(crate) struct CoreGuard<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) core: MutexGuard<'a, Core>,
    /// Whom to wake or to call afterwards.
    pub(super) notify: Vec<Arc<Request>>,
    /// Whose waiters to wake.
    pub(crate) ring: Vec<Arc<Session>>,
}

impl<'a> CoreGuard<'a> {
    pub(crate) fn new(shared: &'a Shared, core: MutexGuard<'a, Core>) -> Self {
        #[cfg(test)]
        TAKINGS.set(TAKINGS.get() + 1);
        Self {
            shared,
            core,
            notify: Vec::new(),
            ring: Vec::new(),
        }
    }
}

impl CoreGuard<'_> {
    /// Does what a new core says before its first input. What happens from now on is noted by
    /// `tracer`, and told to `auditor`.
    pub(crate) fn begin(&mut self, tracer: Option<Tracer>, auditor: Option<Auditor>) {
        self.core.tracer = tracer;
        self.core.auditor = auditor;
        self.run(None);
    }

    /// Steps the protocol at the present time, and does what it says.
    pub(crate) fn step(&mut self, input: Input<'_>) {
        self.run(Some(input));
    }

    fn run(&mut self, input: Option<Input<'_>>) {
        if self.end_of_session().is_some() {
            return;
        }
        self.guarded(|guard| match guard.core.arbiter {
            Arbiter::Members(_) => guard.run_members(input),
            #[cfg(feature = "store")]
            Arbiter::Store(_) => guard.run_store(input),
        });
    }

    /// Has the protocol say `event`.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, event: crate::protocol::Event) {
        self.tell(event);
    }

    /// A panic inside ends the session: nobody knows what state the protocol is in.
    pub(crate) fn guarded(&mut self, act: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| act(self))).is_err() {
            self.end(SessionEnd::Panicked);
        }
    }

    /// Lets go of the mutex after an application's thread stepped, and wakes the agent thread if
    /// it would sleep too long.
    pub(crate) fn finish_as_application(mut self) {
        self.core.active_at = clock::now();
        let shared = self.shared;
        let mut wake = None;
        if self.core.must_wake() {
            match &shared.wakeup {
                Wakeup::Thread(thread) => {
                    self.core.sleeps_until = None;
                    wake = Some(thread);
                }
                Wakeup::Callers(_) => drop(self.plan(None)),
            }
        }
        self.finish();
        if let Some(thread) = wake {
            thread.wake();
        }
    }

    /// Leaves it to the agent thread to tell of what was lost: callbacks are not for a thread that waits
    /// for something else, and may hold what they need.
    pub(super) fn leave_losses(&mut self) {
        let lost = self.notify.extract_if(.., |request| request.is_lost());
        let tasks = lost.map(Task::TellLoss);
        self.core.tasks.extend(tasks);
    }

    /// Lets go of the mutex, then wakes whom the steps decided for.
    pub(crate) fn finish(self) {
        let Self {
            shared,
            core,
            notify,
            ring,
        } = self;
        drop(core);
        for session in ring {
            session.ring();
        }
        for request in notify {
            if request.notify() {
                shared.socket_set.ring();
            }
        }
    }
}

impl Core {
    pub(crate) fn new(arbiter: Arbiter, settings: &Settings) -> Self {
        Self {
            arbiter,
            requests: BTreeMap::new(),
            lendings: BTreeMap::new(),
            client_loans: ClientLoans::default(),
            next_ticket: 1,
            session: Session::new(settings.lease),
            session_number: 0,
            reports: Reports::default(),
            phase: Phase::Running,
            held_back: None,
            tasks: VecDeque::new(),
            sleeps_until: None,
            active_at: clock::now(),
            tracer: None,
            auditor: None,
            measured: Measured::new(settings.locks.keys()),
            clients: None,
        }
    }

    /// Whether something is left that only the agent thread can do.
    pub(super) fn has_work(&self) -> bool {
        let is_over = matches!(self.phase, Phase::Over(_));
        !self.tasks.is_empty() || is_over || self.arbiter.has_work()
    }

    /// This agent's part among the members of its group; `None` where a store decides.
    pub(crate) fn members(&self) -> Option<&Members> {
        self.arbiter.members()
    }

    /// The same.
    pub(crate) fn members_mut(&mut self) -> Option<&mut Members> {
        self.arbiter.members_mut()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let leaving = match self.phase {
            Phase::Draining { deadline } | Phase::Leaving { deadline } => Some(deadline),
            Phase::Running | Phase::Over(_) => None,
        };
        let as_number = |at: Option<Time>| at.map_or(u64::MAX, Time::as_nanos);
        let reports = self.reports.next_deadline();
        let own = as_number(leaving).min(as_number(reports));
        let earliest = self.arbiter.next_deadline().min(own);
        (earliest != u64::MAX).then(|| Time::from_nanos(earliest))
    }

    /// Whether the agent thread sleeps, and longer than it now may.
    fn must_wake(&self) -> bool {
        self.sleeps_until.is_some_and(|until| {
            self.has_work()
                || self
                    .next_deadline()
                    .is_some_and(|next| next + SLACK < until)
        })
    }
}
