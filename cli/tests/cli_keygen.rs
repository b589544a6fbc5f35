//! `distlock keygen`, and agents with the key that it writes.

mod cli_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cli_support::group::Group;
use cli_support::{assert_refused, distlock, eventually, exits, output, refuses, stderr};

fn keygen(file: &Path) -> Command {
    let mut command = distlock();
    command.arg("keygen").arg(file);
    command
}

/// A new key in `file`; its id.
fn new_key(file: &Path) -> String {
    let done = output(&mut keygen(file));
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// A group of members on this host that seals with the key in `key_file`.
fn sealed(size: usize, key_file: &str) -> Group {
    let group = Group::udp(size);
    let text = fs::read_to_string(group.config()).unwrap();
    let text = format!("key_file = \"{key_file}\"\n{text}");
    fs::write(group.config(), text).unwrap();
    group
}

fn protection(group: &Group, id: usize) -> serde_json::Value {
    group.status(id)["protection"].clone()
}

#[test]
fn a_key_is_written_once_and_for_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("group.key");
    let id = new_key(&file);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().any(|line| line.starts_with(&format!("{id} "))));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    refuses(
        keygen(&file),
        73,
        &["group.key", "is there already", "remove it"],
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let nowhere = directory.path().join("missing/group.key");
    let refused = output(&mut keygen(&nowhere));
    assert_refused(&refused, 66, &["missing/group.key", "make its directory"]);
    assert!(!stderr(&refused).contains("of yours"), "{refused:?}");
    let refused = output(&mut keygen(&file.join("group.key")));
    assert_refused(&refused, 66, &["group.key", "a file is in the way"]);
    assert_ne!(new_key(&directory.path().join("other.key")), id);
}

#[test]
fn agents_with_the_key_take_turns() {
    let group = sealed(2, "group.key");
    let id = new_key(&group.file("group.key"));
    let agents = [1, 2].map(|id| group.agent(id));
    for member in [1, 2] {
        exits(group.client(member, ["run", "printer", "--", "true"]), 0);
        assert_eq!(protection(&group, member)["keys"], serde_json::json!([id]));
        assert_eq!(protection(&group, member)["insecure"], false);
    }
    drop(agents);
}

/// Who has none, or another one, is told so, and takes no part.
#[test]
fn an_agent_without_the_key_is_alone() {
    let group = sealed(2, "group.key");
    new_key(&group.file("group.key"));
    let first = group.agent(1);
    let text = fs::read_to_string(group.config()).unwrap();
    fs::write(group.config(), text.split_once('\n').unwrap().1).unwrap();
    let second = group.agent(2);
    let counts = |id, why: &str| protection(&group, id)["dropped"][why].as_u64();
    eventually("what is not sealed", || counts(1, "not-sealed") > Some(0));
    eventually("what is sealed", || counts(2, "sealed") > Some(0));
    exits(group.client(2, ["run", "printer", "--", "true"]), 69);
    drop((first, second));
}

#[test]
fn a_key_file_that_will_not_do_is_refused() {
    let group = sealed(1, "group.key");
    let run = || output(&mut group.member(1, ["run", "printer", "--", "true"]));
    assert_refused(&run(), 66, &["group.key", "key file"]);
    new_key(&group.file("group.key"));
    let mode = |mode| fs::set_permissions(group.file("group.key"), Permissions::from_mode(mode));
    mode(0o640).unwrap();
    assert_refused(&run(), 78, &["group.key", "0640", "chmod 600"]);
    mode(0o600).unwrap();
    let good = fs::read_to_string(group.file("group.key")).unwrap();
    fs::write(group.file("group.key"), good.to_lowercase()).unwrap();
    assert_refused(&run(), 78, &["group.key, line 2", "copy the line again"]);
    fs::write(group.file("group.key"), "").unwrap();
    assert_refused(&run(), 78, &["group.key", "has no key"]);
    fs::write(group.file("group.key"), good).unwrap();
    assert_eq!(run().status.code(), Some(0), "{}", stderr(&run()));
}
