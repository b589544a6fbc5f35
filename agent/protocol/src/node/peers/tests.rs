//! What is said to peers, and what is not said again.

use alloc::vec;

use super::*;
use crate::settings::Settings;
use crate::wire::{Kind, Route};

const NOW: Time = Time::from_nanos(1);

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

/// The peers of the first of `members` members, of which the second is up.
fn peers(members: u16) -> Peers {
    let member = |id| Member {
        node: node(id),
        incarnation: Incarnation(1),
    };
    let config = NodeConfig {
        me: node(1),
        members: (1..=members).map(node).collect(),
        voters: BTreeSet::from([node(1)]),
        cluster: None,
        settings: Settings::new("test"),
    };
    let mut peers = Peers::new(NOW, member(1), &config);
    peers.meet(NOW, &[member(1), member(2)], &mut Vec::new());
    peers
}

/// A member passes on for those that are up, and hears what they pass on to it, and nothing else.
#[test]
fn a_datagram_is_heard_from_those_that_may_send_it() {
    let peers = peers(3);
    let origin = |route, from: u16, to: u16, by: u16| {
        let header = Header {
            kind: Kind::Frames,
            ping: false,
            route,
            deaf: false,
            from: node(from),
            to: node(to),
            epoch: Epoch::ZERO,
            from_incarnation: Incarnation(1),
            to_incarnation: Incarnation(1),
            acknowledged: 0,
            selective: 0,
            first: 0,
        };
        peers.origin(node(by), &header).map(NodeId::as_u16)
    };
    assert_eq!(origin(Route::Direct, 2, 1, 2), Some(2));
    assert_eq!(origin(Route::Direct, 3, 1, 3), Some(3), "it may come up");
    assert_eq!(origin(Route::Direct, 3, 1, 2), None, "by another");
    assert_eq!(origin(Route::Direct, 2, 3, 2), None, "for another");
    assert_eq!(origin(Route::PassOn, 2, 3, 2), Some(2));
    assert_eq!(origin(Route::PassOn, 3, 2, 3), None, "it is not up");
    assert_eq!(origin(Route::PassOn, 2, 1, 2), None, "for this member");
    assert_eq!(origin(Route::PassOn, 3, 2, 2), None, "by another");
    assert_eq!(origin(Route::PassOn, 2, 2, 2), None, "for its sender");
    assert_eq!(origin(Route::PassOn, 2, 9, 2), None, "for nobody");
    assert_eq!(origin(Route::Passed, 3, 1, 2), Some(3));
    assert_eq!(origin(Route::Passed, 2, 1, 3), None, "it is not up");
    assert_eq!(origin(Route::Passed, 3, 2, 2), None, "for another");
    assert_eq!(origin(Route::Passed, 2, 1, 2), None, "by its sender");
}

#[test]
fn what_is_long_is_not_said_again_while_it_is_on_its_way() {
    let (now, other) = (NOW, node(2));
    let mut peers = peers(2);
    let mut sent = |byte, len| {
        let bytes = vec![byte; len];
        peers.say(other, &Body::Note { bytes });
        let mut out = VecDeque::new();
        peers.flush(now, &mut Timers::default(), &mut out);
        out.len()
    };
    assert!(sent(0, 5000) >= 4);
    assert_eq!(sent(0, 5000), 0, "it is on its way");
    assert!(sent(1, 5000) >= 4, "something else");
    // Nothing is acknowledged, so that there is room for no more at some time.
    for byte in 2..100 {
        sent(byte, 100_000);
    }
    let unsent = peers.counters.notices_unsent;
    assert!((1..98).contains(&unsent), "{unsent}");
}
