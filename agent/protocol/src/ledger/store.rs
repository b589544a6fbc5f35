//! What the ledger asks of a store, and what the store says: registers with compare-and-swap.
//!
//! A store has registers, each with a value and a version. The ledger relies on the following, and on
//! nothing else:
//!
//! - A write, or a removal, takes effect at one instant, and only if the register has the expected
//!   version at that instant.
//! - A version that a register has had never comes back, unless the store is replaced by another one
//!   ([`StoreFacts::identity`]) or forgets acknowledged writes ([`StoreFacts::may_forget`]).
//! - An operation is done by the store to which the connection was when it was submitted, and by no other.
//! - Every [`Op`] gets one [`Reply`], or the connection ends ([`StoreEvent::Down`]), which is as good as
//!   [`Reply::Unknown`]: the operation may have taken effect, or may take effect at any later time. What is
//!   submitted without a connection is answered by [`Reply::Unknown`].
//! - [`Reply::Conflict`] shows the register as it was at the instant at which the write was refused. If it
//!   shows the version that was expected, it proves nothing, and the ledger asks again.
//!
//! [`Reply::Value`] and [`StoreEvent::Changed`] may show a register as it was at any earlier time, unless
//! the store may forget: then a read shows every write that was acknowledged, and not forgotten, before the
//! read was submitted. Notifications may come late, twice, or never.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::time::Time;

/// The name of a register. It is ASCII, without spaces and control characters: names of locks are
/// percent-encoded in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of that name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The version of a register's value. Two versions are only ever compared for equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// The number of an operation, unique within one [`Ledger`](super::Ledger).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A register's value, and its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The bytes.
    pub value: Vec<u8>,
    /// Their version.
    pub version: Version,
}

/// An operation on the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read a register. Answered by [`Reply::Value`].
    Read {
        /// Which.
        key: Key,
    },
    /// Write a register if it has the expected version. Answered by [`Reply::Done`], or by
    /// [`Reply::Conflict`].
    Write {
        /// Which.
        key: Key,
        /// The new value.
        value: Vec<u8>,
        /// The version that the register must have; `None` if the register must not exist.
        expect: Option<Version>,
    },
    /// Remove a register if it has the expected version. Answered by [`Reply::Removed`], or by
    /// [`Reply::Conflict`].
    Remove {
        /// Which.
        key: Key,
        /// The version that the register must have.
        expect: Version,
    },
    /// Read registers in the order of their keys, as many as the store likes. Answered by
    /// [`Reply::Page`].
    List {
        /// What their keys begin with.
        prefix: Key,
        /// The key that comes before the first; `None` to begin with the first of all.
        after: Option<Key>,
    },
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// What the register had at some time; `None` if it did not exist.
    Value(Option<Entry>),
    /// The write was done; this is the new version.
    Done(Version),
    /// The register was removed.
    Removed,
    /// The register had another version than expected, so nothing was done and nothing will be. This is
    /// what it had.
    Conflict(Option<Entry>),
    /// Some registers, in order.
    Page {
        /// Each with its key.
        entries: Vec<(Key, Entry)>,
        /// Whether there are more.
        more: bool,
    },
    /// Perhaps done, perhaps not, perhaps yet to be done.
    Unknown,
    /// Not done, and never will be, for this reason: rights, a quota, the size.
    Refused(String),
}

/// What kind of store it is, found out when the agent connects to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreFacts {
    /// Whether the store can lose writes that it has acknowledged.
    pub may_forget: bool,
    /// Why it can, and what else is worth knowing, in words, for whoever asks.
    pub doubts: Vec<String>,
    /// Which store it is: the cluster id, the timeline. Another store under the same address, or one that
    /// was restored from a backup, has another identity, and ends the session.
    pub identity: String,
}

/// What a store says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreEvent {
    /// There is a connection; operations are taken from now on.
    Up(StoreFacts),
    /// There is none, for this reason. Operations under way have an unknown outcome.
    Down(String),
    /// The answer to an operation.
    Reply(OpId, Reply),
    /// A hint: the register has changed, or may have, perhaps to this value.
    Changed(Key, Option<Entry>),
    /// A hint: other hints may have been lost.
    Missed,
}

/// A connection that a store's client asked for, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// Where a store's server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// At a port of a host.
    Tcp {
        /// A host's name, or an IP address, without brackets.
        name: String,
        /// The port.
        port: u16,
    },
    /// At the Unix socket of that path.
    Unix(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Unix(path) => f.write_str(path),
        }
    }
}

/// What a store's client wants of the one that drives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOutput {
    /// Connect to that host. Answered by [`Store::connected`] or by [`Store::disconnected`].
    Connect(StreamId, Host),
    /// Send these bytes, after those before.
    Send(StreamId, Vec<u8>),
    /// Close the connection, or give it up; nothing is said of it any more.
    Close(StreamId),
    /// Tell the [`Ledger`](super::Ledger).
    Event(StoreEvent),
}

/// A client that speaks a store's language, without a clock, a socket or a thread of its own: it is told
/// what arrived, and the time.
///
/// After each call [`Store::poll_output`] is called until it is empty, then [`Store::poll_timeout`]. It
/// connects by itself, at the first call of [`Store::timeout`], and after each failure.
pub trait Store: fmt::Debug + Send {
    /// Does `op`, which [`StoreEvent::Reply`] answers; with [`Reply::Unknown`] if there is no connection.
    fn submit(&mut self, now: Time, id: OpId, op: Op);

    /// From now on the changes of these registers are worth a hint. Hints of other registers may come, too: the
    /// ledger ignores those of locks that it does not know.
    fn interest(&mut self, now: Time, keys: &BTreeSet<Key>);

    /// The connection is there.
    fn connected(&mut self, now: Time, stream: StreamId);

    /// These bytes have arrived, after those before.
    fn received(&mut self, now: Time, stream: StreamId, bytes: &[u8]);

    /// There is no such connection, or none any more, for this reason.
    fn disconnected(&mut self, now: Time, stream: StreamId, why: &str);

    /// The time that [`Store::poll_timeout`] named has come, or not.
    fn timeout(&mut self, now: Time);

    /// The next output; `None` when there is no more.
    fn poll_output(&mut self) -> Option<StoreOutput>;

    /// When to call [`Store::timeout`], unless something comes before.
    fn poll_timeout(&self) -> Option<Time>;
}
