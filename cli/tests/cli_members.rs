//! `distlock members add` and `remove`, and `distlock recover`.

mod cli_support;

use std::fs;

use cli_support::group::{AgentProcess, Group};
use cli_support::{assert_refused, eventually, exits, output, refuses, stdout};

/// The ids that `members` lists as members that are there.
fn alive(group: &Group, asked: usize) -> Vec<u64> {
    let told = output(&mut group.client(asked, ["members", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&stdout(&told)).expect("JSON");
    let members = told["members"].as_array().cloned().unwrap_or_default();
    let alive = members.iter().filter(|member| member["state"] == "alive");
    alive.filter_map(|member| member["id"].as_u64()).collect()
}

fn runs(group: &Group, asked: usize) -> bool {
    let run = output(&mut group.client(asked, ["run", "-w", "20", "x", "true"]));
    run.status.code() == Some(0)
}

/// The files of members 1 to 3 do not know member 4, whose own file knows all.
#[test]
fn a_member_is_added_and_removed_while_all_run() {
    let group = Group::udp(4);
    let whole = fs::read_to_string(group.config()).expect("the configuration");
    let fourth = whole.rfind("[[member]]").expect("the fourth");
    fs::write(group.config(), &whole[..fourth]).expect("a file");
    let _three = group.agents(3);
    let own = group.file("own.toml");
    let voters = "voters = [1, 2, 3]\n";
    fs::write(&own, format!("{voters}{whole}")).expect("a file");
    let mut command = group.agent_command(4);
    command.arg("--config").arg(&own);
    let mut joining = Some(AgentProcess::start(command));
    eventually("three are there", || alive(&group, 1) == [1, 2, 3]);

    let address = whole[fourth..].lines().find_map(|line| {
        let quoted = line.strip_prefix("address = \"")?;
        quoted.strip_suffix('"')
    });
    let address = address.expect("its address").to_owned();
    // Once more does no harm.
    for _ in 0..2 {
        exits(group.client(2, ["members", "add", "4", &address]), 0);
    }
    for asked in 1..=4 {
        eventually("all four are there", || {
            alive(&group, asked) == [1, 2, 3, 4]
        });
    }
    assert!(runs(&group, 4));

    for (args, words) in [
        (
            &["members", "add", "4", "udp:127.0.0.1:9"][..],
            "remove it first",
        ),
        (&["members", "add", "5", &address], "member 4"),
        (&["members", "add", "5", "udp:nobody:9"], "udp:nobody:9"),
        (&["members", "add", "5", "udp:192.0.2.1:9"], "key_file"),
        (&["members", "remove", "9"], "no member 9"),
    ] {
        assert_refused(&output(&mut group.client(1, args)), 64, &[words]);
    }

    // Once more does no harm.
    for _ in 0..2 {
        exits(group.client(1, ["members", "remove", "4"]), 0);
    }
    eventually("three are left", || alive(&group, 3) == [1, 2, 3]);
    let mut removed = joining.take().expect("it runs");
    // That is no reason for a service manager to start it again.
    assert_eq!(removed.child.wait().expect("it ends").code(), Some(78));
    assert!(runs(&group, 1));
}

/// What a member that is in no view knows may be from before others were removed, or it was: it does not say
/// that what is wanted is so.
#[test]
fn a_member_without_a_quorum_says_of_no_change_that_it_is_made() {
    let group = Group::udp(3);
    let mut agents = group.agents(3);
    assert!(runs(&group, 1));
    let address = {
        let told = output(&mut group.client(1, ["members", "--json"]));
        let told: serde_json::Value = serde_json::from_str(&stdout(&told)).expect("JSON");
        told["members"][1]["address"]
            .as_str()
            .expect("its address")
            .to_owned()
    };
    let add = ["members", "add", "2", &address];
    exits(group.client(1, add), 0);
    agents.truncate(1);
    eventually("there is no quorum", || {
        output(&mut group.client(1, ["status", "--check"]))
            .status
            .code()
            == Some(69)
    });
    refuses(group.client(1, add), 69, &["no quorum"]);
}

/// A majority of the states is lost. Nobody enters until an operator says so.
#[test]
fn a_group_whose_majority_forgot_is_recovered() {
    let group = Group::udp(3);
    let agents = group.agents(3);
    assert!(runs(&group, 1));
    drop(agents);
    let mut states: Vec<_> = fs::read_dir(group.state())
        .expect("the states")
        .flatten()
        .collect();
    states.sort_by_key(fs::DirEntry::path);
    for lost in &states[..2] {
        fs::remove_dir_all(lost.path()).expect("it is ours");
    }
    let agents: Vec<_> = (1..=3).map(|id| group.agent(id)).collect();
    // It waits for a quorum.
    exits(group.client(1, ["run", "-w", "3", "x", "true"]), 69);
    for asked in 1..=3 {
        refuses(
            group.client(asked, ["run", "x", "true"]),
            69,
            &["no quorum", "members 1, 2", "lost their states"],
        );
        let told = stdout(&output(&mut group.client(asked, ["members"])));
        let not_voting = told
            .lines()
            .filter(|line| line.ends_with("has lost its state"));
        assert_eq!(not_voting.count(), 2, "{told}");
    }
    let status = group.status(3);
    let cluster = status["quorum"]["cluster"].as_str().expect("it is in one");
    let recover = |id, args: &[&str]| output(&mut group.member(id, args));
    assert_refused(&recover(3, &["recover"]), 64, &["--force"]);
    assert_refused(&recover(3, &["recover", "--force"]), 69, &["already runs"]);
    drop(agents);
    assert_eq!(recover(3, &["recover", "--force"]).status.code(), Some(0));
    for lost in [1, 2] {
        assert_refused(&recover(lost, &["recover", "--force"]), 78, &["--cluster"]);
        let done = recover(lost, &["recover", "--force", "--cluster", cluster]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
    }
    let _agents = group.agents(3);
    assert!(runs(&group, 2));
}

/// Each host's file named that host alone when it was first started. Files that are made the same
/// later do not make one group of two, and both say so.
#[test]
fn two_groups_of_one_name_tell_of_each_other() {
    let group = Group::udp(2);
    let whole = fs::read_to_string(group.config()).expect("the configuration");
    let first = whole.find("[[member]]").expect("the first");
    let second = whole.rfind("[[member]]").expect("the second");
    let alone = [
        &whole[..second],
        &[&whole[..first], &whole[second..]].concat(),
    ];
    for (id, file) in (1..).zip(alone) {
        fs::write(group.config(), file).expect("a file");
        let _agent = group.agent(id);
        assert!(runs(&group, id));
    }
    fs::write(group.config(), &whole).expect("a file");
    let agents: Vec<_> = (1..=2)
        .map(|id| {
            let mut command = group.agent_command(id);
            let log = fs::File::create(group.file(&format!("{id}.log"))).expect("a file");
            AgentProcess::start_with_log(&mut command, log)
        })
        .collect();
    for (id, other) in [(1, 2), (2, 1)] {
        eventually("the other is told of", || {
            let log = fs::read_to_string(group.file(&format!("{id}.log"))).expect("a file");
            let words = format!(
                "member {other} is in another cluster of this group's name, where the voters are \
                 {other}, and here they are {id}"
            );
            log.contains(&words)
        });
        let told = group.status(id);
        assert_eq!(told["members"][other - 1]["state"], "refused", "{told}");
        assert!(runs(&group, id), "it goes on by itself");
    }
    // As the message says.
    let mut agents = agents;
    drop(agents.pop());
    let states = fs::read_dir(group.state()).expect("the states").flatten();
    let mut states: Vec<_> = states.map(|state| state.path()).collect();
    states.sort();
    fs::remove_dir_all(&states[1]).expect("it is ours");
    agents.push(group.agent(2));
    for id in 1..=2 {
        eventually("both are there", || alive(&group, id) == [1, 2]);
        assert!(runs(&group, id));
    }
}
