//! A PostgreSQL that a test starts, and ends.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use distlock_protocol::ledger::Host;
use distlock_stores::StoreOptions;
use distlock_stores::postgresql::Postgresql;
use tempfile::TempDir;

use crate::driver::Driver;
use crate::servers::{Process, free_ports, program};

/// Where Debian has its programs.
const DIRECTORIES: [&str; 7] = [
    "/usr/lib/postgresql/18/bin",
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/14/bin",
    "/usr/lib/postgresql/13/bin",
    "/usr/sbin",
];

/// A server, with a database `postgres` and its user of that name.
pub(crate) struct Server {
    programs: PathBuf,
    pub(crate) directory: TempDir,
    pub(crate) port: u16,
    process: Option<Process>,
    settings: Vec<String>,
}

/// As somebody else than root, as whom the server does not run.
pub(crate) fn unprivileged(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    if is_root() {
        command.uid(65534).gid(65534);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// A directory that a server may write to.
pub(crate) fn directory() -> TempDir {
    let directory = tempfile::Builder::new()
        .prefix("distlock-pg")
        .tempdir_in("/tmp")
        .unwrap();
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), all).unwrap();
    directory
}

/// The server's programs, if there are any.
pub(crate) fn installed() -> Option<PathBuf> {
    let postgres = program("postgres", "PostgreSQL", &DIRECTORIES)?;
    // Debian's other programs are beside what a link in the path leads to.
    let postgres = postgres.canonicalize().unwrap();
    Some(postgres.parent().unwrap().to_owned())
}

impl Server {
    /// Starts one with the table, if PostgreSQL is installed.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        let server = Self::bare(settings)?;
        server.sql(distlock_stores::postgresql::SCHEMA);
        Some(server)
    }

    /// Starts one without the table.
    pub(crate) fn bare(settings: &[&str]) -> Option<Self> {
        let programs = installed()?;
        let directory = directory();
        let data = directory.path().join("data");
        let status = unprivileged(programs.join("initdb"))
            .args(["--username=postgres", "--auth=trust", "--no-sync", "-D"])
            .arg(&data)
            .args(["--encoding=UTF8", "--locale=C.UTF-8", "--wal-segsize=1"])
            .status()
            .unwrap();
        assert!(status.success(), "initdb");
        let mut server = Self {
            programs,
            directory,
            port: free_ports(1)[0],
            process: None,
            settings: settings.iter().map(|&it| it.to_owned()).collect(),
        };
        server.run();
        Some(server)
    }

    /// A standby of this one.
    pub(crate) fn standby(&self, settings: &[&str]) -> Self {
        let directory = directory();
        let data = directory.path().join("data");
        let status = unprivileged(self.program("pg_basebackup"))
            .args(["--write-recovery-conf", "--no-sync", "--checkpoint=fast"])
            .args(["-h", "127.0.0.1", "-U", "postgres", "-p"])
            .arg(self.port.to_string())
            .arg("-D")
            .arg(&data)
            .status()
            .unwrap();
        assert!(status.success(), "pg_basebackup");
        let mut standby = Self {
            programs: self.programs.clone(),
            directory,
            port: free_ports(1)[0],
            process: None,
            settings: settings.iter().map(|&it| it.to_owned()).collect(),
        };
        standby.run();
        standby
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Starts it, again or for the first time, and waits until it takes statements.
    pub(crate) fn run(&mut self) {
        let path = self.directory.path();
        let log = fs::File::create(path.join("log")).unwrap();
        let mut command = unprivileged(self.program("postgres"));
        command
            .arg("-D")
            .arg(path.join("data"))
            .args(["-p", &self.port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=60"])
            .args(["-c", &format!("unix_socket_directories={}", path.display())])
            .stderr(log);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        self.process = Some(Process(command.spawn().unwrap()));
        for _ in 0..600 {
            if self.psql("SELECT 1").is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let log = fs::read_to_string(path.join("log")).unwrap();
        panic!("PostgreSQL does not start: {log}");
    }

    /// Ends it as by `pg_ctl stop -m immediate`: nothing is tidied up.
    pub(crate) fn stop_immediately(&mut self) {
        let process = self.process.as_mut().unwrap();
        let pid = process.0.id().to_string();
        let signalled = Command::new("sh")
            .args(["-c", &format!("kill -QUIT {pid}")])
            .status();
        assert!(signalled.unwrap().success());
        process.0.wait().unwrap();
        self.process = None;
    }

    /// Has psql run that, and expects it to go well.
    #[track_caller]
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.psql(sql).expect(sql)
    }

    fn psql(&self, sql: &str) -> Option<String> {
        let output = self.psql_command().args(["-c", sql]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| text.trim().to_owned())
    }

    /// psql, which runs what it is told.
    fn psql_command(&self) -> Command {
        let mut command = Command::new(self.program("psql"));
        command
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres"])
            .arg("-h")
            .arg(self.directory.path())
            .args(["-p", &self.port.to_string(), "-d", "postgres"]);
        command
    }

    /// A transaction that was begun in psql with that, and goes on.
    pub(crate) fn transaction(&self, sql: &str) -> Transaction {
        let mut child = self
            .psql_command()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let marker = self.directory.path().join("begun");
        let _ = fs::remove_file(&marker);
        let input = child.stdin.as_mut().unwrap();
        let touch = format!("\\! touch {}", marker.display());
        writeln!(input, "BEGIN;\n{sql};\n{touch}").unwrap();
        while !marker.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        Transaction(child)
    }

    pub(crate) fn tcp(&self) -> Host {
        Host::Tcp {
            name: "127.0.0.1".to_owned(),
            port: self.port,
        }
    }

    pub(crate) fn unix(&self) -> Host {
        let path = self
            .directory
            .path()
            .join(format!(".s.PGSQL.{}", self.port));
        Host::Unix(path.to_str().unwrap().to_owned())
    }

    /// A client that is connected.
    pub(crate) fn client(&self) -> Driver {
        let mut driver = Driver::new(Box::new(Postgresql::new(options(self.tcp()))));
        driver.up();
        driver
    }
}

/// What a client of one host is made with.
pub(crate) fn options(host: Host) -> StoreOptions {
    StoreOptions {
        hosts: vec![host],
        tls: None,
        user: Some("postgres".to_owned()),
        password: None,
        database: None,
        group: "test".to_owned(),
        lease: Duration::from_secs(6),
        has_hints: true,
        seed: seed(),
    }
}

fn seed() -> u64 {
    use std::hash::BuildHasher as _;
    std::collections::hash_map::RandomState::new().hash_one(0)
}

/// A transaction of psql.
pub(crate) struct Transaction(Child);

impl Transaction {
    /// Ends it, by `COMMIT` or `ROLLBACK`.
    pub(crate) fn end(mut self, how: &str) {
        let input = self.0.stdin.as_mut().unwrap();
        writeln!(input, "{how};").unwrap();
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
