//! The requests of one client, and what becomes of them and their commands when the client is gone.

use std::io;
use std::mem;

use mio::Registry;
use nix::unistd::geteuid;

use super::Connection;
use super::asked::Asked;
use super::ended::Ended;
use super::output::With;
use crate::protocol::{LockName, LockSpec, Mode, Release, Ticket, Time};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::error::AcquireError;
use crate::runtime::api::patience::Patience;
use crate::runtime::clients::cut_off::{CutOff, Holds};
use crate::runtime::clients::lifeline::{Lifeline, Lifelines};
use crate::runtime::clients::limits::{FEW_DESCRIPTORS, MAX_REQUESTS, TOO_MANY_REQUESTS};
use crate::runtime::frames::{self, FromAgent, LentEntry};
use crate::runtime::request::loan_page::OF_LOAN;
use crate::runtime::shared::Shared;
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::entry::{ClientId, Sink, Task};

impl Connection {
    /// The client, for whatever it asks under that command line.
    pub(super) fn caller(&self, command: &str) -> Caller {
        Caller {
            pid: self.peer.pid,
            uid: Some(self.peer.uid),
            command: frames::cut_command(command).into(),
            ..Caller::default()
        }
    }

    pub(super) fn tell_metrics(&mut self, core: &CoreGuard<'_>, id: u64) {
        let metrics = Box::new(core.metrics());
        self.tell(&FromAgent::Metrics { id, metrics });
    }

    /// Ends what the client was granted as the request `id`; if others may work under the lock, once they have
    /// ended.
    pub(super) fn release(
        &mut self,
        core: &mut CoreGuard<'_>,
        (client, id): (ClientId, u64),
        how: Release,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) {
        self.has_released = true;
        let Some(Asked {
            ticket, lifeline, ..
        }) = self.requests.remove(&id)
        else {
            return;
        };
        let left = lifeline.and_then(|mut lifeline| {
            let has_ended = lifeline.has_ended();
            (!has_ended).then_some(lifeline)
        });
        if let Some(lifeline) = left {
            let owner = (client, id);
            return lifelines.wait_for(lifeline, (ticket, how), owner, registry);
        }
        if how == Release::Given {
            core.let_wait_by_loan(ticket);
        }
        core.withdraw(ticket, how);
    }

    /// Makes a request of the client, whose number must be new.
    pub(super) fn ask(
        &mut self,
        core: &mut CoreGuard<'_>,
        (client, id): (ClientId, u64),
        (lock, spec, mode, patience): (LockName, Option<LockSpec>, Mode, Patience),
        caller: Caller,
        lifeline: Option<io::Result<Lifeline>>,
    ) -> Result<(), Ended> {
        self.check_new(id)?;
        let sink = Sink::Client { client, id };
        let lifeline = match lifeline.transpose() {
            Ok(lifeline) => lifeline,
            Err(error) => {
                if error.raw_os_error() != Some(libc::EMFILE) {
                    tracing::warn!(
                        event = "lifeline-failed",
                        "cannot make a lifeline for a command: {error}"
                    );
                }
                self.count_refused(FEW_DESCRIPTORS);
                let why = AcquireError::Limit;
                self.tell(&FromAgent::Refused { id, why });
                return Ok(());
            }
        };
        let asked = if self.requests.len() < MAX_REQUESTS {
            core.ask(lock, spec, mode, patience.wait(), caller, sink)
        } else {
            Err(AcquireError::Limit)
        };
        match asked {
            Ok(ticket) => {
                let asked = Asked {
                    ticket,
                    lifeline,
                    is_granted: false,
                    by_loan: false,
                };
                self.requests.insert(id, asked);
            }
            Err(why) => {
                if why == AcquireError::Limit {
                    self.count_refused(TOO_MANY_REQUESTS);
                }
                self.tell(&FromAgent::Refused { id, why });
            }
        }
        Ok(())
    }

    /// Whether no request of the client has that number, and none by a loan can have it.
    fn check_new(&self, id: u64) -> Result<(), Ended> {
        if self.requests.contains_key(&id) || id & OF_LOAN != 0 {
            return Err(Ended::Breach("it used a request's number twice"));
        }
        Ok(())
    }

    /// Has the client enter `lock` by itself from now on, if it may.
    pub(super) fn lend(
        &mut self,
        core: &mut CoreGuard<'_>,
        client: ClientId,
        lock: LockName,
        command: &str,
    ) {
        // To another user it would be a way to disturb this one's programs.
        let is_ours = self.peer.uid == geteuid().as_raw();
        let caller = self.caller(command);
        let lent = is_ours.then(|| core.lend_to_client(client, &lock, caller));
        let entry = lent.flatten().map(|(page, slot, owner)| {
            if !mem::replace(&mut self.has_loan_page, true) {
                self.output.attach(With::LoanPage(page));
                self.tell(&FromAgent::LoanPage);
            }
            let owner = owner.get();
            LentEntry { slot, owner }
        });
        self.tell(&FromAgent::Lent { lock, entry });
    }

    /// Makes the client's entry by itself a request, whose number must be new.
    pub(super) fn know_entry(
        &mut self,
        core: &mut CoreGuard<'_>,
        (client, id): (ClientId, u64),
        slot: u16,
    ) -> Result<(), Ended> {
        self.check_new(id)?;
        let Some((ticket, fence)) = core.know_entry(client, slot, id) else {
            let why = AcquireError::Voided;
            self.tell(&FromAgent::Refused { id, why });
            return Ok(());
        };
        let asked = Asked {
            ticket,
            lifeline: None,
            is_granted: true,
            by_loan: true,
        };
        self.requests.insert(id, asked);
        // With its lease, which the client may not have been told of before.
        let message = FromAgent::Granted {
            id,
            fence: fence.as_u64(),
            abandoned: false,
        };
        core.core.tasks.push_back(Task::Tell { client, message });
        core.ask_back_if_leaving(ticket);
        Ok(())
    }

    /// The client's numbers of the grants under which a command runs.
    pub(in crate::runtime::clients) fn commands(&self) -> impl Iterator<Item = u64> {
        let is_command = |asked: &Asked| {
            let lifeline = asked.lifeline.as_ref();
            asked.is_granted && lifeline.is_some_and(Lifeline::has_command)
        };
        let asked = self.requests.iter();
        asked
            .filter(move |(_, asked)| is_command(asked))
            .map(|(&id, _)| id)
    }

    /// What runs under a lock, if it is known by a lifeline: from now on it is not the client's.
    pub(in crate::runtime::clients) fn take_command(
        &mut self,
        id: u64,
    ) -> Option<(Ticket, Lifeline)> {
        let asked = self.requests.get_mut(&id)?;
        let taken = (asked.ticket, asked.lifeline.take()?);
        self.requests.remove(&id);
        Some(taken)
    }

    /// What runs under its locks, when there is nobody any more to give them back to.
    pub(in crate::runtime::clients) fn into_commands(self) -> impl Iterator<Item = Lifeline> {
        let asked = self.requests.into_values();
        asked
            .filter(|asked| asked.is_granted)
            .filter_map(|asked| asked.lifeline)
    }

    /// Takes back everything the client has and waits for. If it was cut off and is there still, what it
    /// was told that it holds stays its own until it knows, and is returned.
    pub(in crate::runtime::clients) fn end(
        self,
        client: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> Option<CutOff> {
        let (mut kept, mut lasting) = (Vec::new(), Vec::new());
        let mut core = shared.lock_core();
        // One that is cut off may go on to enter by itself until it knows.
        let enters = core.has_loans(client) && !self.has_ended;
        if !enters {
            core.end_client_loans(client);
        }
        for (id, asked) in self.requests {
            let (ticket, how) = (asked.ticket, asked.end());
            match asked.lifeline {
                Some(lifeline) if asked.is_granted || core.is_held(ticket) => {
                    let owner = (client, id);
                    lifelines.wait_for(lifeline, (ticket, how), owner, registry);
                    lifelines.kill(owner);
                }
                None if asked.is_granted && !self.has_ended && core.is_held(ticket) => {
                    let its = if asked.by_loan {
                        &mut lasting
                    } else {
                        &mut kept
                    };
                    its.push(ticket);
                }
                _ => core.withdraw(ticket, how),
            }
        }
        core.finish();
        let until = self.lease.map_or(Time::ZERO, |lease| lease.until);
        let holds = Holds {
            tickets: kept,
            until,
            lasting,
            enters,
        };
        (!holds.is_over()).then(|| CutOff::new(self.stream, self.process, self.peer, holds))
    }
}
