//! The wire format, byte by byte: members of different versions must understand each other.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use core::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::election::ElectionMessage;
use crate::ids::RequestId;
use crate::lock::{
    Algorithm, Ending, GrantHistory, Last, LockSummary, Mode, Priority, Request, Stamp, Summary,
};
use crate::membership::greeting::Greeting;
use crate::membership::{Member, View};

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn group() -> GroupId {
    GroupId::of("shop")
}

fn header(kind: Kind) -> Header {
    Header {
        kind,
        ping: true,
        route: Route::Direct,
        deaf: false,
        from: node(1),
        to: node(0x0203),
        epoch: Epoch::new(0x0405_0607).unwrap(),
        from_incarnation: Incarnation(0x0809),
        to_incarnation: Incarnation(0x0a0b),
        acknowledged: 0x0c,
        selective: 0x0d,
        first: 0x0e,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_header_is_golden() {
    let frame = |more, bytes| Frame {
        more,
        prompt: !more,
        bytes,
    };
    let frames = [frame(true, vec![0xaa, 0xbb]), frame(false, vec![0xcc])];
    let bytes = encode_frames(group(), &header(Kind::Frames), frames.iter());
    let expected = "05010100\
        00010203\
        842add7b70d72e01\
        04050607\
        0000000000000809\
        0000000000000a0b\
        000000000000000c\
        000000000000000d\
        000000000000000e\
        010002aabb\
        020001cc\
        27037adb";
    assert_eq!(hex(&bytes), expected);
    let (decoded, payload) = decode(group(), &bytes).unwrap();
    assert_eq!(decoded, header(Kind::Frames));
    assert_eq!(decode_frames(payload).unwrap(), frames);
}

#[test]
fn bodies_are_golden() {
    for (body, expected) in bodies() {
        let bytes = encode_body(&body);
        assert_eq!(hex(&bytes), expected, "{body:?}");
        assert_eq!(decode_all::<Body>(&bytes), Ok(body));
    }
}

fn summary(id: RequestId) -> Summary {
    let request = Request {
        id,
        stamp: Stamp {
            clock: 8,
            node: node(1),
        },
        mode: Mode::Shared,
        tries: true,
    };
    let lock = LockSummary {
        spec: LockSpec::exclusive(Algorithm::Semaphore),
        holders: vec![id],
        held: Mode::Shared,
        waiters: vec![request],
        last: Last {
            epoch: Epoch::new(8).unwrap(),
            counter: 300,
            ending: Ending::Abandoned,
        },
        abandoned: true,
        suspects: vec![node(2)],
    };
    Summary {
        clock: 200,
        epoch: Epoch::new(8).unwrap(),
        locks: [(LockName::new("printer").unwrap(), lock)].into(),
        doubt: true,
        is_complete: false,
        quarantines_rest: true,
        is_continued: true,
        inherits_marks: false,
    }
}

/// Messages of engines, with `ID` for a request's, and their bytes behind those of the lock.
const ENGINES: &str = r#"
{"Semaphore":{"Request":{"id":ID,"mode":"Shared","tries":true}}} 0000ac0207050101
{"Semaphore":{"Grant":{"id":ID,"abandoned":true}}} 0001ac02070501
{"Semaphore":{"Release":{"id":ID,"how":"Unused"}}} 0002ac02070502
{"Semaphore":{"Queued":{"id":ID}}} 0003ac020705
{"Bakery":{"Read":{"number":4,"until":{"Behind":6},"tries":false}}} 010004020600
{"Bakery":{"Read":{"number":4,"until":"Now","tries":false}}} 0100040000
{"Bakery":{"Read":{"number":4,"until":"NotChoosing","tries":true}}} 0100040101
{"Bakery":{"Value":{"number":4,"ticket":6}}} 01010406
{"Bakery":{"Parked":{"number":4}}} 010204
{"RicartAgrawala":{"Request":{"id":ID,"stamp":{"clock":8,"node":1}}}} 0200ac0207050801
{"RicartAgrawala":{"Reply":{"id":ID}}} 0201ac020705
{"RicartAgrawala":{"Deferred":{"id":ID}}} 0202ac020705
{"TokenRing":{"Token":{"hop":11,"idle":12}}} 03000b0c
{"TokenRingRequests":{"Request":{"number":13}}} 04000d
{"TokenRingRequests":{"Token":{"hop":14}}} 04010e
{"Lamport":{"Request":{"clock":300}}} 0500ac02
{"Lamport":{"Ack":{"clock":15}}} 05010f
{"Lamport":{"Release":{"request":300,"clock":15}}} 0502ac020f
{"CarvalhoRoucairol":{"Ask":{"number":15,"rank":300,"tries":true}}} 06000fac0201
{"CarvalhoRoucairol":{"Perm":{"hop":16,"turn":17}}} 06011011
{"CarvalhoRoucairol":{"Busy":{"number":18}}} 060212
{"Maekawa":{"Request":{"id":ID,"stamp":{"clock":8,"node":1},"tries":true}}} 0700ac020705080101
{"Maekawa":{"Grant":{"id":ID,"number":14}}} 0701ac0207050e
{"Maekawa":{"Failed":{"id":ID}}} 0702ac020705
{"Maekawa":{"Inquire":{"id":ID,"number":14}}} 0703ac0207050e
{"Maekawa":{"Yield":{"id":ID,"number":14}}} 0704ac0207050e
{"Maekawa":{"Release":{"id":ID}}} 0705ac020705
{"Majority":{"Request":{"id":ID,"stamp":{"clock":8,"node":1},"tries":true}}} 0800ac020705080101
{"SuzukiKasami":{"Request":{"number":15,"tries":true}}} 09000f01
{"SuzukiKasami":{"Token":{"hop":16,"served":{"300":17},"queue":[2,1]}}} 09011001ac0211020201
{"SuzukiKasami":{"Busy":{"number":18}}} 090212
{"Singhal":{"Request":{"number":15,"tries":true}}} 0a000f01
{"Singhal":{"Token":{"hop":16,"wants":[1,2],"numbers":{"300":17}}}} 0a011002010201ac0211
{"Singhal":{"Busy":{"number":18}}} 0a0212
{"Raymond":{"Request":{"number":19}}} 0b0013
{"Raymond":{"Token":{"hop":20}}} 0b0114
{"Voting":{"Request":{"number":21}}} 0c0015
{"Voting":{"Vote":{"number":21,"granted":true}}} 0c011501
{"Voting":{"Release":{"number":21}}} 0c0215
{"Manager":{"Request":{"number":22,"mode":"Shared","tries":true}}} 0d00160101
{"Manager":{"Token":{"number":22,"worth":2}}} 0d011602
{"Manager":{"Next":{"stay":22,"place":{"node":1,"number":300}}}} 0d021601ac02
{"Manager":{"Try":{"stay":22,"place":{"node":1,"number":300},"probe":23}}} 0d031601ac0217
{"Manager":{"Busy":{"number":22}}} 0d0416
{"Manager":{"Passed":{"probe":23}}} 0d0517
{"Manager":{"Refused":{"probe":23}}} 0d0617
{"Manager":{"Return":{"stay":22,"worth":3}}} 0d071603
{"Manager":{"Unpark":{"time":24}}} 0d0818
{"Manager":{"Unparked":{"time":24}}} 0d0918
{"Manager":{"Park":{"time":24}}} 0d0a18
{"Manager":{"Share":{"number":22,"block":300,"recalled":true,"abandoned":false}}} 0d0b16ac020100
{"Manager":{"Drop":{"number":22,"used":300,"how":"Abandoned"}}} 0d0c16ac0201
{"Manager":{"Ghost":{"number":22}}} 0d0d16
{"Manager":{"Recall":{"number":22,"tries":true}}} 0d0e1601
{"Manager":{"Reads":{"number":22}}} 0d0f16
"#;

/// Messages of elections, and their bytes behind those of the lock.
const ELECTIONS: &str = r#"
{"Engine":{"Bully":"Election"}} 000000
{"Engine":{"Bully":"Ok"}} 000001
{"Engine":{"Bully":"Abstain"}} 000002
{"Engine":{"Bully":"Coordinator"}} 000003
{"Engine":{"Ring":{"Election":{"initiator":1,"list":[1,2],"leader":2}}}} 0001000102010202
{"Engine":{"Ring":{"Coordinator":{"initiator":1,"leader":2,"members":[1,2]}}}} 0001010102020102
{"Engine":{"ChangRoberts":{"Election":{"id":3}}}} 00020003
{"Engine":{"ChangRoberts":{"Elected":{"id":3}}}} 00020103
{"Leads":{"fence":300}} 01ac02
{"Resigned":{"fence":300}} 02ac02
"Withdrawn" 03
{"Round":{"nominee":null}} 0400
{"Round":{"nominee":3}} 040103
"#;

/// The lines of such a table.
fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = table.trim().lines();
    lines.map(|line| line.rsplit_once(' ').expect("a message and its bytes"))
}

/// One body of each kind, and each engine's messages.
fn bodies() -> Vec<(Body, String)> {
    let id = RequestId {
        node: node(300),
        incarnation: Incarnation(7),
        seq: 5,
    };
    let lock = LockName::new("printer").unwrap();
    let view = View {
        epoch: Epoch::new(9).unwrap(),
        members: vec![Member {
            node: node(1),
            incarnation: Incarnation(2),
        }],
        unclean: vec![node(1)],
    };
    let epoch = view.epoch;
    let engines = rows(ENGINES).map(|(json, bytes)| {
        let json = json.replace("ID", &serde_json::to_string(&id).unwrap());
        let body = Body::Lock(LockMessage {
            lock: lock.clone(),
            permits: NonZeroU32::MIN,
            priority: Priority::Lamport,
            clock: 200,
            history: GrantHistory {
                counter: 3,
                abandoned: true,
            },
            body: serde_json::from_str(&json).expect(&json),
        });
        (body, format!("01077072696e7465720100c8010301{bytes}"))
    });
    let elections = rows(ELECTIONS).map(|(json, bytes)| {
        let body = Body::Election(ElectionMessage {
            lock: lock.clone(),
            round: 5,
            body: serde_json::from_str(json).expect(json),
        });
        (body, format!("06077072696e74657205{bytes}"))
    });
    let views = [
        (
            ViewMessage::Ready {
                epoch,
                unclean: false,
                wants_view: true,
            },
            "0000090001",
        ),
        (
            ViewMessage::Freeze { view: view.clone() },
            "0001090101020101",
        ),
        (ViewMessage::Reject { epoch }, "000209"),
        (
            ViewMessage::Summary {
                epoch,
                summary: Summary::default(),
            },
            "0003090000000000000000",
        ),
        (
            ViewMessage::Summary {
                epoch,
                summary: summary(id),
            },
            "000309c8010801077072696e74657200010001ac0207050101ac0207050801010108ac02030101020100010100",
        ),
        (
            ViewMessage::Install {
                view,
                table: Summary::default(),
            },
            "00040901010201010000000000000000",
        ),
    ];
    let views = views.map(|(message, bytes)| (Body::View(message), bytes));
    let (wish, spec) = (None, Some(LockSpec::exclusive(Algorithm::TokenRing)));
    let (declare, declared) = (lock.clone(), lock.clone());
    let others = [
        (
            Body::Declare {
                lock: declare,
                wish,
            },
            "02077072696e74657200",
        ),
        (
            Body::Declared {
                lock: declared,
                spec,
            },
            "03077072696e74657201030100",
        ),
        (Body::Note { bytes: vec![1, 2] }, "04020102"),
        (Body::Bye, "05"),
    ];
    let plain = views.into_iter().chain(others);
    let plain = plain.map(|(body, bytes)| (body, String::from(bytes)));
    plain.chain(engines).chain(elections).collect()
}

/// The longest messages of algorithms travel in a quarter of what a link sends at once.
#[test]
fn a_token_of_the_largest_group_fits_a_window() {
    let members: Vec<NodeId> = (60_000..61_152).map(node).collect();
    let numbers = members
        .iter()
        .map(|node| format!("\"{node}\":{}", u64::MAX));
    let numbers = numbers.collect::<Vec<_>>().join(",");
    let others = serde_json::to_string(&members[1..]).unwrap();
    for json in [
        format!(
            r#"{{"SuzukiKasami":{{"Token":{{"hop":1,"served":{{{numbers}}},"queue":{others}}}}}}}"#
        ),
        format!(
            r#"{{"Singhal":{{"Token":{{"hop":1,"wants":{others},"numbers":{{{numbers}}}}}}}}}"#
        ),
    ] {
        let bytes = encode_body(&Body::Lock(LockMessage {
            lock: LockName::new("printer").unwrap(),
            permits: NonZeroU32::MIN,
            priority: Priority::Lamport,
            clock: 0,
            history: GrantHistory::default(),
            body: serde_json::from_str(&json).unwrap(),
        }));
        let frames = bytes.len().div_ceil(MAX_FRAME);
        assert!(frames <= 16, "{} bytes", bytes.len());
    }
}

#[test]
fn greetings_are_golden() {
    let greeting = Greeting {
        up: true,
        in_view: false,
        knew_you: true,
        digest: 0x0102_0304,
        lines: vec![("lease".into(), "5s".into())],
        from_start: false,
        to_end: true,
    };
    let bytes = encode_greeting(group(), &header(Kind::Greeting), &greeting);
    assert_eq!(
        hex(&bytes[HEADER..bytes.len() - CHECKSUM]),
        "0100018486880801056c656173650235730001"
    );
    let (_, payload) = decode(group(), &bytes).unwrap();
    assert_eq!(decode_all(payload), Ok(greeting));
}

#[test]
fn what_is_left_over_or_missing_is_malformed() {
    let mut bytes = encode_body(&Body::Note { bytes: vec![1, 2] });
    bytes.push(0);
    assert_eq!(decode_all::<Body>(&bytes), Err(Drop::Malformed));
    bytes.truncate(bytes.len() - 2);
    assert_eq!(decode_all::<Body>(&bytes), Err(Drop::Malformed));
    assert_eq!(decode_frames(&[0, 0]), Err(Drop::Malformed));
    assert_eq!(decode_frames(&[0, 0, 2, 1]), Err(Drop::Malformed));
    assert_eq!(decode_frames(&[4, 0, 0]), Err(Drop::Malformed));
}

#[test]
fn foreign_datagrams_are_told_apart() {
    let good = encode_frames(group(), &header(Kind::Frames), [].iter());
    assert_eq!(
        decode(GroupId::of("other"), &good).unwrap_err(),
        Drop::Group
    );
    assert_eq!(decode(group(), &good[..HEADER]).unwrap_err(), Drop::Length);
    assert_eq!(decode(group(), &[1; 3000]).unwrap_err(), Drop::Length);
}

/// The header and the checksum are those of version 2, byte for byte.
#[test]
fn a_datagram_of_the_version_before_is_dropped() {
    let mut bytes = encode_frames(group(), &header(Kind::Frames), [].iter());
    assert!(decode(group(), &bytes).is_ok());
    bytes.truncate(HEADER);
    bytes[0] = VERSION - 1;
    assert_eq!(decode(group(), &seal(bytes)).unwrap_err(), Drop::Version);
}

proptest! {
    /// Whatever arrives, the decoder says something, and never panics.
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
        if let Ok((_, payload)) = decode(group(), &bytes) {
            let _ = decode_frames(payload);
        }
        let _ = decode_frames(&bytes);
        let _ = decode_all::<Body>(&bytes);
        let _ = decode_all::<Greeting>(&bytes);
    }

    /// Up to three flipped bits in a datagram are found: CRC-32C has distance 4 far beyond 1400
    /// bytes.
    #[test]
    fn damage_is_found(
        payload in proptest::collection::vec(any::<u8>(), 0..1000),
        flips in proptest::collection::vec(any::<proptest::sample::Index>(), 1..4),
    ) {
        let frame = Frame { more: false, prompt: true, bytes: payload };
        let mut bytes = encode_frames(group(), &header(Kind::Frames), [&frame].into_iter());
        let bits: alloc::collections::BTreeSet<_> =
            flips.iter().map(|flip| flip.index(bytes.len() * 8)).collect();
        for bit in bits {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        prop_assert!(matches!(decode(group(), &bytes), Err(Drop::Checksum | Drop::Version)));
    }

    /// Frames of any content come back as they went.
    #[test]
    fn frames_come_back(
        contents in proptest::collection::vec(
            (any::<bool>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..6)
    ) {
        let frames: Vec<_> = contents
            .into_iter()
            .map(|(more, prompt, bytes)| Frame { more, prompt, bytes })
            .collect();
        let bytes = encode_frames(group(), &header(Kind::Frames), frames.iter());
        let (_, payload) = decode(group(), &bytes).unwrap();
        prop_assert_eq!(decode_frames(payload).unwrap(), frames);
    }
}
