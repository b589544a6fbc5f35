//! A ledger in a store, as what decides about locks: the pure ledger, the pure client that speaks the
//! store's language, and the connections between that and the store.
//!
//! A step goes around between the three until nobody has more to say. The clock is read anew for each
//! thing that is told: the ledger may know of nothing earlier than it has happened.

mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::ledger::survey::{Overview, Survey};
use crate::protocol::ledger::{
    Key, Ledger, LedgerInput, LedgerLeader, LedgerOutput, Notice, Store, StoreEvent, StoreFacts,
    StoreOutput, StoreRefusal, StreamId,
};
use crate::protocol::{Input, LockName, Refusal, Ticket, Time};
use crate::runtime::api::caller::{Caller, as_told};
use crate::runtime::api::error::{AcquireError, SessionEnd};
use crate::runtime::api::events::{AgentEvent, Leader, LeaderProcess};
use crate::runtime::net::streams::{self, Resolve, Streams};
use crate::runtime::os::clock;
use crate::runtime::os::socket_set::SocketSet;
use crate::runtime::shared::arbiter::Arbiter;
use crate::runtime::shared::core_guard::{CoreGuard, Shared};

/// How old what the ledger knows of the wall clock may be, which somebody may set.
const WALL_AGE: Duration = Duration::from_secs(1);

/// Of operations that list what the store has; the ledger's own have lower numbers.
const PAGES: u64 = 1 << 63;

/// A ledger in a store.
pub(crate) struct StoreSide {
    pub(crate) ledger: Ledger,
    client: Box<dyn Store>,
    streams: Streams,
    /// Takes what threads find that look up names.
    resolve: Option<Arc<Resolve>>,
    interest: BTreeSet<Key>,
    /// When the ledger was told the wall clock's time.
    wall_at: Option<Time>,
    /// Whether a store that may forget is refused.
    requires_keeping: bool,
    /// Where the store is, in words.
    at: Arc<str>,
    facts: Option<StoreFacts>,
    is_connected: bool,
    /// How often in a row there was no connection.
    failures: u64,
    /// Why there is no connection, as it was told last.
    told: Option<String>,
    forgot: u64,
    /// What the store has, being read for those who want the status.
    survey: Option<Survey>,
    last_page: u64,
    /// What was read last.
    overview: Option<Overview>,
    /// Who leads in the elections that are observed here, as far as is known.
    leaders: BTreeMap<LockName, Option<Leader>>,
}

impl StoreSide {
    pub(crate) fn new(
        ledger: Ledger,
        client: Box<dyn Store>,
        at: Arc<str>,
        requires_keeping: bool,
    ) -> Self {
        Self {
            ledger,
            client,
            streams: Streams::default(),
            resolve: None,
            interest: BTreeSet::new(),
            wall_at: None,
            requires_keeping,
            at,
            facts: None,
            is_connected: false,
            failures: 0,
            told: None,
            forgot: 0,
            survey: None,
            last_page: 0,
            overview: None,
            leaders: BTreeMap::new(),
        }
    }

    /// When the ledger or the client wants to be told the time.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let times = [self.ledger.poll_timeout(), self.client.poll_timeout()];
        times.into_iter().flatten().min()
    }

    /// The session is over.
    pub(super) fn end(&mut self, set: &SocketSet) {
        self.streams.close_all(set);
    }

    /// What a refusal means to the caller. Only a deadline cancels a request, and while the store does not
    /// answer nobody knows whether the lock was free.
    pub(super) fn meaning(&self, refusal: Refusal) -> AcquireError {
        match refusal {
            Refusal::Cancelled if self.answers() => AcquireError::TimedOut,
            Refusal::Cancelled => self.unreachable(self.ledger.reason().to_owned()),
            Refusal::Busy => AcquireError::Busy,
            Refusal::NoAnswer { .. } => self.unreachable(self.ledger.reason().to_owned()),
            Refusal::WrongSpec { actual } => AcquireError::WrongSpec { actual },
            Refusal::NotShareable { actual } => AcquireError::NotShareable { actual },
            Refusal::Limit => AcquireError::Limit,
            Refusal::Closed => AcquireError::Closed(SessionEnd::Closed),
            // A ledger has no members, and elects by the first entry.
            refusal @ (Refusal::NoQuorum { .. } | Refusal::WrongElection { .. }) => {
                debug_assert!(false, "{refusal:?} of a ledger");
                AcquireError::Limit
            }
        }
    }

    fn unreachable(&self, reason: String) -> AcquireError {
        let reason = match reason.as_str() {
            "" => "it does not answer".to_owned(),
            _ => reason,
        };
        AcquireError::Unreachable {
            store: self.at.to_string(),
            reason,
        }
    }

    fn denied(&self, why: StoreRefusal) -> AcquireError {
        match why {
            StoreRefusal::Unreachable { reason } => self.unreachable(reason),
            why => AcquireError::Store {
                store: self.at.to_string(),
                reason: why.to_string(),
            },
        }
    }

    /// What the client tells the ledger.
    fn event(&mut self, event: StoreEvent) {
        let event = match event {
            StoreEvent::Reply(id, reply) if id.0 & PAGES != 0 => return self.page(id, reply),
            StoreEvent::Up(facts) if facts.may_forget && self.requires_keeping => StoreEvent::Down(
                "it may forget what it has acknowledged, and require = \"keeps\" refuses that"
                    .to_owned(),
            ),
            event => event,
        };
        match &event {
            StoreEvent::Up(facts) => self.is_up(facts.clone()),
            StoreEvent::Down(reason) => self.is_down(reason),
            StoreEvent::Reply(..) | StoreEvent::Changed(..) | StoreEvent::Missed => {}
        }
        self.tell(LedgerInput::Store(event));
    }

    fn is_up(&mut self, facts: StoreFacts) {
        let at = &self.at;
        if self.told.take().is_some() || self.facts.is_none() {
            tracing::info!(event = "store-up", "the store {at} answers");
        }
        if facts.may_forget && !self.facts.as_ref().is_some_and(|facts| facts.may_forget) {
            tracing::warn!(
                event = "store-may-forget",
                "the store {at} may lose writes that it has acknowledged, after which two can hold \
                 a lock at once for up to a third of a lease: check fences, or have it keep what it \
                 acknowledges; with require = \"keeps\" it would be refused"
            );
        }
        self.facts = Some(facts);
        self.is_connected = true;
        self.failures = 0;
        self.survey();
    }

    fn is_down(&mut self, reason: &str) {
        let was_connected = mem::take(&mut self.is_connected);
        // What was asked is not answered any more.
        self.survey = self.survey.as_ref().map(Survey::again);
        self.failures += 1;
        // Of several hosts the first may be one that does not serve.
        let is_news = self.failures > 1 && self.told.as_deref() != Some(reason);
        if !was_connected && !is_news {
            return;
        }
        self.told = Some(reason.to_owned());
        let at = &self.at;
        if self.facts.is_some() {
            tracing::warn!(
                event = "store-down",
                "the store {at} cannot be used: {reason}; what is held here is valid until its lease \
                 ends"
            );
        } else {
            // Whoever asks for a lock is told.
            tracing::info!(
                event = "store-down",
                "the store {at} cannot be used yet: {reason}"
            );
        }
    }

    fn note(&mut self, notice: &Notice) {
        let at = &self.at;
        match notice {
            Notice::StoreForgot { key } => {
                self.forgot += 1;
                tracing::error!(
                    event = "store-forgot",
                    "the store {at} has lost a write of {key} that it had acknowledged: what was \
                     held by that is lost"
                );
            }
            Notice::StoreReplaced => tracing::error!(
                event = "store-replaced",
                "the store {at} is another than before, or was restored from a backup: what was \
                 held is lost"
            ),
            Notice::Refused(why) => {
                tracing::error!(event = "store-refused", "the store {at}: {why}");
            }
        }
    }

    fn tell(&mut self, input: LedgerInput<'_>) {
        let now = clock::now();
        if self.wall_at.is_none_or(|at| now.since(at) >= WALL_AGE) {
            self.wall_at = Some(now);
            self.ledger.handle(now, LedgerInput::Wall(clock::wall()));
        }
        // Read anew: the ledger hears of this no earlier than it has happened.
        self.ledger.handle(clock::now(), input);
    }

    /// Does what the client says; whether it said anything.
    fn do_for_client(&mut self, set: &SocketSet) -> bool {
        let interest = self.ledger.interest();
        if interest != self.interest {
            self.client.interest(clock::now(), &interest);
            self.interest = interest;
        }
        let mut has_said = false;
        while let Some(output) = self.client.poll_output() {
            has_said = true;
            match output {
                StoreOutput::Connect(id, host) => {
                    let Some(resolve) = &self.resolve else {
                        continue;
                    };
                    if let Err(why) = self.streams.connect(set, id, &host, resolve) {
                        self.client.disconnected(clock::now(), id, &why);
                    }
                }
                StoreOutput::Send(id, bytes) => self.streams.send(id, &bytes),
                StoreOutput::Close(id) => self.streams.close(set, id),
                StoreOutput::Event(event) => self.event(event),
            }
        }
        let mut arrivals = Vec::new();
        self.streams.flush(set, &mut arrivals);
        has_said |= !arrivals.is_empty();
        streams::tell(&mut *self.client, arrivals);
        has_said
    }

    /// Whether the store has answered within a lease.
    pub(super) fn answers(&self) -> bool {
        self.is_connected && self.ledger.unreachable(clock::now()).is_none()
    }

    /// Who leads in that election, if it is known.
    pub(super) fn leader(&self, lock: &LockName) -> Option<Option<Leader>> {
        self.leaders.get(lock).cloned()
    }
}

/// As callers are told of the one that leads.
fn as_told_leader(leader: LedgerLeader) -> Leader {
    let process = LeaderProcess {
        host: leader.host,
        pid: leader.pid.unwrap_or_default(),
    };
    Leader::of_process(process, leader.fence)
}

impl fmt::Debug for StoreSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSide")
            .field("at", &self.at)
            .field("ledger", &self.ledger)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// From now on names of hosts are looked up.
    pub(crate) fn begin_to_resolve(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        let resolve = move |id: StreamId, found: Vec<SocketAddr>, why: String| {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let mut core = shared.lock_core();
            core.resolved(id, found, why);
            core.finish_as_application();
        };
        if let Arbiter::Store(side) = &mut self.lock_core().core.arbiter {
            side.resolve = Some(Arc::new(resolve));
        }
    }
}

impl CoreGuard<'_> {
    /// Steps the ledger, and does what comes of it.
    pub(super) fn run_store(&mut self, input: Option<Input<'_>>) {
        let Arbiter::Store(side) = &mut self.core.arbiter else {
            return;
        };
        match input {
            Some(Input::Command(command)) => side.tell(LedgerInput::Command(command)),
            Some(Input::Timeout) => {
                let now = clock::now();
                if side.client.poll_timeout().is_some_and(|at| at <= now) {
                    side.client.timeout(now);
                }
                side.tell(LedgerInput::Timeout);
            }
            // It begins.
            None => side.client.timeout(clock::now()),
            Some(Input::Datagram { .. } | Input::Persisted) => {}
        }
        self.go_around();
    }

    /// Until nobody has more to say.
    fn go_around(&mut self) {
        loop {
            while let Some(output) = self.next_of_ledger() {
                self.perform_for_ledger(output);
                if self.end_of_session().is_some() {
                    return;
                }
            }
            let Arbiter::Store(side) = &mut self.core.arbiter else {
                return;
            };
            let has_said = side.do_for_client(&self.shared.socket_set);
            if side.survey.is_none() {
                self.core.reports.end_survey();
            }
            if !has_said {
                return;
            }
        }
    }

    fn next_of_ledger(&mut self) -> Option<LedgerOutput> {
        match &mut self.core.arbiter {
            Arbiter::Store(side) => side.ledger.poll_output(),
            Arbiter::Members(_) => None,
        }
    }

    fn perform_for_ledger(&mut self, output: LedgerOutput) {
        let Arbiter::Store(side) = &mut self.core.arbiter else {
            return;
        };
        match output {
            LedgerOutput::Submit(id, op) => side.client.submit(clock::now(), id, op),
            LedgerOutput::Event(event) => self.tell(event),
            LedgerOutput::Refused { ticket, why } => {
                let why = side.denied(why);
                self.refused(ticket, why);
            }
            LedgerOutput::Notice(notice) => side.note(&notice),
            LedgerOutput::Leader { lock, leader } => {
                let leader = leader.map(as_told_leader);
                side.leaders.insert(lock.clone(), leader.clone());
                let event = AgentEvent::Leader { lock, leader };
                self.publish(event);
            }
        }
    }

    /// Takes what has arrived from the store; whether there may be more.
    pub(super) fn receive_from_store(&mut self) -> bool {
        let Arbiter::Store(side) = &mut self.core.arbiter else {
            return false;
        };
        let mut arrivals = Vec::new();
        let is_more = side.streams.look(&self.shared.socket_set, &mut arrivals);
        if !arrivals.is_empty() {
            streams::tell(&mut *side.client, arrivals);
            self.go_around();
        }
        is_more && self.end_of_session().is_none()
    }

    /// A name of a host was looked up.
    fn resolved(&mut self, id: StreamId, found: Vec<SocketAddr>, why: String) {
        let set = &self.shared.socket_set;
        let Arbiter::Store(side) = &mut self.core.arbiter else {
            return;
        };
        if let Err(why) = side.streams.resolved(set, id, found, why) {
            side.client.disconnected(clock::now(), id, &why);
        }
        self.guarded(Self::go_around);
    }

    /// From now on it is found out who leads in that election.
    pub(super) fn observe_in_store(&mut self, lock: &LockName) {
        let Arbiter::Store(side) = &mut self.core.arbiter else {
            return;
        };
        if !side.leaders.contains_key(lock) {
            let (lock, is_wanted) = (lock.clone(), true);
            side.tell(LedgerInput::Observe { lock, is_wanted });
            self.guarded(Self::go_around);
        }
    }

    /// Says who asks by that ticket, for whoever reads the store's records.
    pub(super) fn introduce(&mut self, ticket: Ticket, caller: &Caller) {
        let whole = self.shared.identity.command_lines;
        if let Arbiter::Store(side) = &mut self.core.arbiter {
            side.tell(LedgerInput::Caller {
                ticket,
                pid: caller.pid,
                command: as_told(&caller.command, whole).into_owned(),
            });
        }
    }
}
