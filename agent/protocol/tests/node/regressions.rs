//! What reviews once found, each as the few steps that bring it out.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use distlock_protocol::{
    Algorithm, Boot, Command, Event, Failure, Input, LockName, LockSpec, Mode, Node, NodeConfig,
    Output, Refusal, Settings, Ticket, Time, Wait,
};

use crate::group::{Group, node};

fn ask(group: &mut Group, me: u16, ticket: u64, lock: &str, spec: Option<LockSpec>) {
    group.ask(me, ticket, lock, spec, Mode::Exclusive, Wait::Cancelled);
}

/// However many notes there are, what locks have to say waits for some of them only.
#[test]
fn notes_are_lost_when_too_much_waits_to_be_sent() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    let note = Command::Note {
        to: node(2),
        bytes: vec![7; Command::MAX_NOTE],
    };
    for _ in 0..100 {
        group.input(node(1), Input::Command(&note));
    }
    group.enter(1, 1, Duration::from_secs(60));
    let is_note = |(_, event): &&(_, Event)| matches!(event, Event::Note { .. });
    let arrived = group.events.iter().filter(is_note).count() as u64;
    assert!((1..30).contains(&arrived), "{arrived}");
    let counters = group.nodes[&node(1)].counters();
    assert_eq!(counters.notes_lost, 100 - arrived);
}

/// A holds "printer" as a semaphore of 4; B comes back and wants it as a mutex.
#[test]
fn who_wished_otherwise_is_refused_by_the_view_that_tells() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    let four = LockSpec::counting(NonZeroU32::new(4).unwrap());
    ask(&mut group, 1, 1, "printer", Some(four));
    group.run(Duration::from_secs(1));
    assert!(group.granted(1).is_some());
    group.start(2);
    let mutex = LockSpec::exclusive(Algorithm::RicartAgrawala);
    ask(&mut group, 2, 2, "printer", Some(mutex));
    group.run(Duration::from_secs(5));
    assert!(
        matches!(group.ended(2), Some(Refusal::WrongSpec { .. })),
        "1 is inside with a semaphore of 4; the mutex of 2: granted {:?}, ended {:?}",
        group.granted(2),
        group.ended(2)
    );
}

/// Two callers of a restarted member would share a lock that cannot be shared.
#[test]
fn who_would_share_is_refused_by_the_view_that_tells() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.enter(1, 1, Duration::from_secs(1));
    group.start(2);
    group.share(2, 2);
    group.share(2, 3);
    group.run(Duration::from_secs(5));
    group.release(1, 1);
    group.acquire(1, 4, Wait::Cancelled);
    group.run(Duration::from_secs(5));
    let inside: Vec<_> = [2, 3, 4]
        .into_iter()
        .filter(|&t| group.granted(t).is_some())
        .collect();
    assert!(
        inside.len() <= 1,
        "inside: {inside:?}; ended 2: {:?}",
        group.ended(2)
    );
}

/// Without debug assertions: a reader and a writer are inside together.
#[test]
fn no_reader_is_inside_with_a_writer_after_a_view_told() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.acquire(1, 1, Wait::Cancelled);
    group.run(Duration::from_secs(1));
    group.start(2);
    group.share(2, 2);
    group.share(2, 3);
    group.run(Duration::from_secs(5));
    group.release(1, 1);
    group.run(Duration::from_secs(1));
    group.acquire(1, 4, Wait::Cancelled);
    group.run(Duration::from_secs(1));
    group.release(2, 3);
    group.run(Duration::from_secs(1));
    assert!(!(group.granted(2).is_some() && group.granted(4).is_some()));
}

/// 65,536 names used once each.
#[test]
fn names_that_were_used_once_are_forgotten() {
    let mut group = Group::new(1, Algorithm::RicartAgrawala);
    for i in 1..=70_000_u64 {
        ask(&mut group, 1, i, &format!("l{i}"), None);
        group.release(1, i);
        group.events.clear();
    }
    group.run(Duration::from_secs(60));
    ask(&mut group, 1, 100_000, "another", None);
    group.run(Duration::from_secs(60));
    assert!(
        group.granted(100_000).is_some(),
        "{:?}",
        group.ended(100_000)
    );
}

/// One that is repeated, besides the five that ask whether it is still there.
#[test]
fn a_dead_member_is_sent_one_datagram_a_second() {
    let mut group = Group::new(2, Algorithm::RicartAgrawala);
    group.stop(2);
    for i in 1..=64_u64 {
        ask(&mut group, 1, i, &format!("l{i}"), None);
    }
    group.run(Duration::from_secs(6));
    let before = group.sent.len();
    group.run(Duration::from_secs(10));
    let sent = group.sent.len() - before;
    assert!(sent <= 62, "{sent} datagrams in 10 s to a dead peer");
}

/// State lost after a crash inside; the next incarnation is stopped in order before it heard anybody.
#[test]
fn an_incarnation_that_has_not_heard_of_the_one_before_does_not_end_clean() {
    let mut group = Group::new(3, Algorithm::RicartAgrawala);
    group.enter(2, 1, Duration::from_secs(1));
    group.records.remove(&node(2));
    group.start(2);
    group.leave(2);
    group.start(2);
    group.acquire(3, 2, Wait::Cancelled);
    group.run(Duration::from_millis(1100));
    assert_eq!(
        group.granted(2),
        None,
        "granted within a lease of the crash"
    );
}

/// As many members as the configuration allows.
#[test]
fn greetings_of_a_large_group_arrive() {
    let config = |me| NodeConfig {
        cluster: None,
        me: node(me),
        members: (1..=1024).map(node).collect(),
        voters: (1..=7).map(node).collect(),
        settings: Settings {
            failure: Failure::Unanimity,
            ..Settings::new("big")
        },
    };
    let boot = Boot {
        record: None,
        wall: Duration::from_secs(1000),
        seed: 1,
    };
    let now = Time::from_nanos(1);
    let (mut a, mut b) = (
        Node::new(config(1), boot.clone(), now),
        Node::new(config(2), boot, now),
    );
    b.handle(now, Input::Persisted);
    a.handle(now, Input::Persisted);
    while let Some(output) = a.poll_output() {
        if let Output::Transmit { to, bytes } = output
            && to == node(2)
        {
            b.handle(
                now,
                Input::Datagram {
                    from: node(1),
                    bytes: &bytes,
                },
            );
        }
    }
    assert_eq!(b.counters().datagrams_received, 1);
}

/// A lock's spec outlives a view in one member only: two algorithms serve one name.
#[test]
fn what_a_view_does_not_know_is_declared_anew() {
    let sem = LockSpec::exclusive(Algorithm::Semaphore);
    let ring = LockSpec::exclusive(Algorithm::TokenRingRequests);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let mut group = Group::new(3, Algorithm::RicartAgrawala);
        // 3 uses it as a semaphore, and is done with it.
        ask(&mut group, 3, 1, name, Some(sem));
        group.run(Duration::from_secs(1));
        assert!(group.granted(1).is_some());
        group.release(3, 1);
        group.run(Duration::from_secs(1));
        // 2 is restarted in order; the group forms anew.
        group.leave(2);
        group.run(Duration::from_secs(1));
        group.start(2);
        while group.nodes[&node(3)].view().is_some() {
            group.run(Duration::from_micros(100));
        }
        // Member 3 is frozen, its summary is told. A thread asks for the lock as before.
        ask(&mut group, 3, 2, name, Some(sem));
        group.run(Duration::from_secs(1));
        ask(&mut group, 2, 3, name, Some(ring));
        group.run(Duration::from_secs(2));
        assert!(
            !(group.granted(2).is_some() && group.granted(3).is_some()),
            "{name}: two are inside"
        );
    }
}

/// Given-up requests to a silent member end all service, also of locks that do not need it.
#[test]
fn given_up_requests_to_a_silent_member_stop_nobody_else() {
    let mut group = Group::new(3, Algorithm::RicartAgrawala);
    let sem = Some(LockSpec::exclusive(Algorithm::Semaphore));
    // A semaphore that 1 or 2 serves works without 3.
    let mut ticket = 1_000_000;
    group.stop(3);
    group.run(Duration::from_secs(2));
    let works = ["a", "b", "c", "d", "e", "f"]
        .into_iter()
        .find(|name| {
            ticket += 1;
            ask(&mut group, 1, ticket, name, sem);
            group.run(Duration::from_millis(100));
            let yes = group.granted(ticket).is_some();
            group.release(1, ticket);
            yes
        })
        .unwrap();
    for i in 0..5_000_u64 {
        ask(&mut group, 1, i, "ra", None);
        group.run(Duration::from_millis(2));
        group.input(
            node(1),
            Input::Command(&Command::Cancel { ticket: Ticket(i) }),
        );
        group.events.clear();
        group.sent.clear();
    }
    ask(&mut group, 1, 2_000_000, works, sem);
    group.run(Duration::from_secs(1));
    assert!(
        group.granted(2_000_000).is_some(),
        "{works}: {:?}",
        group.ended(2_000_000)
    );
}

/// One has left; another is restarted: locks that worked without the first freeze.
#[test]
fn a_round_does_not_begin_without_a_member_that_left() {
    let mut group = Group::new(3, Algorithm::RicartAgrawala);
    group.leave(3);
    group.run(Duration::from_secs(1));
    assert!(group.nodes[&node(1)].view().is_some());
    group.leave(2);
    group.run(Duration::from_secs(1));
    group.start(2);
    group.run(Duration::from_secs(2));
    assert!(
        group.nodes[&node(1)].view().is_some(),
        "member 1 is frozen for a round without 3"
    );
}

/// No file may say it, and a program could: two would be inside, each with a fence.
#[test]
fn where_a_majority_decides_nobody_is_served_by_chance() {
    const LISTED: LockSpec = LockSpec::exclusive(Algorithm::Majority);
    let voting = LockSpec::exclusive(Algorithm::Voting);
    let listed = (LockName::new("listed").unwrap(), LISTED);
    let mut group = Group::empty(
        3,
        Algorithm::Bakery,
        Failure::Quorum,
        Duration::from_secs(1),
    );
    group.settings.locks = BTreeMap::from([listed]);
    { 1..=3 }.for_each(|id| group.start(id));
    group.run(Duration::from_secs(1) * 3);
    let campaign = |group: &mut Group, me, ticket, lock| {
        let command = Command::Campaign {
            ticket: Ticket(ticket),
            lock: LockName::new(lock).unwrap(),
            spec: voting,
            algorithm: None,
            wait: Wait::Cancelled,
        };
        group.input(node(me), Input::Command(&command));
    };
    let by_default = LockSpec::exclusive(Algorithm::Bakery);
    // The coordinator's callers, and another's.
    for me in 1..=3 {
        let first = u64::from(me) * 10;
        ask(&mut group, me, first, "printer", Some(voting));
        ask(&mut group, me, first + 1, "listed", Some(voting));
        campaign(&mut group, me, first + 2, "printer");
        campaign(&mut group, me, first + 3, "listed");
        group.run(Duration::from_secs(1));
        for (ticket, actual) in [
            (first, by_default),
            (first + 1, LISTED),
            (first + 2, by_default),
            (first + 3, LISTED),
        ] {
            let refusal = Refusal::WrongSpec { actual };
            assert_eq!(group.ended(ticket), Some(&refusal), "ticket {ticket}");
        }
    }
    // Nothing of it stays.
    group.enter(2, 1, Duration::from_secs(1));
}

/// Where the silent are presumed gone it is served: there are no fences.
#[test]
fn where_the_silent_are_presumed_gone_chance_may_decide() {
    let mut group = Group::with(3, Algorithm::Bakery, Failure::PresumeFailed);
    let voting = LockSpec::exclusive(Algorithm::Voting);
    ask(&mut group, 2, 1, "printer", Some(voting));
    group.run(Duration::from_secs(1));
    assert!(group.granted(1).is_some(), "{:?}", group.ended(1));
}

/// A member that was putting its end on disk installed one more view, of which its disk did not tell.
#[test]
fn who_is_putting_its_end_on_disk_takes_nothing_in() {
    let mut group = Group::with(3, Algorithm::TokenRingRequests, Failure::Quorum);
    let mut leaver = group.nodes.remove(&node(3)).unwrap();
    let mut now = group.now;
    leaver.handle(now, Input::Command(&Command::Leave));
    // Nobody answers it, so that it ends when it has waited for long enough.
    loop {
        match leaver.poll_output() {
            Some(Output::Persist(record)) if record.clean => break,
            Some(Output::Persist(_)) => leaver.handle(now, Input::Persisted),
            Some(_) => {}
            None => {
                now = now + Duration::from_millis(100);
                assert!(now < group.now + Duration::from_secs(60), "it never ends");
                leaver.handle(now, Input::Timeout);
            }
        }
    }
    while leaver.poll_output().is_some() {}
    let mut sent = group.sent.iter().rev();
    let (from, _, bytes) = sent.find(|(_, to, _)| *to == node(3)).unwrap();
    for later in [1, 10] {
        let later = now + Duration::from_secs(later);
        leaver.handle(later, Input::Timeout);
        leaver.handle(later, Input::Datagram { from: *from, bytes });
        assert_eq!(leaver.poll_output(), None);
    }
    assert_eq!(leaver.poll_timeout(), None);
    leaver.handle(now, Input::Persisted);
    assert_eq!(leaver.poll_output(), Some(Output::Event(Event::Left)));
}
