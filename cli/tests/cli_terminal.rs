//! `distlock run` at a terminal: turns between two of them, the foreground, the keys.

mod cli_support;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use cli_support::group::Group;
use cli_support::{Local, TerminalSession, eventually, output, pid_of, stderr};
use nix::sys::signal::{Signal, kill};

/// A new terminal with an interactive shell in it, for which `distlock` is the program under test.
fn terminal(group: &Local) -> TerminalSession {
    let mut command = Command::new("script");
    command.args([
        "-qec",
        "bash --norc --noprofile --noediting -i",
        "/dev/null",
    ]);
    command
        .env("DISTLOCK_DIR", group.group())
        .env("PS1", "")
        .env("TERM", "dumb");
    command
        .env("DISTLOCK", env!("CARGO_BIN_EXE_distlock"))
        .env("HISTFILE", "");
    let mut session = TerminalSession::start(command);
    session.type_keys("stty -echo; echo re''ady\n");
    session.await_text("ready");
    session
}

#[test]
fn two_terminals_take_turns() {
    let group = Local::new();
    let log = group.file("log");
    let mut terminals = [terminal(&group), terminal(&group)];
    for (number, terminal) in terminals.iter_mut().enumerate() {
        let log = log.display();
        terminal.type_keys(&format!(
            "for i in 1 2 3; do $DISTLOCK run x -- sh -c \
             'echo in {number} >> {log}; sleep 0.1; echo out {number} >> {log}'; done; \
             echo do''ne\n"
        ));
    }
    for mut terminal in terminals {
        terminal.await_text("done");
        terminal.close();
    }
    let log = fs::read_to_string(log).expect("a log");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 12, "{log}");
    for turn in lines.chunks(2) {
        let (inside, outside) = (turn[0].strip_prefix("in "), turn[1].strip_prefix("out "));
        assert!(inside.is_some() && inside == outside, "{log}");
    }
}

#[test]
fn the_command_has_the_foreground_and_the_shell_has_it_back() {
    let group = Local::new();
    let mut terminal = terminal(&group);
    // The fields pgrp and tpgid of /proc/PID/stat: the command's group is the foreground.
    terminal.type_keys(
        "$DISTLOCK run x -- sh -c 'read p c s pp g se tt fg rest < /proc/$$/stat; \
         [ $p = $g ] && [ $g = $fg ] && echo fore''ground'\n",
    );
    terminal.await_text("foreground");
    // It can read from the terminal.
    terminal.type_keys("$DISTLOCK run x -- sh -c 'read line; echo \"got $line\"'\n");
    terminal.type_keys("words\n");
    terminal.await_text("got words");
    // A command that is not found leaves the terminal as it was.
    terminal.type_keys("$DISTLOCK run x -- /no/such/command; echo \"code $?\"\n");
    terminal.await_text("code 127");
    terminal.type_keys("read line; echo \"shell got $line\"\n");
    terminal.type_keys("more\n");
    terminal.await_text("shell got more");
    terminal.close();
}

#[test]
fn the_interrupt_key_ends_the_command_and_the_shells_loop() {
    let group = Local::new();
    let mut terminal = terminal(&group);
    terminal.type_keys(
        "for i in 1 2 3; do $DISTLOCK run x -- sh -c 'echo turn'\" $i\"'; exec sleep 600'; done\n",
    );
    terminal.await_text("turn 1");
    eventually("the command has the terminal", || {
        group.run(["-n", "x", "true"]) == Some(1)
    });
    terminal.type_keys("\x03");
    terminal.type_keys("echo \"code $?\"\n");
    terminal.await_text("code 130");
    assert_eq!(group.run(["-n", "x", "true"]), Some(0));
    terminal.close();
}

#[test]
fn the_suspend_key_stops_the_job_and_fg_goes_on() {
    let group = Local::new();
    let mut terminal = terminal(&group);
    terminal.type_keys(
        "$DISTLOCK run x -- sh -c 'echo ins''ide; read line; echo \"got $line\"; exit 5'\n",
    );
    terminal.await_text("inside");
    terminal.type_keys("\x1a");
    terminal.await_text("Stopped");
    assert_eq!(
        group.run(["-n", "x", "true"]),
        Some(1),
        "a stopped holder keeps its lock"
    );
    terminal.type_keys("echo she''ll\n");
    terminal.await_text("shell");
    // In the background it stops again when it reads, and the shell is told.
    terminal.type_keys("bg; until jobs %1 | grep -q Stopped; do sleep 0.01; done; echo aga''in\n");
    terminal.await_text("again");
    terminal.type_keys("fg; echo \"code $?\"\n");
    terminal.await_text("$DISTLOCK run");
    terminal.type_keys("words\n");
    terminal.await_text("got words");
    terminal.await_text("code 5");
    assert_eq!(group.run(["-n", "x", "true"]), Some(0));
    terminal.close();
}

#[test]
fn without_a_shell_the_suspend_key_stops_nothing() {
    let group = Local::new();
    let mut command = Command::new("script");
    let line = "exec $DISTLOCK run x -- sh -c 'echo ins''ide; read line; echo \"got $line\"'";
    command
        .args(["-qec", line, "/dev/null"])
        .env("DISTLOCK", env!("CARGO_BIN_EXE_distlock"));
    command.env("DISTLOCK_DIR", group.group());
    let mut terminal = TerminalSession::start(command);
    terminal.await_text("inside");
    terminal.type_keys("\x1a");
    terminal.await_text("^Z");
    terminal.type_keys("words\n");
    terminal.await_text("got words");
}

#[test]
fn a_background_job_does_not_take_the_terminal() {
    let group = Local::new();
    let mut terminal = terminal(&group);
    terminal.type_keys("$DISTLOCK run x -- sh -c 'read line; echo \"got $line\"' &\n");
    terminal.type_keys("wait -n; read line; echo \"shell got $line\"\n");
    terminal.type_keys("mine\n");
    terminal.await_text("shell got mine");
    terminal.type_keys("fg; echo \"code $?\"\n");
    terminal.type_keys("yours\n");
    terminal.await_text("got yours");
    terminal.await_text("code 0");
    terminal.close();
}

/// Nobody who reads a file or a pipe is told so: that is for people.
#[test]
fn who_waits_at_a_terminal_is_told_for_what() {
    let group = Local::new();
    let holder = group.hold("x");
    let mut terminal = terminal(&group);
    terminal.type_keys("$DISTLOCK run x -- echo tu''rn\n");
    terminal.await_text("distlock: waiting for 'x', held for ");
    terminal.await_text("(sh); place 1 of 1 in line");
    let mut silent = group.distlock(["run", "-w", "2", "x", "--", "true"]);
    let said = stderr(&output(&mut silent));
    assert!(!said.contains("waiting for"), "{said}");
    holder.let_go();
    terminal.await_text("turn");
    terminal.close();
}

/// A table with fences is wider than most terminals, which would wrap each of its lines.
#[test]
fn the_status_fits_the_terminal() {
    let group = Local::new();
    let holder = group.hold("x");
    let mut terminal = terminal(&group);
    terminal.type_keys("stty columns 80; $DISTLOCK status\n");
    terminal.await_text("x (kernel)");
    terminal.await_text("holds  ");
    terminal.await_text("\n         fence ");
    terminal.type_keys("COLUMNS=200 $DISTLOCK who x\n");
    terminal.await_text("ALGORITHM");
    holder.let_go();
    terminal.close();
}

/// The answer that would be told of is on its way when the time is over.
#[test]
fn at_a_terminal_too_a_wait_keeps_its_time_while_the_agent_stands_still() {
    let (group, agent) = Group::alone();
    let holder = group.hold(1, "x");
    let mut terminal = terminal(&Local::new());
    let socket = group.socket(1);
    terminal.type_keys(&format!(
        "unset DISTLOCK_DIR; export DISTLOCK_SOCKET={}; \
         $DISTLOCK run -w 3 x -- true; echo \"co\"\"de $?\"\n",
        socket.display()
    ));
    let start = SystemTime::now();
    thread::sleep(Duration::from_millis(600));
    kill(pid_of(&agent.child), Signal::SIGSTOP).expect("it is there");
    terminal.await_text("code 69");
    let took = start.elapsed().expect("time goes on");
    kill(pid_of(&agent.child), Signal::SIGCONT).expect("it is there");
    assert!(took < Duration::from_secs(5), "{took:?}");
    terminal.close();
    holder.let_go();
}
