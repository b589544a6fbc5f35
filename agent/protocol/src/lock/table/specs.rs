//! How locks are served that no file lists: the coordinator of the view declares it.

use super::Locks;
use crate::api::{Event, Refusal};
use crate::ids::LockName;
use crate::lock::LockSpec;
use crate::lock::settle::LockOutput;

impl Locks {
    /// How the lock is served, or would be, if nobody's wish can have it served as this one says.
    pub(crate) fn instead_of(&self, name: &LockName, wish: Option<LockSpec>) -> Option<LockSpec> {
        wish.filter(|wish| !self.failure.can_serve(*wish))?;
        let known = self.table.get(name).and_then(|lock| lock.spec);
        let listed = self.listed.get(name).copied();
        Some(known.or(listed).unwrap_or(self.default))
    }

    /// Here is the coordinator: somebody asks how `name` is served. The first wish decides, and
    /// holds as long as the lock is in use. `None` when there is no room for another lock.
    pub(crate) fn declare(
        &mut self,
        name: &LockName,
        wish: Option<LockSpec>,
        out: &mut LockOutput,
    ) -> Option<LockSpec> {
        let (failure, default) = (self.failure, self.default);
        let Some(lock) = self.lock(name) else {
            out.wants_view = true;
            return None;
        };
        if let Some(spec) = lock.spec {
            return Some(spec);
        }
        let spec = wish
            .filter(|wish| failure.can_serve(*wish))
            .unwrap_or(default);
        self.learn(name, spec, out);
        Some(spec)
    }

    /// The coordinator's answer: how `name` is served; `None` when it has no room.
    pub(crate) fn declared(
        &mut self,
        name: &LockName,
        spec: Option<LockSpec>,
        out: &mut LockOutput,
    ) {
        let Some(lock) = self.table.get_mut(name) else {
            return;
        };
        match (lock.spec, spec) {
            (None, Some(spec)) => self.learn(name, spec, out),
            (None, None) => {
                for caller in lock.queue.take_waiting() {
                    self.tickets.remove(&caller.ticket);
                    let refusal = Refusal::Limit;
                    out.events.push(Event::Ended {
                        ticket: caller.ticket,
                        refusal,
                    });
                }
                self.forget_if_unused(name);
            }
            (Some(_), _) => {}
        }
    }

    /// From now on it is known how `name` is served.
    pub(super) fn learn(&mut self, name: &LockName, spec: LockSpec, out: &mut LockOutput) {
        self.tell_spec(name, spec, out);
        self.rebuild(name, None);
        self.settle(name, out);
    }

    /// The lock is served so. Callers who wished otherwise are refused.
    pub(super) fn tell_spec(&mut self, name: &LockName, spec: LockSpec, out: &mut LockOutput) {
        let lock = self.table.entry(name.clone()).or_default();
        lock.spec = Some(spec);
        for caller in lock.queue.take_waiting() {
            let refusal = if caller.wish.is_some_and(|wish| wish != spec) {
                Refusal::WrongSpec { actual: spec }
            } else if !spec.can_serve(caller.mode) {
                Refusal::NotShareable { actual: spec }
            } else {
                lock.queue.push(caller);
                continue;
            };
            self.tickets.remove(&caller.ticket);
            out.events.push(Event::Ended {
                ticket: caller.ticket,
                refusal,
            });
        }
    }
}
