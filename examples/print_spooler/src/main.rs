//! The print spooler of Jones's lecture, without a spooler: hosts that compete for a printer send
//! their files straight to it, each line a message of its own, and a lock keeps the files whole.
//!
//! ```text
//! print_spooler                              four hosts on this machine, shown and checked
//! print_spooler --no-lock                    the same without the lock: the mess
//! print_spooler --printer ipp://10.0.0.9/ipp/print a.txt
//! print_spooler --printer socket://10.0.0.9 --config shop.toml --id 2 a.txt b.txt
//! print_spooler --serve 127.0.0.1:9100 --output paper.txt
//! ```
//!
//! IPP is a feature of the package, `ipp`. The lock is held until the printer is through with a file, not
//! until its last byte was sent: see `printer.rs`. Every file's fence goes into its job title and onto its
//! banner line. The printer of `--serve` refuses one that is lower than one it has seen (`gate.rs`):
//! without such a check a lock is advisory.

mod check;
mod clock;
mod demonstration;
mod document;
mod gate;
mod host;
mod hosts;
mod options;
mod paper;
mod printer;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::options::{Options, Task};

/// The exit code of a wrong command line, as in sysexits.h.
const USAGE: u8 = 64;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let options = match Options::read(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            complain(format_args!("print_spooler: {error}; see --help"));
            return ExitCode::from(USAGE);
        }
    };
    match run(&options) {
        Ok(code) => code,
        Err(error) => {
            complain(format_args!("print_spooler: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard output. A reader that went away wants no more, and the printing goes
/// on: `println!` would panic.
fn say(line: impl Display) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said,
    }
}

/// Writes a line to standard error. Whoever closed it does not want to know.
fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn run(options: &Options) -> Result<ExitCode> {
    match (
        options.task,
        &options.printer,
        options.serve,
        &options.output,
    ) {
        (Task::Tell(text), ..) => {
            say(text.trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        (Task::Serve, _, Some(address), Some(output)) => {
            let fences = options.fences.clone();
            let printer = paper::Printer::start(address, output, options.line_time, fences)?;
            say(format_args!("socket://{}", printer.address()))?;
            printer.wait()
        }
        (Task::Print, Some(uri), ..) => host::print_files(options, uri),
        _ => demonstration::run(options),
    }
}
