//! A program: what it says, in pieces, and what it is told.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::mem;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use distlock_agent::protocol::{LockName, Mode, Time};
use distlock_agent::runtime::frames::{
    self, FromAgent, LIFELINE_FDS, LOAN_PAGE_FDS, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent,
};
use distlock_agent::runtime::{AcquireError, Leader, Patience, clock, fd_passing};

use super::ledger::{Ledger, Wish};
use super::system::has_hung_up;
use super::world::LEASE;

/// Of four at most.
const MOST_ATTACHED: usize = 60;

pub(super) struct Caller {
    /// No two programs of one input have the same.
    number: u32,
    stream: UnixStream,
    /// Whether all that it says is in order.
    is_sound: bool,
    /// Whether it was told anything yet.
    is_told: bool,
    last_id: u64,
    output: Vec<u8>,
    sent: usize,
    /// Where in `output` descriptors go along.
    descriptors: VecDeque<(usize, Vec<OwnedFd>)>,
    /// Where in `output` that ends of which something comes once it is sent.
    marks: VecDeque<(usize, Mark)>,
    /// Whether it has asked for lifelines, or sent some that nobody wants.
    wants_descriptors: bool,
    input: Vec<u8>,
    /// What came with it.
    received: VecDeque<OwnedFd>,
    /// Questions that are not answered, and how many.
    due: BTreeMap<Due, usize>,
    listens: bool,
    /// The elections that it observes, and who leads, as it was told last.
    observed: BTreeMap<LockName, Option<Leader>>,
    /// Until when what it is granted is valid, as it was told last.
    lease: Option<Time>,
    is_refused: bool,
}

#[derive(Clone, Copy)]
enum Mark {
    Release(u64),
    Cancel(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Status(u64),
    Description(u64),
    Metrics(u64),
    Change(u64),
    Leader(LockName),
    Lent(LockName),
    /// That an entry by itself, of which there is none, is a request.
    Entry(u64),
}

impl Caller {
    pub(super) fn connect(number: u32, path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            number,
            stream,
            is_sound: true,
            is_told: false,
            last_id: 0,
            output: Vec::new(),
            sent: 0,
            descriptors: VecDeque::new(),
            marks: VecDeque::new(),
            wants_descriptors: false,
            input: Vec::new(),
            received: VecDeque::new(),
            due: BTreeMap::new(),
            listens: false,
            observed: BTreeMap::new(),
            lease: None,
            is_refused: false,
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether it keeps to the rules, and must be served.
    pub(super) fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// Whether it can have been turned away or cut off as few descriptors were left.
    pub(super) fn may_be_refused(&self) -> bool {
        self.is_refused || self.wants_descriptors
    }

    /// Whether the agent has closed its stream, of which there may be more to read.
    pub(super) fn is_cut_off(&self) -> bool {
        has_hung_up(self.stream.as_fd())
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A request's number: one of its own, or, if it has none, of nobody's.
    pub(super) fn some_id(&self, which: u8, ledger: &Ledger) -> u64 {
        let ids: Vec<_> = ledger.of(self.number).collect();
        let chosen = usize::from(which) % ids.len().max(1);
        ids.get(chosen).copied().unwrap_or(u64::MAX)
    }

    /// Says `message`, as far as it gets sent.
    pub(super) fn say(&mut self, message: ToAgent, ledger: &mut Ledger) {
        self.wants_descriptors |= matches!(
            message,
            ToAgent::Acquire { lifeline: true, .. }
                | ToAgent::Campaign { lifeline: true, .. }
                | ToAgent::Borrow { .. }
        );
        frames::put(&mut self.output, &message, MAX_TO_AGENT).expect("a message of a program's");
        if self.is_sound {
            self.expect(message, ledger);
        }
    }

    /// Notes what is to come of what it says.
    fn expect(&mut self, message: ToAgent, ledger: &mut Ledger) {
        let end = self.output.len();
        let due = match message {
            ToAgent::Acquire {
                id,
                lock,
                spec,
                mode,
                patience,
                ..
            } => {
                let wish = Wish {
                    lock,
                    mode,
                    is_try: patience == Patience::Try,
                    is_choosy: spec.is_some(),
                    leads: false,
                };
                return ledger.asks((self.number, id), wish);
            }
            ToAgent::Campaign {
                id, lock, patience, ..
            } => {
                let wish = Wish {
                    lock,
                    mode: Mode::Exclusive,
                    is_try: patience == Patience::Try,
                    is_choosy: true,
                    leads: true,
                };
                return ledger.asks((self.number, id), wish);
            }
            ToAgent::Release { id, .. } => return self.marks.push_back((end, Mark::Release(id))),
            ToAgent::Cancel { id } => return self.marks.push_back((end, Mark::Cancel(id))),
            ToAgent::Listen => {
                self.listens = true;
                return;
            }
            ToAgent::CommandPid { .. } | ToAgent::Return { .. } | ToAgent::Leave { .. } => return,
            ToAgent::Borrow { lock, .. } => Due::Lent(lock),
            ToAgent::KnowEntry { id, .. } => Due::Entry(id),
            ToAgent::Status { id } => Due::Status(id),
            ToAgent::Describe { id, .. } => Due::Description(id),
            ToAgent::Metrics { id } => Due::Metrics(id),
            ToAgent::Change { id, .. } => {
                ledger.changes();
                Due::Change(id)
            }
            ToAgent::Observe { lock } => {
                self.observed.entry(lock.clone()).or_default();
                Due::Leader(lock)
            }
        };
        *self.due.entry(due).or_default() += 1;
    }

    /// It does not keep to the rules any more: nothing is to come of what it says.
    fn break_off(&mut self, ledger: &mut Ledger) {
        self.is_sound = false;
        ledger.forget(self.number);
    }

    /// Changes a byte that is not sent yet.
    pub(super) fn damage(&mut self, at: u8, byte: u8, ledger: &mut Ledger) {
        let unsent = &mut self.output[self.sent..];
        if !unsent.is_empty() {
            let at = usize::from(at) % unsent.len();
            unsent[at] = byte;
            self.break_off(ledger);
        }
    }

    /// Adds bytes that mean nothing, or something else.
    pub(super) fn insert(&mut self, a: u8, b: u8, ledger: &mut Ledger) {
        match b & 3 {
            0 => self.output.extend([0, 0, 0, a]),
            1 => self.output.extend([a, b]),
            2 => self.output.extend([0, a >> 3, a, 7, b]),
            _ => self.output.push(a),
        }
        self.break_off(ledger);
    }

    /// Leaves out the last of what is not sent.
    pub(super) fn cut(&mut self, count: u8, ledger: &mut Ledger) {
        let left = self.output.len().saturating_sub(usize::from(count));
        if left.max(self.sent) < self.output.len() {
            self.output.truncate(left.max(self.sent));
            self.break_off(ledger);
        }
    }

    /// Descriptors go along with what is said next, though the system does not take too many at once.
    pub(super) fn attach(&mut self, fds: Vec<OwnedFd>, ledger: &mut Ledger) {
        if self.descriptors.len() >= MOST_ATTACHED {
            return;
        }
        self.descriptors.push_back((self.output.len(), fds));
        self.break_off(ledger);
    }

    /// Says nothing more, or hears nothing more: it is as good as gone.
    pub(super) fn shut(&mut self, how: Shutdown, ledger: &mut Ledger) {
        // It may have been cut off.
        let _ = self.stream.shutdown(how);
        self.go(ledger);
    }

    /// Nothing is to come of what it says any more, but what runs under its locks keeps them.
    fn go(&mut self, ledger: &mut Ledger) {
        self.is_sound = false;
        ledger.goes(self.number);
    }

    /// It ends.
    pub(super) fn close(mut self, ledger: &mut Ledger) {
        self.go(ledger);
    }

    /// Sends at most so many bytes of what it has said.
    pub(super) fn send(&mut self, most: usize, ledger: &mut Ledger) {
        let end = self.sent.saturating_add(most).min(self.output.len());
        while self.sent < end {
            let mut fds = Vec::new();
            while let Some((at, _)) = self.descriptors.front()
                && *at <= self.sent
            {
                let with = self.descriptors.pop_front();
                fds.extend(with.into_iter().flat_map(|(_, fds)| fds));
            }
            let next = self.descriptors.front().map_or(end, |(at, _)| *at);
            self.wants_descriptors |= !fds.is_empty();
            match send_with(&self.stream, &self.output[self.sent..next.min(end)], &fds) {
                Ok(len) => self.sent += len,
                Err(errno) => {
                    // What went along with nothing goes along the next time.
                    if !fds.is_empty() {
                        self.descriptors.push_front((self.sent, fds));
                    }
                    let (full, gone) = (
                        // Too much is on its way, of bytes or of descriptors.
                        [Errno::EAGAIN, Errno::ETOOMANYREFS],
                        [Errno::EPIPE, Errno::ECONNRESET],
                    );
                    assert!(full.contains(&errno) || gone.contains(&errno), "{errno}");
                    break;
                }
            }
        }
        while let Some(&(end, mark)) = self.marks.front()
            && end <= self.sent
        {
            self.marks.pop_front();
            match mark {
                Mark::Release(id) => ledger.leaves((self.number, id)),
                Mark::Cancel(id) => ledger.cancels((self.number, id)),
            }
        }
    }

    /// Reads at most so many bytes of what it was told; whether the stream is at its end.
    pub(super) fn read(&mut self, most: usize, ledger: &mut Ledger) -> bool {
        let mut chunk = [0; 16 << 10];
        let (mut left, mut has_ended) = (most, false);
        while left > 0 && !has_ended {
            let room = left.min(chunk.len());
            match fd_passing::receive(&self.stream, &mut chunk[..room]) {
                Ok(received) if received.len > 0 => {
                    if received.is_cut {
                        // Few are left of this process, which is the agent's too.
                        assert!(self.wants_descriptors);
                        self.break_off(ledger);
                    }
                    self.received.extend(received.fds);
                    self.input.extend_from_slice(&chunk[..received.len]);
                    left -= received.len;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // By an error, if it has left something unheard.
                Ok(_) | Err(_) => has_ended = true,
            }
        }
        let mut done = 0;
        while let Some((message, len)) =
            frames::take(&self.input[done..], MAX_FROM_AGENT).expect("what an agent says")
        {
            done += len;
            self.hear(message, ledger);
        }
        self.input.drain(..done);
        has_ended
    }

    fn hear(&mut self, message: FromAgent, ledger: &mut Ledger) {
        let is_first = !mem::replace(&mut self.is_told, true);
        let is_greeting = matches!(
            message,
            FromAgent::Welcome { .. } | FromAgent::TooMany | FromAgent::Forbidden
        );
        assert_eq!(is_first, is_greeting, "{message:?}");
        if !self.is_sound {
            return;
        }
        match message {
            FromAgent::Welcome { .. } => {}
            FromAgent::Lifeline { id } => {
                let mut fds = self.received.drain(..LIFELINE_FDS);
                let writer = fds.next().expect("what comes with a lifeline");
                ledger.handed((self.number, id), writer);
            }
            FromAgent::LoanPage => drop(self.received.drain(..LOAN_PAGE_FDS)),
            FromAgent::Lent { lock, .. } => self.answered(&Due::Lent(lock)),
            FromAgent::TooMany => self.is_refused = true,
            FromAgent::Lease { until, .. } => {
                let until = Time::from_nanos(until);
                assert!(
                    until == Time::MAX || until <= clock::now() + LEASE,
                    "{until:?}"
                );
                self.lease = Some(until);
            }
            FromAgent::Forbidden => panic!("it is of the agent's own user"),
            FromAgent::Granted { id, fence, .. } => {
                assert!(self.lease.is_some(), "granted without a lease");
                ledger.granted((self.number, id), fence);
            }
            FromAgent::Refused { id, why } if self.due.contains_key(&Due::Entry(id)) => {
                assert_eq!(why, AcquireError::Voided);
                self.answered(&Due::Entry(id));
            }
            FromAgent::Refused { id, why } => {
                let is_scarce = self.wants_descriptors;
                ledger.refused((self.number, id), &why, is_scarce);
            }
            FromAgent::Lost { id } => ledger.lost((self.number, id)),
            FromAgent::Status { id, .. }
            | FromAgent::StatusRefused { id }
            | FromAgent::StatusTooLong { id } => self.answered(&Due::Status(id)),
            FromAgent::Described { id, .. } => self.answered(&Due::Description(id)),
            FromAgent::Metrics { id, .. } => self.answered(&Due::Metrics(id)),
            FromAgent::Changed { id, .. } => self.answered(&Due::Change(id)),
            FromAgent::Leader { lock, leader } => {
                let known = self.observed.get_mut(&lock);
                *known.expect("nobody asked who leads") = leader;
                // An election can have news before the first answer, which then is one all the same.
                self.due.remove(&Due::Leader(lock));
            }
            FromAgent::Event(event) => assert!(self.listens, "{event:?} for nobody"),
        }
    }

    fn answered(&mut self, due: &Due) {
        let count = self.due.get_mut(due);
        let count = count.unwrap_or_else(|| panic!("{due:?} is not asked, or answered again"));
        *count -= 1;
        if *count == 0 {
            self.due.remove(due);
        }
    }

    /// Who leads, as far as it knows.
    pub(super) fn leaders(&self) -> impl Iterator<Item = (&LockName, &Option<Leader>)> {
        self.observed.iter()
    }

    /// What it waits for, besides requests.
    pub(super) fn due(&self) -> Option<&Due> {
        self.due.keys().next().filter(|_| self.is_sound)
    }
}

fn send_with(stream: &UnixStream, bytes: &[u8], fds: &[OwnedFd]) -> Result<usize, Errno> {
    let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights };
    let bytes = [IoSlice::new(bytes)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(stream.as_raw_fd(), &bytes, rights, flags, None)
}
