//! Super-peers by repelling tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_lab::networks::repelling::{
    Message, Place, Repelling, Rules, Sighting, Token, census,
};
use distlock_protocol::{NodeId, Time};

use crate::id;

const RULES: Rules = Rules {
    strength: 10_000,
    threshold: 3,
    stiffness: 1,
    hold: Duration::from_secs(5),
    memory: Duration::from_secs(60),
    gossip: 8,
};

const fn token(id: u32, version: u64) -> Token {
    let moves = 0;
    Token { id, version, moves }
}

const fn seconds(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

/// A node at (0, 0), with neighbours 2, 3 and 4 on its right, left and above, and token 0.
fn centre() -> Repelling<2> {
    let neighbours = [(2, [20, 0]), (3, [-20, 0]), (4, [0, 20])];
    let neighbours = neighbours.map(|(node, place)| (id(node), Place(place)));
    let place = Place([0, 0]);
    Repelling::new(place, neighbours, RULES, Some(token(0, 7)), seconds(0))
}

fn seen(id: u32, place: [i32; 2]) -> Message<2> {
    Message::Gossip(vec![Sighting {
        id,
        version: 1,
        place: Place(place),
        age: Duration::ZERO,
    }])
}

/// S1, Figure 6.23: a token moves in the direction of the combined forces, above a threshold.
#[test]
fn lecture_figure_6_23_tokens_move_away() {
    let mut node = centre();
    assert_eq!(node.consider(seconds(1)), None);
    // Far away: 10,000 / 100² is below the threshold.
    node.receive(id(3), seen(1, [-100, 0]), seconds(1));
    assert_eq!(node.consider(seconds(1)), None);
    // Nearer, on the left: 10,000 / 25² = 16 to the right.
    node.receive(id(3), seen(2, [-25, 0]), seconds(2));
    assert_eq!(
        node.consider(seconds(2)),
        Some((id(2), Message::Move(token(0, 7))))
    );
    // From both sides the same: it stays.
    let mut node = centre();
    node.receive(id(3), seen(1, [-25, 0]), seconds(2));
    node.receive(id(2), seen(2, [25, 0]), seconds(2));
    assert_eq!(node.consider(seconds(2)), None);
}

/// The design, section 4: who has a token refuses, and the next best is asked; ownership passes
/// when it is taken.
#[test]
fn a_token_is_given_once_it_is_taken() {
    let mut giver = centre();
    giver.receive(id(3), seen(1, [-15, -15]), seconds(1));
    let (first, offer) = giver.consider(seconds(1)).unwrap();
    let second = if first == id(2) { id(4) } else { id(2) };
    let mut full = Repelling::new(Place([20, 0]), [], RULES, Some(token(9, 1)), seconds(0));
    let (_, refusal) = full.receive(id(1), offer.clone(), seconds(1)).unwrap();
    assert_eq!(refusal, Message::Refused(token(0, 7)));
    assert_eq!(
        giver.receive(first, refusal, seconds(1)),
        Some((second, offer.clone()))
    );
    assert!(giver.is_offered() && giver.token().is_some());
    let mut free = Repelling::new(Place([0, 20]), [], RULES, None, seconds(0));
    let (_, taken) = free.receive(id(1), offer, seconds(1)).unwrap();
    let moved = Token {
        moves: 1,
        ..token(0, 8)
    };
    assert_eq!(free.token(), Some(moved));
    giver.receive(second, taken, seconds(1));
    assert_eq!((giver.token(), giver.is_offered()), (None, false));
}

/// The lecture has no damping: with it, what moved once needs twice the force.
#[test]
fn a_token_grows_heavier_with_every_move() {
    let force_16 = seen(1, [-25, 0]);
    for (moves, stays) in [(0, false), (4, false), (5, true), (100, true)] {
        let own = Token {
            moves,
            ..token(0, 1)
        };
        let neighbours = [(id(2), Place([20, 0]))];
        let mut node = Repelling::new(Place([0, 0]), neighbours, RULES, Some(own), seconds(0));
        node.receive(id(2), force_16.clone(), seconds(0));
        assert_eq!(node.consider(seconds(0)).is_none(), stays, "{moves} moves");
    }
}

/// S1: "when a token is held by a node for a given amount of time, that node will promote itself".
#[test]
fn lecture_who_holds_a_token_long_enough_is_a_super_peer() {
    let node = centre();
    assert!(!node.is_super_peer(seconds(4)));
    assert!(node.is_super_peer(seconds(5)));
}

/// Old news count no more, and newer versions more than later ones.
#[test]
fn sightings_are_merged_by_version_and_expire() {
    let mut node = centre();
    node.receive(id(3), seen(1, [-25, 0]), seconds(1));
    assert_eq!(node.consider(seconds(62)), None);
    let mut node = centre();
    let newer = Sighting {
        id: 1,
        version: 2,
        place: Place([-500, 0]),
        age: Duration::from_secs(1),
    };
    node.receive(id(3), Message::Gossip(vec![newer]), seconds(1));
    node.receive(id(3), seen(1, [-25, 0]), seconds(2));
    assert_eq!(node.consider(seconds(2)), None);
}

/// Two at one place must part, and not by the same way.
#[test]
fn tokens_at_one_place_part() {
    let offer = |own: u32, other: u32| {
        let neighbours = [(2, [20, 0]), (3, [-20, 0]), (4, [0, 20]), (5, [0, -20])];
        let neighbours = neighbours.map(|(node, place)| (id(node), Place(place)));
        let own = Some(token(own, 1));
        let mut node = Repelling::new(Place([0, 0]), neighbours, RULES, own, seconds(0));
        node.receive(id(9), seen(other, [0, 0]), seconds(0));
        node.consider(seconds(0)).map(|(to, _)| to)
    };
    assert!(offer(1, 2).is_some());
    assert_ne!(offer(1, 2), offer(2, 1));
}

/// The design, section 4: after a new view each token is there once, also those that are gone.
#[test]
fn a_census_counts_each_token_once() {
    let held: BTreeMap<NodeId, Option<Token>> = BTreeMap::from([
        // Given by 1 to 2, which has it already.
        (id(1), Some(token(0, 4))),
        (id(2), Some(token(0, 5))),
        (id(3), Some(token(2, 1))),
        (id(4), None),
    ]);
    let tokens = census(&held, 3, [id(9), id(3), id(1), id(4)]);
    let expected = [(2, token(0, 5)), (3, token(2, 1)), (1, token(1, 6))];
    assert_eq!(
        tokens,
        expected.map(|(node, token)| (id(node), token)).into()
    );
    // There are not more than nodes.
    let crowded = census(&held, 9, held.keys().copied());
    assert_eq!(crowded.len(), 4);
}
