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
        from_life: Incarnation(0x0809),
        to_life: Incarnation(0x0a0b),
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
    let frames = [
        Frame {
            more: true,
            prompt: false,
            bytes: vec![0xaa, 0xbb],
        },
        Frame {
            more: false,
            prompt: true,
            bytes: vec![0xcc],
        },
    ];
    let bytes = encode_frames(group(), &header(Kind::Frames), frames.iter());
    let expected = "03010100\
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
        de01f82c";
    assert_eq!(hex(&bytes), expected);
    let (decoded, payload) = decode(group(), &bytes).unwrap();
    assert_eq!(decoded, header(Kind::Frames));
    assert_eq!(decode_frames(payload).unwrap(), frames);
}

/// Castagnoli's check value, as in RFC 3720 appendix B.4 and the catalogue of CRCs.
#[test]
fn the_checksum_is_crc_32c() {
    assert_eq!(CASTAGNOLI.checksum(b"123456789"), 0xe306_9283);
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
        is_continued: true,
        inherits_marks: false,
    }
}

/// One body of each kind, and each engine's messages.
fn bodies() -> Vec<(Body, &'static str)> {
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
    let engine = |json: &str| {
        let body = serde_json::from_str(json).expect(json);
        let lock = lock.clone();
        Body::Lock(LockMessage {
            lock,
            permits: NonZeroU32::MIN,
            priority: Priority::Lamport,
            clock: 200,
            history: GrantHistory {
                counter: 3,
                abandoned: true,
            },
            body,
        })
    };
    let election = |json: &str| {
        let lock = lock.clone();
        let body = serde_json::from_str(json).expect(json);
        Body::Election(ElectionMessage {
            lock,
            round: 5,
            body,
        })
    };
    let r = serde_json::to_string(&id).unwrap();
    let spec = Some(LockSpec::exclusive(Algorithm::TokenRing));
    vec![
        (
            Body::View(ViewMessage::Ready {
                epoch,
                unclean: false,
                wants_view: true,
            }),
            "0000090001",
        ),
        (
            Body::View(ViewMessage::Freeze { view: view.clone() }),
            "0001090101020101",
        ),
        (Body::View(ViewMessage::Reject { epoch }), "000209"),
        (
            Body::View(ViewMessage::Summary {
                epoch,
                summary: Summary::default(),
            }),
            "00030900000000000000",
        ),
        (
            Body::View(ViewMessage::Summary {
                epoch,
                summary: summary(id),
            }),
            "000309c8010801077072696e74657200010001ac0207050101ac0207050801010108ac020301010201000100",
        ),
        (
            Body::View(ViewMessage::Install {
                view,
                table: Summary::default(),
            }),
            "000409010102010100000000000000",
        ),
        (
            engine(&format!(
                r#"{{"Semaphore":{{"Request":{{"id":{r},"mode":"Shared","tries":true}}}}}}"#
            )),
            "01077072696e7465720100c80103010000ac0207050101",
        ),
        (
            engine(&format!(
                r#"{{"Semaphore":{{"Grant":{{"id":{r},"abandoned":true}}}}}}"#
            )),
            "01077072696e7465720100c80103010001ac02070501",
        ),
        (
            engine(&format!(
                r#"{{"Semaphore":{{"Release":{{"id":{r},"how":"Unused"}}}}}}"#
            )),
            "01077072696e7465720100c80103010002ac02070502",
        ),
        (
            engine(&format!(r#"{{"Semaphore":{{"Queued":{{"id":{r}}}}}}}"#)),
            "01077072696e7465720100c80103010003ac020705",
        ),
        (
            engine(r#"{"Bakery":{"Read":{"number":4,"until":{"Behind":6},"tries":false}}}"#),
            "01077072696e7465720100c8010301010004020600",
        ),
        (
            engine(r#"{"Bakery":{"Read":{"number":4,"until":"Now","tries":false}}}"#),
            "01077072696e7465720100c80103010100040000",
        ),
        (
            engine(r#"{"Bakery":{"Read":{"number":4,"until":"NotChoosing","tries":true}}}"#),
            "01077072696e7465720100c80103010100040101",
        ),
        (
            engine(r#"{"Bakery":{"Value":{"number":4,"ticket":6}}}"#),
            "01077072696e7465720100c801030101010406",
        ),
        (
            engine(r#"{"Bakery":{"Parked":{"number":4}}}"#),
            "01077072696e7465720100c8010301010204",
        ),
        (
            engine(&format!(
                r#"{{"RicartAgrawala":{{"Request":{{"id":{r},"stamp":{{"clock":8,"node":1}}}}}}}}"#
            )),
            "01077072696e7465720100c80103010200ac0207050801",
        ),
        (
            engine(&format!(r#"{{"RicartAgrawala":{{"Reply":{{"id":{r}}}}}}}"#)),
            "01077072696e7465720100c80103010201ac020705",
        ),
        (
            engine(&format!(
                r#"{{"RicartAgrawala":{{"Deferred":{{"id":{r}}}}}}}"#
            )),
            "01077072696e7465720100c80103010202ac020705",
        ),
        (
            engine(r#"{"TokenRing":{"Token":{"hop":11,"idle":12}}}"#),
            "01077072696e7465720100c801030103000b0c",
        ),
        (
            engine(r#"{"TokenRingRequests":{"Request":{"number":13}}}"#),
            "01077072696e7465720100c801030104000d",
        ),
        (
            engine(r#"{"TokenRingRequests":{"Token":{"hop":14}}}"#),
            "01077072696e7465720100c801030104010e",
        ),
        (
            engine(r#"{"Lamport":{"Request":{"clock":300}}}"#),
            "01077072696e7465720100c80103010500ac02",
        ),
        (
            engine(r#"{"Lamport":{"Ack":{"clock":15}}}"#),
            "01077072696e7465720100c801030105010f",
        ),
        (
            engine(r#"{"Lamport":{"Release":{"request":300,"clock":15}}}"#),
            "01077072696e7465720100c80103010502ac020f",
        ),
        (
            engine(r#"{"CarvalhoRoucairol":{"Ask":{"number":15,"rank":300,"tries":true}}}"#),
            "01077072696e7465720100c801030106000fac0201",
        ),
        (
            engine(r#"{"CarvalhoRoucairol":{"Perm":{"hop":16,"turn":17}}}"#),
            "01077072696e7465720100c801030106011011",
        ),
        (
            engine(r#"{"CarvalhoRoucairol":{"Busy":{"number":18}}}"#),
            "01077072696e7465720100c8010301060212",
        ),
        (
            engine(&format!(
                r#"{{"Maekawa":{{"Request":{{"id":{r},"stamp":{{"clock":8,"node":1}},"tries":true}}}}}}"#
            )),
            "01077072696e7465720100c80103010700ac020705080101",
        ),
        (
            engine(&format!(
                r#"{{"Maekawa":{{"Grant":{{"id":{r},"number":14}}}}}}"#
            )),
            "01077072696e7465720100c80103010701ac0207050e",
        ),
        (
            engine(&format!(r#"{{"Maekawa":{{"Failed":{{"id":{r}}}}}}}"#)),
            "01077072696e7465720100c80103010702ac020705",
        ),
        (
            engine(&format!(
                r#"{{"Maekawa":{{"Inquire":{{"id":{r},"number":14}}}}}}"#
            )),
            "01077072696e7465720100c80103010703ac0207050e",
        ),
        (
            engine(&format!(
                r#"{{"Maekawa":{{"Yield":{{"id":{r},"number":14}}}}}}"#
            )),
            "01077072696e7465720100c80103010704ac0207050e",
        ),
        (
            engine(&format!(r#"{{"Maekawa":{{"Release":{{"id":{r}}}}}}}"#)),
            "01077072696e7465720100c80103010705ac020705",
        ),
        (
            engine(&format!(
                r#"{{"Majority":{{"Request":{{"id":{r},"stamp":{{"clock":8,"node":1}},"tries":true}}}}}}"#
            )),
            "01077072696e7465720100c80103010800ac020705080101",
        ),
        (
            engine(r#"{"SuzukiKasami":{"Request":{"number":15,"tries":true}}}"#),
            "01077072696e7465720100c801030109000f01",
        ),
        (
            engine(r#"{"SuzukiKasami":{"Token":{"hop":16,"served":{"300":17},"queue":[2,1]}}}"#),
            "01077072696e7465720100c801030109011001ac0211020201",
        ),
        (
            engine(r#"{"SuzukiKasami":{"Busy":{"number":18}}}"#),
            "01077072696e7465720100c8010301090212",
        ),
        (
            engine(r#"{"Singhal":{"Request":{"number":15,"tries":true}}}"#),
            "01077072696e7465720100c80103010a000f01",
        ),
        (
            engine(r#"{"Singhal":{"Token":{"hop":16,"wants":[1,2],"numbers":{"300":17}}}}"#),
            "01077072696e7465720100c80103010a011002010201ac0211",
        ),
        (
            engine(r#"{"Singhal":{"Busy":{"number":18}}}"#),
            "01077072696e7465720100c80103010a0212",
        ),
        (
            engine(r#"{"Raymond":{"Request":{"number":19}}}"#),
            "01077072696e7465720100c80103010b0013",
        ),
        (
            engine(r#"{"Raymond":{"Token":{"hop":20}}}"#),
            "01077072696e7465720100c80103010b0114",
        ),
        (
            engine(r#"{"Voting":{"Request":{"number":21}}}"#),
            "01077072696e7465720100c80103010c0015",
        ),
        (
            engine(r#"{"Voting":{"Vote":{"number":21,"granted":true}}}"#),
            "01077072696e7465720100c80103010c011501",
        ),
        (
            engine(r#"{"Voting":{"Release":{"number":21}}}"#),
            "01077072696e7465720100c80103010c0215",
        ),
        (
            Body::Declare {
                lock: lock.clone(),
                wish: None,
            },
            "02077072696e74657200",
        ),
        (
            Body::Declared {
                lock: lock.clone(),
                spec,
            },
            "03077072696e74657201030100",
        ),
        (Body::Note { bytes: vec![1, 2] }, "04020102"),
        (Body::Bye, "05"),
        (
            election(r#"{"Engine":{"Bully":"Election"}}"#),
            "06077072696e74657205000000",
        ),
        (
            election(r#"{"Engine":{"Bully":"Ok"}}"#),
            "06077072696e74657205000001",
        ),
        (
            election(r#"{"Engine":{"Bully":"Abstain"}}"#),
            "06077072696e74657205000002",
        ),
        (
            election(r#"{"Engine":{"Bully":"Coordinator"}}"#),
            "06077072696e74657205000003",
        ),
        (
            election(r#"{"Engine":{"Ring":{"Election":{"initiator":1,"list":[1,2],"leader":2}}}}"#),
            "06077072696e746572050001000102010202",
        ),
        (
            election(
                r#"{"Engine":{"Ring":{"Coordinator":{"initiator":1,"leader":2,"members":[1,2]}}}}"#,
            ),
            "06077072696e746572050001010102020102",
        ),
        (
            election(r#"{"Engine":{"ChangRoberts":{"Election":{"id":3}}}}"#),
            "06077072696e7465720500020003",
        ),
        (
            election(r#"{"Engine":{"ChangRoberts":{"Elected":{"id":3}}}}"#),
            "06077072696e7465720500020103",
        ),
        (
            election(r#"{"Leads":{"fence":300}}"#),
            "06077072696e7465720501ac02",
        ),
        (
            election(r#"{"Resigned":{"fence":300}}"#),
            "06077072696e7465720502ac02",
        ),
        (election(r#""Withdrawn""#), "06077072696e7465720503"),
        (
            election(r#"{"Round":{"nominee":null}}"#),
            "06077072696e746572050400",
        ),
        (
            election(r#"{"Round":{"nominee":3}}"#),
            "06077072696e74657205040103",
        ),
    ]
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
