//! The client of etcd, with a real one.

#![cfg(feature = "etcd")]

#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/driver.rs"]
mod driver;
#[path = "common/etcd.rs"]
mod etcd;
#[path = "common/proxy.rs"]
mod proxy;
#[path = "common/servers.rs"]
mod servers;

use std::time::{Duration, SystemTime};

use distlock_protocol::ledger::{Entry, Host, Key, Op, Reply, StoreEvent, Version};
use distlock_stores::Tls;
use zeroize::Zeroizing;

use self::certificates::{Authority, Identity};
use self::driver::Driver;
use self::etcd::{Server, directory, open, options};
use self::proxy::{Mishap, Proxy};

fn key(name: &str) -> Key {
    Key::new(format!("distlock/shop/{name}"))
}

fn write(name: &str, value: &[u8], expect: Option<Version>) -> Op {
    let (key, value) = (key(name), value.to_vec());
    Op::Write { key, value, expect }
}

fn read(name: &str) -> Op {
    Op::Read { key: key(name) }
}

fn version(reply: &Reply) -> Version {
    let Reply::Done(version) = reply else {
        panic!("{reply:?}");
    };
    *version
}

fn entry(value: &[u8], version: Version) -> Entry {
    let value = value.to_vec();
    Entry { value, version }
}

#[test]
fn registers_are_written_read_listed_and_removed() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    let facts = driver.up();
    assert!(
        !facts.may_forget && facts.identity.starts_with("etcd cluster "),
        "{facts:?}"
    );
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(driver.run(read("a")), Reply::Value(None));
    let first = version(&driver.run(write("a", &bytes, None)));
    assert_eq!(
        driver.run(read("a")),
        Reply::Value(Some(entry(&bytes, first)))
    );
    // Somebody else was faster.
    let there = Reply::Conflict(Some(entry(&bytes, first)));
    assert_eq!(driver.run(write("a", b"x", None)), there);
    assert_eq!(
        driver.run(write("a", b"x", Some(Version(first.0 + 1)))),
        there
    );
    assert_eq!(
        driver.run(write("b", b"x", Some(first))),
        Reply::Conflict(None)
    );
    let second = version(&driver.run(write("a", b"", Some(first))));
    assert!(second > first);
    let remove = |expect| Op::Remove {
        key: key("a"),
        expect,
    };
    let there = Reply::Conflict(Some(entry(b"", second)));
    assert_eq!(driver.run(remove(first)), there);
    assert_eq!(driver.run(remove(second)), Reply::Removed);
    assert_eq!(driver.run(remove(second)), Reply::Conflict(None));
    assert_eq!(driver.run(read("a")), Reply::Value(None));
    // What was removed begins anew, with another version.
    let third = version(&driver.run(write("a", b"z", None)));
    assert!(third > second);
}

#[test]
fn lists_come_in_pages_in_the_order_of_keys() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    driver.up();
    let mut expected = vec![];
    for number in 0..250 {
        let name = format!("session/{number:03}");
        expected.push(key(&name));
        driver.submit(write(&name, b"{}", None));
    }
    // Neighbours that are not of the list.
    for name in ["session", "session.", "session0", "lock/a"] {
        driver.submit(write(name, b"{}", None));
    }
    let mut left = 254;
    while left > 0 {
        driver.until("a write", |event| match event {
            StoreEvent::Reply(_, Reply::Done(_)) => Some(()),
            _ => None,
        });
        left -= 1;
    }
    let (mut found, mut pages) = (vec![], 0);
    loop {
        let (prefix, after) = (key("session/"), found.last().cloned());
        let reply = driver.run(Op::List { prefix, after });
        let Reply::Page { entries, more } = reply else {
            panic!("{reply:?}");
        };
        found.extend(entries.into_iter().map(|(key, _)| key));
        pages += 1;
        if !more {
            break;
        }
    }
    assert_eq!(found, expected);
    assert_eq!(pages, 3);
    let (prefix, after) = (key("session/"), Some(key("lock/a")));
    let page = driver.run(Op::List { prefix, after });
    assert!(matches!(page, Reply::Page { entries, more: true } if entries[0].0 == expected[0]));
    let (prefix, after) = (key("none/"), None);
    let (entries, more) = (vec![], false);
    assert_eq!(
        driver.run(Op::List { prefix, after }),
        Reply::Page { entries, more }
    );
}

fn changed(event: &StoreEvent) -> Option<(Key, Option<Entry>)> {
    match event {
        StoreEvent::Changed(key, entry) => Some((key.clone(), entry.clone())),
        _ => None,
    }
}

fn missed(event: &StoreEvent) -> Option<()> {
    matches!(event, StoreEvent::Missed).then_some(())
}

#[test]
fn who_is_interested_is_told_of_changes() {
    let directory = directory();
    let Some(mut server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    let mut other = Driver::new(open(options(&[server.address])));
    driver.up();
    other.up();
    let first = version(&other.run(write("lock/a", b"1", None)));
    driver.interest(&[key("lock/a")]);
    driver.until("the watch", missed);
    let second = version(&other.run(write("lock/a", b"2", Some(first))));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("lock/a"), Some(entry(b"2", second))));
    // Of others it is not told, nor of what is not the group's.
    let other_first = version(&other.run(write("lock/b", b"1", None)));
    let expect = Some(second);
    let third = version(&other.run(write("lock/a", b"3", expect)));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("lock/a"), Some(entry(b"3", third))));
    // But of what has changed just before.
    driver.interest(&[key("lock/b")]);
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("lock/b"), Some(entry(b"1", other_first))));
    let expect = other_first;
    let remove = Op::Remove {
        key: key("lock/b"),
        expect,
    };
    assert_eq!(other.run(remove), Reply::Removed);
    assert_eq!(driver.until("a hint", changed), (key("lock/b"), None));
    driver.interest(&[]);
    version(&other.run(write("lock/b", b"1", None)));
    driver.pass(Duration::from_millis(200));
    assert_eq!(driver.events(), []);

    // The server's restart ends the watch, and it begins anew.
    driver.interest(&[key("lock/b")]);
    server.kill();
    driver.down();
    driver.events();
    server.begin();
    driver.up();
    driver.until("the watch", missed);
    driver.events();
    other.up();
    let Reply::Value(Some(now)) = other.run(read("lock/b")) else {
        panic!("a restart forgets nothing");
    };
    let next = version(&other.run(write("lock/b", b"4", Some(now.version))));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("lock/b"), Some(entry(b"4", next))));
}

#[test]
fn a_write_whose_reply_is_lost_is_unknown_and_may_be_done_late() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let proxy = Proxy::new(server.address);
    let mut driver = Driver::new(open(options(&[proxy.address])));
    driver.up();
    let first = version(&driver.run(write("a", b"1", None)));

    // The server has done it, and the connection ends.
    proxy.set(Mishap::CutAtReply);
    assert_eq!(driver.run(write("a", b"2", Some(first))), Reply::Unknown);
    driver.down();
    proxy.set(Mishap::None);
    driver.up();
    let Reply::Value(Some(second)) = driver.run(read("a")) else {
        panic!("there is a register");
    };
    assert_eq!(second.value, b"2");

    // It has done it, and nobody ever answers: the client gives up in time, and with it what waits.
    proxy.set(Mishap::LoseReplies);
    let begun = SystemTime::now();
    let lost = driver.submit(write("a", b"3", Some(second.version)));
    let other = driver.submit(read("a"));
    assert_eq!(driver.reply(lost), Reply::Unknown);
    assert_eq!(driver.reply(other), Reply::Unknown);
    let why = driver.down();
    assert!(why.contains("no reply for 2s"), "{why}");
    let took = begun.elapsed().unwrap();
    assert!(took < Duration::from_secs(4), "{took:?}");
    proxy.set(Mishap::None);
    driver.up();
    let third = driver.run(read("a"));
    assert!(
        matches!(&third, Reply::Value(Some(entry)) if entry.value == b"3"),
        "{third:?}"
    );
    let Reply::Value(Some(third)) = third else {
        unreachable!();
    };

    // It is on its way, and is done after the client has connected again.
    let direct = Proxy::new(server.address);
    let mut other = Driver::new(open(options(&[direct.address])));
    other.up();
    proxy.set(Mishap::HoldRequests);
    assert_eq!(
        driver.run(write("a", b"late", Some(third.version))),
        Reply::Unknown
    );
    let there = Reply::Value(Some(third));
    assert_eq!(other.run(read("a")), there);
    proxy.set(Mishap::None);
    for _ in 0..200 {
        if other.run(read("a")) != there {
            break;
        }
        other.pass(Duration::from_millis(20));
    }
    let late = other.run(read("a"));
    assert!(
        matches!(&late, Reply::Value(Some(entry)) if entry.value == b"late"),
        "{late:?}"
    );
}

#[test]
fn what_is_too_large_is_refused_in_words() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    driver.up();
    let big = vec![b'x'; 1 << 20];
    let first = version(&driver.run(write("a", &big, None)));
    let there = driver.run(read("a"));
    assert!(
        there == Reply::Value(Some(entry(&big, first))),
        "it is there"
    );
    // More than etcd's limit, then more than gRPC's, which is 0.5 MiB above it, and more than the client's.
    for size in [1_600 << 10, 4 << 20, 9 << 20] {
        let reply = driver.run(write("b", &vec![b'x'; size], None));
        let Reply::Refused(why) = reply else {
            panic!("{reply:?}");
        };
        assert!(why.contains("larger than"), "{why}");
    }
    assert_eq!(driver.run(read("b")), Reply::Value(None));
    assert_eq!(driver.events(), [], "the connection goes on");
}

#[test]
fn a_full_database_refuses_what_a_read_then_shows_to_be_undone() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &["--quota-backend-bytes", "2000000"]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    driver.up();
    let mut expect = None;
    let mut refused = None;
    for number in 0..40 {
        let value = vec![number; 200 << 10];
        match driver.run(write("a", &value, expect)) {
            Reply::Done(version) => expect = Some(version),
            // etcd says that it is full of a write that it has done, too.
            Reply::Unknown => {
                let Reply::Value(Some(there)) = driver.run(read("a")) else {
                    panic!("there is a register");
                };
                assert_eq!(there.value, value);
                expect = Some(there.version);
            }
            Reply::Refused(why) => {
                refused = Some(why);
                break;
            }
            reply => panic!("{reply:?}"),
        }
    }
    let why = refused.expect("it is full in the end");
    assert!(why.contains("database is full"), "{why}");
    let there = driver.run(read("a"));
    assert!(matches!(there, Reply::Value(Some(there)) if Some(there.version) == expect));
}

#[test]
fn users_sign_in_and_tokens_that_expire_are_replaced() {
    let directory = directory();
    // Seconds; the least.
    let Some(server) = Server::start(&directory, &["--auth-token-ttl", "1"]) else {
        return;
    };
    server.have_users();
    let as_user = |user: &str, password: &str| {
        let mut options = options(&[server.address]);
        options.user = Some(user.to_owned());
        options.password = Some(Zeroizing::new(password.to_owned()));
        options
    };
    let mut driver = Driver::new(open(as_user("app", "se\"cret")));
    driver.up();
    let mut other = Driver::new(open(as_user("root", "root")));
    other.up();
    driver.interest(&[key("a")]);
    driver.until("the watch", missed);
    let first = version(&driver.run(write("a", b"1", None)));
    // The hint may come before the reply.
    assert_eq!(
        driver.until("a hint", changed),
        (key("a"), Some(entry(b"1", first)))
    );
    driver.pass(Duration::from_secs(4));
    driver.events();
    let ids: Vec<_> = (0..20).map(|_| driver.submit(read("a"))).collect();
    for id in ids {
        assert_eq!(driver.reply(id), Reply::Value(Some(entry(b"1", first))));
    }
    let second = version(&driver.run(write("a", b"2", Some(first))));
    let events = driver.events();
    let is_down = |event: &StoreEvent| matches!(event, StoreEvent::Down(_));
    assert!(!events.iter().any(is_down), "{events:?}");
    // A watch outlives its token, or is opened anew with another.
    driver.pass(Duration::from_secs(1));
    version(&other.run(write("a", b"3", Some(second))));
    driver.until("a hint", |event| match event {
        StoreEvent::Changed(_, Some(entry)) if entry.value == b"3" => Some(()),
        _ => None,
    });

    // Elsewhere it may do nothing.
    let (prefix, after) = (Key::new("other/"), None);
    let reply = driver.run(Op::List { prefix, after });
    assert!(
        matches!(&reply, Reply::Refused(why) if why.contains("permission")),
        "{reply:?}"
    );
    let (key, value, expect) = (Key::new("other/a"), b"x".to_vec(), None);
    let reply = driver.run(Op::Write { key, value, expect });
    assert!(
        matches!(&reply, Reply::Refused(why) if why.contains("permission")),
        "{reply:?}"
    );

    for (options, words) in [
        (as_user("app", "wrong"), "password is another one"),
        (as_user("nobody", "x"), "password is another one"),
        (options(&[server.address]), "none is named here"),
    ] {
        let mut driver = Driver::new(open(options));
        let why = driver.down();
        assert!(why.contains(words), "{why}");
    }
    let mut options = as_user("app", "se\"cret");
    options.group = "other".to_owned();
    let mut driver = Driver::new(open(options));
    let why = driver.down();
    assert!(why.contains("permission readwrite"), "{why}");
}

#[test]
fn a_user_is_no_hindrance_where_there_are_none() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut options = options(&[server.address]);
    options.user = Some("app".to_owned());
    options.password = Some(Zeroizing::new("se\"cret".to_owned()));
    let mut driver = Driver::new(open(options));
    driver.up();
    let first = version(&driver.run(write("a", b"1", None)));
    // They are switched on while the agent works.
    server.have_users();
    let there = Reply::Value(Some(entry(b"1", first)));
    assert_eq!(driver.run(read("a")), there);
    version(&driver.run(write("a", b"2", Some(first))));
    assert_eq!(driver.events(), []);
}

#[test]
fn a_majority_goes_on_when_the_leader_dies() {
    let directory = directory();
    let Some(mut servers) = Server::members(&directory, 3, &[]) else {
        return;
    };
    std::thread::scope(|scope| {
        for server in &mut servers {
            scope.spawn(|| server.begin());
        }
    });
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let mut driver = Driver::new(open(options(&addresses)));
    let facts = driver.up();
    let first = version(&driver.run(write("a", b"1", None)));
    let leader = servers.iter().position(|server| {
        let status = server.post("/v3/maintenance/status", "{}");
        let after = |name: &str| {
            let rest = &status[status.find(name).unwrap() + name.len()..];
            rest.split('"').nth(2).unwrap().to_owned()
        };
        after("member_id") == after("leader")
    });
    servers[leader.unwrap()].kill();
    let begun = SystemTime::now();
    let mut expect = first;
    // As the ledger does: what is unknown is followed by another write of the same version.
    for attempt in 0.. {
        let value = format!("after {attempt}").into_bytes();
        match driver.run(write("a", &value, Some(expect))) {
            Reply::Done(_) => break,
            Reply::Conflict(Some(there)) => expect = there.version,
            Reply::Unknown => {}
            reply => panic!("{reply:?}"),
        }
        assert!(begun.elapsed().unwrap() < Duration::from_secs(20));
        driver.pass(Duration::from_millis(100));
    }
    eprintln!(
        "another leader was there after {:?}",
        begun.elapsed().unwrap()
    );

    // One alone serves nothing, and says so.
    let left = (0..3).find(|at| Some(*at) != leader).unwrap();
    servers[left].kill();
    let mut alone = Driver::new(open(options(&addresses)));
    let no_leader = alone.until("no leader", |event| match event {
        StoreEvent::Down(why) if why.contains("no leader") => Some(why.clone()),
        StoreEvent::Up(facts) => panic!("{facts:?}"),
        _ => None,
    });
    assert!(no_leader.contains("cut off"), "{no_leader}");
    // It is the same store when they are back.
    servers[left].begin();
    assert_eq!(alone.up(), facts);
}

#[test]
fn a_store_that_lost_its_data_is_another_one() {
    let directory = directory();
    let Some(mut server) = Server::start(&directory, &[]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    let before = driver.up();
    for name in ["a", "b", "c"] {
        version(&driver.run(write(name, b"1", None)));
    }
    server.kill();
    driver.down();
    server.begin();
    assert_eq!(driver.up(), before, "a restart makes it no other");
    server.kill();
    server.wipe();
    driver.down();
    // It has the same id, as that is made of the members' addresses.
    server.begin();
    let after = driver.up();
    assert_ne!(before.identity, after.identity);
    assert_eq!(driver.run(read("a")), Reply::Value(None));
}

#[test]
fn without_a_gateway_it_says_what_to_do() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &["--enable-grpc-gateway=false"]) else {
        return;
    };
    let mut driver = Driver::new(open(options(&[server.address])));
    let why = driver.down();
    assert!(why.contains("--enable-grpc-gateway=true"), "{why}");
}

/// What is under a path as a file of that name.
fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn tls_and_certificates() {
    let directory = directory();
    let (authority, other) = (Authority::new("authority"), Authority::new("another"));
    let own = authority.certify(Some("etcd"), &["127.0.0.1"]);
    let ca = file(&directory, "ca.pem", &authority.certificate);
    let certificate = file(&directory, "server.pem", &own.certificate);
    let key_file = file(&directory, "server.key", &own.key);
    let sealed = ["--cert-file", &certificate, "--key-file", &key_file];
    let Some(server) = Server::start(&directory, &sealed) else {
        return;
    };
    let with = |server: &Server, ca: Option<&Authority>, identity: Option<&Identity>| {
        let mut options = options(&[server.address]);
        options.tls = ca.map(|ca| {
            let identity = identity.map(|one| (one.certificate.as_bytes(), one.key.as_bytes()));
            Tls::new(Some(ca.certificate.as_bytes()), identity).unwrap()
        });
        options
    };
    let mut driver = Driver::new(open(with(&server, Some(&authority), None)));
    driver.up();
    driver.interest(&[key("a")]);
    driver.until("the watch", missed);
    // Longer than a record of TLS, and what rustls keeps.
    let value = vec![b'x'; 200_000];
    let first = version(&driver.run(write("a", &value, None)));
    let hint = driver.until("a hint", changed);
    assert_eq!(hint, (key("a"), Some(entry(&value, first))));
    let there = Reply::Value(Some(entry(&value, first)));
    let ids: Vec<_> = (0..8).map(|_| driver.submit(read("a"))).collect();
    for id in ids {
        assert!(
            driver.reply(id) == there,
            "the same value on each connection"
        );
    }
    for (options, words) in [
        (
            with(&server, Some(&other), None),
            "no authority that is trusted",
        ),
        (with(&server, None, None), "write etcds://"),
    ] {
        let why = Driver::new(open(options)).down();
        assert!(why.contains(words), "{why}");
    }
    let mut by_name = with(&server, Some(&authority), None);
    let port = server.address.port();
    by_name.hosts = vec![Host::Tcp {
        name: "localhost".to_owned(),
        port,
    }];
    let why = Driver::new(open(by_name)).down();
    assert!(why.contains("another host than localhost"), "{why}");

    // A server that speaks no TLS.
    let plain = etcd::directory();
    let Some(plain_server) = Server::start(&plain, &[]) else {
        return;
    };
    let why = Driver::new(open(with(&plain_server, Some(&authority), None))).down();
    assert!(why.contains("etcd://"), "{why}");

    // One that wants certificates of clients.
    let mut strict = sealed.to_vec();
    strict.extend(["--client-cert-auth", "--trusted-ca-file", &ca]);
    let strict_directory = etcd::directory();
    let Some(strict) = Server::start(&strict_directory, &strict) else {
        return;
    };
    let why = Driver::new(open(with(&strict, Some(&authority), None))).down();
    assert!(
        why.contains("wants one") || why.contains("wants a"),
        "{why}"
    );
    let nameless = authority.certify(None, &[]);
    let named = authority.certify(Some("app"), &[]);
    for identity in [&nameless, &named] {
        let mut driver = Driver::new(open(with(&strict, Some(&authority), Some(identity))));
        driver.up();
        assert!(matches!(driver.run(read("none")), Reply::Value(None)));
    }

    // With users, etcd's gateway takes no certificate with a name.
    let users_directory = etcd::directory();
    let Some(mut users) = Server::start(&users_directory, &[]) else {
        return;
    };
    users.have_users();
    users.kill();
    let mut options = sealed.to_vec();
    options.extend(["--client-cert-auth", "--trusted-ca-file", &ca]);
    let Some(users) = Server::start(&users_directory, &options) else {
        return;
    };
    let as_user = |identity| {
        let mut options = with(&users, Some(&authority), Some(identity));
        options.user = Some("app".to_owned());
        options.password = Some(Zeroizing::new("se\"cret".to_owned()));
        options
    };
    let mut driver = Driver::new(open(as_user(&nameless)));
    driver.up();
    assert!(matches!(driver.run(read("none")), Reply::Value(None)));
    let why = Driver::new(open(as_user(&named))).down();
    assert!(why.contains("common name"), "{why}");
}
