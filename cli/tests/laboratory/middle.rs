//! Somebody in the middle of the network: what he can do to members that have a key, and to those
//! that have none.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::hosts::Host;
use crate::laboratory::{ALL, Laboratory, Order, variable};
use crate::locks::{DEFAULT, Lock};
use crate::meddler::{Meddler, Trick};
use crate::switch::{Arrivals, Link};

const HOSTS: u16 = 3;
/// Why an agent drops what it does not count as received.
const NOT_RECEIVED: [&str; 13] = [
    "by-kernel",
    "foreign",
    "too-long",
    "malformed",
    "not-sealed",
    "sealed",
    "unknown-key",
    "forged",
    "replayed",
    "unproven",
    "stale-handshake",
    "strange",
    "receive-error",
];
/// Why it drops a message of a datagram that it took: that is still somebody's who was believed.
const OF_MESSAGES: [&str; 4] = ["past-view", "misplaced", "too-many-notes", "malformed-note"];
/// Until everything that is on its way has arrived.
const SETTLES: Duration = Duration::from_millis(300);

fn laboratory(has_key: bool) -> Option<Laboratory> {
    Laboratory::new(Order {
        hosts: HOSTS,
        locks: match variable::<String>("DISTLOCK_LAB_ENGINE") {
            Some(engine) => Lock::only(&engine),
            None => Lock::all(&[DEFAULT, "token-ring-requests"]),
        },
        seed: variable("DISTLOCK_LAB_SEED").unwrap_or(1),
        has_shims: false,
        has_multicast: false,
        has_key,
        is_watched: false,
        store: None,
    })
}

/// What became of all that got to one host.
#[derive(Debug)]
struct Account {
    arrived: Arrivals,
    /// Taken by the agent.
    received: u64,
    handshakes: u64,
    dropped: BTreeMap<String, u64>,
}

impl Account {
    fn not_received(&self) -> u64 {
        self.dropped_for(&NOT_RECEIVED)
    }

    fn dropped_for(&self, reasons: &[&str]) -> u64 {
        let counts = reasons.iter().filter_map(|why| self.dropped.get(*why));
        counts.sum()
    }

    /// What has become of what arrived since `before`. Who sends before the other is there knows
    /// nothing of its end.
    fn since(self, before: &Self) -> Self {
        let mut dropped = self.dropped;
        for (why, count) in &before.dropped {
            *dropped.get_mut(why).expect("it only grows") -= count;
        }
        Self {
            arrived: Arrivals {
                sent: self.arrived.sent - before.arrived.sent,
                made: self.arrived.made - before.arrived.made,
            },
            received: self.received - before.received,
            handshakes: self.handshakes - before.handshakes,
            dropped,
        }
    }

    /// What was received and is no nonsense.
    fn believed(&self) -> u64 {
        let all: u64 = self.dropped.values().sum();
        self.received - (all - self.not_received() - self.dropped_for(&OF_MESSAGES))
    }
}

impl Laboratory {
    /// Has nothing arrive any more, and everything that has be dealt with.
    fn silence(&self) {
        self.switch.set(|_, _| Link {
            is_cut: true,
            ..Link::default()
        });
        thread::sleep(SETTLES);
    }

    /// Of every host, while nothing arrives.
    fn accounts(&self) -> Vec<Account> {
        let account = |host: &Host| {
            let (received, handshakes, dropped) = host.account();
            Account {
                arrived: self.switch.arrivals(host.number),
                received,
                handshakes,
                dropped,
            }
        };
        self.hosts.iter().map(account).collect()
    }

    /// Lets somebody into the middle for as long as the environment says; what he did.
    fn suffer(&mut self, meddler: Meddler, goes_on: bool) -> BTreeMap<Trick, u64> {
        let lasts = Duration::from_secs(variable("DISTLOCK_LAB_SECS").unwrap_or(5));
        let until = now_ns() + u64::try_from(lasts.as_nanos()).expect("short");
        self.switch.let_in(Some(meddler));
        self.switch.set(|_, _| Link {
            delay_ms: 3,
            ..Link::default()
        });
        while now_ns() < until {
            if goes_on {
                self.await_everybody("there is somebody in the middle", ALL);
            } else {
                thread::sleep(SETTLES);
            }
        }
        let meddler = self.switch.let_in(None).expect("he was let in");
        meddler.tricks().clone()
    }
}

/// He replays, mutates, truncates, reflects, redirects and forges, and what members send overtakes
/// itself: nothing of his is taken, everything is accounted for, and all enter meanwhile.
#[test]
fn a_man_in_the_middle_changes_nothing() {
    let Some(mut lab) = laboratory(true) else {
        return;
    };
    lab.silence();
    let before = lab.accounts();
    let tricks = lab.suffer(Meddler::new(HOSTS, 500, false, 7), true);
    lab.silence();
    for (account, before) in lab.accounts().into_iter().zip(&before) {
        let account = account.since(before);
        let Arrivals { sent, made } = account.arrived;
        println!("{account:?}");
        assert_eq!(
            sent + made,
            account.received + account.handshakes + account.not_received(),
            "everything that arrived is counted: {account:?}"
        );
        let unproven = account.dropped.get("unproven").copied().unwrap_or_default();
        let taken = account.received + account.handshakes + unproven;
        assert!(taken == sent, "something of his was taken: {account:?}");
        for why in ["forged", "replayed", "malformed", "by-kernel"] {
            assert!(account.dropped.get(why) > Some(&0), "{why}: {account:?}");
        }
    }
    println!("{tricks:?}");
    assert_eq!(tricks.len(), 8, "{tricks:?}");
    lab.heal();
    lab.await_everybody("he is gone", ALL);
    lab.judge();
}

/// The same without a key, from one who can count checksums: members take what he makes, and may end
/// by it, as when one is told that it lives anew elsewhere. That is why a key is asked for.
#[test]
fn without_a_key_a_man_in_the_middle_is_believed() {
    let Some(mut lab) = laboratory(false) else {
        return;
    };
    lab.silence();
    let before = lab.accounts();
    lab.suffer(Meddler::new(HOSTS, 500, true, 7), false);
    lab.silence();
    let ailments: Vec<_> = lab.hosts.iter_mut().filter_map(Host::ails).collect();
    println!("{ailments:?}");
    let mut believed = 0;
    if ailments.is_empty() {
        for (account, before) in lab.accounts().into_iter().zip(&before) {
            let account = account.since(before);
            println!("{account:?}");
            believed += account.believed().saturating_sub(account.arrived.sent);
        }
        println!("at least {believed} of his were believed");
    }
    assert!(!ailments.is_empty() || believed > 0, "he did nothing");
}

/// FAULTS 45: everything that was ever said, again, after restarts of who said it and of who heard
/// it.
#[test]
fn what_was_recorded_changes_nothing() {
    let Some(mut lab) = laboratory(true) else {
        return;
    };
    lab.switch.let_in(Some(Meddler::new(HOSTS, 0, false, 7)));
    for restarted in [None, Some(1), Some(2)] {
        if let Some(host) = restarted {
            lab.host(host).kill_agent();
            lab.start();
        }
        lab.await_everybody("there is something to record", ALL);
    }
    let meddler = lab.switch.let_in(None).expect("he was let in");
    let recorded = meddler.kept();
    lab.silence();
    let before = lab.accounts();
    let count = recorded.len();
    lab.switch.inject(recorded);
    while !lab.switch.is_drained() {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(SETTLES);
    let mut again = 0;
    for (before, after) in before.iter().zip(lab.accounts()) {
        assert_eq!(after.received, before.received, "{after:?}");
        let made = after.arrived.made - before.arrived.made;
        // A challenge of a former incarnation to one that is there is answered, and the answer leads
        // nowhere.
        let dealt = |account: &Account| account.not_received() + account.handshakes;
        assert_eq!(dealt(&after) - dealt(before), made, "{after:?}");
        again += made;
    }
    assert_eq!(again, count as u64);
    println!("{count} datagrams were sent again");
    lab.heal();
    lab.await_everybody("all was said again", ALL);
    lab.judge();
}
