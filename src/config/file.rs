//! The configuration file: its keys, and what each may say.
//!
//! Reading has two steps. [`syntax`] finds unknown keys, missing ones and wrong types; everything kept
//! from it carries its place in the text, so that the checks that follow can name the line too.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_agent::protocol::{self, ClusterId, ElectionAlgorithm, Failure, NodeId, Settings};
use distlock_agent::runtime::{Address, CREDENTIAL, MulticastAddress};
#[cfg(feature = "store")]
use distlock_stores::StoreUrl;
use toml_span::de_helpers::{TableHelper, expected};
use toml_span::value::ValueInner;
use toml_span::{DeserError, Deserialize, Span, Spanned, Value};

use super::audit::Audit;
use super::error::ConfigError;
use super::fault::Fault;
use super::locks::{self, read_algorithm, read_locks};
use super::members::{self, MAX_VOTERS, read_members, read_multicast, read_voters};
use super::metrics::{Metrics, MetricsAddress};
#[cfg(feature = "store")]
use super::store::Access;
use super::store_table::StoreTable;
use super::syntax;

const DEFAULT_LEASE: Duration = Duration::from_secs(5);
/// Leases for kinds of hosts.
const PROFILES: [(&str, Duration); 4] = [
    ("fast", Duration::from_secs(1)),
    ("lan", DEFAULT_LEASE),
    ("cloud", Duration::from_secs(15)),
    ("wan", Duration::from_secs(30)),
];
const MIN_LEASE: Duration = Duration::from_millis(100);
const MAX_LEASE: Duration = Duration::from_secs(3600);
/// As in Chubby (Burrows 2006): whoever needs longer has to clean up by hand.
const MAX_LOCK_DELAY: Duration = Duration::from_secs(60);
const MAX_GROUP_LEN: usize = 255;

/// What a configuration says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) settings: Settings,
    pub(super) members: BTreeMap<NodeId, Address>,
    pub(super) voters: Vec<NodeId>,
    pub(super) voters_are_listed: bool,
    pub(super) cluster: Option<ClusterId>,
    pub(super) multicast: Option<MulticastAddress>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) command_lines: bool,
    pub(super) metrics: Option<MetricsAddress>,
    pub(super) audit: Option<PathBuf>,
    /// Where the locks are kept, if that is a store. Then there are no members.
    #[cfg(feature = "store")]
    pub(super) store: Option<(StoreUrl, Access)>,
}

struct File {
    profile: Option<Spanned<String>>,
    lease: Option<Spanned<Length>>,
    algorithm: Option<Spanned<String>>,
    election: Option<Spanned<String>>,
    failure: Option<Spanned<String>>,
    lock_delay: Option<Spanned<Length>>,
    key_file: Option<Spanned<String>>,
    multicast: Option<Spanned<String>>,
    insecure: bool,
    command_lines: bool,
    voters: Option<Spanned<Vec<Spanned<i64>>>>,
    metrics: Option<Metrics>,
    audit: Option<Audit>,
    store: Option<Spanned<StoreTable>>,
    group: Group,
    member: Vec<Spanned<members::Member>>,
    lock: Vec<Spanned<locks::Lock>>,
}

impl<'de> Deserialize<'de> for File {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let mut table = TableHelper::new(value)?;
        let profile = table.optional_s("profile");
        let lease = table.optional_s("lease");
        let algorithm = table.optional_s("algorithm");
        let election = table.optional_s("election");
        let failure = table.optional_s("failure");
        let lock_delay = table.optional_s("lock_delay");
        let key_file = table.optional_s("key_file");
        let multicast = table.optional_s("multicast");
        let insecure = table.optional("insecure");
        let command_lines = table.optional("command_lines");
        let voters = table.optional_s("voters");
        let metrics = table.optional("metrics");
        let audit = table.optional("audit");
        let store = table.optional_s("store");
        let group = table.required("group");
        let member = table.optional("member");
        let lock = table.optional("lock");
        table.finalize(None)?;
        Ok(Self {
            profile,
            lease,
            algorithm,
            election,
            failure,
            lock_delay,
            key_file,
            multicast,
            insecure: insecure.unwrap_or_default(),
            command_lines: command_lines.unwrap_or_default(),
            voters,
            metrics,
            audit,
            store,
            group: group?,
            member: member.unwrap_or_default(),
            lock: lock.unwrap_or_default(),
        })
    }
}

/// A length of time. A number is read so that the refusal can say which string is meant.
enum Length {
    Text(String),
    Number(i64),
    Fraction(f64),
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let meant = "a string with a number and its unit, as in \"5s\"";
        match value.take() {
            ValueInner::String(text) => Ok(Self::Text(text.into_owned())),
            ValueInner::Integer(number) => Ok(Self::Number(number)),
            ValueInner::Float(number) => Ok(Self::Fraction(number)),
            other => Err(expected(meant, other, value.span).into()),
        }
    }
}

struct Group {
    name: Spanned<String>,
    cluster: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let mut table = TableHelper::new(value)?;
        let name = table.required_s("name");
        let cluster = table.optional_s("cluster");
        table.finalize(None)?;
        Ok(Self {
            name: name?,
            cluster,
        })
    }
}

/// Reads and checks `bytes`; `source` is their name in errors, and `base` the directory at which paths
/// in them begin.
pub(super) fn check(bytes: &[u8], source: &str, base: &Path) -> Result<Contents, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Fault::new(
            Span::new(at, at),
            "this is not UTF-8: save the file in that encoding",
        )
    });
    text.and_then(|text| read(text, base)).map_err(|fault| {
        let before = &bytes[..fault.at.min(bytes.len())];
        ConfigError::Invalid {
            source_name: source.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            reason: fault.reason,
        }
    })
}

fn read(text: &str, base: &Path) -> Result<Contents, Fault> {
    let file: File = syntax::read(text)?;
    if let Some(table) = &file.store {
        return read_with_store(&file, table, base);
    }
    let key_file = file.key_file.as_ref();
    let key_file = key_file
        .map(|path| read_key_file(path, file.insecure, base))
        .transpose()?;
    let failure = read_failure(file.failure.as_ref())?;
    let algorithm = match &file.algorithm {
        Some(name) => read_algorithm(name, failure)?,
        None => protocol::Algorithm::Manager,
    };
    let may_leave_host = file.insecure || key_file.is_some();
    let members = read_members(&file.member, may_leave_host)?;
    let settings = Settings {
        group: read_group(&file.group)?,
        lease: read_lease(file.lease.as_ref(), file.profile.as_ref(), DEFAULT_LEASE)?,
        failure,
        lock_delay: file
            .lock_delay
            .as_ref()
            .map_or(Ok(Duration::ZERO), read_lock_delay)?,
        algorithm,
        election: read_election(file.election.as_ref())?,
        locks: read_locks(&file.lock, failure)?,
    };
    let voters = match &file.voters {
        Some(voters) => read_voters(voters, &members)?,
        None => members.keys().copied().take(MAX_VOTERS).collect(),
    };
    let multicast = file.multicast.as_ref();
    let multicast = multicast
        .map(|text| read_multicast(text, &members))
        .transpose()?;
    Ok(Contents {
        settings,
        members,
        voters,
        voters_are_listed: file.voters.is_some(),
        cluster: file.group.cluster.as_ref().map(read_cluster).transpose()?,
        multicast,
        key_file,
        command_lines: file.command_lines,
        metrics: file.metrics.as_ref().map(Metrics::read).transpose()?,
        audit: file.audit.as_ref().map(Audit::read).transpose()?,
        #[cfg(feature = "store")]
        store: None,
    })
}

/// A file whose locks are kept in a store.
#[cfg(feature = "store")]
fn read_with_store(
    file: &File,
    table: &Spanned<StoreTable>,
    base: &Path,
) -> Result<Contents, Fault> {
    refuse_members_keys(file)?;
    let group = read_group(&file.group)?;
    let plain = super::store::check_group(&group);
    plain.map_err(|reason| Fault::new(file.group.name.span, reason))?;
    let (lease, profile) = (file.lease.as_ref(), file.profile.as_ref());
    let lease = read_lease(lease, profile, super::store::DEFAULT_LEASE)?;
    let lock_delay = file.lock_delay.as_ref();
    let lock_delay = lock_delay.map_or(Ok(Duration::ZERO), read_lock_delay)?;
    let locks = locks::read_locks_of_store(&file.lock)?;
    let metrics = file.metrics.as_ref().map(Metrics::read).transpose()?;
    let audit = file.audit.as_ref().map(Audit::read).transpose()?;
    let (url, access) = table.value.read(base)?;
    let fault = |reason| Fault::new(table.span, reason);
    access.check(&url).map_err(fault)?;
    let settings = Settings {
        lease,
        lock_delay,
        locks,
        ..Settings::new(group)
    };
    Ok(Contents {
        settings,
        members: BTreeMap::new(),
        voters: Vec::new(),
        voters_are_listed: false,
        cluster: None,
        multicast: None,
        key_file: None,
        command_lines: file.command_lines,
        metrics,
        audit,
        store: Some((url, access)),
    })
}

#[cfg(not(feature = "store"))]
fn read_with_store(_: &File, table: &Spanned<StoreTable>, _: &Path) -> Result<Contents, Fault> {
    Err(Fault::new(
        table.span,
        "this build of distlock has no stores: build it with the feature etcd or postgresql",
    ))
}

/// What only members have has no meaning beside `[store]`.
#[cfg(feature = "store")]
fn refuse_members_keys(file: &File) -> Result<(), Fault> {
    let keys = [
        ("algorithm", file.algorithm.as_ref().map(|it| it.span)),
        ("election", file.election.as_ref().map(|it| it.span)),
        ("failure", file.failure.as_ref().map(|it| it.span)),
        ("key_file", file.key_file.as_ref().map(|it| it.span)),
        ("multicast", file.multicast.as_ref().map(|it| it.span)),
        ("voters", file.voters.as_ref().map(|it| it.span)),
        ("cluster", file.group.cluster.as_ref().map(|it| it.span)),
        ("[[member]]", file.member.first().map(|it| it.span)),
    ];
    for (key, span) in keys {
        if let Some(span) = span {
            let reason = format!(
                "{key} belongs to a group of members, and with [store] the store decides: remove \
                 one of both"
            );
            return Err(Fault::new(span, reason));
        }
    }
    Ok(())
}

fn read_failure(failure: Option<&Spanned<String>>) -> Result<Failure, Fault> {
    let Some(failure) = failure else {
        return Ok(Failure::Quorum);
    };
    match failure.value.as_str() {
        "quorum" => Ok(Failure::Quorum),
        "presume-failed" => Ok(Failure::PresumeFailed),
        other => {
            let reason = format!(
                "there is no failure rule {other:?}; choose \"quorum\" or \"presume-failed\", or \
                 leave the key out"
            );
            Err(Fault::new(failure.span, reason))
        }
    }
}

/// Where the key file is; a path that is not absolute begins at `base`, the directory of this file.
fn read_key_file(path: &Spanned<String>, is_insecure: bool, base: &Path) -> Result<PathBuf, Fault> {
    let fault = |reason: &str| Fault::new(path.span, reason);
    if is_insecure {
        return Err(fault(
            "there are both key_file, by which datagrams are sealed, and insecure = true, by which \
             they are not: remove one",
        ));
    }
    let text = &path.value;
    if text.is_empty() || text.contains('\0') {
        return Err(fault(
            "key_file is no path: name the file that distlock keygen wrote",
        ));
    }
    // Where that is, is known where the agent runs.
    if text.starts_with(CREDENTIAL) {
        return Ok(text.into());
    }
    Ok(base.join(text))
}

fn read_group(group: &Group) -> Result<String, Fault> {
    let name = &group.name.value;
    if name.is_empty() || name.len() > MAX_GROUP_LEN || name.contains(char::is_control) {
        let reason = format!(
            "the group's name must have 1 to {MAX_GROUP_LEN} bytes and no control characters"
        );
        return Err(Fault::new(group.name.span, reason));
    }
    Ok(name.clone())
}

fn read_cluster(text: &Spanned<String>) -> Result<ClusterId, Fault> {
    let id = text.value.parse();
    id.map_err(|error| Fault::new(text.span, format!("{:?}: {error}", text.value)))
}

/// The lease: what `lease` says, else the lease of `profile`, else the default.
fn read_lease(
    lease: Option<&Spanned<Length>>,
    profile: Option<&Spanned<String>>,
    default: Duration,
) -> Result<Duration, Fault> {
    // Also where it is of no use: it may be misspelt.
    let by_profile = profile.map_or(Ok(default), read_profile)?;
    let Some(text) = lease else {
        return Ok(by_profile);
    };
    let lease = read_duration(text, "lease")?;
    let checked = check_lease(lease).map_err(|reason| Fault::new(text.span, reason));
    checked.map(|()| lease)
}

pub(super) fn check_lease(lease: Duration) -> Result<(), String> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(format!(
        "a lease of {lease:?} is out of bounds: choose \"100ms\" to \"60m\""
    ))
}

/// The lease for such hosts.
fn read_profile(profile: &Spanned<String>) -> Result<Duration, Fault> {
    let name = profile.value.as_str();
    let known = PROFILES.iter().find(|(its, _)| *its == name);
    known.map(|(_, lease)| *lease).ok_or_else(|| {
        let reason = format!(
            "there is no profile {name:?}: choose \"fast\", \"lan\", \"cloud\" or \"wan\", or say the \
             lease itself"
        );
        Fault::new(profile.span, reason)
    })
}

fn read_election(name: Option<&Spanned<String>>) -> Result<ElectionAlgorithm, Fault> {
    let Some(name) = name else {
        return Ok(ElectionAlgorithm::default());
    };
    let text = &name.value;
    text.parse()
        .map_err(|error| Fault::new(name.span, format!("election = {text:?}: {error}")))
}

fn read_lock_delay(text: &Spanned<Length>) -> Result<Duration, Fault> {
    let delay = read_duration(text, "lock_delay")?;
    if delay > MAX_LOCK_DELAY {
        let reason =
            format!("a lock_delay of {delay:?} is out of bounds: choose \"0s\" to \"60s\"");
        return Err(Fault::new(text.span, reason));
    }
    Ok(delay)
}

/// A whole number and its unit: `500ms`, `5s`, `1m`.
pub(super) fn read_length(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    let millis = number.parse::<u64>().ok()?.checked_mul(unit_ms)?;
    Some(Duration::from_millis(millis))
}

/// The same, with its place in the file. `key`: what it is for.
fn read_duration(spanned: &Spanned<Length>, key: &str) -> Result<Duration, Fault> {
    let no_unit = |number: &dyn fmt::Display, meant: &dyn fmt::Display| {
        let reason = format!("{key} = {number} has no unit: write {key} = \"{meant}\"");
        Err(Fault::new(spanned.span, reason))
    };
    let text = match &spanned.value {
        Length::Text(text) => text,
        Length::Number(number @ 0..) => return no_unit(number, &format_args!("{number}s")),
        Length::Number(number) => return no_unit(number, &"5s"),
        Length::Fraction(number) => {
            // Whole numbers only: 0.5 is "500ms".
            let millis = (number * 1000.0).round();
            let is_meant = (0.0..1e9).contains(&millis);
            let meant = if is_meant {
                format!("{millis}ms")
            } else {
                "5s".to_owned()
            };
            return no_unit(number, &meant);
        }
    };
    read_length(text).ok_or_else(|| {
        let reason = format!(
            "{text:?} is no {key}: write a whole number and its unit, as in \"500ms\", \"5s\" or \
             \"1m\""
        );
        Fault::new(spanned.span, reason)
    })
}
