//! What the program tells of a group: `status`, `members` and `who`, why a lock was not acquired, and
//! what an agent says on its output, in its log and to its service manager.

mod cli_support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::{
    Local, Process, assert_refused, eventually, output, pid_of, spawn, stderr, stdout,
};
use nix::sys::signal::{Signal, kill};
use serde_json::json;

#[test]
fn status_tells_members_holders_and_waiters_of_the_whole_group() {
    let group = Group::udp(2);
    let _agents = group.agents(2);
    let holder = group.hold(1, "printer");
    let mut waiter = spawn(group.client(2, ["run", "printer", "true"]));
    for id in [1, 2] {
        eventually("the waiter is seen", || {
            let status = group.status(id);
            let lock = &status["locks"][0];
            lock["waiters"][0].is_object() && lock["holders"][0]["command_pid"].is_u64()
        });
        let status = group.status(id);
        assert_eq!(status["group"], "shop");
        assert!(status["epoch"].as_u64() > Some(0));
        let members = status["members"].as_array().expect("members");
        assert_eq!(members.len(), 2);
        for (index, member) in members.iter().enumerate() {
            assert_eq!(member["id"], index + 1);
            assert_eq!(member["state"], "alive", "{status}");
            assert!(
                member["address"]
                    .as_str()
                    .expect("text")
                    .starts_with("udp:127.")
            );
        }
        let lock = &status["locks"][0];
        assert_eq!(
            (&lock["name"], &lock["algorithm"]),
            (&"printer".into(), &"manager".into())
        );
        let inside = &lock["holders"][0];
        assert_eq!(inside["member"], 1);
        assert_eq!(inside["pid"], holder.child.id());
        assert!(inside["command_pid"].as_u64() > Some(0), "{status}");
        assert_eq!(inside["command"], "sh", "its arguments may be secret");
        assert!(inside["fence"].as_u64() > Some(0) && inside["host"].is_string());
        assert!(inside["since"].as_str().expect("text").ends_with('Z'));
        assert_eq!(lock["waiters"][0]["member"], 2);
        assert_eq!(lock["waiters"][0]["pid"], waiter.id());
    }
    let table = stdout(&output(&mut group.client(1, ["status"])));
    for word in [
        "shop", "udp:127.", "alive", "printer", "holds", "waits", "sh",
    ] {
        assert!(table.contains(word), "{word} in\n{table}");
    }
    holder.let_go();
    assert!(waiter.wait().expect("it ends").success());
}

/// Member 3 holds the lock and is killed; when its command has ended, nobody can know.
#[test]
fn a_lock_that_waits_for_the_lease_of_a_lost_member_is_quarantined() {
    let group = Group::unix(3);
    group.write_config("group.toml", 3 * LEASE_MS);
    let mut agents = group.agents(3);
    let _holder = group.hold(3, "x");
    agents.remove(2).end_by(Signal::SIGKILL);
    let mut command = group.client(1, ["run", "x", "cat"]);
    let mut waiter = Process(spawn(command.stdin(Stdio::piped())));

    eventually("it is quarantined", || {
        group.status(2)["locks"][0]["quarantined"] == true
    });
    let table = stdout(&output(&mut group.client(2, ["status"])));
    let row = "quarantined  -";
    assert!(
        table.contains(row) && table.contains("until the lease of a lost member is over"),
        "{table}"
    );
    eventually("the waiter is let in", || {
        let status = group.status(2);
        let lock = &status["locks"][0];
        lock["holders"][0]["pid"] == waiter.id() && lock["quarantined"] == false
    });
    drop(waiter.stdin.take());
    assert!(waiter.wait().expect("it ends").success());
}

#[test]
fn the_local_groups_status_has_holder_and_waiter() {
    let group = Local::new();
    let empty = stdout(&output(&mut group.distlock(["status"])));
    assert!(
        empty.contains("local") && empty.contains("No lock"),
        "{empty}"
    );
    let holder = group.hold("a\x1b[31m\n");
    eventually("the command is known", || {
        group.status()["locks"][0]["holders"][0]["command_pid"].as_u64() > Some(0)
    });
    let status = group.status();
    assert_eq!(
        (&status["group"], &status["epoch"]),
        (&"local".into(), &0.into())
    );
    assert_eq!(status["members"], json!([]));
    let lock = &status["locks"][0];
    assert_eq!(lock["algorithm"], "kernel");
    assert_eq!(lock["holders"][0]["pid"], holder.child.id());
    let table = stdout(&output(&mut group.distlock(["status"])));
    assert!(
        !table.contains('\x1b'),
        "names cannot play with the terminal: {table:?}"
    );
    holder.let_go();
}

#[test]
fn what_a_member_warns_of_is_a_line_of_the_program() {
    let group = Group::unix(1);
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let mut command = group.member(1, ["run", "x", "true"]);
    let said = output(command.env("DISTLOCK_STATE_DIR", memory.path().join("a\nb")));
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let said = stderr(&said);
    assert_eq!(said.lines().count(), 1, "{said:?}");
    assert!(
        said.starts_with("distlock: the state directory"),
        "{said:?}"
    );
}

#[test]
fn the_line_that_says_ready_tells_who_is_waited_for() {
    let ready = |group: &Group, id| {
        let mut agent = group.agent_command(id);
        let agent = agent.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut agent = agent.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(agent.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        kill(pid_of(&agent), Signal::SIGTERM).expect("it is there");
        assert!(agent.wait().expect("it ends").success());
        line
    };
    let group = Group::unix(3);
    let socket = group.socket(2);
    let expected = format!(
        "ready: listens at {}, waits for the founding, for which every listed member must be there \
         once: members 1, 3 not heard yet\n",
        socket.display()
    );
    assert_eq!(ready(&group, 2), expected);
    drop(group.agents(3));
    let line = ready(&group, 2);
    let waits = ", waits for a majority of the voters: members 1, 3 not heard yet\n";
    assert!(line.ends_with(waits), "{line:?}");
}

#[test]
fn who_does_not_get_a_lock_is_told_who_has_it() {
    let (group, _agents) = Group::running(2);
    let holder = group.hold(1, "x");
    let host = nix::unistd::gethostname().expect("it has one");
    let by = format!(
        "held by member 1, host {}, process {} (sh)",
        host.to_str().expect("text"),
        holder.pid()
    );
    let run = |args: &[&str]| output(group.client(2, ["run"]).args(args));
    for args in [&["-n", "x", "true"][..], &["-w", "0.3", "x", "true"]] {
        assert_refused(&run(args), 1, &["'x' not acquired", &by, "-w"]);
    }
    let local = Local::new();
    let holder = local.hold("x");
    let said = output(&mut local.distlock(["run", "-n", "x", "true"]));
    let by = format!("process {} (sh)", holder.pid());
    assert_refused(&said, 1, &["held by host ", &by]);
    assert!(!stderr(&said).contains("member"), "{said:?}");
}

#[test]
fn an_agent_tells_what_happens_in_its_group() {
    let group = Group::unix(2);
    let mut command = group.agent_command(1);
    let log = fs::File::create(group.file("log")).expect("a file");
    let mut agent = AgentProcess::start_with_log(&mut command, log);
    let _other = group.agent(2);
    let said = || fs::read_to_string(group.file("log")).expect("its log");
    eventually("it tells of the view", || said().contains("members 1, 2"));
    kill(pid_of(&agent.child), Signal::SIGTERM).expect("it is there");
    assert_eq!(agent.child.wait().expect("it ends").code(), Some(0));
    assert!(
        said().lines().all(|line| line.starts_with("distlock: ")),
        "{}",
        said()
    );
}

#[test]
fn members_and_who_are_the_status_cut_to_the_question() {
    let (group, _agents) = Group::running(2);
    let holder = group.hold(1, "printer");
    let other = group.hold(2, "ring");
    let ask = |args: &[&str]| output(&mut group.client(2, args));
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&ask(args).stdout).expect("JSON")
    };
    let members = json(&["members", "--json"]);
    assert_eq!(members["members"], group.status(2)["members"]);
    assert_eq!(members["group"], "shop");
    assert!(members["locks"].is_null());
    let table = stdout(&ask(&["members"]));
    assert!(
        table.contains("alive") && !table.contains("printer"),
        "{table}"
    );

    let who = json(&["who", "printer", "--json"]);
    assert_eq!(who["locks"].as_array().expect("locks").len(), 1);
    assert_eq!(who["locks"][0]["holders"][0]["pid"], holder.child.id());
    let table = stdout(&ask(&["who", "printer"]));
    assert!(
        table.contains("holds") && !table.contains("ring"),
        "{table}"
    );
    assert_eq!(json(&["who", "--json", "free"])["locks"], json!([]));
    assert!(stdout(&ask(&["who", "free"])).contains("Nobody"));
    assert_refused(&ask(&["who", ""]), 64, &["who"]);
    holder.let_go();
    other.let_go();
}

#[test]
fn an_agent_tells_its_service_manager_when_it_serves_and_when_it_leaves() {
    let group = Group::unix(1);
    let path = group.file("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    let mut command = group.agent_command(1);
    let agent = AgentProcess::start({
        command.env("NOTIFY_SOCKET", &path);
        command
    });
    let limit = Some(Duration::from_secs(30));
    manager.set_read_timeout(limit).expect("a socket");
    let told = || {
        let mut buffer = [0; 256];
        let len = manager.recv(&mut buffer).expect("a word");
        String::from_utf8(buffer[..len].to_vec()).expect("text")
    };
    assert!(told().contains("READY=1"));
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    assert!(told().contains("STOPPING=1"));
}
