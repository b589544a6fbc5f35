//! Many traces as one: every event after its causes.
//!
//! A member's events stay in their order, and a message arrives after it was first sent. What the
//! clocks say decides the rest; where it contradicts those two rules, the later event is moved to
//! just after its cause. So no arrow leads back in time, however wrong the clocks are.
//!
//! Which of several transmissions of one message has arrived is not written anywhere. Drawn is the
//! last one before it; for vector clocks it is the first, since what the receiver does follows from
//! what was sent then.
//!
//! That a member asked another for its time is no event of the group: it only says how the clocks
//! stand.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::align::Alignment;
use super::read::{Event, Logs, Message, What};
use crate::diagram::timeline::{self, Lane, Moment};

/// The traces, merged.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// In nanoseconds since 1970.
    pub(super) history: Vec<Moment>,
    pub(super) lanes: Vec<Lane>,
    /// How many messages of members without a trace were sent and received.
    pub(super) to_nowhere: u64,
    /// How many events were moved, as the clocks say that they or events before them came before
    /// their causes.
    pub(super) moved: u64,
    /// The farthest of them, in nanoseconds.
    pub(super) farthest: u64,
    /// How long messages take, in nanoseconds, in order.
    pub(super) transits: Vec<u64>,
    /// How many contradict each other: they were taken as if they had no cause.
    pub(super) cycles: u64,
}

/// Merges what `logs` have.
pub(super) fn merge(logs: &Logs, alignment: &Alignment) -> Merged {
    let members = everybody(logs);
    let crashes = crashes(logs, alignment);
    let lanes = members
        .iter()
        .map(|id| lane(*id, logs, alignment, &crashes));
    let merged = Merged {
        lanes: lanes.collect(),
        ..Merged::default()
    };
    let mut merger = Merger {
        alignment,
        crashes,
        lanes: Vec::new(),
        ready: BinaryHeap::new(),
        waiting: HashMap::new(),
        sent: HashMap::new(),
        places: members.iter().copied().zip(0..).collect(),
        count: 0,
        merged,
    };
    for member in &members {
        let events = logs.members.get(member);
        merger.lanes.push(Cursor {
            events: events.map(|member| &member.events[..]).unwrap_or_default(),
            next: 0,
            at: 0,
        });
    }
    for event in logs.members.values().flat_map(|member| &member.events) {
        if let What::Sent { message, .. } = event.what {
            merger.sent.entry(message).or_default().is_traced = true;
        }
    }
    for lane in 0..merger.lanes.len() {
        merger.advance(lane);
    }
    merger.run();
    let mut merged = merger.merged;
    merged.transits.sort_unstable();
    // Only crashes are not where they belong yet. The sort is stable.
    merged.history.sort_by_key(|moment| moment.at);
    merged
}

/// When incarnations crashed, by member and incarnation.
type Crashes = BTreeMap<(u16, u64), u64>;

/// Goes through all traces at once.
struct Merger<'a> {
    alignment: &'a Alignment,
    /// The crash that comes after the last event of an incarnation.
    crashes: Crashes,
    lanes: Vec<Cursor<'a>>,
    /// Lanes whose next event can be taken, and when it happens.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    /// Lanes whose next event waits until this message is sent.
    waiting: HashMap<Message, Vec<usize>>,
    sent: HashMap<Message, Sent>,
    /// The lane of each member.
    places: BTreeMap<u16, usize>,
    /// How many transmissions there were.
    count: u64,
    merged: Merged,
}

struct Cursor<'a> {
    events: &'a [Event],
    next: usize,
    /// When the last one happened.
    at: u64,
}

/// What is known of a message.
#[derive(Debug, Default)]
struct Sent {
    /// Whether its sending is in a trace.
    is_traced: bool,
    /// The first transmission, and when it was.
    first: Option<(u64, u64)>,
    /// Those that have not arrived yet, and when they were.
    under_way: Vec<(u64, u64)>,
}

impl Merger<'_> {
    fn run(&mut self) {
        loop {
            while let Some(Reverse((at, lane))) = self.ready.pop() {
                self.take(lane, at);
                self.advance(lane);
            }
            // Each of those that are left waits for another: a trace is wrong.
            let stuck = self.waiting.values_mut().find_map(Vec::pop);
            let Some(lane) = stuck else { return };
            self.merged.cycles += 1;
            let at = self.earliest(lane);
            self.ready.push(Reverse((at, lane)));
        }
    }

    /// Says when the next event of `lane` happens, or what it waits for.
    fn advance(&mut self, lane: usize) {
        let cursor = &self.lanes[lane];
        let Some(event) = cursor.events.get(cursor.next) else {
            return;
        };
        let mut at = self.earliest(lane);
        if let What::Received { message, .. } = &event.what
            && let Some(sent) = self.sent.get(message).filter(|sent| sent.is_traced)
        {
            let Some((_, left)) = sent.first else {
                self.waiting.entry(*message).or_default().push(lane);
                return;
            };
            at = at.max(left + 1);
        }
        self.ready.push(Reverse((at, lane)));
    }

    /// When the next event of `lane` happens, by its clock and after the one before.
    fn earliest(&self, lane: usize) -> u64 {
        let cursor = &self.lanes[lane];
        let own = self.alignment.time(&cursor.events[cursor.next]);
        own.max(cursor.at)
    }

    /// The next event of `lane` happens.
    fn take(&mut self, lane: usize, at: u64) {
        let cursor = &mut self.lanes[lane];
        let event = &cursor.events[cursor.next];
        cursor.next += 1;
        cursor.at = at;
        let next = cursor.events.get(cursor.next);
        let is_last = next.is_none_or(|next| next.incarnation != event.incarnation);
        let id = self.merged.lanes[lane].number;
        let moved = at.saturating_sub(self.alignment.time(event));
        self.merged.moved += u64::from(moved > 0);
        self.merged.farthest = self.merged.farthest.max(moved);
        let what = self.what(event, at);
        let lock = event.lock.clone();
        self.merged.history.push(Moment {
            at,
            lane,
            lock,
            what,
        });
        if let Some(crash) = self
            .crashes
            .get(&(id, event.incarnation))
            .filter(|_| is_last)
        {
            let cursor = &mut self.lanes[lane];
            cursor.at = at.max(*crash);
            self.merged.history.push(Moment {
                at: cursor.at,
                lane,
                lock: None,
                what: timeline::What::Crashed,
            });
        }
    }

    fn what(&mut self, event: &Event, at: u64) -> timeline::What {
        match &event.what {
            What::Began => timeline::What::Began,
            What::Asked { request } => timeline::What::Asked {
                request: *request,
                stamp: None,
            },
            What::Entered {
                request,
                fence,
                pid,
            } => timeline::What::Entered {
                request: *request,
                fence: *fence,
                pid: *pid,
            },
            What::Left { request } => timeline::What::Left { request: *request },
            What::Ended { request } => timeline::What::Ended { request: *request },
            What::Lost { request, lease_end } => timeline::What::Lost {
                request: *request,
                // Both are by the same clock, which is aligned with the others as a whole.
                lease_end: lease_end.map(|end| at.saturating_add(end).saturating_sub(event.at)),
            },
            What::Sent { message, kind } => self.send(*message, kind, at),
            What::Received { message, kind } => self.receive(message, kind, at),
            What::View { epoch, members } => timeline::What::View {
                epoch: *epoch,
                members: members.clone(),
            },
            What::Suspects { member, .. } => timeline::What::Suspects {
                lane: self.places[member],
            },
            What::Excluded => timeline::What::Excluded,
            What::Closed { why } => timeline::What::Closed { why: why.clone() },
        }
    }

    fn send(&mut self, message: Message, kind: &'static str, at: u64) -> timeline::What {
        self.count += 1;
        let number = self.count;
        let sent = self.sent.entry(message).or_default();
        let again = sent.first.is_some();
        sent.first.get_or_insert((number, at));
        sent.under_way.push((number, at));
        let to = self.places[&message.to.0];
        if self.merged.lanes[to].known_until.is_none() {
            self.merged.to_nowhere += 1;
        }
        for lane in self.waiting.remove(&message).unwrap_or_default() {
            self.advance(lane);
        }
        timeline::What::Sent {
            message: number,
            to,
            kind,
            again,
        }
    }

    fn receive(&mut self, message: &Message, kind: &'static str, at: u64) -> timeline::What {
        let sent = self.sent.get_mut(message);
        let cause = sent.as_ref().and_then(|sent| Some(sent.first?.0));
        let arrived = sent.and_then(|sent| sent.under_way.pop());
        if let Some((_, left)) = arrived {
            self.merged.transits.push(at - left);
        }
        let from = self.places[&message.from.0];
        if self.merged.lanes[from].known_until.is_none() {
            self.merged.to_nowhere += 1;
        }
        timeline::What::Received {
            from,
            kind,
            message: arrived.map(|(number, _)| number),
            cause,
        }
    }
}

/// All members that a trace names.
fn everybody(logs: &Logs) -> BTreeSet<u16> {
    let mut members: BTreeSet<u16> = logs.members.keys().copied().collect();
    for event in logs.members.values().flat_map(|member| &member.events) {
        match &event.what {
            What::Sent { message, .. } => members.extend([message.to.0]),
            What::Received { message, .. } => members.extend([message.from.0]),
            What::View { members: those, .. } => members.extend(those),
            What::Suspects { member, .. } => members.extend([*member]),
            _ => {}
        }
    }
    members
}

fn lane(id: u16, logs: &Logs, alignment: &Alignment, crashes: &Crashes) -> Lane {
    let events = logs.members.get(&id).map(|member| &member.events);
    let last = events.and_then(|events| events.last());
    Lane {
        noun: "member",
        number: id,
        known_until: last.map(|last| match crashes.get(&(id, last.incarnation)) {
            // What is sent to the dead never arrives.
            Some(_) => u64::MAX,
            None => alignment.time(last),
        }),
    }
}

/// After which incarnations there was a crash, and when: incarnations that end without a word, and
/// were followed by another, or were left out of a view by those who went on. That is the last time
/// that anybody heard of them. A trace may also end because it was copied while its agent ran.
fn crashes(logs: &Logs, alignment: &Alignment) -> Crashes {
    let is_sign = |event: &&Event| matches!(event.what, What::View { .. } | What::Suspects { .. });
    let signs = logs.members.iter().flat_map(|(id, member)| {
        let signs = member.events.iter().filter(is_sign);
        signs.map(|event| (*id, alignment.time(event), event))
    });
    let signs: Vec<_> = signs.collect();
    let mut crashes = Crashes::new();
    for (id, member) in &logs.members {
        for incarnation in member
            .events
            .chunk_by(|a, b| a.incarnation == b.incarnation)
        {
            let (Some(first), Some(last)) = (incarnation.first(), incarnation.last()) else {
                continue;
            };
            if matches!(last.what, What::Excluded | What::Closed { .. }) {
                continue;
            }
            let was_in_view = incarnation.iter().any(
                |event| matches!(&event.what, What::View { members, .. } if members.contains(id)),
            );
            let from = alignment.time(last);
            let next = member
                .events
                .iter()
                .find(|event| event.incarnation > first.incarnation);
            let until = next.map_or(u64::MAX, |next| alignment.time(next));
            let (mut is_out, mut at) = (next.is_some(), from);
            for (other, time, event) in &signs {
                if other == id || *time <= from {
                    continue;
                }
                match &event.what {
                    What::View { members, .. } => is_out |= was_in_view && !members.contains(id),
                    What::Suspects { member, heard } if member == id => {
                        let heard = heard.map(|heard| alignment.reading(event.clock, heard));
                        at = at.max(heard.unwrap_or(from).min(until));
                    }
                    _ => {}
                }
            }
            if is_out {
                crashes.insert((*id, first.incarnation), at);
            }
        }
    }
    crashes
}

#[cfg(test)]
mod tests;
