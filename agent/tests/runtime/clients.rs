//! The service for local programs, and its clients.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use distlock_agent::protocol::{Mode, Previous};
use distlock_agent::runtime::{
    AcquireError, Agent, BindError, Caller, Client, ConnectError, Options, Patience, Purpose,
    ReleaseError, StartError, StatusError, clock,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{
    Group, Kind, Process, TIMEOUT, count, enter, enter_through, eventually, forked, increment,
    lock, read_counter, try_enter,
};

/// A stream to the agent whose welcome was read, and the version of what is said on it.
pub(crate) fn connect(group: &Group) -> (UnixStream, u8) {
    let mut stream = UnixStream::connect(group.socket(1)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut header = [0; 5];
    stream.read_exact(&mut header).unwrap();
    let [len @ .., version] = header;
    let mut rest = vec![0; u32::from_be_bytes(len) as usize - 1];
    stream.read_exact(&mut rest).unwrap();
    (stream, version)
}

/// The same, and it holds "x".
fn connect_inside(group: &Group, agent: &Agent) -> (UnixStream, u8) {
    let (mut stream, version) = connect(group);
    // To enter for itself alone, however long it takes, with no command and no lifeline.
    let acquire = [0, 0, 0, 11, version, 0, 1, 1, b'x', 0, 0, 1, 0, 0, 0];
    stream.write_all(&acquire).unwrap();
    eventually("it is inside", || {
        let locks = agent.status().unwrap().locks;
        locks.iter().any(|lock| !lock.holders.is_empty())
    });
    (stream, version)
}

fn one() -> Group {
    Group::new(Kind::Unix, 1)
}

/// A group of one, and its agent.
fn served() -> (Group, Agent) {
    let group = one();
    let agent = group.serve(1);
    (group, agent)
}

#[test]
fn threads_of_clients_take_turns_with_the_agents_own() {
    let group = Group::new(Kind::Unix, 2);
    let agents = [group.serve(1), group.serve(2)];
    let rounds = count("DISTLOCK_TEST_ENTRIES", 100);
    let counter = group.directory.join("counter");
    fs::write(&counter, "0").unwrap();
    let clients: Vec<_> = (1..=2)
        .map(|id| Client::connect(&group.socket(id)).unwrap())
        .collect();
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let grant = enter_through(client, "x");
                        increment(&counter);
                        grant.release().unwrap();
                    }
                });
            }
        }
        scope.spawn(|| {
            for _ in 0..rounds {
                let grant = enter(&agents[0], &lock("x"));
                increment(&counter);
                grant.release().unwrap();
            }
        });
    });
    assert_eq!(read_counter(&counter), 5 * rounds);
}

#[test]
fn a_killed_client_gives_back_what_it_held_and_waited_for() {
    let (group, agent) = served();
    let mut holder = group.spawn("client", 1, 1);
    holder.expect("holds");
    let waiter = group.spawn("client", 1, 1);
    let pid = waiter.pid();
    eventually("the second client waits", || {
        let locks = agent.status().unwrap().locks;
        locks
            .iter()
            .flat_map(|lock| &lock.waiters)
            .any(|waiter| waiter.pid == pid)
    });
    waiter.kill();
    holder.kill();
    enter(&agent, &lock("held")).release().unwrap();
    eventually("nothing is left", || {
        agent.status().unwrap().locks.is_empty()
    });
}

#[test]
fn a_client_ends_with_its_process_though_a_child_keeps_its_stream() {
    let (group, agent) = served();
    let mut client = group.spawn("forking-client", 1, 1);
    let child: i32 = client.expect("forked").parse().unwrap();
    assert_eq!(agent.status().unwrap().locks[0].holders.len(), 1);
    client.kill();
    enter(&agent, &lock("held")).release().unwrap();
    // The child was there all the while.
    kill(Pid::from_raw(child), Signal::SIGKILL).unwrap();
}

#[test]
fn waits_end_as_they_should() {
    let (group, agent) = served();
    let client = Client::connect(&group.socket(1)).unwrap();
    let held = enter(&agent, &lock("x"));
    let ask = |patience| client.acquire(&lock("x"), None, patience, Caller::current());
    assert_eq!(ask(Patience::Try).unwrap_err(), AcquireError::Busy);
    let soon = Patience::For(Duration::from_millis(30));
    assert!(matches!(ask(soon).unwrap_err(), AcquireError::TimedOut));
    held.release().unwrap();
    for round in 0..300 {
        // Deadlines around the moment of the grant: one outcome each, and nothing leaks.
        match ask(Patience::For(Duration::from_micros(round))) {
            Ok(grant) => grant.release().unwrap(),
            Err(error) => assert!(matches!(error, AcquireError::TimedOut), "{error}"),
        }
    }
    enter(&agent, &lock("x")).release().unwrap();
}

#[test]
fn a_broken_connection_loses_everything_and_stays_broken() {
    let (group, agent) = served();
    let client = Client::connect(&group.socket(1)).unwrap();
    let grant = enter_through(&client, "x");
    drop(agent);
    eventually("the grant is lost", || !grant.is_held());
    assert_eq!(grant.release(), Err(ReleaseError::Lost));
    let agent = group.serve(1);
    let again = client.acquire(&lock("x"), None, Patience::Try, Caller::current());
    assert!(
        matches!(again, Err(AcquireError::Closed(_))),
        "there is no silent reconnection"
    );
    drop(enter(&agent, &lock("x")));
}

#[test]
fn the_socket_is_private_and_one_agents_alone() {
    let group = Group::new(Kind::Unix, 2);
    let _agent = group.serve(1);
    let mode = fs::metadata(group.socket(1)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let options = Options {
        socket: Some(group.socket(1).into()),
        ..group.options(2)
    };
    let error = Agent::start(options).map(drop).unwrap_err();
    assert!(
        matches!(error, StartError::Bind(BindError::SocketInUse { .. })),
        "{error}"
    );
    let nobody = Client::connect(&group.socket(2)).map(drop).unwrap_err();
    assert!(matches!(nobody, ConnectError::NotServed { .. }), "{nobody}");
}

#[test]
fn who_talks_nonsense_is_cut_off_and_nobody_else() {
    let (group, _agent) = served();
    let client = Client::connect(&group.socket(1)).unwrap();
    let grant = enter_through(&client, "x");
    let (_, version) = connect(&group);
    for nonsense in [
        &[0xff; 64][..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0, 0, 0, 2, version, 99],
        &[0, 0, 0, 2, version - 1, 5],
    ] {
        let mut stream = UnixStream::connect(group.socket(1)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(nonsense).unwrap();
        // Its welcome, and the end. The rest of what it said may be lost with the stream.
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok() || ended.is_err_and(|e| e.raw_os_error() == Some(libc::ECONNRESET)));
    }
    assert!(grant.is_held());
    let clients = client.status().unwrap().clients.unwrap();
    assert_eq!(clients.dropped, [("malformed".to_owned(), 4)].into());
    grant.release().unwrap();
}

/// Of a client that had left something unread, what it had said last was lost: its release, and its
/// lock counted as abandoned.
#[test]
fn what_was_said_last_is_heard_though_not_all_was_read() {
    let (group, agent) = served();
    for _ in 0..20 {
        let (mut stream, version) = connect_inside(&group, &agent);
        stream.write_all(&[0, 0, 0, 4, version, 2, 1, 0]).unwrap();
        drop(stream);
        let grant = enter(&agent, &lock("x"));
        assert_eq!(grant.previous(), Previous::Clean);
        grant.release().unwrap();
    }
}

/// What a client that had died still wanted to know was found out for it, one answer a turn, before
/// its lock was free: for half a minute.
#[test]
fn what_the_dead_had_asked_for_keeps_no_lock() {
    let (group, agent) = served();
    let mut client = group.spawn("backlog", 1, 1);
    client.expect("full");
    assert_eq!(agent.status().unwrap().locks[0].holders.len(), 1);
    client.kill();
    let begun = clock::now();
    let grant = enter(&agent, &lock("held"));
    let took = clock::now().since(begun);
    assert_eq!(grant.previous(), Previous::Abandoned);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A process that was stopped meanwhile finds its time over, and has not asked the agent yet to end the request.
#[test]
fn who_looks_too_late_is_told_that_its_time_is_over() {
    let (group, agent) = served();
    let client = Client::connect(&group.socket(1)).unwrap();
    let held = enter(&agent, &lock("held"));
    let patience = Patience::For(Duration::from_millis(10));
    let (mode, caller) = (Mode::Exclusive, Caller::current());
    let mut waiting = client
        .begin(&lock("held"), None, mode, patience, caller)
        .unwrap();
    // Longer than its time, and than the agent may take to answer that a request has ended.
    thread::sleep(Duration::from_millis(400));
    let outcome = waiting.wait(None);
    assert!(
        matches!(outcome, Poll::Ready(Err(AcquireError::TimedOut))),
        "{outcome:?}"
    );
    drop(held);
}

/// A client that holds "x", and was cut off for nonsense, of which it has not heard yet.
fn cut_off(group: &Group, agent: &Agent) -> UnixStream {
    let (mut stream, _) = connect_inside(group, agent);
    stream.write_all(&[0xff; 64]).unwrap();
    eventually("it is cut off", || {
        let clients = agent.status().unwrap().clients.unwrap();
        clients.connected == 0
    });
    stream
}

/// Its lock was free at once, while it went on under it.
#[test]
fn who_was_cut_off_keeps_its_lock_until_it_knows() {
    let (group, agent) = served();
    for learns in [true, false] {
        let mut stream = cut_off(&group, &agent);
        assert_eq!(try_enter(&agent, "x").unwrap_err(), AcquireError::Busy);
        // What it says is heard no more, but it is not kept from saying it.
        let _ = stream.write_all(&[0xff; 300_000]);
        if learns {
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
        assert_eq!(try_enter(&agent, "x").unwrap_err(), AcquireError::Busy);
        drop(stream);
        let grant = enter(&agent, &lock("x"));
        assert_eq!(grant.previous(), Previous::Abandoned);
        drop(grant);
    }
}

/// It does not read, and its guard is void by its clock.
#[test]
fn who_was_cut_off_keeps_its_lock_no_longer_than_its_lease() {
    let group = one().with_quorum();
    let agent = group.serve(1);
    let _deaf = cut_off(&group, &agent);
    let begun = clock::now();
    let grant = enter(&agent, &lock("x"));
    let took = clock::now().since(begun);
    assert_eq!(grant.previous(), Previous::Abandoned);
    let lease = crate::support::LEASE;
    // Of the lease that it was told last some part was over.
    assert!(took > lease / 2 && took < lease * 3 / 2, "{took:?}");
}

/// More of them than the agent's queue has room for, so that some cannot even ask.
#[test]
fn who_only_tries_waits_a_second_for_an_agent_that_stands_still() {
    let group = one();
    let mut agent = group.spawn("serve", 1, 1);
    agent.expect("serves");
    let client = Client::connect(&group.socket(1)).unwrap();
    enter_through(&client, "x").release().unwrap();
    agent.signal(Signal::SIGSTOP);
    let stat = format!("/proc/{}/stat", agent.pid());
    eventually("it stands still", || {
        let stat = fs::read_to_string(&stat).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    });
    let begun = clock::now();
    thread::scope(|scope| {
        for _ in 0..400 {
            scope.spawn(|| {
                let tried = client.acquire(&lock("x"), None, Patience::Try, Caller::current());
                assert_eq!(
                    tried.unwrap_err(),
                    AcquireError::NoAnswer { silent: Vec::new() }
                );
            });
        }
    });
    let took = clock::now().since(begun);
    assert!(took < Duration::from_secs(2), "{took:?}");
    agent.signal(Signal::SIGCONT);
    // What was granted to those who had gone went back.
    enter_through(&client, "x").release().unwrap();
    agent.finish();
}

#[test]
fn who_does_not_read_hinders_nobody() {
    let (group, agent) = served();
    let (mut deaf, version) = connect(&group);
    deaf.set_nonblocking(true).unwrap();
    // Status, again and again: the agent stops reading what this one asks.
    let question = [0, 0, 0, 3, version, 4, 7].repeat(1_000);
    let mut refused = 0;
    let client = Client::connect(&group.socket(1)).unwrap();
    while refused < 50 {
        refused += usize::from(deaf.write(&question).is_err());
        enter_through(&client, "x").release().unwrap();
    }
    // It was not cut off for anything else.
    let clients = agent.status().unwrap().clients.unwrap();
    assert_eq!((clients.connected, clients.dropped.len()), (2, 0));
    drop(deaf);
    enter(&agent, &lock("x")).release().unwrap();
}

#[test]
fn many_come_and_go_at_once() {
    let (group, _agent) = served();
    let counter = group.directory.join("counter");
    fs::write(&counter, "0").unwrap();
    let mut programs: Vec<_> = (0..8).map(|_| group.spawn("client-turns", 1, 25)).collect();
    for program in &mut programs {
        program.expect("done");
    }
    assert_eq!(read_counter(&counter), 8 * 25);
    programs.into_iter().for_each(Process::finish);
}

/// With no descriptor left the agent goes on with its locks and its clients, and lets the next one
/// in when there are some again.
#[test]
fn who_comes_while_descriptors_are_short_waits_its_turn() {
    let group = one();
    let mut agent = group.spawn("short-of-descriptors", 1, 200);
    agent.expect("short");
    let mut stream = UnixStream::connect(group.socket(1)).unwrap();
    agent.go_on();
    agent.expect("entered");
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut welcome = [0; 4];
    stream.read_exact(&mut welcome).unwrap();
    agent.finish();
}

#[test]
fn a_forked_child_cannot_use_or_end_the_connection() {
    let (group, agent) = served();
    let client = Client::connect(&group.socket(1)).unwrap();
    let grant = enter_through(&client, "x");
    if let Some(child) = forked() {
        let asked = client.acquire(&lock("y"), None, Patience::Try, Caller::default());
        let fine = matches!(asked, Err(AcquireError::Forked))
            && !grant.is_held()
            && client.status() == Err(StatusError::Forked)
            && grant.release() == Err(ReleaseError::Forked);
        client.close();
        drop(client);
        child.exit(i32::from(!fine));
    }
    // The agent heard nothing of it.
    assert_eq!(client.status().unwrap().locks[0].holders.len(), 1);
    assert!(grant.is_held());
    grant.release().unwrap();
    drop(enter(&agent, &lock("x")));
}

/// An agent that ended in order freed its clients' locks at once, while their commands, which had
/// only just been told, were still at work.
#[test]
fn an_agent_that_leaves_waits_for_its_clients_to_come_out() {
    let group = Group::new(Kind::Unix, 2);
    let (leaving, other) = (group.serve(1), group.start(2).unwrap());
    let client = Client::connect(&group.socket(1)).unwrap();
    let held = enter_through(&client, "x");
    thread::scope(|scope| {
        let waits = scope.spawn(|| drop(enter(&other, &lock("x"))));
        eventually("the other waits", || {
            let locks = leaving.status().unwrap().locks;
            locks.iter().any(|lock| !lock.waiters.is_empty())
        });
        let leaves = scope.spawn(|| leaving.close());
        eventually("the client hears of it", || !held.is_held());
        thread::sleep(Duration::from_millis(200));
        assert!(!waits.is_finished(), "the client is inside");
        assert!(!leaves.is_finished());
        assert_eq!(held.release(), Err(ReleaseError::Lost));
        leaves.join().unwrap();
        waits.join().unwrap();
    });
    // It left in order: nobody waits for a lease when it comes back.
    let begun = clock::now();
    let back = group.start(1).unwrap();
    drop(enter(&back, &lock("x")));
    assert!(clock::now().since(begun) < crate::support::LEASE);
}

#[test]
fn an_agent_waits_for_its_clients_no_longer_than_a_lease_and_its_next_incarnation_waits_another() {
    let (group, leaving) = served();
    let client = Client::connect(&group.socket(1)).unwrap();
    let held = enter_through(&client, "x");
    let begun = clock::now();
    leaving.close();
    assert!(clock::now().since(begun) >= crate::support::LEASE);
    drop(held);
    let back = group.start(1).unwrap();
    let begun = clock::now();
    drop(enter(&back, &lock("x")));
    assert!(clock::now().since(begun) >= crate::support::LEASE);
}

/// A client that stood still while leaders changed went on with the one whom it had heard of last.
#[test]
fn who_observes_and_does_not_read_knows_in_the_end_who_leads() {
    let (group, agent) = served();
    let name = |number| format!("{number:0>255}");
    let (mut stream, version) = connect(&group);
    let elections = 3;
    for number in 0..elections {
        let header = [0, 0, 1, 3, version, 8, 0xff, 1];
        stream.write_all(&header).unwrap();
        stream.write_all(name(number).as_bytes()).unwrap();
    }
    // Each with its name, and whether somebody leads.
    let read = |stream: &mut UnixStream| {
        let mut len = [0; 4];
        stream.read_exact(&mut len).ok()?;
        let mut message = vec![0; u32::from_be_bytes(len) as usize];
        stream.read_exact(&mut message).unwrap();
        let (header, rest) = message.split_at(4);
        assert_eq!(header, [version, 12, 0xff, 1]);
        let (name, leader) = rest.split_at(255);
        Some((String::from_utf8(name.to_owned()).unwrap(), leader[0] == 1))
    };
    for _ in 0..elections {
        assert!(!read(&mut stream).unwrap().1, "nobody leads yet");
    }
    let lead = |number| {
        let caller = Caller {
            purpose: Purpose::Lead { algorithm: None },
            ..Caller::current()
        };
        let patience = Patience::For(TIMEOUT);
        let grant = agent.acquire(&lock(&name(number)), None, patience, caller);
        grant.unwrap()
    };
    // More than the agent and the kernel keep, and not one change after it.
    let missed = || agent.status().unwrap().clients.unwrap().dropped;
    eventually("it misses some", || {
        for number in 0..elections {
            lead(number).release().unwrap();
        }
        missed()
            .get("missed-event")
            .is_some_and(|count| *count > 10)
    });
    let leading = lead(1);
    let mut known = BTreeMap::new();
    stream
        .set_read_timeout(Some(crate::support::LEASE))
        .unwrap();
    while let Some((name, leads)) = read(&mut stream) {
        known.insert(name, leads);
    }
    let expected = (0..elections).map(|number| (name(number), number == 1));
    assert_eq!(known, expected.collect());
    leading.release().unwrap();
}

#[test]
fn who_asks_too_much_at_once_is_counted() {
    let group = Group::new(Kind::Unix, 2);
    let agent = group.serve(1);
    let other = group.spawn("idle", 2, 0);
    drop(enter(&agent, &lock("x")));
    let (mut stream, version) = connect(&group);
    // The answers wait for its word.
    other.signal(Signal::SIGSTOP);
    let question = [0, 0, 0, 3, version, 4, 7];
    stream.write_all(&question.repeat(20)).unwrap();
    eventually("all are looked at", || {
        let dropped = agent.status().unwrap().clients.unwrap().dropped;
        dropped
            .get("too-many-questions")
            .is_some_and(|&count| (1..=12).contains(&count))
    });
    other.signal(Signal::SIGCONT);
    other.finish();
}
