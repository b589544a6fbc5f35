//! Members under a flood: they go on, and keep what they have.
//!
//! `DISTLOCK_TEST_FLOOD_SECS` says for how long; 60 is the number to show.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use distlock_agent::protocol::Algorithm;
use distlock_agent::runtime::{Address, Agent, GuardState, clock};

use crate::support::{Group, Kind, count, enter, lock};

/// What a flood did, and what went on meanwhile.
#[derive(Debug)]
struct Outcome {
    sent: u64,
    /// Entries a second, before and during it.
    before: f64,
    during: f64,
    /// Pages of memory that this process has, before and after.
    memory: [u64; 2],
    dropped: String,
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

fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Two members that are there, one of which holds a lock all the time; the third's address is
/// flooder's, if it is to be a member's. What is sent to both is what `datagrams` makes of the id of the
/// group's key, and of a number.
fn suffer(from_member: bool, datagrams: impl Fn([u8; 4], u64) -> Vec<u8> + Sync) -> Outcome {
    let secs = count("DISTLOCK_TEST_FLOOD_SECS", 2);
    let lasts = Duration::from_secs(secs as u64);
    let group = Group::new(Kind::Udp, 3, Algorithm::RicartAgrawala);
    let group = group.with_quorum().with_key();
    let mut agents = group.start_all();
    let addresses: Vec<SocketAddr> = group
        .members
        .values()
        .map(|address| match address {
            Address::Udp(address) => *address,
            Address::Unix(_) => unreachable!(),
        })
        .collect();
    drop(enter(&agents[2], &lock("first")));
    agents.remove(2).close();
    let key = agents[0]
        .status()
        .unwrap()
        .protection
        .unwrap()
        .keys
        .remove(0);
    let key = u32::from_str_radix(&key, 16).unwrap().to_be_bytes();
    let held = enter(&agents[0], &lock("held"));
    let before = entries(&agents[1], "other", Duration::from_secs(1));
    let memory_before = resident();

    let flooder = match from_member {
        true => UdpSocket::bind(addresses[2]).unwrap(),
        false => UdpSocket::bind((addresses[2].ip(), 0)).unwrap(),
    };
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let during = thread::scope(|scope| {
        scope.spawn(|| {
            let all: Vec<_> = (0..1_000).map(|number| datagrams(key, number)).collect();
            for bytes in all.iter().cycle() {
                for address in &addresses[..2] {
                    // Whether it finds room is not the flooder's concern.
                    let _ = flooder.send_to(bytes, address);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let during = entries(&agents[1], "other", lasts);
        is_over.store(true, Ordering::Relaxed);
        during
    });
    assert_eq!(
        held.state(),
        GuardState::Valid,
        "the lease was renewed all the time"
    );
    let memory = [memory_before, resident()];
    let dropped = agents[0].status().unwrap().protection.unwrap().dropped;
    held.release().unwrap();
    Outcome {
        sent: sent.into_inner(),
        before,
        during,
        memory,
        dropped: format!("{dropped:?}"),
    }
}

fn judge(outcome: &Outcome) {
    println!("{outcome:?}");
    println!(
        "{:.0} entries a second, {:.0} without",
        outcome.during, outcome.before
    );
    assert!(outcome.sent > 10_000, "{outcome:?}");
    // What it costs is for a release build to say.
    assert!(outcome.during >= 1.0, "{outcome:?}");
    // 4 MiB: what is allocated differs a little from run to run, and grows with nothing.
    assert!(outcome.memory[1] < outcome.memory[0] + 1_024, "{outcome:?}");
}

/// As a sealed datagram begins, with nonsense behind it: all that can be checked without the key is
/// right.
fn sealed_by_nobody(from: u16, key: [u8; 4], number: u64) -> Vec<u8> {
    let mut bytes = vec![0x82, 0, 0, 0];
    bytes.extend(from.to_be_bytes());
    bytes.extend((number as u16 % 2 + 1).to_be_bytes());
    bytes.extend(key);
    bytes.extend((0..100).map(|at| (number.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8));
    bytes
}

#[test]
fn from_outside_is_stopped_by_the_kernel() {
    let outcome = suffer(false, |key, number| sealed_by_nobody(3, key, number));
    judge(&outcome);
    assert!(outcome.dropped.contains("by-kernel"), "{outcome:?}");
    assert!(!outcome.dropped.contains("forged"), "{outcome:?}");
}

#[test]
fn from_a_members_address_is_survived() {
    let lengths = [0, 1, 20, 60, 300, 1_400, 9_000];
    let outcome = suffer(true, |key, number| match number % 8 {
        0 => {
            let mut bytes = sealed_by_nobody(3, key, number);
            bytes.resize(lengths[number as usize % lengths.len()], 0);
            bytes
        }
        1 => vec![2; 90],
        _ => sealed_by_nobody(3, key, number),
    });
    judge(&outcome);
    for why in ["malformed", "not-sealed", "forged", "strange"] {
        assert!(outcome.dropped.contains(why), "{outcome:?}");
    }
}
