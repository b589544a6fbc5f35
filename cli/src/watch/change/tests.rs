//! What is told of two looks at a group.

use serde_json::{Value, json};

use super::*;
use crate::watch::lines;

#[path = "../../../tests/cli_support/schema.rs"]
mod schema;

fn holder(member: u16, pid: u32, fence: Option<u64>) -> HolderStatus {
    HolderStatus {
        member,
        host: "b".to_owned(),
        pid,
        command: "lp file".to_owned(),
        command_pid: None,
        since: "2026-11-27T01:02:03.000Z".to_owned(),
        fence,
    }
}

fn waiter(member: u16, pid: u32) -> WaiterStatus {
    WaiterStatus {
        member,
        host: "c".to_owned(),
        pid,
        since: "2026-11-27T01:02:03.000Z".to_owned(),
    }
}

/// A lock of this name, as it is held and waited for.
fn lock(name: &str, holders: &[HolderStatus], waiters: &[WaiterStatus]) -> LockStatus {
    LockStatus {
        name: name.to_owned(),
        algorithm: "manager".to_owned(),
        quarantined: false,
        holders: holders.to_vec(),
        waiters: waiters.to_vec(),
    }
}

/// A group of members 1 to 3, as member 1 sees it.
fn group(locks: &[LockStatus]) -> Status {
    let member = |id| MemberStatus {
        id,
        address: format!("udp:10.0.0.{id}:7400"),
        state: MemberState::Alive,
        detail: String::new(),
    };
    Status {
        group: "shop".to_owned(),
        member: 1,
        epoch: 5,
        quorum: QuorumStatus {
            ok: true,
            voters: vec![1, 2, 3],
            founded: true,
            ..QuorumStatus::default()
        },
        members: (1..=3).map(member).collect(),
        locks: locks.to_vec(),
        ..Status::default()
    }
}

/// The same, of which member `id` is silent.
fn without(id: u16, locks: &[LockStatus]) -> Status {
    let mut status = group(locks);
    let member = &mut status.members[usize::from(id) - 1];
    member.state = MemberState::Suspect;
    member.detail = "silent for 3 s".to_owned();
    status.quorum.missing = vec![id];
    status
}

/// The local group.
fn local(locks: &[LockStatus]) -> Status {
    Status {
        group: "local".to_owned(),
        quorum: QuorumStatus {
            ok: true,
            founded: true,
            ..QuorumStatus::default()
        },
        locks: locks.to_vec(),
        ..Status::default()
    }
}

fn told_of(before: &Status, after: &Status, only: Option<&str>) -> Vec<String> {
    let changes = changes(before, after, only);
    // Whatever happens, its JSON is as the schema says.
    for line in lines(&changes, true).lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        schema::assert_valid("line", &line);
    }
    changes.iter().map(ToString::to_string).collect()
}

fn told(before: &Status, after: &Status) -> Vec<String> {
    told_of(before, after, None)
}

#[test]
fn the_first_look_tells_the_state() {
    let printer = lock("printer", &[holder(2, 4711, Some(17))], &[waiter(3, 5)]);
    let mut status = without(3, &[printer]);
    status.locks[0].waiters[0].member = 1;
    assert_eq!(
        told(&Status::default(), &status),
        [
            "group shop, member 1",
            "epoch 5: members 1, 2",
            "member 1: alive",
            "member 2: alive",
            "member 3: suspect (silent for 3 s)",
            "quorum: members 1, 2, 3 vote; member 3 is silent",
            "printer: member 2 (host b, pid 4711) holds, fence 17: lp file",
            "printer: member 1 (host c, pid 5) waits",
        ]
    );
    assert_eq!(told(&Status::default(), &local(&[])), ["group local"]);
    let held = local(&[lock("x", &[holder(0, 7, Some(3))], &[])]);
    assert_eq!(
        told(&Status::default(), &held),
        ["group local", "x: pid 7 (host b) holds, fence 3: lp file"]
    );
}

#[test]
fn nothing_is_told_where_nothing_has_changed() {
    let held = lock(
        "x",
        &[holder(2, 1, None), holder(2, 1, Some(4))],
        &[waiter(3, 5)],
    );
    let locks = [held];
    for status in [group(&locks), without(2, &[]), local(&locks)] {
        let mut later = status.clone();
        // Words and counts go on by themselves.
        if let Some(member) = later.members.get_mut(1) {
            member.detail = "silent for 4 s".to_owned();
        }
        later.quorum.founding = Some(distlock::status::FoundingStatus::default());
        later.protection = Some(distlock::status::Protection::default());
        assert_eq!(told(&status, &later), [""; 0]);
    }
}

#[test]
fn a_lock_that_changed_hands_was_released_and_is_held() {
    let before = group(&[lock("x", &[holder(2, 1, Some(4))], &[waiter(3, 5)])]);
    let after = group(&[lock("x", &[holder(3, 5, Some(6))], &[])]);
    let hold = "x: member 3 (host b, pid 5) holds, fence 6: lp file";
    assert_eq!(
        told(&before, &after),
        [
            "x: member 2 (host b, pid 1) released, fence 4",
            "x: member 3 (host c, pid 5) waits no more",
            hold,
        ]
    );
    // One process that entered twice is two holders, by its fence, or without one by the time.
    let again = group(&[lock("x", &[holder(2, 1, Some(5))], &[])]);
    assert_eq!(
        told(&group(&[lock("x", &[holder(2, 1, Some(4))], &[])]), &again),
        [
            "x: member 2 (host b, pid 1) released, fence 4",
            "x: member 2 (host b, pid 1) holds, fence 5: lp file",
        ]
    );
    let before = group(&[lock("x", &[holder(2, 1, None)], &[])]);
    let mut after = before.clone();
    after.locks[0].holders[0].since = "2026-11-27T01:02:04.000Z".to_owned();
    assert_eq!(
        told(&before, &after),
        [
            "x: member 2 (host b, pid 1) released",
            "x: member 2 (host b, pid 1) holds: lp file",
        ]
    );
}

#[test]
fn a_lock_is_free_when_its_last_holder_has_released() {
    let [one, other] = [1, 2].map(|pid| holder(2, pid, Some(4)));
    let both = group(&[lock("x", &[one.clone(), other.clone()], &[])]);
    let first = group(&[lock("x", std::slice::from_ref(&one), &[])]);
    let released = "x: member 2 (host b, pid 2) released, fence 4";
    assert_eq!(told(&both, &first), [released]);
    let released = "x: member 2 (host b, pid 1) released, fence 4";
    assert_eq!(told(&first, &group(&[])), [released, "x: free"]);
    let waits = group(&[lock("x", &[], &[waiter(3, 5)])]);
    assert_eq!(
        told(&first, &waits),
        [released, "x: free", "x: member 3 (host c, pid 5) waits"]
    );
    let gives_up = "x: member 3 (host c, pid 5) waits no more";
    assert_eq!(told(&waits, &group(&[])), [gives_up]);
    // Shares of two threads of one process look alike.
    let twice = group(&[lock("x", &[one.clone(), one.clone()], &[])]);
    assert_eq!(told(&twice, &first), [released]);
    assert_eq!(told(&first, &twice).len(), 1);
}

#[test]
fn a_holder_that_is_not_heard_has_not_released() {
    let held = [lock("x", &[holder(2, 1, Some(4))], &[])];
    assert_eq!(
        told(&group(&held), &without(2, &[])),
        [
            "member 2: suspect (silent for 3 s)",
            "quorum: members 1, 2, 3 vote; member 2 is silent",
            "x: member 2 (host b, pid 1) is not heard, and may hold, fence 4",
        ]
    );
    // The member that is asked knows its own holders, whatever it hears.
    let own = [lock("x", &[holder(1, 1, Some(4))], &[])];
    let released = "x: member 1 (host b, pid 1) released, fence 4";
    assert_eq!(
        told(&without(2, &own), &without(2, &[])),
        [released, "x: free"]
    );
}

#[test]
fn without_a_quorum_no_lock_is_said_to_be_free() {
    let own = [lock("x", &[holder(1, 1, Some(4))], &[])];
    let mut lost = without(2, &[]);
    lost.members[2].state = MemberState::Suspect;
    lost.quorum.ok = false;
    lost.quorum.missing = vec![2, 3];
    let said = told_of(&group(&own), &lost, Some("x"));
    let released = "x: member 1 (host b, pid 1) released, fence 4";
    assert_eq!(said, ["quorum lost: members 2, 3 are silent", released]);
    let quorum = "quorum: members 1, 2, 3 vote";
    assert_eq!(told_of(&lost, &group(&[]), Some("x")), [quorum, "x: free"]);
    let said = told_of(&Status::default(), &lost, Some("x"));
    let none = "no quorum: members 2, 3 are silent";
    assert_eq!(said, ["group shop, member 1", none]);
}

#[test]
fn of_one_lock_alone_no_other_is_told_nor_a_member() {
    let locks = ["w", "x", "y"].map(|name| lock(name, &[holder(2, 1, Some(4))], &[]));
    let mut later = without(3, &[]);
    later.epoch = 6;
    let said = told_of(&group(&locks), &later, Some("x"));
    assert_eq!(
        said,
        [
            "quorum: members 1, 2, 3 vote; member 3 is silent",
            "x: member 2 (host b, pid 1) released, fence 4",
            "x: free",
        ]
    );
    let said = told_of(&Status::default(), &group(&locks), Some("z"));
    let quorum = "quorum: members 1, 2, 3 vote";
    assert_eq!(said, ["group shop, member 1", quorum, "z: free"]);
}

#[test]
fn views_members_and_quarantine_are_told() {
    let before = group(&[lock("x", &[holder(3, 1, Some(4))], &[waiter(2, 5)])]);
    let mut after = group(&[lock("x", &[], &[waiter(2, 5)])]);
    after.epoch = 6;
    after.members.truncate(2);
    after.members[1].address = "udp:10.0.0.9:7400".to_owned();
    after.quorum.voters = vec![1, 2];
    after.locks[0].quarantined = true;
    assert_eq!(
        told(&before, &after),
        [
            "epoch 6: members 1, 2",
            "member 2: alive",
            "member 3: removed",
            "quorum: members 1, 2 vote",
            "x: member 3 (host b, pid 1) is not heard, and may hold, fence 4",
            "x: quarantined until the lease of a lost member is over",
        ]
    );
    let mut open = after.clone();
    open.locks[0].quarantined = false;
    assert_eq!(told(&after, &open), ["x: quarantined no more", "x: free"]);
    let mut none = open.clone();
    none.epoch = 0;
    assert_eq!(told(&open, &none), ["no view is in force"]);
}

#[test]
fn names_cannot_play_with_the_terminal() {
    let mut holder = holder(0, 1, Some(4));
    holder.command = "\x1b[31m".to_owned();
    let held = local(&[lock("a\nb", &[holder], &[])]);
    let nothing = Status::default();
    let changes = changes(&nothing, &held, None);
    for json in [false, true] {
        let text = lines(&changes, json);
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}

#[test]
fn callers_of_a_member_that_did_not_answer_stay_as_they_were() {
    let seen = group(&[
        lock("x", &[holder(2, 1, Some(4))], &[waiter(3, 5)]),
        lock("y", &[holder(1, 2, Some(7))], &[waiter(2, 6)]),
    ]);
    // Member 2 says nothing, and member 3, which answers, waits for another lock now.
    let mut status = group(&[lock("z", &[], &[waiter(3, 5)])]);
    keep_unanswered(&seen, &mut status);
    assert_eq!(
        told(&seen, &status),
        [
            "x: member 3 (host c, pid 5) waits no more",
            "y: member 1 (host b, pid 2) released, fence 7",
            "y: free",
            "z: member 3 (host c, pid 5) waits",
        ]
    );
    // One that is silent is no case for that.
    let mut silent = without(2, &[]);
    keep_unanswered(&seen, &mut silent);
    let holders = silent.locks.iter().flat_map(|lock| &lock.holders);
    assert_eq!(holders.count(), 0);
}

#[test]
fn a_line_of_json_is_one_change() {
    let before = group(&[]);
    let after = group(&[lock("printer", &[holder(2, 4711, Some(17))], &[])]);
    let text = lines(&changes(&before, &after, None), true);
    let mut line: Value = serde_json::from_str(&text).expect("one line");
    let ts = line.as_object_mut().and_then(|line| line.remove("ts"));
    assert!(ts.is_some_and(|ts| ts.is_string()));
    let expected = json!({
        "schema": 1, "event": "hold", "lock": "printer",
        "holder": {
            "member": 2, "host": "b", "pid": 4711, "command": "lp file", "command_pid": null,
            "since": "2026-11-27T01:02:03.000Z", "fence": 17,
        },
    });
    assert_eq!(line, expected);
}
