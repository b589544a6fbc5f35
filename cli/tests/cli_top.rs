//! `distlock top`: what it prints with `--once`, and what it does at a terminal.

mod cli_support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use cli_support::group::Group;
use cli_support::{
    Local, PATIENCE, Process, eventually, exits, pid_of, refuses, spawn, stdout, wrapped,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};

/// A terminal of 80 columns with `distlock top` in it.
struct Terminal {
    child: Process,
    keys: File,
    line: OwnedFd,
    before: Termios,
    seen: String,
}

impl Terminal {
    fn start(top: &Command) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).expect("a pseudo-terminal");
        let before = tcgetattr(&pair.slave).expect("attributes");
        let mut command = Command::new("setsid");
        command.arg("--ctty");
        let mut command = wrapped(command, top);
        command.env("TERM", "xterm");
        let line = || Stdio::from(pair.slave.try_clone().expect("a descriptor"));
        command.stdin(line()).stdout(line()).stderr(line());
        Self {
            child: Process(spawn(command)),
            keys: File::from(pair.master),
            line: pair.slave,
            before,
            seen: String::new(),
        }
    }

    fn attributes(&self) -> Termios {
        tcgetattr(&self.line).expect("attributes")
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it is open");
    }

    /// Reads until `text` was written, after what was awaited before; what came up to its end.
    #[track_caller]
    fn await_text(&mut self, text: &str) -> String {
        while !self.seen.contains(text) {
            let fd = PollFd::new(self.keys.as_fd(), PollFlags::POLLIN);
            let limit = PollTimeout::try_from(PATIENCE).expect("in range");
            let ready = poll(&mut [fd], limit).expect("it can be waited for");
            assert!(ready > 0, "no {text:?} in {:?}", self.seen);
            let mut buffer = [0; 4096];
            let read = self.keys.read(&mut buffer).expect("the screen");
            let read = String::from_utf8_lossy(&buffer[..read]).into_owned();
            self.seen.push_str(&read);
        }
        let end = self.seen.find(text).expect("it is there") + text.len();
        self.seen.drain(..end).collect()
    }

    /// It has ended, with the terminal as it was before.
    #[track_caller]
    fn end(mut self) -> ExitStatus {
        self.await_text("\x1b[?1049l");
        let status = self.child.wait().expect("it ends");
        assert_eq!(self.attributes(), self.before);
        status
    }
}

#[test]
fn one_screen_is_printed() {
    let (group, _agents) = Group::running(2);
    let holder = group.hold(2, "printer");
    let mut waiter = spawn(group.client(1, ["run", "printer", "true"]));
    let once = ["top", "--once", "--interval", "0.1"];
    let waits = format!("pid {}", waiter.id());
    let mut text = String::new();
    eventually("the waiter is shown", || {
        text = stdout(&exits(group.client(1, once), 0));
        text.contains(&waits)
    });
    let line = |begins: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(begins));
        let line = lines.next().unwrap_or_else(|| panic!("{begins}: {text}"));
        line.to_owned()
    };
    assert!(text.starts_with("Group shop, member 1, epoch "), "{text}");
    line("Quorum: members 1, 2 vote.");
    assert!(line("Lease   1 s, ").contains(" left"), "{text}");
    assert!(line("Grants  ").contains("/s here"), "{text}");
    assert!(line("Member  2 ").contains("alive"), "{text}");
    assert!(line("printer ").ends_with("manager"), "{text}");
    let holds = line("  holds ");
    assert!(holds.contains(&format!("pid {}", holder.child.id())));
    assert!(
        holds.contains("member 2") && holds.ends_with("  sh"),
        "{holds}"
    );
    let waits_there = line("  waits 1 ");
    assert!(waits_there.contains("member 1") && waits_there.contains(&waits));
    assert!(!text.contains('\x1b'), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );

    let mut wide = group.client(1, once);
    let wide = stdout(&exits(wide.env("COLUMNS", "160"), 0));
    let fence = group.status(1)["locks"][0]["holders"][0]["fence"].clone();
    assert!(wide.contains(&format!("fence {fence}")), "{wide}");
    holder.let_go();
    assert!(waiter.wait().expect("it ends").success());
}

#[test]
fn the_local_group_is_shown_too() {
    let local = Local::new();
    let holder = local.hold("a\x1b[2Jb");
    let text = stdout(&exits(
        local.distlock(["top", "--once", "--interval", "0.1"]),
        0,
    ));
    assert!(text.starts_with("Group local "), "{text}");
    assert!(text.contains("\na\\u{1b}[2Jb "), "{text}");
    assert!(
        text.contains(&format!("pid {}", holder.child.id())),
        "{text}"
    );
    holder.let_go();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let local = Local::new();
    let words = ["no terminal", "--once", "'distlock top --help'"];
    refuses(local.distlock(["top"]), 64, &words);
    for interval in ["0", "0.09", "3601", "nan", "x"] {
        let args = ["top", "--once", "--interval", interval];
        refuses(local.distlock(args), 64, &["0.1 to 3600 seconds"]);
    }
    let group = Group::unix(1);
    refuses(
        group.client(1, ["top", "--once"]),
        69,
        &["no agent answers"],
    );
}

#[test]
fn the_key_q_ends_it_and_the_terminal_is_as_before() {
    let (group, _agent) = Group::alone();
    let holder = group.hold(1, "printer");
    let mut terminal = Terminal::start(&group.client(1, ["top", "--interval", "0.1"]));
    terminal.await_text("\x1b[?1049h");
    terminal.await_text("Group shop, member 1");
    // It has colours.
    terminal.await_text("\x1b[38;5;");
    terminal.await_text("printer");
    assert!(
        !terminal
            .attributes()
            .local_flags
            .contains(LocalFlags::ICANON)
    );
    terminal.press("?");
    terminal.await_text("distlock top: keys");
    terminal.press("x/zz");
    terminal.await_text("Filter:");
    terminal.press("\x1b");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
    holder.let_go();
}

#[test]
fn there_are_no_colours_where_none_are_wanted() {
    let (group, _agent) = Group::alone();
    let mut command = group.client(1, ["top", "--interval", "0.1"]);
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::start(&command);
    terminal.await_text("\x1b[?1049h");
    let painted = terminal.await_text("quit");
    assert!(
        painted.contains("Group shop") && !painted.contains("\x1b[38;5;"),
        "{painted:?}"
    );
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_before() {
    let (group, _agent) = Group::alone();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut terminal = Terminal::start(&group.client(1, ["top"]));
        terminal.await_text("Group shop, member 1");
        match signal {
            Signal::SIGINT => terminal.press("\x03"),
            signal => kill(pid_of(&terminal.child), signal).expect("it is there"),
        }
        assert_eq!(terminal.end().signal(), Some(signal as i32));
    }
}

/// Stopped and continued by another process, it goes on, and gives back what was there at its start.
#[test]
fn it_can_be_stopped_and_continued() {
    let (group, _agent) = Group::alone();
    let mut terminal = Terminal::start(&group.client(1, ["top"]));
    terminal.await_text("Group shop, member 1");
    let pid = pid_of(&terminal.child);
    for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
        kill(pid, signal).expect("it is there");
    }
    terminal.await_text("\x1b[?1049h");
    terminal.await_text("Group shop, member 1");
    assert!(
        !terminal
            .attributes()
            .local_flags
            .contains(LocalFlags::ICANON)
    );
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn an_agent_that_is_gone_is_told_of_and_found_again() {
    let (group, agent) = Group::alone();
    let mut terminal = Terminal::start(&group.client(1, ["top", "--interval", "0.1"]));
    terminal.await_text("Group shop, member 1");
    agent.end_by(Signal::SIGTERM);
    terminal.await_text("NO NEWS");
    let _agent = group.agent(1);
    terminal.await_text("Quorum:");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}
