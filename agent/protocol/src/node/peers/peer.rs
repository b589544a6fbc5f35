//! One other member: its incarnation, its link, and how far both have got to know each other.

use alloc::vec::Vec;
use core::time::Duration;

use super::event::PeerEvent;
use crate::ids::{Incarnation, NodeId};
use crate::link::{Link, Timing};
use crate::membership::greeting::{Agreement, Difference, Greeting, first_8};
use crate::time::Time;
use crate::wire::{Header, Kind};

/// How soon the first greeting is repeated; then twice as long each time.
pub(super) const GREET_FIRST: Duration = Duration::from_millis(10);
/// How often a member that does not answer is greeted.
pub(super) const GREET_LAST: Duration = Duration::from_millis(500);
/// Greetings are answered at once, but not more often than this.
const GREET_PAUSE: Duration = Duration::from_millis(1);

/// How a member is, as far as this one can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerState {
    /// In touch, and heard lately. This member itself is always so.
    Up,
    /// Not in touch yet, in its present incarnation.
    Unknown,
    /// Not heard for a while.
    Suspect,
    /// It said that it leaves.
    Left,
    /// Its settings differ.
    Disagrees,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) incarnation: Option<Incarnation>,
    /// Whether it does not belong to the group any more.
    pub(super) is_removed: bool,
    /// Whether an earlier incarnation was here, and did not leave.
    pub(super) had_unclean_incarnation: bool,
    pub(super) link: Link,
    /// What is to be said once, and not repeated.
    pub(super) notices: Vec<Vec<u8>>,
    /// By its hash, the last of what was too long to be said so.
    long: u64,
    pub(super) standing: Standing,
    /// When something last came from it directly.
    pub(super) direct_at: Time,
    /// Until when it is to be reached by way of others, as it has said that it is deaf.
    pub(super) deaf_until: Time,
    pub(super) greet_at: Time,
    pub(super) greet_pause: Duration,
    pub(super) last_greeted: Option<Time>,
    /// Whether the peer's greeting wants an answer.
    pub(super) owes_greeting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing was heard in its present incarnation, or it does not know ours yet.
    Stranger {
        agrees: bool,
    },
    Up,
    Left,
    Disagrees {
        key: Option<Difference>,
    },
}

impl Peer {
    pub(super) fn new(now: Time, timing: Timing) -> Self {
        Self {
            incarnation: None,
            is_removed: false,
            had_unclean_incarnation: false,
            link: Link::new(now, timing),
            notices: Vec::new(),
            long: 0,
            standing: Standing::Stranger { agrees: false },
            direct_at: now,
            deaf_until: now,
            greet_at: now,
            greet_pause: GREET_FIRST,
            last_greeted: None,
            owes_greeting: false,
        }
    }

    /// Whether these bytes were given to the link last of all that is long, and may not have arrived.
    /// They count as given from now on.
    pub(super) fn is_on_its_way(&mut self, bytes: &[u8]) -> bool {
        let hash = first_8(blake3::hash(bytes).as_bytes());
        let before = core::mem::replace(&mut self.long, hash);
        before == hash && !self.link.is_drained()
    }

    pub(super) fn state(&self) -> PeerState {
        match self.standing {
            Standing::Left => PeerState::Left,
            Standing::Disagrees { .. } => PeerState::Disagrees,
            _ if self.link.is_suspected() => PeerState::Suspect,
            Standing::Stranger { .. } => PeerState::Unknown,
            Standing::Up => PeerState::Up,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.standing == Standing::Up
    }

    /// Whether greetings go to this peer at all.
    pub(super) fn greets(&self) -> bool {
        let seeks = !matches!(self.standing, Standing::Up | Standing::Left);
        (seeks && !self.is_removed) || self.owes_greeting
    }

    /// Whether a greeting is due. It counts as sent.
    /// `slowest`: how long greetings pause at most.
    pub(super) fn wants_greeting(&mut self, now: Time, slowest: Duration) -> bool {
        if !self.greets() || now < self.greet_at {
            return false;
        }
        self.last_greeted = Some(now);
        self.owes_greeting = false;
        self.greet_pause = (self.greet_pause * 2).clamp(GREET_FIRST, slowest);
        if matches!(self.standing, Standing::Disagrees { .. }) {
            self.greet_pause = slowest;
        }
        self.greet_at = now + self.greet_pause;
        true
    }

    /// The peer is known to live anew; all that was agreed with the incarnation before is void.
    pub(super) fn begin_incarnation(
        &mut self,
        now: Time,
        node: NodeId,
        incarnation: Incarnation,
        timing: Timing,
        out: &mut Vec<PeerEvent>,
    ) {
        if self.incarnation.replace(incarnation).is_some() {
            out.push(PeerEvent::Down(node));
            self.had_unclean_incarnation = self.standing != Standing::Left;
        }
        if self.link.is_suspected() {
            out.push(PeerEvent::Alive(node));
        }
        self.link = Link::new(now, timing);
        self.notices.clear();
        self.standing = Standing::Stranger { agrees: false };
        self.restart_greeting(now);
    }

    /// The next greeting goes out soon, as an answer.
    pub(super) fn answer_greeting(&mut self, now: Time, header: &Header) {
        if header.kind != Kind::Greeting && self.standing == Standing::Left {
            return;
        }
        self.owes_greeting = true;
        self.greet_at = self
            .last_greeted
            .map_or(now, |last| now.max(last + GREET_PAUSE));
    }

    pub(super) fn restart_greeting(&mut self, now: Time) {
        self.greet_pause = GREET_FIRST;
        self.greet_at = now + GREET_FIRST;
    }

    /// Takes in what a greeting tells of settings.
    pub(super) fn greeted(
        &mut self,
        now: Time,
        agreement: &Agreement,
        greeting: &Greeting,
        header: &Header,
        out: &mut Vec<PeerEvent>,
    ) {
        if agreement.agrees(greeting) {
            if !matches!(self.standing, Standing::Up | Standing::Left) {
                self.standing = Standing::Stranger { agrees: true };
            }
            if !greeting.up {
                self.answer_greeting(now, header);
            }
            return;
        }
        let known = match &mut self.standing {
            Standing::Disagrees { key } => key,
            // Nobody changes the file of an incarnation that is up; a greeting that says so is
            // damaged.
            Standing::Up | Standing::Left => return,
            Standing::Stranger { .. } => {
                self.standing = Standing::Disagrees { key: None };
                self.answer_greeting(now, header);
                let Standing::Disagrees { key } = &mut self.standing else {
                    return;
                };
                key
            }
        };
        if known.is_none()
            && let Some(difference) = agreement.difference(greeting)
        {
            *known = Some(difference.clone());
            let (peer, in_view) = (header.from, greeting.in_view);
            out.push(PeerEvent::Disagrees {
                peer,
                difference,
                in_view,
            });
        }
    }

    /// The peer knows our incarnation, and we know that its file agrees: it is up.
    pub(super) fn come_up(&mut self, header: &Header, out: &mut Vec<PeerEvent>) {
        if self.standing == (Standing::Stranger { agrees: true }) {
            self.standing = Standing::Up;
            out.push(PeerEvent::Up(header.from, header.from_incarnation));
        }
    }
}

/// Which of the two asks first whether the other is there: each member half of its peers.
pub(super) fn with_role(timing: Timing, me: NodeId, peer: NodeId) -> Timing {
    let is_even = (me.as_u16() ^ peer.as_u16()) & 1 == 0;
    let is_asked = (me > peer) == is_even;
    Timing { is_asked, ..timing }
}
