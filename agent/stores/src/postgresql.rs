//! PostgreSQL, from version 12: one table, one statement a write.
//!
//! # What is kept where
//! The table `distlock` ([`SCHEMA`]) is made once, by `distlock store init`: [`Postgresql::initializing`].
//! Each register is a row, its value the record's JSON as text, so that `SELECT` shows it, its version
//! 64 random bits, so that none comes back, whatever is removed, forgotten or restored. The table is found
//! by the `search_path`.
//!
//! # No session
//! Each operation is one transaction, sent as one batch and ended by its own `Sync`. Nothing is kept in the
//! session, neither named statements nor settings nor advisory locks, so a pooler may stand between that
//! gives each transaction another connection, as PgBouncer does with `pool_mode = transaction`. It is
//! found out by itself, and then operations go one at a time, each says in which store it is done, and
//! there are no hints.
//!
//! # Hints
//! Writes of a lock's record that others wait for `NOTIFY` the group's channel, and agents that wait
//! `LISTEN` there, on the connection that they have. A hint says only which register has changed, and the
//! ledger reads it. Commits that notify wait for one another in the whole server; without `has_hints` there
//! are none, and changes are found by reading, every third of a lease.
//!
//! # What is kept
//! Each write sets `synchronous_commit` to `on` for itself. [`Findings::doubts`] says why the server may
//! forget all the same. A write whose wait for a synchronous standby is ended by `pg_cancel_backend` counts
//! as done, though the standby may lack it.
//!
//! # Room
//! Each write leaves the row's old version behind, which the next ones in the page tidy up, and `VACUUM`. A
//! transaction in the same database that stays open keeps them all: where some do so for hours, the table is
//! better in a database of its own.
//!
//! # Hosts
//! A standby, or a database that is set to read only, does not serve, and the next host is tried. A pooler
//! may not spread statements over standbys.

mod connection;
mod facts;
mod signin;
mod statements;
mod wire;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use distlock_protocol::Time;
use distlock_protocol::chance::Chance;
use distlock_protocol::ledger::{
    Key, Op, OpId, Reply, Store, StoreEvent, StoreFacts, StoreOutput, StreamId,
};

pub use self::facts::Findings;
pub use self::statements::SCHEMA;

use self::connection::{Connection, News};
use self::statements::Asked;
use crate::StoreOptions;
use crate::hosts::Hosts;

/// A client of PostgreSQL.
///
/// Its user needs the rights to `SELECT`, `INSERT`, `UPDATE` and `DELETE` in the table `distlock`, and no
/// others.
pub struct Postgresql {
    options: StoreOptions,
    hosts: Hosts,
    chance: Chance,
    creates_table: bool,
    link: Link,
    last_stream: u64,
    interest: BTreeSet<Key>,
    findings: Option<Findings>,
    outputs: VecDeque<StoreOutput>,
}

#[derive(Debug)]
enum Link {
    /// There is none, and it is tried again then.
    Down(Time),
    Up {
        stream: StreamId,
        connection: Box<Connection>,
        listening: Listening,
    },
}

/// Whether changes are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listening {
    No,
    Yes,
    /// Nobody has waited for a while; no more from then on.
    Until(Time),
}

impl fmt::Debug for Postgresql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgresql")
            .field("options", &self.options)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

impl Postgresql {
    /// A client, not connected yet.
    ///
    /// # Panics
    /// If there is no host.
    pub fn new(options: StoreOptions) -> Self {
        let hosts = Hosts::new(options.hosts.clone(), options.seed);
        Self {
            hosts,
            // Another stream than the hosts have.
            chance: Chance::new(options.seed ^ 0x5bd1_e995_7f4a_7c15),
            creates_table: false,
            link: Link::Down(Time::ZERO),
            last_stream: 0,
            interest: BTreeSet::new(),
            findings: None,
            outputs: VecDeque::new(),
            options,
        }
    }

    /// The same, and it runs [`SCHEMA`] before it says [`StoreEvent::Up`]: the table is there then. Its
    /// user needs the right to `CREATE` in the schema that comes first in the `search_path`.
    ///
    /// # Panics
    /// If there is no host.
    pub fn initializing(options: StoreOptions) -> Self {
        Self {
            creates_table: true,
            ..Self::new(options)
        }
    }

    /// What the last server said of itself to which there was a connection.
    pub const fn findings(&self) -> Option<&Findings> {
        self.findings.as_ref()
    }

    fn connect(&mut self, now: Time) {
        let host = self.hosts.present().clone();
        match Connection::new(now, &host, &self.options, self.creates_table) {
            Ok(connection) => {
                self.last_stream += 1;
                let stream = StreamId(self.last_stream);
                self.link = Link::Up {
                    stream,
                    connection: Box::new(connection),
                    listening: Listening::No,
                };
                self.outputs.push_back(StoreOutput::Connect(stream, host));
            }
            Err(why) => self.fail(now, &why, false),
        }
    }

    /// The connection is of no use, for that reason.
    fn fail(&mut self, now: Time, why: &str, has_stream: bool) {
        if let Link::Up { stream, .. } = self.link
            && has_stream
        {
            self.outputs.push_back(StoreOutput::Close(stream));
        }
        let why = format!("{}: {why}", self.hosts.present());
        self.link = Link::Down(self.hosts.failed(now));
        let down = StoreEvent::Down(why);
        self.outputs.push_back(StoreOutput::Event(down));
    }

    /// Does something with the connection that is `stream`, and tells what came of it.
    fn with(
        &mut self,
        now: Time,
        which: Option<StreamId>,
        act: impl FnOnce(&mut Connection, &StoreOptions) -> Result<(), String>,
    ) {
        let Link::Up {
            stream, connection, ..
        } = &mut self.link
        else {
            return;
        };
        let stream = *stream;
        if which.is_some_and(|which| which != stream) {
            return;
        }
        let outcome = act(connection, &self.options);
        let mut news = Vec::new();
        while let Some(next) = connection.take_news() {
            news.push(next);
        }
        for next in news {
            self.tell(now, next);
        }
        // TLS may have a last word, too.
        self.flush();
        // What was told may have had the same end.
        if let (Err(why), Link::Up { .. }) = (outcome, &self.link) {
            self.fail(now, &why, true);
        }
    }

    fn flush(&mut self) {
        if let Link::Up {
            stream, connection, ..
        } = &mut self.link
        {
            let wire = connection.take_wire();
            if !wire.is_empty() {
                let send = StoreOutput::Send(*stream, wire);
                self.outputs.push_back(send);
            }
        }
    }

    fn event(&mut self, event: StoreEvent) {
        self.outputs.push_back(StoreOutput::Event(event));
    }

    fn tell(&mut self, now: Time, news: News) {
        match news {
            News::Up => {
                let Link::Up { connection, .. } = &self.link else {
                    return;
                };
                let Some(findings) = connection.findings() else {
                    return;
                };
                let facts = StoreFacts {
                    may_forget: !findings.doubts.is_empty(),
                    doubts: findings.doubts.clone(),
                    identity: findings.identity.clone(),
                };
                self.findings = Some(findings.clone());
                self.hosts.worked();
                self.event(StoreEvent::Up(facts));
                self.mind_interest(now);
            }
            News::Reply(id, reply) => self.event(StoreEvent::Reply(id, reply)),
            // What changed before is not told: it may be all of them.
            News::Listens => {
                for key in self.interest.clone() {
                    self.event(StoreEvent::Changed(key, None));
                }
            }
            News::Told(Some(key)) => {
                let key = Key::new(key);
                if self.interest.contains(&key) {
                    self.event(StoreEvent::Changed(key, None));
                }
            }
            News::Told(None) => self.event(StoreEvent::Missed),
        }
    }

    /// Listens while somebody waits, and for a while after that.
    fn mind_interest(&mut self, now: Time) {
        let Link::Up {
            connection,
            listening,
            ..
        } = &mut self.link
        else {
            return;
        };
        if !connection.is_up() {
            return;
        }
        let until = now + self.options.patience();
        let is_wanted = !self.interest.is_empty();
        let outcome = match *listening {
            Listening::No if is_wanted => connection.listen(true, until).map(|listens| {
                if listens {
                    *listening = Listening::Yes;
                }
            }),
            Listening::Until(_) if is_wanted => {
                *listening = Listening::Yes;
                Ok(())
            }
            Listening::Yes if !is_wanted => {
                *listening = Listening::Until(now + self.options.lease);
                Ok(())
            }
            Listening::Until(time) if time <= now => {
                *listening = Listening::No;
                connection.listen(false, until).map(drop)
            }
            _ => Ok(()),
        };
        self.flush();
        if let Err(why) = outcome {
            self.fail(now, &why, true);
        }
    }
}

impl Store for Postgresql {
    fn submit(&mut self, now: Time, id: OpId, op: Op) {
        match &self.link {
            Link::Up { connection, .. } if connection.is_up() => {}
            _ => return self.event(StoreEvent::Reply(id, Reply::Unknown)),
        }
        let asked = Asked::new(op, &mut self.chance);
        let until = now + self.options.patience();
        self.with(now, None, |connection, _| {
            connection.submit(id, asked, until)
        });
    }

    fn interest(&mut self, now: Time, keys: &BTreeSet<Key>) {
        self.interest.clone_from(keys);
        self.mind_interest(now);
    }

    fn connected(&mut self, now: Time, stream: StreamId) {
        self.with(now, Some(stream), |connection, options| {
            connection.begin(now, options)
        });
    }

    fn received(&mut self, now: Time, stream: StreamId, bytes: &[u8]) {
        self.with(now, Some(stream), |connection, options| {
            connection.received(now, bytes, options)
        });
    }

    fn disconnected(&mut self, now: Time, stream: StreamId, why: &str) {
        if matches!(self.link, Link::Up { stream: of, .. } if of == stream) {
            self.fail(now, why, false);
        }
    }

    fn timeout(&mut self, now: Time) {
        match &self.link {
            Link::Down(again) if *again <= now => self.connect(now),
            Link::Up { connection, .. } if connection.deadline().is_some_and(|it| it <= now) => {
                let patience = self.options.patience().as_millis();
                let why = format!("no reply for {patience} ms");
                self.fail(now, &why, true);
            }
            _ => self.mind_interest(now),
        }
    }

    fn poll_output(&mut self) -> Option<StoreOutput> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.link {
            Link::Down(again) => Some(*again),
            Link::Up {
                connection,
                listening,
                ..
            } => {
                let unlisten = match listening {
                    Listening::Until(time) => Some(*time),
                    Listening::No | Listening::Yes => None,
                };
                connection.deadline().into_iter().chain(unlisten).min()
            }
        }
    }
}

#[cfg(test)]
mod tests;
