//! Stores that forget, or are replaced.

use super::*;

#[test]
fn a_renewal_counts_when_the_claims_were_read_after_it() {
    let mut bench = Bench::with(1, true, Duration::ZERO);
    bench.ask(0, 1);
    let before = bench.lease(0);
    bench.hold(0);
    bench.wait(LEASE / 3, &[0]);
    let (id, renewal) = bench.taken(0).remove(0);
    let reply = bench.apply(&renewal);
    bench.reply(0, id, reply);
    assert_eq!(bench.lease(0), before);
    let (id, read) = bench.taken(0).remove(0);
    let reply = bench.apply(&read);
    bench.reply(0, id, reply);
    assert!(bench.lease(0) > before);
}

#[test]
fn a_claim_that_was_forgotten_is_lost_and_told() {
    let mut bench = Bench::with(1, true, Duration::ZERO);
    bench.ask(0, 1);
    let empty = LockRecord::new(NonZeroU32::MIN).to_bytes();
    let key = bench.lock_key();
    bench.put(&key, empty);
    bench.wait(LEASE / 3 * 2 + SECOND, &[0]);
    assert!(bench.is_lost(0, 1));
    let forgot = LedgerOutput::Notice(Notice::StoreForgot { key });
    assert!(bench.said[0].contains(&forgot));
    assert!(bench.agents[0].counters().forgotten > 0);
}

#[test]
fn a_claim_that_comes_back_is_taken_out_again() {
    let mut bench = Bench::with(1, true, Duration::ZERO);
    bench.ask(0, 1);
    let key = bench.lock_key();
    let held = bench.registers[&key].value.clone();
    bench.ask(0, 2);
    bench.release(0, 1);
    bench.down(0);
    bench.put(&key, held);
    bench.up(0);
    let record = bench.record();
    let mine = bench.agents[0].session().unwrap();
    assert!(record.find(mine, 1).is_none(), "{record:?}");
}

#[test]
fn what_was_known_of_others_counts_no_more_after_a_new_connection() {
    let mut bench = Bench::with(2, true, SECOND * 5);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    let alive = bench.registers[&session].value.clone();
    bench.ask(1, 1);
    bench.wait(Duration::from_secs(12), &[1]);
    assert!(bench.is_dead(&session));
    bench.down(1);
    bench.put(&session, alive);
    bench.up(1);
    bench.wait(SECOND * 9, &[1]);
    assert_eq!(bench.granted(1), NOBODY, "its holder may be valid again");
    bench.wait(SECOND * 9, &[1]);
    assert_eq!(bench.granted(1), [1]);
}

/// Seed 62,460 of the ledger's world: the store forgot that the holder was dead, and that another was after it.
#[test]
fn a_grant_that_the_store_remembers_has_no_fence_below_one_that_it_forgot() {
    let mut bench = Bench::with(2, true, Duration::ZERO);
    bench.ask(0, 1);
    bench.ask(1, 1);
    bench.down(1);
    bench.release(0, 1);
    // Agent 1 is inside, and does not know.
    let keys = [bench.lock_key(), bench.session_key(1)];
    let remembered = keys.each_ref().map(|key| bench.registers[key].clone());
    bench.ask(0, 2);
    bench.wait(Duration::from_secs(12), &[0]);
    let (ticket, forgotten, _) = *bench.grants(0).last().unwrap();
    assert_eq!(ticket, 2);
    bench.release(0, 2);
    bench.down(0);
    bench.registers.extend(keys.into_iter().zip(remembered));
    bench.up(1);
    bench.up(0);
    bench.wait(LEASE, &[0, 1]);
    let (ticket, fence, _) = *bench.grants(1).last().expect("it is let in");
    assert_eq!(ticket, 1);
    assert!(fence > forgotten, "{fence:?} after {forgotten:?}");
}

#[test]
fn another_store_ends_the_session() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    bench.down(0);
    bench.identity = "b".to_string();
    bench.up(0);
    assert!(bench.is_lost(0, 1));
    assert!(bench.said[0].contains(&LedgerOutput::Notice(Notice::StoreReplaced)));
    // Whoever waits next does not have to outwait it.
    assert!(bench.is_dead(&session));
    bench.ask(0, 2);
    assert_ne!(bench.session_key(0), session);
    assert_eq!(bench.granted(0), [1, 2]);
}
