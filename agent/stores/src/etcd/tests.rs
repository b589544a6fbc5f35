//! The client with a server that the test plays.

mod hints;
mod mutations;
mod server;

use std::time::Duration;

use distlock_protocol::ledger::{Entry, Op, Reply, StoreEvent, Version};

use self::server::{Play, Server, failure, http, key, read, reply, write};
use super::MOST_CONNECTIONS;

fn entry(value: &str, version: u64) -> Entry {
    let (value, version) = (value.as_bytes().to_vec(), Version(version));
    Entry { value, version }
}

/// What a client says of a server that answers so.
fn why(change: impl FnOnce(&mut Server)) -> String {
    let mut server = Server::new();
    change(&mut server);
    let mut play = Play::new(None);
    play.pass(Duration::ZERO);
    play.serve(&mut server);
    play.why_down()
}

#[test]
fn operations_are_done() {
    let mut server = Server::new();
    let mut play = Play::up(None, &mut server);
    let ids: Vec<_> = [
        write("a", "1", None),
        write("a", "2", None),
        read("a"),
        read("b"),
        write("a", "2", Some(Version(2))),
        Op::Remove {
            key: key("a"),
            expect: Version(2),
        },
        Op::Remove {
            key: key("a"),
            expect: Version(3),
        },
        Op::Remove {
            key: key("a"),
            expect: Version(3),
        },
    ]
    .map(|op| {
        let id = play.submit(op);
        play.serve(&mut server);
        id
    })
    .into();
    let replies = [
        Reply::Done(Version(2)),
        Reply::Conflict(Some(entry("1", 2))),
        Reply::Value(Some(entry("1", 2))),
        Reply::Value(None),
        Reply::Done(Version(3)),
        Reply::Conflict(Some(entry("2", 3))),
        Reply::Removed,
        Reply::Conflict(None),
    ];
    let expected: Vec<_> = ids
        .into_iter()
        .zip(replies)
        .map(|(id, one)| reply(id, one))
        .collect();
    assert_eq!(play.take(), expected);
}

#[test]
fn what_serves_no_locks_says_why() {
    assert!(why(|server| server.version = "3.3.27").contains("at least 3.4"));
    let mut newer = Server::new();
    newer.version = "4.0.0-alpha";
    Play::up(None, &mut newer);
    assert!(why(|server| server.version = "new").contains("no version"));
    assert!(why(|server| server.leader = "0").contains("no leader"));
    assert!(why(|server| server.cluster = 0).contains("no etcd"));
    let users = why(|server| server.token = Some("t".to_owned()));
    assert!(users.contains("none is named here"), "{users}");
    for (version, words) in [
        (http(200, r#"{"etcdserver":"3.3.27"}"#), "at least 3.4"),
        (
            http(200, r#"{"etcdserver":"3.5.1"}"#),
            "--enable-grpc-gateway=true",
        ),
        (http(404, "no"), "--enable-grpc-gateway=true"),
    ] {
        let mut play = Play::new(None);
        play.pass(Duration::ZERO);
        play.connect();
        for answer in [http(404, "404 page not found"), version] {
            let (stream, _) = play.request().unwrap();
            play.receive(stream, &answer);
        }
        let why = play.why_down();
        assert!(why.contains(words), "{why}");
    }
}

/// A client of which operations of these keys are under way, one on each connection.
fn busy(server: &mut Server, count: usize) -> (Play, Vec<distlock_protocol::ledger::OpId>) {
    let mut play = Play::up(None, server);
    let ids = (0..count)
        .map(|number| play.submit(read(&number.to_string())))
        .collect();
    play.connect();
    (play, ids)
}

#[test]
fn more_connections_come_and_go() {
    let mut server = Server::new();
    let (mut play, ids) = busy(&mut server, 100);
    // They come as those before are there.
    for _ in 0..MOST_CONNECTIONS {
        play.connect();
    }
    assert_eq!(play.sent.len(), MOST_CONNECTIONS);
    play.serve(&mut server);
    let mut events = play.take();
    events.sort_by_key(|event| match event {
        StoreEvent::Reply(id, _) => *id,
        event => panic!("{event:?}"),
    });
    let expected: Vec<_> = ids
        .into_iter()
        .map(|id| reply(id, Reply::Value(None)))
        .collect();
    assert_eq!(events, expected);
    // One that is idle may go without a word, but for the last.
    let last = *play.sent.keys().next_back().unwrap();
    play.disconnect(last);
    assert_eq!(play.take(), []);
    play.pass(Duration::from_secs(31));
    assert_eq!(play.sent.len(), 1);
    let first = *play.sent.keys().next().unwrap();
    play.disconnect(first);
    assert!(play.why_down().contains("it is gone"));
}

#[test]
fn a_spare_connection_that_is_refused_does_no_harm() {
    let mut server = Server::new();
    let mut play = Play::up(None, &mut server);
    let ids: Vec<_> = (0..10)
        .map(|number| play.submit(read(&number.to_string())))
        .collect();
    while let Some(stream) = play.connecting.pop() {
        play.disconnect(stream);
    }
    play.serve(&mut server);
    assert_eq!(play.take().len(), ids.len());
}

#[test]
fn what_is_under_way_when_a_connection_ends_is_unknown() {
    let mut server = Server::new();
    for end in ["gone", "late", "unasked", "strange", "other cluster", "502"] {
        let (mut play, ids) = busy(&mut server, 3);
        let (stream, request) = play.request().unwrap();
        match end {
            "gone" => play.disconnect(stream),
            "late" => play.pass(Duration::from_secs(2)),
            // Which of them was it that was asked for?
            "unasked" => play.receive(stream, &server.answer(&request).repeat(2)),
            "strange" => play.receive(stream, &http(200, "[]")),
            "502" => play.receive(stream, &http(502, "<html>")),
            _ => {
                server.cluster = 8;
                play.receive(stream, &server.answer(&request));
                server.cluster = 7;
            }
        }
        let mut events = play.take();
        let Some(StoreEvent::Down(_)) = events.pop() else {
            panic!("{end}: {events:?}");
        };
        let mut unknown: Vec<_> = ids.iter().map(|id| reply(*id, Reply::Unknown)).collect();
        events.sort_by_key(|event| format!("{event:?}"));
        unknown.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(events, unknown, "{end}");
        assert!(play.sent.is_empty() && play.connecting.is_empty());
        // What is asked for meanwhile is unknown, too.
        let id = play.submit(read("a"));
        assert_eq!(play.take(), [reply(id, Reply::Unknown)]);
        // Another host is tried, soon.
        play.pass(Duration::from_millis(100));
        play.serve(&mut server);
        assert!(matches!(play.take()[..], [StoreEvent::Up(_)]));
    }
}

#[test]
fn what_waits_too_long_is_unknown_alone() {
    let mut server = Server::new();
    let mut play = Play::up(None, &mut server);
    let ids = ["a", "b", "c"].map(|name| play.submit(read(name)));
    assert_eq!(play.connecting.len(), 1);
    play.pass(Duration::from_millis(1500));
    let (stream, request) = play.request().unwrap();
    play.receive(stream, &server.answer(&request));
    assert_eq!(play.take(), [reply(ids[0], Reply::Value(None))]);
    // The second is on its way now, and has its time; the other connection is not there either.
    play.pass(Duration::from_millis(1500));
    assert_eq!(play.take(), [reply(ids[2], Reply::Unknown)]);
    play.serve(&mut server);
    assert_eq!(play.take(), [reply(ids[1], Reply::Value(None))]);
}

/// What answers there may have been restored from a backup since, and have the version that a write expects.
#[test]
fn another_connection_takes_operations_once_the_same_store_answers_there() {
    let same: fn(&mut Server) = |_| {};
    let other: fn(&mut Server) = |server| server.cluster += 1;
    let gone_back: fn(&mut Server) = |server| server.revision = 0;
    for (change, is_same) in [(same, true), (other, false), (gone_back, false)] {
        let mut server = Server::new();
        let mut play = Play::up(None, &mut server);
        let ids = ["a", "b", "c"].map(|name| play.submit(write(name, "1", None)));
        play.connect();
        let (_, first) = play.request().unwrap();
        assert_eq!(first.path, "/v3/kv/txn");
        // The one that is new only asks.
        let (spare, request) = play.request().unwrap();
        assert_eq!(request.path, "/v3/kv/range");
        assert!(play.request().is_none());
        change(&mut server);
        play.receive(spare, &server.answer(&request));
        let next = play.request();
        if is_same {
            let (stream, request) = next.unwrap();
            assert_eq!((stream, &*request.path), (spare, "/v3/kv/txn"));
            continue;
        }
        assert!(next.is_none());
        let events = play.take();
        let unknown = ids.map(|id| reply(id, Reply::Unknown));
        assert!(unknown.iter().all(|one| events.contains(one)), "{events:?}");
        assert!(
            matches!(events.last(), Some(StoreEvent::Down(why)) if why.contains("another store"))
        );
        assert_eq!(server.registers.len(), 0);
    }
}

#[test]
fn of_a_full_database_a_read_tells() {
    let full = failure(429, 8, "etcdserver: mvcc: database space exceeded");
    for (is_done, at) in [
        (false, None),
        (false, Some(2)),
        (true, None),
        (true, Some(2)),
    ] {
        let mut server = Server::new();
        let mut play = Play::up(None, &mut server);
        if at.is_some() {
            play.submit(write("a", "1", None));
            play.serve(&mut server);
            play.take();
        }
        let id = play.submit(write("a", "2", at.map(Version)));
        let (stream, request) = play.request().unwrap();
        if is_done {
            server.answer(&request);
        }
        play.receive(stream, &full);
        play.serve(&mut server);
        match (&play.take()[..], is_done) {
            ([StoreEvent::Reply(of, Reply::Refused(why))], false) if *of == id => {
                assert!(why.contains("full"), "{why}");
            }
            ([StoreEvent::Reply(of, Reply::Unknown)], true) if *of == id => {}
            (events, _) => panic!("{is_done} {events:?}"),
        }
    }
}

#[test]
fn a_token_that_counts_no_more_is_replaced_and_nothing_is_lost() {
    let mut server = Server::new();
    server.token = Some("one".to_owned());
    let mut play = Play::up(Some("app"), &mut server);
    server.token = Some("two".to_owned());
    let ids: Vec<_> = (0..20)
        .map(|number| play.submit(write(&number.to_string(), "1", None)))
        .collect();
    play.serve(&mut server);
    let events = play.take();
    assert_eq!(events.len(), ids.len());
    let is_done = |event: &StoreEvent| matches!(event, StoreEvent::Reply(_, Reply::Done(_)));
    assert!(events.iter().all(is_done), "{events:?}");
    assert_eq!(server.revision, 21, "each was done once");

    // A server that accepts no token that it gives is not asked for ever.
    let mut play = Play::up(Some("app"), &mut server);
    let id = play.submit(write("a", "1", None));
    let mut asked = 0;
    while let Some((stream, request)) = play.request() {
        asked += 1;
        let answer = if request.path == "/v3/auth/authenticate" {
            server.answer(&request)
        } else {
            failure(401, 16, "etcdserver: invalid auth token")
        };
        play.receive(stream, &answer);
    }
    assert!(asked < 10);
    let events = play.take();
    let [StoreEvent::Reply(of, Reply::Unknown), StoreEvent::Down(_)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(*of, id);
}

#[test]
fn a_connection_that_closes_after_its_reply_has_replied() {
    let mut server = Server::new();
    let mut play = Play::up(None, &mut server);
    let id = play.submit(write("a", "1", None));
    let (stream, request) = play.request().unwrap();
    let answer = String::from_utf8(server.answer(&request)).unwrap();
    let answer = answer.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    play.receive(stream, answer.as_bytes());
    let events = play.take();
    let [first, StoreEvent::Down(why)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(*first, reply(id, Reply::Done(Version(2))));
    assert!(why.contains("closes the connection"), "{why}");
}

#[test]
fn a_token_is_a_word() {
    for token in ["", "a b", "a\r\nX-Y: z", "\u{e9}"] {
        let mut server = Server::new();
        server.token = Some(token.to_owned());
        let mut play = Play::new(Some("app"));
        play.pass(Duration::ZERO);
        play.serve(&mut server);
        let why = play.why_down();
        assert!(why.contains("no etcd"), "{why}");
    }
}

#[test]
fn what_is_too_much_is_not_kept() {
    let mut server = Server::new();
    let mut play = Play::up(None, &mut server);
    let megabyte = "x".repeat(1 << 20);
    for number in 0..20 {
        play.submit(write(&number.to_string(), &megabyte, None));
    }
    let unknown = play.take().len();
    // Each is a third longer in base64, and one is under way.
    assert_eq!(unknown, 20 - 1 - 11);
    let huge = "x".repeat((8 << 20) + 1);
    let id = play.submit(write("a", &huge, None));
    assert!(matches!(&play.take()[..], [StoreEvent::Reply(of, Reply::Refused(_))] if *of == id));

    // A page that is too long: the next is shorter.
    let mut play = Play::up(None, &mut server);
    let (prefix, after) = (key(""), None);
    let list = Op::List { prefix, after };
    play.submit(list.clone());
    let (stream, request) = play.request().unwrap();
    assert_eq!(request.body["limit"], "100");
    play.receive(
        stream,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    );
    for _ in 0..17 {
        play.receive(stream, megabyte.as_bytes());
    }
    assert!(matches!(play.take()[..], [_, StoreEvent::Down(_)]));
    play.pass(Duration::from_secs(1));
    play.serve(&mut server);
    play.submit(list);
    assert_eq!(play.request().unwrap().1.body["limit"], "50");
}
