//! The locks of a configuration: by which algorithm each is served, and with how many permits.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use distlock_agent::protocol::{self, AlgorithmNames, Failure, LockName, LockSpec, Priority};
use toml_span::de_helpers::TableHelper;
use toml_span::{DeserError, Deserialize, Spanned, Value};

use super::fault::Fault;
use crate::algorithm::Algorithm;

const MAX_LOCKS: usize = 10_000;

/// A `[[lock]]`.
pub(super) struct Lock {
    name: Spanned<String>,
    algorithm: Option<Spanned<String>>,
    permits: Option<Spanned<i64>>,
    priority: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for Lock {
    fn deserialize(value: &mut Value<'de>) -> Result<Self, DeserError> {
        let mut table = TableHelper::new(value)?;
        let name = table.required_s("name");
        let algorithm = table.optional_s("algorithm");
        let permits = table.optional_s("permits");
        let priority = table.optional_s("priority");
        table.finalize(None)?;
        Ok(Self {
            name: name?,
            algorithm,
            permits,
            priority,
        })
    }
}

pub(super) fn read_locks(
    locks: &[Spanned<Lock>],
    failure: Failure,
) -> Result<BTreeMap<LockName, LockSpec>, Fault> {
    let mut known = BTreeMap::new();
    for lock in locks {
        let lock = &lock.value;
        let name = LockName::new(&lock.name.value)
            .map_err(|error| Fault::new(lock.name.span, error.to_string()))?;
        let spec = read_spec(lock, failure)?;
        if known.insert(name.clone(), spec).is_some() {
            let reason = format!("the lock {name:?} is there twice: list it once");
            return Err(Fault::new(lock.name.span, reason));
        }
    }
    if known.len() > MAX_LOCKS {
        let reason = format!(
            "{} locks are listed, at most {MAX_LOCKS} can be: those that only need the default \
             need not be listed",
            known.len()
        );
        return Err(Fault::new(locks[0].span, reason));
    }
    Ok(known)
}

/// The same where a store decides, which serves all by one algorithm.
#[cfg(feature = "store")]
pub(super) fn read_locks_of_store(
    locks: &[Spanned<Lock>],
) -> Result<BTreeMap<LockName, LockSpec>, Fault> {
    for lock in locks {
        let lock = &lock.value;
        let keys = [("algorithm", &lock.algorithm), ("priority", &lock.priority)];
        for (key, value) in keys {
            if let Some(value) = value {
                let reason = format!(
                    "{key} belongs to a group of members, and with [store] all locks are served \
                     by the ledger: remove it"
                );
                return Err(Fault::new(value.span, reason));
            }
        }
    }
    read_locks(locks, Failure::Quorum)
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
    let text = &name.value;
    let fault = |reason: String| Fault::new(name.span, reason);
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
            Fault::new(lock.name.span, reason)
        })?;
        return Ok(LockSpec::exclusive(algorithm));
    };
    let permits = u32::try_from(text.value).ok().and_then(NonZeroU32::new);
    let permits = permits.ok_or_else(|| {
        let reason = format!("{} permits: choose 1 to {}", text.value, u32::MAX);
        Fault::new(text.span, reason)
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
            "{} lets one in at a time: remove permits, or set algorithm = \"manager\"",
            spec.algorithm
        );
        return Err(Fault::new(text.span, reason));
    }
    Ok(spec)
}

pub(super) fn read_algorithm(
    name: &Spanned<String>,
    failure: Failure,
) -> Result<protocol::Algorithm, Fault> {
    let fault = |reason: &str| Fault::new(name.span, reason);
    let algorithm = name.value.parse::<Algorithm>();
    let algorithm = algorithm.map_err(|error| fault(&error.to_string()))?;
    let engine = algorithm.engine().ok_or_else(|| {
        fault(&format!(
            "the algorithm \"{algorithm}\" is {}; choose {AlgorithmNames}",
            if algorithm == Algorithm::Ledger {
                "that of locks in a store ([store]), where no other is named"
            } else {
                "the local group's, which has no configuration"
            }
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
