//! `distlock run` and signals: forwarded, ended by them, killed from every side.

mod cli_support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use cli_support::{Holder, Local, eventually, is_running, pid_of, shell_code, spawn};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A command that says which signals it gets, and ends with 3 when the file `$FLAG` is gone. Its
/// shell looks for signals whenever a short sleep ends, at latest.
const LISTENER: &str = r#"
    for s in HUP INT QUIT USR1 USR2 TERM ALRM WINCH; do trap "echo $s" $s; done
    trap "echo RT" 40
    echo in
    while [ -e "$FLAG" ]; do sleep 0.02; done 2>/dev/null
    exit 3"#;

#[test]
fn signals_are_forwarded_and_the_command_decides() {
    let group = Local::new();
    let flag = group.file("flag");
    fs::write(&flag, "").expect("a file");
    let mut command = group.distlock(["run", "x", "--", "bash", "-c", LISTENER]);
    command.env("FLAG", &flag);
    let mut holder = Holder::start(command);
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTERM,
        Signal::SIGALRM,
        Signal::SIGWINCH,
    ] {
        holder.signal(signal);
        assert_eq!(holder.line(), signal.as_str().trim_start_matches("SIG"));
    }
    let sent = std::process::Command::new("kill")
        .args(["-40", &holder.child.id().to_string()])
        .status();
    assert!(sent.expect("kill(1)").success());
    assert_eq!(holder.line(), "RT");
    fs::remove_file(flag).expect("it is there");
    assert_eq!(holder.wait().code(), Some(3));
}

#[test]
fn a_signal_reaches_the_whole_process_group() {
    let group = Local::new();
    let script = "trap 'wait; exit 7' TERM; \
                  sh -c 'trap \"echo child; exit\" TERM; echo in; while :; do sleep 0.01; done' & \
                  wait; exit 8";
    let mut holder = Holder::start(group.distlock(["run", "x", "--", "sh", "-c", script]));
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.line(), "child");
    assert_eq!(holder.wait().code(), Some(7));
}

#[test]
fn term_ends_the_command_that_does_not_mind() {
    let group = Local::new();
    let holder = Holder::start(group.distlock(["run", "x", "-c", "echo in; exec sleep 600"]));
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.wait().code(), Some(128 + 15));
    assert_eq!(group.run(["-n", "x", "true"]), Some(0));
}

#[test]
fn a_signal_ends_the_waiting_at_once() {
    let group = Local::new();
    let holder = group.hold("x");
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGKILL,
    ] {
        for limit in [&[][..], &["-w", "600"]] {
            let mut command = group.distlock(["run"]);
            let mut waiter = spawn(command.args(limit).args(["x", "echo", "never"]));
            group.await_waiter("x", &waiter);
            kill(pid_of(&waiter), signal).expect("it is there");
            let status = waiter.wait().expect("it ends");
            assert_eq!(
                status.signal(),
                Some(signal as i32),
                "the caller sees what ended it"
            );
            assert_eq!(shell_code(status), 128 + signal as i32);
        }
    }
    holder.let_go();
    assert_eq!(group.run(["-n", "x", "true"]), Some(0), "no waiter is left");
}

#[test]
fn the_command_dies_with_its_runner_and_then_the_lock_is_free() {
    let group = Local::new();
    let script = "trap '' TERM HUP INT; echo in; echo $$; while :; do read line; done";
    for _ in 0..10 {
        let mut holder = Holder::start(group.distlock(["run", "x", "--", "sh", "-c", script]));
        let command: i32 = holder.line().parse().expect("a pid");
        // Enters as soon as it can, and looks whether the command is still there: 1 says that it
        // is not.
        let look = format!(
            "kill -0 {command} && grep -q '^State:.[^ZX]' /proc/{command}/status && exit 0; exit 1"
        );
        let mut next = group.distlock(["run", "x", "--", "sh", "-c", &look]);
        let mut next = next.stderr(Stdio::null()).spawn().expect("it starts");
        group.await_waiter("x", &next);
        holder.signal(Signal::SIGKILL);
        assert_eq!(
            next.wait().expect("it ends").code(),
            Some(1),
            "the command outlived its lock, or the lock was not had"
        );
        eventually("the command is gone", || !is_running(command));
        assert_eq!(holder.wait().signal(), Some(9));
    }
}

#[test]
fn a_stopped_runner_keeps_its_lock() {
    let group = Local::new();
    let holder = group.hold("x");
    holder.signal(Signal::SIGSTOP);
    assert_eq!(group.run(["-w", "0.2", "x", "true"]), Some(1));
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.let_go().code(), Some(3));
}

#[test]
fn a_killed_command_is_told_and_leaves_no_zombie() {
    let group = Local::new();
    let script = "echo in; echo $$; read line";
    let mut holder = Holder::start(group.distlock(["run", "x", "--", "sh", "-c", script]));
    let command: i32 = holder.line().parse().expect("a pid");
    kill(Pid::from_raw(command), Signal::SIGKILL).expect("it is there");
    assert_eq!(holder.wait().code(), Some(128 + 9));
    assert!(
        !fs::exists(format!("/proc/{command}")).expect("proc"),
        "it was waited for"
    );
    assert_eq!(group.run(["-n", "x", "true"]), Some(0));
}

#[test]
fn a_stopped_command_holds_on_and_can_be_continued() {
    let group = Local::new();
    let script = "echo in; echo $$; read line; exit 3";
    let mut holder = Holder::start(group.distlock(["run", "x", "--", "sh", "-c", script]));
    let command = Pid::from_raw(holder.line().parse().expect("a pid"));
    let state = || fs::read_to_string(format!("/proc/{command}/status")).expect("its status");
    killpg(command, Signal::SIGSTOP).expect("it is there");
    eventually("the command is stopped", || state().contains("State:\tT"));
    assert_eq!(group.run(["-n", "x", "true"]), Some(1));
    // Whoever continues the runner continues the command.
    holder.signal(Signal::SIGCONT);
    eventually("the command goes on", || !state().contains("State:\tT"));
    assert_eq!(holder.let_go().code(), Some(3));
}
