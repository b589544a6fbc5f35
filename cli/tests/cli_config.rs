//! `distlock config check`: what a file says, what it may not say, and what may be meant otherwise.

mod cli_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::{distlock, exits, refuses, stdout};
use tempfile::TempDir;

fn check(file: &Path) -> Command {
    let mut command = distlock();
    command.args(["config", "check"]).arg(file);
    command
}

/// A configuration that begins with `lines`, of `members` members on this host; and its directory.
fn file(lines: &str, members: u16) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.toml");
    let mut text = format!("{lines}\n[group]\nname = \"shop\"\n");
    for id in 1..=members {
        text += &format!(
            "[[member]]\nid = {id}\naddress = \"udp:127.0.0.1:{}\"\n",
            7400 + id
        );
    }
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn warnings(lines: &str, members: u16) -> Vec<String> {
    let (_directory, path) = file(lines, members);
    let said = stdout(&exits(check(&path), 0));
    let warnings = said
        .lines()
        .filter_map(|line| line.strip_prefix("warning: "));
    warnings.map(str::to_owned).collect()
}

#[test]
fn it_tells_what_the_file_says() {
    let lines = "lease = \"2s\"\nkey_file = \"shop.key\"\nvoters = [1, 2, 3]\n\
                 lock = [{ name = \"printer\", algorithm = \"token-ring\" }]";
    let (directory, path) = file(lines, 4);
    let key = directory.path().join("shop.key");
    let id = stdout(&exits(distlock().arg("keygen").arg(&key), 0));
    let said = exits(check(&path), 0);
    assert_eq!(
        stdout(&said),
        format!(
            "group: shop\n\
             members: 1 at udp:127.0.0.1:7401, 2 at udp:127.0.0.1:7402, 3 at udp:127.0.0.1:7403, \
             4 at udp:127.0.0.1:7404\n\
             voters: 1, 2, 3; the group goes on without 1 of them\n\
             lease: 2s\n\
             failure: quorum\n\
             algorithm: manager; 1 lock is listed\n\
             sealed: by the key {} in {}\n",
            id.trim(),
            key.display()
        )
    );
    assert!(said.stderr.is_empty(), "{said:?}");
}

#[test]
fn what_is_refused_names_the_line() {
    let (_directory, path) = file("lease = \"5\"", 1);
    refuses(check(&path), 78, &["shop.toml:1:", "no lease"]);
    refuses(
        check(Path::new("/nowhere/shop.toml")),
        66,
        &["/nowhere/shop.toml"],
    );
    let (directory, path) = file("key_file = \"shop.key\"", 1);
    refuses(check(&path), 66, &["shop.key"]);
    let key = directory.path().join("shop.key");
    exits(distlock().arg("keygen").arg(&key), 0);
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    refuses(check(&path), 78, &["shop.key"]);
    refuses(distlock().arg("config"), 64, &[]);
}

#[test]
fn what_may_be_meant_otherwise_is_a_warning() {
    let unsealed = "any user of this host";
    for (lines, members, words) in [
        ("", 3, &[unsealed][..]),
        (
            "",
            4,
            &[
                "4 members vote, and the group goes on without 1 of them",
                unsealed,
            ],
        ),
        (
            "",
            2,
            &["without 0 of them, as it would if 1 voted", unsealed],
        ),
        ("voters = [2]", 3, &["one member votes", unsealed]),
        ("", 1, &[unsealed]),
        ("lease = \"999ms\"", 3, &["999ms", unsealed]),
        (
            "failure = \"presume-failed\"",
            2,
            &["lets two members be inside", unsealed],
        ),
    ] {
        let said = warnings(lines, members);
        assert_eq!(said.len(), words.len(), "{lines} {members}: {said:?}");
        for (said, word) in said.iter().zip(words) {
            assert!(said.contains(word), "{word:?} in {said:?}");
        }
    }
    let (_directory, path) = file("insecure = true", 1);
    let remote = fs::read_to_string(&path)
        .unwrap()
        .replace("127.0.0.1", "192.0.2.1");
    fs::write(&path, remote).unwrap();
    let said = stdout(&exits(check(&path), 0));
    assert!(said.contains("any host that can reach a member"), "{said}");
}
