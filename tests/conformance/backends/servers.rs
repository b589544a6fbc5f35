//! Servers of stores, each in a directory of its own; they end with the test.

use std::fs::{File, Permissions, read_to_string, set_permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::servers::{Process, free_ports, program};

/// A server.
pub(crate) struct Server {
    pub(crate) port: u16,
    // It ends before its directory goes.
    _process: Process,
    _directory: TempDir,
}

impl Server {
    /// Starts it, and waits until it listens.
    fn start(mut command: Command, port: u16, directory: TempDir) -> Self {
        let log = directory.path().join("log");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        let mut process = Process(command.spawn().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        for _ in 0..1200 {
            if TcpStream::connect(address).is_ok() {
                return Self {
                    port,
                    _process: process,
                    _directory: directory,
                };
            }
            if process.0.try_wait().unwrap().is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!(
            "{command:?} does not start: {}",
            read_to_string(log).unwrap()
        );
    }
}

/// etcd, if it is installed.
#[cfg(feature = "etcd")]
pub(crate) fn etcd() -> Option<Server> {
    let program = program("etcd", "etcd", &[])?;
    let directory = directory();
    let ports = free_ports(2);
    let [client, peer] = [0, 1].map(|at| format!("http://127.0.0.1:{}", ports[at]));
    let port = ports[0];
    let mut command = Command::new(program);
    command
        .args(["--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--logger", "zap", "--log-outputs", "stderr"])
        .arg("--data-dir")
        .arg(directory.path().join("data"));
    Some(Server::start(command, port, directory))
}

/// PostgreSQL, if it is installed, with the user `postgres` and its database.
#[cfg(feature = "postgresql")]
pub(crate) fn postgresql() -> Option<Server> {
    // Where Debian has its programs.
    let directories = (13..=18).rev();
    let directories: Vec<_> = directories
        .map(|version| format!("/usr/lib/postgresql/{version}/bin"))
        .collect();
    let directories: Vec<_> = directories.iter().map(String::as_str).collect();
    let postgres = program("postgres", "PostgreSQL", &directories)?;
    // Debian's other programs are beside what a link in the path leads to.
    let postgres = postgres.canonicalize().unwrap();
    let directory = directory();
    let data = directory.path().join("data");
    let made = unprivileged(&postgres.with_file_name("initdb"))
        .args(["--username=postgres", "--auth=trust", "--no-sync"])
        .args(["--encoding=UTF8", "--locale=C.UTF-8", "-D"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(made.unwrap().success(), "initdb");
    let port = free_ports(1)[0];
    let mut command = unprivileged(&postgres);
    command
        .arg("-D")
        .arg(data)
        .args(["-p", &port.to_string()])
        .args(["-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "unix_socket_directories="]);
    Some(Server::start(command, port, directory))
}

/// As somebody else than root, as whom PostgreSQL does not run.
#[cfg(feature = "postgresql")]
fn unprivileged(program: &std::path::Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    if nix::unistd::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    command
}

/// A directory to which the server may write, whoever it runs as.
fn directory() -> TempDir {
    let directory = tempfile::Builder::new().prefix("dl").tempdir().unwrap();
    set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    directory
}
