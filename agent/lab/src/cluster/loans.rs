//! What callers do without their node: enter by a loan, and leave.

use super::Cluster;
use crate::checkers::{Process, Violation};
use distlock_protocol::{Command, Event, Fence, LockName, Mode, Previous, Release, Ticket, Wait};

impl<A> Cluster<A> {
    /// Whether what `process` was granted is valid now, as it sees it itself.
    pub fn has_lease(&self, process: Process) -> bool {
        self.checkers.has_lease(self.now(), process)
    }

    /// A caller of `process` has entered `lock` by a loan, without its node, and calls that `ticket`.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn enters_by_loan(
        &mut self,
        process: Process,
        (ticket, lock): (Ticket, &LockName),
        fence: Fence,
    ) -> Result<(), Violation> {
        let asked = Command::Acquire {
            ticket,
            lock: lock.clone(),
            spec: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
        };
        let entered = Event::Granted {
            ticket,
            fence,
            previous: Previous::Clean,
        };
        self.say(format_args!(
            "{process} enters {lock} by a loan as {ticket:?}, {fence:?}"
        ));
        self.record_command(process.node, &asked);
        self.record_event(process.node, &entered);
        self.hosts.trace.mix_u64(fence.as_u64());
        self.checkers.commands(self.now(), process, &asked)?;
        self.checkers.hears(self.now(), process, &entered)
    }

    /// It has left, without its node.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn leaves_by_loan(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        let how = Release::Given;
        let left = Command::Release { ticket, how };
        self.say(format_args!("{process}: {ticket:?} leaves its loan"));
        self.record_command(process.node, &left);
        self.checkers.commands(self.now(), process, &left)
    }
}
