//! Who vouches that another member is outside. That nobody does so wrongly is what the explorer
//! looks at after every step; here is that some can.

use super::*;

fn vouches(bench: &Bench, me: u16, other: u16) -> bool {
    !bench.engines[&me].may_be_inside(node(other))
}

#[test]
fn ricart_agrawala_knows_whom_it_has_let_in() {
    let mut bench = Bench::new(3, exclusive(Algorithm::RicartAgrawala));
    assert!(vouches(&bench, 1, 2), "it has never asked");
    let first = bench.acquire(2, 1);
    bench.deliver(2, 1);
    assert!(!vouches(&bench, 1, 2), "it has the reply");
    assert!(vouches(&bench, 3, 2), "it has not asked here yet");
    bench.deliver_all();
    bench.release(first);
    assert!(!vouches(&bench, 1, 2), "it has told nobody that it left");
    assert!(vouches(&bench, 2, 1), "it has asked nobody");
    let second = bench.acquire(1, 5);
    bench.deliver(1, 2);
    bench.deliver(2, 1);
    assert!(vouches(&bench, 1, 2), "it has replied since");
    bench.deliver_all();
    assert!(vouches(&bench, 1, 2) && vouches(&bench, 1, 3), "inside");
    bench.acquire(2, 9);
    bench.deliver(2, 1);
    assert!(vouches(&bench, 1, 2), "it is deferred");
    bench.release(second);
    assert!(!vouches(&bench, 1, 2), "it has the deferred reply");
}

#[test]
fn bakery_knows_whose_last_read_it_has_answered() {
    let mut bench = Bench::new(2, exclusive(Algorithm::Bakery));
    assert!(vouches(&bench, 1, 2));
    let first = bench.acquire(2, 1);
    for _ in 0..2 {
        bench.deliver(2, 1);
        bench.deliver(1, 2);
        assert!(vouches(&bench, 1, 2), "it is still taking its ticket");
    }
    bench.deliver(2, 1);
    assert!(!vouches(&bench, 1, 2), "its last read is answered");
    bench.deliver(1, 2);
    assert!(vouches(&bench, 2, 1), "inside");
    bench.release(first);
    assert!(!vouches(&bench, 1, 2));
    bench.acquire(1, 5);
    bench.deliver(1, 2);
    bench.deliver(2, 1);
    assert!(vouches(&bench, 1, 2), "it had no ticket");
}

#[test]
fn lamport_knows_what_it_has_told_since_it_heard() {
    let mut bench = Bench::new(3, exclusive(Algorithm::Lamport));
    assert!(vouches(&bench, 1, 2), "nothing has been said");
    let first = bench.acquire(2, 1);
    assert!(vouches(&bench, 1, 2), "if it has asked, it waits for 1");
    assert!(!vouches(&bench, 2, 1), "it may have asked earlier");
    bench.deliver(2, 1);
    assert!(!vouches(&bench, 1, 2), "it has the acknowledgement");
    bench.deliver_all();
    assert!(vouches(&bench, 2, 1) && vouches(&bench, 2, 3), "inside");
    assert!(vouches(&bench, 1, 3), "it has asked nothing here");
    bench.release(first);
    assert!(!vouches(&bench, 2, 1), "it has been told, and may be in");
    bench.deliver_all();
    assert!(
        vouches(&bench, 1, 2) && vouches(&bench, 3, 2),
        "it has left"
    );
    bench.acquire(1, 10);
    bench.acquire(3, 12);
    assert!(!vouches(&bench, 1, 3), "it may have asked earlier");
    bench.deliver(3, 1);
    assert!(vouches(&bench, 1, 3), "it is behind");
}

#[test]
fn who_has_the_permission_of_two_knows_of_the_other() {
    let mut bench = Bench::new(3, exclusive(Algorithm::CarvalhoRoucairol));
    assert!(vouches(&bench, 1, 3) && vouches(&bench, 2, 3), "lower ids");
    assert!(!vouches(&bench, 3, 1) && !vouches(&bench, 3, 2));
    bench.acquire(3, 1);
    bench.deliver(3, 1);
    assert!(!vouches(&bench, 1, 3), "it is on its way");
    assert!(!vouches(&bench, 3, 1), "it has not come yet");
    bench.deliver(1, 3);
    assert!(vouches(&bench, 3, 1) && !vouches(&bench, 3, 2));
}

/// The voters of 1 are 1, 2 and 4; of 2, 2, 3 and 5; of 3, 3, 4 and 6.
#[test]
fn voters_know_to_whom_they_have_not_given_their_votes() {
    let mut bench = Bench::new(7, exclusive(Algorithm::Maekawa));
    assert!(vouches(&bench, 2, 1) && vouches(&bench, 4, 1), "voters");
    assert!(!vouches(&bench, 3, 1), "it is nobody whom 1 asks");
    let first = bench.acquire(1, 1);
    assert!(vouches(&bench, 2, 1));
    assert!(
        vouches(&bench, 1, 5) && vouches(&bench, 1, 7),
        "they need 1"
    );
    assert!(!vouches(&bench, 1, 2));
    bench.deliver(1, 2);
    assert!(!vouches(&bench, 2, 1), "the vote is on its way");
    bench.deliver(2, 1);
    assert!(
        vouches(&bench, 1, 2) && vouches(&bench, 1, 6),
        "1 has 2's vote"
    );
    assert!(!vouches(&bench, 1, 3), "3 needs 3, 4 and 6");
    bench.deliver_all();
    assert!((2..=7).all(|other| vouches(&bench, 1, other)), "inside");
    assert!(!vouches(&bench, 2, 1) && !vouches(&bench, 4, 1));
    bench.acquire(2, 5);
    assert!(!vouches(&bench, 2, 1), "it has the vote yet");
    bench.release(first);
    assert!(!vouches(&bench, 1, 3), "outside it knows no more");
    bench.deliver(1, 2);
    assert!(vouches(&bench, 2, 1), "it has told 2 that it left");
}

#[test]
fn who_has_the_token_knows() {
    for algorithm in [
        Algorithm::TokenRing,
        Algorithm::TokenRingRequests,
        Algorithm::SuzukiKasami,
        Algorithm::Singhal,
        Algorithm::Raymond,
    ] {
        let mut bench = Bench::new(3, exclusive(algorithm));
        assert!(vouches(&bench, 1, 2) && vouches(&bench, 1, 3));
        assert!(!vouches(&bench, 2, 3) && !vouches(&bench, 3, 1));
        bench.acquire(2, 1);
        if algorithm == Algorithm::TokenRing {
            bench.step(1, |engine, out| engine.timeout(out));
        } else {
            bench.deliver(2, 1);
        }
        assert!(!vouches(&bench, 1, 2), "the token is on its way");
        assert!(!vouches(&bench, 2, 1), "as far as it knows");
        bench.deliver(1, 2);
        assert!(vouches(&bench, 2, 1) && vouches(&bench, 2, 3));
    }
}

#[test]
fn the_server_knows_and_who_is_alone_inside() {
    let server = semaphore::server(3);
    let [other, third] = [1, 2].map(|n| (server - 1 + n) % 3 + 1);
    let mut bench = Bench::new(3, exclusive(Algorithm::Semaphore));
    assert!(vouches(&bench, server, other));
    let id = bench.acquire(other, 1);
    bench.deliver(other, server);
    assert!(!vouches(&bench, server, other), "the grant is on its way");
    assert!(vouches(&bench, server, third));
    assert!(!vouches(&bench, other, third), "it does not know yet");
    bench.deliver(server, other);
    assert!(vouches(&bench, other, third) && vouches(&bench, other, server));
    bench.release(id);
    assert!(!vouches(&bench, other, third));
    bench.deliver(other, server);
    assert!(vouches(&bench, server, other));
    // With several permits who is inside knows nothing of the others.
    let two = LockSpec {
        permits: NonZeroU32::new(2).unwrap(),
        ..exclusive(Algorithm::Semaphore)
    };
    let mut bench = Bench::new(3, two);
    bench.ask(other, 1);
    assert!(!vouches(&bench, other, third));
}

/// A view begins with who is inside, and everybody has that from its table.
#[test]
fn a_view_tells_who_may_be_inside() {
    for algorithm in [
        Algorithm::RicartAgrawala,
        Algorithm::Bakery,
        Algorithm::Lamport,
        Algorithm::CarvalhoRoucairol,
        Algorithm::Majority,
    ] {
        let holder = request(2, 1, 5).id;
        let bench = Bench::rebuilt(3, exclusive(algorithm), &[holder], &[]);
        assert!(!vouches(&bench, 1, 2) && !vouches(&bench, 3, 2));
        assert!(vouches(&bench, 1, 3) && vouches(&bench, 2, 1));
    }
}

/// Three of three votes are needed, and three of four.
#[test]
fn a_replica_knows_who_cannot_have_won_without_it() {
    let mut bench = Bench::new(3, exclusive(Algorithm::Voting));
    assert!(vouches(&bench, 2, 1) && vouches(&bench, 1, 2));
    let id = bench.acquire(1, 1);
    assert!(vouches(&bench, 2, 1), "it was not asked yet");
    bench.deliver(1, 2);
    assert!(!vouches(&bench, 2, 1), "the vote is on its way");
    assert!(vouches(&bench, 2, 3), "3 needs the vote that 1 has");
    bench.deliver_all();
    assert!(vouches(&bench, 1, 2) && vouches(&bench, 1, 3), "inside");
    bench.leave(id);
    assert!(vouches(&bench, 2, 1) && vouches(&bench, 3, 1));
    let bench = Bench::new(4, exclusive(Algorithm::Voting));
    assert!(!vouches(&bench, 2, 1), "three others may do");
}
