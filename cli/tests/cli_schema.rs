//! The schema that is published for what `status`, `members` and `who` print says what they print.

mod cli_support;
#[path = "cli_support/schema.rs"]
mod schema;

use std::collections::BTreeMap;

use cli_support::group::Group;
use cli_support::{Local, Process, eventually, exits, spawn};
use distlock::status::{
    ClientsStatus, FoundingStatus, HolderStatus, LockStatus, MemberState, MemberStatus,
    MulticastStatus, Protection, QuorumStatus, SCHEMA, Status, StoreStatus, WaiterStatus,
};
use schema::{assert_valid, of_this_version, published, validator};
use serde_json::{Value, json};

/// A status with all that there may be in one. No field is left to a default: one that is new has to be
/// named here.
fn full() -> Status {
    let holder = HolderStatus {
        member: 1,
        host: "a".to_owned(),
        pid: 4711,
        command: "lp".to_owned(),
        command_pid: Some(4712),
        since: "2026-11-27T01:02:03.004Z".to_owned(),
        fence: Some(u64::MAX),
    };
    let waiter = WaiterStatus {
        member: 2,
        host: "b".to_owned(),
        pid: 5,
        since: "2026-11-27T01:02:03.004Z".to_owned(),
    };
    let founding = FoundingStatus {
        remember: BTreeMap::from([(2, "38b669a732808af3".to_owned())]),
        differ: vec![2],
        unrecovered: vec![3],
        waits_ms: 4_500,
    };
    Status {
        group: "shop".to_owned(),
        member: 1,
        quorum: QuorumStatus {
            ok: false,
            voters: vec![1, 2, 3],
            missing: vec![2],
            state_lost: vec![2],
            founded: false,
            cluster: "38b669a732808af3".to_owned(),
            file_voters: vec![1, 3],
            unlisted: vec![4],
            founding: Some(founding),
        },
        epoch: 7,
        members: vec![MemberStatus {
            id: 1,
            address: "udp:10.0.0.1:7400".to_owned(),
            state: MemberState::Alive,
            detail: "does not vote yet".to_owned(),
        }],
        locks: vec![LockStatus {
            name: "printer".to_owned(),
            algorithm: "manager".to_owned(),
            quarantined: true,
            holders: vec![holder],
            waiters: vec![waiter],
        }],
        failure: "quorum".to_owned(),
        multicast: Some(MulticastStatus {
            address: "udp:239.0.0.1:7400".to_owned(),
            reached: vec![2],
            sent: 1,
            merged: 2,
            received: 3,
            lost: 4,
        }),
        protection: Some(Protection {
            keys: vec!["5d41402a".to_owned()],
            insecure: true,
            received: 1,
            handshakes: 2,
            flooded: vec![3],
            dropped: BTreeMap::from([("forged".to_owned(), 3)]),
        }),
        clients: Some(ClientsStatus {
            connected: 1,
            waits_for_former: true,
            dropped: BTreeMap::from([("too-many".to_owned(), 2)]),
        }),
        store: Some(StoreStatus {
            at: "etcd://10.0.0.1:2379".to_owned(),
            ok: false,
            reason: "it does not answer".to_owned(),
            keeps: None,
            forgot: 1,
            unreadable: vec!["distlock/shop/lock/x: it is no record".to_owned()],
        }),
    }
}

/// As `status --json` prints it.
fn document(status: &Status) -> Value {
    let mut document = serde_json::to_value(status).expect("plain data");
    document["schema"] = SCHEMA.into();
    document
}

/// What the program prints, which must be as the schema says.
fn printed(kind: &str, mut command: std::process::Command) -> Value {
    let said = exits(&mut command, 0);
    let document = serde_json::from_slice(&said.stdout).expect("JSON");
    assert_valid(kind, &document);
    document
}

#[test]
fn what_the_program_prints_of_a_configured_group_is_as_the_schema_says() {
    let group = Group::udp(2);
    let _agents = group.agents(2);
    let holder = group.hold(1, "printer");
    let waiter = Process(spawn(group.client(2, ["run", "printer", "true"])));
    eventually("the waiter is seen", || {
        group.status(1)["locks"][0]["waiters"][0]["pid"] == waiter.id()
    });
    let status = printed("status", group.client(1, ["status", "--json"]));
    let lock = &status["locks"][0];
    assert_eq!(lock["holders"][0]["pid"], holder.child.id());
    assert_eq!(lock["waiters"][0]["pid"], waiter.id());
    assert!(status["protection"].is_object() && status["clients"].is_object());
    let members = printed("members", group.client(1, ["members", "--json"]));
    assert_eq!(members["members"].as_array().map(Vec::len), Some(2));
    let who = printed("who", group.client(1, ["who", "printer", "--json"]));
    assert_eq!(who["locks"].as_array().map(Vec::len), Some(1));
    holder.let_go();
}

#[test]
fn what_a_group_says_that_has_not_begun_is_as_the_schema_says() {
    let group = Group::unix(2);
    let _agent = group.agent(1);
    let status = printed("status", group.client(1, ["status", "--json"]));
    assert_eq!(status["quorum"]["ok"], false);
}

#[test]
fn what_the_program_prints_of_the_local_group_is_as_the_schema_says() {
    let group = Local::new();
    let holder = group.hold("x");
    let waiter = Process(spawn(group.distlock(["run", "x", "true"])));
    group.await_waiter("x", &waiter);
    let status = printed("status", group.distlock(["status", "--json"]));
    assert_eq!(status["locks"][0]["waiters"][0]["pid"], waiter.id());
    printed("members", group.distlock(["members", "--json"]));
    let who = printed("who", group.distlock(["who", "x", "--json"]));
    assert_eq!(who["locks"][0]["holders"][0]["pid"], holder.child.id());
    printed("who", group.distlock(["who", "free", "--json"]));
    holder.let_go();
}

#[test]
fn the_schema_is_one_and_lists_every_field() {
    jsonschema::meta::validate(&published()).expect("a schema");
    assert_valid("status", &document(&full()));
    // Which is not by chance: this is how a field shows that the schema does not list.
    let validator = validator(&of_this_version(), "status");
    let mut more = document(&full());
    assert!(validator.is_valid(&more));
    more["locks"][0]["holders"][0]["uid"] = 0.into();
    assert!(!validator.is_valid(&more));
    for state in [
        MemberState::Alive,
        MemberState::Joining,
        MemberState::Suspect,
        MemberState::Unknown,
        MemberState::Left,
        MemberState::Refused,
    ] {
        let mut status = full();
        status.members[0].state = state;
        assert!(validator.is_valid(&document(&status)), "{state:?}");
    }
}

#[test]
fn a_wrong_document_is_refused() {
    let validator = validator(&published(), "status");
    let whole = document(&full());
    assert!(validator.is_valid(&whole));
    for key in whole.as_object().expect("an object").keys() {
        let mut less = whole.clone();
        less.as_object_mut().expect("an object").remove(key);
        assert!(!validator.is_valid(&less), "without {key}");
    }
    for (at, value) in [
        ("/schema", json!(2)),
        ("/member", json!("1")),
        ("/epoch", json!(-1)),
        ("/quorum/ok", json!("yes")),
        ("/quorum/voters/0", json!(0)),
        ("/members/0/state", json!("dead")),
        ("/locks/0/holders/0/fence", json!(0)),
        ("/locks/0/holders/0/since", json!("yesterday")),
        ("/locks/0/waiters/0", json!({ "member": 2 })),
        ("/protection/dropped/forged", json!(null)),
        ("/failure", json!("none")),
    ] {
        let mut wrong = whole.clone();
        *wrong.pointer_mut(at).expect("it is there") = value;
        assert!(!validator.is_valid(&wrong), "{at}");
    }
}

/// What is written for this version takes a later one's word under the same number.
#[test]
fn what_later_versions_add_is_accepted() {
    let mut status = document(&full());
    status["quorum"]["new"] = 1.into();
    assert!(validator(&published(), "status").is_valid(&status));
    let line = |event: &str| json!({ "schema": 1, "ts": "2026-11-27T01:02:03.004Z", "event": event, "new": 1 });
    let lines = validator(&published(), "line");
    assert!(lines.is_valid(&line("new")));
    assert!(!validator(&of_this_version(), "line").is_valid(&line("new")));
    assert!(
        !lines.is_valid(&line("hold")),
        "of a holder that is not named"
    );
}
