//! The records in the store: one a lock, and one a session, as JSON.
//!
//! ```json
//! {"distlock":1,"permits":1,"fence":"259234520064","left":"clean",
//!  "inside":[{"session":"6fc1…","ticket":3,"mode":"x","fence":"259234520064","host":"a"}],"queue":[]}
//! {"distlock":1,"nonce":"9a04…","lease_ms":10000,"host":"a","at":"2026-11-23T06:00:00Z"}
//! ```
//!
//! Numbers that may pass 2^53 are strings. What does not read as such a record is not touched: whoever
//! needs it is refused.

mod text;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;

use serde::{Deserialize, Serialize, de};

use super::rules::MAX_QUEUE;
use super::wall;
use crate::ids::Fence;
use crate::lock::{Mode, Previous};

/// The format that is written. Records of a later one are left alone.
const FORMAT: u64 = 1;

/// The name of a session: one life of one agent, or a part of it. Drawn at random.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionName(#[serde(with = "text::session")] Arc<str>);

impl SessionName {
    /// The name with these bits.
    pub fn new(bits: u128) -> Self {
        Self(format!("{bits:032x}").into())
    }

    /// As it is in keys.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The session whose key ends so; `None` if no key of a session does.
    pub fn from_key(name: &str) -> Option<Self> {
        is_name(name).then(|| Self(name.into()))
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What may stand for a session: it becomes a part of a key.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// One request, in the record of a lock. Which: the session's, and the number that the agent gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Whose.
    pub session: SessionName,
    /// Which request of that session.
    pub ticket: u64,
    /// With whom it may be inside: `x` or `s`.
    #[serde(with = "text::mode")]
    pub mode: Mode,
    /// Its fence, once it is inside.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "text::some_fence"
    )]
    pub fence: Option<Fence>,
    /// What its caller is told of how a grant before ended, once it is inside.
    #[serde(
        default = "clean",
        skip_serializing_if = "is_clean",
        with = "text::left"
    )]
    pub previous: Previous,
    /// Where its agent runs, for whoever looks: so that they need not read the session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The process that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Claim {
    /// Whether it is that one.
    pub fn is(&self, session: &SessionName, ticket: u64) -> bool {
        self.ticket == ticket && self.session == *session
    }
}

/// The record of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockRecord {
    distlock: u64,
    /// How many may be inside.
    pub permits: NonZeroU32,
    /// The last fence that was given; 0 before the first.
    #[serde(with = "text::number")]
    pub fence: u64,
    /// How a grant ended that the next one is to be told of.
    #[serde(with = "text::left")]
    pub left: Previous,
    /// Who holds the lock.
    pub inside: Vec<Claim>,
    /// Who waits, the first in front.
    pub queue: Vec<Claim>,
}

impl LockRecord {
    /// Of a lock that nobody has ever asked for.
    pub const fn new(permits: NonZeroU32) -> Self {
        Self {
            distlock: FORMAT,
            permits,
            fence: 0,
            left: Previous::Clean,
            inside: Vec::new(),
            queue: Vec::new(),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none, or of a later format. Nothing of it may be used then, nor may it be written over.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = parse(bytes)?;
        record.check()?;
        Ok(record)
    }

    /// As it is in the store.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has nothing that JSON lacks")
    }

    /// All claims, those inside first.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.inside.iter().chain(&self.queue)
    }

    fn check(&self) -> Result<(), RecordError> {
        let wrong = |why: &str| Err(RecordError::Malformed(why.to_string()));
        if i64::try_from(self.fence).is_err() {
            return wrong("the fence is out of range");
        }
        let is_mixed = |claim: &Claim| claim.mode != self.inside[0].mode;
        let is_shared = |claim: &Claim| claim.mode == Mode::Shared;
        if self.inside.iter().any(is_mixed) {
            return wrong("a shared and an exclusive claim are inside");
        }
        let is_one = self.permits.get() == 1;
        if !is_one && self.claims().any(is_shared) {
            return wrong("a claim shares a lock of several permits");
        }
        if !self.inside.iter().all(is_shared) && self.inside.len() > self.permits.get() as usize {
            return wrong("more claims are inside than there are permits");
        }
        if self.queue.len() > MAX_QUEUE {
            return wrong("the queue is too long");
        }
        let has_fence = |claim: &Claim| claim.fence.is_some_and(|it| it.as_u64() <= self.fence);
        if !self.inside.iter().all(has_fence) {
            return wrong("a claim is inside without a fence of this lock");
        }
        let known: BTreeSet<_> = self.claims().map(|it| (it.ticket, &it.session)).collect();
        if known.len() != self.inside.len() + self.queue.len() {
            return wrong("a claim is there twice");
        }
        Ok(())
    }
}

/// The record of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionRecord {
    distlock: u64,
    /// Which renewal wrote it: another one each time.
    #[serde(default)]
    pub nonce: String,
    /// How long its agent may act from when it sent this, in milliseconds of its clock.
    pub lease_ms: NonZeroU32,
    /// Where the agent runs.
    #[serde(default)]
    pub host: String,
    /// When it was written, by the agent's wall clock, as in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Whether somebody has ended the session. Nothing is written over that.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub dead: bool,
}

impl SessionRecord {
    /// Of a session with a lease of that length, which is rounded up to milliseconds. `wall` is the time
    /// since 2025-01-01 00:00 UTC.
    pub fn new(nonce: u64, lease: Duration, host: &str, wall: Option<Duration>) -> Self {
        Self {
            distlock: FORMAT,
            nonce: format!("{nonce:016x}"),
            lease_ms: in_ms(lease),
            host: host.to_string(),
            at: wall.map(wall::format_utc),
            dead: false,
        }
    }

    /// The record that ends a session, in place of `last`, or of none.
    pub fn tombstone(last: Option<&Self>, lease: Duration) -> Self {
        Self {
            distlock: FORMAT,
            nonce: String::new(),
            lease_ms: last.map_or_else(|| in_ms(lease), |last| last.lease_ms),
            host: last.map(|last| last.host.clone()).unwrap_or_default(),
            at: last.and_then(|last| last.at.clone()),
            dead: true,
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none, or of a later format. Nothing of it may be used then, nor may it be written over.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        parse(bytes)
    }

    /// As it is in the store.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has nothing that JSON lacks")
    }

    /// How long the lease is.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.get().into())
    }

    /// When it was written, since 2025-01-01 00:00 UTC, by the wall clock of its agent.
    pub fn written_at(&self) -> Option<Duration> {
        self.at.as_deref().and_then(wall::parse_utc)
    }
}

fn in_ms(lease: Duration) -> NonZeroU32 {
    let ms = u32::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
    NonZeroU32::new(ms).unwrap_or(NonZeroU32::MIN)
}

/// Why a record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is not what a record of its kind is.
    #[error("it is no record of distlock: {0}")]
    Malformed(String),
    /// A later version of distlock wrote it.
    #[error("a later version of distlock wrote it (format {0}); upgrade this one")]
    Newer(u64),
}

fn parse<T: de::DeserializeOwned + Format>(bytes: &[u8]) -> Result<T, RecordError> {
    #[derive(Deserialize)]
    struct Head {
        distlock: u64,
    }

    let record = serde_json::from_slice::<T>(bytes);
    if let Ok(record) = record
        && record.format() == FORMAT
    {
        return Ok(record);
    }
    let malformed = |error: serde_json::Error| RecordError::Malformed(error.to_string());
    let head: Head = serde_json::from_slice(bytes).map_err(malformed)?;
    if head.distlock > FORMAT {
        return Err(RecordError::Newer(head.distlock));
    }
    match serde_json::from_slice::<T>(bytes) {
        Ok(_) => Err(RecordError::Malformed("it has no such format".to_string())),
        Err(error) => Err(malformed(error)),
    }
}

trait Format {
    fn format(&self) -> u64;
}

impl Format for LockRecord {
    fn format(&self) -> u64 {
        self.distlock
    }
}

impl Format for SessionRecord {
    fn format(&self) -> u64 {
        self.distlock
    }
}

const fn clean() -> Previous {
    Previous::Clean
}

fn is_clean(previous: &Previous) -> bool {
    *previous == Previous::Clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> LockRecord {
        let claim = |ticket, fence| Claim {
            session: SessionName::new(7),
            ticket,
            mode: Mode::Exclusive,
            fence,
            previous: Previous::after(fence.is_some()),
            host: "a".into(),
            pid: None,
            command: Some("lp \"x\"".into()),
        };
        let mut record = LockRecord::new(NonZeroU32::MIN);
        record.fence = (1 << 60) + 1;
        record.left = Previous::Abandoned;
        record.inside.push(claim(1, Fence::new(record.fence)));
        record.queue.push(claim(2, None));
        record
    }

    #[test]
    fn records_are_written_as_documented_and_read_back() {
        let record = whole();
        let text = String::from_utf8(record.to_bytes()).unwrap();
        let start =
            r#"{"distlock":1,"permits":1,"fence":"1152921504606846977","left":"abandoned","#;
        assert!(text.starts_with(start), "{text}");
        assert_eq!(LockRecord::parse(text.as_bytes()), Ok(record));
        let session = SessionRecord::new(10, Duration::from_secs(10), "a", Some(Duration::ZERO));
        let text = r#"{"distlock":1,"nonce":"000000000000000a","lease_ms":10000,"host":"a","at":"2025-01-01T00:00:00Z"}"#;
        assert_eq!(session.to_bytes(), text.as_bytes());
        assert_eq!(SessionRecord::parse(text.as_bytes()), Ok(session.clone()));
        assert_eq!(session.written_at(), Some(Duration::ZERO));
        let dead = SessionRecord::tombstone(Some(&session), Duration::ZERO);
        assert_eq!(SessionRecord::parse(&dead.to_bytes()), Ok(dead.clone()));
        assert!(dead.dead && dead.lease() == session.lease());
    }

    /// A holder may act for no longer than others think.
    #[test]
    fn a_lease_is_rounded_up() {
        let record = SessionRecord::new(1, Duration::from_nanos(1_000_001), "", None);
        assert_eq!(record.lease(), Duration::from_millis(2));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let bytes = whole().to_bytes();
        let text = String::from_utf8(bytes).unwrap();
        let broken = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            LockRecord::parse(text.replacen(from, to, 1).as_bytes())
        };
        assert_eq!(
            broken(r#""distlock":1"#, r#""distlock":2"#),
            Err(RecordError::Newer(2))
        );
        for (from, to) in [
            (r#""distlock":1"#, r#""distlock":0"#),
            (r#""distlock":1,"#, ""),
            (r#""permits":1"#, r#""permits":0"#),
            (
                r#""fence":"1152921504606846977","left""#,
                r#""fence":"9223372036854775808","left""#,
            ),
            (
                r#""fence":"1152921504606846977","left""#,
                r#""fence":"1","left""#,
            ),
            (r#""mode":"x""#, r#""mode":"y""#),
            (
                r#""mode":"x","fence":"1152921504606846977""#,
                r#""mode":"x""#,
            ),
            (r#""ticket":2"#, r#""ticket":1"#),
            (r#""left":"abandoned""#, r#""left":"""#),
            ("00000007", "000/0007"),
            ("}", ""),
        ] {
            let error = broken(from, to).unwrap_err();
            assert!(matches!(error, RecordError::Malformed(_)), "{to}: {error}");
        }
        let wrong = [&b""[..], b"\xff", b"{}", b"[]", b"null"];
        assert!(wrong.iter().all(|it| SessionRecord::parse(it).is_err()));
        let newer = br#"{"distlock":2,"nonce":5}"#;
        assert_eq!(SessionRecord::parse(newer), Err(RecordError::Newer(2)));
    }

    /// Whoever mends a record by hand may have a program write it that escapes what need not be.
    #[test]
    fn text_may_have_escapes() {
        let record = whole();
        let text = String::from_utf8(record.to_bytes()).unwrap();
        let escaped = text
            .replace("abandoned", "ab\\u0061ndoned")
            .replace("\"x\"", "\"\\u0078\"")
            .replace("\"1152921504606846977\"", "\"\\u0031152921504606846977\"")
            .replace("000007", "00000\\u0037");
        assert_eq!(escaped.matches("\\u00").count(), 8, "{escaped}");
        assert_eq!(LockRecord::parse(escaped.as_bytes()), Ok(record));
    }

    #[test]
    fn too_many_inside_is_no_record() {
        let mut record = whole();
        let mut second = record.inside[0].clone();
        second.ticket = 9;
        record.inside.push(second);
        assert!(LockRecord::parse(&record.to_bytes()).is_err());
        for claim in &mut record.inside {
            claim.mode = Mode::Shared;
        }
        assert!(LockRecord::parse(&record.to_bytes()).is_ok());
        record.permits = NonZeroU32::new(2).unwrap();
        assert!(LockRecord::parse(&record.to_bytes()).is_err());
    }
}
