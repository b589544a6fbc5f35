//! A configured group of its own, with agents in processes of their own.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use super::{Holder, Process, distlock, eventually, exits, pid_of, spawn};

/// Short, so that tests of what happens after one need not wait long.
pub(crate) const LEASE_MS: u64 = 1_000;

/// A configuration of members on this host, and the place for all they need.
pub(crate) struct Group {
    dir: TempDir,
    /// On disk, wherever the other is: a member whose state is in memory says so.
    state: TempDir,
    addresses: Vec<String>,
}

impl Group {
    /// Members 1 to `size`, by UDP.
    pub(crate) fn udp(size: usize) -> Self {
        // An address of this process's own, so that nobody takes a port between this and the
        // member's start; and all bound at once, so that they differ.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let own = Ipv4Addr::new(127, 64 | a & 63, b, c);
        let sockets: Vec<_> = (0..size)
            .map(|_| UdpSocket::bind((own, 0)).expect("a port"))
            .collect();
        let address = |socket: &UdpSocket| format!("udp:{}", socket.local_addr().expect("one"));
        let addresses = sockets.iter().map(address).collect();
        Self::new(tempfile::tempdir().expect("a directory"), addresses)
    }

    /// Members 1 to `size`, by Unix datagrams.
    pub(crate) fn unix(size: usize) -> Self {
        Self::unix_in(&std::env::temp_dir(), size)
    }

    /// The same, in a directory below `parent`.
    pub(crate) fn unix_in(parent: &Path, size: usize) -> Self {
        let dir = tempfile::tempdir_in(parent).expect("a directory");
        let address = |id| format!("unix:{}", dir.path().join(format!("{id}.dgram")).display());
        let addresses = (1..=size).map(address).collect();
        Self::new(dir, addresses)
    }

    /// One member, with its agent.
    pub(crate) fn alone() -> (Self, AgentProcess) {
        let group = Self::unix(1);
        let agent = group.agent(1);
        (group, agent)
    }

    /// Members 1 to `size`, with their agents, which have formed a view.
    pub(crate) fn running(size: usize) -> (Self, Vec<AgentProcess>) {
        let group = Self::unix(size);
        let agents = group.agents(size);
        (group, agents)
    }

    fn new(dir: TempDir, addresses: Vec<String>) -> Self {
        let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let group = Self {
            dir,
            state,
            addresses,
        };
        group.write_config("group.toml", LEASE_MS);
        group
    }

    /// Another configuration of the same members, with the default algorithm.
    pub(crate) fn write_config(&self, file: &str, lease_ms: u64) -> PathBuf {
        self.write_config_with(file, "", lease_ms)
    }

    /// The same, with these lines at its beginning.
    pub(crate) fn write_config_with(&self, file: &str, lines: &str, lease_ms: u64) -> PathBuf {
        let mut text = format!(
            "{lines}lease = \"{lease_ms}ms\"\n[group]\nname = \"shop\"\n\
             [[lock]]\nname = \"ring\"\nalgorithm = \"token-ring-requests\"\n\
             [[lock]]\nname = \"licences\"\npermits = 2\n"
        );
        for (index, address) in self.addresses.iter().enumerate() {
            text += &format!("[[member]]\nid = {}\naddress = \"{address}\"\n", index + 1);
        }
        let path = self.file(file);
        fs::write(&path, text).expect("a file");
        path
    }

    /// A file that leaves the last member out.
    pub(crate) fn config_without_last(&self) -> PathBuf {
        let whole = fs::read_to_string(self.config()).expect("it was written");
        let end = whole.rfind("[[member]]").expect("it lists members");
        let path = self.file("fewer.toml");
        fs::write(&path, &whole[..end]).expect("a file");
        path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where members keep their state.
    pub(crate) fn state(&self) -> PathBuf {
        self.state.path().to_owned()
    }

    /// Where the agent of member 1 keeps its lifelines.
    pub(crate) fn lifelines(&self) -> PathBuf {
        self.state().join("shop-1/lifelines")
    }

    /// Waits until the agent of member 1 has noted which command its only lifeline belongs to. If
    /// the runner is killed earlier, the agent never knows the command, and cannot end it.
    pub(crate) fn await_known_command(&self) {
        eventually("the agent knows the command", || {
            let names = fs::read_dir(self.lifelines()).expect("its lifelines");
            let mut names = names.map(|entry| entry.expect("one").file_name());
            names.any(|name| name.to_string_lossy().contains('.'))
        });
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.file("group.toml")
    }

    pub(crate) fn socket(&self, id: usize) -> PathBuf {
        self.file(&format!("{id}.sock"))
    }

    /// `distlock` with these arguments, as a client of member `id`'s agent.
    pub(crate) fn client<A: AsRef<OsStr>>(
        &self,
        id: usize,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = distlock();
        command.env("DISTLOCK_SOCKET", self.socket(id)).args(args);
        command
    }

    /// `distlock` with these arguments, as member `id`.
    pub(crate) fn member<A: AsRef<OsStr>>(
        &self,
        id: usize,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = distlock();
        command
            .env("DISTLOCK_CONFIG", self.config())
            .env("DISTLOCK_ID", id.to_string());
        command.env("DISTLOCK_STATE_DIR", self.state()).args(args);
        command
    }

    /// `distlock agent` for member `id`.
    pub(crate) fn agent_command(&self, id: usize) -> Command {
        let mut command = self.member(id, ["agent", "--socket"]);
        command.arg(self.socket(id));
        command
    }

    /// The agent of member `id`, when it is ready.
    pub(crate) fn agent(&self, id: usize) -> AgentProcess {
        AgentProcess::start(self.agent_command(id))
    }

    /// The agents of members 1 to `size`, when they have formed a view.
    pub(crate) fn agents(&self, size: usize) -> Vec<AgentProcess> {
        let agents: Vec<_> = (1..=size).map(|id| self.agent(id)).collect();
        eventually("the group has formed", || {
            (1..=size).all(|id| self.status(id)["epoch"].as_u64() > Some(0))
        });
        agents
    }

    /// `distlock status --json`, as member `id`'s agent tells.
    pub(crate) fn status(&self, id: usize) -> serde_json::Value {
        let said = exits(self.client(id, ["status", "--json"]), 0);
        serde_json::from_slice(&said.stdout).expect("JSON")
    }

    /// The library with a disk that does what a file says: `fsync.c` says which.
    pub(crate) fn bad_disk(&self) -> PathBuf {
        let library = self.file("fsync.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli_support/fsync.c");
        let mut compiler = Command::new("cc");
        compiler.args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
        ]);
        let built = compiler.arg(&library).arg(source).status();
        assert!(built.expect("the system has a C compiler").success());
        library
    }

    /// Holds `name` as a client of member `id`'s agent.
    pub(crate) fn hold(&self, id: usize, name: &str) -> Holder {
        Holder::start(self.client(
            id,
            ["run", name, "--", "sh", "-c", "echo in; read x; exit 3"],
        ))
    }
}

/// A running `distlock agent`.
pub(crate) struct AgentProcess {
    pub(crate) child: Process,
}

impl AgentProcess {
    /// Starts it, and returns when it says that it is ready.
    pub(crate) fn start(mut command: Command) -> Self {
        Self::start_with_log(&mut command, Stdio::null())
    }

    /// The same, with what it tells in `log`.
    pub(crate) fn start_with_log(command: &mut Command, log: impl Into<Stdio>) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Process(spawn(command.stderr(log)));
        let line = child.first_line();
        assert!(line.starts_with("ready: listens at "), "{line:?}");
        Self { child }
    }

    pub(crate) fn end_by(mut self, signal: Signal) -> ExitStatus {
        kill(pid_of(&self.child), signal).expect("it is there");
        self.child.wait().expect("it ends")
    }
}
