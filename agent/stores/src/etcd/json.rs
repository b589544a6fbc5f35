//! What is said to etcd's gateway, and what it says: JSON, with bytes in base64 and numbers in strings.
//!
//! Fields that are zero, false or empty are not there.

use std::fmt;
use std::marker::PhantomData;

use base64ct::{Base64, Encoding};
use distlock_protocol::ledger::{Entry, Key, Op, Reply, Version};
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use zeroize::Zeroizing;

/// A page of a list has at most so many registers.
pub(super) const LONGEST_PAGE: usize = 100;
/// A list in what etcd says has at most so many parts.
const LONGEST_LIST: usize = 20_000;

/// Where what is asked for is, and the words for it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The path of its URL.
    pub(super) path: &'static str,
    /// Its body, if it has one.
    pub(super) body: Option<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Request {
    /// Its body may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}

impl Request {
    /// How long its body is.
    pub(super) fn size(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.len())
    }

    fn post(path: &'static str, body: String) -> Self {
        Self {
            path,
            body: Some(Zeroizing::new(body.into_bytes())),
        }
    }

    /// Which version answers, where there is no gateway.
    pub(super) const fn version() -> Self {
        Self {
            path: "/version",
            body: None,
        }
    }

    /// Which cluster it is.
    pub(super) fn status() -> Self {
        Self::post("/v3/maintenance/status", "{}".to_owned())
    }

    /// Whether registers below `prefix` can be read, which takes a majority of the members.
    pub(super) fn probe(prefix: &str) -> Self {
        let (begin, end) = (base64(prefix.as_bytes()), base64(&end_of(prefix)));
        let body =
            format!(r#"{{"key":"{begin}","range_end":"{end}","limit":"1","keys_only":true}}"#);
        Self::post("/v3/kv/range", body)
    }

    /// Asks for a token.
    pub(super) fn authenticate(user: &str, password: &str) -> Self {
        #[derive(Serialize)]
        struct Credentials<'a> {
            name: &'a str,
            password: &'a str,
        }
        let credentials = Credentials {
            name: user,
            password,
        };
        // Long enough to stay where it is, as what is left behind is not cleared.
        let longest = 64 + 6 * (user.len() + password.len());
        let mut body = Zeroizing::new(Vec::with_capacity(longest));
        // Two strings can always be written to a vector.
        let _ = serde_json::to_writer(&mut *body, &credentials);
        Self {
            path: "/v3/auth/authenticate",
            body: Some(body),
        }
    }

    /// From now on tells of changes below `prefix`.
    pub(super) fn watch(prefix: &str) -> Self {
        let (begin, end) = (base64(prefix.as_bytes()), base64(&end_of(prefix)));
        let body = format!(r#"{{"create_request":{{"key":"{begin}","range_end":"{end}"}}}}"#);
        Self::post("/v3/watch", body)
    }

    /// Does an operation, of whose pages none has more registers than `longest_page`.
    ///
    /// A write is one transaction: it compares the version, and if that is another one it reads, at the same
    /// instant.
    pub(super) fn operation(op: &Op, longest_page: usize) -> Self {
        match op {
            Op::Read { key } => {
                let key = base64(key.as_str().as_bytes());
                Self::post("/v3/kv/range", format!(r#"{{"key":"{key}"}}"#))
            }
            Op::Write { key, value, expect } => {
                let key = base64(key.as_str().as_bytes());
                let value = base64(value);
                let put = format!(r#"{{"request_put":{{"key":"{key}","value":"{value}"}}}}"#);
                Self::transaction(&key, expect.map_or(0, |version| version.0), &put)
            }
            Op::Remove { key, expect } => {
                let key = base64(key.as_str().as_bytes());
                let remove = format!(r#"{{"request_delete_range":{{"key":"{key}"}}}}"#);
                Self::transaction(&key, expect.0, &remove)
            }
            Op::List { prefix, after } => {
                let end = base64(&end_of(prefix.as_str()));
                let begin = match after {
                    // Nothing comes between a key and the same one with a zero.
                    Some(after) if after >= prefix => [after.as_str().as_bytes(), b"\0"].concat(),
                    _ => prefix.as_str().as_bytes().to_vec(),
                };
                let begin = base64(&begin);
                // A range is in the order of its keys if nothing else is asked for, and etcd need not sort.
                let body =
                    format!(r#"{{"key":"{begin}","range_end":"{end}","limit":"{longest_page}"}}"#);
                Self::post("/v3/kv/range", body)
            }
        }
    }

    /// A register that does not exist has the version 0.
    fn transaction(key: &str, version: u64, success: &str) -> Self {
        let compare = format!(
            r#"{{"key":"{key}","target":"MOD","result":"EQUAL","mod_revision":"{version}"}}"#
        );
        let read = format!(r#"{{"request_range":{{"key":"{key}"}}}}"#);
        let body = format!(r#"{{"compare":[{compare}],"success":[{success}],"failure":[{read}]}}"#);
        Self::post("/v3/kv/txn", body)
    }
}

fn base64(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// The least key that is greater than all that begin with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // Keys are ASCII.
        Some(last) => *last = last.saturating_add(1),
        // This is how etcd writes that there is no end.
        None => end.push(0),
    }
    end
}

/// A number, which the gateway writes as a string if it has 64 bits. None that etcd has is negative, or
/// does not fit 63 bits: nor would it take one back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either<'a> {
            Number(u64),
            Text(#[serde(borrow)] std::borrow::Cow<'a, str>),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Self(number)),
            Either::Text(text) => match text.parse() {
                Ok(number) => Ok(Self(number)),
                Err(_) => Err(D::Error::custom("no number")),
            },
        }
    }
}

/// A list that is not so long that it takes much more room than its text. etcd tells a watch of at most a
/// thousand revisions at once.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(source: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {LONGEST_LIST} things")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut found = vec![];
            while let Some(one) = list.next_element()? {
                if found.len() >= LONGEST_LIST {
                    return Err(A::Error::invalid_length(found.len(), &self));
                }
                found.push(one);
            }
            Ok(found)
        }
    }

    source.deserialize_seq(Few(PhantomData))
}

/// What comes with each reply.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct Header {
    /// Which cluster it is.
    pub(super) cluster_id: Number,
    /// The store's revision.
    pub(super) revision: Number,
}

/// A register.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Register {
    key: String,
    mod_revision: Number,
    value: String,
}

impl Register {
    fn key(&self) -> Option<Key> {
        let key = Base64::decode_vec(&self.key).ok()?;
        let key = String::from_utf8(key).ok()?;
        let is_plain = key.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain.then(|| Key::new(key))
    }

    fn entry(&self) -> Option<Entry> {
        let value = Base64::decode_vec(&self.value).ok()?;
        let version = Version(self.mod_revision.0);
        (version.0 > 0 && i64::try_from(version.0).is_ok()).then_some(Entry { value, version })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    header: Header,
    #[serde(deserialize_with = "few")]
    kvs: Vec<Register>,
    more: bool,
}

impl Range {
    /// The only register, which must be that of `key`.
    fn only(&self, key: &Key) -> Option<Option<Entry>> {
        match &self.kvs[..] {
            [] => Some(None),
            [register] if register.key().as_ref() == Some(key) => register.entry().map(Some),
            _ => None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Transaction {
    header: Header,
    succeeded: bool,
    #[serde(deserialize_with = "few")]
    responses: Vec<Response>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    response_range: Option<Range>,
}

/// What `body` answers to `op`; `None` if it is no answer to that.
pub(super) fn answer(op: &Op, body: &[u8]) -> Option<(Header, Reply)> {
    match op {
        Op::Read { key } => {
            let range: Range = parse(body)?;
            Some((range.header, Reply::Value(range.only(key)?)))
        }
        Op::List { prefix, after } => {
            let range: Range = parse(body)?;
            let mut entries: Vec<(Key, Entry)> = Vec::with_capacity(range.kvs.len());
            for register in &range.kvs {
                // What others keep below the prefix, in keys that none of ours can have, is nothing to us.
                let Some(key) = register.key() else {
                    continue;
                };
                let before = entries.last().map(|(key, _)| key).or(after.as_ref());
                let is_next = before.is_none_or(|before| *before < key);
                if !is_next || !key.as_str().starts_with(prefix.as_str()) {
                    return None;
                }
                entries.push((key, register.entry()?));
            }
            // Whoever asks for what follows nothing would get the same.
            let more = range.more && !entries.is_empty();
            Some((range.header, Reply::Page { entries, more }))
        }
        Op::Write { key, .. } | Op::Remove { key, .. } => {
            let transaction: Transaction = parse(body)?;
            let header = transaction.header;
            let reply = if !transaction.succeeded {
                let [
                    Response {
                        response_range: Some(range),
                    },
                ] = &transaction.responses[..]
                else {
                    return None;
                };
                Reply::Conflict(range.only(key)?)
            } else if matches!(op, Op::Remove { .. }) {
                Reply::Removed
            } else if header.revision.0 > 0 {
                // What a transaction writes has the revision that it makes, and says.
                Reply::Done(Version(header.revision.0))
            } else {
                return None;
            };
            Some((header, reply))
        }
    }
}

/// What a member says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) header: Header,
    pub(super) version: String,
    /// Which member leads; 0 if none does.
    pub(super) leader: Number,
}

/// What answers at `/version`.
#[derive(Debug, Deserialize)]
pub(super) struct ServerVersion {
    pub(super) etcdserver: String,
}

/// The header of any reply.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Headed {
    pub(super) header: Header,
}

/// The answer to a user's name and password: a token, which goes into a header.
pub(super) fn token(body: &[u8]) -> Option<Zeroizing<String>> {
    #[derive(Deserialize)]
    struct Authenticated {
        token: String,
    }
    let token = Zeroizing::new(parse::<Authenticated>(body)?.token);
    let fits =
        (1..4096).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then_some(token)
}

/// What a reply says that is none of success.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    /// gRPC's number for the kind of error. A stream's has another name.
    #[serde(alias = "grpc_code")]
    pub(super) code: u32,
    /// In words.
    pub(super) message: String,
}

/// What a watch says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchMessage {
    /// It has begun.
    Created,
    /// These registers have changed.
    Changes(Header, Vec<(Key, Option<Entry>)>),
    /// It is over.
    Over {
        /// gRPC's number for why, if it is known.
        code: u32,
        /// In words.
        why: String,
    },
}

/// What a line of a watch says; `None` if it is none.
pub(super) fn watch_message(line: &[u8]) -> Option<WatchMessage> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Message {
        result: Option<Watched>,
        error: Option<Failure>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Watched {
        header: Header,
        created: bool,
        canceled: bool,
        cancel_reason: String,
        compact_revision: Number,
        #[serde(deserialize_with = "few")]
        events: Vec<Happened>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Happened {
        #[serde(rename = "type")]
        kind: Option<String>,
        kv: Register,
    }
    let message: Message = parse(line)?;
    if let Some(error) = message.error {
        let (code, why) = (error.code, error.message);
        return Some(WatchMessage::Over { code, why });
    }
    let watched = message.result?;
    if watched.canceled || watched.compact_revision.0 > 0 {
        let why = watched.cancel_reason;
        return Some(WatchMessage::Over { code: 0, why });
    }
    if watched.created {
        return Some(WatchMessage::Created);
    }
    let mut changes = Vec::with_capacity(watched.events.len());
    for event in &watched.events {
        // Others may keep other things below the prefix, in keys that are none of ours.
        let Some(key) = event.kv.key() else {
            continue;
        };
        let is_there = event.kind.as_deref() != Some("DELETE");
        let entry = is_there.then(|| event.kv.entry());
        match entry {
            Some(None) => return None,
            Some(Some(entry)) => changes.push((key, Some(entry))),
            None => changes.push((key, None)),
        }
    }
    Some(WatchMessage::Changes(watched.header, changes))
}

/// What `body` says, if it is what is expected.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

#[cfg(test)]
mod tests;
