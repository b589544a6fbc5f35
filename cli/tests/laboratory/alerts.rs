//! Each alert that is shipped fires for its fault, and for no other: a real Prometheus, with the rules as they
//! are, scrapes five agents, while one thing after the other happens to one host or another. Nobody enters
//! but where it is said here.

mod judge;
mod watch;

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::process::Child;
use std::thread;
use std::time::Duration;

use judge::{Fault, judge};
use watch::{Watch, rules};

use crate::hosts::{Host, first_line};
use crate::laboratory::{Laboratory, Order};
use crate::locks::{DEFAULT, Lock};
use crate::meddler::{Passing, packet};
use crate::plan::Target;
use crate::shim::Shims;
use crate::switch::Link;

const HOSTS: u16 = 5;
/// Who suffers what. The first two are well all the time, as one is to wait for the other.
const HOLDER: u16 = 1;
const WAITER: u16 = 2;
const FAR: u16 = 3;
const ENDED: u16 = 4;
const STOPPED: u16 = 5;
const STRANGER: u16 = 77;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// All vote, as each of the five has it, and all can be granted locks.
const WELL: &str = "count(distlock_voters{votes=\"yes\"} == 5 \
                    and on(instance) distlock_quorum == 1) == 5";
/// Until it is so again.
const RECOVERS: Duration = secs(20);
/// How long an alert may fire on when its fault has gone: a scrape and an evaluation.
const LINGERS: Duration = secs(10);
/// What one clock gains on the others; a tenth is what leases allow for.
const GAIN: i64 = 250;
/// How much longer a slow disk takes.
const SLOW: Duration = Duration::from_millis(200);
/// What is sent to one host is late or lost, so that it often renews its lease after more than three quarters of
/// it. Whatever the host sends comes through: it stays a member, and all votes are counted.
const FAR_LINK: Link = Link {
    is_cut: false,
    lose_per_mille: 600,
    duplicate_per_mille: 0,
    corrupt_per_mille: 0,
    delay_ms: 700,
};
/// Lines that a small disk has room for are fewer.
const ENTRIES: usize = 1_000;

/// A child that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Alerts {
    watch: Watch,
    lab: Laboratory,
    faults: Vec<Fault>,
    /// What else was not as it should be.
    wrong: Vec<String>,
}

#[test]
#[ignore = "takes a quarter of an hour"]
fn alerts_fire_for_their_faults() {
    let order = Order {
        hosts: HOSTS,
        locks: Lock::only(DEFAULT),
        // Even, so that there are audit logs.
        seed: 2,
        has_shims: true,
        has_multicast: false,
        has_key: true,
        is_watched: true,
        store: None,
    };
    let Some(lab) = Laboratory::new(order) else {
        return;
    };
    let watch = Watch::new(&lab).expect("Debian's prometheus is here");
    let mut alerts = Alerts {
        watch,
        lab,
        faults: Vec::new(),
        wrong: Vec::new(),
    };
    alerts.play();
    alerts.tell();
}

impl Alerts {
    fn play(&mut self) {
        assert!(
            self.watch.await_answer(WELL, secs(60)),
            "nothing is scraped"
        );
        self.say("all is well");
        thread::sleep(secs(60));
        self.no_quorum();
        let (stuck, mut holder, _waiter) = self.stuck_holder();
        let slow = self.voter_missing();
        self.locks_lost();
        let late = self.lease_margin_low();
        self.audit_gap();
        self.flooded();
        self.await_alert(late, secs(420));
        self.lab.heal();
        self.await_alert(slow, secs(400));
        self.shims().slow_down(ENDED, Duration::ZERO);
        self.await_well();
        // Its timers are off from then on, and it is told in less than two minutes.
        let clock = self.clock_rate();
        self.await_alert(clock, secs(150));
        // The fault began more than six minutes ago.
        self.await_alert(stuck, secs(330));
        let ailments = self.lab.hosts.iter_mut().filter_map(Host::ails);
        self.wrong.extend(ailments);
        if let Some(status) = holder.0.try_wait().expect("it can be asked") {
            let why = "who holds the lock that is waited for has ended";
            self.wrong.push(format!("{why}: {status}"));
        }
    }

    fn say(&self, what: &str) {
        println!("{:>4} s: {what}", self.watch.now().as_secs());
    }

    /// From now on `alert` must fire on `hosts`, and may. The number of the fault.
    fn begin(&mut self, alert: &'static str, hosts: &[u16], what: &str) -> usize {
        self.say(&format!("{what}: {alert} on {hosts:?}"));
        self.faults.push(Fault {
            alert,
            hosts: hosts.to_vec(),
            began: self.watch.now(),
            until: None,
        });
        self.faults.len() - 1
    }

    /// Waits until the alert of `fault` fires wherever it must. If it does not, the judge tells.
    fn await_alert(&self, fault: usize, patience: Duration) {
        self.await_alert_with(fault, patience, || {});
    }

    fn await_alert_with(&self, fault: usize, patience: Duration, each: impl FnMut()) {
        let fault = &self.faults[fault];
        let fires = self.watch.await_alert(fault, patience, each);
        let word = if fires { "fires" } else { "does not fire" };
        self.say(&format!("{} {word}", fault.alert));
    }

    /// The fault is over: its alert may fire for so long.
    fn end(&mut self, fault: usize, lingers: Duration) {
        self.faults[fault].until = Some(self.watch.now() + lingers);
    }

    /// The table is of use also where they are not.
    fn await_well(&mut self) {
        if !self.watch.await_answer(WELL, RECOVERS) {
            let now = self.watch.now().as_secs();
            self.wrong
                .push(format!("not all were well again after {now} s"));
        }
    }

    fn shims(&self) -> &Shims {
        self.lab.place.shims.as_ref().expect("they were ordered")
    }

    /// `distlock run` on `host`, once its command is inside.
    fn hold(&self, host: u16, lock: &str) -> Running {
        let command = "echo inside; read line";
        let host = &self.lab.hosts[usize::from(host) - 1];
        let mut holder = host.run(&[lock, "--", "sh", "-c", command]);
        let said = first_line(holder.stdout.take().expect("a pipe"));
        assert_eq!(said.trim_end(), "inside");
        Running(holder)
    }

    /// Two are cut off, each alone, while nobody holds anything: the others go on.
    fn no_quorum(&mut self) {
        let cut_off = [ENDED, STOPPED];
        let fault = self.begin("DistlockNoQuorum", &cut_off, "two are cut off");
        self.lab.switch.set(|from, to| Link {
            is_cut: cut_off.contains(&from) || cut_off.contains(&to),
            ..Link::default()
        });
        self.await_alert(fault, secs(40));
        self.lab.heal();
        self.end(fault, LINGERS);
        self.await_well();
    }

    /// One holds a lock to the end, and another one waits.
    fn stuck_holder(&mut self) -> (usize, Running, Running) {
        let holder = self.hold(HOLDER, "stuck");
        let fault = self.begin("DistlockStuckHolder", &[WAITER], "one waits for a holder");
        let waiter = self.lab.host(WAITER).run(&["stuck", "--", "true"]);
        (fault, holder, Running(waiter))
    }

    /// An agent is ended; when it is started again, its disk is slow.
    fn voter_missing(&mut self) -> usize {
        let others = [HOLDER, WAITER, FAR, STOPPED];
        let fault = self.begin("DistlockVoterMissing", &others, "an agent is ended");
        self.lab.host(ENDED).end_agent();
        self.await_alert(fault, secs(90));
        let slow = self.begin("DistlockStateWriteSlow", &[ENDED], "its disk is slow");
        self.shims().slow_down(ENDED, SLOW);
        self.lab.host(ENDED).start();
        self.await_well();
        self.end(fault, LINGERS);
        slow
    }

    /// An agent stands still for longer than the lease, while a command is inside.
    fn locks_lost(&mut self) {
        let _holder = self.hold(STOPPED, "lost");
        let fault = self.begin(
            "DistlockLocksLost",
            &[STOPPED],
            "a holder's agent is stopped",
        );
        let stopped = self.lab.host(STOPPED).stop(Target::Agent, None, false);
        thread::sleep(secs(4));
        self.lab.host(STOPPED).go_on(&stopped);
        self.await_alert(fault, secs(20));
        self.await_well();
    }

    /// What is sent to one host is late or lost, for longer than five minutes.
    fn lease_margin_low(&mut self) -> usize {
        self.lab.switch.set(|_, to| match to {
            FAR => FAR_LINK,
            _ => Link::default(),
        });
        self.begin(
            "DistlockLeaseMarginLow",
            &[FAR],
            "what is sent to one is late",
        )
    }

    /// Its audit log's disk is filled.
    fn audit_gap(&mut self) {
        let fault = self.begin("DistlockAuditGap", &[HOLDER], "a disk is filled");
        let full = "distlock_audit_dropped_total{instance=\"1\"} > 0";
        let filled = (0..ENTRIES).any(|entry| {
            let entered = self.lab.hosts[0].ask("run", &["busy", "--", "true"]);
            assert!(entered.status.success(), "{entered:?}");
            entry % 20 == 0 && self.watch.await_answer(full, Duration::from_millis(50))
        });
        assert!(filled, "there is room for {ENTRIES} entries");
        self.await_alert(fault, secs(20));
    }

    /// A stranger sends to one host.
    fn flooded(&mut self) {
        let fault = self.begin("DistlockFlooded", &[STOPPED], "a stranger sends");
        let stranger = Passing {
            from: STRANGER,
            to: STOPPED,
            payload: vec![7; 80],
        };
        let packet = packet(&stranger);
        // Ten times a second.
        self.await_alert_with(fault, secs(180), || {
            let packets = iter::repeat_n((STOPPED, packet.clone()), 150);
            self.lab.switch.inject(packets);
        });
        // What was sent counts for a minute.
        self.end(fault, secs(60) + LINGERS);
    }

    /// The clock of one host gains more on the others' than leases allow for: all see it, and it sees all.
    fn clock_rate(&mut self) -> usize {
        let all = self.lab.numbers();
        let fault = self.begin("DistlockClockRate", &all, "a clock is too fast");
        self.shims().speed_up(STOPPED, GAIN);
        fault
    }

    /// The table; and it fails if an alert did not fire for its fault, or fired for another.
    fn tell(&self) {
        let (asked, unanswered) = self.watch.asked();
        let (rows, mut wrong) = judge(&self.faults, &self.watch.seen());
        wrong.extend(self.wrong.iter().cloned());
        println!("alert                   | where  | fault | seconds from the fault to the alert");
        rows.iter().for_each(|row| println!("{row}"));
        wrong.iter().for_each(|why| println!("{why}"));
        println!("Prometheus was asked {asked} times, and did not answer {unanswered} times");
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(unanswered * 20 < asked, "Prometheus did not answer");
        let played: BTreeSet<_> = self.faults.iter().map(|fault| fault.alert).collect();
        let text = fs::read_to_string(rules()).expect("the rules");
        let there = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "));
        assert_eq!(played, there.collect(), "each alert has its fault");
    }
}
