//! An agent that serves, and programs that use it, in order or not: what they say comes in pieces,
//! damaged, with descriptors that nobody wants, or not at all; they do not read what they are told,
//! and go when they like.
//!
//! An input is a byte that chooses the agent, and steps of four. The agent runs a round, and time
//! passes, when a step says so; nothing else happens meanwhile, and there is no other thread. What is
//! judged is what programs could know themselves:
//!
//! - Who keeps to the rules is served and answered, or refused for a reason that is there, whatever
//!   the others do. It is not cut off, unless it sends descriptors and few are left.
//! - Nobody is let in beside somebody who was told that it is inside, before that one has released, is
//!   gone, or was told otherwise, and what runs under its lock has ended. Unless the lease may have
//!   run out: from then on only fences are looked at, each of which is larger than all that were
//!   known when its lock was asked for.
//! - What is said to anybody can be read.
//! - When all have gone nothing is left of them: no lock, no descriptor.

#![no_main]

#[path = "service/caller.rs"]
mod caller;
#[path = "service/ledger.rs"]
mod ledger;
#[path = "service/system.rs"]
mod system;
#[path = "service/world.rs"]
mod world;

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::time::Duration;

use distlock_agent::protocol::{
    Change, ElectionAlgorithm, Failure, LockName, Mode, NodeId, Release,
};
use distlock_agent::runtime::Patience;
use distlock_agent::runtime::frames::ToAgent;

use self::ledger::LOCKS;
use self::world::World;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| service(bytes));

/// How many programs there are at a time.
const CALLERS: usize = 4;
/// How many messages programs may say by the hundred in one input. That must end soon; and one that
/// reads none of the answers is to get to where it is not heard.
const ENOUGH: usize = 1_500;

/// The kind of world.
#[derive(Clone, Copy, Debug)]
struct Plan {
    failure: Failure,
    scarce: Option<Scarce>,
}

/// That there are few descriptors.
#[derive(Clone, Copy, Debug)]
struct Scarce {
    /// How many more the process may have than it has at first, beyond those that clients must leave.
    more: u64,
    /// Of which programs, which are in the same process here, leave so many.
    left: u64,
}

impl Plan {
    fn of(how: u8) -> Self {
        let scarce = Scarce {
            more: u64::from(how >> 2 & 15),
            left: if how & 0x40 == 0 { 12 } else { 4 },
        };
        Self {
            failure: if how & 1 == 0 {
                Failure::Unanimity
            } else {
                Failure::Quorum
            },
            scarce: (how & 2 != 0).then_some(scarce),
        }
    }
}

/// An agent, and all that its clients can do.
fn service(bytes: &[u8]) {
    let &[how, ref steps @ ..] = bytes else {
        return;
    };
    let plan = Plan::of(how);
    let before = world::descriptors();
    let mut world = World::new(plan);
    for step in steps.as_chunks::<4>().0 {
        if world.is_over() {
            break;
        }
        take(&mut world, *step);
    }
    world.end();
    assert_eq!(world::descriptors(), before, "descriptors are left open");
}

fn take(world: &mut World, [what, who, a, b]: [u8; 4]) {
    let slot = usize::from(who) % CALLERS;
    world.connect(slot);
    let what = what % 27;
    match what {
        0..=9 => ask(world, slot, what, a, b),
        10..=14 => end_or_tell(world, slot, what, a, b),
        // What programs do in order, in pieces of any length.
        15 => world.with_caller(slot, |caller, ledger| caller.send(usize::from(a), ledger)),
        16 => world.read(slot, usize::from(a) * 64),
        17 => world.rounds(1 + usize::from(a) % 4),
        18 => world.ledger().drop_writer(usize::from(a)),
        // And what no program of ours does.
        19 => world.pass(Duration::from_millis(4 * u64::from(a))),
        20 if a & 0x0f == 0 => world.stall(),
        20 => world.close(slot),
        21 => world.with_caller(slot, |caller, ledger| {
            let how = [Shutdown::Write, Shutdown::Read, Shutdown::Both];
            caller.shut(how[usize::from(a) % how.len()], ledger);
        }),
        22 => world.with_caller(slot, |caller, ledger| caller.damage(a, b, ledger)),
        23 => world.with_caller(slot, |caller, ledger| caller.insert(a, b, ledger)),
        24 => attach(world, slot, a, b),
        25 => repeat(world, slot, a, b),
        _ => world.with_caller(slot, |caller, ledger| caller.cut(a, ledger)),
    }
    // Most inputs are to get somewhere: who does not say otherwise sends, is heard, and reads.
    if who & 0x80 == 0 && !matches!(what, 15..=19) {
        world.with_caller(slot, |caller, ledger| caller.send(usize::MAX, ledger));
        world.rounds(1);
        if who & 0x40 == 0 {
            world.read_all();
        }
    }
}

/// Says that it wants to enter, or to know something.
fn ask(world: &mut World, slot: usize, what: u8, a: u8, b: u8) {
    let lock = &LOCKS[usize::from(a) % LOCKS.len()];
    let name = lock.name();
    let command = "x".repeat(usize::from(b >> 4) * 100);
    let patience = match b & 3 {
        0 => Patience::Lease,
        1 => Patience::Try,
        2 => Patience::For(Duration::from_secs(u64::from(a))),
        _ => Patience::Forever,
    };
    let lifeline = b & 4 != 0 && world.has_room();
    world.with_caller(slot, |caller, ledger| {
        let id = caller.new_id();
        let message = match what {
            0..=3 => ToAgent::Acquire {
                id,
                lock: name,
                spec: lock.wish(b),
                mode: if a & 0x20 == 0 {
                    Mode::Exclusive
                } else {
                    Mode::Shared
                },
                patience,
                command,
                lifeline,
                waits_by_loan: b & 8 != 0,
            },
            4 => ToAgent::Campaign {
                id,
                lock: name,
                spec: lock.wish(b),
                algorithm: (a & 0x10 != 0).then_some(ElectionAlgorithm::Bully),
                patience,
                command,
                lifeline,
            },
            5 | 6 => ToAgent::Status { id },
            7 => ToAgent::Describe { id, lock: name },
            8 if a & 0x10 != 0 => ToAgent::Borrow {
                lock: name,
                command,
            },
            8 => ToAgent::Observe { lock: name },
            _ => ToAgent::Listen,
        };
        caller.say(message, ledger);
    });
}

/// Says something about a request that it has made; or that the members are to be others.
fn end_or_tell(world: &mut World, slot: usize, what: u8, a: u8, b: u8) {
    let how = [Release::Given, Release::Abandoned, Release::Unused][usize::from(b) % 3];
    world.with_caller(slot, |caller, ledger| {
        let id = caller.some_id(a, ledger);
        let message = match what {
            10 | 11 => ToAgent::Release { id, how },
            12 if b & 0x80 != 0 => {
                // It has entered nothing by itself.
                let (id, slot) = (caller.new_id(), u16::from(a >> 4));
                match b & 3 {
                    0 => ToAgent::Return { slot },
                    1 => ToAgent::KnowEntry { id, slot },
                    _ => ToAgent::Leave { slot, how },
                }
            }
            12 => ToAgent::Cancel { id },
            13 => {
                // None of them is a process that a client has started: nobody may be signalled.
                let pids = [0, 1, std::process::id(), u32::MAX, u32::from(b)];
                let pid = pids[usize::from(b) % pids.len()];
                ToAgent::CommandPid { id, pid }
            }
            _ => {
                let (id, node) = (caller.new_id(), u16::from(b >> 4) % 4 + 1);
                let node = NodeId::new(node).expect("not 0");
                let addresses = ["unix:/nowhere", "unix:/else", "udp:127.0.0.1:1", "nowhere"];
                let address = addresses[usize::from(b) % addresses.len()].to_owned();
                let change = if a & 1 == 0 {
                    Change::Add(node, address)
                } else {
                    Change::Remove(node)
                };
                ToAgent::Change { id, change }
            }
        };
        caller.say(message, ledger);
    });
}

/// Descriptors come with what is said next that nobody wants, or others than are wanted.
fn attach(world: &mut World, slot: usize, a: u8, b: u8) {
    let count = 1 + usize::from(a) % 3;
    if !world.has_room() {
        return;
    }
    let Ok((reader, writer)) = io::pipe() else {
        return;
    };
    let fd: OwnedFd = if b & 1 == 0 {
        reader.into()
    } else {
        writer.into()
    };
    let copies = (1..count).map_while(|_| fd.try_clone().ok());
    let mut fds: Vec<_> = copies.collect();
    fds.push(fd);
    world.with_caller(slot, |caller, ledger| caller.attach(fds, ledger));
}

/// Says very much, and is heard, as far as it is, before it reads anything.
fn repeat(world: &mut World, slot: usize, a: u8, b: u8) {
    let times = world.allow(match b & 7 {
        // Each takes a round of the agent's.
        0 => usize::from(a) / 4,
        _ => usize::from(a) * 6,
    });
    let len = if b & 3 == 1 { b.max(8) } else { u8::MAX };
    world.with_caller(slot, |caller, ledger| {
        for time in 0..times {
            let id = caller.new_id();
            let message = match b & 7 {
                0 => ToAgent::Status { id },
                4 => ToAgent::Describe {
                    id,
                    lock: LOCKS[0].name(),
                },
                _ => {
                    let mut name = time.to_string().into_bytes();
                    name.resize(usize::from(len), b'x');
                    let lock = LockName::new(name).expect("neither empty nor too long");
                    ToAgent::Observe { lock }
                }
            };
            caller.say(message, ledger);
        }
    });
    for _ in 0..times.div_ceil(100) {
        world.with_caller(slot, |caller, ledger| caller.send(usize::MAX, ledger));
        world.rounds(4);
    }
}
