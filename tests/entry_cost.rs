//! What it costs to enter a lock that the group lends to this process: counted, so that nothing slips in.
#![expect(
    unsafe_code,
    reason = "allocations are counted, and system calls are forbidden"
)]

#[path = "support/allocations.rs"]
mod allocations;
#[path = "support/instructions.rs"]
mod instructions;
mod support;

use std::fs;
use std::io::{Read, Write};
use std::pin::Pin;
use std::process::{Command, exit};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use allocations::asked;
use distlock::{Agent, DistMutex, Mutex};
use instructions::{instructions, is_counted};
use support::Group;

/// A group of one begins to work after some of these.
const LEASE: &str = "lease = \"200ms\"";

/// A process that enters a lent lock where the kernel kills whoever makes a system call.
const ROLE: &str = "DISTLOCK_TEST_ENTERS_ALONE";
const PAIRS: usize = 50;
/// Now and then the agent takes a loan back in the midst of it: then the thread has to do more.
const TRIES: usize = 10;

fn enter_often(lock: &Mutex, times: usize) {
    for entry in 0..times {
        let guard = lock.lock().unwrap();
        match entry % 2 {
            0 => drop(guard),
            _ => guard.unlock().unwrap(),
        }
    }
}

/// A lock that is lent, and that nobody has waited for lately: for a millisecond after that, whoever
/// leaves looks at the sockets.
fn lent(agent: &Agent) -> Mutex {
    let lock = agent.mutex("x").unwrap();
    enter_often(&lock, 100);
    thread::sleep(Duration::from_millis(5));
    lock
}

#[test]
fn an_entry_asks_for_no_memory() {
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let lock = lent(&agent);
    let least = (0..TRIES).map(|_| {
        let before = asked();
        enter_often(&lock, PAIRS);
        asked() - before
    });
    assert_eq!(least.min(), Some(0));
}

/// What an entry takes at most, with its end, besides reading the clock: what it was on 27 November 2026
/// by rustc 1.95 on x86-64, and a twentieth, or, where the compiler does not optimize, a fifth.
const INSTRUCTIONS: u64 = if cfg!(debug_assertions) { 3200 } else { 385 };

#[inline(never)]
fn enter_and_count(lock: &Mutex) {
    for _ in 0..PAIRS {
        drop(lock.lock().unwrap());
    }
}

#[test]
fn an_entry_is_few_instructions() {
    if is_counted() {
        // Under valgrind all is slow.
        let group = Group::new(1, "lease = \"5s\"");
        let agent = group.member(1);
        let lock = lent(&agent);
        return enter_and_count(&lock);
    }
    let test = "an_entry_is_few_instructions";
    let counted = (0..3).filter_map(|_| instructions(test, "enter_and_count"));
    if let Some(least) = counted.min() {
        instructions::expect(least / PAIRS as u64, INSTRUCTIONS);
    }
}

/// The same for a task: the future keeps the handle and the agent for as long as it lives.
const TASKS_INSTRUCTIONS: u64 = if cfg!(debug_assertions) { 4700 } else { 540 };

fn enter_by_future(lock: &Mutex) {
    let mut entering = lock.lock_async();
    let entered = Pin::new(&mut entering).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(entered, Poll::Ready(Ok(_))));
}

#[inline(never)]
fn enter_by_future_and_count(lock: &Mutex) {
    for _ in 0..PAIRS {
        enter_by_future(lock);
    }
}

#[test]
fn a_tasks_entry_is_few_instructions_and_no_memory() {
    if is_counted() {
        let group = Group::new(1, "lease = \"5s\"");
        let agent = group.member(1);
        let lock = lent(&agent);
        return enter_by_future_and_count(&lock);
    }
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let lock = lent(&agent);
    let least = (0..TRIES).map(|_| {
        let before = asked();
        enter_by_future_and_count(&lock);
        asked() - before
    });
    assert_eq!(least.min(), Some(0));
    let test = "a_tasks_entry_is_few_instructions_and_no_memory";
    let counted = (0..3).filter_map(|_| instructions(test, "enter_by_future_and_count"));
    if let Some(least) = counted.min() {
        instructions::expect(least / PAIRS as u64, TASKS_INSTRUCTIONS);
    }
}

#[test]
fn an_entry_makes_no_system_call() {
    if std::env::var_os(ROLE).is_some() {
        enter_alone();
    }
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(source).unwrap_or_default();
    if !["tsc", "kvm-clock", "arch_sys_counter"].contains(&source.trim()) {
        println!(
            "SKIPPED: to read the clock is a system call here ({})",
            source.trim()
        );
        return;
    }
    let is_allowed = (0..TRIES).any(|_| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let again = again.args(["--exact", "an_entry_makes_no_system_call", "--nocapture"]);
        again.env(ROLE, "1").status().unwrap().success()
    });
    assert!(
        is_allowed,
        "a thread that entered a lent lock was killed for a system call"
    );
}

/// From now on a system call of this thread that is not write(2) ends the process.
fn forbid_system_calls() {
    const WHATEVER: u8 = 0;
    let step = |code: u32, k, [then, otherwise]: [u8; 2]| libc::sock_filter {
        code: u16::try_from(code).expect("codes are short"),
        jt: then,
        jf: otherwise,
        k,
    };
    let number = u32::try_from(libc::SYS_write).expect("numbers are small");
    let returns = |what| step(libc::BPF_RET | libc::BPF_K, what, [WHATEVER; 2]);
    let mut steps = [
        // The first word of what is looked at is the call's number.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, [WHATEVER; 2]),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, [0, 1]),
        returns(libc::SECCOMP_RET_ALLOW),
        returns(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: both change what this thread may do; the filter is read while the call lasts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

fn enter_alone() -> ! {
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let lock = lent(&agent);
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    thread::spawn(move || {
        enter_often(&lock, PAIRS);
        forbid_system_calls();
        enter_often(&lock, PAIRS);
        writer.write_all(&[1]).unwrap();
        // It may not even end.
        loop {
            std::hint::spin_loop();
        }
    });
    reader.read_exact(&mut [0]).unwrap();
    exit(0)
}
