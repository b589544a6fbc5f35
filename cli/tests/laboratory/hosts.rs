//! Hosts with all that runs on them: an agent, a program with the library, and one `distlock run`
//! after the other.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::clock::now_ns;
use crate::critical::{self, COMMAND, PROGRAM};
use crate::network::Namespace;
use crate::place::Place;
use crate::plan::Target;
use crate::resource::Writer;

/// The group's name, after which members' state is found.
pub(crate) const GROUP: &str = "laboratory";

/// Longer than an agent takes to start on a busy machine. Reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// Until `distlock run` is tried again after it was refused.
const AGAIN: Duration = Duration::from_millis(20);

pub(crate) struct Host {
    pub(crate) number: u16,
    place: Arc<Place>,
    namespace: Arc<Namespace>,
    agent: Option<Child>,
    program: Option<Incarnation>,
    /// The incarnation of the next program.
    incarnations: u64,
    commands: Commands,
}

/// A process with a name in the logs.
struct Incarnation {
    who: String,
    child: Child,
}

impl Host {
    pub(crate) fn new(number: u16, namespace: Arc<Namespace>, place: &Arc<Place>) -> Self {
        let commands = Commands::new(number, &namespace, place);
        Self {
            number,
            place: Arc::clone(place),
            namespace,
            agent: None,
            program: None,
            incarnations: 0,
            commands,
        }
    }

    /// Starts whatever does not run; on a watched host that is the agent alone.
    pub(crate) fn start(&mut self) {
        if self.agent.is_none() {
            self.agent = Some(
                self.start_agent()
                    .unwrap_or_else(|said| panic!("agent {} does not start: {said}", self.number)),
            );
        }
        if self.place.is_watched {
            return;
        }
        if self.program.is_none() {
            self.incarnations += 1;
            let who = format!("{}.{PROGRAM}.{}", self.number, self.incarnations);
            let Place {
                directory, locks, ..
            } = &*self.place;
            let mut program = critical::program(directory, &who, &self.socket(), locks);
            let errors = self.place.errors(&format!("{}.{PROGRAM}", self.number));
            let quiet = program.stdin(Stdio::null()).stdout(Stdio::null());
            quiet.stderr(errors);
            let child = self.spawn(program);
            self.program = Some(Incarnation { who, child });
        }
        self.commands.set_running(true);
    }

    /// The agent, once clients can connect; what it says if it ends before.
    fn start_agent(&self) -> Result<Child, String> {
        let mut command = self.place.agent(self.number);
        command.arg("agent").args(self.place.group_of(self.number));
        command.arg("--socket").arg(self.socket());
        command
            .arg("--state-dir")
            .arg(self.place.state(self.number));
        let name = format!("{}.agent", self.number);
        command
            .stderr(self.place.errors(&name))
            .stdin(Stdio::null());
        command.stdout(Stdio::piped());
        let mut child = self.spawn(command);
        if first_line(child.stdout.take().expect("a pipe")).starts_with("ready") {
            return Ok(child);
        }
        let _ = child.kill();
        let status = child.wait().expect("it ends");
        let errors = self.place.directory.join(format!("{name}.err"));
        let said = fs::read_to_string(errors).expect("its log");
        Err(format!(
            "{status}, {}",
            said.lines().last().unwrap_or("without a word")
        ))
    }

    fn spawn(&self, command: Command) -> Child {
        self.place.spawn(self.number, &self.namespace, command)
    }

    /// What `distlock` says here with `arguments`, and the group's socket.
    pub(crate) fn ask(&self, subcommand: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
        command.arg(subcommand).arg("--socket").arg(self.socket());
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn(command);
        child.wait_with_output().expect("it ends")
    }

    /// `distlock run` with these arguments, which goes on. Its input and its output are pipes.
    pub(crate) fn run(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
        command.args(["run", "--socket"]).arg(self.socket());
        command.args(arguments).stdin(Stdio::piped());
        command.stdout(Stdio::piped());
        command.stderr(self.place.errors(&format!("{}.run", self.number)));
        self.spawn(command)
    }

    /// What `distlock audit verify` says of `log`.
    pub(crate) fn verify(&self, log: &Path) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
        command.args(["audit", "verify"]).arg(log);
        command.output().expect("it starts")
    }

    /// The epoch of the view that the agent is in.
    pub(crate) fn epoch(&self) -> u64 {
        self.status()["epoch"].as_u64().expect("an epoch")
    }

    /// What the agent tells of multicast: how many others it reaches so, how many datagrams that has
    /// replaced, and how many times somebody was not reached any more.
    pub(crate) fn multicast(&self) -> (usize, u64, u64) {
        let multicast = &self.status()["multicast"];
        let number = |name: &str| multicast[name].as_u64().expect("a number");
        let reached = multicast["reached"].as_array().expect("members");
        (reached.len(), number("merged"), number("lost"))
    }

    /// What the agent tells of datagrams that came: how many it took, how many were of handshakes,
    /// and how many it dropped, by reason.
    pub(crate) fn account(&self) -> (u64, u64, BTreeMap<String, u64>) {
        let protection = &self.status()["protection"];
        let number = |name: &str| protection[name].as_u64().expect("a number");
        let dropped = serde_json::from_value(protection["dropped"].clone());
        let dropped = dropped.expect("numbers");
        (number("received"), number("handshakes"), dropped)
    }

    fn status(&self) -> serde_json::Value {
        let output = self.ask("status", &["--json"]);
        let status = serde_json::from_slice(&output.stdout);
        status.unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    fn socket(&self) -> PathBuf {
        self.place.directory.join(format!("{}.sock", self.number))
    }

    fn state_file(&self) -> PathBuf {
        let member = format!("{GROUP}-{}", self.number);
        self.place.state(self.number).join(member).join("state")
    }

    pub(crate) fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            end(&mut agent);
        }
    }

    /// As when the service is stopped.
    pub(crate) fn end_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            send(&agent, Signal::SIGTERM);
            let status = agent.wait().expect("it ends");
            assert!(status.success(), "agent {}: {status}", self.number);
        }
    }

    pub(crate) fn kill_program(&mut self) {
        if let Some(Incarnation { who, mut child }) = self.program.take() {
            self.place.log(&format!("ended {who} {}", now_ns()));
            end(&mut child);
        }
    }

    /// The command of `distlock run`, which tells it.
    pub(crate) fn kill_command(&self, command: Option<&Writer>) {
        if let Some(command) = command {
            signal_command(command.pid, Signal::SIGKILL);
        }
    }

    /// `distlock run`, whose command's end is the agent's business then.
    pub(crate) fn kill_runner(&self) {
        self.commands.signal(Signal::SIGKILL);
    }

    /// Everything at once, as when the power fails.
    pub(crate) fn kill_all(&mut self) {
        self.commands.set_running(false);
        self.commands.kill_all();
        self.kill_agent();
        self.kill_program();
    }

    /// Stops `target`; `command` is what was inside last. If a command `is_alone` when its runner
    /// is stopped, that excuses it: nobody ends it with its lock.
    pub(crate) fn stop(&self, target: Target, command: Option<&Writer>, is_alone: bool) -> Stopped {
        let is_meant = |one| target == one || target == Target::Host;
        let mut stopped = Stopped {
            pids: Vec::new(),
            who: Vec::new(),
            from: now_ns(),
        };
        if target == Target::Host {
            self.commands.set_running(false);
        }
        if is_meant(Target::Runner)
            && let Some(runner) = &*lock(&self.commands.shared.current)
        {
            // Before its commands, which it would otherwise see stop.
            stopped.pids.extend(send(&runner.child, Signal::SIGSTOP));
            if target == Target::Host {
                let commands = children(&runner.child).into_iter();
                let is_stopped = |&command: &Pid| kill(command, Signal::SIGSTOP).is_ok();
                stopped.pids.extend(commands.filter(is_stopped));
            }
            if target == Target::Host || is_alone {
                stopped.who.push(runner.who.clone());
            }
        }
        if let Some(command) = command.filter(|_| target == Target::Command) {
            stopped
                .pids
                .extend(signal_command(command.pid, Signal::SIGSTOP));
            stopped.who.push(command.who.clone());
        }
        if let Some(program) = self.program.as_ref().filter(|_| is_meant(Target::Program)) {
            stopped.who.push(program.who.clone());
            stopped.pids.extend(send(&program.child, Signal::SIGSTOP));
        }
        if let Some(agent) = self.agent.as_ref().filter(|_| is_meant(Target::Agent)) {
            stopped.pids.extend(send(agent, Signal::SIGSTOP));
        }
        stopped
    }

    pub(crate) fn go_on(&self, stopped: &Stopped) {
        // Commands before their runner, which waits for them. Whoever was killed meanwhile needs
        // it no more.
        for pid in stopped.pids.iter().rev() {
            let _ = kill(*pid, Signal::SIGCONT);
        }
        for who in &stopped.who {
            let line = format!("stopped {who} {} {}", stopped.from, now_ns());
            self.place.log(&line);
        }
    }

    /// With a bit of its state flipped, the agent must refuse to start; without the damage it does.
    pub(crate) fn damage_state(&mut self, bit: u64) {
        self.kill_agent();
        let Ok(whole) = fs::read(self.state_file()) else {
            // Another fault of the episode took it away.
            return;
        };
        let mut damaged = whole.clone();
        let bit = usize::try_from(bit).expect("64 bits") % (whole.len() * 8);
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(self.state_file(), damaged).expect("room for it");
        let said = self.start_agent().map(|mut agent| end(&mut agent));
        let said = said.expect_err("a damaged state file is no state");
        let path = self.state_file().display().to_string();
        let is_named = said.contains("exit status: 78") && said.contains(&path);
        assert!(is_named, "{said}");
        fs::write(self.state_file(), whole).expect("room for it");
    }

    pub(crate) fn lose_state(&mut self) {
        self.kill_agent();
        fs::remove_file(self.state_file()).expect("every agent has a state file");
    }

    /// Why it is not as it should be: what ends only by the laboratory has ended by itself.
    pub(crate) fn ails(&mut self) -> Option<String> {
        let agent = self.agent.as_mut().map(|agent| ("agent", agent));
        let program = self
            .program
            .as_mut()
            .map(|incarnation| (PROGRAM, &mut incarnation.child));
        for (what, child) in agent.into_iter().chain(program) {
            if let Some(status) = child.try_wait().expect("it can be asked") {
                return Some(format!("{what} {} has ended: {status}", self.number));
            }
        }
        self.commands.complaint()
    }

    /// Ends all that can enter, so that the logs are whole.
    pub(crate) fn close(&mut self) {
        self.kill_program();
        self.commands.close();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.close();
        self.kill_agent();
    }
}

/// What was stopped, and since when.
#[derive(Debug)]
pub(crate) struct Stopped {
    pids: Vec<Pid>,
    /// Whose stays the judge may excuse.
    who: Vec<String>,
    from: u64,
}

/// A thread that runs `distlock run` again and again.
struct Commands {
    shared: Arc<Runs>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Runs {
    /// `None` between two.
    current: Mutex<Option<Incarnation>>,
    is_running: AtomicBool,
    is_closed: AtomicBool,
    complaint: Mutex<Option<String>>,
}

impl Commands {
    fn new(host: u16, namespace: &Arc<Namespace>, place: &Arc<Place>) -> Self {
        let shared = Arc::new(Runs::default());
        let (runs, namespace, place) = (
            Arc::clone(&shared),
            Arc::clone(namespace),
            Arc::clone(place),
        );
        let thread = thread::spawn(move || runs.run(host, &namespace, &place));
        Self {
            shared,
            thread: Some(thread),
        }
    }

    fn set_running(&self, is_running: bool) {
        self.shared.is_running.store(is_running, Ordering::Relaxed);
    }

    /// Sends `signal` to the runner of now, if there is one.
    fn signal(&self, signal: Signal) -> Option<Pid> {
        let current = lock(&self.shared.current);
        send(&current.as_ref()?.child, signal)
    }

    /// The runner of now, and what it runs.
    fn kill_all(&self) {
        let current = lock(&self.shared.current);
        let Some(Incarnation { child: runner, .. }) = &*current else {
            return;
        };
        // Stopped, it starts nothing more, and waits for nobody: the numbers stay its children's.
        send(runner, Signal::SIGSTOP);
        for command in children(runner) {
            let _ = kill(command, Signal::SIGKILL);
        }
        send(runner, Signal::SIGKILL);
    }

    fn complaint(&self) -> Option<String> {
        lock(&self.shared.complaint).take()
    }

    fn close(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        // Also one that is stopped, or waits.
        self.signal(Signal::SIGKILL);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Runs {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn run(&self, host: u16, namespace: &Namespace, place: &Place) {
        let socket = place.directory.join(format!("{host}.sock"));
        for incarnation in 1.. {
            while !self.is_running.load(Ordering::Relaxed) && !self.is_closed() {
                thread::sleep(AGAIN);
            }
            let who = format!("{host}.{COMMAND}.{incarnation}");
            let mut command = critical::command(&place.directory, &who, &socket, &place.locks[0]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(place.errors(&format!("{host}.{COMMAND}")));
            let pid = {
                let mut current = lock(&self.current);
                // Whoever closes kills what is there afterwards.
                if self.is_closed() {
                    return;
                }
                let child = place.spawn(host, namespace, command);
                let pid = pid_of(&child);
                *current = Some(Incarnation { who, child });
                pid
            };
            // It keeps its number until it is waited for, with the mutex held.
            let ended = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            ended.expect("it is this process's child");
            let Some(Incarnation { who, mut child }) = lock(&self.current).take() else {
                unreachable!("only this takes it")
            };
            let status = child.wait().expect("it has ended");
            place.log(&format!("ended {who} {}", now_ns()));
            match status.code() {
                Some(0) => {}
                // Not in time, no agent or quorum, lost; or it or its command was killed, by us.
                Some(1 | 69 | 79 | 137) | None => thread::sleep(AGAIN),
                Some(code) => {
                    *lock(&self.complaint) = Some(format!("{who} has ended with {code}"));
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("no thread of the laboratory has failed")
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid"))
}

/// Of a child that nobody has waited for.
fn send(child: &Child, signal: Signal) -> Option<Pid> {
    let pid = pid_of(child);
    kill(pid, signal).ok().map(|()| pid)
}

/// A command is `distlock run`'s child, and may have gone: its number must still be that of this
/// test program.
fn signal_command(command: i32, signal: Signal) -> Option<Pid> {
    let exe = fs::read_link(format!("/proc/{command}/exe"));
    let is_ours = exe.ok() == std::env::current_exe().ok();
    let command = Pid::from_raw(command);
    (is_ours && kill(command, signal).is_ok()).then_some(command)
}

/// The children of a child that nobody has waited for.
pub(crate) fn children(child: &Child) -> Vec<Pid> {
    let pid = child.id();
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).expect("the kernel has CONFIG_PROC_CHILDREN");
    let words = text.split_whitespace();
    let pids = words.map(|word| word.parse().expect("a pid"));
    pids.map(Pid::from_raw).collect()
}

pub(crate) fn end(child: &mut Child) {
    // Both fail only where it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// What it says first; empty if it says nothing for long, or ends.
pub(crate) fn first_line(stdout: ChildStdout) -> String {
    let limit = PollTimeout::try_from(PATIENCE).expect("in range");
    let mut line = String::new();
    if poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)], limit) == Ok(1) {
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    line
}
