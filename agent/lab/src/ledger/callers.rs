//! Callers, and what they are told.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{Local, World};
use crate::checkers::{Call, Process, Violation, violation};
use distlock_protocol::ledger::{LedgerInput, Notice, StoreRefusal};
use distlock_protocol::{
    Algorithm, Command, Event, LockName, LockSpec, Mode, Refusal, Release, Ticket, Time, Wait,
};

/// A caller that waits, or is inside.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    lock: LockName,
    mode: Mode,
    wait: Wait,
    since: Time,
    pub(super) is_inside: bool,
    /// Whether it comes again after it has left.
    comes_again: bool,
}

impl World {
    /// A caller wants something.
    pub(super) fn want(&mut self, process: Process) -> Result<(), Violation> {
        if self.is_healed || self.agents[&process.node].is_closing {
            return Ok(());
        }
        self.change_observed(process)?;
        let wishes = self.plan.wishes;
        let at = self.choices.index(self.plan.locks.len());
        let (lock, permits) = self.plan.locks[at].clone();
        let is_shared = permits == NonZeroU32::MIN && self.choices.chance(wishes.shared);
        let mode = if is_shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let wait = if self.choices.chance(wishes.tries) {
            Wait::Try
        } else if self.choices.chance(wishes.leases) {
            Wait::Lease
        } else {
            Wait::Cancelled
        };
        let said = self.choices.chance(wishes.wrong).then(|| {
            let other = permits.saturating_add(1);
            served(if self.choices.chance(500) {
                other
            } else {
                permits
            })
        });
        let ticket = self.ask(process, &lock, mode, wait, said, true)?;
        if self.choices.chance(wishes.cancels) {
            let after = self.choices.exponential(self.plan.stay * 2);
            self.plan_for(after, process, Local::GiveUp(ticket));
        }
        Ok(())
    }

    /// All agents want every lock once.
    pub(super) fn want_all(&mut self) {
        let processes: Vec<Process> = self.agents.values().map(|it| it.process).collect();
        for process in processes {
            for (lock, _) in self.plan.locks.clone() {
                let asked = self.ask(
                    process,
                    &lock,
                    Mode::Exclusive,
                    Wait::Cancelled,
                    None,
                    false,
                );
                asked.expect("a fresh ticket");
            }
        }
    }

    fn ask(
        &mut self,
        process: Process,
        lock: &LockName,
        mode: Mode,
        wait: Wait,
        said: Option<LockSpec>,
        comes_again: bool,
    ) -> Result<Ticket, Violation> {
        let now = self.now;
        let permits = self.judge.permits(lock);
        let agent = self.agents.get_mut(&process.node).expect("it runs there");
        agent.tickets += 1;
        let ticket = Ticket(agent.tickets);
        let caller = Caller {
            lock: lock.clone(),
            mode,
            wait,
            since: now,
            is_inside: false,
            comes_again,
        };
        agent.callers.insert(ticket, caller);
        // Who says nothing has the agent's file say it.
        let wish = Some(said.unwrap_or_else(|| served(permits)));
        self.judge
            .asks(now, Call { process, ticket }, lock, mode, wait, wish)?;
        let command = Command::Acquire {
            ticket,
            lock: lock.clone(),
            spec: said,
            mode,
            wait,
        };
        self.input(process.node, LedgerInput::Command(&command))?;
        Ok(ticket)
    }

    /// A caller waits no longer.
    pub(super) fn give_up(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        let agent = &self.agents[&process.node];
        if agent.callers.get(&ticket).is_none_or(|it| it.is_inside) {
            return Ok(());
        }
        self.judge.requests.cancels(Call { process, ticket });
        let command = Command::Cancel { ticket };
        self.input(process.node, LedgerInput::Command(&command))
    }

    /// A caller leaves, or ends inside.
    pub(super) fn exit(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        let agent = self.agents.get_mut(&process.node).expect("it runs there");
        let Some(caller) = agent.callers.remove(&ticket) else {
            return Ok(());
        };
        let ends = !self.is_healed && self.choices.chance(self.plan.wishes.ends);
        let how = if ends {
            Release::Abandoned
        } else {
            Release::Given
        };
        let call = Call { process, ticket };
        self.judge.leaves(self.now, call, &caller.lock, how);
        let command = Command::Release { ticket, how };
        self.input(process.node, LedgerInput::Command(&command))?;
        self.comes_again(process, &caller);
        Ok(())
    }

    fn comes_again(&mut self, process: Process, caller: &Caller) {
        if caller.comes_again && !self.is_healed {
            let after = self.choices.exponential(self.plan.pause);
            self.plan_for(after, process, Local::Want);
        }
    }

    /// Whether somebody is inside.
    pub(super) fn has_holders(&self) -> bool {
        let mut agents = self.agents.values();
        agents.any(|agent| agent.callers.values().any(|caller| caller.is_inside))
    }

    /// A ledger says something.
    pub(super) fn hears(&mut self, process: Process, event: &Event) -> Result<(), Violation> {
        let now = self.now;
        let agent = self.agents.get_mut(&process.node).expect("it runs there");
        match event {
            Event::Granted {
                ticket,
                fence,
                previous,
            } => {
                let call = Call {
                    process,
                    ticket: *ticket,
                };
                let outlasted = match agent.callers.get_mut(ticket) {
                    Some(caller) => {
                        caller.is_inside = true;
                        self.report.shared += u64::from(caller.mode == Mode::Shared);
                        caller.wait == Wait::Try
                            && now.since(caller.since) > distlock_protocol::MAX_TRY_TIME * 2
                    }
                    None => false,
                };
                let boot = agent.heard_boot().unwrap_or(self.boot);
                self.trace.mix_u64(fence.as_u64());
                self.report.grants += 1;
                self.report.outwaited += u64::from(outlasted);
                self.report.abandoned += u64::from(previous.is_abandoned());
                let after = self.choices.exponential(self.plan.stay);
                self.plan_for(after, process, Local::Exit(*ticket));
                self.judge.granted(now, call, *fence, *previous, boot)
            }
            Event::Ended { ticket, refusal } => {
                let call = Call {
                    process,
                    ticket: *ticket,
                };
                match refusal {
                    Refusal::Cancelled => self.report.cancelled += 1,
                    Refusal::Busy => self.report.busy += 1,
                    Refusal::NoAnswer { .. } => self.report.no_answer += 1,
                    Refusal::WrongSpec { .. } => self.report.wrong_spec += 1,
                    _ => {}
                }
                let caller = agent.callers.remove(ticket);
                self.judge.requests.ends(now, call, refusal)?;
                let Some(caller) = caller else {
                    return Ok(());
                };
                if *refusal == Refusal::Busy {
                    self.was_busy(process, &caller)?;
                }
                self.comes_again(process, &caller);
                Ok(())
            }
            Event::Lost { ticket } => {
                let call = Call {
                    process,
                    ticket: *ticket,
                };
                self.report.lost += 1;
                let caller = agent.callers.remove(ticket);
                self.judge.lost(now, call)?;
                if let Some(caller) = caller {
                    self.comes_again(process, &caller);
                }
                Ok(())
            }
            Event::Lease { until } => {
                let session = agent.ledger.as_ref();
                let key = session.and_then(|it| Some(it.session_key(it.session()?)));
                let sent = key.and_then(|key| self.renewals.get(&key));
                if sent.is_none_or(|sent| *until > *sent + agent.lease) {
                    return Err(violation!(
                        now,
                        Leases,
                        "{process} says that its lease runs until {until:?}, and the last renewal \
                         that was done was sent at {sent:?}"
                    ));
                }
                let end = agent.clock.when(*until);
                self.report.revived += u64::from(self.judge.extends(now, process, end)?);
                Ok(())
            }
            Event::Excluded { .. } => {
                self.dead.extend(agent.session.take());
                self.judge.loses_session();
                self.judge.requests.excludes(now, process)
            }
            Event::Left => {
                self.report.closed += 1;
                self.judge.requests.left(now, process)?;
                if agent.connection.is_none() {
                    self.left_behind.extend(agent.session.clone());
                }
                self.stop(process.node);
                Ok(())
            }
            other => Err(violation!(now, Requests, "{process} says {other:?}")),
        }
    }

    /// A caller was told that the lock is not free: there must have been somebody.
    fn was_busy(&self, process: Process, caller: &Caller) -> Result<(), Violation> {
        let agent = &self.agents[&process.node];
        let key = agent.ledger.as_ref().map(|it| it.lock_key(&caller.lock));
        let used = key.and_then(|key| self.store.used(self.now, &key));
        // Who asked the same agent before goes before.
        let mut others = agent.callers.values();
        let is_behind = others.any(|other| other.lock == caller.lock);
        if self.plan.faults.stale == 0 && !is_behind && used.is_none_or(|used| used < caller.since)
        {
            return Err(violation!(
                self.now,
                Requests,
                "{process} is told that {} is not free, and it was since {used:?}",
                caller.lock
            ));
        }
        Ok(())
    }

    /// A ledger refuses a request for a reason that only stores have.
    pub(super) fn refused(
        &mut self,
        process: Process,
        ticket: Ticket,
        why: &StoreRefusal,
    ) -> Result<(), Violation> {
        let now = self.now;
        let agent = self.agents.get_mut(&process.node).expect("it runs there");
        let Some(caller) = agent.callers.remove(&ticket) else {
            return Err(violation!(now, Requests, "{ticket:?} is refused twice"));
        };
        let waited = agent
            .clock
            .shows(now)
            .since(agent.clock.shows(caller.since));
        let is_right = matches!(why, StoreRefusal::Unreachable { .. })
            && caller.wait == Wait::Lease
            && waited >= agent.lease;
        if !is_right {
            return Err(violation!(
                now,
                Requests,
                "{process} refuses {caller:?} after {waited:?}: {why}"
            ));
        }
        self.report.unreachable += 1;
        let call = Call { process, ticket };
        // As if it had been cancelled: that it ends, and once, is what is judged.
        self.judge.requests.cancels(call);
        self.judge.requests.ends(now, call, &Refusal::Cancelled)?;
        self.comes_again(process, &caller);
        Ok(())
    }

    /// A ledger tells an operator something.
    pub(super) fn notices(&mut self, process: Process, notice: &Notice) -> Result<(), Violation> {
        let is_right = match notice {
            Notice::StoreForgot { .. } => self.plan.kind.may_forget() && self.report.rollbacks > 0,
            Notice::StoreReplaced => self.plan.kind == super::plan::Kind::Restored,
            Notice::Refused(_) => false,
        };
        if is_right {
            return Ok(());
        }
        Err(violation!(
            self.now,
            Requests,
            "{process} notices {notice:?}"
        ))
    }
}

/// How a lock with so many permits is served.
pub(super) const fn served(permits: NonZeroU32) -> LockSpec {
    if permits.get() == 1 {
        LockSpec::exclusive(Algorithm::Manager)
    } else {
        LockSpec::counting(permits)
    }
}
