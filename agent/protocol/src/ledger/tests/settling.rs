//! Writes of unknown outcome.

use super::*;

/// Of an agent that waits for the answer to a write of the lock's record: that write.
fn written(bench: &mut Bench, agent: usize) -> (OpId, Op) {
    let key = bench.lock_key();
    let mut taken = bench.taken(agent);
    taken.retain(|(_, op)| matches!(op, Op::Write { key: it, .. } if *it == key));
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken.remove(0)
}

/// An agent with a session, whose next operations are held back.
fn held() -> Bench {
    let mut bench = Bench::new(2);
    bench.ask(0, 9);
    bench.release(0, 9);
    bench.hold(0);
    bench.ask(0, 1);
    let (id, read) = bench.taken(0).remove(0);
    let reply = bench.apply(&read);
    bench.reply(0, id, reply);
    bench
}

#[test]
fn one_write_of_a_record_is_under_way() {
    let mut bench = held();
    let (id, op) = written(&mut bench, 0);
    bench.ask(0, 2);
    bench.cancel(0, 1);
    assert_eq!(bench.taken(0), []);
    let reply = bench.apply(&op);
    bench.reply(0, id, reply);
    bench.let_go(0);
    assert_eq!(bench.granted(0), [9, 2]);
}

#[test]
fn a_claim_of_an_unknown_write_is_taken_out_if_nobody_waits_for_it() {
    for is_done in [false, true] {
        let mut bench = held();
        let (id, late) = written(&mut bench, 0);
        if is_done {
            bench.apply(&late);
        }
        bench.reply(0, id, Reply::Unknown);
        bench.cancel(0, 1);
        bench.wait(SECOND * 2, &[0]);
        bench.let_go(0);
        // It can be done no more.
        assert!(matches!(bench.apply(&late), Reply::Conflict(_)));
        assert!(bench.record().claims().next().is_none());
        assert_eq!(bench.granted(0), [9]);
        bench.ask(1, 1);
        assert_eq!(bench.granted(1), [1]);
    }
}

#[test]
fn a_claim_of_an_unknown_write_is_recognized() {
    let mut bench = held();
    let (id, op) = written(&mut bench, 0);
    bench.apply(&op);
    bench.reply(0, id, Reply::Unknown);
    bench.wait(SECOND * 2, &[0]);
    bench.let_go(0);
    assert_eq!(bench.granted(0), [9, 1]);
    assert_eq!(bench.record().claims().count(), 1);
}

#[test]
fn a_conflict_that_shows_the_expected_version_proves_nothing() {
    let mut bench = held();
    let (id, late) = written(&mut bench, 0);
    let entry = bench.registers[&bench.lock_key()].clone();
    bench.reply(0, id, Reply::Conflict(Some(entry)));
    bench.cancel(0, 1);
    bench.wait(SECOND * 2, &[0]);
    bench.let_go(0);
    assert!(matches!(bench.apply(&late), Reply::Conflict(_)));
}

#[test]
fn an_old_record_does_not_show_that_a_claim_is_gone() {
    let mut bench = Bench::new(2);
    bench.ask(1, 1);
    let old = bench.registers[&bench.lock_key()].clone();
    bench.ask(0, 1);
    let key = bench.lock_key();
    bench.input(0, LedgerInput::Store(StoreEvent::Changed(key, Some(old))));
    bench.cancel(0, 1);
    assert_eq!(bench.record().claims().count(), 1);
}

#[test]
fn what_was_read_before_a_write_is_not_looked_at() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    bench.hold(0);
    let key = bench.lock_key();
    bench.input(0, LedgerInput::Store(StoreEvent::Changed(key, None)));
    let (id, read) = bench.taken(0).remove(0);
    let old = bench.apply(&read);
    bench.release(0, 1);
    let (write, op) = written(&mut bench, 0);
    let reply = bench.apply(&op);
    bench.reply(0, write, reply);
    bench.reply(0, id, old);
    assert_eq!(bench.taken(0), [], "it would be written for nothing");
}
