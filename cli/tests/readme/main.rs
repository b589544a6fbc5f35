//! What the README, its pages in `doc/` and distlock(7) say about files, names, programs and commands
//! holds, word for word. Their Rust programs are also documentation tests, and the README's first commands
//! are run by `.ci/documents`.

mod cli_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cli_support::users::in_empty_run;
use cli_support::{stderr, stdout};
use distlock::{Algorithm, Config};

const README: &str = concat!(
    include_str!("../../README.md"),
    include_str!("../../doc/programming.md")
);
const ALGORITHMS: &str = include_str!("../../doc/algorithms.md");
const MAN_7: &str = include_str!("../../man/distlock.7");

/// The blocks of this language in the README and in its page on programs, without the line that names it.
fn blocks<'a>(language: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let blocks = README.split("\n```").skip(1).step_by(2);
    blocks.filter_map(move |block| {
        let (named, text) = block.split_once('\n')?;
        (named.split(',').next() == Some(language)).then_some(text)
    })
}

#[test]
fn the_configuration_is_accepted() {
    let config = Config::parse(blocks("toml").next().expect("it has one")).unwrap();
    assert_eq!(config.members().len(), 2);
    assert_eq!(config.voters().len(), 2);
}

/// What cargo has built beside this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let profile = test.ancestors().nth(2).expect("target/debug/deps");
    let program = profile.join("examples").join(name);
    assert!(
        program.exists(),
        "build it first: cargo build --example {name}"
    );
    program
}

#[test]
fn the_examples_are_the_programs_of_the_readme() {
    let files = [
        include_str!("../../examples/lock.rs"),
        include_str!("../../examples/options.rs"),
        include_str!("../../examples/futures.rs"),
        include_str!("../../examples/member.rs"),
        include_str!("../../examples/driven.rs"),
    ];
    let files = files.map(|file| file.split_once("\n\n").expect("words on it").1.trim_end());
    let programs: Vec<_> = blocks("rust").map(str::trim_end).collect();
    assert_eq!(programs, files);
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its mode");
}

/// Two hosts in one network namespace, each with a `/run` of its own: the README's file, its
/// commands, and its programs beside the agents, all of which exclude each other.
#[test]
fn what_it_says_of_several_hosts_works_as_it_stands() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name);
    fs::write(
        file("shop.toml"),
        blocks("toml").next().expect("it has one"),
    )
    .expect("a file");
    let commands = |beginning: &str| -> Vec<_> {
        let mut blocks = blocks("sh").filter(|block| block.starts_with(beginning));
        let block = blocks.next().expect("it has them");
        block.lines().filter(|line| !line.is_empty()).collect()
    };
    let keygen = commands("distlock keygen").join("\n");
    let join = commands("distlock members add 3").join("\n");
    let [agent, rest @ ..] = &commands("distlock agent")[..] else {
        panic!("no agent");
    };
    executable(
        &file("print-report"),
        "#!/bin/sh\necho printed under $DISTLOCK_NAME\n",
    );
    executable(
        &file("simulate"),
        "#!/bin/sh\necho simulated under $DISTLOCK_NAME\n",
    );
    let programs = ["lock", "member", "driven"].map(|name| {
        let program = example(name);
        format!("timeout 20 {}; echo $?", program.display())
    });
    let script = format!(
        r#"
        cd "$1" && export PATH=$1:$PATH
        ip link set lo up && ip address add 10.0.0.1/32 dev lo && ip address add 10.0.0.2/32 dev lo
        mkdir /etc/distlock
        {keygen}
        unshare --mount bash -c '
            mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib
            exec distlock agent --config shop.toml --id 2' > second 2>second.log & second=$!
        ( {agent}
        ) > first 2>first.log & first=$!
        until grep -qs ready first && grep -qs ready second; do
            kill -0 $first && kill -0 $second || break
            sleep 0.01
        done
        cat first
        {rest}
        {join}
        {programs}
        # While one is inside, the others are not.
        distlock run printer -- sh -c '
            timeout 1 {lock}; echo $?; timeout 1 {member}; echo $?' 2>said
        kill $first $second; wait
        timeout 20 {lock} 2>&1 | grep -o HostGroup"#,
        rest = rest.join("\n"),
        programs = programs.join("\n"),
        lock = example("lock").display(),
        member = example("member").display(),
    );
    fs::write(file("script"), script).expect("a file");
    let outer = r#"exec unshare --net bash "$1/script" "$1""#;
    let Some(said) = in_empty_run(outer, dir.path()) else {
        return;
    };
    let lines: Vec<_> = stdout(&said).lines().map(str::to_owned).collect();
    let text = format!("{}{}", stdout(&said), stderr(&said));
    let mut lines = lines.iter().map(String::as_str);
    let mut expect = |begins: &str| {
        let line = lines.by_ref().find(|line| line.starts_with(begins));
        assert!(line.is_some(), "{begins:?} in {text}");
    };
    expect("ready: listens at /run/distlock/distlock.sock");
    expect("printed under printer");
    expect("simulated under licences");
    expect("Group shop, member 1, epoch ");
    for program in ["lock", "member", "driven"] {
        expect("inside, fence ");
        expect("0");
        eprintln!("{program} has been inside");
    }
    // Ended by timeout(1), and not inside.
    for _ in 0..2 {
        let line = lines.next();
        assert_eq!(line, Some("124"), "{text}");
    }
    assert_eq!(lines.next(), Some("HostGroup"), "{text}");
}

/// A second host that comes later does not run the job again, and an old holder does nothing.
#[test]
fn a_nightly_job_with_a_stamp_runs_once() {
    let (_, section) = MAN_7
        .split_once(".Ss A job that is to run once")
        .expect("it is there");
    let (_, script) = section.split_once(".Bd -literal\n").expect("a script");
    let (script, _) = script.split_once(".Ed").expect("its end");
    let dir = tempfile::tempdir().expect("a directory");
    executable(&dir.path().join("nightly"), script);
    executable(
        &dir.path().join("make-backup"),
        "#!/bin/sh\necho backup; exit ${FAILS:-0}\n",
    );
    let commands = r#"
        export PATH=$1:$PATH; mkdir /var/lib/backup
        host() { DISTLOCK_DIR=/run/group distlock run backup -- sh -c "nightly $1 \$DISTLOCK_FENCE"; }
        echo failed; FAILS=3 host 2026-11-23; echo $?
        echo again; host 2026-11-23; echo $?
        echo another host; host 2026-11-23; echo $?
        echo the next night; host 2026-11-24; echo $?
        echo an old holder; nightly 2026-11-25 1 2>/dev/null; echo $?"#;
    let Some(said) = in_empty_run(commands, dir.path()) else {
        return;
    };
    let expected = "failed\nbackup\n3\nagain\nbackup\n0\nanother host\n0\n\
                    the next night\nbackup\n0\nan old holder\n1\n";
    assert_eq!(stdout(&said), expected, "{}", stderr(&said));
}

#[test]
fn the_algorithms_are_those_there_are() {
    let (section, _) = ALGORITHMS.split_once("\n## ").expect("it ends");
    let named: Vec<_> = section
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?
                .split_once('`')
                .map(|(name, _)| name)
        })
        .collect();
    assert_eq!(named, Algorithm::ALL.map(Algorithm::name));
}
