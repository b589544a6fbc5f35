//! Servers that die, lose replies, are full, or have no gateway.

use std::time::{Duration, SystemTime};

use distlock_protocol::ledger::{Reply, StoreEvent};

use crate::driver::Driver;
use crate::etcd::{Server, directory, open, options};
use crate::proxy::{Mishap, Proxy};
use crate::{read, version, write};

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
