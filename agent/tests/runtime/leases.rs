//! Leases between real processes, some of which stand still: what `doc/faults.md` asks of holders and
//! time.

use distlock_agent::protocol::{Absence, Missing};
use distlock_agent::runtime::status::MemberState;
use distlock_agent::runtime::{AcquireError, Caller, Client, GuardState, Patience, clock};
use nix::sys::signal::Signal;

use crate::support::{Group, Kind, LEASE, enter, enter_through, eventually, lock, node, try_enter};

fn group() -> Group {
    Group::new(Kind::Udp, 3).with_quorum()
}

/// 1: what is first to run after the pause is the holder's own thread, which then has no lock, is
/// told so, and frees nobody else.
#[test]
fn a_holder_that_stood_still_past_its_lease_has_lost() {
    let group = group();
    let others = [group.start(2).unwrap(), group.start(3).unwrap()];
    let mut holder = group.spawn("stand-still", 1, 1);
    let first: u64 = holder.expect("holds").parse().unwrap();
    holder.signal(Signal::SIGSTOP);
    let next = enter(&others[0], &lock("held"));
    assert!(next.fence().expect("the group gives fences").as_u64() > first);
    holder.go_on();
    holder.signal(Signal::SIGCONT);
    assert_eq!(
        holder.expect("held"),
        "false, given back Err(Lost)",
        "another had been let in"
    );
    assert_eq!(
        try_enter(&others[1], "held").unwrap_err(),
        AcquireError::Busy
    );
    assert!(next.is_held());
    next.release().unwrap();
    holder.finish();
}

/// 28: who is cut off from the majority stops on its own clock, says what is missing, and recovers
/// without help.
#[test]
fn a_minority_holds_nothing_until_it_is_heard() {
    let group = group();
    let agent = group.start(1).unwrap();
    let mut others = [group.spawn("idle", 2, 1), group.spawn("idle", 3, 1)];
    for other in &mut others {
        other.expect("started");
    }
    let grant = enter(&agent, &lock("held"));
    let grace = grant.grace().unwrap();
    assert!(grace <= LEASE, "{grace:?}");
    let limit = clock::now() + LEASE;
    for other in &others {
        other.signal(Signal::SIGSTOP);
    }
    eventually("the end of the lease", || {
        grant.state() == GuardState::Suspended
    });
    assert!(clock::now() < limit + LEASE / 2, "it ends by itself");
    let refused = agent.acquire(&lock("another"), None, Patience::Lease, Caller::current());
    let silent = |id| Missing {
        member: node(id),
        why: Absence::Silent,
    };
    let missing = vec![silent(2), silent(3)];
    assert_eq!(refused.unwrap_err(), AcquireError::NoQuorum { missing });
    for other in &others {
        other.signal(Signal::SIGCONT);
    }
    eventually("a lease, or another incarnation", || {
        grant.state() != GuardState::Suspended
    });
    drop(grant);
    enter(&agent, &lock("held")).release().unwrap();
    for other in others {
        other.finish();
    }
}

/// Who is not needed is not to blame: the lock is held, and the majority is there.
#[test]
fn who_waits_in_vain_is_told_of_no_member_that_is_not_needed() {
    let group = group();
    let agents = [group.start(1).unwrap(), group.start(2).unwrap()];
    let mut third = group.spawn("idle", 3, 1);
    third.expect("started");
    let grant = enter(&agents[0], &lock("held"));
    third.signal(Signal::SIGSTOP);
    eventually("the others go on without it", || {
        let status = agents[1].status().unwrap();
        status.members[2].state == MemberState::Suspect
    });
    let patience = Patience::For(LEASE / 10);
    let late = agents[1].acquire(&lock("held"), None, patience, Caller::current());
    assert_eq!(late.unwrap_err(), AcquireError::TimedOut);
    grant.release().unwrap();
    third.signal(Signal::SIGCONT);
    third.finish();
}

/// A client's guard is void on the client's own clock, whatever its agent does.
#[test]
fn a_client_whose_agent_stands_still_holds_nothing() {
    let group = group();
    let mut serving = group.spawn("serve", 1, 1);
    let others = [group.start(2).unwrap(), group.start(3).unwrap()];
    serving.expect("serves");
    let client = Client::connect(&group.socket(1)).unwrap();
    let grant = enter_through(&client, "held");
    assert_eq!(grant.state(), GuardState::Valid);
    serving.signal(Signal::SIGSTOP);
    let next = enter(&others[0], &lock("held"));
    assert_eq!(
        grant.state(),
        GuardState::Suspended,
        "it must be over before another is inside"
    );
    assert_eq!(grant.grace(), Some(std::time::Duration::ZERO));
    serving.signal(Signal::SIGCONT);
    eventually("the loss", || grant.state() == GuardState::Lost);
    next.release().unwrap();
    // The agent is another incarnation's, and serves on.
    enter_through(&client, "held").release().unwrap();
    serving.finish();
}
