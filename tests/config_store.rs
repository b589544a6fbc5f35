//! What a configuration says of a store, and the files that it names.
#![cfg(feature = "store")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use distlock::config::StoreConfig;
use distlock::{Agent, Config, ConfigError, OpenError};

/// A file with `[store]` and these lines in it, after these.
fn config(before: &str, store: &str) -> Result<Config, ConfigError> {
    let text = format!(
        "{before}\n[group]\nname = \"shop\"\n[store]\nat = \"etcd://10.0.0.1,[::1]:9\"\n{store}\n"
    );
    text.parse()
}

fn refused(before: &str, store: &str) -> String {
    match config(before, store) {
        Err(ConfigError::Invalid { reason, .. }) => reason,
        other => panic!("{before:?}, {store:?}: {other:?}"),
    }
}

#[test]
fn a_file_says_which_store_has_the_locks() {
    let locks = "[[lock]]\nname = \"licences\"\npermits = 4";
    let config = config(
        "lock_delay = \"2s\"",
        &format!("require = \"keeps\"\n{locks}"),
    )
    .unwrap();
    let store = config.store().unwrap();
    assert_eq!(store.url(), "etcd://10.0.0.1:2379,[::1]:9");
    assert_eq!(store.group(), "shop");
    assert_eq!(store.lease(), Duration::from_secs(10));
    assert!(store.requires_keeping());
    assert!(config.members().is_empty());
    assert!(matches!(config.node(1), Err(ConfigError::NoMembers { .. })));
}

#[test]
fn what_only_members_have_does_not_go_with_a_store() {
    let member = "[[member]]\nid = 1\naddress = \"udp:127.0.0.1:7400\"";
    for (before, store, word) in [
        ("algorithm = \"manager\"", "", "algorithm"),
        ("election = \"ring\"", "", "election"),
        ("failure = \"quorum\"", "", "failure"),
        ("", member, "[[member]]"),
        (
            "",
            "[[lock]]\nname = \"x\"\nalgorithm = \"manager\"",
            "algorithm",
        ),
        ("", "require = \"speed\"", "keeps"),
        ("", "cert_file = \"x\"", "together"),
        ("", "ca_file = \"x\"", "etcds://"),
        ("", "password_file = \"\"", "no path"),
    ] {
        let reason = refused(before, store);
        assert!(reason.contains(word), "{before:?}, {store:?}: {reason}");
    }
    let twice = "[group]\nname = \"shop\"\n[store]\nat = \"etcd://a@b\"\nuser = \"c\"\n";
    assert!(
        twice
            .parse::<Config>()
            .unwrap_err()
            .to_string()
            .contains("names a user")
    );
    let spaced = "[group]\nname = \"a b\"\n[store]\nat = \"etcd://b\"\n";
    assert!(
        spaced
            .parse::<Config>()
            .unwrap_err()
            .to_string()
            .contains("register")
    );
}

fn open(password_file: &Path) -> Result<Agent, OpenError> {
    let path = password_file.display();
    Agent::from_store(StoreConfig::at(&format!(
        "etcd://shop@127.0.0.1:1?password_file={path}"
    ))?)
}

#[test]
fn a_password_is_read_only_from_a_file_that_is_nobody_elses() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    let missing = open(&file).unwrap_err();
    assert!(matches!(missing, OpenError::Io { .. }), "{missing:?}");
    fs::write(&file, "secret\n").unwrap();
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let loose = open(&file).unwrap_err();
    assert!(
        matches!(&loose, OpenError::Unsafe { reason } if reason.contains("0644")),
        "{loose}"
    );
    mode(0o600);
    open(&file).unwrap().close();
    fs::write(&file, "\n").unwrap();
    let empty = open(&file).unwrap_err();
    assert!(
        matches!(&empty, OpenError::Keys { reason } if reason.contains("empty")),
        "{empty}"
    );
    let directory = open(directory.path()).unwrap_err();
    assert!(
        matches!(directory, OpenError::Unsafe { .. }),
        "{directory:?}"
    );
}
