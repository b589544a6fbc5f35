//! Who is inside of a lock, for whoever observes it without wanting in: elections.

use alloc::string::String;

use super::lock::Lock;
use super::record::{Claim, SessionName};
use super::{Ledger, LedgerOutput};
use crate::ids::{Fence, LockName};

/// Who is inside of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LedgerLeader {
    /// Where its agent runs; empty if the agent does not say.
    pub host: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Its command.
    pub command: Option<String>,
    /// Its fence, which no other grant of the lock has.
    pub fence: Fence,
    /// The session that its claim belongs to.
    pub session: SessionName,
}

/// What whoever observes a lock was told.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Observer {
    /// The last leader, or that there was none; `None` before the first time.
    told: Option<Option<LedgerLeader>>,
    /// The last fence of the lock by then.
    fence: u64,
    /// That of the last leader.
    led: u64,
}

impl Ledger {
    /// A lock is to be observed from now on, or no longer.
    pub(super) fn observe_leader(&mut self, name: LockName, is_wanted: bool) {
        if is_wanted {
            let key = self.lock_key(&name);
            let lock = self.locks.entry(name.clone());
            let lock = lock.or_insert_with(|| Lock::new(key));
            lock.observer = Some(Observer::default());
            // What is known of it may be from long ago.
            lock.is_doubted = true;
        } else if let Some(lock) = self.locks.get_mut(&name) {
            lock.observer = None;
        }
        self.dirty.insert(name);
    }

    /// Tells who is inside of a lock that is observed, if that has changed.
    pub(super) fn tell_leader(&mut self, name: &LockName) {
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        let (Some(observer), Some(seen)) = (&mut lock.observer, &lock.seen) else {
            return;
        };
        let leader = seen.record.inside.first().and_then(of_claim);
        let led = leader.as_ref().map_or(observer.led, |it| it.fence.as_u64());
        // The last fence of a lock rises, and so does that of the first one inside: a record with a lower
        // one is older than what was told, unless the store forgot.
        if !seen.is_fresh && (seen.record.fence < observer.fence || led < observer.led) {
            return;
        }
        observer.fence = seen.record.fence;
        observer.led = led;
        if observer.told.as_ref() == Some(&leader) {
            return;
        }
        observer.told = Some(leader.clone());
        let lock = name.clone();
        self.outputs
            .push_back(LedgerOutput::Leader { lock, leader });
    }
}

impl Observer {
    /// The store is another one, whose fences have nothing to do with those before.
    pub(super) const fn forget_fences(&mut self) {
        self.fence = 0;
        self.led = 0;
    }
}

fn of_claim(claim: &Claim) -> Option<LedgerLeader> {
    Some(LedgerLeader {
        host: claim.host.clone(),
        pid: claim.pid,
        command: claim.command.clone(),
        fence: claim.fence?,
        session: claim.session.clone(),
    })
}
