//! The part of one member: its place, its readers, and the books if it is the lock's manager.

use alloc::collections::VecDeque;
use core::slice;

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
use crate::lock::request::{Mode, Release, Request};

#[derive(Clone, Debug, Hash)]
pub(in crate::lock::algorithms) struct Manager {
    me: NodeId,
    manager: NodeId,
    /// This member's request that waits to be inside alone, or is.
    caller: Option<Caller>,
    /// This member's place for that.
    place: Option<Own>,
    /// Its requests that share the lock.
    sharing: Sharing,
    /// The number of its last place.
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
                }),
            }),
            sharing: Sharing::new(from, &line),
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

    /// Asks for a place for this member's caller, in which it is alone.
    fn ask(&mut self, tries: bool, out: &mut Effects<Message>) {
        let number = self.request(Mode::Exclusive, tries, out);
        self.place = Some(Own {
            number,
            tries,
            is_ghost: false,
            next: None,
            stay: None,
        });
    }

    fn request(&mut self, mode: Mode, tries: bool, out: &mut Effects<Message>) -> u64 {
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
    fn enter_if_permitted(&mut self, out: &mut Effects<Message>) {
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
    fn share_if_permitted(&mut self, out: &mut Effects<Message>) {
        if self.sharing.is_let_in()
            && self.right.fetch(out)
            && let Some(id) = self.sharing.enter()
        {
            self.habit.enters(1);
            out.grant(id);
        }
    }

    /// A caller that only tries took the place of a ghost that waits, or waited when the view ended.
    fn tell_if_busy(&self, out: &mut Effects<Message>) {
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

    fn give_back(&mut self, out: &mut Effects<Message>) {
        if let Some(own) = self.place.take()
            && let Some(worth) = own.end(false)
        {
            let stay = own.number;
            self.say(self.manager, Message::Return { stay, worth }, out);
        }
    }

    /// The token, which nobody here needs, goes to the next or back.
    fn pass_on(&mut self, out: &mut Effects<Message>) {
        match self.place.and_then(|place| place.next) {
            Some(next) => self.give_token(next, out),
            None => self.give_back(out),
        }
    }

    fn on_token(&mut self, number: u64, worth: Worth, out: &mut Effects<Message>) {
        let Some(place) = &mut self.place else { return };
        if place.number != number || place.stay.is_some() {
            return;
        }
        place.stay = Some(Stay {
            worth: worth.checked(),
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
        let is_own = self.place.is_some_and(|own| own.number == stay);
        if is_own && self.is_idle_here() {
            self.give_token(place, out);
            self.say(self.manager, Message::Passed { probe }, out);
        } else if is_own || self.has_phase(stay) {
            let number = place.number;
            self.say(place.node, Message::Busy { number }, out);
            self.say(self.manager, Message::Refused { probe }, out);
        }
        // Else the end of that stay is on its way to the manager, who sees to the place.
    }

    fn on_busy(&mut self, number: u64, out: &mut Effects<Message>) {
        let is_it = |own: &mut Own| own.number == number && own.stay.is_none();
        if self.place.take_if(is_it).is_some()
            && let Some(caller) = self.caller.filter(|caller| caller.tries)
        {
            out.busy = Some(caller.id);
        }
        out.busy = self.sharing.refuse(number).or(out.busy);
    }

    fn has_phase(&self, number: u64) -> bool {
        self.books
            .as_ref()
            .is_some_and(|books| books.has_phase(number))
    }

    /// What the manager's books make of a message, and what that makes the manager say. They are given
    /// the number of this member's last place, of which they make numbers of phases.
    fn keep_books(
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

    /// The request `id`, if it shares the lock or waits to, is over.
    fn drop_share(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        if let Some(number) = self.sharing.end(id) {
            self.say(self.manager, Message::Drop { number, how }, out);
        }
        self.hear_own(out);
    }

    /// Whether something is here that is to go back if nobody uses it for a while.
    fn has_something_lent(&self) -> bool {
        let is_used = self.caller.is_some() || self.sharing.is_used();
        !is_used && (self.right.is_here() || self.is_idle_here())
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Message>) {
        let is_manager = from == self.manager;
        let of = |number| Place { node: from, number };
        match message {
            Message::Request {
                number,
                mode,
                tries,
            } => {
                if from != self.me {
                    self.right.introduce(out);
                }
                self.keep_books(out, |books, fresh, say| {
                    books.on_request(of(number), (mode, tries), fresh, say);
                });
            }
            Message::Return { stay, worth } => {
                let worth = worth.checked();
                self.keep_books(out, |books, _, say| books.on_return(of(stay), worth, say));
            }
            Message::Passed { probe } => {
                self.keep_books(out, |books, _, say| books.on_passed(from, probe, say));
            }
            Message::Refused { probe } => {
                self.keep_books(out, |books, _, say| books.on_refused(from, probe, say));
            }
            Message::Drop { number, how } => {
                let mut ended_inside = false;
                self.keep_books(out, |books, _, say| {
                    ended_inside = books.on_drop(of(number), how, say);
                });
                out.abandoned |= ended_inside;
            }
            Message::Ghost { number } => {
                self.keep_books(out, |books, _, say| books.on_ghost(of(number), say));
            }
            Message::Token { number, worth } if self.has_phase(number) => {
                let worth = worth.checked();
                self.keep_books(out, |books, _, say| books.on_token(number, worth, say));
            }
            Message::Token { number, worth } => self.on_token(number, worth, out),
            Message::Next { stay, place } if is_manager && self.has_phase(stay) => {
                self.keep_books(out, |books, _, say| books.on_next(stay, place, say));
            }
            Message::Next { stay, place } if is_manager => {
                if let Some(own) = self.place.as_mut().filter(|own| own.number == stay) {
                    own.next = Some(place);
                }
            }
            Message::Try { stay, place, probe } if is_manager => {
                self.on_try(stay, place, probe, out);
            }
            Message::Busy { number } if self.has_phase(number) => {
                self.keep_books(out, |books, _, say| books.on_busy(number, say));
            }
            Message::Busy { number } => self.on_busy(number, out),
            Message::Share { number } if is_manager => {
                self.sharing.let_in(number);
                self.share_if_permitted(out);
            }
            Message::Unpark { time } => self.right.on_unpark(from, time, out),
            Message::Unparked { time } => {
                if self.right.on_unparked(time) {
                    self.enter_if_permitted(out);
                    self.share_if_permitted(out);
                }
            }
            Message::Park { time } => self.right.on_park(from, time),
            Message::Next { .. } | Message::Try { .. } | Message::Share { .. } => {}
        }
    }
}

impl Engine<Message> for Manager {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        let Request {
            id, tries, mode, ..
        } = request;
        // A reader uses nothing that is lent but the manager's right.
        if mode == Mode::Exclusive || self.me == self.manager {
            self.habit.is_wanted(out);
        }
        match mode {
            Mode::Exclusive => {
                debug_assert!(self.caller.is_none(), "one request of a member at a time");
                // Others wait for the token that is here.
                if self.is_idle_here() && self.place.is_some_and(|place| place.next.is_some()) {
                    self.pass_on(out);
                }
                self.caller = Some(Caller {
                    id,
                    tries,
                    is_inside: false,
                });
                if self.place.is_none() {
                    self.ask(tries, out);
                }
            }
            Mode::Shared => {
                // A member with the token is alone; only the manager lets readers in.
                if self.is_idle_here() {
                    self.pass_on(out);
                }
                let number = self.request(mode, tries, out);
                self.sharing.ask(id, tries, number);
            }
        }
        self.right.fetch(out);
        self.enter_if_permitted(out);
        self.tell_if_busy(out);
        self.hear_own(out);
    }

    fn release(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        self.caller.take_if(|it| it.id == id && it.is_inside);
        self.drop_share(id, how, out);
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        let caller = self.caller.take_if(|it| it.id == id && !it.is_inside);
        if caller.is_some()
            && let Some(own) = self
                .place
                .as_mut()
                .filter(|own| own.waits() && !own.is_ghost)
        {
            own.is_ghost = true;
            let number = own.number;
            self.say(self.manager, Message::Ghost { number }, out);
        }
        self.drop_share(id, Release::Unused, out);
    }

    /// A member with the token knows that no other is inside. The manager knows which members have no
    /// place. The custodian knows whether it has the manager's right to enter.
    fn may_be_inside(&self, node: NodeId) -> bool {
        if self.place.is_some_and(|place| place.stay.is_some()) {
            return false;
        }
        let custodian = self.right.says_of(node);
        custodian.unwrap_or_else(|| self.books.as_ref().is_none_or(|books| books.knows(node)))
    }

    fn asks(&self) -> &[NodeId] {
        if self.place.is_some_and(|place| place.stay.is_some()) {
            &[]
        } else if self.me == self.manager {
            self.right.asks().map_or(&[], slice::from_ref)
        } else {
            slice::from_ref(&self.manager)
        }
    }

    /// Of a token that is here and idle, [`Engine::rest`] has decided that it stays.
    fn lends(&self) -> bool {
        let is_idle = self.is_idle_here();
        debug_assert!(!is_idle || self.right.permits(), "as it entered");
        is_idle
    }

    fn entered(&mut self, entries: u32) {
        self.habit.enters(entries);
        let stay = self.stay().into_iter();
        stay.for_each(|stay| stay.entries = stay.entries.saturating_add(entries));
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        self.on_message(from, *message, out);
        self.hear_own(out);
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        if self.habit.is_over(out) && self.has_something_lent() {
            if self.is_idle_here() {
                self.give_back(out);
            }
            self.habit.was_returned(out);
            self.right.park(out);
            self.hear_own(out);
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        if self.is_idle_here() {
            self.give_back(out);
        }
        self.right.park(out);
        self.hear_own(out);
    }

    /// The token goes to the next, or stays if that pays, or goes back. A caller whose try came to
    /// nothing, and that goes on waiting, gets a place in the list.
    fn rest(&mut self, out: &mut Effects<Message>) {
        if self.is_idle_here() {
            let is_last = self.place.is_some_and(|place| place.next.is_none());
            match self.stay() {
                Some(stay) if is_last && stay.worth.pays() && stay.entries > 0 => {
                    stay.is_lent = true;
                }
                _ => self.pass_on(out),
            }
        }
        if self.caller.is_some() && self.place.is_none() {
            self.ask(false, out);
        }
        if self.sharing.is_refused() {
            let number = self.request(Mode::Shared, false, out);
            self.sharing.ask_again(number);
        }
        self.hear_own(out);
        if self.has_something_lent() {
            self.habit.watch(out);
        }
    }
}
