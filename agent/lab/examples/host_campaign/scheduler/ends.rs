//! What ends, or is killed, and what that undoes.

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Broken, Event, LONG, Result, Scheduler};
use crate::kernel::{has_ended, has_pending, is_dying};
use crate::page::{state, waits};

impl Scheduler {
    /// Nothing that a process has open is open here, too, but epolls.
    pub(super) fn give_up_copies(&mut self, pid: u32) {
        let threads = self.page.get().threads();
        for (slot, waited) in threads.iter().zip(&mut self.waited) {
            if slot.pid == pid {
                *waited = None;
            }
        }
    }

    /// Forgets the threads of a process but `keeps`, and its timers.
    pub(super) fn forget(&mut self, pid: u32, keeps: Option<usize>) {
        self.give_up_copies(pid);
        let page = self.page.get();
        for (index, slot) in page.threads_mut().iter_mut().enumerate() {
            if slot.pid == pid && !slot.is(state::FREE) && Some(index) != keeps {
                slot.clear();
            }
        }
        for timer in page.timers_mut() {
            if timer.pid == pid {
                timer.used = 0;
            }
        }
        if keeps.is_none() {
            self.epolls.retain(|_, (owner, _)| *owner != pid);
        }
    }

    /// What is over takes effect: of a process that ends all is closed before anybody else runs, and
    /// those that end with it have ended.
    pub(super) fn settle(&mut self, events: &mut Vec<Event>) -> Result<()> {
        loop {
            let dying: Vec<u32> = self
                .processes
                .iter()
                .filter(|(pid, process)| is_dying(**pid, &process.pidfd))
                .map(|(pid, _)| *pid)
                .collect();
            if dying.is_empty() {
                if !events.is_empty() {
                    self.wake_for_signals();
                }
                return Ok(());
            }
            for pid in dying {
                let process = self.processes.remove(&pid).expect("it was there");
                if !has_ended(&process.pidfd, LONG.into()) {
                    return Err(Broken::Keeps {
                        pid,
                        name: "one that ends".to_owned(),
                    });
                }
                self.hosts[process.host].generation += 1;
                self.forget(pid, None);
                let child = Pid::from_raw(pid as i32);
                let status = match self.reaped.remove(&pid) {
                    Some(status) => Ok(status),
                    None => waitpid(child, Some(WaitPidFlag::WNOHANG)),
                };
                self.note(format_args!("process {pid} has ended: {status:?}"));
                let (code, signal) = match status {
                    Ok(WaitStatus::Exited(_, code)) => (Some(code), None),
                    Ok(WaitStatus::Signaled(_, signal, _)) => (None, Some(signal)),
                    // The child of another.
                    _ => (None, None),
                };
                events.push(Event::Ended {
                    pid,
                    host: process.host,
                    code,
                    signal,
                    is_killed: false,
                });
            }
            // Those whose parent is gone are children of this process.
            while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                match status.pid().map(|pid| pid.as_raw() as u32) {
                    None => break,
                    Some(pid) if self.processes.contains_key(&pid) => {
                        self.reaped.insert(pid, status);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Kills a process.
    pub(crate) fn kill(&mut self, pid: u32) -> Result<Vec<Event>> {
        self.kill_all(&[pid])
    }

    /// Kills processes, at one moment.
    pub(crate) fn kill_all(&mut self, pids: &[u32]) -> Result<Vec<Event>> {
        self.note(format_args!("killed: {pids:?}"));
        let mut events = Vec::new();
        for pid in pids {
            let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
        }
        self.settle(&mut events)?;
        for event in &mut events {
            if let Event::Ended { pid, is_killed, .. } = event {
                *is_killed = pids.contains(pid);
            }
        }
        Ok(events)
    }

    /// Whoever has a signal pending looks for it.
    pub(super) fn wake_for_signals(&mut self) {
        let pids: Vec<u32> = self
            .processes
            .keys()
            .copied()
            .filter(|pid| has_pending(*pid))
            .collect();
        for slot in self.page.get().threads_mut() {
            if slot.is(state::PARKED)
                && pids.contains(&slot.pid)
                && slot.waits != waits::ASKED
                && slot.waits != waits::JOIN
            {
                slot.waits = waits::TURN;
                slot.woken = 0;
            }
        }
    }
}
