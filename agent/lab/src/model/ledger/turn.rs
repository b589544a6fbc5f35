//! One step from a state to the next.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use super::{
    ABANDONED, ALL_ENTERED, Action, Agent, CANCEL_MEETS_UNKNOWN, Checkers, DECLARED_DEAD, ENTERED,
    LEASE, LedgerModel, REVIVED, State, Store, clock, lock,
};
use crate::checkers::{Call, Process, Terms, Violation, violation};
use crate::model::place;
use distlock_protocol::ledger::{
    Ledger, LedgerConfig, LedgerInput, LedgerOutput, Op, Reply, StoreEvent, StoreFacts,
};
use distlock_protocol::{Command, Epoch, Event, Mode, NodeId, Release, Ticket, Time, Wait};

/// What one agent does in one step.
pub(super) struct Turn<'a> {
    model: &'a LedgerModel,
    pub(super) next: State,
    process: Process,
    agent: Option<Agent>,
    store: Store,
    checkers: Checkers,
}

impl<'a> Turn<'a> {
    pub(super) fn new(model: &'a LedgerModel, state: &State, node: NodeId) -> Self {
        let incarnation = state.incarnations[place(node)];
        Self {
            model,
            process: Process { node, incarnation },
            agent: state.agents[place(node)].as_deref().cloned(),
            store: (*state.store).clone(),
            checkers: (*state.checkers).clone(),
            next: state.clone(),
        }
    }

    pub(super) fn finish(mut self) -> State {
        let at = place(self.process.node);
        self.next.incarnations[at] = self.process.incarnation;
        let pool = &self.model.ledgers;
        self.next.agents[at] = self.agent.map(|agent| pool.share(agent));
        self.next.store = self.model.stores.share(self.store);
        self.next.checkers = self.model.checkers.share(self.checkers);
        self.next
    }

    fn local(&self) -> Time {
        clock(self.process.node).shows(self.next.now)
    }

    pub(super) fn begin(&mut self) {
        self.process.incarnation += 1;
        let node = u64::from(self.process.node.as_u16());
        let config = LedgerConfig {
            group: "g".to_string(),
            lease: LEASE,
            lock_delay: Duration::ZERO,
            host: "h".to_string(),
            permits: BTreeMap::new(),
            collect_every: None,
            seed: node << 32 | u64::from(self.process.incarnation),
        };
        let mut ledger = Ledger::new(config, self.local());
        let facts = StoreFacts {
            may_forget: false,
            doubts: Vec::new(),
            identity: "s".to_string(),
        };
        ledger.handle(self.local(), LedgerInput::Store(StoreEvent::Up(facts)));
        self.agent = Some(Agent {
            ledger,
            asked: Vec::new(),
            waiting: None,
            inside: None,
            until: Time::ZERO,
        });
    }

    pub(super) fn play(&mut self, action: &Action) -> Result<(), Violation> {
        let (now, process) = (self.next.now, self.process);
        match action {
            Action::Restart(_) => {
                self.next.left.restarts -= 1;
                self.begin();
                return Ok(());
            }
            Action::Crash(_) => {
                self.next.left.crashes -= 1;
                // What it has asked may be done all the same.
                if let Some(agent) = self.agent.take() {
                    let asked = agent.asked.into_iter().map(|(_, op)| op);
                    self.store.late.extend(asked.filter(changes));
                }
                self.checkers.exclusion.crashes(process);
                self.checkers.requests.crashes(process);
                return Ok(());
            }
            _ => {}
        }
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        match action {
            Action::Want(node) => {
                let left = &mut self.next.rounds[place(*node)];
                *left -= 1;
                let round = u64::from(self.model.bounds.rounds - *left);
                let ticket = Ticket(round);
                agent.waiting = Some(ticket);
                let (mode, wait) = (Mode::Exclusive, Wait::Cancelled);
                let terms = Terms { wait, wish: None };
                let call = Call { process, ticket };
                let requests = &mut self.checkers.requests;
                requests.asks(now, call, lock(), mode, terms)?;
                let command = Command::Acquire {
                    ticket,
                    lock: lock(),
                    spec: None,
                    mode,
                    wait,
                };
                self.input(LedgerInput::Command(&command))
            }
            Action::Cancel(_) => {
                let Some(ticket) = agent.waiting else {
                    return Ok(());
                };
                self.next.left.cancels -= 1;
                if !self.store.late.is_empty() {
                    self.next.seen.note(CANCEL_MEETS_UNKNOWN);
                }
                self.checkers.requests.cancels(Call { process, ticket });
                self.input(LedgerInput::Command(&Command::Cancel { ticket }))
            }
            Action::Leave(_) => {
                let Some(ticket) = agent.inside.take() else {
                    return Ok(());
                };
                let call = Call { process, ticket };
                self.checkers.requests.releases(call);
                self.checkers.exclusion.leaves(call);
                let how = Release::Given;
                self.input(LedgerInput::Command(&Command::Release { ticket, how }))
            }
            Action::Done(_) => {
                let (id, op) = agent.asked.remove(0);
                let reply = self.store.apply(&op);
                self.input(LedgerInput::Store(StoreEvent::Reply(id, reply)))
            }
            Action::Unknown(_) => {
                self.next.left.unknown -= 1;
                let (id, op) = agent.asked.remove(0);
                self.store.late.extend(Some(op).filter(changes));
                self.input(LedgerInput::Store(StoreEvent::Reply(id, Reply::Unknown)))
            }
            _ => self.input(LedgerInput::Timeout),
        }
    }

    fn input(&mut self, input: LedgerInput<'_>) -> Result<(), Violation> {
        let local = self.local();
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        let before = *agent.ledger.counters();
        agent.ledger.handle(local, input);
        let mut said = Vec::new();
        while let Some(output) = agent.ledger.poll_output() {
            match output {
                LedgerOutput::Submit(id, op) => agent.asked.push((id, op)),
                LedgerOutput::Event(event) => said.push(event),
                // Nobody observes here.
                LedgerOutput::Refused { .. }
                | LedgerOutput::Leader { .. }
                | LedgerOutput::Notice(_) => {}
            }
        }
        if agent.ledger.counters().declared_dead > before.declared_dead {
            self.next.seen.note(DECLARED_DEAD);
        }
        said.iter().try_for_each(|event| self.hears(event))?;
        self.checkers.requests.settles(self.next.now)
    }

    fn hears(&mut self, event: &Event) -> Result<(), Violation> {
        let (now, process) = (self.next.now, self.process);
        let node = process.node;
        let local = self.local();
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
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
                agent.waiting = None;
                agent.inside = Some(*ticket);
                self.next.seen.note(ENTERED);
                self.next.seen.entries[place(node)] = 1;
                let entries = self.next.seen.entries;
                if entries.iter().map(|it| u16::from(*it)).sum::<u16>() == self.model.agents {
                    self.next.seen.note(ALL_ENTERED);
                }
                if previous.is_abandoned() {
                    self.next.seen.note(ABANDONED);
                }
                if local >= agent.until {
                    let words = "is granted the lock while its lease is over";
                    return Err(violation!(now, Leases, "{call} {words}"));
                }
                let checkers = &mut self.checkers;
                let (name, mode) = checkers.requests.grants(now, call)?;
                checkers.exclusion.enters(now, call, &name, mode)?;
                let epoch = Epoch::new((fence.as_u64() >> 32) as u32).unwrap_or_default();
                let what = (&name, mode);
                checkers.fences.grants(now, call, what, *fence, epoch)
            }
            Event::Ended { ticket, refusal } => {
                let call = Call {
                    process,
                    ticket: *ticket,
                };
                agent.waiting = None;
                self.checkers.requests.ends(now, call, refusal)
            }
            Event::Lost { ticket } => {
                let call = Call {
                    process,
                    ticket: *ticket,
                };
                agent.inside = None;
                self.checkers.exclusion.leaves(call);
                self.checkers.requests.yields(now, call)
            }
            Event::Lease { until } => {
                if agent.inside.is_some() && agent.until <= local {
                    self.next.seen.note(REVIVED);
                }
                agent.until = *until;
                let end = clock(node).when(*until);
                self.checkers.exclusion.extends(now, process, end)
            }
            Event::Excluded { .. } => {
                agent.until = Time::ZERO;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Whether an operation does anything that lasts.
pub(super) fn changes(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::Remove { .. })
}
