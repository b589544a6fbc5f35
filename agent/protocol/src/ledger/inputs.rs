//! What comes in, and where it goes.

use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{Ledger, Notice, OpId, Purpose, Reply, Stage, StoreEvent, StoreFacts, Timer};
use crate::api::{Command, Event};
use crate::ids::LockName;
use crate::time::Time;

impl Ledger {
    pub(super) fn command(&mut self, now: Time, command: &Command) {
        match command {
            Command::Acquire {
                ticket,
                lock,
                spec,
                mode,
                wait,
            } => {
                let permits = spec.map(|spec| spec.permits);
                self.acquire(now, *ticket, lock, permits, (*mode, *wait));
            }
            Command::Campaign {
                ticket, lock, wait, ..
            } => {
                let permits = Some(NonZeroU32::MIN);
                let terms = (crate::lock::Mode::Exclusive, *wait);
                self.acquire(now, *ticket, lock, permits, terms);
            }
            Command::Release { ticket, how } => self.release(*ticket, *how),
            Command::Cancel { ticket } => self.cancel(*ticket),
            Command::Leave => self.close(now),
            Command::Change { .. } => self.tell(Event::Unchangeable),
            // A store lends nothing, and carries nothing from agent to agent.
            Command::Borrow { .. }
            | Command::Return { .. }
            | Command::Find { .. }
            | Command::Note { .. } => {}
        }
    }

    pub(super) fn store_event(&mut self, now: Time, event: StoreEvent) {
        match event {
            StoreEvent::Up(facts) => self.connected(now, facts),
            StoreEvent::Down(reason) => {
                self.link.facts = None;
                self.link.reason = reason;
                let ids: Vec<OpId> = self.ops.keys().copied().collect();
                for id in ids {
                    self.reply(now, id, Reply::Unknown);
                }
            }
            StoreEvent::Reply(id, reply) => self.reply(now, id, reply),
            StoreEvent::Changed(key, entry) => self.hint(now, &key, entry),
            StoreEvent::Missed => {
                let names: Vec<LockName> = self.locks.keys().cloned().collect();
                for name in names {
                    self.read_again(&name);
                }
            }
        }
    }

    fn connected(&mut self, now: Time, facts: StoreFacts) {
        let is_other = self
            .link
            .identity
            .as_ref()
            .is_some_and(|before| *before != facts.identity);
        self.link.identity = Some(facts.identity.clone());
        self.link.reason = String::new();
        self.link.answered = now;
        self.link.fence_floor = self.wall.fence_floor(now);
        let may_forget = facts.may_forget;
        let mut former = None;
        self.link.facts = Some(facts);
        if is_other {
            self.notice(Notice::StoreReplaced);
            former = self.session.as_ref().map(|session| session.name.clone());
            self.lose_session(now);
            self.forget_records();
        }
        if is_other || may_forget {
            // What was known may be no more.
            self.forget_watches();
            let names: Vec<LockName> = self.locks.keys().cloned().collect();
            for name in names {
                self.doubt(&name);
            }
        }
        self.dirty.extend(self.locks.keys().cloned());
        for name in self.watches.keys() {
            self.timers.set(Timer::Watch(name.clone()), now);
        }
        if let Some(former) = former {
            self.end_former(now, former);
        }
        self.timers.set(Timer::Session, now);
    }

    fn reply(&mut self, now: Time, id: OpId, reply: Reply) {
        let Some(purpose) = self.ops.remove(&id) else {
            return;
        };
        match &reply {
            Reply::Unknown => self.counters.unknown += 1,
            Reply::Conflict(_) => {
                self.counters.conflicts += 1;
                self.link.answered = now;
            }
            _ => self.link.answered = now,
        }
        match purpose {
            Purpose::Renew(name) => self.renewal_answered(now, &name, reply),
            Purpose::EndSession(name) => self.session_ended(now, &name, reply),
            Purpose::Read(name) => self.lock_read(now, &name, id, reply),
            Purpose::Confirm(name, round) => self.confirmed(now, &name, round, (id, reply)),
            Purpose::Write(name) => self.lock_written(now, &name, id, reply),
            Purpose::Watch(name) => self.watch_read(now, &name, reply),
            Purpose::Kill(name) => self.killed(now, &name, reply),
            Purpose::List => self.listed(now, reply),
            Purpose::Collect(name) => self.collected(&name, &reply),
        }
    }

    pub(super) fn timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                // What is due is looked at anyway.
                Timer::Session => {}
                Timer::Lock(name) => {
                    self.dirty.insert(name);
                }
                Timer::Watch(name) => self.watch(now, &name),
                Timer::Request(ticket) => self.waited_enough(now, ticket),
                Timer::Close => self.closed(),
                Timer::Collect => self.collect(now),
            }
        }
    }

    /// Does all that follows from what has changed.
    pub(super) fn settle(&mut self, now: Time) {
        if self.stage == Stage::Closed {
            return;
        }
        loop {
            while let Some(name) = self.dirty.pop_first() {
                self.reconcile(now, &name);
                self.tell_leader(&name);
                self.count(&name);
            }
            debug_assert!(self.is_counted(), "what changes a lock marks it");
            self.drive_session(now);
            if self.dirty.is_empty() {
                break;
            }
        }
        self.finish_closing();
    }
}
