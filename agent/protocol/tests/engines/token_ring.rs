use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::TokenRing);

#[test]
fn the_token_rests_at_the_lowest_id_and_goes_on_when_nobody_wants_it() {
    let mut bench = Bench::new(3, SPEC);
    assert_eq!(bench.timers[&1], HopTimer::Set(Duration::from_millis(1)));
    bench.step(1, |engine, out| engine.timeout(out));
    bench.deliver(1, 2);
    assert_eq!(bench.timers[&2], HopTimer::Set(Duration::from_millis(1)));
}

#[test]
fn a_ring_that_nobody_uses_slows_down() {
    let mut bench = Bench::new(2, SPEC);
    let mut stays = Vec::new();
    for hop in 0..16 {
        let (from, to) = if hop % 2 == 0 { (1, 2) } else { (2, 1) };
        bench.step(from, |engine, out| engine.timeout(out));
        bench.deliver(from, to);
        let HopTimer::Set(stay) = bench.timers[&to] else {
            panic!("no timer")
        };
        stays.push(stay.as_millis());
    }
    assert_eq!(
        stays,
        [1, 2, 2, 4, 4, 8, 8, 16, 16, 20, 20, 20, 20, 20, 20, 20]
    );
    let id = bench.acquire(1, 1);
    bench.release(id);
    bench.deliver(1, 2);
    assert_eq!(
        bench.timers[&2],
        HopTimer::Set(Duration::from_millis(1)),
        "in use again"
    );
}

#[test]
fn one_entry_a_visit() {
    let mut bench = Bench::new(2, SPEC);
    let first = bench.acquire(1, 1);
    let other = bench.acquire(2, 1);
    bench.release(first);
    let again = bench.acquire(1, 2);
    bench.deliver(1, 2);
    assert_eq!(bench.granted, [first, other]);
    bench.release(other);
    bench.deliver(2, 1);
    assert_eq!(bench.granted, [first, other, again]);
}

/// G3, scenario 16 of the faults.
#[test]
fn a_token_that_comes_twice_is_taken_once() {
    let mut bench = Bench::new(3, SPEC);
    bench.step(1, |engine, out| engine.timeout(out));
    let token = bench.deliver(1, 2);
    bench.step(2, |engine, out| engine.timeout(out));
    let wanted = bench.acquire(2, 1);
    bench.receive(1, 2, &token);
    assert_eq!(bench.granted, []);
    bench.deliver(2, 3);
    bench.step(3, |engine, out| engine.timeout(out));
    bench.deliver(3, 1);
    bench.step(1, |engine, out| engine.timeout(out));
    bench.deliver(1, 2);
    assert_eq!(bench.granted, [wanted]);
}
