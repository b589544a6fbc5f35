//! `distlock doctor`: faults of the host are planted, and each is found and told of with what to do.

mod cli_support;

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use cli_support::doctor::{Findings, at, doctor, find};
use cli_support::group::{AgentProcess, Group};
use cli_support::users::is_root;
use cli_support::{
    Process, eventually, exits, files, output, pid_of, shell_code, skipped, spawn, stderr, wrapped,
};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

/// `command`, with limits of open files.
fn limited(limits: &str, command: &Command) -> Command {
    let mut prlimit = Command::new("prlimit");
    prlimit.arg(format!("--nofile={limits}"));
    wrapped(prlimit, command)
}

/// `command` in namespaces of its own, where the shell's `script` is run before; its arguments are
/// `args`. `None` if the host has no such namespaces for this user.
fn in_namespaces(script: &str, args: &[&Path], command: &Command) -> Option<Command> {
    if !is_root() {
        return None;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "sh", "-ec"]);
    let shift = "shift ".repeat(args.len());
    let shift = shift.replace(' ', "; ");
    unshare.arg(format!("{script}\n{shift} exec \"$@\""));
    unshare.arg("sh").args(args);
    Some(wrapped(unshare, command))
}

/// Has `command` find `text` in the kernel's file `path`.
fn where_the_kernel_says(
    path: &str,
    text: &str,
    group: &Group,
    command: &Command,
) -> Option<Command> {
    let own = group.file("kernel");
    fs::write(&own, text).expect("a file");
    let path = Path::new(path);
    if !path.exists() {
        skipped(&format!("{} is not there", path.display()));
        return None;
    }
    in_namespaces("mount --bind \"$1\" \"$2\"", &[&own, path], command)
}

/// Fault 2: the kernel measures time by jiffies.
#[test]
fn a_poor_clock_source_is_found() {
    let group = Group::unix(1);
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    for (text, result) in [("jiffies\n", "warn"), ("kvm-clock\n", "ok")] {
        let plain = doctor(&group, 1);
        let Some(command) = where_the_kernel_says(path, text, &group, &plain) else {
            return;
        };
        Findings::of(command).is("clock-source", result, &[text.trim()]);
    }
}

/// Fault 3: the way to another host is too narrow for the longest datagrams.
#[test]
fn a_narrow_way_is_found() {
    for (addresses, mask, mtu, result) in [
        (["10.9.8.1", "10.9.8.2"], 24, 1_427, "warn"),
        (["10.9.8.1", "10.9.8.2"], 24, 1_428, "ok"),
        (["[fd09::1]", "[fd09::2]"], 64, 1_447, "warn"),
        (["[fd09::1]", "[fd09::2]"], 64, 1_448, "ok"),
    ] {
        let group = Group::unix(1);
        let mut plain = doctor(&group, 1);
        plain.env("DISTLOCK_CONFIG", at(&group, addresses));
        let own = addresses[0].trim_matches(['[', ']']);
        let script = format!(
            "ip link set lo up
             ip link add narrow type veth peer name other
             ip link set narrow mtu {mtu}
             ip address add {own}/{mask} dev narrow {}
             ip link set narrow up
             ip link set other up",
            if mask == 64 { "nodad" } else { "" },
        );
        let Some(command) = in_namespaces(&script, &[], &plain) else {
            return;
        };
        let found = Findings::of(command);
        let words: &[&str] = match result {
            "warn" => &["member 2 by narrow", &format!("MTU of {mtu}")],
            _ => &[&mtu.to_string()],
        };
        found.is("mtu", result, words);
        found.is("address", "ok", &["is free"]);
    }
    // Where there is no such interface at all.
    let group = Group::unix(1);
    let mut plain = doctor(&group, 1);
    plain.env("DISTLOCK_CONFIG", at(&group, ["10.9.8.1", "10.9.8.2"]));
    let Some(command) = in_namespaces("ip link set lo up", &[], &plain) else {
        return;
    };
    let found = Findings::of(command);
    found.is("mtu", "fail", &["member 2", "no route"]);
    found.is("address", "fail", &["no interface", "10.9.8.1"]);
}

/// Fault 4: another process has the member's port.
#[test]
fn a_port_that_is_taken_is_found() {
    let group = Group::udp(2);
    let config = fs::read_to_string(group.config()).expect("a file");
    let address = config.lines().find_map(|line| {
        let address = line.strip_prefix("address = \"udp:")?;
        address.strip_suffix('"')
    });
    let address = address.expect("there is one").to_owned();
    find(&group, 1).is("address", "ok", &["is free"]);
    let taken = UdpSocket::bind(&address).expect("it is free");
    let who = format!("process {}", std::process::id());
    find(&group, 1).is("address", "fail", &[&address, "taken", &who]);
    drop(taken);
    let _agent = group.agent(1);
    find(&group, 1).is("address", "ok", &["the agent has", &address]);
}

/// Fault 5: the state is in memory.
#[test]
fn a_state_in_memory_is_found() {
    let memory = Path::new("/dev/shm");
    if !statfs(memory).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC) {
        return skipped("/dev/shm is not in memory");
    }
    let group = Group::unix(1);
    find(&group, 1).is("state-directory", "ok", &["shop-1"]);
    let memory = tempfile::tempdir_in(memory).expect("a directory");
    let mut command = doctor(&group, 1);
    // It is made by the agent, and judged before.
    command.env("DISTLOCK_STATE_DIR", memory.path().join("base"));
    Findings::of(command).is("state-directory", "warn", &["in memory", "--state-dir"]);
}

/// Fault 6: a disk is slow, or fails.
#[test]
fn a_slow_disk_is_found() {
    let group = Group::unix(1);
    let sign = group.file("disk");
    let library = group.bad_disk();
    let with = |variable: &str| {
        let mut command = doctor(&group, 1);
        command.env("LD_PRELOAD", &library).env(variable, &sign);
        Findings::of(command)
    };
    // A twentieth of a minute is three seconds, and each write takes one.
    for (lease_ms, result) in [(60_000, "ok"), (10_000, "warn"), (500, "fail")] {
        group.write_config("group.toml", lease_ms);
        fs::write(&sign, "1").expect("a file");
        let start = SystemTime::now();
        let found = with("DISTLOCK_TEST_SLOW_DISK");
        let took = start.elapsed().expect("time goes on");
        found.is("disk", result, &["99 % of", "writes"]);
        let waited = fs::read_to_string(&sign)
            .expect("a file")
            .matches("waits")
            .count();
        assert!(waited > 0 && waited <= 6, "{waited} writes");
        assert!(took < Duration::from_secs(20), "it took {took:?}");
    }
    let found = with("DISTLOCK_TEST_BAD_DISK");
    found.is(
        "disk",
        "fail",
        &["Input/output error", "cannot write its state"],
    );
    assert_eq!(
        files(&group.state()),
        Vec::<PathBuf>::new(),
        "it left something"
    );
}

/// A signal that would end it waits until its file is removed.
#[test]
fn a_doctor_that_is_ended_leaves_no_file() {
    let group = Group::unix(1);
    let sign = group.file("disk");
    fs::write(&sign, "2").expect("a file");
    let mut command = doctor(&group, 1);
    command.env("LD_PRELOAD", group.bad_disk());
    command.env("DISTLOCK_TEST_SLOW_DISK", &sign);
    let mut child = Process(spawn(&mut command));
    eventually("it writes", || {
        fs::read_to_string(&sign).expect("a file").contains("waits")
    });
    let left = files(&group.state());
    assert!(
        left.len() == 1 && left[0].to_string_lossy().contains(".distlock-doctor-"),
        "{left:?}"
    );
    kill(pid_of(&child), Signal::SIGTERM).expect("it is there");
    let ended = child.wait().expect("it ends");
    assert_eq!(shell_code(ended), 128 + Signal::SIGTERM as i32);
    assert_eq!(files(&group.state()), Vec::<PathBuf>::new());
}

/// Fault 9: limits are low.
#[test]
fn a_low_limit_of_open_files_is_found() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is one");
    let group = Group::unix(1);
    let low = Findings::of(limited("256:256", &doctor(&group, 1)));
    low.is("open-files", "warn", &["256", "16640", "LimitNOFILE"]);
    // Of an agent that runs its own counts.
    let agent = AgentProcess::start(limited("300:300", &group.agent_command(1)));
    let pid = format!("process {}", agent.child.id());
    find(&group, 1).is("open-files", "warn", &[&pid, "300"]);
    drop(agent);
    if hard < 16_640 {
        return skipped("16640 descriptors are needed: ulimit -Hn");
    }
    let agent = group.agent(1);
    let pid = format!("process {}", agent.child.id());
    let low = Findings::of(limited("256:256", &doctor(&group, 1)));
    low.is("open-files", "ok", &[&pid]);
}

#[test]
fn a_small_queue_is_found() {
    let group = Group::udp(3);
    let path = "/proc/sys/net/core/rmem_max";
    for (text, result) in [("4096\n", "warn"), ("212992\n", "ok")] {
        let plain = doctor(&group, 1);
        let Some(command) = where_the_kernel_says(path, text, &group, &plain) else {
            return;
        };
        let words = ["net.core.rmem_max", text.trim()];
        Findings::of(command).is("receive-buffer", result, &words);
    }
}

#[test]
fn a_filter_for_which_there_is_no_memory_is_found() {
    let group = Group::udp(3);
    let limit = "echo 1 > /proc/sys/net/core/optmem_max || exit 99";
    let Some(mut command) = in_namespaces(limit, &[], &doctor(&group, 1)) else {
        return;
    };
    let said = output(&mut command);
    if said.status.code() == Some(99) {
        // Before Linux 6.8 the limit is the whole host's, and left alone.
        return skipped(&format!(
            "no network with a limit of its own: {}",
            stderr(&said)
        ));
    }
    Findings::of(command).is("filter", "warn", &["net.core.optmem_max is 1", "131072"]);
    find(&group, 1).is("filter", "ok", &[]);
}

#[test]
fn a_state_directory_that_agents_refuse_is_found() {
    let group = Group::unix(1);
    let directory = group.state().join("shop-1");
    fs::create_dir(&directory).expect("a directory");
    fs::set_permissions(&directory, Permissions::from_mode(0o777)).expect("its mode");
    let refused = exits(group.agent_command(1), 77);
    assert!(stderr(&refused).contains("0777"), "{refused:?}");
    find(&group, 1).is("state-directory", "fail", &["0777", "chmod"]);
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("its mode");
    find(&group, 1).is("state-directory", "ok", &["shop-1"]);
}
