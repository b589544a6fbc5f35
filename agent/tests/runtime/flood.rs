//! Members under a flood: they go on, and keep what they have.
//!
//! `DISTLOCK_TEST_FLOOD_SECS` says for how long; 60 is the number to show. In a release build it
//! takes more than one thread to keep their queues full: `DISTLOCK_TEST_FLOODERS` says how many.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use distlock_agent::protocol::wire;
use distlock_agent::runtime::{Agent, Grant, GuardState, clock};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use socket2::{Domain, Protocol, Socket, Type};

use crate::support::{
    Group, Kind, LEASE, TIMEOUT, count, enter, eventually, lock, node, skipped, udp,
};

/// What a flood did, and what went on meanwhile.
#[derive(Debug)]
struct Outcome {
    sent: u64,
    /// Entries a second, before and during it.
    before: f64,
    during: f64,
    /// Pages of memory that this process has, before and after.
    memory: [u64; 2],
    /// The share of the tenths of a second in which a queue of the first member was full.
    full: f64,
    /// How often it was looked whether the lock that the first member holds is valid, and how often
    /// it was not.
    looks: u64,
    lapses: u64,
    /// From whose addresses floods come, as the first member tells at its end.
    flooded: Vec<u16>,
    dropped: BTreeMap<String, u64>,
}

impl Outcome {
    /// How many the first member dropped for this reason meanwhile.
    fn dropped(&self, why: &str) -> u64 {
        self.dropped.get(why).copied().unwrap_or_default()
    }
}

/// For how long a flood lasts: so many seconds, or as the environment says.
fn lasting(secs: usize) -> Duration {
    Duration::from_secs(count("DISTLOCK_TEST_FLOOD_SECS", secs) as u64)
}

/// How many entries a second one agent has, in so much time.
fn entries(agent: &Agent, name: &str, lasts: Duration) -> f64 {
    let name = lock(name);
    let start = clock::now();
    let mut entries = 0;
    while clock::now().since(start) < lasts {
        enter(agent, &name).release().unwrap();
        entries += 1;
    }
    f64::from(entries) / clock::now().since(start).as_secs_f64()
}

/// How often it was looked whether a guard is valid, until the flood is over, and how often it was
/// not.
fn lapses(held: &Grant, is_over: &AtomicBool) -> (u64, u64) {
    let (mut looks, mut lapses) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        looks += 1;
        lapses += u64::from(held.state() != GuardState::Valid);
        thread::sleep(Duration::from_millis(2));
    }
    (looks, lapses)
}

fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

/// A group of three that have been there, the first two of which still are.
struct TwoOfThree {
    group: Group,
    agents: Vec<Agent>,
    addresses: [SocketAddr; 3],
    heard: Heard,
}

/// What somebody on the way has heard of such a group.
struct Heard {
    /// The id of the key, as datagrams have it.
    key: [u8; 4],
    /// What the third member's first incarnation has sealed for each of the others.
    recorded: [Vec<Vec<u8>>; 2],
}

impl TwoOfThree {
    fn begin() -> Self {
        let group = Group::new(Kind::Udp, 3);
        let group = group.with_quorum().with_key();
        let addresses = [1, 2, 3].map(|id| udp(&group.members[&node(id)]));
        // The third speaks to the others already, who are not there.
        let recorders = [0, 1].map(|at| UdpSocket::bind(addresses[at]).unwrap());
        let third = group.start(3).unwrap();
        let recorded = recorders.map(|recorder| {
            let mut buffer = [0; 2_000];
            recorder.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut record = || {
                let (len, from) = recorder.recv_from(&mut buffer).unwrap();
                assert_eq!((from, buffer[0]), (addresses[2], SEALED));
                buffer[..len].to_vec()
            };
            [(); RECORDED].map(|()| record()).to_vec()
        });
        // For their first view all must be there.
        let agents = vec![group.start(1).unwrap(), group.start(2).unwrap()];
        drop(enter(&third, &lock("first")));
        third.close();
        let protection = agents[0].status().unwrap().protection.unwrap();
        let key = u32::from_str_radix(&protection.keys[0], 16).unwrap();
        let key = key.to_be_bytes();
        Self {
            group,
            agents,
            addresses,
            heard: Heard { key, recorded },
        }
    }

    /// The third member lives again, and is believed, and goes: what its first incarnation said is
    /// that of an incarnation that has a successor.
    fn let_third_live_again(&self) {
        let third = self.group.start(3).unwrap();
        drop(enter(&third, &lock("again")));
        third.close();
    }
}

/// One that is seen at once to be no datagram of a member that seals.
const NONSENSE: [u8; 90] = [wire::VERSION; 90];
/// How a sealed datagram begins.
const SEALED: u8 = wire::VERSION | 0x80;
/// One of so many in a flood is a datagram that is opened; the others are nonsense. Not optimized, to
/// open one takes so long that with more of them members hear nothing else: what they cost is for a
/// release build to say.
const EVERY: u64 = if cfg!(debug_assertions) { 200 } else { 1 };
/// How often a member joins under a flood: not optimized, it takes up to a quarter of a minute.
const JOINS: usize = if cfg!(debug_assertions) { 1 } else { 3 };
/// Where a sealed datagram has its number.
const COUNTER: usize = 28;
/// How many datagrams are recorded of one way. All are worth the same to who sends them again.
const RECORDED: usize = 3;

/// Two members that are there, one of which holds a lock all the time; the third's address is
/// flooder's, if it is to be a member's. What is sent to both is what `datagrams` makes of what was
/// heard, of a number, and of which of the two it is for.
fn suffer(
    three: &TwoOfThree,
    from_member: bool,
    lasts: Duration,
    datagrams: impl Fn(&Heard, u64, usize) -> Vec<u8> + Sync,
) -> Outcome {
    let TwoOfThree {
        agents,
        addresses,
        heard,
        ..
    } = three;
    let held = enter(&agents[0], &lock("held"));
    let before = Duration::from_secs(1).min(lasts / 2);
    let before = entries(&agents[1], "other", before);
    let protection = || agents[0].status().unwrap().protection.unwrap();
    let dropped_before = protection().dropped;
    let all: Vec<_> = (0..1_000)
        .map(|number| [0, 1].map(|receiver| datagrams(heard, number, receiver)))
        .collect();
    let memory_before = resident();

    let flooder = match from_member {
        true => UdpSocket::bind(addresses[2]).unwrap(),
        false => UdpSocket::bind((addresses[2].ip(), 0)).unwrap(),
    };
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (during, full, (looks, lapses)) = thread::scope(|scope| {
        let flood = || {
            for both in all.iter().cycle() {
                for (bytes, address) in both.iter().zip(addresses) {
                    sent.fetch_add(pour(&flooder, bytes, *address), Ordering::Relaxed);
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        for _ in 0..count("DISTLOCK_TEST_FLOODERS", 1) {
            scope.spawn(flood);
        }
        let full = scope.spawn(|| {
            let mut looks = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                looks.push(dropped_by_kernel(addresses[0].port()));
                thread::sleep(Duration::from_millis(100));
            }
            let times = looks.windows(2).filter(|two| two[0] < two[1]).count();
            times as f64 / looks.len() as f64
        });
        let held = scope.spawn(|| lapses(&held, &is_over));
        let during = entries(&agents[1], "other", lasts);
        is_over.store(true, Ordering::Relaxed);
        (during, full.join().unwrap(), held.join().unwrap())
    });
    let memory = [memory_before, resident()];
    let protection = protection();
    let mut dropped = protection.dropped;
    for (why, count) in dropped_before {
        // The kernel does not always tell, and what was dropped before is little.
        dropped
            .entry(why)
            .and_modify(|all| *all = all.saturating_sub(count));
    }
    held.release().unwrap();
    Outcome {
        sent: sent.into_inner(),
        before,
        during,
        memory,
        full,
        looks,
        lapses,
        flooded: protection.flooded,
        dropped,
    }
}

/// How many datagrams the kernel has dropped at a port, in all queues that it has, as it tells in the
/// last column.
fn dropped_by_kernel(port: u16) -> u64 {
    let all = fs::read_to_string("/proc/net/udp").unwrap();
    let of_port = format!(":{port:04X}");
    let lines = all.lines().filter(|line| {
        let local = line.split_whitespace().nth(1);
        local.is_some_and(|local| local.ends_with(&of_port))
    });
    let drops = lines.map(|line| line.split_whitespace().last().unwrap());
    drops.map(|drops| drops.parse::<u64>().unwrap()).sum()
}

fn judge(outcome: &Outcome) {
    println!("{outcome:?}");
    println!(
        "{:.0} entries a second, {:.0} without; the queue overflowed in {:.0} % of the time; the lease \
         was over at {} of {} looks",
        outcome.during,
        outcome.before,
        outcome.full * 100.0,
        outcome.lapses,
        outcome.looks
    );
    assert!(outcome.sent > 10_000, "{outcome:?}");
    assert_eq!(outcome.lapses, 0, "{outcome:?}");
    // What it costs is for a release build to say.
    assert!(outcome.during > 0.1, "{outcome:?}");
    // 4 MiB: what is allocated differs a little from run to run, and grows with nothing.
    assert!(outcome.memory[1] < outcome.memory[0] + 1_024, "{outcome:?}");
}

/// Sends a datagram as often as the kernel does in one go, which is more than one that receives takes
/// meanwhile; how often. Whether they find room is not the flooder's concern.
fn pour(flooder: &UdpSocket, bytes: &[u8], to: SocketAddr) -> u64 {
    /// The kernel's own, UDP_MAX_SEGMENTS of all versions, and the longest datagram.
    const MOST: (usize, usize) = (64, 65_507);
    let times = if bytes.is_empty() {
        1
    } else {
        MOST.0.min(MOST.1 / bytes.len())
    };
    let (all, len) = (bytes.repeat(times), bytes.len() as u16);
    let segments = [ControlMessage::UdpGsoSegments(&len)];
    let segments = if bytes.is_empty() {
        &[][..]
    } else {
        &segments[..]
    };
    let to = SockaddrStorage::from(to);
    let poured = sendmsg(
        flooder.as_raw_fd(),
        &[IoSlice::new(&all)],
        segments,
        MsgFlags::empty(),
        Some(&to),
    );
    match poured {
        Ok(_) => times as u64,
        // Its queue is full, or it cannot do that.
        Err(_) => u64::from(flooder.send_to(bytes, to.to_string()).is_ok()),
    }
}

/// As a sealed datagram begins, with nonsense behind it: all that can be checked without the key is
/// right.
fn sealed_by_nobody(from: u16, key: [u8; 4], number: u64) -> Vec<u8> {
    let mut bytes = vec![SEALED, 0, 0, 0];
    bytes.extend(from.to_be_bytes());
    bytes.extend((number as u16 % 2 + 1).to_be_bytes());
    bytes.extend(key);
    bytes.extend((0..100).map(|at| (number.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8));
    bytes
}

#[test]
fn from_outside_is_stopped_by_the_kernel() {
    let three = TwoOfThree::begin();
    let outcome = suffer(&three, false, lasting(2), |heard, number, _| {
        sealed_by_nobody(3, heard.key, number)
    });
    judge(&outcome);
    assert!(outcome.dropped("by-kernel") > 0, "{outcome:?}");
    assert!(outcome.dropped("forged") == 0, "{outcome:?}");
    assert!(outcome.flooded.is_empty(), "{outcome:?}");
}

#[test]
fn from_a_members_address_is_survived() {
    // The last is the longest that UDP has.
    let lengths = [0, 1, 20, 60, 300, 1_400, 9_000, 65_507];
    let three = TwoOfThree::begin();
    let outcome = suffer(&three, true, lasting(2), |heard, number, _| {
        match number % 8 {
            0 => {
                let mut bytes = sealed_by_nobody(3, heard.key, number);
                bytes.resize(lengths[number as usize / 8 % lengths.len()], 0);
                bytes
            }
            1 => NONSENSE.to_vec(),
            _ => sealed_by_nobody(3, heard.key, number),
        }
    });
    judge(&outcome);
    // How full one thread keeps it depends on how fast the members take what comes.
    assert!(outcome.full > 0.1, "{outcome:?}");
    assert_eq!(outcome.flooded, [3], "{outcome:?}");
    for why in ["malformed", "not-sealed", "forged", "strange", "too-long"] {
        assert!(outcome.dropped(why) > 0, "{outcome:?}");
    }
}

/// Somebody has heard the third member, and sends in its name what costs more than nonsense does:
/// what it said, and the like of it.
#[test]
fn of_what_was_recorded_is_survived() {
    let three = TwoOfThree::begin();
    let lasts = lasting(1);
    let recorded = |heard: &Heard, number: u64, receiver: usize| {
        heard.recorded[receiver][number as usize % RECORDED].clone()
    };

    println!("What an incarnation that is believed said, again: it is not opened.");
    let outcome = suffer(&three, true, lasts, recorded);
    judge(&outcome);
    assert_eq!(outcome.flooded, [3], "{outcome:?}");
    assert!(outcome.dropped("replayed") > 1_000, "{outcome:?}");

    println!(
        "Forged in its name, with numbers that have not been: the key is there, each is opened."
    );
    let outcome = suffer(&three, true, lasts, |heard, number, receiver| {
        // The shortest, the longest of members, and nearly the longest that are opened.
        let lengths = [52, 150, 1_400, 2_700];
        if number % EVERY != 0 {
            return NONSENSE.to_vec();
        }
        let number = number / EVERY;
        let mut bytes = heard.recorded[receiver][0].clone();
        let counter = u64::MAX / 2 + number;
        bytes[COUNTER..COUNTER + 8].copy_from_slice(&counter.to_be_bytes());
        bytes.resize(lengths[number as usize % lengths.len()], 0xa5);
        bytes
    });
    judge(&outcome);
    assert!(outcome.dropped("forged") > 10, "{outcome:?}");
    assert_eq!(outcome.dropped("strange"), 0, "{outcome:?}");

    println!(
        "What an incarnation said that has ended: a key is made, it is opened, and challenged."
    );
    three.let_third_live_again();
    let outcome = suffer(&three, true, lasts, |heard, number, receiver| {
        match number % EVERY {
            0 => recorded(heard, number / EVERY, receiver),
            _ => NONSENSE.to_vec(),
        }
    });
    judge(&outcome);
    assert!(outcome.dropped("unproven") > 10, "{outcome:?}");
    // Of those that come at once a few are looked at.
    assert!(outcome.dropped("strange") > 10, "{outcome:?}");
    assert_eq!(outcome.dropped("replayed"), 0, "{outcome:?}");
}

/// Floods `flooded` with the address of member 2, which is not there, until it says so. `go_on` is
/// called meanwhile.
pub(crate) fn flood_as_second(group: &Group, flooded: &Agent, mut go_on: impl FnMut()) {
    let [first, second] = [1, 2].map(|id| udp(&group.members[&node(id)]));
    let flooder = UdpSocket::bind(second).unwrap();
    let deadline = clock::now() + TIMEOUT;
    while flooded.status().unwrap().protection.unwrap().flooded != [2] {
        assert!(clock::now() < deadline, "it notices nothing");
        pour(&flooder, &NONSENSE, first);
        go_on();
    }
}

/// Nobody but the member whose address was flooded speaks to this one, and the network says nothing
/// of what is in its queue.
#[test]
fn who_was_flooded_is_heard_also_alone() {
    let group = Group::new(Kind::Udp, 2);
    let group = group.with_quorum().with_key();
    let first = group.start(1).unwrap();
    flood_as_second(&group, &first, || ());
    let second = group.start(2).unwrap();
    for agent in [&first, &second, &first, &second] {
        enter(agent, &lock("x")).release().unwrap();
    }
    eventually("the flood's end", || {
        let protection = first.status().unwrap().protection.unwrap();
        protection.flooded.is_empty()
    });
    for agent in [&first, &second] {
        enter(agent, &lock("x")).release().unwrap();
    }
}

/// Whoever has the rights to can send with any address: here with that of a member that comes only
/// then, and has to show that it is there. And then is needed, as one of two of three voters.
#[test]
fn a_member_joins_while_others_speak_in_its_name() {
    let TwoOfThree {
        group,
        mut agents,
        addresses: [one, two, three],
        heard: Heard { key, .. },
    } = TwoOfThree::begin();
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
    let Ok(raw) = raw.and_then(|raw| raw.bind(&three.into()).map(|()| raw)) else {
        return skipped("raw sockets need root");
    };
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let joining = |name| {
        let start = clock::now();
        let agent = group.start(3).unwrap();
        drop(enter(&agent, &lock(name)));
        let lasted = clock::now().since(start);
        agent.close();
        lasted
    };
    let without = joining("without");
    let (with, needed) = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                for to in [one, two] {
                    let body = sealed_by_nobody(3, key, number);
                    let length = body.len() as u16 + 8;
                    // Without a checksum, which UDP lets be.
                    let header = [three.port(), to.port(), length, 0].map(u16::to_be_bytes);
                    let _ = raw.send_to(&[header.as_flattened(), &body].concat(), &to.into());
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let times = [(); JOINS].map(|()| joining("with"));
        let third = group.start(3).unwrap();
        drop(enter(&third, &lock("with")));
        agents.pop().unwrap().close();
        let held = enter(&agents[0], &lock("held"));
        let (start, lasts) = (clock::now(), lasting(2));
        let is_over = &is_over;
        let held = scope.spawn(move || lapses(&held, is_over));
        let mut entries = 0;
        while clock::now().since(start) < lasts {
            // Or it was lost.
            let _ = enter(&third, &lock("other")).release();
            entries += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        let entries = f64::from(entries) / clock::now().since(start).as_secs_f64();
        (times, (entries, held.join().unwrap()))
    });
    let dropped = agents[0].status().unwrap().protection.unwrap().dropped;
    println!("joined in {with:?}, {without:?} without; {sent:?} sent, {dropped:?}");
    let (entries, (looks, lapses)) = needed;
    println!(
        "{entries:.0} entries a second by it; the other's lease was over at {lapses} of {looks} looks"
    );
    assert!(dropped["strange"] > 1_000, "{dropped:?}");
    // A part of what it says is displaced. It is late, and not shut out: not optimized, by some
    // seconds.
    assert!(with.iter().all(|time| *time < 30 * LEASE), "{with:?}");
}
