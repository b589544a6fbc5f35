use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use distlock::status::{MemberStatus, QuorumStatus};

use super::*;

/// At this second since 1970, and since the host's start.
pub(crate) fn look(second: u64) -> Look {
    let member = |id, state| MemberStatus {
        id,
        address: format!("udp:10.0.0.{id}:7400"),
        state,
        detail: String::new(),
    };
    let quorum = QuorumStatus {
        ok: true,
        founded: true,
        voters: vec![1, 2],
        ..QuorumStatus::default()
    };
    let status = Status {
        group: "shop".to_owned(),
        member: 1,
        epoch: 5,
        quorum,
        members: vec![
            member(1, MemberState::Alive),
            member(2, MemberState::Alive),
            member(3, MemberState::Suspect),
        ],
        ..Status::default()
    };
    let metrics = Metrics {
        lease: Duration::from_secs(5),
        lease_remaining: Some(Duration::from_millis(4_100)),
        clients: Some(2),
        ..Metrics::default()
    };
    Look {
        at: Time::from_nanos(second * 1_000_000_000),
        wall: UNIX_EPOCH + Duration::from_secs(second),
        status,
        metrics: Some(metrics),
    }
}

/// A lock that is held since `since`, a second of the first minute of 1970, and waited for.
pub(crate) fn lock(name: &str, fence: u64, since: u8, waiters: u32) -> LockStatus {
    let since = format!("1970-01-01T00:00:{since:02}Z");
    LockStatus {
        name: name.to_owned(),
        algorithm: "manager".to_owned(),
        quarantined: false,
        holders: vec![HolderStatus {
            member: 2,
            host: "b".to_owned(),
            pid: 47,
            command: "lp -d x".to_owned(),
            command_pid: Some(48),
            since: since.clone(),
            fence: Some(fence),
        }],
        waiters: (1..=waiters)
            .map(|pid| WaiterStatus {
                member: 3,
                host: "c".to_owned(),
                pid,
                since: since.clone(),
            })
            .collect(),
    }
}

pub(crate) fn granted(times: u64, by_loan: u64) -> LockMetrics {
    LockMetrics {
        exclusive: times,
        by_loan,
        ..LockMetrics::default()
    }
}

fn listed(look: &mut Look, name: &str, times: u64) {
    let metrics = look.metrics.as_mut().expect("an agent's");
    metrics.locks.insert(name.to_owned(), granted(times, 0));
}

fn names(locks: &[&Lock]) -> Vec<String> {
    locks.iter().map(|lock| lock.name.clone()).collect()
}

#[test]
fn rates_follow_from_two_looks() {
    let (mut old, mut new) = (look(10), look(12));
    listed(&mut old, "printer", 100);
    listed(&mut new, "printer", 124);
    let metrics = new.metrics.as_mut().expect("an agent's");
    metrics.other_locks = granted(6, 4);
    metrics.other_locks.refusals = BTreeMap::from([("busy".to_owned(), 1)]);
    metrics.losses = BTreeMap::from([("excluded".to_owned(), 3)]);
    metrics.datagrams_sent = 50;
    new.status.locks = vec![lock("printer", 7, 2, 1)];
    let model = Model::new(Some(&old), &new);
    let rates = model.rates.expect("two looks");
    assert_eq!((rates.grants, rates.by_loan), (15.0, 2.0));
    assert_eq!((rates.refusals, rates.losses), (0.5, 1.5));
    assert_eq!(
        (rates.datagrams_sent, rates.datagrams_received),
        (25.0, 0.0)
    );
    assert_eq!((model.losses, model.clients), (3, Some(2)));
    assert_eq!(model.unlisted, Rate::Counted(3.0));
    let [lock] = &model.locks[..] else {
        panic!("{:?}", model.locks);
    };
    assert_eq!(lock.rate, Rate::Counted(12.0));
    assert_eq!(lock.heat(), 13.0);
    assert_eq!(lock.holders[0].by.age, Some(Duration::from_secs(10)));
    assert_eq!(lock.age(), Some(Duration::from_secs(10)));
}

#[test]
fn the_first_look_has_no_rates_and_neither_has_an_agent_that_was_started_anew() {
    let (mut old, mut new) = (look(10), look(11));
    new.status.locks = vec![lock("x", 9, 2, 0)];
    assert_eq!(Model::new(None, &new).rates, None);
    old.metrics.as_mut().expect("an agent's").datagrams_sent = 7;
    old.status.locks = vec![lock("x", 8, 2, 0)];
    let model = Model::new(Some(&old), &new);
    assert_eq!((model.rates, model.unlisted), (None, Rate::Unknown));
    assert_eq!(model.locks[0].rate, Rate::Unknown);
}

#[test]
fn a_lock_that_is_not_listed_is_counted_by_its_fences() {
    let (mut old, mut new) = (look(10), look(12));
    old.status.locks = vec![lock("x", (5 << 32) | 4, 2, 0)];
    let rate = |old: &Look, new: &Look| Model::new(Some(old), new).locks[0].rate;
    new.status.locks = vec![lock("x", (5 << 32) | 14, 2, 0)];
    assert_eq!(rate(&old, &new), Rate::ByFences(5.0));
    // The counter starts anew with the epoch.
    new.status.locks = vec![lock("x", (6 << 32) | 1, 2, 0)];
    assert_eq!(rate(&old, &new), Rate::Unknown);
    // Of a lock that was free nothing is known.
    old.status.locks.clear();
    assert_eq!(rate(&old, &new), Rate::Unknown);
    // The local group has fences, and no metrics.
    old.status.locks = vec![lock("x", (6 << 32) | 1, 2, 0)];
    (old.metrics, new.metrics) = (None, None);
    assert_eq!(rate(&old, &new), Rate::ByFences(0.0));
}

#[test]
fn a_lock_that_is_held_shortly_is_there_nevertheless() {
    let (mut old, mut new) = (look(10), look(11));
    for (name, then, now) in [("busy", 1, 9), ("idle", 3, 3)] {
        listed(&mut old, name, then);
        listed(&mut new, name, now);
    }
    let model = Model::new(Some(&old), &new);
    assert_eq!(names(&model.sorted(Order::Heat, false, "")), ["busy"]);
    assert_eq!(model.locks[0].rate, Rate::Counted(8.0));
}

#[test]
fn locks_are_sorted_and_filtered() {
    let mut now = look(40);
    now.status.locks = vec![
        lock("Backup", 1, 30, 0),
        lock("printer", 1, 20, 3),
        lock("stock", 1, 10, 1),
    ];
    let model = Model::new(None, &now);
    let sorted = |order, is_reversed, filter| names(&model.sorted(order, is_reversed, filter));
    assert_eq!(
        sorted(Order::Heat, false, ""),
        ["printer", "stock", "Backup"]
    );
    assert_eq!(
        sorted(Order::Name, false, ""),
        ["Backup", "printer", "stock"]
    );
    assert_eq!(
        sorted(Order::Name, true, ""),
        ["stock", "printer", "Backup"]
    );
    assert_eq!(
        sorted(Order::Age, false, ""),
        ["stock", "printer", "Backup"]
    );
    assert_eq!(
        sorted(Order::Waiters, true, ""),
        ["Backup", "stock", "printer"]
    );
    assert_eq!(sorted(Order::Heat, false, "CK"), ["stock", "Backup"]);
    assert!(sorted(Order::Heat, false, "none").is_empty());
}

#[test]
fn what_others_chose_is_escaped() {
    let mut now = look(40);
    let mut bad = lock("a\u{1b}[2Jb", 1, 30, 1);
    bad.holders[0].command = "x\u{202e}y\u{7}".to_owned();
    bad.holders[0].host = "h\n".to_owned();
    bad.waiters[0].host = "\u{9b}1m".to_owned();
    now.status.locks = vec![bad];
    now.status.group = "g\u{1b}c".to_owned();
    now.status.members[0].detail = "\r".to_owned();
    let model = Model::new(None, &now);
    let text = format!("{} {:?}", model.title, model.members[0].detail);
    assert!(!text.contains(['\u{1b}', '\r']), "{text}");
    let lock = &model.locks[0];
    assert_eq!(lock.name, "a\\u{1b}[2Jb");
    assert_eq!(lock.holders[0].command, "x\\u{202e}y\\u{7}");
    assert_eq!(lock.holders[0].by.host, "h\\n");
    assert_eq!(lock.waiters[0].by.host, "\\u{9b}1m");
}

#[test]
fn an_age_that_makes_no_sense_is_none_and_one_in_the_future_is_zero() {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(
        age("1970-01-01T00:00:09Z", at(10)),
        Some(Duration::from_secs(1))
    );
    assert_eq!(age("1970-01-01T00:00:09Z", at(8)), Some(Duration::ZERO));
    assert_eq!(age("yesterday", at(8)), None);
}
