//! One lock under views: the production table with one of the engines, in two or three members.
//!
//! Views come from a master that does what quorum views promise and nothing more: every member of
//! the next view stops and tells what it has, in any order; then the view comes into force, in one
//! member after the other. If no member vouches that the dead members cannot have held the lock, the
//! lock is in quarantine then: in each member until that hears that the leases of the dead are over. The
//! master may give up a view for the next at any time, as when a coordinator died.
//!
//! What is between the members is a [`Network`]. With links it is what engines are promised: each
//! message once and in order, between two incarnations. Datagrams are what they say they survive
//! beyond that: any order, and some messages twice. Algorithms that need the order of links are not
//! for datagrams ([`Algorithm::needs_order`]). Either way a message may never arrive, as nothing
//! here makes it: a state in which it is still on its way goes on in all other respects.

mod checkers;
mod post;
mod seat;
mod turn;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::checkers::Checkers;
pub(super) use self::post::{Letter, Post};
use self::seat::Caller;
pub(super) use self::seat::{Caller as SeatCaller, Said, Seat};
use self::turn::Turn;
use super::pool::{Pool, Shared};
use super::{Goal, Seen, System, member, nodes, place, within_reach};
use crate::checkers::{Process, Violation};
use distlock_protocol::lock::Summary;
use distlock_protocol::membership::{Member, View};
use distlock_protocol::{Algorithm, Epoch, NodeId, Release};

/// What is between the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Each message once, in order, between two incarnations.
    Links,
    /// Messages overtake each other, and some come twice.
    Datagrams,
}

/// How many times what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Requests of each member's callers.
    pub rounds: u8,
    /// Callers that wait no longer.
    pub cancels: u8,
    /// Callers that end inside, while their member lives on.
    pub abandons: u8,
    /// Views after the first.
    pub views: u8,
    /// Members that crash.
    pub crashes: u8,
    /// Members that come back after a crash, in another incarnation.
    pub restarts: u8,
    /// Messages that come twice; only datagrams do.
    pub twice: u8,
    /// Times that a ring's token has stayed for long enough.
    pub hops: u8,
}

/// A rule that the master, or a member's driver, does not keep. What is above must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// The leases of the dead are not waited out.
    NoLeaseWait,
    /// Members tell what they have, and go on.
    NoFreeze,
    /// Messages are taken in whatever view they belong to.
    NoEpochTag,
}

/// What is explored.
#[derive(Debug)]
pub struct LockModel {
    /// How the lock is served.
    pub algorithm: Algorithm,
    /// How many members there are.
    pub members: u16,
    /// What is between them.
    pub network: Network,
    /// How much of everything.
    pub bounds: Bounds,
    /// What is left out on purpose.
    pub weakness: Option<Weakness>,
    seats: Pool<Seat>,
    posts: Pool<Post>,
    letters: Pool<Letter>,
    masters: Pool<Master>,
    checkers: Pool<Checkers>,
}

impl LockModel {
    /// A model of a lock served by `algorithm`.
    pub fn new(algorithm: Algorithm, members: u16, network: Network, bounds: Bounds) -> Self {
        Self {
            algorithm,
            members,
            network,
            bounds,
            weakness: None,
            seats: Pool::default(),
            posts: Pool::default(),
            letters: Pool::default(),
            masters: Pool::default(),
            checkers: Pool::default(),
        }
    }

    fn lacks(&self, weakness: Weakness) -> bool {
        self.weakness == Some(weakness)
    }
}

/// A state of all members, and of what is between them.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    /// By member; `None` after a crash.
    seats: Vec<Option<Shared<Seat>>>,
    /// The last incarnation of each member.
    incarnations: Vec<u32>,
    post: Shared<Post>,
    master: Shared<Master>,
    left: Bounds,
    checkers: Shared<Checkers>,
    broken: Option<Box<Violation>>,
    seen: Seen,
}

impl State {
    fn seat(&self, node: NodeId) -> Option<&Shared<Seat>> {
        self.seats[place(node)].as_ref()
    }

    fn process(&self, node: NodeId) -> Process {
        let incarnation = self.incarnations[place(node)];
        Process { node, incarnation }
    }
}

const ENTERED: Goal = 0;
const ALL_TWICE: Goal = 1;
const CRASHED_INSIDE: Goal = 2;
const TAKEN_OVER: Goal = 3;
const CANCEL_MEETS_GRANT: Goal = 4;
const DIED_OF_ITS_EPOCH: Goal = 5;
const TOLD: Goal = 6;
const ENTERED_REBORN: Goal = 7;
const VIEW_GIVEN_UP: Goal = 8;
const LIFTED: Goal = 9;

/// Who forms views.
#[derive(Clone, Debug, Hash)]
struct Master {
    /// The newest view, in force or being formed.
    view: Arc<View>,
    stage: Stage,
    /// In which members it has come into force.
    installed: BTreeSet<NodeId>,
    /// Those of them to whom no lock is in quarantine, as far as the master has told them.
    lifted: BTreeSet<NodeId>,
    /// Who died, and whose lease may not be over.
    leases: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, Hash)]
enum Stage {
    /// These members have not told what they have.
    Collecting(BTreeSet<NodeId>, Summary),
    /// All have; this is what the view begins with.
    Concluded(Summary),
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A member crashes.
    Crash(NodeId),
    /// It comes back.
    Restart(NodeId),
    /// A new view begins to be formed.
    Form,
    /// A member stops for it, and tells what it has.
    Stop(NodeId),
    /// The lease of one that died is over.
    LeaseOver(NodeId),
    /// The view comes into force in a member.
    Install(NodeId),
    /// A member hears that no lock is in quarantine any more.
    Lift(NodeId),
    /// A caller wants in.
    Want(NodeId),
    /// It waits no longer.
    Cancel(NodeId),
    /// It leaves; or ends inside.
    Leave(NodeId, Release),
    /// A ring's token has stayed for long enough.
    Hop(NodeId),
    /// A message arrives: which of those on that way. `again`: it will arrive once more.
    Deliver {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// Which.
        at: usize,
        /// Whether it stays on its way.
        again: bool,
    },
}

impl System for LockModel {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        let first = |node| {
            member(Process {
                node,
                incarnation: 1,
            })
        };
        let view = Arc::new(View {
            epoch: Epoch::ZERO.next().expect("the first"),
            members: nodes(self.members).map(first).collect(),
            unclean: Vec::new(),
        });
        let mut state = State {
            seats: nodes(self.members).map(|_| None).collect(),
            incarnations: nodes(self.members).map(|_| 1).collect(),
            post: self.posts.share(Post::default()),
            master: self.masters.share(Master {
                stage: Stage::Concluded(Summary::default()),
                installed: BTreeSet::new(),
                lifted: BTreeSet::new(),
                leases: BTreeSet::new(),
                view,
            }),
            left: self.bounds,
            checkers: self.checkers.share(Checkers::new()),
            broken: None,
            seen: Seen::default(),
        };
        for node in nodes(self.members) {
            let seat = Seat::new(first(node), self.algorithm);
            state.seats[place(node)] = Some(self.seats.share(seat));
        }
        for node in nodes(self.members) {
            state = Turn::new(self, &state).finish(|turn| turn.install(node));
        }
        state
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        self.faults(state, out);
        self.views(state, out);
        for node in nodes(self.members) {
            if let Some(seat) = state.seat(node) {
                self.callers(state, node, seat, out);
            }
        }
        self.arrivals(state, out);
    }

    fn after(&self, state: &State, action: &Action) -> Option<State> {
        Some(Turn::new(self, state).finish(|turn| turn.play(action)))
    }

    fn is_misfortune(action: &Action) -> bool {
        use Action::{Cancel, Crash, Form, Leave};
        let ends_inside = matches!(action, Leave(_, Release::Abandoned));
        ends_inside || matches!(action, Crash(_) | Form | Cancel(_))
    }

    fn violation(state: &State) -> Option<&Violation> {
        state.broken.as_deref()
    }

    fn goals(&self) -> Vec<(&'static str, Goal)> {
        let Bounds {
            rounds,
            cancels,
            abandons,
            views,
            crashes,
            restarts,
            ..
        } = self.bounds;
        let takes_over = crashes > 0 && views > 0;
        // By chance alone three seldom get in twice within the bounds.
        let served = rounds > 1 && !(self.algorithm.is_probabilistic() && self.members > 2);
        within_reach([
            (true, "somebody enters", ENTERED),
            (served, "all enter twice", ALL_TWICE),
            (crashes > 0, "somebody crashes inside", CRASHED_INSIDE),
            (takes_over, "another enters after that", TAKEN_OVER),
            (cancels > 0, "a cancel meets a grant", CANCEL_MEETS_GRANT),
            (views > 0, "a grant dies of its epoch", DIED_OF_ITS_EPOCH),
            (views > 1, "a view is given up for the next", VIEW_GIVEN_UP),
            (takes_over, "a quarantine ends", LIFTED),
            (
                abandons > 0 || takes_over,
                "who enters is told that one ended inside",
                TOLD,
            ),
            (
                takes_over && restarts > 0,
                "one that crashed enters in another incarnation",
                ENTERED_REBORN,
            ),
        ])
    }

    fn reached(state: &State, goal: Goal) -> bool {
        state.seen.has(goal)
    }
}

/// What may happen next.
impl LockModel {
    fn faults(&self, state: &State, out: &mut Vec<Action>) {
        for node in nodes(self.members) {
            match state.seat(node) {
                Some(_) if state.left.crashes > 0 => out.push(Action::Crash(node)),
                None if state.left.restarts > 0 => out.push(Action::Restart(node)),
                _ => {}
            }
        }
    }

    fn views(&self, state: &State, out: &mut Vec<Action>) {
        let master = &state.master;
        if state.left.views > 0 {
            out.push(Action::Form);
        }
        out.extend(master.leases.iter().copied().map(Action::LeaseOver));
        for Member { node, .. } in master.members_alive(state) {
            match &master.stage {
                Stage::Collecting(missing, _) if missing.contains(&node) => {
                    out.push(Action::Stop(node));
                }
                Stage::Collecting(missing, _) if missing.is_empty() => {
                    out.push(Action::Install(node));
                }
                Stage::Collecting(..) => {}
                Stage::Concluded(_) if !master.installed.contains(&node) => {
                    out.push(Action::Install(node));
                }
                Stage::Concluded(_) => {
                    if !master.lifted.contains(&node) && self.may_lift(master) {
                        out.push(Action::Lift(node));
                    }
                }
            }
        }
    }

    /// Whether the leases are over of all whom the newest view has lost.
    fn may_lift(&self, master: &Master) -> bool {
        let mut lost = master.view.unclean.iter();
        self.lacks(Weakness::NoLeaseWait) || !lost.any(|node| master.leases.contains(node))
    }

    fn callers(&self, state: &State, node: NodeId, seat: &Seat, out: &mut Vec<Action>) {
        match seat.caller() {
            Caller::Idle if seat.asked() < state.left.rounds => out.push(Action::Want(node)),
            Caller::Idle => {}
            Caller::Waits(_) if state.left.cancels > 0 => out.push(Action::Cancel(node)),
            Caller::Waits(_) => {}
            Caller::Inside(_) => {
                if state.left.abandons > 0 {
                    out.push(Action::Leave(node, Release::Abandoned));
                }
                out.push(Action::Leave(node, Release::Given));
            }
        }
        if seat.hops() && state.left.hops > 0 {
            out.push(Action::Hop(node));
        }
    }

    fn arrivals(&self, state: &State, out: &mut Vec<Action>) {
        for (from, to) in state.post.ways() {
            let Some(seat) = state.seat(to) else { continue };
            let any_epoch = self.lacks(Weakness::NoEpochTag);
            for at in state.post.next(from, to, self.network) {
                let letter = state.post.letter(from, to, at);
                if !seat.takes(letter.epoch, any_epoch) {
                    continue;
                }
                let again = self.network == Network::Datagrams && state.left.twice > 0;
                let deliver = |again| Action::Deliver {
                    from,
                    to,
                    at,
                    again,
                };
                out.extend(again.then(|| deliver(true)));
                out.push(deliver(false));
            }
        }
    }
}

impl Master {
    /// The members of the view that have not crashed since.
    fn members_alive<'a>(&'a self, state: &'a State) -> impl Iterator<Item = Member> + 'a {
        let members = self.view.members.iter().copied();
        members.filter(|its| {
            let seat = state.seat(its.node);
            seat.is_some_and(|seat| seat.me() == *its)
        })
    }
}
