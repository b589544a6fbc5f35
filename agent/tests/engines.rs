//! The algorithms' rules and traps, one step at a time. Sections are those of the design's
//! `ALGORITHMS`; the randomised explorer looks for what nobody thought of.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use distlock_agent::protocol::lock::{
    Effects, Engine, HopTimer, Message, Rebuild, Request, Stamp, build,
};
use distlock_agent::protocol::{
    Algorithm, Incarnation, LockName, LockSpec, Mode, NodeId, Release, RequestId,
};

/// The engines of one lock, and the messages between them, delivered when the test says so.
struct Bench {
    engines: BTreeMap<u16, Box<dyn Engine>>,
    wire: Vec<(u16, u16, Message)>,
    granted: Vec<RequestId>,
    busy: Vec<RequestId>,
    timers: BTreeMap<u16, HopTimer>,
    seq: u64,
}

impl Bench {
    fn new(size: u16, spec: LockSpec) -> Self {
        Self::rebuilt(size, spec, &[], &[])
    }

    fn rebuilt(size: u16, spec: LockSpec, holders: &[RequestId], waiters: &[Request]) -> Self {
        Self::rebuilt_in(size, spec, (holders, Mode::Exclusive), waiters)
    }

    fn rebuilt_in(
        size: u16,
        spec: LockSpec,
        (holders, held): (&[RequestId], Mode),
        waiters: &[Request],
    ) -> Self {
        let members: Vec<_> = (1..=size).map(node).collect();
        let lock = LockName::new("printer").unwrap();
        let mut bench = Self {
            engines: BTreeMap::new(),
            wire: Vec::new(),
            granted: Vec::new(),
            busy: Vec::new(),
            timers: BTreeMap::new(),
            seq: 100,
        };
        for me in 1..=size {
            let rebuild = Rebuild {
                me: node(me),
                members: &members,
                lock: &lock,
                holders,
                held,
                waiters,
                abandoned: false,
            };
            let mut effects = Effects::default();
            bench
                .engines
                .insert(me, build(spec, &rebuild, &mut effects));
            bench.carry_out(me, effects);
        }
        bench
    }

    fn step(&mut self, me: u16, step: impl FnOnce(&mut dyn Engine, &mut Effects)) {
        let mut effects = Effects::default();
        step(&mut **self.engines.get_mut(&me).unwrap(), &mut effects);
        self.carry_out(me, effects);
    }

    fn carry_out(&mut self, me: u16, effects: Effects) {
        let sends = effects.sends.into_iter();
        self.wire
            .extend(sends.map(|(to, message)| (me, to.as_u16(), message)));
        let granted = effects.granted.into_iter();
        self.granted.extend(granted.map(|(id, _)| id));
        self.busy.extend(effects.busy);
        if let Some(timer) = effects.hop_timer {
            self.timers.insert(me, timer);
        }
    }

    /// A request of `me`, stamped `clock`.
    fn acquire(&mut self, me: u16, clock: u64) -> RequestId {
        self.seq += 1;
        let request = request(me, self.seq, clock);
        self.step(me, |engine, out| engine.acquire(request, out));
        request.id
    }

    fn release(&mut self, id: RequestId) {
        self.release_as(id, Release::Given);
    }

    fn release_as(&mut self, id: RequestId, how: Release) {
        self.step(id.node.as_u16(), |engine, out| engine.release(id, how, out));
    }

    fn cancel(&mut self, id: RequestId) {
        self.step(id.node.as_u16(), |engine, out| engine.cancel(id, out));
    }

    /// Delivers the first message on its way from `from` to `to`, and returns it.
    fn deliver(&mut self, from: u16, to: u16) -> Message {
        let place = self
            .wire
            .iter()
            .position(|(f, t, _)| (*f, *t) == (from, to));
        let (_, _, message) = self.wire.remove(place.expect("a message is on its way"));
        self.receive(from, to, &message);
        message
    }

    fn receive(&mut self, from: u16, to: u16, message: &Message) {
        self.step(to, |engine, out| engine.receive(node(from), message, out));
    }

    /// Delivers everything, also what follows from it. Returns how many messages that were.
    fn deliver_all(&mut self) -> usize {
        for count in 0..1000 {
            if self.wire.is_empty() {
                return count;
            }
            let (from, to, message) = self.wire.remove(0);
            self.receive(from, to, &message);
        }
        panic!("it never ends: {:?}", self.wire);
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.wire
            .iter()
            .map(|(_, _, message)| message.kind())
            .collect()
    }
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn request(me: u16, seq: u64, clock: u64) -> Request {
    let id = RequestId {
        node: node(me),
        incarnation: Incarnation(1),
        seq,
    };
    Request {
        id,
        stamp: Stamp {
            clock,
            node: node(me),
        },
        mode: Mode::Exclusive,
        tries: true,
    }
}

fn exclusive(algorithm: Algorithm) -> LockSpec {
    LockSpec::exclusive(algorithm)
}

mod ricart_agrawala {
    use super::*;

    const SPEC: LockSpec = LockSpec::exclusive(Algorithm::RicartAgrawala);

    /// S1, figure 6.16: P0 asks at 8, P2 at 12, P1 does not care.
    #[test]
    fn figure_6_16() {
        let mut bench = Bench::new(3, SPEC);
        let (first, second) = (bench.acquire(1, 8), bench.acquire(3, 12));
        bench.deliver_all();
        assert_eq!(bench.granted, [first]);
        assert_eq!(bench.busy, [second], "who has to wait is told so");
        bench.release(first);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second]);
    }

    #[test]
    fn equal_clocks_are_ordered_by_id() {
        let mut bench = Bench::new(2, SPEC);
        let (second, first) = (bench.acquire(2, 8), bench.acquire(1, 8));
        bench.deliver_all();
        assert_eq!(bench.granted, [first]);
        bench.release(first);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second]);
    }

    /// G2: S2 and S4 count replies, and take one that comes twice for two.
    #[test]
    fn a_reply_that_comes_twice_counts_once() {
        let mut bench = Bench::new(3, SPEC);
        bench.acquire(1, 8);
        bench.deliver(1, 2);
        let reply = bench.deliver(2, 1);
        bench.receive(2, 1, &reply);
        assert_eq!(bench.granted, []);
    }

    #[test]
    fn a_reply_to_an_earlier_request_is_nothing() {
        let mut bench = Bench::new(2, SPEC);
        let given_up = bench.acquire(1, 8);
        bench.deliver(1, 2);
        bench.cancel(given_up);
        bench.acquire(1, 9);
        bench.deliver(2, 1);
        assert_eq!(bench.granted, []);
    }

    /// G1: without it, reordering and cancelling left 197 of 300 runs stuck.
    #[test]
    fn an_old_request_does_not_displace_a_newer_one() {
        let mut bench = Bench::new(2, SPEC);
        let inside = bench.acquire(2, 1);
        bench.deliver_all();
        let given_up = bench.acquire(1, 8);
        let (_, _, old) = bench.wire.remove(0);
        bench.cancel(given_up);
        let wanted = bench.acquire(1, 9);
        bench.deliver_all();
        bench.receive(1, 2, &old);
        bench.release(inside);
        bench.deliver_all();
        assert_eq!(bench.granted, [inside, wanted]);
    }

    #[test]
    fn after_a_view_change_the_holder_is_inside_and_the_waiter_asks_anew() {
        let (holder, waiter) = (request(2, 1, 5), request(1, 1, 9));
        let mut bench = Bench::rebuilt(3, SPEC, &[holder.id], &[waiter]);
        bench.deliver_all();
        assert_eq!(bench.granted, []);
        bench.release(holder.id);
        bench.deliver_all();
        assert_eq!(bench.granted, [waiter.id]);
    }
}

mod semaphore {
    use super::*;

    fn permits(permits: u32) -> LockSpec {
        LockSpec::counting(NonZeroU32::new(permits).unwrap())
    }

    /// The member that serves the lock, found by asking: it is the one that others send to.
    pub(super) fn server(size: u16) -> u16 {
        let mut bench = Bench::new(size, permits(1));
        (1..=size).for_each(|me| _ = bench.acquire(me, 1));
        bench.wire[0].1
    }

    /// Members that are not the server.
    fn clients(size: u16) -> Vec<u16> {
        (1..=size).filter(|&me| me != server(size)).collect()
    }

    /// S2's V has no test of ownership, so that a repeated V manufactures a permit.
    #[test]
    fn v_frees_only_what_is_held_and_only_once() {
        let (server, clients) = (server(3), clients(3));
        let (a, b) = (clients[0], clients[1]);
        let mut bench = Bench::new(3, permits(1));
        let first = bench.acquire(a, 1);
        bench.deliver_all();
        bench.release(first);
        let release = bench.deliver(a, server);
        let second = bench.acquire(b, 2);
        bench.deliver_all();
        bench.receive(a, server, &release);
        let third = bench.acquire(a, 3);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second]);
        bench.release(second);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second, third]);
    }

    #[test]
    fn nobody_gives_back_what_another_holds() {
        let (server, clients) = (server(3), clients(3));
        let (a, b) = (clients[0], clients[1]);
        let mut bench = Bench::new(3, permits(1));
        let first = bench.acquire(a, 1);
        bench.deliver_all();
        bench.release(first);
        let (_, _, release) = bench.wire.remove(0);
        bench.receive(b, server, &release);
        bench.acquire(b, 2);
        bench.deliver_all();
        assert_eq!(bench.granted, [first]);
    }

    #[test]
    fn a_grant_that_crosses_its_cancel_goes_back() {
        let (server, clients) = (server(3), clients(3));
        let (a, b) = (clients[0], clients[1]);
        let mut bench = Bench::new(3, permits(1));
        let given_up = bench.acquire(a, 1);
        bench.deliver(a, server);
        bench.cancel(given_up);
        bench.deliver_all();
        assert_eq!(bench.granted, []);
        let next = bench.acquire(b, 2);
        bench.deliver_all();
        assert_eq!(bench.granted, [next]);
    }

    /// G5: scenario 39 of the faults.
    #[test]
    fn a_request_that_comes_after_its_release_is_over() {
        let (server, clients) = (server(3), clients(3));
        let (a, b) = (clients[0], clients[1]);
        let mut bench = Bench::new(3, permits(1));
        let given_up = bench.acquire(a, 1);
        bench.cancel(given_up);
        assert_eq!(bench.kinds(), ["REQUEST", "RELEASE"]);
        bench.wire.swap(0, 1);
        bench.deliver(a, server);
        bench.deliver(a, server);
        let next = bench.acquire(b, 2);
        bench.deliver_all();
        assert_eq!(bench.granted, [next]);
    }

    #[test]
    fn as_many_enter_as_there_are_permits_in_the_order_of_arrival() {
        let mut bench = Bench::new(4, permits(2));
        let ids: Vec<_> = (1..=4).map(|me| bench.acquire(me, 9)).collect();
        bench.deliver_all();
        assert_eq!(bench.granted.len(), 2);
        for count in 3..=4 {
            bench.release(bench.granted[count - 3]);
            bench.deliver_all();
            assert_eq!(bench.granted.len(), count);
        }
        assert!(ids.iter().all(|id| bench.granted.contains(id)));
    }

    #[test]
    fn one_member_may_hold_several_permits() {
        let client = clients(3)[0];
        let mut bench = Bench::new(3, permits(2));
        let first = bench.acquire(client, 1);
        bench.deliver_all();
        let second = bench.acquire(client, 2);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second]);
        let third = bench.acquire(client, 3);
        bench.deliver_all();
        assert_eq!(bench.busy, [third]);
        bench.release(first);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second, third]);
    }

    #[test]
    fn after_a_view_change_the_server_has_the_books() {
        let (holder, waiter) = (request(1, 1, 5), request(2, 1, 9));
        let mut bench = Bench::rebuilt(3, permits(1), &[holder.id], &[waiter]);
        assert_eq!(bench.wire.len(), 0, "nobody has to say anything");
        bench.release(holder.id);
        bench.deliver_all();
        assert_eq!(bench.granted, [waiter.id]);
    }
}

mod bakery {
    use super::*;

    const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Bakery);

    #[test]
    fn three_rounds_of_reads_and_values() {
        let mut bench = Bench::new(4, SPEC);
        let id = bench.acquire(1, 1);
        assert_eq!(bench.deliver_all(), 6 * 3);
        assert_eq!(bench.granted, [id]);
    }

    /// S2's "my ticket is the minimum" lets both in when two took the same ticket.
    #[test]
    fn a_tie_is_broken_by_the_id() {
        let mut bench = Bench::new(2, SPEC);
        let (second, first) = (bench.acquire(2, 1), bench.acquire(1, 1));
        // Both read 0, and both take ticket 1.
        bench.deliver_all();
        assert_eq!(bench.granted, [first]);
        assert_eq!(bench.busy, [second]);
        bench.release(first);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second]);
    }

    #[test]
    fn who_is_taking_a_ticket_is_waited_for() {
        let mut bench = Bench::new(2, SPEC);
        let slow = bench.acquire(1, 1);
        let (_, _, reads_max) = bench.wire.remove(0);
        // 2 takes ticket 1 meanwhile, and asks whether 1 is choosing. It is.
        let quick = bench.acquire(2, 1);
        bench.deliver(2, 1);
        bench.deliver(1, 2);
        bench.deliver(2, 1);
        assert_eq!(bench.wire.len(), 0, "the read is parked");
        bench.receive(1, 2, &reads_max);
        bench.deliver_all();
        // 1 read ticket 1 of 2, and has ticket 2.
        assert_eq!(bench.granted, [quick]);
        bench.release(quick);
        bench.deliver_all();
        assert_eq!(bench.granted, [quick, slow]);
    }

    #[test]
    fn who_gives_up_holds_nobody_up() {
        let mut bench = Bench::new(3, SPEC);
        let inside = bench.acquire(1, 1);
        bench.deliver_all();
        let given_up = bench.acquire(2, 1);
        bench.deliver_all();
        let last = bench.acquire(3, 1);
        bench.deliver_all();
        bench.cancel(given_up);
        bench.release(inside);
        bench.deliver_all();
        assert_eq!(bench.granted, [inside, last]);
    }

    #[test]
    fn after_a_view_change_tickets_follow_the_order_of_waiting() {
        let holder = request(2, 1, 5);
        let waiters = [request(3, 1, 7), request(1, 1, 9)];
        let mut bench = Bench::rebuilt(3, SPEC, &[holder.id], &waiters);
        bench.deliver_all();
        bench.release(holder.id);
        bench.deliver_all();
        assert_eq!(bench.granted, [waiters[0].id]);
        bench.release(waiters[0].id);
        bench.deliver_all();
        assert_eq!(bench.granted, [waiters[0].id, waiters[1].id]);
    }
}

mod token_ring {
    use super::*;

    const SPEC: LockSpec = LockSpec::exclusive(Algorithm::TokenRing);

    #[test]
    fn the_token_rests_at_the_lowest_id_and_goes_on_when_nobody_wants_it() {
        let mut bench = Bench::new(3, SPEC);
        assert_eq!(bench.timers[&1], HopTimer::Set(Duration::from_millis(1)));
        bench.step(1, |engine, out| engine.timeout(out));
        bench.deliver(1, 2);
        assert_eq!(bench.timers[&2], HopTimer::Set(Duration::from_millis(1)));
    }

    #[test]
    fn a_ring_that_nobody_uses_slows_down() {
        let mut bench = Bench::new(2, SPEC);
        let mut stays = Vec::new();
        for hop in 0..16 {
            let (from, to) = if hop % 2 == 0 { (1, 2) } else { (2, 1) };
            bench.step(from, |engine, out| engine.timeout(out));
            bench.deliver(from, to);
            let HopTimer::Set(stay) = bench.timers[&to] else {
                panic!("no timer")
            };
            stays.push(stay.as_millis());
        }
        assert_eq!(
            stays,
            [1, 2, 2, 4, 4, 8, 8, 16, 16, 20, 20, 20, 20, 20, 20, 20]
        );
        let id = bench.acquire(1, 1);
        bench.release(id);
        bench.deliver(1, 2);
        assert_eq!(
            bench.timers[&2],
            HopTimer::Set(Duration::from_millis(1)),
            "in use again"
        );
    }

    #[test]
    fn one_entry_a_visit() {
        let mut bench = Bench::new(2, SPEC);
        let first = bench.acquire(1, 1);
        let other = bench.acquire(2, 1);
        bench.release(first);
        let again = bench.acquire(1, 2);
        bench.deliver(1, 2);
        assert_eq!(bench.granted, [first, other]);
        bench.release(other);
        bench.deliver(2, 1);
        assert_eq!(bench.granted, [first, other, again]);
    }

    /// G3, scenario 16 of the faults.
    #[test]
    fn a_token_that_comes_twice_is_taken_once() {
        let mut bench = Bench::new(3, SPEC);
        bench.step(1, |engine, out| engine.timeout(out));
        let token = bench.deliver(1, 2);
        bench.step(2, |engine, out| engine.timeout(out));
        let wanted = bench.acquire(2, 1);
        bench.receive(1, 2, &token);
        assert_eq!(bench.granted, []);
        bench.deliver(2, 3);
        bench.step(3, |engine, out| engine.timeout(out));
        bench.deliver(3, 1);
        bench.step(1, |engine, out| engine.timeout(out));
        bench.deliver(1, 2);
        assert_eq!(bench.granted, [wanted]);
    }

    #[test]
    fn a_view_puts_the_token_where_it_is_needed() {
        let (holder, waiter) = (request(2, 1, 5), request(3, 1, 9));
        let mut bench = Bench::rebuilt(3, SPEC, &[holder.id], &[waiter]);
        assert_eq!(bench.granted, []);
        bench.release(holder.id);
        bench.deliver(2, 3);
        assert_eq!(bench.granted, [waiter.id]);
        let bench = Bench::rebuilt(3, SPEC, &[], &[waiter]);
        assert_eq!(bench.granted, [waiter.id]);
    }
}

mod token_ring_requests {
    use super::*;

    const SPEC: LockSpec = LockSpec::exclusive(Algorithm::TokenRingRequests);

    /// S3: a member d hops after the holder pays 2d messages.
    #[test]
    fn the_token_comes_the_way_the_request_went() {
        for asker in 1..=5_u16 {
            let mut bench = Bench::new(5, SPEC);
            let id = bench.acquire(asker, 1);
            assert_eq!(bench.deliver_all(), 2 * usize::from(asker - 1));
            assert_eq!(bench.granted, [id]);
        }
    }

    /// The lecture passes it on though nobody waits: one cancelled request, and it never rests.
    #[test]
    fn a_token_that_nobody_wants_any_more_is_kept() {
        let mut bench = Bench::new(4, SPEC);
        let given_up = bench.acquire(3, 1);
        bench.cancel(given_up);
        bench.deliver_all();
        assert_eq!(bench.granted, []);
        let id = bench.acquire(3, 2);
        assert_eq!(bench.deliver_all(), 0, "it is here");
        assert_eq!(bench.granted, [id]);
    }

    #[test]
    fn the_user_keeps_it_until_it_leaves() {
        let mut bench = Bench::new(3, SPEC);
        let first = bench.acquire(1, 1);
        let second = bench.acquire(3, 1);
        bench.deliver_all();
        assert_eq!(bench.granted, [first]);
        bench.release(first);
        bench.deliver_all();
        assert_eq!(bench.granted, [first, second]);
    }

    #[test]
    fn who_leaves_passes_an_unused_token_on() {
        for size in [2, 3] {
            let mut bench = Bench::new(size, SPEC);
            bench.step(1, |engine, out| engine.leave(out));
            assert_eq!(bench.kinds(), ["TOKEN"]);
        }
        let mut alone = Bench::new(1, SPEC);
        alone.step(1, |engine, out| engine.leave(out));
        assert_eq!(alone.kinds(), [""; 0]);
    }
}

#[test]
fn alone_in_the_group_everybody_enters_without_a_word() {
    for algorithm in Algorithm::ALL {
        let mut bench = Bench::new(1, exclusive(algorithm));
        let mut granted = Vec::new();
        for clock in 1..=3 {
            let id = bench.acquire(1, clock);
            granted.push(id);
            assert_eq!(bench.granted, granted, "{algorithm}");
            bench.release(id);
        }
        assert_eq!(bench.wire.len(), 0, "{algorithm}");
    }
}

/// Readers and writers: what the semaphore with one permit makes of shared requests.
mod sharing {
    use super::*;

    const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Semaphore);

    fn ask(bench: &mut Bench, me: u16, mode: Mode) -> RequestId {
        bench.seq += 1;
        let request = Request {
            mode,
            ..request(me, bench.seq, 1)
        };
        bench.step(me, |engine, out| engine.acquire(request, out));
        bench.deliver_all();
        request.id
    }

    fn leave(bench: &mut Bench, id: RequestId) {
        bench.release(id);
        bench.deliver_all();
    }

    #[test]
    fn readers_are_inside_together_and_a_writer_alone() {
        let mut bench = Bench::new(4, SPEC);
        let first = ask(&mut bench, 1, Mode::Shared);
        let second = ask(&mut bench, 2, Mode::Shared);
        assert_eq!(bench.granted, [first, second]);
        let writer = ask(&mut bench, 3, Mode::Exclusive);
        leave(&mut bench, first);
        assert_eq!(bench.granted, [first, second], "a reader is left");
        leave(&mut bench, second);
        assert_eq!(bench.granted, [first, second, writer]);
        let third = ask(&mut bench, 4, Mode::Shared);
        assert_eq!(bench.busy, [writer, third]);
        leave(&mut bench, writer);
        assert_eq!(bench.granted[3..], [third]);
    }

    #[test]
    fn a_reader_that_comes_after_a_waiting_writer_waits_behind_it() {
        let mut bench = Bench::new(4, SPEC);
        let reader = ask(&mut bench, 1, Mode::Shared);
        let writer = ask(&mut bench, 2, Mode::Exclusive);
        let late = ask(&mut bench, 3, Mode::Shared);
        assert_eq!(bench.granted, [reader]);
        leave(&mut bench, reader);
        assert_eq!(bench.granted, [reader, writer]);
        leave(&mut bench, writer);
        assert_eq!(bench.granted, [reader, writer, late]);
    }

    #[test]
    fn readers_go_in_when_the_writer_before_them_gives_up() {
        let mut bench = Bench::new(4, SPEC);
        let reader = ask(&mut bench, 1, Mode::Shared);
        let writer = ask(&mut bench, 2, Mode::Exclusive);
        let late = ask(&mut bench, 3, Mode::Shared);
        bench.cancel(writer);
        bench.deliver_all();
        assert_eq!(bench.granted, [reader, late]);
    }

    #[test]
    fn after_a_view_change_readers_are_still_together() {
        let holders = [request(1, 1, 5).id, request(2, 1, 6).id];
        let waiters = [
            Request {
                mode: Mode::Shared,
                ..request(3, 1, 9)
            },
            request(4, 1, 10),
        ];
        let mut bench = Bench::rebuilt_in(4, SPEC, (&holders, Mode::Shared), &waiters);
        bench.deliver_all();
        assert_eq!(bench.granted, [waiters[0].id]);
        for id in holders {
            leave(&mut bench, id);
        }
        assert_eq!(bench.granted, [waiters[0].id]);
        leave(&mut bench, waiters[0].id);
        assert_eq!(bench.granted, [waiters[0].id, waiters[1].id]);
    }
}

/// Who vouches that another member is outside. That nobody does so wrongly is what the explorer
/// looks at after every step; here is that some can.
mod vouching {
    use super::*;

    fn vouches(bench: &Bench, me: u16, other: u16) -> bool {
        !bench.engines[&me].may_be_inside(node(other))
    }

    #[test]
    fn ricart_agrawala_knows_whom_it_has_let_in() {
        let mut bench = Bench::new(3, LockSpec::exclusive(Algorithm::RicartAgrawala));
        assert!(vouches(&bench, 1, 2), "it has never asked");
        let first = bench.acquire(2, 1);
        bench.deliver(2, 1);
        assert!(!vouches(&bench, 1, 2), "it has the reply");
        assert!(vouches(&bench, 3, 2), "it has not asked here yet");
        bench.deliver_all();
        bench.release(first);
        assert!(!vouches(&bench, 1, 2), "it has told nobody that it left");
        assert!(vouches(&bench, 2, 1), "it has asked nobody");
        let second = bench.acquire(1, 5);
        bench.deliver(1, 2);
        bench.deliver(2, 1);
        assert!(vouches(&bench, 1, 2), "it has replied since");
        bench.deliver_all();
        assert!(vouches(&bench, 1, 2) && vouches(&bench, 1, 3), "inside");
        bench.acquire(2, 9);
        bench.deliver(2, 1);
        assert!(vouches(&bench, 1, 2), "it is deferred");
        bench.release(second);
        assert!(!vouches(&bench, 1, 2), "it has the deferred reply");
    }

    #[test]
    fn bakery_knows_whose_last_read_it_has_answered() {
        let mut bench = Bench::new(2, LockSpec::exclusive(Algorithm::Bakery));
        assert!(vouches(&bench, 1, 2));
        let first = bench.acquire(2, 1);
        for _ in 0..2 {
            bench.deliver(2, 1);
            bench.deliver(1, 2);
            assert!(vouches(&bench, 1, 2), "it is still taking its ticket");
        }
        bench.deliver(2, 1);
        assert!(!vouches(&bench, 1, 2), "its last read is answered");
        bench.deliver(1, 2);
        assert!(vouches(&bench, 2, 1), "inside");
        bench.release(first);
        assert!(!vouches(&bench, 1, 2));
        bench.acquire(1, 5);
        bench.deliver(1, 2);
        bench.deliver(2, 1);
        assert!(vouches(&bench, 1, 2), "it had no ticket");
    }

    #[test]
    fn who_has_the_token_knows() {
        for algorithm in [Algorithm::TokenRing, Algorithm::TokenRingRequests] {
            let mut bench = Bench::new(3, LockSpec::exclusive(algorithm));
            assert!(vouches(&bench, 1, 2) && vouches(&bench, 1, 3));
            assert!(!vouches(&bench, 2, 3) && !vouches(&bench, 3, 1));
            bench.acquire(2, 1);
            if algorithm == Algorithm::TokenRing {
                bench.step(1, |engine, out| engine.timeout(out));
            } else {
                bench.deliver(2, 1);
            }
            assert!(!vouches(&bench, 1, 2), "the token is on its way");
            assert!(!vouches(&bench, 2, 1), "as far as it knows");
            bench.deliver(1, 2);
            assert!(vouches(&bench, 2, 1) && vouches(&bench, 2, 3));
        }
    }

    #[test]
    fn the_server_knows_and_who_is_alone_inside() {
        let server = semaphore::server(3);
        let [other, third] = [1, 2].map(|n| (server - 1 + n) % 3 + 1);
        let mut bench = Bench::new(3, LockSpec::exclusive(Algorithm::Semaphore));
        assert!(vouches(&bench, server, other));
        let id = bench.acquire(other, 1);
        bench.deliver(other, server);
        assert!(!vouches(&bench, server, other), "the grant is on its way");
        assert!(vouches(&bench, server, third));
        assert!(!vouches(&bench, other, third), "it does not know yet");
        bench.deliver(server, other);
        assert!(vouches(&bench, other, third) && vouches(&bench, other, server));
        bench.release(id);
        assert!(!vouches(&bench, other, third));
        bench.deliver(other, server);
        assert!(vouches(&bench, server, other));
        // With several permits who is inside knows nothing of the others.
        let two = LockSpec::counting(NonZeroU32::new(2).unwrap());
        let mut bench = Bench::new(3, two);
        bench.acquire(other, 1);
        bench.deliver_all();
        assert!(!vouches(&bench, other, third));
    }

    /// A view begins with who is inside, and everybody has that from its table.
    #[test]
    fn a_view_tells_who_may_be_inside() {
        for algorithm in [Algorithm::RicartAgrawala, Algorithm::Bakery] {
            let holder = request(2, 1, 5).id;
            let bench = Bench::rebuilt(3, LockSpec::exclusive(algorithm), &[holder], &[]);
            assert!(!vouches(&bench, 1, 2) && !vouches(&bench, 3, 2));
            assert!(vouches(&bench, 1, 3) && vouches(&bench, 2, 1));
        }
    }
}
