//! The command line of `distlock`: what is accepted, what is refused, and with which exit code.

mod cli_support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use cli_support::{
    Holder, Local, assert_refused, distlock, exits, output, refuses, stderr, stdout,
};
use nix::sys::signal::Signal;

#[test]
fn help_and_version_go_to_standard_output() {
    for args in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["run", "--help"],
        &["help", "run"],
    ] {
        let output = output(distlock().args(args));
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(stdout(&output).contains("Usage: distlock"), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
    let output = exits(distlock().arg("--version"), 0);
    assert_eq!(
        stdout(&output),
        format!("distlock {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_refusal_names_the_help_that_helps() {
    for (args, help) in [
        (&["run"][..], "'distlock run --help'"),
        (&["run", "--bogus", "x", "true"], "'distlock run --help'"),
        (&["who"], "'distlock who --help'"),
        (&["--bogus"], "'distlock --help'"),
        (&["bogus"], "'distlock --help'"),
    ] {
        assert_refused(&output(distlock().args(args)), 64, &[help]);
    }
}

#[test]
fn help_names_what_is_there_and_nothing_else() {
    let text = stdout(&output(distlock().arg("--help")));
    let commands = text.split("Commands:").nth(1).expect("a list of commands");
    let commands = commands.split("\n\n").next().expect("its lines");
    let names: Vec<_> = commands
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    assert_eq!(
        names,
        [
            "run",
            "elect",
            "agent",
            "status",
            "members",
            "who",
            "top",
            "metrics",
            "recover",
            "fence",
            "store",
            "config",
            "audit",
            "doctor",
            "keygen",
            "sim",
            "trace",
            "completions",
            "help"
        ]
    );
}

#[test]
fn help_to_a_closed_pipe_is_no_failure() {
    for args in [
        "--help",
        "run --help",
        "--version",
        "status",
        "status --json",
        "completions zsh",
    ] {
        let group = Local::new();
        let program = env!("CARGO_BIN_EXE_distlock");
        // The reader is gone before the program starts to write.
        let script = format!("{{ sleep 0.1; {program} {args}; echo $? >&2; }} | true");
        let mut shell = Command::new("sh");
        let output = output(
            shell
                .env("DISTLOCK_DIR", group.group())
                .args(["-c", &script]),
        );
        assert_eq!(stderr(&output), "0\n", "{args}");
    }
}

#[test]
fn a_wrong_command_line_is_64_and_one_line() {
    let group = Local::new();
    for (args, word) in [
        (&[][..], "no command"),
        (&["frobnicate"], "frobnicate"),
        (&["--frobnicate"], "--frobnicate"),
        (&["run"], "<NAME>"),
        (&["run", "x"], "<COMMAND>"),
        (&["run", "x", "--"], "<COMMAND>"),
        (&["run", "x", "--", "--"], "no command"),
        (&["run", "-n"], "<NAME>"),
        (&["run", "--frobnicate", "x", "true"], "--frobnicate"),
        (&["run", "-E", "256", "x", "true"], "256"),
        (&["run", "-E", "-1", "x", "true"], "-1"),
        (&["run", "-E", "one", "x", "true"], "one"),
        (&["run", "--lost-exit-code", "256", "x", "true"], "256"),
        (&["run", "-w", "-1", "x", "true"], "-1"),
        (&["run", "-w", "-0.5", "x", "true"], "-0.5"),
        (&["run", "-w", "nan", "x", "true"], "nan"),
        (&["run", "-w", "inf", "x", "true"], "inf"),
        (&["run", "-w", "1e300", "x", "true"], "1e300"),
        (&["run", "-w", "soon", "x", "true"], "soon"),
        (&["run", "-w", "", "x", "true"], "seconds"),
        (&["run", "-c", "true", "x", "true"], "--command"),
        (&["run", "x", "-c", "true", "true"], "--command"),
        (&["run", "x", "-c"], "--command"),
        (&["run", "", "true"], "empty"),
        (
            &["run", "--algorithm", "frobnicate", "x", "true"],
            "frobnicate",
        ),
        (
            &["run", "--socket", "s", "--config", "c", "x", "true"],
            "--socket",
        ),
        (&["run", "--config", "c", "x", "true"], "--id"),
        (&["run", "--id", "1", "x", "true"], "--config"),
        (&["run", "--config", "c", "--id", "0", "x", "true"], "0"),
        (
            &["run", "--config", "c", "--id", "65536", "x", "true"],
            "65536",
        ),
        (&["status", "extra"], "extra"),
        (&["agent"], "--config"),
        (&["agent", "--config", "c"], "--id"),
    ] {
        refuses(group.distlock(args), 64, &[word]);
    }
}

/// It would lock "echo", and run "hi".
#[test]
fn a_command_without_a_name_is_64() {
    let group = Local::new();
    for args in [
        &["run", "--", "echo", "hi"][..],
        &["run", "-n", "-w", "1", "--", "echo", "hi"],
        &["run", "--", "echo", "hi", "--", "there"],
        &["elect", "--", "echo", "hi"],
    ] {
        refuses(
            group.distlock(args),
            64,
            &["no lock's name", "'echo'", args[0], "NAME -- COMMAND"],
        );
    }
    for args in [
        &["run", "--", "-x", "--", "echo", "hi"][..],
        &["run", "x", "--", "echo", "hi"],
        &["run", "x", "echo", "hi"],
        &["run", "-c", "echo hi", "--", "-x"],
        &["elect", "--", "x", "--", "echo", "hi"],
    ] {
        let said = output(&mut group.distlock(args));
        assert_eq!(stdout(&said), "hi\n", "{args:?}: {said:?}");
    }
}

#[test]
fn names_have_1_to_255_bytes() {
    let group = Local::new();
    let longest = "n".repeat(255);
    assert_eq!(group.run([&longest, "true"]), Some(0));
    let output = output(&mut group.distlock(["run", &"n".repeat(256), "true"]));
    assert_refused(&output, 64, &["255", "256"]);
}

#[test]
fn names_are_bytes_and_no_two_are_one_lock() {
    let group = Local::new();
    let longest = [b'n'; 255];
    let mut other_longest = longest;
    other_longest[254] = b'm';
    let names: [&[u8]; 16] = [
        b"x",
        b"X",
        b"x ",
        b" x",
        b"x\n",
        b"./x",
        b"x/",
        b"../x",
        b"/x",
        b".",
        b"..",
        b"\xff",
        b"\xfe",
        "\u{e4}".as_bytes(),
        &longest,
        &other_longest,
    ];
    let holders: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = group.distlock(["run", "-n", "--"]);
            command.arg(OsStr::from_bytes(name));
            command.args([
                "--",
                "sh",
                "-c",
                r#"echo in; printf %s "$DISTLOCK_NAME"; exec sleep 600"#,
            ]);
            Holder::start(command)
        })
        .collect();
    for name in names {
        let name = OsStr::from_bytes(name);
        let dashes = OsStr::new::<str>;
        let held = group.run([
            dashes("-n"),
            dashes("--"),
            name,
            dashes("--"),
            dashes("true"),
        ]);
        assert_eq!(held, Some(1), "{name:?} is one lock");
    }
    for holder in &holders {
        holder.signal(Signal::SIGTERM);
    }
    for (mut holder, name) in holders.into_iter().zip(names) {
        assert_eq!(holder.rest(), name);
        assert_eq!(holder.wait().code(), Some(128 + 15));
    }
}
