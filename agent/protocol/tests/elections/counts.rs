//! How many messages an election takes, as the lectures and papers count them.

use distlock_protocol::ElectionAlgorithm::{self, Bully, ChangRoberts, Ring};

use crate::electorate::{Electorate, id};

/// Members 1 to `size`, all standing, of whom those of `dead` are, which rings know.
fn electorate(algorithm: ElectionAlgorithm, size: u16, dead: &[u16]) -> Electorate {
    let members: Vec<u16> = (1..=size).collect();
    Electorate::new(algorithm, &members, dead, algorithm != Bully, |_| true)
}

/// Has `initiators` begin at the same time, and counts.
fn hold(mut electorate: Electorate, initiators: &[u16], leader: u16) -> Electorate {
    for initiator in initiators {
        electorate.stand(id(*initiator));
    }
    electorate.run();
    assert!(electorate.agree_on(leader), "{electorate:?}");
    assert!(electorate.again.is_empty());
    electorate
}

/// Figure 6.20: of processes 0 to 7, here 1 to 8, the top is dead, and process 4 is the first to
/// notice it.
#[test]
fn bully_the_example_of_the_lecture_takes_15() {
    let held = hold(electorate(Bully, 8, &[8]), &[5], 7);
    assert_eq!(
        (
            held.sent["ELECTION"],
            held.sent["OK"],
            held.sent["COORDINATOR"]
        ),
        (6, 3, 6)
    );
    assert_eq!(held.total(), 15);
}

/// N-1: the best case's N-2 of the lecture leaves out the question to the dead.
#[test]
fn bully_the_next_in_rank_takes_n_minus_1() {
    for size in 3..=12 {
        let held = hold(electorate(Bully, size, &[size]), &[size - 1], size - 1);
        assert_eq!(held.total(), usize::from(size) - 1);
    }
}

#[test]
fn bully_the_lowest_takes_n_squared_minus_n_minus_1() {
    for size in 3..=12 {
        let held = hold(electorate(Bully, size, &[size]), &[1], size - 1);
        let n = usize::from(size);
        assert_eq!(held.total(), n * n - n - 1);
    }
    assert_eq!(hold(electorate(Bully, 8, &[8]), &[1], 7).total(), 55);
}

/// Who does not stand answers so, and is told; nobody waits for a time to be over.
#[test]
fn bully_does_not_wait_for_those_that_answer_that_they_do_not_stand() {
    let mut held = Electorate::new(Bully, &[1, 2, 3, 4, 5], &[], true, |member| member < 3);
    held.stand(id(2));
    while !held.under_way.is_empty() {
        held.deliver(0);
    }
    assert!(held.agree_on(2), "{held:?}");
    assert_eq!(
        (
            held.sent["ELECTION"],
            held.sent["ABSTAIN"],
            held.sent["COORDINATOR"]
        ),
        (3, 3, 4)
    );
}

#[test]
fn ring_each_initiator_takes_2n() {
    for size in 2..=12 {
        for initiator in 1..=size {
            let held = hold(electorate(Ring, size, &[]), &[initiator], size);
            assert_eq!(held.total(), 2 * usize::from(size));
        }
    }
}

/// Figure 6.21: the top of eight has crashed, and two of the seven others notice it at once.
#[test]
fn ring_two_initiators_among_seven_take_28() {
    let held = hold(electorate(Ring, 8, &[8]), &[3, 6], 7);
    assert_eq!(held.total(), 28);
}

/// From 2N, if the highest begins, to 3N-1, if the one after it does.
#[test]
fn chang_roberts_one_initiator_takes_2n_to_3n_minus_1() {
    for size in 2..=12 {
        let n = usize::from(size);
        for initiator in 1..=size {
            let held = hold(electorate(ChangRoberts, size, &[]), &[initiator], size);
            let to_the_highest = usize::from(size - initiator);
            assert_eq!(held.total(), to_the_highest + 2 * n);
        }
    }
}

/// N(N+1)/2+N, when ids fall along the ring; when they rise, each but the highest comes one place
/// far.
#[test]
fn chang_roberts_all_at_once_take_at_worst_half_of_n_squared() {
    for size in 2..=12_u16 {
        let n = usize::from(size);
        let falling: Vec<u16> = (1..=size).rev().collect();
        let all = Electorate::new(ChangRoberts, &falling, &[], true, |_| true);
        assert_eq!(hold(all, &falling, size).total(), n * (n + 1) / 2 + n);
        let rising: Vec<u16> = (1..=size).collect();
        let all = Electorate::new(ChangRoberts, &rising, &[], true, |_| true);
        assert_eq!(hold(all, &rising, size).total(), 3 * n - 1);
    }
}

/// By the lecture's two rules the winner would be elected five times, with 35 messages.
#[test]
fn chang_roberts_all_of_five_elect_once() {
    for ring in [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [3, 5, 1, 4, 2]] {
        let held = Electorate::new(ChangRoberts, &ring, &[], true, |_| true);
        assert_eq!(hold(held, &ring, 5).sent["ELECTED"], 5);
    }
}

/// The mean over all orders of six members, all of which begin: N·H_N + N.
#[test]
fn chang_roberts_all_at_once_take_n_times_h_n_plus_n_in_the_mean() {
    const N: u16 = 6;
    let mut orders = vec![vec![]];
    for member in 1..=N {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<u16>| {
                (0..=order.len()).map(move |place| {
                    let mut order = order.clone();
                    order.insert(place, member);
                    order
                })
            })
            .collect();
    }
    let total: usize = orders
        .iter()
        .map(|order| {
            let all = Electorate::new(ChangRoberts, order, &[], true, |_| true);
            hold(all, order, N).total()
        })
        .sum();
    // 6·H_6 = 14.7; times 720 orders, exactly.
    assert_eq!(orders.len(), 720);
    assert_eq!(total, 720 * 6 + 14_700 * 720 / 1_000);
}
