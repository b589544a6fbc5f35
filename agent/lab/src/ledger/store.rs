//! The store that the ledgers of a world share: registers with compare-and-swap, and what may be wrong
//! with them.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::choices::{Choices, Permille};
use distlock_protocol::ledger::{
    Entry, Key, LockRecord, Op, Reply, SessionName, StoreFacts, Version, keys,
};
use distlock_protocol::{LockName, Time};

/// Whose records they are.
pub(super) const GROUP: &str = "shop";

/// How many registers a page of a listing has.
const PAGE: usize = 3;
/// How many former values of a register are kept, for reads that are old.
const OLD_VALUES: usize = 4;

/// Registers, and all that they have had.
#[derive(Debug)]
pub(super) struct Store {
    registers: BTreeMap<Key, Register>,
    /// Everything that was done, in order, so that the last of it can be forgotten.
    log: Vec<(Key, Option<Entry>)>,
    revision: u64,
    /// Whether versions are drawn at random, or count the writes.
    draws_versions: bool,
    identity: u64,
    may_forget: bool,
    /// Reads that show what a register had before.
    stale: Permille,
}

#[derive(Debug, Default)]
struct Register {
    entry: Option<Entry>,
    /// What it had before, the last in the end.
    before: Vec<Option<Entry>>,
    /// Of a lock: when somebody was last inside, or waited.
    used: Option<Time>,
}

impl Store {
    pub(super) fn new(draws_versions: bool, may_forget: bool, stale: Permille) -> Self {
        Self {
            registers: BTreeMap::new(),
            log: Vec::new(),
            revision: 0,
            draws_versions,
            identity: 0,
            may_forget,
            stale,
        }
    }

    pub(super) fn facts(&self) -> StoreFacts {
        StoreFacts {
            doubts: Vec::new(),
            may_forget: self.may_forget,
            identity: self.identity.to_string(),
        }
    }

    /// From now on every read shows the present.
    pub(super) const fn heal(&mut self) {
        self.stale = 0;
    }

    /// What a register has.
    pub(super) fn entry(&self, key: &Key) -> Option<&Entry> {
        self.registers.get(key)?.entry.as_ref()
    }

    /// All registers that exist.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        let all = self.registers.iter();
        all.filter_map(|(key, register)| Some((key, register.entry.as_ref()?)))
    }

    /// Whether a lock's record has a claim of that session inside.
    pub(super) fn is_inside(&self, lock: &LockName, session: &SessionName) -> bool {
        let record = self.record(lock);
        record.is_some_and(|it| it.inside.iter().any(|claim| claim.session == *session))
    }

    /// The record of a lock.
    pub(super) fn record(&self, lock: &LockName) -> Option<LockRecord> {
        let entry = self.entry(&keys::lock_key(GROUP, lock))?;
        Some(LockRecord::parse(&entry.value).expect("ledgers write records"))
    }

    /// When somebody was last inside of the lock with that register, or waited for it.
    pub(super) fn used(&self, now: Time, key: &Key) -> Option<Time> {
        let register = self.registers.get(key)?;
        if register.entry.as_ref().is_some_and(is_used) {
            return Some(now);
        }
        register.used
    }

    /// Does an operation, and says what comes of it; and whether a register has changed.
    pub(super) fn apply(&mut self, now: Time, op: &Op, choices: &mut Choices) -> (Reply, bool) {
        match op {
            Op::Read { key } => (Reply::Value(self.read(key, choices)), false),
            Op::Write { key, value, expect } => {
                let version = self.next_version(choices);
                let entry = Entry {
                    value: value.clone(),
                    version,
                };
                match self.swap(now, key, *expect, Some(entry), choices) {
                    Ok(()) => (Reply::Done(version), true),
                    Err(present) => (Reply::Conflict(present), false),
                }
            }
            Op::Remove { key, expect } => match self.swap(now, key, Some(*expect), None, choices) {
                Ok(()) => (Reply::Removed, true),
                Err(present) => (Reply::Conflict(present), false),
            },
            Op::List { prefix, after } => {
                let is_next = |key: &Key| after.as_ref().is_none_or(|after| key > after);
                let is_it = |key: &Key| key.as_str().starts_with(prefix.as_str()) && is_next(key);
                let mut all = self.entries().filter(|(key, _)| is_it(key));
                let page = all.by_ref().take(PAGE);
                let entries = page.map(|(key, entry)| (key.clone(), entry.clone()));
                let entries = entries.collect();
                let more = all.next().is_some();
                (Reply::Page { entries, more }, false)
            }
        }
    }

    /// What a read shows: the present, or what was before.
    pub(super) fn read(&self, key: &Key, choices: &mut Choices) -> Option<Entry> {
        let is_stale = choices.chance(self.stale);
        let register = self.registers.get(key)?;
        if is_stale && !register.before.is_empty() {
            return register.before[choices.index(register.before.len())].clone();
        }
        register.entry.clone()
    }

    fn swap(
        &mut self,
        now: Time,
        key: &Key,
        expect: Option<Version>,
        next: Option<Entry>,
        choices: &mut Choices,
    ) -> Result<(), Option<Entry>> {
        let register = self.registers.entry(key.clone()).or_default();
        if register.entry.as_ref().map(|entry| entry.version) != expect {
            // A database may show the row as it was when the statement began.
            if let Some(before) = register.before.last()
                && before.as_ref().map(|entry| entry.version) == expect
                && choices.chance(self.stale / 2)
            {
                return Err(before.clone());
            }
            return Err(register.entry.clone());
        }
        self.log.push((key.clone(), next.clone()));
        register.put(now, next);
        Ok(())
    }

    fn next_version(&mut self, choices: &mut Choices) -> Version {
        self.revision += 1;
        if self.draws_versions {
            return Version(choices.next_u64());
        }
        Version(self.revision)
    }

    /// How much there is to forget.
    pub(super) const fn written(&self) -> usize {
        self.log.len()
    }

    /// Forgets the last `writes`. A store that was restored from a backup has another identity, and counts
    /// its versions from where it was then.
    pub(super) fn forget(&mut self, now: Time, writes: usize) {
        let kept = self.log.len() - writes;
        self.log.truncate(kept);
        let mut registers: BTreeMap<Key, Register> = BTreeMap::new();
        for (key, entry) in &self.log {
            let register = registers.entry(key.clone()).or_default();
            register.entry.clone_from(entry);
        }
        for (key, before) in &self.registers {
            // Whoever saw it used may say so, also of a register that is there no more.
            let is_in_use = before.entry.as_ref().is_some_and(is_used);
            let used = before.used.filter(|_| !is_in_use);
            registers.entry(key.clone()).or_default().used = used.or(Some(now));
        }
        self.registers = registers;
        if !self.may_forget {
            self.identity += 1;
            let versions = self.log.iter().filter_map(|(_, entry)| entry.as_ref());
            let last = versions.map(|entry| entry.version.0).next_back();
            self.revision = if self.draws_versions {
                0
            } else {
                last.unwrap_or(0)
            };
        }
    }
}

impl Register {
    fn put(&mut self, now: Time, next: Option<Entry>) {
        if self.entry.as_ref().is_some_and(is_used) {
            self.used = Some(now);
        }
        let before = core::mem::replace(&mut self.entry, next);
        if self.before.len() == OLD_VALUES {
            self.before.remove(0);
        }
        self.before.push(before);
    }
}

/// Whether a lock's record has claims.
fn is_used(entry: &Entry) -> bool {
    // Sessions have no queue. Parsing each record at each write would take most of a run's time.
    let has = |part: &[u8]| entry.value.windows(part.len()).any(|it| it == part);
    has(b"\"queue\":") && LockRecord::parse(&entry.value).is_ok_and(|it| it.claims().count() > 0)
}
