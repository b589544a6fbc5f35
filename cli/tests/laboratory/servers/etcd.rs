//! etcd with three members, on the hosts of the first three agents.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Effect, Mishap, Server, Servers, Which, installed};
use crate::clock::now_ns;
use crate::laboratory::{PATIENCE, STORE_LEASE};
use crate::network::{self, Namespace};
use crate::rng::Rng;
use crate::switch::Switch;

const MEMBERS: u16 = 3;
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;
/// Until a member answers that does.
const SOON: Duration = Duration::from_millis(500);
/// Of each member's disk: some times what etcd sets aside for its log.
const DISK: &str = "size=640m";

/// All members, the one on the agent's own host first.
pub(super) fn place(host: u16) -> String {
    let others = (1..=MEMBERS).filter(|&it| it != host);
    let all = std::iter::once(host).chain(others);
    let all = all.map(|it| network::address(it).to_string());
    format!("etcd://{}", all.collect::<Vec<_>>().join(","))
}

#[derive(Debug)]
pub(super) struct Etcd {
    program: PathBuf,
    hosts: Vec<Arc<Namespace>>,
    /// `None` where it has crashed.
    members: Vec<Option<Server>>,
    directory: PathBuf,
    rng: Rng,
    is_full: bool,
    has_full_disk: Option<u16>,
}

impl Etcd {
    pub(super) fn start(hosts: &[Arc<Namespace>], directory: &Path, rng: Rng) -> Option<Self> {
        let program = installed(&["/usr/bin", "/usr/local/bin"], "etcd", "etcd-server")?;
        let mut etcd = Self {
            program,
            hosts: hosts[..usize::from(MEMBERS)].to_vec(),
            members: (0..MEMBERS).map(|_| None).collect(),
            directory: directory.to_owned(),
            rng,
            is_full: false,
            has_full_disk: None,
        };
        for host in 1..=MEMBERS {
            std::fs::create_dir(etcd.disk(host)).expect("a directory");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]);
            etcd.does(host, mount.arg(etcd.disk(host)));
        }
        etcd.run_all();
        etcd.leader();
        // For a restore: of long ago it is when that comes.
        etcd.crash_all();
        etcd.copy("data", "old");
        etcd.run_all();
        Some(etcd)
    }

    fn disk(&self, host: u16) -> PathBuf {
        self.directory.join(format!("{host}.disk"))
    }

    /// Waits until it is done, on this host.
    fn does(&self, host: u16, command: &mut Command) {
        let child = std::mem::replace(command, Command::new("true"));
        let child = self.hosts[usize::from(host) - 1].spawn(child);
        let status = child.expect("it starts").wait().expect("it ends");
        assert!(status.success(), "{command:?}: {status}");
    }

    /// Has in `to` of all disks what is in `from`.
    fn copy(&self, from: &str, to: &str) {
        for host in 1..=MEMBERS {
            let disk = self.disk(host);
            let mut command = Command::new("sh");
            command.args([
                "-c",
                "rm -rf \"$2\" && cp -a --sparse=always \"$1\" \"$2\"",
                "sh",
            ]);
            self.does(host, command.arg(disk.join(from)).arg(disk.join(to)));
        }
    }

    fn run(&mut self, host: u16) {
        let url = |host: u16, port| format!("http://{}:{port}", network::address(host));
        let all = (1..=MEMBERS).map(|it| format!("m{it}={}", url(it, PEERS)));
        let all = all.collect::<Vec<_>>().join(",");
        let (clients, peers, name) = (url(host, CLIENTS), url(host, PEERS), format!("m{host}"));
        let mut command = Command::new(&self.program);
        for (option, value) in [
            ("--name", name.as_str()),
            ("--listen-client-urls", &clients),
            ("--advertise-client-urls", &clients),
            ("--listen-peer-urls", &peers),
            ("--initial-advertise-peer-urls", &peers),
            ("--initial-cluster", &all),
            ("--auto-compaction-mode", "periodic"),
            ("--auto-compaction-retention", "30s"),
            ("--max-wals", "1"),
            ("--logger", "zap"),
            ("--log-outputs", "stderr"),
        ] {
            command.args([option, value]);
        }
        command.arg("--data-dir").arg(self.disk(host).join("data"));
        let log = self.directory.join(format!("{host}.etcd.err"));
        let log = File::options().append(true).create(true).open(log);
        command.stderr(log.expect("a log"));
        let at = usize::from(host) - 1;
        self.members[at] = Some(Server::new(&self.hosts[at], command));
    }

    /// Whatever does not run.
    fn run_all(&mut self) {
        for host in 1..=MEMBERS {
            if self.members[usize::from(host) - 1].is_none() {
                self.run(host);
            }
        }
    }

    fn crash_all(&mut self) {
        self.members.iter_mut().for_each(|member| *member = None);
    }

    /// What a member answers to a request.
    fn post(&self, host: u16, path: &str, body: &Value) -> io::Result<Value> {
        let (path, body) = (path.to_owned(), body.to_string());
        let address = (network::address(host), CLIENTS).into();
        self.hosts[usize::from(host) - 1].within(move || {
            let mut socket = TcpStream::connect_timeout(&address, SOON)?;
            socket.set_read_timeout(Some(SOON))?;
            let length = body.len();
            let head = "Host: a\r\nConnection: close\r\n";
            let request =
                format!("POST {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}");
            socket.write_all(request.as_bytes())?;
            let mut reply = String::new();
            socket.read_to_string(&mut reply)?;
            let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
            match head.starts_with("HTTP/1.1 200") {
                true => Ok(serde_json::from_str(body.trim())?),
                false => Err(io::Error::other(reply)),
            }
        })
    }

    /// Asks all until one answers something.
    fn until<T>(&self, what: &str, ask: impl Fn(u16) -> io::Result<Option<T>>) -> T {
        let begun = now_ns();
        loop {
            for host in 1..=MEMBERS {
                if let Ok(Some(answer)) = ask(host) {
                    return answer;
                }
            }
            let waited = Duration::from_nanos(now_ns() - begun);
            assert!(waited < PATIENCE, "no {what} after {waited:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The host of the leader, once there is one.
    fn leader(&self) -> u16 {
        self.until("leader", |host| {
            let status = self.post(host, "/v3/maintenance/status", &json!({}))?;
            let leads = status["header"]["member_id"] == status["leader"];
            Ok((leads && status["leader"].is_string()).then_some(host))
        })
    }

    fn host_of(&mut self, which: Which) -> u16 {
        let leader = self.leader();
        let follower = (leader + self.rng.range(0, 2) as u16) % MEMBERS + 1;
        match which {
            Which::Leader => leader,
            Which::Follower => follower,
        }
    }

    fn member(&mut self, host: u16) -> &mut Option<Server> {
        &mut self.members[usize::from(host) - 1]
    }

    /// Takes writes, or does not any more.
    fn fill(&mut self, is_full: bool) {
        let action = if is_full { "ACTIVATE" } else { "DEACTIVATE" };
        self.until("alarm", |host| {
            let members = self.post(host, "/v3/cluster/member/list", &json!({}))?;
            let member = &members["members"][0]["ID"];
            let alarm = json!({"action": action, "memberID": member, "alarm": "NOSPACE"});
            self.post(host, "/v3/maintenance/alarm", &alarm).map(Some)
        });
        self.is_full = is_full;
    }

    /// Nothing fits on the disk of this host any more, or again.
    fn fill_disk(&mut self, host: u16, is_full: bool) {
        let mut command = Command::new("sh");
        let script = match is_full {
            true => "! cat /dev/zero >\"$0\"",
            false => "rm \"$0\"",
        };
        command
            .args(["-c", script])
            .arg(self.disk(host).join("filler"));
        self.does(host, command.stderr(Stdio::null()));
        self.has_full_disk = is_full.then_some(host);
    }
}

impl Servers for Etcd {
    fn begin(&mut self, mishap: Mishap, _switch: &Switch) -> Effect {
        match mishap {
            Mishap::Kill(which) => {
                let host = self.host_of(which);
                *self.member(host) = None;
                Effect::goes_on()
            }
            Mishap::Stop(which) => {
                let host = self.host_of(which);
                self.member(host).as_mut().expect("it runs").stop();
                Effect::goes_on()
            }
            Mishap::Cut(which) => Effect::cut(self.host_of(which), true),
            Mishap::Restart => {
                self.crash_all();
                self.run_all();
                Effect::goes_on()
            }
            Mishap::Full => {
                self.fill(true);
                Effect::stands_still()
            }
            Mishap::FullDisk => {
                let host = self.host_of(Which::Follower);
                *self.member(host) = None;
                self.fill_disk(host, true);
                self.run(host);
                Effect::goes_on()
            }
            Mishap::Restore => {
                let from = now_ns();
                self.crash_all();
                self.copy("old", "data");
                self.run_all();
                self.leader();
                let told = u64::try_from(STORE_LEASE.as_nanos()).expect("short");
                Effect {
                    forgot: Some((from, now_ns() + told)),
                    ..Effect::goes_on()
                }
            }
            Mishap::Storm => Effect::goes_on(),
            Mishap::CutClient(_) | Mishap::Terminate | Mishap::Failover => {
                unreachable!("etcd has no such mishap")
            }
        }
    }

    fn heal(&mut self) {
        if let Some(host) = self.has_full_disk {
            // Where there is no room it may have ended, or try for ever.
            *self.member(host) = None;
            self.fill_disk(host, false);
        }
        self.members.iter_mut().flatten().for_each(Server::go_on);
        self.run_all();
        if self.is_full {
            self.fill(false);
        }
    }
}
