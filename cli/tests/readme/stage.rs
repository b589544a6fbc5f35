//! Hosts on which the documents' commands are typed: each a shell in namespaces of its own, with an address,
//! a name and its own `/etc`, `/run`, `/var/lib` and home. What a real host has and these have not, they get
//! from `stage/`: ssh, scp and systemctl, as far as the documents use them.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::cli_support::users::{copy_of_program, is_root};
use crate::cli_support::{output, skipped};

/// What is on every host, in a directory of its path.
const TOOLS: [(&str, &str); 3] = [
    ("ssh", include_str!("stage/ssh.sh")),
    ("scp", include_str!("stage/scp.sh")),
    ("systemctl", include_str!("stage/systemctl.sh")),
];
const UNIT: &str = include_str!("../../../packaging/systemd/distlock.service");
/// How a host begins: `$1` is the stage's directory.
const BOOT: &str = include_str!("stage/boot.sh");
/// How long a block of commands may take.
const LIMIT: Duration = Duration::from_secs(90);
/// What is told after a block, with its exit code.
const END: &str = "-- the end of the block: ";

/// Hosts on one network, in the order of their addresses.
pub(crate) struct Stage {
    hosts: Vec<Host>,
    switch: Switch,
    directory: tempfile::TempDir,
}

impl Stage {
    /// Hosts of these names, with the addresses 10.0.0.1, 10.0.0.2 and so on; `None`, having said so, where
    /// they cannot be made.
    pub(crate) fn new(names: &[&str]) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        copy_of_program(path);
        for (name, text) in TOOLS {
            fs::write(path.join(name), text).expect("a tool");
            fs::set_permissions(path.join(name), Permissions::from_mode(0o755)).expect("its mode");
        }
        fs::write(path.join("distlock.service"), UNIT).expect("the unit");
        let Some(switch) = Switch::new() else {
            skipped("no network namespaces here");
            return None;
        };
        let hosts = (1..).zip(names);
        let hosts = hosts.map(|(number, name)| Host::new(name, number, path, &switch));
        Some(Self {
            hosts: hosts.collect(),
            switch,
            directory,
        })
    }

    /// Has a program on all hosts, beside `distlock`. The tests' own directory is hidden from them.
    pub(crate) fn bring(&self, program: &Path) {
        let mut copy = Command::new("cp");
        let said = output(copy.arg(program).arg(self.directory.path()));
        assert!(said.status.success(), "{said:?}");
    }

    /// Pulls the plug of a host: whatever runs on it is gone at once. Only what is on the stage can be hit.
    pub(crate) fn switch_off(&mut self, name: &str) {
        let network = self.host(name).network.clone();
        self.switch.run(&format!(
            r#"while :; do
                   found=
                   for process in /proc/[0-9]*; do
                       if [ "$(readlink "$process/ns/net")" = '{network}' ]; then
                           found=yes
                           kill -9 "${{process#/proc/}}"
                       fi
                   done 2>/dev/null
                   [ "$found" ] || break
               done"#
        ));
    }

    /// The host of this name.
    pub(crate) fn host(&mut self, name: &str) -> &mut Host {
        let host = self.hosts.iter_mut().find(|host| host.name == name);
        host.unwrap_or_else(|| panic!("no host {name}"))
    }
}

/// What the hosts have in common: a process namespace, and a network namespace with a bridge in it. Its first
/// process waits for the end of its input; with it everything ends, also if this process is killed.
struct Switch(Child);

impl Switch {
    fn new() -> Option<Self> {
        let make = "ip link add br0 type bridge && ip link set br0 up && echo up && exec cat";
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--pid",
            "--fork",
            "--kill-child=KILL",
            "--mount-proc",
        ]);
        command.args(["sh", "-c", make]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut switch = Self(command.stderr(Stdio::null()).spawn().ok()?);
        let mut line = String::new();
        let said = switch.0.stdout.as_mut().expect("it is piped");
        BufReader::new(said).read_line(&mut line).ok()?;
        (line == "up\n").then_some(switch)
    }

    /// A program in these namespaces, and in further ones that `unshare` names.
    fn command(&self, unshare: &[&str]) -> Command {
        let own = |kind: &str| format!("/proc/{}/ns/{kind}", self.0.id());
        let mut command = Command::new("nsenter");
        for (option, kind) in [
            ("mount", "mnt"),
            ("net", "net"),
            ("pid", "pid_for_children"),
        ] {
            command.arg(format!("--{option}={}", own(kind)));
        }
        command.arg("--");
        if !unshare.is_empty() {
            command.arg("unshare").args(unshare);
        }
        command
    }

    /// Does this by a shell.
    fn run(&self, script: &str) {
        let said = output(self.command(&[]).args(["sh", "-c", script]));
        assert!(said.status.success(), "{script}: {said:?}");
    }

    fn connect(&self, host: u32, number: u8) {
        self.run(&format!(
            "ip link add h{number} type veth peer name eth0 netns {host} && \
             ip link set h{number} master br0 up"
        ));
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One host, at whose shell blocks of commands are typed.
pub(crate) struct Host {
    name: String,
    directory: PathBuf,
    /// Ends with the stage.
    _shell: Child,
    keys: ChildStdin,
    lines: Receiver<String>,
    blocks: u32,
    /// Its network namespace, by which its processes are known.
    network: String,
}

impl Host {
    fn new(name: &str, number: u8, directory: &Path, switch: &Switch) -> Self {
        let errors = fs::File::create(directory.join(format!("{name}.errors"))).expect("a file");
        let mut command = switch.command(&["--net", "--uts", "--mount"]);
        command
            .args(["bash", "-c", BOOT, "bash"])
            .arg(directory)
            .args([name, &number.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        for (key, _) in std::env::vars_os() {
            if key.as_encoded_bytes().starts_with(b"DISTLOCK_") {
                command.env_remove(key);
            }
        }
        let mut shell = command.spawn().expect("unshare");
        let keys = shell.stdin.take().expect("it is piped");
        let said = BufReader::new(shell.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            said.lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let mut host = Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
            _shell: shell,
            keys,
            lines,
            blocks: 0,
            network: String::new(),
        };
        // In its namespaces, and waiting for its network.
        let line = host.line();
        let words: Vec<&str> = line.split(' ').collect();
        let ["unconnected", pid, network] = words[..] else {
            panic!("{line}: {}", host.errors());
        };
        host.network = network.to_owned();
        fs::write(directory.join(format!("10.0.0.{number}.pid")), pid).expect("a file");
        switch.connect(pid.parse().expect("a number"), number);
        host.keys.write_all(b"\n").expect("a key");
        assert_eq!(host.line(), "connected", "{}", host.errors());
        host
    }

    fn line(&self) -> String {
        let line = self.lines.recv_timeout(LIMIT);
        line.unwrap_or_else(|_| panic!("{} says no more: {}", self.name, self.errors()))
    }

    /// What was said on its standard error, and its agent's log.
    pub(crate) fn errors(&self) -> String {
        let read = |end| fs::read_to_string(self.directory.join(format!("{}.{end}", self.name)));
        let (errors, log) = (read("errors"), read("log"));
        format!("{}{}", errors.unwrap_or_default(), log.unwrap_or_default())
    }

    /// Runs a block of commands in its shell, as if pasted there, and returns the lines they print.
    ///
    /// # Panics
    /// If the last command fails.
    pub(crate) fn paste(&mut self, block: &str) -> Vec<String> {
        self.blocks += 1;
        let file = format!("{}-{}.sh", self.name, self.blocks);
        fs::write(self.directory.join(&file), block).expect("a file");
        // What reads its input gets none of the commands that follow.
        writeln!(
            self.keys,
            ". /run/stage/{file} </dev/null\necho \"{END}$?\""
        )
        .expect("the shell is there");
        let mut said = Vec::new();
        loop {
            let line = self.line();
            if let Some(code) = line.strip_prefix(END) {
                let errors = self.errors();
                assert_eq!(code, "0", "on {}: {block}\n{said:#?}\n{errors}", self.name);
                return said;
            }
            said.push(line);
        }
    }
}
