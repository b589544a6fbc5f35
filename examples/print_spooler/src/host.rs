//! One host: it takes the lock for each of its files, prints it, and tells when.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use distlock::{Agent, Config, DistMutex};

use crate::check::Report;
use crate::document::Document;
use crate::options::Options;
use crate::printer::{self, PrinterUri};
use crate::{Result, clock, say};

/// Which lock, and how to come by it; without any of these, as `Agent::open` finds it.
pub(crate) struct LockOptions {
    pub(crate) name: String,
    pub(crate) algorithm: Option<String>,
    /// As a member of the group in this file, the one with the number `id`.
    pub(crate) config: Option<PathBuf>,
    pub(crate) id: Option<u16>,
    pub(crate) state_dir: Option<PathBuf>,
    /// Through the agent of this host that listens here.
    pub(crate) socket: Option<PathBuf>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            name: "printer".to_owned(),
            algorithm: None,
            config: None,
            id: None,
            state_dir: None,
            socket: None,
        }
    }
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
