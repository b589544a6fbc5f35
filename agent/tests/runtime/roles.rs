//! What this test program does when another test starts it as a process of its own: it is one
//! member of that test's group.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::iter;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use distlock_agent::protocol::{Mode, Release};
use distlock_agent::runtime::{
    AcquireError, Agent, Caller, Client, Driver, Grant, Options, Patience, SignalError,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use nix::unistd::{ForkResult, Uid, fork, geteuid, setuid};

use crate::support::{Group, MOST_VOIDED, TIMEOUT, enter, enter_through, increment, lock};

/// The entry of such processes. Among the tests themselves it has nothing to do.
#[test]
fn run() {
    let Ok(role) = env::var("DISTLOCK_TEST_ROLE") else {
        return;
    };
    let words: Vec<_> = role.split(' ').collect();
    let (id, rounds) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let group = Group::from_env();
    match words[0] {
        "increment" => take_turns(&group, &group.start(id).unwrap(), rounds),
        "drive" => drive(&group, id, rounds, by_events),
        "drive-by-signal" => drive_by_signal(&group, id, rounds),
        "drive-by-waiting" => drive(&group, id, rounds, |agent, _| {
            enter(agent, &lock("counter"))
        }),
        "hold" => hold(&group.start(id).unwrap()),
        "stand-still" => stand_still(&group.start(id).unwrap()),
        "serve" => serve_with_descriptors(&group, id, hard_limit()),
        "serve-with-descriptors" => serve_with_descriptors(&group, id, rounds),
        "hoard" => hoard(&group, id, rounds),
        "crowd" => crowd(&group, id, rounds, b""),
        "half-crowd" => crowd(&group, id, rounds, &[0, 0, 0x1f, 0xff]),
        "loud-crowd" => crowd(&group, id, rounds, &[0, 0, 0, 3]),
        "idle" => idle(&group.start(id).unwrap()),
        "enter" => once(&group.start(id).unwrap()),
        "client" => hold_as_client(&group, id),
        "backlog" => hold_with_a_backlog(&group),
        "forking-client" => fork_as_client(&group, id),
        "client-turns" => take_turns_as_client(&group, id, rounds),
        "unprivileged" => start_without_rights(&group, id),
        "few-descriptors" => start_with_few_descriptors(&group, id),
        "short-of-descriptors" => run_short_of_descriptors(&group, id, rounds),
        "come-and-go" => come_and_go(&group, id, rounds),
        role => panic!("no role {role}"),
    }
}

/// Increments the counter under the lock, and stays until all others have done so too.
fn take_turns(group: &Group, agent: &Agent, rounds: usize) {
    let (counter, name) = (group.directory.join("counter"), lock("counter"));
    for _ in 0..rounds {
        let grant = enter(agent, &name);
        increment(&counter);
        grant.release().unwrap();
    }
    println!("role: done");
    await_end_of_input();
}

/// As [`take_turns`], without another thread.
fn drive(group: &Group, id: u16, rounds: usize, enter: fn(&Agent, &Driver) -> Grant) {
    let before = threads();
    let counter = group.directory.join("counter");
    let (agent, driver) = Agent::start_driven(group.options(id)).unwrap();
    for _ in 0..rounds {
        let grant = enter(&agent, &driver);
        increment(&counter);
        grant.release().unwrap();
    }
    assert_eq!(threads(), before);
    println!("role: done");
    let input = io::stdin();
    loop {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut polled = [readable(driver.as_fd()), readable(input.as_fd())];
        poll(&mut polled, PollTimeout::NONE).unwrap();
        if polled[1].any().unwrap() {
            break;
        }
        driver.process().unwrap();
    }
}

/// Enters, calling `process` as long as that is not decided. A process that waited for a processor for
/// longer than its lease asks again.
fn enter_while(agent: &Agent, mut process: impl FnMut()) -> Grant {
    let begin = || {
        let (mode, caller) = (Mode::Exclusive, Caller::current());
        let waiting = agent.begin(&lock("counter"), None, mode, Patience::Forever, caller);
        waiting.unwrap()
    };
    let (mut waiting, mut voided) = (begin(), 0);
    loop {
        match waiting.wait(Some(Duration::ZERO)) {
            Poll::Ready(Err(AcquireError::Voided)) if voided < MOST_VOIDED => {
                (waiting, voided) = (begin(), voided + 1);
            }
            Poll::Ready(outcome) => return outcome.unwrap(),
            Poll::Pending => process(),
        }
    }
}

/// Enters by an event loop.
fn by_events(agent: &Agent, driver: &Driver) -> Grant {
    enter_while(agent, || {
        let mut polled = [PollFd::new(driver.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::NONE).unwrap();
        driver.process().unwrap();
    })
}

/// The signal came since somebody looked.
static IS_DUE: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    IS_DUE.store(true, Ordering::Relaxed);
}

/// As [`drive`], in a program that computes, and never polls its agent's descriptor.
fn drive_by_signal(group: &Group, id: u16, rounds: usize) {
    let before = threads();
    let counter = group.directory.join("counter");
    let (agent, driver) = Agent::start_driven(group.options(id)).unwrap();
    // Whoever asks for the signal without a handler would be ended by it.
    let refused = driver.set_sigio(true).unwrap_err();
    assert!(matches!(refused, SignalError::Unexpected), "{refused}");
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    #[expect(unsafe_code, reason = "a handler is installed")]
    // SAFETY: the handler stores to an atomic, which is async-signal-safe.
    unsafe { sigaction(Signal::SIGIO, &action) }.unwrap();
    driver.set_sigio(true).unwrap();

    let mut sum = 0_u64;
    let mut compute_until_due = || {
        while !IS_DUE.swap(false, Ordering::Relaxed) {
            sum = sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        driver.process().unwrap();
    };
    for _ in 0..rounds {
        let grant = enter_while(&agent, &mut compute_until_due);
        increment(&counter);
        grant.release().unwrap();
    }
    assert_eq!(threads(), before);
    println!("role: done after {sum}");
    sleep_by_signal(&driver);
}

/// Sleeps until the end of the input, but for what the signal tells of.
fn sleep_by_signal(driver: &Driver) {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGIO);
    let unblocked = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK).unwrap();
    let input = io::stdin();
    loop {
        if IS_DUE.swap(false, Ordering::Relaxed) {
            driver.process().unwrap();
        }
        let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut polled, None, Some(unblocked)) {
            Ok(_) => return,
            Err(errno) => assert_eq!(errno, Errno::EINTR),
        }
    }
}

fn hold(agent: &Agent) {
    let grant = enter(agent, &lock("held"));
    println!(
        "role: holds {}",
        grant.fence().expect("the group gives fences")
    );
    await_end_of_input();
    grant.release().unwrap();
}

/// Holds a lock, stands still, and then gives it back before anything else.
fn stand_still(agent: &Agent) {
    let grant = enter(agent, &lock("held"));
    println!(
        "role: holds {}",
        grant.fence().expect("the group gives fences")
    );
    io::stdin().read_exact(&mut [0]).unwrap();
    let was_held = grant.is_held();
    let given_back = grant.settle_as(Release::Given);
    println!("role: held {was_held}, given back {given_back:?}");
    await_end_of_input();
}

/// Is there for clients.
fn serve(group: &Group, id: u16) {
    let _agent = group.serve(id);
    println!("role: serves");
    await_end_of_input();
}

/// Is there for as many clients as there are descriptors for.
fn serve_with_descriptors(group: &Group, id: u16, limit: usize) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, limit as u64, hard).unwrap();
    serve(group, id);
}

/// Is there for clients, in a process that, when it is told to, opens files until it has no
/// descriptor left, and takes each that becomes free, as a server does that too many connect to.
fn hoard(group: &Group, id: u16, limit: usize) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, limit as u64, hard).unwrap();
    let _agent = group.serve(id);
    println!("role: serves");
    io::stdin().read_exact(&mut [0]).unwrap();
    let open = || fs::File::open("/dev/null").ok();
    let mut files: Vec<_> = iter::from_fn(open).collect();
    println!("role: full");
    thread::spawn(move || {
        loop {
            files.extend(open());
            thread::yield_now();
        }
    });
    await_end_of_input();
}

/// How many descriptors a process here may have.
pub(crate) fn hard_limit() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    usize::try_from(hard).unwrap_or(usize::MAX)
}

/// Connects so many times, and then says nothing; or half a message; or, if `header` is that of one
/// which cancels nothing, that one without end.
fn crowd(group: &Group, id: u16, size: usize, header: &[u8]) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let mut streams = Vec::new();
    let mut first = [0; 6];
    for _ in 0..size {
        let mut stream = UnixStream::connect(group.socket(id)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.read_exact(&mut first).unwrap();
        // 0 is a welcome.
        if first[5] == 0 {
            streams.push(stream);
        }
    }
    println!("role: crowd {}", streams.len());
    let cancel = [header, &[first[4], 1, 99]].concat();
    match header {
        [] => await_end_of_input(),
        [0, 0, 0, 3] => shout(&streams, &cancel.repeat(4_000)),
        _ => {
            let rest = vec![0; 8_000];
            for stream in &mut streams {
                stream.write_all(&cancel).unwrap();
                stream.write_all(&rest).unwrap();
            }
            println!("role: said");
            await_end_of_input();
        }
    }
}

/// Sends `messages` by each stream, as far as there is room, until the end of the input.
fn shout(streams: &[UnixStream], messages: &[u8]) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            await_end_of_input();
            is_over.store(true, Ordering::Relaxed);
        });
        let mut said = vec![0; streams.len()];
        { streams.iter() }.for_each(|stream| stream.set_nonblocking(true).unwrap());
        while !is_over.load(Ordering::Relaxed) {
            // All have had as much as there was room for.
            thread::sleep(Duration::from_millis(1));
            for (mut stream, said) in streams.iter().zip(&mut said) {
                match stream.write(&messages[*said..]) {
                    // It goes on where it stopped, within a message or not.
                    Ok(len) => *said = (*said + len) % messages.len(),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
        }
    });
}

/// Holds "held", and asks for more than the agent has the time to answer.
fn hold_with_a_backlog(group: &Group) {
    let (mut stream, version) = crate::clients::connect(group);
    let acquire = [
        0, 0, 0, 14, version, 0, 1, 4, b'h', b'e', b'l', b'd', 0, 0, 1, 0, 0, 0,
    ];
    stream.write_all(&acquire).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let status = [0, 0, 0, 3, version, 4, 7].repeat(1_000);
    while stream.write_all(&status).is_ok() {}
    println!("role: full");
    await_end_of_input();
}

/// Is there, and has entered something else.
fn idle(agent: &Agent) {
    drop(enter(agent, &lock("something else")));
    println!("role: started");
    await_end_of_input();
}

fn once(agent: &Agent) {
    let grant = enter(agent, &lock("held"));
    println!(
        "role: entered {}",
        grant.fence().expect("the group gives fences")
    );
    grant.release().unwrap();
    await_end_of_input();
}

fn hold_as_client(group: &Group, id: u16) {
    let client = Client::connect(&group.socket(id)).unwrap();
    let grant = enter_through(&client, "held");
    println!(
        "role: holds {}",
        grant.fence().expect("the group gives fences")
    );
    await_end_of_input();
}

/// Holds a lock, and has a child that keeps all its descriptors.
fn fork_as_client(group: &Group, id: u16) {
    let client = Client::connect(&group.socket(id)).unwrap();
    let grant = enter_through(&client, "held");
    #[expect(unsafe_code, reason = "fork is what is tested")]
    // SAFETY: the child only sleeps, which is async-signal-safe, and ends by `_exit`.
    let forked = unsafe { fork() }.unwrap();
    if let ForkResult::Parent { child } = forked {
        println!("role: forked {child}");
        await_end_of_input();
        drop(grant);
    } else {
        #[expect(unsafe_code, reason = "no destructor may run in the child")]
        // SAFETY: both take numbers, and the second does not return.
        unsafe {
            libc::sleep(60);
            libc::_exit(0)
        }
    }
}

fn take_turns_as_client(group: &Group, id: u16, rounds: usize) {
    let counter = group.directory.join("counter");
    for _ in 0..rounds {
        let client = Client::connect(&group.socket(id)).unwrap();
        let grant = enter_through(&client, "x");
        increment(&counter);
        // Every other time the agent must notice by itself.
        if grant
            .fence()
            .expect("the group gives fences")
            .as_u64()
            .is_multiple_of(2)
        {
            grant.release().unwrap();
        }
    }
    println!("role: done");
    await_end_of_input();
}

/// As a user who may not write in the group's directory.
fn start_without_rights(group: &Group, id: u16) {
    if geteuid().is_root() {
        // Its own state directory would be made by root, too.
        setuid(Uid::from_raw(65_534)).unwrap();
    } else {
        fs::set_permissions(&group.directory, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let error = group.start(id).map(drop).unwrap_err();
    println!("role: refused {error}");
}

/// Raises the limit of descriptors one by one, until an agent starts.
fn start_with_few_descriptors(group: &Group, id: u16) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let before = descriptors();
    let mut refused = 0;
    loop {
        let limit = u64::try_from(before + refused).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
        let started = Agent::start(group.serving(id));
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        let Err(error) = started else { break };
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        assert_eq!(descriptors(), before, "left behind by: {error}");
        assert!(!group.socket(id).exists() && !group.directory.join("1.sock").exists());
        refused += 1;
    }
    println!("role: refused {refused}");
}

/// Takes locks while there is no descriptor for another client.
fn run_short_of_descriptors(group: &Group, id: u16, rounds: usize) {
    let agent = group.serve(id);
    let client = Client::connect(&group.socket(id)).unwrap();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // Descriptors are numbered without gaps here, so that their number is the limit.
    let limit = u64::try_from(descriptors()).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
    println!("role: short");
    io::stdin().read_exact(&mut [0]).unwrap();
    for _ in 0..rounds {
        drop(enter(&agent, &lock("x")));
        drop(
            client
                .acquire(&lock("x"), None, Patience::Lease, Caller::current())
                .unwrap(),
        );
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    println!("role: entered");
    await_end_of_input();
}

fn come_and_go(group: &Group, id: u16, rounds: usize) {
    let before = (descriptors(), threads());
    for _ in 0..rounds {
        let agent = Agent::start(Options {
            socket: Some(group.socket(id).into()),
            ..group.options(id)
        })
        .unwrap();
        let client = Client::connect(&group.socket(id)).unwrap();
        let grant = enter(&agent, &lock("x"));
        client.status().unwrap();
        drop(client);
        agent.close();
        assert!(!grant.is_held());
    }
    assert_eq!((descriptors(), threads()), before);
    println!("role: left nothing");
}

fn descriptors() -> usize {
    // One of them is the directory that is being read.
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn await_end_of_input() {
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
