//! What one member makes of what it is told: by its callers, by the others, and by its timer.

use core::slice;

use super::member::Manager;
use super::own::Caller;
use super::{Message, Place};
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine};
use crate::lock::request::{Mode, Release, Request};

impl Manager {
    pub(super) fn on_message(
        &mut self,
        from: NodeId,
        message: Message,
        out: &mut Effects<Message>,
    ) {
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
            Message::Drop { number, used, how } => {
                let mut ended_inside = false;
                self.keep_books(out, |books, _, say| {
                    ended_inside = books.on_drop(of(number), (used, how), say);
                });
                out.abandoned |= ended_inside;
            }
            Message::Reads { number } => {
                self.keep_books(out, |books, _, say| books.on_reads(of(number), say));
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
            Message::Share {
                number,
                block,
                recalled,
                ..
            } if is_manager => self.on_share((number, block, recalled), out),
            Message::Recall { number, tries } if is_manager => {
                if let Some(reads) = self.sharing.recall(number, tries) {
                    self.say(self.manager, reads, out);
                }
            }
            Message::Unpark { time } => self.right.on_unpark(from, time, out),
            Message::Unparked { time } => {
                if self.right.on_unparked(time) {
                    self.enter_if_permitted(out);
                    self.share_if_permitted(out);
                }
            }
            Message::Park { time } => self.right.on_park(from, time),
            Message::Next { .. }
            | Message::Try { .. }
            | Message::Share { .. }
            | Message::Recall { .. } => {}
        }
    }
}

impl Engine<Message> for Manager {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        let Request {
            id, tries, mode, ..
        } = request;
        self.habit.is_wanted(out);
        match mode {
            Mode::Exclusive => {
                debug_assert!(self.caller.is_none(), "one request of a member at a time");
                self.give_shares_back(true, out);
                if self.is_idle_here() && self.is_others_turn() {
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
                if self.right.permits() && self.sharing.enter_by_loan(id) {
                    self.habit.enters(1);
                    out.grant(id);
                } else {
                    let number = self.request(mode, tries, out);
                    self.sharing.ask(id, tries, number);
                }
            }
        }
        self.right.fetch(out);
        self.enter_if_permitted(out);
        self.tell_if_busy(out);
        self.hear_own(out);
    }

    fn release(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        self.caller.take_if(|it| it.id == id && it.is_inside);
        self.end_share(id, how, out);
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
        self.end_share(id, Release::Unused, out);
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

    fn stay(&self) -> Option<u64> {
        let place = self.place.filter(|place| place.stay.is_some())?;
        Some(place.number)
    }

    fn end_batch(&mut self) {
        let stay = self.place.as_mut().and_then(|place| place.stay.as_mut());
        stay.into_iter().for_each(|stay| stay.is_batch_over = true);
    }

    fn will_lend(&self) -> bool {
        let is_inside = self.caller.is_some_and(|caller| caller.is_inside);
        is_inside && self.keeps_token() && self.right.permits()
    }

    fn entered(&mut self, entries: u32) {
        // One that is still inside uses it.
        self.habit.enters(entries.max(1));
        let stay = self.stay().into_iter();
        stay.for_each(|stay| stay.entries = stay.entries.saturating_add(entries));
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        self.on_message(from, *message, out);
        self.hear_own(out);
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        if self.habit.is_over(out) && self.has_something_lent() {
            self.habit.was_returned(out);
            self.give_all_back(out);
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        self.give_all_back(out);
    }

    /// The token goes to the next, or stays if that pays, or goes back. Shares that are recalled go back. A
    /// caller whose try came to nothing, and that goes on waiting, gets a place in the list.
    fn rest(&mut self, out: &mut Effects<Message>) {
        if self.is_idle_here() {
            let keeps = self.keeps_token();
            match self.stay() {
                Some(stay) if keeps => stay.is_lent = true,
                _ => self.pass_on(out),
            }
        }
        self.give_shares_back(false, out);
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
