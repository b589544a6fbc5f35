//! The tutorials of the book, typed as they stand.
//!
//! A block of shell commands is typed where the paragraph before it says `On HOST:`, and a block of text right
//! after it is what the commands print, but for numbers and the width of columns. `Switch HOST off.` is done
//! to the host. Blocks without such words are for other places: an installation, a crontab.

use crate::built;
use crate::stage::Stage;

/// What a tutorial has its reader do.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Paste {
        host: &'a str,
        block: &'a str,
        said: Option<&'a str>,
    },
    SwitchOff(&'a str),
}

fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut host = None;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\n```") {
        let mut last = "";
        for line in before.lines().filter(|line| !line.is_empty()) {
            if let Some(name) = within(line, "Switch ", " off.") {
                steps.push(Step::SwitchOff(name));
            }
            last = line;
        }
        // Words between take the block's place.
        let (info, body) = after.split_once('\n').expect("a block");
        let (block, end) = body.split_once("\n```").expect("its end");
        match (info, within(last, "On ", ":"), host) {
            ("sh", Some(name), _) => {
                steps.push(Step::Paste {
                    host: name,
                    block,
                    said: None,
                });
                host = Some(name);
            }
            ("text", _, Some(_)) if last.is_empty() => {
                let Some(Step::Paste { said, .. }) = steps.last_mut() else {
                    panic!("{block} is said by no commands");
                };
                *said = Some(block);
            }
            _ => host = None,
        }
        rest = end;
    }
    assert!(!rest.contains("Switch "), "nothing comes after it");
    steps
}

/// The word between, if that is all of the line.
fn within<'a>(line: &'a str, begins: &str, ends: &str) -> Option<&'a str> {
    let word = line.strip_prefix(begins)?.strip_suffix(ends)?;
    word.bytes()
        .all(|byte| byte.is_ascii_lowercase())
        .then_some(word)
}

/// A line but for numbers and the width of columns.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for word in line.split_whitespace() {
        for c in word.chars() {
            match c.is_ascii_digit() {
                true if text.ends_with('#') => {}
                true => text.push('#'),
                false => text.push(c),
            }
        }
        text.push(' ');
    }
    text
}

/// Types all of it.
fn follow(stage: &mut Stage, tutorial: &str) {
    for step in steps(tutorial) {
        match step {
            Step::SwitchOff(host) => stage.switch_off(host),
            Step::Paste { host, block, said } => {
                let lines = stage.host(host).paste(block);
                let Some(said) = said else {
                    continue;
                };
                let is_said = lines
                    .iter()
                    .map(|line| plain(line))
                    .eq(said.lines().map(plain));
                let errors = stage.host(host).errors();
                assert!(
                    is_said,
                    "on {host}:\n{block}\nprints {lines:#?}\nand not {said}\n{errors}"
                );
            }
        }
    }
}

/// The demonstration's printer stands in for one of the network.
#[test]
fn a_print_spooler() {
    let Some(mut stage) = Stage::new(&["alpha"]) else {
        return;
    };
    stage.bring(&built("print_spooler"));
    let alpha = stage.host("alpha");
    alpha.paste(
        "echo 127.0.0.1 printer.example.org >>/etc/hosts; echo a page >report.ps\n\
         print_spooler --serve 127.0.0.1:9100 --output paper.txt >/run/printer &\n\
         until grep -q socket: /run/printer; do sleep 0.05; done",
    );
    follow(
        &mut stage,
        include_str!("../../../doc/tutorials/spooler.md"),
    );
    assert_eq!(stage.host("alpha").paste("cat paper.txt"), ["a page"]);
}

const THREE_HOSTS: &str = include_str!("../../../doc/tutorials/three-hosts.md");

#[test]
fn one_host() {
    for tutorial in [
        include_str!("../../../doc/tutorials/one-host.md"),
        include_str!("../../../doc/tutorials/cron.md"),
        include_str!("../../../doc/tutorials/fencing.md"),
    ] {
        let Some(mut stage) = Stage::new(&["alpha"]) else {
            return;
        };
        follow(&mut stage, tutorial);
    }
}

#[test]
fn three_hosts_with_licences_and_a_leader() {
    let Some(mut stage) = Stage::new(&["alpha", "beta", "gamma"]) else {
        return;
    };
    follow(&mut stage, THREE_HOSTS);
    follow(
        &mut stage,
        include_str!("../../../doc/tutorials/licences.md"),
    );
    follow(&mut stage, include_str!("../../../doc/tutorials/leader.md"));
}

#[test]
fn growing_and_mending() {
    let Some(mut stage) = Stage::new(&["alpha", "beta", "gamma", "delta"]) else {
        return;
    };
    follow(&mut stage, THREE_HOSTS);
    follow(
        &mut stage,
        include_str!("../../../doc/tutorials/growing.md"),
    );
}

#[test]
fn a_tutorial_is_read_step_by_step() {
    let text = "# One\n\n```sh\ninstall\n```\n\n```text\nnot said\n```\n\nOn alpha:\n\n```sh\nls\n```\n\n\
                ```text\na 12\n```\n\nSwitch beta off.\n\nOn gamma:\n\n```sh\ntrue\n```\n\nWords.\n\n\
                ```text\nof a file\n```\n";
    let paste = |host, block, said| Step::Paste { host, block, said };
    assert_eq!(
        steps(text),
        [
            paste("alpha", "ls", Some("a 12")),
            Step::SwitchOff("beta"),
            paste("gamma", "true", None)
        ]
    );
    assert_eq!(plain("a  12\tb3c "), "a # b#c ");
    assert_ne!(plain("a 12"), plain("b 12"));
}
