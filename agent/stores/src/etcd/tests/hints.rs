//! Hints, by a watch that the test plays.

use std::time::Duration;

use distlock_protocol::ledger::{Store as _, StoreEvent, StreamId};
use serde_json::json;

use super::entry;
use super::server::{Play, Server, change, chunk, failure, key, watch};

/// A client that is interested in that key, and where its watch is.
fn watching(server: &mut Server, name: &str) -> (Play, StreamId) {
    let user = server.token.is_some().then_some("app");
    let mut play = Play::up(user, server);
    play.interest(&[name]);
    play.connect();
    let (stream, request) = play.request().unwrap();
    assert_eq!(request.path, "/v3/watch");
    play.receive(stream, &server.answer(&request));
    assert_eq!(play.take(), [StoreEvent::Missed]);
    (play, stream)
}

#[test]
fn hints_are_the_same_however_their_bytes_arrive() {
    let messages = [
        chunk(&change(7, "a", Some("1"), 2)),
        chunk(&change(7, "b", Some("1"), 3)),
        chunk(&json!({ "header": { "cluster_id": "7" } })),
        chunk(&change(7, "a", None, 4)),
    ];
    let bytes = messages.concat();
    let hints = [
        StoreEvent::Changed(key("a"), Some(entry("1", 2))),
        StoreEvent::Changed(key("b"), Some(entry("1", 3))),
        StoreEvent::Changed(key("a"), None),
    ];
    for step in 1..=bytes.len() {
        let (mut play, stream) = watching(&mut Server::new(), "a");
        for part in bytes.chunks(step) {
            play.receive(stream, part);
        }
        // Also of what nobody waits for: its holder may write next.
        assert_eq!(play.take(), hints, "{step}");
        // Nothing is told again to those who are interested later.
        play.interest(&["a", "b"]);
        assert_eq!(play.take(), []);
    }
}

#[test]
fn a_watch_that_ends_is_opened_anew() {
    let canceled = chunk(&json!({ "canceled": true, "cancel_reason": "compacted" }));
    let other = chunk(&change(8, "a", Some("1"), 2));
    let error = b"2f\r\n{\"error\":{\"grpc_code\":14,\"message\":\"stopped\"}}\n\r\n";
    for bytes in [
        &canceled[..],
        &other,
        error,
        b"0\r\n\r\n",
        b"x\r\n",
        b"4\r\nabc\n\r\n",
        b"",
    ] {
        let mut server = Server::new();
        let (mut play, stream) = watching(&mut server, "a");
        if bytes.is_empty() {
            play.disconnect(stream);
        } else {
            play.receive(stream, bytes);
        }
        assert_eq!(play.take(), [StoreEvent::Missed]);
        assert_eq!(play.connecting, []);
        play.pass(Duration::from_millis(300));
        play.serve(&mut server);
        assert_eq!(play.take(), [StoreEvent::Missed]);
    }
}

#[test]
fn a_watch_that_is_refused_is_tried_less_and_less() {
    let mut server = Server::new();
    let mut play = Play::up(None, &mut server);
    play.interest(&["a"]);
    let mut tries = 0;
    for _ in 0..600 {
        play.connect();
        while let Some((stream, request)) = play.request() {
            assert_eq!(request.path, "/v3/watch");
            tries += 1;
            play.receive(stream, &failure(403, 7, "etcdserver: permission denied"));
        }
        play.pass(Duration::from_millis(100));
    }
    assert!((8..40).contains(&tries), "{tries}");
    assert_eq!(play.take(), []);
    // Locks work without.
    play.submit(super::read("a"));
    assert_eq!(play.request().unwrap().1.path, "/v3/kv/range");
}

#[test]
fn a_watch_whose_token_counts_no_more_has_another_one() {
    let mut server = Server::new();
    server.token = Some("one".to_owned());
    let (mut play, stream) = watching(&mut server, "a");
    server.token = Some("two".to_owned());
    let why = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
    let canceled = json!({ "created": true, "canceled": true, "cancel_reason": why });
    play.receive(stream, &chunk(&canceled));
    assert_eq!(play.take(), [StoreEvent::Missed]);
    let (stream, request) = play.request().unwrap();
    assert_eq!(request.path, "/v3/auth/authenticate");
    play.receive(stream, &server.answer(&request));
    play.pass(Duration::from_millis(300));
    play.connect();
    let (_, request) = play.request().unwrap();
    assert_eq!(
        (request.path.as_str(), request.token),
        ("/v3/watch", server.token)
    );
}

#[test]
fn a_watch_is_there_while_somebody_is_interested() {
    let mut server = Server::new();
    let (mut play, stream) = watching(&mut server, "a");
    play.interest(&[]);
    play.pass(Duration::from_secs(5));
    // Who comes back soon finds it.
    play.interest(&["a"]);
    play.pass(Duration::from_secs(60));
    play.receive(stream, &chunk(&change(7, "a", Some("1"), 2)));
    assert_eq!(play.take().len(), 1);
    play.interest(&[]);
    play.pass(Duration::from_secs(11));
    assert_eq!(play.sent.len(), 1, "the watch is closed");

    // One that says nothing is given up.
    play.interest(&["a"]);
    play.connect();
    play.pass(Duration::from_secs(2));
    assert_eq!(play.sent.len(), 1);
    play.pass(Duration::from_millis(300));
    assert_eq!(play.connecting.len(), 1);
    // It goes with the connection.
    play.connect();
    let (stream, _) = play.request().unwrap();
    play.receive(stream, &watch(&json!({ "created": true })));
    play.take();
    let first = *play.sent.keys().next().unwrap();
    play.disconnect(first);
    assert!(matches!(play.take()[..], [StoreEvent::Down(_)]));
    assert!(play.sent.is_empty() && play.etcd.poll_timeout().is_some());
}
