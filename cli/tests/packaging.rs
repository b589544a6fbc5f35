//! What is packaged beside the program says what the program does.

mod cli_support;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use cli_support::group::{AgentProcess, Group};
use cli_support::{assert_refused, distlock, exits, output, stderr, stdout};
use distlock::{Algorithm, Config};
use nix::sys::signal::Signal;

const UNIT: &str = include_str!("../../packaging/systemd/distlock.service");
const SOCKET: &str = include_str!("../../packaging/systemd/distlock.socket");
const EXAMPLE: &str = include_str!("../../packaging/distlock.toml");
const MAN_1: &str = include_str!("../../man/distlock.1");
const MAN_5: &str = include_str!("../../man/distlock.toml.5");

/// The literal blocks of a manual page.
fn literals(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("\n.Bd -literal").skip(1);
    blocks.map(|block| {
        let (_, text) = block.split_once('\n').expect("a line after its start");
        text.split_once("\n.Ed").expect("an end").0
    })
}

/// systemd waits for a word that the agent must say, and must not wait for one that it does not.
#[test]
fn the_unit_waits_for_what_the_agent_says() {
    let group = Group::unix(1);
    let manager = UnixDatagram::bind(group.file("notify")).expect("a socket");
    manager.set_nonblocking(true).expect("a socket's option");
    let mut command = group.agent_command(1);
    command.env("NOTIFY_SOCKET", group.file("notify"));
    let status = AgentProcess::start(command).end_by(Signal::SIGTERM);
    assert!(status.success(), "{status}");

    // The agent is gone, so all that it ever says is there.
    let mut said = String::new();
    let mut buffer = [0; 4096];
    let over = loop {
        match manager.recv(&mut buffer) {
            Ok(len) => said += &format!("{}\n", String::from_utf8_lossy(&buffer[..len])),
            Err(error) => break error,
        }
    };
    assert_eq!(over.kind(), io::ErrorKind::WouldBlock);
    let says_ready = said.lines().any(|line| line == "READY=1");
    let types: Vec<_> = UNIT
        .lines()
        .filter(|line| line.starts_with("Type="))
        .collect();
    let expected = if says_ready {
        "Type=notify"
    } else {
        "Type=exec"
    };
    assert_eq!(types, [expected], "the agent says {said:?}");
}

/// What keeps the group's key where it is.
#[test]
fn the_unit_leaves_no_core_and_no_file_for_others() {
    for line in [
        "LimitCORE=0",
        "UMask=0077",
        "SocketBindDeny=any",
        "SocketBindAllow=udp",
    ] {
        assert!(UNIT.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn the_units_command_line_is_accepted() {
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let line = line.expect("it starts something");
    let line = line
        .strip_prefix("/usr/bin/distlock ")
        .expect("the program");
    let nowhere = line.replace("/etc/distlock/", "/nonexistent/");
    assert_ne!(nowhere, line);
    let mut agent = distlock();
    agent.env("DISTLOCK_ID", "1").args(nowhere.split(' '));
    // All that is missing is the file.
    assert_refused(&output(&mut agent), 66, &["/nonexistent/distlock.toml"]);
}

/// Programs that are left behind say 69 on such a host, and who removes the package is told how to
/// end that.
#[test]
fn who_removes_the_package_is_told_how_the_host_leaves_its_group() {
    let root = tempfile::tempdir().expect("a directory");
    let in_root = |path: &str| root.path().join(path);
    let removed = |how: &str| {
        let mut postrm = Command::new("sh");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/debian/postrm");
        let said = exits(postrm.args([script, how]).env("DPKG_ROOT", root.path()), 0);
        stderr(&said)
    };
    assert_eq!(removed("remove"), "");
    for directory in ["etc/distlock", "var/lib", "run/distlock"] {
        fs::create_dir_all(in_root(directory)).expect("a directory");
    }
    fs::write(in_root("etc/distlock/distlock.toml"), "").expect("a file");
    // As the unit's DynamicUser= makes it; what it leads to need not be there.
    symlink("private/distlock", in_root("var/lib/distlock")).expect("a link");
    fs::write(in_root("run/distlock/distlock.sock"), "").expect("a file");
    let all = "/etc/distlock/distlock.toml /var/lib/distlock /run/distlock/distlock.sock";
    let said = removed("remove");
    assert!(
        said.contains("members remove") && said.contains(all),
        "{said}"
    );
    assert_eq!(removed("upgrade"), "");
    let said = removed("purge");
    assert!(
        said.ends_with("rm -r /etc/distlock/distlock.toml\n"),
        "{said}"
    );
    fs::remove_file(in_root("etc/distlock/distlock.toml")).expect("it is there");
    assert_eq!(removed("purge"), "");
}

/// Otherwise programs would look for the agent where it is not.
#[test]
fn the_socket_is_where_programs_look_and_the_service_wants_it() {
    let setting = |unit: &str, key: &str| -> Vec<String> {
        let values = unit.lines().filter_map(|line| line.strip_prefix(key));
        values
            .map(|value| value.trim_start_matches('=').to_owned())
            .collect()
    };
    let listens = setting(SOCKET, "ListenStream");
    assert_eq!(listens, ["/run/distlock/distlock.sock"]);
    assert!(MAN_1.contains(&listens[0]));
    assert_eq!(setting(SOCKET, "SocketMode"), ["0600"]);
    assert_eq!(setting(UNIT, "Requires"), ["distlock.socket"]);
    // The directory would go away with the service, and the socket with it. Preserved, it is one
    // that only root can look into where the user is a dynamic one.
    assert!(!UNIT.contains("\nRuntimeDirectory"));
    // A service that cannot be started takes the socket with it, and programs went elsewhere.
    assert_eq!(setting(SOCKET, "RemoveOnStop"), ["no"]);
    assert_eq!(setting(UNIT, "WatchdogSec").len(), 1);
}

#[test]
fn the_examples_of_configurations_are_accepted() {
    let example = Config::parse(EXAMPLE).expect("the packaged one");
    assert_eq!(example.members().len(), 3);
    let in_5: Vec<_> = literals(MAN_5).collect();
    assert_eq!(in_5.len(), 2);
    let config = Config::parse(in_5[0]).expect("the first one of distlock.toml(5)");
    assert_eq!(config.members().len(), 3);
    let config = Config::parse(in_5[1]).expect("the second one of distlock.toml(5)");
    let store = config.store().expect("its store");
    assert!(store.requires_keeping());
    let in_1 = literals(MAN_1).find(|text| text.contains("[group]"));
    Config::parse(in_1.expect("one in distlock(1)")).expect("the one of distlock(1)");
}

#[test]
fn distlock_toml_5_names_the_algorithms_there_are() {
    for algorithm in Algorithm::ALL {
        let is_named = MAN_5.contains(algorithm.name());
        // The local group has no configuration.
        assert_eq!(is_named, algorithm != Algorithm::Kernel, "{algorithm}");
    }
}

/// A command that is not in the manual page is not there for who reads it.
#[test]
fn distlock_1_has_the_commands_that_there_are() {
    let help = stdout(&output(distlock().arg("--help")));
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let (list, _) = list.split_once("\n\n").expect("its end");
    let there: BTreeSet<_> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    let (_, section) = MAN_1.split_once("\n.Ss Commands").expect("the section");
    let (section, _) = section.split_once("\n.Ss ").expect("its end");
    let described: BTreeSet<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix(".It Cm "))
        .filter_map(|line| line.split(' ').next())
        .filter(|word| there.contains(word))
        .collect();
    assert_eq!(described, there);
}
