//! What the hosts of a laboratory share: a directory, the file of the group, and what each host finds there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;

use crate::critical;
use crate::locks::Lock;
use crate::network::Namespace;
use crate::servers::Kind;
use crate::shim::Shims;

/// For a shell in a mount namespace of its own: mounts a small file system, and becomes the program.
const ON_SMALL_DISK: &str = "mount -t tmpfs -o size=128k,nr_inodes=16 tmpfs \"$0\" && exec \"$@\"";

/// What all hosts share.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) locks: Vec<Lock>,
    /// What has the locks, if it is not the agents.
    store: Option<Kind>,
    /// The hosts' own clocks and disks, where they have any.
    pub(crate) shims: Option<Shims>,
    /// Whether the agents write audit logs.
    pub(crate) has_audit: bool,
    /// Whether the agents serve their metrics, and write their audit logs to small disks; and nobody enters
    /// but by the test.
    pub(crate) is_watched: bool,
    /// What was done to processes, for the judge.
    log: Mutex<File>,
}

impl Place {
    pub(crate) fn new(
        directory: &Path,
        locks: Vec<Lock>,
        store: Option<Kind>,
        shims: Option<Shims>,
        has_audit: bool,
        is_watched: bool,
    ) -> Self {
        let log = critical::logs(directory).join("laboratory");
        Self {
            directory: directory.to_owned(),
            locks,
            store,
            shims,
            has_audit,
            is_watched,
            log: Mutex::new(File::create(log).expect("a log")),
        }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.directory.join("group.toml")
    }

    /// The file of this host's agent: the same, and the tables of its own.
    pub(crate) fn config_of(&self, host: u16) -> PathBuf {
        match self.has_audit || self.is_watched {
            true => self.directory.join(format!("{host}.toml")),
            false => self.config(),
        }
    }

    /// In which group this host's agent is, by its arguments.
    pub(crate) fn group_of(&self, host: u16) -> Vec<OsString> {
        match self.store {
            Some(store) => vec!["--at".into(), store.place(host).into()],
            None => vec![
                "--id".into(),
                host.to_string().into(),
                "--config".into(),
                self.config_of(host).into(),
            ],
        }
    }

    /// What only this host's file has.
    pub(crate) fn own_tables(&self, host: u16) -> String {
        let mut text = String::new();
        if self.has_audit {
            text += &format!("[audit]\nfile = {:?}\n", self.audit(host));
        }
        if self.is_watched {
            let path = self.metrics(host);
            text += &format!("[metrics]\nlisten = \"unix:{}\"\n", path.display());
        }
        text
    }

    pub(crate) fn audit(&self, host: u16) -> PathBuf {
        match self.is_watched {
            true => self.disk(host).join("audit"),
            false => self.directory.join(format!("{host}.audit")),
        }
    }

    /// Where a watched host's small disk is.
    fn disk(&self, host: u16) -> PathBuf {
        self.directory.join(format!("{host}.disk"))
    }

    /// Where a watched host serves its metrics.
    pub(crate) fn metrics(&self, host: u16) -> PathBuf {
        self.directory.join(format!("{host}.metrics"))
    }

    /// The program that is to be an agent, on its small disk if it is watched.
    pub(crate) fn agent(&self, host: u16) -> Command {
        let program = env!("CARGO_BIN_EXE_distlock");
        if !self.is_watched {
            return Command::new(program);
        }
        let disk = self.disk(host);
        fs::create_dir_all(&disk).expect("a directory");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", ON_SMALL_DISK]);
        command.arg(disk).arg(program);
        command
    }

    /// Where this host's agent keeps its state; those of a store have all the same name for it.
    pub(crate) fn state(&self, host: u16) -> PathBuf {
        let state = self.directory.join("state");
        match self.store {
            None => state,
            Some(_) => state.join(host.to_string()),
        }
    }

    /// `command`, started on `host` with its clock.
    pub(crate) fn spawn(&self, host: u16, namespace: &Namespace, mut command: Command) -> Child {
        if let Some(shims) = &self.shims {
            command.envs(shims.environment(host));
        }
        namespace.spawn(command).expect("it starts")
    }

    pub(crate) fn log(&self, line: &str) {
        let mut log = self.log.lock().expect("the log");
        writeln!(log, "{line}").expect("room for the log");
    }

    /// What `who` says on standard error, for whoever looks into a failure.
    pub(crate) fn errors(&self, who: &str) -> File {
        let path = self.directory.join(format!("{who}.err"));
        let mut options = OpenOptions::new();
        options.append(true).create(true).open(path).expect("a log")
    }
}
