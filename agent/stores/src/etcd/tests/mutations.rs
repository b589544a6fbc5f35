//! A server that says anything at all.

use std::time::Duration;

use distlock_protocol::ledger::{Op, StoreEvent, Version};
use proptest::collection::vec;
use proptest::prelude::*;

use super::server::{Play, Server, key, read, write};
use crate::etcd::http::Reader;
use crate::etcd::json;

/// What happens to a reply.
#[derive(Clone, Debug)]
enum Mishap {
    None,
    /// A byte is another one.
    Byte(usize, u8),
    /// A piece is missing.
    Hole(usize, usize),
    /// The rest is missing, for ever or until the connection ends.
    Cut(usize, bool),
    /// It is there twice.
    Twice,
    /// Something else is said.
    Else(Vec<u8>),
    /// Nothing is said.
    Silence,
    /// The next connection is refused.
    Refuse,
}

fn mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        6 => Just(Mishap::None),
        3 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mishap::Byte(at, byte)),
        1 => (any::<usize>(), 1..20_usize).prop_map(|(at, count)| Mishap::Hole(at, count)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(at, ends)| Mishap::Cut(at, ends)),
        1 => Just(Mishap::Twice),
        1 => vec(any::<u8>(), 0..100).prop_map(Mishap::Else),
        1 => Just(Mishap::Silence),
        1 => Just(Mishap::Refuse),
    ]
}

fn operation(number: u8) -> Op {
    let name = (number % 3).to_string();
    let expect = match number % 5 {
        0 => None,
        version => Some(Version(u64::from(version))),
    };
    match number % 4 {
        0 => read(&name),
        1 => write(&name, "value", expect),
        2 => Op::Remove {
            key: key(&name),
            expect: expect.unwrap_or(Version(1)),
        },
        _ => Op::List {
            prefix: key(""),
            after: number.is_multiple_of(8).then(|| key(&name)),
        },
    }
}

/// One answer, with its mishap.
fn answer(play: &mut Play, server: &mut Server, mishap: Mishap) {
    let Some((stream, request)) = play.request() else {
        return;
    };
    let mut bytes = server.answer(&request);
    let length = bytes.len();
    match mishap {
        Mishap::None => {}
        Mishap::Byte(at, byte) => bytes[at % length] = byte,
        Mishap::Hole(at, count) => {
            let begin = at % length;
            bytes.drain(begin..(begin + count).min(length));
        }
        Mishap::Cut(at, ends) => {
            play.receive(stream, &bytes[..at % length]);
            if ends && play.sent.contains_key(&stream) {
                play.disconnect(stream);
            }
            return;
        }
        Mishap::Twice => bytes = bytes.repeat(2),
        Mishap::Else(other) => bytes = other,
        Mishap::Silence => return,
        Mishap::Refuse => {
            if let Some(stream) = play.connecting.pop() {
                play.disconnect(stream);
            }
        }
    }
    for part in bytes.chunks(37) {
        play.receive(stream, part);
    }
}

proptest! {
    /// Nothing panics, each operation has one reply, what is due is done, and when the server is well again
    /// so is the client.
    #[test]
    fn a_server_may_say_anything(
        has_users in any::<bool>(),
        turns in vec((mishap(), any::<u8>(), 0..700_u64), 1..80),
    ) {
        let mut server = Server::new();
        server.token = has_users.then(|| "token".to_owned());
        let mut play = Play::new(has_users.then_some("app"));
        for (mishap, number, millis) in turns {
            play.connect();
            play.submit(operation(number));
            play.submit(operation(number / 3));
            if number % 7 == 0 {
                play.interest(if number % 2 == 0 { &["0", "1"] } else { &[] });
            }
            if number % 31 == 0 {
                server.token = has_users.then(|| format!("token{number}"));
            }
            answer(&mut play, &mut server, mishap);
            play.pass(Duration::from_millis(millis));
        }
        for _ in 0..100 {
            play.serve(&mut server);
            play.pass(Duration::from_millis(100));
        }
        prop_assert!(play.under_way.is_empty());
        play.take();
        let id = play.submit(read("a"));
        play.serve(&mut server);
        let events = play.take();
        let is_answered = |event: &StoreEvent| matches!(event, StoreEvent::Reply(of, _) if *of == id);
        prop_assert!(events.iter().any(is_answered), "{events:?}");
    }

    #[test]
    fn bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..200), step in 1..50_usize) {
        let mut reader = Reader::default();
        for part in bytes.chunks(step) {
            reader.arrived(part);
            while let Ok(Some(_)) = reader.piece() {}
        }
        for op in (0..20).map(operation) {
            json::answer(&op, &bytes);
        }
        json::watch_message(&bytes);
        json::token(&bytes);
    }
}
