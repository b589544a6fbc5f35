//! What is measured of groups, locks, waiters and clients of growing number.

use std::thread::{self, sleep};
use std::time::Duration;

use crate::floor::Echo;
use crate::member::Group;
use crate::place::{Place, Transport};
use crate::process::{Process, Usage, datagrams};
use crate::report::{Row, Theory, median};
use crate::turns::now;

pub(crate) const NAMES: [&str; 5] = ["members", "locks", "waiters", "clients", "idle"];

/// How often a datagram goes there and back for the ping-pong.
const ROUND_TRIPS: usize = 5000;
/// After its start a group settles for so long.
const SETTLING: Duration = Duration::from_secs(4);
/// Until what an entry has to tell has arrived.
const MOMENT: Duration = Duration::from_millis(100);
/// So many members are in the groups of which something else grows.
const MEMBERS: u16 = 3;
/// So many members contend at most: more would wait for processors, and not for each other.
const CONTENDERS: usize = 8;

/// How much is measured.
struct Bench {
    is_small: bool,
    /// A datagram there and back.
    ping_pong: Duration,
    rows: Vec<Row>,
}

pub(crate) fn measure(curves: &[String], is_small: bool) -> Vec<Row> {
    let mut bench = Bench {
        is_small,
        ping_pong: ping_pong(),
        rows: Vec::new(),
    };
    bench.note(
        "ping-pong",
        1,
        "µs",
        micros(bench.ping_pong),
        Theory::Grows("–"),
    );
    for curve in curves {
        match curve.as_str() {
            "members" => bench.members(),
            "locks" => bench.locks(),
            "waiters" => bench.waiters(),
            "clients" => bench.clients(),
            _ => {
                bench.idle(64, &Group::start(64));
            }
        }
    }
    bench.rows
}

impl Bench {
    fn note(
        &mut self,
        curve: &'static str,
        count: usize,
        what: &'static str,
        value: f64,
        theory: Theory,
    ) {
        eprintln!("{count} {curve}: {what}: {value}");
        self.rows.push(Row {
            curve,
            count,
            what,
            value,
            theory,
        });
    }

    /// The first of these, if only a little is to be measured.
    fn counts<T: Copy>(&self, counts: &[T]) -> Vec<T> {
        let most = if self.is_small { 2 } else { counts.len() };
        counts.iter().copied().take(most).collect()
    }

    fn time(&self, secs: u64) -> Duration {
        Duration::from_secs(secs) / if self.is_small { 10 } else { 1 }
    }

    fn ping_pongs(&self, nanos: f64) -> f64 {
        nanos / self.ping_pong.as_nanos() as f64
    }

    fn members(&mut self) {
        for size in self.counts(&[2_u16, 4, 8, 16, 32, 64]) {
            let mut group = Group::start(size);
            let size = usize::from(size);
            let idle = self.idle(size, &group);
            let memory = group.members.iter().map(Process::memory).sum::<f64>();
            let each = memory / size as f64 / 1024.0;
            self.note(
                "members",
                size,
                "memory of each, KiB",
                each,
                Theory::Grows("members"),
            );
            self.entries(size, &mut group, idle);
            self.hand_over(size, &mut group);
        }
    }

    /// What members cost that want nothing: returns how many datagrams they send a second, together.
    fn idle(&mut self, size: usize, group: &Group) -> f64 {
        sleep(SETTLING);
        let (start, before, usage) = (now(), datagrams(), group.usage());
        sleep(self.time(20));
        let (end, came, after) = (now(), datagrams() - before, group.usage());
        let seconds = (end - start).as_secs_f64();
        let came = came / seconds;
        let processor = (after.processor - usage.processor) / 1e7 / seconds;
        let each = |value: f64| value / size as f64;
        let pairs = Theory::Grows("members × (members − 1)");
        self.note(
            "members",
            size,
            "processor of all, idle, % of one",
            processor,
            pairs,
        );
        let peers = Theory::Grows("members − 1");
        let value = each(processor);
        self.note(
            "members",
            size,
            "processor of each, idle, % of one",
            value,
            peers,
        );
        let value = each((after.wakeups - usage.wakeups) / seconds);
        self.note(
            "members",
            size,
            "wake-ups of each a second, idle",
            value,
            peers,
        );
        // Of each two one asks and the other answers, once a second.
        let peers = Theory::Grows("members − 1, and what the voters say");
        self.note(
            "members",
            size,
            "datagrams to each a second, idle",
            each(came),
            peers,
        );
        came
    }

    /// A member enters locks that nobody else wants, each for the first time.
    fn entries(&mut self, size: usize, group: &mut Group, idle: f64) {
        let entries = 300;
        let (start, before) = (now(), datagrams());
        let time = group.members[0].ask(&format!("enter 1 {entries}"))[0];
        sleep(MOMENT);
        let (end, came) = (now(), datagrams() - before);
        let messages = (came - idle * (end - start).as_secs_f64()) / f64::from(entries);
        let others = (size as f64 - 1.0) / size as f64;
        // The request, the token and its return, where another manages the lock: acknowledgements that
        // nothing rides on come on top.
        let theory = Theory::Is(3.0 * others);
        self.note("members", size, "datagrams an entry", messages, theory);
        let time = self.ping_pongs(time);
        self.note(
            "members",
            size,
            "time of an entry, in ping-pongs",
            time,
            Theory::Is(1.0),
        );
    }

    /// Members contend for one lock.
    fn hand_over(&mut self, size: usize, group: &mut Group) {
        let nanos = self.time(2).as_nanos();
        // What was handed over before would count as under way until the first of them is inside.
        group.forget_turns();
        let start = (now() + MOMENT).as_nanos();
        let contenders = &mut group.members[..size.min(CONTENDERS)];
        for member in &mut *contenders {
            member.tell(&format!("contend 1 {start} {nanos}"));
        }
        let handed_over = contenders.iter_mut().map(|it| {
            let answer = it.answer();
            (answer[0], (answer[1], answer[2]))
        });
        let (entries, handed_over): (Vec<f64>, Vec<_>) = handed_over.unzip();
        // Each but the first is a hand-over, or another entry of the same member.
        let ping_pongs = self.ping_pongs(nanos as f64);
        self.note(
            "members",
            size,
            "entries in a ping-pong, contended",
            entries.iter().sum::<f64>() / ping_pongs,
            Theory::Grows("constant"),
        );
        // The last one knows of all.
        let latest = handed_over
            .into_iter()
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let (count, total) = latest.expect("there are some");
        let each = total / count.max(1.0);
        let time = self.ping_pongs(each);
        self.note(
            "members",
            size,
            "hand-over, in ping-pongs",
            time,
            Theory::Is(0.5),
        );
    }

    fn locks(&mut self) {
        for count in self.counts(&[10, 100, 1000, 10_000, 60_000]) {
            let mut group = Group::start(MEMBERS);
            sleep(SETTLING);
            let memory = |group: &Group| group.members.iter().map(Process::memory).sum::<f64>();
            let before = memory(&group);
            group.members[0].ask(&format!("enter 1 {count}"));
            sleep(MOMENT);
            let each = (memory(&group) - before) / count as f64;
            let constant = Theory::Grows("constant");
            self.note(
                "locks",
                count,
                "memory of all members for each, bytes",
                each,
                constant,
            );
            let time = group.members[0].ask(&format!("random {count} 2000"))[0];
            let time = self.ping_pongs(time);
            let logarithm = Theory::Grows("log of the locks");
            self.note(
                "locks",
                count,
                "time of an entry, in ping-pongs",
                time,
                logarithm,
            );
            sleep(SETTLING);
            let (start, usage) = (now(), group.usage());
            sleep(self.time(5));
            let (end, after) = (now(), group.usage());
            let processor = (after.processor - usage.processor) / 1e7 / (end - start).as_secs_f64();
            self.note(
                "locks",
                count,
                "processor of all, idle, % of one",
                processor,
                constant,
            );
        }
    }

    /// Threads of two members contend for one lock.
    fn waiters(&mut self) {
        for count in self.counts(&[2_usize, 10, 100, 1000]) {
            let mut group = Group::start(2);
            let nanos = self.time(2).as_nanos();
            let start = (now() + MOMENT).as_nanos();
            for member in &mut group.members {
                member.tell(&format!("contend {} {start} {nanos}", count / 2));
            }
            let entries: f64 = group.members.iter_mut().map(|it| it.answer()[0]).sum();
            let time = self.ping_pongs(nanos as f64 / entries);
            let constant = Theory::Grows("constant");
            self.note(
                "waiters",
                count,
                "time for each entry, in ping-pongs",
                time,
                constant,
            );
        }
    }

    /// Programs that use one agent, without another member that wants a lock.
    fn clients(&mut self) {
        for count in self.counts(&[1, 2, 5, 10, 20, 50, 100, 200]) {
            let group = Group::start(MEMBERS);
            sleep(MOMENT);
            let before = group.members[0].memory();
            let mut clients = group.clients(count);
            sleep(MOMENT);
            let each = (group.members[0].memory() - before) / count as f64;
            let constant = Theory::Grows("constant");
            self.note(
                "clients",
                count,
                "memory of the agent for each, bytes",
                each,
                constant,
            );
            for (question, time, processor) in [
                (
                    "one",
                    "time for each entry of one lock, in ping-pongs",
                    "processor for each entry of one lock, in ping-pongs",
                ),
                (
                    "each",
                    "time for each entry of their own locks, in ping-pongs",
                    "processor for each entry of their own locks, in ping-pongs",
                ),
            ] {
                let nanos = self.time(2).as_nanos();
                let start = (now() + MOMENT).as_nanos();
                let used = |clients: &Process| sum(group.usage(), clients.usage());
                let usage = used(&clients);
                let entries = clients.ask(&format!("{question} {start} {nanos}"))[0];
                let each = self.ping_pongs(nanos as f64 / entries);
                self.note("clients", count, time, each, constant);
                let each = self.ping_pongs((used(&clients) - usage) / entries);
                self.note("clients", count, processor, each, constant);
            }
        }
    }
}

/// The processor's time of both, in nanoseconds.
fn sum(one: Usage, other: Usage) -> f64 {
    one.processor + other.processor
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The median of a datagram there and back; each end on a core of its own, if there are two.
fn ping_pong() -> Duration {
    let measured = || {
        let place = *Place::available().first().expect("at least one core");
        place.pin_measured();
        let mut echo = Echo::start(Transport::Udp, place);
        let times = (0..ROUND_TRIPS).map(|_| {
            let start = now();
            echo.round_trip();
            (now() - start).as_nanos() as f64
        });
        let median = median(times.collect()).expect("there are some");
        Duration::from_nanos(median as u64)
    };
    // Of its own, for only this thread to be pinned.
    thread::spawn(measured).join().expect("it does not panic")
}
