//! Reads, writes, removals and lists.

use distlock_protocol::ledger::{Entry, Op, Reply, StoreEvent, Version};

use crate::driver::Driver;
use crate::etcd::{Server, directory, open, options};
use crate::{entry, key, read, version, write};

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
    let mut late = 0;
    for size in [1_600 << 10, 2_200 << 10, 9 << 20] {
        let why = loop {
            match driver.run(write("b", &vec![b'x'; size], None)) {
                Reply::Refused(why) => break why,
                // So much takes a busy host a while, and the client waits for two seconds at most.
                Reply::Unknown if late < 10 => late += 1,
                reply => panic!("{reply:?}"),
            }
        };
        assert!(why.contains("larger than"), "{why}");
    }
    assert_eq!(driver.run(read("b")), Reply::Value(None));
    if late == 0 {
        assert_eq!(driver.events(), [], "the connection goes on");
    }
}

#[test]
fn eight_writers_lose_no_increment() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let count = |entry: &Entry| -> u32 {
        let text = std::str::from_utf8(&entry.value).unwrap();
        text.parse().unwrap()
    };
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let mut options = options(&[server.address]);
            options.seed = seed;
            scope.spawn(move || {
                let mut driver = Driver::new(open(options));
                driver.up();
                let (mut left, mut there) = (25, None);
                while left > 0 {
                    let next = there.as_ref().map_or(0, count) + 1;
                    let expect = there.as_ref().map(|entry| entry.version);
                    let value = next.to_string().into_bytes();
                    match driver.run(write("count", &value, expect)) {
                        Reply::Done(version) => {
                            there = Some(Entry { value, version });
                            left -= 1;
                        }
                        Reply::Conflict(entry) => there = entry,
                        reply => panic!("{reply:?}"),
                    }
                }
            });
        }
    });
    let mut driver = Driver::new(open(options(&[server.address])));
    driver.up();
    let Reply::Value(Some(entry)) = driver.run(read("count")) else {
        panic!("there is a register");
    };
    assert_eq!(count(&entry), 200);
}
