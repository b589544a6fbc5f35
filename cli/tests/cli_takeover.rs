//! How long which locks stop when an agent is killed, by the default algorithm: doc/manager.md says it.

mod cli_support;

use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group};
use cli_support::{Process, eventually, exits, spawn};
use distlock::{Agent, DistMutex, Mutex, PreviousOwner};
use nix::sys::signal::Signal;

/// Long, so that a busy machine does not take a lock that goes on for one that waits.
const LEASE: Duration = Duration::from_secs(4);
/// A lock goes on if it is entered within that.
const AT_ONCE: Duration = Duration::from_millis(LEASE.as_millis() as u64 / 4);
/// A lock that waits for the lease is free no earlier: the lease was renewed a fifth of it before, at most.
const BEFORE_LEASE: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 4 / 5);
/// With what clocks may differ, and a view that comes late. A lock that waits for the view alone is free
/// half a lease after the death where nothing else is to do; that it did not wait for the lease is known
/// by what its holder is told.
const AFTER_LEASE: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 7 / 4);

/// The member whose agent is killed. It is not the first, at which new locks are declared.
const LOST: usize = 3;
/// Who manages the locks, and who is their custodian, in a group of four (the protocol's `placement.rs`
/// has it, too): 1 and 2, 3 and 2, 1 and 3.
const LOCKS: [&str; 3] = [OF_OTHERS, MANAGED, IN_CUSTODY];
const OF_OTHERS: &str = "z";
const MANAGED: &str = "shelf";
const IN_CUSTODY: &str = "oven";

/// Four agents, whose locks were used before, and not just now: nothing is lent.
struct World {
    group: Group,
    agents: Vec<AgentProcess>,
}

impl World {
    fn new() -> Self {
        let group = Group::unix(4);
        group.write_config("group.toml", LEASE.as_millis() as u64);
        let agents = group.agents(4);
        for lock in LOCKS {
            exits(group.client(4, ["run", lock, "true"]), 0);
        }
        Self { group, agents }
    }

    fn lock(&self, member: usize, lock: &str) -> Mutex {
        let agent = Agent::connect(self.group.socket(member)).expect("an agent");
        agent.mutex(lock).expect("a name")
    }

    fn epochs(&self) -> [Option<u64>; 3] {
        [1, 2, 4].map(|member| self.group.status(member)["epoch"].as_u64())
    }

    /// Kills the agent, and says when.
    fn kill(&mut self) -> SystemTime {
        let lost = self.agents.remove(LOST - 1);
        let killed = SystemTime::now();
        lost.end_by(Signal::SIGKILL);
        killed
    }

    fn await_view_after(&self, before: [Option<u64>; 3]) {
        eventually("the others are in a view without it", || {
            let epochs = self.epochs();
            epochs.iter().zip(before).all(|(now, before)| *now > before)
        });
    }
}

/// Enters, and says how long after `since` that was, and what is told of the holder before.
fn enters(mutex: &Mutex, since: SystemTime) -> (Duration, PreviousOwner) {
    let guard = mutex.lock().expect("a guard");
    let took = since.elapsed().expect("time goes on");
    (took, guard.previous_owner())
}

#[track_caller]
fn goes_on(what: &str, (took, told): (Duration, PreviousOwner)) {
    println!("{what}: {took:.2?}");
    assert!(took < AT_ONCE, "{what}: {took:?}");
    assert_eq!(told, PreviousOwner::Clean, "{what}");
}

#[track_caller]
fn waits_for_view(what: &str, (took, told): (Duration, PreviousOwner)) {
    println!("{what}: {took:.2?}");
    assert!(took > AT_ONCE && took < AFTER_LEASE, "{what}: {took:?}");
    assert_eq!(told, PreviousOwner::Clean, "{what}");
}

/// Who comes next cannot be told that the lost member was not inside.
#[track_caller]
fn waits_for_lease(what: &str, (took, told): (Duration, PreviousOwner)) {
    println!("{what}: {took:.2?}");
    assert!(
        took > BEFORE_LEASE && took < AFTER_LEASE,
        "{what}: {took:?}"
    );
    assert_eq!(told, PreviousOwner::Abandoned, "{what}");
}

/// Of one that has nothing to do with the lock nobody notices; where it was the manager, or has the
/// manager's right to enter, the next view is waited for, and no lease.
#[test]
fn of_an_idle_member_only_what_it_manages_waits_for_the_view() {
    let mut world = World::new();
    let [others, managed, in_custody] = LOCKS.map(|lock| world.lock(4, lock));
    let of_manager = world.lock(1, IN_CUSTODY);
    let killed = world.kill();
    goes_on("a lock of others", enters(&others, killed));
    goes_on("in its custody", enters(&in_custody, killed));
    thread::scope(|scope| {
        let managed = scope.spawn(|| enters(&managed, killed));
        let of_manager = scope.spawn(|| enters(&of_manager, killed));
        // Also while the view changes.
        while !managed.is_finished() || !of_manager.is_finished() {
            let asked = SystemTime::now();
            let (took, _) = enters(&others, asked);
            assert!(took < AT_ONCE, "a lock of others: {took:?}");
            thread::sleep(Duration::from_millis(20));
        }
        waits_for_view("managed by it", managed.join().expect("no panic"));
        waits_for_view(
            "in its custody, for its manager",
            of_manager.join().expect("no panic"),
        );
    });
}

/// Nobody can know that it was not inside.
#[test]
fn what_is_lent_to_an_idle_member_waits_for_its_lease() {
    let mut world = World::new();
    let [others, managed] = [OF_OTHERS, MANAGED].map(|lock| world.lock(4, lock));
    let another = world.lock(4, "another");
    drop(another.lock().expect("a guard"));
    // The longer it takes until the member enters again, the longer it may keep what it is lent.
    let borrower = world.lock(LOST, OF_OTHERS);
    for pause in [10, 20, 40, 80, 120] {
        for _ in 0..8 {
            drop(borrower.lock().expect("a guard"));
            thread::sleep(Duration::from_millis(pause));
        }
    }
    drop(borrower.lock().expect("a guard"));
    let killed = world.kill();
    goes_on("another lock", enters(&another, killed));
    thread::scope(|scope| {
        let lent = scope.spawn(|| enters(&others, killed));
        waits_for_view("managed by it", enters(&managed, killed));
        waits_for_lease("lent to it", lent.join().expect("no panic"));
    });
}

/// A lock with a holder, and the next in line is killed. Where the holder stays until the view is there,
/// the lock goes on; else the token is on its way to the dead.
#[test]
fn the_next_in_line_is_skipped_unless_the_token_went_to_it() {
    for stays in [true, false] {
        let mut world = World::new();
        let holder = world.group.hold(2, OF_OTHERS);
        let mut next = world.group.client(LOST, ["run", OF_OTHERS, "true"]);
        let _next = Process(spawn(next.stderr(Stdio::null())));
        eventually("it waits", || {
            let locks = world.group.status(2)["locks"].take();
            let mut locks = locks.as_array().expect("a list").iter();
            locks.any(|lock| lock["waiters"][0]["member"] == LOST)
        });
        let third = world.lock(4, OF_OTHERS);
        let epochs = world.epochs();
        let mut from = world.kill();
        if stays {
            world.await_view_after(epochs);
            from = SystemTime::now();
        }
        holder.let_go();
        let took = enters(&third, from);
        match stays {
            true => goes_on("behind the next in line", took),
            false => waits_for_lease("with the token on its way", took),
        }
    }
}
