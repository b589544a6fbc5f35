//! How a holder learns that its lock is gone.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::{fmt, mem};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::runtime::os::sync::Mutex;

/// Why a lock is no longer held, though its guard is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The group went on without this member, or the agent failed or its connection broke. Another
    /// may be inside as soon as the guard's grace is over.
    Revoked,
    /// The agent was closed, which released it.
    Closed,
}

/// What is to be done when a grant is lost.
pub type OnLoss = Box<dyn FnOnce(Loss) + Send>;

/// The state of one grant: held, then at most once lost. Clones share it.
#[derive(Clone, Default)]
pub struct LossSignal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Set after `state.lost`; a look at it needs no mutex.
    is_lost: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lost: Option<Loss>,
    callbacks: Vec<OnLoss>,
    channels: Vec<Sender<Loss>>,
    /// The tasks that either end wakes, each under the number of its [`LossFuture`].
    tasks: BTreeMap<u64, Waker>,
    next_task: u64,
    /// Whether the grant ended in order.
    is_settled: bool,
}

impl LossSignal {
    /// Reports the loss: the first report counts. Callbacks run here and now; one that panics
    /// hinders nobody.
    pub fn fire(&self, loss: Loss) {
        let mut state = self.0.state.lock();
        if state.lost.is_some() {
            return;
        }
        state.lost = Some(loss);
        self.0.is_lost.store(true, Ordering::Release);
        let callbacks = mem::take(&mut state.callbacks);
        let tasks = mem::take(&mut state.tasks);
        for channel in state.channels.drain(..) {
            // The channel has room for the one message it ever carries; a receiver that is gone
            // does not care.
            let _ = channel.try_send(loss);
        }
        drop(state);
        for callback in callbacks {
            run(callback, loss);
        }
        tasks.into_values().for_each(Waker::wake);
    }

    /// Whether it is lost.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Acquire)
    }

    /// Why it is lost, if it is.
    pub fn reason(&self) -> Option<Loss> {
        self.0.state.lock().lost
    }

    /// Runs `callback` at the loss, or now if it has been.
    pub fn on_loss(&self, callback: OnLoss) {
        let mut state = self.0.state.lock();
        match state.lost {
            None => state.callbacks.push(callback),
            Some(loss) => {
                drop(state);
                run(callback, loss);
            }
        }
    }

    /// A channel that carries the loss, once.
    pub fn channel(&self) -> Receiver<Loss> {
        let (sender, receiver) = bounded(1);
        let mut state = self.0.state.lock();
        match state.lost {
            None => state.channels.push(sender),
            Some(loss) => drop(sender.try_send(loss)),
        }
        receiver
    }

    /// Forgets who wanted to know: the grant ended in order. Channels close.
    pub fn settle(&self) {
        let mut state = self.0.state.lock();
        state.is_settled = true;
        let listeners = (
            mem::take(&mut state.callbacks),
            mem::take(&mut state.channels),
        );
        let tasks = mem::take(&mut state.tasks);
        drop(state);
        drop(listeners);
        tasks.into_values().for_each(Waker::wake);
    }
}

/// Waits for the end of a grant: the loss, or `None` if the grant ended in order. Dropped, it leaves nothing
/// behind: a guard that is held for long may see many of them.
#[derive(Debug)]
pub struct LossFuture {
    signal: LossSignal,
    /// Where its task is, since it was first polled.
    number: Option<u64>,
}

impl LossFuture {
    /// Of the grant of `signal`.
    pub fn new(signal: LossSignal) -> Self {
        Self {
            signal,
            number: None,
        }
    }
}

impl Future for LossFuture {
    type Output = Option<Loss>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Loss>> {
        // Before the mutex: what a clone or a drop of it does is the executor's business.
        let task = context.waker().clone();
        let number = self.number;
        let mut state = self.signal.0.state.lock();
        if state.lost.is_some() || state.is_settled {
            return Poll::Ready(state.lost);
        }
        let number = number.unwrap_or(state.next_task);
        state.next_task = state.next_task.max(number + 1);
        let former = state.tasks.insert(number, task);
        drop(state);
        drop(former);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for LossFuture {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let task = self.signal.0.state.lock().tasks.remove(&number);
            drop(task);
        }
    }
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LossSignal").field(&self.reason()).finish()
    }
}

/// The callback is not ours: its panic must not end the agent's thread.
fn run(callback: OnLoss, loss: Loss) {
    let _ = catch_unwind(AssertUnwindSafe(|| callback(loss)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_everybody_once() {
        let signal = LossSignal::default();
        let (sender, calls) = crossbeam_channel::unbounded();
        let late = sender.clone();
        signal.on_loss(Box::new(|_| panic!("a callback's own affair")));
        signal.on_loss(Box::new(move |loss| sender.send(loss).unwrap()));
        let channel = signal.channel();
        assert!(!signal.is_lost());
        signal.fire(Loss::Revoked);
        signal.fire(Loss::Closed);
        assert!(signal.is_lost());
        assert_eq!(channel.try_iter().collect::<Vec<_>>(), [Loss::Revoked]);
        signal.on_loss(Box::new(move |loss| late.send(loss).unwrap()));
        assert_eq!(
            calls.try_iter().collect::<Vec<_>>(),
            [Loss::Revoked, Loss::Revoked]
        );
        assert_eq!(signal.channel().try_recv(), Ok(Loss::Revoked));
    }

    #[test]
    fn an_orderly_end_closes_the_channels() {
        let signal = LossSignal::default();
        let channel = signal.channel();
        signal.settle();
        assert!(channel.recv().is_err());
        assert!(!signal.is_lost());
    }
}
