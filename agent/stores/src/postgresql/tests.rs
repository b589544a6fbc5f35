//! A server of a few bytes, which says what it likes.

mod hostile;

use std::time::Duration;

use distlock_protocol::ledger::{Entry, Host, Version};

use super::*;

const PID: i32 = 77;

fn options(hosts: &[&str]) -> StoreOptions {
    let host = |name: &&str| Host::Tcp {
        name: (*name).to_owned(),
        port: 5432,
    };
    StoreOptions {
        hosts: hosts.iter().map(host).collect(),
        tls: None,
        user: Some("app".to_owned()),
        password: None,
        database: Some("shop".to_owned()),
        group: "g".to_owned(),
        lease: Duration::from_secs(3),
        has_hints: true,
        seed: 1,
    }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &length.to_be_bytes()[..], body].concat()
}

fn row(fields: &[Option<&str>]) -> Vec<u8> {
    let mut body = u16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
    for field in fields {
        match field {
            None => body.extend((-1_i32).to_be_bytes()),
            Some(text) => {
                body.extend(i32::try_from(text.len()).unwrap().to_be_bytes());
                body.extend(text.as_bytes());
            }
        }
    }
    message(b'D', &body)
}

/// A statement's answer: these rows.
fn statement(rows: &[Vec<u8>]) -> Vec<u8> {
    let begin = [message(b'1', b""), message(b'2', b"")].concat();
    let end = message(b'C', b"SELECT\0");
    [begin, rows.concat(), end].concat()
}

fn error(severity: &str, code: &str) -> Vec<u8> {
    let body = format!("S{severity}\0V{severity}\0C{code}\0Mno \u{1b}[1m way\0\0");
    message(b'E', body.as_bytes())
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn told(pid: i32, key: &str) -> Vec<u8> {
    let body = [
        &pid.to_be_bytes()[..],
        b"distlock/g\0",
        key.as_bytes(),
        b"\0",
    ]
    .concat();
    message(b'A', &body)
}

fn preamble() -> Vec<u8> {
    statement(&[row(&[Some("on"), Some("500")])])
}

/// What a server says until it is ready, and then what it is.
fn welcome(pid: &str) -> Vec<Vec<u8>> {
    let key_data = [&PID.to_be_bytes()[..], &[1, 2, 3, 4]].concat();
    let facts = [
        "150018", "f", "off", "on", "on", "f", "0", "UTF8", pid, "p", "5",
    ];
    let facts: Vec<_> = facts.into_iter().map(Some).collect();
    let identity = [statement(&[row(&[Some("9/1")])]), ready()].concat();
    vec![
        [
            message(b'R', &[0; 4]),
            message(b'S', b"TimeZone\0UTC\0"),
            message(b'K', &key_data),
            ready(),
        ]
        .concat(),
        [statement(&[row(&facts)]), ready()].concat(),
        identity,
    ]
}

/// A client, and the time.
struct Client {
    store: Postgresql,
    stream: StreamId,
    events: Vec<StoreEvent>,
    sent: Vec<u8>,
    closed: Vec<StreamId>,
}

impl Client {
    fn connecting(options: StoreOptions) -> Self {
        let mut client = Self {
            store: Postgresql::new(options),
            stream: StreamId(0),
            events: vec![],
            sent: vec![],
            closed: vec![],
        };
        client.store.timeout(at(0));
        client.collect();
        client.store.connected(at(0), client.stream);
        client.collect();
        client
    }

    fn up() -> Self {
        Self::up_at(&PID.to_string())
    }

    fn up_at(pid: &str) -> Self {
        let mut client = Self::connecting(options(&["a"]));
        for bytes in welcome(pid) {
            client.hear(&bytes);
        }
        let up = client.events.remove(0);
        assert!(matches!(up, StoreEvent::Up(_)), "{up:?}");
        client.sent.clear();
        client
    }

    fn collect(&mut self) {
        while let Some(output) = self.store.poll_output() {
            match output {
                StoreOutput::Connect(stream, _) => self.stream = stream,
                StoreOutput::Send(stream, bytes) => {
                    assert_eq!(stream, self.stream);
                    self.sent.extend(bytes);
                }
                StoreOutput::Close(stream) => self.closed.push(stream),
                StoreOutput::Event(event) => self.events.push(event),
            }
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.store.received(at(0), self.stream, bytes);
        self.collect();
    }

    fn ask(&mut self, id: u64, op: Op) {
        self.store.submit(at(0), OpId(id), op);
        self.collect();
    }

    fn replies(&mut self) -> Vec<(u64, Reply)> {
        let reply = |event| match event {
            StoreEvent::Reply(OpId(id), reply) => (id, reply),
            other => panic!("{other:?}"),
        };
        std::mem::take(&mut self.events)
            .into_iter()
            .map(reply)
            .collect()
    }

    /// Why it closed the connection.
    #[track_caller]
    fn down(&mut self) -> String {
        assert_eq!(self.closed, [self.stream]);
        match self.events.pop() {
            Some(StoreEvent::Down(why)) => why,
            other => panic!("{other:?}"),
        }
    }
}

fn key() -> Key {
    Key::new("distlock/g/lock/k")
}

fn read() -> Op {
    Op::Read { key: key() }
}

fn write(expect: Option<u64>) -> Op {
    Op::Write {
        key: key(),
        value: b"{}".to_vec(),
        expect: expect.map(Version),
    }
}

fn entry(value: &str, version: u64) -> Entry {
    Entry {
        value: value.as_bytes().to_vec(),
        version: Version(version),
    }
}

/// How many transactions were sent, by their ends.
fn syncs(sent: &[u8]) -> usize {
    let sync = message(b'S', b"");
    sent.windows(sync.len())
        .filter(|part| *part == sync)
        .count()
}

fn value(text: &str, version: &str) -> Vec<u8> {
    let read = statement(&[row(&[Some(text), Some(version)])]);
    [preamble(), read, ready()].concat()
}

#[test]
fn answers_are_the_same_however_they_are_cut() {
    let mut answers = welcome("77").concat();
    let nothing = [preamble(), statement(&[]), ready()].concat();
    let refused = [
        preamble(),
        statement(&[]),
        statement(&[row(&[Some("there"), Some("-1")])]),
        ready(),
    ]
    .concat();
    let failed = [preamble(), error("ERROR", "42P01"), ready()].concat();
    for more in [nothing, value("{}", "5"), refused, failed] {
        answers.extend(more);
    }
    let begun = welcome("77").concat().len();
    for cut in 1..answers.len() - begun {
        let mut client = Client::up();
        client.ask(1, read());
        client.ask(2, read());
        client.ask(3, write(Some(7)));
        client.ask(4, read());
        assert_eq!(syncs(&client.sent), 4);
        let (first, second) = answers[begun..].split_at(cut);
        client.hear(first);
        client.hear(second);
        let replies = client.replies();
        let expected = [
            (1, Reply::Value(None)),
            (2, Reply::Value(Some(entry("{}", 5)))),
            (3, Reply::Conflict(Some(entry("there", u64::MAX)))),
        ];
        assert_eq!(replies[..3], expected);
        assert!(matches!(&replies[3], (4, Reply::Refused(why)) if why.contains("store init")));
    }
    // Byte by byte, from the beginning.
    let mut client = Client::connecting(options(&["a"]));
    for byte in welcome("77").concat() {
        client.hear(&[byte]);
    }
    assert!(matches!(&client.events[..], [StoreEvent::Up(facts)] if facts.identity == "9/1"));
}

#[test]
fn a_write_is_done_when_the_transaction_is_over_and_not_before() {
    let mut client = Client::up();
    client.ask(1, write(None));
    let written = [preamble(), statement(&[row(&[None])]), statement(&[])].concat();
    client.hear(&written);
    assert_eq!(client.events, []);
    // The commit fails.
    client.hear(&[error("ERROR", "53100"), ready()].concat());
    let replies = client.replies();
    assert!(matches!(&replies[..], [(1, Reply::Refused(why))] if why.contains("disk")));
    // The server goes down while it commits: nobody knows.
    client.ask(2, write(None));
    client.hear(&[written, error("FATAL", "57P01")].concat());
    let why = client.down();
    assert_eq!(why, "a:5432: no  [1m way [57P01]");
    assert_eq!(client.events, []);
    client.ask(3, write(None));
    assert_eq!(client.replies(), [(3, Reply::Unknown)]);
}

#[test]
fn errors_are_refusals_or_unknown_or_asked_again_or_end_the_connection() {
    for (code, is_refused) in [
        ("42501", true),
        ("22021", true),
        ("23514", true),
        ("54000", true),
        ("P0001", true),
        ("57014", false),
        ("53200", false),
        ("XX000", false),
        ("", false),
        ("é1", false),
    ] {
        let mut client = Client::up();
        client.ask(1, write(None));
        client.hear(&[error("ERROR", code), ready()].concat());
        let replies = client.replies();
        let (1, reply) = &replies[0] else {
            panic!("{replies:?}");
        };
        assert_eq!(matches!(reply, Reply::Refused(_)), is_refused, "{code}");
        assert_eq!(*reply == Reply::Unknown, !is_refused, "{code}");
    }
    for code in ["25006", "55000"] {
        let mut client = Client::up();
        client.ask(1, write(None));
        client.hear(&[error("ERROR", code), ready()].concat());
        assert!(client.down().contains(code));
    }
    for code in ["40001", "40P01"] {
        let mut client = Client::up();
        client.ask(1, write(None));
        for round in 1..=5 {
            assert_eq!(client.events, [], "{round}");
            assert_eq!(syncs(&client.sent), round);
            client.hear(&[error("ERROR", code), ready()].concat());
        }
        assert_eq!(client.replies(), [(1, Reply::Unknown)]);
        assert_eq!(syncs(&client.sent), 5);
    }
}

#[test]
fn a_register_that_came_and_went_is_created_at_the_next_try() {
    let mut client = Client::up();
    client.ask(1, write(None));
    let none = statement(&[]);
    client.hear(&[preamble(), none, statement(&[]), ready()].concat());
    assert_eq!(client.events, []);
    let one = statement(&[row(&[None])]);
    client.hear(&[preamble(), one, statement(&[]), ready()].concat());
    assert!(matches!(client.replies()[..], [(1, Reply::Done(_))]));
}

#[test]
fn a_hint_comes_after_the_answers_that_may_be_older() {
    let mut client = Client::up();
    client.store.interest(at(0), &BTreeSet::from([key()]));
    client.collect();
    assert_eq!(syncs(&client.sent), 1);
    client.hear(&[statement(&[]), ready()].concat());
    let hint = StoreEvent::Changed(key(), None);
    // What changed before.
    assert_eq!(client.events, std::slice::from_ref(&hint));
    client.events.clear();
    client.ask(1, read());
    let answer = value("{}", "5");
    let (most, end) = answer.split_at(answer.len() - ready().len());
    client.hear(most);
    client.hear(&told(5, key().as_str()));
    // One's own, and another register's.
    client.hear(&told(PID, key().as_str()));
    client.hear(&told(5, "distlock/g/lock/other"));
    assert_eq!(client.events, []);
    client.hear(end);
    let reply = StoreEvent::Reply(OpId(1), Reply::Value(Some(entry("{}", 5))));
    assert_eq!(client.events, [reply, hint.clone()]);
    client.events.clear();
    // At once if nothing is asked.
    client.hear(&told(5, key().as_str()));
    client.hear(&told(5, ""));
    assert_eq!(client.events, [hint, StoreEvent::Missed]);
}

#[test]
fn behind_a_pooler_operations_go_one_at_a_time_and_nothing_is_listened_to() {
    let mut client = Client::up_at("78");
    assert!(client.store.findings().unwrap().is_pooled);
    client.store.interest(at(0), &BTreeSet::from([key()]));
    client.ask(1, read());
    client.ask(2, read());
    assert_eq!(syncs(&client.sent), 1);
    let guarded = statement(&[row(&[Some("on"), Some("500"), Some("9/1")])]);
    let answer = [guarded, statement(&[]), ready()].concat();
    client.hear(&answer);
    assert_eq!(syncs(&client.sent), 2);
    client.hear(&answer);
    let nothing = || Reply::Value(None);
    assert_eq!(client.replies(), [(1, nothing()), (2, nothing())]);
    // Another timeline.
    client.ask(3, read());
    let promoted = statement(&[row(&[Some("on"), Some("500"), Some("9/2")])]);
    client.hear(&[promoted, statement(&[]), ready()].concat());
    assert!(client.down().contains("another store: 9/2, not 9/1"));
}

#[test]
fn who_does_not_answer_is_left_and_the_next_host_tried() {
    let mut client = Client::connecting(options(&["a", "b"]));
    let first = client.stream;
    // A third of the lease, for each step.
    assert_eq!(client.store.poll_timeout(), Some(at(1000)));
    client.store.timeout(at(999));
    client.store.timeout(at(1000));
    client.collect();
    assert!(client.down().contains("no reply for 1000 ms"));
    let again = client.store.poll_timeout().unwrap();
    assert!(again >= at(1050) && again < at(3000));
    client.store.timeout(again);
    client.collect();
    assert_ne!(client.stream, first);
    // What comes late from the first one is nobody's.
    client.store.received(again, first, b"HTTP/1.1 400\r\n\r\n");
    client.store.connected(again, first);
    client.store.disconnected(again, first, "reset");
    client.collect();
    assert_eq!(client.events, []);
    client.store.disconnected(again, client.stream, "refused");
    client.collect();
    assert!(matches!(&client.events[..], [StoreEvent::Down(why)] if why.ends_with("refused")));
    // Nothing is to be closed then.
    assert_eq!(client.closed, [first]);
    // An operation's patience begins when it is asked.
    let mut client = Client::up();
    assert_eq!(client.store.poll_timeout(), None);
    client.store.submit(at(500), OpId(1), read());
    client.store.submit(at(600), OpId(2), read());
    assert_eq!(client.store.poll_timeout(), Some(at(1500)));
    client.hear(&value("{}", "5"));
    assert_eq!(client.store.poll_timeout(), Some(at(1600)));
}
