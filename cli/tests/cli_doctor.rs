//! `distlock doctor`: faults of the agent, the group and the files are planted, and each is found and told
//! of with what to do. Those of the host are in `cli_doctor_host`.

mod cli_support;

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cli_support::doctor::{CHECKS, Findings, at, doctor, eventually_finds, find};
use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::users::in_empty_run_says;
use cli_support::{
    assert_refused, distlock, eventually, exits, files, guardian_of, output, pid_of, refuses,
    stdout,
};
use nix::sys::signal::{Signal, kill};

#[test]
fn a_healthy_group_has_no_faults() {
    let (group, _agents) = Group::running(3);
    eventually("all members are heard", || {
        find(&group, 2).result("members") == "ok"
    });
    let found = find(&group, 2);
    found.is(
        "configuration",
        "ok",
        &["group.toml", "member 2 of 3 in group shop"],
    );
    found.is("agent", "ok", &["member 2 of group shop"]);
    for id in CHECKS {
        // Those depend on the host where this test runs.
        if !["clock-source", "open-files", "receive-buffer", "disk"].contains(&id) {
            found.is(id, "ok", &[]);
        }
        assert_ne!(found.result(id), "skipped", "{id}");
    }
    // What was written to time the disk is gone.
    let left = files(&group.state());
    let is_state = |path: &PathBuf| path.parent().is_some_and(|it| it != group.state());
    assert!(left.iter().all(is_state), "{left:?}");

    // For people: one line each, in the same order.
    let mut lines = group.member(2, ["doctor", "--socket"]);
    let text = stdout(&output(lines.arg(group.socket(2))));
    for (line, id) in text.lines().zip(CHECKS) {
        let (result, rest) = line.split_once(' ').expect("two words");
        assert!(["ok", "warn", "fail"].contains(&result), "{line}");
        assert!(rest.trim_start().starts_with(&format!("{id}: ")), "{line}");
    }
    assert_eq!(text.lines().count(), CHECKS.len(), "{text}");
}

/// Either an agent or a configuration will do, and what is missing for the rest is said.
#[test]
fn what_cannot_be_looked_at_is_said() {
    let (group, _agents) = Group::running(1);
    let found = Findings::of(group.client(1, ["doctor", "--json"]));
    found.is(
        "configuration",
        "skipped",
        &["no configuration", "--config"],
    );
    found.is("disk", "skipped", &["no configuration"]);
    found.is("quorum", "ok", &[]);
    // Which member it is, its agent says.
    let mut alone = distlock();
    alone
        .args(["doctor", "--json", "--config"])
        .arg(group.config());
    alone.arg("--socket").arg(group.socket(1));
    alone.env("DISTLOCK_STATE_DIR", group.state());
    Findings::of(alone).is("disk", "ok", &["writes"]);

    let group = Group::unix(3);
    let mut command = group.member(1, ["doctor", "--json"]);
    command.env_remove("DISTLOCK_ID");
    command.arg("--socket").arg(group.socket(1));
    let found = Findings::of(command);
    found.is("configuration", "ok", &[]);
    found.is("agent", "warn", &["no agent runs", "distlock agent"]);
    found.is(
        "state-directory",
        "skipped",
        &["which member this host is", "--id"],
    );
    found.is("quorum", "skipped", &["no agent of this member answers"]);
    found.is("voters", "ok", &["3 vote"]);
}

#[test]
fn wrong_usage_is_64() {
    for (args, word) in [
        (&["doctor", "--local"][..], "local group"),
        (&["doctor", "--id", "1"], "--config"),
        (&["doctor", "--socket", "@x"], "abstract"),
        (&["doctor", "extra"], "extra"),
    ] {
        let mut command = distlock();
        assert_refused(&output(command.args(args)), 64, &[word]);
    }
    let group = Group::unix(1);
    let mut command = group.member(1, ["doctor"]);
    refuses(command.env("DISTLOCK_ID", "one"), 64, &["DISTLOCK_ID"]);
}

/// Fault 1: the members' keys differ.
#[test]
fn another_key_is_found_on_both_sides() {
    let group = Group::udp(2);
    let configs = [1, 2].map(|id| {
        let key = group.file(&format!("{id}.key"));
        exits(distlock().arg("keygen").arg(&key), 0);
        let line = format!("key_file = \"{}\"\n", key.display());
        group.write_config_with(&format!("{id}.toml"), &line, LEASE_MS)
    });
    let _agents: Vec<_> = (1..=2)
        .map(|id| {
            let mut command = group.agent_command(id);
            command.env("DISTLOCK_CONFIG", &configs[id - 1]);
            AgentProcess::start(command)
        })
        .collect();
    for (id, other) in [(1, 2), (2, 1)] {
        let mut last = None;
        eventually("datagrams with the other key have come", || {
            let mut command = doctor(&group, id);
            command.env("DISTLOCK_CONFIG", &configs[id - 1]);
            let found = Findings::of(command);
            let is_found = found.result("keys") == "fail";
            last = Some(found);
            is_found
        });
        let found = last.expect("it was looked at");
        let who = format!("member {other} is not heard");
        found.is("keys", "fail", &[&who, "unknown-key", "the same key file"]);
        found.is("sealing", "ok", &[]);
        found.is("quorum", "fail", &[&format!("member {other}")]);
    }
    // Nobody could read one that all can read.
    let key = group.file("1.key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("its mode");
    let mut command = doctor(&group, 1);
    command.env("DISTLOCK_CONFIG", &configs[0]);
    Findings::of(command).is("keys", "fail", &["1.key", "0644", "chmod 600"]);
}

/// Fault 7: the members' files differ.
#[test]
fn files_that_differ_are_found() {
    let (group, mut agents) = Group::running(3);
    assert!(agents.remove(2).end_by(Signal::SIGTERM).success());
    find(&group, 1).is("files", "ok", &[]);
    let other = group.write_config("other.toml", LEASE_MS * 2);
    let mut command = group.agent_command(3);
    exits(command.env("DISTLOCK_CONFIG", &other), 78);
    let found = eventually_finds(&group, 1, "files", "fail");
    found.is("files", "fail", &["member 3 differs", "lease", "alike"]);
    // This host's own file has changed since.
    let mut command = doctor(&group, 1);
    command.env("DISTLOCK_CONFIG", &other);
    let found = Findings::of(command);
    assert_ne!(found.result("files"), "ok");
}

/// Also a file that nobody has refused yet, as the group is to begin.
#[test]
fn files_that_disagree_on_the_founding_are_found() {
    let group = Group::unix(2);
    let _agent = group.agent(1);
    let other = group.write_config_with("other.toml", "voters = [2]\n", LEASE_MS);
    let mut command = group.agent_command(2);
    command.env("DISTLOCK_CONFIG", &other);
    let _other = AgentProcess::start(command);
    let found = eventually_finds(&group, 1, "files", "fail");
    found.is("files", "fail", &["member 2", "other voters"]);
}

#[test]
fn a_file_that_was_changed_since_the_start_is_found() {
    let (group, _agents) = Group::running(1);
    find(&group, 1).is("files", "ok", &[]);
    group.write_config("group.toml", LEASE_MS * 3);
    let found = find(&group, 1);
    found.is(
        "files",
        "warn",
        &["lease 3s, which was 1s", "start the agent again"],
    );
}

/// Fault 8: an even number votes.
#[test]
fn an_even_number_of_voters_is_found() {
    find(&Group::unix(4), 1).is("voters", "warn", &["4 vote", "odd number"]);
    find(&Group::unix(3), 1).is("voters", "ok", &["3 vote"]);
    let (group, _agents) = Group::running(2);
    find(&group, 1).is("voters", "warn", &["2 vote", "distlock members voters"]);
}

/// Fault 10: a member is missing.
#[test]
fn members_that_are_missing_are_found() {
    let (group, mut agents) = Group::running(3);
    agents.remove(2).end_by(Signal::SIGKILL);
    let found = eventually_finds(&group, 1, "members", "warn");
    found.is("members", "warn", &["member 3", "start their agents"]);
    eventually("the others have a quorum", || {
        find(&group, 1).result("quorum") == "ok"
    });
    agents.remove(1).end_by(Signal::SIGKILL);
    let found = eventually_finds(&group, 1, "quorum", "fail");
    found.is("quorum", "fail", &["members 2, 3 are silent"]);
}

/// Fault 11: a socket is there, and nobody answers.
#[test]
fn an_agent_that_does_not_answer_is_found() {
    let group = Group::udp(1);
    let agent = group.agent(1);
    let pid = pid_of(&agent.child);
    kill(pid, Signal::SIGSTOP).expect("it is there");
    let start = SystemTime::now();
    let found = find(&group, 1);
    let took = start.elapsed().expect("time goes on");
    // Monitoring gives a check ten seconds.
    assert!(took < Duration::from_secs(9), "{took:?}");
    let go_on = format!("kill -CONT {pid}");
    found.is(
        "agent",
        "fail",
        &["not answered in 5s", "is stopped", &go_on],
    );
    found.is(
        "address",
        "ok",
        &[&format!("process {pid}"), "is this member"],
    );
    found.is("members", "skipped", &["no agent"]);
    agent.end_by(Signal::SIGKILL);
    let found = find(&group, 1);
    found.is("agent", "fail", &["no agent serves", "start the agent"]);
    found.is("address", "ok", &["is free"]);
    fs::remove_file(group.socket(1)).expect("it was left");
    find(&group, 1).is("agent", "warn", &["no agent runs"]);
}

#[test]
fn an_agent_of_another_member_is_not_taken_for_this_ones() {
    let (group, _agents) = Group::running(2);
    let mut command = group.member(1, ["doctor", "--json", "--socket"]);
    command.arg(group.socket(2));
    let found = Findings::of(command);
    found.is("agent", "warn", &["member 2 of group shop", "--socket"]);
    found.is("quorum", "skipped", &["no agent of this member answers"]);
}

/// Fault 12: datagrams are not sealed.
#[test]
fn datagrams_that_are_not_sealed_are_found() {
    let group = Group::udp(1);
    find(&group, 1).is("sealing", "warn", &["any user of this host", "keygen"]);
    let _agent = group.agent(1);
    find(&group, 1).is("sealing", "warn", &["any user of this host", "keygen"]);

    let group = Group::unix(1);
    let sealed = at(&group, ["192.0.2.1", "192.0.2.2"]);
    let with = |config: &Path| {
        let mut command = doctor(&group, 1);
        command.env("DISTLOCK_CONFIG", config);
        Findings::of(command)
    };
    with(&sealed).is("sealing", "ok", &[]);
    let text = fs::read_to_string(&sealed).expect("a file");
    let (_, rest) = text.split_once('\n').expect("lines");
    let open = group.file("open.toml");
    fs::write(&open, format!("insecure = true\n{rest}")).expect("a file");
    with(&open).is("sealing", "warn", &["any host", "key_file"]);
    find(&group, 1).is("sealing", "ok", &["Unix"]);
}

#[test]
fn a_configuration_that_is_refused_is_found() {
    let group = Group::unix(1);
    find(&group, 1).is("configuration", "ok", &[]);
    let mut command = doctor(&group, 1);
    let found = Findings::of({
        command.env("DISTLOCK_ID", "9");
        command
    });
    found.is("configuration", "fail", &["no member 9", "--id"]);
    fs::write(group.config(), "lease = \"5\"\n").expect("a file");
    let found = find(&group, 1);
    found.is("configuration", "fail", &["group.toml:1:", "config check"]);
    found.is("voters", "skipped", &["the configuration is refused"]);
    fs::remove_file(group.config()).expect("it was there");
    find(&group, 1).is("configuration", "fail", &["group.toml", "No such file"]);

    group.write_config("group.toml", LEASE_MS);
    let mode = Permissions::from_mode(0o666);
    fs::set_permissions(group.config(), mode).expect("its mode");
    find(&group, 1).is("configuration", "warn", &["others can change", "chmod"]);
}

#[test]
fn clients_that_were_turned_away_are_found() {
    let (group, _agents) = Group::running(1);
    find(&group, 1).is("clients", "ok", &["none turned away"]);
    let mut stranger = UnixStream::connect(group.socket(1)).expect("it is served");
    let sent = stranger.write_all(&[0xff; 64]);
    sent.expect("it is read");
    let found = eventually_finds(&group, 1, "clients", "warn");
    found.is("clients", "warn", &["malformed 1", "distlock(1)"]);
}

/// A majority that has lost its state takes an operator.
#[test]
fn lost_states_are_found() {
    let (group, mut agents) = Group::running(3);
    find(&group, 3).is("state", "ok", &[]);
    for id in [2, 1] {
        agents.remove(id - 1).end_by(Signal::SIGKILL);
        let state = group.state().join(format!("shop-{id}"));
        fs::remove_dir_all(state).expect("its state");
    }
    let _agents = [group.agent(1), group.agent(2)];
    let found = eventually_finds(&group, 3, "state", "fail");
    let words = ["members 1, 2 have lost their states", "distlock recover"];
    found.is("state", "fail", &words);
    found.is("quorum", "fail", &[]);
}

/// As the package has them: the configuration, and which member this is.
#[test]
fn the_packaged_files_are_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let group = Group::unix(1);
    fs::copy(group.config(), dir.path().join("group.toml")).expect("a copy");
    let script = r#"
        "$0" doctor > /run/said; echo $?
        mkdir /etc/distlock && cp "$1/group.toml" /etc/distlock/distlock.toml
        echo DISTLOCK_ID=1 > /etc/distlock/agent.env
        look() {
            "$0" doctor > /run/said
            grep -oE "^(ok|warn|fail) +($1):" /run/said
        }
        look 'configuration|agent|state-directory'
        grep -om1 "'/var/lib/distlock/shop-1'" /run/said
        "$0" agent --config /etc/distlock/distlock.toml --id 1 > /run/ready 2>/dev/null & agent=$!
        until grep -qs ready /run/ready || ! kill -0 $agent; do sleep 0.01; done
        look agent
        kill $agent; wait $agent
        look agent"#;
    let expected = "1\nok      configuration:\nwarn    agent:\nwarn    state-directory:\n\
                    '/var/lib/distlock/shop-1'\nok      agent:\nfail    agent:\n";
    in_empty_run_says(script, dir.path(), expected);
}

/// While a command runs that the agent's last incarnation let in, the next lets no program in.
#[test]
fn commands_of_a_former_agent_are_found() {
    let group = Group::unix(1);
    // An agent ends them after half a lease.
    group.write_config("group.toml", 8 * LEASE_MS);
    let agent = group.agent(1);
    let holder = group.hold(1, "x");
    // They would end the command when they lose the agent.
    let guardian = guardian_of(holder.pid());
    kill(guardian, Signal::SIGSTOP).expect("it is there");
    holder.signal(Signal::SIGSTOP);
    agent.end_by(Signal::SIGKILL);
    let _next = group.agent(1);
    let found = Findings::of(group.client(1, ["doctor", "--json"]));
    found.is("clients", "fail", &["still run", "end those commands"]);
    kill(guardian, Signal::SIGKILL).expect("it is there");
}
