//! One thing happens, and what must come of it.

use std::thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::critical::{COMMAND, PROGRAM};
use crate::laboratory::{ALL, CUT_OFF, LEASE, Laboratory, Order, PATIENCE, variable};
use crate::locks::{DEFAULT, Lock};
use crate::plan::Target;
use crate::switch::Link;

/// What `distlock` exits with without a quorum.
const NO_QUORUM: i32 = 69;
const HOUR: i64 = 3_600;

fn three_hosts(seed: u64) -> Option<Laboratory> {
    Laboratory::new(Order {
        hosts: 3,
        locks: Lock::only(DEFAULT),
        seed,
        has_shims: false,
        has_multicast: false,
        has_key: true,
        is_watched: false,
        store: None,
    })
}

impl Laboratory {
    fn cut(&self, is_cut: impl Fn(u16, u16) -> bool) {
        self.switch.set(|from, to| Link {
            is_cut: is_cut(from, to),
            ..Link::default()
        });
    }

    #[track_caller]
    fn must_enter(&self, hosts: &[u16]) {
        let entered = self.await_programs(hosts.iter().copied());
        entered.unwrap_or_else(|missing| panic!("nobody enters in {PATIENCE:?} by {missing:?}"));
    }

    /// That `host` has no quorum it says, and whom it misses.
    #[track_caller]
    fn must_refuse(&self, host: u16, missing: &str) {
        let host = &self.hosts[usize::from(host) - 1];
        let output = host.ask("run", &[&self.place.locks[0].name, "--", "true"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(NO_QUORUM), "{said}");
        let is_told = said.contains("no quorum") && said.contains(missing);
        assert!(is_told && said.lines().count() == 1, "{said}");
    }

    /// Until every host reaches so many others by multicast.
    fn await_reached(&mut self, others: usize) {
        let until = now_ns() + u64::try_from(PATIENCE.as_nanos()).expect("short");
        while self.hosts.iter().any(|host| host.multicast().0 != others) {
            assert!(now_ns() < until, "not all reach {others} others");
            self.await_everybody("they find out who is reached", ALL);
        }
    }

    /// Until multicast has replaced more datagrams than so many.
    fn await_merged(&mut self, count: u64) {
        let until = now_ns() + u64::try_from(PATIENCE.as_nanos()).expect("short");
        while self.merged() <= count {
            assert!(now_ns() < until, "nothing goes by multicast");
            self.await_everybody("there is multicast", ALL);
        }
    }

    /// How many datagrams multicast has replaced.
    fn merged(&self) -> u64 {
        self.hosts.iter().map(|host| host.multicast().1).sum()
    }

    fn fail_totally(&mut self) {
        for host in &mut self.hosts {
            host.kill_all();
        }
    }
}

/// FAULTS 28, 29, 34: it says which members it misses, and recovers without help. Its audit log tells all of it.
#[test]
fn a_minority_never_enters_and_says_why() {
    let Some(mut lab) = three_hosts(2) else {
        return;
    };
    lab.cut(|from, to| from == 1 || to == 1);
    let cut = now_ns();
    lab.must_enter(&[2, 3]);
    lab.must_refuse(1, "members 2, 3 are silent");
    thread::sleep(CUT_OFF);
    lab.tell_apart([1], cut);
    lab.heal();
    lab.await_everybody("the minority is back", ALL);

    // Now nobody has a majority.
    lab.cut(|_, _| true);
    let cut = now_ns();
    thread::sleep(LEASE);
    lab.must_refuse(2, "members 1, 3 are silent");
    lab.must_refuse(3, "members 1, 2 are silent");
    lab.tell_apart(lab.numbers(), cut);
    lab.heal();
    lab.await_everybody("all are back", ALL);
    lab.judge();
}

/// FAULTS 1 and 6: who wakes up has lost its lock, and what it writes is refused.
#[test]
fn a_host_that_sleeps_past_its_lease_has_lost_its_lock() {
    let Some(mut lab) = three_hosts(1) else {
        return;
    };
    // A process may wake up where it asks its guard before it writes: four of five do.
    for _ in 0..40 {
        let holder = lab.resource.hold();
        let sleeper = holder.host;
        let command = (holder.way == COMMAND).then_some(&holder);
        let stopped = lab.host(sleeper).stop(Target::Host, command, false);
        lab.resource.invite(false);
        let others: Vec<u16> = lab
            .numbers()
            .into_iter()
            .filter(|&it| it != sleeper)
            .collect();
        lab.must_enter(&others);
        lab.host(sleeper).go_on(&stopped);
        lab.start();
        lab.await_everybody("the sleeper is back", ALL);
        if holder.way == PROGRAM && lab.resource.refused() > 0 {
            break;
        }
    }
    assert!(lab.resource.refused() > 0, "an old fence was never refused");
    // No guard was held by two, and no old fence was accepted.
    lab.judge();
}

/// FAULTS 22, and 23 where one of three forgets: fences rise, says the judge, and are in the audit logs.
#[test]
fn fences_rise_over_total_restarts() {
    let Some(mut lab) = three_hosts(2) else {
        return;
    };
    let restarts = variable("DISTLOCK_LAB_RESTARTS").unwrap_or(2_u32);
    for _ in 0..restarts {
        lab.fail_totally();
        lab.start();
        lab.await_everybody("all were restarted", ALL);
    }
    for forgets in [1, 3] {
        lab.fail_totally();
        lab.host(forgets).lose_state();
        lab.start();
        lab.await_everybody("all were restarted, and one has forgotten", ALL);
        // Until it votes again no other may forget.
        lab.await_settled();
    }
    let history = lab.judge();
    println!(
        "{restarts} restarts, and two with a state lost; {:?}",
        history.entries()
    );
}

/// Others pass on what the two say to each other: nobody is excluded, all go on.
#[test]
fn a_broken_link_costs_nobody_its_membership() {
    let Some(mut lab) = three_hosts(1) else {
        return;
    };
    let epoch = lab.hosts[0].epoch();
    type IsCut = fn(u16, u16) -> bool;
    let links: [IsCut; 4] = [
        |from, to| from + to == 3,
        |from, to| from + to == 4,
        |from, to| from + to == 5,
        |from, to| (from, to) == (2, 1),
    ];
    for is_cut in links {
        lab.cut(is_cut);
        // Long enough to miss somebody, and to form the view without it.
        let end = now_ns() + u64::try_from(LEASE.as_nanos()).expect("short");
        while now_ns() < end {
            lab.await_everybody("one link is broken", ALL);
        }
    }
    assert!(lab.switch.counts().cut > 0);
    let epochs: Vec<u64> = lab.hosts.iter().map(|host| host.epoch()).collect();
    assert_eq!(epochs, [epoch; 3]);
    lab.judge();
}

/// A network that stops to carry multicast, of which nobody is told, costs nobody a lock or its
/// membership; what it carries again is used again.
#[test]
fn multicast_that_is_dropped_is_done_without() {
    let order = Order {
        hosts: 5,
        // The default algorithm says nothing to all members.
        locks: Lock::only("ricart-agrawala"),
        seed: 1,
        has_shims: false,
        has_multicast: true,
        has_key: true,
        is_watched: false,
        store: None,
    };
    let Some(mut lab) = Laboratory::new(order) else {
        return;
    };
    lab.await_reached(4);
    lab.await_merged(0);
    let epoch = lab.hosts[0].epoch();

    lab.switch.carry_multicast(false);
    lab.await_everybody("multicast has just gone", ALL);
    lab.await_reached(0);
    let before = lab.merged();
    lab.await_everybody("there is no multicast", ALL);
    assert_eq!(lab.merged(), before);
    assert!(lab.hosts.iter().all(|host| host.multicast().2 > 0));

    lab.switch.carry_multicast(true);
    lab.await_reached(4);
    lab.await_merged(before);
    let epochs: Vec<u64> = lab.hosts.iter().map(|host| host.epoch()).collect();
    assert_eq!(epochs, [epoch; 5]);
    lab.judge();
}

/// FAULTS 10: no view comes of it, no lock is lost, and a restart forgets nothing.
#[test]
fn wall_clocks_may_show_anything() {
    let order = Order {
        hosts: 3,
        locks: Lock::only(DEFAULT),
        seed: 1,
        has_shims: true,
        has_multicast: false,
        has_key: true,
        is_watched: false,
        store: None,
    };
    let Some(mut lab) = Laboratory::new(order) else {
        return;
    };
    let epoch = lab.hosts[0].epoch();
    let holder = lab.resource.hold();
    let set = |lab: &Laboratory, ahead: [i64; 3]| {
        let shims = lab.place.shims.as_ref().expect("it was ordered");
        for (host, ahead) in (1..).zip(ahead) {
            shims.set_wall(host, ahead);
        }
    };
    set(&lab, [HOUR, -HOUR, 0]);
    // A lease's time with somebody inside, who would lose it.
    let end = now_ns() + u64::try_from(CUT_OFF.as_nanos()).expect("short");
    let mut ahead = HOUR;
    while now_ns() < end {
        ahead = -ahead;
        set(&lab, [ahead, -ahead, ahead]);
        thread::sleep(Duration::from_millis(20));
    }
    let still = lab.resource.hold();
    assert_eq!((still.who, still.since), (holder.who, holder.since));
    lab.resource.invite(false);
    lab.await_everybody("the clocks jumped", ALL);
    let epochs: Vec<u64> = lab.hosts.iter().map(|host| host.epoch()).collect();
    assert_eq!(epochs, [epoch; 3]);

    for ahead in [[-HOUR, HOUR, 0], [-24 * HOUR; 3]] {
        lab.fail_totally();
        set(&lab, ahead);
        lab.start();
        lab.await_everybody("all were restarted at another time", ALL);
    }
    let shims = lab.place.shims.as_ref().expect("it was ordered");
    for host in lab.numbers() {
        assert!(shims.asked(host) > 0, "nobody on host {host} saw its clock");
    }
    // Fences rose, says the judge.
    lab.judge();
}
