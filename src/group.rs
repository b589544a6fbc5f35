//! A configured group behind [`Backend`], however this process takes part in it: as a member
//! ([`crate::member`]) or through the host's agent ([`crate::client`]).

use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock_agent::protocol::{Change, Fence, LockName, LockSpec, Previous, Release, Time};
use distlock_agent::runtime::metrics::Metrics;
use distlock_agent::runtime::status::Status;
use distlock_agent::runtime::sync::Mutex;
use distlock_agent::runtime::{
    self, AcquireError, AgentEvent, Announcer, Caller, Description, Grant, LeaseWatch, LossSignal,
    Observed, Purpose, SessionEnd, Settling, clock,
};

use crate::backend::{Ask, Backend, Hold, Lock, Patience, Request, Waiting};
use crate::error::{HandleError, LockError, MembersError, OpenError, StatusError, UnlockError};
use crate::guard::Lent;
use crate::{Agent, Algorithm, Event, GuardState, Leader, PreviousOwner};

/// How often a lock that is served otherwise than configured is asked for as it is served. It may
/// be forgotten and made anew in between, but hardly several times.
const SPEC_TRIES: usize = 3;

/// How this process takes part in a configured group.
pub(crate) enum Connection {
    Member(runtime::Agent),
    Client(runtime::Client),
}

impl Connection {
    pub(crate) fn into_agent(self) -> Result<Agent, OpenError> {
        Agent::new(Arc::new(Group(Arc::new(self))))
    }
}

/// The same of either.
macro_rules! of_either {
    ($connection:expr, $it:ident => $does:expr) => {
        match &*$connection {
            Connection::Member($it) => $does,
            Connection::Client($it) => $does,
        }
    };
}

/// The back end.
struct Group(Arc<Connection>);

impl Backend for Group {
    fn open(&self, name: &LockName, ask: Ask) -> Result<Arc<dyn Lock>, HandleError> {
        let description = match &*self.0 {
            Connection::Member(agent) => agent.describe(name),
            Connection::Client(client) => client.describe(name).map_err(|error| match error {
                runtime::StatusError::Forked => HandleError::Forked,
                runtime::StatusError::TimedOut => HandleError::NoAnswer,
                _ => HandleError::Closed,
            })?,
        };
        let is_in_store = description.is_in_store;
        let ask = if is_in_store { of_ledger(ask)? } else { ask };
        let spec = agree(ask, description)?;
        Ok(Arc::new(GroupLock {
            connection: Arc::clone(&self.0),
            name: name.clone(),
            ask,
            is_in_store,
            spec: Mutex::new(spec),
        }))
    }

    fn status(&self) -> Result<Status, StatusError> {
        of_either!(self.0, it => it.status()).map_err(untold)
    }

    fn metrics(&self) -> Result<Option<Metrics>, StatusError> {
        of_either!(self.0, it => it.metrics())
            .map(Some)
            .map_err(untold)
    }

    fn change(&self, change: Change) -> Result<(), MembersError> {
        Ok(of_either!(self.0, it => it.change(change))?)
    }

    fn events(&self) -> Receiver<Event> {
        of_either!(self.0, it => it.events_as(event))
    }

    fn lease(&self) -> Option<Duration> {
        Some(of_either!(self.0, it => it.lease()))
    }

    fn observe(&self, name: &LockName) -> Observed<Option<Leader>> {
        of_either!(self.0, it => it.observe_as(name, leader))
    }

    fn elects(&self) -> bool {
        match &*self.0 {
            Connection::Member(agent) => !agent.is_in_store(),
            // Its agent tells.
            Connection::Client(_) => true,
        }
    }

    fn close(&self) {
        of_either!(self.0, it => it.close());
    }
}

fn untold(error: runtime::StatusError) -> StatusError {
    match error {
        runtime::StatusError::Forked => StatusError::Forked,
        runtime::StatusError::Closed(SessionEnd::Closed) => StatusError::Closed,
        runtime::StatusError::Closed(end) => StatusError::Disconnected {
            reason: end.to_string(),
        },
        error => StatusError::Unavailable {
            reason: error.to_string(),
        },
    }
}

/// How a lock is to be served if it is new, unless the caller and the configuration contradict.
fn agree(ask: Ask, description: Description) -> Result<LockSpec, HandleError> {
    let Description {
        spec,
        is_listed,
        by_quorum,
        is_in_store: _,
    } = description;
    if is_listed {
        if let Some(asked) = ask.algorithm
            && asked.engine() != Some(spec.algorithm)
        {
            let actual = spec.algorithm.into();
            return Err(HandleError::WrongAlgorithm { asked, actual });
        }
        return match ask.permits {
            Some(asked) if asked != spec.permits => {
                let actual = spec.permits;
                Err(HandleError::WrongPermits { asked, actual })
            }
            _ => Ok(spec),
        };
    }
    let engine = match ask.algorithm {
        Some(asked) => Some(
            asked
                .engine()
                .ok_or(HandleError::NotInThisGroup { asked })?,
        ),
        None => None,
    };
    if let Some(asked) = ask.algorithm
        && by_quorum
        && asked
            .engine()
            .is_some_and(|engine| engine.is_probabilistic())
    {
        return Err(HandleError::OnlyProbable { asked });
    }
    let permits = ask.permits.ok_or(HandleError::PermitsUnknown)?;
    let spec = match engine {
        Some(algorithm) => LockSpec {
            permits,
            ..LockSpec::exclusive(algorithm)
        },
        None if permits == NonZeroU32::MIN => spec,
        None => LockSpec::counting(permits),
    };
    if spec.is_valid() {
        Ok(spec)
    } else {
        let asked = permits;
        Err(HandleError::TooManyPermits { asked, max: 1 })
    }
}

/// What a caller says of a lock that a store has: all are served by the ledger.
fn of_ledger(ask: Ask) -> Result<Ask, HandleError> {
    match ask.algorithm {
        None | Some(Algorithm::Ledger) => Ok(Ask {
            algorithm: None,
            ..ask
        }),
        Some(asked) => Err(HandleError::NotInThisGroup { asked }),
    }
}

struct GroupLock {
    connection: Arc<Connection>,
    name: LockName,
    ask: Ask,
    is_in_store: bool,
    /// As far as is known: another member may have been first, and have said otherwise.
    spec: Mutex<LockSpec>,
}

impl Lock for GroupLock {
    fn algorithm(&self) -> Algorithm {
        if self.is_in_store {
            Algorithm::Ledger
        } else {
            self.spec.lock().algorithm.into()
        }
    }

    fn permits(&self) -> NonZeroU32 {
        self.spec.lock().permits
    }

    fn lend(&self) -> Option<Lent> {
        match &*self.connection {
            Connection::Member(agent) => agent.lend(&self.name).map(Lent::Member),
            Connection::Client(client) => client.lend(&self.name).map(Lent::Client),
        }
    }

    fn begin(self: Arc<Self>, request: Request) -> Box<dyn Waiting> {
        let spec = *self.spec.lock();
        Box::new(GroupWaiting {
            lock: self,
            request,
            started: clock::now(),
            tries: 0,
            spec,
            asked: None,
        })
    }
}

/// A request, made again if the lock is served otherwise than it said.
struct GroupWaiting {
    lock: Arc<GroupLock>,
    request: Request,
    started: Time,
    tries: usize,
    /// How the lock was said to be served when it was asked for last.
    spec: LockSpec,
    asked: Option<runtime::Waiting>,
}

impl GroupWaiting {
    fn send(&mut self) -> Result<runtime::Waiting, AcquireError> {
        self.tries += 1;
        self.spec = *self.lock.spec.lock();
        let waited = clock::now().since(self.started);
        let patience = match self.request.patience {
            // No time at all is enough for a free lock, however far the others are.
            Patience::For(Duration::ZERO) => Patience::Try,
            Patience::For(time) => Patience::For(time.saturating_sub(waited)),
            patience => patience,
        };
        let (name, spec, mode) = (&self.lock.name, Some(self.spec), self.request.wish.mode);
        let caller = caller(&self.request);
        of_either!(self.lock.connection, it => it.begin(name, spec, mode, patience, caller))
    }

    /// Whether the caller takes the lock only if it is free.
    fn only_tries(&self) -> bool {
        let patience = self.request.patience;
        matches!(patience, Patience::Try | Patience::For(Duration::ZERO))
    }

    /// What the caller is told of a refusal; `None` if another held the lock.
    fn refused(&self, why: AcquireError) -> Result<Option<Box<dyn Hold>>, LockError> {
        Err(match why {
            AcquireError::Busy
            | AcquireError::Voided
            | AcquireError::TimedOut
            | AcquireError::Lent => return Ok(None),
            AcquireError::NoQuorum { missing } => LockError::NoQuorum { missing },
            AcquireError::NoAnswer { silent } => LockError::NoAnswer { silent },
            AcquireError::Unreachable { store, reason } => LockError::Unreachable { store, reason },
            AcquireError::Store { store, reason } => LockError::Store { store, reason },
            AcquireError::WrongSpec { actual } if actual.permits != self.spec.permits => {
                let (asked, actual) = (self.spec.permits, actual.permits);
                LockError::WrongPermits { asked, actual }
            }
            AcquireError::WrongSpec { actual } => LockError::WrongAlgorithm {
                asked: (self.lock.ask.algorithm).unwrap_or(self.spec.algorithm.into()),
                actual: actual.algorithm.into(),
            },
            AcquireError::NotShareable { actual } => LockError::NotShareable {
                actual: actual.algorithm.into(),
            },
            AcquireError::WrongElection { actual } => {
                let asked = match self.request.wish.purpose {
                    Purpose::Lead { algorithm } => algorithm.unwrap_or(actual),
                    Purpose::Enter => actual,
                };
                LockError::WrongElection { asked, actual }
            }
            AcquireError::Limit => LockError::Limit {
                what:
                    "too many locks, requests or open files at once; release some, let fewer wait, \
                     or raise the limit of open files of this process and of its agent (ulimit -n)"
                        .to_owned(),
            },
            AcquireError::Forked => LockError::Forked,
            AcquireError::Closed(SessionEnd::Closed) => LockError::Closed,
            // The session ended by itself: of a client with its stream, of a member by a failure.
            error => LockError::Disconnected {
                reason: error.to_string(),
            },
        })
    }
}

impl Waiting for GroupWaiting {
    fn ask(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        if self.asked.is_none() {
            match self.send() {
                Ok(waiting) => self.asked = Some(waiting),
                Err(error) => return self.refused(error),
            }
        }
        Ok(None)
    }

    fn wait(&mut self, slice: Option<Duration>) -> Poll<Result<Option<Box<dyn Hold>>, LockError>> {
        self.go_on(|waiting| waiting.wait(slice))
    }

    fn poll(&mut self) -> Poll<Result<Option<Box<dyn Hold>>, LockError>> {
        self.go_on(runtime::Waiting::poll)
    }

    fn wake_by(&mut self, task: &Waker) -> Time {
        let asked = self.asked.as_mut();
        asked.map_or(Time::ZERO, |waiting| waiting.wake_by(task))
    }
}

impl GroupWaiting {
    /// Asks, if that has not been done or has to be done again, and looks at the outcome.
    fn go_on(
        &mut self,
        look: impl Fn(&mut runtime::Waiting) -> Poll<Result<Grant, AcquireError>>,
    ) -> Poll<Result<Option<Box<dyn Hold>>, LockError>> {
        loop {
            let mut waiting = match self.asked.take().map_or_else(|| self.send(), Ok) {
                Ok(waiting) => waiting,
                Err(error) => return Poll::Ready(self.refused(error)),
            };
            match look(&mut waiting) {
                Poll::Pending => {
                    self.asked = Some(waiting);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(grant)) => return Poll::Ready(Ok(Some(Box::new(grant)))),
                Poll::Ready(Err(AcquireError::WrongSpec { actual }))
                    if self.lock.takes(actual) && self.tries < SPEC_TRIES =>
                {
                    *self.lock.spec.lock() = actual;
                }
                // Others were let in before this thread could be. Who wants to wait still does.
                Poll::Ready(Err(AcquireError::Voided)) if !self.only_tries() => self.tries = 0,
                Poll::Ready(Err(error)) => return Poll::Ready(self.refused(error)),
            }
        }
    }
}

impl GroupLock {
    /// Whether the caller takes the lock as it is. Another algorithm changes nothing for one who
    /// did not ask for any; another number of permits does.
    fn takes(&self, actual: LockSpec) -> bool {
        let permits = self.spec.lock().permits;
        self.ask.algorithm.is_none() && actual.permits == permits
    }
}

fn caller(request: &Request) -> Caller {
    let mut caller = Caller::current();
    if let Some(command) = &request.command {
        caller.command = Arc::clone(command);
    }
    caller.has_lifeline = request.is_inheritable;
    caller.waits_by_loan = request.waits_by_loan;
    caller.purpose = request.wish.purpose;
    caller
}

/// As an application sees it.
fn leader(leader: runtime::Leader) -> Leader {
    let fence = leader.fence();
    let process = leader.process;
    Leader {
        member: leader.member,
        pid: process.as_ref().map(|process| process.pid),
        host: process.map(|process| process.host),
        fence,
    }
}

/// As an application sees it; `None` for what the front tells otherwise.
fn event(event: &AgentEvent) -> Option<Event> {
    Some(match event {
        AgentEvent::View { epoch, members } => Event::View {
            epoch: *epoch,
            members: members.clone(),
        },
        &AgentEvent::Suspect { peer } => Event::Suspect { member: peer },
        &AgentEvent::Alive { peer } => Event::Alive { member: peer },
        AgentEvent::Disagreement {
            peer,
            key,
            ours,
            theirs,
            refused,
        } => Event::Disagreement {
            member: *peer,
            key: key.clone(),
            ours: ours.clone(),
            theirs: theirs.clone(),
            refused: *refused,
        },
        AgentEvent::Ended(SessionEnd::Superseded { .. }) => Event::Superseded,
        AgentEvent::Ended(SessionEnd::Removed) => Event::Removed,
        AgentEvent::Quorum(quorum) => Event::Quorum(quorum.clone()),
        AgentEvent::Excluded { epoch } => Event::Excluded { epoch: *epoch },
        _ => return None,
    })
}

impl Hold for Grant {
    fn fence(&self) -> Option<Fence> {
        Self::fence(self)
    }

    fn previous_owner(&self) -> PreviousOwner {
        match self.previous() {
            Previous::Clean => PreviousOwner::Clean,
            Previous::Abandoned => PreviousOwner::Abandoned,
        }
    }

    fn state(&self) -> GuardState {
        Self::state(self)
    }

    fn loss(&self) -> LossSignal {
        Self::loss(self)
    }

    fn grace(&self) -> Option<Duration> {
        Self::grace(self)
    }

    fn lapses(&self) -> u64 {
        Self::lapses(self)
    }

    fn release(self: Box<Self>, how: Release) -> Result<(), UnlockError> {
        Self::release_as(*self, how).map_err(not_released)
    }

    fn settle(self: Box<Self>, how: Release) -> Result<(), UnlockError> {
        Self::settle_as(*self, how).map_err(not_released)
    }

    fn settle_later(self: Box<Self>, how: Release) -> Result<Option<Settling>, UnlockError> {
        Self::settle_later(*self, how).map_err(not_released)
    }

    fn forget(self: Box<Self>) {
        // A grant knows by itself that it is in a child.
        drop(self);
    }

    fn set_command_pid(&self, pid: u32) {
        Self::set_command_pid(self, pid);
    }

    fn announcer(&self) -> io::Result<Option<Announcer>> {
        Self::announcer(self)
    }

    fn inheritable_fd(&mut self) -> io::Result<Option<OwnedFd>> {
        self.lifeline()
            .map(|fd| fd.try_clone_to_owned())
            .transpose()
    }

    fn close_inheritable(&mut self) {
        self.close_lifeline();
    }

    fn take_watch(&mut self) -> io::Result<Option<LeaseWatch>> {
        Self::take_watch(self)
    }
}

fn not_released(error: runtime::ReleaseError) -> UnlockError {
    match error {
        runtime::ReleaseError::Forked => UnlockError::Forked,
        _ => UnlockError::Lost,
    }
}
