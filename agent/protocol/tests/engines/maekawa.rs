//! Section 2.8. Of seven members the voting sets are i, i+1 and i+3, around the ring; of three, one
//! and the next; majorities are one and the next ⌊N/2⌋.

use distlock_protocol::lock::Message as Any;

use super::*;

const MAEKAWA: LockSpec = LockSpec::exclusive(Algorithm::Maekawa);
const MAJORITY: LockSpec = LockSpec::exclusive(Algorithm::Majority);

/// A request of `me` whose caller would wait.
fn wait(bench: &mut Bench, me: u16, clock: u64) -> RequestId {
    bench.seq += 1;
    let mut request = request(me, bench.seq, clock);
    request.tries = false;
    bench.step(me, |engine, out| engine.acquire(request, out));
    request.id
}

/// Takes all messages of that kind off the wire.
fn lose(bench: &mut Bench, kind: &str) -> Vec<(u16, u16, Any)> {
    let is_lost = |(_, _, message): &mut (u16, u16, Any)| message.kind() == kind;
    bench.wire.extract_if(.., is_lost).collect()
}

#[test]
fn three_messages_to_each_voter_but_oneself() {
    for (spec, size, k) in [
        (MAEKAWA, 3, 2),
        (MAEKAWA, 7, 3),
        (MAEKAWA, 13, 4),
        (MAEKAWA, 196, 27),
        (MAJORITY, 2, 2),
        (MAJORITY, 7, 4),
        (MAJORITY, 8, 5),
    ] {
        let mut bench = Bench::new(size, spec);
        for me in [1, size] {
            let id = wait(&mut bench, me, 1);
            assert_eq!(bench.wire.len(), k - 1, "{size}");
            assert_eq!(bench.deliver_all(), 2 * (k - 1), "{size}");
            assert_eq!(bench.granted.pop(), Some(id), "{size}");
            assert_eq!(bench.leave(id), k - 1, "{size}");
        }
    }
}

/// The voters of 1 are 1, 2 and 4, those of 2 are 2, 3 and 5: 2 is the only one that keeps them
/// apart.
#[test]
fn one_common_voter_is_enough() {
    let mut bench = Bench::new(7, MAEKAWA);
    let first = wait(&mut bench, 1, 1);
    bench.deliver_all();
    let second = wait(&mut bench, 2, 2);
    assert_eq!(bench.busy, [second], "its own vote is given");
    bench.serves(&[first, second]);
}

/// S1 as it is told: an idle member says OK to everybody, so that two gather a majority each.
#[test]
fn nobody_votes_for_two() {
    let mut bench = Bench::new(3, MAJORITY);
    let (first, second) = (wait(&mut bench, 1, 1), wait(&mut bench, 2, 2));
    bench.deliver(1, 2);
    bench.serves(&[second, first]);
}

/// Of four members, majorities of the others can be disjoint: the owner's vote counts, and is given.
#[test]
fn ones_own_vote_is_locked_too() {
    let mut bench = Bench::new(4, MAJORITY);
    let first = wait(&mut bench, 1, 1);
    assert_eq!(bench.wire.len(), 2);
    // 4 asks 1, which is idle but for its own request, and 2.
    let second = wait(&mut bench, 4, 2);
    bench.serves(&[first, second]);
}

/// Three members in a ring, each with its own vote, and each wants the next one's. That of 3 is
/// given back.
#[test]
fn votes_that_are_split_are_given_back() {
    let mut bench = Bench::new(3, MAJORITY);
    let [one, two, three] = [1, 2, 3].map(|me| wait(&mut bench, me, u64::from(me)));
    bench.deliver_all();
    assert_eq!(bench.granted, [two], "it has not failed anywhere");
    bench.leave(two);
    assert_eq!(bench.granted, [two, one]);
    bench.leave(one);
    assert_eq!(bench.granted, [two, one, three]);
}

/// Sanders 1987: who was first in the queue, and is so no more, is told. Else it may keep the votes
/// it has for ever, as it was not told FAILED, and no INQUIRE is out for it any more. 4 has its own
/// vote when 3 asks for it, and then 1; the other voters of 4 are 5 and 7.
#[test]
fn the_overtaken_head_is_told_failed() {
    let mut bench = Bench::new(7, MAEKAWA);
    let last = wait(&mut bench, 4, 9);
    let middle = wait(&mut bench, 3, 5);
    bench.deliver(3, 4);
    let first = wait(&mut bench, 1, 1);
    bench.deliver(1, 4);
    let to = |bench: &Bench, to: u16| -> Vec<&'static str> {
        let sent = bench.wire.iter().filter(|(f, t, _)| (*f, *t) == (4, to));
        sent.map(|(_, _, message)| message.kind()).collect()
    };
    assert_eq!(to(&bench, 3), ["FAILED"]);
    assert_eq!(to(&bench, 1), [] as [&str; 0], "it leads now");
    bench.deliver_all();
    assert_eq!(bench.busy, [middle]);
    assert_eq!(bench.granted, [last]);
    bench.leave(last);
    bench.leave(first);
    assert_eq!(bench.granted, [last, first, middle]);
}

/// Who only tries is told at once, also where it comes before who has the vote, since that one may
/// be inside: else a caller that does not want to wait would, for as long as somebody stays.
#[test]
fn who_only_tries_is_told_though_it_leads() {
    let mut bench = Bench::new(3, MAJORITY);
    let inside = wait(&mut bench, 2, 9);
    bench.deliver_all();
    let tries = bench.ask(1, 1);
    assert_eq!(
        (&bench.granted[..], &bench.busy[..]),
        (&[inside][..], &[tries][..])
    );
}

/// S4: "requests are served in the order in which they were made". 2's request was made because of
/// 1's, and overtakes it on the way to their common voter.
#[test]
fn a_request_can_be_overtaken_by_one_that_was_made_because_of_it() {
    let mut bench = Bench::new(7, MAEKAWA);
    let older = wait(&mut bench, 1, 1);
    // 4 has it, and may tell 2 of it.
    bench.deliver(1, 4);
    let younger = wait(&mut bench, 2, 8);
    for voter in [3, 5] {
        bench.deliver(2, voter);
        bench.deliver(voter, 2);
    }
    assert_eq!(bench.granted, [younger]);
    bench.serves(&[younger, older]);
}

/// Of five members, 5 has its own vote and that of 2, which 1 wants too, and comes before it. As 5
/// has failed at 1, it gives that vote back. Both must wait for 3, at 3 and at 5. Returns the vote.
fn gives_back() -> (Bench, Any) {
    let mut bench = Bench::new(5, MAJORITY);
    let _three = wait(&mut bench, 3, 5);
    let _one = wait(&mut bench, 1, 1);
    let _five = wait(&mut bench, 5, 9);
    bench.deliver(5, 2);
    let vote = bench.deliver(2, 5);
    bench.deliver(1, 2);
    bench.deliver(5, 1);
    bench.deliver(2, 5);
    bench.deliver(1, 5);
    assert!(bench.kinds().contains(&"YIELD"));
    (bench, vote)
}

/// G4: a vote that was given back, and comes again, is not had again.
#[test]
fn a_vote_that_was_given_back_is_not_had_again() {
    let (mut bench, vote) = gives_back();
    bench.receive(2, 5, &vote);
    bench.deliver(5, 2);
    bench.receive(2, 5, &vote);
    let mut served = Vec::new();
    for _ in 0..3 {
        bench.deliver_all();
        assert_eq!(bench.granted.len(), served.len() + 1, "one at a time");
        let id = bench.granted[served.len()];
        served.push(id.node.as_u16());
        bench.receive(2, 5, &vote);
        bench.release(id);
    }
    assert_eq!(served.last(), Some(&5), "it came last");
}

/// G4: a YIELD that comes again does not give back the vote that came after it.
#[test]
fn a_yield_that_comes_again_is_nothing() {
    let (mut bench, _) = gives_back();
    let back = bench.deliver(5, 2);
    for count in 1..=2 {
        bench.deliver_all();
        assert_eq!(bench.granted.len(), count, "one at a time");
        bench.release(bench.granted[count - 1]);
    }
    bench.deliver_all();
    let inside = bench.granted[2];
    assert_eq!(inside.node, node(5));
    // It would get the vote, and needs no other that 5 has.
    let rival = wait(&mut bench, 2, 2);
    bench.deliver_all();
    bench.receive(5, 2, &back);
    bench.deliver_all();
    assert_eq!(bench.granted.len(), 3, "one at a time");
    bench.leave(inside);
    assert_eq!(bench.granted[3..], [rival]);
}

/// An INQUIRE may come before the vote it asks for.
#[test]
fn an_inquire_that_comes_first_is_remembered() {
    let mut bench = Bench::new(5, MAJORITY);
    let last = wait(&mut bench, 5, 9);
    let first = wait(&mut bench, 1, 1);
    bench.deliver(5, 2);
    bench.deliver(1, 2);
    let (_, _, vote) = lose(&mut bench, "GRANT").remove(0);
    bench.deliver(2, 5);
    // 1 has its own vote, and 5 is told so.
    bench.deliver(5, 1);
    bench.deliver(1, 5);
    assert!(!bench.kinds().contains(&"YIELD"), "it has nothing to give");
    bench.receive(2, 5, &vote);
    assert!(bench.kinds().contains(&"YIELD"));
    bench.deliver_all();
    bench.leave(first);
    assert_eq!(bench.granted, [first, last]);
}

/// G5, and G1: scenario 39 of the faults. A request that comes after its RELEASE is over, and so is
/// one that comes after the next request of its member.
#[test]
fn a_request_that_comes_late_is_over() {
    for newer in [false, true] {
        let mut bench = Bench::new(2, MAJORITY);
        let given_up = wait(&mut bench, 1, 1);
        let (_, _, late) = bench.wire.remove(0);
        bench.cancel(given_up);
        let wanted = newer.then(|| {
            let _release = bench.wire.remove(0);
            wait(&mut bench, 1, 2)
        });
        bench.deliver_all();
        bench.receive(1, 2, &late);
        if let Some(wanted) = wanted {
            assert_eq!(bench.granted, [wanted]);
            bench.release(wanted);
        }
        bench.deliver_all();
        let next = wait(&mut bench, 2, 5);
        bench.deliver_all();
        assert_eq!(bench.granted.last(), Some(&next));
    }
}

/// A RELEASE that its member's next request has overtaken takes nothing from that.
#[test]
fn a_release_that_comes_late_is_of_the_request_before() {
    let mut bench = Bench::new(2, MAJORITY);
    let first = wait(&mut bench, 1, 1);
    bench.deliver_all();
    bench.release(first);
    let (_, _, release) = bench.wire.remove(0);
    let second = wait(&mut bench, 1, 5);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
    bench.receive(1, 2, &release);
    let rival = wait(&mut bench, 2, 9);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second]);
    bench.leave(second);
    assert_eq!(bench.granted, [first, second, rival]);
}

/// Who gives up in the middle of everything leaves no vote behind.
#[test]
fn who_gives_up_gives_its_votes_back() {
    for spec in [MAEKAWA, MAJORITY] {
        let mut bench = Bench::new(7, spec);
        let inside = wait(&mut bench, 1, 1);
        bench.deliver_all();
        let given_up: Vec<_> = (2..=7).map(|me| wait(&mut bench, me, 2)).collect();
        bench.deliver_all();
        for id in given_up {
            bench.cancel(id);
        }
        bench.leave(inside);
        for me in 2..=7 {
            let id = wait(&mut bench, me, 9);
            bench.deliver_all();
            assert_eq!(bench.granted.last(), Some(&id));
            bench.release(id);
        }
    }
}

/// Of others' requests nobody speaks, and who is no voter has no vote.
#[test]
fn votes_come_from_voters_and_requests_from_their_owners() {
    let mut bench = Bench::new(7, MAEKAWA);
    let id = wait(&mut bench, 1, 1);
    bench.deliver(1, 2);
    let vote = bench.deliver(2, 1);
    for stranger in [3, 5, 6, 7] {
        bench.receive(stranger, 1, &vote);
    }
    assert_eq!(bench.granted, []);
    bench.deliver_all();
    bench.release(id);
    let (_, voter, release) = bench.wire.remove(0);
    bench.wire.clear();
    bench.receive(3, voter, &release);
    let rival = wait(&mut bench, voter, 9);
    bench.deliver_all();
    assert_eq!(bench.granted, [id], "{rival:?} lacks a vote");
    bench.receive(1, voter, &release);
    bench.deliver_all();
    assert_eq!(bench.granted, [id, rival]);
}
