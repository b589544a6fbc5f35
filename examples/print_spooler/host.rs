//! One host: it takes the lock for each of its files, prints it, and tells when.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use distlock::Agent;

use crate::check::Report;
use crate::document::Document;
use crate::printer::{self, PrinterUri};
use crate::{Options, Result, clock};

/// Which lock, and how to come by it; without any of these, that of this user on this host.
#[derive(Args)]
pub(crate) struct LockOptions {
    /// The lock's name.
    #[arg(long = "lock", value_name = "NAME", default_value = "printer")]
    pub(crate) name: String,
    /// The algorithm; it must be the lock's if the lock is in use.
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
}

/// Prints the files of the command line, one after the other, and reports each.
pub(crate) fn print_files(options: &Options, printer: &PrinterUri) -> Result<ExitCode> {
    let agent = if options.no_lock {
        None
    } else {
        Some(Agent::local()?)
    };
    let lock = match (&agent, &options.lock.algorithm) {
        (Some(agent), Some(algorithm)) => {
            Some(agent.mutex_with(&options.lock.name, algorithm.parse()?)?)
        }
        (Some(agent), None) => Some(agent.mutex(&options.lock.name)?),
        (None, _) => None,
    };
    for path in &options.files {
        let requested = clock::now();
        let guard = lock.as_ref().map(|lock| lock.lock()).transpose()?;
        let granted = clock::now();
        let fence = guard
            .as_ref()
            .and_then(|guard| guard.fence())
            .map(|fence| fence.as_u64());

        let document = Document::open(path, fence)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let held = || guard.as_ref().is_none_or(|guard| guard.is_held());
        printer::print(
            printer,
            options.jobs,
            document,
            options.printer_timeout,
            &held,
        )?;

        let released = clock::now();
        if let Some(guard) = guard {
            guard.unlock()?;
        }
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        // Not `println!`: whoever reads this may have gone.
        writeln!(
            io::stdout(),
            "{}",
            Report {
                fence,
                requested,
                granted,
                released,
                name
            }
        )?;
    }
    if options.stay {
        io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    }
    Ok(ExitCode::SUCCESS)
}
