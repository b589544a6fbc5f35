//! Sessions of others that are not renewed any more.

use super::*;

/// What a clock that is a tenth too fast shows of a lease of one that is a tenth too slow.
const OUTLAST: Duration = Duration::from_secs(11);

#[test]
fn a_session_is_dead_when_it_has_kept_its_version_for_11_ninths_of_its_lease() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    bench.ask(1, 1);
    bench.wait(OUTLAST - Duration::from_nanos(1), &[1]);
    assert!(!bench.is_dead(&session));
    bench.wait(Duration::from_nanos(1), &[1]);
    assert!(bench.is_dead(&session));
    assert_eq!(
        bench.grants(1).last().map(|it| it.2),
        Some(Previous::Abandoned)
    );
}

#[test]
fn a_session_that_is_renewed_lives() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    bench.ask(1, 1);
    bench.wait(OUTLAST * 10, &[0, 1]);
    assert_eq!(bench.granted(1), NOBODY);
    assert_eq!(bench.agents[1].counters().declared_dead, 0);
}

#[test]
fn old_reads_declare_nobody_dead() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    let old = bench.registers[&session].clone();
    bench.hold(1);
    bench.ask(1, 1);
    // All reads of the session show what it had at first, and it is renewed.
    for _ in 0..40 {
        for (id, op) in bench.taken(1) {
            let reply = match &op {
                Op::Read { key } if *key == session => Reply::Value(Some(old.clone())),
                _ => bench.apply(&op),
            };
            bench.reply(1, id, reply);
        }
        bench.wait(SECOND, &[0, 1]);
    }
    assert!(!bench.is_dead(&session));
    assert_eq!(bench.granted(1), NOBODY);
}

#[test]
fn a_session_without_a_record_is_declared_dead_first() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    let entry = bench.registers.remove(&session).unwrap();
    bench.ask(1, 1);
    bench.wait(OUTLAST - SECOND, &[1]);
    assert_eq!(bench.granted(1), NOBODY);
    // It was only late in being seen.
    bench.registers.insert(session.clone(), entry);
    bench.wait(SECOND, &[1]);
    assert!(!bench.is_dead(&session));
    assert_eq!(bench.granted(1), NOBODY);
    bench.registers.remove(&session);
    bench.wait(OUTLAST + LEASE / 3, &[1]);
    assert!(bench.is_dead(&session));
    assert_eq!(bench.granted(1), [1]);
}

#[test]
fn locks_stay_closed_for_the_lock_delay() {
    let mut bench = Bench::with(2, false, SECOND * 5);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    bench.ask(1, 1);
    bench.wait(OUTLAST + SECOND * 4, &[1]);
    assert!(bench.is_dead(&session));
    assert_eq!(bench.granted(1), NOBODY);
    bench.wait(SECOND, &[1]);
    assert_eq!(bench.granted(1), [1]);
}

#[test]
fn a_dead_head_of_the_queue_is_taken_out() {
    let mut bench = Bench::new(3);
    bench.ask(0, 1);
    bench.ask(1, 1);
    bench.ask(2, 1);
    bench.wait(OUTLAST + LEASE / 3, &[0, 2]);
    let record = bench.record();
    assert_eq!((record.inside.len(), record.queue.len()), (1, 1));
    bench.release(0, 1);
    bench.wait(LEASE / 3, &[0, 2]);
    assert_eq!(bench.granted(2), [1]);
}

#[test]
fn callers_that_never_wait_for_long_outwait_a_holder_that_is_gone_together() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    let mut tickets = 1..;
    let begun = bench.now;
    while bench.granted(1).is_empty() {
        assert!(bench.now < begun + OUTLAST + LEASE);
        let ticket = tickets.next().unwrap();
        bench.ask(1, ticket);
        bench.wait(LEASE / 10, &[1]);
        bench.cancel(1, ticket);
        bench.wait(LEASE / 10, &[1]);
    }
    assert!(bench.is_dead(&session));
}

#[test]
fn a_holder_that_is_renewed_is_not_watched_for_longer_than_it_takes_to_see_that() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    bench.ask(1, 1);
    bench.cancel(1, 1);
    bench.wait(LEASE, &[0, 1]);
    // All that is left to do is to renew its own session for a while.
    assert!(bench.agents[1].watches.is_empty());
    assert_eq!(bench.agents[1].counters().declared_dead, 0);
}

#[test]
fn a_caller_that_tries_outwaits_a_holder_that_is_long_gone() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    bench.wait(LEASE * 10, &[]);
    bench.ask_for(1, 1, Mode::Exclusive, Wait::Try);
    assert!(!bench.has_ended(1, 1, Refusal::Busy));
    bench.wait(OUTLAST, &[1]);
    assert_eq!(bench.granted(1), [1]);
}

#[test]
fn a_caller_that_tries_does_not_outwait_a_holder_that_only_looks_so() {
    let mut bench = Bench::new(2);
    bench.ask(0, 1);
    bench.wait(LEASE * 10, &[]);
    bench.ask_for(1, 1, Mode::Exclusive, Wait::Try);
    bench.wait(LEASE, &[0, 1]);
    assert!(bench.has_ended(1, 1, Refusal::Busy));
    assert_eq!(bench.granted(1), NOBODY);
}

#[test]
fn what_ended_without_a_word_is_collected() {
    let mut bench = Bench::new(1);
    bench.ask(0, 1);
    let session = bench.session_key(0);
    let config = LedgerConfig {
        collect_every: Some(LEASE * 2),
        seed: 77,
        ..bench.agents[0].config.clone()
    };
    bench.agents.push(Ledger::new(config, bench.now));
    bench.said.push(Vec::new());
    bench.up(1);
    let other = Command::Acquire {
        ticket: Ticket(1),
        lock: LockName::new("other").unwrap(),
        spec: None,
        mode: Mode::Exclusive,
        wait: Wait::Cancelled,
    };
    bench.input(1, LedgerInput::Command(&other));
    bench.wait(LEASE * 12, &[1]);
    assert!(!bench.is_dead(&session), "it may still be renewed");
    bench.wait(LEASE * 5, &[1]);
    assert!(bench.is_dead(&session));
    bench.wait(LEASE * 17, &[1]);
    assert!(!bench.registers.contains_key(&session));
    assert!(bench.registers.contains_key(&bench.session_key(1)));
}

/// Fills the lock's queue with claims of sessions by that many agents, which have records.
fn fill(bench: &mut Bench, sessions: u64) {
    let claim = |number: u64| Claim {
        session: SessionName::new(u128::from(number % sessions)),
        ticket: number,
        mode: Mode::Exclusive,
        fence: None,
        previous: Previous::Clean,
        host: String::new(),
        pid: None,
        command: None,
    };
    let mut record = LockRecord::new(NonZeroU32::MIN);
    record.queue = (0..=MAX_QUEUE as u64).map(claim).collect();
    record.promote(1).unwrap();
    let key = bench.lock_key();
    bench.put(&key, record.to_bytes());
    (0..sessions).for_each(|session| renew(bench, session));
}

fn renew(bench: &mut Bench, session: u64) {
    let key = bench.agents[0].session_key(&SessionName::new(session.into()));
    let record = SessionRecord::new(bench.versions, LEASE, "h", None);
    bench.put(&key, record.to_bytes());
}

fn is_refused(bench: &Bench, agent: usize) -> bool {
    let is_it = |output: &LedgerOutput| {
        let full = StoreRefusal::QueueFull {
            key: bench.lock_key(),
            claims: MAX_QUEUE,
        };
        matches!(output, LedgerOutput::Refused { why, .. } if *why == full)
    };
    bench.said[agent].iter().any(is_it)
}

#[test]
fn a_queue_that_is_full_of_the_dead_is_cleared() {
    let mut bench = Bench::new(1);
    fill(&mut bench, 3);
    bench.ask(0, 1);
    // The first session is renewed: what is behind its claims is found all the same.
    for _ in 0..5 {
        bench.wait(LEASE / 3, &[0]);
        renew(&mut bench, 0);
    }
    assert!(!is_refused(&bench, 0));
    let record = bench.record();
    let first = SessionName::new(0);
    let mut others = record.claims().filter(|claim| claim.session != first);
    assert_eq!(others.next().map(|it| it.ticket), Some(1), "{record:?}");
    assert_eq!(others.next(), None);
    assert_eq!(record.claims().count(), 343);
    bench.wait(OUTLAST + LEASE, &[0]);
    assert_eq!(bench.granted(0), [1]);
}

#[test]
fn a_queue_that_is_full_of_the_living_takes_nobody() {
    let mut bench = Bench::new(1);
    fill(&mut bench, 2);
    bench.ask(0, 1);
    bench.wait(LEASE / 3, &[0]);
    renew(&mut bench, 0);
    bench.wait(LEASE / 3, &[0]);
    assert!(!is_refused(&bench, 0), "the second was not renewed yet");
    renew(&mut bench, 1);
    bench.wait(LEASE / 3, &[0]);
    assert!(is_refused(&bench, 0));
    assert_eq!(bench.agents[0].counters().declared_dead, 0);
}
