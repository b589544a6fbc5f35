//! What the beginning and the end of views, of congestion and of this member's life do to all locks.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Locks, MAX_CLOCK};
use crate::api::{Event, Refusal};
use crate::ids::{Epoch, Incarnation, LockName, NodeId, Ticket};
use crate::lock::settle::{Lock, LockOutput};
use crate::lock::summary::MAX_IDLE;
use crate::lock::{
    AbandonedMarks, Ending, GrantHistory, HopTimer, Last, LockSummary, Rebuild, Release, Summary,
    build,
};
use crate::membership::View;

/// What a member can say of those that were in its last view and are not there any more.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Witness {
    /// The last view that was in force here.
    epoch: Epoch,
    /// Whether it was in force until now. A view that this member froze for, and never saw, may
    /// have been in force elsewhere, and whoever was in it may have been let in.
    is_fresh: bool,
    /// Whether locks were declared here: then all of them are known here.
    coordinated: bool,
}

impl Witness {
    fn saw(&mut self, epoch: Epoch) {
        (self.epoch, self.is_fresh) = (epoch, true);
    }

    fn missed_a_view(&mut self) {
        self.is_fresh = false;
    }

    /// Whether this member's engines tell who was inside.
    fn vouches(&self) -> bool {
        self.is_fresh
    }
}

impl Locks {
    /// Builds the lock's engine for the view in force.
    pub(super) fn rebuild(&mut self, name: &LockName, summary: Option<&LockSummary>) {
        let Some(view) = &self.view else { return };
        let Some(lock) = self.table.get_mut(name) else {
            return;
        };
        let Some(spec) = lock.spec else { return };
        let members: Vec<_> = view.nodes().collect();
        let rebuild = Rebuild {
            me: self.me,
            members: &members,
            lock: name,
            holders: summary.map_or(&[], |summary| &summary.holders),
            held: summary.map(|summary| summary.held).unwrap_or_default(),
            waiters: summary.map_or(&[], |summary| &summary.waiters),
            abandoned: summary.map_or(self.doubt, |summary| summary.abandoned),
        };
        // A holder's grant counts as this epoch's first. Who is inside alone has been told of what
        // was before; with several inside somebody may be still to be told.
        lock.history = GrantHistory {
            counter: u32::from(!rebuild.holders.is_empty()),
            abandoned: rebuild.abandoned,
        };
        (lock.entered, lock.ending) = (0, Ending::default());
        lock.was_marked = rebuild.abandoned;
        lock.owes_mark = false;
        lock.engine = Some(build(spec, &rebuild, &mut self.effects));
    }

    /// The view ends. Nobody is granted anything until the next.
    pub fn freeze(&mut self, out: &mut LockOutput) {
        match self.view.take() {
            Some(view) => self.witness.saw(view.epoch),
            None => self.witness.missed_a_view(),
        }
        for (name, lock) in &mut self.table {
            lock.freeze(&self.others);
            out.hops.push((name.clone(), HopTimer::Clear));
        }
    }

    /// What this member has to tell, also of the former lives of `unclean`, which ended without
    /// leaving. Only while frozen.
    pub fn summary(&self, unclean: &[NodeId]) -> Summary {
        debug_assert!(self.view.is_none(), "a summary is of a frozen table");
        let vouches = self.witness.vouches();
        let (mut idle, mut fits) = (0, true);
        let locks = self.table.iter().filter_map(|(name, lock)| {
            if lock.queue.is_empty() {
                if !self.is_worth_telling(lock, unclean) {
                    return None;
                }
                idle += 1;
                if idle > MAX_IDLE {
                    fits = false;
                    return None;
                }
            }
            let is_suspect = |node: &&NodeId| !vouches || lock.suspects.contains(node);
            let summary = LockSummary {
                last: Last {
                    epoch: self.witness.epoch,
                    counter: lock.history.counter,
                    ending: lock.ending,
                },
                abandoned: lock.owes_mark,
                suspects: unclean.iter().filter(is_suspect).copied().collect(),
                spec: lock.spec?,
                holders: lock.queue.held().iter().map(|held| held.id).collect(),
                held: lock
                    .queue
                    .held()
                    .first()
                    .map(|held| held.mode)
                    .unwrap_or_default(),
                waiters: lock
                    .queue
                    .asking()
                    .iter()
                    .map(|asking| asking.request)
                    .collect(),
            };
            Some((name.clone(), summary))
        });
        let locks = locks.collect();
        Summary {
            clock: self.clock,
            epoch: self.witness.epoch,
            locks,
            doubt: self.doubt || !fits,
            is_complete: vouches && self.witness.coordinated && fits,
            is_continued: vouches,
            inherits_marks: self.inherited != AbandonedMarks::None,
        }
    }

    /// Whether a lock that nobody here uses must be told of all the same.
    fn is_worth_telling(&self, lock: &Lock, unclean: &[NodeId]) -> bool {
        let may_be_marked = lock.was_marked || lock.owes_mark;
        // Somebody is not there any more, who may have been inside.
        let is_asked = !unclean.is_empty() && self.witness.vouches();
        // Otherwise it would be in doubt anew.
        let is_known = self.doubt && lock.history != GrantHistory::doubtful();
        may_be_marked || is_asked || is_known
    }

    /// What this member knows of locks that were abandoned and not entered since.
    pub(crate) fn marks(&self) -> AbandonedMarks {
        let marks = self.table.values().map(Lock::marks).max();
        marks.unwrap_or_default().max(self.inherited)
    }

    /// A new view is in force: every engine is built anew, and what callers gave up or left
    /// meanwhile is played.
    /// `coordinates`: whether new locks are declared here.
    pub fn install(
        &mut self,
        view: Arc<View>,
        table: &Summary,
        coordinates: bool,
        out: &mut LockOutput,
    ) {
        self.others = view.nodes().filter(|&node| node != self.me).collect();
        self.witness.coordinated = coordinates;
        self.doubt = table.doubt;
        self.inherited = AbandonedMarks::None;
        self.overflowed = false;
        self.view = Some(view);
        self.clock = self.clock.max(table.clock.min(MAX_CLOCK)) + 1;
        let listed = &self.listed;
        self.table
            .retain(|name, lock| listed.contains_key(name) || !lock.queue.is_empty());
        for lock in self.table.values_mut() {
            // What the view does not know the others have forgotten: it is asked for anew.
            lock.spec = None;
        }
        let listed = listed.iter().map(|(name, spec)| (name.clone(), *spec));
        let in_use = table
            .locks
            .iter()
            .map(|(name, lock)| (name.clone(), lock.spec));
        for (name, spec) in listed.chain(in_use).collect::<Vec<_>>() {
            self.tell_spec(&name, spec, out);
        }
        let names: Vec<_> = self.table.keys().cloned().collect();
        for name in names {
            self.give_up_to_rivals(&name, table.locks.get(&name), out);
            self.rebuild(&name, table.locks.get(&name));
            self.settle(&name, out);
        }
    }

    /// A view has gone on without this life, and another begins. Who was let in is told that it is
    /// not any more; those who do not know of it yet (`unaware`) wait again.
    pub(crate) fn begin_anew(
        &mut self,
        incarnation: Incarnation,
        unaware: &BTreeSet<Ticket>,
        out: &mut LockOutput,
    ) {
        self.freeze(out);
        self.incarnation = incarnation;
        self.witness = Witness::default();
        self.inherited = AbandonedMarks::None;
        self.others.clear();
        for lock in self.table.values_mut() {
            for ticket in lock.queue.begin_anew(unaware) {
                self.tickets.remove(&ticket);
                out.events.push(Event::Lost { ticket });
            }
            // What was known of its grants was known in a view that is over without this member.
            (lock.history, lock.ending) = (GrantHistory::default(), Ending::default());
            (lock.was_marked, lock.owes_mark) = (false, false);
            lock.suspects.clear();
        }
    }

    /// Where two sides went on without each other, of one lock a view may leave to this member less
    /// than it told of.
    fn give_up_to_rivals(
        &mut self,
        name: &LockName,
        summary: Option<&LockSummary>,
        out: &mut LockOutput,
    ) {
        let Some(lock) = self.table.get_mut(name) else {
            return;
        };
        let (holders, waiters) = summary.map_or((&[][..], &[][..]), |summary| {
            (&summary.holders, &summary.waiters)
        });
        for ticket in lock.queue.lose_all_but(holders) {
            self.tickets.remove(&ticket);
            out.events.push(Event::Lost { ticket });
        }
        if let Some(caller) = lock.queue.withdraw_unless(waiters)
            && let Some(actual) = lock.spec
        {
            self.tickets.remove(&caller.ticket);
            out.events.push(Event::Ended {
                ticket: caller.ticket,
                refusal: Refusal::NotShareable { actual },
            });
        }
    }

    /// Ends all callers' requests, and passes on what others need. Those who were let in and do not
    /// know of it yet (`unaware`) have waited, and no more.
    pub fn leave(&mut self, unaware: &BTreeSet<Ticket>, out: &mut LockOutput) {
        self.open = false;
        for (ticket, name) in core::mem::take(&mut self.tickets) {
            let Some(lock) = self.table.get_mut(&name) else {
                continue;
            };
            let is_unaware = unaware.contains(&ticket);
            let waited = lock.queue.give_up(ticket)
                || is_unaware && lock.queue.release(ticket, Release::Unused);
            if waited {
                out.events.push(Event::Ended {
                    ticket,
                    refusal: Refusal::Closed,
                });
            } else if lock.queue.release(ticket, Release::Given) {
                out.events.push(Event::Lost { ticket });
            }
        }
        let names: Vec<_> = self.table.keys().cloned().collect();
        for name in names {
            self.settle(&name, out);
            if let Some(engine) = self
                .table
                .get_mut(&name)
                .and_then(|lock| lock.engine.as_mut())
            {
                engine.leave(&mut self.effects);
                self.settle(&name, out);
            }
        }
    }

    /// Whether callers' requests are still with engines that have not been told that they ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.table.values().all(|lock| lock.queue.is_empty())
    }

    pub(crate) fn congested(&self) -> &BTreeSet<NodeId> {
        &self.congested
    }

    /// The members to whom nothing is to be added. Callers that waited for one of them go on when
    /// it is not among them any more.
    pub(crate) fn note_congested(&mut self, congested: BTreeSet<NodeId>, out: &mut LockOutput) {
        let eased = !self.congested.is_subset(&congested);
        self.congested = congested;
        if eased {
            let names: Vec<_> = self.table.keys().cloned().collect();
            for name in names {
                self.settle(&name, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;
    use core::num::NonZeroU32;
    use core::time::Duration;

    use super::*;
    use crate::ElectionAlgorithm;
    use crate::api::Wait;
    use crate::ids::{Incarnation, RequestId, Ticket};
    use crate::lock::algorithms::ricart_agrawala;
    use crate::lock::settle::LockMessage;
    use crate::lock::table::MAX_LOCKS;
    use crate::lock::{Algorithm, LockSpec, Message, Mode, Waiting};
    use crate::membership::Member;
    use crate::settings::{Failure, Settings};
    use crate::time::Time;

    fn settings(lock: &LockName, spec: LockSpec) -> Settings {
        Settings {
            group: String::from("test"),
            lease: Duration::from_secs(1),
            failure: Failure::Unanimity,
            lock_delay: Duration::ZERO,
            election: ElectionAlgorithm::Bully,
            algorithm: Algorithm::RicartAgrawala,
            locks: BTreeMap::from([(lock.clone(), spec)]),
        }
    }

    fn view(nodes: &[NodeId]) -> View {
        let member = |&node: &NodeId| Member {
            node,
            incarnation: Incarnation(1),
        };
        View {
            epoch: Epoch::new(1).expect("in range"),
            members: nodes.iter().map(member).collect(),
            unclean: Vec::new(),
        }
    }

    /// The view was in force in one of its members only, be that the server, whose books have the
    /// mark, or not. Somebody else is inside, and may not have been told.
    #[test]
    fn a_mark_stays_whoever_tells_of_the_view() {
        let [one, other, dead] = [1, 2, 3].map(|id| NodeId::new(id).expect("not zero"));
        let name = LockName::new("x").expect("a good name");
        let spec = LockSpec {
            permits: NonZeroU32::new(3).expect("not zero"),
            ..LockSpec::exclusive(Algorithm::Semaphore)
        };
        for (me, holder) in [(one, other), (other, one)] {
            let mut out = LockOutput::default();
            let mut locks = Locks::new(
                me,
                Incarnation(1),
                &settings(&name, spec),
                AbandonedMarks::None,
            );
            let inside = RequestId {
                node: holder,
                incarnation: Incarnation(1),
                seq: 1,
            };
            let marked = LockSummary {
                spec,
                holders: vec![inside],
                held: Mode::Exclusive,
                waiters: Vec::new(),
                last: Last::default(),
                abandoned: true,
                suspects: Vec::new(),
            };
            let table = Summary {
                locks: BTreeMap::from([(name.clone(), marked)]),
                ..Summary::default()
            };
            locks.install(Arc::new(view(&[one, other])), &table, false, &mut out);
            locks.freeze(&mut out);
            let mut told = locks.summary(&[dead]);
            told.is_complete = true;
            told.conclude(&[dead]);
            assert!(told.locks[&name].abandoned, "told by {me}");
        }
    }

    /// A view may have been in force elsewhere, and let somebody in: who froze for it and never
    /// saw it cannot tell any more who was inside.
    #[test]
    fn who_missed_a_view_vouches_for_nobody() {
        let [me, dead] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
        let name = LockName::new("x").expect("a good name");
        let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
        let mut out = LockOutput::default();
        let mut locks = Locks::new(
            me,
            Incarnation(1),
            &settings(&name, spec),
            AbandonedMarks::None,
        );
        locks.install(Arc::new(view(&[me])), &Summary::default(), true, &mut out);
        let caller = Waiting {
            ticket: Ticket(1),
            wish: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
            since: Time::ZERO,
        };
        locks.acquire(&name, caller, &mut out);
        for vouches in [true, false] {
            locks.freeze(&mut out);
            let told = locks.summary(&[dead]);
            assert_eq!((told.is_complete, told.is_continued), (vouches, vouches));
            assert_eq!(told.locks[&name].holders.len(), 1);
            assert_eq!(told.locks[&name].suspects.is_empty(), vouches);
        }
    }

    /// Who asks for a lock while no view is in force does not remember how it was served: the next
    /// coordinator may declare it otherwise, as nobody told it of the lock.
    #[test]
    fn how_an_unlisted_lock_is_served_ends_with_the_view() {
        let [me, other] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
        let name = LockName::new("x").expect("a good name");
        let mut settings = settings(&name, LockSpec::exclusive(Algorithm::RicartAgrawala));
        settings.locks.clear();
        let mut locks = Locks::new(me, Incarnation(1), &settings, AbandonedMarks::None);
        let mut out = LockOutput::default();
        let alone = Arc::new(view(&[me]));
        locks.install(alone, &Summary::default(), true, &mut out);
        let caller = |ticket| Waiting {
            ticket: Ticket(ticket),
            wish: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
            since: Time::ZERO,
        };
        locks.acquire(&name, caller(1), &mut out);
        assert!(locks.declare(&name, None, &mut out).is_some());
        locks.freeze(&mut out);
        locks.acquire(&name, caller(2), &mut out);
        locks.release(Ticket(1), Release::Unused, &mut out);
        let both = Arc::new(view(&[me, other]));
        locks.install(both, &Summary::default(), false, &mut out);
        assert_eq!(locks.table[&name].spec, None);
    }

    /// A message that found no room is lost, and the sender does not know. Room that is made later
    /// in the epoch is not for the lock that it was for: its engine would lack a message.
    #[test]
    fn a_lock_that_missed_a_message_waits_for_the_next_view() {
        let [me, other] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
        let name = |n: usize| LockName::new(format!("{n}")).expect("a good name");
        let spec = LockSpec::exclusive(Algorithm::RicartAgrawala);
        let mut settings = settings(&name(0), spec);
        settings.locks.clear();
        let mut locks = Locks::new(me, Incarnation(1), &settings, AbandonedMarks::None);
        let mut out = LockOutput::default();
        let view = Arc::new(view(&[me, other]));
        let begin = |locks: &mut Locks, out: &mut LockOutput| {
            locks.install(Arc::clone(&view), &Summary::default(), false, out);
        };
        begin(&mut locks, &mut out);
        let hears_of = |locks: &mut Locks, n, out: &mut LockOutput| {
            let (node, incarnation, seq) = (other, Incarnation(1), 1);
            let id = RequestId {
                node,
                incarnation,
                seq,
            };
            let body = Message::RicartAgrawala(ricart_agrawala::Message::Reply { id });
            let message = LockMessage {
                lock: name(n),
                permits: spec.permits,
                priority: spec.priority,
                clock: 1,
                history: GrantHistory::default(),
                body,
            };
            locks.receive(other, message, out)
        };
        let caller = Waiting {
            ticket: Ticket(1),
            wish: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
            since: Time::ZERO,
        };
        locks.acquire(&name(MAX_LOCKS), caller, &mut out);
        for n in 1..MAX_LOCKS {
            assert!(hears_of(&mut locks, n, &mut out));
        }
        assert!(!hears_of(&mut locks, 0, &mut out) && out.wants_view);
        locks.end(Ticket(1), Refusal::Cancelled, &mut out);
        assert!(!locks.table.contains_key(&name(MAX_LOCKS)), "there is room");
        assert!(!hears_of(&mut locks, 0, &mut out), "and not for this one");
        assert!(hears_of(&mut locks, 1, &mut out), "others are served");
        locks.freeze(&mut out);
        begin(&mut locks, &mut out);
        assert!(hears_of(&mut locks, 0, &mut out));
    }
}
