//! A new view: all engines are made anew of what the members tell.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::steps::AT_ONCE;
use super::{Bare, MEMBER, call};
use crate::checkers::Violation;
use crate::in_order::InOrder;
use distlock_protocol::lock::{
    Effects, GrantHistory, Last, LockSummary, Rebuild, Request, Summary, build,
};
use distlock_protocol::{Mode, NodeId, RequestId};

impl<A> Bare<A> {
    /// A new view: what is under way is gone, all engines are made anew from who is inside and who
    /// waits. Those of `restarted` come back in a new incarnation; what their former incarnation was
    /// granted is taken to be over, and what it waited for is forgotten.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn install(&mut self, restarted: &BTreeSet<NodeId>) -> Result<(), Violation> {
        self.epoch = self
            .epoch
            .next()
            .expect("runs are shorter than 2^31 epochs");
        self.in_flight = 0;
        if let Some((fairness, rounds)) = &mut self.fairness {
            fairness.begins_view();
            rounds.begins_view();
        }
        self.order = self.spec.algorithm.needs_order().then(InOrder::default);
        self.hosts.say(format_args!(
            "epoch {}, with new incarnations of {restarted:?}",
            self.epoch
        ));
        let abandoned = self.is_abandoned(restarted);
        for &node in restarted {
            let process = self.process(node);
            // What an engine knew is made anew in any case.
            let mut seat = self.hosts.stop(node).expect(MEMBER);
            let waits = seat.waiting.take().map(|request| call(process, request.id));
            seat.inside.clear();
            self.hosts.start(node, seat);
            if let Some((fairness, rounds)) = &mut self.fairness
                && let Some(call) = waits
            {
                fairness.ends(call);
                rounds.ends(call);
            }
            self.requests.crashes(process);
            self.exclusion.crashes(process);
            self.abandonment.crashes(process);
            self.exclusion.begins(node, self.hosts.now());
        }
        for &node in &self.members {
            let process = self.hosts.process(node).expect(MEMBER);
            self.abandonment.installs(process, self.epoch);
        }
        let inside = self.seats().flat_map(|seat| &seat.inside);
        let holders: Vec<RequestId> = inside.map(|(id, _)| *id).collect();
        let held = self.seats().flat_map(|seat| seat.inside.values()).next();
        let held = held.copied().unwrap_or_default();
        let mut waiters: Vec<Request> = self.seats().filter_map(|seat| seat.waiting).collect();
        waiters.sort_by_key(|request| request.stamp);
        let clocks = self.seats().map(|seat| seat.clock);
        let clock = clocks.max().unwrap_or_default() + 1;
        let mut said = Vec::new();
        for &me in &self.members {
            let mut out = Effects::default();
            let rebuild = Rebuild {
                me,
                members: &self.members,
                lock: &self.lock,
                holders: &holders,
                held,
                waiters: &waiters,
                abandoned,
            };
            let engine = build(self.spec, &rebuild, &mut out);
            said.push((me, engine, out));
        }
        let mut outputs = Vec::new();
        for (me, engine, out) in said {
            outputs.push((me, out));
            let process = self.process(me);
            self.hosts.set_alarm(process, None, AT_ONCE);
            let seat = self.seat(me);
            // A new epoch outranks every counter of the old one.
            (seat.clock, seat.engine) = (clock, Some(engine));
            let counter = u32::from(!holders.is_empty());
            // A holder that is inside alone has been told.
            let is_told = !holders.is_empty() && held == Mode::Exclusive;
            let abandoned = abandoned && !is_told;
            seat.history = GrantHistory { counter, abandoned };
            (seat.entered, seat.owes_mark, seat.block) = (0, false, None);
        }
        for (me, out) in outputs {
            self.carry_out(me, out)?;
        }
        Ok(())
    }

    /// Whether the view that begins has to tell its first entry that a holder before ended inside,
    /// by what the members say that are not `restarted`.
    fn is_abandoned(&mut self, restarted: &BTreeSet<NodeId>) -> bool {
        let mut table = Summary::default();
        for &me in self.members.iter().filter(|me| !restarted.contains(me)) {
            let seat = self.hosts.actor_mut(me).expect(MEMBER);
            let Some(engine) = &seat.engine else {
                continue;
            };
            let (ending, owes) =
                seat.history
                    .end_view(seat.entered, engine.mark(), self.spec.permits);
            let others = restarted.iter().copied();
            let summary = LockSummary {
                spec: self.spec,
                holders: seat.inside.keys().copied().collect(),
                held: seat.inside.values().next().copied().unwrap_or_default(),
                waiters: Vec::new(),
                last: Last {
                    epoch: self.epoch,
                    counter: seat.history.counter,
                    ending,
                },
                abandoned: seat.owes_mark || owes,
                suspects: others.filter(|&node| engine.may_be_inside(node)).collect(),
            };
            table.merge(Summary {
                locks: BTreeMap::from([(self.lock.clone(), summary)]),
                is_complete: true,
                ..Summary::default()
            });
        }
        let restarted: Vec<NodeId> = restarted.iter().copied().collect();
        table.conclude(&restarted);
        let summary = table.locks.get(&self.lock);
        summary.map_or(table.doubt, |summary| summary.abandoned)
    }
}
