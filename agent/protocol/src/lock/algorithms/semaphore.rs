//! A central counting semaphore: P and V by messages to one member, the server.
//!
//! The server is the member with the highest rendezvous hash for the lock's name, so different
//! locks have different servers, and everybody in a view agrees on each without asking.
//!
//! Messages: `REQUEST(r)` (P), exclusive or shared; `GRANT(r, abandoned)`; `RELEASE(r, how)` (V,
//! also to cancel); `QUEUED(r)`, "got it, no permit is free", only for callers that want to know.
//!
//! Invariant: held + free = permits. V names the request it gives back: a V that comes twice, or
//! from nobody who holds, frees nothing (the lecture's V manufactures a permit there).
//!
//! Cost: 3 messages, none when the caller's member is the server: 3(N-1)/N in the mean; response
//! 2T+E; synchronisation delay 2T. Service is in the order of arrival, also between readers and
//! writers (Courtois, Heymans and Parnas 1971 name the problem): a reader that comes after a
//! waiting writer waits behind it, so neither starves.

use alloc::collections::{BTreeMap, VecDeque};
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::placement::serving_members;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Mark, Rebuild};
use crate::lock::request::{Mode, Previous, Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// P: a permit, please. `tries`: tell me if there is none.
    Request {
        id: RequestId,
        mode: Mode,
        tries: bool,
    },
    /// Here is one. `abandoned`: a holder before ended inside, and it may be that nobody has been
    /// told yet.
    Grant { id: RequestId, abandoned: bool },
    /// V: I need it no more.
    Release { id: RequestId, how: Release },
    /// None is free now; you are in the queue.
    Queued { id: RequestId },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Grant { .. } => "GRANT",
            Self::Release { .. } => "RELEASE",
            Self::Queued { .. } => "QUEUED",
        }
    }

    pub(crate) const fn is_request(&self) -> bool {
        matches!(self, Self::Request { .. })
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Semaphore {
    me: NodeId,
    server: NodeId,
    /// This member's request that waits.
    waiting: Option<RequestId>,
    /// Whether it will be inside with nobody else.
    waits_alone: bool,
    /// This member's request that is inside with nobody else.
    alone: Option<RequestId>,
    is_single: bool,
    /// The server's books; `None` elsewhere.
    books: Option<Books>,
}

#[derive(Clone, Debug, Hash)]
struct Books {
    permits: usize,
    /// Who is inside, or will be; and who of them took the mark away, as far as the server knows.
    held: BTreeMap<RequestId, bool>,
    /// How they are held. Shared holders are any number, of a lock with one permit.
    mode: Mode,
    queue: VecDeque<(RequestId, Mode)>,
    /// The mark: a holder ended inside, and nobody but readers has been told.
    abandoned: bool,
    /// The highest request of each member that is over (G5): a REQUEST that comes after its own
    /// RELEASE is dropped.
    done: BTreeMap<NodeId, u64>,
}

impl Semaphore {
    /// The server's books are the view's table; nobody has to say anything.
    pub(crate) fn new(permits: NonZeroU32, from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let (server, _) = serving_members(from.lock, from.members);
        let is_single = permits == NonZeroU32::MIN;
        let is_alone = is_single && from.held == Mode::Exclusive;
        let waiter = from.my_waiter();
        let mut engine = Self {
            me: from.me,
            server,
            waiting: waiter.map(|request| request.id),
            waits_alone: is_single && waiter.is_some_and(|request| request.mode == Mode::Exclusive),
            alone: from.my_holder().filter(|_| is_alone),
            is_single,
            books: (server == from.me).then(|| Books {
                permits: permits.get() as usize,
                held: from.holders.iter().map(|&id| (id, false)).collect(),
                mode: from.held,
                queue: from
                    .waiters
                    .iter()
                    .map(|request| (request.id, request.mode))
                    .collect(),
                abandoned: from.abandoned,
                done: BTreeMap::new(),
            }),
        };
        engine.serve(out);
        engine
    }

    /// Gives free permits to the first in the queue.
    fn serve(&mut self, out: &mut Effects<Message>) {
        while let Some((id, abandoned)) = self.books.as_mut().and_then(Books::next) {
            if id.node == self.me {
                self.on_grant(id, abandoned, out);
            } else {
                let grant = Message::Grant { id, abandoned };
                out.send(id.node, grant);
            }
        }
    }

    fn on_request(&mut self, id: RequestId, mode: Mode, tries: bool, out: &mut Effects<Message>) {
        let Some(books) = &mut self.books else { return };
        if books.knows(id) {
            return;
        }
        books.queue.push_back((id, mode));
        self.serve(out);
        let waits = self.books.as_ref().is_some_and(|books| books.queues(id));
        if tries && waits {
            if id.node == self.me {
                out.busy = Some(id);
            } else {
                out.send(id.node, Message::Queued { id });
            }
        }
    }

    fn on_grant(&mut self, id: RequestId, abandoned: bool, out: &mut Effects<Message>) {
        // A grant that crosses its cancel is ignored: the RELEASE on its way frees the permit.
        if self.waiting == Some(id) {
            self.waiting = None;
            self.alone = self.waits_alone.then_some(id);
            out.grant_after(id, Previous::after(abandoned));
        }
    }

    fn on_release(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        if let Some(books) = &mut self.books {
            books.end(id, how);
            self.serve(out);
        }
    }

    /// V, wherever the server is.
    fn give_back(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        if self.server == self.me {
            self.on_release(id, how, out);
        } else {
            out.send(self.server, Message::Release { id, how });
        }
    }
}

impl Books {
    /// Whether `id` is over, held or queued: then asking for it again changes nothing.
    fn knows(&self, id: RequestId) -> bool {
        self.done.get(&id.node).is_some_and(|&done| id.seq <= done)
            || self.held.contains_key(&id)
            || self.queues(id)
    }

    fn queues(&self, id: RequestId) -> bool {
        self.queue.iter().any(|&(queued, _)| queued == id)
    }

    /// The next request to be served, if it may be inside with those that are, and the mark.
    fn next(&mut self) -> Option<(RequestId, bool)> {
        let &(id, mode) = self.queue.front()?;
        let fits = match mode {
            _ if self.held.is_empty() => true,
            Mode::Shared => self.mode == Mode::Shared,
            Mode::Exclusive => self.mode == Mode::Exclusive && self.held.len() < self.permits,
        };
        if !fits {
            return None;
        }
        self.queue.pop_front();
        let abandoned = self.abandoned;
        let takes = abandoned && mode == Mode::Exclusive;
        // Who only reads repairs nothing: the next one is told too.
        self.abandoned = abandoned && !takes;
        self.held.insert(id, takes);
        self.mode = mode;
        Some((id, abandoned))
    }

    fn end(&mut self, id: RequestId, how: Release) {
        let done = self.done.entry(id.node).or_default();
        *done = id.seq.max(*done);
        match self.held.remove(&id) {
            Some(took) => {
                let leaves = match how {
                    Release::Given => false,
                    Release::Abandoned => true,
                    Release::Unused => took,
                };
                self.abandoned |= leaves;
            }
            None => self.queue.retain(|&(queued, _)| queued != id),
        }
    }
}

impl Engine<Message> for Semaphore {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(self.waiting.is_none(), "one request waits at a time");
        let Request {
            id, mode, tries, ..
        } = request;
        self.waiting = Some(id);
        self.waits_alone = self.is_single && mode == Mode::Exclusive;
        if self.server == self.me {
            self.on_request(id, mode, tries, out);
        } else {
            out.send(self.server, Message::Request { id, mode, tries });
        }
    }

    fn release(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        self.alone.take_if(|alone| *alone == id);
        self.give_back(id, how, out);
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        if self.waiting == Some(id) {
            self.waiting = None;
            self.give_back(id, Release::Unused, out);
        }
    }

    /// The server knows; elsewhere who is alone inside does.
    fn may_be_inside(&self, node: NodeId) -> bool {
        match &self.books {
            Some(books) => books.held.keys().any(|id| id.node == node),
            None => self.alone.is_none(),
        }
    }

    fn mark(&self) -> Option<Mark> {
        let books = self.books.as_ref()?;
        let is_conferred = |(id, took): (&RequestId, &bool)| *took && id.node != self.me;
        if books.abandoned {
            Some(Mark::Kept)
        } else if books.held.iter().any(is_conferred) {
            Some(Mark::Conferred)
        } else {
            None
        }
    }

    fn asks(&self) -> &[NodeId] {
        core::slice::from_ref(&self.server)
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            // Only its owner speaks for a request.
            Message::Request { id, mode, tries } if id.node == from => {
                self.on_request(id, mode, tries, out)
            }
            Message::Release { id, how } if id.node == from => self.on_release(id, how, out),
            Message::Grant { id, abandoned } if from == self.server => {
                self.on_grant(id, abandoned, out);
            }
            Message::Queued { id } if self.waiting == Some(id) => out.busy = Some(id),
            _ => {}
        }
    }
}
