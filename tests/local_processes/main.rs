//! The local group between processes: death, fork, directories.

mod process;
mod torture;

use std::fs::File;
use std::num::NonZeroU32;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use distlock::{
    Agent, DirectoryFault, DistMutex, HandleError, LockError, OpenError, PreviousOwner,
    StatusError, TryLockError, UnlockError,
};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use process::{Process, pause, say};

#[test]
fn role() {
    let Some((role, directory)) = process::role() else {
        return;
    };
    match role.as_str() {
        "hold" => hold(&directory),
        "wait" => wait(&directory),
        "hold two permits" => hold_two_permits(&directory),
        "fork" => fork_while_holding(&directory),
        "turns" => take_turns(&directory),
        "environment" => use_environment(&directory),
        "stranger" => be_a_stranger(&directory),
        "many files" => open_many_files(&directory),
        other => match other.strip_prefix("compete ") {
            Some(number) => torture::compete(&directory, number.parse().unwrap()),
            None => panic!("no role {other}"),
        },
    }
}

fn hold(directory: &Path) {
    let agent = Agent::local_in(directory).unwrap();
    let guard = agent.mutex("x").unwrap().lock().unwrap();
    say(guard.fence().unwrap());
    say(format!("{:?}", guard.previous_owner()));
    pause();
    guard.unlock().unwrap();
}

#[test]
fn a_killed_holder_leaves_the_lock_and_word_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::local_in(directory.path()).unwrap();
    let mutex = agent.mutex("x").unwrap();
    let mut last = mutex.lock().unwrap().fence().unwrap();
    for killed_before in [false, true, true] {
        let mut process = Process::start("hold", directory.path());
        let fence = process.hear().parse().unwrap();
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        let previous = if killed_before { "Abandoned" } else { "Clean" };
        assert_eq!(process.hear(), previous);
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        process.kill();
        // Nobody has to learn it from the one who only looks.
        let other = Agent::local_in(directory.path()).unwrap();
        assert_eq!(other.status().unwrap().locks, []);
    }
    let guard = mutex.try_lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
    assert!(guard.fence().unwrap() > last);
    guard.unlock().unwrap();
    assert_eq!(mutex.lock().unwrap().previous_owner(), PreviousOwner::Clean);
}

#[test]
fn a_live_holder_is_waited_for_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = Process::start("hold", directory.path());
    let fence: u64 = process.hear().parse().unwrap();
    let agent = Agent::local_in(directory.path()).unwrap();
    let waiting = {
        let mutex = agent.mutex("x").unwrap();
        thread::spawn(move || mutex.lock().unwrap().previous_owner())
    };
    let lock = loop {
        let lock = agent.status().unwrap().locks.remove(0);
        if !lock.waiters.is_empty() {
            break lock;
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(lock.waiters[0].pid, std::process::id());
    assert_eq!(i32::try_from(lock.holders[0].pid).unwrap(), process.pid());
    assert_eq!(lock.holders[0].fence, Some(fence));
    let command = &lock.holders[0].command;
    assert!(command.starts_with("local_processes"), "{lock:?}");
    process.go_on();
    process.join();
    assert_eq!(waiting.join().unwrap(), PreviousOwner::Clean);
}

fn wait(directory: &Path) {
    let mutex = Agent::local_in(directory).unwrap().mutex("x").unwrap();
    say(nix::unistd::gettid());
    say(mutex.lock().map(drop).unwrap_err());
}

/// Stops `process` while this thread of it sleeps in futex(2).
fn stop_in_its_sleep(process: &Process, thread: &str) {
    let syscall = format!("/proc/{}/task/{thread}/syscall", process.pid());
    let is_asleep = || {
        let syscall = std::fs::read_to_string(&syscall).unwrap();
        syscall.split(' ').next() == Some(&libc::SYS_futex.to_string())
    };
    loop {
        process.signal(Signal::SIGSTOP);
        let stopped = waitpid(Pid::from_raw(process.pid()), Some(WaitPidFlag::WUNTRACED));
        assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))));
        if is_asleep() {
            return;
        }
        process.signal(Signal::SIGCONT);
        thread::sleep(Duration::from_millis(1));
    }
}

/// By another process of this user. The kernel would end a waiter that touches the page with SIGBUS.
#[test]
fn a_page_that_is_cut_short_is_told_of_and_ends_nobody() {
    for spoil in [
        |page: &File| page.set_len(0).unwrap(),
        |page: &File| {
            page.set_len(0).unwrap();
            page.set_len(4096).unwrap();
        },
    ] {
        let directory = tempfile::tempdir().unwrap();
        let agent = Agent::local_in(directory.path()).unwrap();
        let mutex = agent.mutex("x").unwrap();
        let guard = mutex.lock().unwrap();
        let mut waiter = Process::start("wait", directory.path());
        let thread = waiter.hear();
        while agent.status().unwrap().locks[0].waiters.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        stop_in_its_sleep(&waiter, &thread);
        let page = directory.path().join("group");
        spoil(&File::options().write(true).open(&page).unwrap());
        waiter.signal(Signal::SIGCONT);
        let told = waiter.hear();
        waiter.join();
        // Giving it back needs no page.
        guard.unlock().unwrap();
        for text in [told, mutex.lock().map(drop).unwrap_err().to_string()] {
            assert!(
                text.contains("group") && text.contains("remove it"),
                "{text}"
            );
        }
        assert!(Agent::local_in(directory.path()).is_err());
        // What the message says to do.
        std::fs::remove_file(page).unwrap();
        drop(mutex.lock().unwrap());
    }
}

fn hold_two_permits(directory: &Path) {
    let agent = Agent::local_in(directory).unwrap();
    let semaphore = agent.semaphore("s", NonZeroU32::new(2)).unwrap();
    let _permits = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
    say("inside");
    pause();
}

#[test]
fn permits_of_a_killed_process_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::local_in(directory.path()).unwrap();
    let semaphore = agent.semaphore("s", NonZeroU32::new(2)).unwrap();
    for _ in 0..3 {
        let mut process = Process::start("hold two permits", directory.path());
        process.hear();
        assert!(matches!(
            semaphore.try_acquire(),
            Err(TryLockError::WouldBlock)
        ));
        assert_eq!(agent.status().unwrap().locks[0].holders.len(), 2);
        process.kill();
        let permits = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
        for permit in permits {
            assert_eq!(permit.previous_owner(), PreviousOwner::Abandoned);
        }
    }
}

/// Forks with a held lock. The child's exit code is the number of the check that failed.
fn fork_while_holding(directory: &Path) {
    let agent = Agent::local_in(directory).unwrap();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    let other = agent.mutex("y").unwrap();
    #[expect(unsafe_code, reason = "fork is what is tested")]
    // SAFETY: this process has no other thread that works with what the child uses.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let checks = [
                !guard.is_held(),
                guard.remaining() == Some(Duration::ZERO),
                matches!(mutex.lock(), Err(LockError::Forked)),
                matches!(
                    other.try_lock(),
                    Err(TryLockError::Failed(LockError::Forked))
                ),
                matches!(agent.mutex("z"), Err(HandleError::Forked)),
                matches!(agent.status(), Err(StatusError::Forked)),
                guard.inheritable_fd().is_err(),
                matches!(guard.unlock(), Err(UnlockError::Forked)),
            ];
            agent.close();
            drop((mutex, other, agent));
            // An agent of its own works, and finds the parent inside.
            let own = Agent::local_in(directory).unwrap();
            let sees_parent = matches!(
                own.mutex("x").unwrap().try_lock(),
                Err(TryLockError::WouldBlock)
            );
            let works = own.mutex("y").unwrap().try_lock().is_ok();
            let failed = checks
                .iter()
                .chain([&sees_parent, &works])
                .position(|check| !check);
            let code = failed.map_or(0, |check| i32::try_from(check).unwrap() + 1);
            std::process::exit(code);
        }
    };
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
    assert!(guard.is_held());
    let stranger = Agent::local_in(directory).unwrap().mutex("x").unwrap();
    assert!(matches!(stranger.try_lock(), Err(TryLockError::WouldBlock)));
    guard.unlock().unwrap();
    drop(stranger.try_lock().unwrap());
    drop(other.lock().unwrap());
}

#[test]
fn a_forked_child_never_touches_its_parents_lock() {
    let directory = tempfile::tempdir().unwrap();
    Process::start("fork", directory.path()).join();
}

const TURNS: u64 = 100;

/// Counts in a file that nothing else protects.
fn take_turns(directory: &Path) {
    let counter = directory.join("counter");
    for _ in 0..TURNS {
        let agent = Agent::local_in(directory.join("group")).unwrap();
        let _guard = agent.mutex("x").unwrap().lock().unwrap();
        let count: u64 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
        std::fs::write(&counter, (count + 1).to_string()).unwrap();
    }
}

#[test]
fn processes_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let processes: Vec<_> = (0..8)
        .map(|_| Process::start("turns", directory.path()))
        .collect();
    processes.into_iter().for_each(Process::join);
    assert_eq!(
        std::fs::read_to_string(&counter).unwrap(),
        (8 * TURNS).to_string()
    );
    let left = std::fs::read_dir(directory.path().join("group")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["group"]);
}

/// Why the local group in `path` is refused.
fn fault(path: &Path) -> DirectoryFault {
    match Agent::local_in(path) {
        Err(error @ OpenError::Directory { .. }) => {
            let text = error.to_string();
            assert!(text.contains(&path.display().to_string()), "{text}");
            assert!(text.contains("DISTLOCK_DIR"), "{text}");
            let OpenError::Directory { fault, .. } = error else {
                unreachable!()
            };
            fault
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_directory_is_made_for_its_owner_alone() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a/b");
    let agent = Agent::local_in(&path).unwrap();
    let _guard = agent.mutex("x").unwrap().lock().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    for entry in std::fs::read_dir(&path).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn an_unsafe_directory_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = |name: &str| parent.path().join(name);
    let mode = |bits| std::fs::Permissions::from_mode(bits);

    std::fs::DirBuilder::new()
        .mode(0o755)
        .create(path("readable"))
        .unwrap();
    assert!(Agent::local_in(path("readable")).is_ok());
    for bits in [0o777, 0o720, 0o702] {
        std::fs::set_permissions(path("readable"), mode(bits)).unwrap();
        assert_eq!(
            fault(&path("readable")),
            DirectoryFault::Writable { mode: bits }
        );
    }

    std::fs::create_dir(path("real")).unwrap();
    symlink(path("real"), path("link")).unwrap();
    assert_eq!(fault(&path("link")), DirectoryFault::Symlink);
    symlink(path("nowhere"), path("broken")).unwrap();
    assert_eq!(fault(&path("broken")), DirectoryFault::Symlink);
    assert!(!path("nowhere").exists());

    std::fs::write(path("file"), "").unwrap();
    assert_eq!(fault(&path("file")), DirectoryFault::NotADirectory);

    // Who could move it away would have a second one made, and two would be inside.
    let below = path("open/below");
    std::fs::create_dir(path("open")).unwrap();
    for is_there in [false, true] {
        std::fs::set_permissions(path("open"), mode(0o777)).unwrap();
        let fault = fault(&below);
        let is_told = matches!(&fault, DirectoryFault::Replaceable { why } if why.contains("0777"));
        assert!(is_told, "{fault:?}");
        assert_eq!(below.exists(), is_there);
        for bits in [0o1777, 0o775] {
            std::fs::set_permissions(path("open"), mode(bits)).unwrap();
            assert!(Agent::local_in(&below).is_ok(), "{bits:o}");
        }
    }

    // Only root can make a stranger's directory; others have one at hand.
    let (strangers, owner) = if nix::unistd::geteuid().is_root() {
        std::fs::create_dir(path("strangers")).unwrap();
        std::os::unix::fs::chown(path("strangers"), Some(65_534), None).unwrap();
        (path("strangers"), 65_534)
    } else {
        ("/".into(), 0)
    };
    let user = nix::unistd::geteuid().as_raw();
    assert_eq!(fault(&strangers), DirectoryFault::Stranger { owner, user });
}

fn use_environment(directory: &Path) {
    let _guard = Agent::local().unwrap().mutex("x").unwrap().lock().unwrap();
    let chosen = directory.join(process::LOCAL);
    assert_eq!(std::fs::read_dir(chosen).unwrap().count(), 2);
}

#[test]
fn the_environment_names_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    Process::start("environment", directory.path()).join();
}

fn be_a_stranger(directory: &Path) {
    if nix::unistd::geteuid().is_root() {
        nix::unistd::setuid(65_534.into()).unwrap();
    }
    let error = Agent::local_in(directory.join("group")).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Permission { .. }), "{text}");
    assert!(
        text.contains("group") && text.contains("DISTLOCK_DIR"),
        "{text}"
    );
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    Process::start("stranger", directory.path()).join();
}

fn open_many_files(directory: &Path) {
    let agent = Agent::local_in(directory).unwrap();
    let mutex = agent.mutex("x").unwrap();
    let limit = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    #[expect(unsafe_code, reason = "std cannot set limits")]
    // SAFETY: the structure lives as long as the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    assert_eq!(set, 0);
    let mut files: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = mutex.lock().unwrap_err();
    assert!(matches!(error, LockError::Limit { .. }), "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    let error = Agent::local_in(directory).unwrap_err();
    assert!(matches!(error, OpenError::TooManyFiles { .. }), "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    files.truncate(files.len() - 4);
    drop(mutex.lock().unwrap());
}

#[test]
fn too_many_open_files_are_told() {
    let directory = tempfile::tempdir().unwrap();
    Process::start("many files", directory.path()).join();
}

#[test]
fn what_a_crash_of_the_host_leaves_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::local_in(directory.path()).unwrap();
    let file_name = || {
        let names = std::fs::read_dir(directory.path()).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name());
        names.find(|name| name != "group").unwrap()
    };
    let guard = agent.mutex("x").unwrap().lock().unwrap();
    let path = directory.path().join(file_name());
    drop(guard);
    for rubbish in [&b""[..], b"rubbish", &[0; 1024], &[0xff; 4096]] {
        std::fs::write(&path, rubbish).unwrap();
        assert_eq!(agent.status().unwrap().locks, []);
        assert!(!path.exists());
        std::fs::write(&path, rubbish).unwrap();
        let guard = agent.mutex("x").unwrap().lock().unwrap();
        assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
    }
    drop(agent);
    // Nobody could tell which fences were given out.
    std::fs::write(directory.path().join("group"), "rubbish").unwrap();
    let error = Agent::local_in(directory.path()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("remove it"), "{error}");
}

#[test]
fn fences_rise_when_the_directory_is_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("group");
    let mut last = None;
    for _ in 0..10 {
        let agent = Agent::local_in(&path).unwrap();
        let mutex = agent.mutex("x").unwrap();
        for _ in 0..20 {
            let fence = mutex.lock().unwrap().fence();
            assert!(fence > last, "{fence:?} after {last:?}");
            last = fence;
        }
        drop((mutex, agent));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
