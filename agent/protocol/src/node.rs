//! One member, whole: links, views and locks put together, without a clock or a socket.
//!
//! The order of calls: [`Node::new`]; then, for every datagram, command and timeout,
//! [`Node::handle`] once and [`Node::poll_output`] until it is empty; then [`Node::poll_timeout`]
//! for when to come back. Nothing is sent, and nobody is granted anything, before the first
//! [`Output::Persist`] was answered by [`Input::Persisted`]: an incarnation that is not on disk
//! could be lived twice.

mod counters;
mod effects;
mod elections;
mod ending;
mod inputs;
mod peers;
mod quarantine;
mod readiness;
mod storage;

pub use counters::Counters;
pub use peers::PeerState;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use self::peers::Peers;
use self::quarantine::Quarantine;
use self::storage::Storage;
use super::api::{Boot, Command, Event, Input, MAX_TRY_TIME, NodeConfig, Output, Record, Refusal};
use super::chance::Chance;
use super::election::Elections;
use super::ids::{Epoch, Fence, Incarnation, LockName, NodeId, Ticket};
use super::lock::{AbandonedMarks, LockSpec, LockView, Locks, Previous};
use super::membership::quorum::{
    Affiliation, MakeLog, Missing, Quorum, QuorumConfig, Rafts, RecoveredState,
};
use super::membership::{Fixed, Member, Presumed, UncleanRestart, View, ViewSource};
use super::settings::Failure;
use super::time::Time;
use super::timers::{Timer, Timers};
use super::wire::Body;

/// How long a caller that only tries waits for answers, in a group of one.
const TRY_PATIENCE: Duration = Duration::from_millis(500);
/// How much longer for each other member: rings have to go round.
const TRY_PATIENCE_PER_MEMBER: Duration = Duration::from_millis(50);
/// Into how many parts that time is divided: after each but the last, the members that have not
/// answered yet are asked whether they are there.
const TRY_PARTS: u32 = 6;
/// How long a member that leaves waits for the others to hear of it.
const LEAVE_PATIENCE: Duration = Duration::from_millis(500);
/// How often a new view is asked for at most.
const WISH_PAUSE: Duration = Duration::from_secs(1);
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
    views: Box<dyn ViewSource>,
    quarantine: Quarantine,
    locks: Locks,
    elections: Elections,
    timers: Timers,
    storage: Storage,
    /// Until when what is granted is valid, as far as it was told.
    told_until: Time,
    /// Who was let in and is not told yet, as the lease is over.
    held_back: BTreeMap<Ticket, HeldBack>,
    /// Whether a view has gone on without this member, which leaves.
    is_let_go: bool,
    /// Messages of an epoch to come (guard G6).
    early: Vec<(NodeId, Epoch, Body)>,
    /// Since when members are missing.
    incomplete_since: Option<Time>,
    /// Who was last told to be missing, and when; `None` while there is a quorum, as far as was told.
    told_missing: Option<(Time, Vec<Missing>)>,
    /// Since when this incarnation is in views.
    joined: Option<Time>,
    /// When a new view was last asked for.
    wished_at: Option<Time>,
    /// The random waits of algorithms.
    chance: Chance,
    outputs: VecDeque<Output>,
}

/// A grant that may not be told yet.
#[derive(Clone, Copy, Debug)]
struct HeldBack {
    ticket: Ticket,
    fence: Fence,
    previous: Previous,
}

impl HeldBack {
    const fn ticket(&self) -> Ticket {
        self.ticket
    }

    const fn event(&self) -> Event {
        let Self {
            ticket,
            fence,
            previous,
        } = *self;
        Event::Granted {
            ticket,
            fence,
            previous,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The new incarnation is on its way to the disk.
    Booting,
    Running,
    /// The others are being told.
    Leaving,
    /// That the incarnation has ended well is on its way to the disk.
    Closing,
    /// It is over.
    Silent,
}

impl Node {
    /// A member that begins a new incarnation. Its first output is the record of it.
    ///
    /// # Panics
    /// If `config.members` lacks `config.me`, or the settings have a lock served as the group cannot
    /// ([`Failure::can_serve`]).
    pub fn new(config: NodeConfig, boot: Boot, now: Time) -> Self {
        Self::with_logs(config, boot, now, Rafts::new)
    }

    /// The same; `logs` order what voters propose.
    pub fn with_logs<M>(
        config: NodeConfig,
        boot: Boot,
        now: Time,
        logs: impl FnOnce(Member, Duration) -> M,
    ) -> Self
    where
        M: MakeLog + Clone + Send + 'static,
        M::Log: Send,
    {
        assert!(
            config.members.contains(&config.me),
            "a member is a member of its own group"
        );
        let settings = &config.settings;
        let default = LockSpec::exclusive(settings.algorithm);
        let mut specs = settings.locks.values().copied().chain([default]);
        assert!(
            specs.all(|spec| settings.failure.can_serve(spec)),
            "the settings say of no lock that it is served as the group cannot"
        );
        let before = boot.record.as_ref();
        // Without a record the wall clock stands in: it is past what a lost record can have had.
        let incarnation = before.map_or(0, |record| record.incarnation.0 + 1);
        let wall_micros = u64::try_from(boot.wall.as_micros()).unwrap_or(u64::MAX / 2);
        let incarnation = Incarnation(incarnation.max(wall_micros).max(1));
        let wall_epoch = u32::try_from(boot.wall.as_secs()).ok();
        let wall_epoch = wall_epoch.and_then(Epoch::new).unwrap_or_default();
        let by_quorum = config.settings.failure == Failure::Quorum;
        let epoch = match before {
            Some(record) => record.epoch,
            // A group that there is already may have a lower one, and is joined.
            None if by_quorum => Epoch::ZERO,
            None => wall_epoch,
        };
        let unclean = before.is_some_and(|record| !record.clean);
        let marks = before.map(|record| record.marks).unwrap_or_default();
        let me = Member {
            node: config.me,
            incarnation,
        };
        let unclean_or_marked = unclean || marks == AbandonedMarks::Own;
        let lease = config.settings.lease;
        let affiliation = before.map(|record| record.affiliation.clone());
        let mut affiliation = affiliation.unwrap_or_else(|| Affiliation::new(incarnation));
        affiliation.begin(incarnation);
        let views: Box<dyn ViewSource> = match config.settings.failure {
            Failure::Quorum => {
                let config = QuorumConfig {
                    group: config.settings.group.clone(),
                    lease,
                    members: config.members.clone(),
                    voters: config.voters.clone(),
                    cluster: config.cluster,
                    wall: boot.wall,
                    lock_delay: config.settings.lock_delay,
                };
                let incarnation_before = RecoveredState {
                    epoch,
                    // What it was alone in knowing is still to be told.
                    left: before.is_some_and(|record| record.clean && marks != AbandonedMarks::Own),
                    unclean: unclean_or_marked,
                    voter: before.and_then(|record| record.voter.as_deref().cloned()),
                };
                let logs = logs(me, lease);
                let me = (me, affiliation.clone());
                Box::new(Quorum::new(me, config, incarnation_before, logs, now))
            }
            Failure::PresumeFailed => {
                let (members, delay) = (&config.members, config.settings.lock_delay);
                let marked = marks == AbandonedMarks::Own;
                let restart = UncleanRestart { unclean, marked };
                Box::new(Presumed::new(me, members, delay, epoch, restart))
            }
            Failure::Unanimity => {
                let members = config.members.clone();
                Box::new(Fixed::new(me, members, epoch, unclean_or_marked))
            }
        };
        let left = before.map(|record| record.clean);
        let quarantine = if by_quorum {
            Quarantine::none(now, left)
        } else {
            let waits_for_all = config.settings.failure == Failure::Unanimity;
            Quarantine::new(now, lease, left.map(|left| !left), waits_for_all)
        };
        let others = config.members.len() as u32 - 1;
        let mut node = Self {
            me,
            lease,
            try_patience: (TRY_PATIENCE + TRY_PATIENCE_PER_MEMBER * others).min(MAX_TRY_TIME),
            stage: Stage::Booting,
            peers: Peers::new(now, me, &config),
            views,
            quarantine,
            locks: Locks::new(config.me, incarnation, &config.settings, marks),
            elections: Elections::new(config.me, config.settings.election, lease),
            timers: Timers::default(),
            storage: Storage::new(Record {
                incarnation,
                epoch,
                clean: false,
                marks: AbandonedMarks::None,
                affiliation,
                voter: before.and_then(|record| record.voter.clone()),
            }),
            told_until: Time::ZERO,
            held_back: BTreeMap::new(),
            is_let_go: false,
            early: Vec::new(),
            incomplete_since: None,
            told_missing: None,
            joined: None,
            wished_at: None,
            chance: Chance::new(boot.seed),
            outputs: VecDeque::new(),
        };
        node.note_missing(now);
        if !by_quorum {
            let free_at = if unclean { node.quarantine.ends() } else { now };
            node.timers.set(Timer::Quarantine, free_at);
        }
        node.storage.put(&mut node.outputs);
        node
    }

    /// Takes in what happened at `now`.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match (self.stage, input) {
            (
                Stage::Silent,
                Input::Command(Command::Acquire { ticket, .. } | Command::Campaign { ticket, .. }),
            ) => self.end(*ticket, Refusal::Closed),
            // What one says that has put its end on disk would not be in it.
            (Stage::Silent, _)
            | (Stage::Booting | Stage::Closing, Input::Datagram { .. } | Input::Timeout) => {}
            (_, Input::Datagram { from, bytes }) => self.receive(now, from, bytes),
            (_, Input::Command(command)) => self.command(now, command),
            (_, Input::Timeout) => self.timeout(now),
            (_, Input::Persisted) => self.persisted(now),
        }
        if self.storage.born && self.stage != Stage::Silent {
            self.finish_leaving(now, false);
            self.note_congested(now);
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
            Stage::Booting | Stage::Closing | Stage::Silent => None,
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

    /// The incarnation of this member.
    pub fn incarnation(&self) -> Incarnation {
        self.me.incarnation
    }

    /// How a member is, as far as this one can tell.
    pub fn peer_state(&self, node: NodeId) -> PeerState {
        match self.peers.state(node) {
            PeerState::Up if self.views.is_stranger(node) => PeerState::Disagrees,
            state => state,
        }
    }

    /// When something last came from another member; `None` if nothing did in this incarnation.
    pub fn last_heard(&self, node: NodeId) -> Option<Time> {
        self.peers.last_heard(node)
    }

    /// Whether the view in force has that member in the incarnation that is talked to, not in one
    /// before.
    pub fn is_in_view(&self, node: NodeId) -> bool {
        let incarnation = if node == self.me.node {
            Some(self.me.incarnation)
        } else {
            self.peers.incarnation(node)
        };
        let is_present = |it: &Member| it.node == node && Some(it.incarnation) == incarnation;
        self.view()
            .is_some_and(|view| view.members.iter().any(is_present))
    }

    /// Those who are to vote, and whether each does, as far as is known here; empty where nobody
    /// votes, and before there is a view for the first time.
    pub fn voters(&self, now: Time) -> BTreeMap<NodeId, bool> {
        self.views.voters(now)
    }

    /// The callers that wait for `lock`, if the lock could be lent ([`Command::Borrow`]) once they stepped aside and its
    /// holder left. Empty if they are more than `most`, or if one of them only tries or shares the lock: for
    /// those a loan is no substitute.
    pub fn in_the_way_of_loan(&self, lock: &LockName, most: usize) -> Vec<Ticket> {
        self.locks.in_the_way_of_loan(lock, most)
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

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

#[cfg(test)]
mod tests;
