//! One member, whole: links, views and locks put together, without a clock or a socket.
//!
//! The order of calls: [`Node::new`]; then, for every datagram, command and timeout,
//! [`Node::handle`] once and [`Node::poll_output`] until it is empty; then [`Node::poll_timeout`]
//! for when to come back. Nothing is sent, and nobody is granted anything, before the first
//! [`Output::Persist`] was answered by [`Input::Persisted`]: a life that is not on disk could be
//! lived twice.

mod counters;
mod face;
mod peers;

pub use counters::Counters;
pub use face::{
    Boot, Command, Event, Input, NodeConfig, Output, Previous, Record, Refusal, Settings, Wait,
};
pub use peers::PeerState;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use self::peers::{PeerEvent, Peers};
use super::ids::{Epoch, Incarnation, NodeId, Ticket};
use super::lock::{HopTimer, LockOutput, LockView, Locks, Waiting};
use super::membership::{Action, Fixed, Member, View, ViewSource};
use super::time::Time;
use super::timers::{Timer, Timers};
use super::wire::Body;

/// The bound on the rate error of clocks that count for leases: 1 in 10.
const DRIFT: u32 = 10;
/// How long a caller that only tries waits for answers, in a group of one.
const TRY_PATIENCE: Duration = Duration::from_millis(500);
/// How much longer for each other member: rings have to go round.
const TRY_PATIENCE_PER_MEMBER: Duration = Duration::from_millis(50);
/// How long a member that leaves waits for the others to hear of it.
const LEAVE_PATIENCE: Duration = Duration::from_millis(500);
/// How many messages of an epoch to come are kept.
const MAX_EARLY: usize = 16_384;

/// One member of a group.
#[derive(Debug)]
pub struct Node {
    me: Member,
    lease: Duration,
    try_patience: Duration,
    stage: Stage,
    peers: Peers,
    views: Fixed,
    locks: Locks,
    timers: Timers,
    storage: Storage,
    /// Messages of an epoch to come (guard G6).
    early: Vec<(NodeId, Epoch, Body)>,
    /// Since when members are missing.
    incomplete_since: Option<Time>,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The new life is on its way to the disk.
    Booting,
    Running,
    /// The others are being told.
    Leaving,
    /// That the life has ended well is on its way to the disk.
    Closing,
    /// It is over.
    Silent,
}

/// What is on disk, and what is on its way there. One record at a time.
#[derive(Debug)]
struct Storage {
    record: Record,
    /// Whether this life is on disk: before, nothing is said.
    born: bool,
    writing: bool,
    /// The record changed again while it was being written.
    dirty: bool,
}

impl Storage {
    fn put(&mut self, outputs: &mut VecDeque<Output>) {
        if self.writing {
            self.dirty = true;
        } else {
            self.writing = true;
            outputs.push_back(Output::Persist(self.record));
        }
    }

    /// Whether all is on disk.
    fn written(&mut self, outputs: &mut VecDeque<Output>) -> bool {
        self.writing = false;
        self.born = true;
        if core::mem::take(&mut self.dirty) {
            self.put(outputs);
        }
        !self.writing
    }
}

impl Node {
    /// A member that begins a new life. Its first output is the record of it.
    ///
    /// # Panics
    /// If `config.members` lacks `config.me`.
    pub fn new(config: NodeConfig, boot: Boot, now: Time) -> Self {
        assert!(
            config.members.contains(&config.me),
            "a member is a member of its own group"
        );
        let before = boot.record;
        // Without a record the wall clock stands in: it is past what a lost record can have had.
        let incarnation = before.map_or(0, |record| record.incarnation.0 + 1);
        let incarnation = Incarnation(incarnation.max(u64::from(boot.wall_secs) << 16));
        let epoch = before.map(|record| record.epoch);
        let epoch = epoch.or(Epoch::new(boot.wall_secs)).unwrap_or_default();
        let unclean = before.is_some_and(|record| !record.clean);
        let me = Member {
            node: config.me,
            incarnation,
        };
        let lease = config.settings.lease;
        let others = config.members.len() as u32 - 1;
        let mut node = Self {
            me,
            lease,
            try_patience: TRY_PATIENCE + TRY_PATIENCE_PER_MEMBER * others,
            stage: Stage::Booting,
            peers: Peers::new(now, me, &config),
            views: Fixed::new(me, config.members, epoch, unclean),
            locks: Locks::new(config.me, incarnation, &config.settings),
            timers: Timers::default(),
            storage: Storage {
                record: Record {
                    incarnation,
                    epoch,
                    clean: false,
                },
                born: false,
                writing: false,
                dirty: false,
            },
            early: Vec::new(),
            incomplete_since: None,
            outputs: VecDeque::new(),
        };
        node.note_missing(now);
        // The clients of a life that did not leave may be inside for one lease yet, by their
        // clocks; there is no shortcut, in a group of one neither.
        let quarantine = if unclean {
            lease * (DRIFT + 1) / (DRIFT - 1)
        } else {
            Duration::ZERO
        };
        node.timers.set(Timer::Quarantine, now + quarantine);
        node.storage.put(&mut node.outputs);
        node
    }

    /// Takes in what happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match (self.stage, input) {
            (Stage::Silent, Input::Command(Command::Acquire { ticket, .. })) => {
                self.end(*ticket, Refusal::Closed);
            }
            (Stage::Silent, _) | (Stage::Booting, Input::Datagram { .. } | Input::Timeout) => {}
            (_, Input::Datagram { from, bytes }) => self.receive(now, from, bytes),
            (_, Input::Command(command)) => self.command(now, command),
            (_, Input::Timeout) => self.timeout(now),
            (_, Input::Persisted) => self.persisted(now),
        }
        if self.storage.born && self.stage != Stage::Silent {
            self.finish_leaving(false);
            self.peers.flush(now, &mut self.timers, &mut self.outputs);
        }
    }

    /// The next output; `None` when there is no more.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Node::handle`] with [`Input::Timeout`], unless something comes before.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.stage {
            Stage::Booting | Stage::Silent => None,
            _ => self.timers.next(),
        }
    }

    /// The view in force; `None` before the first, and while the next one is being formed.
    pub fn view(&self) -> Option<&View> {
        self.views.view().map(|view| &**view)
    }

    /// The highest epoch this member has taken part in.
    pub fn epoch(&self) -> Epoch {
        self.views.epoch()
    }

    /// The life of this member.
    pub fn incarnation(&self) -> Incarnation {
        self.me.incarnation
    }

    /// How a member is, as far as this one can tell.
    pub fn peer_state(&self, node: NodeId) -> PeerState {
        self.peers.state(node)
    }

    /// The members that are missing at present.
    pub fn missing(&self) -> Vec<NodeId> {
        self.peers.missing()
    }

    /// The locks that this member knows of.
    pub fn locks(&self) -> impl Iterator<Item = LockView<'_>> {
        self.locks.views()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.peers.counters
    }

    fn end(&mut self, ticket: Ticket, refusal: Refusal) {
        self.outputs
            .push_back(Output::Event(Event::Ended { ticket, refusal }));
    }

    fn command(&mut self, now: Time, command: &Command) {
        let mut out = LockOutput::default();
        match command {
            Command::Acquire {
                ticket,
                lock,
                spec,
                wait,
            } => {
                if let Some(refusal) = self.refuses_more() {
                    return self.end(*ticket, refusal);
                }
                let caller = Waiting {
                    ticket: *ticket,
                    wish: *spec,
                    wait: *wait,
                    since: now,
                };
                if *wait == Wait::Try {
                    self.timers
                        .set(Timer::Try(*ticket), now + self.try_patience);
                }
                self.locks.acquire(lock, *spec, caller, &mut out);
            }
            Command::Release { ticket } => self.locks.release(*ticket, &mut out),
            Command::Cancel { ticket } => {
                self.locks.end(*ticket, Refusal::Cancelled, &mut out);
            }
            Command::Note { to, bytes } if bytes.len() <= Command::MAX_NOTE => {
                let note = Body::Note {
                    bytes: bytes.clone(),
                };
                self.peers.send(*to, Epoch::ZERO, &note);
            }
            Command::Note { .. } => {}
            Command::Leave => return self.leave(now),
        }
        self.absorb(now, out);
    }

    /// Why no more requests can be taken, if so: what they send would wait behind too much.
    fn refuses_more(&self) -> Option<Refusal> {
        let congested = self.peers.congested();
        if congested.is_empty() {
            return None;
        }
        let missing = self.peers.missing();
        let is_missing = congested.iter().all(|peer| missing.contains(peer));
        Some(if is_missing {
            Refusal::NoQuorum { missing }
        } else {
            Refusal::Limit
        })
    }

    fn receive(&mut self, now: Time, from: NodeId, bytes: &[u8]) {
        let (present, room) = (self.present_epoch(), self.early.len() < MAX_EARLY);
        let mut events = Vec::new();
        let accepts = |epoch: Epoch| room || epoch <= present;
        self.peers.receive(now, from, bytes, accepts, &mut events);
        self.peer_events(now, events);
    }

    fn peer_events(&mut self, now: Time, events: Vec<PeerEvent>) {
        for event in events {
            if self.stage == Stage::Silent {
                return;
            }
            let mut actions = Vec::new();
            match event {
                PeerEvent::Up(peer, life) => self.views.peer_up(peer, life, &mut actions),
                PeerEvent::Down(peer) => self.views.peer_down(peer),
                PeerEvent::Suspect(peer) => self.tell(Event::Suspect { peer }),
                PeerEvent::Alive(peer) => self.tell(Event::Alive { peer }),
                PeerEvent::Left => {}
                PeerEvent::Disagrees {
                    peer,
                    difference,
                    in_view,
                } => {
                    self.tell(Event::Disagreement {
                        peer,
                        key: difference.key,
                        ours: difference.ours,
                        theirs: difference.theirs,
                        refused: in_view,
                    });
                }
                PeerEvent::Superseded(by) => return self.superseded(by),
                PeerEvent::Body(from, epoch, body) => {
                    self.body(now, from, epoch, body);
                    continue;
                }
            }
            self.act(now, actions);
            self.note_missing(now);
        }
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn body(&mut self, now: Time, from: NodeId, epoch: Epoch, body: Body) {
        let mut actions = Vec::new();
        match body {
            Body::View(message) => self.views.receive(from, message, &mut actions),
            Body::Note { bytes } => self.tell(Event::Note { from, bytes }),
            Body::Bye => {}
            Body::Lock(_) | Body::Declare { .. } | Body::Declared { .. } => {
                self.lock_body(now, from, epoch, body);
            }
        }
        self.act(now, actions);
    }

    /// What concerns locks belongs to one epoch (guard G6): the past is dropped, the future waits.
    fn lock_body(&mut self, now: Time, from: NodeId, epoch: Epoch, body: Body) {
        let present = self.present_epoch();
        if epoch > present {
            self.early.push((from, epoch, body));
            return;
        }
        if epoch < present || self.views.view().is_none() {
            return;
        }
        let mut out = LockOutput::default();
        match body {
            Body::Lock(message) => {
                if !self.locks.receive(from, message, &mut out) {
                    self.peers.counters.misplaced += 1;
                }
            }
            Body::Declare { lock, wish } if self.views.coordinator() == self.me.node => {
                let spec = self.locks.declare(&lock, wish, &mut out);
                self.peers
                    .send(from, present, &Body::Declared { lock, spec });
            }
            Body::Declared { lock, spec } if self.views.coordinator() == from => {
                self.locks.declared(&lock, spec, &mut out);
            }
            _ => self.peers.counters.misplaced += 1,
        }
        self.absorb(now, out);
    }

    /// The epoch whose messages are for now: that of the view in force. While a view is being
    /// formed there is none, and its messages wait for it.
    fn present_epoch(&self) -> Epoch {
        self.views.view().map_or_else(
            // All epochs before the one that is awaited are over.
            || Epoch::new(self.views.epoch().as_u32().saturating_sub(1)).unwrap_or_default(),
            |view| view.epoch,
        )
    }

    /// Carries out what the source of views wants, and what follows from it.
    fn act(&mut self, now: Time, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let mut more = Vec::new();
            match action {
                Action::Send(to, message) => {
                    self.peers.send(to, Epoch::ZERO, &Body::View(message));
                }
                Action::Freeze => {
                    let mut out = LockOutput::default();
                    self.locks.freeze(&mut out);
                    self.absorb(now, out);
                }
                Action::Persist(epoch) => {
                    self.storage.record.epoch = epoch;
                    self.storage.put(&mut self.outputs);
                }
                Action::Summarise => self.views.summarised(self.locks.summary(), &mut more),
                Action::Install(view, table) => self.install(now, view, &table),
            }
            actions.extend(more);
        }
    }

    fn install(&mut self, now: Time, view: Arc<View>, table: &super::lock::Summary) {
        self.peers.in_view = true;
        let (epoch, members) = (view.epoch, view.nodes().collect());
        self.tell(Event::View { epoch, members });
        let mut met = Vec::new();
        self.peers.meet(now, &view.members, &mut met);
        self.peer_events(now, met);
        let mut out = LockOutput::default();
        self.locks.install(view, table, &mut out);
        self.absorb(now, out);
        let mut early = core::mem::take(&mut self.early);
        early.retain(|(_, of, _)| *of >= epoch);
        for (from, of, body) in early {
            self.lock_body(now, from, of, body);
        }
    }

    /// Sends, tells and arms what the table of locks wants.
    fn absorb(&mut self, now: Time, out: LockOutput) {
        let LockOutput {
            sends,
            events,
            hops,
            declares,
            wants_view,
        } = out;
        let epoch = self.present_epoch();
        for (to, message) in sends {
            let kind = (message.body.algorithm(), message.body.kind());
            *self.peers.counters.engine_messages.entry(kind).or_default() += 1;
            self.peers.send(to, epoch, &Body::Lock(message));
        }
        for event in events {
            if let Event::Granted { ticket, .. } | Event::Ended { ticket, .. } = event {
                self.timers.clear(&Timer::Try(ticket));
            }
            self.tell(event);
        }
        for (lock, timer) in hops {
            let at = match timer {
                HopTimer::Set(stay) => Some(now + stay),
                HopTimer::Clear => None,
            };
            self.timers.set_or_clear(Timer::Hop(lock), at);
        }
        for (lock, wish) in declares {
            self.declare(now, lock, wish);
        }
        if wants_view {
            let mut actions = Vec::new();
            self.views.want_view(&mut actions);
            self.act(now, actions);
        }
    }

    /// Asks the coordinator how a lock is served.
    fn declare(&mut self, now: Time, lock: super::LockName, wish: Option<super::LockSpec>) {
        let coordinator = self.views.coordinator();
        if coordinator != self.me.node {
            let epoch = self.present_epoch();
            return self
                .peers
                .send(coordinator, epoch, &Body::Declare { lock, wish });
        }
        let mut out = LockOutput::default();
        let spec = self.locks.declare(&lock, wish, &mut out);
        if spec.is_none() {
            self.locks.declared(&lock, None, &mut out);
        }
        self.absorb(now, out);
    }

    fn timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            let mut out = LockOutput::default();
            match timer {
                Timer::Link(peer) => {
                    let mut events = Vec::new();
                    self.peers.timeout(now, peer, &mut events);
                    // What is due again at once is sent first, so that this loop ends.
                    self.peers.flush(now, &mut self.timers, &mut self.outputs);
                    self.peer_events(now, events);
                }
                Timer::Hop(lock) => self.locks.hop_timeout(&lock, &mut out),
                Timer::Try(ticket) => {
                    let missing = self.peers.missing();
                    let refusal = if missing.is_empty() {
                        Refusal::Busy
                    } else {
                        Refusal::NoQuorum { missing }
                    };
                    self.locks.end(ticket, refusal, &mut out);
                }
                Timer::Quorum => self.end_impatient(now, &mut out),
                Timer::Quarantine => {
                    let mut actions = Vec::new();
                    self.views.ready(&mut actions);
                    self.act(now, actions);
                }
                Timer::Leave => self.finish_leaving(true),
            }
            self.absorb(now, out);
        }
    }

    /// Begins or ends the time for which members have been missing.
    fn note_missing(&mut self, now: Time) {
        if self.peers.missing().is_empty() {
            self.incomplete_since = None;
            self.timers.clear(&Timer::Quorum);
        } else if self.incomplete_since.is_none() {
            self.incomplete_since = Some(now);
            self.timers.set(Timer::Quorum, now + self.lease);
        }
    }

    /// Ends the callers that have waited for a lease while members were missing.
    fn end_impatient(&mut self, now: Time, out: &mut LockOutput) {
        let Some(incomplete_since) = self.incomplete_since else {
            return;
        };
        let missing = self.peers.missing();
        for (ticket, since) in self.locks.impatient() {
            if since.max(incomplete_since) + self.lease <= now {
                let missing = missing.clone();
                self.locks.end(ticket, Refusal::NoQuorum { missing }, out);
            }
        }
        self.timers.set(Timer::Quorum, now + self.lease / 16);
    }

    fn persisted(&mut self, now: Time) {
        if !self.storage.written(&mut self.outputs) {
            return;
        }
        match self.stage {
            Stage::Booting => self.stage = Stage::Running,
            Stage::Running | Stage::Leaving => {
                let mut actions = Vec::new();
                self.views.persisted(&mut actions);
                self.act(now, actions);
            }
            Stage::Closing => {
                self.stage = Stage::Silent;
                self.tell(Event::Left);
            }
            Stage::Silent => {}
        }
    }

    /// Somebody else lives under this member's id. It is over, and nothing of it is clean.
    fn superseded(&mut self, by: NodeId) {
        self.stage = Stage::Silent;
        self.tell(Event::Superseded { by });
        let mut out = LockOutput::default();
        self.locks.leave(&mut out);
        self.outputs
            .extend(out.events.into_iter().map(Output::Event));
    }

    fn leave(&mut self, now: Time) {
        if !matches!(self.stage, Stage::Booting | Stage::Running) {
            return;
        }
        let mut out = LockOutput::default();
        self.locks.leave(&mut out);
        self.absorb(now, out);
        if self.stage == Stage::Booting {
            // Nobody has heard of this life.
            return self.close();
        }
        self.stage = Stage::Leaving;
        self.peers.send_to_all(&Body::Bye);
        self.timers.set(Timer::Leave, now + LEAVE_PATIENCE);
    }

    /// When the others know that this member leaves, or have had time to, it puts on disk that it
    /// ended well.
    fn finish_leaving(&mut self, time_is_up: bool) {
        if self.stage != Stage::Leaving {
            return;
        }
        // While a view is being formed the engines cannot be told: it is waited for.
        let is_done = self.peers.is_drained() && self.locks.is_settled();
        if is_done || time_is_up {
            self.close();
        }
    }

    fn close(&mut self) {
        self.stage = Stage::Closing;
        // Until a view has taken it in, the end of the life before is still to be reckoned with.
        self.storage.record.clean = !self.views.is_unclean();
        self.storage.put(&mut self.outputs);
    }
}
