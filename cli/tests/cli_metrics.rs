//! `distlock metrics`, and the page that an agent serves.

mod cli_support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use cli_support::group::Group;
use cli_support::{Local, assert_refused, eventually, exits, output, refuses, skipped, stdout};
use nix::sys::signal::Signal;

/// The numbers of a page, by their series.
fn numbers(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| {
        let (series, number) = line.rsplit_once(' ').expect("a series and a number");
        let number = number.parse().unwrap_or_else(|_| panic!("{line}"));
        (series.to_owned(), number)
    });
    series.collect()
}

/// What the agent of member `id` tells by its socket.
fn told(group: &Group, id: usize) -> BTreeMap<String, f64> {
    numbers(&stdout(&exits(group.client(id, ["metrics"]), 0)))
}

/// The group's file says that too.
fn listens_at(group: &Group, address: &str) {
    let text = fs::read_to_string(group.config()).expect("the configuration");
    let metrics = format!("[metrics]\nlisten = \"{address}\"\n");
    fs::write(group.config(), format!("{text}{metrics}")).expect("a file");
}

/// The answer to `request`.
fn asked(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("it is asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn what_happens_to_locks_is_counted() {
    let group = Group::unix(2);
    let text = fs::read_to_string(group.config()).expect("the configuration");
    let lock = "[[lock]]\nname = \"listed\"\nalgorithm = \"semaphore\"\n";
    fs::write(group.config(), format!("{text}{lock}")).expect("a file");
    let _agents = group.agents(2);
    exits(group.client(1, ["run", "-w", "30", "listed", "true"]), 0);

    let holder = group.hold(1, "listed");
    let refused = output(&mut group.client(1, ["run", "-n", "listed", "true"]));
    assert_eq!(refused.status.code(), Some(1));
    let mut waiter = cli_support::spawn(group.client(1, ["run", "listed", "true"]));
    eventually("one waits", || {
        told(&group, 1)["distlock_waiters{lock=\"listed\"}"] > 0.0
    });
    let now = told(&group, 1);
    assert_eq!(now["distlock_holders{lock=\"listed\"}"], 1.0);
    assert_eq!(
        now["distlock_refusals_total{lock=\"listed\",reason=\"busy\"}"],
        1.0
    );
    assert_eq!(now["distlock_quorum"], 1.0);
    assert_eq!(now["distlock_members{state=\"alive\"}"], 2.0);
    assert_eq!(now["distlock_voters{votes=\"yes\"}"], 2.0);
    assert!(now["distlock_lease_remaining_seconds"] > 0.0);
    assert!(now["distlock_state_write_seconds_count"] > 0.0);
    assert!(now["distlock_datagrams_received_total"] > 0.0);
    assert_eq!(holder.let_go().code(), Some(3));
    assert!(waiter.wait().expect("it ends").success());

    eventually("both have left", || {
        told(&group, 1)["distlock_hold_seconds_count{lock=\"listed\"}"] == 3.0
    });
    let then = told(&group, 1);
    let grants = "distlock_grants_total{lock=\"listed\",mode=\"exclusive\"}";
    assert_eq!(then[grants], 3.0);
    assert_eq!(then["distlock_wait_seconds_count{lock=\"listed\"}"], 3.0);
    assert!(then["distlock_hold_seconds_sum{lock=\"listed\"}"] > 0.0);
    exits(group.client(1, ["run", "x", "true"]), 0);
    let others = "distlock_grants_total{lock=\"other\",mode=\"exclusive\"}";
    assert_eq!(told(&group, 1)[others], 1.0);
    assert_eq!(told(&group, 2)[grants], 0.0, "another agent's callers");
}

/// DistlockVoterMissing fires by this number.
#[test]
fn a_voter_that_is_silent_does_not_vote() {
    let group = Group::unix(3);
    let mut agents = group.agents(3);
    let votes = || {
        let now = told(&group, 1);
        ["yes", "no"].map(|votes| now[&format!("distlock_voters{{votes=\"{votes}\"}}")])
    };
    eventually("all vote", || votes() == [3.0, 0.0]);
    drop(agents.pop());
    eventually("one is missed", || votes() == [2.0, 1.0]);
    let now = told(&group, 1);
    assert_eq!(now["distlock_quorum"], 1.0);
    let whose = "distlock_agent_info{group=\"shop\",member=\"1\"}";
    assert_eq!(now.get(whose), Some(&1.0), "{now:?}");
    agents.push(group.agent(3));
    eventually("it votes again", || votes() == [3.0, 0.0]);
}

#[test]
fn the_page_is_served_at_a_unix_socket() {
    let group = Group::unix(1);
    let path = group.file("metrics");
    listens_at(&group, &format!("unix:{}", path.display()));
    // What a killed agent leaves.
    drop(UnixListener::bind(&path).expect("a socket"));
    let agent = group.agent(1);
    exits(group.client(1, ["run", "-w", "30", "x", "true"]), 0);
    let connect = || UnixStream::connect(&path).expect("it is served");
    let (head, page) = asked(connect(), GET);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert_eq!(numbers(&page)["distlock_quorum"], 1.0);
    // One that does not ask keeps others for a while only.
    let silent = connect();
    let accept = GET.replace("Host", "Accept: application/openmetrics-text\r\nHost");
    let (head, page) = asked(connect(), &accept);
    assert!(head.contains("application/openmetrics-text; version=1.0.0"));
    assert!(page.ends_with("# EOF\n"));
    drop(silent);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "404"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n".to_owned(), "405"),
        (
            format!("GET /metrics HTTP/1.1\r\nx: {}\r\n", "y".repeat(9_000)),
            "431",
        ),
    ] {
        let (head, _) = asked(connect(), &request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    assert!(agent.end_by(Signal::SIGTERM).success());
    assert!(!path.exists());
}

#[test]
fn the_page_is_served_at_a_port() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address");
    let group = Group::unix(1);
    listens_at(&group, &format!("tcp:{address}"));
    let taken = group.agent_command(1);
    refuses(
        taken,
        69,
        &["metrics", &address.to_string(), "[metrics] listen"],
    );
    drop(free);
    let _agent = group.agent(1);
    exits(group.client(1, ["run", "-w", "30", "x", "true"]), 0);
    let stream = TcpStream::connect(address).expect("it is served");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a limit");
    let (_, page) = asked(stream, GET);
    assert_eq!(numbers(&page)["distlock_members{state=\"alive\"}"], 1.0);
}

#[test]
fn the_page_is_not_served_where_everybody_can_replace_its_socket() {
    let group = Group::unix(1);
    let place = tempfile::tempdir().expect("a directory");
    listens_at(&group, &format!("unix:{}/metrics", place.path().display()));
    let mode = |mode| fs::set_permissions(place.path(), fs::Permissions::from_mode(mode));
    mode(0o777).expect("a mode");
    refuses(group.agent_command(1), 78, &["metrics", "chmod o-w"]);
    assert_eq!(fs::read_dir(place.path()).expect("it").count(), 0);
    mode(0o1777).expect("a mode");
    let agent = group.agent(1);
    assert!(agent.end_by(Signal::SIGTERM).success());
}

/// What others' names of locks are seen by is to be near.
#[test]
fn addresses_that_make_no_sense_are_refused() {
    for (address, why) in [
        ("tcp:192.0.2.1:9717", "loopback"),
        ("tcp:localhost", "IP address with a port"),
        ("unix:metrics", "absolute path"),
        ("9717", "no address"),
    ] {
        let group = Group::unix(1);
        listens_at(&group, address);
        refuses(group.agent_command(1), 78, &["listen", why]);
    }
}

#[test]
fn the_local_group_counts_nothing() {
    let local = Local::new();
    let told = output(local.distlock(["metrics"]));
    assert_refused(&told, 69, &["no agent"]);
}

/// Prometheus itself reads the page, and has nothing against its names.
#[test]
fn promtool_finds_nothing_to_say() {
    let (group, _agent) = Group::alone();
    exits(group.client(1, ["run", "x", "true"]), 0);
    let page = exits(group.client(1, ["metrics"]), 0).stdout;
    let check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut check) = check else {
        return skipped("promtool is not here");
    };
    let mut input = check.stdin.take().expect("a pipe");
    input.write_all(&page).expect("it reads");
    drop(input);
    let said = check.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{words}{}", stdout(&said));
}

/// Each alert fires for its fault, and for no other.
#[test]
fn alerts_fire_for_their_faults() {
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../packaging/prometheus/distlock.rules.test.yml"
    );
    let tests = Command::new("promtool")
        .args(["test", "rules", rules])
        .output();
    let Ok(tests) = tests else {
        return skipped("promtool is not here");
    };
    assert!(tests.status.success(), "{}", stdout(&tests));
}
