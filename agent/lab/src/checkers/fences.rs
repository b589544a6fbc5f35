//! Fencing tokens.

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU32;

use super::{Call, Violation, violation};
use distlock_protocol::{Epoch, Fence, LockName, Mode, Time};

/// The fence of who is alone inside rises over all that were given before, whoever restarts. With
/// several permits, and for those who share a lock, a fence only identifies: no two grants have
/// one. The upper half of a fence is the epoch in which it was given: that of the view in force, or, if
/// it could not be told for want of a lease, of one before.
#[derive(Clone, Debug, Hash)]
pub struct Fences {
    locks: BTreeMap<LockName, Given>,
    /// Whether grants are kept back while there is no lease.
    keeps_back: bool,
}

#[derive(Clone, Debug, Hash)]
struct Given {
    permits: NonZeroU32,
    fences: BTreeSet<Fence>,
    /// Who was alone inside last.
    alone: Option<(Fence, Call)>,
}

impl Fences {
    /// Locks with that many permits.
    pub fn new(locks: &BTreeMap<LockName, NonZeroU32>) -> Self {
        let given = |permits| Given {
            permits,
            fences: BTreeSet::new(),
            alone: None,
        };
        let locks = locks.iter();
        Self {
            locks: locks
                .map(|(name, permits)| (name.clone(), given(*permits)))
                .collect(),
            keeps_back: false,
        }
    }

    /// From now on grants are kept back while there is no lease.
    pub const fn keep_back(&mut self) {
        self.keeps_back = true;
    }

    /// `call` is granted `name` with `fence` by a node that is in `epoch`.
    ///
    /// # Errors
    /// The fence does not rise, is not new, or is of another epoch.
    pub fn grants(
        &mut self,
        now: Time,
        call: Call,
        (name, mode): (&LockName, Mode),
        fence: Fence,
        epoch: Epoch,
    ) -> Result<(), Violation> {
        let (of, present) = (fence.as_u64() >> 32, u64::from(epoch.as_u32()));
        if of != present && !(self.keeps_back && of < present) {
            return Err(violation!(
                now,
                Fences,
                "{call} is granted {name} in epoch {epoch} with fence {fence} of another"
            ));
        }
        let given = self
            .locks
            .get_mut(name)
            .expect("only known locks are asked for");
        if let Some((before, whose)) = given.alone
            && fence <= before
        {
            return Err(violation!(
                now,
                Fences,
                "{call} is granted {name} with fence {fence}, after {whose} had {before}"
            ));
        }
        let highest = given.fences.last().copied();
        if !given.fences.insert(fence) {
            return Err(violation!(
                now,
                Fences,
                "{call} is granted {name} with fence {fence}, which was given before"
            ));
        }
        if given.permits.get() == 1 && mode == Mode::Exclusive {
            if highest > Some(fence) {
                return Err(violation!(
                    now,
                    Fences,
                    "{call} is alone in {name} with fence {fence}, below one of those before"
                ));
            }
            given.alone = Some((fence, call));
        }
        Ok(())
    }

    /// `call` was granted `name` with `fence` before what is known here, and is told only now: its fence may be
    /// lower, and belongs to nobody else. Those that come after it rise over it, too.
    ///
    /// # Errors
    /// The fence is not new.
    pub fn grants_late(
        &mut self,
        now: Time,
        call: Call,
        (name, mode): (&LockName, Mode),
        fence: Fence,
    ) -> Result<(), Violation> {
        let given = self.locks.get_mut(name);
        let given = given.expect("only known locks are asked for");
        if !given.fences.insert(fence) {
            return Err(violation!(
                now,
                Fences,
                "{call} is granted {name} with fence {fence}, which was given meanwhile"
            ));
        }
        let is_alone = given.permits.get() == 1 && mode == Mode::Exclusive;
        if is_alone && given.alone.is_none_or(|(before, _)| before < fence) {
            given.alone = Some((fence, call));
        }
        Ok(())
    }
}
