//! Readers and writers: what the semaphore with one permit makes of shared requests.

use super::*;

const SPEC: LockSpec = LockSpec::exclusive(Algorithm::Semaphore);

fn ask(bench: &mut Bench, me: u16, mode: Mode) -> RequestId {
    bench.seq += 1;
    let request = Request {
        mode,
        ..request(me, bench.seq, 1)
    };
    bench.step(me, |engine, out| engine.acquire(request, out));
    bench.deliver_all();
    request.id
}

#[test]
fn readers_are_inside_together_and_a_writer_alone() {
    let mut bench = Bench::new(4, SPEC);
    let first = ask(&mut bench, 1, Mode::Shared);
    let second = ask(&mut bench, 2, Mode::Shared);
    assert_eq!(bench.granted, [first, second]);
    let writer = ask(&mut bench, 3, Mode::Exclusive);
    bench.leave(first);
    assert_eq!(bench.granted, [first, second], "a reader is left");
    bench.leave(second);
    assert_eq!(bench.granted, [first, second, writer]);
    let third = ask(&mut bench, 4, Mode::Shared);
    assert_eq!(bench.busy, [writer, third]);
    bench.leave(writer);
    assert_eq!(bench.granted[3..], [third]);
}

#[test]
fn a_reader_that_comes_after_a_waiting_writer_waits_behind_it() {
    let mut bench = Bench::new(4, SPEC);
    let reader = ask(&mut bench, 1, Mode::Shared);
    let writer = ask(&mut bench, 2, Mode::Exclusive);
    let late = ask(&mut bench, 3, Mode::Shared);
    assert_eq!(bench.granted, [reader]);
    bench.leave(reader);
    assert_eq!(bench.granted, [reader, writer]);
    bench.leave(writer);
    assert_eq!(bench.granted, [reader, writer, late]);
}

#[test]
fn readers_go_in_when_the_writer_before_them_gives_up() {
    let mut bench = Bench::new(4, SPEC);
    let reader = ask(&mut bench, 1, Mode::Shared);
    let writer = ask(&mut bench, 2, Mode::Exclusive);
    let late = ask(&mut bench, 3, Mode::Shared);
    bench.cancel(writer);
    bench.deliver_all();
    assert_eq!(bench.granted, [reader, late]);
}

#[test]
fn after_a_view_change_readers_are_still_together() {
    let holders = [request(1, 1, 5).id, request(2, 1, 6).id];
    let waiters = [
        Request {
            mode: Mode::Shared,
            ..request(3, 1, 9)
        },
        request(4, 1, 10),
    ];
    let mut bench = Bench::rebuilt_in(4, SPEC, (&holders, Mode::Shared), &waiters);
    bench.deliver_all();
    assert_eq!(bench.granted, [waiters[0].id]);
    for id in holders {
        bench.leave(id);
    }
    assert_eq!(bench.granted, [waiters[0].id]);
    bench.leave(waiters[0].id);
    assert_eq!(bench.granted, [waiters[0].id, waiters[1].id]);
}
