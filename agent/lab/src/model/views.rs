//! Quorum views and leases: the production code of members and voters, from endorsement to install,
//! and a lock that the production table and an engine serve in the views that come of it.
//!
//! Every host is a member and a voter. The world begins with a view in force and a lease everywhere;
//! what leads there has no faults. Then views come as in an agent ([`Deciding::Raft`]): whoever leads
//! proposes what is needed, and Raft decides it. Or any voter may propose a step after what it knows to be
//! certified, and any voter may be told of any proposed step, as by a log that lies
//! ([`Deciding::Anybody`]): decided twice, late, or never. Hosts crash at any point, with or without what
//! they were writing, and come back with what is on disk, or, under Raft, with nothing; there members also
//! leave in order, and an operator names other voters. Datagrams are lost, overtaken and, some, doubled; of
//! those from one host to another that say the same kind of thing the newest is on its way. Links carry
//! what engines say.
//!
//! Time is abstract. Real time stands still while things happen, and passes in leaps: by a quarter
//! of a lease, or to the next moment at which a lease ends or has been waited for. Each host's clock
//! gains or loses as much as the bound allows, and what is due on it happens then, or later.

mod checker;
mod host;
mod log;
mod turn;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use std::sync::OnceLock;

use self::checker::Checker;
use self::host::{Air, Caller, Flight, Host, LEASE};
pub use self::log::Deciding;
use self::turn::Turn;
use super::locks::{Letter, Network, Post, SeatCaller};
use super::pool::{Pool, Shared};
use super::{Goal, Seen, System, nodes, place, within_reach};
use crate::checkers::Violation;
use distlock_protocol::membership::quorum::{QuorumMessage, ViewChange, ViewConfig};
use distlock_protocol::{Algorithm, NodeId, Time};

/// How many times what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Requests of each host's callers.
    pub rounds: u8,
    /// Leaps of time.
    pub leaps: u8,
    /// Proposals for views, where anybody decides.
    pub proposals: u8,
    /// Hosts that crash.
    pub crashes: u8,
    /// Hosts that come back.
    pub restarts: u8,
    /// Hosts that come back without their states, where Raft decides.
    pub losses: u8,
    /// Members that leave in order, where Raft decides.
    pub departures: u8,
    /// Times that an operator leaves a voter out, or takes it in again, where Raft decides.
    pub revotes: u8,
    /// Datagrams that come twice.
    pub twice: u8,
}

/// What is explored.
#[derive(Debug)]
pub struct ViewModel {
    /// How the lock is served.
    pub algorithm: Algorithm,
    /// What decides on views.
    pub deciding: Deciding,
    /// How many hosts there are.
    pub hosts: u16,
    /// How much of everything.
    pub bounds: Bounds,
    start: OnceLock<State>,
    /// What is in force when the world begins.
    first: OnceLock<ViewConfig>,
    pool: Pools,
}

#[derive(Debug, Default)]
struct Pools {
    hosts: Pool<Host>,
    airs: Pool<Air>,
    messages: Pool<QuorumMessage>,
    posts: Pool<Post>,
    letters: Pool<Letter>,
    plans: Pool<Plans>,
    checkers: Pool<Checker>,
}

impl ViewModel {
    /// A model of that many hosts.
    pub fn new(algorithm: Algorithm, deciding: Deciding, hosts: u16, bounds: Bounds) -> Self {
        Self {
            algorithm,
            deciding,
            hosts,
            bounds,
            start: OnceLock::new(),
            first: OnceLock::new(),
            pool: Pools::default(),
        }
    }
}

/// A state of all hosts, and of what is between them.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    now: Time,
    hosts: Vec<Shared<Host>>,
    air: Shared<Air>,
    post: Shared<Post>,
    plans: Shared<Plans>,
    left: Bounds,
    checker: Shared<Checker>,
    broken: Option<Box<Violation>>,
    seen: Seen,
}

impl State {
    fn host(&self, node: NodeId) -> &Shared<Host> {
        &self.hosts[place(node)]
    }

    /// The next moment at which a lease ends, or has been waited for.
    fn next_moment(&self) -> Option<Time> {
        let ends = self.hosts.iter().filter_map(|host| host.lease_ends());
        let waits = self.hosts.iter().filter_map(|host| {
            let quorum = &host.running.as_ref()?.quorum;
            let until = quorum.waits_until(host.clock.shows(self.now))?;
            Some(host.clock.when(until))
        });
        ends.chain(waits).filter(|at| *at > self.now).min()
    }
}

/// The steps that were proposed, and which voters were told that they are decided.
#[derive(Clone, Debug, Default, Hash)]
struct Plans(Vec<(ViewChange, BTreeSet<NodeId>)>);

const ENTERED: Goal = 0;
const NEXT_VIEW: Goal = 1;
const CRASHED_INSIDE: Goal = 2;
const TAKEN_OVER: Goal = 3;
const LAPSED: Goal = 4;
const EXCLUDED: Goal = 5;
const RIVALS: Goal = 6;
const ENDORSED_REBORN: Goal = 7;
const ANOTHER_LEADS: Goal = 8;
const OTHER_VOTERS: Goal = 9;
const REPLACED: Goal = 10;
const DEPARTED: Goal = 11;
const WAITED: Goal = 12;

/// What a proposal changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing but the epoch.
    Nothing,
    /// A member goes.
    Without(NodeId),
    /// All who run now are in, each in its present incarnation, and nobody else.
    Present,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A host crashes; what it was writing is on disk, or not.
    Crash(NodeId, bool),
    /// It comes back.
    Restart(NodeId),
    /// It comes back with an empty disk.
    Lose(NodeId),
    /// A member leaves in order.
    Depart(NodeId),
    /// An operator says at a host that another is to vote, or not to.
    Revote(NodeId, NodeId),
    /// Real time passes: a quarter of a lease.
    Quarter,
    /// Real time passes, until a lease ends or has been waited for.
    Leap,
    /// A voter proposes the next view.
    Propose(NodeId, Change),
    /// A voter is told that a proposal is decided.
    Decide(NodeId, usize),
    /// What a voter must remember is on disk.
    Written(NodeId),
    /// What is due at a host happens.
    Wake(NodeId),
    /// A caller wants in.
    Want(NodeId),
    /// The one who is inside leaves.
    Leave(NodeId),
    /// A datagram arrives: from whom, to whom, of which kind. It may stay on its way.
    Arrive(NodeId, NodeId, u8, bool),
    /// What an engine said arrives.
    Carry(NodeId, NodeId),
}

impl System for ViewModel {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        self.start.get_or_init(|| turn::begin(self)).clone()
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        self.faults(state, out);
        self.proposals(state, out);
        for node in nodes(self.hosts) {
            self.host_does(state, node, out);
        }
        self.arrivals(state, out);
    }

    fn after(&self, state: &State, action: &Action) -> Option<State> {
        Some(Turn::new(self, state).finish(|turn| turn.play(*action)))
    }

    fn is_misfortune(action: &Action) -> bool {
        use Action::{Crash, Depart, Leap, Lose, Propose, Quarter, Revote};
        matches!(
            action,
            Crash(..) | Quarter | Leap | Propose(..) | Lose(..) | Depart(..) | Revote(..)
        )
    }

    fn happens_at(action: &Action) -> Option<NodeId> {
        use Action::{Arrive, Carry, Depart, Leave, Wake, Want, Written};
        match *action {
            Wake(node) | Want(node) | Leave(node) | Depart(node) | Written(node) => Some(node),
            Arrive(_, to, ..) | Carry(_, to) => Some(to),
            _ => None,
        }
    }

    fn violation(state: &State) -> Option<&Violation> {
        state.broken.as_deref()
    }

    fn goals(&self) -> Vec<(&'static str, Goal)> {
        let Bounds {
            proposals,
            crashes,
            restarts,
            leaps,
            losses,
            departures,
            revotes,
            ..
        } = self.bounds;
        let by_raft = self.deciding == Deciding::Raft;
        let views = by_raft || proposals > 0;
        within_reach([
            (true, "somebody enters", ENTERED),
            (views, "another view comes into force", NEXT_VIEW),
            (crashes > 0, "somebody crashes inside", CRASHED_INSIDE),
            (
                crashes > 0 && views && leaps > 0,
                "another enters after that",
                TAKEN_OVER,
            ),
            (leaps > 3, "a lease ends under one who is inside", LAPSED),
            (views, "a member learns that it is excluded", EXCLUDED),
            (
                !by_raft && proposals > 1,
                "voters endorse different views of an epoch",
                RIVALS,
            ),
            (
                views && restarts > 0,
                "a voter endorses in another incarnation",
                ENDORSED_REBORN,
            ),
            (
                by_raft && crashes > 0 && leaps > 3,
                "another voter leads to a view",
                ANOTHER_LEADS,
            ),
            (
                by_raft && crashes > 0 && restarts > 0 && losses == 0 && leaps > 3,
                "a view waits for the lease of one who crashed inside",
                WAITED,
            ),
            (
                by_raft && revotes > 0,
                "a view has other voters",
                OTHER_VOTERS,
            ),
            (
                by_raft && losses > 0,
                "a voter that lost its state is replaced",
                REPLACED,
            ),
            (
                by_raft && departures > 0,
                "a view is without a member that left",
                DEPARTED,
            ),
        ])
    }

    fn reached(state: &State, goal: Goal) -> bool {
        state.seen.has(goal)
    }
}

/// What may happen next.
impl ViewModel {
    fn faults(&self, state: &State, out: &mut Vec<Action>) {
        for node in nodes(self.hosts) {
            match &state.host(node).running {
                Some(running) if state.left.crashes > 0 => {
                    if running.writing.is_some() {
                        out.push(Action::Crash(node, true));
                    }
                    out.push(Action::Crash(node, false));
                }
                None if state.left.restarts > 0 => {
                    out.push(Action::Restart(node));
                    if state.left.losses > 0 {
                        out.push(Action::Lose(node));
                    }
                }
                _ => {}
            }
        }
        if state.left.leaps > 0 {
            out.push(Action::Quarter);
            out.extend(state.next_moment().map(|_| Action::Leap));
        }
    }

    fn proposals(&self, state: &State, out: &mut Vec<Action>) {
        for host in &state.hosts {
            let Some(running) = &host.running else {
                continue;
            };
            if state.left.proposals > 0
                && self.deciding == Deciding::Anybody
                && let Some(step) = running.quorum.certified()
            {
                let others = step.view_config.members.iter().map(|its| its.node);
                let others = others.filter(|node| *node != host.node());
                let changes = [Change::Nothing, Change::Present];
                let changes = changes.into_iter().chain(others.map(Change::Without));
                out.extend(changes.map(|change| Action::Propose(host.node(), change)));
            }
            let plans = state.plans.0.iter().enumerate();
            let untold = plans.filter(|(_, (_, told))| !told.contains(&host.node()));
            out.extend(untold.map(|(at, _)| Action::Decide(host.node(), at)));
        }
    }

    fn host_does(&self, state: &State, node: NodeId, out: &mut Vec<Action>) {
        let host = state.host(node);
        let Some(running) = &host.running else { return };
        if running.writing.is_some() {
            out.push(Action::Written(node));
        }
        if host.is_due(state.now) {
            out.push(Action::Wake(node));
        }
        if running.departs {
            return;
        }
        if state.left.revotes > 0 {
            out.extend(nodes(self.hosts).map(|voter| Action::Revote(node, voter)));
        }
        match running.caller {
            Caller::Inside => out.push(Action::Leave(node)),
            Caller::Outside
                if running.seat.caller() == SeatCaller::Idle
                    && running.seat.asked() < state.left.rounds =>
            {
                out.push(Action::Want(node));
            }
            _ => {}
        }
        let is_idle =
            running.caller == Caller::Outside && running.seat.caller() == SeatCaller::Idle;
        if is_idle && state.left.departures > 0 {
            out.push(Action::Depart(node));
        }
    }

    fn arrivals(&self, state: &State, out: &mut Vec<Action>) {
        let there = |node: NodeId| state.host(node).running.as_ref();
        for (from, to) in state.post.ways() {
            let first = state.post.next(from, to, Network::Links).next();
            let epoch = first.map(|at| state.post.letter(from, to, at).epoch);
            let takes = |epoch| there(to).is_some_and(|it| it.seat.takes(epoch, false));
            out.extend(
                epoch
                    .filter(|it| takes(*it))
                    .map(|_| Action::Carry(from, to)),
            );
        }
        for (from, to, kind) in state.air.flights() {
            if there(to).is_some() {
                let again = state.left.twice > 0;
                out.extend(again.then_some(Action::Arrive(from, to, kind, true)));
                out.push(Action::Arrive(from, to, kind, false));
            }
        }
    }
}
