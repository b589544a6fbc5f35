//! The part of one member: its place, its readers, and the books if it is the lock's manager.

use super::books::{Books, Said};
use super::habit::Habit;
use super::line::Line;
use super::own::{Caller, Own, Stay};
use super::right::Right;
use super::sharing::Sharing;
use super::{Message, Place, Worth};
use crate::ids::{NodeId, RequestId};
use crate::lock::algorithms::placement::serving_members;
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Mode, Release};
use alloc::collections::VecDeque;

/// So many callers of one member enter in a row, if they wait, before others that wait have the token: a
/// hand-over takes far longer than it takes to enter and to leave. For how long they do, whoever has a clock
/// says ([`Engine::end_batch`]). So lock cohorts bound it (Dice, Marathe and Shavit, PPoPP 2012).
const BATCH: u32 = 32;

#[derive(Clone, Debug, Hash)]
pub(in crate::lock::algorithms) struct Manager {
    pub(super) me: NodeId,
    pub(super) manager: NodeId,
    /// This member's request that waits to be inside alone, or is.
    pub(super) caller: Option<Caller>,
    /// This member's place for that.
    pub(super) place: Option<Own>,
    /// Its requests that share the lock.
    pub(super) sharing: Sharing,
    /// The number of its last place.
    last: u64,
    /// The highest number of a probe that was answered here.
    probed: u64,
    pub(super) habit: Habit,
    pub(super) right: Right,
    /// The manager's; `None` elsewhere.
    pub(super) books: Option<Books>,
    /// What this member says to itself, until the end of the step.
    own: VecDeque<Message>,
}

impl Manager {
    /// The list is made of the view's table: the holder, then the waiters. Everybody finds in it its own
    /// state and who comes after it, and nobody has to ask. Loans are forgotten.
    pub(in crate::lock::algorithms) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let (manager, custodian) = serving_members(from.lock, from.members);
        let custodian = custodian.filter(|_| from.members.len() > 2);
        let line = Line::new(from, manager);
        let is_used = line.members().any(|place| place.node == manager);
        let is_unheard = line.places.is_empty();
        let mine = line.position(from.me);
        let holder = from.my_holder().filter(|_| from.held == Mode::Exclusive);
        let holder = holder.map(|id| Caller {
            id,
            tries: false,
            is_inside: true,
        });
        let waiter = from.my_waiter();
        let alone = waiter.filter(|request| request.mode == Mode::Exclusive);
        let alone = alone.map(|request| Caller {
            id: request.id,
            tries: request.tries,
            is_inside: false,
        });
        let own = line.members().filter(|place| place.node == from.me);
        let mut engine = Self {
            me: from.me,
            manager,
            caller: holder.or(alone),
            place: mine.map(|mine| Own {
                number: line.places[mine].number,
                tries: false,
                is_ghost: false,
                next: line.places.get(mine + 1).copied(),
                stay: (mine == 0).then(|| Stay {
                    worth: Worth::default(),
                    entries: u32::from(holder.is_some()),
                    is_lent: false,
                    is_batch_over: false,
                }),
            }),
            sharing: Sharing::of_readers(from),
            last: own
                .map(|place| place.number)
                .max()
                .unwrap_or(super::line::FIRST_PHASE),
            probed: 0,
            habit: Habit::default(),
            right: Right::new(from.me, manager, custodian, (is_used, is_unheard)),
            books: None,
            own: VecDeque::new(),
        };
        engine.enter_if_permitted(out);
        engine.tell_if_busy(out);
        out.busy = engine.sharing.tries_in_vain(&line, from).or(out.busy);
        engine.books = (manager == from.me).then(|| Books::new(from.me, line));
        engine.keep_books(out, |books, _, say| books.begin_view(say));
        engine.hear_own(out);
        engine
    }

    /// To this member itself, too.
    pub(super) fn say(&mut self, to: NodeId, message: Message, out: &mut Effects<Message>) {
        if to == self.me {
            self.own.push_back(message);
        } else {
            out.send(to, message);
        }
    }

    /// Does what this member has said to itself.
    pub(super) fn hear_own(&mut self, out: &mut Effects<Message>) {
        while let Some(message) = self.own.pop_front() {
            self.on_message(self.me, message, out);
        }
    }

    pub(super) fn stay(&mut self) -> Option<&mut Stay> {
        self.place.as_mut()?.stay.as_mut()
    }

    /// Whether the token is here, and nobody uses it or waits to.
    pub(super) fn is_idle_here(&self) -> bool {
        let is_here = self.place.is_some_and(|place| place.stay.is_some());
        is_here && self.caller.is_none()
    }

    /// Whether others wait for the token that is here, and this member's callers have gone first for long
    /// enough.
    pub(super) fn is_others_turn(&self) -> bool {
        let own = self.place.filter(|own| own.next.is_some());
        let stay = own.and_then(|own| own.stay);
        stay.is_some_and(|stay| stay.is_batch_over || stay.entries >= BATCH)
    }

    /// Whether the token stays here when nobody here uses it.
    pub(super) fn keeps_token(&self) -> bool {
        let own = self.place.filter(|own| own.next.is_none());
        let stay = own.and_then(|own| own.stay);
        stay.is_some_and(|stay| stay.pays())
    }

    /// Asks for a place for this member's caller, in which it is alone.
    pub(super) fn ask(&mut self, tries: bool, out: &mut Effects<Message>) {
        let number = self.request(Mode::Exclusive, tries, out);
        self.place = Some(Own {
            number,
            tries,
            is_ghost: false,
            next: None,
            stay: None,
        });
    }

    pub(super) fn request(&mut self, mode: Mode, tries: bool, out: &mut Effects<Message>) -> u64 {
        self.last += 1;
        let number = self.last;
        let request = Message::Request {
            number,
            mode,
            tries,
        };
        self.say(self.manager, request, out);
        number
    }

    /// Lets this member's caller in, if the token is here and, at the manager, its right to enter.
    pub(super) fn enter_if_permitted(&mut self, out: &mut Effects<Message>) {
        let Some(id) = self.caller.filter(|it| !it.is_inside).map(|it| it.id) else {
            return;
        };
        if !self.right.fetch(out) || self.stay().is_none() {
            return;
        }
        self.entered(1);
        if let Some(caller) = &mut self.caller {
            caller.is_inside = true;
        }
        out.grant(id);
    }

    /// The same for the one that waits to share the lock.
    pub(super) fn share_if_permitted(&mut self, out: &mut Effects<Message>) {
        if self.sharing.is_let_in()
            && self.right.fetch(out)
            && let Some(id) = self.sharing.enter()
        {
            self.habit.enters(1);
            out.grant(id);
        }
    }

    /// A caller that only tries took the place of a ghost that waits, or waited when the view ended.
    pub(super) fn tell_if_busy(&self, out: &mut Effects<Message>) {
        if let Some(caller) = self.caller
            && let Some(place) = self.place
        {
            let waits = place.waits() && caller.tries;
            out.busy = waits.then_some(caller.id).or(out.busy);
        }
    }

    fn give_token(&mut self, to: Place, out: &mut Effects<Message>) {
        if let Some(worth) = self.place.take().and_then(|own| own.end(true)) {
            let number = to.number;
            self.say(to.node, Message::Token { number, worth }, out);
        }
    }

    pub(super) fn give_back(&mut self, out: &mut Effects<Message>) {
        if let Some(own) = self.place.take()
            && let Some(worth) = own.end(false)
        {
            let stay = own.number;
            self.say(self.manager, Message::Return { stay, worth }, out);
        }
    }

    /// The token, which nobody here needs, goes to the next or back.
    pub(super) fn pass_on(&mut self, out: &mut Effects<Message>) {
        match self.place.and_then(|place| place.next) {
            Some(next) => self.give_token(next, out),
            None => self.give_back(out),
        }
    }

    pub(super) fn on_token(&mut self, number: u64, worth: Worth, out: &mut Effects<Message>) {
        let Some(place) = &mut self.place else { return };
        if place.number != number || place.stay.is_some() {
            return;
        }
        place.stay = Some(Stay {
            worth: worth.checked(),
            entries: 0,
            is_lent: false,
            is_batch_over: false,
        });
        self.enter_if_permitted(out);
    }

    pub(super) fn on_try(
        &mut self,
        stay: u64,
        place: Place,
        probe: u64,
        out: &mut Effects<Message>,
    ) {
        if probe <= self.probed {
            return;
        }
        self.probed = probe;
        if self.has_phase(stay) {
            return self.keep_books(out, |books, _, say| books.on_try((stay, probe), say));
        }
        let is_own = self.place.is_some_and(|own| own.number == stay);
        if is_own && self.is_idle_here() {
            self.give_token(place, out);
            self.say(self.manager, Message::Passed { probe }, out);
        } else if is_own {
            let number = place.number;
            self.say(place.node, Message::Busy { number }, out);
            self.say(self.manager, Message::Refused { probe }, out);
        }
        // Else the end of that stay is on its way to the manager, who sees to the place.
    }

    pub(super) fn on_busy(&mut self, number: u64, out: &mut Effects<Message>) {
        let is_it = |own: &mut Own| own.number == number && own.stay.is_none();
        if self.place.take_if(is_it).is_some()
            && let Some(caller) = self.caller.filter(|caller| caller.tries)
        {
            out.busy = Some(caller.id);
        }
        out.busy = self.sharing.refuse(number).or(out.busy);
    }

    pub(super) fn has_phase(&self, number: u64) -> bool {
        self.books
            .as_ref()
            .is_some_and(|books| books.has_phase(number))
    }

    /// What the manager's books make of a message, and what that makes the manager say. They are given
    /// the number of this member's last place, of which they make numbers of phases.
    pub(super) fn keep_books(
        &mut self,
        out: &mut Effects<Message>,
        keep: impl FnOnce(&mut Books, &mut u64, &mut Said),
    ) {
        let mut said = Said::new();
        if let Some(books) = &mut self.books {
            keep(books, &mut self.last, &mut said);
        }
        for (to, message) in said {
            self.say(to, message, out);
        }
    }

    /// The share `number` has come, and `block` numbers for fences with it.
    pub(super) fn on_share(
        &mut self,
        (number, block, recalled): (u64, u32, bool),
        out: &mut Effects<Message>,
    ) {
        if self.sharing.let_in(number, block, recalled) {
            // The manager gives itself numbers as it goes.
            out.block = (self.me != self.manager).then_some(block);
            self.share_if_permitted(out);
        }
    }

    /// The request `id`, if it shares the lock or waits to, is over.
    pub(super) fn end_share(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        if let Some(drop) = self.sharing.end(id, how) {
            self.say(self.manager, drop, out);
        }
        self.hear_own(out);
    }

    /// The shares that nobody here uses go back, but for those that can be used again; those too if `all`.
    pub(super) fn give_shares_back(&mut self, all: bool, out: &mut Effects<Message>) {
        for drop in self.sharing.give_back(all) {
            self.say(self.manager, drop, out);
        }
    }

    /// Whatever is lent goes back.
    pub(super) fn give_all_back(&mut self, out: &mut Effects<Message>) {
        if self.is_idle_here() {
            self.give_back(out);
        }
        self.give_shares_back(true, out);
        self.right.park(out);
        self.hear_own(out);
    }

    /// Whether something is here that is to go back if nobody uses it for a while.
    pub(super) fn has_something_lent(&self) -> bool {
        let is_used = self.caller.is_some() || self.sharing.is_used();
        !is_used && (self.right.is_here() || self.is_idle_here() || self.sharing.has_idle())
    }
}
