//! The configuration file: its keys, and what each may say.
//!
//! Reading has two steps. serde finds unknown keys, missing ones and wrong types; everything kept
//! from it carries its place in the text, so that the checks that follow can name the line too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_agent::protocol::{
    self, AlgorithmNames, ClusterId, ElectionAlgorithm, Failure, LockName, LockSpec, NodeId,
    Priority, Settings,
};
use distlock_agent::runtime::{Address, CREDENTIAL, MulticastAddress};
use serde::Deserialize;
use toml::Spanned;

use super::{Config, ConfigError};
use crate::Algorithm;

const DEFAULT_LEASE: Duration = Duration::from_secs(5);
const MIN_LEASE: Duration = Duration::from_millis(100);
const MAX_LEASE: Duration = Duration::from_secs(3600);
/// As in Chubby (Burrows 2006): whoever needs longer has to clean up by hand.
const MAX_LOCK_DELAY: Duration = Duration::from_secs(60);
const MAX_GROUP_LEN: usize = 255;
const MAX_MEMBERS: usize = 1024;
const MAX_LOCKS: usize = 10_000;
const MAX_VOTERS: usize = 7;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    lease: Option<Spanned<Length>>,
    algorithm: Option<Spanned<String>>,
    election: Option<Spanned<String>>,
    failure: Option<Spanned<String>>,
    lock_delay: Option<Spanned<Length>>,
    key_file: Option<Spanned<String>>,
    multicast: Option<Spanned<String>>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    command_lines: bool,
    voters: Option<Spanned<Vec<Spanned<i64>>>>,
    group: Group,
    #[serde(default)]
    member: Vec<Spanned<Member>>,
    #[serde(default)]
    lock: Vec<Spanned<Lock>>,
}

/// A length of time. A number is read so that the refusal can say which string is meant.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a string with a number and its unit, as in \"5s\""
)]
enum Length {
    Text(String),
    Number(i64),
    Fraction(f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: Spanned<String>,
    cluster: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    id: Spanned<i64>,
    address: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lock {
    name: Spanned<String>,
    algorithm: Option<Spanned<String>>,
    permits: Option<Spanned<i64>>,
    priority: Option<Spanned<String>>,
}

/// What is wrong, and where in the text.
struct Fault {
    at: usize,
    reason: String,
}

impl Fault {
    fn new(at: Range<usize>, reason: impl Into<String>) -> Self {
        Self {
            at: at.start,
            reason: reason.into(),
        }
    }
}

/// Reads and checks `bytes`; `source` is their name in errors, and `base` the directory at which paths
/// in them begin.
pub(super) fn check(bytes: &[u8], source: &str, base: &Path) -> Result<Config, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Fault::new(at..at, "this is not UTF-8: save the file in that encoding")
    });
    text.and_then(|text| read(text, source, base))
        .map_err(|fault| {
            let before = &bytes[..fault.at.min(bytes.len())];
            ConfigError::Invalid {
                source_name: source.to_owned(),
                line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
                reason: fault.reason,
            }
        })
}

fn read(text: &str, source: &str, base: &Path) -> Result<Config, Fault> {
    let file: File = toml::from_str(text).map_err(|error| syntax_fault(text, &error))?;
    let key_file = file.key_file.as_ref();
    let key_file = key_file
        .map(|path| read_key_file(path, file.insecure, base))
        .transpose()?;
    let failure = read_failure(file.failure.as_ref())?;
    let algorithm = match &file.algorithm {
        Some(name) => read_algorithm(name, failure)?,
        None => protocol::Algorithm::RicartAgrawala,
    };
    let may_leave_host = file.insecure || key_file.is_some();
    let members = read_members(&file.member, may_leave_host)?;
    let settings = Settings {
        group: read_group(&file.group)?,
        lease: file.lease.as_ref().map_or(Ok(DEFAULT_LEASE), read_lease)?,
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
    Ok(Config {
        source: source.to_owned(),
        settings,
        members,
        voters,
        voters_are_listed: file.voters.is_some(),
        cluster: file.group.cluster.as_ref().map(read_cluster).transpose()?,
        multicast,
        key_file,
        command_lines: file.command_lines,
    })
}

/// What serde and the TOML parser found, in one line and with the words of a person.
fn syntax_fault(text: &str, error: &toml::de::Error) -> Fault {
    let at = error.span().unwrap_or(0..0);
    let mut reason = error.message().lines().collect::<Vec<_>>().join("; ");
    if reason == "duplicate key" {
        let key = text.get(at.clone()).unwrap_or_default();
        reason = format!("the key `{key}` is there twice: write it once");
    } else {
        reason = reason.replace("expected i64", "expected an integer");
        reason += "; distlock.toml(5) says what there is";
    }
    Fault::new(at, reason)
}

fn read_failure(failure: Option<&Spanned<String>>) -> Result<Failure, Fault> {
    let Some(failure) = failure else {
        return Ok(Failure::Quorum);
    };
    match failure.get_ref().as_str() {
        "quorum" => Ok(Failure::Quorum),
        "presume-failed" => Ok(Failure::PresumeFailed),
        other => {
            let reason = format!(
                "there is no failure rule {other:?}; choose \"quorum\" or \"presume-failed\", or \
                 leave the key out"
            );
            Err(Fault::new(failure.span(), reason))
        }
    }
}

/// Where the key file is; a path that is not absolute begins at `base`, the directory of this file.
fn read_key_file(path: &Spanned<String>, is_insecure: bool, base: &Path) -> Result<PathBuf, Fault> {
    let fault = |reason: &str| Fault::new(path.span(), reason);
    if is_insecure {
        return Err(fault(
            "there are both key_file, by which datagrams are sealed, and insecure = true, by which \
             they are not: remove one",
        ));
    }
    let text = path.get_ref();
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
    let name = group.name.get_ref();
    if name.is_empty() || name.len() > MAX_GROUP_LEN || name.contains(char::is_control) {
        let reason = format!(
            "the group's name must have 1 to {MAX_GROUP_LEN} bytes and no control characters"
        );
        return Err(Fault::new(group.name.span(), reason));
    }
    Ok(name.clone())
}

fn read_cluster(text: &Spanned<String>) -> Result<ClusterId, Fault> {
    let id = text.get_ref().parse();
    id.map_err(|error| Fault::new(text.span(), format!("{:?}: {error}", text.get_ref())))
}

fn read_lease(text: &Spanned<Length>) -> Result<Duration, Fault> {
    let lease = read_duration(text, "lease")?;
    if !(MIN_LEASE..=MAX_LEASE).contains(&lease) {
        let reason = format!("a lease of {lease:?} is out of bounds: choose \"100ms\" to \"60m\"");
        return Err(Fault::new(text.span(), reason));
    }
    Ok(lease)
}

fn read_election(name: Option<&Spanned<String>>) -> Result<ElectionAlgorithm, Fault> {
    let Some(name) = name else {
        return Ok(ElectionAlgorithm::default());
    };
    let text = name.get_ref();
    text.parse()
        .map_err(|error| Fault::new(name.span(), format!("election = {text:?}: {error}")))
}

fn read_lock_delay(text: &Spanned<Length>) -> Result<Duration, Fault> {
    let delay = read_duration(text, "lock_delay")?;
    if delay > MAX_LOCK_DELAY {
        let reason =
            format!("a lock_delay of {delay:?} is out of bounds: choose \"0s\" to \"60s\"");
        return Err(Fault::new(text.span(), reason));
    }
    Ok(delay)
}

/// A number and its unit: `500ms`, `5s`, `1m`. `key`: what it is for.
fn read_duration(spanned: &Spanned<Length>, key: &str) -> Result<Duration, Fault> {
    let no_unit = |number: &dyn fmt::Display, meant: &dyn fmt::Display| {
        let reason = format!("{key} = {number} has no unit: write {key} = \"{meant}\"");
        Err(Fault::new(spanned.span(), reason))
    };
    let text = match spanned.get_ref() {
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
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit_ms = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    let length = number.parse::<u64>().ok().zip(unit_ms);
    let millis = length.and_then(|(number, unit_ms)| number.checked_mul(unit_ms));
    millis.map(Duration::from_millis).ok_or_else(|| {
        let reason = format!(
            "{text:?} is no {key}: write a whole number and its unit, as in \"500ms\", \"5s\" or \
             \"1m\""
        );
        Fault::new(spanned.span(), reason)
    })
}

fn read_algorithm(name: &Spanned<String>, failure: Failure) -> Result<protocol::Algorithm, Fault> {
    let fault = |reason: &str| Fault::new(name.span(), reason);
    let algorithm = name.get_ref().parse::<Algorithm>();
    let algorithm = algorithm.map_err(|error| fault(&error.to_string()))?;
    let engine = algorithm.engine().ok_or_else(|| {
        fault(&format!(
            "the algorithm \"kernel\" is the local group's, which has no configuration; choose \
             {AlgorithmNames}"
        ))
    })?;
    if engine.is_probabilistic() && failure == Failure::Quorum {
        return Err(fault(&format!(
            "the algorithm \"{engine}\" lets two in with some probability, which failure = \
             \"quorum\" rules out; choose majority, or failure = \"presume-failed\""
        )));
    }
    Ok(engine)
}

fn read_id(id: &Spanned<i64>) -> Result<NodeId, Fault> {
    u16::try_from(*id.get_ref())
        .ok()
        .and_then(NodeId::new)
        .ok_or_else(|| {
            let reason = format!("the id {} is out of range: choose 1 to 65535", id.get_ref());
            Fault::new(id.span(), reason)
        })
}

fn read_members(
    members: &[Spanned<Member>],
    may_leave_host: bool,
) -> Result<BTreeMap<NodeId, Address>, Fault> {
    let mut known = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    for member in members {
        let Member {
            id: id_text,
            address: address_text,
        } = member.get_ref();
        let id = read_id(id_text)?;
        let address = read_address(address_text, may_leave_host)?;
        if let Some(other) = addresses
            .insert(address.clone(), id)
            .filter(|other| *other != id)
        {
            let reason = format!("members {other} and {id} have the same address {address}");
            return Err(Fault::new(address_text.span(), reason));
        }
        check_reach(known.iter().next(), id, &address)
            .map_err(|reason| Fault::new(address_text.span(), reason))?;
        if known.insert(id, address).is_some() {
            let reason = format!("the id {id} is there twice: give each member its own");
            return Err(Fault::new(id_text.span(), reason));
        }
    }
    match (members.first(), members.len()) {
        (None, _) => Err(Fault::new(
            0..0,
            "there are no members: add a [[member]] with id and address for each",
        )),
        (Some(first), count) if count > MAX_MEMBERS => {
            let reason = format!("there are {count} members: a group has at most {MAX_MEMBERS}");
            Err(Fault::new(first.span(), reason))
        }
        _ => Ok(known),
    }
}

fn read_address(text: &Spanned<String>, may_leave_host: bool) -> Result<Address, Fault> {
    let address: Address = text.get_ref().parse().map_err(|error| {
        Fault::new(
            text.span(),
            format!("bad address {:?}: {error}", text.get_ref()),
        )
    })?;
    if !address.is_loopback() && !may_leave_host {
        let reason = format!(
            "datagrams to {address} would leave the host unsealed: write a key with distlock keygen, \
             and set key_file; or set insecure = true if everybody in that network may be trusted"
        );
        return Err(Fault::new(text.span(), reason));
    }
    Ok(address)
}

/// A multicast address of the kind of the members' own, which are all of one kind.
fn read_multicast(
    text: &Spanned<String>,
    members: &BTreeMap<NodeId, Address>,
) -> Result<MulticastAddress, Fault> {
    let fault = |reason: String| Fault::new(text.span(), reason);
    let address: MulticastAddress = text
        .get_ref()
        .parse()
        .map_err(|error| fault(format!("multicast = {:?}: {error}", text.get_ref())))?;
    let kind = match members.values().next() {
        Some(Address::Udp(own)) if !address.is_of_the_kind_of(*own) => kind(&Address::Udp(*own)),
        Some(own @ Address::Unix(_)) => kind(own),
        _ => return Ok(address),
    };
    Err(fault(format!(
        "members have addresses of the kind {kind}, and cannot send to {address}: give multicast \
         an address of their kind, or remove the key"
    )))
}

fn kind(address: &Address) -> &'static str {
    match address {
        Address::Udp(address) if address.is_ipv4() => "udp over IPv4",
        Address::Udp(_) => "udp over IPv6",
        Address::Unix(_) => "unix",
    }
}

/// Whether a socket of the first member can send to another one's address.
fn check_reach(
    first: Option<(&NodeId, &Address)>,
    id: NodeId,
    address: &Address,
) -> Result<(), String> {
    match first {
        Some((other, first)) if kind(first) != kind(address) => Err(format!(
            "member {other} has an address of the kind {}, and member {id} one of the kind {}: \
             they cannot reach each other; choose one kind for all",
            kind(first),
            kind(address),
        )),
        _ => Ok(()),
    }
}

fn read_locks(
    locks: &[Spanned<Lock>],
    failure: Failure,
) -> Result<BTreeMap<LockName, LockSpec>, Fault> {
    let mut known = BTreeMap::new();
    for lock in locks {
        let lock = lock.get_ref();
        let name = LockName::new(lock.name.get_ref())
            .map_err(|error| Fault::new(lock.name.span(), error.to_string()))?;
        let spec = read_spec(lock, failure)?;
        if known.insert(name.clone(), spec).is_some() {
            let reason = format!("the lock {name:?} is there twice: list it once");
            return Err(Fault::new(lock.name.span(), reason));
        }
    }
    if known.len() > MAX_LOCKS {
        let reason = format!(
            "{} locks are listed, at most {MAX_LOCKS} can be: those that only need the default \
             need not be listed",
            known.len()
        );
        return Err(Fault::new(locks[0].span(), reason));
    }
    Ok(known)
}

fn read_spec(lock: &Lock, failure: Failure) -> Result<LockSpec, Fault> {
    let mut spec = read_algorithm_and_permits(lock, failure)?;
    if let Some(name) = &lock.priority {
        spec.priority = read_priority(name, spec.algorithm)?;
    }
    Ok(spec)
}

/// Who goes first, where that can be chosen.
fn read_priority(
    name: &Spanned<String>,
    algorithm: protocol::Algorithm,
) -> Result<Priority, Fault> {
    let text = name.get_ref();
    let fault = |reason: String| Fault::new(name.span(), reason);
    let priority = text
        .parse()
        .map_err(|error| fault(format!("priority = {text:?}: {error}")))?;
    match (algorithm, priority) {
        (protocol::Algorithm::CarvalhoRoucairol, _)
        | (protocol::Algorithm::RicartAgrawala, Priority::Lamport) => Ok(priority),
        (protocol::Algorithm::RicartAgrawala, _) => Err(fault(format!(
            "priority = {text:?} is unsafe with ricart-agrawala, which would let in two at a time; \
             remove the key, or set algorithm = \"carvalho-roucairol\""
        ))),
        _ => Err(fault(format!(
            "{algorithm} has no priority to choose: remove the key, or set algorithm = \
             \"carvalho-roucairol\""
        ))),
    }
}

fn read_algorithm_and_permits(lock: &Lock, failure: Failure) -> Result<LockSpec, Fault> {
    let algorithm = lock.algorithm.as_ref();
    let algorithm = algorithm.map(|name| read_algorithm(name, failure));
    let algorithm = algorithm.transpose()?;
    let Some(text) = &lock.permits else {
        let algorithm = algorithm.ok_or_else(|| {
            let reason = "this lock has neither algorithm nor permits: add one, or do not list it";
            Fault::new(lock.name.span(), reason)
        })?;
        return Ok(LockSpec::exclusive(algorithm));
    };
    let permits = u32::try_from(*text.get_ref())
        .ok()
        .and_then(NonZeroU32::new);
    let permits = permits.ok_or_else(|| {
        let reason = format!("{} permits: choose 1 to {}", text.get_ref(), u32::MAX);
        Fault::new(text.span(), reason)
    })?;
    let spec = match algorithm {
        Some(algorithm) => LockSpec {
            permits,
            ..LockSpec::exclusive(algorithm)
        },
        None => LockSpec::counting(permits),
    };
    if !spec.is_valid() {
        let reason = format!(
            "{} lets one in at a time: remove permits, or set algorithm = \"semaphore\"",
            spec.algorithm
        );
        return Err(Fault::new(text.span(), reason));
    }
    Ok(spec)
}

fn read_voters(
    voters: &Spanned<Vec<Spanned<i64>>>,
    members: &BTreeMap<NodeId, Address>,
) -> Result<Vec<NodeId>, Fault> {
    let mut known = BTreeSet::new();
    for voter in voters.get_ref() {
        let id = read_id(voter)?;
        if !members.contains_key(&id) {
            let reason = format!("the voter {id} is no member: add it, or remove it here");
            return Err(Fault::new(voter.span(), reason));
        }
        if !known.insert(id) {
            let reason = format!("the voter {id} is there twice: list it once");
            return Err(Fault::new(voter.span(), reason));
        }
    }
    if known.is_empty() || known.len() > MAX_VOTERS {
        let reason = format!(
            "{} voters: list 1 to {MAX_VOTERS}, or leave the key out",
            known.len()
        );
        return Err(Fault::new(voters.span(), reason));
    }
    Ok(known.into_iter().collect())
}
