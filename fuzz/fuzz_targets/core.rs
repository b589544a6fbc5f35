//! Members whose datagrams are lost, doubled, kept back or changed, whose callers want things, and
//! who crash and come back.
//!
//! An input is two bytes that choose the world, and steps of five. In half of the worlds the network
//! is merely bad: there exclusion, fences and progress are judged. In the other half datagrams are
//! changed too, and given right checksums. What they break is broken by design, where nothing is
//! sealed; but also there nothing panics or loops, nothing piles up, and every caller is answered
//! once.

#![no_main]

#[path = "core/ledger.rs"]
mod ledger;
#[path = "core/world.rs"]
mod world;

use std::time::Duration;

use distlock_agent::protocol::wire::{self, GroupId};
use distlock_agent::protocol::{
    Algorithm, Command, Failure, Input, LockName, LockSpec, Mode, NodeId, Release, Ticket, Wait,
};

use self::ledger::Judged;
use self::world::{World, id};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| core(bytes));

const GROUP: &str = "fuzz";
const LEASE: Duration = Duration::from_secs(1);
/// How many inputs the nodes may have had before no more steps are made: short executions find more.
const ENOUGH: u32 = 1_000;

/// The kind of world.
#[derive(Clone, Copy, Debug)]
struct Plan {
    members: u16,
    voters: u16,
    failure: Failure,
    algorithm: Algorithm,
    /// Whether datagrams are changed.
    hostile: bool,
    /// Whether a record is on disk a while after it was written only.
    slow_disk: bool,
    /// Whether the group has formed before the first step.
    formed: bool,
}

impl Plan {
    fn of(how: u8, algorithm: u8) -> Self {
        let members = match how >> 4 & 7 {
            7 => 4,
            few => 2 + u16::from(few % 2),
        };
        let (failure, voters) = match how >> 1 & 3 {
            0 => (Failure::Quorum, members),
            1 => (Failure::Quorum, 1),
            2 => (Failure::PresumeFailed, members),
            _ => (Failure::Unanimity, members),
        };
        // Where a majority decides, no configuration may have one that excludes by chance.
        let can_serve = |it: &&Algorithm| failure != Failure::Quorum || !it.is_probabilistic();
        let algorithms: Vec<_> = Algorithm::ALL.iter().filter(can_serve).collect();
        Self {
            members,
            voters,
            failure,
            algorithm: *algorithms[usize::from(algorithm) % algorithms.len()],
            hostile: how & 1 != 0,
            slow_disk: how & 8 != 0,
            formed: how & 0x80 == 0,
        }
    }

    fn judged(self) -> Judged {
        Judged {
            failure: self.failure,
            weather_only: !self.hostile,
            excludes: !self.algorithm.is_probabilistic(),
        }
    }
}

/// A lock of the default algorithm, and one of two permits.
fn locks() -> [(LockName, Option<LockSpec>); 2] {
    let two = std::num::NonZeroU32::new(2).expect("not 0");
    let name = |name| LockName::new(name).expect("a name");
    [
        (name("printer"), None),
        (name("pool"), Some(LockSpec::counting(two))),
    ]
}

/// Nodes, and all that can come to them.
fn core(bytes: &[u8]) {
    let &[how, algorithm, ref steps @ ..] = bytes else {
        return;
    };
    let plan = Plan::of(how, algorithm);
    let mut world = World::new(plan);
    if plan.formed {
        world.form();
    }
    for step in steps.as_chunks::<5>().0 {
        if world.inputs() > ENOUGH {
            break;
        }
        take(&mut world, plan, *step);
    }
    if plan.hostile {
        world.run(Duration::from_millis(100));
    } else {
        world.serve_all();
    }
}

fn take(world: &mut World, plan: Plan, [what, who, a, b, c]: [u8; 5]) {
    if plan.hostile && what >= 0x80 {
        return change(world, who, u16::from_be_bytes([a, b]), c, what & 1 != 0);
    }
    let me = id(u16::from(who & 0x0f) % plan.members + 1);
    let other = id(u16::from(who >> 4) % plan.members + 1);
    let ms = |count: u8, of: u64| Duration::from_millis(u64::from(count) * of);
    match what % 16 {
        0 | 1 => ask(world, me, a, b),
        2 => {
            if let Some(ticket) = ticket(world, me, a) {
                let how = [Release::Given, Release::Abandoned, Release::Unused];
                let how = how[usize::from(b) % how.len()];
                world.command(me, Command::Release { ticket, how });
            }
        }
        3 => {
            if let Some(ticket) = ticket(world, me, a) {
                world.command(me, Command::Cancel { ticket });
            }
        }
        4 | 5 => world.run(ms(a, 1)),
        6 => world.pass(ms(a, 5)),
        7 | 8 => world.deliver(a),
        9 if b == 0 => world.lose_all(),
        9 => world.lose(a),
        10 => world.double(u16::from_be_bytes([a, b])),
        11 => campaign(world, me, a),
        12 => world.restart(me),
        13 => {
            let bytes = vec![b; usize::from(a) * 16];
            world.command(me, Command::Note { to: other, bytes });
        }
        14 if a & 3 == 0 => world.command(me, Command::Leave),
        14 => world.write(me),
        _ => world.cut(me, other, a & 1 == 0),
    }
}

/// A datagram of theirs comes again, with one byte changed, or cut off there.
fn change(world: &mut World, which: u8, at: u16, byte: u8, cuts: bool) {
    let Some((from, to, mut bytes)) = world.said(usize::from(which)) else {
        return;
    };
    let at = usize::from(at) % bytes.len();
    bytes[at] = byte;
    if cuts {
        bytes.truncate(at);
    }
    wire::correct(GroupId::of(GROUP), &mut bytes);
    let bytes = &bytes;
    world.input(to, Input::Datagram { from, bytes });
}

fn ask(world: &mut World, me: NodeId, a: u8, b: u8) {
    let [(printer, _), (pool, _)] = locks();
    let ticket = world.new_ticket();
    world.command(
        me,
        Command::Acquire {
            ticket,
            lock: if a & 1 == 0 { printer } else { pool },
            spec: None,
            mode: match a & 6 {
                0 => Mode::Shared,
                _ => Mode::Exclusive,
            },
            wait: wait(b),
        },
    );
}

fn campaign(world: &mut World, me: NodeId, a: u8) {
    let [(lock, _), _] = locks();
    let ticket = world.new_ticket();
    let spec = LockSpec::exclusive(world.plan().algorithm);
    world.command(
        me,
        Command::Campaign {
            ticket,
            lock,
            spec,
            algorithm: None,
            wait: wait(a),
        },
    );
}

fn wait(how: u8) -> Wait {
    [Wait::Cancelled, Wait::Lease, Wait::Try][usize::from(how) % 3]
}

/// One of this member's, if it has any; and now and then one that is not.
fn ticket(world: &World, me: NodeId, which: u8) -> Option<Ticket> {
    if which == 0xff {
        return Some(Ticket(u64::MAX));
    }
    let tickets = world.ledger().tickets(me);
    let count = tickets.clone().count();
    tickets.clone().nth(usize::from(which) % count.max(1))
}
