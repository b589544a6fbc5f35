//! A program whose threads contend for locks forks; each child, with threads of its own, opens an
//! agent of its own and enters. Whatever another thread of the parent held at the fork stays held
//! in the child for ever: nothing that the child needs may be among it.
//!
//! `DISTLOCK_TEST_FORKS` says how many children there are.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use distlock::{Agent, Config, DistMutex, NodeConfig};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use tempfile::TempDir;

/// Threads of the parent that contend, and locks that they contend for.
const CONTENDERS: usize = 8;
const LOCKS: usize = 2;
/// Threads of each child, and how often each of them enters.
const THREADS: usize = 4;
const ENTRIES: usize = 5;
/// A child that takes longer hangs: the others take some milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// After so many children that hung there is no need to see more.
const ENOUGH: usize = 5;

/// What became of the children.
#[derive(Debug, Default, PartialEq, Eq)]
struct Children {
    well: usize,
    hung: usize,
    /// How the others ended.
    failed: Vec<String>,
}

impl fmt::Display for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { well, hung, failed } = self;
        let count = well + hung + failed.len();
        write!(
            f,
            "of {count} children {hung} hung, and {} failed",
            failed.len()
        )?;
        if !failed.is_empty() {
            write!(f, ": {}", failed.join("; "))?;
        }
        Ok(())
    }
}

fn count(usual: usize) -> usize {
    std::env::var("DISTLOCK_TEST_FORKS").map_or(usual, |count| count.parse().unwrap())
}

/// Forks again and again while threads contend through `agent`. Each child, by its number, opens an
/// agent of its own with `open`.
fn fork_under_contention(count: usize, agent: &Agent, open: impl Fn(usize) -> Agent) {
    let is_over = AtomicBool::new(false);
    let mut children = Children::default();
    thread::scope(|scope| {
        for number in 0..CONTENDERS {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let lock = agent.mutex(format!("parent {}", number % LOCKS)).unwrap();
                    drop(lock.lock().unwrap());
                }
            });
        }
        for number in 0..count {
            // So this very thread has been in the queues, too.
            drop(agent.mutex("parent 0").unwrap().lock().unwrap());
            await_child(
                start_child(|| be_child(agent, &open(number))),
                &mut children,
            );
            if children.hung == ENOUGH {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{children}");
    assert_eq!((children.hung, children.failed.len()), (0, 0), "{children}");
    assert_eq!(children.well, count);
}

/// Forks; the child does `body` and ends, with 1 if that panics.
fn start_child(body: impl FnOnce()) -> Pid {
    #[expect(unsafe_code, reason = "fork is what is tested")]
    // SAFETY: what the child does is what the library promises to work there.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let code = i32::from(catch_unwind(AssertUnwindSafe(body)).is_err());
            #[expect(
                unsafe_code,
                reason = "nothing of the test runner may run in the child"
            )]
            // SAFETY: `_exit` takes no locks and does not return.
            unsafe {
                libc::_exit(code)
            }
        }
    }
}

/// What a child does: its threads contend for a lock of its own, and one enters one of its parent's.
fn be_child(inherited: &Agent, own: &Agent) {
    assert!(inherited.is_forked() && !own.is_forked());
    assert!(inherited.mutex("parent 0").is_err(), "it is the parent's");
    let lock = own.mutex(format!("of {}", std::process::id())).unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let lock = lock.clone();
            scope.spawn(move || (0..ENTRIES).for_each(|_| lock.lock().unwrap().unlock().unwrap()));
        }
    });
    let shared = own.mutex("parent 1").unwrap();
    shared.lock().unwrap().unlock().unwrap();
    own.close();
}

/// Counts what becomes of `child`.
fn await_child(child: Pid, children: &mut Children) {
    let started = SystemTime::now();
    let ended = loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive if started.elapsed().is_ok_and(|took| took > PATIENCE) => {
                kill(child, Signal::SIGKILL).unwrap();
                waitpid(child, None).unwrap();
                children.hung += 1;
                return;
            }
            WaitStatus::StillAlive => thread::sleep(Duration::from_millis(1)),
            ended => break ended,
        }
    };
    match ended {
        WaitStatus::Exited(_, 0) => children.well += 1,
        other => children.failed.push(format!("{other:?}")),
    }
}

#[test]
fn children_open_the_local_group() {
    let directory = tempfile::tempdir().unwrap();
    let open = |_| Agent::local_in(directory.path()).unwrap();
    fork_under_contention(count(400), &open(0), open);
}

#[test]
fn children_become_clients_of_an_agent() {
    let directory = directory();
    let socket = directory.path().join("service");
    let member = Agent::from_config(member(&directory, 0).with_socket(&socket)).unwrap();
    let open = |_| Agent::connect(&socket).unwrap();
    fork_under_contention(count(400), &open(0), open);
    member.close();
}

#[test]
fn children_become_members() {
    let directory = directory();
    // Each of a group of its own, whose views it decides on alone.
    let open = |number| Agent::from_config(member(&directory, number)).unwrap();
    fork_under_contention(count(100), &open(0), |number| open(number + 1));
}

/// Short enough for addresses of Unix sockets.
fn directory() -> TempDir {
    tempfile::Builder::new().prefix("dl").tempdir().unwrap()
}

/// The only member of group `number`. However busy the machine is, it has no lease to lose.
fn member(directory: &TempDir, number: usize) -> NodeConfig {
    let path = directory.path();
    let text = format!(
        "failure = \"presume-failed\"\n\
         [group]\nname = \"{number}\"\n\
         [[member]]\nid = 1\naddress = \"unix:{}/{number}\"\n",
        path.display()
    );
    let config = Config::parse(&text).unwrap();
    let state = path.join(format!("state-{number}"));
    config.node(1).unwrap().with_state_dir(state)
}
