//! A link: reliable delivery between two incarnations of two members, over datagrams that get lost,
//! come twice, or come in another order.
//!
//! Frames are numbered; each is repeated until it is acknowledged, and delivered once, in order.
//! Acknowledgements ride on whatever goes the other way. A request is acknowledged at once, by the
//! datagram with its answer if there is one, else by a bare one ("I got it, and cannot reply
//! yet": Jones's rule); an answer waits a moment for something to ride on. How long to wait for an
//! acknowledgement is measured (RFC 6298) and doubled with each failure. A frame that comes twice
//! tells that our answer was lost: it is repeated at once, as the lecture asks.
//!
//! A link never says that its peer is dead. It asks "are you still there" when it has heard
//! nothing for a while, and says that it suspects the peer when no answer comes. Most members want nothing
//! most of the time, and this is what that costs: so a member asks all its peers at few moments of its
//! clock, and of two members one asks a little sooner, so that they do not ask each other at once
//! ([`Timing`]).

mod receiver;
mod round_trip;

use alloc::collections::{VecDeque, vec_deque};
use alloc::vec::Vec;
use core::time::Duration;

use self::receiver::{Arrival, Receiver};
use self::round_trip::RoundTrip;
use super::ids::Epoch;
use super::time::Time;
use super::wire::{FRAMES_ROOM, Frame, Header, MAX_FRAME};

/// How many frames may be on their way at once.
const WINDOW: usize = 64;
/// How many frames may wait here before [`Link::is_congested`] says so.
const MAX_BACKLOG: usize = 4096;

/// After so many repetitions in a row without an answer the peer counts as one that does not answer.
const SILENCE: u32 = 2;

/// At how many moments of the time of silence after which a peer is asked that is done. They are the same
/// for all peers, and shortly after those at which leases are renewed: who answers that need not be asked.
const MOMENTS: u32 = 4;

/// How long an answer's acknowledgement waits for something to ride on.
const ACK_DELAY: Duration = Duration::from_millis(4);

#[derive(Debug)]
pub struct Link {
    timing: Timing,
    sender: Sender,
    receiver: Receiver,
    round_trip: RoundTrip,
    last_heard: Time,
    last_ping: Time,
    /// What the next datagram has to do besides carrying frames.
    duty: Duty,
    suspected: bool,
}

/// How soon silence is noticed.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// "Are you still there", after about this time of silence, and again: less than a quarter of it
    /// sooner, and an eighth of it later at most.
    pub ping_after: Duration,
    /// Whether the peer asks first: this end then asks a little later, if it has to.
    pub is_asked: bool,
    /// Suspect the peer after this time of silence.
    pub suspect_after: Duration,
}

#[derive(Debug, Default)]
struct Duty {
    /// Acknowledge now.
    acknowledge: bool,
    /// Acknowledge by then.
    acknowledge_by: Option<Time>,
    ping: bool,
}

/// What one datagram carries.
#[derive(Debug)]
pub struct Segment<'a> {
    pub ping: bool,
    pub epoch: Epoch,
    pub acknowledged: u64,
    pub selective: u64,
    pub first: u64,
    frames: vec_deque::Iter<'a, Outgoing>,
}

impl Segment<'_> {
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.clone().map(|outgoing| &outgoing.frame)
    }
}

/// Whether silence began or ended a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    Began,
    Unchanged,
}

impl Link {
    pub fn new(now: Time, timing: Timing) -> Self {
        Self {
            timing,
            sender: Sender::default(),
            receiver: Receiver::default(),
            round_trip: RoundTrip::default(),
            last_heard: now,
            last_ping: now,
            duty: Duty::default(),
            suspected: false,
        }
    }

    /// Queues a body. `prompt`: nothing need come back soon that an acknowledgement could ride on.
    pub fn send(&mut self, epoch: Epoch, body: Vec<u8>, prompt: bool) {
        if (1..=MAX_FRAME).contains(&body.len()) {
            let frame = Frame {
                more: false,
                prompt,
                bytes: body,
            };
            return self.sender.push(epoch, frame);
        }
        let mut pieces = body.chunks(MAX_FRAME).peekable();
        while let Some(piece) = pieces.next() {
            let more = pieces.peek().is_some();
            let frame = Frame {
                more,
                prompt: prompt || more,
                bytes: piece.to_vec(),
            };
            self.sender.push(epoch, frame);
        }
    }

    /// Whether so much waits to be sent that nothing should be added that can be helped.
    pub(crate) fn is_congested(&self) -> bool {
        self.sender.frames.len() > MAX_BACKLOG
    }

    /// Whether everything sent has been acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.sender.frames.is_empty()
    }

    /// Forgets what is still to be sent: the peer takes nothing in any more.
    pub(crate) fn give_up_sending(&mut self) {
        self.sender.give_up();
    }

    /// When something last came, or else since when this link is.
    pub(crate) fn last_heard(&self) -> Time {
        self.last_heard
    }

    pub(crate) fn is_suspected(&self) -> bool {
        self.suspected
    }

    /// Something came from the peer. Returns whether that ended a suspicion.
    pub fn heard(&mut self, now: Time) -> bool {
        self.last_heard = now;
        core::mem::take(&mut self.suspected)
    }

    /// Takes a datagram in, and returns the bodies that are whole and next in order.
    pub fn receive(
        &mut self,
        now: Time,
        header: &Header,
        frames: Vec<Frame>,
    ) -> Vec<(Epoch, Vec<u8>)> {
        self.sender.acknowledged(now, header, &mut self.round_trip);
        self.duty.acknowledge |= header.ping;
        let mut arrival = Arrival::default();
        // A number that would wrap is none of ours.
        let last = header.first.saturating_add(frames.len() as u64);
        for (number, frame) in (header.first..last).zip(frames) {
            self.receiver
                .take(number, header.epoch, frame, &mut arrival);
        }
        if arrival.again {
            self.sender
                .repeat_unanswered(now, self.round_trip.smoothed());
        }
        self.duty.acknowledge |= arrival.prompt || arrival.again;
        if arrival.lazy {
            self.duty.acknowledge_by.get_or_insert(now + ACK_DELAY);
        }
        arrival.bodies
    }

    /// The next datagram to send, if there is anything to say.
    pub fn transmit(&mut self, now: Time) -> Option<Segment<'_>> {
        let run = self.sender.next_run(now);
        if run.is_empty() && !self.duty.acknowledge && !self.duty.ping {
            return None;
        }
        let ping = core::mem::take(&mut self.duty).ping;
        let first = self.sender.base + run.start as u64;
        let epoch = self
            .sender
            .frames
            .get(run.start)
            .map_or(Epoch::ZERO, |frame| frame.epoch);
        let epoch = if run.is_empty() { Epoch::ZERO } else { epoch };
        let (acknowledged, selective) = self.receiver.acknowledgement();
        let frames = self.sender.frames.range(run);
        Some(Segment {
            ping,
            epoch,
            acknowledged,
            selective,
            first,
            frames,
        })
    }

    /// Asks the peer whether it is there, in the next datagram.
    pub(crate) fn ask(&mut self, now: Time) {
        self.duty.ping = true;
        self.last_ping = now;
    }

    /// When [`Link::timeout`] has something to do.
    pub fn next_timeout(&self) -> Time {
        let quiet = self.ping_at();
        let suspect = self.last_heard + self.timing.suspect_after;
        let silence = if self.suspected {
            quiet
        } else {
            quiet.min(suspect)
        };
        let repeat = self.sender.repeat_at(&self.round_trip);
        [repeat, self.duty.acknowledge_by]
            .into_iter()
            .flatten()
            .fold(silence, Time::min)
    }

    /// When to ask whether the peer is there, if nothing is heard before: at most an eighth of `ping_after`
    /// late, or a thirty-second where this end asks first.
    fn ping_at(&self) -> Time {
        let Timing {
            ping_after,
            is_asked,
            ..
        } = self.timing;
        let step = ping_after / MOMENTS;
        let moment = (self.last_heard.max(self.last_ping) + ping_after).floor_to(step);
        moment + step / if is_asked { 2 } else { 8 }
    }

    pub fn timeout(&mut self, now: Time) -> Suspicion {
        if self.duty.acknowledge_by.is_some_and(|by| by <= now) {
            self.duty.acknowledge = true;
        }
        self.sender.repeat_overdue(now, &mut self.round_trip);
        if self.ping_at() <= now {
            self.ask(now);
        }
        if !self.suspected && self.last_heard + self.timing.suspect_after <= now {
            self.suspected = true;
            return Suspicion::Began;
        }
        Suspicion::Unchanged
    }
}

/// What is on its way to the peer, or waits for room in the window.
#[derive(Debug)]
struct Sender {
    frames: VecDeque<Outgoing>,
    /// The number of the first of `frames`. Numbers start at 1.
    base: u64,
    /// How many of `frames` have been sent at least once.
    sent: usize,
    /// When frames were last repeated for want of an acknowledgement.
    repeated_at: Option<Time>,
}

#[derive(Debug)]
struct Outgoing {
    epoch: Epoch,
    frame: Frame,
    state: Sent,
    times: u32,
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    /// Not yet, or to be repeated.
    Due,
    At(Time),
    /// It has arrived, ahead of another.
    Arrived,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            base: 1,
            sent: 0,
            repeated_at: None,
        }
    }
}

impl Sender {
    fn push(&mut self, epoch: Epoch, frame: Frame) {
        self.frames.push_back(Outgoing {
            epoch,
            frame,
            state: Sent::Due,
            times: 0,
        });
    }

    fn give_up(&mut self) {
        self.base += self.frames.len() as u64;
        self.frames.clear();
        self.sent = 0;
    }

    /// A run of frames that are due, of one epoch, that fits one datagram. They count as sent.
    fn next_run(&mut self, now: Time) -> core::ops::Range<usize> {
        let mut window = self.frames.iter().take(WINDOW);
        let Some(start) = window.position(|frame| matches!(frame.state, Sent::Due)) else {
            return 0..0;
        };
        let epoch = self.frames[start].epoch;
        let mut room = FRAMES_ROOM;
        let mut end = start;
        while let Some(outgoing) = self.frames.get_mut(end).filter(|_| end < WINDOW) {
            let len = outgoing.frame.wire_len();
            if !matches!(outgoing.state, Sent::Due) || outgoing.epoch != epoch || len > room {
                break;
            }
            outgoing.state = Sent::At(now);
            outgoing.times += 1;
            room -= len;
            end += 1;
        }
        self.sent = self.sent.max(end);
        start..end
    }

    fn acknowledged(&mut self, now: Time, header: &Header, round_trip: &mut RoundTrip) {
        let newest_sent = self.base + self.sent as u64 - 1;
        if header.acknowledged > newest_sent {
            return;
        }
        let mut progress = false;
        while self.base <= header.acknowledged {
            let Some(outgoing) = self.frames.pop_front() else {
                break;
            };
            outgoing.measure(now, round_trip);
            self.base += 1;
            self.sent -= 1;
            progress = true;
        }
        let mut selective = header.selective;
        while selective != 0 {
            let bit = selective.trailing_zeros();
            selective &= selective - 1;
            let number = header.acknowledged.saturating_add(2 + u64::from(bit));
            let place = number.checked_sub(self.base).map(|place| place as usize);
            let Some(place) = place.filter(|&place| place < self.sent) else {
                continue;
            };
            let outgoing = &mut self.frames[place];
            if !matches!(outgoing.state, Sent::Arrived) {
                outgoing.measure(now, round_trip);
                outgoing.state = Sent::Arrived;
                progress = true;
            }
        }
        if progress {
            round_trip.failures = 0;
        }
    }

    /// When the first frame on its way is to be repeated. To a peer that does not answer one frame
    /// is as good as all: then it is one at a time, each as long after the last as it waits.
    fn repeat_at(&self, round_trip: &RoundTrip) -> Option<Time> {
        let sent = self.frames.iter().take(self.sent);
        let first = sent.filter_map(|frame| frame.repeat_at(round_trip)).min()?;
        match self.repeated_at {
            Some(last) if round_trip.failures >= SILENCE => {
                Some(first.max(last + round_trip.timeout()))
            }
            _ => Some(first),
        }
    }

    fn repeat_overdue(&mut self, now: Time, round_trip: &mut RoundTrip) {
        if self.repeat_at(round_trip).is_none_or(|at| at > now) {
            return;
        }
        let most = if round_trip.failures < SILENCE {
            WINDOW
        } else {
            1
        };
        let sent = self.frames.iter_mut().take(self.sent);
        let overdue = sent.filter(|frame| frame.repeat_at(round_trip).is_some_and(|at| at <= now));
        for outgoing in overdue.take(most) {
            outgoing.state = Sent::Due;
        }
        self.repeated_at = Some(now);
        round_trip.failures += 1;
    }

    /// The peer repeats itself: it has not had our answers. Those sent a round trip ago are lost.
    fn repeat_unanswered(&mut self, now: Time, round_trip: Duration) {
        for outgoing in self.frames.iter_mut().take(self.sent) {
            if matches!(outgoing.state, Sent::At(at) if now.since(at) > round_trip) {
                outgoing.state = Sent::Due;
            }
        }
    }
}

impl Outgoing {
    fn repeat_at(&self, round_trip: &RoundTrip) -> Option<Time> {
        let Sent::At(at) = self.state else {
            return None;
        };
        let lazily = if self.frame.prompt {
            Duration::ZERO
        } else {
            ACK_DELAY
        };
        Some(at + (round_trip.timeout() + lazily))
    }

    /// Karn's rule: what was sent once tells the round trip; and only what is answered at once.
    fn measure(&self, now: Time, round_trip: &mut RoundTrip) {
        if let Sent::At(at) = self.state
            && self.times == 1
            && self.frame.prompt
        {
            round_trip.measure(now.since(at));
        }
    }
}

#[cfg(test)]
mod tests;
