//! Reading everything that a group has.

use super::*;
use crate::ledger::survey::{Life, Overview, Survey};

/// Reads everything, `page` entries at a time; and how many pages that took.
fn survey(bench: &Bench, page: usize) -> (Overview, usize) {
    let mut survey = Survey::new("g");
    let mut pages = 0;
    while let Some(op) = survey.op() {
        assert_eq!(survey.op(), None, "one after the other");
        let Op::List { prefix, after } = op else {
            panic!("{op:?}");
        };
        let is_it =
            |key: &Key| key.as_str().starts_with(prefix.as_str()) && Some(key) > after.as_ref();
        let mut all = bench.registers.iter().filter(|(key, _)| is_it(key));
        let entries = all.by_ref().take(page);
        let entries = entries
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        let more = all.next().is_some();
        survey.reply(Reply::Page { entries, more }).unwrap();
        pages += 1;
    }
    assert!(survey.is_over());
    (survey.finish().unwrap(), pages)
}

fn shop() -> Bench {
    let mut bench = Bench::new(2);
    let command = "lp".to_string();
    let ticket = Ticket(1);
    bench.input(
        0,
        LedgerInput::Caller {
            ticket,
            pid: 77,
            command,
        },
    );
    bench.ask(0, 1);
    bench.ask(1, 1);
    bench.ask(0, 2);
    bench
}

#[test]
fn everything_is_read_page_by_page() {
    let bench = shop();
    for (page, pages) in [(1, 3), (2, 2), (100, 2)] {
        let (overview, took) = survey(&bench, page);
        assert_eq!(took, pages);
        assert_eq!(overview.unreadable, []);
        assert_eq!(overview.sessions.len(), 2);
        let (record, version) = &overview.locks[&lock()];
        assert_eq!(*record, bench.record());
        assert_eq!(*version, bench.registers[&bench.lock_key()].version);
    }
}

#[test]
fn who_is_inside_and_who_waits_is_told_in_order() {
    let mut bench = shop();
    let session = bench.session_key(1);
    bench.put(&session, SessionRecord::tombstone(None, LEASE).to_bytes());
    let (overview, _) = survey(&bench, 100);
    let inside: Vec<_> = overview.inside(&lock()).collect();
    let (_, fence, _) = bench.grants(0)[0];
    assert_eq!(inside.len(), 1);
    assert_eq!(
        (inside[0].host, inside[0].pid, inside[0].command),
        ("h", Some(77), Some("lp"))
    );
    assert_eq!(
        (inside[0].mode, inside[0].fence, inside[0].life),
        (Mode::Exclusive, Some(fence), Life::Alive)
    );
    let waiting: Vec<_> = overview
        .waiting(&lock())
        .map(|it| (it.session.clone(), it.life, it.fence))
        .collect();
    let name = |agent: usize| bench.agents[agent].session().unwrap().clone();
    assert_eq!(
        waiting,
        [(name(1), Life::Dead, None), (name(0), Life::Alive, None)]
    );
    assert_eq!(overview.life(&SessionName::new(1)), Life::Absent);
    assert_eq!(overview.idle_sessions().count(), 0);
    let other = LockName::new("other").unwrap();
    assert_eq!(overview.inside(&other).count(), 0);
}

#[test]
fn a_session_without_claims_is_idle() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    bench.release(0, 1);
    let (overview, _) = survey(&bench, 100);
    let idle: Vec<_> = overview.idle_sessions().cloned().collect();
    assert_eq!(idle, [bench.agents[0].session().unwrap().clone()]);
}

#[test]
fn what_cannot_be_read_is_told() {
    let mut bench = Bench::new(1);
    let empty = LockRecord::new(NonZeroU32::MIN).to_bytes();
    let keys = [
        ("distlock/g/lock/%2f", empty.clone()),
        ("distlock/g/lock/x", b"{\"distlock\":2}".to_vec()),
        ("distlock/g/session/a", b"{}".to_vec()),
        ("distlock/h/lock/x", b"{}".to_vec()),
    ];
    for (key, value) in &keys {
        bench.put(&Key::new(*key), value.clone());
    }
    let (overview, _) = survey(&bench, 1);
    assert!(overview.locks.is_empty() && overview.sessions.is_empty());
    let unreadable: Vec<&str> = overview
        .unreadable
        .iter()
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(unreadable, [keys[0].0, keys[1].0, keys[2].0]);
    assert_eq!(overview.unreadable[1].1, RecordError::Newer(2));
}

#[test]
fn an_answer_that_does_not_fit_ends_the_survey() {
    let entry = Entry {
        value: Vec::new(),
        version: Version(1),
    };
    let page = |keys: &[&str], more| Reply::Page {
        entries: keys
            .iter()
            .map(|key| (Key::new(*key), entry.clone()))
            .collect(),
        more,
    };
    for (reply, words) in [
        (Reply::Unknown, "does not list distlock/g/lock/"),
        (Reply::Refused("no rights".into()), "no rights"),
        (Reply::Value(None), "no page"),
        (page(&[], true), "shows none"),
        (page(&["distlock/h/lock/x"], false), "not in"),
        (
            page(&["distlock/g/lock/b", "distlock/g/lock/a"], false),
            "out of order",
        ),
    ] {
        let mut survey = Survey::new("g");
        assert!(survey.reply(Reply::Unknown).is_err(), "nothing was asked");
        let mut survey = Survey::new("g");
        survey.op();
        let error = survey.reply(reply).unwrap_err();
        assert!(error.contains(words), "{error}");
        assert!(survey.is_over() && survey.op().is_none());
        assert_eq!(survey.finish(), None);
    }
    assert_eq!(Survey::new("g").finish(), None);
}
