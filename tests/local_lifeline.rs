//! What a child process inherits of a lock of the local group: it keeps the lock, and can do
//! nothing else to it.

mod support;

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use distlock::{Agent, DistMutex, Guard, HandleError, LockError, PreviousOwner, TryLockError};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use support::{files, is_busy, local, two_local};

/// What a command of `distlock run` inherits.
fn inherited(guard: &Guard) -> OwnedFd {
    guard
        .inheritable_fd()
        .unwrap()
        .expect("the local group has one")
}

/// A process that has `fd` as its standard error, until its input ends.
fn child_with(fd: OwnedFd) -> Child {
    let mut child = Command::new("cat");
    let child = child.stdin(Stdio::piped()).stdout(Stdio::null());
    child.stderr(fd).spawn().unwrap()
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_inherited_is_no_open_file_of_the_lock() {
    let (directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    let fd = inherited(&guard);
    let kind = SFlag::from_bits_truncate(fstat(&fd).unwrap().st_mode) & SFlag::S_IFMT;
    assert_eq!(kind, SFlag::S_IFIFO);
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL).unwrap());
    assert_eq!(flags & OFlag::O_ACCMODE, OFlag::O_WRONLY);
    // What it writes is nobody's, and it does not wait for a reader.
    let mut noisy = File::from(fd);
    while noisy.write_all(&[7; 4096]).is_ok() {}
    let other = Agent::local_in(directory.path()).unwrap();
    let theirs = other.mutex("x").unwrap();
    assert!(is_busy(theirs.try_lock()));
    guard.unlock().unwrap();
    assert!(is_busy(theirs.try_lock()));
    drop(noisy);
    drop(theirs.try_lock().unwrap());
}

#[test]
fn the_lock_is_free_when_holder_and_children_are_gone_and_nothing_is_left() {
    let (directory, agent, other) = two_local();
    let (ours, theirs) = (agent.mutex("x").unwrap(), other.mutex("x").unwrap());
    for _ in 0..3 {
        let guard = ours.lock().unwrap();
        let first = guard.fence().unwrap();
        let children = [child_with(inherited(&guard)), child_with(inherited(&guard))];
        guard.unlock().unwrap();
        for child in children {
            assert!(is_busy(ours.try_lock()) && is_busy(theirs.try_lock()));
            let timed = theirs.try_lock_for(Duration::from_millis(50));
            assert!(timed.is_err());
            let lock = other.status().unwrap().locks.remove(0);
            assert_eq!(lock.holders.len(), 1, "{lock:?}");
            assert_eq!(lock.holders[0].fence, Some(first.as_u64()));
            end(child);
        }
        let guard = theirs.try_lock().unwrap();
        assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
        assert!(guard.fence().unwrap() > first);
        assert_eq!(files(&directory).len(), 1, "the lock's file");
    }
    drop((ours, theirs));
    assert_eq!(files(&directory), [] as [&str; 0]);
}

#[test]
fn who_waits_comes_in_when_the_last_child_ends() {
    let (directory, agent) = local();
    let guard = agent.mutex("x").unwrap().lock().unwrap();
    let child = child_with(inherited(&guard));
    drop(guard);
    let other = Agent::local_in(directory.path()).unwrap();
    let waits = thread::spawn(move || other.mutex("x").unwrap().lock().map(drop));
    while agent.status().unwrap().locks[0].waiters.is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(agent.status().unwrap().locks[0].holders.len(), 1);
    assert!(!waits.is_finished());
    end(child);
    waits.join().unwrap().unwrap();
}

#[test]
fn each_permit_is_kept_by_its_own_children() {
    let (_directory, agent) = local();
    let semaphore = agent.semaphore("s", NonZeroU32::new(2)).unwrap();
    let guards = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
    let [a, b] = guards.map(|guard| child_with(inherited(&guard)));
    assert!(is_busy(semaphore.try_acquire()));
    assert_eq!(agent.status().unwrap().locks[0].holders.len(), 2);
    // For another number of permits it would be another file.
    let three = agent.semaphore("s", NonZeroU32::new(3));
    let refused = three.map(|three| three.try_acquire());
    assert!(
        matches!(
            refused,
            Ok(Err(TryLockError::Failed(LockError::WrongPermits { .. })))
                | Err(HandleError::WrongPermits { .. })
        ),
        "{refused:?}"
    );
    end(a);
    let one = semaphore.try_acquire().unwrap();
    assert!(is_busy(semaphore.try_acquire()));
    end(b);
    let two = semaphore.try_acquire().unwrap();
    drop((one, two));
}

#[test]
fn a_readers_children_keep_writers_out_and_a_writers_all() {
    let (directory, agent, other) = two_local();
    let (ours, theirs) = (agent.mutex("book").unwrap(), other.mutex("book").unwrap());
    let readers = [
        ours.shared().lock().unwrap(),
        theirs.shared().lock().unwrap(),
    ];
    let children = readers.map(|guard| child_with(inherited(&guard)));
    for (left, child) in children.into_iter().enumerate() {
        assert!(is_busy(ours.try_lock()) && is_busy(theirs.try_lock()));
        assert_eq!(agent.status().unwrap().locks[0].holders.len(), 2 - left);
        drop(theirs.shared().try_lock().unwrap());
        end(child);
    }
    let guard = theirs.try_lock().unwrap();
    let child = child_with(inherited(&guard));
    drop(guard);
    for mutex in [&ours, &theirs] {
        assert!(is_busy(mutex.try_lock()) && is_busy(mutex.shared().try_lock()));
    }
    end(child);
    drop(ours.shared().try_lock().unwrap());
    drop(ours.try_lock().unwrap());
    drop((ours, theirs));
    assert_eq!(files(&directory), [] as [&str; 0]);
}

/// As after the death of the process that made it, and before it wrote down that it did.
#[test]
fn a_lifeline_that_nobody_knows_of_is_used_or_removed() {
    let (directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    let name = format!("{}.0", files(&directory)[0]);
    nix::unistd::mkfifo(&directory.path().join(&name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let child = child_with(inherited(&guard));
    drop(guard);
    assert!(is_busy(mutex.try_lock()));
    end(child);
    let guard = mutex.try_lock().unwrap();
    nix::unistd::mkfifo(&directory.path().join(&name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    drop(guard);
    drop(mutex);
    assert_eq!(files(&directory), [] as [&str; 0]);
}

/// A cleaner that takes it for old, say: whether the command is left cannot be told.
#[test]
fn where_the_lifeline_was_removed_nobody_enters_and_it_is_told() {
    let (directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    let child = child_with(inherited(&guard));
    guard.set_command_pid(child.id());
    drop(guard);
    let lifeline = files(&directory);
    let lifeline = lifeline.iter().find(|name| name.ends_with(".0")).unwrap();
    let path = directory.path().join(lifeline);
    let refusal = |mutex: &dyn DistMutex| match mutex.try_lock() {
        Err(TryLockError::Failed(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    std::fs::remove_file(&path).unwrap();
    let text = refusal(&mutex);
    for word in [
        "removed",
        lifeline,
        &child.id().to_string(),
        "remove the lock's file",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(matches!(mutex.lock(), Err(LockError::Io { .. })));
    assert_eq!(agent.status().unwrap().locks[0].holders.len(), 1);
    // Nor will something else do.
    std::fs::write(&path, "").unwrap();
    assert!(refusal(&mutex).contains("no FIFO"));
    std::fs::remove_file(&path).unwrap();
    end(child);
    // What the message says to do.
    std::fs::remove_file(directory.path().join(lifeline.strip_suffix(".0").unwrap())).unwrap();
    drop(mutex.try_lock().unwrap());
}

#[test]
fn copies_are_closed_on_exec_and_end_with_the_guard_otherwise() {
    let (_directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    let fd = inherited(&guard);
    let mut bystander = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(fd);
    guard.unlock().unwrap();
    // The kernel lets this process go on a moment before it closes them in the other.
    drop(mutex.try_lock_for(Duration::from_secs(30)).unwrap());
    assert!(bystander.try_wait().unwrap().is_none());
    drop(bystander.stdin.take());
    bystander.wait().unwrap();
}

#[test]
fn an_older_page_lowers_no_fence() {
    let (directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let path = directory.path().join("group");
    let old = std::fs::read(&path).unwrap();
    let mut last = mutex.lock().unwrap().fence().unwrap();
    for _ in 0..9 {
        last = mutex.lock().unwrap().fence().unwrap();
    }
    std::fs::write(&path, old).unwrap();
    assert!(mutex.lock().unwrap().fence().unwrap() > last);
}

#[test]
fn a_directory_in_use_is_not_for_cleaners() {
    let (directory, agent) = local();
    let is_free = || {
        let directory = File::open(directory.path()).unwrap();
        // As systemd-tmpfiles asks.
        nix::fcntl::Flock::lock(directory, nix::fcntl::FlockArg::LockExclusiveNonblock).is_ok()
    };
    let mutex = agent.mutex("x").unwrap();
    assert!(!is_free());
    drop((agent, mutex));
    assert!(is_free());
}

/// Programs of another build would not see by what this one knows who is inside, nor the other way.
#[test]
fn a_page_of_another_layout_is_refused() {
    let (directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let page = File::options()
        .write(true)
        .open(directory.path().join("group"));
    page.unwrap().write_all_at(&[1], 7).unwrap();
    for refused in [
        Agent::local_in(directory.path()).unwrap_err().to_string(),
        mutex.lock().unwrap_err().to_string(),
        mutex.try_lock().unwrap_err().to_string(),
    ] {
        assert!(refused.contains("not this version's"), "{refused}");
        assert!(
            refused.contains("end the programs that use it"),
            "{refused}"
        );
    }
}
