//! What an agent and its clients say to each other, over a Unix stream.
//!
//! A frame is its length (u32, big endian), the version of this protocol (one byte) and one message
//! in postcard's format. The length counts what follows it. Enums only ever grow at their end.

use std::io;
use std::time::Duration;

use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::protocol::{Change, ElectionAlgorithm, LockName, LockSpec, Mode, NodeId, Release};
use crate::runtime::api::description::Description;
use crate::runtime::api::error::{AcquireError, ChangeError};
use crate::runtime::api::events::{AgentEvent, Leader};
use crate::runtime::api::metrics::Metrics;
use crate::runtime::api::patience::Patience;
use crate::runtime::api::status::Status;
use crate::runtime::os::clock::Reading;
use crate::runtime::os::fd_passing;

const VERSION: u8 = 14;
const HEADER_LEN: usize = 4;
/// The longest message of a client: a name, and a command line of at most 1 KiB.
pub const MAX_TO_AGENT: usize = 8 * 1024;
/// The longest message of an agent: the status of a large group.
pub const MAX_FROM_AGENT: usize = 16 * 1024 * 1024;
/// Command lines are cut here: they are for people to read.
pub(crate) const MAX_COMMAND: usize = 1_024;

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// To enter a lock; answered by `Granted` or `Refused`. The client chooses `id`, new each
    /// time.
    Acquire {
        id: u64,
        lock: LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        command: String,
        /// Whether a lifeline is wanted. Then the lock is free only when nobody has the writing end
        /// any more that comes with `Lifeline`.
        lifeline: bool,
        /// Whether the client would wait by itself if the lock were lent: then it may be refused as
        /// [`AcquireError::Lent`].
        waits_by_loan: bool,
    },
    /// To wait no longer; answered as `Acquire` is.
    Cancel { id: u64 },
    /// To leave; not answered.
    Release { id: u64, how: Release },
    /// The process that works under the lock; where there is a lifeline, the leader of a process
    /// group, all of which may be killed.
    CommandPid { id: u64, pid: u32 },
    /// How the group is; answered by `Status`, `StatusRefused` or `StatusTooLong`.
    Status { id: u64 },
    /// To be told events from now on.
    Listen,
    /// How a lock is configured; answered by `Described`.
    Describe { id: u64, lock: LockName },
    /// To be elected, and then to enter the lock of that name, as `Acquire` does.
    Campaign {
        id: u64,
        lock: LockName,
        spec: Option<LockSpec>,
        algorithm: Option<ElectionAlgorithm>,
        patience: Patience,
        command: String,
        /// As in `Acquire`.
        lifeline: bool,
    },
    /// To be told who leads, now and from now on.
    Observe { lock: LockName },
    /// To change who may be a member; answered by `Changed`.
    Change { id: u64, change: Change },
    /// To enter a lock by itself whenever the agent lends it; answered by `Lent`.
    Borrow { lock: LockName, command: String },
    /// That the client does not enter by itself any more the lock of that slot.
    Return { slot: u16 },
    /// That the entry by itself in that slot has ended, of which the agent knew when the client left.
    Leave { slot: u16, how: Release },
    /// To turn its entry in that slot into the request `id`; answered by `Granted` or `Refused`.
    KnowEntry { id: u64, slot: u16 },
    /// What the agent has counted and measured; answered by `Metrics`.
    Metrics { id: u64 },
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// The first message.
    Welcome {
        group: String,
        member: NodeId,
        lease: Duration,
        /// How the agent reads its clock.
        clock: Reading,
    },
    /// In place of it: there are too many clients, and the stream ends here.
    TooMany,
    /// The request is inside.
    Granted {
        id: u64,
        /// 0 where the group gives none.
        fence: u64,
        abandoned: bool,
    },
    /// The request is over, without a grant.
    Refused { id: u64, why: AcquireError },
    /// A grant is void. An entry by itself, which the client never asked for, has the number of its slot
    /// and its fence: see `client_loans`.
    Lost { id: u64 },
    /// How the group is.
    Status { id: u64, status: Box<Status> },
    /// Too many ask for the status at once.
    StatusRefused { id: u64 },
    /// What happened to the group.
    Event(AgentEvent),
    /// How a lock is configured.
    Described { id: u64, description: Description },
    /// In place of the first message: this agent is not for this user, and the stream ends here.
    Forbidden,
    /// The status is longer than any message.
    StatusTooLong { id: u64 },
    /// What was granted in this session, and is from now on, is valid until then. It comes before
    /// the first grant of a session, and whenever the end moves while the client has or waits for
    /// something.
    Lease {
        /// Its number, larger than that of every session before; what was granted in one before
        /// is lost.
        session: u64,
        /// In nanoseconds of the agent's clock: 0 before the first renewal, `u64::MAX` where no
        /// lease bounds it.
        until: u64,
    },
    /// To who observes an election: who leads.
    Leader {
        lock: LockName,
        leader: Option<Leader>,
    },
    /// What came of a change of members.
    Changed {
        id: u64,
        outcome: Result<(), ChangeError>,
    },
    /// Before a grant to a client that wants a lifeline. With it come [`LIFELINE_FDS`]: the writing
    /// end of a FIFO, for the command; its reading end; and a page that shows until when nobody
    /// else is let in.
    Lifeline { id: u64 },
    /// Before the first `Lent` with a slot. With it come [`LOAN_PAGE_FDS`]: the memory in which clients
    /// enter by themselves, and what they see there of the agent's session.
    LoanPage,
    /// In which slot the client enters the lock, and which number it has there in each slot; `None`
    /// where it has to ask for the lock.
    Lent {
        lock: LockName,
        entry: Option<LentEntry>,
    },
    /// What was counted and measured.
    Metrics { id: u64, metrics: Box<Metrics> },
}

/// Where a client enters a lock by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentEntry {
    /// The lock's slot.
    pub slot: u16,
    /// The client's number.
    pub owner: u16,
}

/// How many descriptors come with [`FromAgent::Lifeline`].
pub const LIFELINE_FDS: usize = 3;
/// How many come with [`FromAgent::LoanPage`].
pub const LOAN_PAGE_FDS: usize = 2;
const _: () = assert!(LIFELINE_FDS <= fd_passing::MOST, "they come together");
const _: () = assert!(LOAN_PAGE_FDS <= fd_passing::MOST, "they come together");

/// Adds `message` to `bytes` as a frame.
///
/// # Errors
/// If it is longer than `max`; then `bytes` is as before. No more than `max` is ever written.
pub fn put<M: Serialize>(bytes: &mut Vec<u8>, message: &M, max: usize) -> io::Result<()> {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEADER_LEN]);
    bytes.push(VERSION);
    let most = start + HEADER_LEN + max;
    let written = write(bytes, message, most).and_then(|()| {
        let len = bytes.len() - start - HEADER_LEN;
        u32::try_from(len).map_err(invalid)
    });
    match written {
        Ok(len) => bytes[start..][..HEADER_LEN].copy_from_slice(&len.to_be_bytes()),
        Err(_) => bytes.truncate(start),
    }
    written.map(drop)
}

/// A status as it stands in [`FromAgent::Status`], to be written down once for all who asked.
///
/// # Errors
/// If no message has room for it.
pub(crate) fn encode_status(status: &Status) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write(&mut bytes, status, MAX_FROM_AGENT - MAX_STATUS_HEAD)?;
    Ok(bytes)
}

/// Adds a frame of [`FromAgent::Status`] with what [`encode_status`] gave.
pub(crate) fn put_status(bytes: &mut Vec<u8>, id: u64, status: &[u8]) -> io::Result<()> {
    let start = bytes.len();
    put(bytes, &(STATUS, id), MAX_STATUS_HEAD)?;
    let len = bytes.len() - start - HEADER_LEN + status.len();
    let len = u32::try_from(len).map_err(invalid)?;
    bytes[start..][..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(status);
    Ok(())
}

/// The number of [`FromAgent::Status`].
const STATUS: u32 = 5;
/// What stands before the status: the version, that number, and who asked.
const MAX_STATUS_HEAD: usize = 16;

/// Adds `message`, as long as `bytes` do not become longer than `most`.
fn write<M: Serialize>(bytes: &mut Vec<u8>, message: &M, most: usize) -> io::Result<()> {
    let bounded = Bounded { bytes, most };
    postcard::serialize_with_flavor(message, bounded).map_err(|error| match error {
        postcard::Error::SerializeBufferFull => invalid("a message is too long"),
        error => invalid(error),
    })
}

/// Bytes that become no more than so many.
struct Bounded<'a> {
    bytes: &'a mut Vec<u8>,
    most: usize,
}

impl Flavor for Bounded<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > self.most.saturating_sub(self.bytes.len()) {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Room for a frame of [`ToAgent::CommandPid`].
pub(crate) const MAX_COMMAND_PID: usize = 32;

/// The frame of [`ToAgent::CommandPid`], in `room`. It takes no memory, so that it can be made
/// between fork and exec.
pub(crate) fn command_pid(id: u64, pid: u32, room: &mut [u8; MAX_COMMAND_PID]) -> Option<&[u8]> {
    let (header, body) = room.split_at_mut(HEADER_LEN);
    let (version, body) = body.split_first_mut()?;
    *version = VERSION;
    let len = postcard::to_slice(&ToAgent::CommandPid { id, pid }, body)
        .ok()?
        .len()
        + 1;
    header.copy_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
    room.get(..HEADER_LEN + len)
}

/// Takes the first message off `bytes`; how many bytes it took. `None` if more bytes are needed.
///
/// # Errors
/// If this is no message of at most `max` bytes: then the stream is of no more use.
pub fn take<M: DeserializeOwned>(bytes: &[u8], max: usize) -> io::Result<Option<(M, usize)>> {
    let Some((len, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let len = usize::try_from(u32::from_be_bytes(*len)).map_err(invalid)?;
    if len == 0 || len > max {
        return Err(invalid("a message's length is out of range"));
    }
    // The version is looked at first: of another version nothing else is known.
    match rest.first() {
        Some(&VERSION) => {}
        Some(_) => return Err(invalid("a message has another version")),
        None => return Ok(None),
    }
    let Some(body) = rest.get(1..len) else {
        return Ok(None);
    };
    let (message, left) = postcard::take_from_bytes(body).map_err(invalid)?;
    if !left.is_empty() {
        return Err(invalid("a message has bytes left over"));
    }
    Ok(Some((message, HEADER_LEN + len)))
}

/// The first [`MAX_COMMAND`] bytes of a command line, whole characters.
pub(crate) fn cut_command(command: &str) -> &str {
    let mut end = command.len().min(MAX_COMMAND);
    while !command.is_char_boundary(end) {
        end -= 1;
    }
    &command[..end]
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire() -> ToAgent {
        ToAgent::Acquire {
            id: 300,
            lock: LockName::new("printer").unwrap(),
            spec: None,
            mode: Mode::Shared,
            patience: Patience::Try,
            command: "lp".to_owned(),
            lifeline: true,
            waits_by_loan: false,
        }
    }

    /// Also of one written down for many.
    #[test]
    fn a_status_is_the_same_for_all() {
        let status = Status {
            group: "test".to_owned(),
            epoch: 300,
            ..Status::default()
        };
        let (mut whole, mut parts) = (b"before".to_vec(), b"before".to_vec());
        let encoded = encode_status(&status).unwrap();
        for id in [1, u64::MAX] {
            put_status(&mut parts, id, &encoded).unwrap();
            let status = Box::new(status.clone());
            let message = FromAgent::Status { id, status };
            put(&mut whole, &message, MAX_FROM_AGENT).unwrap();
        }
        assert_eq!(parts, whole);
    }

    #[test]
    fn what_is_too_long_leaves_nothing_and_is_not_written_whole() {
        let mut bytes = b"before".to_vec();
        put(&mut bytes, &acquire(), 0x14).unwrap();
        let before = bytes.clone();
        put(&mut bytes, &acquire(), 0x13).unwrap_err();
        assert_eq!(bytes, before);
        let status = Status {
            group: "x".repeat(2 * MAX_FROM_AGENT),
            ..Status::default()
        };
        let status = Box::new(status);
        let message = FromAgent::Status { id: 1, status };
        put(&mut bytes, &message, MAX_FROM_AGENT).unwrap_err();
        assert_eq!(bytes, before);
        assert!(bytes.capacity() < MAX_FROM_AGENT);
    }

    #[test]
    fn takes_whole_messages_only() {
        let mut bytes = Vec::new();
        put(&mut bytes, &acquire(), MAX_TO_AGENT).unwrap();
        for len in 0..bytes.len() {
            assert!(
                take::<ToAgent>(&bytes[..len], MAX_TO_AGENT)
                    .unwrap()
                    .is_none(),
                "{len}"
            );
        }
        let first = bytes.len();
        put(&mut bytes, &ToAgent::Listen, MAX_TO_AGENT).unwrap();
        assert_eq!(
            take(&bytes, MAX_TO_AGENT).unwrap(),
            Some((acquire(), first))
        );
    }

    #[test]
    fn refuses_nonsense() {
        let frame = |version: u8, body: &[u8]| {
            let len = u8::try_from(body.len() + 1).unwrap();
            [&[0, 0, 0, len, version], body].concat()
        };
        let taken = |bytes: &[u8]| take::<ToAgent>(bytes, MAX_TO_AGENT);
        let listen = frame(VERSION, b"\x05");
        assert_eq!(taken(&listen).unwrap(), Some((ToAgent::Listen, 6)));
        let refused = |bytes: &[u8]| taken(bytes).is_err();
        assert!(refused(b"\0\0\0\0"), "empty");
        assert!(refused(b"\xff\0\0\0"), "huge");
        assert!(refused(&frame(VERSION - 1, b"\x05")), "another version");
        assert!(refused(&frame(VERSION, b"\x7f")), "an unknown message");
        assert!(refused(&frame(VERSION, b"\x05\x00")), "bytes left over");
        assert!(
            refused(&frame(VERSION, b"\x00\x01\x00\x00")),
            "a lock without a name"
        );
    }

    #[test]
    fn cuts_between_characters() {
        let cut = cut_command(&"ä".repeat(MAX_COMMAND)).to_owned();
        assert_eq!(cut.len(), MAX_COMMAND);
        let odd = cut_command(&format!("x{}", "ä".repeat(MAX_COMMAND))).to_owned();
        assert_eq!(odd.len(), MAX_COMMAND - 1);
    }
}
