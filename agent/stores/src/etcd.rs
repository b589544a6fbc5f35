//! etcd, from 3.4, by its gateway: HTTP/1.1 and JSON.
//!
//! # Operations
//! A write is a transaction: if the key has the expected `mod_revision` it is put, else it is read, at the
//! same instant. `mod_revision` is the version: etcd's revision rises with each change, so none comes back
//! while the store is the same one. Reads are linearizable. They need not be; but a member that is cut off
//! from the majority would go on answering others for ever, and by these it is found out. They cost no write
//! to a disk, only that the leader hears from a majority, which many reads share.
//!
//! # Connections
//! One request is under way on a connection. Go's servers answer what comes one behind the other in its
//! order, each when the one before is done, so that a write would wait for the disk as often as there are
//! writes before it, where etcd commits what comes together by one `fsync`. So more connections are opened
//! while all are busy and requests wait, up to [`MOST_CONNECTIONS`], and closed when they were idle for a
//! while. If one breaks that has a request under way, or a reply takes too long, all are closed, and the next
//! host is tried.
//!
//! # Hints
//! A watch of the group's prefix, on a connection of its own, which is there while anybody is interested.
//!
//! # Another store
//! The cluster's id, which a store restored from a backup only keeps if it is given the same
//! `--initial-cluster-token` and the same addresses. In that case the store's revision has gone back, and
//! that is noticed too, unless more was written since than was lost: so agents should be stopped first, or
//! the token changed, or the revision raised (`etcdutl snapshot restore --bump-revision`).
//!
//! # Errors
//! `etcd/errors.rs` says which errors mean that a write was not done, and why. There are versions whose
//! gateway closes the connection where it should say that a token is not valid (etcd-io/etcd#20332): the
//! client connects again then, and signs in.

mod errors;
mod greeting;
mod http;
mod json;
mod operations;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use distlock_protocol::Time;
use distlock_protocol::chance::Chance;
use distlock_protocol::ledger::{
    Host, Key, Op, OpId, Reply, Store, StoreEvent, StoreOutput, StreamId,
};
use zeroize::Zeroizing;

use self::greeting::Greeting;
use self::json::{LONGEST_PAGE, Request};
use self::operations::Task;
use self::watch::Watch;
use self::wire::{Answer, Broken, Connection, Wire};
use crate::hosts::Hosts;
use crate::options::StoreOptions;
use crate::tls::Tls;

/// So many connections are there at most, besides that of the watch.
pub const MOST_CONNECTIONS: usize = 8;
/// One that was idle for so long is closed, unless it is the last.
const LONGEST_IDLE: Duration = Duration::from_secs(30);
/// If another connection was refused while there is one, the next is not tried before.
const SPARE_PAUSE: Duration = Duration::from_secs(1);

/// A client of etcd.
pub struct Etcd {
    hosts: Hosts,
    tls: Option<Tls>,
    user: Option<String>,
    password: Option<Zeroizing<String>>,
    /// What the group's registers begin with.
    prefix: String,
    patience: Duration,
    chance: Chance,

    link: Link,
    last_stream: u64,
    connections: BTreeMap<StreamId, Connection<Job>>,
    /// No more connections are opened before.
    spare_from: Time,
    token: Token,
    /// What waits for a connection.
    queue: VecDeque<Task>,
    queued_bytes: usize,
    longest_page: usize,
    store: Seen,
    watch: Watch,
    outputs: VecDeque<StoreOutput>,
}

/// The way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// There is none, and the next is tried then.
    Down(Time),
    /// It is found out what answers there.
    Greeting(Greeting),
    /// Operations are taken.
    Up,
}

/// What a request is for.
#[derive(Debug)]
enum Job {
    /// To find out what answers, and to sign in.
    Greet(greeting::Step),
    /// To sign in anew.
    SignIn,
    /// To see that another connection leads to the same store, which had that revision before.
    Check(u64),
    /// An operation.
    Do(Box<Task>),
}

/// What proves to etcd who asks.
#[derive(Default)]
struct Token {
    /// `None` before it was asked for, and where there are no users.
    text: Option<Zeroizing<String>>,
    /// How many there were before.
    number: u64,
    /// Whether another one is wanted.
    is_wanted: bool,
    /// Whether it is asked for.
    is_asked_for: bool,
}

/// Which store it was so far.
#[derive(Debug, Default)]
struct Seen {
    cluster: Option<u64>,
    /// The highest revision that it had.
    revision: u64,
    /// How often it went back.
    returns: u64,
}

impl Etcd {
    /// A client with these options, which connects at the first call of [`Store::timeout`].
    ///
    /// # Panics
    /// If there is no host.
    pub fn new(options: StoreOptions) -> Self {
        let mut chance = Chance::new(options.seed);
        let patience = options.patience();
        let hosts = Hosts::new(options.hosts, chance.next_u64());
        Self {
            hosts,
            tls: options.tls,
            user: options.user,
            password: options.password,
            prefix: format!("distlock/{}/", options.group),
            patience,
            chance,
            link: Link::Down(Time::ZERO),
            last_stream: 0,
            connections: BTreeMap::new(),
            spare_from: Time::ZERO,
            token: Token::default(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            longest_page: LONGEST_PAGE,
            store: Seen::default(),
            watch: Watch::new(options.has_hints),
            outputs: VecDeque::new(),
        }
    }

    fn event(&mut self, event: StoreEvent) {
        self.outputs.push_back(StoreOutput::Event(event));
    }

    fn reply(&mut self, id: OpId, reply: Reply) {
        self.event(StoreEvent::Reply(id, reply));
    }

    /// Another connection to the present host.
    fn open(&mut self) -> Result<Wire, String> {
        self.last_stream += 1;
        let stream = StreamId(self.last_stream);
        let host = self.hosts.present();
        let wire = Wire::new(stream, host, self.tls.as_ref())?;
        self.outputs
            .push_back(StoreOutput::Connect(stream, host.clone()));
        Ok(wire)
    }

    fn connect(&mut self, now: Time) {
        self.link = Link::Greeting(Greeting::default());
        match self.open() {
            Ok(wire) => {
                let connection = Connection::new(now, wire);
                self.connections.insert(connection.wire.stream, connection);
            }
            Err(why) => self.fail(now, &why),
        }
    }

    /// Sends a request on a connection that is idle.
    fn send(&mut self, now: Time, stream: StreamId, request: &Request, job: Job) {
        let token = self.token.text.as_ref().map(|token| token.as_str());
        let host = self.host_header();
        let bytes = http::request(
            request.path,
            &host,
            token,
            request.body.as_ref().map(|body| &body[..]),
        );
        let Some(connection) = self.connections.get_mut(&stream) else {
            return;
        };
        connection.job = Some((job, now + self.patience));
        match connection.wire.send(&bytes) {
            Ok(output) => self.outputs.extend(output),
            Err(broken) => self.broken(now, stream, &broken),
        }
    }

    /// What the present host is called.
    fn host_header(&self) -> String {
        match self.hosts.present() {
            Host::Unix(_) => "localhost".to_owned(),
            host => host.to_string(),
        }
    }

    /// Sends what waits, and has more connections if there are too few.
    fn dispatch(&mut self, now: Time) {
        while self.link == Link::Up {
            let mut connections = self.connections.values();
            let idle = connections.find(|connection| connection.is_idle());
            let idle = idle.map(|connection| connection.wire.stream);
            // What is sent without a token that counts would be refused.
            if self.token.is_asked_for || (self.token.is_wanted && idle.is_none()) {
                return;
            }
            match idle {
                Some(stream) if self.token.is_wanted => self.sign_in(now, stream),
                Some(_) if self.queue.is_empty() => return,
                Some(stream) if !self.connections[&stream].is_known => {
                    let job = Job::Check(self.store.revision);
                    self.send(now, stream, &Request::probe(&self.prefix), job);
                }
                Some(stream) => {
                    let Some(task) = self.take() else {
                        return;
                    };
                    self.send_task(now, stream, task);
                }
                None => return self.open_more(now),
            }
        }
    }

    /// All connections are busy. What waits alone is sent as soon as another connection could be there.
    fn open_more(&mut self, now: Time) {
        let all = self.connections.values();
        let being_opened = all.filter(|one| !one.is_known).count();
        let room = MOST_CONNECTIONS.saturating_sub(self.connections.len());
        let wanted = (self.queue.len() / 2)
            .saturating_sub(being_opened)
            .min(room);
        if now < self.spare_from {
            return;
        }
        for _ in 0..wanted {
            let Ok(wire) = self.open() else {
                return;
            };
            let connection = Connection::new(now, wire);
            self.connections.insert(connection.wire.stream, connection);
        }
    }

    /// A reply is complete.
    fn answered(&mut self, now: Time, stream: StreamId, answer: Answer<Job>) {
        let Answer {
            job,
            status,
            closes,
            body,
        } = answer;
        match job {
            Job::Greet(step) => self.greeted(now, stream, step, (status, &body)),
            Job::SignIn => self.signed_in(now, status, &body),
            Job::Check(revision) => self.checked(now, stream, revision, (status, &body)),
            Job::Do(task) => self.done(now, *task, status, &body),
        }
        if closes && self.connections.contains_key(&stream) {
            let why = "the server closes the connection after its reply".to_owned();
            self.broken(now, stream, &Broken::Because(why));
        }
    }

    /// A connection is of no use any more.
    fn broken(&mut self, now: Time, stream: StreamId, broken: &Broken) {
        let Some(connection) = self.connections.get(&stream) else {
            return;
        };
        if let (Broken::LongReply, Some((Job::Do(task), _))) = (broken, &connection.job)
            && task.is_list()
        {
            // The next page is to be shorter.
            self.longest_page = (self.longest_page / 2).max(1);
        }
        let others = self.connections.values();
        let is_needed = connection.job.is_some() || others.filter(|one| one.is_open).count() < 2;
        let is_spare = !connection.is_open && self.link == Link::Up;
        if is_spare || (self.link == Link::Up && !is_needed) {
            self.close_spare(now, stream);
        } else {
            self.fail(now, &broken.to_string());
        }
    }

    /// Goes on without it, and tries none for a while.
    fn close_spare(&mut self, now: Time, stream: StreamId) {
        self.close(stream);
        self.spare_from = now + SPARE_PAUSE;
    }

    fn close(&mut self, stream: StreamId) {
        if let Some(connection) = self.connections.remove(&stream) {
            self.outputs.extend(connection.wire.close());
        }
    }

    /// There is no way to the present host. The outcome of what is under way is unknown.
    fn fail(&mut self, now: Time, why: &str) {
        if matches!(self.link, Link::Greeting(_)) {
            // Perhaps it was the token that was not liked.
            self.token.text = None;
        }
        (self.token.is_wanted, self.token.is_asked_for) = (false, false);
        let host = self.hosts.present().to_string();
        self.link = Link::Down(self.hosts.failed(now));
        for connection in std::mem::take(&mut self.connections).into_values() {
            self.outputs.extend(connection.wire.close());
            if let Some((Job::Do(task), _)) = connection.job {
                self.reply(task.id, Reply::Unknown);
            }
        }
        while let Some(task) = self.take() {
            self.reply(task.id, Reply::Unknown);
        }
        self.close_watch();
        self.event(StoreEvent::Down(format!("{host}: {why}")));
    }

    /// Closes what took too long, or is not needed.
    fn close_late(&mut self, now: Time) {
        while let Some((stream, why)) = self.late(now) {
            self.broken(now, stream, &Broken::Because(why));
        }
        while self.queue.front().is_some_and(|task| task.due <= now) {
            if let Some(task) = self.take() {
                self.reply(task.id, Reply::Unknown);
            }
        }
        let spare = self.connections.values().skip(1);
        let idle = spare.filter(|one| one.is_idle() && one.since + LONGEST_IDLE <= now);
        let idle: Vec<StreamId> = idle.map(|one| one.wire.stream).collect();
        for stream in idle {
            self.close(stream);
        }
    }

    /// A connection that has said nothing for too long.
    fn late(&self, now: Time) -> Option<(StreamId, String)> {
        let late = self
            .connections
            .values()
            .find(|one| self.due(one).is_some_and(|due| due <= now))?;
        let what = if late.is_open { "reply" } else { "connection" };
        let why = format!("there was no {what} for {:?}", self.patience);
        Some((late.wire.stream, why))
    }

    /// Until when a connection must have said something.
    fn due(&self, connection: &Connection<Job>) -> Option<Time> {
        match &connection.job {
            Some((_, due)) => Some(*due),
            None if connection.is_open => None,
            None => Some(connection.since + self.patience),
        }
    }
}

impl Store for Etcd {
    fn submit(&mut self, now: Time, id: OpId, op: Op) {
        self.queue_op(now, id, op);
        self.dispatch(now);
    }

    fn interest(&mut self, now: Time, keys: &BTreeSet<Key>) {
        self.interested(now, keys);
    }

    fn connected(&mut self, now: Time, stream: StreamId) {
        if self.watch_connected(now, stream) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&stream) else {
            return;
        };
        connection.is_open = true;
        connection.since = now;
        match self.link {
            Link::Greeting(greeting) => self.greet(now, stream, greeting),
            Link::Up => self.dispatch(now),
            Link::Down(_) => {}
        }
    }

    fn received(&mut self, now: Time, stream: StreamId, bytes: &[u8]) {
        if self.watch_received(now, stream, bytes) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&stream) else {
            return;
        };
        let (output, received) = connection.wire.receive(bytes);
        self.outputs.extend(output);
        // What came before the connection broke counts.
        while let Some(connection) = self.connections.get_mut(&stream) {
            match connection.answer(now) {
                Ok(Some(answer)) => self.answered(now, stream, answer),
                Ok(None) => break,
                Err(broken) => {
                    let broken = self.explain(stream, broken);
                    self.broken(now, stream, &broken);
                }
            }
        }
        if let Err(broken) = received {
            let broken = self.explain(stream, broken);
            self.broken(now, stream, &broken);
        }
        self.dispatch(now);
    }

    fn disconnected(&mut self, now: Time, stream: StreamId, why: &str) {
        if self.watch_disconnected(now, stream) {
            return;
        }
        if let Some(connection) = self.connections.get_mut(&stream) {
            connection.wire.is_gone = true;
            let broken = self.explain(stream, Broken::Because(why.to_owned()));
            self.broken(now, stream, &broken);
        }
        self.dispatch(now);
    }

    fn timeout(&mut self, now: Time) {
        match self.link {
            Link::Down(from) if from <= now => self.connect(now),
            Link::Down(_) => {}
            Link::Greeting(_) | Link::Up => self.close_late(now),
        }
        self.watch_timeout(now);
        self.dispatch(now);
    }

    fn poll_output(&mut self) -> Option<StoreOutput> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        if let Link::Down(from) = self.link {
            return Some(from);
        }
        let connections = self.connections.values();
        let jobs = connections.filter_map(|connection| self.due(connection));
        let spare = self.connections.values().skip(1);
        let idle = spare.filter(|connection| connection.is_idle());
        let idle = idle.map(|connection| connection.since + LONGEST_IDLE);
        let waiting = self.queue.front().map(|task| task.due);
        jobs.chain(idle)
            .chain(waiting)
            .chain(self.watch.due(self.patience))
            .min()
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("host", &self.hosts.present())
            .field("link", &self.link)
            .field("connections", &self.connections.len())
            .field("queue", &self.queue.len())
            .finish_non_exhaustive()
    }
}
