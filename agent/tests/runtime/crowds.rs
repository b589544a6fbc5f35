//! Thousands of clients that connect and say nothing, or half a message, or too much: the others go
//! on, leases are renewed, and what is refused is counted.

use std::fs;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use distlock_agent::runtime::status::ClientsStatus;
use distlock_agent::runtime::{
    AcquireError, Agent, Caller, Client, ConnectError, Grant, Patience, clock,
};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::clients::connect;
use crate::roles::hard_limit;
use crate::support::{
    Group, Kind, LEASE, Process, TIMEOUT, count, enter, enter_through, eventually, lock, skipped,
};

/// As the agent has it.
const MAX_CLIENTS: u64 = 4_096;
const MAX_OF_ONE_PROCESS: u64 = 1_024;

/// Two members, so that there is a lease to be renewed, and a client of the first, which is a process
/// of its own.
struct Pair {
    group: Group,
    server: Process,
    other: Agent,
    client: Client,
}

impl Pair {
    fn new(role: &str, parameter: usize) -> Self {
        let group = Group::new(Kind::Unix, 2).with_quorum();
        let mut server = group.spawn(role, 1, parameter);
        server.expect("serves");
        let other = group.start(2).unwrap();
        let client = Client::connect(&group.socket(1)).unwrap();
        Self {
            group,
            server,
            other,
            client,
        }
    }

    /// Has the view change, and again: the agent puts that on the disk.
    fn with_another_view(self) -> Self {
        self.other.close();
        let other = self.group.start(2).unwrap();
        drop(enter(&other, &lock("another view")));
        Self { other, ..self }
    }

    fn enter(&self, name: &str) -> Grant {
        enter_through(&self.client, name)
    }

    /// How many entries the client has in a second.
    fn entries(&self, lasts: Duration) -> f64 {
        let start = clock::now();
        let mut entries = 0;
        while clock::now().since(start) < lasts {
            self.enter("other").release().unwrap();
            entries += 1;
        }
        f64::from(entries) / clock::now().since(start).as_secs_f64()
    }

    /// Starts a process that connects so many times; and how many of those were welcome.
    fn crowd(&self, kind: &str, size: usize) -> (Process, u64) {
        let mut crowd = self.group.spawn(kind, 1, size);
        let welcome = crowd.expect("crowd").parse().unwrap();
        (crowd, welcome)
    }

    fn clients(&self) -> ClientsStatus {
        self.client.status().unwrap().clients.unwrap()
    }

    /// Pages of memory that the agent's process has.
    fn resident(&self) -> u64 {
        resident(&self.server.pid().to_string())
    }
}

#[test]
fn thousands_who_say_nothing_or_half_a_message_hinder_nobody() {
    let needed = 2 * MAX_CLIENTS as usize + 100;
    if hard_limit() < needed {
        return skipped(&format!("{needed} descriptors are needed: ulimit -Hn"));
    }
    let pair = Pair::new("serve", 0);
    let held = pair.enter("held");
    let without = pair.entries(Duration::from_millis(500));
    let memory = pair.resident();

    // One process does not get all there are.
    let mut crowds = vec![pair.crowd("half-crowd", 1_100)];
    assert_eq!(crowds[0].1, MAX_OF_ONE_PROCESS);
    for kind in ["crowd", "half-crowd", "crowd", "crowd"] {
        crowds.push(pair.crowd(kind, 1_100));
    }
    let welcome: u64 = crowds.iter().map(|(_, welcome)| welcome).sum();
    // The client is one of them.
    assert_eq!(welcome, MAX_CLIENTS - 1);
    { crowds.iter_mut().step_by(2).take(2) }.for_each(|(crowd, _)| drop(crowd.expect("said")));
    let refused = Client::connect(&pair.group.socket(1))
        .map(drop)
        .unwrap_err();
    assert!(matches!(refused, ConnectError::TooMany { .. }), "{refused}");
    for cause in ["1024", "4096", "ulimit -n"] {
        assert!(refused.to_string().contains(cause), "{refused}");
    }
    let clients = pair.clients();
    assert_eq!(clients.connected, MAX_CLIENTS);
    let of_one = 3 * (1_100 - MAX_OF_ONE_PROCESS);
    let in_all = 5 * 1_100 - welcome - of_one + 1;
    assert_eq!(
        clients.dropped,
        [
            ("too-many".to_owned(), in_all),
            ("too-many-of-one-process".to_owned(), of_one)
        ]
        .into()
    );

    let with = pair.entries(LEASE * 3 / 2);
    let grown = pair.resident().saturating_sub(memory);
    println!("{with:.0} entries a second, {without:.0} without; {grown} pages more");
    assert!(held.is_held());
    // On two cores some 37,000 entries a second without a crowd, and 4,000 beside one.
    assert!(with > without / 30.0, "{with} of {without}");
    // 2,047 halves of 8 kB, which are all that is kept, and a few hundred bytes for each client.
    assert!(grown < 6_144, "{grown} pages");

    { crowds.into_iter() }.for_each(|(crowd, _)| crowd.kill());
    eventually("they are forgotten", || pair.clients().connected == 1);
    drop(Client::connect(&pair.group.socket(1)).unwrap());
    held.release().unwrap();
}

/// An agent without a descriptor to spare could not put its state on the disk at the next change of
/// the view, and ended; on some file systems it still could not.
#[test]
fn clients_leave_the_agent_the_descriptors_that_it_needs() {
    let pair = Pair::new("serve-with-descriptors", 128);
    let held = pair.enter("held");
    let (crowd, welcome) = pair.crowd("crowd", 200);
    assert!((20..64).contains(&welcome), "{welcome}");
    let clients = pair.clients();
    assert_eq!(clients.connected, welcome + 1);
    assert_eq!(
        clients.dropped,
        [("few-descriptors".to_owned(), 200 - welcome)].into()
    );
    let pair = pair.with_another_view();
    assert!(held.is_held());
    crowd.kill();
    eventually("there is room again", || {
        Client::connect(&pair.group.socket(1)).is_ok()
    });
    held.release().unwrap();
}

/// A server that has a member inside, and to which too many connect, is no reason for the lock to be
/// lost either.
#[test]
fn a_process_without_a_descriptor_left_goes_on_in_the_next_view() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["1", "2"].map(|name| dir.path().join(name));
    for path in [&one, &other] {
        fs::write(path, "").unwrap();
    }
    let flags = RenameFlags::RENAME_EXCHANGE;
    if let Err(error) = renameat2(AT_FDCWD, &one, AT_FDCWD, &other, flags) {
        let dir = dir.path().display();
        return skipped(&format!("names cannot be exchanged in {dir}: {error}"));
    }
    let mut pair = Pair::new("hoard", 128);
    let held = pair.enter("held");
    pair.server.go_on();
    pair.server.expect("full");
    for _ in 0..3 {
        pair = pair.with_another_view();
    }
    assert!(held.is_held());
    held.release().unwrap();
    drop(pair.enter("held"));
}

/// What runs under a lock takes two descriptors of the agent, one of them only when it is known. Who
/// is let in must have both, and the agent what it needs.
#[test]
fn commands_leave_the_agent_the_descriptors_that_it_needs() {
    let pair = Pair::new("serve-with-descriptors", 128);
    let held = pair.enter("held");
    let (mut stream, version) = connect(&pair.group);
    for id in 1..=100 {
        // To enter a lock of its own, with a lifeline.
        let acquire = [0, 0, 0, 12, version, 0, id, 2, b'x', id, 0, 0, 1, 0, 1, 0];
        stream.write_all(&acquire).unwrap();
    }
    let mut inside = 0;
    eventually("all are answered", || {
        let refused = pair.clients().dropped.get("few-descriptors").copied();
        // All but "held".
        inside = pair.client.status().unwrap().locks.len() as u64 - 1;

        inside + refused.unwrap_or_default() == 100
    });
    assert!((20..55).contains(&inside), "{inside}");
    assert_eq!(pair.clients().connected, 2, "nobody was cut off");
    let pair = pair.with_another_view();
    assert!(held.is_held());
    drop(stream);
    eventually("their locks are free", || {
        pair.client.status().unwrap().locks.len() == 1
    });
    held.release().unwrap();
}

/// The status of thousands of locks is built on the agent thread, for each who asks.
#[test]
fn who_asks_for_all_again_and_again_waits_for_its_turn() {
    let group = Group::new(Kind::Unix, 1);
    let agent = group.serve(1);
    let names = 4_000;
    let held: Vec<_> = (0..names)
        .map(|number| enter(&agent, &lock(&format!("{number}"))))
        .collect();
    let client = Client::connect(&group.socket(1)).unwrap();
    let (mut stream, version) = connect(&group);
    // As many as were obeyed at once.
    stream
        .write_all(&[0, 0, 0, 3, version, 4, 7].repeat(255))
        .unwrap();
    let start = clock::now();
    for number in 0..20 {
        let grant = enter_through(&client, &format!("other-{number}"));
        grant.release().unwrap();
    }
    let lasted = clock::now().since(start);
    println!("{lasted:?} for 20 entries");
    assert!(lasted < LEASE / 2, "{lasted:?}");
    drop(stream);
    { held.into_iter() }.for_each(|grant| grant.release().unwrap());
}

/// Enters locks of its own, so many, with a command line of the greatest length, by a stream that is
/// returned. Nothing of that is awaited.
fn hold(group: &Group, number: u8, locks: u16) -> UnixStream {
    let (mut stream, version) = connect(group);
    let command = [&[0x80, 0x08][..], &[b'c'; 1_024]].concat();
    for lock in 0..locks {
        let [low, high] = [0x80 | lock as u8, (lock >> 7) as u8];
        // Its number is its name as well.
        let begin = [
            version,
            0,
            low,
            high,
            3,
            b'a' + number,
            low,
            high + 1,
            0,
            0,
            1,
        ];
        let body = [&begin[..], &command, &[0, 0]].concat();
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        stream.write_all(&[&len[..], &body].concat()).unwrap();
    }
    stream
}

/// In a group of several the work comes after the question, when the others have answered. All who
/// had asked were answered in one stay in the mutex, with a copy of everything for each.
#[test]
fn who_asks_for_all_of_a_group_again_and_again_waits_for_its_turn() {
    let pair = Pair::new("serve", 0);
    let (clients, locks) = (4, 2_000);
    let holders: Vec<_> = (0..clients)
        .map(|number| hold(&pair.group, number, locks))
        .collect();
    // More than there is room for are counted.
    let all = u64::from(clients) * u64::from(locks);
    eventually("all are inside", || {
        let Ok(status) = pair.client.status() else {
            return false;
        };
        let words = status.members[0].detail.split(' ').next();
        let left_out: u64 = words.and_then(|word| word.parse().ok()).unwrap_or_default();
        status
            .locks
            .iter()
            .map(|lock| lock.holders.len() as u64)
            .sum::<u64>()
            + left_out
            == all
    });
    let held = pair.enter("held");
    let memory = pair.resident();
    let askers: Vec<_> = (0..8).map(|_| connect(&pair.group)).collect();
    let longest = thread::scope(|scope| {
        for (stream, version) in &askers {
            scope.spawn(move || io::copy(&mut { stream }, &mut io::sink()));
            let question = [0, 0, 0, 3, *version, 4, 7].repeat(8);
            let mut writer = stream;
            writer.write_all(&question).unwrap();
        }
        let entry = |_| {
            let start = clock::now();
            pair.enter("other").release().unwrap();
            assert!(held.is_held());
            clock::now().since(start)
        };
        let longest = (0..100).map(entry).max().unwrap();
        // Some got no status for now; nobody was cut off.
        let connected = pair.clients().connected;
        assert_eq!(connected, 1 + u64::from(clients) + askers.len() as u64);
        for (stream, _) in &askers {
            stream.shutdown(Shutdown::Both).unwrap();
        }
        longest
    });
    let grown = pair.resident().saturating_sub(memory);
    println!("an entry took {longest:?}, {grown} pages more");
    assert!(held.is_held());
    assert!(longest < LEASE, "{longest:?}");
    // What all clients may leave unread, and the status itself a few times: never one for each.
    assert!(grown < 32_768, "{grown} pages");
    held.release().unwrap();
    drop(holders);
}

/// Each client may observe thousands of elections, whose names took gigabytes of all that there may
/// be.
#[test]
fn those_who_observe_too_much_together_are_cut_off_and_nobody_else() {
    let pair = Pair::new("serve", 0);
    let held = pair.enter("held");
    let memory = pair.resident();
    let observe = |version, number| {
        let header = [0, 0, 1, 3, version, 8, 0xff, 1];
        [&header[..], format!("{number:0>255}").as_bytes()].concat()
    };
    let crowd = 70;
    let streams: Vec<_> = (0..crowd).map(|_| connect(&pair.group)).collect();
    thread::scope(|scope| {
        for (stream, version) in &streams {
            scope.spawn(move || io::copy(&mut { stream }, &mut io::sink()));
            let all: Vec<u8> = (0..4_096)
                .flat_map(|number| observe(*version, number))
                .collect();
            // Who is cut off cannot say it all.
            scope.spawn(move || { stream }.write_all(&all));
        }
        eventually("some are cut off", || {
            pair.clients().dropped.contains_key("too-much")
        });
        // A client takes 319 bytes for each, and 50 are 65 MB.
        eventually("so many are cut off that the others have room", || {
            let clients = pair.clients();
            let cut_off = clients.dropped["too-much"];
            assert_eq!(clients.dropped.len(), 1, "{clients:?}");
            assert_eq!(clients.connected, crowd - cut_off + 1);
            crowd - cut_off <= 52
        });
        for (stream, _) in &streams {
            // Some are shut down already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    let grown = pair.resident().saturating_sub(memory);
    println!("{grown} pages more");
    // 64 MiB, and what the allocator makes of it.
    assert!(grown < 24_576, "{grown} pages");
    assert!(held.is_held());
    held.release().unwrap();
    drop(pair.enter("other"));
}

/// All that thousands had to say was heard before the next look at the timers: leases ran out
/// meanwhile.
#[test]
fn who_says_too_much_waits_for_its_turn() {
    let pair = Pair::new("serve", 0);
    let held = pair.enter("held");
    let without = pair.entries(Duration::from_millis(500));
    let crowds: Vec<_> = (0..2).map(|_| pair.crowd("loud-crowd", 500)).collect();
    let until = clock::now() + LEASE * 2;
    let with = thread::scope(|scope| {
        let rate = scope.spawn(|| pair.entries(LEASE * 2));
        while clock::now() < until {
            assert!(held.is_held());
            thread::sleep(Duration::from_millis(5));
        }
        rate.join().unwrap()
    });
    println!("{with:.0} entries a second, {without:.0} without");
    assert!(with > without / 1_000.0, "{with} of {without}");
    let clients = pair.clients();
    assert_eq!((clients.connected, clients.dropped.len()), (1_001, 0));
    held.release().unwrap();
    drop(crowds);
}

/// More than a client may have at once is refused. Of locks that nobody uses, so many are remembered,
/// and then the next view forgets them: whoever needs another waits for that.
#[test]
fn names_without_end_take_no_memory_without_end() {
    let most = 4_096;
    let group = Group::new(Kind::Unix, 1).with_quorum();
    let agent = group.serve(1);
    let client = Client::connect(&group.socket(1)).unwrap();
    let ask = |number: usize| {
        let (name, patience) = (lock(&format!("{number:0>255}")), Patience::For(TIMEOUT));
        client.acquire(&name, None, patience, Caller::current())
    };
    let mut grants: Vec<_> = (0..most).map(|number| ask(number).unwrap()).collect();
    assert_eq!(ask(most).unwrap_err(), AcquireError::Limit);
    let dropped = agent.status().unwrap().clients.unwrap().dropped;
    assert_eq!(dropped, [("too-many-requests".to_owned(), 1)].into());
    grants.pop().unwrap().release().unwrap();
    grants.push(ask(most).unwrap());
    { grants.into_iter() }.for_each(|grant| grant.release().unwrap());

    let memory = resident("self");
    let names = count("DISTLOCK_TEST_NAMES", 5_000);
    let mut refused = 0;
    for number in most..most + names {
        let mut granted = None;
        eventually("there is room for another name", || {
            granted = ask(number).ok();
            refused += usize::from(granted.is_none());
            granted.is_some()
        });
        granted.unwrap().release().unwrap();
    }
    let grown = resident("self").saturating_sub(memory);
    println!("{grown} pages more after {names} names; {refused} refused");
    // 2 KiB for a lock, with its name of 255 bytes and its engine.
    assert!(grown < names.min(65_536) as u64 / 2, "{grown} pages");
    eventually("nothing is left", || {
        agent.status().unwrap().locks.is_empty()
    });
}

/// Pages of memory that a process has.
fn resident(process: &str) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}
