//! The order in which a group is looked for.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A host of a test's own.
struct Place {
    dir: TempDir,
    paths: [PathBuf; 3],
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["distlock.sock", "distlock.toml", "state"].map(|x| dir.path().join(x));
        Self { dir, paths }
    }

    fn host(&self) -> Host<'_> {
        let [socket, config, state] = &self.paths;
        Host {
            socket,
            config,
            state,
        }
    }

    fn find(&self, options: &GroupOptions, env: &[(&str, &str)]) -> Result<GroupChoice, OpenError> {
        let get = |key: &str| env.iter().find(|(k, _)| *k == key).map(|(_, v)| v.into());
        options.find_on(&self.host(), &get)
    }
}

fn id(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn member(config: &str, number: u16) -> GroupChoice {
    GroupChoice::Member(MemberChoice {
        config: config.into(),
        id: id(number),
        state_dir: None,
    })
}

#[test]
fn options_then_environment_then_host_then_local() {
    let none = GroupOptions::new();
    let env = [
        ("DISTLOCK_SOCKET", "s"),
        ("DISTLOCK_CONFIG", "c"),
        ("DISTLOCK_ID", "7"),
        ("DISTLOCK_DIR", "d"),
    ];
    let place = Place::new();
    let is = |options: &GroupOptions, env: &[(&str, &str)], group: GroupChoice| {
        assert_eq!(place.find(options, env).unwrap(), group);
    };
    let agent = |path: &Path| GroupChoice::Agent(path.to_owned());
    is(&none.clone().local(), &env, GroupChoice::Local);
    is(&none.clone().socket("f"), &env, agent("f".as_ref()));
    is(&none.clone().config("f"), &env, member("f", 7));
    is(&none.clone().config("f").id(id(3)), &env, member("f", 3));
    is(&none.clone().id(id(3)), &env, member("c", 3));
    is(&none, &env, agent("s".as_ref()));
    is(&none, &env[1..], member("c", 7));
    is(&none, &env[3..], GroupChoice::Local);
    is(&none, &[], GroupChoice::Local);
    File::create(&place.paths[0]).unwrap();
    is(&none, &[], agent(&place.paths[0]));
    is(&none, &env[3..], GroupChoice::Local);
    is(&none.local(), &[], GroupChoice::Local);
}

/// Whatever tells of a configured group is enough, be it a link that leads nowhere.
#[test]
fn a_host_with_a_configured_group_has_no_local_one_by_default() {
    for at in [1, 2] {
        for is_link in [false, true] {
            let place = Place::new();
            let path = &place.paths[at];
            match is_link {
                true => symlink("nowhere", path).unwrap(),
                false => fs::create_dir(path).unwrap(),
            }
            let refused = place.find(&GroupOptions::new(), &[]).unwrap_err();
            let OpenError::HostGroup { evidence, .. } = &refused else {
                panic!("{refused}");
            };
            assert_eq!(evidence, std::slice::from_ref(path));
            let text = refused.to_string();
            assert!(text.contains(path.to_str().unwrap()), "{text}");
            assert!(text.contains("--local"), "{text}");
            let local = place.find(&GroupOptions::new().local(), &[]).unwrap();
            assert_eq!(local, GroupChoice::Local);
        }
    }
}

#[test]
fn the_mark_of_a_host_is_made_once() {
    let place = Place::new();
    place.host().mark().unwrap();
    place.host().mark().unwrap();
    assert!(place.paths[2].is_dir());
    let refused = place.find(&GroupOptions::new(), &[]).unwrap_err();
    assert!(matches!(refused, OpenError::HostGroup { .. }), "{refused}");
    // As systemd makes it, before what it leads to is mounted.
    let place = Place::new();
    symlink("private/distlock", &place.paths[2]).unwrap();
    place.host().mark().unwrap();
    let nowhere = place.dir.path().join("nowhere/state");
    let host = Host {
        state: &nowhere,
        ..place.host()
    };
    let refused = host.mark().unwrap_err().to_string();
    assert!(refused.contains(nowhere.to_str().unwrap()), "{refused}");
}

#[test]
fn contradictions_and_halves_are_refused() {
    let place = Place::new();
    let refused = |options: GroupOptions, env: &[(&str, &str)]| {
        let refused = place.find(&options, env).unwrap_err();
        assert!(matches!(refused, OpenError::Options { .. }), "{refused}");
    };
    let none = GroupOptions::new;
    refused(none().socket("s").config("c").id(id(1)), &[]);
    refused(none().socket("s").id(id(1)), &[]);
    refused(none().config("c"), &[]);
    refused(none().id(id(1)), &[]);
    refused(none().local().socket("s"), &[]);
    refused(none().local().config("c").id(id(1)), &[]);
    refused(none().local().id(id(1)), &[("DISTLOCK_CONFIG", "c")]);
    refused(none().socket(""), &[]);
    refused(none().socket("@x"), &[]);
    refused(none().socket("x".repeat(MAX_SOCKET_PATH + 1)), &[]);
    for id in ["0", "65536", "x", "-1", "1 "] {
        refused(none().config("c"), &[("DISTLOCK_ID", id)]);
    }
}
