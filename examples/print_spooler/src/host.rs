//! One host: it takes the lock for each of its files, prints it, and tells when.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use distlock::{Agent, Config, DistMutex};

use crate::check::Report;
use crate::document::Document;
use crate::printer::{self, PrinterUri};
use crate::{Options, Result, clock, say};

/// Which lock, and how to come by it; without any of these, as `Agent::open` finds it.
#[derive(Args)]
pub(crate) struct LockOptions {
    /// The lock's name.
    #[arg(long = "lock", value_name = "NAME", default_value = "printer")]
    pub(crate) name: String,
    /// As a member of the group in this file.
    #[arg(long, value_name = "FILE", requires_all = ["id", "printer"], conflicts_with = "socket")]
    config: Option<PathBuf>,
    /// As this member.
    #[arg(long, value_name = "N", requires = "config")]
    id: Option<u16>,
    /// Where the member keeps its state.
    #[arg(long, value_name = "DIR", requires = "config")]
    state_dir: Option<PathBuf>,
    /// Through the agent of this host that listens here.
    #[arg(long, value_name = "PATH", requires = "printer")]
    socket: Option<PathBuf>,
    /// The algorithm; it must be the lock's if the lock is in use.
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
}

impl LockOptions {
    fn agent(&self) -> Result<Agent> {
        let agent = match (&self.config, self.id, &self.socket) {
            (Some(config), Some(id), _) => {
                let mut node = Config::load(config)?.node(id)?;
                if let Some(directory) = &self.state_dir {
                    node = node.with_state_dir(directory);
                }
                Agent::from_config(node)?
            }
            (_, _, Some(socket)) => Agent::connect(socket)?,
            _ => Agent::open()?,
        };
        Ok(agent)
    }
}

/// Prints the files of the command line, one after the other, and reports each.
pub(crate) fn print_files(options: &Options, printer: &PrinterUri) -> Result<ExitCode> {
    let agent = if options.no_lock {
        None
    } else {
        Some(options.lock.agent()?)
    };
    let lock = match (&agent, &options.lock.algorithm) {
        (Some(agent), Some(algorithm)) => {
            let served = distlock::LockOptions::new().algorithm(algorithm.parse()?);
            Some(agent.mutex_with(&options.lock.name, &served)?)
        }
        (Some(agent), None) => Some(agent.mutex(&options.lock.name)?),
        (None, _) => None,
    };
    for path in &options.files {
        // Opened before the wait: nobody wants to hear at the end of a queue that it is not there.
        let file =
            File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();

        let requested = clock::now();
        let guard = lock.as_ref().map(|lock| lock.lock()).transpose()?;
        let granted = clock::now();
        let fence = guard
            .as_ref()
            .and_then(|guard| guard.fence())
            .map(|fence| fence.as_u64());
        let held = || guard.as_ref().is_none_or(|guard| guard.is_held());
        let document = Document::new(&name, file, fence);
        printer::print(printer, options, document, &held)?;
        let released = clock::now();
        if let Some(guard) = guard {
            guard.unlock()?;
        }

        let report = Report {
            fence,
            requested,
            granted,
            released,
            name,
        };
        say(report)?;
    }
    if options.stay {
        io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    }
    Ok(ExitCode::SUCCESS)
}
