//! Connections that break, replies that are lost, requests that come late, and others that write too.

use std::thread;
use std::time::Duration;

use distlock_protocol::ledger::{Entry, Reply, Version};
use distlock_stores::postgresql::Postgresql;

use crate::driver::Driver;
use crate::proxy::{Mishap, Proxy};
use crate::server::{Server, options};
use crate::{done, entry, key, read, remove, write};

#[test]
fn a_write_that_waits_for_another_is_refused_by_what_that_one_wrote() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let k = key("k");
    let name = k.as_str();
    let moment = Duration::from_millis(100);
    let mut version = done(a.run(write(&k, "{}", None)));
    // The snapshot of the statement that waits has the version that is expected.
    for op in [write(&k, "mine", Some(version)), remove(&k, version)] {
        let update = format!("UPDATE distlock SET version = version - 1 WHERE key = '{name}'");
        let other = server.transaction(&update);
        let id = a.submit(op);
        a.pass(moment);
        assert_eq!(a.events(), []);
        other.end("COMMIT");
        let Reply::Conflict(Some(Entry {
            value,
            version: shown,
        })) = a.reply(id)
        else {
            panic!("no conflict");
        };
        assert_eq!(value, b"{}");
        assert_ne!(shown, version);
        // The next one expects what there was.
        server.sql(&format!(
            "UPDATE distlock SET version = {}",
            version.0.cast_signed()
        ));
    }
    let other = server.transaction("DELETE FROM distlock");
    let id = a.submit(write(&k, "mine", Some(version)));
    a.pass(moment);
    other.end("COMMIT");
    assert_eq!(a.reply(id), Reply::Conflict(None));
    let insert = format!("INSERT INTO distlock VALUES ('{name}', '1', 1)");
    let other = server.transaction(&insert);
    let id = a.submit(write(&k, "mine", None));
    a.pass(moment);
    other.end("COMMIT");
    let expected = Reply::Conflict(Some(entry("1", Version(1))));
    assert_eq!(a.reply(id), expected);
    // What the other did not do in the end refuses nothing.
    for sql in ["UPDATE distlock SET version = 2", "DELETE FROM distlock"] {
        let before = match a.run(read(&k)) {
            Reply::Value(Some(entry)) => entry.version,
            other => panic!("{other:?}"),
        };
        let other = server.transaction(sql);
        let id = a.submit(write(&k, "mine", Some(before)));
        a.pass(moment);
        other.end("ROLLBACK");
        version = done(a.reply(id));
    }
    assert_eq!(a.run(read(&k)), Reply::Value(Some(entry("mine", version))));
}

#[test]
fn a_write_waits_in_the_server_for_no_longer_than_it_is_waited_for() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let k = key("k");
    let version = done(a.run(write(&k, "{}", None)));
    let other = server.transaction("SELECT FROM distlock FOR UPDATE");
    for _ in 0..3 {
        assert_eq!(a.run(write(&k, "mine", Some(version))), Reply::Unknown);
    }
    // The connection is the same, and nobody waits in the server.
    assert_eq!(a.events(), []);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'distlock'";
    assert_eq!(server.sql(sql), "1");
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_locks WHERE NOT granted"),
        "0"
    );
    other.end("COMMIT");
    done(a.run(write(&k, "mine", Some(version))));
}

#[test]
fn a_connection_that_the_server_ends_is_followed_by_another() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let k = key("k");
    let version = done(a.run(write(&k, "{}", None)));
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE application_name = 'distlock'";
    let other = server.transaction("SELECT FROM distlock FOR UPDATE");
    // In the middle of a write.
    let id = a.submit(write(&k, "mine", Some(version)));
    a.pass(Duration::from_millis(100));
    assert_eq!(server.sql(terminate), "t");
    let why = a.down();
    assert!(why.contains("57P01"), "{why}");
    a.up();
    other.end("COMMIT");
    let _ = id;
    let version = done(a.run(write(&k, "mine", Some(version))));
    // Between operations.
    assert_eq!(server.sql(terminate), "t");
    a.down();
    a.up();
    assert_eq!(a.run(read(&k)), Reply::Value(Some(entry("mine", version))));
}

#[test]
fn what_was_acknowledged_outlives_a_crash_of_the_server() {
    // The default that the database has here would lose what was written in the last ten seconds.
    let lazy = ["synchronous_commit=off", "wal_writer_delay=10s"];
    let Some(mut server) = Server::start(&lazy) else {
        return;
    };
    let mut a = server.client();
    let k = key("k");
    let mut version = None;
    for number in 0..20 {
        version = Some(done(a.run(write(&k, &number.to_string(), version))));
    }
    server.stop_immediately();
    let why = a.down();
    assert!(why.contains(&server.port.to_string()), "{why}");
    server.run();
    let facts = a.up();
    assert!(!facts.may_forget);
    let kept = entry("19", version.unwrap());
    assert_eq!(a.run(read(&k)), Reply::Value(Some(kept)));
}

/// A client behind that proxy, which is patient for a third of a second.
fn behind(proxy: &Proxy) -> Driver {
    let mut options = options(distlock_protocol::ledger::Host::Tcp {
        name: "127.0.0.1".to_owned(),
        port: proxy.address.port(),
    });
    options.lease = Duration::from_secs(1);
    let mut driver = Driver::new(Box::new(Postgresql::new(options)));
    driver.up();
    driver
}

#[test]
fn writes_whose_replies_are_lost_are_unknown_and_settled_by_the_next() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let address = format!("127.0.0.1:{}", server.port).parse().unwrap();
    let proxy = Proxy::new(address);
    let mut a = behind(&proxy);
    let k = key("k");
    let mut known = None;
    for (number, mishap) in [Mishap::CutAtReply, Mishap::LoseReplies]
        .into_iter()
        .enumerate()
    {
        proxy.set(mishap);
        let value = format!("lost {number}");
        a.submit(write(&k, &value, known));
        let why = a.down();
        proxy.set(Mishap::None);
        if mishap == Mishap::LoseReplies {
            assert!(why.contains("no reply for 333 ms"), "{why}");
        }
        a.up();
        // It was done, and the next one on the same version shows it.
        match a.run(write(&k, "next", known)) {
            Reply::Conflict(Some(entry)) => {
                assert_eq!(entry.value, value.as_bytes());
                known = Some(entry.version);
            }
            other => panic!("{mishap:?}: {other:?}"),
        }
    }
}

#[test]
fn a_write_that_comes_late_is_refused_once_its_version_is_over() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let address = format!("127.0.0.1:{}", server.port).parse().unwrap();
    let proxy = Proxy::new(address);
    let (mut a, mut b) = (behind(&proxy), server.client());
    let k = key("k");
    let one = done(a.run(write(&k, "one", None)));
    proxy.set(Mishap::HoldRequests);
    a.submit(write(&k, "late", Some(one)));
    a.down();
    let two = done(b.run(write(&k, "two", Some(one))));
    proxy.set(Mishap::None);
    a.up();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(b.run(read(&k)), Reply::Value(Some(entry("two", two))));
    // And is done late if it is not.
    proxy.set(Mishap::HoldRequests);
    a.submit(write(&k, "late", Some(two)));
    a.down();
    assert_eq!(b.run(read(&k)), Reply::Value(Some(entry("two", two))));
    proxy.set(Mishap::None);
    a.up();
    thread::sleep(Duration::from_millis(200));
    let Reply::Conflict(Some(shown)) = b.run(write(&k, "three", Some(two))) else {
        panic!("the late write was not done");
    };
    assert_eq!(shown.value, b"late");
}

#[test]
fn a_database_without_the_table_says_how_to_make_it() {
    let Some(server) = Server::bare(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let k = key("k");
    for op in [read(&k), write(&k, "{}", None)] {
        match a.run(op) {
            Reply::Refused(why) => assert!(why.contains("distlock store init"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    // Once, and once more.
    for _ in 0..2 {
        let store = Postgresql::initializing(options(server.tcp()));
        Driver::new(Box::new(store)).up();
    }
    let version = done(a.run(write(&k, "{}", None)));
    let store = Postgresql::initializing(options(server.tcp()));
    let mut again = Driver::new(Box::new(store));
    again.up();
    assert_eq!(
        again.run(read(&k)),
        Reply::Value(Some(entry("{}", version)))
    );
}

#[test]
fn a_user_without_rights_is_told_which() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    server.sql("CREATE ROLE app LOGIN");
    let mut options = options(server.tcp());
    (options.user, options.database) = (Some("app".to_owned()), Some("postgres".to_owned()));
    let mut a = Driver::new(Box::new(Postgresql::new(options)));
    let facts = a.up();
    assert!(facts.identity.ends_with("/00000001"), "{facts:?}");
    let k = key("k");
    for op in [read(&k), write(&k, "{}", None)] {
        match a.run(op) {
            Reply::Refused(why) => assert!(why.contains("GRANT"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON distlock TO app");
    let version = done(a.run(write(&k, "{}", None)));
    assert_eq!(a.run(remove(&k, version)), Reply::Removed);
}

#[test]
fn a_constraint_a_trigger_and_a_database_that_is_read_only_do_nothing() {
    let Some(server) = Server::start(&["fsync=off"]) else {
        return;
    };
    let mut a = server.client();
    let k = key("k");
    server.sql("ALTER TABLE distlock ADD CHECK (length(value) < 10)");
    match a.run(write(&k, "much too long", None)) {
        Reply::Refused(why) => assert!(why.contains("23514"), "{why}"),
        other => panic!("{other:?}"),
    }
    // One that is checked at the commit, after the statement was done.
    server.sql(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'never'; END $$; \
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON distlock \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()",
    );
    match a.run(write(&k, "{}", None)) {
        Reply::Refused(why) => assert!(why.contains("never"), "{why}"),
        other => panic!("{other:?}"),
    }
    server.sql("DROP TRIGGER late ON distlock");
    assert_eq!(a.run(read(&k)), Reply::Value(None));
    let version = done(a.run(write(&k, "{}", None)));
    server.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    server.sql("SELECT pg_reload_conf()");
    thread::sleep(Duration::from_millis(200));
    a.submit(write(&k, "1", Some(version)));
    let why = a.down();
    assert!(why.contains("25006"), "{why}");
    let why = a.down();
    assert!(why.contains("read only"), "{why}");
    server.sql("ALTER SYSTEM RESET default_transaction_read_only");
    server.sql("SELECT pg_reload_conf()");
    a.up();
    assert_eq!(a.run(read(&k)), Reply::Value(Some(entry("{}", version))));
}
