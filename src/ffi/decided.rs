//! The descriptor by which a C program learns that a request has an outcome.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::{Wake, Waker};

use distlock_agent::runtime::sync::Mutex;
use nix::errno::Errno;

use super::readable::Readable;

/// One descriptor for all that threads have asked for by one mutex.
#[derive(Default)]
pub(super) struct DecidedFd {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By their numbers, whether there is a reason to look at them.
    requests: BTreeMap<u64, bool>,
    last: u64,
    readable: Readable,
}

impl State {
    fn show(&mut self) {
        let is_any = self.requests.values().any(|is_decided| *is_decided);
        self.readable.set(is_any);
    }
}

impl DecidedFd {
    /// The descriptor. Nobody has said yet what became of former requests: all are to be looked at.
    pub(super) fn fd(&self) -> Result<RawFd, Errno> {
        let mut state = self.state.lock();
        if !state.readable.is_wanted() {
            state.requests.values_mut().for_each(|it| *it = true);
            state.show();
        }
        state.readable.fd()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.state.lock().readable.is_wanted()
    }

    fn set(&self, number: u64, is_decided: bool) {
        let mut state = self.state.lock();
        // One that was withdrawn may be decided at this very moment.
        if let Some(it) = state.requests.get_mut(&number) {
            *it = is_decided;
            state.show();
        }
    }
}

/// One request's part of it, which ends with the request.
pub(super) struct Decided(Arc<Part>);

struct Part {
    all: Arc<DecidedFd>,
    number: u64,
}

impl Decided {
    pub(super) fn new(all: &Arc<DecidedFd>) -> Self {
        let mut state = all.state.lock();
        state.last += 1;
        let number = state.last;
        state.requests.insert(number, false);
        let all = Arc::clone(all);
        drop(state);
        Self(Arc::new(Part { all, number }))
    }

    /// Whether there is a reason to look at the request.
    pub(super) fn set(&self, is_decided: bool) {
        self.0.all.set(self.0.number, is_decided);
    }

    /// Says that there is one.
    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }
}

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.all.set(self.number, true);
    }
}

impl Drop for Decided {
    fn drop(&mut self) {
        let mut state = self.0.all.state.lock();
        state.requests.remove(&self.0.number);
        state.show();
    }
}

#[cfg(test)]
mod tests {
    use super::super::lost::tests::is_readable;
    use super::*;

    #[test]
    fn is_readable_while_any_request_is_to_be_looked_at() {
        let all = Arc::<DecidedFd>::default();
        let [one, other] = [Decided::new(&all), Decided::new(&all)];
        let late = one.waker();
        let fd = all.fd().unwrap();
        assert!(is_readable(fd), "they may have been decided before");
        one.set(false);
        assert!(is_readable(fd));
        other.set(false);
        assert!(!is_readable(fd));
        one.waker().wake();
        other.waker().wake();
        one.set(false);
        assert!(is_readable(fd), "the other one is not looked at yet");
        drop(other);
        assert!(!is_readable(fd));
        one.waker().wake();
        drop(one);
        assert!(!is_readable(fd));
        late.wake();
        assert!(!is_readable(fd), "it was withdrawn");
        assert_eq!(all.fd(), Ok(fd));
    }
}
