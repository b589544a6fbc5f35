//! What an agent tells those who listen: which members come and go, and how its session ends.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use serde::{Deserialize, Serialize};

use crate::protocol::{Epoch, Fence, LockName, NodeId};
use crate::runtime::api::error::SessionEnd;
use crate::runtime::api::status::QuorumStatus;
use crate::runtime::os::sync::Mutex;

/// How many events wait for a listener that does not read.
const CAPACITY: usize = 256;
/// How many listen at most. That one has gone shows only at the next event, which may be long in
/// coming; so the oldest makes room for the newest.
const MAX_LISTENERS: usize = 1_024;

/// What happened to the group, as this agent sees it.
///
/// Clients are sent a variant by its position: append new ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AgentEvent {
    /// A new view is in force.
    View {
        /// Its epoch.
        epoch: Epoch,
        /// Its members.
        members: Vec<NodeId>,
    },
    /// Nothing was heard from this member for a while: dead, slow or cut off.
    Suspect {
        /// Which.
        peer: NodeId,
    },
    /// A suspected member was heard again.
    Alive {
        /// Which.
        peer: NodeId,
    },
    /// A member's settings differ from ours, and the group cannot form with both.
    Disagreement {
        /// Which member.
        peer: NodeId,
        /// The first key that differs, as in the configuration file.
        key: String,
        /// Our value.
        ours: String,
        /// Its value.
        theirs: String,
        /// Whether we are the odd one out.
        refused: bool,
    },
    /// The listener did not keep up, and this many events after the last one it got are lost.
    Missed(u64),
    /// The session is over: the last event.
    Ended(SessionEnd),
    /// The group has gone on without this member, which was silent for too long: what it held is
    /// lost. It comes back by itself.
    Excluded {
        /// The epoch of the view that it is not in.
        epoch: Epoch,
    },
    /// Another leads in an election, or nobody does, as far as this agent knows. Told only to those
    /// that observe the election.
    Leader {
        /// Which election.
        lock: LockName,
        /// Who.
        leader: Option<Leader>,
    },
    /// There has been no quorum for one lease, or there is one again, or other voters are missing
    /// than were told.
    Quorum(QuorumStatus),
}

/// Who leads in an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Which member; `None` where a store has the locks, which knows no members.
    pub member: Option<NodeId>,
    /// The host and the process, where a store has the locks.
    pub process: Option<LeaderProcess>,
    /// 0 where the group gives none.
    fence: u64,
}

/// The process that leads in an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderProcess {
    /// Its host.
    pub host: String,
    /// Its number there.
    pub pid: u32,
}

impl Leader {
    pub(crate) fn of_member(member: NodeId, fence: Option<Fence>) -> Self {
        Self {
            member: Some(member),
            process: None,
            fence: fence.map_or(0, Fence::as_u64),
        }
    }

    /// A process on some host, by what a store has.
    #[cfg(feature = "store")]
    pub(crate) fn of_process(process: LeaderProcess, fence: Fence) -> Self {
        Self {
            member: None,
            process: Some(process),
            fence: fence.as_u64(),
        }
    }

    /// The fence with which it is inside of the election's lock; `None` where the group gives none.
    pub fn fence(&self) -> Option<Fence> {
        Fence::new(self.fence)
    }
}

/// Everybody who listens. A listener that does not read misses the newest events, and is told how
/// many: nothing here ever waits for one.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    list: VecDeque<Box<dyn Listen>>,
    /// The members that differ, each as it was last said. Of that there is no second word, and who
    /// listens a moment too late would wait for it for ever.
    differing: BTreeMap<NodeId, AgentEvent>,
    ended: Option<SessionEnd>,
}

/// Somebody who listens.
trait Listen: Send {
    /// Whether it still does.
    fn tell(&mut self, event: &AgentEvent) -> bool;
}

/// Listens through a channel.
struct Channel<T, F> {
    sender: Sender<T>,
    map: F,
    missed: u64,
    /// After the sender: the task that is woken by its drop finds the channel at its end.
    bell: Bell,
}

/// What a channel yields, and the task that waits for it.
#[derive(Debug)]
pub struct Observed<T> {
    receiver: Receiver<T>,
    bell: Bell,
}

impl<T> Observed<T> {
    /// At its end.
    pub fn over() -> Self {
        Self {
            receiver: bounded(0).1,
            bell: Bell::default(),
        }
    }

    /// For those who wait for it with a thread.
    pub fn into_receiver(self) -> Receiver<T> {
        self.receiver
    }

    /// The next one, once there is one; `None` at the end. Until then this task is woken.
    pub fn poll_next(&mut self, task: &Waker) -> Poll<Option<T>> {
        if let Poll::Ready(next) = self.look() {
            return Poll::Ready(next);
        }
        *self.bell.0.lock() = Some(task.clone());
        // What came between the two.
        self.look()
    }

    fn look(&self) -> Poll<Option<T>> {
        match self.receiver.try_recv() {
            Ok(next) => Poll::Ready(Some(next)),
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }
}

/// Wakes the task that waits for what a channel yields; also when it is dropped.
#[derive(Clone, Default)]
struct Bell(Arc<Mutex<Option<Waker>>>);

impl Bell {
    fn ring(&self) {
        let task = self.0.lock().take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}

/// Who leads in the election `lock`: `first` if it is known, and all changes from now on.
pub(crate) fn observe<T: Send + 'static>(
    hub: &Hub,
    lock: &LockName,
    first: Option<Option<Leader>>,
    map: fn(Leader) -> T,
) -> Observed<Option<T>> {
    let lock = lock.clone();
    let first = first.map(|leader| leader.map(map));
    hub.subscribe_from(first, move |event| match event {
        AgentEvent::Leader { lock: of, leader } if *of == lock => Some(leader.clone().map(map)),
        _ => None,
    })
}

impl Hub {
    /// Which members differ, and all events from now on, as `map` makes them; until
    /// [`MAX_LISTENERS`] more listen.
    pub(crate) fn subscribe<T: Send + 'static>(
        &self,
        map: impl Fn(&AgentEvent) -> Option<T> + Send + 'static,
    ) -> Receiver<T> {
        self.subscribe_from(None, map).into_receiver()
    }

    /// The same, after `first`.
    fn subscribe_from<T: Send + 'static>(
        &self,
        first: Option<T>,
        map: impl Fn(&AgentEvent) -> Option<T> + Send + 'static,
    ) -> Observed<T> {
        // Bounded by who sends: a channel that is bounded by itself takes all its room at once.
        let (sender, receiver) = unbounded();
        if let Some(first) = first {
            // It has room, and its other end is here.
            let _ = sender.send(first);
        }
        let bell = Bell::default();
        let mut channel = Channel {
            sender,
            map,
            missed: 0,
            bell: bell.clone(),
        };
        let mut listeners = self.listeners.lock();
        if let Some(end) = &listeners.ended {
            channel.tell(&AgentEvent::Ended(end.clone()));
        } else {
            for event in listeners.differing.values() {
                channel.tell(event);
            }
            if listeners.list.len() >= MAX_LISTENERS {
                listeners.list.pop_front();
            }
            listeners.list.push_back(Box::new(channel));
        }
        drop(listeners);
        Observed { receiver, bell }
    }

    pub(crate) fn publish(&self, event: &AgentEvent) {
        let mut listeners = self.listeners.lock();
        match event {
            AgentEvent::Disagreement { peer, .. } => {
                listeners.differing.insert(*peer, event.clone());
            }
            // Members of a view agree.
            AgentEvent::View { members, .. } => {
                listeners
                    .differing
                    .retain(|peer, _| !members.contains(peer));
            }
            _ => {}
        }
        listeners.list.retain_mut(|listener| listener.tell(event));
    }

    /// Tells everybody that the session is over, and disconnects them.
    pub(crate) fn end(&self, end: &SessionEnd) {
        let mut listeners = self.listeners.lock();
        if listeners.ended.is_none() {
            listeners.ended = Some(end.clone());
            for mut listener in listeners.list.drain(..) {
                listener.tell(&AgentEvent::Ended(end.clone()));
            }
        }
    }
}

impl<T: Send, F: Fn(&AgentEvent) -> Option<T> + Send> Listen for Channel<T, F> {
    fn tell(&mut self, event: &AgentEvent) -> bool {
        if self.missed > 0 && self.send(&AgentEvent::Missed(self.missed)) != Sent::NoRoom {
            self.missed = 0;
        }
        match self.send(event) {
            Sent::Taken => true,
            Sent::NoRoom => {
                // A client's agent may have left some out before.
                self.missed += match event {
                    AgentEvent::Missed(count) => *count,
                    _ => 1,
                };
                true
            }
            Sent::Gone => false,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Sent {
    Taken,
    NoRoom,
    Gone,
}

impl<T, F: Fn(&AgentEvent) -> Option<T>> Channel<T, F> {
    fn send(&self, event: &AgentEvent) -> Sent {
        let Some(event) = (self.map)(event) else {
            return Sent::Taken;
        };
        // Only here anything is sent, with the hub's mutex held: the room does not shrink meanwhile.
        if self.sender.len() >= CAPACITY {
            return Sent::NoRoom;
        }
        match self.sender.send(event) {
            Ok(()) => {
                self.bell.ring();
                Sent::Taken
            }
            Err(_) => Sent::Gone,
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners")
            .field("listening", &self.list.len())
            .field("ended", &self.ended)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_listener_is_told_what_it_missed() {
        let hub = Hub::default();
        let slow = hub.subscribe(|event| Some(event.clone()));
        let event = |id| AgentEvent::Alive {
            peer: NodeId::new(id).unwrap(),
        };
        for _ in 0..CAPACITY + 3 {
            hub.publish(&event(1));
        }
        assert_eq!(slow.try_iter().count(), CAPACITY);
        hub.publish(&event(2));
        hub.end(&SessionEnd::Closed);
        let rest: Vec<_> = slow.iter().collect();
        assert_eq!(
            rest,
            [
                AgentEvent::Missed(3),
                event(2),
                AgentEvent::Ended(SessionEnd::Closed)
            ]
        );
    }

    #[test]
    fn what_was_missed_on_the_way_is_counted_in() {
        let hub = Hub::default();
        let slow = hub.subscribe(|event| Some(event.clone()));
        for _ in 0..CAPACITY {
            hub.publish(&AgentEvent::Missed(1));
        }
        hub.publish(&AgentEvent::Missed(7));
        assert_eq!(slow.try_iter().count(), CAPACITY);
        hub.end(&SessionEnd::Closed);
        assert_eq!(slow.iter().next(), Some(AgentEvent::Missed(7)));
    }

    #[test]
    fn who_listens_late_hears_who_differs() {
        let hub = Hub::default();
        let differs = |id| AgentEvent::Disagreement {
            peer: NodeId::new(id).unwrap(),
            key: "lease".to_owned(),
            ours: "5s".to_owned(),
            theirs: "1s".to_owned(),
            refused: true,
        };
        let listen = || hub.subscribe(|event| Some(event.clone()));
        hub.publish(&differs(1));
        hub.publish(&differs(2));
        let heard: Vec<_> = listen().try_iter().collect();
        assert_eq!(heard, [differs(1), differs(2)]);
        let members = vec![NodeId::new(1).unwrap()];
        let epoch = Epoch::new(7).unwrap();
        hub.publish(&AgentEvent::View { epoch, members });
        let heard: Vec<_> = listen().try_iter().collect();
        assert_eq!(heard, [differs(2)]);
    }

    #[test]
    fn listeners_that_went_unnoticed_make_room() {
        let hub = Hub::default();
        let first = hub.subscribe(|event| Some(event.clone()));
        let second = hub.subscribe(|event| Some(event.clone()));
        for _ in 2..=MAX_LISTENERS {
            drop(hub.subscribe(|event| Some(event.clone())));
        }
        let event = AgentEvent::Missed(7);
        hub.publish(&event);
        assert_eq!(first.iter().count(), 0, "it has ended");
        assert_eq!(second.try_iter().collect::<Vec<_>>(), [event]);
        assert_eq!(hub.listeners.lock().list.len(), 1);
    }

    #[test]
    fn a_late_listener_hears_the_end() {
        let hub = Hub::default();
        hub.end(&SessionEnd::Panicked);
        let heard: Vec<_> = hub.subscribe(|event| Some(event.clone())).iter().collect();
        assert_eq!(heard, [AgentEvent::Ended(SessionEnd::Panicked)]);
    }
}
