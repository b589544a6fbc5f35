//! Members that come back: after a clean end, and after none.

use std::time::Duration;

use distlock_agent::protocol::Previous;
use distlock_agent::runtime::{Agent, clock};

use crate::support::{Group, Kind, LEASE, enter, lock};

/// How long a member that did not leave waits before the first grant: a lease, by the slowest and
/// the fastest clock that count.
const QUARANTINE: Duration = Duration::from_nanos(LEASE.as_nanos() as u64 / 9 * 11);

fn fence(agent: &Agent) -> u64 {
    let grant = enter(agent, &lock("held"));
    let fence = grant.fence().expect("the group gives fences").as_u64();
    grant.release().unwrap();
    fence
}

#[test]
fn a_member_that_left_is_back_at_once() {
    let group = Group::new(Kind::Udp, 3);
    let mut agents = group.start_all();
    let mut last = fence(&agents[0]);
    for id in [1u16, 2, 3] {
        let started = clock::now();
        let at = usize::from(id) - 1;
        agents[at].close();
        agents[at] = group.start(id).unwrap();
        for agent in &agents {
            let next = fence(agent);
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        let took = clock::now().since(started);
        assert!(took < QUARANTINE, "it took {took:?}, as if it had not left");
    }
}

#[test]
fn a_killed_holder_is_waited_out_and_the_next_one_knows() {
    let group = Group::new(Kind::Udp, 2);
    let other = group.start(1).unwrap();
    let mut holder = group.spawn("hold", 2, 1);
    let first: u64 = holder.expect("holds").parse().unwrap();
    holder.kill();

    let restarted = clock::now();
    let mut again = group.spawn("hold", 2, 1);
    let grant = enter(&other, &lock("held"));
    let waited = clock::now().since(restarted);
    assert!(
        waited >= QUARANTINE,
        "clients of the killed one may be inside: {waited:?}"
    );
    assert_eq!(grant.previous(), Previous::Abandoned);
    assert!(grant.fence().expect("the group gives fences").as_u64() > first);
    let second = grant.fence().expect("the group gives fences").as_u64();
    grant.release().unwrap();
    let third: u64 = again.expect("holds").parse().unwrap();
    assert!(third > second);
    again.finish();
}

#[test]
fn fences_rise_when_all_are_killed() {
    let group = Group::new(Kind::Unix, 3);
    let mut last = 0;
    for _ in 0..2 {
        let mut members: Vec<_> = (1..=3).map(|id| group.spawn("enter", id, 1)).collect();
        for member in &mut members {
            let fence: u64 = member.expect("entered").parse().unwrap();
            last = last.max(fence);
        }
        let seen = last;
        members.into_iter().for_each(crate::support::Process::kill);
        let agents = group.start_all();
        for agent in &agents {
            let next = fence(agent);
            assert!(
                next > last,
                "{next} after {last}, of which {seen} before all were killed"
            );
            last = next;
        }
    }
}

/// No shortcut: programs that used the killed one's service may still be inside.
#[test]
fn a_group_of_one_waits_too() {
    let group = Group::new(Kind::Unix, 1);
    let mut holder = group.spawn("hold", 1, 1);
    let first: u64 = holder.expect("holds").parse().unwrap();
    holder.kill();
    let restarted = clock::now();
    let agent = group.start(1).unwrap();
    assert!(fence(&agent) > first);
    assert!(clock::now().since(restarted) >= QUARANTINE);
}
