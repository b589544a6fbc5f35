//! The command never outlives its lock: every kind of death and of standing still, in every state,
//! by every way into a group, with commands of every kind.
//!
//! In each case somebody else waits for the same lock and looks, as soon as it is inside, whether
//! anything that the first runner has started is still there. Nothing may be, unless it has left
//! its process group *and* closed what it inherited, which `cli_lifeline` shows.

mod cli_support;

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group};
use cli_support::{Holder, Local, eventually, output, pid_of, shell_code};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Long enough that a busy machine keeps to half of it.
const LEASE_MS: u64 = 2_000;
/// Cases that go on at a time. Most of their time they wait.
const AT_ONCE: usize = 6;
/// How long what may keep the lock is left alone, so that a lock that is free too early is seen.
const SETTLE: Duration = Duration::from_millis(300);

/// What runs under the lock. It says `in`, and goes on.
const SCRIPTS: [(&str, &str); 4] = [
    ("plain", "echo in; while :; do sleep 1; done"),
    (
        "deaf",
        "trap '' TERM HUP INT; echo in; while :; do sleep 1; done",
    ),
    (
        "with children",
        "(trap '' TERM; exec sleep 600) & setsid sleep 600 & sleep 600 & echo in; wait",
    ),
    (
        "closed",
        "exec 0<&-; echo in; exec 1>&- 2>&- 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; \
         for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -lt 250 ] && eval \"exec $fd>&-\"; done; \
         exec sleep 600",
    ),
];

/// The processes whose environment has the mark `$1`, without `$2`. A process has lost its
/// environment before it gives back what it has open. Guardians have none.
const LOOK: &str = r#"
    for file in $(grep -lzs "^CASE=$1\$" /proc/[0-9]*/environ); do
        pid=${file#/proc/}; pid=${pid%/environ}
        [ "$pid" = "$2" ] || echo "$pid: $(tr '\0' ' ' < /proc/$pid/cmdline)"
    done 2>/dev/null; true"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Local,
    Member,
    Agent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Somebody else is inside, who lets go after the blow.
    Waiting,
    /// The blow comes so long after the lock is free.
    Entering(Duration),
    Inside,
    /// Told to end: by its agent, which leaves; or by a signal, where there is none.
    Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    KillRunner,
    KillCommand,
    KillAgent,
    /// And killed after a while, so that there is an end.
    StopRunner,
}

#[derive(Clone, Copy)]
struct Case {
    way: Way,
    state: State,
    blow: Blow,
    script: usize,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = SCRIPTS[self.script];
        write!(
            f,
            "{:?}, {:?}, {:?}, {name}",
            self.way, self.state, self.blow
        )
    }
}

/// All that make sense by `way`.
fn cases(way: Way) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |state, blow, script| {
        cases.push(Case {
            way,
            state,
            blow,
            script,
        });
    };
    let (runner, stop, command) = (Blow::KillRunner, Blow::StopRunner, Blow::KillCommand);
    let agent = (way == Way::Agent).then_some(Blow::KillAgent);
    for blow in [runner, stop].into_iter().chain(agent) {
        add(State::Waiting, blow, 0);
    }
    let delays = (0..8).map(|step| Duration::from_micros(700 * step));
    for (delay, script) in delays.zip((0..SCRIPTS.len()).cycle()) {
        for blow in [runner, stop].into_iter().chain(agent) {
            add(State::Entering(delay), blow, script);
        }
    }
    for script in 0..SCRIPTS.len() {
        add(State::Entering(Duration::ZERO), command, script);
        for state in [State::Inside, State::Ending] {
            for blow in [runner, command, stop].into_iter().chain(agent) {
                add(state, blow, script);
            }
        }
    }
    cases
}

/// A group of one case.
enum World {
    Local(Local),
    /// The case's runner is member 1; everybody else comes through the agent of member 2.
    Member(
        Group,
        #[expect(dead_code, reason = "runs as long as this")] AgentProcess,
    ),
    /// All come through the agent of a group of one.
    Agent(Group, Served),
}

/// What has become of an agent.
enum Served {
    By(AgentProcess),
    /// It was told to leave, and does when what it has to end has ended.
    ByLeaving(AgentProcess),
    ByNobody,
}

impl World {
    fn new(way: Way) -> Self {
        let group = |size| {
            let group = Group::unix(size);
            group.write_config("group.toml", LEASE_MS);
            group
        };
        match way {
            Way::Local => Self::Local(Local::new()),
            Way::Member => {
                let group = group(2);
                let agent = group.agent(2);
                Self::Member(group, agent)
            }
            Way::Agent => {
                let group = group(1);
                let agent = group.agent(1);
                Self::Agent(group, Served::By(agent))
            }
        }
    }

    /// `distlock` by the way of the case.
    fn distlock(&self, args: &[&str]) -> Command {
        match self {
            Self::Local(local) => local.distlock(args),
            Self::Member(group, _) => group.member(1, args),
            Self::Agent(group, _) => group.client(1, args),
        }
    }

    /// `distlock` as everybody else uses it.
    fn others(&self, args: &[&str]) -> Command {
        match self {
            Self::Local(local) => local.distlock(args),
            Self::Member(group, _) => group.client(2, args),
            Self::Agent(group, _) => group.client(1, args),
        }
    }

    /// Waits until `process` waits for the lock.
    fn await_waiter(&self, process: &Child) {
        eventually("the process waits", || {
            let said = output(&mut self.others(&["status", "--json"])).stdout;
            let status: serde_json::Value = serde_json::from_slice(&said).expect("JSON");
            let waiters = status["locks"][0]["waiters"].as_array();
            waiters.is_some_and(|waiters| waiters.iter().any(|it| it["pid"] == process.id()))
        });
    }

    /// Waits until the lock can change hands at once: both members are in one view. A member that
    /// has just begun asks before it is in any.
    fn await_view(&self) {
        if let Self::Member(group, _) = self {
            eventually("both members are in a view", || {
                let status = group.status(2);
                let mut members = status["members"].as_array().expect("members").iter();
                members.all(|member| member["state"] == "alive")
            });
        }
    }

    fn kill_agent(&mut self) {
        if let Self::Agent(_, served) = self
            && let Served::By(agent) | Served::ByLeaving(agent) =
                std::mem::replace(served, Served::ByNobody)
        {
            agent.end_by(Signal::SIGKILL);
        }
    }

    /// Tells the agent to leave; whether there is one.
    fn end_agent(&mut self) -> bool {
        let Self::Agent(_, served) = self else {
            return false;
        };
        if let Served::By(agent) = std::mem::replace(served, Served::ByNobody) {
            kill(pid_of(&agent.child), Signal::SIGTERM).expect("it is there");
            *served = Served::ByLeaving(agent);
        }
        true
    }

    /// Makes the group whole again, so that locks can change hands, without any pause.
    fn revive(&mut self) {
        match self {
            Self::Local(_) => {}
            Self::Member(group, _) => eventually("member 1 has come back", || {
                let run = ["run", "-w", "20", "another", "true"];
                output(&mut group.member(1, run)).status.success()
            }),
            Self::Agent(group, served) => match std::mem::replace(served, Served::ByNobody) {
                Served::By(agent) => *served = Served::By(agent),
                Served::ByLeaving(mut agent) => {
                    agent.child.wait().expect("it ends");
                    *served = Served::By(group.agent(1));
                }
                Served::ByNobody => *served = Served::By(group.agent(1)),
            },
        }
    }
}

/// A runner whose processes can be told from all others.
struct Victim {
    runner: Child,
    mark: String,
}

impl Victim {
    fn start(world: &World, script: usize) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let mut command = world.distlock(&["run", "x", "--", "bash", "-c", SCRIPTS[script].1]);
        let command = command.env("CASE", &mark).stdin(Stdio::null());
        let runner = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let runner = runner.expect("it starts");
        Self { runner, mark }
    }

    /// Waits until the command says that it is inside.
    fn await_inside(&mut self) {
        let mut word = [0; 3];
        let stdout = self.runner.stdout.as_mut().expect("a pipe");
        stdout.read_exact(&mut word).expect("a word");
        assert_eq!(&word, b"in\n");
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill(pid_of(&self.runner), signal);
    }

    /// The processes that it has started.
    fn processes(&self) -> Vec<i32> {
        let mark = format!("CASE={}", self.mark);
        let is_marked = |pid: &i32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = environ.split(|&byte| byte == 0);
            variables.any(|variable| variable == mark.as_bytes())
        };
        let all = std::fs::read_dir("/proc").expect("processes").flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        all.filter(|pid| *pid != pid_of(&self.runner).as_raw())
            .filter(is_marked)
            .collect()
    }

    /// Kills the command. Where it is entering it comes any moment, however late on a busy machine:
    /// left alone it would keep the lock. Where it is being ended, it may be gone.
    fn kill_command(&self, state: State) {
        let pid = self.runner.id();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let strike = || {
            let children = std::fs::read_to_string(&path).unwrap_or_default();
            // Not its guardian, nor what is about to become one of them.
            let is_command = |pid: &&str| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                name.is_ok_and(|name| !name.starts_with("distlock"))
            };
            let child = children.split_whitespace().find(is_command);
            let child = child.map(|child| Pid::from_raw(child.parse().expect("a pid")));
            child.is_some_and(|child| kill(child, Signal::SIGKILL).is_ok())
        };
        if state != State::Ending {
            return eventually("the command is there", strike);
        }
        let start = SystemTime::now();
        while !strike() && start.elapsed().unwrap_or_default() < SETTLE {}
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.runner.kill();
        let _ = self.runner.wait();
        for pid in self.processes() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Who comes next.
struct Next(Child);

impl Next {
    fn start(world: &World, victim: &Victim) -> Self {
        let runner = victim.runner.id().to_string();
        let run = ["run", "-w", "28", "x", "--", "bash", "-c", LOOK, "look"];
        let mut command = world.others(&run);
        let command = command.args([&victim.mark, &runner]).stdin(Stdio::null());
        Self(command.stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("its status").is_some()
    }

    /// Waits, and says what it has seen.
    fn saw(mut self) -> (ExitStatus, String) {
        let mut seen = String::new();
        let stdout = self.0.stdout.as_mut().expect("a pipe");
        stdout.read_to_string(&mut seen).expect("text");
        (self.0.wait().expect("it ends"), seen)
    }
}

/// Somebody who is inside until it is dropped.
struct First(Holder);

impl First {
    fn start(world: &World) -> Self {
        let run = [
            "run",
            "-w",
            "20",
            "x",
            "--",
            "sh",
            "-c",
            "echo in; read line",
        ];
        if let World::Member(..) = world {
            // Nobody enters while a member is missing.
            let member = Holder::start(world.distlock(&["run", "y", "-c", "echo in; read line"]));
            let holder = Holder::start(world.others(&run));
            assert_eq!(member.let_go().code(), Some(1));
            return Self(holder);
        }
        Self(Holder::start(world.others(&run)))
    }

    /// Not waited for: what comes next is to come at once.
    fn let_go(self) {
        let _ = thread::spawn(move || self.0.let_go());
    }
}

fn play(case: Case) {
    let mut world = World::new(case.way);
    let (victim, mut next) = match case.state {
        State::Waiting | State::Entering(_) => strike_from_outside(&mut world, case),
        State::Inside | State::Ending => strike_inside(&mut world, case),
    };
    if case.blow == Blow::StopRunner {
        settle(&mut next);
        victim.signal(Signal::SIGKILL);
    }
    thread::scope(|scope| {
        // What is left keeps the lock, as long as it is left alone. That nothing is seen once does
        // not say that nothing is left: who is becoming another program has no environment then.
        let (_until_here, rests) = mpsc::channel::<()>();
        let victim = &victim;
        scope.spawn(move || {
            while rests.recv_timeout(SETTLE) == Err(RecvTimeoutError::Timeout) {
                for pid in victim.processes() {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
        });
        let next = match next {
            Some(next) => {
                scope.spawn(|| world.revive());
                next
            }
            None => {
                world.revive();
                Next::start(&world, victim)
            }
        };
        let (status, seen) = next.saw();
        assert_eq!(
            seen, "",
            "{case:?}: this was there when the next was inside"
        );
        assert_eq!(shell_code(status), 0, "{case:?}: the next did not get in");
    });
}

/// Strikes a runner that waits, or is about to enter.
fn strike_from_outside(world: &mut World, case: Case) -> (Victim, Option<Next>) {
    let first = First::start(world);
    let victim = Victim::start(world, case.script);
    world.await_waiter(&victim.runner);
    world.await_view();
    let next = (case.blow != Blow::KillAgent).then(|| {
        let next = Next::start(world, &victim);
        world.await_waiter(&next.0);
        next
    });
    if let State::Entering(delay) = case.state {
        first.let_go();
        thread::sleep(delay);
        strike(world, &victim, case);
    } else {
        strike(world, &victim, case);
        assert_eq!(victim.processes(), [0; 0], "{case:?}: it only waited");
        first.let_go();
    }
    (victim, next)
}

/// Strikes a runner whose command is inside.
fn strike_inside(world: &mut World, case: Case) -> (Victim, Option<Next>) {
    let mut victim = Victim::start(world, case.script);
    victim.await_inside();
    let agent_ends =
        case.way == Way::Agent && (case.state == State::Ending || case.blow == Blow::KillAgent);
    let mut next = (!agent_ends).then(|| {
        let next = Next::start(world, &victim);
        world.await_waiter(&next.0);
        next
    });
    if case.state == State::Ending {
        if !world.end_agent() {
            victim.signal(Signal::SIGTERM);
        }
        thread::sleep(Duration::from_millis(20));
    }
    strike(world, &victim, case);
    if case.state == State::Inside && case.blow == Blow::StopRunner {
        settle(&mut next);
        let waits = next.as_mut().is_some_and(|next| !next.has_ended());
        assert!(waits, "{case:?}: a stopped runner keeps its lock");
        assert_ne!(victim.processes(), [0; 0], "{case:?}: its command goes on");
    }
    let expected = match (case.state, case.blow) {
        (State::Inside, Blow::KillCommand) => Some(128 + 9),
        (State::Inside, Blow::KillAgent) => Some(79),
        _ => None,
    };
    // As a member it stays with what its command has left.
    if let Some(code) = expected.filter(|_| case.way != Way::Member) {
        let status = victim.runner.wait().expect("it ends");
        assert_eq!(status.code(), Some(code), "{case:?}");
    }
    (victim, next)
}

fn strike(world: &mut World, victim: &Victim, case: Case) {
    match case.blow {
        Blow::KillRunner => victim.signal(Signal::SIGKILL),
        Blow::StopRunner => victim.signal(Signal::SIGSTOP),
        Blow::KillCommand => victim.kill_command(case.state),
        Blow::KillAgent => world.kill_agent(),
    }
}

/// Leaves everything alone for a while, unless the next has been inside before.
fn settle(next: &mut Option<Next>) {
    let start = SystemTime::now();
    while start.elapsed().unwrap_or_default() < SETTLE {
        if next.as_mut().is_some_and(Next::has_ended) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn play_all(way: Way) {
    let cases = Mutex::new(cases(way));
    thread::scope(|scope| {
        let player = || {
            scope.spawn(|| {
                loop {
                    let case = cases.lock().expect("no panic").pop();
                    let Some(case) = case else { break };
                    play(case);
                }
            })
        };
        let players: Vec<_> = (0..AT_ONCE).map(|_| player()).collect();
        let failed = players.into_iter().filter_map(|player| player.join().err());
        if let Some(panic) = failed.last() {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(Path::new("/proc/self/environ").exists(), "it could look");
}

#[test]
fn in_the_local_group() {
    play_all(Way::Local);
}

#[test]
fn as_a_member() {
    play_all(Way::Member);
}

#[test]
fn through_an_agent() {
    play_all(Way::Agent);
}
