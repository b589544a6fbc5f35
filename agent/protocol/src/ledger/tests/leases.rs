//! The session, its lease and its end.

use super::*;

fn renewals(bench: &mut Bench, agent: usize) -> Vec<(OpId, Op)> {
    let taken = bench.taken(agent);
    let is_one = |(_, op): &(OpId, Op)| matches!(op, Op::Write { key, .. } if key.as_str().contains("/session/"));
    assert!(taken.iter().all(is_one), "{taken:?}");
    taken
}

#[test]
fn a_lease_counts_from_when_the_renewal_was_sent() {
    let mut bench = Bench::new(1);
    bench.hold(0);
    let sent = bench.now;
    bench.ask(0, 1);
    bench.now = sent + SECOND;
    bench.let_go(0);
    assert_eq!(bench.lease(0), sent + LEASE);
    bench.wait(LEASE, &[0]);
    assert!(bench.lease(0) > sent + LEASE, "it is renewed");
}

#[test]
fn a_session_is_renewed_three_times_a_lease_and_only_while_it_is_needed() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    let before = bench.agents[0].counters().operations;
    bench.wait(LEASE * 10, &[0]);
    assert_eq!(bench.agents[0].counters().operations - before, 30);
    bench.release(0, 1);
    let session = bench.session_key(0);
    bench.wait(LEASE, &[0]);
    assert!(!bench.registers.contains_key(&session));
    assert_eq!(bench.agents[0].session(), None);
    assert_eq!(bench.agents[0].poll_timeout(), None);
}

#[test]
fn nobody_is_told_of_a_grant_while_the_lease_is_over() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    bench.ask(0, 2);
    // Its renewals get no reply.
    bench.wait(LEASE / 3 - SECOND, &[0]);
    bench.hold(0);
    bench.wait(LEASE, &[0]);
    bench.release(0, 1);
    let mut rest = Vec::new();
    for (id, op) in bench.taken(0) {
        match &op {
            Op::Write { key, .. } if *key == bench.lock_key() => {
                let reply = bench.apply(&op);
                bench.reply(0, id, reply);
            }
            _ => rest.push((id, op)),
        }
    }
    assert_eq!(bench.record().inside.len(), 1);
    assert_eq!(
        bench.granted(0),
        [1],
        "the claim is inside, and the lease is over"
    );
    for (id, op) in rest {
        let reply = bench.apply(&op);
        bench.reply(0, id, reply);
    }
    bench.let_go(0);
    assert_eq!(bench.granted(0), [1, 2]);
}

#[test]
fn of_unknown_renewals_the_one_that_was_done_counts() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    bench.hold(0);
    bench.wait(LEASE / 3, &[0]);
    let first_sent = bench.now;
    let (id, first) = renewals(&mut bench, 0).remove(0);
    bench.reply(0, id, Reply::Unknown);
    bench.wait(SECOND * 2, &[0]);
    let (id, _) = renewals(&mut bench, 0).remove(0);
    assert!(bench.now > first_sent);
    // The first one was done; the second was not, and gets no reply either.
    bench.apply(&first);
    bench.reply(0, id, Reply::Unknown);
    bench.wait(SECOND * 2, &[0]);
    let (id, third) = renewals(&mut bench, 0).remove(0);
    let reply = bench.apply(&third);
    assert!(matches!(reply, Reply::Conflict(Some(_))));
    bench.reply(0, id, reply);
    let until = first_sent + LEASE;
    assert!(bench.has_said(0, &Event::Lease { until }));
    assert_eq!(bench.lease(0), until, "and nothing after that");
    assert!(!bench.is_lost(0, 1));
}

#[test]
fn a_refused_renewal_ends_the_session_and_who_waits_asks_anew() {
    let mut bench = Bench::new(2);
    bench.ask(1, 1);
    bench.ask(0, 1);
    bench.release(1, 1);
    bench.wait(LEASE / 3, &[0]);
    bench.ask(0, 2);
    let session = bench.session_key(0);
    let dead = SessionRecord::tombstone(None, LEASE).to_bytes();
    bench.put(&session, dead.clone());
    bench.wait(LEASE / 3, &[0]);
    assert!(bench.is_lost(0, 1));
    assert_ne!(bench.session_key(0), session);
    assert_eq!(
        bench.registers[&session].value, dead,
        "nobody writes over it"
    );
    // The claims of the session before are taken out, the new one goes in.
    assert_eq!(bench.granted(0), [1, 2]);
    assert_eq!(bench.grants(0)[1].2, Previous::Abandoned);
    assert_eq!(bench.record().claims().count(), 1);
}

#[test]
fn a_session_that_may_not_be_there_has_no_claims() {
    let mut bench = Bench::new(1);
    bench.hold(0);
    bench.ask(0, 1);
    let first = bench.agents[0].session().cloned();
    for (id, op) in bench.taken(0) {
        match op {
            Op::Read { .. } => {
                let reply = bench.apply(&op);
                bench.reply(0, id, reply);
            }
            _ => bench.reply(0, id, Reply::Unknown),
        }
    }
    bench.wait(SECOND * 2, &[0]);
    assert_ne!(bench.agents[0].session().cloned(), first);
    bench.let_go(0);
    bench.wait(SECOND, &[0]);
    assert_eq!(bench.granted(0), [1]);
}
