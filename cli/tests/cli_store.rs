//! Locks in a real etcd, by the program: `--at`, `DISTLOCK_AT`, `[store]`, `store`, `fence check --at`.

mod cli_support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use cli_support::{
    Holder, Process, assert_refused, distlock, eventually, exits, output, refuses, skipped, spawn,
    stdout,
};
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// A server, whose data goes away with it.
struct Etcd {
    _process: Process,
    dir: TempDir,
    port: u16,
}

/// A server that answers; `None` if none is installed.
fn etcd() -> Option<Etcd> {
    if !Path::new("/usr/bin/etcd").exists() {
        skipped("etcd is not installed (etcd-server)");
        return None;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let free = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("its address").port()
    };
    let (port, peer) = (free(), free());
    let url = |port| format!("http://127.0.0.1:{port}");
    let mut command = Command::new("/usr/bin/etcd");
    command
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .args(["--listen-client-urls", &url(port)])
        .args(["--advertise-client-urls", &url(port)])
        .args(["--listen-peer-urls", &url(peer)])
        .args(["--initial-advertise-peer-urls", &url(peer)])
        .args(["--initial-cluster", &format!("default={}", url(peer))])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = Process(spawn(command));
    let etcd = Etcd {
        _process: process,
        dir,
        port,
    };
    eventually("etcd answers", || {
        output(etcd.store(["check"])).status.success()
    });
    Some(etcd)
}

impl Etcd {
    fn place(&self) -> String {
        format!("etcd://127.0.0.1:{}?group=shop&lease=2s", self.port)
    }

    /// `distlock COMMAND --at …`, with these arguments behind it.
    fn distlock<const N: usize>(&self, command: &str, args: [&str; N]) -> Command {
        let mut program = distlock();
        program.args([command, "--at", &self.place()]).args(args);
        program
    }

    fn store<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut program = distlock();
        program
            .arg("store")
            .args(args)
            .args(["--at", &self.place()]);
        program
    }

    /// Holds `name` until it is let go.
    fn hold(&self, name: &str) -> Holder {
        Holder::start(self.distlock(
            "run",
            [name, "--", "sh", "-c", "echo in; read line; exit 3"],
        ))
    }

    fn status(&self) -> serde_json::Value {
        let said = exits(self.distlock("status", ["--json"]), 0);
        serde_json::from_slice(&said.stdout).expect("JSON")
    }
}

#[test]
fn one_at_a_time_and_whoever_asks_sees_who() {
    let Some(etcd) = etcd() else { return };
    let holder = etcd.hold("printer");
    refuses(
        etcd.distlock("run", ["-n", "printer", "--", "true"]),
        1,
        &["not acquired"],
    );
    let mut waiter = Process(spawn(etcd.distlock("run", ["printer", "--", "true"])));
    let mut seen = serde_json::Value::Null;
    eventually("the waiter is seen", || {
        seen = etcd.status();
        seen["locks"][0]["waiters"][0]["pid"] == waiter.id()
    });
    let lock = &seen["locks"][0];
    assert_eq!(lock["name"], "printer");
    assert_eq!(lock["algorithm"], "ledger");
    assert_eq!(lock["holders"][0]["pid"], holder.child.id());
    assert!(lock["holders"][0]["fence"].as_u64() > Some(1 << 32));
    assert_eq!(seen["store"]["ok"], true);
    assert_eq!(seen["store"]["keeps"], true);
    assert_eq!(seen["quorum"]["ok"], true);
    assert_eq!(holder.let_go().code(), Some(3));
    assert_eq!(waiter.wait().expect("it ends").code(), Some(0));
    eventually("nothing is left", || {
        etcd.status()["locks"].as_array().is_some_and(Vec::is_empty)
    });
}

/// Its session is not renewed, and so declared dead.
#[test]
fn a_runner_that_is_killed_is_succeeded_after_its_lease() {
    let Some(etcd) = etcd() else { return };
    let holder = etcd.hold("printer");
    holder.signal(Signal::SIGKILL);
    let next = exits(etcd.distlock("run", ["printer", "--", "echo", "next"]), 0);
    assert_eq!(stdout(&next), "next\n");
}

#[test]
fn programs_of_a_host_share_its_agent() {
    let Some(etcd) = etcd() else { return };
    let file = etcd.dir.path().join("shop.toml");
    let text = format!(
        "lease = \"2s\"\n[group]\nname = \"shop\"\n[store]\nat = \"etcd://127.0.0.1:{}\"\n\
         [[lock]]\nname = \"licences\"\npermits = 2\n",
        etcd.port
    );
    fs::write(&file, text).expect("it is written");
    let socket = etcd.dir.path().join("socket");
    let mut command = distlock();
    command
        .args(["agent", "--config"])
        .arg(&file)
        .arg("--socket")
        .arg(&socket)
        .arg("--state-dir")
        .arg(etcd.dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut agent = Process(spawn(command));
    assert!(agent.first_line().starts_with("ready: "), "it listens");
    let client = |args: &[&str]| {
        let mut program = distlock();
        program.env("DISTLOCK_SOCKET", &socket).args(args);
        program
    };
    // What the agent's clients hold is held for everybody.
    let holder = Holder::start(client(&[
        "run",
        "printer",
        "sh",
        "-c",
        "echo in; read x; exit 3",
    ]));
    refuses(
        etcd.distlock("run", ["-n", "printer", "--", "true"]),
        1,
        &["not acquired"],
    );
    let seen = exits(client(&["status", "--json"]), 0);
    let seen: serde_json::Value = serde_json::from_slice(&seen.stdout).expect("JSON");
    // The runner, and the `status` that asks.
    assert_eq!(seen["clients"]["connected"], 2);
    assert_eq!(seen["locks"][0]["holders"][0]["pid"], holder.child.id());
    assert_eq!(holder.let_go().code(), Some(3));
    exits(
        etcd.distlock("run", ["-w", "20", "printer", "--", "true"]),
        0,
    );
    // The permits are the file's.
    let both = [1, 2].map(|_| {
        Holder::start(client(&[
            "run",
            "licences",
            "sh",
            "-c",
            "echo in; read x; exit 3",
        ]))
    });
    refuses(
        client(&["run", "-n", "licences", "true"]),
        1,
        &["not acquired"],
    );
    for holder in both {
        assert_eq!(holder.let_go().code(), Some(3));
    }
    // Its file says the store also to a program without an agent.
    let mut without = distlock();
    without.args(["run", "--config"]).arg(&file);
    exits(without.args(["-w", "20", "printer", "true"]), 0);
}

#[test]
fn a_store_is_looked_at_and_cared_for() {
    let Some(etcd) = etcd() else { return };
    let fence = exits(
        etcd.distlock("run", ["printer", "--", "sh", "-c", "echo $DISTLOCK_FENCE"]),
        0,
    );
    let fence = stdout(&fence).trim_end().to_owned();
    let check = |name: &str, fence: &str| {
        let mut program = distlock();
        program.args(["fence", "check", "--at", &etcd.place(), name, fence]);
        program
    };
    exits(check("printer", &fence), 0);
    exits(etcd.distlock("run", ["printer", "--", "true"]), 0);
    refuses(check("printer", &fence), 1, &["refused", "given since"]);
    refuses(check("scanner", &fence), 69, &["no record of 'scanner'"]);
    let told = stdout(&exits(etcd.store(["check"]), 0));
    assert!(told.contains("keeps      yes\n"), "{told}");
    assert!(told.contains("locks      1, held 0 times"), "{told}");
    exits(etcd.store(["init"]), 0);
    // One that is not idle for long stays.
    assert_eq!(stdout(&exits(etcd.store(["gc"]), 0)), "");
    let told = exits(etcd.store(["gc", "--idle", "0s", "--dry-run"]), 0);
    assert_eq!(stdout(&told), "printer\n");
    assert_eq!(
        stdout(&exits(etcd.store(["gc", "--idle", "0s"]), 0)),
        "printer\n"
    );
    assert_eq!(stdout(&exits(etcd.store(["gc", "--idle", "0s"]), 0)), "");
    // Fences rise all the same.
    let later = exits(
        etcd.distlock("run", ["printer", "--", "sh", "-c", "echo $DISTLOCK_FENCE"]),
        0,
    );
    let number = |text: &str| text.trim_end().parse::<u64>().expect("a fence");
    assert!(number(&stdout(&later)) > number(&fence));
}

#[test]
fn what_is_no_place_is_refused_before_anything_else() {
    for (place, words) in [
        ("consul://a", "there is no store"),
        ("etcd://u:p@a", "password_file"),
        ("10.0.0.1", "is no place of a group"),
        ("etcd://a?colour=red", "no parameter"),
        ("etcd://a?lease=1h", "lease"),
        ("file:/nonexistent.toml#x", "number of a member"),
    ] {
        let mut program = distlock();
        program.args(["run", "--at", place, "x", "true"]);
        let said = output(program);
        assert!(said.status.code() == Some(64), "{place}: {said:?}");
        assert_refused(&said, 64, &[words]);
    }
    let mut both = distlock();
    both.args(["run", "--at", "etcd://a", "--local", "x", "true"]);
    assert_eq!(output(both).status.code(), Some(64));
}

#[test]
fn a_store_that_is_away_is_told_after_a_lease() {
    let mut program = distlock();
    program.args(["run", "--at", "etcd://127.0.0.1:1?lease=300ms", "x", "true"]);
    refuses(program, 69, &["cannot be reached", "refused"]);
    let mut program = distlock();
    program.env("DISTLOCK_AT", "etcd://127.0.0.1:1?lease=300ms");
    let said = exits(program.args(["status"]), 0);
    assert!(stdout(&said).contains("STORE UNREACHABLE"), "{said:?}");
}
