//! What has the event loop come sooner than it planned: its thread is woken, or the alarm is set that
//! callers who drive it wait for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token, Waker};

use crate::protocol::Time;
use crate::runtime::os::alarm::{Alarm, expiration};
use crate::runtime::os::clock;
use crate::runtime::os::sigio::SignalTimer;
use crate::runtime::os::sync::Mutex;

/// Of the member's sockets, in the event loop's poll.
pub(crate) const TRANSPORT: Token = Token(0);
const WAKER: Token = Token(1);

/// A sleep up to this length is left to the poll's own timeout, which stands still while the host is
/// suspended: it ends that much later at most, and setting the alarm would be a system call more.
const SHORT: Duration = Duration::from_millis(2);

/// Who runs the event loop, and how to tell it to come sooner than it planned.
#[derive(Debug)]
pub(crate) enum Wakeup {
    /// A thread of the agent.
    Thread(ThreadWakeup),
    /// Whoever calls.
    Callers(Box<CallersAlarm>),
}

/// What the agent thread sleeps by, and what wakes it.
#[derive(Debug)]
pub(crate) struct ThreadWakeup {
    waker: Waker,
    alarm: Alarm,
}

/// The alarm of an event loop that callers drive.
#[derive(Debug)]
pub(crate) struct CallersAlarm {
    alarm: Alarm,
    /// The same for those who want SIGIO.
    signal: Mutex<Option<SignalTimer>>,
}

impl Wakeup {
    /// Of a thread: both of its parts are events of the poll.
    pub(crate) fn thread(registry: &Registry) -> io::Result<Self> {
        Ok(Self::Thread(ThreadWakeup {
            alarm: registered_alarm(registry)?,
            waker: Waker::new(registry, WAKER)?,
        }))
    }

    /// Of callers: the alarm is an event of the poll. Setting it takes back what it has said: there is
    /// no need to read it.
    pub(crate) fn callers(registry: &Registry) -> io::Result<Self> {
        Ok(Self::Callers(Box::new(CallersAlarm {
            alarm: registered_alarm(registry)?,
            signal: Mutex::new(None),
        })))
    }

    /// What timeout has the poll sleep until `until`, or with `None` until something happens.
    pub(crate) fn timeout(&self, until: Option<Time>) -> Option<Duration> {
        match self {
            Self::Thread(thread) => thread.timeout(until?),
            // Its poll has an alarm of its own, which is always set.
            Self::Callers(_) => Some(until?.since(clock::now())),
        }
    }
}

impl ThreadWakeup {
    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(
                event = "wait-failed",
                "cannot wake the agent thread: {error}"
            );
        }
    }

    /// What timeout has the poll sleep until `until`, or for a shorter time. To be called by the thread
    /// itself, right before it sleeps.
    fn timeout(&self, until: Time) -> Option<Duration> {
        let now = clock::now();
        let left = until.since(now);
        if left <= SHORT {
            return Some(left);
        }
        match self.alarm.set_by(until, now) {
            Ok(()) => None,
            Err(error) => {
                tracing::error!(
                    event = "wait-failed",
                    "cannot set the agent's timer: {error}"
                );
                Some(SHORT)
            }
        }
    }
}

impl CallersAlarm {
    /// Says when there will be something to do, if nothing arrives before.
    pub(crate) fn set(&self, at: Option<Time>) {
        let mut set = self.alarm.set(at);
        if let Some(signal) = &mut *self.signal.lock() {
            let at = expiration(at.unwrap_or(Time::MAX));
            set = set.and(signal.set(at).map_err(Into::into));
        }
        if let Err(error) = set {
            tracing::error!(
                event = "wait-failed",
                "cannot set the agent's timer: {error}"
            );
        }
    }

    /// Has SIGIO come with it, or not any more.
    pub(crate) fn set_signal(&self, timer: Option<SignalTimer>) {
        *self.signal.lock() = timer;
    }
}

fn registered_alarm(registry: &Registry) -> io::Result<Alarm> {
    let alarm = Alarm::new()?;
    let fd = alarm.as_fd().as_raw_fd();
    registry.register(&mut SourceFd(&fd), WAKER, Interest::READABLE)?;
    Ok(alarm)
}
