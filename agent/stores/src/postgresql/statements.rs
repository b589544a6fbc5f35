//! What is asked of the server, and what its answers mean.
//!
//! # Why a refusal is one for ever
//! Each operation is one transaction of its own: some statements and a `Sync`, which ends the transaction
//! ("protocol flow", "pipelining"). It is answered when `ReadyForQuery` comes, which follows the commit: a
//! statement's `CommandComplete` comes before it, and proves nothing.
//!
//! A write is one `INSERT … ON CONFLICT DO NOTHING`, `UPDATE` or `DELETE` of one row by its key and version,
//! so it is atomic: a writer that comes second waits for the first one's commit, and then looks again at
//! what the row is by then (*Transaction isolation*, "read committed"). Where a database's default is another
//! isolation, it fails instead with 40001, and is asked again here.
//!
//! If no row was written the transaction is over without effect, and nobody will do it again. The register
//! then had another version than the expected one at some instant after the request was sent. What it
//! had is shown by the second statement, which sees what was committed before it began: later than the
//! first, so it never shows the version that was expected, as versions do not come back. (A `SELECT` in
//! the statement of the write would see the row as it was before the wait.) That it may be later than the
//! instant of the refusal makes no difference: a write that has no effect may be thought of as refused then.
//!
//! An error, too, means that nothing was done, unless it is fatal: the server does not answer `ERROR` once
//! a transaction is committed (it panics rather: `RecordTransactionAbort`). `FATAL` may come after that,
//! as when the server is stopped while it waits for a standby.

use std::time::Duration;

use bytes::BytesMut;
use distlock_protocol::chance::Chance;
use distlock_protocol::ledger::{Entry, Key, Op, Reply, Version};
use postgres_protocol::IsNull;
use postgres_protocol::escape::escape_identifier;
use postgres_protocol::message::frontend;

use super::facts::IDENTITY;
use super::wire::{MAX_MESSAGE, Row, ServerError};

/// The table in which registers are: to be run once in a database, and harmless if it is run again.
///
/// Whoever locks needs the rights to `SELECT`, `INSERT`, `UPDATE` and `DELETE` in it.
pub const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS distlock (
    key text COLLATE \"C\" PRIMARY KEY,
    value text NOT NULL,
    version bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE distlock IS
    'Locks of distlock(1): a record each, below distlock/GROUP/. The version is drawn anew by each write.';
";

/// The longest value that is written.
const MAX_VALUE: usize = MAX_MESSAGE / 2;
/// How many registers are listed at a time.
const PAGE: usize = 100;
/// How often an operation is asked again that met another one at the same time.
const MAX_TRIES: u32 = 5;
/// The longest name of a channel, and the longest word on it (*NOTIFY*; `NAMEDATALEN`).
const MAX_CHANNEL: usize = 63;
const MAX_PAYLOAD: usize = 7999;

const TEXT: u32 = 25;
const INT8: u32 = 20;

/// A statement's parameter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Text(&'a [u8]),
    Number(i64),
}

/// How operations are written down on a connection.
#[derive(Debug)]
pub(super) struct Phrasing {
    /// Before this time the server gives up by itself what it waits for.
    pub(super) timeout: Duration,
    /// Whether each transaction says in which store it is.
    pub(super) is_guarded: bool,
    /// The channel on which changes are told, if any.
    pub(super) channel: Option<String>,
    /// What the keys begin with whose changes nobody wants to be told.
    pub(super) silent: String,
}

/// An operation that was asked.
#[derive(Debug)]
pub(super) struct Asked {
    op: Op,
    /// The version that a write gives.
    version: Version,
    tries: u32,
}

/// What became of an operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// That is the answer.
    Reply(Reply),
    /// Nothing was done, and it is to be asked again.
    Again,
    /// The connection is of no use, for that reason.
    Broken(String),
}

/// What has arrived of the answer to one group of statements.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The rows of each statement.
    pub(super) rows: Vec<Vec<Row>>,
    /// How many statements were done.
    pub(super) done: usize,
    pub(super) error: Option<ServerError>,
}

impl Answer {
    /// The only row of a statement.
    pub(super) fn row(&self, statement: usize) -> Option<&Row> {
        let rows = self.rows.get(statement)?;
        rows.first().filter(|_| rows.len() == 1)
    }
}

/// The field of a row, as text.
pub(super) fn text(row: &Row, at: usize) -> Option<&str> {
    std::str::from_utf8(row.get(at)?.as_deref()?).ok()
}

/// The name of a group's channel.
pub(super) fn channel(group: &str) -> String {
    let name = format!("distlock/{group}");
    if name.len() <= MAX_CHANNEL {
        return name;
    }
    // FNV-1a: two groups of one channel would have needless hints, no more.
    let hash = group
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("distlock#{hash:016x}")
}

/// `LISTEN`, or `UNLISTEN`.
pub(super) fn listen(channel: &str, listens: bool) -> Result<Vec<u8>, String> {
    let verb = if listens { "LISTEN" } else { "UNLISTEN" };
    group(&[(&format!("{verb} {}", escape_identifier(channel)), &[])])
}

/// One or more statements of one transaction, which is over when they are done.
///
/// Statement and portal have no names, so nothing of them is left in the session.
pub(super) fn group(statements: &[(&str, &[Value<'_>])]) -> Result<Vec<u8>, String> {
    let mut bytes = BytesMut::new();
    for (sql, values) in statements {
        let kinds = values.iter().map(|value| match value {
            Value::Text(_) => TEXT,
            Value::Number(_) => INT8,
        });
        let written = frontend::parse("", sql, kinds, &mut bytes);
        written.map_err(|error| error.to_string())?;
        // All as text, both ways.
        let bound = frontend::bind(
            "",
            "",
            [0],
            values.iter(),
            |value, bytes| {
                match value {
                    Value::Text(text) => bytes.extend_from_slice(text),
                    Value::Number(number) => bytes.extend_from_slice(number.to_string().as_bytes()),
                }
                Ok(IsNull::No)
            },
            [0],
            &mut bytes,
        );
        bound.map_err(|error| match error {
            frontend::BindError::Conversion(error) => error.to_string(),
            frontend::BindError::Serialization(error) => error.to_string(),
        })?;
        frontend::execute("", 0, &mut bytes).map_err(|error| error.to_string())?;
    }
    frontend::sync(&mut bytes);
    Ok(bytes.to_vec())
}

impl Phrasing {
    /// The statement that comes first in each transaction, and holds for that alone.
    ///
    /// `synchronous_commit` is what it is at the commit, so a database whose default is `off` loses no
    /// write of ours ("asynchronous commit"). `statement_timeout` counts from the next statement on: a
    /// write that waits for somebody's lock on the row ends there before it is given up here, so such writes
    /// do not pile up in the server. It says nothing of the commit itself.
    ///
    /// A pooler can lead to another server from one transaction to the next, and not say so.
    fn preamble(&self) -> String {
        let millis = self.timeout.as_millis().max(1);
        let identity = if self.is_guarded {
            format!(", {IDENTITY}")
        } else {
            String::new()
        };
        format!(
            "SELECT set_config('synchronous_commit', 'on', true), \
             set_config('statement_timeout', '{millis}', true){identity}"
        )
    }

    /// The channel on which changes of that register are told.
    fn hinted(&self, key: &Key) -> Option<&str> {
        let is_told =
            key.as_str().len() <= MAX_PAYLOAD && !key.as_str().starts_with(self.silent.as_str());
        self.channel.as_deref().filter(|_| is_told)
    }

    /// A write of a register, which answers by a row if it was done, and what shows the register if it was
    /// not. The write's first value is the key.
    ///
    /// Commits that notify wait for one another in the whole server (`PreCommit_Notify`), so there must be
    /// somebody to tell. Who waits for a lock is in its queue, before the write or after; of a value that is
    /// no lock's record nothing is known, and it is told.
    fn write<'a>(
        &'a self,
        key: &'a Key,
        (write, value): (&str, &[u8]),
        mut values: Vec<Value<'a>>,
        new: Value<'a>,
    ) -> Result<Vec<u8>, String> {
        let preamble = self.preamble();
        let name = Value::Text(key.as_str().as_bytes());
        let told = if let Some(channel) = self.hinted(key) {
            values.push(Value::Text(channel.as_bytes()));
            let channel = values.len();
            let has_queue = !contains(value, NO_QUEUE.as_bytes());
            // Of what the statement itself has written a query in it sees nothing.
            format!(
                "CASE WHEN {has_queue} OR \
                 (SELECT before.value FROM distlock AS before WHERE before.key = $1) \
                 NOT LIKE '%{NO_QUEUE}%' THEN pg_notify(${channel}, $1) END"
            )
        } else {
            "NULL".to_owned()
        };
        let sql = format!("{write} RETURNING {told}");
        group(&[
            (&preamble, &[]),
            (&sql, &values),
            (
                "SELECT value, version FROM distlock WHERE key = $1 AND version <> $2",
                &[name, new],
            ),
        ])
    }
}

/// What is in the record of a lock that nobody waits for, and in no other: within a text of JSON the
/// quotation marks would have backslashes.
const NO_QUEUE: &str = "\"queue\":[]";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

const fn number(version: Version) -> i64 {
    version.0.cast_signed()
}

impl Asked {
    pub(super) fn new(op: Op, chance: &mut Chance) -> Self {
        let version = Version(chance.next_u64());
        Self {
            op,
            version,
            tries: 0,
        }
    }

    /// What to send.
    ///
    /// # Errors
    /// If this store cannot do it.
    pub(super) fn bytes(&self, phrasing: &Phrasing) -> Result<Vec<u8>, String> {
        let preamble = phrasing.preamble();
        let preamble: (&str, &[Value<'_>]) = (&preamble, &[]);
        let new = Value::Number(number(self.version));
        match &self.op {
            Op::Read { key } => {
                let sql = "SELECT value, version FROM distlock WHERE key = $1";
                group(&[preamble, (sql, &[Value::Text(key.as_str().as_bytes())])])
            }
            Op::Write { key, value, expect } => {
                let name = Value::Text(key.as_str().as_bytes());
                if value.len() > MAX_VALUE {
                    let length = value.len();
                    return Err(format!(
                        "a record of {length} bytes is too long: at most {MAX_VALUE} are kept"
                    ));
                }
                if std::str::from_utf8(value).is_err() || value.contains(&0) {
                    return Err("what is no text cannot be kept in the table distlock".to_owned());
                }
                let text = Value::Text(value);
                let (sql, values) = match expect {
                    None => (
                        "INSERT INTO distlock (key, value, version) VALUES ($1, $2, $3) \
                         ON CONFLICT (key) DO NOTHING",
                        vec![name, text, new],
                    ),
                    Some(version) => (
                        "UPDATE distlock SET value = $2, version = $3 \
                         WHERE key = $1 AND version = $4",
                        vec![name, text, new, Value::Number(number(*version))],
                    ),
                };
                phrasing.write(key, (sql, value), values, new)
            }
            Op::Remove { key, expect } => {
                let name = Value::Text(key.as_str().as_bytes());
                let values = vec![name, Value::Number(number(*expect))];
                let sql = "DELETE FROM distlock WHERE key = $1 AND version = $2";
                phrasing.write(key, (sql, b""), values, new)
            }
            Op::List { prefix, after } => {
                // Keys are ASCII without control characters, so DEL comes after all of them.
                let end = format!("{}\u{7f}", prefix.as_str());
                let after = after.as_ref().map_or("", Key::as_str);
                let sql = "SELECT key, value, version FROM distlock \
                           WHERE key >= $1 AND key < $2 AND key > $3 ORDER BY key LIMIT $4";
                let limit = i64::try_from(PAGE + 1).unwrap_or(i64::MAX);
                let values = [
                    Value::Text(prefix.as_str().as_bytes()),
                    Value::Text(end.as_bytes()),
                    Value::Text(after.as_bytes()),
                    Value::Number(limit),
                ];
                group(&[preamble, (sql, &values)])
            }
        }
    }

    /// What the server's answer means, on a connection to the store of that identity.
    pub(super) fn outcome(&mut self, answer: &Answer, identity: Option<&str>) -> Outcome {
        if let Some(error) = &answer.error {
            let outcome = failed(error);
            self.tries += u32::from(outcome == Outcome::Again);
            return match outcome {
                Outcome::Again if self.tries >= MAX_TRIES => Outcome::Reply(Reply::Unknown),
                outcome => outcome,
            };
        }
        if let Some(identity) = identity {
            let now = answer.row(0).and_then(|row| text(row, 2));
            if now != Some(identity) {
                let now = now.unwrap_or("none");
                return Outcome::Broken(format!(
                    "the pooler leads to another store: {now}, not {identity}"
                ));
            }
        }
        let reply = match self.op {
            Op::Read { .. } => answer.rows.get(1).and_then(|rows| match &rows[..] {
                [] => Some(Reply::Value(None)),
                [row] => Some(Reply::Value(Some(entry(row, 0)?))),
                _ => None,
            }),
            Op::Write { .. } | Op::Remove { .. } => self.written(answer),
            Op::List { .. } => answer.rows.get(1).and_then(|rows| page(rows)),
        };
        match reply {
            // A register that was to be created was there, and is gone by now.
            Some(Reply::Conflict(None))
                if matches!(self.op, Op::Write { expect: None, .. }) && self.tries < MAX_TRIES =>
            {
                self.tries += 1;
                Outcome::Again
            }
            Some(reply) => Outcome::Reply(reply),
            None => Outcome::Broken("the server answers something else than was asked".to_owned()),
        }
    }

    fn written(&self, answer: &Answer) -> Option<Reply> {
        let written = answer.rows.get(1)?;
        let after = answer.rows.get(2)?;
        match (written.len(), &after[..]) {
            (1, _) if matches!(self.op, Op::Remove { .. }) => Some(Reply::Removed),
            (1, _) => Some(Reply::Done(self.version)),
            (0, []) => Some(Reply::Conflict(None)),
            (0, [row]) => Some(Reply::Conflict(Some(entry(row, 0)?))),
            _ => None,
        }
    }
}

/// A register's value and version, which are in these fields.
fn entry(row: &Row, at: usize) -> Option<Entry> {
    let value = row.get(at)?.clone()?;
    let version: i64 = text(row, at + 1)?.parse().ok()?;
    let version = Version(version.cast_unsigned());
    Some(Entry { value, version })
}

fn page(rows: &[Row]) -> Option<Reply> {
    let more = rows.len() > PAGE;
    let entries = rows.iter().take(PAGE);
    let entries = entries.map(|row| Some((Key::new(text(row, 0)?), entry(row, 1)?)));
    let entries = entries.collect::<Option<Vec<_>>>()?;
    Some(Reply::Page { entries, more })
}

/// What an error means (appendix "PostgreSQL error codes"). None is fatal here, so nothing was done.
fn failed(error: &ServerError) -> Outcome {
    let text = &error.text;
    if error.is_fatal {
        return Outcome::Broken(error.to_string());
    }
    match error.code.as_str() {
        // It was a standby's turn, or the database was made read-only: another host may serve.
        "25006" | "55000" => Outcome::Broken(error.to_string()),
        // Somebody else wrote at the same time: a default isolation that is stricter than needed, or locks
        // of others on the row.
        "40001" | "40P01" => Outcome::Again,
        "42P01" => Outcome::Reply(Reply::Refused(
            "the database has no table distlock: run `distlock store init --at …`".to_owned(),
        )),
        "42501" => Outcome::Reply(Reply::Refused(format!(
            "{text}: GRANT SELECT, INSERT, UPDATE, DELETE ON distlock TO the user"
        ))),
        "53100" => Outcome::Reply(Reply::Refused(format!("the server's disk is full: {text}"))),
        code => match code.get(..2) {
            // Wrong data, constraints, syntax and names, limits, what is not supported, what a trigger says:
            // it would be so the next time.
            Some("0A" | "22" | "23" | "3F" | "42" | "44" | "54" | "P0") => {
                Outcome::Reply(Reply::Refused(error.to_string()))
            }
            // The server's own trouble, a timeout, a cancelled statement: it may be over the next time.
            _ => Outcome::Reply(Reply::Unknown),
        },
    }
}
