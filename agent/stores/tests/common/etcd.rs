//! etcd's servers, and words to them that the client has no need of.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use distlock_protocol::ledger::Host;
use distlock_stores::{Kind, Store, StoreOptions};
use tempfile::TempDir;

use crate::servers::{Process, free_ports, program};

/// One member, alone or of several.
#[derive(Debug)]
pub(crate) struct Server {
    process: Option<Process>,
    program: PathBuf,
    arguments: Vec<String>,
    directory: PathBuf,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// A server of its own, with these options besides. `None` if no etcd is installed.
    pub(crate) fn start(directory: &TempDir, options: &[&str]) -> Option<Self> {
        let mut server = Self::members(directory, 1, options)?.pop().unwrap();
        server.begin();
        Some(server)
    }

    /// Servers that make a cluster, none of which runs yet.
    pub(crate) fn members(
        directory: &TempDir,
        count: usize,
        options: &[&str],
    ) -> Option<Vec<Self>> {
        let program = program("etcd", "etcd", &[])?;
        let mut peers = free_ports(2 * count);
        let clients = peers.split_off(count);
        let named = peers.iter().enumerate();
        let all = named.map(|(at, port)| format!("m{at}=http://127.0.0.1:{port}"));
        let all = all.collect::<Vec<_>>().join(",");
        let is_sealed = options.contains(&"--cert-file");
        let scheme = if is_sealed { "https" } else { "http" };
        let members = peers.iter().zip(clients).enumerate();
        let members = members.map(|(at, (peer, client))| {
            let address = SocketAddr::from(([127, 0, 0, 1], client));
            let (client, peer) = (
                format!("{scheme}://{address}"),
                format!("http://127.0.0.1:{peer}"),
            );
            let name = format!("m{at}");
            let own = [
                ("--name", name.as_str()),
                ("--listen-client-urls", &client),
                ("--advertise-client-urls", &client),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--initial-cluster", &all),
                ("--logger", "zap"),
                ("--log-outputs", "stderr"),
            ];
            let own = own.iter().flat_map(|(name, value)| [*name, *value]);
            Self {
                process: None,
                program: program.clone(),
                arguments: own
                    .chain(options.iter().copied())
                    .map(str::to_owned)
                    .collect(),
                directory: directory.path().join(&name),
                address,
            }
        });
        Some(members.collect())
    }

    /// Starts it, and waits until it listens.
    pub(crate) fn begin(&mut self) {
        let log = std::fs::File::create(self.directory.with_extension("log")).unwrap();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.arg("--data-dir").arg(&self.directory);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(Process(command.spawn().unwrap()));
        for _ in 0..600 {
            if TcpStream::connect(self.address).is_ok() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.directory.with_extension("log"));
        panic!("etcd does not start: {log:?}");
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Takes all that it knows.
    pub(crate) fn wipe(&self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }

    /// Asks its gateway for something, and waits until that is done.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        for _ in 0..200 {
            if let Some(reply) = self.try_post(path, body) {
                return reply;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("{path} {body} is not done");
    }

    fn try_post(&self, path: &str, body: &str) -> Option<String> {
        let mut socket = TcpStream::connect(self.address).ok()?;
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n\
             {body}"
        );
        socket.write_all(request.as_bytes()).ok()?;
        let mut reply = String::new();
        socket.read_to_string(&mut reply).ok()?;
        reply.starts_with("HTTP/1.1 200").then_some(reply)
    }

    /// Switches users on: `root`, and `app` who may do all below `distlock/shop/`.
    pub(crate) fn have_users(&self) {
        let prefix = r#""key":"ZGlzdGxvY2svc2hvcC8=","range_end":"ZGlzdGxvY2svc2hvcDA=""#;
        let grant = format!(r#"{{"name":"app","perm":{{"permType":"READWRITE",{prefix}}}}}"#);
        for (path, body) in [
            ("user/add", r#"{"name":"root","password":"root"}"#),
            ("user/add", r#"{"name":"app","password":"se\"cret"}"#),
            ("role/add", r#"{"name":"app"}"#),
            ("role/grant", &grant),
            ("role/add", r#"{"name":"root"}"#),
            ("user/grant", r#"{"user":"root","role":"root"}"#),
            ("user/grant", r#"{"user":"app","role":"app"}"#),
            ("enable", "{}"),
        ] {
            self.post(&format!("/v3/auth/{path}"), body);
        }
    }
}

/// Options for a client of servers at these addresses.
pub(crate) fn options(addresses: &[SocketAddr]) -> StoreOptions {
    let hosts = addresses.iter().map(|address| Host::Tcp {
        name: address.ip().to_string(),
        port: address.port(),
    });
    StoreOptions {
        hosts: hosts.collect(),
        tls: None,
        user: None,
        password: None,
        database: None,
        group: "shop".to_owned(),
        lease: Duration::from_secs(10),
        has_hints: true,
        seed: 1,
    }
}

/// A client.
pub(crate) fn open(options: StoreOptions) -> Box<dyn Store> {
    distlock_stores::open(Kind::Etcd, options).unwrap()
}

/// The directory in which a server's data is.
pub(crate) fn directory() -> TempDir {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    TempDir::new_in(target).unwrap()
}
