//! What only who runs the loop does: of each round, and of when the next one is due.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use crate::protocol::{Input, NodeId, Record, Time};
use crate::runtime::api::error::SessionEnd;
use crate::runtime::net::aead::KeyRing;
use crate::runtime::net::transport::{Received, Transport};
use crate::runtime::os::clock;
use crate::runtime::shared::arbiter::Members;
use crate::runtime::shared::core_guard::{CoreGuard, Phase};
use crate::runtime::shared::entry::Task;
use crate::runtime::shared::wakeup::Wakeup;

/// While threads come and go the agent sleeps no longer than this, so that the retransmission
/// timer of an ordinary request lies after its next wake-up.
const SHORT_SLEEP: Duration = Duration::from_millis(2);
/// How long after a thread's last step the agent still sleeps shortly.
const ACTIVE: Duration = Duration::from_millis(20);

impl CoreGuard<'_> {
    /// Whether something may be at the sockets of which no event tells.
    pub(crate) fn must_look(&self) -> bool {
        let members = self.core.members();
        let transport = members.and_then(|members| members.transport.as_ref());
        let next = transport.and_then(Transport::next_look);
        next.is_some_and(|at| at <= clock::now())
    }

    /// Takes datagrams off the socket and steps the protocol with each, at most `limit`; whether
    /// there may be more.
    pub(crate) fn receive(&mut self, limit: usize) -> bool {
        let Some(members) = self.core.members_mut() else {
            #[cfg(feature = "store")]
            return self.receive_from_store();
            #[cfg(not(feature = "store"))]
            return false;
        };
        let mut buffer = mem::take(&mut members.buffer);
        let mut more = true;
        members
            .transport()
            .iter_mut()
            .for_each(|it| it.begin_turn());
        for _ in 0..limit {
            let members = self.core.members_mut();
            let Some(transport) = members.and_then(Members::transport) else {
                break;
            };
            match transport.receive(&mut buffer) {
                Received::Datagram { from, at } => {
                    self.step(Input::Datagram {
                        from,
                        bytes: &buffer[at],
                    });
                }
                Received::Dropped => {}
                Received::Empty => {
                    more = false;
                    break;
                }
            }
        }
        if let Some(members) = self.core.members_mut() {
            members.buffer = buffer;
        }
        more && self.end_of_session().is_none()
    }

    /// Steps the protocol if its timer has run out; ends a leave that took too long.
    pub(crate) fn expire(&mut self) {
        let now = clock::now();
        if self.core.arbiter.poll_timeout().is_some_and(|at| at <= now) {
            self.step(Input::Timeout);
        }
        if let Some(transport) = self.core.members_mut().and_then(Members::transport) {
            transport.report();
            transport.open_wanted();
        }
        match self.core.phase {
            Phase::Draining { deadline } if deadline <= now => {
                // Without a goodbye, and with a record that says so: who comes after this incarnation
                // waits out what its clients may still do.
                tracing::warn!(
                    event = "clients-stay",
                    "clients still hold locks one lease after they were asked for them"
                );
                self.end(SessionEnd::Closed);
            }
            Phase::Leaving { deadline } if deadline <= now => self.end(SessionEnd::Closed),
            _ => {}
        }
    }

    /// The group's keys are these from now on.
    pub(crate) fn change_keys(&mut self, keys: KeyRing) {
        if let Some(transport) = self.core.members_mut().and_then(Members::transport) {
            transport.change_keys(keys);
        }
    }

    /// What is to be put on disk now.
    pub(crate) fn take_persist(&mut self) -> Option<Record> {
        self.core.members_mut()?.persist.take()
    }

    /// What became of the record that was last taken: why it is not on disk; and how long it took.
    pub(crate) fn persisted(&mut self, outcome: Result<(), String>, took: Duration) {
        self.core.measured.state_write.note(took);
        match outcome {
            Ok(()) => self.step(Input::Persisted),
            Err(what) => self.end(SessionEnd::State { what }),
        }
    }

    pub(crate) fn take_tasks(&mut self) -> VecDeque<Task> {
        mem::take(&mut self.core.tasks)
    }

    /// What another agent sent first of what has not been read.
    pub(crate) fn take_note(&mut self) -> Option<(NodeId, Vec<u8>)> {
        self.core.members_mut()?.notes.pop_front()
    }

    /// Until when the loop may sleep, which also wants to go round at `also`; its thread must do so
    /// right after this turn, for callers the alarm is set. `None`: until something happens.
    pub(crate) fn plan(&mut self, also: Option<Time>) -> Option<Time> {
        let mut until = self.core.next_deadline().into_iter().chain(also).min();
        if self.core.has_work() {
            until = Some(Time::ZERO);
        }
        match &self.shared.wakeup {
            // Under the mutex, so that of two threads that plan the later has the last word.
            Wakeup::Callers(alarm) => alarm.set(until),
            // It stays awake.
            Wakeup::Thread(_) if until == Some(Time::ZERO) => return until,
            Wakeup::Thread(_) => {
                let now = clock::now();
                if now.since(self.core.active_at) < ACTIVE {
                    let short = now + SHORT_SLEEP;
                    until = Some(until.map_or(short, |until| until.min(short)));
                }
            }
        }
        self.core.sleeps_until = Some(until.unwrap_or(Time::MAX));
        until
    }

    /// Until when whoever runs the loop may leave it alone; `None` while it runs.
    pub(crate) fn sleeps_until(&self) -> Option<Time> {
        self.core.sleeps_until
    }

    /// Says that the agent thread is awake, and by how much too late.
    pub(crate) fn awake(&mut self, late: Duration) {
        if late > Duration::ZERO {
            self.core.measured.loop_stall.note(late);
        }
        self.core.sleeps_until = None;
    }
}
