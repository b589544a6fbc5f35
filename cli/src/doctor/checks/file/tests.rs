//! What is judged of files and keys.

use std::time::Duration;

use distlock::Config;
use distlock::status::{FoundingStatus, MemberStatus, Protection};

use super::*;

const SHOP: &str = "[group]\nname = \"shop\"\n\
                    [[member]]\nid = 1\naddress = \"udp:127.0.0.1:7401\"\n\
                    [[member]]\nid = 2\naddress = \"udp:127.0.0.1:7402\"\n";

/// What the file `text` says, of member 1.
fn file(text: &str) -> Facts {
    let config = Config::parse(text).unwrap();
    Facts {
        node: Node::Known(Box::new(config.node(1).unwrap())),
        file: File::Read {
            path: "shop.toml".into(),
            config: Box::new(config),
            writers: None,
        },
        ..Facts::default()
    }
}

/// A group of two, of which the second is in that state.
fn status(state: MemberState) -> Status {
    let members = [(1, MemberState::Alive), (2, state)];
    let members = members.map(|(id, state)| MemberStatus {
        id,
        address: format!("udp:127.0.0.1:{}", 7400 + id),
        state,
        detail: String::new(),
    });
    Status {
        group: "shop".to_owned(),
        member: 1,
        members: members.into(),
        failure: "quorum".to_owned(),
        protection: Some(Protection {
            keys: vec!["a1".to_owned()],
            ..Protection::default()
        }),
        ..Status::default()
    }
}

fn answered(mut facts: Facts, status: Status, lease: Option<Duration>) -> Facts {
    let status = Box::new(status);
    facts.agent.answer = Answer::Status { status, lease };
    facts
}

fn dropped(state: MemberState, reason: &str) -> Facts {
    let mut status = status(state);
    let protection = status.protection.as_mut().unwrap();
    protection.dropped = [(reason.to_owned(), 7)].into();
    answered(Facts::default(), status, None)
}

#[test]
fn a_file_that_is_refused_fails() {
    let mut facts = file(SHOP);
    let told = configuration(&facts);
    assert_eq!(told.result, Outcome::Ok);
    assert!(told.what.contains("member 1 of 2 in group shop"), "{told}");
    facts.node = Node::Refused("there is no member 9".to_owned());
    assert_eq!(configuration(&facts).result, Outcome::Fail);
    facts.file = File::Refused("shop.toml:1: no lease".to_owned());
    assert_eq!(configuration(&facts).result, Outcome::Fail);
    let mut facts = file(SHOP);
    if let File::Read { writers, .. } = &mut facts.file {
        *writers = Some(("others may write to it".to_owned(), "chmod o-w it"));
    }
    assert_eq!(configuration(&facts).result, Outcome::Warn);
    // An agent alone is no fault.
    let facts = answered(Facts::default(), status(MemberState::Alive), None);
    assert_eq!(configuration(&facts).result, Outcome::Skipped);
}

#[test]
fn keys_that_differ_are_told_by_what_is_dropped_and_who_is_not_heard() {
    for reason in ["unknown-key", "not-sealed", "sealed", "forged"] {
        let told = keys(&dropped(MemberState::Unknown, reason));
        assert_eq!(told.result, Outcome::Fail);
        assert!(told.what.contains("member 2 is not heard"), "{told}");
        assert!(told.what.contains(&format!("({reason})")), "{told}");
        // Before the keys were made alike, or by a stranger.
        let told = keys(&dropped(MemberState::Alive, reason));
        assert_eq!(told.result, Outcome::Ok, "{told}");
        assert!(told.what.contains(&format!("({reason})")), "{told}");
    }
    let told = keys(&dropped(MemberState::Unknown, "by-kernel"));
    assert_eq!(told.result, Outcome::Ok, "{told}");
    let told = keys(&dropped(MemberState::Left, "unknown-key"));
    assert_eq!(told.result, Outcome::Ok, "{told}");
}

#[test]
fn the_key_file_is_that_of_the_agent() {
    let with = |keys: Keys| {
        let facts = answered(file(SHOP), status(MemberState::Alive), None);
        self::keys(&Facts { keys, ..facts })
    };
    let ids = |ids: &[&str]| Keys::Ids(ids.iter().map(|&id| id.to_owned()).collect());
    assert_eq!(with(ids(&["a1"])).result, Outcome::Ok);
    let told = with(ids(&["b2", "a1"]));
    assert_eq!(told.result, Outcome::Warn);
    assert!(told.what.contains("b2, and a1 to open"), "{told}");
    assert_eq!(with(Keys::None).result, Outcome::Warn);
    // What was dropped in the past hides nothing.
    let facts = Facts {
        keys: ids(&["b2"]),
        ..dropped(MemberState::Alive, "unknown-key")
    };
    assert_eq!(keys(&facts).result, Outcome::Warn);
    assert_eq!(with(Keys::Credential).result, Outcome::Ok);
    assert_eq!(with(Keys::OfUser(7)).result, Outcome::Ok);
    assert_eq!(
        with(Keys::Refused("loose".to_owned())).result,
        Outcome::Fail
    );
    let alone = |keys| self::keys(&Facts { keys, ..file(SHOP) });
    assert_eq!(alone(ids(&["a1"])).result, Outcome::Ok);
    assert_eq!(alone(Keys::None).result, Outcome::Ok);
    assert_eq!(alone(Keys::Credential).result, Outcome::Skipped);
    assert_eq!(alone(Keys::OfUser(7)).result, Outcome::Skipped);
    let unreadable = || Keys::Unreadable("Permission denied".to_owned());
    assert_eq!(alone(unreadable()).result, Outcome::Fail);
    let mut facts = file(SHOP);
    facts.keys = unreadable();
    facts.agent.answer = Answer::Forbidden("it is not this user's".to_owned());
    assert_eq!(keys(&facts).result, Outcome::Skipped);
}

#[test]
fn what_is_not_sealed_is_a_warning() {
    let told = sealing(&file(SHOP));
    assert_eq!(told.result, Outcome::Warn);
    assert!(told.what.contains("any user of this host"), "{told}");
    let remote = SHOP.replace("127.0.0", "192.0.2");
    let told = sealing(&file(&format!("insecure = true\n{remote}")));
    assert_eq!(told.result, Outcome::Warn);
    assert!(told.what.contains("any host"), "{told}");
    let told = sealing(&file(&format!("key_file = \"k\"\n{remote}")));
    assert_eq!(told.result, Outcome::Ok);
    let unix = "[group]\nname = \"shop\"\n[[member]]\nid = 1\naddress = \"unix:/run/1\"\n";
    assert_eq!(sealing(&file(unix)).result, Outcome::Ok);
    // What the agent does counts, and not what the file has come to say.
    let mut status = status(MemberState::Alive);
    let sealed = answered(file(SHOP), status.clone(), None);
    assert_eq!(sealing(&sealed).result, Outcome::Ok);
    status.protection.as_mut().unwrap().insecure = true;
    let insecure = answered(file(SHOP), status, None);
    assert_eq!(sealing(&insecure).result, Outcome::Warn);
}

#[test]
fn files_that_differ_are_told() {
    let told = |status: Status, lease| files(&answered(file(SHOP), status, Some(lease)));
    let five = Duration::from_secs(5);
    assert_eq!(told(status(MemberState::Alive), five).result, Outcome::Ok);

    let mut refused = status(MemberState::Refused);
    refused.members[1].detail = "lease: 2s there, 5s here".to_owned();
    let found = told(refused, five);
    assert_eq!(found.result, Outcome::Fail);
    assert!(
        found.what.contains("member 2 differs: lease: 2s"),
        "{found}"
    );

    let mut founding = status(MemberState::Alive);
    founding.quorum.founding = Some(FoundingStatus {
        differ: vec![2],
        ..FoundingStatus::default()
    });
    assert_eq!(told(founding, five).result, Outcome::Fail);

    let found = told(status(MemberState::Alive), Duration::from_secs(9));
    assert_eq!(found.result, Outcome::Warn);
    assert!(found.what.contains("lease 5s, which was 9s"), "{found}");

    let mut moved = status(MemberState::Alive);
    moved.members[1].address = "udp:127.0.0.1:9".to_owned();
    moved.failure = "presume-failed".to_owned();
    let found = told(moved, five);
    assert_eq!(found.result, Outcome::Warn);
    assert!(
        found.what.contains("7402, which was at udp:127.0.0.1:9"),
        "{found}"
    );
    assert!(found.what.contains("which was presume-failed"), "{found}");

    let mut voters = status(MemberState::Alive);
    voters.quorum.voters = vec![1];
    voters.quorum.file_voters = vec![1, 2];
    assert_eq!(told(voters, five).result, Outcome::Warn);
}

#[test]
fn what_is_not_often_meant_is_a_warning() {
    assert_eq!(failure_rule(&file(SHOP)).result, Outcome::Ok);
    let presumed = file(&format!("failure = \"presume-failed\"\n{SHOP}"));
    assert_eq!(failure_rule(&presumed).result, Outcome::Warn);
    assert_eq!(lease(&file(SHOP)).result, Outcome::Ok);
    let short = file(&format!("lease = \"999ms\"\n{SHOP}"));
    assert_eq!(lease(&short).result, Outcome::Warn);
}
