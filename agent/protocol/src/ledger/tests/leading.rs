//! Observing who is inside.

use super::*;

fn observe(bench: &mut Bench, agent: usize, is_wanted: bool) {
    let lock = lock();
    bench.input(agent, LedgerInput::Observe { lock, is_wanted });
}

/// The fences of the leaders that an agent has told of; 0 is nobody.
fn leaders(bench: &Bench, agent: usize) -> Vec<u64> {
    let leaders = bench.said[agent].iter().filter_map(|output| match output {
        LedgerOutput::Leader { lock: name, leader } => {
            assert_eq!(*name, lock());
            Some(leader.as_ref().map_or(0, |leader| leader.fence.as_u64()))
        }
        _ => None,
    });
    leaders.collect()
}

fn fences(bench: &Bench, agent: usize) -> Vec<u64> {
    let grants = bench.grants(agent).into_iter();
    grants.map(|(_, fence, _)| fence.as_u64()).collect()
}

#[test]
fn an_observer_is_told_who_is_inside_and_each_change_of_that() {
    let mut bench = Bench::new(2);
    observe(&mut bench, 1, true);
    assert_eq!(leaders(&bench, 1), [0]);
    let (ticket, pid, command) = (Ticket(1), 7, "job".to_string());
    let caller = LedgerInput::Caller {
        ticket,
        pid,
        command,
    };
    bench.input(0, caller);
    bench.ask(0, 1);
    bench.wait(LEASE / 3, &[1]);
    let first = fences(&bench, 0)[0];
    assert_eq!(leaders(&bench, 1), [0, first]);
    let told = bench.said[1].iter().rev().find_map(|output| match output {
        LedgerOutput::Leader { leader, .. } => leader.clone(),
        _ => None,
    });
    let told = told.unwrap();
    assert_eq!((told.host.as_str(), told.pid), ("h", Some(7)));
    assert_eq!(told.command.as_deref(), Some("job"));
    assert_eq!(bench.agents[0].session(), Some(&told.session));
    // Another waits, which changes nothing.
    bench.ask(0, 2);
    bench.wait(LEASE / 3, &[0, 1]);
    assert_eq!(leaders(&bench, 1), [0, first]);
    bench.release(0, 1);
    bench.wait(LEASE / 3, &[0, 1]);
    let second = fences(&bench, 0)[1];
    assert_eq!(leaders(&bench, 1), [0, first, second]);
    bench.release(0, 2);
    bench.wait(LEASE / 3, &[0, 1]);
    assert_eq!(leaders(&bench, 1), [0, first, second, 0]);
}

#[test]
fn an_observer_reads_and_nothing_else_and_only_while_it_is_one() {
    let mut bench = Bench::new(1);
    let key = bench.lock_key();
    observe(&mut bench, 0, true);
    assert!(bench.agents[0].interest().contains(&key));
    let before = bench.agents[0].counters().operations;
    bench.wait(LEASE * 2, &[0]);
    assert_eq!(bench.agents[0].counters().operations - before, 6);
    assert!(bench.registers.is_empty(), "it takes no session");
    observe(&mut bench, 0, false);
    assert!(bench.agents[0].interest().is_empty());
    assert_eq!(bench.agents[0].poll_timeout(), None);
    assert_eq!(bench.agents[0].record(&lock()), None);
}

#[test]
fn a_hint_tells_an_observer_at_once_and_spares_it_a_read() {
    let mut bench = Bench::new(2);
    observe(&mut bench, 1, true);
    bench.ask(0, 1);
    let before = bench.agents[1].counters().operations;
    bench.wait(LEASE / 3 - SECOND, &[0]);
    let key = bench.lock_key();
    let entry = bench.registers.get(&key).cloned();
    let hint = StoreEvent::Changed(key, entry);
    bench.input(1, LedgerInput::Store(hint));
    assert_eq!(leaders(&bench, 1), [0, fences(&bench, 0)[0]]);
    bench.wait(LEASE / 3 - SECOND, &[0, 1]);
    assert_eq!(bench.agents[1].counters().operations, before);
}

#[test]
fn who_leads_itself_is_told_too_and_whoever_observes_again_is_told_again() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    observe(&mut bench, 0, true);
    let fence = fences(&bench, 0)[0];
    assert_eq!(leaders(&bench, 0), [fence]);
    observe(&mut bench, 0, true);
    assert_eq!(leaders(&bench, 0), [fence, fence]);
    bench.release(0, 1);
    assert_eq!(leaders(&bench, 0), [fence, fence, 0]);
}

#[test]
fn an_old_record_does_not_bring_back_a_leader_that_was() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    let key = bench.lock_key();
    let old = bench.registers.get(&key).cloned();
    bench.release(0, 1);
    bench.ask(0, 2);
    observe(&mut bench, 1, true);
    let second = fences(&bench, 0)[1];
    assert_eq!(leaders(&bench, 1), [second]);
    let hint = StoreEvent::Changed(key, old);
    bench.input(1, LedgerInput::Store(hint));
    assert_eq!(leaders(&bench, 1), [second]);
}

/// With it the lock's last fence is the same as without.
#[test]
fn an_old_record_does_not_bring_back_one_that_shared_the_lock() {
    let mut bench = Bench::new(2);
    bench.ask_for(0, 1, Mode::Shared, Wait::Cancelled);
    bench.ask_for(0, 2, Mode::Shared, Wait::Cancelled);
    let key = bench.lock_key();
    let old = bench.registers.get(&key).cloned();
    bench.release(0, 1);
    observe(&mut bench, 1, true);
    let second = fences(&bench, 0)[1];
    assert_eq!(leaders(&bench, 1), [second]);
    let hint = StoreEvent::Changed(key, old);
    bench.input(1, LedgerInput::Store(hint));
    assert_eq!(leaders(&bench, 1), [second]);
}

#[test]
fn an_observer_waits_for_a_store_that_is_away() {
    let mut bench = Bench::new(2);
    bench.down(1);
    observe(&mut bench, 1, true);
    assert_eq!(leaders(&bench, 1), NOBODY);
    bench.ask(0, 1);
    bench.up(1);
    assert_eq!(leaders(&bench, 1), [fences(&bench, 0)[0]]);
    // Another store has other fences, and they may be lower.
    let mut record = bench.record();
    record.fence = 5;
    record.inside[0].fence = Fence::new(5);
    let key = bench.lock_key();
    bench.down(1);
    bench.put(&key, record.to_bytes());
    bench.identity = "b".to_string();
    bench.up(1);
    assert_eq!(leaders(&bench, 1).last(), Some(&5));
}

/// What was taken out may come back for a while, and then no more.
#[test]
fn an_observer_is_at_rest_also_where_a_store_may_forget() {
    let mut bench = Bench::with(1, true, Duration::ZERO);
    bench.ask(0, 1);
    observe(&mut bench, 0, true);
    bench.release(0, 1);
    bench.wait(LEASE * 12, &[0]);
    let next = bench.agents[0].poll_timeout();
    assert!(next.is_some_and(|next| next > bench.now), "{next:?}");
    observe(&mut bench, 0, false);
    assert_eq!(bench.agents[0].record(&lock()), None);
    assert_eq!(bench.agents[0].poll_timeout(), None);
}
