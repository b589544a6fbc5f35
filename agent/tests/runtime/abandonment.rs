//! Who enters is told of who died inside, in real processes: a client, a member, and neither.

use distlock_agent::protocol::{Algorithm, Previous, Release};
use distlock_agent::runtime::{Agent, Client};

use crate::support::{Group, Kind, Process, enter, enter_through, eventually, lock};

/// Enters and leaves in order; what it was told.
fn visit(agent: &Agent) -> Previous {
    let grant = enter(agent, &lock("held"));
    let told = grant.previous();
    grant.release().unwrap();
    told
}

#[test]
fn a_client_that_is_killed_inside_is_told_of_wherever_the_next_one_is() {
    for algorithm in Algorithm::ALL {
        let group = Group::by(algorithm, Kind::Unix, 2);
        let agents = [group.serve(1), group.serve(2)];
        for (at, next) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
            let mut client = group.spawn("client", at, 1);
            client.expect("holds");
            client.kill();
            let told = visit(&agents[next]);
            assert_eq!(told, Previous::Abandoned, "{algorithm}, {at} to {next}");
            assert_eq!(visit(&agents[1 - next]), Previous::Clean, "{algorithm}");
        }
    }
}

#[test]
fn a_client_that_ends_without_a_word_is_told_of_and_one_that_releases_is_not() {
    let group = Group::new(Kind::Unix, 2);
    let agents = [group.serve(1), group.serve(2)];
    let client = Client::connect(&group.socket(1)).unwrap();
    let hold = |client: &Client| enter_through(client, "held");
    hold(&client).release().unwrap();
    assert_eq!(visit(&agents[1]), Previous::Clean);
    drop(hold(&client));
    assert_eq!(visit(&agents[1]), Previous::Clean);
    hold(&client).release_as(Release::Abandoned).unwrap();
    assert_eq!(visit(&agents[1]), Previous::Abandoned);
    // Its end comes while a thread is inside.
    let grant = hold(&client);
    client.close();
    assert!(!grant.is_held());
    assert_eq!(visit(&agents[1]), Previous::Abandoned);
    assert_eq!(visit(&agents[0]), Previous::Clean);
}

#[test]
fn a_client_that_is_killed_while_it_waits_is_no_reason_for_alarm() {
    let group = Group::new(Kind::Unix, 2);
    let agents = [group.serve(1), group.serve(2)];
    let inside = enter(&agents[0], &lock("held"));
    let waiting = group.spawn("client", 2, 1);
    let pid = waiting.pid();
    let waits = || {
        let locks = agents[1].status().unwrap().locks;
        let mut waiters = locks.iter().flat_map(|lock| &lock.waiters);
        waiters.any(|waiter| waiter.pid == pid)
    };
    eventually("the client waits", waits);
    waiting.kill();
    eventually("its end is noticed", || !waits());
    inside.release().unwrap();
    assert_eq!(visit(&agents[1]), Previous::Clean);
}

#[test]
fn a_thread_that_panics_inside_is_told_of() {
    let group = Group::new(Kind::Unix, 2);
    let agents = group.start_all();
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _grant = enter(&agents[0], &lock("held"));
            panic!("in the middle of something, as this test wants it");
        });
        assert!(panics.join().is_err());
    });
    assert_eq!(visit(&agents[1]), Previous::Abandoned);
    assert_eq!(visit(&agents[0]), Previous::Clean);
}

/// The member's process dies: inside, and then again with nobody inside while another one is. With
/// every algorithm at the same time, as most of it is waiting for leases.
#[test]
fn a_member_that_is_killed_is_told_of_only_if_it_was_inside() {
    std::thread::scope(|scope| {
        for algorithm in Algorithm::ALL {
            scope.spawn(move || kill_inside_and_outside(algorithm));
        }
    });
}

fn kill_inside_and_outside(algorithm: Algorithm) {
    let group = Group::by(algorithm, Kind::Unix, 2);
    let other = group.start(1).unwrap();
    let mut victim = group.spawn("hold", 2, 1);
    victim.expect("holds");
    victim.kill();
    let idle = start(group.spawn("idle", 2, 1));
    assert_eq!(visit(&other), Previous::Abandoned, "{algorithm}");
    let inside = enter(&other, &lock("held"));
    assert_eq!(inside.previous(), Previous::Clean, "{algorithm}");
    idle.kill();
    // Its next incarnation enters something, in a view that knows of the end of the last.
    let again = start(group.spawn("idle", 2, 1));
    inside.release().unwrap();
    assert_eq!(visit(&other), Previous::Clean, "{algorithm}");
    again.finish();
}

fn start(mut process: Process) -> Process {
    process.expect("started");
    process
}

/// It is abandoned while everybody is there, and everybody leaves before somebody enters.
#[test]
fn what_a_killed_client_left_is_known_after_a_restart_of_the_whole_group() {
    let group = Group::new(Kind::Unix, 2);
    let agents = [group.serve(1), group.serve(2)];
    let mut client = group.spawn("client", 2, 1);
    client.expect("holds");
    client.kill();
    eventually("the agent takes the lock back", || {
        agents[1].status().unwrap().locks.is_empty()
    });
    for agent in agents {
        agent.close();
    }
    let agents = group.start_all();
    assert_eq!(visit(&agents[0]), Previous::Abandoned);
    assert_eq!(visit(&agents[1]), Previous::Clean);
}
