//! The leader: a thread of the application that waits for its grant, and does the agent thread's job
//! meanwhile (the leader of Schmidt et al., "Leader/Followers", PLoP 2000).
//!
//! It waits for the member's sockets, steps the protocol with whatever arrives, answers others, and so
//! gets its own grant by one wake-up: without the leader the network wakes the agent thread, which wakes
//! the thread that waits. At most one thread leads. Meanwhile the agent thread is not woken by
//! datagrams; its timers go on, and in each of its rounds it looks at the sockets too, so that a leader
//! that is not scheduled keeps nobody waiting for long. What other threads decide for the leader they
//! tell it by the bell of the [socket set](crate::runtime::os::socket_set).
//!
//! A thread that leaves what it entered by itself looks at the sockets as a leader does, if others
//! wanted that lately ([`contention`](crate::runtime::shared::contention)).
//!
//! Where waiting without blocking paid lately ([`Spin`](crate::runtime::os::spin::Spin)) the leader does
//! so before it blocks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::protocol::Time;
use crate::runtime::api::error::SessionEnd;
use crate::runtime::net::aead;
use crate::runtime::os::clock;
use crate::runtime::os::spin::Spinner;
use crate::runtime::request::Request;
use crate::runtime::shared::core_guard::{CoreGuard, Shared};
use crate::runtime::shared::wakeup::Wakeup;

/// How many datagrams the leader takes at once, before it looks for its grant.
const RECEIVE_LIMIT: usize = 8;
const _: () = assert!(RECEIVE_LIMIT <= aead::IN_A_TURN, "as it is said there");

/// A leader whose patience ends sooner than this does not block: the timeouts of epoll_wait(2) are whole
/// milliseconds, those of a condition variable are not.
const SHORT: Duration = Duration::from_millis(2);

/// The right to lead. Dropping it leaves the sockets to the event loop again.
#[derive(Debug)]
pub(super) struct Leader<'a> {
    shared: &'a Shared,
}

impl Shared {
    /// Whether a thread of the application leads. Of what it may have left at the sockets no event
    /// tells.
    pub(crate) fn is_led(&self) -> bool {
        self.is_led.load(Ordering::Acquire)
    }

    /// The right to lead, if nobody does, and if there is an agent thread: without one whoever waits
    /// does everything anyway.
    fn leader(&self) -> Option<Leader<'_>> {
        let is_threaded = matches!(self.wakeup, Wakeup::Thread(_));
        if !is_threaded || self.is_led.swap(true, Ordering::AcqRel) {
            return None;
        }
        if self.socket_set.unwatch().is_err() {
            self.is_led.store(false, Ordering::Release);
            return None;
        }
        Some(Leader { shared: self })
    }

    /// The right to lead, and to spin, for the request that is made next, if that is likely to pay.
    /// Before the request is sent, so that its answer wakes nobody.
    pub(super) fn spinning_leader(&self) -> Option<(Leader<'_>, Spinner<'_>)> {
        if self.grants_at_once.load(Ordering::Relaxed) {
            return None;
        }
        let spinner = self.spin.start()?;
        Some((self.leader()?, spinner))
    }

    /// Leads until `request` is decided, or `deadline` is near, unless another thread leads.
    pub(super) fn lead(&self, deadline: Option<Time>, request: &Request) {
        let is_short = deadline.is_some_and(|deadline| deadline.since(clock::now()) < SHORT);
        if is_short || request.is_decided() {
            return;
        }
        if let Some(leader) = self.leader() {
            leader.block(deadline, request);
        }
    }

    /// A thread has waited for others.
    fn has_waited(&self) {
        self.contention.has_waited(clock::now());
    }

    /// A thread that entered by itself, at `entered`, has left: hands over to the member that waits
    /// for that, if one does.
    pub(super) fn look_after(&self, entered: u64) {
        if !self.contention.is_due(entered) || self.stamp.is_child() {
            return;
        }
        // Whoever has the mutex takes what is there.
        if let Some(core) = self.try_lock_core() {
            core.take_what_is_there();
        }
    }
}

impl CoreGuard<'_> {
    /// Steps the protocol with what is at the sockets, if not too much is. A panic ends the session,
    /// and not the caller's business: it may be about to leave.
    fn take_what_is_there(mut self) {
        self.guarded(|core| _ = core.receive(RECEIVE_LIMIT));
        self.leave_losses();
        self.finish_as_application();
    }
}

impl Leader<'_> {
    /// Waits for a moment without blocking.
    pub(super) fn spin(&self, spinner: &Spinner<'_>, request: &Request) {
        spinner.until(|| {
            if let Some(core) = self.shared.try_lock_core() {
                core.take_what_is_there();
            }
            request.is_decided()
        });
        self.shared.has_waited();
    }

    fn block(&self, deadline: Option<Time>, request: &Request) {
        if !request.begin_to_lead() {
            return;
        }
        while !request.is_decided() {
            let timeout = match deadline.map(|deadline| deadline.since(clock::now())) {
                Some(left) if left < SHORT => break,
                left => left.map(|left| left - SHORT / 2),
            };
            if let Err(error) = self.shared.socket_set.wait(timeout) {
                tracing::error!(
                    event = "wait-failed",
                    "cannot wait for the member's sockets: {error}"
                );
                break;
            }
            if request.is_decided() {
                break;
            }
            let mut core = self.shared.lock_core();
            core.guarded(|core| _ = core.receive(RECEIVE_LIMIT));
            if request.is_decided() {
                // Before this thread would ring for itself.
                request.end_to_lead();
            }
            core.leave_losses();
            core.finish_as_application();
        }
        request.end_to_lead();
        self.shared.has_waited();
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let watched = self.shared.socket_set.watch();
        self.shared.is_led.store(false, Ordering::Release);
        if let Err(error) = watched {
            let mut core = self.shared.lock_core();
            core.end(SessionEnd::Poll {
                what: error.to_string(),
            });
            core.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use crossbeam_channel::{Receiver, Sender};

    use crate::protocol::LockName;
    use crate::runtime::shared::hand_off::tests::{alone, options_among};
    use crate::runtime::{Agent, Caller, Grant, Patience, Watchdog};

    use super::*;

    fn enter(agent: &Agent) -> Grant {
        let lock = LockName::new("x").unwrap();
        let granted = agent.acquire(&lock, None, Patience::Forever, Caller::default());
        granted.unwrap()
    }

    /// The thread of an agent, which its watchdog stops.
    struct AgentThread {
        is_to_stop: Arc<AtomicBool>,
        stopped: Receiver<()>,
        goes_on: Sender<()>,
    }

    impl AgentThread {
        /// Returns when it stands still.
        fn stop(&self) {
            self.is_to_stop.store(true, Ordering::Relaxed);
            self.stopped.recv().unwrap();
        }

        fn go_on(&self) {
            self.goes_on.send(()).unwrap();
        }
    }

    fn stoppable() -> (Watchdog, AgentThread) {
        let is_to_stop = Arc::new(AtomicBool::new(false));
        let (stops, stopped) = crossbeam_channel::bounded(0);
        let (goes_on, may_go_on) = crossbeam_channel::bounded(0);
        let stop = Arc::clone(&is_to_stop);
        let watchdog = Watchdog::new(Duration::from_millis(1), move || {
            if stop.swap(false, Ordering::Relaxed) {
                stops.send(()).unwrap();
                may_go_on.recv().unwrap();
            }
        });
        let thread = AgentThread {
            is_to_stop,
            stopped,
            goes_on,
        };
        (watchdog, thread)
    }

    /// Until a thread leads, and its request is out.
    fn await_leader(agent: &Agent) {
        while !agent.shared.is_led() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_answer_wakes_the_leader_itself() {
        let directory = tempfile::tempdir().unwrap();
        let holder = Agent::start(options_among(2, 1, directory.path(), None)).unwrap();
        let (watchdog, thread_of_agent) = stoppable();
        let options = options_among(2, 2, directory.path(), Some(watchdog));
        let waiter = Agent::start(options).unwrap();
        let held = enter(&holder);
        thread::scope(|scope| {
            let waits = scope.spawn(|| enter(&waiter));
            await_leader(&waiter);
            thread_of_agent.stop();
            // The agent thread of the member that waits stands still from here on.
            held.release().unwrap();
            waits.join().unwrap().release().unwrap();
            thread_of_agent.go_on();
        });
        waiter.close();
        holder.close();
    }

    #[test]
    fn whoever_leaves_what_others_want_hands_it_over() {
        let directory = tempfile::tempdir().unwrap();
        let (watchdog, thread_of_agent) = stoppable();
        let options = options_among(2, 1, directory.path(), Some(watchdog));
        let holder = Agent::start(options).unwrap();
        let waiter = Agent::start(options_among(2, 2, directory.path(), None)).unwrap();
        let lent = holder.lend(&LockName::new("x").unwrap()).unwrap();
        while lent.enter().is_none_or(|_| !lent.leave()) {
            enter(&holder).release().unwrap();
        }
        thread_of_agent.stop();
        // The agent thread of the member that has the lock stands still from here on.
        thread::scope(|scope| {
            let waits = scope.spawn(|| enter(&waiter));
            let end = clock::now() + Duration::from_secs(20);
            while !waits.is_finished() && clock::now() < end {
                holder.shared.has_waited();
                thread::sleep(Duration::from_micros(100));
                if lent.enter().is_some() {
                    assert!(lent.leave(), "nobody took it back");
                }
            }
            let is_handed_over = waits.is_finished();
            thread_of_agent.go_on();
            waits.join().unwrap().release().unwrap();
            assert!(is_handed_over);
        });
        waiter.close();
        holder.close();
    }

    #[test]
    fn the_leader_hears_of_what_another_thread_decides() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let held = enter(&agent);
        thread::scope(|scope| {
            let waits = scope.spawn(|| enter(&agent));
            await_leader(&agent);
            held.release().unwrap();
            waits.join().unwrap().release().unwrap();
        });
        assert!(!agent.shared.is_led());
        agent.close();
    }

    /// The thread that leads may hold what a callback wants.
    #[test]
    fn a_loss_is_told_by_the_agent_thread() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let held = enter(&agent);
        let (tells, told) = crossbeam_channel::bounded(1);
        held.loss().on_loss(Box::new(move |_| {
            tells.send(thread::current().id()).unwrap();
        }));
        let mut core = agent.shared.lock_core();
        let ticket = core.core.requests.keys().next().copied().unwrap();
        core.lost(ticket);
        core.leave_losses();
        core.finish_as_application();
        assert_ne!(told.recv(), Ok(thread::current().id()));
        agent.close();
    }
}
