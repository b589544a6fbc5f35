//! A caller's request as the agent knows it, and what a step leaves for the agent thread.

use std::io;
use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::protocol::{Fence, LockName, Mode, Time};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::events::AgentEvent;
use crate::runtime::api::status::Status;
use crate::runtime::frames::FromAgent;
use crate::runtime::os::clock::Moment;
use crate::runtime::request::Request;
use crate::runtime::request::lease_page::LeasePage;

/// Names a connected client while an agent runs; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(pub(crate) usize);

/// A caller's request as the agent knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) lock: LockName,
    pub(crate) mode: Mode,
    pub(crate) caller: Caller,
    pub(crate) asked: Moment,
    pub(crate) held: Option<Held>,
    pub(super) sink: Sink,
    /// Whether its caller is about to wait by itself, as the lock is lent.
    pub(super) goes_by_loan: bool,
}

/// A caller as `status` lists it.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    pub(super) lock: &'a LockName,
    pub(super) caller: Caller,
    pub(super) asked: Moment,
    pub(super) held: Option<Held>,
}

impl<'a> From<&'a Entry> for Listed<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self {
            lock: &entry.lock,
            caller: entry.caller.clone(),
            asked: entry.asked,
            held: entry.held,
        }
    }
}

/// Since when, and with which fence, a request is inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// `None` where the group gives none.
    pub(crate) fence: Option<Fence>,
    pub(crate) since: Moment,
}

/// Who is to hear what becomes of a request.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A thread of this process.
    Thread(Arc<Request>),
    /// A client's request, by the client's own number.
    Client { client: ClientId, id: u64 },
}

/// What a step left for the agent thread.
#[derive(Debug)]
pub(crate) enum Task {
    /// Tell a client.
    Tell {
        client: ClientId,
        message: FromAgent,
    },
    /// Give a client what its command inherits, before its grant.
    Hand {
        client: ClientId,
        id: u64,
        page: io::Result<Arc<LeasePage>>,
    },
    /// The lease of what clients are granted from now on, and were in the same session.
    Lease(Lease),
    /// Tell a client that a grant is void. Nobody else is let in before `limit`.
    Lost {
        client: ClientId,
        id: u64,
        limit: Time,
    },
    /// End the entry in that slot of the clients' memory, which is no client's.
    EndNobodys { slot: u16 },
    /// Tell a thread's guard that it is lost.
    TellLoss(Arc<Request>),
    /// Tell all clients that listen.
    TellAll(AgentEvent),
}

/// A session, and when its lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// How many sessions of this agent there were before.
    pub(crate) session: u64,
    /// [`Time::ZERO`] before the first renewal.
    pub(crate) until: Time,
}

/// Who wants to know.
#[derive(Debug)]
pub(crate) enum Asker<T = Arc<Status>> {
    Thread(Sender<T>),
    Client { client: ClientId, id: u64 },
}

impl<T> Asker<T> {
    /// Whether the same client asks. Threads are this process's own.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Client { client: one, .. }, Self::Client { client: two, .. })
            if one == two)
    }
}
