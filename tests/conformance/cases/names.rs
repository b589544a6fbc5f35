//! A lock is its name, in its group; and what is shown of it.

use distlock::{Algorithm, DistMutex as _, HandleError, LockOptions, NameError};

use crate::bench::{Bench, Case, WAIT, await_that, await_waiters, case, holders, is_busy, look_at};
use crate::jobs::spawn;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("names of all kinds are different locks", all_kinds),
        case("names that are none are refused", refused),
        case("groups do not exclude each other", groups),
        case("another algorithm is refused", algorithm),
        case("the status shows who holds and who waits", status),
        case("the status shows what was a moment ago", status_follows),
    ]
}

/// No two of them are the same, and some look it.
fn kinds() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "a", "A", "b", ".", "..", "...", "/", "//", "a/b", "a/b/", "/a/b", "../a", "a b", " a",
        "a ", "%", "%61", "%%", "%00", "a%2Fb", "a%2fb", "a_b", "a-b", "a.b", "a~", "*", "?", "#",
        "&", "'", "\"", "\\", "\\x61", "a\nb", "\t", "ä", "a\u{308}", "日本", "lock", "session",
        "group", "~ab", "=61",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.extend([
        b"\xff".to_vec(),
        b"a\xffb".to_vec(),
        b"\xc3".to_vec(),
        b"\x01".to_vec(),
        b"\x7f".to_vec(),
        vec![b'x'; 254],
        vec![b'x'; 255],
        vec![b'/'; 255],
        vec![0xfe; 255],
        vec![b'%'; 255],
    ]);
    // Two that differ in their last byte.
    names.push([vec![b'x'; 254], vec![b'y']].concat());
    names
}

fn all_kinds(bench: &Bench<'_>) {
    let names = kinds();
    let both: Vec<_> = names
        .iter()
        .map(|name| bench.agents().map(|agent| agent.mutex(name).unwrap()))
        .collect();
    // All are held at once, by one agent or the other.
    let guards: Vec<_> = both
        .iter()
        .enumerate()
        .map(|(number, both)| {
            let mutex = &both[number % 2];
            assert_eq!(mutex.name().as_bytes(), names[number]);
            let guard = mutex.try_lock_for(WAIT);
            guard.unwrap_or_else(|error| panic!("{}: {error}", mutex.name()))
        })
        .collect();
    for [here, there] in &both {
        assert!(is_busy(here.try_lock()), "{}", here.name());
        assert!(is_busy(there.try_lock()), "{}", there.name());
    }
    let listed = bench.two().status().unwrap().locks;
    for mutex in both.iter().map(|[mutex, _]| mutex) {
        let name = mutex.name().to_string();
        assert!(listed.iter().any(|lock| lock.name == name), "{name}");
    }
    for guard in guards {
        guard.unlock().unwrap();
    }
}

fn refused(bench: &Bench<'_>) {
    for agent in bench.agents() {
        let refusal = |name: &[u8]| match agent.mutex(name) {
            Err(HandleError::Name(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refusal(b""), NameError::Empty);
        assert_eq!(refusal(b"a\0b"), NameError::Nul);
        assert_eq!(refusal(&[b'x'; 256]), NameError::TooLong { len: 256 });
    }
}

fn groups(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let stranger = bench.stranger().mutex(bench.name("x")).unwrap();
    let guard = here.lock().unwrap();
    let theirs = stranger.try_lock_for(WAIT).unwrap();
    assert!(guard.is_held() && theirs.is_held());
    guard.unlock().unwrap();
    drop(there.try_lock_for(WAIT).unwrap());
    assert!(theirs.is_held());
    theirs.unlock().unwrap();
}

fn algorithm(bench: &Bench<'_>) {
    for agent in bench.agents() {
        let mutex = agent.mutex(bench.name("x")).unwrap();
        let actual = mutex.algorithm();
        let by = |algorithm| {
            let options = LockOptions::new().algorithm(algorithm);
            agent.mutex_with(bench.name("x"), &options)
        };
        assert_eq!(by(actual).unwrap().algorithm(), actual);
        for other in Algorithm::ALL.into_iter().filter(|it| *it != actual) {
            let refused = by(other).unwrap_err();
            assert!(
                matches!(
                    refused,
                    HandleError::WrongAlgorithm { .. }
                        | HandleError::NotInThisGroup { .. }
                        | HandleError::OnlyProbable { .. }
                ),
                "{refused}"
            );
        }
        drop(mutex.try_lock_for(WAIT).unwrap());
    }
}

fn status(bench: &Bench<'_>) {
    let [_, there] = bench.both("x");
    let options = LockOptions::new().command("conforms");
    let here = bench.one().mutex_with(bench.name("x"), &options).unwrap();
    let guard = here.lock().unwrap();
    let waiter = spawn(move || there.lock().unwrap().unlock());
    for agent in bench.agents() {
        await_waiters(agent, &bench.name("x"), 1);
        let lock = look_at(agent, &bench.name("x")).expect("it is listed");
        assert_eq!(lock.algorithm, here.algorithm().to_string());
        let [holder] = &lock.holders[..] else {
            panic!("{lock:?}");
        };
        assert_eq!(holder.pid, std::process::id());
        assert_eq!(holder.command, "conforms");
        assert_eq!(holder.fence, guard.fence().map(|fence| fence.as_u64()));
        assert_eq!(lock.waiters.len(), 1);
        assert_eq!(lock.waiters[0].pid, std::process::id());
    }
    guard.unlock().unwrap();
    waiter.get().unwrap();
}

fn status_follows(bench: &Bench<'_>) {
    let name = bench.name("x");
    for mutex in bench.both("x") {
        let guard = mutex.lock().unwrap();
        for agent in bench.agents() {
            await_that("it is shown", || holders(agent, &name) == 1);
        }
        guard.unlock().unwrap();
        for agent in bench.agents() {
            await_that("it is gone", || holders(agent, &name) == 0);
        }
    }
}
