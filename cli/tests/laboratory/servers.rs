//! A store's servers, each on a host, and what can be done to them.

mod etcd;
mod postgresql;

use std::fmt::Debug;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hosts::{GROUP, end};
use crate::laboratory::STORE_LEASE;
use crate::network::Namespace;
use crate::rng::Rng;
use crate::switch::Switch;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Three members, on the agents' hosts.
    Etcd,
    /// A primary and its standby, on hosts of their own. The last agent's way goes through PgBouncer.
    Postgresql { is_synchronous: bool },
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "etcd" => Ok(Self::Etcd),
            "postgresql" => Ok(Self::Postgresql {
                is_synchronous: true,
            }),
            "postgresql-async" => Ok(Self::Postgresql {
                is_synchronous: false,
            }),
            _ => Err(()),
        }
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Postgresql {
                is_synchronous: true,
            } => "postgresql",
            Self::Postgresql {
                is_synchronous: false,
            } => "postgresql-async",
        }
    }

    /// How many hosts there are without an agent.
    pub(crate) fn own_hosts(self) -> u16 {
        match self {
            Self::Etcd => 0,
            Self::Postgresql { .. } => 2,
        }
    }

    /// Where the agent of this host finds the store.
    pub(crate) fn place(self, host: u16) -> String {
        let place = match self {
            Self::Etcd => etcd::place(host),
            Self::Postgresql { .. } => postgresql::place(host),
        };
        format!("{place}?group={GROUP}&lease={}ms", STORE_LEASE.as_millis())
    }

    /// All mishaps that it can have, but for storms.
    pub(crate) fn mishaps(self) -> Vec<Mishap> {
        use Which::{Follower, Leader};
        let each = [Mishap::Kill, Mishap::Stop, Mishap::Cut];
        let both = each
            .iter()
            .flat_map(|mishap| [mishap(Leader), mishap(Follower)]);
        let own: &[Mishap] = match self {
            Self::Etcd => &[Mishap::Full, Mishap::FullDisk, Mishap::Restore],
            // Failovers are what loses writes: twice as many.
            Self::Postgresql { .. } => &[
                Mishap::CutClient(1),
                Mishap::CutClient(3),
                Mishap::Terminate,
                Mishap::Failover,
                Mishap::Failover,
            ],
        };
        both.chain([Mishap::Restart])
            .chain(own.iter().copied())
            .collect()
    }

    /// Starts it, with a server on each of these hosts; `None`, which is said aloud, if it is not installed.
    pub(crate) fn start(
        self,
        hosts: &[Arc<Namespace>],
        directory: &Path,
        seed: u64,
    ) -> Option<Box<dyn Servers>> {
        match self {
            Self::Etcd => Some(Box::new(etcd::Etcd::start(
                hosts,
                directory,
                Rng::new(seed),
            )?)),
            Self::Postgresql { is_synchronous } => Some(Box::new(postgresql::Postgresql::start(
                hosts,
                directory,
                is_synchronous,
            )?)),
        }
    }
}

/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one that writes go through.
    Leader,
    /// Another one, the standby.
    Follower,
}

/// What can happen to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// It crashes, and is started again when all is healed.
    Kill(Which),
    /// It stands still.
    Stop(Which),
    /// Its host is cut off, with the agent there if there is one.
    Cut(Which),
    /// The host of an agent is cut off.
    CutClient(u16),
    /// All crash, and are started at once.
    Restart,
    /// It takes no writes, as its database is as large as it may be.
    Full,
    /// One that is not the leader crashes, and finds no room on its disk when it is started.
    FullDisk,
    /// All crash, and are started with the data of long ago.
    Restore,
    /// The connections of all clients are ended, again and again.
    Terminate,
    /// The standby is promoted: a synchronous one of a primary that is cut off, or one that has not the last
    /// writes of a primary that crashed.
    Failover,
    /// Packets get lost, and come late.
    Storm,
}

/// What a mishap does to others.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// The host that nobody reaches meanwhile.
    pub(crate) cut: Option<u16>,
    /// Whether somebody who reaches the others can go on.
    pub(crate) goes_on: bool,
    /// Since when the store has forgotten what was acknowledged, and until when.
    pub(crate) forgot: Option<(u64, u64)>,
}

impl Effect {
    pub(crate) fn goes_on() -> Self {
        Self {
            goes_on: true,
            ..Self::default()
        }
    }

    pub(crate) fn stands_still() -> Self {
        Self::default()
    }

    pub(crate) fn cut(host: u16, goes_on: bool) -> Self {
        Self {
            cut: Some(host),
            goes_on,
            forgot: None,
        }
    }
}

/// A store that runs.
pub(crate) trait Servers: Debug {
    /// Has `mishap` happen. What it does to links itself, between that and this, the caller does for as long
    /// as it lasts.
    fn begin(&mut self, mishap: Mishap, switch: &Switch) -> Effect;

    /// All servers run again, or are about to. Links are whole by then.
    fn heal(&mut self);
}

/// A server's process, which ends with this.
#[derive(Debug)]
struct Server {
    child: Child,
    is_stopped: bool,
}

impl Server {
    fn new(host: &Namespace, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = host.spawn(command).expect("it starts");
        Self {
            child,
            is_stopped: false,
        }
    }

    /// To the server, and to all processes that it has started.
    fn signal(&self, signal: Signal) {
        let own = Pid::from_raw(self.child.id().try_into().expect("a pid"));
        for pid in std::iter::once(own).chain(crate::hosts::children(&self.child)) {
            // Whoever has ended meanwhile needs none.
            let _ = kill(pid, signal);
        }
    }

    fn stop(&mut self) {
        self.signal(Signal::SIGSTOP);
        self.is_stopped = true;
    }

    fn go_on(&mut self) {
        if std::mem::take(&mut self.is_stopped) {
            self.signal(Signal::SIGCONT);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::SIGKILL);
            end(&mut self.child);
        }
    }
}

/// Says aloud that there is no such program; unless `DISTLOCK_TESTS=all` says that there is everything.
fn installed(directories: &[&str], program: &str, package: &str) -> Option<std::path::PathBuf> {
    let all = directories.iter().map(Path::new);
    let found = all.map(|it| it.join(program)).find(|it| it.is_file());
    if found.is_none() {
        let required = std::env::var("DISTLOCK_TESTS").is_ok_and(|tests| tests == "all");
        assert!(!required, "{package} is not installed");
        eprintln!("SKIPPED: {package} is not installed");
    }
    found
}
