//! Which threads can go on: what they wait for is there, or it is time.

use nix::poll::PollTimeout;

use super::Scheduler;
use crate::kernel::{are_ready, descriptor, descriptors, is_readable};
use crate::page::{NEVER, state, waits};

impl Scheduler {
    /// Timers that are due can be read.
    pub(super) fn fire(&mut self, now: u64) {
        let page = self.page.get();
        let mut due = Vec::new();
        for (index, timer) in page.timers().iter().enumerate() {
            let host = timer.host as usize;
            if timer.is_set()
                && self.hosts[host].suspended.is_none()
                && page.hosts[host].true_time(timer.clock, timer.deadline) <= now
            {
                due.push((index, *timer));
            }
        }
        for (index, timer) in due {
            self.page.get().timers_mut()[index].armed = 0;
            let Some(process) = self.processes.get(&timer.pid) else {
                continue;
            };
            if let Some(fd) = descriptor(&process.pidfd, timer.fd) {
                let _ = nix::unistd::write(&fd, &1_u64.to_ne_bytes());
                self.hosts[timer.host as usize].generation += 1;
            }
        }
    }

    /// The threads that can go on, and when the next one can if nothing happens.
    pub(super) fn runnable(&mut self) -> (Vec<usize>, u64) {
        let page = self.page.get();
        let now = page.now;
        let mut runnable = Vec::new();
        let mut next = NEVER;
        for (index, slot) in page.threads().iter().enumerate() {
            if !slot.is(state::PARKED) {
                continue;
            }
            let host = &self.hosts[slot.host as usize];
            let Some(process) = self.processes.get(&slot.pid) else {
                continue;
            };
            if process.is_stopped || host.suspended.is_some() {
                continue;
            }
            let late_until = self.late.get(&slot.pid).filter(|_| slot.tid == slot.pid);
            if let Some(until) = late_until.filter(|until| **until > now) {
                next = next.min(*until);
                continue;
            }
            let due = match slot.deadline {
                NEVER => NEVER,
                at => page.hosts[slot.host as usize].true_time(slot.clock, at),
            };
            let is_due = due <= now;
            let is_ready = match slot.waits {
                waits::TURN => true,
                waits::RETRY if is_due => true,
                waits::RETRY if self.looked[index] == host.generation => false,
                waits::RETRY => {
                    let is_ready = match slot.fds() {
                        None => true,
                        Some([epoll]) if slot.epoll != 0 => {
                            if !self.epolls.contains_key(&slot.epoll)
                                && let Some(copy) = descriptor(&process.pidfd, epoll.fd as u32)
                            {
                                self.epolls.insert(slot.epoll, (slot.pid, copy));
                            }
                            let copy = self.epolls.get(&slot.epoll);
                            copy.is_none_or(|(_, copy)| is_readable(copy, PollTimeout::ZERO))
                        }
                        Some(fds) => {
                            let waited = &mut self.waited[index];
                            if waited.is_none() {
                                *waited = descriptors(&process.pidfd, fds);
                            }
                            waited.as_ref().is_none_or(|copies| are_ready(copies, fds))
                        }
                    };
                    if !is_ready {
                        self.looked[index] = host.generation;
                    }
                    is_ready
                }
                waits::SLEEP | waits::FUTEX => is_due,
                waits::JOIN => {
                    let other = &page.slots[slot.key as usize];
                    !(other.is(state::PARKED) || other.is(state::RUNNING)) || other.pid != slot.pid
                }
                _ => false,
            };
            if is_ready {
                runnable.push(index);
            } else if [waits::RETRY, waits::SLEEP, waits::FUTEX].contains(&slot.waits) {
                next = next.min(due);
            }
        }
        for timer in page.timers().iter().filter(|timer| timer.is_set()) {
            let host = timer.host as usize;
            let process = self.processes.get(&timer.pid);
            if self.hosts[host].suspended.is_none()
                && process.is_some_and(|process| !process.is_stopped)
            {
                next = next.min(page.hosts[host].true_time(timer.clock, timer.deadline));
            }
        }
        next = next.min(self.network.next());
        (runnable, next)
    }
}
