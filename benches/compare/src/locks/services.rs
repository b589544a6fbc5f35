//! Redis and PostgreSQL.

use std::time::Duration;

use postgres::{Client, NoTls, Statement};
use redis::{Connection, Script, cmd};

use super::{Locks, patiently};
use crate::shared::{LOCKS, now};

/// How long a lock may be held, in milliseconds: longer than anybody holds it here.
const LEASE_MS: u64 = 30_000;

/// The longest that is waited before the next try, in nanoseconds.
const RETRY_NS: u64 = 2_000_000;

/// `SET key value NX PX lease`, tried again after a random time, and released by the script that
/// deletes the key if it has our value: <https://redis.io/docs/latest/commands/set/#patterns>.
pub(super) struct SetNx {
    redis: Connection,
    release: Script,
    id: u16,
    entries: u64,
    value: String,
}

impl SetNx {
    pub(super) fn open(address: &str, id: u16) -> Self {
        let mut redis = connect(address);
        if id == 1 {
            each_lock(&mut redis, "DEL", "set", &[]);
        }
        let release = Script::new(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) \
             else return 0 end",
        );
        Self {
            redis,
            release,
            id,
            entries: 0,
            value: String::new(),
        }
    }
}

impl Locks for SetNx {
    fn enter(&mut self, lock: usize) -> Option<u64> {
        let key = format!("set-{lock}");
        self.entries += 1;
        self.value = format!("{}-{}", self.id, self.entries);
        loop {
            let mut set = cmd("SET");
            set.arg(&key).arg(&self.value).arg("NX");
            let answer: Option<String> = set
                .arg("PX")
                .arg(LEASE_MS)
                .query(&mut self.redis)
                .expect("Redis answers");
            if answer.is_some() {
                return None;
            }
            // The last digits of the clock are chance enough.
            std::thread::sleep(Duration::from_nanos(now().wrapping_mul(7919) % RETRY_NS));
        }
    }

    fn leave(&mut self, lock: usize) {
        let mut release = self.release.key(format!("set-{lock}"));
        let deleted: u64 = release
            .arg(&self.value)
            .invoke(&mut self.redis)
            .expect("Redis answers");
        assert_eq!(deleted, 1, "it is held");
    }
}

/// A list with one token for each lock: who takes it is inside. Nothing gives it back for a holder
/// that dies.
pub(super) struct Blpop(Connection);

impl Blpop {
    pub(super) fn open(address: &str, id: u16) -> Self {
        let mut redis = connect(address);
        if id == 1 {
            each_lock(&mut redis, "DEL", "list", &[]);
            each_lock(&mut redis, "RPUSH", "list", &["token"]);
        }
        Self(redis)
    }
}

impl Locks for Blpop {
    fn enter(&mut self, lock: usize) -> Option<u64> {
        let mut pop = cmd("BLPOP");
        let pop = pop.arg(format!("list-{lock}")).arg(0);
        let _: (String, String) = pop.query(&mut self.0).expect("Redis answers");
        None
    }

    fn leave(&mut self, lock: usize) {
        let mut push = cmd("RPUSH");
        let push = push.arg(format!("list-{lock}")).arg("token");
        let _: u64 = push.query(&mut self.0).expect("Redis answers");
    }
}

fn connect(address: &str) -> Connection {
    let client = redis::Client::open(format!("redis://{address}/")).expect("an address");
    patiently(|| client.get_connection())
}

fn each_lock(redis: &mut Connection, command: &str, kind: &str, arguments: &[&str]) {
    for lock in 0..LOCKS {
        let mut command = cmd(command);
        let command = command.arg(format!("{kind}-{lock}")).arg(arguments);
        let _: u64 = command.query(redis).expect("Redis answers");
    }
}

/// Advisory locks of PostgreSQL, held by the session.
pub(super) struct Advisory {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl Advisory {
    pub(super) fn open(address: &str) -> Self {
        let (host, port) = address.split_once(':').expect("an address");
        let parameters = format!("host={host} port={port} user=postgres dbname=postgres");
        let mut client = patiently(|| Client::connect(&parameters, NoTls));
        let mut prepare = |sql| client.prepare(sql).expect("the server knows it");
        let lock = prepare("SELECT pg_advisory_lock($1)");
        let unlock = prepare("SELECT pg_advisory_unlock($1)");
        Self {
            client,
            lock,
            unlock,
        }
    }
}

impl Locks for Advisory {
    fn enter(&mut self, lock: usize) -> Option<u64> {
        let locked = self.client.query_one(&self.lock, &[&(lock as i64)]);
        locked.expect("the server answers");
        None
    }

    fn leave(&mut self, lock: usize) {
        let unlocked = self.client.query_one(&self.unlock, &[&(lock as i64)]);
        let held: bool = unlocked.expect("the server answers").get(0);
        assert!(held, "it is held");
    }
}
