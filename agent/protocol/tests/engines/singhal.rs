//! Section 2.10. Of three members, 1 has the token, 2 takes 1 to want it, and 3 both.

use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Singhal);

fn enter_and_leave(bench: &mut Bench, me: u16, clock: u64) -> usize {
    let id = bench.acquire(me, clock);
    let count = bench.deliver_all();
    assert_eq!(bench.granted.last(), Some(&id));
    assert_eq!(bench.leave(id), 0);
    count
}

/// S3: whoever is before one in the staircase is asked, and one has the token.
#[test]
fn a_staircase_decides_whom_one_asks() {
    for (me, count) in [(1, 0), (2, 2), (3, 3), (4, 4), (5, 5)] {
        let mut bench = Bench::new(5, SPEC);
        assert_eq!(enter_and_leave(&mut bench, me, 1), count, "{me}");
        assert_eq!(enter_and_leave(&mut bench, me, 2), 0, "it is here");
    }
}

/// Who has had the token is known to those who heard of it, and nobody else is asked.
#[test]
fn the_last_one_is_asked() {
    let mut bench = Bench::new(5, SPEC);
    enter_and_leave(&mut bench, 5, 1);
    assert_eq!(enter_and_leave(&mut bench, 1, 2), 2, "1 knows of 5 only");
    assert_eq!(enter_and_leave(&mut bench, 5, 3), 2);
    assert_eq!(enter_and_leave(&mut bench, 4, 4), 5, "4 knows of all");
}

/// Two that want it at the same time: who hears of the other asks back, or the token might pass it.
#[test]
fn who_waits_asks_back() {
    let mut bench = Bench::new(3, SPEC);
    let inside = bench.acquire(1, 1);
    bench.acquire(2, 2);
    bench.acquire(3, 2);
    bench.deliver(3, 2);
    let back = bench
        .wire
        .iter()
        .filter(|(from, to, _)| (*from, *to) == (2, 3));
    assert_eq!(back.count(), 1);
    bench.deliver_all();
    for _ in 0..3 {
        bench.leave(*bench.granted.last().unwrap());
    }
    assert_eq!((bench.granted[0], bench.entered()), (inside, vec![1, 2, 3]));
}

/// The token goes round by ids from who leaves.
#[test]
fn service_goes_round_from_who_leaves() {
    let mut bench = Bench::new(5, SPEC);
    bench.ask(3, 1);
    for me in [1, 2, 5, 4] {
        bench.acquire(me, 2);
    }
    for _ in 0..5 {
        bench.deliver_all();
        bench.release(*bench.granted.last().unwrap());
    }
    assert_eq!(bench.entered(), [3, 4, 5, 1, 2]);
}

/// The trap: 3's request comes to 2 when it has been served, while 2 is inside. 2 forgets it with
/// the token's word; nobody else has told 3 of 2, and 3 asks 1 only, while the token rests at 2.
#[test]
fn a_request_that_is_forgotten_is_sent_to_all_after_a_while() {
    let mut bench = Bench::new(3, SPEC);
    let first = bench.acquire(3, 1);
    bench.deliver(3, 1);
    bench.deliver(1, 3);
    bench.release(first);
    let (_, _, late) = bench.wire.remove(0);
    assert_eq!(enter_and_leave(&mut bench, 1, 2), 2);
    let inside = bench.ask(2, 3);
    bench.receive(3, 2, &late);
    assert_eq!(bench.kinds(), ["BUSY"]);
    bench.deliver_all();
    assert_eq!(bench.leave(inside), 0, "it stays");

    let waits = bench.acquire(3, 4);
    assert_eq!(bench.timers[&3], HopTimer::Set(Duration::from_millis(200)));
    assert_eq!(bench.deliver_all(), 1, "to 1, who has it not");
    assert_eq!(bench.granted.last(), Some(&inside));
    bench.step(3, |engine, out| engine.timeout(out));
    assert_eq!(bench.deliver_all(), 2, "to 2, and the token");
    assert_eq!(bench.granted.last(), Some(&waits));
    assert_eq!(bench.timers[&3], HopTimer::Clear);
    bench.step(3, |engine, out| engine.timeout(out));
    assert_eq!(bench.wire.len(), 0);
}

/// Who has asked all has nobody else to ask, and who waits no longer has nothing to ask for.
#[test]
fn only_who_waits_and_has_spared_somebody_asks_more() {
    let mut bench = Bench::new(3, SPEC);
    let inside = bench.acquire(1, 1);
    bench.acquire(3, 1);
    assert!(!bench.timers.contains_key(&3), "it asks both");
    let given_up = bench.acquire(2, 1);
    assert!(matches!(bench.timers[&2], HopTimer::Set(_)));
    bench.cancel(given_up);
    assert_eq!(bench.timers[&2], HopTimer::Clear);
    let sent = bench.wire.len();
    bench.step(2, |engine, out| engine.timeout(out));
    assert_eq!(bench.wire.len(), sent);
    bench.acquire(2, 2);
    assert!(
        matches!(bench.timers[&2], HopTimer::Set(_)),
        "a ghost's too"
    );
    bench.step(2, |engine, out| engine.timeout(out));
    assert_eq!(bench.wire.len(), sent + 1, "to 3");
    bench.deliver_all();
    assert_eq!(bench.granted, [inside]);
}

#[test]
fn a_token_that_names_strangers_is_put_right() {
    let mut bench = Bench::new(3, SPEC);
    bench.step(1, |engine, out| engine.leave(out));
    bench.wire.clear();
    let token = r#"{"Token":{"hop":1,"wants":[3,9],"numbers":{"3":4,"9":5}}}"#;
    bench.receive(1, 2, &message(SPEC.algorithm, token));
    let (_, to, token) = bench.wire.pop().unwrap();
    let right = r#"{"Token":{"hop":2,"wants":[3],"numbers":{"3":4}}}"#;
    assert_eq!((to, token), (3, message(SPEC.algorithm, right)));
}
