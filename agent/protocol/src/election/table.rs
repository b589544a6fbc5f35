//! The elections of a member: what stands between its local callers, the contests and the lock.
//!
//! A caller that wants to lead waits here until its member is nominated. Then it is handed to the
//! table of locks, as one that wants to enter the lock of the election's name, and everything else
//! is as for any lock. What becomes of it there comes back here, so that the others are told who
//! leads, or that nobody does.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::Algorithm;
use super::contest::{Body, Contest, ContestOutput, ElectionMessage, Leader, Scene};
use super::engine::AnswerTimer;
use super::output::{ElectionOutput, Order};
use crate::api::{Event, Refusal, Wait};
use crate::ids::{Fence, LockName, NodeId, Ticket};
use crate::lock::{LockSpec, Waiting};
use crate::membership::{Member, View};
use crate::time::Time;

/// How many elections a member knows of at once.
const MAX_ELECTIONS: usize = 16_384;
/// How many local callers may wait to lead at once.
const MAX_WAITING: usize = 65_536;
/// An answer is waited for so many times shorter than a lease.
const ANSWERS_IN_A_LEASE: u32 = 4;

/// The table of elections.
#[derive(Debug)]
pub(crate) struct Elections {
    algorithm: Algorithm,
    me: NodeId,
    patience: Duration,
    /// The view in force; `None` before the first, and while frozen.
    view: Option<Arc<View>>,
    members: Vec<NodeId>,
    /// Those that are suspected.
    silent: BTreeSet<NodeId>,
    table: BTreeMap<LockName, Election>,
    /// The election of each caller that waits or leads.
    tickets: BTreeMap<Ticket, LockName>,
    /// Whether callers are still served.
    is_open: bool,
}

/// One election, as its member sees it.
#[derive(Debug, Default)]
struct Election {
    contest: Contest,
    /// Callers that want to lead.
    waiting: VecDeque<Waiting>,
    /// The one that waits for the lock.
    entering: Option<Waiting>,
    /// The one that leads.
    leading: Option<(Ticket, Fence)>,
    /// What observers were told last: who leads, in which incarnation.
    told: Option<(Leader, Member)>,
}

impl Elections {
    pub(crate) fn new(me: NodeId, algorithm: Algorithm, lease: Duration) -> Self {
        Self {
            algorithm,
            me,
            patience: lease / ANSWERS_IN_A_LEASE,
            view: None,
            members: Vec::new(),
            silent: BTreeSet::new(),
            table: BTreeMap::new(),
            tickets: BTreeMap::new(),
            is_open: true,
        }
    }

    /// Who leads in the election `name`, as far as this member knows.
    pub(crate) fn leader(&self, name: &LockName) -> Option<Leader> {
        let told = self.table.get(name)?.told;
        told.map(|(leader, _)| leader)
    }

    /// The local callers that wait to be nominated, in order, each with its election.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = (&LockName, Ticket)> {
        self.table.iter().flat_map(|(name, election)| {
            let waiting = election.waiting.iter();
            waiting.map(move |caller| (name, caller.ticket))
        })
    }

    /// Whether this caller waits to lead, or leads.
    pub(crate) fn has(&self, ticket: Ticket) -> bool {
        self.tickets.contains_key(&ticket)
    }

    /// Whether this caller leads.
    pub(crate) fn leads(&self, ticket: Ticket) -> bool {
        let election = self.tickets.get(&ticket);
        let election = election.and_then(|name| self.table.get(name));
        let leading = election.and_then(|election| election.leading);
        leading.is_some_and(|(leading, _)| leading == ticket)
    }

    /// A local caller wants to lead; by `algorithm`, if it says so.
    pub(crate) fn campaign(
        &mut self,
        name: &LockName,
        caller: Waiting,
        algorithm: Option<Algorithm>,
        out: &mut ElectionOutput,
    ) {
        let refusal = if !self.is_open {
            Some(Refusal::Closed)
        } else if algorithm.is_some_and(|algorithm| algorithm != self.algorithm) {
            Some(Refusal::WrongElection {
                actual: self.algorithm,
            })
        } else if let Some(wish) = caller.wish.filter(|wish| wish.permits.get() != 1) {
            // Two could lead.
            Some(Refusal::WrongSpec {
                actual: LockSpec::exclusive(wish.algorithm),
            })
        } else if self.tickets.len() >= MAX_WAITING || !self.make_room(name) {
            Some(Refusal::Limit)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let ticket = caller.ticket;
            out.events.push(Event::Ended { ticket, refusal });
            return;
        }
        self.tickets.insert(caller.ticket, name.clone());
        let election = self.table.entry(name.clone()).or_default();
        election.waiting.push_back(caller);
        self.settle(name, out);
    }

    /// A local caller that waits is told `refusal`, and waits no longer. Does nothing for one that
    /// waits for the lock, or leads.
    pub(crate) fn end(&mut self, ticket: Ticket, refusal: Refusal, out: &mut ElectionOutput) {
        let Some(name) = self.tickets.get(&ticket).cloned() else {
            return;
        };
        let Some(election) = self.table.get_mut(&name) else {
            return;
        };
        let before = election.waiting.len();
        election.waiting.retain(|caller| caller.ticket != ticket);
        if election.waiting.len() < before {
            self.tickets.remove(&ticket);
            out.events.push(Event::Ended { ticket, refusal });
            self.settle(&name, out);
        }
    }

    /// The table of locks has let this caller in, if it is one of those here.
    pub(crate) fn entered(&mut self, ticket: Ticket, fence: Fence, out: &mut ElectionOutput) {
        self.update(ticket, out, |election| {
            // It may have been let in while it was told to stand back.
            election.waiting.retain(|caller| caller.ticket != ticket);
            election.entering.take_if(|caller| caller.ticket == ticket);
            election.leading = Some((ticket, fence));
        });
    }

    /// This caller is done with the lock: it waits for it no longer, or is not inside any more.
    pub(crate) fn left(&mut self, ticket: Ticket, out: &mut ElectionOutput) {
        self.update(ticket, out, |election| {
            election.entering.take_if(|caller| caller.ticket == ticket);
            election.leading.take_if(|(leading, _)| *leading == ticket);
        });
        self.tickets.remove(&ticket);
    }

    /// A message of this epoch. Returns whether it made sense.
    pub(crate) fn receive(
        &mut self,
        from: NodeId,
        message: &ElectionMessage,
        out: &mut ElectionOutput,
    ) -> bool {
        let ElectionMessage {
            lock: name,
            round,
            body,
        } = message;
        if self.view.is_none() || !self.make_room(name) {
            return false;
        }
        let mut contest_out = ContestOutput::default();
        let election = self.table.entry(name.clone()).or_default();
        let scene = Scene {
            algorithm: self.algorithm,
            me: self.me,
            members: &self.members,
            silent: &self.silent,
            patience: self.patience,
        };
        let makes_sense = election
            .contest
            .receive(&scene, from, *round, body, &mut contest_out);
        if let Body::Resigned { fence } = body {
            // Said also of an epoch before, of which the contest knows nothing.
            let is_it = |leader: &Leader| leader.node == from && u64::from(leader.fence) == *fence;
            if election.told.take_if(|(leader, _)| is_it(leader)).is_some() {
                let lock = name.clone();
                out.events.push(Event::Leader { lock, leader: None });
            }
        }
        put(name, contest_out, out);
        self.settle(name, out);
        makes_sense
    }

    pub(crate) fn timeout(&mut self, name: &LockName, out: &mut ElectionOutput) {
        if self.view.is_some() && self.table.contains_key(name) {
            self.contest(name, out, |contest, scene, out| {
                contest.timeout(scene, out);
            });
            self.settle(name, out);
        }
    }

    /// These members are suspected now: what leads past them goes on.
    pub(crate) fn note_silent(&mut self, silent: &[NodeId]) {
        self.silent = silent.iter().copied().collect();
    }

    /// A view is being formed: nothing is said before it is in force.
    pub(crate) fn freeze(&mut self) {
        self.view = None;
    }

    /// A new view is in force, in which the lock's callers are as they were: who leads says so, and
    /// where nobody does an election is held.
    pub(crate) fn install(&mut self, view: Arc<View>, out: &mut ElectionOutput) {
        self.members = view.nodes().collect();
        self.view = Some(view);
        self.table.retain(|_, election| !election.is_idle());
        let names: Vec<_> = self.table.keys().cloned().collect();
        for name in names {
            self.begin_epoch(&name, out);
        }
    }

    fn begin_epoch(&mut self, name: &LockName, out: &mut ElectionOutput) {
        let (Some(election), Some(view)) = (self.table.get_mut(name), &self.view) else {
            return;
        };
        election.contest = Contest::default();
        out.timers.push((name.clone(), AnswerTimer::Clear));
        let stays = |member: &Member| view.members.contains(member);
        if let Some((leader, _)) = election.told.take_if(|(_, member)| !stays(member)) {
            debug_assert!(leader.node != self.me || election.leading.is_none());
            let lock = name.clone();
            out.events.push(Event::Leader { lock, leader: None });
        }
        let told = election.told.map(|(leader, _)| leader);
        let leading = election.leading.map(|(_, fence)| fence);
        if let Some(leader) = told.filter(|leader| leader.node == self.me)
            && leading != Some(leader.fence)
        {
            // It ended while nothing could be said.
            election.told = None;
            let lock = name.clone();
            out.events.push(Event::Leader { lock, leader: None });
            let fence = leader.fence.into();
            let others = self.members.iter().filter(|node| **node != self.me);
            out.sends.extend(others.map(|node| {
                let body = Body::Resigned { fence };
                let lock = name.clone();
                (
                    *node,
                    ElectionMessage {
                        lock,
                        round: 0,
                        body,
                    },
                )
            }));
        }
        self.settle(name, out);
    }

    /// The member leaves: nobody of it leads any more, and nobody is served.
    pub(crate) fn leave(&mut self, out: &mut ElectionOutput) {
        self.is_open = false;
        let waiting: Vec<_> = self.waiters().map(|(_, ticket)| ticket).collect();
        for ticket in waiting {
            self.end(ticket, Refusal::Closed, out);
        }
    }

    /// Since when this caller waits to be nominated, if it does.
    pub(crate) fn waiting_since(&self, ticket: Ticket) -> Option<Time> {
        let election = self.table.get(self.tickets.get(&ticket)?)?;
        let mut waiting = election.waiting.iter();
        Some(waiting.find(|caller| caller.ticket == ticket)?.since)
    }

    /// The callers whose patience ends after one lease, with the time since when they wait.
    pub(crate) fn impatient(&self) -> Vec<(Ticket, Time)> {
        let callers = self.table.values().flat_map(|election| &election.waiting);
        let impatient = callers.filter(|caller| caller.wait == Wait::Lease);
        impatient
            .map(|caller| (caller.ticket, caller.since))
            .collect()
    }

    /// Whether `name` is in the table, or has room there: what nobody here takes part in is
    /// forgotten for it.
    fn make_room(&mut self, name: &LockName) -> bool {
        if self.table.len() < MAX_ELECTIONS || self.table.contains_key(name) {
            return true;
        }
        self.table.retain(|_, election| !election.is_idle());
        self.table.len() < MAX_ELECTIONS
    }

    fn update(
        &mut self,
        ticket: Ticket,
        out: &mut ElectionOutput,
        change: impl FnOnce(&mut Election),
    ) {
        let Some(name) = self.tickets.get(&ticket).cloned() else {
            return;
        };
        if let Some(election) = self.table.get_mut(&name) {
            change(election);
            self.settle(&name, out);
        }
    }

    /// Has the contest told what has changed, and the callers and the table of locks what follows.
    fn settle(&mut self, name: &LockName, out: &mut ElectionOutput) {
        if self.view.is_some() {
            self.bring_up_to_date(name, out);
            self.enter_or_stand_back(name, out);
            self.end_who_only_try(name, out);
            self.tell(name, out);
        }
        if let Some(election) = self.table.get(name)
            && election.is_idle()
            && election.contest.is_new()
        {
            self.table.remove(name);
        }
    }

    /// Tells the contest whether this member stands, and whether it leads.
    fn bring_up_to_date(&mut self, name: &LockName, out: &mut ElectionOutput) {
        let Some(election) = self.table.get(name) else {
            return;
        };
        let stands = !election.waiting.is_empty() || election.entering.is_some();
        let leading = election.leading.map(|(_, fence)| fence);
        let me = self.me;
        self.contest(name, out, |contest, scene, out| {
            let known = contest.leader().filter(|leader| leader.node == me);
            let known = known.map(|leader| leader.fence);
            if let Some(fence) = leading
                && known != Some(fence)
            {
                contest.entered(scene, fence, out);
            }
            // Before it leaves: a round begins then, in which it may want to lead again.
            contest.set_standing(scene, stands, out);
            if known.is_some() && leading.is_none() {
                contest.left(scene, out);
            }
        });
    }

    /// The nominee asks for the lock; a former nominee does not.
    fn enter_or_stand_back(&mut self, name: &LockName, out: &mut ElectionOutput) {
        let Some(election) = self.table.get_mut(name) else {
            return;
        };
        let is_nominated = election.contest.is_nominated(self.me);
        if !is_nominated {
            if let Some(caller) = election.entering.take() {
                election.waiting.push_front(caller);
                out.orders.push(Order::StandBack(caller.ticket));
            }
        } else if election.entering.is_none()
            && let Some(caller) = election.waiting.pop_front()
        {
            election.entering = Some(caller);
            out.orders.push(Order::Enter(name.clone(), caller));
        }
    }

    /// Who only tries does not wait for another's end.
    fn end_who_only_try(&mut self, name: &LockName, out: &mut ElectionOutput) {
        let Some(election) = self.table.get_mut(name) else {
            return;
        };
        let is_taken = election.contest.is_anothers(self.me)
            || election.entering.is_some()
            || election.leading.is_some();
        let tries = |caller: &Waiting| is_taken && caller.wait == Wait::Try;
        if !election.waiting.iter().any(tries) {
            return;
        }
        for caller in election.waiting.iter().filter(|caller| tries(caller)) {
            self.tickets.remove(&caller.ticket);
            out.events.push(Event::Ended {
                ticket: caller.ticket,
                refusal: Refusal::Busy,
            });
        }
        election.waiting.retain(|caller| !tries(caller));
        self.bring_up_to_date(name, out);
    }

    /// Tells observers what they have not been told.
    fn tell(&mut self, name: &LockName, out: &mut ElectionOutput) {
        let (Some(election), Some(view)) = (self.table.get_mut(name), &self.view) else {
            return;
        };
        let known = election.contest.leader();
        let told = election.told.map(|(leader, _)| leader);
        if known == told {
            return;
        }
        // A new epoch's contest has not heard yet who leads: no news is that it is as it was.
        let is_news = known.is_some() || election.contest.has_heard();
        if !is_news {
            return;
        }
        let incarnation = known.and_then(|leader| {
            let member = view
                .members
                .iter()
                .find(|member| member.node == leader.node)?;
            Some((leader, *member))
        });
        election.told = incarnation;
        let lock = name.clone();
        let leader = incarnation.map(|(leader, _)| leader);
        out.events.push(Event::Leader { lock, leader });
    }

    fn contest(
        &mut self,
        name: &LockName,
        out: &mut ElectionOutput,
        act: impl FnOnce(&mut Contest, &Scene<'_>, &mut ContestOutput),
    ) {
        let Some(election) = self.table.get_mut(name) else {
            return;
        };
        let scene = Scene {
            algorithm: self.algorithm,
            me: self.me,
            members: &self.members,
            silent: &self.silent,
            patience: self.patience,
        };
        let mut contest_out = ContestOutput::default();
        act(&mut election.contest, &scene, &mut contest_out);
        put(name, contest_out, out);
    }
}

impl Election {
    /// Whether nobody here takes part, and nobody is known to lead.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.entering.is_none()
            && self.leading.is_none()
            && self.told.is_none()
            && self.contest.is_idle()
    }
}

/// What a contest wants, with the election's name.
fn put(name: &LockName, from: ContestOutput, out: &mut ElectionOutput) {
    let sends = from.sends.into_iter().map(|(to, round, body)| {
        let lock = name.clone();
        (to, ElectionMessage { lock, round, body })
    });
    out.sends.extend(sends);
    out.timers
        .extend(from.timer.map(|timer| (name.clone(), timer)));
}
