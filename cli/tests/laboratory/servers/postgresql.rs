//! PostgreSQL: a primary and its standby, on hosts 4 and 5, and PgBouncer on host 3.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Effect, Mishap, Server, Servers, Which, installed};
use crate::clock::now_ns;
use crate::laboratory::{PATIENCE, STORE_LEASE};
use crate::network::{self, Namespace};
use crate::switch::{Link, Switch};

/// Where Debian has its programs.
const PROGRAMS: [&str; 5] = [
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/14/bin",
    "/usr/lib/postgresql/13/bin",
];
/// The servers' hosts.
const HOSTS: [u16; 2] = [4, 5];
/// Where PgBouncer is.
const POOLED: u16 = 3;
/// Nobody: neither server runs as root.
const USER: u32 = 65_534;
/// For how long the standby misses what the primary writes, until that crashes.
const BEHIND: Duration = Duration::from_millis(250);
/// Between two ends of all connections.
const TERMINATED: Duration = Duration::from_millis(100);

pub(super) fn place(host: u16) -> String {
    let servers = HOSTS.map(|it| format!("{}:5432", network::address(it)));
    let servers = match host {
        POOLED => "127.0.0.1:6432".to_owned(),
        _ => servers.join(","),
    };
    format!("postgresql://postgres@{servers}/postgres")
}

#[derive(Debug)]
pub(super) struct Postgresql {
    programs: PathBuf,
    pooler: PathBuf,
    /// All, from host 1 on.
    hosts: Vec<Arc<Namespace>>,
    /// By [`HOSTS`]; `None` where it has crashed.
    servers: [Option<Server>; 2],
    pool: Option<Server>,
    /// Which of [`HOSTS`] writes go to.
    primary: usize,
    /// Whether the other one is to be made anew from that.
    is_promoted: bool,
    is_synchronous: bool,
    directory: PathBuf,
}

impl Postgresql {
    pub(super) fn start(
        hosts: &[Arc<Namespace>],
        directory: &Path,
        is_synchronous: bool,
    ) -> Option<Self> {
        let programs = installed(&PROGRAMS, "postgres", "postgresql")?;
        let mut this = Self {
            programs: programs.parent().expect("a directory").to_owned(),
            pooler: installed(&["/usr/sbin", "/usr/bin"], "pgbouncer", "pgbouncer")?,
            hosts: hosts.to_vec(),
            servers: [None, None],
            pool: None,
            primary: 0,
            is_promoted: false,
            is_synchronous,
            directory: directory.to_owned(),
        };
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("its owner");
        for at in 0..2 {
            fs::create_dir(this.home(at)).expect("a directory");
            chown(this.home(at), Some(USER), Some(USER)).expect("root may");
        }
        let mut initdb = this.command("initdb", 0);
        let options = ["--username=postgres", "--auth=trust", "--encoding=UTF8"];
        initdb
            .args(options)
            .args(["--locale=C.UTF-8", "--wal-segsize=1"]);
        done(initdb.arg("--no-sync").arg("-D").arg(this.data(0)));
        let mut rules = String::new();
        for database in ["all", "replication"] {
            rules += &format!("host {database} all 10.77.1.0/24 trust\n");
        }
        let file = this.data(0).join("pg_hba.conf");
        let old = fs::read_to_string(&file).expect("initdb writes it");
        fs::write(&file, old + &rules).expect("root may");
        this.run(0);
        this.await_up(0);
        // As `distlock store init` does, which waits for a synchronous standby.
        let mut schema = Command::new(env!("CARGO_BIN_EXE_distlock"));
        schema.args(["store", "init", "--print", "--at"]);
        let schema = schema.arg(place(1)).output().expect("it starts").stdout;
        let schema = String::from_utf8(schema).expect("text");
        assert!(schema.contains("CREATE TABLE"), "{schema}");
        let schema = this.sql(0, &format!("SET synchronous_commit = local; {schema}"));
        schema.expect("the table is made");
        this.make_standby();
        this.run_pool();
        Some(this)
    }

    fn home(&self, at: usize) -> PathBuf {
        self.directory.join(format!("{}.postgresql", HOSTS[at]))
    }

    fn data(&self, at: usize) -> PathBuf {
        self.home(at).join("data")
    }

    fn namespace(&self, at: usize) -> &Namespace {
        &self.hosts[usize::from(HOSTS[at]) - 1]
    }

    /// One of PostgreSQL's programs, which may write what this server's may.
    fn command(&self, program: &str, at: usize) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.uid(USER).gid(USER).current_dir(self.home(at));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(self.log(&HOSTS[at].to_string()));
        command
    }

    fn log(&self, name: &str) -> File {
        let path = self.directory.join(format!("{name}.postgresql.err"));
        let log = File::options().append(true).create(true).open(path);
        log.expect("a log")
    }

    fn run(&mut self, at: usize) {
        let mut command = self.command("postgres", at);
        let address = network::address(HOSTS[at]);
        command.arg("-D").arg(self.data(at));
        let sockets = self.home(at);
        for setting in [
            format!("listen_addresses={address}"),
            format!("unix_socket_directories={}", sockets.display()),
            "max_connections=100".to_owned(),
            "wal_keep_size=64".to_owned(),
            // What is cut off is found out.
            "wal_sender_timeout=2s".to_owned(),
            "wal_receiver_timeout=2s".to_owned(),
            "wal_retrieve_retry_interval=200ms".to_owned(),
        ] {
            command.args(["-c", &setting]);
        }
        if self.is_synchronous {
            command.args(["-c", "synchronous_standby_names=*"]);
        }
        self.servers[at] = Some(Server::new(self.namespace(at), command));
    }

    /// What a server says; `None` if it does not answer.
    fn sql(&self, at: usize, sql: &str) -> Option<String> {
        let mut command = self.command("psql", at);
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]);
        command
            .arg("-h")
            .arg(self.home(at))
            .args(["-d", "postgres", "-c", sql]);
        command.env("PGCONNECT_TIMEOUT", "2").stdout(Stdio::piped());
        let output = command.output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("text");
        output.status.success().then(|| text.trim().to_owned())
    }

    fn await_up(&mut self, at: usize) {
        let begun = now_ns();
        while self.sql(at, "SELECT 1").is_none() {
            let waited = Duration::from_nanos(now_ns() - begun);
            assert!(
                waited < PATIENCE,
                "PostgreSQL {at} is not up after {waited:?}"
            );
            let server = self.servers[at].as_mut().expect("it was started");
            // Those of before may still be there.
            if server.child.try_wait().expect("a child").is_some() {
                self.run(at);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes the other server anew, as a standby of the primary.
    fn make_standby(&mut self) {
        let standby = 1 - self.primary;
        self.servers[standby] = None;
        let data = self.data(standby);
        if data.exists() {
            fs::remove_dir_all(&data).expect("root may");
        }
        let mut command = self.command("pg_basebackup", standby);
        let options = ["--write-recovery-conf", "--no-sync", "--checkpoint=fast"];
        command.args(options).args(["-U", "postgres", "-h"]);
        command.arg(self.home(self.primary)).arg("-D").arg(data);
        // By the socket it comes here; the standby asks for more by the network.
        done(&mut command);
        let source = network::address(HOSTS[self.primary]);
        let file = self.data(standby).join("postgresql.auto.conf");
        let mut text = fs::read_to_string(&file).expect("pg_basebackup writes it");
        text += &format!("primary_conninfo = 'host={source} port=5432 user=postgres'\n");
        fs::write(&file, text).expect("root may");
        self.run(standby);
        self.await_up(standby);
    }

    /// Has PgBouncer lead to the primary.
    fn run_pool(&mut self) {
        self.pool = None;
        let (home, server) = (self.home(0), network::address(HOSTS[self.primary]));
        let text = format!(
            "[databases]\npostgres = host={server} port=5432 user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 6432\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 5\n\
             server_login_retry = 1\nlogfile = {}/pool.log\n",
            home.display()
        );
        let file = home.join("pgbouncer.ini");
        fs::write(&file, text).expect("room for it");
        let mut command = Command::new(&self.pooler);
        command.uid(USER).gid(USER).arg("-q").arg(file);
        command.stderr(self.log("pool"));
        let host = &self.hosts[usize::from(POOLED) - 1];
        self.pool = Some(Server::new(host, command));
    }

    fn at(&self, which: Which) -> usize {
        match which {
            Which::Leader => self.primary,
            Which::Follower => 1 - self.primary,
        }
    }

    /// Nothing is tidied up.
    fn crash(&mut self, at: usize) {
        if let Some(mut server) = self.servers[at].take() {
            server.go_on();
            server.signal(Signal::SIGQUIT);
            let _ = server.child.wait();
        }
    }

    fn fail_over(&mut self, switch: &Switch) -> Effect {
        let [old, new] = [self.primary, 1 - self.primary].map(|at| HOSTS[at]);
        let cut = |is_cut: &dyn Fn(u16, u16) -> bool| {
            switch.set(|from, to| Link {
                is_cut: is_cut(from, to),
                ..Link::default()
            });
        };
        if self.is_synchronous {
            // It runs on, and nobody knows whether anybody reaches it.
            cut(&|from, to| from == old || to == old);
            self.promote();
            return Effect::cut(old, false);
        }
        let from = now_ns();
        cut(&|from, to| [from, to] == [old, new] || [from, to] == [new, old]);
        thread::sleep(BEHIND);
        self.crash(self.primary);
        self.promote();
        let told = u64::try_from(STORE_LEASE.as_nanos()).expect("short");
        Effect {
            forgot: Some((from, now_ns() + told)),
            ..Effect::goes_on()
        }
    }

    fn promote(&mut self) {
        let standby = 1 - self.primary;
        let promoted = self.sql(standby, "SELECT pg_promote()");
        assert_eq!(promoted.as_deref(), Some("t"));
        (self.primary, self.is_promoted) = (standby, true);
        self.run_pool();
    }
}

impl Servers for Postgresql {
    fn begin(&mut self, mishap: Mishap, switch: &Switch) -> Effect {
        // A standby that is missed is waited for, if it is synchronous.
        let is_synchronous = self.is_synchronous;
        let effect = |which| match which {
            Which::Follower if !is_synchronous => Effect::goes_on(),
            Which::Leader | Which::Follower => Effect::stands_still(),
        };
        match mishap {
            Mishap::Kill(which) => {
                let effect = effect(which);
                self.crash(self.at(which));
                effect
            }
            Mishap::Stop(which) => {
                let effect = effect(which);
                let at = self.at(which);
                self.servers[at].as_mut().expect("it runs").stop();
                effect
            }
            Mishap::Cut(which) => Effect {
                cut: Some(HOSTS[self.at(which)]),
                ..effect(which)
            },
            Mishap::CutClient(host) => Effect::cut(host, true),
            Mishap::Restart => {
                self.crash(self.primary);
                self.run(self.primary);
                Effect::goes_on()
            }
            Mishap::Terminate => {
                for _ in 0..10 {
                    let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                    self.sql(self.primary, all).expect("it is up");
                    thread::sleep(TERMINATED);
                }
                Effect::goes_on()
            }
            Mishap::Failover => self.fail_over(switch),
            Mishap::Storm => Effect::goes_on(),
            Mishap::Full | Mishap::FullDisk | Mishap::Restore => {
                unreachable!("PostgreSQL has no such mishap")
            }
        }
    }

    fn heal(&mut self) {
        self.servers.iter_mut().flatten().for_each(Server::go_on);
        if std::mem::take(&mut self.is_promoted) {
            // Nobody may write to the one that was before.
            self.crash(1 - self.primary);
            self.make_standby();
        }
        for at in 0..2 {
            if self.servers[at].is_none() {
                self.run(at);
            }
            self.await_up(at);
        }
    }
}

/// Waits until it is.
fn done(command: &mut Command) {
    let status = command.status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
}
