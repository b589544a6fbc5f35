//! `distlock run` in the local group: taking turns, exit codes, time limits, what the command gets.

mod cli_support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use cli_support::group::Group;
use cli_support::{
    Holder, Local, assert_refused, is_running, output, refuses, says, spawn, stderr, stdout,
};
use distlock::{Agent, DistMutex, PreviousOwner};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

#[test]
fn the_commands_own_exit_code_passes_through() {
    let group = Local::new();
    for code in [0, 1, 2, 64, 79, 126, 127, 128, 255] {
        assert_eq!(
            group.run(["x", "sh", "-c", &format!("exit {code}")]),
            Some(code)
        );
    }
}

#[test]
fn a_command_killed_by_a_signal_is_128_and_the_signal() {
    let group = Local::new();
    // A real-time signal too: they have numbers and no names.
    for signal in [1, 2, 6, 9, 11, 15, 40] {
        assert_eq!(
            group.run(["x", "-c", &format!("kill -{signal} $$")]),
            Some(128 + signal)
        );
    }
}

/// It may have been in the middle of something: the next holder is to know.
#[test]
fn a_command_killed_by_a_signal_abandons_the_lock() {
    let group = Local::new();
    let previous = || {
        let agent = Agent::local_in(group.group()).unwrap();
        agent.mutex("x").unwrap().lock().unwrap().previous_owner()
    };
    for (command, expected) in [
        ("exit 1", PreviousOwner::Clean),
        ("kill -9 $$", PreviousOwner::Abandoned),
        ("exit 0", PreviousOwner::Clean),
    ] {
        group.run(["x", "sh", "-c", command]);
        assert_eq!(previous(), expected, "{command}");
    }
}

/// It has done nothing: the next holder is still to know of the one before.
#[test]
fn a_command_that_is_not_started_tells_the_next_holder_of_the_former_one() {
    let group = Local::new();
    let agent = Agent::local_in(group.group()).unwrap();
    let lock = agent.mutex("x").unwrap();
    lock.lock().unwrap().abandon().unwrap();
    assert_eq!(group.run(["x", "/no/such/command"]), Some(127));
    let previous = lock.lock().unwrap().previous_owner();
    assert_eq!(previous, PreviousOwner::Abandoned);
}

#[test]
fn a_command_is_told_how_the_holder_before_it_ended() {
    let group = Local::new();
    let told = |lock: &str| {
        let script = r#"printf %s "$DISTLOCK_PREVIOUS_OWNER""#;
        let mut run = group.distlock(["run", lock, "--", "sh", "-c", script]);
        String::from_utf8(run.output().unwrap().stdout).unwrap()
    };
    assert_eq!(told("x"), "clean");
    let killed = group.run(["x", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(killed, Some(128 + libc::SIGKILL));
    assert_eq!(told("x"), "abandoned");
    // What one is told is told.
    assert_eq!(told("x"), "clean");
}

#[test]
fn a_command_that_is_not_there_is_127() {
    let group = Local::new();
    for command in [
        "no-such-command",
        "/no/such/command",
        "./no-such-command",
        "",
    ] {
        refuses(group.distlock(["run", "x", "--", command]), 127, &[command]);
    }
    // And the lock is free again.
    assert_eq!(group.run(["-n", "x", "true"]), Some(0));
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let group = Local::new();
    let file = group.file("not-a-program");
    fs::write(&file, "").expect("a file");
    let file = file.to_str().expect("text");
    assert_refused(
        &output(&mut group.distlock(["run", "x", file])),
        126,
        &["permission", file],
    );
    refuses(group.distlock(["run", "x", "/"]), 126, &["permission"]);

    let script = group.file("no-interpreter");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    let script = script.to_str().expect("text");
    refuses(group.distlock(["run", "x", script]), 126, &["interpreter"]);
}

#[test]
fn a_script_without_an_interpreter_line_is_run_by_the_shell() {
    let group = Local::new();
    let script = group.file("script");
    fs::write(&script, "exit 9\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    assert_eq!(group.run(["x", script.to_str().expect("text")]), Some(9));
}

#[test]
fn a_string_is_run_by_the_users_shell() {
    let group = Local::new();
    let mut command = group.distlock(["run", "x", "-c", "echo $((1 + 1)); exit 5"]);
    let said = output(command.env_remove("SHELL"));
    assert_eq!(
        (stdout(&said).as_str(), said.status.code()),
        ("2\n", Some(5))
    );
    // Options may come before or after the name.
    let said = output(
        group
            .distlock(["run", "--command", "echo $0", "x"])
            .env("SHELL", "/bin/sh"),
    );
    assert_eq!(stdout(&said), "/bin/sh\n");

    let shell = group.file("shell");
    fs::write(&shell, "#!/bin/sh\necho \"$#:$1:$2\"\n").expect("a file");
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).expect("its mode");
    let said = output(
        group
            .distlock(["run", "x", "-c", "a  b"])
            .env("SHELL", &shell),
    );
    assert_eq!(stdout(&said), "2:-c:a  b\n");
    let said = output(
        group
            .distlock(["run", "x", "-c", "echo $0"])
            .env("SHELL", ""),
    );
    assert_eq!(stdout(&said), "/bin/sh\n");
}

#[test]
fn the_commands_own_options_are_not_ours() {
    let group = Local::new();
    let said = output(&mut group.distlock(["run", "x", "printf", "%s.", "-n", "--", "--help"]));
    assert_eq!(stdout(&said), "-n.--.--help.");
    let said = output(&mut group.distlock(["run", "--", "-x", "--", "printf", "%s.", "--"]));
    assert_eq!(stdout(&said), "--.");
    let said = output(&mut group.distlock(["run", "x", "--verbose", "-n", "--", "echo", "-w"]));
    assert_eq!(stdout(&said), "-w\n");
    assert!(!said.stderr.is_empty());
}

#[test]
fn one_waits_while_the_other_is_inside() {
    let group = Local::new();
    let first = group.hold("x");
    let mut second = group
        .distlock(["run", "x", "--", "sh", "-c", "echo second"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    group.await_waiter("x", &second);
    assert_eq!(second.try_wait().expect("a child"), None);
    assert_eq!(
        group.run(["-n", "y", "true"]),
        Some(0),
        "another name is another lock"
    );
    assert_eq!(first.let_go().code(), Some(3));
    assert!(second.wait().expect("it ends").success());
}

#[test]
fn nonblock_fails_at_once_with_1_or_e() {
    let group = Local::new();
    let holder = group.hold("x");
    refuses(group.distlock(["run", "-n", "x", "true"]), 1, &["x"]);
    for args in [
        &["-n", "-E", "9"][..],
        &["-nE9"],
        &["--nonblock", "--conflict-exit-code=9"],
        &["--nb", "-E", "1", "-E", "9"],
        &["-w", "0", "-E9"],
        &["-w0.0", "-E9"],
        &["-n", "-w", "60", "-E", "9"],
    ] {
        assert_eq!(
            group.run(args.iter().chain(&["x", "true"])),
            Some(9),
            "{args:?}"
        );
    }
    assert_eq!(group.run(["-n", "-E", "0", "x", "false"]), Some(0));
    holder.let_go();
    assert_eq!(group.run(["-n", "-E", "9", "x", "true"]), Some(0));
}

#[test]
fn a_time_limit_holds() {
    let group = Local::new();
    let holder = group.hold("x");
    for (limit, wait) in [("0.3", 300), (".2", 200), ("1", 1000)] {
        let start = SystemTime::now();
        let said = output(&mut group.distlock(["run", "-w", limit, "x", "true"]));
        let waited = start.elapsed().expect("the clock goes on");
        assert_refused(&said, 1, &["x"]);
        assert!(waited >= Duration::from_millis(wait), "{limit}: {waited:?}");
        assert!(
            waited < Duration::from_millis(wait + 1500),
            "{limit}: {waited:?}"
        );
    }
    assert_eq!(
        group.run(["--timeout=0.01", "--conflict-exit-code", "7", "x", "true"]),
        Some(7)
    );
    holder.let_go();
}

#[test]
fn a_waiter_with_a_time_limit_enters_when_the_lock_is_free() {
    let group = Local::new();
    let holder = group.hold("x");
    let mut waiter = spawn(group.distlock(["run", "-w", "60", "x", "true"]));
    group.await_waiter("x", &waiter);
    let start = SystemTime::now();
    holder.let_go();
    assert!(waiter.wait().expect("it ends").success());
    let waited = start.elapsed().expect("the clock goes on");
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    let endless = ["-w", "99999999999", "x", "true"];
    assert_eq!(group.run(endless), Some(0), "longer than anybody waits");
}

#[test]
fn the_command_learns_the_locks_name_and_fence() {
    let group = Local::new();
    let script = r#"printf "%s %s" "$DISTLOCK_NAME" "$DISTLOCK_FENCE""#;
    let mut last = 0;
    for _ in 0..3 {
        let mut command = group.distlock(["run", "a b", "-c", script]);
        let said = output(
            command
                .env("DISTLOCK_NAME", "other")
                .env("DISTLOCK_FENCE", "1"),
        );
        let said = stdout(&said);
        let fence = said.strip_prefix("a b ").expect("the name");
        let fence: u64 = fence.parse().expect("a number");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
}

#[test]
fn standard_streams_are_the_callers() {
    let group = Local::new();
    let mut child = group
        .distlock(["run", "x", "--", "sh", "-c", "cat; echo error >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let text = "line\n".repeat(100_000);
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = {
        let text = text.clone();
        std::thread::spawn(move || stdin.write_all(text.as_bytes()).expect("it reads"))
    };
    let said = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer");
    assert_eq!((stdout(&said), stderr(&said)), (text, "error\n".to_owned()));
}

#[test]
fn closed_streams_stay_harmless() {
    let group = Local::new();
    let program = env!("CARGO_BIN_EXE_distlock");
    let script = format!("{program} run x -- sh -c 'exit 4' <&- >&- 2>&-; echo $?");
    let mut shell = Command::new("sh");
    let said = output(
        shell
            .env("DISTLOCK_DIR", group.group())
            .args(["-c", &script]),
    );
    assert_eq!(stdout(&said), "4\n");
    // A refusal that nobody reads has its exit code all the same.
    let script =
        format!("{program} run '' true 2>&-; echo $?; {program} run x 2>/dev/full; echo $?");
    assert_eq!(says(Command::new("sh").args(["-c", &script])), "64\n64\n");
}

/// What the kernel says about the signals of a process started by `command`.
fn signal_sets(command: &mut Command) -> Vec<String> {
    let text = stdout(&output(command));
    let sets = text
        .lines()
        .filter(|l| l.starts_with("SigBlk") || l.starts_with("SigIgn"));
    sets.map(str::to_owned).collect()
}

#[test]
fn the_command_starts_with_the_signals_that_the_caller_set() {
    let group = Local::new();
    let arrange = || {
        let (mut set, ignored) = (
            SigSet::empty(),
            [Signal::SIGPIPE, Signal::SIGCHLD, Signal::SIGHUP],
        );
        set.add(Signal::SIGUSR2);
        set.add(Signal::SIGTTOU);
        set.thread_set_mask()?;
        for number in ignored {
            #[expect(unsafe_code, reason = "sets a disposition in a test's child")]
            // SAFETY: ignoring runs no code.
            unsafe { signal(number, SigHandler::SigIgn) }?;
        }
        Ok(())
    };
    let plain = ["grep", "Sig", "/proc/self/status"];
    let mut direct = Command::new(plain[0]);
    direct.args(&plain[1..]);
    let mut through = group.distlock(["run", "x", "--"]);
    through.args(plain);
    assert_eq!(signal_sets(&mut through), signal_sets(&mut direct));
    #[expect(unsafe_code, reason = "what a caller does between fork and exec")]
    // SAFETY: the closure makes system calls only.
    unsafe {
        direct.pre_exec(arrange);
        through.pre_exec(arrange);
    }
    let expected = signal_sets(&mut direct);
    assert_eq!(signal_sets(&mut through), expected);
    assert!(
        expected.iter().any(|set| !set.ends_with(&"0".repeat(16))),
        "{expected:?}"
    );
    // The status of the command arrives although the caller ignores SIGCHLD.
    let mut failing = group.distlock(["run", "x", "--", "sh", "-c", "exit 6"]);
    #[expect(unsafe_code, reason = "what a caller does between fork and exec")]
    // SAFETY: the closure makes system calls only.
    let failing = unsafe { failing.pre_exec(arrange) };
    assert_eq!(output(failing).status.code(), Some(6));
}

#[test]
fn only_the_lock_is_inherited() {
    let group = Local::new();
    let list = "for fd in /proc/$$/fd/*; do readlink $fd; done";
    let said = says(group.distlock(["run", "x", "--", "sh", "-c", list]));
    let inside = |line: &&str| line.starts_with(group.group().to_str().expect("text"));
    let own: Vec<_> = said.lines().filter(inside).collect();
    assert_eq!(own.len(), 1, "{said}");
    let strange = |l: &&str| !inside(l) && (l.contains("signalfd") || l.contains("/dev/tty"));
    assert_eq!(said.lines().find(strange), None, "{said}");
}

#[test]
fn the_command_leads_a_process_group_of_its_own() {
    let group = Local::new();
    let script = r#"read pid comm state ppid pgrp rest < /proc/$$/stat; echo "$pid $pgrp""#;
    let said = says(group.distlock(["run", "x", "--", "sh", "-c", script]));
    let ids: Vec<_> = said.split_whitespace().collect();
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn what_the_command_leaves_running_keeps_the_lock() {
    let group = Local::new();
    let pid_file = group.file("pid");
    let script = format!(
        "sleep 600 >/dev/null 2>&1 & echo $! > {}",
        pid_file.display()
    );
    assert_eq!(group.run(["x", "sh", "-c", &script]), Some(0));
    let pid = fs::read_to_string(pid_file)
        .expect("a pid")
        .trim()
        .parse()
        .expect("a number");
    assert!(is_running(pid));
    assert_eq!(
        group.run(["-n", "x", "true"]),
        Some(1),
        "flock(1) does the same"
    );
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    assert_eq!(group.run(["-w", "10", "x", "true"]), Some(0));
}

#[test]
fn locks_nest() {
    let group = Local::new();
    let program = env!("CARGO_BIN_EXE_distlock");
    assert_eq!(
        group.run(["x", program, "run", "y", "sh", "-c", "exit 8"]),
        Some(8)
    );
    assert_eq!(
        group.run(["x", program, "run", "-n", "-E", "9", "x", "true"]),
        Some(9)
    );
}

#[test]
fn the_algorithm_must_be_the_locks() {
    let group = Local::new();
    assert_eq!(group.run(["--algorithm", "kernel", "x", "true"]), Some(0));
    for other in ["ricart-agrawala", "token-ring", "semaphore", "voting"] {
        let said = output(&mut group.distlock(["run", "--algorithm", other, "x", "true"]));
        assert_refused(&said, 78, &[other, "kernel"]);
    }
}

#[test]
fn a_directory_that_others_can_change_is_refused() {
    let group = Local::new();
    fs::create_dir(group.group()).expect("a directory");
    fs::set_permissions(group.group(), fs::Permissions::from_mode(0o777)).expect("its mode");
    refuses(
        group.distlock(["run", "x", "true"]),
        77,
        &[group.group().to_str().expect("text"), "DISTLOCK_DIR"],
    );
}

#[test]
fn verbose_tells_on_standard_error() {
    let group = Local::new();
    let said = output(&mut group.distlock(["run", "--verbose", "x", "echo", "hello"]));
    assert_eq!(stdout(&said), "hello\n");
    let text = stderr(&said);
    assert!(
        text.lines().all(|line| line.starts_with("distlock: ")),
        "{text}"
    );
    assert!(text.contains("'x'") && text.contains("fence"), "{text}");
}

/// Whoever may take a lock chooses names and commands that others are shown.
#[test]
fn what_would_mislead_who_reads_it_is_escaped() {
    const MARKS: [char; 3] = ['\u{202e}', '\u{200b}', '\u{1b}'];
    let group = Local::new();
    let name = "a\u{202e}b";
    let program = "ü\u{202e}\u{200b}\u{1b}[31m";
    let path = group.file(program);
    symlink("/bin/sh", &path).expect("a link");
    let path = path.to_str().expect("text");
    let script = "echo in; read line";
    let holder = Holder::start(group.distlock(["run", name, "--", path, "-c", script]));
    let mut shown = Vec::new();
    for args in [&["status"][..], &["who", name], &["status", "--json"]] {
        shown.push(output(&mut group.distlock(args)));
    }
    shown.push(output(&mut group.distlock(["run", "-n", name, "true"])));
    shown.push(output(&mut group.distlock([
        "run",
        "--verbose",
        "x\u{202e}",
        "true",
    ])));
    for said in &shown {
        let (out, err) = (stdout(said), stderr(said));
        assert!(!out.contains(MARKS) && !err.contains(MARKS), "{said:?}");
        assert!(out.contains(r"\u{202e}") || err.contains(r"\u{202e}") || out.contains(r"\u202e"));
    }
    let json: serde_json::Value = serde_json::from_slice(&shown[2].stdout).expect("JSON");
    let command = json["locks"][0]["holders"][0]["command"].as_str();
    assert_eq!(command.expect("text"), program);
    assert!(
        stdout(&shown[0]).contains('ü'),
        "what is seen as it is stays"
    );
    drop(holder);
}

/// Only where the lock is held for that very command: the environment alone proves nothing.
#[test]
fn a_command_that_waits_for_its_own_end_is_told() {
    let (agents, local) = (Group::unix(1), Local::new());
    let _agent = agents.agent(1);
    for is_local in [false, true] {
        let way = |args: &[&str]| {
            if is_local {
                local.distlock(args)
            } else {
                agents.client(1, args)
            }
        };
        let program = env!("CARGO_BIN_EXE_distlock");
        let nested = |outer: &[&str], inner: &str| {
            let script = format!("{program} {inner}; echo $?");
            let mut run = way(&["run"]);
            output(run.args(outer).args(["book", "--", "sh", "-c", &script]))
        };
        for inner in [
            "run book true",
            "run book -- sh -c true",
            "run -s book true",
        ] {
            let said = nested(&[], inner);
            assert_eq!(stdout(&said), "75\n", "{said:?}");
            assert!(
                stderr(&said).contains("already runs under 'book'"),
                "{said:?}"
            );
        }
        // Those that do not wait for ever are told as ever, and others do not wait at all.
        for (outer, inner, code) in [
            (&[][..], "run -n book true", 1),
            (&[], "run -w 0.2 -E 9 book true", 9),
            (&[], "run other true", 0),
            (&["-s"], "run -s book true", 0),
        ] {
            let said = nested(outer, inner);
            assert_eq!(
                stdout(&said),
                format!("{code}\n"),
                "{outer:?} {inner}: {said:?}"
            );
        }
        // Of what a former holder has left in an environment nothing is believed.
        let holder = Holder::start(way(&["run", "book", "--", "sh", "-c", "echo in; sleep 1"]));
        let mut late = way(&["run", "book", "true"]);
        let late = late.env("DISTLOCK_NAME", "book").env("DISTLOCK_FENCE", "1");
        assert_eq!(output(late).status.code(), Some(0));
        assert_eq!(holder.wait().code(), Some(0));
    }
}
