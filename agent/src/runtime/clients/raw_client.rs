//! A client that speaks for itself, in tests: it says what the library would not, and when; and an agent
//! that serves it.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::protocol::{LockName, Mode};
use crate::runtime::api::patience::Patience;
use crate::runtime::frames::{self, FromAgent, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent};
use crate::runtime::os::fd_passing;
use crate::runtime::shared::hand_off::tests::options_among;
use crate::runtime::{AcquireError, Agent, Caller, Endpoint, Grant, Options};

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
        self.acquire_or_wait_by_loan(id, false);
    }

    /// The same; whether it would as soon wait by the loan.
    pub(crate) fn acquire_or_wait_by_loan(&mut self, id: u64, waits_by_loan: bool) {
        self.say(&ToAgent::Acquire {
            id,
            lock: x(),
            spec: None,
            mode: Mode::Exclusive,
            patience: Patience::Forever,
            command: String::new(),
            lifeline: false,
            waits_by_loan,
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

/// An agent that is the only member of its group, and serves clients.
pub(crate) struct Served {
    pub(crate) agent: Agent,
    directory: TempDir,
}

impl Served {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let agent = Agent::start(Options {
            socket: Some(Endpoint::Path(directory.path().join("socket"))),
            ..options_among(1, 1, directory.path(), None)
        });
        let agent = agent.unwrap();
        Self { agent, directory }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn client(&self) -> RawClient {
        RawClient::connect(&self.socket())
    }

    pub(crate) fn attempt(&self) -> Result<Grant, AcquireError> {
        let caller = Caller::default();
        self.agent.acquire(&x(), None, Patience::Try, caller)
    }

    /// Waits until the lock can be had, and takes it.
    pub(crate) fn next(&self) -> Grant {
        for _ in 0..1_000 {
            match self.attempt() {
                Ok(grant) => return grant,
                Err(AcquireError::Busy) => thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it is still held");
    }
}
