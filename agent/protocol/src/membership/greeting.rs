//! Greetings: how two members find that they are alive, in which incarnation, and that their files
//! agree.
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

use crate::ids::NodeId;
use crate::lock::{Algorithm, LockSpec};
use crate::settings::{Failure, Settings};

/// How many bytes of lines a greeting carries, besides one line that may be longer.
const LINE_BYTES: usize = 512;
/// How many ids of members a line tells of.
const IDS_IN_A_LINE: u16 = 100;

/// What a member says until its peer is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Whether the sender takes the receiver to be up; if not, it wants an answer.
    pub up: bool,
    /// Whether the sender is in a view.
    pub in_view: bool,
    /// Whether the sender knew an earlier incarnation of the receiver, which did not leave. A member
    /// that has lost its state learns so that it is not new.
    pub knew_you: bool,
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
        let mut lines = BTreeMap::from([
            ("group.name".to_string(), settings.group.clone()),
            ("lease".to_string(), format!("{:?}", settings.lease)),
            ("failure".to_string(), settings.failure.to_string()),
            (
                "lock_delay".to_string(),
                format!("{:?}", settings.lock_delay),
            ),
            ("algorithm".to_string(), settings.algorithm.to_string()),
            ("election".to_string(), settings.election.to_string()),
        ]);
        if settings.failure == Failure::Unanimity {
            // Elsewhere the list is an address overrides: who belongs to the group is for its views.
            lines.extend(in_blocks(members));
        }
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
    pub(crate) fn greet(&mut self, up: bool, in_view: bool, knew_you: bool) -> Greeting {
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
            knew_you,
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

/// The ids in lines of bounded length, so that a greeting is one datagram in groups of any size.
fn in_blocks(members: &BTreeSet<NodeId>) -> BTreeMap<String, String> {
    let mut blocks: BTreeMap<String, String> = BTreeMap::new();
    for id in members {
        let first = id.as_u16() / IDS_IN_A_LINE * IDS_IN_A_LINE;
        let last = first.saturating_add(IDS_IN_A_LINE - 1);
        let ids = blocks
            .entry(format!("member ids {first} to {last}"))
            .or_default();
        if !ids.is_empty() {
            ids.push(' ');
        }
        ids.push_str(&id.to_string());
    }
    blocks
}

fn in_words(spec: LockSpec) -> String {
    match (spec.algorithm, spec.permits.get()) {
        (algorithm, permits) if algorithm.is_central() => {
            format!("{algorithm}, permits = {permits}")
        }
        (Algorithm::CarvalhoRoucairol, _) => {
            format!("{}, priority = {}", spec.algorithm, spec.priority)
        }
        (algorithm, _) => algorithm.to_string(),
    }
}

/// The first eight bytes of a hash, as a number.
pub(crate) fn first_8(hash: &[u8; 32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::num::NonZeroU32;
    use core::time::Duration;

    use super::*;
    use crate::ElectionAlgorithm;
    use crate::ids::LockName;
    use crate::lock::Priority;

    fn settings(locks: impl IntoIterator<Item = (String, LockSpec)>) -> Settings {
        let locks = locks
            .into_iter()
            .map(|(name, spec)| (LockName::new(name).unwrap(), spec));
        Settings {
            failure: Failure::Unanimity,
            locks: locks.collect(),
            ..Settings::new("shop")
        }
    }

    fn members(ids: &[u16]) -> BTreeSet<NodeId> {
        ids.iter().filter_map(|&id| NodeId::new(id)).collect()
    }

    /// Lets `theirs` greet until `ours` finds the difference, or all was told twice.
    fn find(ours: &Agreement, theirs: &mut Agreement) -> Option<Difference> {
        (0..2000).find_map(|_| {
            let greeting = theirs.greet(false, false, false);
            assert!(!ours.agrees(&greeting));
            ours.difference(&greeting)
        })
    }

    fn difference(ours: &Settings, theirs: &Settings) -> Option<(String, String, String)> {
        let ids = members(&[1, 2]);
        let found = find(
            &Agreement::new(ours, &ids),
            &mut Agreement::new(theirs, &ids),
        );
        found.map(|Difference { key, ours, theirs }| (key, ours, theirs))
    }

    #[test]
    fn like_files_agree() {
        let ids = members(&[1, 2]);
        let mut one = Agreement::new(&settings([]), &ids);
        let other = Agreement::new(&settings([]), &ids);
        assert!(other.agrees(&one.greet(false, false, false)));
    }

    #[test]
    fn the_key_that_differs_is_named_with_both_values() {
        let ours = settings([]);
        let mut theirs = ours.clone();
        theirs.lease = Duration::from_millis(1500);
        let named = difference(&ours, &theirs).unwrap();
        assert_eq!(named, ("lease".into(), "5s".into(), "1.5s".into()));
        let mut theirs = ours.clone();
        theirs.algorithm = Algorithm::Bakery;
        let named = difference(&ours, &theirs).unwrap();
        assert_eq!(
            named,
            ("algorithm".into(), "manager".into(), "bakery".into())
        );
    }

    #[test]
    fn what_silence_means_and_how_leaders_are_elected_must_be_the_same() {
        let ours = settings([]);
        let theirs = Settings {
            failure: Failure::PresumeFailed,
            ..ours.clone()
        };
        let named = difference(&ours, &theirs).unwrap();
        assert_eq!(
            named,
            (
                "failure".into(),
                "unanimity".into(),
                "presume-failed".into()
            )
        );
        let theirs = Settings {
            lock_delay: Duration::from_secs(15),
            ..ours.clone()
        };
        let named = difference(&ours, &theirs).unwrap();
        assert_eq!(named, ("lock_delay".into(), "0ns".into(), "15s".into()));
        let theirs = Settings {
            election: ElectionAlgorithm::ChangRoberts,
            ..ours.clone()
        };
        let named = difference(&ours, &theirs).unwrap();
        assert_eq!(
            named,
            ("election".into(), "bully".into(), "chang-roberts".into())
        );
    }

    #[test]
    fn members_must_be_the_same_where_all_are_needed() {
        let mut settings = settings([]);
        let ours = Agreement::new(&settings, &members(&[1, 2]));
        let mut theirs = Agreement::new(&settings, &members(&[1, 2, 3]));
        let named = find(&ours, &mut theirs).unwrap();
        assert_eq!((&*named.ours, &*named.theirs), ("1 2", "1 2 3"));
        for failure in [Failure::Quorum, Failure::PresumeFailed] {
            settings.failure = failure;
            let ours = Agreement::new(&settings, &members(&[1, 2]));
            let mut theirs = Agreement::new(&settings, &members(&[1, 2, 3]));
            assert!(ours.agrees(&theirs.greet(false, false, false)));
        }
    }

    #[test]
    fn a_greeting_is_one_datagram_in_the_largest_group() {
        let ids: Vec<u16> = (1..=u16::MAX).collect();
        let (all, fewer) = (members(&ids), members(&ids[..40_000]));
        let ours = Agreement::new(&settings([]), &all);
        let mut theirs = Agreement::new(&settings([]), &fewer);
        for _ in 0..2000 {
            let told: usize = theirs
                .greet(false, false, false)
                .lines
                .iter()
                .map(size)
                .sum();
            assert!(told < 1200, "{told} bytes");
        }
        let named = find(&ours, &mut theirs).unwrap();
        assert_eq!(named.key, "member ids 40000 to 40099");
    }

    fn size((key, value): &(String, String)) -> usize {
        key.len() + value.len()
    }

    #[test]
    fn a_lock_that_only_one_file_lists_is_found_from_either_side() {
        let many = |skip: u32| {
            let ids = (0..300_u32).filter(move |&i| i != skip);
            let permits = NonZeroU32::new(3).unwrap();
            ids.map(move |i| (format!("lock {i:03}"), LockSpec::counting(permits)))
        };
        for skip in [0, 7, 150, 299] {
            let (all, fewer) = (settings(many(1000)), settings(many(skip)));
            let key = format!("lock \"lock {skip:03}\"");
            let spec: String = "manager, permits = 3".into();
            let absent: String = "not listed".into();
            let named = difference(&all, &fewer);
            assert_eq!(named, Some((key.clone(), spec.clone(), absent.clone())));
            assert_eq!(difference(&fewer, &all), Some((key, absent, spec)));
        }
    }

    #[test]
    fn priorities_must_be_the_same() {
        let by = |priority| {
            let algorithm = Algorithm::CarvalhoRoucairol;
            let spec = LockSpec {
                priority,
                ..LockSpec::exclusive(algorithm)
            };
            settings([("printer".into(), spec)])
        };
        let named = difference(&by(Priority::Lamport), &by(Priority::LeastRecent)).unwrap();
        let said = |priority: &str| format!("carvalho-roucairol, priority = {priority}");
        assert_eq!(
            named,
            (
                "lock \"printer\"".into(),
                said("lamport"),
                said("least-recent")
            )
        );
    }

    #[test]
    fn crossed_lines_are_no_range() {
        let ids = members(&[1]);
        let agreement = Agreement::new(&settings([]), &ids);
        let greeting = Greeting {
            up: false,
            in_view: false,
            knew_you: false,
            digest: 0,
            lines: vec![("z".into(), "1".into()), ("a".into(), "1".into())],
            from_start: false,
            to_end: false,
        };
        assert_eq!(agreement.difference(&greeting), None);
    }
}
