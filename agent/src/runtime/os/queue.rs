//! A queue of threads and tasks: the order among those of one process that want the same. Of those that wait
//! for a lock of the local group one at a time contends with the other processes; of those that
//! drive an agent one at a time runs its event loop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use crate::protocol::Time;
use crate::runtime::os::clock;
use crate::runtime::os::sync::{Condvar, Mutex};

/// A queue of threads and tasks, first come first served.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody has the turn.
    is_taken: bool,
    waiting: VecDeque<Arc<Call>>,
    is_closed: bool,
}

/// What one that waits for its turn is called by.
#[derive(Debug, Default)]
struct Call {
    thread: Condvar,
    /// In place of a thread.
    task: Mutex<Option<Waker>>,
}

impl Call {
    /// Calls it, under the queue's mutex; the task that is to be woken without it.
    fn call(&self) -> Option<Waker> {
        self.thread.notify_one();
        self.task.lock().take()
    }
}

/// Where a thread stands, and from its turn on the right to contend. Dropping it leaves the queue,
/// or calls the next.
#[derive(Debug)]
pub struct Place {
    queue: Arc<Queue>,
    called: Arc<Call>,
    has_turn: bool,
}

/// The queue is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Queue {
    /// Takes the last place.
    pub fn join(self: &Arc<Self>) -> Result<Place, Closed> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Closed);
        }
        let called = Arc::<Call>::default();
        let has_turn = !std::mem::replace(&mut state.is_taken, true);
        if !has_turn {
            state.waiting.push_back(Arc::clone(&called));
        }
        Ok(Place {
            queue: Arc::clone(self),
            called,
            has_turn,
        })
    }

    /// Takes the turn, if nobody has it.
    pub fn try_join(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.state.lock();
        if state.is_taken || state.is_closed {
            return None;
        }
        state.is_taken = true;
        drop(state);
        Some(Place {
            queue: Arc::clone(self),
            called: Arc::default(),
            has_turn: true,
        })
    }

    /// Sends everybody away, for good.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let tasks: Vec<_> = state.waiting.iter().filter_map(|it| it.call()).collect();
        drop(state);
        tasks.into_iter().for_each(Waker::wake);
    }
}

impl Place {
    /// Waits for the turn, at most until `until`; whether it has come.
    pub fn wait(&mut self, until: Option<Time>) -> Result<bool, Closed> {
        if self.has_turn {
            return Ok(true);
        }
        let mut state = self.queue.state.lock();
        loop {
            if state.position(&self.called).is_none() {
                // Called: the one before us left us the turn.
                self.has_turn = true;
                return Ok(true);
            }
            if state.is_closed {
                return Err(Closed);
            }
            let Some(until) = until else {
                state = self.called.thread.wait(state);
                continue;
            };
            let rest = until.since(clock::now());
            if rest.is_zero() {
                return Ok(false);
            }
            state = self.called.thread.wait_for(state, rest);
        }
    }
}

impl Place {
    /// Has this task woken when its turn has come, or the queue is closed; whether one of them is so already.
    pub fn wake_by(&mut self, task: &Waker) -> bool {
        let state = self.queue.state.lock();
        let waits = !self.has_turn && !state.is_closed && state.position(&self.called).is_some();
        let task = waits.then(|| task.clone());
        let former = std::mem::replace(&mut *self.called.task.lock(), task);
        drop(state);
        // Whatever its drop does, it does without the mutex.
        drop(former);
        !waits
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        if let Some(position) = state.position(&self.called) {
            state.waiting.remove(position);
            return;
        }
        // It has the turn, though it may not know yet.
        let task = match state.waiting.pop_front() {
            Some(next) => next.call(),
            None => {
                state.is_taken = false;
                None
            }
        };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl State {
    fn position(&self, called: &Arc<Call>) -> Option<usize> {
        self.waiting
            .iter()
            .position(|other| Arc::ptr_eq(other, called))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    /// Waits until so many threads stand in the queue.
    fn await_waiting(queue: &Queue, count: usize) {
        while queue.state.lock().waiting.len() != count {
            std::thread::yield_now();
        }
    }

    fn soon() -> Option<Time> {
        Some(clock::now() + Duration::from_millis(5))
    }

    #[test]
    fn first_come_first_served() {
        let queue = Arc::new(Queue::default());
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let turn = queue.join().unwrap();
            for number in 0..8 {
                let (queue, order) = (&queue, &order);
                scope.spawn(move || {
                    let mut place = queue.join().unwrap();
                    while !place.wait(soon()).unwrap() {}
                    order.lock().push(number);
                });
                await_waiting(queue, number + 1);
            }
            drop(turn);
        });
        assert_eq!(order.into_inner(), (0..8).collect::<Vec<_>>());
        assert_eq!(queue.join().unwrap().wait(Some(Time::ZERO)), Ok(true));
    }

    #[test]
    fn who_gives_up_holds_up_nobody() {
        let queue = Arc::new(Queue::default());
        let turn = queue.join().unwrap();
        assert_eq!(queue.join().unwrap().wait(Some(Time::ZERO)), Ok(false));
        assert_eq!(queue.join().unwrap().wait(soon()), Ok(false));
        let called = queue.join().unwrap();
        let mut next = queue.join().unwrap();
        drop(turn);
        assert_eq!(next.wait(Some(Time::ZERO)), Ok(false));
        // It was called, and leaves without having looked.
        drop(called);
        assert_eq!(next.wait(Some(Time::ZERO)), Ok(true));
    }

    #[test]
    fn who_does_not_wait_overtakes_nobody() {
        let queue = Arc::new(Queue::default());
        let turn = queue.try_join().unwrap();
        assert!(queue.try_join().is_none());
        let next = queue.join().unwrap();
        drop(turn);
        assert!(queue.try_join().is_none(), "the next has the turn");
        drop(next);
        drop(queue.try_join().unwrap());
        assert_eq!(queue.join().unwrap().wait(Some(Time::ZERO)), Ok(true));
    }

    #[test]
    fn tasks_are_woken_when_they_are_called() {
        #[derive(Default)]
        struct Task(AtomicUsize);
        impl Wake for Task {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let tasks: [Arc<Task>; 2] = Default::default();
        let [one, other] = tasks.each_ref().map(|task| Waker::from(Arc::clone(task)));
        let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::SeqCst));
        let queue = Arc::new(Queue::default());
        let mut turn = queue.join().unwrap();
        assert!(turn.wake_by(&one));
        let mut next = queue.join().unwrap();
        let mut last = queue.join().unwrap();
        // Polled twice, it is woken as it was polled last.
        assert!(!next.wake_by(&other));
        assert!(!next.wake_by(&one));
        assert!(!last.wake_by(&other));
        drop(turn);
        assert_eq!(woken(), [1, 0]);
        assert!(next.wake_by(&one));
        assert_eq!(next.wait(Some(Time::ZERO)), Ok(true));
        queue.close();
        assert_eq!(woken(), [1, 1]);
        assert!(last.wake_by(&other));
        assert_eq!(last.wait(Some(Time::ZERO)), Err(Closed));
        drop((next, last, one, other));
        assert!(tasks.iter().all(|task| Arc::strong_count(task) == 1));
    }

    #[test]
    fn closing_sends_all_away() {
        let queue = Arc::new(Queue::default());
        std::thread::scope(|scope| {
            let _turn = queue.join().unwrap();
            let waiting: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| queue.join().unwrap().wait(None)))
                .collect();
            await_waiting(&queue, 3);
            queue.close();
            for thread in waiting {
                assert_eq!(thread.join().unwrap(), Err(Closed));
            }
        });
        assert_eq!(queue.join().unwrap_err(), Closed);
        assert!(queue.try_join().is_none());
    }
}
