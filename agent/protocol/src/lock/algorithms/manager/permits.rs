//! A lock with several permits: the part of one member, and the books if it is the lock's manager.
//!
//! There is no token, as the grants of several permits overlap. A permit is a share by which one caller at
//! a time is inside.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::slice;

use super::books::{Said, refuse};
use super::habit::Habit;
use super::lending::{Lending, Share};
use super::sharing::Sharing;
use super::{Message, Place};
use crate::ids::{NodeId, RequestId};
use crate::lock::algorithms::placement::serving_members;
use crate::lock::engine::{Effects, Engine, Mark, Rebuild};
use crate::lock::request::{Mode, Previous, Release, Request};

#[derive(Clone, Debug, Hash)]
pub(in crate::lock::algorithms) struct Permits {
    me: NodeId,
    manager: NodeId,
    sharing: Sharing,
    /// The number of its last place.
    last: u64,
    habit: Habit,
    /// The manager's; `None` elsewhere.
    books: Option<Books>,
    /// What this member says to itself, until the end of the step.
    own: VecDeque<Message>,
}

#[derive(Clone, Debug, Hash)]
struct Books {
    permits: usize,
    held: Vec<Held>,
    queue: VecDeque<Place>,
    question: Option<Question>,
    /// The highest number of a place of each member (G5).
    newest: BTreeMap<NodeId, u64>,
    lending: Lending,
    /// The mark: a holder ended inside, and nobody has been told.
    abandoned: bool,
}

/// A permit that is not here.
#[derive(Clone, Copy, Debug, Hash)]
struct Held {
    share: Share,
    /// Whether the mark went with it.
    took_mark: bool,
}

/// Whether those that try can have one of the permits that are lent.
#[derive(Clone, Debug, Hash)]
struct Question {
    places: VecDeque<Place>,
    /// The permits of which that is not known.
    missing: BTreeSet<(NodeId, u64)>,
}

impl Permits {
    /// The manager's books are the view's table; nobody has to say anything. Loans are forgotten.
    pub(in crate::lock::algorithms) fn new(
        permits: NonZeroU32,
        from: &Rebuild<'_>,
        out: &mut Effects<Message>,
    ) -> Self {
        let (manager, _) = serving_members(from.lock, from.members);
        let permits = permits.get() as usize;
        let holders: Vec<_> = from.holders.iter().map(Place::of).collect();
        let queue: VecDeque<_> = from.waiters.iter().map(|it| Place::of(&it.id)).collect();
        let all = || holders.iter().chain(&queue).copied();
        let mine = all().filter(|place| place.node == from.me);
        let free = permits.saturating_sub(holders.len());
        let mut served = from.waiters.iter().take(free);
        let in_vain = from
            .my_waiter()
            .filter(|request| request.tries && !served.any(|served| served.id == request.id));
        out.busy = in_vain.map(|request| request.id).or(out.busy);
        let mut engine = Self {
            me: from.me,
            manager,
            sharing: Sharing::of_permits(from),
            last: mine.map(|place| place.number).max().unwrap_or_default(),
            habit: Habit::default(),
            books: None,
            own: VecDeque::new(),
        };
        if manager == from.me {
            let mut newest = BTreeMap::new();
            for Place { node, number } in all() {
                let newest: &mut u64 = newest.entry(node).or_default();
                *newest = number.max(*newest);
            }
            let held = holders.into_iter().map(|place| Held {
                share: Share::once(place),
                took_mark: false,
            });
            engine.books = Some(Books {
                permits,
                held: held.collect(),
                queue,
                question: None,
                newest,
                lending: Lending::default(),
                abandoned: from.abandoned,
            });
        }
        engine.keep_books(out, Books::serve);
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

    fn keep_books(&mut self, out: &mut Effects<Message>, keep: impl FnOnce(&mut Books, &mut Said)) {
        let mut said = Said::new();
        if let Some(books) = &mut self.books {
            keep(books, &mut said);
        }
        for (to, message) in said {
            self.say(to, message, out);
        }
    }

    fn request(&mut self, tries: bool, out: &mut Effects<Message>) -> u64 {
        self.last += 1;
        let request = Message::Request {
            number: self.last,
            mode: Mode::Exclusive,
            tries,
        };
        self.say(self.manager, request, out);
        self.last
    }

    /// The permits that nobody here uses go back, but for those that can be used again; those too if `all`.
    fn give_back(&mut self, all: bool, out: &mut Effects<Message>) {
        for drop in self.sharing.give_back(all) {
            self.say(self.manager, drop, out);
        }
        self.hear_own(out);
    }

    fn end(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        if let Some(drop) = self.sharing.end(id, how) {
            self.say(self.manager, drop, out);
        }
        self.hear_own(out);
    }

    fn on_share(
        &mut self,
        (number, block, recalled): (u64, u32, bool),
        abandoned: bool,
        out: &mut Effects<Message>,
    ) {
        if !self.sharing.let_in(number, block, recalled) {
            return;
        }
        // The manager gives itself numbers as it goes.
        out.block = (self.me != self.manager).then_some(block);
        if let Some(id) = self.sharing.enter() {
            self.habit.enters(1);
            out.grant_after(id, Previous::after(abandoned));
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Effects<Message>) {
        let of = |number| Place { node: from, number };
        match message {
            Message::Request { number, tries, .. } => {
                self.keep_books(out, |books, say| books.on_request(of(number), tries, say));
            }
            Message::Drop { number, used, how } => {
                self.keep_books(out, |books, say| {
                    books.on_drop(of(number), (used, how), say)
                });
            }
            Message::Reads { number } => {
                self.keep_books(out, |books, say| books.on_reads(of(number), say));
            }
            Message::Share {
                number,
                block,
                recalled,
                abandoned,
            } if from == self.manager => {
                self.on_share((number, block, recalled), abandoned, out);
            }
            Message::Recall { number, tries } if from == self.manager => {
                if let Some(reads) = self.sharing.recall(number, tries) {
                    self.say(self.manager, reads, out);
                }
            }
            Message::Busy { number } if from == self.manager => {
                out.busy = self.sharing.refuse(number).or(out.busy);
            }
            _ => {}
        }
    }
}

impl Books {
    fn knows(&self, node: NodeId) -> bool {
        self.held.iter().any(|held| held.share.place.node == node)
    }

    fn on_request(&mut self, place: Place, tries: bool, say: &mut Said) {
        let newest = self.newest.entry(place.node).or_default();
        if place.number <= *newest {
            return;
        }
        *newest = place.number;
        self.lending.is_asked(place.node);
        if tries && self.held.len() >= self.permits {
            return self.ask(place, say);
        }
        self.queue.push_back(place);
        self.serve(say);
        if !self.queue.is_empty() {
            self.lending.is_wanted();
            self.recall(say);
        }
    }

    /// Permits go to those who wait, and else to those who try.
    fn serve(&mut self, say: &mut Said) {
        while self.held.len() < self.permits {
            let tries = self.question.as_mut().map(|question| &mut question.places);
            let next = self.queue.pop_front();
            let Some(place) = next.or_else(|| tries?.pop_front()) else {
                break;
            };
            let took_mark = core::mem::take(&mut self.abandoned);
            let is_wanted = took_mark || !self.queue.is_empty();
            let share = self.lending.give(place, is_wanted);
            say.push((place.node, share.message(took_mark)));
            self.held.push(Held { share, took_mark });
        }
        self.question.take_if(|question| question.places.is_empty());
    }

    /// Somebody waits, or is to be told that a holder ended inside: nobody keeps a permit that is not used.
    fn recall(&mut self, say: &mut Said) {
        for place in self.question.take().into_iter().flat_map(|it| it.places) {
            refuse(place, say);
        }
        for held in &mut self.held {
            if held.share.recall() {
                let Place { node, number } = held.share.place;
                let tries = false;
                say.push((node, Message::Recall { number, tries }));
            }
        }
    }

    /// One that tries gets a permit that is lent, if nobody waits and one is not used.
    fn ask(&mut self, place: Place, say: &mut Said) {
        if let Some(question) = &mut self.question {
            return question.places.push_back(place);
        }
        let lent = self.held.iter().filter(|held| held.share.is_lent());
        let lent: Vec<_> = lent.map(|held| held.share.place).collect();
        if lent.is_empty() || !self.queue.is_empty() {
            return refuse(place, say);
        }
        let missing = lent.iter().map(|place| (place.node, place.number));
        self.question = Some(Question {
            places: [place].into(),
            missing: missing.collect(),
        });
        for Place { node, number } in lent {
            let tries = true;
            say.push((node, Message::Recall { number, tries }));
        }
    }

    /// Somebody is inside by that permit.
    fn on_reads(&mut self, Place { node, number }: Place, say: &mut Said) {
        let Some(question) = &mut self.question else {
            return;
        };
        question.missing.remove(&(node, number));
        if question.missing.is_empty() {
            for place in core::mem::take(&mut question.places) {
                refuse(place, say);
            }
            self.question = None;
        }
    }

    /// A caller waits no longer, or a permit comes back after `used` entries.
    fn on_drop(&mut self, place: Place, (used, how): (u32, Release), say: &mut Said) {
        self.queue.retain(|it| *it != place);
        if let Some(question) = &mut self.question {
            question.places.retain(|it| *it != place);
        }
        let is_it = |held: &mut Held| held.share.place == place;
        let over = self.held.extract_if(.., is_it).next();
        if let Some(Held { share, took_mark }) = over {
            self.lending.end(share, used);
            let leaves_mark = match how {
                Release::Given => false,
                Release::Abandoned => true,
                Release::Unused => took_mark,
            };
            if leaves_mark {
                self.abandoned = true;
                self.recall(say);
            }
        }
        self.serve(say);
        // That permit is not asked for any more.
        self.on_reads(place, say);
    }
}

impl Engine<Message> for Permits {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        self.habit.is_wanted(out);
        if self.sharing.enter_by_loan(request.id) {
            self.habit.enters(1);
            out.grant(request.id);
        } else {
            let number = self.request(request.tries, out);
            self.sharing.ask(request.id, request.tries, number);
            self.hear_own(out);
        }
    }

    fn release(&mut self, id: RequestId, how: Release, out: &mut Effects<Message>) {
        self.end(id, how, out);
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        self.end(id, Release::Unused, out);
    }

    /// The manager knows which members have no permit.
    fn may_be_inside(&self, node: NodeId) -> bool {
        self.books.as_ref().is_none_or(|books| books.knows(node))
    }

    fn mark(&self) -> Option<Mark> {
        let books = self.books.as_ref()?;
        let is_conferred = |held: &Held| held.took_mark && held.share.place.node != self.me;
        if books.abandoned {
            Some(Mark::Kept)
        } else {
            books
                .held
                .iter()
                .any(is_conferred)
                .then_some(Mark::Conferred)
        }
    }

    fn asks(&self) -> &[NodeId] {
        if self.me == self.manager {
            &[]
        } else {
            slice::from_ref(&self.manager)
        }
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        self.on_message(from, *message, out);
        self.hear_own(out);
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        if self.habit.is_over(out) && self.sharing.has_idle() {
            self.habit.was_returned(out);
            self.give_back(true, out);
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        self.give_back(true, out);
    }

    /// Permits that are recalled go back. A caller whose try came to nothing, and that goes on waiting, asks
    /// anew.
    fn rest(&mut self, out: &mut Effects<Message>) {
        self.give_back(false, out);
        if self.sharing.is_refused() {
            let number = self.request(false, out);
            self.sharing.ask_again(number);
            self.hear_own(out);
        }
        if self.sharing.has_idle() {
            self.habit.watch(out);
        }
    }
}
