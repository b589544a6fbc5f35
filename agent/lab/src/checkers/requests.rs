//! The life of a request.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Call, Process, Violation, violation};
use distlock_protocol::{LockName, LockSpec, Mode, Refusal, Ticket, Time, Wait};

/// What a caller said of its request.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Terms {
    /// How long it waits by itself.
    pub wait: Wait,
    /// How it says the lock is served.
    pub wish: Option<LockSpec>,
}

impl Terms {
    /// Whether `refusal` can be the answer to a request on these terms.
    fn allow(self, cancelled: bool, closed: bool, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::Cancelled => cancelled,
            Refusal::Busy | Refusal::NoAnswer { .. } => self.wait == Wait::Try,
            Refusal::NoQuorum { missing } => self.wait != Wait::Cancelled && !missing.is_empty(),
            Refusal::Closed => closed,
            Refusal::WrongSpec { actual } => self.wish.is_some_and(|wish| wish != *actual),
            Refusal::NotShareable { .. } | Refusal::WrongElection { .. } | Refusal::Limit => false,
        }
    }
}

/// Every request ends exactly once: granted, or refused in a way that its caller provoked. A
/// cancelled request is answered at once, and after the faults nobody waits for ever.
#[derive(Clone, Debug, Default, Hash)]
pub struct Requests {
    calls: BTreeMap<Call, Stage>,
    /// Cancelled while the node handles the cancellation: they must be over when it is done.
    to_settle: Vec<Call>,
    /// Whether views can go on without members.
    removes: bool,
    /// Lost because a view has gone on without their member, which must be said next.
    removed: Vec<Call>,
    /// Whether requests may be refused for any reason.
    forged: bool,
}

#[derive(Clone, Debug, Hash)]
enum Stage {
    Waiting {
        lock: LockName,
        mode: Mode,
        terms: Terms,
        since: Time,
        cancelled: bool,
        closed: bool,
    },
    Inside,
    /// Inside when its node was told to leave.
    Closed,
    Over,
}

impl Requests {
    /// From now on views can go on without members.
    pub const fn remove_members(&mut self) {
        self.removes = true;
    }

    /// From now on datagrams are forged, and with them the reasons of refusals.
    pub const fn distrust(&mut self) {
        self.forged = true;
    }

    /// A view has gone on without `process`.
    ///
    /// # Errors
    /// Who was not told that it is not inside any more.
    pub fn excludes(&mut self, now: Time, process: Process) -> Result<(), Violation> {
        self.removed.retain(|call| call.process != process);
        let inside = self.of_mut(process);
        let mut inside = inside.filter(|(_, it)| matches!(it, Stage::Inside | Stage::Closed));
        match inside.next() {
            None => Ok(()),
            Some((call, _)) => Err(violation!(
                now,
                Requests,
                "a view has gone on without {call}, which was not told"
            )),
        }
    }

    /// Since when `call` has waited, and on which terms; `None` if it does not wait.
    pub fn waits(&self, call: Call) -> Option<(Time, Wait)> {
        match self.calls.get(&call)? {
            Stage::Waiting { since, terms, .. } => Some((*since, terms.wait)),
            _ => None,
        }
    }

    /// `call` asks for `lock`.
    ///
    /// # Errors
    /// It asked before: tickets are for one use.
    pub fn asks(
        &mut self,
        now: Time,
        call: Call,
        lock: LockName,
        mode: Mode,
        terms: Terms,
    ) -> Result<(), Violation> {
        let stage = Stage::Waiting {
            lock,
            mode,
            terms,
            since: now,
            cancelled: false,
            closed: false,
        };
        match self.calls.insert(call, stage) {
            None => Ok(()),
            Some(_) => Err(violation!(now, Requests, "{call} is used a second time")),
        }
    }

    /// `call` wants to wait no longer.
    pub fn cancels(&mut self, call: Call) {
        if let Some(Stage::Waiting { cancelled, .. }) = self.calls.get_mut(&call) {
            *cancelled = true;
            self.to_settle.push(call);
        }
    }

    /// `call` leaves; whether it was inside.
    pub fn releases(&mut self, call: Call) -> bool {
        match self.calls.get_mut(&call) {
            Some(stage @ Stage::Inside) => {
                *stage = Stage::Over;
                true
            }
            _ => false,
        }
    }

    /// All of `process` is to end. Returns what was inside.
    pub fn closes(&mut self, process: Process) -> Vec<Call> {
        let mut held = Vec::new();
        for (call, stage) in self.of_mut(process) {
            match stage {
                Stage::Waiting { closed, .. } => *closed = true,
                Stage::Inside => {
                    *stage = Stage::Closed;
                    held.push(*call);
                }
                Stage::Closed | Stage::Over => {}
            }
        }
        held
    }

    /// `call` is told that its grant is no longer valid.
    ///
    /// # Errors
    /// Its node was not told to leave while it was inside, and nobody is ever removed: then nothing
    /// else takes a grant away.
    pub fn loses(&mut self, now: Time, call: Call) -> Result<(), Violation> {
        match self.calls.get_mut(&call) {
            Some(stage @ Stage::Closed) => {
                *stage = Stage::Over;
                Ok(())
            }
            Some(stage @ Stage::Inside) if self.removes => {
                *stage = Stage::Over;
                self.removed.push(call);
                Ok(())
            }
            _ => Err(violation!(
                now,
                Requests,
                "{call} lost what nobody takes away"
            )),
        }
    }

    /// `call` is told that its grant is no longer valid, where another side of a cut may have it.
    ///
    /// # Errors
    /// It is not inside.
    pub fn yields(&mut self, now: Time, call: Call) -> Result<(), Violation> {
        match self.calls.get_mut(&call) {
            Some(stage @ (Stage::Inside | Stage::Closed)) => {
                *stage = Stage::Over;
                Ok(())
            }
            _ => Err(violation!(
                now,
                Requests,
                "{call} lost what it did not have"
            )),
        }
    }

    /// `call` entered by a loan, and its node says so.
    ///
    /// # Errors
    /// It is not inside.
    pub fn is_known(&self, now: Time, call: Call) -> Result<(), Violation> {
        match self.calls.get(&call) {
            Some(Stage::Inside | Stage::Closed) => Ok(()),
            _ => Err(violation!(
                now,
                Requests,
                "{call} is said to be inside, and is not"
            )),
        }
    }

    /// `process` ends without a word: nothing of it will be answered.
    pub fn crashes(&mut self, process: Process) {
        self.calls.retain(|call, _| call.process != process);
        self.to_settle.retain(|call| call.process != process);
        self.removed.retain(|call| call.process != process);
    }

    /// `call` is granted what it asked for. Returns what that is.
    ///
    /// # Errors
    /// It did not ask, or was answered before, or cancelled before and should have been told so.
    pub fn grants(&mut self, now: Time, call: Call) -> Result<(LockName, Mode), Violation> {
        let Some(stage) = self.calls.get_mut(&call) else {
            return Err(violation!(
                now,
                Requests,
                "{call} is granted what it did not ask for"
            ));
        };
        match core::mem::replace(stage, Stage::Inside) {
            Stage::Waiting {
                lock,
                mode,
                cancelled: false,
                ..
            } => Ok((lock, mode)),
            Stage::Waiting { lock, .. } => Err(violation!(
                now,
                Requests,
                "{call} is granted {lock} after it cancelled"
            )),
            Stage::Inside => Err(violation!(now, Requests, "{call} is granted twice")),
            Stage::Closed | Stage::Over => {
                Err(violation!(now, Requests, "{call} is granted after its end"))
            }
        }
    }

    /// `call` is refused.
    ///
    /// # Errors
    /// It is not waiting, or nothing it did allows that answer.
    pub fn ends(&mut self, now: Time, call: Call, refusal: &Refusal) -> Result<(), Violation> {
        let Some(stage) = self.calls.get_mut(&call) else {
            return Err(violation!(
                now,
                Requests,
                "{call} ends without having begun"
            ));
        };
        match core::mem::replace(stage, Stage::Over) {
            Stage::Waiting {
                terms,
                cancelled,
                closed,
                ..
            } if self.forged || terms.allow(cancelled, closed, refusal) => Ok(()),
            Stage::Waiting { lock, terms, .. } => Err(violation!(
                now,
                Requests,
                "{call} for {lock} ({terms:?}) ends by {refusal:?}, which nothing explains"
            )),
            Stage::Inside => Err(violation!(
                now,
                Requests,
                "{call} ends by {refusal:?} after it was granted"
            )),
            Stage::Closed | Stage::Over => {
                Err(violation!(now, Requests, "{call} ends twice: {refusal:?}"))
            }
        }
    }

    /// `process` says that it has left.
    ///
    /// # Errors
    /// Somebody in it still waits.
    pub fn left(&mut self, now: Time, process: Process) -> Result<(), Violation> {
        match self.waiting_in(process).next() {
            None => Ok(()),
            Some(ticket) => {
                let call = Call { process, ticket };
                Err(violation!(
                    now,
                    Requests,
                    "{process} has left, and {call} was not answered"
                ))
            }
        }
    }

    /// A node has told all that follows from its last input.
    ///
    /// # Errors
    /// A cancelled request was not answered, or a grant was lost for no reason.
    pub fn settles(&mut self, now: Time) -> Result<(), Violation> {
        if let Some(call) = self.removed.pop() {
            return Err(violation!(
                now,
                Requests,
                "{call} is told that it is lost, but no view has gone on without its member"
            ));
        }
        while let Some(call) = self.to_settle.pop() {
            if matches!(self.calls.get(&call), Some(Stage::Waiting { .. })) {
                return Err(violation!(
                    now,
                    Requests,
                    "{call} cancelled and got no answer"
                ));
            }
        }
        Ok(())
    }

    /// Everybody has had time enough.
    ///
    /// # Errors
    /// Who still waits, and since when.
    pub fn all_over(&self, now: Time) -> Result<(), Violation> {
        let stuck = self.calls.iter().find_map(|(call, stage)| match stage {
            Stage::Waiting { lock, since, .. } => Some((call, lock, since)),
            _ => None,
        });
        match stuck {
            None => Ok(()),
            Some((call, lock, since)) => Err(violation!(
                now,
                Progress,
                "{call} has waited for {lock} since {} ns, with {} request(s) waiting in all",
                since.as_nanos(),
                self.waiting()
            )),
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.calls
            .values()
            .filter(|stage| matches!(stage, Stage::Waiting { .. }))
            .count()
    }

    /// Which of `process` wait.
    pub fn waiting_in(&self, process: Process) -> impl Iterator<Item = Ticket> {
        let first = Call {
            process,
            ticket: Ticket(0),
        };
        let last = Call {
            process,
            ticket: Ticket(u64::MAX),
        };
        self.calls
            .range(first..=last)
            .filter(|(_, stage)| matches!(stage, Stage::Waiting { .. }))
            .map(|(call, _)| call.ticket)
    }

    fn of_mut(&mut self, process: Process) -> impl Iterator<Item = (&Call, &mut Stage)> {
        let first = Call {
            process,
            ticket: Ticket(0),
        };
        let last = Call {
            process,
            ticket: Ticket(u64::MAX),
        };
        self.calls.range_mut(first..=last)
    }
}
