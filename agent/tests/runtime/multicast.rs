//! Groups that send by multicast what goes to all: what that saves, and that nothing depends on it.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use distlock_agent::protocol::{Algorithm, LockName};
use distlock_agent::runtime::{Address, Agent, Faults, TransportCounters};
use nix::sched::{CloneFlags, unshare};

use crate::support::{Group, Kind, enter, eventually, lock, multicast_address, node, skipped};

/// By an algorithm that says the same to all members; the default says nothing to all.
fn gaining(size: u16) -> Group {
    Group::by(Algorithm::RicartAgrawala, Kind::Udp, size)
}

fn reached(agent: &Agent) -> usize {
    let multicast = agent.status().unwrap().multicast;
    multicast.map_or(0, |multicast| multicast.reached.len())
}

fn await_reached(agents: &[Agent], others: usize) {
    for agent in agents {
        eventually("multicast", || reached(agent) == others);
    }
}

/// What all `agents` have counted of one thing.
fn sum(agents: &[Agent], of: impl Fn(&TransportCounters) -> u64) -> u64 {
    agents
        .iter()
        .map(|agent| of(&agent.counters().transport))
        .sum()
}

/// Each member enters in its turn.
fn take_turns(agents: &[Agent], name: &LockName) {
    for agent in agents {
        enter(agent, name).release().unwrap();
    }
}

/// Three threads of each agent add one, again and again, to what nothing but the lock protects.
fn contend(agents: &[Agent], rounds: usize) {
    const THREADS: usize = 3;
    let name = lock("counter");
    let counter = AtomicUsize::new(0);
    thread::scope(|scope| {
        for agent in agents {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let grant = enter(agent, &name);
                        let seen = counter.load(Ordering::SeqCst);
                        thread::yield_now();
                        counter.store(seen + 1, Ordering::SeqCst);
                        grant.release().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(counter.into_inner(), agents.len() * THREADS * rounds);
}

#[test]
fn a_request_goes_out_once() {
    let group = gaining(5).with_multicast();
    let agents = group.start_all();
    await_reached(&agents, 4);
    let name = lock("printer");
    // On a busy host something may be repeated, and then goes directly for a second.
    eventually("a round without a repetition", || {
        let before = sum(&agents, |it| it.multicast_merged);
        take_turns(&agents, &name);
        sum(&agents, |it| it.multicast_merged) - before == 5 * 4
    });
    let dropped = sum(&agents, |it| it.dropped_multicast + it.dropped_foreign);
    assert_eq!(dropped, 0);
    contend(&agents, 20);
}

/// Lamport's algorithm has two messages for all, and its releases go out together, too.
#[test]
fn every_algorithm_that_tells_all_gains() {
    for algorithm in [
        Algorithm::Lamport,
        Algorithm::Bakery,
        Algorithm::SuzukiKasami,
    ] {
        let group = Group::by(algorithm, Kind::Udp, 3)
            .with_quorum()
            .with_multicast();
        let agents = group.start_all();
        await_reached(&agents, 2);
        contend(&agents, 20);
        assert!(sum(&agents, |it| it.multicast_merged) > 0, "{algorithm}");
    }
}

/// A member whose file has no multicast address, and one whose network carries none: it listens
/// elsewhere.
#[test]
fn members_that_are_not_reached_take_part() {
    let mut group = gaining(5).with_quorum();
    let mut agents = vec![group.start(1).unwrap()];
    group.multicast = Some(multicast_address());
    agents.push(group.start(2).unwrap());
    group.multicast = Some(multicast_address());
    agents.extend((3..=5).map(|id| group.start(id).unwrap()));
    await_reached(&agents[2..], 2);
    contend(&agents, 30);
    await_reached(&agents[..2], 0);
    await_reached(&agents[2..], 2);
    assert!(sum(&agents[2..], |it| it.multicast_merged) > 0);
    assert_eq!(sum(&agents[..2], |it| it.multicast_merged), 0);
}

#[test]
fn losses_are_repaired_directly() {
    let group = gaining(3);
    let mut group = group.with_quorum().with_multicast();
    group.faults = Some(Faults {
        seed: 1,
        drop_per_mille: 100,
        duplicate_per_mille: 100,
        corrupt_per_mille: 50,
    });
    let agents = group.start_all();
    await_reached(&agents, 2);
    // How much goes by multicast depends on what else the host does.
    eventually("losses and damage", || {
        contend(&agents, 30);
        let [lost, damaged] = [
            sum(&agents, |it| it.multicast_lost),
            sum(&agents, |it| it.dropped_multicast),
        ];
        lost > 0 && damaged > 0
    });
}

/// In a network of its own: loopback carries no multicast of IPv6.
#[test]
fn over_ipv6() {
    thread::spawn(|| {
        if let Err(why) = enter_network() {
            let what = "a network of its own takes root and iproute2";
            return skipped(&format!("{what}: {why}"));
        }
        let mut group = gaining(3);
        group.members = (1..=3)
            .map(|id| {
                (
                    node(id),
                    format!("udp:[fd00::1]:{}", 7400 + id)
                        .parse::<Address>()
                        .unwrap(),
                )
            })
            .collect();
        for multicast in ["udp:[ff02::4d01]:7400", "udp:[ff05::4d01]:7400"] {
            group.multicast = Some(multicast.parse().unwrap());
            let agents = group.start_all();
            await_reached(&agents, 2);
            contend(&agents, 20);
            assert!(sum(&agents, |it| it.multicast_merged) > 0);
        }
    })
    .join()
    .unwrap();
}

fn enter_network() -> std::io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    for arguments in [
        "link set lo up",
        "link add hosts0 type veth peer name peer0",
        "link set peer0 up",
        "link set hosts0 up",
        "address add fd00::1/64 dev hosts0 nodad",
    ] {
        let output = Command::new("ip").args(arguments.split(' ')).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(std::io::Error::other(format!("ip {arguments}: {said}")));
        }
    }
    Ok(())
}
