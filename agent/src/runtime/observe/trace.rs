//! The trace of an agent: what happens to it, in a file, event by event. `distlock trace` merges
//! the files of a group into one diagram.
//!
//! Vector clocks are not on the wire, and an agent does not know its own: they are computed where
//! the files are merged, exactly. A message is known by who sent it in which incarnation to whom in
//! which incarnation, and by its number on the link between the two, and all of that is in the
//! datagram anyway. Both ends log it, and so what was sent is found again where it was received.
//! Datagrams stay as short as they are, a member may be traced while others are not, and what
//! nobody traces costs nothing.
//!
//! All of it is behind the feature `trace`. Without that feature `no_trace` takes its place, and warns a
//! program that asks for a trace.
//!
//! A trace never holds its agent up. Events go through a queue of bounded length to a thread of
//! their own; what finds no room there is lost, and the numbers of the events tell. When the file
//! cannot be written, the trace ends and says so, and nothing else does. A file that is full is
//! kept under another name, in place of the one before: two files a member are all that it takes.

mod tracer;
mod writer;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub(crate) use tracer::{Tracer, open};
pub(crate) use writer::Writer;

/// The version of the format, in the first line of a file.
pub const FORMAT: u32 = 1;

/// The first line of a file, and of each start of an agent in it: whose events follow, by which
/// clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub distlock_trace: u32,
    /// The group's name.
    pub group: String,
    /// The member's id.
    pub member: u16,
    /// The host's name.
    pub host: String,
    /// Which clock it is: agents with the same one need no comparison.
    pub clock: String,
    /// A reading of it (`CLOCK_BOOTTIME`), in nanoseconds,
    pub at: u64,
    /// and, at the same moment, the wall clock's: nanoseconds since 1970.
    pub wall: u64,
}

/// Any other line: something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The incarnation of the member.
    #[serde(rename = "life")]
    pub incarnation: u64,
    /// Counts the events of the incarnation, from 1. A number that is missing was lost.
    pub n: u64,
    /// When, in nanoseconds of the clock.
    pub at: u64,
    /// What.
    pub what: What,
}

/// What can happen to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// An incarnation begins.
    Began,
    /// A caller asks to enter.
    Asked {
        /// The agent's own number of the request.
        request: u64,
        /// The lock, as people write it.
        lock: String,
    },
    /// The caller is inside.
    Entered {
        /// Which request.
        request: u64,
        /// The lock.
        lock: String,
        /// The fence, in groups that have them.
        fence: Option<u64>,
        /// The caller's process, if the agent knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
    },
    /// The caller has left.
    Left {
        /// Which request.
        request: u64,
        /// The lock.
        lock: String,
    },
    /// The request has ended, and the caller was not let in.
    Ended {
        /// Which request.
        request: u64,
        /// The lock.
        lock: String,
    },
    /// The caller is told that what it was granted is lost.
    Lost {
        /// Which request.
        request: u64,
        /// The lock.
        lock: String,
        /// When the lease under which it was granted ended, in nanoseconds of the clock, if it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease_end: Option<u64>,
    },
    /// An algorithm's message goes out.
    Sent {
        /// To whom.
        to: u16,
        /// In which incarnation, as far as the sender knows.
        #[serde(rename = "to_life")]
        to_incarnation: u64,
        /// Which of those from this incarnation to that one. When the link repeats it, it is the
        /// same.
        number: u64,
        /// What the algorithm calls it.
        kind: Cow<'static, str>,
        /// The lock, or the election.
        lock: String,
    },
    /// An algorithm's message arrives, perhaps not for the first time.
    Received {
        /// From whom.
        from: u16,
        /// In which incarnation.
        #[serde(rename = "from_life")]
        from_incarnation: u64,
        /// Which of those from that incarnation to this one.
        number: u64,
        /// What the algorithm calls it.
        kind: Cow<'static, str>,
        /// The lock, or the election.
        lock: String,
    },
    /// A new view is in force here.
    View {
        /// Its epoch.
        epoch: u32,
        /// Its members.
        members: Vec<u16>,
    },
    /// A member has been silent for long.
    Suspects {
        /// Which.
        member: u16,
        /// When something last came from it, if anything did.
        heard: Option<u64>,
    },
    /// Another member was asked for its time ([RFC 5905](crate::protocol::clock::OffsetFilter)).
    Compared {
        /// Which member.
        member: u16,
        /// In which incarnation.
        #[serde(rename = "life")]
        incarnation: u64,
        /// When that was which is believed, in nanoseconds of this member's clock.
        measured: u64,
        /// How far its clock was ahead of this member's then.
        ahead_ns: i64,
        /// How far from the truth that may be.
        error_ns: u64,
    },
    /// A view has gone on without this incarnation. Another begins in the same process.
    Excluded,
    /// The agent ends in good order, or for a reason that it knows.
    Closed {
        /// The reason; `None` if it was told to.
        why: Option<String>,
    },
}
