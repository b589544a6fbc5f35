use super::*;

const SPEC: LockSpec = by(Priority::Lamport);

const fn by(priority: Priority) -> LockSpec {
    let mut spec = LockSpec::exclusive(Algorithm::CarvalhoRoucairol);
    spec.priority = priority;
    spec
}

/// 2.7: in the beginning the lower id of each two has the permission; then whoever entered last.
#[test]
fn permissions_stay_good() {
    let mut bench = Bench::new(4, SPEC);
    let mut clock = 0;
    for (me, messages) in [
        (1, 0),
        (4, 6),
        (4, 0),
        (2, 4),
        (1, 4),
        (4, 4),
        (1, 2),
        (1, 0),
    ] {
        clock += 10;
        let id = bench.acquire(me, clock);
        assert_eq!(bench.deliver_all(), messages, "{me} at {clock}");
        assert_eq!(bench.granted.last(), Some(&id));
        bench.release(id);
        assert_eq!(bench.kinds(), [""; 0], "nobody wants them");
    }
}

/// 2.6: what makes Ricart and Agrawala's unsafe where a later request may rank before one that was
/// replied to. Here the permission that was given has to come back.
#[test]
fn a_later_request_that_ranks_before_lets_in_one() {
    for priority in Priority::ALL {
        let mut bench = Bench::new(3, by(priority));
        let low = bench.acquire(3, 5);
        bench.deliver(3, 1);
        bench.deliver(1, 3);
        let high = bench.acquire(1, 9);
        bench.deliver(1, 3);
        // Its own stamp is the later one, so that it waits; by every other priority it goes first.
        if priority != Priority::Lamport {
            assert_eq!(bench.kinds(), ["ASK", "PERM", "ASK"], "{priority}");
            bench.deliver(3, 1);
            assert_eq!(bench.granted, [high], "{priority}");
        }
        // 2 was slow.
        bench.deliver_all();
        assert_eq!(bench.granted.len(), 1, "{priority}");
        let order = if priority == Priority::Lamport {
            [low, high]
        } else {
            [high, low]
        };
        bench.leave(order[0]);
        assert_eq!(bench.granted, order, "{priority}");
    }
}

/// G3.
#[test]
fn a_permission_that_comes_twice_is_taken_once() {
    let mut bench = Bench::new(2, SPEC);
    let first = bench.acquire(2, 5);
    bench.deliver(2, 1);
    let permission = bench.deliver(1, 2);
    bench.release(first);
    let second = bench.ask(1, 9);
    bench.acquire(2, 12);
    bench.receive(1, 2, &permission);
    bench.deliver_all();
    assert_eq!(bench.granted, [first, second], "it is with 1");
}

/// Never G2: to discard a permission would be to lose it for ever.
#[test]
fn a_permission_that_nobody_waits_for_is_kept() {
    let mut bench = Bench::new(2, SPEC);
    let given_up = bench.acquire(2, 5);
    bench.deliver(2, 1);
    bench.cancel(given_up);
    bench.deliver(1, 2);
    let wanted = bench.acquire(2, 9);
    assert_eq!((bench.granted, bench.wire.len()), (vec![wanted], 0));
}

#[test]
fn a_wish_waits_for_a_permission_that_is_on_its_way() {
    let mut bench = Bench::new(2, SPEC);
    let first = bench.acquire(2, 5);
    bench.deliver(2, 1);
    let second = bench.acquire(1, 9);
    // What 1 sent last overtakes the permission.
    let (from, to, ask) = bench.wire.pop().unwrap();
    bench.receive(from, to, &ask);
    assert_eq!(bench.kinds(), ["PERM"]);
    bench.deliver_all();
    assert_eq!(bench.granted, [first]);
    assert_eq!(bench.busy, [second], "it is told when that is known");
    bench.leave(first);
    assert_eq!(bench.granted, [first, second]);
}

/// G1.
#[test]
fn an_old_request_does_not_displace_a_newer_one() {
    let mut bench = Bench::new(2, SPEC);
    let inside = bench.acquire(1, 1);
    let given_up = bench.acquire(2, 5);
    let (_, _, old) = bench.wire.remove(0);
    bench.cancel(given_up);
    let wanted = bench.ask(2, 9);
    bench.busy.clear();
    bench.receive(2, 1, &old);
    assert_eq!(bench.kinds(), [""; 0]);
    bench.leave(inside);
    assert_eq!(bench.granted, [inside, wanted]);
}

/// Members enter one after the other as in `before`; then, while 4 is inside, `all` ask in that
/// order. Who is let in, in which order.
fn served(priority: Priority, before: &[u16], all: &[u16]) -> Vec<u16> {
    let mut bench = Bench::new(4, by(priority));
    let mut clock = 0;
    let mut ask = |bench: &mut Bench, me| {
        clock += 10;
        bench.ask(me, clock)
    };
    for &me in before {
        let id = ask(&mut bench, me);
        bench.leave(id);
    }
    let mut inside = ask(&mut bench, 4);
    bench.granted.clear();
    for &me in all {
        ask(&mut bench, me);
    }
    for _ in all {
        bench.leave(inside);
        inside = *bench.granted.last().unwrap();
    }
    let granted = bench.granted.iter();
    granted.map(|id| id.node.as_u16()).collect()
}

/// S2's four tie-breaks.
#[test]
fn who_goes_first_can_be_chosen() {
    let (before, all) = ([3, 1, 2, 1, 3, 1], [2, 1, 3]);
    assert_eq!(served(Priority::Lamport, &before, &all), [2, 1, 3]);
    assert_eq!(served(Priority::Static, &before, &all), [1, 2, 3]);
    // 2 has entered once, 3 twice, 1 three times.
    assert_eq!(served(Priority::LeastFrequent, &before, &all), [2, 3, 1]);
    // 1 was the last, 3 before it, and 2 before that.
    assert_eq!(served(Priority::LeastRecent, &before, &all), [2, 3, 1]);
    // The two are not the same.
    let before = [3, 1, 1, 2];
    assert_eq!(served(Priority::LeastFrequent, &before, &all), [2, 3, 1]);
    assert_eq!(served(Priority::LeastRecent, &before, &all), [3, 1, 2]);
}

/// The value is frozen when the request is made, as S2 takes for granted; and who yields asks
/// again.
#[test]
fn a_rank_is_said_again_as_it_was() {
    let mut bench = Bench::new(3, by(Priority::LeastRecent));
    for (me, clock) in [(3, 1), (1, 2)] {
        let id = bench.ask(me, clock);
        bench.release(id);
    }
    bench.acquire(3, 3);
    bench.acquire(2, 4);
    bench.deliver(2, 3);
    let said = bench.wire.iter().filter(|(from, ..)| *from == 3);
    let said: Vec<_> = said
        .map(|(_, to, message)| (*to, message.clone()))
        .collect();
    let ask = message(
        SPEC.algorithm,
        r#"{"Ask":{"number":103,"rank":1,"tries":true}}"#,
    );
    assert_eq!((said.len(), &said[0]), (3, &(1, ask.clone())));
    assert_eq!((said[1].1.kind(), &said[2]), ("PERM", &(2, ask)));
}

#[test]
fn after_a_view_change_the_holder_has_its_permissions_and_waiters_ask() {
    let holder = request(3, 1, 5);
    let waiters = [request(2, 1, 7), request(1, 1, 9)];
    for priority in Priority::ALL {
        let mut bench = Bench::rebuilt(3, by(priority), &[holder.id], &waiters);
        bench.deliver_all();
        assert_eq!(bench.granted, []);
        bench.leave(holder.id);
        let first = if priority == Priority::Lamport { 0 } else { 1 };
        assert_eq!(bench.granted, [waiters[first].id], "{priority}");
        bench.leave(waiters[first].id);
        let both = [waiters[first].id, waiters[1 - first].id];
        assert_eq!(bench.granted, both, "{priority}");
    }
    let bench = Bench::rebuilt(3, SPEC, &[], &[request(1, 1, 7)]);
    assert_eq!((bench.granted.len(), bench.wire.len()), (1, 0));
}
