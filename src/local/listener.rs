//! Wakes tasks when the [`Bell`](crate::local::page::Bell) of the lock rings that they wait for.
//!
//! A thread sleeps on the bells of all of them at once (futex_waitv(2)). It is started when the first task waits,
//! and ends with the group. Where the kernel has no such call, where no thread can be had, and for what is too much
//! for one call, nobody wakes the task: it looks as often as a waiter does whose bell does not ring.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::{io, mem};

use distlock_agent::runtime::sync::Mutex;
use distlock_agent::runtime::{futex, thread};

use nix::errno::Errno;

use super::page::{Bell, Page};

/// The tasks of this process that wait for bells, and the thread that listens.
#[derive(Default)]
pub(super) struct Listener {
    state: Mutex<State>,
    /// The thread sleeps on it too, and it counts the changes of what there is to listen to.
    changes: AtomicU32,
}

#[derive(Default)]
struct State {
    thread: Thread,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
}

#[derive(Default, PartialEq, Eq)]
enum Thread {
    /// It was not needed yet.
    #[default]
    Absent,
    Listens,
    /// It ended, or there can be none.
    Over,
}

struct Task {
    bell: HeardBell,
    waker: Waker,
}

/// A bell, and what it had counted when a task looked.
#[derive(Clone)]
pub(super) struct HeardBell {
    pub(super) page: Arc<Page>,
    /// Of the name of the lock.
    pub(super) hash: u64,
    pub(super) heard: u32,
}

impl HeardBell {
    fn get(&self) -> Bell<'_> {
        self.page.bell(self.hash)
    }

    /// A page that somebody has cut short cannot be touched.
    fn is_whole(&self) -> bool {
        self.page.is_whole().unwrap_or(false)
    }

    /// Whether there is a reason to look.
    fn is_due(&self) -> bool {
        !self.is_whole() || self.get().count() != self.heard
    }
}

/// A task that is woken when its bell rings, until this is dropped.
pub(super) struct Listening {
    listener: Arc<Listener>,
    number: u64,
}

impl Listener {
    /// Has the task woken when the bell has rung since. `None`: nobody can wake it.
    pub(super) fn listen(self: &Arc<Self>, bell: HeardBell, waker: Waker) -> Option<Listening> {
        let mut state = self.state.lock();
        if state.thread == Thread::Absent {
            let listener = Arc::clone(self);
            let started = thread::spawn("distlock-bells", move || listener.run());
            state.thread = started.map_or(Thread::Over, |_| Thread::Listens);
        }
        if state.thread == Thread::Over {
            return None;
        }
        let number = state.next_task;
        state.next_task += 1;
        state.tasks.insert(number, Task { bell, waker });
        drop(state);
        self.tell_of_change();
        Some(Listening {
            listener: Arc::clone(self),
            number,
        })
    }

    /// Wakes all tasks, and ends the thread.
    pub(super) fn close(&self) {
        let tasks = {
            let mut state = self.state.lock();
            state.thread = Thread::Over;
            mem::take(&mut state.tasks)
        };
        self.tell_of_change();
        tasks.into_values().for_each(|task| task.waker.wake());
    }

    fn tell_of_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(&self.changes, futex::EVERYBODY);
    }

    fn run(&self) {
        loop {
            let changes = self.changes.load(Ordering::SeqCst);
            let due = {
                let mut state = self.state.lock();
                if state.thread == Thread::Over {
                    return;
                }
                state.take_due()
            };
            if due.is_empty() {
                if self.sleep(changes).is_err() {
                    // Nobody tells the kernel to have this call later.
                    self.close();
                    return;
                }
                continue;
            }
            for task in due {
                if task.bell.is_whole() {
                    task.bell.get().pass_on();
                }
                task.waker.wake();
            }
        }
    }

    /// Sleeps until a bell rings, or there is a change.
    fn sleep(&self, changes: u32) -> io::Result<()> {
        let awaited = self.state.lock().awaited();
        let mut words = vec![(&self.changes, changes)];
        words.extend(awaited.iter().map(|it| (it.get().word(), it.heard)));
        match futex::wait_any(&words) {
            // A page was cut short since it was looked at.
            Err(error) if error.raw_os_error() == Some(Errno::EFAULT as i32) => Ok(()),
            outcome => outcome,
        }
    }
}

impl State {
    /// Those that have a reason to look.
    fn take_due(&mut self) -> Vec<Task> {
        let tasks = mem::take(&mut self.tasks);
        let (due, rest): (BTreeMap<_, _>, _) =
            tasks.into_iter().partition(|(_, task)| task.bell.is_due());
        self.tasks = rest;
        due.into_values().collect()
    }

    /// The bells that they wait for, each once.
    fn awaited(&self) -> Vec<HeardBell> {
        let mut known = BTreeSet::new();
        let bells = self.tasks.values().map(|task| &task.bell);
        let each = bells.filter(|it| known.insert((Arc::as_ptr(&it.page), it.hash)));
        each.take(futex::MOST_WORDS - 1).cloned().collect()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let task = self.listener.state.lock().tasks.remove(&self.number);
        // Whatever its drop does, it does without the mutex.
        drop(task);
    }
}
