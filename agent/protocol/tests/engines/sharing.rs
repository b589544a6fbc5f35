//! Readers and writers: what the semaphore with one permit and the manager make of shared requests.

use super::*;

const ALL: [Algorithm; 2] = [Algorithm::Semaphore, Algorithm::Manager];

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
    for algorithm in ALL {
        let mut bench = Bench::new(4, exclusive(algorithm));
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
}

#[test]
fn a_reader_that_comes_after_a_waiting_writer_waits_behind_it() {
    for algorithm in ALL {
        let mut bench = Bench::new(4, exclusive(algorithm));
        let reader = ask(&mut bench, 1, Mode::Shared);
        let writer = ask(&mut bench, 2, Mode::Exclusive);
        let late = ask(&mut bench, 3, Mode::Shared);
        assert_eq!(bench.granted, [reader]);
        bench.leave(reader);
        assert_eq!(bench.granted, [reader, writer]);
        bench.leave(writer);
        assert_eq!(bench.granted, [reader, writer, late]);
    }
}

#[test]
fn readers_go_in_when_the_writer_before_them_gives_up() {
    for algorithm in ALL {
        let mut bench = Bench::new(4, exclusive(algorithm));
        let reader = ask(&mut bench, 1, Mode::Shared);
        let writer = ask(&mut bench, 2, Mode::Exclusive);
        let late = ask(&mut bench, 3, Mode::Shared);
        bench.cancel(writer);
        bench.deliver_all();
        assert_eq!(bench.granted, [reader, late]);
    }
}

#[test]
fn after_a_view_change_readers_are_still_together() {
    for algorithm in ALL {
        let holders = [request(1, 1, 5).id, request(2, 1, 6).id];
        let waiters = [
            Request {
                mode: Mode::Shared,
                ..request(3, 1, 9)
            },
            request(4, 1, 10),
        ];
        let mut bench =
            Bench::rebuilt_in(4, exclusive(algorithm), (&holders, Mode::Shared), &waiters);
        bench.deliver_all();
        assert_eq!(bench.granted, [waiters[0].id]);
        for id in holders {
            bench.leave(id);
        }
        assert_eq!(bench.granted, [waiters[0].id]);
        bench.leave(waiters[0].id);
        assert_eq!(bench.granted, [waiters[0].id, waiters[1].id]);
    }
}

/// Whoever reads cannot keep the others out for ever: readers that come after a writer wait behind it.
#[test]
fn of_those_that_wait_one_phase_goes_in_at_a_time() {
    for algorithm in ALL {
        let mut bench = Bench::new(5, exclusive(algorithm));
        let first = ask(&mut bench, 1, Mode::Exclusive);
        let readers = [2, 3].map(|me| ask(&mut bench, me, Mode::Shared));
        let writer = ask(&mut bench, 4, Mode::Exclusive);
        let late = ask(&mut bench, 5, Mode::Shared);
        bench.leave(first);
        let mut granted = bench.granted.clone();
        assert_eq!(granted[1..3], readers, "{algorithm}");
        // A manager has one phase that waits, and the reader that came late joins it.
        let joins = algorithm == Algorithm::Manager;
        assert_eq!(granted.pop() == Some(late), joins, "{algorithm}");
        let inside = readers.into_iter().chain(joins.then_some(late));
        for id in inside {
            assert!(!bench.granted.contains(&writer), "{algorithm}");
            bench.leave(id);
        }
        assert!(bench.granted.contains(&writer), "{algorithm}");
    }
}

/// Two requests of one member may be inside together, and each is over on its own.
#[test]
fn two_of_one_member_share_the_lock() {
    for algorithm in ALL {
        for me in 1..=3 {
            let mut bench = Bench::new(3, exclusive(algorithm));
            let both = [(); 2].map(|()| ask(&mut bench, me, Mode::Shared));
            let writer = ask(&mut bench, me % 3 + 1, Mode::Exclusive);
            for id in both {
                assert_eq!(bench.granted, both, "{algorithm}");
                bench.leave(id);
            }
            assert_eq!(bench.granted[2..], [writer], "{algorithm}");
        }
    }
}
