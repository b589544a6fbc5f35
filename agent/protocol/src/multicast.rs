//! Totally ordered multicast by Lamport's clocks (Lamport 1978; the lecture, 6.2): everybody
//! delivers the same messages in the same order.
//!
//! A message is multicast with its Lamport stamp. Everybody keeps what comes in a queue by stamp,
//! and multicasts an acknowledgement; the head of the queue is delivered when all others have
//! acknowledged it. An acknowledgement has a higher stamp than what it acknowledges, and links keep
//! the order of sending, so nothing with a lower stamp can come any more.
//!
//! Messages: `DATA(s, payload)`, `ACK(known)`. N(N-1) for each message and 2T until it is
//! delivered; where there is much to say fewer, as whatever is said next acknowledges too.
//!
//! Invariant: what any two members have delivered are prefixes of each other, also of one that has
//! crashed or was removed. A new view keeps it, as nobody delivers what somebody lacks: those who
//! are left tell what they have not delivered, all deliver the union in the order of stamps, and go
//! on. Therefore later traffic can stand for an acknowledgement only if it says what had arrived
//! when it was sent. A higher clock alone would do for the order; but its sender may lack the
//! message, and never get it, if the one who multicast it crashes.

mod error;

pub use self::error::{InstallError, MulticastError, ReceiveError, TooLate, ViewError};

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::clock::{LamportClock, Stamp};
use super::ids::{Epoch, NodeId};

/// How many messages of a view that is still to come are kept.
const MAX_EARLY: usize = 65_536;
/// How many messages may wait for delivery.
const MAX_QUEUED: usize = 65_536;

/// One member's part. `T` is what is multicast.
///
/// - [`TotalOrder::multicast`] and [`TotalOrder::acknowledge`] give messages, which go to all other
///   members of the view over links that lose nothing and keep their order.
/// - [`TotalOrder::receive`] takes messages in, and then [`TotalOrder::deliver`] gives what all
///   deliver, in the order of all, until there is no more.
/// - [`TotalOrder::freeze`] and [`TotalOrder::install`] change the view. It is decided elsewhere who
///   belongs to it; a member starts without any.
#[derive(Clone, Debug)]
pub struct TotalOrder<T> {
    me: NodeId,
    window: usize,
    /// Zero before the first view.
    epoch: Epoch,
    frozen: bool,
    clock: LamportClock,
    /// The other members.
    peers: BTreeMap<NodeId, Peer>,
    /// The number of this member's last message in this epoch.
    said: u64,
    queue: BTreeMap<Stamp, Queued<T>>,
    /// How many in the queue are this member's own.
    own: usize,
    /// Whose messages came in since this member has said anything.
    owed: BTreeSet<NodeId>,
    /// The stamp of what was delivered last.
    last: Option<Stamp>,
    /// What the last view brought, to be delivered before anything else.
    settled: VecDeque<Delivery<T>>,
    /// Messages of views that are still to come.
    early: Vec<(NodeId, Message<T>)>,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    /// The number of its last message in this epoch, and its clock then.
    heard: u64,
    clock: u64,
    /// Up to which number it has the messages of each other member.
    acknowledged: BTreeMap<NodeId, u64>,
}

#[derive(Clone, Debug)]
struct Queued<T> {
    number: u64,
    payload: T,
}

/// What a member multicasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message<T> {
    epoch: Epoch,
    /// Counts the sender's messages in this epoch, from 1.
    number: u64,
    clock: u64,
    /// Up to which number the sender has others' messages, where that is new.
    known: Vec<(NodeId, u64)>,
    /// `None` if it only acknowledges.
    payload: Option<T>,
}

impl<T> Message<T> {
    /// What it is called in counts and traces.
    pub const fn kind(&self) -> &'static str {
        match self.payload {
            Some(_) => "DATA",
            None => "ACK",
        }
    }
}

/// A message whose place in the order is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delivery<T> {
    /// When it was sent, and by whom. Stamps rise from one delivery to the next.
    pub stamp: Stamp,
    /// The message.
    pub payload: T,
}

/// What one member knows when its view ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undelivered<T> {
    node: NodeId,
    epoch: Epoch,
    clock: u64,
    messages: Vec<(Stamp, T)>,
}

/// A new view, and what its members deliver before they go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Install<T> {
    epoch: Epoch,
    /// The view before, in which all were that are no newcomers; zero if there was none.
    previous: Epoch,
    members: Vec<NodeId>,
    clock: u64,
    messages: Vec<(Stamp, T)>,
}

impl<T: Clone> TotalOrder<T> {
    /// A member without a view. Of its own messages at most `window`, and at least one, may wait
    /// for delivery at a time.
    pub const fn new(me: NodeId, window: usize) -> Self {
        Self {
            me,
            window,
            epoch: Epoch::ZERO,
            frozen: true,
            clock: LamportClock::new(),
            peers: BTreeMap::new(),
            said: 0,
            queue: BTreeMap::new(),
            own: 0,
            owed: BTreeSet::new(),
            last: None,
            settled: VecDeque::new(),
            early: Vec::new(),
        }
    }

    /// The view in force; zero before the first.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The other members: those to whom messages go.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> {
        self.peers.keys().copied()
    }

    /// How many messages wait for delivery here.
    pub fn backlog(&self) -> usize {
        self.queue.len() + self.settled.len()
    }

    /// Multicasts `payload`: the result goes to all other members.
    ///
    /// # Errors
    /// It cannot be said now; the payload comes back, and nothing is changed.
    pub fn multicast(&mut self, payload: T) -> Result<Message<T>, MulticastError<T>> {
        if self.frozen {
            return Err(MulticastError::Frozen(payload));
        }
        if self.own >= self.window.max(1) {
            return Err(MulticastError::Full(payload));
        }
        let message = self.say(Some(payload.clone()));
        let (node, number) = (self.me, message.number);
        let clock = message.clock;
        self.own += 1;
        self.queue
            .insert(Stamp { clock, node }, Queued { number, payload });
        Ok(message)
    }

    /// Acknowledges what has come in since this member has last said something: the result goes to
    /// all other members; `None` if nothing has. Called after each [`TotalOrder::receive`],
    /// delivery is soonest; called later, it takes fewer messages, and none where there is
    /// something to multicast in the meantime.
    pub fn acknowledge(&mut self) -> Option<Message<T>> {
        let owes = !self.owed.is_empty() && !self.frozen;
        owes.then(|| self.say(None))
    }

    fn say(&mut self, payload: Option<T>) -> Message<T> {
        self.said += 1;
        let owed = core::mem::take(&mut self.owed);
        Message {
            epoch: self.epoch,
            number: self.said,
            clock: self.clock.tick(),
            known: owed
                .into_iter()
                .map(|node| (node, self.peers[&node].heard))
                .collect(),
            payload,
        }
    }

    /// A message from another member. One that comes twice, or is of an old view, is ignored; one
    /// of a later view is kept until that is here.
    ///
    /// # Errors
    /// What is wrong with it. Nothing is changed, and the sender can take part again only in
    /// another view.
    pub fn receive(&mut self, from: NodeId, message: Message<T>) -> Result<(), ReceiveError> {
        if message.epoch > self.epoch {
            if self.early.len() >= MAX_EARLY {
                return Err(ReceiveError::TooMuch);
            }
            self.early.push((from, message));
            return Ok(());
        }
        if message.epoch < self.epoch || self.frozen {
            return Ok(());
        }
        let peer = self.peers.get(&from).ok_or(ReceiveError::NotAMember)?;
        if message.number <= peer.heard {
            return Ok(());
        }
        if message.number > peer.heard + 1 {
            return Err(ReceiveError::Gap {
                expected: peer.heard + 1,
                found: message.number,
            });
        }
        let is_known = |(node, number): &(NodeId, u64)| {
            *node != from
                && (self.peers.contains_key(node) || (*node == self.me && *number <= self.said))
        };
        if message.clock <= peer.clock || !message.known.iter().all(is_known) {
            return Err(ReceiveError::Nonsense);
        }
        if message.payload.is_some() && self.queue.len() >= MAX_QUEUED {
            return Err(ReceiveError::TooMuch);
        }
        self.clock
            .receive(message.clock)
            .map_err(|_| ReceiveError::Nonsense)?;
        self.take_in(from, message);
        Ok(())
    }

    fn take_in(&mut self, from: NodeId, message: Message<T>) {
        let Message {
            number,
            clock,
            known,
            payload,
            ..
        } = message;
        let peer = self.peers.entry(from).or_default();
        (peer.heard, peer.clock) = (number, clock);
        for (node, number) in known {
            let highest = peer.acknowledged.entry(node).or_default();
            *highest = number.max(*highest);
        }
        if let Some(payload) = payload {
            let stamp = Stamp { clock, node: from };
            self.queue.insert(stamp, Queued { number, payload });
            self.owed.insert(from);
        }
    }

    /// The next message in the order of all, if its place is certain.
    pub fn deliver(&mut self) -> Option<Delivery<T>> {
        if let Some(delivery) = self.settled.pop_front() {
            return Some(delivery);
        }
        let head = self.queue.first_entry().filter(|_| !self.frozen)?;
        let (stamp, number) = (*head.key(), head.get().number);
        let is_everywhere = self.peers.iter().all(|(node, peer)| {
            let has_it = || peer.acknowledged.get(&stamp.node) >= Some(&number);
            *node == stamp.node || has_it()
        });
        if !is_everywhere {
            return None;
        }
        let payload = head.remove().payload;
        self.own -= usize::from(stamp.node == self.me);
        self.last = Some(stamp);
        Some(Delivery { stamp, payload })
    }

    /// The view ends, for that of epoch `next`: nothing more is said, taken in or delivered in it.
    /// The result goes to whoever decides on the next; asked again, it is the same.
    ///
    /// # Errors
    /// Such a view is in force, or a later one: the call comes late, and changes nothing.
    pub fn freeze(&mut self, next: Epoch) -> Result<Undelivered<T>, TooLate> {
        if next <= self.epoch {
            let epoch = self.epoch;
            return Err(TooLate { next, epoch });
        }
        self.frozen = true;
        let messages = self.queue.iter();
        Ok(Undelivered {
            node: self.me,
            epoch: self.epoch,
            clock: self.clock.time(),
            messages: messages
                .map(|(stamp, queued)| (*stamp, queued.payload.clone()))
                .collect(),
        })
    }

    /// A new view is in force. What its members had not delivered in the one before is delivered
    /// first; a newcomer begins after that.
    ///
    /// # Errors
    /// It is not this member's next view; nothing is changed.
    pub fn install(&mut self, install: &Install<T>) -> Result<(), InstallError> {
        if !install.members.contains(&self.me) {
            return Err(InstallError::NotAMember);
        }
        let is_new = self.epoch == Epoch::ZERO;
        if install.epoch <= self.epoch || !(is_new || install.previous == self.epoch) {
            return Err(InstallError::NotNext {
                epoch: self.epoch,
                previous: install.previous,
            });
        }
        if !self.frozen {
            return Err(InstallError::NotFrozen);
        }
        for (stamp, payload) in &install.messages {
            // Nobody else lacks what this member has delivered already.
            if self.last < Some(*stamp) {
                self.last = Some(*stamp);
                if !is_new {
                    let (stamp, payload) = (*stamp, payload.clone());
                    self.settled.push_back(Delivery { stamp, payload });
                }
            }
        }
        self.epoch = install.epoch;
        self.frozen = false;
        self.clock = LamportClock::starting_at(install.clock);
        let others = install.members.iter().filter(|node| **node != self.me);
        self.peers = others.map(|node| (*node, Peer::default())).collect();
        (self.said, self.own) = (0, 0);
        self.queue.clear();
        self.owed.clear();
        for (from, message) in core::mem::take(&mut self.early) {
            // What makes no sense leaves a gap behind, of which the next message tells.
            let _: Result<(), ReceiveError> = self.receive(from, message);
        }
        Ok(())
    }
}

impl<T> Install<T> {
    /// The view of `epoch`, with these members. `said` has what each of them told when it froze,
    /// newcomers too; those who do not belong to it any more need not be asked.
    ///
    /// # Errors
    /// Such a view cannot follow.
    pub fn new(
        epoch: Epoch,
        members: Vec<NodeId>,
        said: impl IntoIterator<Item = Undelivered<T>>,
    ) -> Result<Self, ViewError> {
        let (mut clock, mut previous) = (0, Epoch::ZERO);
        let (mut heard, mut union) = (BTreeSet::new(), BTreeMap::new());
        for one in said {
            if one.epoch != Epoch::ZERO && previous != Epoch::ZERO && one.epoch != previous {
                return Err(ViewError::TwoViews);
            }
            previous = previous.max(one.epoch);
            clock = one.clock.max(clock);
            heard.insert(one.node);
            union.extend(one.messages);
        }
        if let Some(node) = members.iter().find(|node| !heard.contains(node)) {
            return Err(ViewError::NotHeard { node: *node });
        }
        if epoch <= previous {
            return Err(ViewError::OldEpoch { epoch, previous });
        }
        Ok(Self {
            epoch,
            previous,
            members,
            clock,
            messages: union.into_iter().collect(),
        })
    }

    /// The view's members.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// What some member had not delivered when the view before ended, in the order of all. Where a
    /// newcomer is handed another member's state, these have gone into it.
    pub fn undelivered(&self) -> impl Iterator<Item = (Stamp, &T)> {
        self.messages
            .iter()
            .map(|(stamp, payload)| (*stamp, payload))
    }
}
