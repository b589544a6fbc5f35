//! A server that the test plays, and a client that speaks with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use distlock_protocol::Time;
use distlock_protocol::ledger::{
    Host, Key, Op, OpId, Reply, Store, StoreEvent, StoreOutput, StreamId, Version,
};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::etcd::Etcd;
use crate::options::StoreOptions;

/// A client, what it wants, and the time.
pub(super) struct Play {
    pub(super) etcd: Etcd,
    pub(super) now: Time,
    pub(super) events: Vec<StoreEvent>,
    /// What was asked for and is not there yet.
    pub(super) connecting: Vec<StreamId>,
    /// What is there, with what was sent on it.
    pub(super) sent: BTreeMap<StreamId, Vec<u8>>,
    /// What is awaited.
    pub(super) under_way: BTreeSet<OpId>,
    last_op: u64,
}

impl Play {
    pub(super) fn new(user: Option<&str>) -> Self {
        let host = |name: &str| Host::Tcp {
            name: name.to_owned(),
            port: 2379,
        };
        Self {
            etcd: Etcd::new(StoreOptions {
                hosts: vec![host("a"), host("b")],
                tls: None,
                user: user.map(str::to_owned),
                password: user.map(|_| Zeroizing::new("secret".to_owned())),
                database: None,
                group: "shop".to_owned(),
                lease: Duration::from_secs(10),
                has_hints: true,
                seed: 1,
            }),
            now: Time::ZERO + Duration::from_secs(1),
            events: vec![],
            connecting: vec![],
            sent: BTreeMap::new(),
            under_way: BTreeSet::new(),
            last_op: 0,
        }
    }

    /// Takes what the client wants, and looks whether it keeps its promises.
    pub(super) fn outputs(&mut self) {
        while let Some(output) = self.etcd.poll_output() {
            match output {
                StoreOutput::Connect(stream, _) => self.connecting.push(stream),
                StoreOutput::Send(stream, bytes) => {
                    let sent = self.sent.get_mut(&stream);
                    sent.expect("sends on what is there").extend(bytes);
                }
                StoreOutput::Close(stream) => {
                    let was_asked_for = self.connecting.contains(&stream);
                    self.connecting.retain(|one| *one != stream);
                    let was_there = self.sent.remove(&stream).is_some();
                    assert!(was_asked_for || was_there, "closes what is there");
                }
                StoreOutput::Event(event) => {
                    match &event {
                        StoreEvent::Reply(id, _) => {
                            assert!(self.under_way.remove(id), "one reply for each operation");
                        }
                        StoreEvent::Down(_) => assert_eq!(self.under_way, BTreeSet::new()),
                        _ => {}
                    }
                    self.events.push(event);
                }
            }
        }
    }

    pub(super) fn submit(&mut self, op: Op) -> OpId {
        self.last_op += 1;
        let id = OpId(self.last_op);
        self.under_way.insert(id);
        self.etcd.submit(self.now, id, op);
        self.outputs();
        id
    }

    pub(super) fn interest(&mut self, keys: &[&str]) {
        let keys = keys.iter().map(|name| key(name)).collect();
        self.etcd.interest(self.now, &keys);
        self.outputs();
    }

    /// Lets so much time pass, and calls the client when it wants.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.etcd.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.etcd.timeout(self.now);
            self.outputs();
            let next = self.etcd.poll_timeout();
            assert!(next.is_none_or(|next| next > self.now), "does what is due");
        }
        self.now = end;
    }

    /// All connections that are wanted are there.
    pub(super) fn connect(&mut self) {
        while let Some(stream) = self.connecting.pop() {
            self.sent.insert(stream, vec![]);
            self.etcd.connected(self.now, stream);
            self.outputs();
        }
    }

    pub(super) fn receive(&mut self, stream: StreamId, bytes: &[u8]) {
        self.etcd.received(self.now, stream, bytes);
        self.outputs();
    }

    pub(super) fn disconnect(&mut self, stream: StreamId) {
        self.connecting.retain(|one| *one != stream);
        self.sent.remove(&stream);
        self.etcd.disconnected(self.now, stream, "it is gone");
        self.outputs();
    }

    /// The next request that is complete.
    pub(super) fn request(&mut self) -> Option<(StreamId, Request)> {
        let mut sent = self.sent.iter_mut();
        sent.find_map(|(stream, sent)| Some((*stream, Request::take(sent)?)))
    }

    /// Has `server` answer all that is asked, and what is asked then.
    pub(super) fn serve(&mut self, server: &mut Server) {
        self.connect();
        while let Some((stream, request)) = self.request() {
            let reply = server.answer(&request);
            self.receive(stream, &reply);
            self.connect();
        }
    }

    /// A client that is connected.
    pub(super) fn up(user: Option<&str>, server: &mut Server) -> Self {
        let mut play = Self::new(user);
        play.pass(Duration::ZERO);
        play.serve(server);
        let events = play.take();
        assert!(matches!(events[..], [StoreEvent::Up(_)]), "{events:?}");
        play
    }

    /// What was said since the last call.
    pub(super) fn take(&mut self) -> Vec<StoreEvent> {
        std::mem::take(&mut self.events)
    }

    /// The only thing that was said: why there is no connection.
    pub(super) fn why_down(&mut self) -> String {
        let events = self.take();
        let [StoreEvent::Down(why)] = &events[..] else {
            panic!("{events:?}");
        };
        why.clone()
    }
}

pub(super) fn key(name: &str) -> Key {
    Key::new(format!("distlock/shop/{name}"))
}

pub(super) fn write(name: &str, value: &str, expect: Option<Version>) -> Op {
    let (key, value) = (key(name), value.as_bytes().to_vec());
    Op::Write { key, value, expect }
}

pub(super) fn read(name: &str) -> Op {
    Op::Read { key: key(name) }
}

pub(super) fn reply(id: OpId, reply: Reply) -> StoreEvent {
    StoreEvent::Reply(id, reply)
}

/// What a client asks.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) path: String,
    pub(super) token: Option<String>,
    pub(super) body: Value,
}

impl Request {
    fn take(sent: &mut Vec<u8>) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut request = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(head) = request.parse(sent).unwrap() else {
            return None;
        };
        let value = |name: &str| {
            let mut all = request.headers.iter();
            let found = all.find(|header| header.name == name)?;
            Some(String::from_utf8(found.value.to_vec()).unwrap())
        };
        let length = value("Content-Length").map_or(0, |value| value.parse().unwrap());
        let body = sent.get(head..head + length)?;
        let this = Self {
            path: request.path.unwrap().to_owned(),
            token: value("Authorization"),
            body: serde_json::from_slice(body).unwrap_or_default(),
        };
        sent.drain(..head + length);
        Some(this)
    }
}

/// A reply, with its head.
pub(super) fn http(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

pub(super) fn failure(status: u16, code: u32, message: &str) -> Vec<u8> {
    let body = json!({ "error": message, "message": message, "code": code });
    http(status, &body.to_string())
}

/// As much of etcd as the client asks for.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) cluster: u64,
    pub(super) version: &'static str,
    pub(super) leader: &'static str,
    pub(super) revision: u64,
    pub(super) registers: BTreeMap<String, (u64, String)>,
    /// The only token that counts; `None` without users.
    pub(super) token: Option<String>,
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            cluster: 7,
            version: "3.5.16",
            leader: "1",
            revision: 1,
            registers: BTreeMap::new(),
            token: None,
        }
    }

    fn header(&self) -> Value {
        json!({ "cluster_id": self.cluster.to_string(), "revision": self.revision.to_string() })
    }

    fn register(&self, key: &str) -> Option<Value> {
        let (revision, value) = self.registers.get(key)?;
        Some(json!({ "key": key, "mod_revision": revision.to_string(), "value": value }))
    }

    pub(super) fn answer(&mut self, request: &Request) -> Vec<u8> {
        let body = &request.body;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if request.path == "/v3/auth/authenticate" {
            return match &self.token {
                Some(token) => http(200, &json!({ "token": token }).to_string()),
                None => failure(412, 9, "etcdserver: authentication is not enabled"),
            };
        }
        if self.token.is_some() && request.token != self.token {
            return failure(401, 16, "etcdserver: invalid auth token");
        }
        let answer = match request.path.as_str() {
            "/v3/maintenance/status" => {
                let (version, leader) = (self.version, self.leader);
                json!({ "header": self.header(), "version": version, "leader": leader })
            }
            "/v3/kv/range" if body.get("range_end").is_some() => {
                // Here all is in the range.
                let limit: usize = text(&body["limit"]).parse().unwrap();
                let begin = Base64::decode_vec(&text(&body["key"])).unwrap();
                let plain = |key: &str| Base64::decode_vec(key).unwrap();
                let mut keys: Vec<&String> = self.registers.keys().collect();
                keys.retain(|key| plain(key) >= begin);
                keys.sort_by_key(|key| plain(key));
                let found = keys.iter().take(limit).map(|key| self.register(key));
                let found: Vec<Value> = found.flatten().collect();
                json!({ "header": self.header(), "kvs": found, "more": keys.len() > limit })
            }
            "/v3/kv/range" => {
                let found: Vec<Value> = self.register(&text(&body["key"])).into_iter().collect();
                json!({ "header": self.header(), "kvs": found })
            }
            "/v3/kv/txn" => {
                let compare = &body["compare"][0];
                let key = text(&compare["key"]);
                let version = self.registers.get(&key).map_or(0, |(version, _)| *version);
                if text(&compare["mod_revision"]) == version.to_string() {
                    self.revision += 1;
                    let put = &body["success"][0]["request_put"];
                    if put.is_null() {
                        self.registers.remove(&key);
                    } else {
                        let value = text(&put["value"]);
                        self.registers.insert(key, (self.revision, value));
                    }
                    json!({ "header": self.header(), "succeeded": true, "responses": [{}] })
                } else {
                    let found: Vec<Value> = self.register(&key).into_iter().collect();
                    let range = json!({ "response_range": { "kvs": found } });
                    json!({ "header": self.header(), "responses": [range] })
                }
            }
            "/v3/watch" => return watch(&json!({ "created": true })),
            _ => return http(404, "404 page not found\n"),
        };
        http(200, &answer.to_string())
    }
}

/// The head of a watch, and its first message.
pub(super) fn watch(first: &Value) -> Vec<u8> {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    [head, chunk(first)].concat()
}

/// Another message of a watch.
pub(super) fn chunk(result: &Value) -> Vec<u8> {
    let line = json!({ "result": result }).to_string() + "\n";
    format!("{:x}\r\n{line}\r\n", line.len()).into_bytes()
}

/// A change, as a watch tells of it.
pub(super) fn change(cluster: u64, name: &str, value: Option<&str>, revision: u64) -> Value {
    let key = Base64::encode_string(key(name).as_str().as_bytes());
    let revision = revision.to_string();
    let event = match value {
        Some(value) => {
            let value = Base64::encode_string(value.as_bytes());
            json!({ "kv": { "key": key, "mod_revision": revision, "value": value } })
        }
        None => json!({ "type": "DELETE", "kv": { "key": key, "mod_revision": revision } }),
    };
    json!({ "header": { "cluster_id": cluster.to_string() }, "events": [event] })
}
