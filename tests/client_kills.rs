//! A client of the host's agent that is killed between any two of the instructions by which it enters and
//! leaves a lent lock: the next holder comes in at once, with a higher fence, and is told if the client was
//! inside. The same of one that waits for its turn among others: they go on.
#![expect(unsafe_code, reason = "another process is single-stepped")]

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::env;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use allocations::{ASKED, asked};
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
/// Far more instructions than it takes to wait for a turn, to enter, and to leave.
const WAITING_STEPS: usize = 8_000;
/// More than there would be in that time of threads that nobody wakes.
const MANY: u64 = 40;
/// Sooner than any lease or patience that would end the wait otherwise.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A member that serves clients by that socket.
fn host() -> (Group, Agent, PathBuf) {
    let group = Group::new(1, "lease = \"2s\"");
    let socket = group.path().join("service");
    let agent = Agent::from_config(group.node(1).with_socket(&socket)).unwrap();
    (group, agent, socket)
}

#[test]
fn wherever_a_client_is_killed_the_next_one_enters() {
    if let Some(socket) = env::var_os(ROLE) {
        return enter_in_steps(Path::new(&socket));
    }
    let (_group, agent, socket) = host();
    let lock = agent.mutex("x").unwrap();
    // From then on the member's own threads have the lock open no more.
    let mut last = lock.lock().unwrap().fence();
    drop(lock);
    let stride = stride();
    let mut told = Vec::new();
    let mut again = 0;
    let mut steps = 0;
    loop {
        let killed = is_killed_after(steps, &socket, TO_ENTER, |_| ());
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

fn stride() -> usize {
    env::var(STRIDE).map_or(USUAL_STRIDE, |it| it.parse().unwrap())
}

/// Two clients take turns, each for a moment, while a third, which comes to wait for its own, is stopped, and
/// then killed.
#[test]
fn wherever_one_that_waits_is_killed_the_others_go_on() {
    if let Some(socket) = env::var_os(ROLE) {
        return enter_in_steps(Path::new(&socket));
    }
    let (_group, agent, socket) = host();
    let is_over = AtomicBool::new(false);
    let (inside, entries) = (AtomicBool::new(false), [(); 2].map(|()| AtomicU64::new(0)));
    thread::scope(|scope| {
        for entries in &entries {
            let agent = Agent::connect(&socket).unwrap();
            let (is_over, inside) = (&is_over, &inside);
            scope.spawn(move || {
                let lock = agent.mutex("x").unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let guard = lock.lock().unwrap();
                    assert!(!inside.swap(true, Ordering::Relaxed));
                    // The other one, and the third, come to wait meanwhile.
                    thread::sleep(Duration::from_micros(50));
                    assert!(inside.swap(false, Ordering::Relaxed));
                    drop(guard);
                    entries.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let goes_on = |entries: &AtomicU64, by: u64| {
            let before = entries.load(Ordering::Relaxed);
            (0..400).any(|_| {
                thread::sleep(AT_ONCE / 100);
                entries.load(Ordering::Relaxed) >= before + by
            })
        };
        // What it does wrong, if anything.
        let wrong = |steps| {
            let mut stands_still = false;
            is_killed_after(steps, &socket, TO_WAIT, |client| {
                let is_inside = || {
                    let status = agent.status().unwrap();
                    let mut holders = status.locks.iter().flat_map(|lock| &lock.holders);
                    holders.any(|holder| holder.pid == client)
                };
                // Whoever is inside, or is let in now, stays there. Whoever should call another does not.
                stands_still = !entries.iter().all(|its| goes_on(its, 1)) && !is_inside();
            });
            let is_forgotten = !entries.iter().all(|its| goes_on(its, MANY));
            (stands_still || is_forgotten).then_some((steps, stands_still, is_forgotten))
        };
        let wrong = (0..WAITING_STEPS).step_by(stride() * 7).find_map(wrong);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(
            wrong, None,
            "after so many instructions, while stopped, when killed"
        );
    });
}

/// From its entry until it has left, and at no other time, a client that was killed has abandoned the lock;
/// but for a few that took another way than the others: a loan was taken back just before the last of their
/// instructions, or somebody else wanted one of their words, and they tried again. On a busy machine there are
/// more of them, as a loan that is not used for ten milliseconds goes back.
fn assert_inside_once(told: &[bool]) {
    let (inside, strays) = most_likely_stay(told);
    assert!(strays <= 1 + inside.len() / 20, "{strays} of {told:?}");
    assert!(inside.start > 0 && inside.end < told.len(), "{told:?}");
}

#[test]
fn strays_do_not_hide_a_stay() {
    let told = |text: &str| text.chars().map(|it| it == 'i').collect::<Vec<_>>();
    for (text, stay, strays) in [
        ("..iii..", 2..5, 0),
        ("..iiii.iiii....i.", 2..11, 2),
        (".i....iiiiii...", 6..12, 1),
        ("iii", 0..3, 0),
    ] {
        assert_eq!(most_likely_stay(&told(text)), (stay, strays), "{text}");
    }
}

/// The stay inside from which the fewest are strays, and how many of them there are: by Kadane's algorithm, as
/// the fewest strays are where those inside outnumber those outside the most.
fn most_likely_stay(told: &[bool]) -> (Range<usize>, usize) {
    let (mut best, mut most) = (0..0, 0);
    let (mut begin, mut lead) = (0, 0);
    for (at, is_told) in told.iter().enumerate() {
        if lead <= 0 {
            (begin, lead) = (at, 0);
        }
        lead += if *is_told { 1 } else { -1 };
        if lead > most {
            (best, most) = (begin..at + 1, lead);
        }
    }
    assert!(!best.is_empty(), "it was never inside");
    let strays = told.iter().enumerate();
    let strays = strays
        .filter(|(at, is_told)| **is_told != best.contains(at))
        .count();
    (best, strays)
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

/// The tests, which the client that is killed is told.
const TO_ENTER: &str = "wherever_a_client_is_killed_the_next_one_enters";
const TO_WAIT: &str = "wherever_one_that_waits_is_killed_the_others_go_on";

/// A client of that test, killed after so many instructions on its way in and out. `stopped` is told its
/// process, which stands still by then.
fn is_killed_after(steps: usize, socket: &Path, test: &str, stopped: impl FnOnce(u32)) -> Killed {
    let mut client = Command::new(env::current_exe().unwrap())
        .args(["--exact", test])
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
    stopped(client.id());
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
    let asked_at = ASKED.with(|asked| asked.as_ptr().addr());
    // SAFETY: from now on the parent decides when this thread goes on.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), 0);
        println!("thread {} asked at {}", libc::gettid(), asked_at);
        libc::raise(libc::SIGSTOP);
    }
    drop(lock.lock().unwrap());
    // SAFETY: it is how the parent knows.
    unsafe { libc::raise(libc::SIGSTOP) };
    unreachable!("it is killed");
}
