//! What `distlock top` shows, from two looks at a group. Pure: it knows neither the terminal nor a clock.
//!
//! All text in it that others chose has been escaped.

mod rates;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use distlock::metrics::{LockMetrics, Metrics};
use distlock::status::{HolderStatus, LockStatus, MemberState, Status, WaiterStatus};
use distlock_agent::protocol::Time;

pub(super) use self::rates::{Lease, Rate, Rates};
use crate::exit::clean;
use crate::status::heading;

/// One look at a group.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// When the agent was asked.
    pub(super) at: Time,
    /// The same on the wall clock, by which members tell since when somebody holds or waits.
    pub(super) wall: SystemTime,
    pub(super) status: Status,
    /// `None` in the local group, which has no agent.
    pub(super) metrics: Option<Metrics>,
}

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    /// The group, the member that is asked, the epoch.
    pub(super) title: String,
    /// Whether there is a quorum, and what endangers the group: a sentence or two each.
    pub(super) notes: Vec<String>,
    pub(super) has_quorum: bool,
    pub(super) members: Vec<Member>,
    pub(super) lease: Option<Lease>,
    /// `None` at the first look, after the agent was started again, and in the local group.
    pub(super) rates: Option<Rates>,
    /// How many programs are connected to the agent.
    pub(super) clients: Option<u64>,
    /// How many grants were lost since the agent's start.
    pub(super) losses: u64,
    pub(super) locks: Vec<Lock>,
    /// How often a lock was granted by the agent that its configuration does not list.
    pub(super) unlisted: Rate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: u16,
    pub(super) address: String,
    pub(super) state: MemberState,
    pub(super) detail: String,
    pub(super) votes: bool,
    /// Whether it is the one that is asked.
    pub(super) is_asked: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lock {
    pub(super) name: String,
    pub(super) algorithm: String,
    pub(super) is_quarantined: bool,
    /// How often it is granted.
    pub(super) rate: Rate,
    pub(super) holders: Vec<Holder>,
    /// In their order: the first has place 1.
    pub(super) waiters: Vec<Waiter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) by: Process,
    pub(super) fence: Option<u64>,
    pub(super) command: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) by: Process,
}

/// A process that holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// 0 in the local group.
    pub(super) member: u16,
    pub(super) host: String,
    pub(super) pid: u32,
    /// For how long; `None` if that cannot be told.
    pub(super) age: Option<Duration>,
}

/// By what the locks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Grants per second, and waiters: the hottest first.
    #[default]
    Heat,
    /// In ascending order.
    Name,
    /// The most first.
    Waiters,
    /// The holder or waiter that has been there longest, first.
    Age,
}

impl Order {
    pub(super) const ALL: [Self; 4] = [Self::Heat, Self::Name, Self::Waiters, Self::Age];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Heat => "heat",
            Self::Name => "name",
            Self::Waiters => "waiters",
            Self::Age => "age",
        }
    }

    fn compare(self, a: &Lock, b: &Lock) -> Ordering {
        match self {
            Self::Heat => b.heat().total_cmp(&a.heat()),
            Self::Name => Ordering::Equal,
            Self::Waiters => b.waiters.len().cmp(&a.waiters.len()),
            Self::Age => b.age().cmp(&a.age()),
        }
    }
}

impl Lock {
    /// Grants per second, as far as they are known, and waiters.
    pub(super) fn heat(&self) -> f64 {
        self.rate.known().unwrap_or(0.0) + self.waiters.len() as f64
    }

    /// For how long the process has held it, or waited for it, that has done so longest.
    pub(super) fn age(&self) -> Option<Duration> {
        let holders = self.holders.iter().map(|it| &it.by);
        let all = holders.chain(self.waiters.iter().map(|it| &it.by));
        all.filter_map(|by| by.age).max()
    }
}

impl Model {
    /// What there is `now`; how often something happens follows from what was `before`.
    pub(super) fn new(before: Option<&Look>, now: &Look) -> Self {
        let status = &now.status;
        let metrics = now.metrics.as_ref();
        let before = before.filter(|before| before.at < now.at);
        let heading = heading(status);
        let mut lines = heading.lines().map(clean);
        let mut model = Self {
            title: lines.next().unwrap_or_default(),
            notes: lines.collect(),
            has_quorum: status.quorum.ok,
            members: members(status),
            lease: metrics.map(Lease::new),
            rates: before.and_then(|before| Rates::between(before, now)),
            clients: metrics.and_then(|its| its.clients),
            losses: metrics.map_or(0, |its| its.losses.values().sum()),
            locks: Vec::new(),
            unlisted: Rate::Unknown,
        };
        let before = before.filter(|_| metrics.is_none() || model.rates.is_some());
        model.unlisted = rates::counted(before, now, |its| Some(&its.other_locks));
        model.locks = locks(before, now);
        model
    }

    /// The locks whose names contain `filter`, whatever its case, in this order.
    pub(super) fn sorted(&self, order: Order, is_reversed: bool, filter: &str) -> Vec<&Lock> {
        let filter = filter.to_lowercase();
        let matches = |lock: &&Lock| lock.name.to_lowercase().contains(&filter);
        let mut locks: Vec<_> = self.locks.iter().filter(matches).collect();
        locks.sort_by(|a, b| order.compare(a, b).then_with(|| a.name.cmp(&b.name)));
        if is_reversed {
            locks.reverse();
        }
        locks
    }
}

fn members(status: &Status) -> Vec<Member> {
    let members = status.members.iter().map(|member| Member {
        id: member.id,
        address: clean(&member.address),
        state: member.state,
        detail: clean(&member.detail),
        votes: status.quorum.voters.contains(&member.id),
        is_asked: member.id == status.member,
    });
    members.collect()
}

fn locks(before: Option<&Look>, now: &Look) -> Vec<Lock> {
    let mut locks: Vec<_> = now.status.locks.iter().collect();
    // Held for so short a time that the status does not show it, and granted nevertheless.
    let named: BTreeSet<_> = locks.iter().map(|lock| lock.name.as_str()).collect();
    let rate = |name: &str| rates::counted(before, now, |its| its.locks.get(name));
    let listed = now.metrics.iter().flat_map(|its| its.locks.keys());
    let busy = listed.filter(|name| !named.contains(name.as_str()));
    let busy = busy.filter(|name| rate(name).known().is_some_and(|rate| rate > 0.0));
    let busy: Vec<_> = busy.map(|name| free(name)).collect();
    locks.extend(&busy);
    let all = locks.into_iter().map(|lock| Lock {
        name: clean(&lock.name),
        algorithm: clean(&lock.algorithm),
        is_quarantined: lock.quarantined,
        rate: match now.metrics.as_ref().map(|its| its.locks.get(&lock.name)) {
            Some(Some(_)) => rate(&lock.name),
            _ => rates::by_fences(before, now, lock),
        },
        holders: lock.holders.iter().map(|it| holder(it, now.wall)).collect(),
        waiters: lock.waiters.iter().map(|it| waiter(it, now.wall)).collect(),
    });
    all.collect()
}

fn free(name: &str) -> LockStatus {
    LockStatus {
        name: name.to_owned(),
        algorithm: String::new(),
        quarantined: false,
        holders: Vec::new(),
        waiters: Vec::new(),
    }
}

fn holder(holder: &HolderStatus, wall: SystemTime) -> Holder {
    Holder {
        by: Process {
            member: holder.member,
            host: clean(&holder.host),
            pid: holder.pid,
            age: age(&holder.since, wall),
        },
        fence: holder.fence,
        command: clean(&holder.command),
    }
}

fn waiter(waiter: &WaiterStatus, wall: SystemTime) -> Waiter {
    let by = Process {
        member: waiter.member,
        host: clean(&waiter.host),
        pid: waiter.pid,
        age: age(&waiter.since, wall),
    };
    Waiter { by }
}

/// Another host's clock may be ahead of this one's: then it is zero.
fn age(since: &str, wall: SystemTime) -> Option<Duration> {
    let since = humantime::parse_rfc3339(since).ok()?;
    Some(wall.duration_since(since).unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests;
