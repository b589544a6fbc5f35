//! A manager for each lock, which lends the permission: Li and Hudak's fixed distributed manager (TOCS
//! 7(4), 1989), with a queue that is threaded through the waiters.
//!
//! The manager of a lock is the member with the highest rendezvous hash of the lock's name. It has the
//! token, until somebody wants it; from then on the token goes straight from each holder to the next,
//! and comes back when nobody follows. A member that enters again and again may keep the token while it
//! is outside (a *loan*), and then enters without a message.
//!
//! A request is a *place* in the manager's list, which grows at its end; a member has one at most. The
//! time for which a place has the token is a *stay*, and has the place's number. A stay ends in one of
//! three ways: the token goes to the place that `NEXT` named; it goes to a try, and the manager is told;
//! or it goes back to the manager. In the last two a `NEXT` may be under way to the member whose stay is
//! over. That member drops it; the manager learns how the stay ended, and says it again.
//!
//! Messages, of places *r* and *x* and a stay *s*:
//!
//! | message | from, to | meaning |
//! |-|-|-|
//! | `REQUEST(r)` | member, manager | a place, please; or, if it *tries*, the token at once or not at all |
//! | `TOKEN(r)` | whoever has it, owner of *r* | the stay *r* begins |
//! | `NEXT(s, x)` | manager, owner of *s* | after the stay *s* comes *x* |
//! | `TRY(s, x)` | manager, owner of *s* | give it to *x* if nobody uses it in the stay *s* |
//! | `BUSY(x)` | owner of *s*, owner of *x* | somebody does |
//! | `PASSED`, `REFUSED` | owner of *s*, manager | what became of that `TRY` |
//! | `RETURN(s)` | owner of *s*, manager | the stay is over, and nobody follows |
//! | `SHARE(r)` | manager, owner of *r* | *r* may be inside with others, and perhaps keep the share |
//! | `RECALL(r)` | manager, owner of *r* | give the share *r* back; or, for a try, at once or not at all |
//! | `READS(r)` | owner of *r*, manager | somebody is inside by the share that is wanted at once |
//! | `DROP(r)` | owner of *r*, manager | the share *r* is over |
//! | `GHOST(r)` | owner of *r*, manager | nobody waits in the place *r* any more |
//! | `UNPARK`, `UNPARKED`, `PARK` | manager and custodian | the manager's own right to enter, see below |
//!
//! A cancelled place leaves a *ghost* behind: the token comes all the same and goes on, and the next
//! caller of that member takes the ghost's place. Readers do not wait behind it: while the manager has
//! the token for a phase, it takes ghosts that come next out of the list, and `BUSY` tells their owners.
//! A place that tries is in no list before it has the token: `BUSY` ends it.
//!
//! *Readers.* Those that share the lock are let in by the manager, in *phases*: a phase is a place whose
//! owner is the manager. While it has the token its readers may be inside, and when the last of them has
//! left the token goes on. A reader joins the phase that has the token while nobody waits behind it, else
//! the phase that waits, of which there is one at most, else it opens one at the end of the list. So no
//! reader waits for a writer that came after its phase, and as one phase waits at a time, neither side
//! starves. What a reader was told of the grant before the next one is told too: the mark is taken away
//! by whoever is inside alone.
//!
//! *Shares are lent* as the token is: a member whose share is not `recalled` keeps it when its last reader has
//! left, and reads again without a message. As soon as something comes behind the phase the manager recalls
//! its shares; a member gives a share back when nobody is inside by it, and lets nobody in by one that is
//! recalled. A share brings a block of numbers for fences, and the manager's counter passes over all of them
//! at once: so a writer has a higher fence than all readers before it. Blocks have 4 numbers, twice as many
//! whenever one is used up, to 65,536, and half as many when less than a quarter was used. A try behind a phase whose shares are all lent asks for them; it
//! fails if one is in use, and if a reader or a request comes meanwhile. A share by which a reader ended
//! inside is lent no more: `DROP` tells the manager, which has the mark from then on.
//!
//! *Permits.* A lock with several permits has no token, no list and no custodian. Each permit is a share by
//! which one caller at a time is inside, and which is lent in the same way. While somebody waits, permits
//! are given recalled, and those that are lent are recalled: that is a central semaphore. The manager has the
//! mark in its books, and lends nothing while it has.
//!
//! *The custodian.* Nobody could deny that the manager took a token that is at home. So its right to enter
//! lies with the member that is second in the order of the hash. `UNPARK` fetches it while the manager
//! waits for the token, the manager keeps it while it uses the lock, and `PARK` gives it back. While it
//! is parked the custodian vouches for the manager, if it knows of the lock: so a `PARK` tells it of the
//! first `REQUEST`. Two members have no custodian.
//!
//! Invariants. (1) There is one token: at home, on its way, or with the owner of a place. (2) In the list
//! the places before the token's place are over; that place and those behind it are not. (3) Of any two
//! neighbours (c, d) among these, either `NEXT(c, d)` is on its way, or c's owner knows it, or the end of the stay c is on
//! its way to the manager. (4) Of its requests to be alone a member has one place at most. Whoever is inside
//! alone has the token.
//! (1) each step takes one token and makes one. (2) The manager strikes a place out only on word of the
//! end of its stay, or on a `REQUEST` of its owner, which has none then; so links must keep the order of
//! messages ([`Algorithm::needs_order`](crate::lock::Algorithm::needs_order)). (3) `NEXT` is said when the
//! place is appended, and again if it was dropped. (4) A member that has one asks for no other.
//!
//! *Whether to lend.* The manager measures for each member how often shares and permits paid: the measure
//! rises for one that was used more than once, and for a `REQUEST` of a member that was given the last one
//! while nobody waited since; it falls for one that was recalled after one entry, if it was the member's
//! first since then. The token carries a measure of how often loans paid, from 0 to 3: it rises by one
//! for a stay with more than one entry, and for a `REQUEST` of the member that gave the token back last;
//! it falls by one for a loan that was recalled unused. From 2 on there is a loan. *For how long*: four
//! times the mean time between entries, see [`Habit`](habit::Habit).
//!
//! Cost: none where the token is lent, or a share; else `REQUEST`, `TOKEN`, `RETURN`: 3(N-1)/N in the mean under
//! light load; 3-2/N under heavy load; response 2T+E, 3T+E if it is lent to another; synchronisation
//! delay T.

mod books;
mod events;
mod habit;
mod lending;
mod line;
mod member;
mod own;
mod permits;
mod phases;
mod right;
mod sharing;

pub(super) use self::member::Manager;
pub(super) use self::permits::Permits;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::lock::request::{Mode, Release};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A place with this number, please. `tries`: the token at once, or not at all.
    Request {
        number: u64,
        mode: Mode,
        tries: bool,
    },
    /// Your stay of this number begins. `worth`: how often loans paid.
    Token { number: u64, worth: Worth },
    /// After your stay of this number comes that place.
    Next { stay: u64, place: Place },
    /// Give the token to that place, if nobody uses it in your stay of this number. `probe`: a number
    /// that rises.
    Try { stay: u64, place: Place, probe: u64 },
    /// Your place of this number is over: it tries, and somebody uses the token; or it is a ghost's, and
    /// readers need not wait behind it.
    Busy { number: u64 },
    /// By that probe the token has gone to the place that tries.
    Passed { probe: u64 },
    /// By that probe it has not.
    Refused { probe: u64 },
    /// My stay of this number is over, and nobody follows.
    Return { stay: u64, worth: Worth },
    /// The custodian is asked for the manager's right to enter. `time`: how often it was asked for.
    Unpark { time: u64 },
    /// Here it is.
    Unparked { time: u64 },
    /// And here it is again.
    Park { time: u64 },
    /// Your place of this number may be inside, with others that share the lock or have one of its permits.
    /// `block`: how many numbers for fences come with it. `recalled`: it is over as soon as nobody is
    /// inside by it; else it may be kept, and used again. `abandoned`: of several permits, a holder before
    /// ended inside, and it may be that nobody has been told yet.
    Share {
        number: u64,
        block: u32,
        recalled: bool,
        abandoned: bool,
    },
    /// My place of this number is over: `used` callers have entered by its share, the last of which ended so.
    Drop {
        number: u64,
        used: u32,
        how: Release,
    },
    /// Nobody waits in my place of this number any more.
    Ghost { number: u64 },
    /// Your share of this number is wanted back. `tries`: at once, or not at all.
    Recall { number: u64, tries: bool },
    /// A caller of mine is inside by the share of this number, which you wanted back at once.
    Reads { number: u64 },
}

impl Message {
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Token { .. } => "TOKEN",
            Self::Next { .. } => "NEXT",
            Self::Try { .. } => "TRY",
            Self::Busy { .. } => "BUSY",
            Self::Passed { .. } => "PASSED",
            Self::Refused { .. } => "REFUSED",
            Self::Return { .. } => "RETURN",
            Self::Unpark { .. } => "UNPARK",
            Self::Unparked { .. } => "UNPARKED",
            Self::Park { .. } => "PARK",
            Self::Share { .. } => "SHARE",
            Self::Drop { .. } => "DROP",
            Self::Ghost { .. } => "GHOST",
            Self::Recall { .. } => "RECALL",
            Self::Reads { .. } => "READS",
        }
    }

    pub(crate) const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Request { .. }
                | Self::Try { .. }
                | Self::Unpark { .. }
                | Self::Recall { tries: true, .. }
        )
    }
}

/// A place in the manager's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Its owner.
    pub node: NodeId,
    /// Which of that member's; the later has the higher number.
    pub number: u64,
}

/// How often loans paid of late: from 0, never, to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Worth(u8);

impl Worth {
    const MOST: u8 = 3;
    /// From here on the token is lent.
    const LENDS: u8 = 2;

    fn rise(&mut self) {
        self.0 = self.0.saturating_add(1).min(Self::MOST);
    }

    const fn fall(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    /// Whether the token is to be lent.
    const fn pays(self) -> bool {
        self.0 >= Self::LENDS
    }

    /// As another member may say it.
    fn checked(self) -> Self {
        Self(self.0.min(Self::MOST))
    }
}
