//! How a guard learns that its lock is gone.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use distlock_agent::runtime::sync::Mutex;

/// Why a lock is no longer held, though its guard is still there.
///
/// ```
/// use distlock::{Agent, DistMutex, Loss};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let guard = agent.mutex("printer")?.lock()?;
/// let loss = guard.loss();
/// agent.close();
/// assert_eq!(loss.recv()?, Loss::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The group went on without this member, or the agent failed or its connection broke. Another
    /// may be inside as soon as [`Guard::grace`](crate::Guard::grace) is over.
    Revoked,
    /// [`Agent::close`](crate::Agent::close) released it.
    Closed,
}

type Callback = Box<dyn FnOnce(Loss) + Send>;

/// The state of one grant: held, then at most once lost. The back end keeps a clone and reports
/// the loss.
#[derive(Clone)]
pub(crate) struct LossSignal(Arc<Shared>);

struct Shared {
    /// Set after `state.lost`; a look at it needs no mutex.
    is_lost: AtomicBool,
    state: Mutex<State>,
}

struct State {
    lost: Option<Loss>,
    callbacks: Vec<Callback>,
    channels: Vec<Sender<Loss>>,
}

impl LossSignal {
    pub(crate) fn new() -> Self {
        let state = State {
            lost: None,
            callbacks: Vec::new(),
            channels: Vec::new(),
        };
        Self(Arc::new(Shared {
            is_lost: AtomicBool::new(false),
            state: Mutex::new(state),
        }))
    }

    /// Reports the loss: the first report counts. Callbacks run here and now; one that panics
    /// hinders nobody.
    pub(crate) fn fire(&self, loss: Loss) {
        let mut state = self.0.state.lock();
        if state.lost.is_some() {
            return;
        }
        state.lost = Some(loss);
        self.0.is_lost.store(true, Ordering::Release);
        let callbacks = std::mem::take(&mut state.callbacks);
        for channel in state.channels.drain(..) {
            // The channel has room for the one message it ever carries; a receiver that is gone
            // does not care.
            let _ = channel.try_send(loss);
        }
        drop(state);
        for callback in callbacks {
            run(callback, loss);
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Acquire)
    }

    pub(crate) fn reason(&self) -> Option<Loss> {
        self.0.state.lock().lost
    }

    /// Runs `callback` at the loss, or now if it has been.
    pub(crate) fn on_loss(&self, callback: Callback) {
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
    pub(crate) fn channel(&self) -> Receiver<Loss> {
        let (sender, receiver) = bounded(1);
        let mut state = self.0.state.lock();
        match state.lost {
            None => state.channels.push(sender),
            Some(loss) => drop(sender.try_send(loss)),
        }
        receiver
    }

    /// Forgets who wanted to know: the grant ended in order. Channels close.
    pub(crate) fn settle(&self) {
        let mut state = self.0.state.lock();
        let listeners = (
            std::mem::take(&mut state.callbacks),
            state.channels.split_off(0),
        );
        drop(state);
        drop(listeners);
    }
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LossSignal").field(&self.reason()).finish()
    }
}

/// The callback is not ours: its panic must not end the agent's thread.
fn run(callback: Callback, loss: Loss) {
    let _ = catch_unwind(AssertUnwindSafe(|| callback(loss)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_everybody_once() {
        let signal = LossSignal::new();
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
        let signal = LossSignal::new();
        let channel = signal.channel();
        signal.settle();
        assert!(channel.recv().is_err());
        assert!(!signal.is_lost());
    }
}
