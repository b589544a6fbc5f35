//! What one client is told without asking each time: the group's events, and the leaders of the
//! elections that it observes. A client that leaves too much unread misses some, and is told later
//! how many events it missed and who leads then.

use std::collections::BTreeMap;
use std::mem;

use super::output::Output;
use crate::protocol::LockName;
use crate::runtime::api::events::{AgentEvent, Leader};
use crate::runtime::clients::limits::{MAX_REQUESTS, UNREAD_LIMIT};
use crate::runtime::frames::FromAgent;

/// What an observed election takes besides its name: some two words in a map that is not full, and
/// what the allocator keeps of its own.
const OBSERVED_LEN: usize = 64;

/// What became of an event that a client wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime::clients) enum Heard {
    Told,
    Missed,
}

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Whether it wants to know the group's events.
    pub(super) listens: bool,
    /// How many events it missed, and was not told so.
    missed: u64,
    /// The elections of which it wants to know the leader, and whether it was told the present one.
    pub(super) elections: BTreeMap<LockName, bool>,
    /// Whether there are some of which it was not.
    is_behind: bool,
    /// What the elections take.
    len: usize,
}

impl Subscriptions {
    /// How much memory it takes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether it observes as many elections as it may.
    pub(super) fn is_full(&self) -> bool {
        self.elections.len() >= MAX_REQUESTS
    }

    /// Tells who leads, if that is known, and from now on whenever that changes.
    pub(super) fn observe(
        &mut self,
        lock: LockName,
        leader: Option<Option<Leader>>,
        output: &mut Output,
    ) {
        if self.elections.insert(lock.clone(), true).is_none() {
            self.len += lock.as_bytes().len() + OBSERVED_LEN;
        }
        if let Some(leader) = leader {
            output.put(&FromAgent::Leader { lock, leader });
        }
    }

    /// Tells it `event`, if it wants to know; whether it missed it, as it leaves too much unread.
    pub(super) fn tell(&mut self, event: &AgentEvent, output: &mut Output) -> Option<Heard> {
        let has_room = output.unread() < UNREAD_LIMIT;
        match event {
            AgentEvent::Leader { lock, leader } => {
                *self.elections.get_mut(lock)? = has_room;
                self.is_behind |= !has_room;
                if has_room {
                    let (lock, leader) = (lock.clone(), leader.clone());
                    output.put(&FromAgent::Leader { lock, leader });
                }
            }
            _ if !self.listens => return None,
            event if has_room => {
                self.tell_missed(output);
                output.put(&FromAgent::Event(event.clone()));
            }
            _ => self.missed += 1,
        }
        Some(if has_room { Heard::Told } else { Heard::Missed })
    }

    /// Whether there is room to tell it of what it missed.
    pub(super) fn can_catch_up(&self, output: &Output) -> bool {
        (self.is_behind || self.missed > 0) && output.unread() < UNREAD_LIMIT
    }

    /// Tells it how much it missed, and who leads at present, as far as there is room. Of an election
    /// there may be no other word for long, and it would believe the leader before.
    pub(super) fn catch_up(
        &mut self,
        leader: impl Fn(&LockName) -> Option<Leader>,
        output: &mut Output,
    ) {
        self.tell_missed(output);
        self.is_behind = false;
        for (lock, is_told) in self.elections.iter_mut().filter(|(_, is_told)| !**is_told) {
            if output.unread() >= UNREAD_LIMIT {
                self.is_behind = true;
                break;
            }
            *is_told = true;
            let (lock, leader) = (lock.clone(), leader(lock));
            output.put(&FromAgent::Leader { lock, leader });
        }
    }

    /// As a listener in the agent's own process is told.
    fn tell_missed(&mut self, output: &mut Output) {
        let missed = mem::take(&mut self.missed);
        if missed > 0 {
            output.put(&FromAgent::Event(AgentEvent::Missed(missed)));
        }
    }
}
