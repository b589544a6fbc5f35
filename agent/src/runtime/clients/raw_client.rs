//! A client that speaks for itself, in tests: it says what the library would not, and when.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::protocol::{LockName, Mode};
use crate::runtime::api::patience::Patience;
use crate::runtime::frames::{self, FromAgent, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent};
use crate::runtime::os::fd_passing;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct RawClient {
    pub(crate) stream: UnixStream,
    pub(crate) fds: VecDeque<OwnedFd>,
    input: Vec<u8>,
}

/// The lock "x".
pub(crate) fn x() -> LockName {
    LockName::new("x").unwrap()
}

impl RawClient {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut raw = Self {
            stream,
            fds: VecDeque::new(),
            input: Vec::new(),
        };
        assert!(matches!(raw.hear(), FromAgent::Welcome { .. }));
        raw
    }

    pub(crate) fn say(&mut self, message: &ToAgent) {
        let mut frame = Vec::new();
        frames::put(&mut frame, message, MAX_TO_AGENT).unwrap();
        self.stream.write_all(&frame).unwrap();
    }

    /// Asks for "x".
    pub(crate) fn acquire(&mut self, id: u64) {
        self.say(&ToAgent::Acquire {
            id,
            lock: x(),
            spec: None,
            mode: Mode::Exclusive,
            patience: Patience::Forever,
            command: String::new(),
            lifeline: false,
        });
    }

    pub(crate) fn hear(&mut self) -> FromAgent {
        let mut chunk = [0; 1024];
        loop {
            if let Some((message, len)) = frames::take(&self.input, MAX_FROM_AGENT).unwrap() {
                self.input.drain(..len);
                return message;
            }
            let received = fd_passing::receive(&self.stream, &mut chunk).unwrap();
            assert_ne!(received.len, 0, "the stream ended");
            self.input.extend_from_slice(&chunk[..received.len]);
            self.fds.extend(received.fds);
        }
    }

    /// What it was told before the answer to a question that is asked now.
    pub(crate) fn heard(&mut self) -> Vec<FromAgent> {
        let lock = LockName::new("asked").unwrap();
        self.say(&ToAgent::Describe { id: 999, lock });
        let mut heard = Vec::new();
        loop {
            match self.hear() {
                FromAgent::Described { .. } => return heard,
                message => heard.push(message),
            }
        }
    }
}
