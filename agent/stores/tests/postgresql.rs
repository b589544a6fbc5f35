//! The client of PostgreSQL, with a real one.

#![cfg(feature = "postgresql")]

#[path = "common/agents.rs"]
mod agents;
#[path = "common/driver.rs"]
mod driver;
#[path = "postgresql/durability.rs"]
mod durability;
#[path = "postgresql/faults.rs"]
mod faults;
#[path = "postgresql/ledgers.rs"]
mod ledgers;
#[path = "common/proxy.rs"]
mod proxy;
#[path = "postgresql/server.rs"]
mod server;
#[path = "common/servers.rs"]
mod servers;
#[path = "postgresql/signing_in.rs"]
mod signing_in;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime};

use distlock_protocol::ledger::{Entry, Key, Op, OpId, Reply, StoreEvent, Version};

use driver::Driver;
use server::Server;

pub(crate) fn key(name: &str) -> Key {
    Key::new(format!("distlock/test/lock/{name}"))
}

pub(crate) fn read(key: &Key) -> Op {
    let key = key.clone();
    Op::Read { key }
}

pub(crate) fn write(key: &Key, value: &str, expect: Option<Version>) -> Op {
    let (key, value) = (key.clone(), value.as_bytes().to_vec());
    Op::Write { key, value, expect }
}

pub(crate) fn remove(key: &Key, expect: Version) -> Op {
    let key = key.clone();
    Op::Remove { key, expect }
}

#[track_caller]
pub(crate) fn done(reply: Reply) -> Version {
    match reply {
        Reply::Done(version) => version,
        other => panic!("not done: {other:?}"),
    }
}

pub(crate) fn entry(value: &str, version: Version) -> Entry {
    let value = value.as_bytes().to_vec();
    Entry { value, version }
}

#[test]
fn registers_are_written_read_and_removed_by_version() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let k = key("a");
    assert_eq!(a.run(read(&k)), Reply::Value(None));
    let one = done(a.run(write(&k, "{\"a\":1}", None)));
    assert_eq!(a.run(read(&k)), Reply::Value(Some(entry("{\"a\":1}", one))));
    // Refused: there is one.
    let conflict = Reply::Conflict(Some(entry("{\"a\":1}", one)));
    assert_eq!(a.run(write(&k, "{}", None)), conflict);
    let two = done(a.run(write(&k, "{\"a\":\"ü\"}", Some(one))));
    assert_ne!(one, two);
    // Refused: it has another version.
    let conflict = Reply::Conflict(Some(entry("{\"a\":\"ü\"}", two)));
    assert_eq!(a.run(write(&k, "{}", Some(one))), conflict);
    assert_eq!(a.run(remove(&k, one)), conflict);
    assert_eq!(server.sql("SELECT value FROM distlock"), "{\"a\":\"ü\"}");
    assert_eq!(a.run(remove(&k, two)), Reply::Removed);
    // Refused: there is none.
    assert_eq!(a.run(remove(&k, two)), Reply::Conflict(None));
    assert_eq!(a.run(write(&k, "{}", Some(two))), Reply::Conflict(None));
    assert_eq!(a.run(read(&k)), Reply::Value(None));
    assert!(!done(a.run(write(&k, "{}", None))).eq(&one));
}

#[test]
fn records_of_a_megabyte_are_kept_and_what_is_no_text_is_not() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let k = key("long");
    let long = "ab".repeat(1 << 19);
    let version = done(a.run(write(&k, &long, None)));
    assert_eq!(a.run(read(&k)), Reply::Value(Some(entry(&long, version))));
    let refused = a.run(write(&k, &long.repeat(5), Some(version)));
    assert!(matches!(&refused, Reply::Refused(why) if why.contains("too long")));
    for value in [&b"\xff"[..], b"a\0b"] {
        let (key, value) = (k.clone(), value.to_vec());
        let expect = Some(version);
        let refused = a.run(Op::Write { key, value, expect });
        assert!(matches!(&refused, Reply::Refused(why) if why.contains("no text")));
    }
    assert_eq!(a.run(read(&k)), Reply::Value(Some(entry(&long, version))));
}

#[test]
fn registers_are_listed_page_by_page_in_the_order_of_their_bytes() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let mut written = BTreeSet::new();
    let mut ids = vec![];
    for number in 0..250 {
        // Another collation than that of bytes would mix the two, and leave out the marks.
        let name = if number % 2 == 0 { "A-" } else { "a_" };
        let name = format!("distlock/test/session/{name}{number:03}");
        let k = Key::new(name.as_str());
        ids.push(a.submit(write(&k, "{}", None)));
        written.insert(k);
    }
    for id in ids {
        done(a.reply(id));
    }
    for other in [
        "distlock/test/sess",
        "distlock/test/session0",
        "distlock/tes",
    ] {
        done(a.run(write(&Key::new(other), "{}", None)));
    }
    let prefix = Key::new("distlock/test/session/");
    let (mut listed, mut after, mut pages) = (vec![], None, 0);
    loop {
        let op = Op::List {
            prefix: prefix.clone(),
            after: after.clone(),
        };
        let Reply::Page { entries, more } = a.run(op) else {
            panic!("no page");
        };
        pages += 1;
        listed.extend(entries.into_iter().map(|(key, _)| key));
        after = listed.last().cloned();
        if !more {
            break;
        }
    }
    assert_eq!(listed, written.into_iter().collect::<Vec<_>>());
    assert_eq!(pages, 3);
    let nothing = Op::List {
        prefix: Key::new("distlock/none/"),
        after: None,
    };
    let (entries, more) = (vec![], false);
    assert_eq!(a.run(nothing), Reply::Page { entries, more });
}

/// Waits for a hint of that register.
fn hint(driver: &mut Driver, key: &Key) {
    driver.until("a hint", |event| match event {
        StoreEvent::Changed(of, None) if of == key => Some(()),
        _ => None,
    });
}

#[test]
fn who_waits_is_told_of_changes_by_others() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let (mut a, mut b) = (server.client(), server.client());
    let (k, other) = (key("k"), key("other"));
    a.interest(std::slice::from_ref(&k));
    // What changed before is not known to have been told.
    hint(&mut a, &k);
    let one = done(b.run(write(&k, "{}", None)));
    hint(&mut a, &k);
    let two = done(b.run(write(&k, "{\"queue\":[1]}", Some(one))));
    hint(&mut a, &k);
    // The queue is empty again, but was not before.
    let three = done(b.run(write(&k, "{\"queue\":[]}", Some(two))));
    hint(&mut a, &k);
    // Nobody waits, another's, refused, a session's, its own: no hint.
    let four = done(b.run(write(&k, "{\"queue\":[], \"a\":1}", Some(three))));
    done(b.run(write(&other, "{}", None)));
    b.run(write(&k, "{}", Some(one)));
    let session = Key::new("distlock/test/session/1");
    done(b.run(write(&session, "{}", None)));
    let five = done(a.run(write(&k, "{}", Some(four))));
    a.pass(Duration::from_millis(200));
    assert_eq!(a.events(), []);
    assert_eq!(b.run(remove(&k, five)), Reply::Removed);
    hint(&mut a, &k);
    // Listening ends a lease after nobody waits, and begins anew.
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'UNLISTEN%'";
    a.interest(&[]);
    a.pass(Duration::from_millis(6500));
    assert_eq!(server.sql(listening), "1");
    a.interest(&[other]);
    hint(&mut a, &key("other"));
}

#[test]
fn a_group_may_be_called_anything() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    for group in ["it's \"this\" \\ %n", "größer", &"long".repeat(50)] {
        let client = || {
            let mut options = server::options(server.tcp());
            options.group = group.to_owned();
            let store = distlock_stores::postgresql::Postgresql::new(options);
            let mut driver = Driver::new(Box::new(store));
            driver.up();
            driver
        };
        let (mut a, mut b) = (client(), client());
        let k = Key::new(format!("distlock/{group}/lock/k"));
        a.interest(std::slice::from_ref(&k));
        hint(&mut a, &k);
        done(b.run(write(&k, "{}", None)));
        hint(&mut a, &k);
        let op = Op::List {
            prefix: Key::new(format!("distlock/{group}/")),
            after: None,
        };
        assert!(matches!(a.run(op), Reply::Page { entries, more: false } if entries.len() == 1));
    }
}

#[test]
fn without_hints_nothing_is_told() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut options = server::options(server.tcp());
    options.has_hints = false;
    let store = distlock_stores::postgresql::Postgresql::new(options);
    let (mut a, mut b) = (Driver::new(Box::new(store)), server.client());
    a.up();
    let k = key("k");
    a.interest(std::slice::from_ref(&k));
    b.interest(std::slice::from_ref(&k));
    hint(&mut b, &k);
    done(a.run(write(&k, "{}", None)));
    b.pass(Duration::from_millis(200));
    assert_eq!((a.events(), b.events()), (vec![], vec![]));
}

/// Adds one to a register, as often as that, by compare-and-swap.
fn count(driver: &mut Driver, key: &Key, times: u32) {
    let mut known = None;
    let mut left = times;
    while left > 0 {
        let (number, expect) = match &known {
            None => (0, None),
            Some(Entry { value, version }) => {
                let text = std::str::from_utf8(value).unwrap();
                (text.parse::<u32>().unwrap(), Some(*version))
            }
        };
        let value = (number + 1).to_string();
        match driver.run(write(key, &value, expect)) {
            Reply::Done(version) => {
                known = Some(entry(&value, version));
                left -= 1;
            }
            Reply::Conflict(entry) => {
                let shown = entry.as_ref().map(|entry| entry.version);
                assert_ne!(shown, expect, "a conflict that proves nothing");
                known = entry;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn eight_that_increment_one_register_lose_no_increment() {
    // The second and the third isolation are not needed, but may be a database's default.
    let Some(server) = Server::start(&[]) else {
        return;
    };
    for isolation in ["read committed", "repeatable read", "serializable"] {
        server.sql(&format!(
            "ALTER ROLE postgres SET default_transaction_isolation = '{isolation}'; \
             TRUNCATE distlock"
        ));
        let k = key("count");
        let clients: Vec<Driver> = (0..8).map(|_| server.client()).collect();
        let is_strict = isolation != "read committed";
        let times = if is_strict { 10 } else { 125 };
        thread::scope(|scope| {
            for mut client in clients {
                let k = &k;
                scope.spawn(move || {
                    if is_strict {
                        count_though_unknown(&mut client, k, times);
                    } else {
                        count(&mut client, k, times);
                    }
                });
            }
        });
        let counted = server.sql("SELECT value FROM distlock");
        assert_eq!(counted, (8 * times).to_string(), "{isolation}");
    }
}

/// The same, where it may be unknown whether a write was done: here it was not.
fn count_though_unknown(driver: &mut Driver, key: &Key, times: u32) {
    let mut left = times;
    while left > 0 {
        let Reply::Value(known) = driver.run(read(key)) else {
            continue;
        };
        let number = known.as_ref().map_or(0, |entry| {
            let text = std::str::from_utf8(&entry.value).unwrap();
            text.parse::<u32>().unwrap()
        });
        let expect = known.map(|entry| entry.version);
        let reply = driver.run(write(key, &(number + 1).to_string(), expect));
        left -= u32::from(matches!(reply, Reply::Done(_)));
    }
}

#[test]
fn many_operations_go_at_once_and_are_answered_in_their_order() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let keys: Vec<Key> = (0..200).map(|number| key(&number.to_string())).collect();
    let writes: Vec<OpId> = keys
        .iter()
        .map(|k| a.submit(write(k, k.as_str(), None)))
        .collect();
    let reads: Vec<OpId> = keys.iter().map(|k| a.submit(read(k))).collect();
    let versions: Vec<Version> = writes.into_iter().map(|id| done(a.reply(id))).collect();
    for ((id, k), version) in reads.into_iter().zip(&keys).zip(versions) {
        assert_eq!(a.reply(id), Reply::Value(Some(entry(k.as_str(), version))));
    }
}

/// Prints what a write takes, beside statements of pgbench on the same server.
#[test]
#[ignore = "a measurement"]
fn latency() {
    // What the disk takes, and what it does not.
    for settings in [&[][..], &["fsync=off"]] {
        let Some(server) = Server::start(settings) else {
            return;
        };
        eprintln!("{settings:?}");
        measure(&server);
    }
}

fn measure(server: &Server) {
    let mut a = server.client();
    let k = key("k");
    let value = "{\"distlock\":1,\"permits\":1,\"fence\":\"1\",\"inside\":[],\"queue\":[]}";
    let mut version = done(a.run(write(&k, value, None)));
    let mut writes = vec![];
    let mut reads = vec![];
    for _ in 0..2000 {
        let begun = SystemTime::now();
        version = done(a.run(write(&k, value, Some(version))));
        writes.push(begun.elapsed().unwrap());
        let begun = SystemTime::now();
        a.run(read(&k));
        reads.push(begun.elapsed().unwrap());
    }
    writes.sort();
    reads.sort();
    eprintln!("write {:?}, read {:?} (medians)", writes[1000], reads[1000]);
    let script = server.directory.path().join("script");
    for sql in ["SELECT 1", "UPDATE distlock SET version = version + 1"] {
        std::fs::write(&script, format!("{sql};")).unwrap();
        let output = std::process::Command::new(server.program("pgbench"))
            .args(["-n", "-t", "2000", "-M", "extended", "-h", "127.0.0.1"])
            .args(["-U", "postgres", "-p", &server.port.to_string(), "-f"])
            .arg(&script)
            .arg("postgres")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("latency"));
        eprintln!("pgbench: {sql}: {}", line.unwrap());
    }
}
