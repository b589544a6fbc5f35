//! The order among the threads of one process that wait for one lock: one at a time contends with
//! the other processes, and the others stand behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A queue of threads, first come first served.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody has the turn.
    is_taken: bool,
    waiting: VecDeque<Arc<Place>>,
    is_closed: bool,
}

/// Where a thread stands.
#[derive(Debug, Default)]
struct Place {
    called: Condvar,
}

/// The right to contend. Dropping it calls the next.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    queue: &'a Queue,
}

/// Why a thread left the queue without its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    TimedOut,
    Closed,
}

impl Queue {
    /// Waits for the turn, at most for `timeout`; `None` is without limit.
    pub(crate) fn enter(&self, timeout: Option<Duration>) -> Result<Turn<'_>, Left> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Left::Closed);
        }
        if !state.is_taken {
            state.is_taken = true;
            return Ok(Turn { queue: self });
        }
        let place = Arc::new(Place::default());
        state.waiting.push_back(Arc::clone(&place));
        let deadline = timeout.map(|timeout| distlock_agent::runtime::clock::now() + timeout);
        loop {
            match deadline {
                None => place.called.wait(&mut state),
                Some(deadline) => {
                    let rest = deadline.since(distlock_agent::runtime::clock::now());
                    place.called.wait_for(&mut state, rest);
                }
            }
            let position = state
                .waiting
                .iter()
                .position(|other| Arc::ptr_eq(other, &place));
            let Some(position) = position else {
                // Called: the one before us left us the turn.
                return Ok(Turn { queue: self });
            };
            let is_late = deadline.is_some_and(|at| distlock_agent::runtime::clock::now() >= at);
            if state.is_closed || is_late {
                state.waiting.remove(position);
                return Err(if state.is_closed {
                    Left::Closed
                } else {
                    Left::TimedOut
                });
            }
        }
    }

    /// Sends everybody away, for good.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        for place in &state.waiting {
            place.called.notify_one();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        match state.waiting.pop_front() {
            Some(next) => {
                next.called.notify_one();
            }
            None => state.is_taken = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until so many threads stand in the queue.
    fn await_waiting(queue: &Queue, count: usize) {
        while queue.state.lock().waiting.len() != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn first_come_first_served() {
        let queue = Queue::default();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let turn = queue.enter(None).unwrap();
            for number in 0..8 {
                let (queue, order) = (&queue, &order);
                scope.spawn(move || {
                    let _turn = queue.enter(Some(Duration::from_secs(60))).unwrap();
                    order.lock().push(number);
                });
                await_waiting(queue, number + 1);
            }
            drop(turn);
        });
        assert_eq!(order.into_inner(), (0..8).collect::<Vec<_>>());
        assert!(queue.enter(Some(Duration::ZERO)).is_ok());
    }

    #[test]
    fn who_gives_up_holds_up_nobody() {
        let queue = Queue::default();
        let turn = queue.enter(None).unwrap();
        assert_eq!(
            queue.enter(Some(Duration::ZERO)).unwrap_err(),
            Left::TimedOut
        );
        assert_eq!(
            queue.enter(Some(Duration::from_millis(5))).unwrap_err(),
            Left::TimedOut
        );
        drop(turn);
        assert!(queue.enter(Some(Duration::ZERO)).is_ok());
    }

    #[test]
    fn closing_sends_all_away() {
        let queue = Queue::default();
        std::thread::scope(|scope| {
            let _turn = queue.enter(None).unwrap();
            let waiting: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| queue.enter(None).unwrap_err()))
                .collect();
            await_waiting(&queue, 3);
            queue.close();
            for thread in waiting {
                assert_eq!(thread.join().unwrap(), Left::Closed);
            }
        });
        assert_eq!(queue.enter(None).unwrap_err(), Left::Closed);
    }
}
