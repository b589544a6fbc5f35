//! What the ledger asks of a store, and what the store says: registers with compare-and-swap.
//!
//! A store has registers, each with a value and a version. The ledger relies on the following, and on
//! nothing else:
//!
//! - A write, or a removal, takes effect at one instant, and only if the register has the expected
//!   version at that instant.
//! - A version that a register has had never comes back, unless the store is replaced by another one
//!   ([`StoreFacts::identity`]) or forgets acknowledged writes ([`StoreFacts::may_forget`]).
//! - Every [`Op`] gets one [`Reply`], or the connection ends ([`StoreEvent::Down`]), which is as good as
//!   [`Reply::Unknown`]: the operation may have taken effect, or may take effect at any later time. What is
//!   submitted without a connection is answered by [`Reply::Unknown`].
//! - [`Reply::Conflict`] shows the register as it was at the instant at which the write was refused. If it
//!   shows the version that was expected, it proves nothing, and the ledger asks again.
//!
//! [`Reply::Value`] and [`StoreEvent::Changed`] may show a register as it was at any earlier time, unless
//! the store may forget: then a read shows every write that was acknowledged, and not forgotten, before the
//! read was submitted. Notifications may come late, twice, or never.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

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
