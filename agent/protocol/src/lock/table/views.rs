//! What the beginning and the end of views, of congestion and of this member's incarnation do to all
//! locks.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::witness::Witness;
use super::{Locks, MAX_CLOCK};
use crate::api::{Event, Refusal};
use crate::ids::{Incarnation, LockName, NodeId, Ticket};
use crate::lock::settle::{Lock, LockOutput};
use crate::lock::summary::MAX_IDLE;
use crate::lock::{
    AbandonedMarks, Ending, GrantHistory, HopTimer, Last, LockSpec, LockSummary, Rebuild, Release,
    Summary, build,
};
use crate::membership::View;

impl Locks {
    /// Begins the lock's part in the view in force: builds its engine, if it is not in quarantine.
    pub(super) fn rebuild(&mut self, name: &LockName, summary: Option<&LockSummary>) {
        let Some(lock) = self.table.get_mut(name) else {
            return;
        };
        let Some(spec) = lock.spec.filter(|_| self.view.is_some()) else {
            return;
        };
        let unknown = LockSummary::idle(spec, self.doubt);
        let is_quarantined = summary.map_or(self.quarantines_rest, LockSummary::is_quarantined);
        let summary = summary.unwrap_or(&unknown);
        // A holder's grant counts as this epoch's first. A holder that is inside alone has been
        // told of what was before; with several inside somebody may be still to be told.
        lock.history = GrantHistory {
            counter: u32::from(!summary.holders.is_empty()),
            abandoned: summary.abandoned,
        };
        (lock.entered, lock.ending, lock.block) = (0, Ending::default(), None);
        lock.was_marked = summary.abandoned;
        lock.owes_mark = false;
        lock.quarantine = is_quarantined.then(|| Box::new(summary.clone()));
        if !is_quarantined {
            self.build(name, spec, summary);
        }
    }

    fn build(&mut self, name: &LockName, spec: LockSpec, summary: &LockSummary) {
        let (Some(view), Some(lock)) = (&self.view, self.table.get_mut(name)) else {
            return;
        };
        let members: Vec<_> = view.nodes().collect();
        let rebuild = Rebuild {
            me: self.me,
            members: &members,
            lock: name,
            holders: &summary.holders,
            held: summary.held,
            waiters: &summary.waiters,
            abandoned: summary.abandoned,
        };
        lock.engine = Some(build(spec, &rebuild, &mut self.effects));
    }

    /// The leases of the lost are over: the engines of the locks in quarantine are built.
    pub fn lift(&mut self, out: &mut LockOutput) {
        if self.view.is_none() {
            return;
        }
        self.quarantines_rest = false;
        let quarantined = self.table.iter_mut().filter_map(|(name, lock)| {
            let summary = lock.quarantine.take()?;
            Some((name.clone(), lock.spec?, summary))
        });
        for (name, spec, summary) in quarantined.collect::<Vec<_>>() {
            self.build(&name, spec, &summary);
            self.settle(&name, out);
        }
    }

    /// The view ends. Nobody is granted anything until the next.
    pub fn freeze(&mut self, out: &mut LockOutput) {
        self.recall_all(out);
        match self.view.take() {
            Some(view) => self.witness.saw(view.epoch),
            None => self.witness.missed_a_view(),
        }
        for (name, lock) in &mut self.table {
            lock.freeze(self.others.iter().map(|its| its.node));
            out.hops.push((name.clone(), HopTimer::Clear));
        }
    }

    /// What this member has to tell for the view `next`, also of those whom that has lost. Only while
    /// frozen.
    pub fn summary(&self, next: &View) -> Summary {
        debug_assert!(self.view.is_none(), "a summary is of a frozen table");
        let vouches = self.witness.vouches();
        let unclean = &next.unclean;
        // The incarnation that this member knows goes on, and one before it was lost.
        let stays = |node: NodeId| {
            let mut others = self.others.iter();
            others.any(|its| its.node == node && next.members.contains(its))
        };
        let (mut idle, mut fits) = (0, true);
        let locks = self.table.iter().filter_map(|(name, lock)| {
            if lock.queue.is_empty() {
                if !self.is_worth_telling(lock, unclean) {
                    return None;
                }
                idle += 1;
                if idle > MAX_IDLE {
                    fits = false;
                    return None;
                }
            }
            let vouches = vouches && lock.quarantine.is_none();
            let is_suspect =
                |node: &&NodeId| !vouches || lock.suspects.contains(node) && !stays(**node);
            let summary = LockSummary {
                last: Last {
                    epoch: self.witness.epoch,
                    counter: lock.history.counter,
                    ending: lock.ending,
                },
                abandoned: lock.owes_mark,
                suspects: unclean.iter().filter(is_suspect).copied().collect(),
                spec: lock.spec?,
                holders: lock.queue.held().iter().map(|held| held.id).collect(),
                held: lock
                    .queue
                    .held()
                    .first()
                    .map(|held| held.mode)
                    .unwrap_or_default(),
                waiters: lock
                    .queue
                    .asking()
                    .iter()
                    .map(|asking| asking.request)
                    .collect(),
            };
            Some((name.clone(), summary))
        });
        let locks = locks.collect();
        Summary {
            clock: self.clock,
            epoch: self.witness.epoch,
            locks,
            doubt: self.doubt || !fits,
            is_complete: vouches && self.witness.coordinated && fits && !self.quarantines_rest,
            quarantines_rest: false,
            is_continued: vouches,
            inherits_marks: self.inherited != AbandonedMarks::None,
        }
    }

    /// Whether a lock that nobody here uses must be told of all the same.
    fn is_worth_telling(&self, lock: &Lock, unclean: &[NodeId]) -> bool {
        let may_be_marked = lock.was_marked || lock.owes_mark;
        // Somebody is not there any more, who may have been inside.
        let is_asked = !unclean.is_empty() && self.witness.vouches();
        // Otherwise it would be in doubt anew.
        let is_known = self.doubt && lock.history != GrantHistory::doubtful();
        may_be_marked || is_asked || is_known
    }

    /// What this member knows of locks that were abandoned and not entered since.
    pub(crate) fn marks(&self) -> AbandonedMarks {
        let marks = self.table.values().map(Lock::marks).max();
        marks.unwrap_or_default().max(self.inherited)
    }

    /// A new view is in force: the engine of every lock that is not in quarantine is built anew, and
    /// what callers gave up or left meanwhile is played.
    /// `coordinates`: whether new locks are declared here.
    pub fn install(
        &mut self,
        view: Arc<View>,
        table: &Summary,
        coordinates: bool,
        out: &mut LockOutput,
    ) {
        let members = view.members.iter().copied();
        self.others = members.filter(|its| its.node != self.me).collect();
        self.witness.coordinated = coordinates;
        self.doubt = table.doubt;
        self.quarantines_rest = table.quarantines_rest;
        self.inherited = AbandonedMarks::None;
        self.overflowed = false;
        self.view = Some(view);
        self.clock = self.clock.max(table.clock.min(MAX_CLOCK)) + 1;
        let listed = &self.listed;
        self.table
            .retain(|name, lock| listed.contains_key(name) || !lock.queue.is_empty());
        for lock in self.table.values_mut() {
            // What the view does not know the others have forgotten: it is asked for anew.
            lock.spec = None;
            lock.quarantine = None;
        }
        let listed = listed.iter().map(|(name, spec)| (name.clone(), *spec));
        let in_use = table
            .locks
            .iter()
            .map(|(name, lock)| (name.clone(), lock.spec));
        for (name, spec) in listed.chain(in_use).collect::<Vec<_>>() {
            self.tell_spec(&name, spec, out);
        }
        let names: Vec<_> = self.table.keys().cloned().collect();
        for name in names {
            self.give_up_to_rivals(&name, table.locks.get(&name), out);
            self.rebuild(&name, table.locks.get(&name));
            self.settle(&name, out);
        }
    }

    /// A view has gone on without this incarnation, and another begins. A holder is told that it
    /// holds the lock no longer; holders that do not know of their grant yet (`unaware`) wait
    /// again.
    pub(crate) fn begin_anew(
        &mut self,
        incarnation: Incarnation,
        unaware: &BTreeSet<Ticket>,
        out: &mut LockOutput,
    ) {
        self.freeze(out);
        self.incarnation = incarnation;
        self.witness = Witness::default();
        self.inherited = AbandonedMarks::None;
        self.others.clear();
        for lock in self.table.values_mut() {
            for ticket in lock.queue.begin_anew(unaware) {
                self.tickets.remove(&ticket);
                out.events.push(Event::Lost { ticket });
            }
            // What was known of its grants was known in a view that is over without this member.
            (lock.history, lock.ending) = (GrantHistory::default(), Ending::default());
            (lock.was_marked, lock.owes_mark) = (false, false);
            lock.suspects.clear();
            lock.quarantine = None;
        }
        self.quarantines_rest = false;
    }

    /// Where two sides went on without each other, of one lock a view may leave to this member less
    /// than it told of.
    fn give_up_to_rivals(
        &mut self,
        name: &LockName,
        summary: Option<&LockSummary>,
        out: &mut LockOutput,
    ) {
        let Some(lock) = self.table.get_mut(name) else {
            return;
        };
        let (holders, waiters) = summary.map_or((&[][..], &[][..]), |summary| {
            (&summary.holders, &summary.waiters)
        });
        for ticket in lock.queue.lose_all_but(holders) {
            self.tickets.remove(&ticket);
            out.events.push(Event::Lost { ticket });
        }
        if let Some(caller) = lock.queue.withdraw_unless(waiters)
            && let Some(actual) = lock.spec
        {
            self.tickets.remove(&caller.ticket);
            out.events.push(Event::Ended {
                ticket: caller.ticket,
                refusal: Refusal::NotShareable { actual },
            });
        }
    }

    /// Ends all callers' requests, and passes on what others need. Those who were let in and do not
    /// know of it yet (`unaware`) have waited, and no more.
    pub fn leave(&mut self, unaware: &BTreeSet<Ticket>, out: &mut LockOutput) {
        self.recall_all(out);
        self.open = false;
        for (ticket, name) in core::mem::take(&mut self.tickets) {
            let Some(lock) = self.table.get_mut(&name) else {
                continue;
            };
            let is_unaware = unaware.contains(&ticket);
            let waited = lock.queue.give_up(ticket)
                || is_unaware && lock.queue.release(ticket, Release::Unused);
            if waited {
                out.events.push(Event::Ended {
                    ticket,
                    refusal: Refusal::Closed,
                });
            } else if lock.queue.release(ticket, Release::Given) {
                out.events.push(Event::Lost { ticket });
            }
        }
        let names: Vec<_> = self.table.keys().cloned().collect();
        for name in names {
            self.settle(&name, out);
            if let Some(engine) = self
                .table
                .get_mut(&name)
                .and_then(|lock| lock.engine.as_mut())
            {
                engine.leave(&mut self.effects);
                self.settle(&name, out);
            }
        }
    }

    /// Whether callers' requests are still with engines that have not been told that they ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.table.values().all(|lock| lock.queue.is_empty())
    }

    pub(crate) fn congested(&self) -> &BTreeSet<NodeId> {
        &self.congested
    }

    /// The members to whom nothing is to be added. Callers that waited for one of them go on when
    /// it is not among them any more.
    pub(crate) fn note_congested(&mut self, congested: BTreeSet<NodeId>, out: &mut LockOutput) {
        let eased = !self.congested.is_subset(&congested);
        self.congested = congested;
        if eased {
            let names: Vec<_> = self.table.keys().cloned().collect();
            for name in names {
                self.settle(&name, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
