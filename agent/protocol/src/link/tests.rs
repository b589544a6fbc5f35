//! Two links and what lies between them.

use alloc::format;
use alloc::vec;

use proptest::prelude::*;

use super::round_trip::FIRST_RTO;
use super::*;
use crate::ids::{Incarnation, NodeId};
use crate::wire::Kind;
use crate::wire::Route;

const TIMING: Timing = Timing {
    ping_after: Duration::from_secs(1),
    suspect_after: Duration::from_millis(2500),
    is_asked: false,
};
const HOP: Duration = Duration::from_millis(1);

fn header([acknowledged, selective, first]: [u64; 3]) -> Header {
    Header {
        kind: Kind::Frames,
        ping: false,
        route: Route::Direct,
        deaf: false,
        from: NodeId::new(1).unwrap(),
        to: NodeId::new(2).unwrap(),
        epoch: Epoch::ZERO,
        from_incarnation: Incarnation(1),
        to_incarnation: Incarnation(1),
        acknowledged,
        selective,
        first,
    }
}

type Datagram = (Header, Vec<Frame>);

/// Two ends, and datagrams on their way, each with its arrival time.
struct Pair {
    now: Time,
    ends: [Link; 2],
    wire: Vec<(Time, usize, Datagram)>,
    delivered: [Vec<Vec<u8>>; 2],
    sent: usize,
    suspected: bool,
}

impl Pair {
    fn new() -> Self {
        let link = |is_asked| Link::new(Time::ZERO, Timing { is_asked, ..TIMING });
        Self {
            now: Time::ZERO,
            ends: [link(false), link(true)],
            wire: Vec::new(),
            delivered: [Vec::new(), Vec::new()],
            sent: 0,
            suspected: false,
        }
    }

    fn send(&mut self, end: usize, body: &[u8], prompt: bool) {
        self.ends[end].send(Epoch::ZERO, body.to_vec(), prompt);
        self.flush(end, &mut |_| vec![HOP]);
    }

    /// Puts what `end` has to send on the wire, once for each delay that `fate` gives it.
    fn flush(&mut self, end: usize, fate: &mut impl FnMut(&Datagram) -> Vec<Duration>) {
        while let Some(segment) = self.ends[end].transmit(self.now) {
            let header = Header {
                ping: segment.ping,
                epoch: segment.epoch,
                ..header([segment.acknowledged, segment.selective, segment.first])
            };
            let datagram = (header, segment.frames().cloned().collect());
            self.sent += 1;
            for delay in fate(&datagram) {
                self.wire
                    .push((self.now + delay, 1 - end, datagram.clone()));
            }
        }
    }

    /// Lets time pass, until `end`.
    fn run(&mut self, end: Duration, fate: &mut impl FnMut(&Datagram) -> Vec<Duration>) {
        let end = Time::ZERO + end;
        loop {
            let arrival = (0..self.wire.len()).min_by_key(|&i| self.wire[i].0);
            let arrival = arrival.map(|i| (self.wire[i].0, i));
            let timer = (0..2)
                .map(|i| (self.ends[i].next_timeout(), i))
                .min()
                .unwrap();
            let at = arrival
                .map_or(timer.0, |(at, _)| at.min(timer.0))
                .max(self.now);
            if at > end {
                break;
            }
            self.now = at;
            let touched = match arrival {
                Some((due, i)) if due <= timer.0 => {
                    let (_, to, (header, frames)) = self.wire.swap_remove(i);
                    self.ends[to].heard(at);
                    let bodies = self.ends[to].receive(at, &header, frames);
                    self.delivered[to].extend(bodies.into_iter().map(|(_, body)| body));
                    to
                }
                _ => {
                    self.suspected |= self.ends[timer.1].timeout(at) == Suspicion::Began;
                    timer.1
                }
            };
            self.flush(touched, fate);
        }
        self.now = end;
    }
}

fn perfect(_: &Datagram) -> Vec<Duration> {
    vec![HOP]
}

#[test]
fn an_acknowledgement_rides_on_the_answer() {
    let mut pair = Pair::new();
    pair.send(0, b"request", true);
    let (_, _, (header, frames)) = pair.wire.remove(0);
    pair.now = pair.now + HOP;
    assert_eq!(pair.ends[1].receive(pair.now, &header, frames).len(), 1);
    pair.send(1, b"reply", false);
    assert_eq!(pair.sent, 2, "the answer carries the acknowledgement");
    pair.run(Duration::from_millis(500), &mut perfect);
    assert_eq!(
        pair.sent, 3,
        "the answer is acknowledged later, once, as nothing else goes there"
    );
    assert!(pair.ends.iter().all(Link::is_drained));
}

#[test]
fn a_request_is_acknowledged_at_once_though_it_cannot_be_answered() {
    let mut pair = Pair::new();
    pair.send(0, b"request", true);
    pair.run(HOP * 2, &mut perfect);
    assert!(pair.ends[0].is_drained());
    assert_eq!(pair.sent, 2);
}

#[test]
fn a_lost_answer_is_repeated_when_the_request_comes_again() {
    let mut pair = Pair::new();
    pair.send(0, b"request", true);
    let (_, _, (header, frames)) = pair.wire.remove(0);
    pair.ends[1].receive(pair.now, &header, frames.clone());
    pair.ends[1].send(Epoch::ZERO, b"reply".to_vec(), false);
    pair.flush(1, &mut |_| Vec::new());
    // The request comes again, sooner than the answer would be repeated by itself.
    pair.now = Time::ZERO + FIRST_RTO + Duration::from_millis(1);
    pair.ends[1].receive(pair.now, &header, frames);
    pair.flush(1, &mut perfect);
    assert_eq!(pair.wire.len(), 1);
    assert_eq!(pair.wire[0].2.1[0].bytes, b"reply");
}

#[test]
fn silence_is_asked_about_and_then_suspected_and_a_word_ends_it() {
    let mut pair = Pair::new();
    let mut asked = 0;
    pair.run(Duration::from_millis(2400), &mut |(header, _)| {
        asked += u32::from(header.ping);
        Vec::new()
    });
    assert_eq!(asked, 4, "two ends, after a good second and after two");
    assert!(!pair.suspected);
    pair.run(Duration::from_millis(2600), &mut |_| Vec::new());
    assert!(pair.suspected && pair.ends[0].is_suspected());
    assert!(pair.ends[0].heard(pair.now), "the suspicion is over");
    assert!(!pair.ends[0].is_suspected());
}

#[test]
fn a_quiet_link_costs_one_question_and_one_answer_a_second() {
    let mut pair = Pair::new();
    pair.run(Duration::from_secs(60), &mut perfect);
    assert!(!pair.suspected);
    assert!(pair.sent <= 2 * 2 * 60, "{}", pair.sent);
}

#[test]
fn only_what_is_missing_is_repeated() {
    let mut pair = Pair::new();
    let body = vec![7; MAX_FRAME];
    for _ in 0..10 {
        pair.ends[0].send(Epoch::ZERO, body.to_vec(), true);
    }
    let mut lost = 0;
    pair.flush(0, &mut |(header, _)| {
        let loses = header.first == 3;
        lost += u32::from(loses);
        if loses { Vec::new() } else { vec![HOP] }
    });
    assert_eq!((lost, pair.sent), (1, 10));
    let mut repeated = Vec::new();
    pair.run(Duration::from_millis(300), &mut |(header, frames)| {
        if !frames.is_empty() {
            repeated.push(header.first);
        }
        vec![HOP]
    });
    assert_eq!(repeated, [3]);
    assert_eq!(pair.delivered[1].len(), 10);
}

#[test]
fn no_more_than_a_window_is_on_its_way() {
    let mut pair = Pair::new();
    for _ in 0..3 * WINDOW {
        pair.ends[0].send(Epoch::ZERO, vec![1; MAX_FRAME], true);
    }
    pair.flush(0, &mut |_| Vec::new());
    assert_eq!(pair.sent, WINDOW);
    pair.run(Duration::from_secs(10), &mut perfect);
    assert_eq!(pair.delivered[1].len(), 3 * WINDOW);
}

#[test]
fn frames_of_two_epochs_do_not_share_a_datagram() {
    let mut link = Link::new(Time::ZERO, TIMING);
    for epoch in [1, 1, 2] {
        link.send(Epoch::new(epoch).unwrap(), b"x".to_vec(), true);
    }
    let mut next = || {
        let segment = link.transmit(Time::ZERO)?;
        Some((segment.epoch.as_u32(), segment.frames().count()))
    };
    assert_eq!([next(), next(), next()], [Some((1, 2)), Some((2, 1)), None]);
}

#[test]
fn waiting_doubles_with_each_failure_up_to_a_second() {
    let mut pair = Pair::new();
    pair.ends[0].send(Epoch::ZERO, b"x".to_vec(), true);
    let mut at = Vec::new();
    pair.flush(0, &mut |_| Vec::new());
    let start = pair.now;
    for _ in 0..9 {
        let next = pair.ends[0]
            .sender
            .repeat_at(&pair.ends[0].round_trip)
            .unwrap();
        at.push(next.since(start).as_millis());
        pair.now = next;
        pair.ends[0].timeout(next);
        pair.flush(0, &mut |_| Vec::new());
    }
    assert_eq!(at, [50, 150, 350, 750, 1550, 2550, 3550, 4550, 5550]);
}

/// RFC 6298 section 2, worked by hand.
#[test]
fn the_round_trip_is_smoothed() {
    let mut round_trip = RoundTrip::default();
    let ms = Duration::from_millis;
    round_trip.measure(ms(100));
    assert_eq!(round_trip.measured, Some((ms(100), ms(50))));
    assert_eq!(round_trip.timeout(), ms(300));
    round_trip.measure(ms(60));
    assert_eq!(
        round_trip.measured,
        Some((ms(95), Duration::from_micros(47_500)))
    );
}

#[test]
fn numbers_that_would_wrap_are_ignored() {
    let mut link = Link::new(Time::ZERO, TIMING);
    let header = header([u64::MAX; 3]);
    let frame = Frame {
        more: false,
        prompt: true,
        bytes: vec![1],
    };
    assert!(
        link.receive(Time::ZERO, &header, vec![frame.clone(), frame])
            .is_empty()
    );
}

proptest! {
    /// Whatever is lost, doubled and reordered: each body arrives once, whole, in order.
    #[test]
    fn bodies_arrive_once_and_in_order(
        seed in any::<u64>(),
        sizes in proptest::collection::vec((0_usize..2, 1_usize..4000, any::<bool>()), 1..60),
    ) {
        let mut random = seed;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        let mut fate = |_: &Datagram| {
            let copies = match next() % 10 { 0..3 => 0, 3 => 2, _ => 1 };
            (0..copies).map(|_| Duration::from_micros(100 + next() % 30_000)).collect()
        };
        let mut pair = Pair::new();
        let mut expected = [Vec::new(), Vec::new()];
        for (i, &(end, size, prompt)) in sizes.iter().enumerate() {
            let body: Vec<_> = (0..size).map(|byte| (byte * 7 + i) as u8).collect();
            pair.ends[end].send(Epoch::ZERO, body.to_vec(), prompt);
            pair.flush(end, &mut fate);
            expected[1 - end].push(body);
        }
        pair.run(Duration::from_secs(60), &mut fate);
        prop_assert_eq!(&pair.delivered, &expected, "{}", format!("seed {seed}"));
        prop_assert!(pair.ends.iter().all(Link::is_drained));
    }
}

/// What members cost that want nothing.
#[test]
fn of_two_who_want_nothing_one_asks_and_the_other_answers() {
    let mut pair = Pair::new();
    let (mut asked, mut sent) = ([0, 0], 0);
    let seconds = 20;
    pair.run(Duration::from_secs(seconds), &mut |(header, _)| {
        sent += 1;
        // The first end asks first.
        asked[usize::from(!header.ping)] += 1;
        vec![HOP]
    });
    let periods = seconds - 1..=seconds;
    assert!(periods.contains(&asked[0]), "asked: {}", asked[0]);
    assert_eq!(sent, 2 * asked[0], "each question has one answer");
    assert!(!pair.suspected);
}

#[test]
fn all_peers_are_asked_at_one_moment() {
    let step = TIMING.ping_after / MOMENTS;
    let mut moments = Vec::new();
    for heard in [1, 77, 249] {
        let mut link = Link::new(Time::ZERO, TIMING);
        link.heard(Time::ZERO + Duration::from_secs(5) + Duration::from_millis(heard));
        moments.push(link.next_timeout());
    }
    moments.dedup();
    assert_eq!(moments, [Time::ZERO + Duration::from_secs(6) + step / 8]);
}

#[test]
fn a_question_is_late_by_an_eighth_of_the_time_of_silence_at_most() {
    let after = TIMING.ping_after;
    for (is_asked, latest) in [(false, after / 32), (true, after / 8)] {
        let late = |heard_ms| {
            let mut link = Link::new(Time::ZERO, Timing { is_asked, ..TIMING });
            let heard = Time::ZERO + Duration::from_millis(heard_ms);
            link.heard(heard);
            let asks = link.next_timeout();
            assert!(heard + after < asks + after / 4, "heard at {heard_ms} ms");
            asks.since(heard + after)
        };
        assert_eq!((1_000..2_000).map(late).max(), Some(latest));
    }
}
