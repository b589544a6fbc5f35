//! Agents that keep a lock in etcd.

use std::time::Duration;

use distlock_stores::{Kind, StoreOptions};

use crate::agents::{Agent, take_turns};
use crate::etcd::{Server, directory, options};

fn agents(count: u64, options: impl Fn() -> StoreOptions) -> Vec<Agent> {
    let agents = (0..count).map(|seed| {
        let mut options = options();
        options.seed = seed;
        Agent::new(Kind::Etcd, options)
    });
    agents.collect()
}

#[test]
fn agents_take_turns_at_a_lock_and_are_woken_by_hints() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let took = take_turns(agents(4, || options(&[server.address])), 25);
    eprintln!("100 turns of four agents took {took:?}");
    // Each hand-over would take up to two seconds, a third of the lease, if it were found by reading.
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn agents_take_turns_without_hints_too() {
    let directory = directory();
    let Some(server) = Server::start(&directory, &[]) else {
        return;
    };
    let options = || {
        let mut options = options(&[server.address]);
        options.has_hints = false;
        options.lease = Duration::from_secs(1);
        options
    };
    take_turns(agents(3, options), 3);
}

#[test]
fn agents_take_turns_though_the_server_dies_again_and_again() {
    let directory = directory();
    let Some(mut server) = Server::start(&directory, &[]) else {
        return;
    };
    let agents = agents(3, || options(&[server.address]));
    std::thread::scope(|scope| {
        let turns = scope.spawn(|| take_turns(agents, 50));
        while !turns.is_finished() {
            std::thread::sleep(Duration::from_millis(300));
            server.kill();
            server.begin();
            server.post("/v3/kv/range", r#"{"key":"YQ=="}"#);
        }
    });
}

#[test]
fn agents_take_turns_though_members_die_in_turn() {
    let directory = directory();
    let Some(mut servers) = Server::members(&directory, 3, &[]) else {
        return;
    };
    std::thread::scope(|scope| {
        for server in &mut servers {
            scope.spawn(|| server.begin());
        }
    });
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let agents = agents(3, || options(&addresses));
    std::thread::scope(|scope| {
        let turns = scope.spawn(|| take_turns(agents, 50));
        for server in (0..3).cycle() {
            if turns.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(500));
            servers[server].kill();
            // The others choose a leader within a second or two.
            std::thread::sleep(Duration::from_millis(2500));
            servers[server].begin();
            servers[server].post("/v3/kv/range", r#"{"key":"YQ=="}"#);
        }
    });
}
