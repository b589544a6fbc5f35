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
//! IPP is a feature of the package, `ipp`. The lock is held until the printer is through with a file, not until its last byte was sent: see
//! `printer.rs`. Every file's fence goes into its job title and onto its banner line. The printer of
//! `--serve` refuses one that is lower than one it has seen (`gate.rs`): without such a check a lock
//! is advisory.

mod check;
mod clock;
mod demonstration;
mod document;
mod gate;
mod host;
mod hosts;
mod paper;
mod printer;

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

#[cfg(feature = "ipp")]
use crate::printer::Jobs;
use crate::printer::PrinterUri;

/// The exit code of a wrong command line, as in sysexits.h.
const USAGE: u8 = 64;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Prints files at a printer that several hosts share; a lock keeps the files whole.
///
/// Without FILE it is a demonstration: four hosts on this machine, a printer of its own, and a
/// check of what came out.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Options {
    /// The files to print, each under the lock.
    #[arg(value_name = "FILE", requires = "printer")]
    files: Vec<PathBuf>,
    /// Where to print: socket://HOST[:9100] (raw TCP) or, in a build with the feature ipp,
    /// ipp://HOST[:631]/PATH.
    #[arg(long, value_name = "URI")]
    printer: Option<PrinterUri>,
    /// Over IPP: what goes into one job.
    #[cfg(feature = "ipp")]
    #[arg(long, value_enum, default_value_t = Jobs::File, requires = "printer")]
    jobs: Jobs,
    /// How long the printer may take over one file before it is given up, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "600",
        requires = "printer")]
    printer_timeout: Duration,
    /// Print without the lock, to see what it is for.
    #[arg(long, conflicts_with_all = ["config", "socket", "algorithm"])]
    no_lock: bool,
    #[command(flatten)]
    lock: host::LockOptions,
    /// After printing, answer the other members until standard input ends: they need a majority.
    #[arg(long, requires = "printer")]
    stay: bool,
    /// Be a printer: listen for raw TCP, print what comes in, line by line, to --output.
    #[arg(long, value_name = "ADDRESS", requires = "output",
        conflicts_with_all = ["printer", "files"])]
    serve: Option<SocketAddr>,
    /// The file that --serve and the demonstration print to.
    #[arg(long, value_name = "FILE", conflicts_with = "printer")]
    output: Option<PathBuf>,
    /// With --serve: refuse files whose fence is lower than one that was printed. The highest is kept
    /// in FILE.
    #[arg(long, value_name = "FILE", requires = "serve")]
    fences: Option<PathBuf>,
    /// The time the printer of --serve and of the demonstration takes over a line, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0.0001",
        conflicts_with = "printer")]
    line_time: Duration,
    #[command(flatten)]
    demonstration: demonstration::Size,
}

fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(error) => {
            // Who closed the output does not want the help any more.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
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

impl Options {
    fn read() -> Result<Self, clap::Error> {
        let options = Self::try_parse()?;
        match &options.printer {
            Some(uri) if options.files.is_empty() => Err(Self::command().error(
                ErrorKind::MissingRequiredArgument,
                format_args!("nothing to print at {uri}: name the files"),
            )),
            _ => Ok(options),
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
    if let (Some(address), Some(output)) = (options.serve, &options.output) {
        let printer =
            paper::Printer::start(address, output, options.line_time, options.fences.clone())?;
        say(format_args!("socket://{}", printer.address()))?;
        return printer.wait();
    }
    match &options.printer {
        Some(uri) => host::print_files(options, uri),
        None => demonstration::run(options),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
