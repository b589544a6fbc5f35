//! The clocks of several hosts as one.
//!
//! A message from A to B arrives later than it left, and one from B to A too. So of what B's clock
//! shows when a message arrives less what A's showed when it left, the least bounds from above how
//! far B is ahead of A; the other way bounds it from below; and in the middle is the offset, right
//! to within half of the distance. That is the Network Time Protocol's (RFC 5905, section 8) for
//! questions and answers that do not belong together. Agents also ask each other for the time, and
//! write down what they believe of the answers. As clocks drift, each stretch of time has an offset
//! of its own, the most certain of these, and between them is a straight line.
//!
//! Messages that were sent more than once are left out: which of them arrived is not known. Clocks
//! that no messages join are compared by the wall clocks of their hosts.

use std::collections::{BTreeMap, HashMap};

use super::read::{Event, Logs, Message, What};

/// How long a stretch with an offset of its own is, in nanoseconds.
const STRETCH: u64 = 10_000_000_000;

/// How readings of each clock become nanoseconds since 1970 by the wall clock of one host.
#[derive(Debug)]
pub(super) struct Alignment {
    clocks: Vec<Way>,
}

/// How the readings of one clock become those of another.
#[derive(Clone, Debug, Default)]
struct Way {
    /// By which offsets, one after the other.
    steps: Vec<Line>,
    /// To be added last.
    wall: i128,
    /// How far from the truth it may be, in nanoseconds; `None` if only wall clocks tell.
    error: Option<u64>,
}

/// How far ahead of the other clock this one is, by time.
#[derive(Clone, Debug, Default)]
struct Line(Vec<Point>);

#[derive(Clone, Copy, Debug)]
struct Point {
    /// When, by this clock.
    at: u64,
    ahead: i128,
    error: u64,
}

/// The least differences in one stretch, there and back.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    /// When the first of them was, by the first clock.
    at: u64,
    there: Option<i128>,
    back: Option<i128>,
}

impl Alignment {
    pub(super) fn of(logs: &Logs) -> Self {
        let lines = lines(logs);
        let mut clocks: Vec<Option<Way>> = vec![None; logs.clocks.len()];
        let walls: Vec<_> = logs
            .clocks
            .iter()
            .map(|(_, at, wall)| behind(*wall, *at))
            .collect();
        while let Some(root) = clocks.iter().position(Option::is_none) {
            // The first is what the others go by. One that no messages join to it goes by its own
            // wall clock.
            clocks[root] = Some(Way {
                steps: Vec::new(),
                wall: walls[root],
                error: (root == 0).then_some(0),
            });
            spread(&lines, &mut clocks);
        }
        Self {
            clocks: clocks.into_iter().flatten().collect(),
        }
    }

    /// When `event` happened, in nanoseconds since 1970.
    pub(super) fn time(&self, event: &Event) -> u64 {
        self.reading(event.clock, event.at)
    }

    /// What `clock` showed then, in nanoseconds since 1970.
    pub(super) fn reading(&self, clock: usize, at: u64) -> u64 {
        let way = &self.clocks[clock];
        let at = way.steps.iter().fold(i128::from(at), |at, line| {
            at - line.ahead(u64::try_from(at).unwrap_or_default())
        });
        u64::try_from(at + way.wall).unwrap_or_default()
    }

    /// How many clocks there are.
    pub(super) const fn clocks(&self) -> usize {
        self.clocks.len()
    }

    /// How far apart the times of two hosts may be, in nanoseconds; `None` if only their wall
    /// clocks tell.
    pub(super) fn error(&self) -> Option<u64> {
        let errors: Option<Vec<_>> = self.clocks.iter().map(|way| way.error).collect();
        errors.map(|errors| errors.into_iter().max().unwrap_or_default())
    }
}

/// Goes on from the clocks that are aligned to those that messages join to them.
fn spread(lines: &BTreeMap<(usize, usize), Line>, clocks: &mut [Option<Way>]) {
    loop {
        let ways = lines.iter().filter_map(|((from, to), line)| {
            let way = clocks[*to].as_ref()?;
            clocks[*from].is_none().then_some((*from, way, line))
        });
        // The most precise first.
        let best = ways.min_by_key(|(from, way, line)| {
            (
                way.error.unwrap_or(u64::MAX).saturating_add(line.error()),
                *from,
            )
        });
        let Some((from, way, line)) = best else {
            return;
        };
        let mut steps = vec![line.clone()];
        steps.extend(way.steps.iter().cloned());
        let way = Way {
            steps,
            wall: way.wall,
            error: way.error.map(|error| error.saturating_add(line.error())),
        };
        clocks[from] = Some(way);
    }
}

impl Line {
    /// How far ahead this clock was when it showed `at`.
    fn ahead(&self, at: u64) -> i128 {
        let next = self.0.partition_point(|point| point.at < at);
        let (Some(before), Some(after)) = (self.0.get(next.wrapping_sub(1)), self.0.get(next))
        else {
            // Before the first, and after the last.
            let edge = self.0.get(next).or(self.0.last());
            return edge.map_or(0, |point| point.ahead);
        };
        let (passed, whole) = (at - before.at, after.at - before.at);
        before.ahead + (after.ahead - before.ahead) * i128::from(passed) / i128::from(whole.max(1))
    }

    /// The median error.
    fn error(&self) -> u64 {
        let mut errors: Vec<_> = self.0.iter().map(|point| point.error).collect();
        errors.sort_unstable();
        errors.get(errors.len() / 2).copied().unwrap_or_default()
    }

    /// The same of the other clock.
    fn turned(&self) -> Self {
        Self(self.0.iter().map(Point::turned).collect())
    }
}

impl Point {
    /// The same by the other clock.
    fn turned(&self) -> Self {
        Self {
            at: u64::try_from(i128::from(self.at) - self.ahead).unwrap_or_default(),
            ahead: -self.ahead,
            error: self.error,
        }
    }
}

/// How far each clock is ahead of each that messages join to it.
fn lines(logs: &Logs) -> BTreeMap<(usize, usize), Line> {
    if logs.clocks.len() < 2 {
        return BTreeMap::new();
    }
    // Of each stretch of the first clock's time the most certain point.
    let mut points: BTreeMap<(usize, usize), BTreeMap<u64, Point>> = BTreeMap::new();
    let mut add = |pair: (usize, usize), point: Point| {
        let stretches = points.entry(pair).or_default();
        let best = stretches.entry(point.at / STRETCH).or_insert(point);
        if point.error < best.error {
            *best = point;
        }
    };
    for (pair, stretches) in bounds(logs) {
        for bounds in stretches.into_values() {
            let (Some(there), Some(back)) = (bounds.there, bounds.back) else {
                continue;
            };
            // How far the second is ahead of the first, at most and at least.
            let (most, least) = (there, -back);
            let point = Point {
                at: bounds.at,
                ahead: -(most + least) / 2,
                error: u64::try_from((most - least).abs() / 2).unwrap_or(u64::MAX),
            };
            add(pair, point);
        }
    }
    for (clock, compared) in &logs.comparisons {
        let (id, incarnation) = compared.other;
        let other = logs
            .members
            .get(&id)
            .and_then(|member| member.clocks.get(&incarnation));
        let Some(other) = other.filter(|other| *other != clock) else {
            continue;
        };
        let point = Point {
            at: compared.at,
            ahead: -i128::from(compared.ahead_ns),
            error: compared.error_ns,
        };
        if clock < other {
            add((*clock, *other), point);
        } else {
            add((*other, *clock), point.turned());
        }
    }
    let mut lines = BTreeMap::new();
    for ((first, second), stretches) in points {
        let line = Line(stretches.into_values().collect());
        lines.insert((second, first), line.turned());
        lines.insert((first, second), line);
    }
    lines
}

/// By pair of clocks, and by stretch of the first one's time.
fn bounds(logs: &Logs) -> BTreeMap<(usize, usize), BTreeMap<u64, Bounds>> {
    let mut sent: HashMap<Message, Option<(usize, u64)>> = HashMap::new();
    let events = || logs.members.values().flat_map(|member| &member.events);
    for event in events() {
        if let What::Sent { message, .. } = event.what {
            let once = sent.entry(message).or_insert(Some((event.clock, event.at)));
            if *once != Some((event.clock, event.at)) {
                *once = None;
            }
        }
    }
    let mut bounds: BTreeMap<_, BTreeMap<u64, Bounds>> = BTreeMap::new();
    for event in events() {
        let What::Received { message, .. } = event.what else {
            continue;
        };
        let Some(&Some((from, left))) = sent.get(&message) else {
            continue;
        };
        if from == event.clock {
            continue;
        }
        let took = behind(event.at, left);
        let (pair, at) = if from < event.clock {
            ((from, event.clock), left)
        } else {
            ((event.clock, from), event.at)
        };
        let stretch = bounds.entry(pair).or_default();
        let stretch = stretch.entry(at / STRETCH).or_insert(Bounds {
            at,
            ..Bounds::default()
        });
        let least = if from < event.clock {
            &mut stretch.there
        } else {
            &mut stretch.back
        };
        *least = Some(least.map_or(took, |least| least.min(took)));
    }
    bounds
}

/// How much later `one` is than `other`.
fn behind(one: u64, other: u64) -> i128 {
    i128::from(one) - i128::from(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::read::Compared;

    /// Two hosts: the second one's clock is ahead by `ahead` and gains `ppm`, and its wall clock is
    /// wrong. They send each other messages that take `there` and `back`, every second.
    fn logs(ahead: i64, ppm: i64, there: u64, back: u64, seconds: u64) -> Logs {
        let second = |at: u64| {
            let gained = at as i64 * ppm / 1_000_000;
            at.checked_add_signed(ahead + gained).unwrap()
        };
        let mut logs = Logs::default();
        logs.clocks = vec![
            ("a".to_owned(), 0, 1_000_000_000_000),
            ("b".to_owned(), second(0), 5_000_000_000_000),
        ];
        let mut events = [Vec::new(), Vec::new()];
        let mut add = |place: usize, at, what| {
            let n = events[place].len() as u64 + 1;
            events[place].push(Event {
                incarnation: 1,
                n,
                clock: place,
                at,
                lock: None,
                what,
            });
        };
        for i in 0..seconds {
            let at = i * 1_000_000_000;
            let message = |from: u16, to: u16| Message {
                from: (from, 1),
                to: (to, 1),
                number: i + 1,
            };
            let (sent, received) = (
                |message| What::Sent { message, kind: "X" },
                |message| What::Received { message, kind: "X" },
            );
            add(0, at, sent(message(1, 2)));
            add(1, second(at + there), received(message(1, 2)));
            add(1, second(at + 500_000_000), sent(message(2, 1)));
            add(0, at + 500_000_000 + back, received(message(2, 1)));
        }
        for (id, events) in (1..).zip(events) {
            let member = logs.members.entry(id).or_default();
            member.events = events;
        }
        logs
    }

    /// How far from the truth the second host's time is at most, and may be.
    fn worst(logs: &Logs, ahead: i64, ppm: i64, seconds: u64) -> (u64, u64) {
        let alignment = Alignment::of(logs);
        let worst = (0..seconds).map(|i| {
            let at = i * 1_000_000_000;
            let gained = at as i64 * ppm / 1_000_000;
            let shown = at.checked_add_signed(ahead + gained).unwrap();
            alignment
                .reading(0, at)
                .abs_diff(alignment.reading(1, shown))
        });
        (worst.max().unwrap(), alignment.error().unwrap())
    }

    #[test]
    fn messages_tell_how_far_clocks_are_apart() {
        let ahead = 3_600_000_000_000;
        for (there, back) in [(100_000, 100_000), (100_000, 300_000), (900_000, 100_000)] {
            let logs = logs(ahead, 0, there, back, 60);
            let (worst, error) = worst(&logs, ahead, 0, 60);
            assert!(worst <= there.abs_diff(back) / 2 + 1, "{worst}");
            assert!(worst <= error, "{worst} {error}");
        }
        let alignment = Alignment::of(&logs(ahead, 0, 10, 10, 5));
        assert_eq!(
            alignment.reading(0, 7),
            1_000_000_000_007,
            "the first wall clock"
        );
    }

    /// 100 ppm are 60 ms in ten minutes; within a stretch it is one.
    #[test]
    fn follows_clocks_that_drift() {
        let logs = logs(5_000_000_000, 100, 100_000, 100_000, 600);
        let (worst, _) = worst(&logs, 5_000_000_000, 100, 600);
        assert!(worst < 2_000_000, "{worst}");
    }

    /// Agents that rarely speak have asked each other for the time.
    #[test]
    fn what_agents_know_of_their_clocks_counts() {
        let ahead = -3_600_000_000_000_i64;
        let second = |at: u64| at.checked_add_signed(ahead + at as i64 / 10_000).unwrap();
        for asker in [0, 1] {
            let mut logs = logs(0, 0, 1, 1, 0);
            for (id, clock) in [(1, 0), (2, 1)] {
                logs.members.get_mut(&id).unwrap().clocks.insert(1, clock);
            }
            for i in 720..840_u64 {
                let at = i * 5_000_000_000;
                let clocks = [at, second(at)];
                let (own, other) = (clocks[asker], clocks[1 - asker]);
                // Of the two in a stretch one is far off, and says that it may be.
                let wrong = i % 2 * 70_000_000;
                let compared = Compared {
                    other: (2 - asker as u16, 1),
                    at: own,
                    ahead_ns: other as i64 - own as i64 + wrong as i64,
                    error_ns: 1_000 + wrong,
                };
                logs.comparisons.push((asker, compared));
            }
            let alignment = Alignment::of(&logs);
            assert_eq!(alignment.error(), Some(1_000));
            for at in (3_600..4_190).map(|secs| secs * 1_000_000_000) {
                let apart = alignment
                    .reading(0, at)
                    .abs_diff(alignment.reading(1, second(at)));
                assert!(apart < 10_000, "{asker} {at} {apart}");
            }
        }
    }

    #[test]
    fn without_messages_wall_clocks_tell() {
        let mut logs = logs(0, 0, 1, 1, 5);
        logs.members.remove(&2);
        let alignment = Alignment::of(&logs);
        assert_eq!(alignment.error(), None);
        assert_eq!(alignment.reading(1, 7), 5_000_000_000_007);
    }
}
