//! The hand-off: how the threads of an application and the agent thread share the protocol.
//!
//! The core sits in a mutex. An application's thread that wants a lock takes the mutex, reads the
//! clock, steps the protocol and sends the datagrams itself, then lets go and blocks on its
//! request, its own local semaphore. The agent thread waits for the network: it steps the protocol
//! with what arrives and posts the request that was granted. So the first datagram leaves without
//! any switch of threads. One of the threads that wait does the agent thread's job meanwhile, the
//! [leader](crate::runtime::shared::leader), which is woken by its answer itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::protocol::{LockName, LockSpec, Missing, Mode, Release, Ticket, Time};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::error::{AcquireError, ReleaseError};
use crate::runtime::api::patience::Patience;
use crate::runtime::request::announcer::Announcer;
use crate::runtime::request::{Limit, Owner, Request, Waiting};
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::entry::Sink;

impl Shared {
    /// Asks for `lock`.
    pub(crate) fn begin(
        self: &Arc<Self>,
        lock: &LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        caller: Caller,
    ) -> Result<Waiting, AcquireError> {
        if self.stamp.is_child() {
            return Err(AcquireError::Forked);
        }
        let limit = Limit::new(patience);
        let lifeline = caller
            .has_lifeline
            .then(|| self.identity.place.try_clone())
            .transpose()
            .map_err(|_| AcquireError::Limit)?;
        let request = Request::new();
        let sink = Sink::Thread(request.clone());
        let leader = self.spinning_leader();
        let mut core = self.lock_core();
        let asked = core.ask(lock.clone(), spec, mode, patience.wait(), caller, sink);
        core.finish_as_application();
        let ticket = asked?;
        let at_once = request.is_decided();
        self.grants_at_once.store(at_once, Ordering::Relaxed);
        if let Some((leader, spinner)) = leader
            && !at_once
        {
            leader.spin(&spinner, &request);
        }
        Ok(Waiting::new(self.clone(), ticket, request, limit, lifeline))
    }

    /// Ends the session in good order: nobody is inside any more, and the others are told.
    pub(crate) fn leave(&self) {
        let mut core = self.lock_core();
        core.leave();
        core.finish_as_application();
    }
}

impl Owner for Shared {
    fn release(&self, ticket: Ticket, request: &Request, how: Release) -> Result<(), ReleaseError> {
        let mut core = self.lock_core();
        // Looked at under the mutex: a loss comes before or after, and not in between.
        if !request.release() {
            return Err(ReleaseError::Lost);
        }
        core.release(ticket, how);
        core.finish_as_application();
        Ok(())
    }

    fn cancel(&self, ticket: Ticket, request: &Request, _: Time) -> Result<(), AcquireError> {
        // The grant may have come at this very moment. Then the cancellation does nothing, and the
        // caller gets what it was granted.
        let mut core = self.lock_core();
        core.cancel(ticket);
        core.finish_as_application();
        assert!(
            request.is_decided(),
            "the core answers a cancellation at once"
        );
        Ok(())
    }

    fn ask_to_cancel(&self, ticket: Ticket, request: &Request) {
        // It is decided at once.
        let _ = self.cancel(ticket, request, Time::ZERO);
    }

    fn withdraw(&self, ticket: Ticket, _: &Request) {
        let mut core = self.lock_core();
        core.withdraw(ticket, Release::Unused);
        core.finish_as_application();
    }

    fn set_command_pid(&self, ticket: Ticket, pid: u32) {
        self.lock_core().set_command_pid(ticket, pid);
    }

    fn announcer(&self, _: Ticket) -> io::Result<Option<Announcer>> {
        Ok(None)
    }

    fn missing(&self) -> Vec<Missing> {
        self.lock_core().missing()
    }

    fn is_child(&self) -> bool {
        self.stamp.is_child()
    }

    fn lead(&self, deadline: Option<Time>, request: &Request) {
        Self::drive(self, deadline, &|| request.is_decided());
        Self::lead(self, deadline, request);
    }

    fn drive(&self, deadline: Option<Time>, is_done: &dyn Fn() -> bool) {
        Self::drive(self, deadline, is_done);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use crossbeam_channel::TryRecvError;

    use super::*;
    use crate::protocol::{Failure, NodeId, Settings};
    use crate::runtime::api::error::SessionEnd;
    use crate::runtime::shared::core_guard::TAKINGS;
    use crate::runtime::shared::entry::Asker;
    use crate::runtime::{Address, Agent, AgentEvent, Options, StatusError, Watchdog};

    /// The only member of its group.
    pub(crate) fn alone(directory: &std::path::Path, watchdog: Option<Watchdog>) -> Agent {
        Agent::start(options(directory, watchdog)).unwrap()
    }

    fn options(directory: &std::path::Path, watchdog: Option<Watchdog>) -> Options {
        options_among(1, 1, directory, watchdog)
    }

    /// Of the member `me` of so many.
    pub(crate) fn options_among(
        members: u16,
        me: u16,
        directory: &std::path::Path,
        watchdog: Option<Watchdog>,
    ) -> Options {
        let node = |id| NodeId::new(id).unwrap();
        let address = |id| Address::unix(directory.join(format!("{id}"))).unwrap();
        let members = (1..=members).map(|id| (node(id), address(id))).collect();
        let settings = Settings {
            failure: Failure::Unanimity,
            ..Settings::new("test")
        };
        let state_dir = directory.join(format!("state-{me}"));
        Options {
            watchdog,
            ..Options::new(node(me), members, settings, state_dir)
        }
    }

    /// Threads of the application wait for the mutex: an entry takes it once to ask and once to give
    /// back, and a round of the event loop twice, if nothing else is due.
    #[test]
    fn the_mutex_is_taken_seldom() {
        let directory = tempfile::tempdir().unwrap();
        let (agent, driver) = Agent::start_driven(options(directory.path(), None)).unwrap();
        let lock = LockName::new("x").unwrap();
        let takings = |act: &dyn Fn()| {
            let before = TAKINGS.get();
            act();
            TAKINGS.get() - before
        };
        let enter = || {
            let caller = Caller::default();
            let granted = agent.acquire(&lock, None, Patience::Forever, caller);
            granted.unwrap().release().unwrap();
        };
        enter();
        driver.process().unwrap();
        assert_eq!(takings(&enter), 2);
        // With the look whether the session is over, which is the driver's own.
        assert_eq!(takings(&|| driver.process().unwrap()), 3);
    }

    /// A watchdog must notice a thread that is alive and gets nothing done.
    #[test]
    fn a_loop_that_is_stuck_calls_no_watchdog() {
        let directory = tempfile::tempdir().unwrap();
        let (beat, beats) = crossbeam_channel::unbounded();
        let every = Duration::from_millis(20);
        let watchdog = Watchdog::new(every, move || beat.send(()).unwrap_or_default());
        let agent = alone(directory.path(), Some(watchdog));
        let long = Duration::from_secs(30);
        for _ in 0..3 {
            beats.recv_timeout(long).unwrap();
        }
        let core = agent.shared.lock_core();
        while beats.recv_timeout(10 * every).is_ok() {}
        assert!(beats.recv_timeout(10 * every).is_err());
        core.finish_as_application();
        beats.recv_timeout(long).unwrap();
        agent.close();
        while beats.recv_timeout(long).is_ok() {}
    }

    /// More notes at once than there is room for, of which none can be read.
    #[test]
    fn notes_that_are_dropped_are_shown() {
        const NOTES: u64 = 300;
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let mut core = agent.shared.lock_core();
        for _ in 0..NOTES {
            let (from, bytes) = (NodeId::new(2).unwrap(), vec![0]);
            core.pretend(crate::protocol::Event::Note { from, bytes });
        }
        core.finish_as_application();
        let dropped = || agent.status().unwrap().protection.unwrap().dropped;
        while dropped().values().sum::<u64>() < NOTES {
            std::thread::sleep(Duration::from_millis(1));
        }
        let words = ["too-many-notes", "malformed-note"].map(|why| dropped()[why]);
        assert!(words.iter().all(|count| *count > 0), "{words:?}");
        assert_eq!(words.iter().sum::<u64>(), NOTES);
    }

    /// Who asks for the status when the session ends heard that nobody answers, and late.
    #[test]
    fn who_asks_for_the_status_is_not_left_waiting_by_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let (sender, answer) = crossbeam_channel::bounded(1);
        let mut core = agent.shared.lock_core();
        core.ask_status(Asker::Thread(sender)).unwrap();
        core.end(SessionEnd::Panicked);
        assert!(matches!(answer.try_recv(), Err(TryRecvError::Disconnected)));
        core.finish();
        let told = agent.status().unwrap_err();
        assert_eq!(told, StatusError::Closed(SessionEnd::Panicked));
    }

    /// The core has not heard of its request yet.
    #[test]
    fn a_caller_that_is_held_back_has_its_time_too() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let mut core = agent.shared.lock_core();
        core.hold_back();
        core.finish_as_application();
        let (sender, outcome) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || {
            let lock = LockName::new("x").unwrap();
            let patience = Patience::For(Duration::from_millis(50));
            let outcome = agent.acquire(&lock, None, patience, Caller::default());
            sender.send(outcome.map(drop)).unwrap();
        });
        let outcome = outcome.recv_timeout(Duration::from_secs(10));
        assert_eq!(outcome, Ok(Err(AcquireError::TimedOut)));
    }

    /// A defect in the protocol, as far as the rest can tell: guards are lost, who waits is told,
    /// nothing more is sent, and the agent thread ends.
    #[test]
    fn a_panic_in_a_step_ends_the_session() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let events = agent.events();
        let lock = LockName::new("x").unwrap();
        let ask = |patience| agent.begin(&lock, None, Mode::Exclusive, patience, Caller::default());
        let grant = ask(Patience::Forever).unwrap().finish().unwrap();
        let waiting = ask(Patience::Forever).unwrap();

        let mut core = agent.shared.lock_core();
        core.guarded(|_| panic!("a defect"));
        assert_eq!(core.sockets().next(), None);
        core.finish_as_application();

        assert!(!grant.is_held());
        assert_eq!(grant.release(), Err(ReleaseError::Lost));
        let panicked = AcquireError::Closed(SessionEnd::Panicked);
        assert_eq!(waiting.finish().unwrap_err(), panicked);
        assert_eq!(ask(Patience::Try).unwrap_err(), panicked);
        let last = events.iter().last();
        assert_eq!(last, Some(AgentEvent::Ended(SessionEnd::Panicked)));
        agent.close();
    }
}
