//! What changes in a group between two looks at it, and how that is said on a line.
//!
//! Only what was seen is told. An entry that is shorter than the time between two looks is in neither
//! of them; one holder that follows another in between is in the second, and both changes are told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use distlock::status::{
    HolderStatus, LockStatus, MemberState, MemberStatus, QuorumStatus, Status, WaiterStatus,
};
use serde::Serialize;

use crate::exit::clean;
use crate::quorum;
use crate::status::state;

/// One change. `--watch --json` has the variant's name as `event`, and the fields as they are here:
/// what an event names is as in `status --json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Change<'a> {
    /// Which group this is, and which member is asked.
    Group { group: &'a str, member: u16 },
    /// A view is in force, or none any more (0).
    Epoch { epoch: u32, alive: Vec<u16> },
    /// The quorum was reached or lost, or other voters are missing than before.
    Quorum {
        quorum: &'a QuorumStatus,
        /// Whether there was one; `None` at the first look.
        #[serde(skip)]
        before: Option<bool>,
    },
    /// A member, and how it is.
    Member { member: &'a MemberStatus },
    /// A member was removed from the group.
    Remove { id: u16, address: &'a str },
    /// Nobody is let in until the lease of a lost member is over.
    Quarantine { lock: &'a str },
    /// That lease is over.
    Unquarantine { lock: &'a str },
    /// A holder entered.
    Hold {
        lock: &'a str,
        holder: &'a HolderStatus,
    },
    /// A holder released.
    Release {
        lock: &'a str,
        holder: &'a HolderStatus,
    },
    /// A holder's member is not heard any more: whether it still holds is not known.
    Unheard {
        lock: &'a str,
        holder: &'a HolderStatus,
    },
    /// No caller of a member that is heard holds the lock.
    Free { lock: &'a str },
    /// Somebody waits.
    Wait {
        lock: &'a str,
        waiter: &'a WaiterStatus,
    },
    /// Somebody waits no more: it holds, or gave up.
    Unwait {
        lock: &'a str,
        waiter: &'a WaiterStatus,
    },
}

/// What is in `after` and was not in `before`, and what is there no more; of the lock `only` and the
/// quorum alone, if that is given. [`Status::default`] is what comes before the first look.
pub(crate) fn changes<'a>(
    before: &'a Status,
    after: &'a Status,
    only: Option<&'a str>,
) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    let is_first = before.group.is_empty();
    if is_first {
        let (group, member) = (&after.group, after.member);
        changes.push(Change::Group { group, member });
    }
    if only.is_none() {
        members(before, after, &mut changes);
    }
    // In the local group the kernel is the arbiter, and there is no quorum to speak of.
    if !after.members.is_empty() && (is_first || votes(&before.quorum) != votes(&after.quorum)) {
        changes.push(Change::Quorum {
            quorum: &after.quorum,
            before: (!is_first).then_some(before.quorum.ok),
        });
    }
    let names = before.locks.iter().chain(&after.locks);
    let names = names.map(|lock| lock.name.as_str()).chain(only);
    let names: BTreeSet<_> = names
        .filter(|name| only.is_none_or(|only| only == *name))
        .collect();
    for name in names {
        lock(name, before, after, &mut changes);
    }
    changes
}

/// To be called if `after` took so long that a member may not have answered in time. Then what is known
/// of the callers of each member that is alive, and of which `after` lists none, stays as it was.
pub(crate) fn keep_unanswered(before: &Status, after: &mut Status) {
    let mut silent: BTreeSet<u16> = after.members.iter().filter_map(may_be_slow).collect();
    silent.remove(&after.member);
    for lock in &after.locks {
        for member in lock.holders.iter().map(|it| it.member) {
            silent.remove(&member);
        }
        for member in lock.waiters.iter().map(|it| it.member) {
            silent.remove(&member);
        }
    }
    for old in &before.locks {
        let mut kept = old.clone();
        kept.holders.retain(|it| silent.contains(&it.member));
        kept.waiters.retain(|it| silent.contains(&it.member));
        if kept.holders.is_empty() && kept.waiters.is_empty() {
            continue;
        }
        match after.locks.iter_mut().find(|lock| lock.name == old.name) {
            Some(lock) => {
                lock.holders.extend(kept.holders);
                lock.waiters.extend(kept.waiters);
            }
            None => after.locks.push(kept),
        }
    }
}

fn may_be_slow(member: &MemberStatus) -> Option<u16> {
    (member.state == MemberState::Alive).then_some(member.id)
}

/// What a change of the quorum is. The rest of [`QuorumStatus`] are words on it, and times.
fn votes(quorum: &QuorumStatus) -> impl PartialEq + '_ {
    let QuorumStatus {
        ok,
        voters,
        missing,
        state_lost,
        founded,
        ..
    } = quorum;
    (*ok, voters, missing, state_lost, *founded)
}

/// The view and the members. Words on a member are no change: for how long it has been silent, for one.
fn members<'a>(before: &'a Status, after: &'a Status, changes: &mut Vec<Change<'a>>) {
    if before.epoch != after.epoch {
        let alive = after.members.iter();
        let alive = alive.filter(|it| after.epoch > 0 && it.state == MemberState::Alive);
        changes.push(Change::Epoch {
            epoch: after.epoch,
            alive: alive.map(|it| it.id).collect(),
        });
    }
    let old: BTreeMap<_, _> = before.members.iter().map(|it| (it.id, it)).collect();
    for member in &after.members {
        let is_same = |it: &&MemberStatus| it.state == member.state && it.address == member.address;
        if !old.get(&member.id).is_some_and(is_same) {
            changes.push(Change::Member { member });
        }
    }
    let new: BTreeSet<_> = after.members.iter().map(|it| it.id).collect();
    for member in before.members.iter().filter(|it| !new.contains(&it.id)) {
        let (id, address) = (member.id, &member.address);
        changes.push(Change::Remove { id, address });
    }
}

/// One lock: who goes before who comes, so that no line says more holders than there were.
fn lock<'a>(name: &'a str, before: &'a Status, after: &'a Status, changes: &mut Vec<Change<'a>>) {
    let find = |status: &'a Status| status.locks.iter().find(|lock| lock.name == name);
    let (old, new) = (find(before), find(after));
    let holders = |lock: Option<&'a LockStatus>| lock.map_or(&[][..], |lock| &lock.holders);
    let waiters = |lock: Option<&'a LockStatus>| lock.map_or(&[][..], |lock| &lock.waiters);
    let (out, entered) = exchanged(holders(old), holders(new), holder_key);
    let (gone, come) = exchanged(waiters(old), waiters(new), waiter_key);

    let mut is_known = after.quorum.ok;
    for holder in out {
        if is_heard(holder.member, after) {
            changes.push(Change::Release { lock: name, holder });
        } else {
            is_known = false;
            changes.push(Change::Unheard { lock: name, holder });
        }
    }
    let is_quarantined = |lock: Option<&LockStatus>| lock.is_some_and(|lock| lock.quarantined);
    match (is_quarantined(old), is_quarantined(new)) {
        (false, true) => changes.push(Change::Quarantine { lock: name }),
        (true, false) => changes.push(Change::Unquarantine { lock: name }),
        _ => {}
    }
    let is_open = |lock| holders(lock).is_empty() && !is_quarantined(lock);
    if is_known && is_open(new) && !(before.quorum.ok && is_open(old)) {
        changes.push(Change::Free { lock: name });
    }
    changes.extend(
        gone.into_iter()
            .map(|waiter| Change::Unwait { lock: name, waiter }),
    );
    changes.extend(
        entered
            .into_iter()
            .map(|holder| Change::Hold { lock: name, holder }),
    );
    changes.extend(
        come.into_iter()
            .map(|waiter| Change::Wait { lock: name, waiter }),
    );
}

/// Whether a look finds all holders of that member: it is alive, or has released all as it left.
fn is_heard(member: u16, status: &Status) -> bool {
    let heard = |it: &MemberStatus| matches!(it.state, MemberState::Alive | MemberState::Left);
    let members = &mut status.members.iter();
    // The one that is asked knows its own. In the local group the kernel knows all.
    member == status.member || members.any(|it| it.id == member && heard(it))
}

/// What makes a holder another one. The fence does, where there is one; else the moment at which it
/// entered.
fn holder_key(holder: &HolderStatus) -> impl Ord + use<> {
    let since = holder.fence.is_none().then(|| holder.since.clone());
    (holder.member, holder.pid, holder.fence, since)
}

fn waiter_key(waiter: &WaiterStatus) -> impl Ord + use<> {
    (waiter.member, waiter.pid, waiter.since.clone())
}

/// What of `old` is not in `new`, and what of `new` was not in `old`, in their orders.
fn exchanged<'a, T, K: Ord>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&T) -> K,
) -> (Vec<&'a T>, Vec<&'a T>) {
    (without(old, new, &key), without(new, old, &key))
}

/// What of `these` is not in `others`. What is there twice, as the shares of threads may be, counts
/// twice.
fn without<'a, T, K: Ord>(these: &'a [T], others: &[T], key: impl Fn(&T) -> K) -> Vec<&'a T> {
    let mut left: BTreeMap<K, usize> = BTreeMap::new();
    for other in others {
        *left.entry(key(other)).or_default() += 1;
    }
    let is_new = |it: &&T| match left.get_mut(&key(it)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    these.iter().filter(is_new).collect()
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group { group, member: 0 } => write!(f, "group {}", clean(group)),
            Self::Group { group, member } => write!(f, "group {}, member {member}", clean(group)),
            Self::Epoch { epoch: 0, .. } => f.write_str("no view is in force"),
            Self::Epoch { epoch, alive } => {
                let alive: Vec<_> = alive.iter().map(u16::to_string).collect();
                write!(f, "epoch {epoch}: members {}", alive.join(", "))
            }
            Self::Quorum { quorum, before } => f.write_str(&quorum::fact(quorum, *before)),
            Self::Member { member } => {
                write!(f, "member {}: {}", member.id, state(member.state))?;
                if member.detail.is_empty() {
                    return Ok(());
                }
                write!(f, " ({})", clean(&member.detail))
            }
            Self::Remove { id, .. } => write!(f, "member {id}: removed"),
            Self::Quarantine { lock } => write!(
                f,
                "{}: quarantined until the lease of a lost member is over",
                clean(lock)
            ),
            Self::Unquarantine { lock } => write!(f, "{}: quarantined no more", clean(lock)),
            Self::Hold { lock, holder } => {
                let command = clean(&holder.command);
                write!(
                    f,
                    "{}: {} holds{}: {command}",
                    clean(lock),
                    caller(holder),
                    fence(holder)
                )
            }
            Self::Release { lock, holder } => {
                write!(
                    f,
                    "{}: {} released{}",
                    clean(lock),
                    caller(holder),
                    fence(holder)
                )
            }
            Self::Unheard { lock, holder } => write!(
                f,
                "{}: {} is not heard, and may hold{}",
                clean(lock),
                caller(holder),
                fence(holder)
            ),
            Self::Free { lock } => write!(f, "{}: free", clean(lock)),
            Self::Wait { lock, waiter } => {
                write!(f, "{}: {} waits", clean(lock), waiting(waiter))
            }
            Self::Unwait { lock, waiter } => {
                write!(f, "{}: {} waits no more", clean(lock), waiting(waiter))
            }
        }
    }
}

fn caller(holder: &HolderStatus) -> String {
    process(holder.member, &holder.host, holder.pid)
}

fn waiting(waiter: &WaiterStatus) -> String {
    process(waiter.member, &waiter.host, waiter.pid)
}

fn process(member: u16, host: &str, pid: u32) -> String {
    let host = clean(host);
    match member {
        0 => format!("pid {pid} (host {host})"),
        _ => format!("member {member} (host {host}, pid {pid})"),
    }
}

fn fence(holder: &HolderStatus) -> String {
    let fence = holder.fence;
    fence.map_or_else(String::new, |fence| format!(", fence {fence}"))
}

#[cfg(test)]
mod tests;
