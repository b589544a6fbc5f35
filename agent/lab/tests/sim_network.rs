//! The simulated network does what its conditions say, and nothing else.
use std::time::Duration;

use distlock_lab::choices::Choices;
use distlock_lab::network::{Arrival, Conditions, Delay, Network};
use distlock_protocol::{NodeId, Time};

const MEAN: Duration = Duration::from_millis(5);

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

/// What becomes of `count` datagrams sent from 1 to 2, one each millisecond.
fn send(network: &mut Network, count: u64) -> Vec<Vec<Arrival>> {
    (0..count)
        .map(|i| {
            network
                .send(Time::from_nanos(i * 1_000_000), node(1), node(2))
                .collect()
        })
        .collect()
}

fn harsh() -> Conditions {
    Conditions {
        delay: Delay::Exponential(MEAN),
        loss: 200,
        duplication: 100,
        corruption: 50,
        late: (0, Duration::ZERO),
        in_order: false,
    }
}

#[test]
fn a_perfect_network_only_delays() {
    let mut network = Network::new(Conditions::perfect(MEAN), Choices::new(1));
    for (i, arrivals) in send(&mut network, 1000).into_iter().enumerate() {
        let at = Time::from_nanos(i as u64 * 1_000_000) + MEAN;
        assert_eq!(
            arrivals,
            [Arrival {
                at,
                corrupted: false
            }]
        );
    }
}

#[test]
fn faults_come_as_often_as_asked() {
    let mut network = Network::new(harsh(), Choices::new(2));
    let arrivals: usize = send(&mut network, 100_000).iter().map(Vec::len).sum();
    let network_stats = network.network_stats();
    assert_eq!(network_stats.sent, 100_000);
    // Of 110,000 copies one in five is lost, and one in twenty of the rest corrupted.
    assert!(
        (21_500..22_500).contains(&network_stats.lost),
        "{network_stats:?}"
    );
    assert!(
        (7_700..8_300).contains(&network_stats.duplicated),
        "{network_stats:?}"
    );
    assert!(
        (4_200..4_600).contains(&network_stats.corrupted),
        "{network_stats:?}"
    );
    assert!(network_stats.reordered > 30_000, "{network_stats:?}");
    assert!((87_500..88_500).contains(&arrivals), "{arrivals} arrive");
}

#[test]
fn order_is_kept_where_it_is_asked_for() {
    let mut network = Network::new(
        Conditions {
            in_order: true,
            ..harsh()
        },
        Choices::new(3),
    );
    let times: Vec<Time> = send(&mut network, 10_000)
        .into_iter()
        .flatten()
        .map(|a| a.at)
        .collect();
    assert!(times.is_sorted());
    assert_eq!(network.network_stats().reordered, 0);
}

#[test]
fn a_cut_has_a_direction_and_ends() {
    let mut network = Network::new(Conditions::perfect(MEAN), Choices::new(4));
    network.cut(node(1), node(2));
    let arrives = |network: &mut Network, from, to| {
        network.send(Time::ZERO, node(from), node(to)).count() == 1
    };
    assert!(!arrives(&mut network, 1, 2), "cut");
    assert!(arrives(&mut network, 2, 1), "the other direction");
    assert!(arrives(&mut network, 1, 3), "another member");
    network.join();
    assert!(arrives(&mut network, 1, 2), "joined again");
    assert_eq!(network.network_stats().parted, 1);
}

#[test]
fn healing_ends_all_faults_and_keeps_the_delay() {
    let mut network = Network::new(harsh(), Choices::new(5));
    network.cut(node(1), node(2));
    network.heal();
    let before = network.network_stats();
    assert!(
        send(&mut network, 1000)
            .iter()
            .all(|a| a.len() == 1 && !a[0].corrupted)
    );
    assert_eq!(network.network_stats().lost, before.lost);
}

#[test]
fn corruption_changes_every_datagram() {
    let mut network = Network::new(harsh(), Choices::new(6));
    let whole: Vec<u8> = (0..100).collect();
    let (mut shortened, mut flipped) = (0, 0);
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        network.corrupt(&mut bytes);
        if bytes.len() < whole.len() {
            shortened += 1;
            continue;
        }
        let bits: u32 = bytes
            .iter()
            .zip(&whole)
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert!(bits <= 3, "{bits} bits flipped");
        flipped += u32::from(bits > 0);
    }
    assert!(
        shortened > 150 && flipped > 600,
        "{shortened} shortened, {flipped} flipped"
    );
    network.corrupt(&mut Vec::new());
}

#[test]
fn a_seed_is_a_network() {
    let fates = |seed| send(&mut Network::new(harsh(), Choices::new(seed)), 1000);
    assert_eq!(fates(7), fates(7));
    assert_ne!(fates(7), fates(8));
}
