//! What programs have asked for, and who must be inside.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use distlock_agent::protocol::{Algorithm, LockName, LockSpec, Mode};
use distlock_agent::runtime::AcquireError;

/// A lock that is asked for.
pub(super) struct Lock {
    name: &'static str,
    /// How many may be inside.
    permits: usize,
    /// Whether who asks may say how it is to be served.
    is_free: bool,
}

pub(super) const LOCKS: [Lock; 3] = [
    Lock {
        name: "printer",
        permits: 1,
        is_free: false,
    },
    Lock {
        name: "pool",
        permits: 2,
        is_free: false,
    },
    Lock {
        name: "any",
        permits: 1,
        is_free: true,
    },
];

impl Lock {
    pub(super) fn name(&self) -> LockName {
        LockName::new(self.name).expect("a name")
    }

    /// What the group's configuration says of it.
    pub(super) fn listed(&self) -> Option<LockSpec> {
        let permits = NonZeroU32::new(self.permits as u32)?;
        (permits.get() > 1).then(|| LockSpec::counting(permits))
    }

    /// How somebody wants it to be served, in the upper five bits.
    pub(super) fn wish(&self, how: u8) -> Option<LockSpec> {
        let algorithm = Algorithm::ALL[usize::from(how >> 4) % Algorithm::ALL.len()];
        (self.is_free && how & 8 != 0).then_some(LockSpec::exclusive(algorithm))
    }
}

/// What somebody asks for.
pub(super) struct Wish {
    pub(super) lock: LockName,
    pub(super) mode: Mode,
    /// Whether it waits for nobody.
    pub(super) is_try: bool,
    /// Whether it says how the lock is to be served.
    pub(super) is_choosy: bool,
    /// Whether it is to lead.
    pub(super) leads: bool,
}

/// A program in all of an input, and its number for a request.
pub(super) type Key = (u32, u64);

/// All requests.
#[derive(Default)]
pub(super) struct Ledger {
    requests: BTreeMap<Key, Request>,
    /// All that are known, by the name of the lock.
    fences: BTreeMap<LockName, BTreeSet<u64>>,
    has_lost: bool,
    /// Whether locks may have been lost of which nobody was told yet.
    has_stalled: bool,
    /// Whether there may be other members, or this one may not be any more.
    has_changes: bool,
}

struct Request {
    wish: Wish,
    permits: usize,
    stage: Stage,
    is_cancelled: bool,
    /// Whether its caller has given it up, whatever it has come to.
    is_left: bool,
    /// What keeps the lock even so, as long as it is open.
    writer: Option<OwnedFd>,
    /// The greatest fence of the lock that was known when it was asked for.
    fence_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Inside,
    Over,
}

impl Request {
    /// Whether nobody else may be, so far as it excludes them.
    fn is_inside(&self) -> bool {
        self.stage == Stage::Inside && (!self.is_left || self.writer.is_some())
    }

    /// Whether it may be refused so.
    fn explains(&self, why: &AcquireError) -> bool {
        match why {
            AcquireError::Busy | AcquireError::NoAnswer { .. } => self.wish.is_try,
            AcquireError::TimedOut => self.is_cancelled || self.is_left,
            AcquireError::NotShareable { .. } => self.wish.mode == Mode::Shared,
            AcquireError::WrongSpec { .. } => self.wish.is_choosy,
            AcquireError::WrongElection { .. } => self.wish.leads,
            _ => false,
        }
    }
}

impl Ledger {
    pub(super) fn asks(&mut self, key: Key, wish: Wish) {
        let known = LOCKS.iter().find(|known| known.name() == wish.lock);
        let fences = self.fences.get(&wish.lock);
        let request = Request {
            permits: known.expect("one of those").permits,
            fence_before: fences.and_then(BTreeSet::last).copied().unwrap_or(0),
            wish,
            stage: Stage::Waiting,
            is_cancelled: false,
            is_left: false,
            writer: None,
        };
        assert!(self.requests.insert(key, request).is_none());
    }

    /// `key` is given what keeps its lock.
    pub(super) fn handed(&mut self, key: Key, writer: OwnedFd) {
        let request = self.requests.get_mut(&key);
        let request =
            request.unwrap_or_else(|| panic!("{key:?} never asked, and is given a lifeline"));
        assert_eq!(request.stage, Stage::Waiting, "{key:?}");
        assert!(request.writer.replace(writer).is_none(), "{key:?}: twice");
    }

    /// `key` was told that it is inside.
    pub(super) fn granted(&mut self, key: Key, fence: u64) {
        let request = self.requests.get_mut(&key);
        let request = request.unwrap_or_else(|| panic!("{key:?} never asked, and is granted"));
        assert_eq!(request.stage, Stage::Waiting, "{key:?} is granted again");
        request.stage = Stage::Inside;
        let request = &self.requests[&key];
        assert!(fence > request.fence_before, "a fence that does not grow");
        let lock = request.wish.lock.clone();
        let is_new = self.fences.entry(lock.clone()).or_default().insert(fence);
        let is_alone = request.wish.mode == Mode::Exclusive && request.permits == 1;
        assert!(is_new || !is_alone, "fence {fence} comes twice");
        if self.has_stalled {
            return;
        }
        let inside = self.requests.values();
        let inside = inside.filter(|other| other.wish.lock == lock && other.is_inside());
        let exclusive = |other: &&Request| other.wish.mode == Mode::Exclusive;
        let (alone, all) = (inside.clone().filter(exclusive).count(), inside.count());
        let permits = request.permits;
        if permits == 1 {
            assert!(alone == 0 || all == 1, "{lock:?}: {all}");
        } else {
            assert!(all <= permits, "{lock:?}: {all}");
        }
    }

    /// `key` was told that it will not be inside. There may be too few descriptors for it.
    pub(super) fn refused(&mut self, key: Key, why: &AcquireError, is_scarce: bool) {
        let request = self.requests.get(&key);
        let is_explained = match why {
            AcquireError::Limit => is_scarce,
            // Who gives up while this member is in no view is told that.
            AcquireError::NoQuorum { missing } => {
                let gave_up = |request: &Request| request.is_cancelled || request.is_left;
                self.has_stalled || (missing.is_empty() && request.is_some_and(gave_up))
            }
            AcquireError::Closed(_) => self.has_changes,
            why => request.is_some_and(|request| request.explains(why)),
        };
        assert!(is_explained, "{key:?} is refused for no reason: {why}");
        self.ends(key, Stage::Waiting);
    }

    /// `key` was told that it is not inside any more.
    pub(super) fn lost(&mut self, key: Key) {
        self.ends(key, Stage::Inside);
        self.has_lost = true;
    }

    fn ends(&mut self, key: Key, from: Stage) {
        let request = self.requests.get_mut(&key);
        let request = request.unwrap_or_else(|| panic!("{key:?} never asked"));
        assert_eq!(request.stage, from, "{key:?}");
        request.stage = Stage::Over;
    }

    /// The lease may have run out: who is inside by now, and is not any more, cannot be told from
    /// here until all that was said is read.
    pub(super) fn stalls(&mut self) {
        self.has_stalled = true;
    }

    /// Somebody has the members changed.
    pub(super) fn changes(&mut self) {
        self.has_changes = true;
    }

    /// Whether anybody has lost a lock, though the lease had not run out.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost && !self.has_stalled
    }

    /// `key` waits no longer.
    pub(super) fn cancels(&mut self, key: Key) {
        let request = self.requests.get_mut(&key).into_iter();
        request.for_each(|request| request.is_cancelled = true);
    }

    /// Somebody who has said that it does not wait, and is not answered.
    pub(super) fn impatient(&self) -> Option<Key> {
        let mut requests = self.requests.iter();
        let waits = |request: &Request| request.stage == Stage::Waiting && !request.is_left;
        requests
            .find(|(_, it)| waits(it) && (it.is_cancelled || it.wish.is_try))
            .map(|(key, _)| *key)
    }

    /// `key` has released.
    pub(super) fn leaves(&mut self, key: Key) {
        let request = self.requests.get_mut(&key).into_iter();
        request.for_each(|request| request.is_left = true);
    }

    /// The program is gone, or is heard no more.
    pub(super) fn goes(&mut self, caller: u32) {
        let requests = self.requests.range_mut((caller, 0)..=(caller, u64::MAX));
        requests.for_each(|(_, request)| request.is_left = true);
    }

    /// Nothing is known of the program's requests any more.
    pub(super) fn forget(&mut self, caller: u32) {
        self.requests.retain(|(other, _), _| *other != caller);
    }

    /// The program's numbers of requests that it has not given up.
    pub(super) fn of(&self, caller: u32) -> impl Iterator<Item = u64> {
        let requests = self.requests.range((caller, 0)..=(caller, u64::MAX));
        requests
            .filter(|(_, request)| !request.is_left)
            .map(|((_, id), _)| *id)
    }

    /// Who is inside, and has not given it up.
    pub(super) fn inside(&self) -> Vec<Key> {
        let requests = self.requests.iter();
        requests
            .filter(|(_, request)| request.stage == Stage::Inside && !request.is_left)
            .map(|(key, _)| *key)
            .collect()
    }

    /// Whether somebody is not answered who still wants to be.
    pub(super) fn owes(&self) -> Option<Key> {
        let mut requests = self.requests.iter();
        requests
            .find(|(_, request)| request.stage == Stage::Waiting && !request.is_left)
            .map(|(key, _)| *key)
    }

    /// What ran under a lock has ended.
    pub(super) fn drop_writer(&mut self, which: usize) {
        let requests = self.requests.values_mut();
        let mut writers: Vec<_> = requests
            .map(|request| &mut request.writer)
            .filter(|writer| writer.is_some())
            .collect();
        if !writers.is_empty() {
            let which = which % writers.len();
            *writers[which] = None;
        }
    }

    /// All that ran under locks has ended whose callers have given them up.
    pub(super) fn drop_writers_left(&mut self) {
        let left = self.requests.values_mut().filter(|it| it.is_left);
        left.for_each(|request| request.writer = None);
    }
}
