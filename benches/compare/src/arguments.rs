//! What the program is told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::locks::System;

/// Everything, in the order of the command line's help.
pub(crate) struct Arguments {
    pub(crate) rounds: usize,
    /// How long one measurement takes, in nanoseconds.
    pub(crate) nanos: u64,
    /// Parts of the names of the systems that are measured; all if there are none.
    only: Vec<String>,
    /// The cores that workers are pinned to, in turn; none if they run where the kernel likes.
    pub(crate) cores: Vec<usize>,
    pub(crate) json: Option<PathBuf>,
    servers: BTreeMap<String, Server>,
}

/// The nodes of a server.
#[derive(Default)]
pub(crate) struct Server {
    pub(crate) addresses: Vec<String>,
    pub(crate) pids: Vec<u32>,
}

impl Arguments {
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the kernel tells our cores");
        let cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
        let mut parsed = Self {
            rounds: 5,
            nanos: 1_000_000_000,
            only: Vec::new(),
            cores: cores.take(2).collect(),
            json: None,
            servers: BTreeMap::new(),
        };
        while let Some(name) = arguments.next() {
            if name == "--free" {
                parsed.cores.clear();
                continue;
            }
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            let wrong = || format!("{name} cannot be {value}");
            match name.as_str() {
                "--rounds" => parsed.rounds = value.parse().map_err(|_| wrong())?,
                "--secs" => {
                    let secs: f64 = value.parse().map_err(|_| wrong())?;
                    if !(0.01..=10.0).contains(&secs) {
                        return Err(wrong());
                    }
                    parsed.nanos = (secs * 1e9) as u64;
                }
                "--only" => parsed.only = value.split(',').map(str::to_owned).collect(),
                "--json" => parsed.json = Some(value.into()),
                "--server" => {
                    let (name, server) = parse_server(&value).ok_or_else(wrong)?;
                    parsed.servers.insert(name, server);
                }
                _ => return Err(format!("{name} is not known")),
            }
        }
        Ok(parsed)
    }

    /// The systems that are measured, with their servers. Tells of those that lack one.
    pub(crate) fn systems(&self) -> Vec<(System, &Server)> {
        const NONE: &Server = &Server {
            addresses: Vec::new(),
            pids: Vec::new(),
        };
        let mut systems = Vec::new();
        for system in System::ALL {
            let name = system.name();
            if !self.only.is_empty() && !self.only.iter().any(|part| name.contains(part)) {
                continue;
            }
            match system.server().map(|server| self.servers.get(server)) {
                None => systems.push((system, NONE)),
                Some(Some(server)) => systems.push((system, server)),
                Some(None) => eprintln!("SKIPPED: {name}: no such server is named"),
            }
        }
        systems
    }

    /// What a reader of the results needs to know of them.
    pub(crate) fn json(&self) -> Value {
        json!({ "nanoseconds": self.nanos, "cores of the workers": self.cores })
    }
}

/// NAME=ADDRESS,ADDRESS@PID,PID
fn parse_server(text: &str) -> Option<(String, Server)> {
    let (name, nodes) = text.split_once('=')?;
    let (addresses, pids) = nodes.split_once('@')?;
    let pids = pids.split(',').map(|pid| pid.parse().ok());
    let server = Server {
        addresses: addresses.split(',').map(str::to_owned).collect(),
        pids: pids.collect::<Option<_>>()?,
    };
    Some((name.to_owned(), server))
}
