//! Agents that take turns at a lock by what a real PostgreSQL says.

use std::thread;
use std::time::Duration;

use distlock_stores::{Kind, StoreOptions};

use crate::agents::{Agent, take_turns};
use crate::server::{Server, options};

fn agent(options: StoreOptions) -> Agent {
    Agent::new(Kind::Postgresql, options)
}

#[test]
fn agents_take_turns_at_a_lock_and_are_woken_by_hints() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let agents = (0..4).map(|_| agent(options(server.tcp()))).collect();
    let took = take_turns(agents, 25);
    eprintln!("100 turns of four agents took {took:?}");
    // Each hand-over would take up to two seconds, a third of the lease, if it were found by reading.
    assert!(took < Duration::from_secs(30), "{took:?}");
    // Sessions are removed, and the lock's record stays.
    assert_eq!(
        server.sql("SELECT key, value::json -> 'inside', value::json -> 'queue' FROM distlock"),
        "distlock/test/lock/printer|[]|[]"
    );
}

#[test]
fn agents_take_turns_without_hints_too() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let without_hints = |_| {
        let mut options = options(server.tcp());
        options.has_hints = false;
        options.lease = Duration::from_secs(1);
        agent(options)
    };
    take_turns((0..3).map(without_hints).collect(), 3);
}

#[test]
fn agents_take_turns_though_the_server_ends_their_connections() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let agents = (0..3).map(|_| agent(options(server.tcp()))).collect();
    thread::scope(|scope| {
        let turns = scope.spawn(|| take_turns(agents, 100));
        let mut rounds = 0;
        while !turns.is_finished() {
            thread::sleep(Duration::from_millis(150));
            rounds += 1;
            if rounds == 4 {
                server.stop_immediately();
                server.run();
            } else {
                server.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE application_name = 'distlock' AND random() < 0.5",
                );
            }
        }
        eprintln!("300 turns took {:?}", turns.join().unwrap());
    });
}
