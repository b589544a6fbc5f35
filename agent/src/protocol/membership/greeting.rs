//! Greetings: how two members find that they are alive, in which life, and that their files agree.
//!
//! A greeting carries a digest of the settings that must agree, and some of the settings
//! themselves, as lines. Where the digests differ, the lines tell which key: each greeting carries
//! the next few, so that also long files are told in full after some greetings.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::protocol::ids::NodeId;
use crate::protocol::lock::{Algorithm, LockSpec};
use crate::protocol::node::Settings;

/// How many bytes of lines a greeting carries, besides one line that may be longer.
const LINE_BYTES: usize = 512;

/// What a member says until its peer is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// Whether the sender takes the receiver to be up; if not, it wants an answer.
    pub(crate) up: bool,
    /// Whether the sender is in a view.
    pub(crate) in_view: bool,
    /// Of all lines of the sender's settings.
    pub(crate) digest: u64,
    /// Some of them, without a gap, by key.
    pub(crate) lines: Vec<(String, String)>,
    /// Whether no key comes before the first of `lines`, and none after the last.
    pub(crate) from_start: bool,
    pub(crate) to_end: bool,
}

/// The settings that all members must have alike, as lines.
#[derive(Debug)]
pub(crate) struct Agreement {
    lines: BTreeMap<String, String>,
    digest: u64,
    /// The key after which the next greeting's lines begin.
    told: Option<String>,
}

/// A key on which two members' files differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) key: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

impl Agreement {
    pub(crate) fn new(settings: &Settings, members: &BTreeSet<NodeId>) -> Self {
        let ids: Vec<_> = members.iter().map(ToString::to_string).collect();
        let mut lines = BTreeMap::from([
            ("group.name".to_string(), settings.group.clone()),
            ("lease".to_string(), format!("{:?}", settings.lease)),
            ("algorithm".to_string(), settings.algorithm.to_string()),
            ("member ids".to_string(), ids.join(" ")),
        ]);
        for (name, spec) in &settings.locks {
            lines.insert(format!("lock {name:?}"), in_words(*spec));
        }
        let mut hasher = blake3::Hasher::new();
        for (key, value) in &lines {
            for text in [key, value] {
                hasher.update(&(text.len() as u64).to_be_bytes());
                hasher.update(text.as_bytes());
            }
        }
        let digest = first_8(hasher.finalize().as_bytes());
        Self {
            lines,
            digest,
            told: None,
        }
    }

    /// The next greeting.
    pub(crate) fn greet(&mut self, up: bool, in_view: bool) -> Greeting {
        let after = self.told.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let mut bytes = 0;
        let rest = self.lines.range::<String, _>((after, Bound::Unbounded));
        let lines: Vec<_> = rest
            .take_while(|(key, value)| {
                let fits = bytes < LINE_BYTES;
                bytes += key.len() + value.len();
                fits
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let last = lines.last().map(|(key, _)| key.clone());
        let to_end = last.as_ref() == self.lines.keys().next_back();
        let from_start = self.told.is_none();
        self.told = if to_end { None } else { last };
        Greeting {
            up,
            in_view,
            digest: self.digest,
            lines,
            from_start,
            to_end,
        }
    }

    /// Whether the sender's settings are ours.
    pub(crate) fn agrees(&self, greeting: &Greeting) -> bool {
        greeting.digest == self.digest
    }

    /// The first key that differs, among those that the greeting tells of.
    pub(crate) fn difference(&self, greeting: &Greeting) -> Option<Difference> {
        let theirs: BTreeMap<_, _> = greeting.lines.iter().map(|(k, v)| (k, v)).collect();
        let (first, last) = (greeting.lines.first()?, greeting.lines.last()?);
        let from = if greeting.from_start {
            Bound::Unbounded
        } else {
            Bound::Included(&first.0)
        };
        let to = if greeting.to_end {
            Bound::Unbounded
        } else {
            Bound::Included(&last.0)
        };
        let keys: BTreeSet<_> = match (from, to) {
            // A range whose ends are crossed is not one: the greeting is malformed.
            (Bound::Included(from), Bound::Included(to)) if from > to => return None,
            range => self
                .lines
                .range::<String, _>(range)
                .map(|(key, _)| key)
                .collect(),
        };
        let absent = || "not listed".to_string();
        keys.into_iter()
            .chain(theirs.keys().copied())
            .find_map(|key| {
                let (our, their) = (self.lines.get(key), theirs.get(key).copied());
                (our != their).then(|| Difference {
                    key: key.clone(),
                    ours: our.cloned().unwrap_or_else(absent),
                    theirs: their.cloned().unwrap_or_else(absent),
                })
            })
    }
}

fn in_words(spec: LockSpec) -> String {
    match (spec.algorithm, spec.permits.get()) {
        (Algorithm::Semaphore, permits) => format!("semaphore, permits = {permits}"),
        (algorithm, _) => algorithm.to_string(),
    }
}

/// The first eight bytes of a hash, as a number.
pub(crate) fn first_8(hash: &[u8; 32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(bytes)
}
