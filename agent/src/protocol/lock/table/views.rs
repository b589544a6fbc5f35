//! What the beginning and the end of views, of congestion and of this member's life do to all locks.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Locks, MAX_CLOCK};
use crate::protocol::face::{Event, Refusal};
use crate::protocol::ids::{LockName, NodeId};
use crate::protocol::lock::settle::LockOutput;
use crate::protocol::lock::{HopTimer, LockSummary, Rebuild, Summary, build};
use crate::protocol::membership::View;

impl Locks {
    /// Builds the lock's engine for the view in force.
    pub(super) fn rebuild(&mut self, name: &LockName, summary: Option<&LockSummary>) {
        let Some(view) = &self.view else { return };
        let Some(lock) = self.table.get_mut(name) else {
            return;
        };
        let Some(spec) = lock.spec else { return };
        let members: Vec<_> = view.nodes().collect();
        let rebuild = Rebuild {
            me: self.me,
            members: &members,
            lock: name,
            holders: summary.map_or(&[], |summary| &summary.holders),
            held: summary.map(|summary| summary.held).unwrap_or_default(),
            waiters: summary.map_or(&[], |summary| &summary.waiters),
        };
        // A holder's grant counts as this epoch's first: nobody after it can take the lock for
        // abandoned.
        lock.counter = u32::from(!rebuild.holders.is_empty());
        lock.engine = Some(build(spec, &rebuild, &mut self.effects));
    }

    /// The view ends. Nobody is granted anything until the next.
    pub(crate) fn freeze(&mut self, out: &mut LockOutput) {
        self.view = None;
        for (name, lock) in &mut self.table {
            lock.engine = None;
            out.hops.push((name.clone(), HopTimer::Clear));
        }
    }

    /// What this member has to tell. Only while frozen.
    pub(crate) fn summary(&self) -> Summary {
        debug_assert!(self.view.is_none(), "a summary is of a frozen table");
        let in_use = self.table.iter().filter(|(_, lock)| !lock.queue.is_empty());
        let locks = in_use.filter_map(|(name, lock)| {
            let summary = LockSummary {
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
        Summary {
            clock: self.clock,
            locks: locks.collect(),
        }
    }

    /// A new view is in force: every engine is built anew, and what callers gave up or left
    /// meanwhile is played.
    pub(crate) fn install(&mut self, view: Arc<View>, table: &Summary, out: &mut LockOutput) {
        self.view = Some(view);
        self.clock = self.clock.max(table.clock.min(MAX_CLOCK)) + 1;
        let listed = &self.listed;
        self.table
            .retain(|name, lock| listed.contains_key(name) || !lock.queue.is_empty());
        for lock in self.table.values_mut() {
            // What the view does not know the others have forgotten: it is asked for anew.
            lock.spec = None;
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
            self.rebuild(&name, table.locks.get(&name));
            self.settle(&name, out);
        }
    }

    /// Ends all callers' requests, and passes on what others need.
    pub(crate) fn leave(&mut self, out: &mut LockOutput) {
        self.open = false;
        for (ticket, name) in core::mem::take(&mut self.tickets) {
            let Some(lock) = self.table.get_mut(&name) else {
                continue;
            };
            if lock.queue.give_up(ticket) {
                out.events.push(Event::Ended {
                    ticket,
                    refusal: Refusal::Closed,
                });
            } else if lock.queue.release(ticket) {
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
