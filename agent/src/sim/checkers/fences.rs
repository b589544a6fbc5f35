//! Fencing tokens.

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU32;

use super::{Call, Violation, violation};
use crate::protocol::{Epoch, Fence, LockName, Time};

/// Fences of an exclusive lock rise with every grant, whoever restarts. With several permits a
/// fence only identifies: no two grants share one. The upper half of a fence is the epoch in which
/// it was given.
#[derive(Debug)]
pub struct Fences {
    locks: BTreeMap<LockName, Given>,
}

#[derive(Debug)]
enum Given {
    Rising(Option<(Fence, Call)>),
    Distinct(BTreeSet<Fence>),
}

impl Fences {
    /// Locks with that many permits.
    pub fn new(locks: &BTreeMap<LockName, NonZeroU32>) -> Self {
        let given = |permits: &NonZeroU32| match permits.get() {
            1 => Given::Rising(None),
            _ => Given::Distinct(BTreeSet::new()),
        };
        Self {
            locks: locks
                .iter()
                .map(|(name, permits)| (name.clone(), given(permits)))
                .collect(),
        }
    }

    /// `call` is granted `name` with `fence` by a node that is in `epoch`.
    ///
    /// # Errors
    /// The fence does not rise, is not new, or is of another epoch.
    pub fn grants(
        &mut self,
        now: Time,
        call: Call,
        name: &LockName,
        fence: Fence,
        epoch: Epoch,
    ) -> Result<(), Violation> {
        if fence.as_u64() >> 32 != u64::from(epoch.as_u32()) {
            return Err(violation!(
                now,
                Fences,
                "{call} is granted {name} in epoch {epoch} with fence {fence} of another"
            ));
        }
        match self
            .locks
            .get_mut(name)
            .expect("only known locks are asked for")
        {
            Given::Rising(last) => {
                if let Some((before, whose)) = last
                    && fence <= *before
                {
                    return Err(violation!(
                        now,
                        Fences,
                        "{call} is granted {name} with fence {fence}, after {whose} had {before}"
                    ));
                }
                *last = Some((fence, call));
            }
            Given::Distinct(fences) => {
                if !fences.insert(fence) {
                    return Err(violation!(
                        now,
                        Fences,
                        "{call} is granted {name} with fence {fence}, which was given before"
                    ));
                }
            }
        }
        Ok(())
    }
}
