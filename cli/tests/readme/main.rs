//! What the README, its pages in `doc/` and distlock(7) say about files, names, programs and commands
//! holds, word for word. Their Rust programs are also documentation tests, and the README's first commands
//! are run by `.ci/documents`.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod stage;
mod tutorials;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cli_support::users::in_empty_run;
use cli_support::{stderr, stdout};
use distlock::{Algorithm, Config};
use stage::Stage;

const README: &str = concat!(
    include_str!("../../../README.md"),
    include_str!("../../../doc/programming.md")
);
const ALGORITHMS: &str = include_str!("../../../doc/algorithms.md");
const MAN_7: &str = include_str!("../../../man/distlock.7");

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
    let (_, file) = README.split_once("<<'END'\n").expect("it has one");
    let (file, _) = file.split_once("\nEND\n").expect("its end");
    let config = Config::parse(file).unwrap();
    assert_eq!(config.members().len(), 3);
    assert_eq!(config.voters().len(), 3);
}

/// What cargo has built beside this test: `examples/NAME`, or the program of another package.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let profile = test.ancestors().nth(2).expect("target/debug/deps");
    let program = profile.join(name);
    assert!(
        program.exists(),
        "build it first: cargo test --workspace --all-features --no-run"
    );
    program
}

#[test]
fn the_examples_are_the_programs_of_the_readme() {
    let files = [
        include_str!("../../../examples/lock.rs"),
        include_str!("../../../examples/options.rs"),
        include_str!("../../../examples/futures.rs"),
        include_str!("../../../examples/member.rs"),
        include_str!("../../../examples/driven.rs"),
    ];
    let files = files.map(|file| file.split_once("\n\n").expect("words on it").1.trim_end());
    let programs: Vec<_> = blocks("rust").map(str::trim_end).collect();
    assert_eq!(programs, files);
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its mode");
}

/// The README's commands, pasted as they stand, and its programs beside the agents, all of which exclude each
/// other.
#[test]
fn what_it_says_of_three_hosts_works_as_it_stands() {
    let Some(mut stage) = Stage::new(&["alpha", "beta", "gamma"]) else {
        return;
    };
    for program in ["lock", "member", "driven"] {
        stage.bring(&built(&format!("examples/{program}")));
    }
    let (_, section) = README
        .split_once("\n## Three hosts\n")
        .expect("it is there");
    let (section, _) = section.split_once("\n## ").expect("it ends");
    let mut typed = section.split("\n```sh\n").skip(1);
    let mut block = || typed.next().and_then(|text| text.split_once("\n```"));
    let alpha = stage.host("alpha");
    let (set_up, _) = block().expect("the files and the agents");
    assert_eq!(alpha.paste(set_up).len(), 1, "the id of the key");
    let (use_it, _) = block().expect("its use");
    let said = alpha.paste(use_it).join("\n");
    let begins = |line: &str| said.lines().any(|said| said.starts_with(line));
    assert!(begins("Group shop, member 3, epoch "), "{said}");
    assert!(begins("Quorum: members 1, 2, 3 vote."), "{said}");
    assert_eq!(block(), None);

    let is_inside = |said: Vec<String>| said.iter().any(|line| line.starts_with("inside, fence "));
    assert!(is_inside(alpha.paste("timeout 20 lock")));
    // While one is inside, the others are not: ended by timeout(1), and not inside.
    let tries = "distlock run -w 60 printer -- sh -c 'timeout 1 lock; echo $?'";
    assert_eq!(alpha.paste(tries), ["124"]);
    let ended = "systemctl stop distlock; timeout 20 lock 2>&1 | grep -o HostGroup";
    assert_eq!(alpha.paste(ended), ["HostGroup"]);
    alpha.paste("systemctl start distlock");

    // Programs that are members themselves, beside their host's agent.
    alpha.paste(
        "cp /etc/distlock/distlock.toml shop.toml; export CREDENTIALS_DIRECTORY=/etc/distlock
         until distlock status --check >/dev/null 2>&1; do sleep 0.1; done",
    );
    let mut join = blocks("sh").filter(|block| block.starts_with("distlock members add"));
    alpha.paste(join.next().expect("it is in doc/programming.md"));
    for program in ["member", "driven"] {
        let said = alpha.paste(&format!("timeout 20 {program}"));
        assert!(is_inside(said), "{program}");
    }
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
