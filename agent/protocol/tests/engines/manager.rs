//! A manager that lends the permission. Of the lock "printer" member 1 is the manager, and member 3 the
//! custodian if there are three members or more.

use super::*;

/// A request that waits for as long as it takes.
pub(crate) fn want(bench: &mut Bench, me: u16) -> RequestId {
    bench.seq += 1;
    let request = Request {
        tries: false,
        ..request(me, bench.seq, bench.seq)
    };
    bench.step(me, |engine, out| engine.acquire(request, out));
    request.id
}

/// A request that asks for the lock at once, or not at all.
pub(crate) fn attempt(bench: &mut Bench, me: u16) -> RequestId {
    let clock = bench.seq;
    bench.acquire(me, clock)
}

fn enter(bench: &mut Bench, me: u16) -> RequestId {
    let id = want(bench, me);
    bench.deliver_all();
    assert_eq!(bench.granted.last(), Some(&id));
    id
}

pub(crate) fn group(size: u16) -> Bench {
    Bench::new(size, exclusive(Algorithm::Manager))
}

/// A group in which `me` has entered so often that the token is lent to it.
fn lent_to(size: u16, me: u16) -> Bench {
    let mut bench = group(size);
    for _ in 0..3 {
        let id = enter(&mut bench, me);
        bench.leave(id);
    }
    bench.granted.clear();
    bench
}

pub(crate) fn sweep(bench: &mut Bench, me: u16) {
    assert!(matches!(bench.timers.remove(&me), Some(HopTimer::Set(_))));
    bench.step(me, |engine, out| engine.timeout(out));
}

pub(crate) fn vouches(bench: &Bench, me: u16, other: u16) -> bool {
    !bench.engines[&me].may_be_inside(node(other))
}

#[test]
fn a_token_that_is_wanted_again_and_again_is_lent() {
    let mut bench = group(4);
    let mut said = Vec::new();
    for _ in 0..5 {
        let id = want(&mut bench, 2);
        let mut messages = bench.deliver_all();
        messages += bench.leave(id);
        said.push(messages);
    }
    // REQUEST, TOKEN and RETURN; then it stays. The first time the custodian is told, too.
    assert_eq!(said, [4, 3, 2, 0, 0]);
    // From there it goes straight to the next.
    let id = want(&mut bench, 4);
    let hops = [
        bench.deliver(4, 1),
        bench.deliver(1, 2),
        bench.deliver(2, 4),
    ];
    assert_eq!(hops.map(|it| it.kind()), ["REQUEST", "NEXT", "TOKEN"]);
    assert_eq!(bench.granted.last(), Some(&id));
}

/// One loan that was not used, and the next holder gives the token back.
#[test]
fn a_loan_that_was_in_vain_is_not_repeated() {
    let mut bench = lent_to(4, 2);
    let id = enter(&mut bench, 4);
    bench.release(id);
    assert_eq!(bench.kinds(), ["RETURN"]);
}

#[test]
fn the_token_goes_from_each_to_the_next() {
    let mut bench = group(4);
    let first = enter(&mut bench, 2);
    let others = [4, 3].map(|me| want(&mut bench, me));
    bench.deliver_all();
    bench.release(first);
    assert_eq!(bench.kinds(), ["TOKEN"]);
    bench.deliver(2, 4);
    bench.release(others[0]);
    assert_eq!(bench.kinds(), ["TOKEN"]);
    bench.deliver(4, 3);
    assert_eq!(bench.granted, [first, others[0], others[1]]);
}

/// The holder gave the token back before it heard who comes after it.
#[test]
fn a_next_that_crosses_a_return_is_made_good() {
    let mut bench = group(4);
    let first = enter(&mut bench, 2);
    let second = want(&mut bench, 4);
    bench.deliver(4, 1);
    bench.release(first);
    assert_eq!(bench.deliver(1, 2).kind(), "NEXT");
    assert_eq!(bench.deliver(2, 1).kind(), "RETURN");
    assert_eq!(bench.deliver(1, 4).kind(), "TOKEN");
    assert_eq!(bench.granted, [first, second]);
}

/// Places of member 4 and member 2 are over, as member 2 asks anew: the manager knows of both.
#[test]
fn a_place_that_is_over_is_struck_out_with_all_before_it() {
    let mut bench = group(4);
    let first = enter(&mut bench, 4);
    let second = want(&mut bench, 2);
    let third = want(&mut bench, 3);
    bench.deliver_all();
    for id in [first, second] {
        bench.leave(id);
    }
    assert_eq!(bench.granted, [first, second, third]);
    assert!(!vouches(&bench, 1, 4), "nobody has told the manager");
    want(&mut bench, 2);
    bench.deliver_all();
    assert!(vouches(&bench, 1, 4));
    assert!(!vouches(&bench, 1, 2) && !vouches(&bench, 1, 3));
}

#[test]
fn a_try_gets_a_token_that_nobody_uses() {
    let mut bench = lent_to(4, 2);
    let id = attempt(&mut bench, 4);
    bench.deliver_all();
    assert_eq!((&bench.granted[..], &bench.busy[..]), (&[id][..], &[][..]));
    bench.release(id);
    assert_eq!(bench.kinds(), ["RETURN"]);
}

#[test]
fn a_try_is_told_that_the_token_is_used() {
    let mut bench = group(4);
    let holder = enter(&mut bench, 2);
    let id = attempt(&mut bench, 4);
    let hops = [
        bench.deliver(4, 1),
        bench.deliver(1, 2),
        bench.deliver(2, 4),
    ];
    assert_eq!(hops.map(|it| it.kind()), ["REQUEST", "TRY", "BUSY"]);
    assert_eq!(bench.busy, [id]);
    bench.cancel(id);
    bench.leave(holder);
    assert_eq!(bench.granted, [holder]);
}

/// Whoever is told, and goes on waiting, is served in its turn.
#[test]
fn a_try_may_wait_after_all() {
    let mut bench = group(4);
    let holder = enter(&mut bench, 2);
    let id = attempt(&mut bench, 4);
    bench.deliver_all();
    assert_eq!(bench.busy, [id]);
    bench.leave(holder);
    assert_eq!(bench.granted, [holder, id]);
}

/// The token that came by a try goes back sooner than the manager hears that the try succeeded.
#[test]
fn the_end_of_a_try_may_overtake_its_beginning() {
    let mut bench = lent_to(5, 2);
    let tried = attempt(&mut bench, 4);
    bench.deliver(4, 1);
    bench.deliver(1, 2);
    bench.deliver(2, 4);
    assert_eq!(bench.granted, [tried]);
    bench.release(tried);
    let waits = want(&mut bench, 5);
    bench.deliver(5, 1);
    assert_eq!(bench.deliver(4, 1).kind(), "RETURN");
    assert_eq!(bench.deliver(2, 1).kind(), "PASSED");
    bench.deliver_all();
    assert_eq!(bench.granted, [tried, waits]);
}

/// The TRY reaches a member that has just given the token back: it gets no answer from there.
#[test]
fn a_try_that_comes_too_late_is_answered_by_the_manager() {
    for others in [false, true] {
        let mut bench = group(5);
        let holder = enter(&mut bench, 2);
        let tried = attempt(&mut bench, 4);
        bench.deliver(4, 1);
        if others {
            want(&mut bench, 5);
            bench.deliver(5, 1);
        }
        bench.release(holder);
        assert_eq!(bench.deliver(1, 2).kind(), "TRY");
        bench.deliver(2, 1);
        let answer = bench.deliver(1, 4);
        assert_eq!(answer.kind(), if others { "BUSY" } else { "TOKEN" });
        assert_eq!(bench.busy, [tried][..usize::from(others)]);
    }
}

/// G3. The first copy was answered while the token was used; to give it away now would lose it, as
/// whoever tried waits no more.
#[test]
fn a_try_that_comes_twice_is_answered_once() {
    let mut bench = group(4);
    for _ in 0..2 {
        let id = enter(&mut bench, 2);
        bench.leave(id);
    }
    let holder = enter(&mut bench, 2);
    let tried = attempt(&mut bench, 4);
    bench.deliver(4, 1);
    let question = bench.deliver(1, 2);
    bench.deliver_all();
    bench.cancel(tried);
    bench.leave(holder);
    let entered = enter(&mut bench, 2);
    bench.release(entered);
    bench.receive(1, 2, &question);
    bench.deliver_all();
    enter(&mut bench, 2);
}

/// A ghost costs a hop, and its member's next caller takes its place.
#[test]
fn a_cancelled_request_leaves_a_ghost() {
    let mut bench = group(4);
    let holder = enter(&mut bench, 2);
    let [gone, last] = [4, 3].map(|me| want(&mut bench, me));
    bench.deliver_all();
    bench.cancel(gone);
    assert_eq!(bench.kinds(), ["GHOST"]);
    bench.deliver_all();
    let heir = want(&mut bench, 4);
    assert_eq!(bench.kinds(), [""; 0], "it has a place");
    bench.cancel(heir);
    bench.leave(holder);
    assert_eq!(bench.granted, [holder, last], "the token has gone on");
}

/// A ghost waits in the list; who only tries need not wait with it.
#[test]
fn a_try_does_not_wait_in_the_place_of_a_ghost() {
    let mut bench = group(4);
    enter(&mut bench, 2);
    let gone = want(&mut bench, 4);
    bench.deliver_all();
    bench.cancel(gone);
    let id = attempt(&mut bench, 4);
    assert_eq!(bench.busy, [id]);
}

#[test]
fn the_custodian_knows_whether_the_manager_may_enter() {
    let mut bench = group(4);
    assert!(vouches(&bench, 3, 1), "its right is parked");
    assert!(!vouches(&bench, 2, 1) && !vouches(&bench, 4, 1));
    let id = want(&mut bench, 1);
    assert_eq!(bench.kinds(), ["UNPARK"]);
    assert!(vouches(&bench, 3, 1), "it has the token, and not the right");
    bench.deliver(1, 3);
    assert!(!vouches(&bench, 3, 1), "the right is on its way");
    assert_eq!(bench.granted, []);
    bench.deliver(3, 1);
    assert_eq!(bench.granted, [id]);
    bench.release(id);
    // It keeps the right for a while, and enters without a word.
    let id = want(&mut bench, 1);
    assert_eq!((bench.granted.last(), bench.wire.len()), (Some(&id), 0));
    bench.release(id);
    sweep(&mut bench, 1);
    assert_eq!(bench.kinds(), [""; 0], "it was used since the last sweep");
    sweep(&mut bench, 1);
    assert_eq!(bench.kinds(), ["PARK"]);
    bench.deliver(1, 3);
    assert!(vouches(&bench, 3, 1));
}

/// G4. Of three messages that come once more, late, none moves the right.
#[test]
fn the_right_is_where_it_was_moved_to_last() {
    let mut bench = group(4);
    let first = want(&mut bench, 1);
    let unpark = bench.deliver(1, 3);
    let unparked = bench.deliver(3, 1);
    bench.release(first);
    sweep(&mut bench, 1);
    let park = bench.deliver(1, 3);
    bench.receive(1, 3, &unpark);
    assert!(vouches(&bench, 3, 1));
    bench.receive(3, 1, &unparked);
    bench.wire.clear();
    let second = want(&mut bench, 1);
    assert_eq!(
        (bench.granted.last(), bench.kinds()),
        (Some(&first), vec!["UNPARK"])
    );
    bench.receive(3, 1, &unparked);
    assert_eq!(bench.granted.last(), Some(&first));
    bench.deliver(1, 3);
    bench.receive(1, 3, &park);
    assert!(!vouches(&bench, 3, 1));
    bench.deliver_all();
    assert_eq!(bench.granted.last(), Some(&second));
}

/// Two members: who could vouch for the manager is the only one that could be asked.
#[test]
fn of_two_members_none_is_a_custodian() {
    let mut bench = group(2);
    want(&mut bench, 1);
    assert_eq!((bench.granted.len(), bench.wire.len()), (1, 0));
    assert!(!vouches(&bench, 2, 1));
}

#[test]
fn a_loan_that_is_not_used_goes_back() {
    let mut bench = lent_to(4, 2);
    // The entry before the loan was none of it.
    sweep(&mut bench, 2);
    assert_eq!(bench.kinds(), ["RETURN"]);
    bench.deliver_all();
    assert!(vouches(&bench, 1, 2));
    sweep(&mut bench, 2);
    assert_eq!(bench.timers.get(&2), None, "nothing is left to watch");
}

/// One that is used is looked after more seldom, and one that was given back too early is kept longer.
#[test]
fn loans_last_as_long_as_they_are_likely_to_be_used() {
    let mut bench = lent_to(4, 2);
    let patience = |bench: &Bench| match bench.timers.get(&2) {
        Some(HopTimer::Set(patience)) => patience.as_millis(),
        timer => panic!("{timer:?}"),
    };
    assert_eq!(patience(&bench), 10);
    let mut lasted = Vec::new();
    for entries in [1, 1, 2, 80] {
        for _ in 0..entries {
            let id = enter(&mut bench, 2);
            bench.leave(id);
        }
        sweep(&mut bench, 2);
        lasted.push(patience(&bench));
    }
    // Four times the mean time between two entries.
    assert_eq!(lasted, [40, 160, 320, 16]);
    sweep(&mut bench, 2);
    bench.deliver_all();
    // Whether it is wanted again while a loan would still be worth it, however long the last one lasted.
    assert_eq!(patience(&bench), 640);
    let id = enter(&mut bench, 2);
    bench.leave(id);
    assert_eq!(patience(&bench), 32);
}

/// A member that leaves in order holds nothing that others would have to wait for.
#[test]
fn who_leaves_gives_back_what_is_lent() {
    let mut bench = lent_to(4, 2);
    bench.step(2, |engine, out| engine.leave(out));
    assert_eq!(bench.kinds(), ["RETURN"]);
    let mut bench = group(4);
    let id = enter(&mut bench, 1);
    bench.leave(id);
    bench.step(1, |engine, out| engine.leave(out));
    assert_eq!(bench.kinds(), ["PARK"]);
}

/// Everybody finds in the view's table who comes next.
#[test]
fn a_view_begins_with_the_line_of_those_who_wait() {
    let holder = request(2, 1, 5).id;
    let waiters = [request(4, 1, 7), request(3, 1, 9)];
    let mut bench = Bench::rebuilt(4, exclusive(Algorithm::Manager), &[holder], &waiters);
    for (from, id) in [(2, holder), (4, waiters[0].id)] {
        bench.release(id);
        assert_eq!(bench.kinds(), ["TOKEN"]);
        bench.deliver(from, if from == 2 { 4 } else { 3 });
    }
    assert_eq!(bench.entered(), [4, 3]);
}

/// The one who passed the token to a try had not heard yet who comes next.
#[test]
fn a_next_that_crosses_a_try_is_said_again() {
    let mut bench = lent_to(5, 2);
    let tried = attempt(&mut bench, 4);
    bench.deliver(4, 1);
    let waits = want(&mut bench, 5);
    bench.deliver(5, 1);
    for _ in 0..2 {
        bench.deliver(1, 2);
    }
    bench.deliver_all();
    bench.release(tried);
    assert_eq!(bench.kinds(), ["TOKEN"]);
    bench.deliver_all();
    assert_eq!(bench.granted, [tried, waits]);
}

pub(crate) fn read(bench: &mut Bench, me: u16, tries: bool) -> RequestId {
    bench.seq += 1;
    let request = Request {
        mode: Mode::Shared,
        tries,
        ..request(me, bench.seq, bench.seq)
    };
    bench.step(me, |engine, out| engine.acquire(request, out));
    bench.deliver_all();
    request.id
}

/// A token that is lent, and not used, goes to readers that try.
#[test]
fn a_reader_that_tries_gets_a_token_that_nobody_uses() {
    let mut bench = lent_to(4, 2);
    let first = read(&mut bench, 4, true);
    let second = read(&mut bench, 2, true);
    assert_eq!(
        (&bench.granted[..], bench.busy.len()),
        (&[first, second][..], 0)
    );
    let writer = attempt(&mut bench, 4);
    bench.deliver_all();
    assert_eq!(bench.busy, [writer]);
}

#[test]
fn a_reader_that_tries_is_told_that_the_token_is_used() {
    let mut bench = group(4);
    let holder = enter(&mut bench, 2);
    let reader = read(&mut bench, 4, true);
    assert_eq!(bench.busy, [reader]);
    bench.cancel(reader);
    bench.leave(holder);
    assert_eq!(bench.granted, [holder]);
    enter(&mut bench, 3);
}

/// Readers that try while another's question is under way have one question among them.
#[test]
fn readers_that_try_are_asked_for_together() {
    let mut bench = group(6);
    enter(&mut bench, 2);
    let ask = |bench: &mut Bench, me: u16| {
        bench.seq += 1;
        let request = Request {
            mode: Mode::Shared,
            ..request(me, bench.seq, bench.seq)
        };
        bench.step(me, |engine, out| engine.acquire(request, out));
        bench.deliver(me, 1);
        request.id
    };
    let readers = [3, 4, 5, 6].map(|me| ask(&mut bench, me));
    assert_eq!(bench.kinds(), ["TRY"]);
    bench.deliver(1, 2);
    bench.deliver(2, 1);
    bench.deliver(2, 1);
    let said = bench.kinds();
    assert_eq!(said, ["BUSY", "TRY"], "the first, and for the others");
    bench.deliver_all();
    assert_eq!(bench.busy, readers);
}

/// The member that has the token lent asks to share the lock: it gives the token up first.
#[test]
fn a_loan_is_not_read_with() {
    let mut bench = lent_to(4, 2);
    let ids = [2, 4].map(|me| read(&mut bench, me, false));
    assert_eq!(bench.granted, ids);
    assert!(!vouches(&bench, 2, 4) && !vouches(&bench, 1, 2) && vouches(&bench, 1, 3));
}

/// A manager that reads has its right to enter.
#[test]
fn the_custodian_knows_whether_the_manager_may_read() {
    let mut bench = group(4);
    let id = read(&mut bench, 1, false);
    assert_eq!(bench.granted, [id]);
    assert!(!vouches(&bench, 3, 1));
    bench.leave(id);
    sweep(&mut bench, 1);
    bench.deliver_all();
    assert!(vouches(&bench, 3, 1));
}

/// A ghost that readers need not wait behind is told that its place is over. A caller that has taken it
/// meanwhile asks anew.
#[test]
fn a_place_that_readers_passed_is_asked_for_anew() {
    let mut bench = group(5);
    let reader = read(&mut bench, 2, false);
    let gone = want(&mut bench, 4);
    bench.deliver_all();
    let late = read(&mut bench, 5, false);
    bench.cancel(gone);
    let heir = want(&mut bench, 4);
    assert_eq!(bench.kinds(), ["GHOST"]);
    bench.deliver_all();
    assert_eq!(bench.granted, [reader, late]);
    for id in [reader, late] {
        bench.leave(id);
    }
    assert_eq!(bench.granted, [reader, late, heir]);
}

/// Readers leave the mark for the first that is inside alone, and one that ends inside makes another.
#[test]
fn a_shared_grant_does_not_take_the_mark_away() {
    use distlock_protocol::lock::GrantHistory;
    let marked = GrantHistory {
        counter: 7,
        abandoned: true,
    };
    let after = |spec, mode| marked.grant(spec, mode, None).unwrap().1.abandoned;
    let manager = exclusive(Algorithm::Manager);
    assert!(after(manager, Mode::Shared) && !after(manager, Mode::Exclusive));
    // The semaphore keeps it in its books.
    assert!(!after(exclusive(Algorithm::Semaphore), Mode::Shared));
}

/// Whoever polls tells of its ghost once.
#[test]
fn a_ghost_is_told_of_once() {
    let mut bench = group(4);
    enter(&mut bench, 2);
    let gone = want(&mut bench, 4);
    bench.deliver_all();
    bench.cancel(gone);
    for _ in 0..3 {
        let id = attempt(&mut bench, 4);
        assert_eq!(bench.busy.last(), Some(&id));
        bench.cancel(id);
    }
    assert_eq!(bench.kinds(), ["GHOST"]);
    assert_eq!(bench.engines[&4].asks(), [node(1)], "it says something");
}

/// Reading is no sign that a writer will come again.
#[test]
fn readers_do_not_make_loans_pay() {
    let mut bench = group(5);
    for me in [2, 3, 4, 5] {
        let id = read(&mut bench, me, false);
        bench.leave(id);
    }
    let id = enter(&mut bench, 4);
    bench.release(id);
    assert_eq!(bench.kinds(), ["RETURN"]);
}

/// A manager that reads again and again keeps its right for longer.
#[test]
fn a_right_that_was_parked_too_early_is_kept_longer() {
    let mut bench = group(4);
    let mut read_and_park = || {
        let id = read(&mut bench, 1, false);
        bench.leave(id);
        let timer = bench.timers.get(&1).copied();
        sweep(&mut bench, 1);
        bench.deliver_all();
        timer
    };
    let patience = [(); 3].map(|()| read_and_park());
    let expected = [10, 20, 40].map(|ms| Some(HopTimer::Set(Duration::from_millis(ms))));
    assert_eq!(patience, expected);
}
