//! ZooKeeper's lock recipe:
//! <https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks>.
//!
//! The clients for Rust are old, or bring an async runtime of their own; of the protocol little is
//! needed. A frame is its length and a body of big-endian numbers, and of texts with their lengths.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::{Locks, patiently};
use crate::shared::LOCKS;

/// How long a session may be silent, in milliseconds: longer than any run, so that none is pinged.
const SESSION_MS: i32 = 3_600_000;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const READ: i32 = 4;
const CHILDREN: i32 = 8;
const CLOSE: i32 = -11;

const EPHEMERAL_SEQUENTIAL: i32 = 3;

const OK: i32 = 0;
const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;

/// What a watch that has fired carries in place of a request's number.
const WATCH: i32 = -1;

/// A session.
pub(super) struct ZooKeeper {
    stream: TcpStream,
    requests: i32,
    /// The node that stands in the queue for us.
    node: String,
}

impl ZooKeeper {
    pub(super) fn open(address: &str) -> Self {
        let mut zookeeper = patiently(|| Self::connect(address));
        // Each tries: whoever is first makes them.
        for lock in 0..LOCKS {
            let (error, _) = zookeeper.create(&queue(lock), 0);
            assert!(matches!(error, OK | NODE_EXISTS), "error {error}");
        }
        zookeeper
    }

    fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut zookeeper = Self {
            stream,
            requests: 0,
            node: String::new(),
        };
        // Version 0, nothing seen, a new session without a password, not read-only.
        let mut body = Body::default().number(0).number(0).number(0);
        body = body.number(SESSION_MS).number(0).number(0);
        body = body.text(&"\0".repeat(16));
        body.0.push(0);
        zookeeper.send(&body)?;
        zookeeper.receive()?;
        Ok(zookeeper)
    }

    fn create(&mut self, path: &str, flags: i32) -> (i32, Vec<u8>) {
        // No data; everybody (`world`, `anyone`) may do all of the five things.
        let body = Body::default().text(path).text("").number(1).number(31);
        self.ask(CREATE, &body.text("world").text("anyone").number(flags))
    }

    /// The children of the queue; of each the number that the server gave it.
    fn children(&mut self, queue: &str) -> Vec<u64> {
        let mut body = Body::default().text(queue);
        body.0.push(0);
        let (error, answer) = self.ask(CHILDREN, &body);
        assert_eq!(error, OK, "it was made");
        let mut rest = &answer[..];
        (0..number(&mut rest))
            .map(|_| sequence(&text(&mut rest)))
            .collect()
    }

    /// Waits until the node is gone.
    fn await_end(&mut self, path: &str) {
        let mut body = Body::default().text(path);
        body.0.push(1);
        let (error, _) = self.ask(READ, &body);
        if error == NO_NODE {
            return;
        }
        assert_eq!(error, OK, "it can be read");
        let event = self.receive().expect("ZooKeeper answers");
        assert_eq!(number(&mut &event[..]), WATCH, "nothing else was asked");
    }

    fn ask(&mut self, operation: i32, body: &Body) -> (i32, Vec<u8>) {
        self.requests += 1;
        let head = Body::default().number(self.requests).number(operation);
        let request = Body([&head.0[..], &body.0].concat());
        self.send(&request).expect("ZooKeeper listens");
        let answer = self.receive().expect("ZooKeeper answers");
        let mut rest = &answer[..];
        assert_eq!(number(&mut rest), self.requests, "one at a time");
        // The number of the last change lies before the error.
        rest = &rest[8..];
        (number(&mut rest), rest.to_vec())
    }

    fn send(&mut self, body: &Body) -> io::Result<()> {
        let length = (body.0.len() as i32).to_be_bytes();
        self.stream.write_all(&[&length[..], &body.0].concat())
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }
}

impl Locks for ZooKeeper {
    fn enter(&mut self, lock: usize) -> Option<u64> {
        let queue = queue(lock);
        let (error, answer) = self.create(&format!("{queue}/n-"), EPHEMERAL_SEQUENTIAL);
        assert_eq!(error, OK, "a node can be made");
        self.node = text(&mut &answer[..]);
        let mine = sequence(&self.node);
        loop {
            let children = self.children(&queue);
            let Some(before) = children.into_iter().filter(|&it| it < mine).max() else {
                // Counted from 0; a fence is more than that.
                return Some(mine + 1);
            };
            self.await_end(&format!("{queue}/n-{before:010}"));
        }
    }

    fn leave(&mut self, _: usize) {
        let body = Body::default().text(&self.node).number(-1);
        let (error, _) = self.ask(DELETE, &body);
        assert_eq!(error, OK, "it is there");
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.ask(CLOSE, &Body::default());
    }
}

/// What is sent.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn number(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn text(self, text: &str) -> Self {
        let mut body = self.number(text.len() as i32);
        body.0.extend(text.as_bytes());
        body
    }
}

fn number(rest: &mut &[u8]) -> i32 {
    let (first, others) = rest.split_first_chunk().expect("a number comes next");
    *rest = others;
    i32::from_be_bytes(*first)
}

fn text(rest: &mut &[u8]) -> String {
    let length = number(rest) as usize;
    let (text, others) = rest.split_at(length);
    *rest = others;
    String::from_utf8(text.to_vec()).expect("our own names")
}

fn queue(lock: usize) -> String {
    format!("/lock-{lock}")
}

fn sequence(node: &str) -> u64 {
    let digits = &node[node.len() - 10..];
    digits.parse().expect("the server ends names with digits")
}
