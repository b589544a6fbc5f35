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
//! | `UNPARK`, `UNPARKED`, `PARK` | manager and witness | the manager's own right to enter, see below |
//!
//! A cancelled place leaves a *ghost* behind: the token comes all the same and goes on, and the next
//! caller of that member takes the ghost's place. A place that tries is in no list before it has the
//! token: `BUSY` ends it.
//!
//! *The witness.* Nobody could deny that the manager took a token that is at home. So its right to enter
//! lies with the member that is second in the order of the hash. `UNPARK` fetches it while the manager
//! waits for the token, the manager keeps it while it uses the lock, and `PARK` gives it back. While it
//! is parked the witness vouches for the manager. Two members have no witness.
//!
//! Invariants. (1) There is one token: at home, on its way, or with the owner of a place. (2) In the list
//! all places before that of the token are over, and none from there on. (3) Of any two neighbours (c, d)
//! from there on, either `NEXT(c, d)` is on its way, or c's owner knows it, or the end of the stay c is on
//! its way to the manager. (4) A member has one place at most. The holder of the lock has the token.
//! (1) each step takes one token and makes one. (2) The manager strikes a place out only on word of the
//! end of its stay, or on a `REQUEST` of its owner, which has none then; so links must keep the order of
//! messages ([`Algorithm::needs_order`](crate::lock::Algorithm::needs_order)). (3) `NEXT` is said when the
//! place is appended, and again if it was dropped. (4) `REQUEST` comes only from a member without a place.
//!
//! *Whether to lend.* The token carries a measure of how often loans paid, from 0 to 3: it rises by one
//! for a stay with more than one entry, and for a `REQUEST` of the member that gave the token back last;
//! it falls by one for a loan that was not used. From 2 on the token is lent. *For how long*: four times
//! the mean time between entries, see [`Habit`].
//!
//! Cost: none where the token is lent; else `REQUEST`, `TOKEN`, `RETURN`: 3(N-1)/N in the mean under
//! light load; 3-2/N under heavy load; response 2T+E, 3T+E if it is lent to another; synchronisation
//! delay T.

mod books;
mod habit;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::slice;

use serde::{Deserialize, Serialize};

use self::books::Books;
use self::habit::Habit;
use super::placement::place;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A place with this number, please. `tries`: the token at once, or not at all.
    Request { number: u64, tries: bool },
    /// Your stay of this number begins. `worth`: how often loans paid.
    Token { number: u64, worth: Worth },
    /// After your stay of this number comes that place.
    Next { stay: u64, place: Place },
    /// Give the token to that place, if nobody uses it in your stay of this number. `probe`: a number
    /// that rises.
    Try { stay: u64, place: Place, probe: u64 },
    /// Somebody uses the token: your place of this number, which tries, is over.
    Busy { number: u64 },
    /// By that probe the token has gone to the place that tries.
    Passed { probe: u64 },
    /// By that probe it has not.
    Refused { probe: u64 },
    /// My stay of this number is over, and nobody follows.
    Return { stay: u64, worth: Worth },
    /// The witness is asked for the manager's right to enter, for the so-manieth time.
    Unpark { time: u64 },
    /// Here it is.
    Unparked { time: u64 },
    /// And here it is again.
    Park { time: u64 },
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
        }
    }

    pub(crate) const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Request { .. } | Self::Try { .. } | Self::Unpark { .. }
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
}

/// The part of one member, and the books if it is the lock's manager.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Manager {
    me: NodeId,
    manager: NodeId,
    /// This member's request that waits or is inside.
    caller: Option<Caller>,
    /// This member's place.
    place: Option<Own>,
    /// The number of its last one.
    last: u64,
    /// The highest number of a probe that was answered here.
    probed: u64,
    habit: Habit,
    right: Right,
    /// The manager's; `None` elsewhere.
    books: Option<Books>,
    /// What this member says to itself, until the end of the step.
    own: VecDeque<Message>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Caller {
    id: RequestId,
    tries: bool,
    is_inside: bool,
}

/// This member's place.
#[derive(Clone, Copy, Debug, Hash)]
struct Own {
    number: u64,
    /// Whether it is in no list before it has the token.
    tries: bool,
    /// Which place comes after it.
    next: Option<Place>,
    /// While the token is here.
    stay: Option<Stay>,
}

/// The token is here.
#[derive(Clone, Copy, Debug, Hash)]
struct Stay {
    worth: Worth,
    entries: u32,
    /// Whether it has been here while nobody used it.
    is_lent: bool,
}

/// Where the manager's right to enter is, as far as this member has to do with it.
#[derive(Clone, Copy, Debug, Hash)]
enum Right {
    /// This member is neither manager nor witness, or there is no witness: who has the token may enter.
    Free,
    /// This is the manager.
    Manager {
        witness: NodeId,
        state: ManagersRight,
        /// How often it was asked for.
        time: u64,
    },
    /// This is the witness.
    Witness {
        /// Whether it is parked here.
        is_parked: bool,
        /// How often it was asked for.
        time: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ManagersRight {
    Parked,
    Asked,
    Here,
}

impl Manager {
    /// The list is the view's table: the holder, then the waiters. Everybody finds in it its own state
    /// and who comes after it, and nobody has to say anything. Loans are forgotten.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let (manager, witness) = place(from.lock, from.members);
        let witness = witness.filter(|_| from.members.len() > 2);
        let waiters = from.waiters.iter().map(|request| &request.id);
        let list: Vec<Place> = from.holders.iter().chain(waiters).map(Place::of).collect();
        let mine = list.iter().position(|place| place.node == from.me);
        let is_managers_right_out = list.iter().any(|place| place.node == manager);
        let right = match witness {
            Some(witness) if manager == from.me => Right::Manager {
                witness,
                state: if is_managers_right_out {
                    ManagersRight::Here
                } else {
                    ManagersRight::Parked
                },
                time: 0,
            },
            Some(witness) if witness == from.me => Right::Witness {
                is_parked: !is_managers_right_out,
                time: 0,
            },
            _ => Right::Free,
        };
        let holder = from.my_holder().map(|id| Caller {
            id,
            tries: false,
            is_inside: true,
        });
        let waiter = from.my_waiter().map(|request| Caller {
            id: request.id,
            tries: request.tries,
            is_inside: false,
        });
        let mut engine = Self {
            me: from.me,
            manager,
            caller: holder.or(waiter),
            place: mine.map(|mine| Own {
                number: list[mine].number,
                tries: false,
                next: list.get(mine + 1).copied(),
                stay: (mine == 0).then(|| Stay {
                    worth: Worth::default(),
                    entries: u32::from(holder.is_some()),
                    is_lent: false,
                }),
            }),
            last: mine.map_or(0, |mine| list[mine].number),
            probed: 0,
            habit: Habit::default(),
            right,
            books: (manager == from.me).then(|| Books::new(list)),
            own: VecDeque::new(),
        };
        engine.enter_if_permitted(out);
        engine.tell_if_busy(out);
        engine
    }

    /// To this member itself, too.
    fn say(&mut self, to: NodeId, message: Message, out: &mut Effects<Message>) {
        if to == self.me {
            self.own.push_back(message);
        } else {
            out.send(to, message);
        }
    }

    /// Does what this member has said to itself.
    fn hear_own(&mut self, out: &mut Effects<Message>) {
        while let Some(message) = self.own.pop_front() {
            self.on_message(self.me, message, out);
        }
    }

    fn stay(&mut self) -> Option<&mut Stay> {
        self.place.as_mut()?.stay.as_mut()
    }

    /// Whether the token is here, and nobody uses it or waits to.
    fn is_idle_here(&self) -> bool {
        let is_here = self.place.is_some_and(|place| place.stay.is_some());
        is_here && self.caller.is_none()
    }

    /// Asks for a place for this member's caller.
    fn ask(&mut self, tries: bool, out: &mut Effects<Message>) {
        self.last += 1;
        let number = self.last;
        self.place = Some(Own {
            number,
            tries,
            next: None,
            stay: None,
        });
        self.say(self.manager, Message::Request { number, tries }, out);
    }

    /// Lets this member's caller in, if the token is here and, at the manager, its right to enter.
    fn enter_if_permitted(&mut self, out: &mut Effects<Message>) {
        let Some(id) = self.caller.filter(|it| !it.is_inside).map(|it| it.id) else {
            return;
        };
        if !self.has_right(out) {
            return;
        }
        let Some(stay) = self.stay() else { return };
        stay.entries = stay.entries.saturating_add(1);
        self.habit.enters();
        if let Some(caller) = &mut self.caller {
            caller.is_inside = true;
        }
        out.grant(id);
    }

    /// Whether this member may enter once it has the token. If not, it asks for what it lacks.
    fn has_right(&mut self, out: &mut Effects<Message>) -> bool {
        match &mut self.right {
            Right::Manager {
                witness,
                state: state @ ManagersRight::Parked,
                time,
            } => {
                *state = ManagersRight::Asked;
                *time += 1;
                out.send(*witness, Message::Unpark { time: *time });
                false
            }
            Right::Manager { state, .. } => *state == ManagersRight::Here,
            Right::Free | Right::Witness { .. } => true,
        }
    }

    /// A caller that only tries took the place of a ghost that waits, or waited when the view ended.
    fn tell_if_busy(&self, out: &mut Effects<Message>) {
        if let Some(caller) = self.caller
            && let Some(place) = self.place
        {
            let waits = !caller.is_inside && place.stay.is_none() && !place.tries;
            out.busy = (waits && caller.tries).then_some(caller.id).or(out.busy);
        }
    }

    /// This member's stay ends. Returns the worth of loans, with what this stay has shown of it.
    fn end_stay(&mut self) -> Option<Worth> {
        let stay = self.place.take()?.stay?;
        let mut worth = stay.worth;
        if stay.entries > 1 {
            worth.rise();
        }
        Some(worth)
    }

    /// The same, as another wants the token.
    fn end_recalled_stay(&mut self) -> Option<Worth> {
        let is_vain = self.stay().is_some_and(|it| it.is_lent && it.entries <= 1);
        let mut worth = self.end_stay()?;
        if is_vain {
            worth.fall();
        }
        Some(worth)
    }

    fn give_token(&mut self, to: Place, out: &mut Effects<Message>) {
        if let Some(worth) = self.end_recalled_stay() {
            let number = to.number;
            self.say(to.node, Message::Token { number, worth }, out);
        }
    }

    fn give_back(&mut self, out: &mut Effects<Message>) {
        let Some(stay) = self.place.map(|place| place.number) else {
            return;
        };
        if let Some(worth) = self.end_stay() {
            self.say(self.manager, Message::Return { stay, worth }, out);
        }
    }

    fn on_token(&mut self, number: u64, worth: Worth, out: &mut Effects<Message>) {
        let Some(place) = &mut self.place else { return };
        if place.number != number || place.stay.is_some() {
            return;
        }
        place.stay = Some(Stay {
            worth: Worth(worth.0.min(Worth::MOST)),
            entries: 0,
            is_lent: false,
        });
        self.enter_if_permitted(out);
    }

    fn on_try(&mut self, stay: u64, place: Place, probe: u64, out: &mut Effects<Message>) {
        if probe <= self.probed {
            return;
        }
        self.probed = probe;
        // Its end is on its way to the manager, who sees to that place.
        if self.place.is_none_or(|own| own.number != stay) {
            return;
        }
        if self.is_idle_here() {
            self.give_token(place, out);
            self.say(self.manager, Message::Passed { probe }, out);
        } else {
            let number = place.number;
            self.say(place.node, Message::Busy { number }, out);
            self.say(self.manager, Message::Refused { probe }, out);
        }
    }

    fn on_busy(&mut self, number: u64, out: &mut Effects<Message>) {
        let is_it = |own: &mut Own| own.number == number && own.tries && own.stay.is_none();
        if self.place.take_if(is_it).is_some()
            && let Some(caller) = self.caller.filter(|caller| caller.tries)
        {
            out.busy = Some(caller.id);
        }
    }

    /// The manager's books, what they make of a message, and what that makes the manager say.
    fn keep_books(
        &mut self,
        out: &mut Effects<Message>,
        keep: impl FnOnce(&mut Books, &mut Vec<(NodeId, Message)>),
    ) {
        let mut said = Vec::new();
        if let Some(books) = &mut self.books {
            keep(books, &mut said);
        }
        for (to, message) in said {
            self.say(to, message, out);
        }
    }

    fn on_unpark(&mut self, from: NodeId, asked: u64, out: &mut Effects<Message>) {
        if let Right::Witness { is_parked, time } = &mut self.right
            && asked > *time
        {
            (*is_parked, *time) = (false, asked);
            out.send(from, Message::Unparked { time: asked });
        }
    }

    fn on_unparked(&mut self, asked: u64, out: &mut Effects<Message>) {
        if let Right::Manager { state, time, .. } = &mut self.right
            && *state == ManagersRight::Asked
            && asked == *time
        {
            *state = ManagersRight::Here;
            self.enter_if_permitted(out);
        }
    }

    fn on_park(&mut self, asked: u64) {
        if let Right::Witness { is_parked, time } = &mut self.right {
            *is_parked |= asked == *time;
        }
    }

    fn park(&mut self, out: &mut Effects<Message>) {
        if let Right::Manager {
            witness,
            state: state @ ManagersRight::Here,
            time,
        } = &mut self.right
        {
            *state = ManagersRight::Parked;
            out.send(*witness, Message::Park { time: *time });
        }
    }

    /// Whether something is here that is to go back if nobody uses it for a while.
    fn has_something_lent(&self) -> bool {
        let has_right = matches!(
            self.right,
            Right::Manager {
                state: ManagersRight::Here,
                ..
            }
        );
        self.caller.is_none() && (has_right || self.is_idle_here())
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Message>) {
        let is_manager = from == self.manager;
        match message {
            Message::Request { number, tries } => {
                let place = Place { node: from, number };
                self.keep_books(out, |books, say| books.on_request(place, tries, say));
            }
            Message::Return { stay, worth } => {
                let stay = Place {
                    node: from,
                    number: stay,
                };
                self.keep_books(out, |books, say| books.on_return(stay, worth, say));
            }
            Message::Passed { probe } => {
                self.keep_books(out, |books, say| books.on_passed(from, probe, say));
            }
            Message::Refused { probe } => {
                self.keep_books(out, |books, say| books.on_refused(from, probe, say));
            }
            Message::Token { number, worth } => self.on_token(number, worth, out),
            Message::Next { stay, place } if is_manager => {
                if let Some(own) = self.place.as_mut().filter(|own| own.number == stay) {
                    own.next = Some(place);
                }
            }
            Message::Try { stay, place, probe } if is_manager => {
                self.on_try(stay, place, probe, out);
            }
            Message::Busy { number } => self.on_busy(number, out),
            Message::Unpark { time } if is_manager => self.on_unpark(from, time, out),
            Message::Unparked { time } => self.on_unparked(time, out),
            Message::Park { time } if is_manager => self.on_park(time),
            Message::Next { .. } | Message::Try { .. } => {}
            Message::Unpark { .. } | Message::Park { .. } => {}
        }
    }
}

impl Place {
    const fn of(id: &RequestId) -> Self {
        Self {
            node: id.node,
            number: id.seq,
        }
    }
}

impl Engine<Message> for Manager {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(self.caller.is_none(), "one request of a member at a time");
        let Request { id, tries, .. } = request;
        self.habit.is_wanted(out);
        // Others wait for the token that is here.
        if self.is_idle_here()
            && let Some(next) = self.place.and_then(|place| place.next)
        {
            self.give_token(next, out);
        }
        self.caller = Some(Caller {
            id,
            tries,
            is_inside: false,
        });
        if self.place.is_none() {
            self.ask(tries, out);
        }
        self.has_right(out);
        self.enter_if_permitted(out);
        self.tell_if_busy(out);
        self.hear_own(out);
    }

    fn release(&mut self, id: RequestId, _how: Release, _out: &mut Effects<Message>) {
        self.caller.take_if(|it| it.id == id && it.is_inside);
    }

    fn cancel(&mut self, id: RequestId, _out: &mut Effects<Message>) {
        self.caller.take_if(|it| it.id == id && !it.is_inside);
    }

    /// Whoever has the token knows that nobody else is inside; the manager knows who has no place; and
    /// the witness has the manager's right to enter.
    fn may_be_inside(&self, node: NodeId) -> bool {
        if self.place.is_some_and(|place| place.stay.is_some()) {
            return false;
        }
        if let Right::Witness { is_parked, .. } = self.right
            && node == self.manager
        {
            return !is_parked;
        }
        self.books.as_ref().is_none_or(|books| books.knows(node))
    }

    fn asks(&self) -> &[NodeId] {
        match &self.right {
            _ if self.place.is_some() => &[],
            Right::Manager {
                witness,
                state: ManagersRight::Parked,
                ..
            } => slice::from_ref(witness),
            _ if self.me == self.manager => &[],
            _ => slice::from_ref(&self.manager),
        }
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        self.on_message(from, *message, out);
        self.hear_own(out);
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        if self.habit.is_over(out) && self.has_something_lent() {
            if self.is_idle_here() {
                self.give_back(out);
                self.habit.was_returned(out);
            }
            self.park(out);
            self.hear_own(out);
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        if self.is_idle_here() {
            self.give_back(out);
        }
        self.park(out);
        self.hear_own(out);
    }

    /// The token goes to the next, or stays if that pays, or goes back. A caller whose try came to
    /// nothing, and that goes on waiting, gets a place in the list.
    fn rest(&mut self, out: &mut Effects<Message>) {
        if self.is_idle_here() {
            let next = self.place.and_then(|place| place.next);
            match (next, self.stay()) {
                (Some(next), _) => self.give_token(next, out),
                (None, Some(stay)) if stay.worth.0 >= Worth::LENDS && stay.entries > 0 => {
                    stay.is_lent = true;
                }
                (None, _) => self.give_back(out),
            }
        }
        if self.caller.is_some() && self.place.is_none() {
            self.ask(false, out);
        }
        self.hear_own(out);
        if self.has_something_lent() {
            self.habit.watch(out);
        }
    }
}
