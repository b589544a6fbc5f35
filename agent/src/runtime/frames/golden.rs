//! Every message between an agent and its clients, byte for byte: programs of both ends are not replaced
//! at the same moment. `DISTLOCK_BLESS=1 cargo test -p distlock-agent --lib frames` writes them down anew,
//! together with a higher [`VERSION`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroU32;

use super::*;
use crate::protocol::{Absence, Algorithm, Epoch, Fence, Missing};
use crate::runtime::api::error::SessionEnd;
use crate::runtime::api::status::{
    ClientsStatus, FoundingStatus, HolderStatus, LockStatus, MemberState, MemberStatus,
    MulticastStatus, Protection, QuorumStatus, StoreStatus, WaiterStatus,
};

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("not 0")
}

fn printer() -> LockName {
    LockName::new("printer").expect("a name")
}

fn spec() -> LockSpec {
    LockSpec::counting(NonZeroU32::new(300).expect("not 0"))
}

fn to_agent() -> Vec<(&'static str, ToAgent)> {
    let acquire = |mode, patience, spec| ToAgent::Acquire {
        id: 300,
        lock: printer(),
        spec,
        mode,
        patience,
        command: "lp".to_owned(),
        lifeline: true,
        waits_by_loan: true,
    };
    let campaign = |algorithm| ToAgent::Campaign {
        id: 300,
        lock: printer(),
        spec: Some(LockSpec::exclusive(Algorithm::RicartAgrawala)),
        algorithm,
        patience: Patience::Forever,
        command: String::new(),
        lifeline: false,
    };
    let release = |how| ToAgent::Release { id: 300, how };
    let change = |change| ToAgent::Change { id: 300, change };
    let timed = Patience::For(Duration::from_millis(1_500));
    vec![
        (
            "acquire, for a lease",
            acquire(Mode::Exclusive, Patience::Lease, None),
        ),
        (
            "acquire, shared, try",
            acquire(Mode::Shared, Patience::Try, None),
        ),
        (
            "acquire, 300 permits, 1.5 s",
            acquire(Mode::Exclusive, timed, Some(spec())),
        ),
        ("cancel", ToAgent::Cancel { id: 300 }),
        ("release, given", release(Release::Given)),
        ("release, abandoned", release(Release::Abandoned)),
        ("release, unused", release(Release::Unused)),
        (
            "command's pid",
            ToAgent::CommandPid {
                id: 300,
                pid: 70_000,
            },
        ),
        ("status", ToAgent::Status { id: 300 }),
        ("listen", ToAgent::Listen),
        (
            "describe",
            ToAgent::Describe {
                id: 300,
                lock: printer(),
            },
        ),
        ("campaign, any", campaign(None)),
        ("campaign, bully", campaign(Some(ElectionAlgorithm::Bully))),
        ("campaign, ring", campaign(Some(ElectionAlgorithm::Ring))),
        (
            "campaign, chang-roberts",
            campaign(Some(ElectionAlgorithm::ChangRoberts)),
        ),
        ("observe", ToAgent::Observe { lock: printer() }),
        (
            "add",
            change(Change::Add(node(3), "udp:10.0.0.3:7400".to_owned())),
        ),
        ("remove", change(Change::Remove(node(3)))),
        (
            "voters",
            change(Change::Voters([node(1), node(300)].into())),
        ),
        (
            "borrow",
            ToAgent::Borrow {
                lock: printer(),
                command: "lp".to_owned(),
            },
        ),
        ("return", ToAgent::Return { slot: 300 }),
        (
            "leave",
            ToAgent::Leave {
                slot: 300,
                how: Release::Abandoned,
            },
        ),
        ("know entry", ToAgent::KnowEntry { id: 300, slot: 300 }),
    ]
}

fn ends() -> [SessionEnd; 7] {
    let what = "why".to_owned();
    [
        SessionEnd::Closed,
        SessionEnd::Superseded { by: node(2) },
        SessionEnd::Panicked,
        SessionEnd::State { what: what.clone() },
        SessionEnd::Poll { what },
        SessionEnd::Disconnected,
        SessionEnd::Removed,
    ]
}

fn missing() -> Vec<Missing> {
    let all = [
        Absence::Silent,
        Absence::StateLost,
        Absence::Unfounded,
        Absence::Unrecovered,
    ];
    let missing = |(id, why)| Missing {
        member: node(id),
        why,
    };
    (1..).zip(all).map(missing).collect()
}

fn refusals() -> Vec<AcquireError> {
    let mut refusals = vec![
        AcquireError::Busy,
        AcquireError::TimedOut,
        AcquireError::NoQuorum { missing: missing() },
        AcquireError::WrongSpec { actual: spec() },
        AcquireError::NotShareable { actual: spec() },
        AcquireError::Limit,
        AcquireError::Forked,
        AcquireError::Voided,
        AcquireError::WrongElection {
            actual: ElectionAlgorithm::Ring,
        },
        AcquireError::NoAnswer {
            silent: vec![node(300)],
        },
    ];
    refusals.extend(ends().map(AcquireError::Closed));
    let (store, reason) = ("etcd://10.0.0.1:2379".to_owned(), "why".to_owned());
    refusals.push(AcquireError::Store {
        store: store.clone(),
        reason: reason.clone(),
    });
    refusals.push(AcquireError::Unreachable { store, reason });
    refusals
}

fn quorum() -> QuorumStatus {
    QuorumStatus {
        ok: true,
        voters: vec![1, 300],
        missing: vec![2],
        state_lost: vec![3],
        founded: true,
        cluster: "0123456789abcdef".to_owned(),
        file_voters: vec![4],
        unlisted: vec![5],
        founding: Some(FoundingStatus {
            remember: BTreeMap::from([(5, "c".to_owned())]),
            differ: vec![6],
            unrecovered: vec![7],
            waits_ms: 300,
        }),
    }
}

pub(super) fn status() -> Status {
    let states = [
        MemberState::Alive,
        MemberState::Joining,
        MemberState::Suspect,
        MemberState::Unknown,
        MemberState::Left,
        MemberState::Refused,
    ];
    let member = |(id, state)| MemberStatus {
        id,
        address: "udp:10.0.0.1:7400".to_owned(),
        state,
        detail: "why".to_owned(),
    };
    let since = "2026-11-23T12:00:00Z".to_owned();
    Status {
        group: "shop".to_owned(),
        member: 300,
        quorum: quorum(),
        epoch: 70_000,
        members: (1..).zip(states).map(member).collect(),
        locks: vec![LockStatus {
            name: "printer".to_owned(),
            algorithm: "semaphore".to_owned(),
            quarantined: true,
            holders: vec![HolderStatus {
                member: 1,
                host: "alpha".to_owned(),
                pid: 70_000,
                command: "lp".to_owned(),
                command_pid: Some(70_001),
                since: since.clone(),
                fence: Some(1 << 33),
            }],
            waiters: vec![WaiterStatus {
                member: 2,
                host: "beta".to_owned(),
                pid: 70_002,
                since,
            }],
        }],
        failure: "quorum".to_owned(),
        multicast: Some(MulticastStatus {
            address: "udp:239.255.77.1:7400".to_owned(),
            reached: vec![2],
            sent: 300,
            merged: 301,
            received: 302,
            lost: 303,
        }),
        protection: Some(Protection {
            keys: vec!["k".to_owned()],
            insecure: true,
            received: 300,
            handshakes: 301,
            flooded: vec![3],
            dropped: BTreeMap::from([("by-kernel".to_owned(), 302)]),
        }),
        clients: Some(ClientsStatus {
            connected: 300,
            waits_for_former: true,
            dropped: BTreeMap::from([("slow".to_owned(), 301)]),
        }),
        store: Some(StoreStatus {
            at: "etcd://10.0.0.1:2379".to_owned(),
            ok: true,
            reason: "why".to_owned(),
            keeps: Some(true),
            forgot: 302,
            unreadable: vec!["distlock/shop/lock/x: why".to_owned()],
        }),
    }
}

fn events() -> Vec<AgentEvent> {
    let text = str::to_owned;
    let epoch = Epoch::new(70_000).expect("small");
    let leader = Leader::of_member(node(2), Fence::new(1 << 33));
    let mut events = vec![
        AgentEvent::View {
            epoch,
            members: vec![node(1), node(300)],
        },
        AgentEvent::Suspect { peer: node(2) },
        AgentEvent::Alive { peer: node(2) },
        AgentEvent::Disagreement {
            peer: node(2),
            key: text("lease"),
            ours: text("5s"),
            theirs: text("6s"),
            refused: true,
        },
        AgentEvent::Missed(300),
        AgentEvent::Excluded { epoch },
        AgentEvent::Leader {
            lock: printer(),
            leader: Some(leader),
        },
        AgentEvent::Quorum(quorum()),
    ];
    events.extend(ends().map(AgentEvent::Ended));
    events
}

fn from_agent() -> Vec<(&'static str, FromAgent)> {
    let clock = Reading::golden();
    let welcome = FromAgent::Welcome {
        group: "shop".to_owned(),
        member: node(300),
        lease: Duration::from_millis(1_500),
        clock,
    };
    let description = Description {
        is_in_store: false,
        spec: spec(),
        is_listed: true,
        by_quorum: false,
    };
    let granted = |fence| FromAgent::Granted {
        id: 300,
        fence,
        abandoned: true,
    };
    let leader = |leader| FromAgent::Leader {
        lock: printer(),
        leader,
    };
    let mut messages = vec![
        ("welcome", welcome),
        ("too many", FromAgent::TooMany),
        ("granted", granted(1 << 33)),
        ("granted, without a fence", granted(0)),
        ("lost", FromAgent::Lost { id: 300 }),
        (
            "status",
            FromAgent::Status {
                id: 300,
                status: Box::new(status()),
            },
        ),
        ("status refused", FromAgent::StatusRefused { id: 300 }),
        (
            "described",
            FromAgent::Described {
                id: 300,
                description,
            },
        ),
        ("forbidden", FromAgent::Forbidden),
        ("status too long", FromAgent::StatusTooLong { id: 300 }),
        (
            "lease",
            FromAgent::Lease {
                session: 300,
                until: 1 << 40,
            },
        ),
        (
            "leader",
            leader(Some(Leader::of_member(node(2), Fence::new(1 << 33)))),
        ),
        ("leader, none", leader(None)),
        (
            "changed",
            FromAgent::Changed {
                id: 300,
                outcome: Ok(()),
            },
        ),
        ("lifeline", FromAgent::Lifeline { id: 300 }),
        ("loan page", FromAgent::LoanPage),
        (
            "lent",
            FromAgent::Lent {
                lock: printer(),
                entry: Some(LentEntry {
                    slot: 300,
                    owner: 300,
                }),
            },
        ),
        (
            "not lent",
            FromAgent::Lent {
                lock: printer(),
                entry: None,
            },
        ),
    ];
    let refused = refusals().into_iter();
    messages.extend(refused.map(|why| ("refused", FromAgent::Refused { id: 300, why })));
    messages.extend(
        events()
            .into_iter()
            .map(|it| ("event", FromAgent::Event(it))),
    );
    let mut changes = vec![
        ChangeError::Refused("why".to_owned()),
        ChangeError::FilesOnly,
        ChangeError::NoQuorum { missing: missing() },
        ChangeError::Replaced,
        ChangeError::TimedOut,
        ChangeError::Forked,
    ];
    changes.extend(ends().map(ChangeError::Closed));
    let changed = |why| FromAgent::Changed {
        id: 300,
        outcome: Err(why),
    };
    messages.extend(changes.into_iter().map(|why| ("not changed", changed(why))));
    messages
}

/// A line for each message, in hexadecimal, after making sure that it is read as it was meant.
fn lines<M>(messages: Vec<(&'static str, M)>, max: usize) -> String
where
    M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let mut lines = String::new();
    for (name, message) in messages {
        let mut bytes = Vec::new();
        put(&mut bytes, &message, max).expect("room");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(lines, "{name}: {hex}");
        let len = bytes.len();
        assert_eq!(take(&bytes, max).expect("whole"), Some((message, len)));
    }
    lines
}

#[track_caller]
fn assert_golden(file: &str, made: &str) {
    let path = format!("{}/tests/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("DISTLOCK_BLESS").is_some() {
        fs::write(&path, made).expect("room");
    }
    let golden = fs::read_to_string(&path).expect("it is there");
    for (made, golden) in made.lines().zip(golden.lines()) {
        assert_eq!(made, golden, "{file}");
    }
    assert_eq!(made, golden, "{file}: more, or less");
}

#[test]
fn messages_are_golden() {
    let (to, from) = (to_agent(), from_agent());
    assert_golden("to-agent.txt", &lines(to, MAX_TO_AGENT));
    assert_golden("from-agent.txt", &lines(from, MAX_FROM_AGENT));
}

/// What `distlock status --json` prints: scripts read it.
#[test]
fn the_status_is_golden_in_json() {
    let json = serde_json::to_string_pretty(&status()).expect("it can be told");
    assert_golden("status.json", &(json + "\n"));
}
