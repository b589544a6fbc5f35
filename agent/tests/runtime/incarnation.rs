//! Start and end: what is refused, with which words, and what is left behind (nothing).

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

use distlock_agent::runtime::{
    AcquireError, Address, Agent, BindError, Caller, Patience, ReleaseError, StartError,
    StateError, StatusError,
};

use crate::support::{Group, Kind, enter, forked, lock, node};

fn refusal(group: &Group, id: u16) -> StartError {
    group.start(id).map(drop).unwrap_err()
}

#[test]
fn a_port_in_use_is_named_with_its_process() {
    let group = Group::new(Kind::Udp, 2);
    let Address::Udp(address) = &group.members[&node(1)] else {
        unreachable!()
    };
    let _taken = UdpSocket::bind(address).unwrap();
    let error = refusal(&group, 1);
    assert!(
        matches!(error, StartError::Bind(BindError::InUse { .. })),
        "{error}"
    );
    let pid = std::process::id();
    let words = format!("{address} is in use by process {pid}: end that process, or choose");
    assert!(error.to_string().contains(&words), "{error}");
}

#[test]
fn an_address_of_another_host_is_not_taken() {
    let mut group = Group::new(Kind::Udp, 1);
    // RFC 5737: an address of no host.
    group
        .members
        .insert(node(1), "udp:192.0.2.1:7400".parse().unwrap());
    let error = refusal(&group, 1);
    assert!(
        matches!(error, StartError::Bind(BindError::NotHere { .. })),
        "{error}"
    );
}

#[test]
fn one_process_a_member() {
    let group = Group::new(Kind::Unix, 1);
    let _first = group.start(1).unwrap();
    let error = refusal(&group, 1);
    assert!(
        matches!(error, StartError::State(StateError::InUse { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("already runs"), "{error}");
    // With another state directory the address is still taken.
    let elsewhere = group.directory.join("elsewhere");
    let options = distlock_agent::runtime::Options {
        state_dir: elsewhere,
        ..group.options(1)
    };
    let error = Agent::start(options).map(drop).unwrap_err();
    assert!(
        matches!(error, StartError::Bind(BindError::InUse { .. })),
        "{error}"
    );
}

#[test]
fn a_damaged_state_is_no_fresh_start() {
    let group = Group::new(Kind::Unix, 1);
    drop(group.start(1).unwrap());
    let file = group.directory.join("state-1/state");
    let mut bytes = fs::read(&file).unwrap();
    bytes[20] ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = refusal(&group, 1);
    assert!(
        matches!(error, StartError::State(StateError::Damaged { .. })),
        "{error}"
    );
}

#[test]
fn directories_without_permission_are_named_with_advice() {
    let group = Group::new(Kind::Unix, 1);
    fs::set_permissions(&group.directory, fs::Permissions::from_mode(0o755)).unwrap();
    let mut process = group.spawn("unprivileged", 1, 1);
    let error = process.expect("refused");
    assert!(error.contains("state-1: "), "{error}");
    assert!(
        error.contains("run as the user who owns it, or choose another place"),
        "{error}"
    );
    process.finish();
}

#[test]
fn too_few_descriptors_are_an_error_that_leaves_nothing() {
    let group = Group::new(Kind::Unix, 1);
    let mut process = group.spawn("few-descriptors", 1, 1);
    let refused: usize = process.expect("refused").parse().unwrap();
    assert!(
        refused >= 5,
        "only {refused} limits were too low: what is tested?"
    );
    process.finish();
}

#[test]
fn nothing_is_left_after_the_end() {
    for kind in [Kind::Udp, Kind::Unix] {
        let group = Group::new(kind, 1);
        let mut process = group.spawn("come-and-go", 1, 20);
        assert_eq!(process.expect("left"), "nothing");
        process.finish();
        let names: Vec<_> = fs::read_dir(&group.directory)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["state-1"]);
    }
}

#[test]
fn a_forked_child_can_do_nothing_and_the_parent_notices_nothing() {
    let group = Group::new(Kind::Unix, 2);
    let agents = group.start_all();
    let name = lock("printer");
    let grant = enter(&agents[0], &name);
    if let Some(child) = forked() {
        let wrong = misbehaviour_in_child(agents, grant, &name);
        child.exit(wrong);
    }
    assert!(grant.is_held());
    let elsewhere = agents[1].acquire(&name, None, Patience::Try, Caller::current());
    assert_eq!(elsewhere.unwrap_err(), AcquireError::Busy);
    grant.release().unwrap();
    drop(enter(&agents[1], &name));
}

/// 0 if all is refused as it should be.
fn misbehaviour_in_child(
    agents: Vec<Agent>,
    grant: distlock_agent::runtime::Grant,
    name: &distlock_agent::protocol::LockName,
) -> i32 {
    let asked = agents[0].acquire(name, None, Patience::Forever, Caller::default());
    if !matches!(asked, Err(AcquireError::Forked)) {
        return 1;
    }
    if grant.is_held() || agents[0].status() != Err(StatusError::Forked) {
        return 2;
    }
    if grant.release() != Err(ReleaseError::Forked) {
        return 3;
    }
    agents[0].close();
    drop(agents);
    0
}

/// Whatever others send to a member's address, it is dropped and counted, and locks are taken on.
#[test]
fn garbage_at_the_port_hinders_nobody() {
    let group = Group::new(Kind::Udp, 2);
    let agents = group.start_all();
    let name = lock("printer");
    drop(enter(&agents[0], &name));
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut bytes = vec![0x5a; 60_000];
    for round in 0..300usize {
        for address in group.members.values() {
            let Address::Udp(address) = address else {
                unreachable!()
            };
            bytes[round] = round as u8;
            for len in [0, 1, 31, 1_400, bytes.len()] {
                // A full queue at the receiver is the point of it.
                let _ = stranger.send_to(&bytes[..len], address);
            }
        }
        enter(&agents[round % 2], &name).release().unwrap();
    }
    for agent in &agents {
        let dropped = agent.status().unwrap().protection.unwrap().dropped;
        assert!(dropped["by-kernel"] > 100, "{dropped:?}");
    }
}
