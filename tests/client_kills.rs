//! A client of the host's agent that is killed between any two of the instructions by which it enters and
//! leaves a lent lock: the next holder comes in at once, with a higher fence, and is told if the client was
//! inside.
#![expect(unsafe_code, reason = "another process is single-stepped")]

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use allocations::{asked, asked_at};
use distlock::{Agent, DistMutex, PreviousOwner};
use nix::errno::Errno;
use support::Group;

/// The socket, in the process that is killed.
const ROLE: &str = "DISTLOCK_TEST_IS_KILLED";
/// After how many instructions more the next is killed. It shares no factor with how many a loop may
/// have.
const STRIDE: &str = "DISTLOCK_TEST_KILL_STRIDE";
/// Every instruction in some minutes; in continuous integration some hundreds of them.
const USUAL_STRIDE: usize = 17;
/// How often in a row the lock may have been taken back from the client that is to be killed, as it is
/// when this machine is busy.
const AGAIN: usize = 100;
/// Sooner than any lease or patience that would end the wait otherwise.
const AT_ONCE: Duration = Duration::from_millis(500);

#[test]
fn wherever_a_client_is_killed_the_next_one_enters() {
    if let Some(socket) = env::var_os(ROLE) {
        return enter_in_steps(Path::new(&socket));
    }
    let group = Group::new(1, "lease = \"2s\"");
    let socket = group.path().join("service");
    let agent = Agent::from_config(group.node(1).with_socket(&socket)).unwrap();
    let lock = agent.mutex("x").unwrap();
    // From then on the member's own threads have the lock open no more.
    let mut last = lock.lock().unwrap().fence();
    drop(lock);
    let stride = env::var(STRIDE).map_or(USUAL_STRIDE, |it| it.parse().unwrap());
    let mut told = Vec::new();
    let mut again = 0;
    let mut steps = 0;
    loop {
        let killed = is_killed_after(steps, &socket);
        let lock = agent.mutex("x").unwrap();
        let guard = lock.try_lock_for(AT_ONCE);
        let guard = guard.unwrap_or_else(|error| panic!("{steps}: {error}"));
        assert!(guard.fence() > last, "{steps}");
        last = guard.fence();
        let is_told = guard.previous_owner() == PreviousOwner::Abandoned;
        drop(guard);
        match killed {
            Killed::Asking if again < AGAIN => again += 1,
            Killed::Asking => panic!("{steps}: the lock was taken back {again} times in a row"),
            Killed::Entering | Killed::Out => {
                told.push(is_told);
                (again, steps) = (0, steps + stride);
            }
        }
        if killed == Killed::Out {
            println!("{steps} instructions");
            return assert_inside_once(&told);
        }
    }
}

/// From its entry until it has left, and at no other time, a client that was killed has abandoned the lock;
/// but for one or two whose loan was taken back just before the last of their instructions.
fn assert_inside_once(told: &[bool]) {
    let is_told = |it: &bool| *it;
    let first = told.iter().position(is_told).expect("it was never inside");
    let last = told.iter().rposition(is_told).expect("it was inside");
    let inside = &told[first..=last];
    let wrong = inside.iter().filter(|it| !**it).count();
    assert!(wrong <= 1 + inside.len() / 100, "{wrong} of {told:?}");
    assert!(first > 0 && last + 1 < told.len(), "{told:?}");
}

/// Where a client was when it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    /// On its way in and out, by the loan.
    Entering,
    /// Out again.
    Out,
    /// On a longer way: the lock was lent no more when it wanted to enter, and it asked the agent.
    Asking,
}

/// A client, killed after so many instructions on its way in and out.
fn is_killed_after(steps: usize, socket: &Path) -> Killed {
    let mut client = Command::new(env::current_exe().unwrap())
        .args(["--exact", "wherever_a_client_is_killed_the_next_one_enters"])
        .arg("--nocapture")
        .env(ROLE, socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (thread, asked_at) = stopped_thread(&mut client);
    let before = peek(thread, asked_at);
    let has_left = (0..steps).any(|_| step(thread) == libc::SIGSTOP);
    // Only a client that asks the agent asks for memory.
    let has_asked = peek(thread, asked_at) != before;
    client.kill().unwrap();
    // Whoever traces a thread has to take note of its end.
    let ended = wait_for(thread);
    assert!(libc::WIFSIGNALED(ended), "{ended:#x}");
    let status = client.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    match (has_asked, has_left) {
        (true, _) => Killed::Asking,
        (false, true) => Killed::Out,
        (false, false) => Killed::Entering,
    }
}

/// The client's thread, once it has stopped where its steps begin, and where the number stands of how
/// often it has asked for memory.
fn stopped_thread(client: &mut Child) -> (i32, usize) {
    let output = BufReader::new(client.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    let told = lines.find_map(|line| {
        let (thread, at) = line.rsplit_once("thread ")?.1.split_once(" asked at ")?;
        Some((thread.parse().ok()?, at.parse().ok()?))
    });
    let (thread, asked_at) = told.expect("it says which thread it is");
    assert_eq!(signal_of(thread), libc::SIGSTOP);
    (thread, asked_at)
}

/// The word that stands at `at` in the memory of a stopped thread.
fn peek(thread: i32, at: usize) -> i64 {
    Errno::clear();
    // SAFETY: it reads another process's memory, and changes nothing.
    let word = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, thread, at, 0) };
    assert!(word != -1, "{}", Errno::last());
    word
}

/// Has the thread make one step; the signal that it stops with.
fn step(thread: i32) -> i32 {
    // SAFETY: it changes nothing in this process.
    let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, 0, 0) };
    Errno::result(stepped).unwrap();
    signal_of(thread)
}

fn signal_of(thread: i32) -> i32 {
    let status = wait_for(thread);
    assert!(libc::WIFSTOPPED(status), "{status:#x}");
    libc::WSTOPSIG(status)
}

fn wait_for(thread: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is written while the call lasts.
    let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert_eq!(Errno::result(waited), Ok(thread));
    status
}

/// Enters and leaves a lock that is lent, between two stops.
fn enter_in_steps(socket: &Path) {
    let agent = Agent::connect(socket).unwrap();
    let lock = agent.mutex("x").unwrap();
    // It is lent after a few entries: then one asks for no memory.
    let is_by_loan = |_| {
        let before = asked();
        drop(lock.lock().unwrap());
        asked() == before
    };
    assert!((0..1_000).any(is_by_loan), "the lock was never lent");
    // SAFETY: from now on the parent decides when this thread goes on.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), 0);
        println!("thread {} asked at {}", libc::gettid(), asked_at());
        libc::raise(libc::SIGSTOP);
    }
    drop(lock.lock().unwrap());
    // SAFETY: it is how the parent knows.
    unsafe { libc::raise(libc::SIGSTOP) };
    unreachable!("it is killed");
}
