//! The command line.

use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::{Arg, Error, Parser, ValueExt};

use crate::demonstration::Size;
use crate::host::LockOptions;
#[cfg(feature = "ipp")]
use crate::printer::Jobs;
use crate::printer::PrinterUri;

const HELP: &str = "\
Prints files at a printer that several hosts share; a lock keeps the files whole.

  print_spooler [OPTIONS]                              four hosts on this machine, shown and checked
  print_spooler --printer URI [OPTIONS] FILE...        print these, each under the lock
  print_spooler --serve ADDRESS --output FILE [OPTIONS]   be a printer

Where to print:
  --printer URI              socket://HOST[:9100] (raw TCP), or in a build with the feature ipp
                             ipp://HOST[:631]/PATH
  --printer-timeout SECONDS  how long the printer may take over one file before it is given up [600]
  --jobs file|line           over IPP: what goes into one job [file]
  --stay                     after printing, answer the other members until standard input ends: they
                             need a majority

The lock; without --config or --socket it is the one that Agent::open finds:
  --lock NAME                its name [printer]
  --algorithm NAME           its algorithm; while the lock is in use it must be the one in use
  --config FILE --id N       be this member of the group in FILE
  --state-dir DIR            where the member keeps its state
  --socket PATH              through the agent of this host that listens here
  --no-lock                  print without the lock, to see what it is for

With --serve (a printer that takes raw TCP), and for the printer of the demonstration:
  --output FILE              print to FILE, line by line
  --line-time SECONDS        the time that a line takes [0.0001]
  --fences FILE              with --serve: refuse a file whose fence is lower than one that was printed;
                             the highest is kept in FILE

The demonstration, without --printer and --serve:
  --hosts N                  how many hosts, 16 at most [4]
  --files N                  how many files each of them has [5]
  --lines N                  how many lines each file has [200]

  -h, --help   -V, --version
";

const VERSION: &str = concat!("print_spooler ", env!("CARGO_PKG_VERSION"), "\n");

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Print files at a printer.
    Print,
    /// Be a printer.
    Serve,
    /// Show that it works.
    Demonstrate,
    /// Tell this.
    Tell(&'static str),
}

use Task::{Demonstrate, Print, Serve};

/// What each option is for.
const OPTIONS: [(&str, &[Task]); 18] = [
    ("printer", &[Print]),
    ("printer-timeout", &[Print]),
    ("jobs", &[Print]),
    ("stay", &[Print]),
    ("lock", &[Print, Demonstrate]),
    ("algorithm", &[Print, Demonstrate]),
    ("config", &[Print]),
    ("id", &[Print]),
    ("state-dir", &[Print]),
    ("socket", &[Print]),
    ("no-lock", &[Print, Demonstrate]),
    ("serve", &[Serve]),
    ("output", &[Serve, Demonstrate]),
    ("line-time", &[Serve, Demonstrate]),
    ("fences", &[Serve]),
    ("hosts", &[Demonstrate]),
    ("files", &[Demonstrate]),
    ("lines", &[Demonstrate]),
];

pub(crate) struct Options {
    pub(crate) task: Task,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) printer: Option<PrinterUri>,
    #[cfg(feature = "ipp")]
    pub(crate) jobs: Jobs,
    pub(crate) printer_timeout: Duration,
    pub(crate) no_lock: bool,
    pub(crate) lock: LockOptions,
    pub(crate) stay: bool,
    pub(crate) serve: Option<SocketAddr>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) fences: Option<PathBuf>,
    pub(crate) line_time: Duration,
    pub(crate) demonstration: Size,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            task: Demonstrate,
            files: Vec::new(),
            printer: None,
            #[cfg(feature = "ipp")]
            jobs: Jobs::File,
            printer_timeout: Duration::from_secs(600),
            no_lock: false,
            lock: LockOptions::default(),
            stay: false,
            serve: None,
            output: None,
            fences: None,
            line_time: Duration::from_micros(100),
            demonstration: Size::default(),
        }
    }
}

impl Options {
    /// Reads a command line, without the program's name.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let mut options = Self::default();
        let mut given = Vec::new();
        let mut parser = Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Value(file) => options.files.push(file.into()),
                Arg::Short('h') | Arg::Long("help") => {
                    options.task = Task::Tell(HELP);
                    return Ok(options);
                }
                Arg::Short('V') | Arg::Long("version") => {
                    options.task = Task::Tell(VERSION);
                    return Ok(options);
                }
                Arg::Long(name) => {
                    let known = OPTIONS.iter().find(|(option, _)| *option == name);
                    let Some(option) = known else {
                        return Err(argument.unexpected());
                    };
                    options
                        .take(option.0, &mut parser)
                        .map_err(|error| match error {
                            Error::ParsingFailed { .. } => {
                                format!("--{}: {error}", option.0).into()
                            }
                            error => error,
                        })?;
                    given.push(option);
                }
                Arg::Short(_) => return Err(argument.unexpected()),
            }
        }
        options.decide(&given)?;
        Ok(options)
    }

    /// Takes the value of an option, if it has one.
    fn take(&mut self, name: &str, parser: &mut Parser) -> Result<(), Error> {
        let (lock, size) = (&mut self.lock, &mut self.demonstration);
        match name {
            "printer" => self.printer = Some(parser.value()?.parse()?),
            "printer-timeout" => self.printer_timeout = parser.value()?.parse_with(seconds)?,
            #[cfg(feature = "ipp")]
            "jobs" => self.jobs = parser.value()?.parse()?,
            "stay" => self.stay = true,
            "lock" => lock.name = parser.value()?.string()?,
            "algorithm" => lock.algorithm = Some(parser.value()?.string()?),
            "config" => lock.config = Some(parser.value()?.into()),
            "id" => lock.id = Some(parser.value()?.parse()?),
            "state-dir" => lock.state_dir = Some(parser.value()?.into()),
            "socket" => lock.socket = Some(parser.value()?.into()),
            "no-lock" => self.no_lock = true,
            "serve" => self.serve = Some(parser.value()?.parse()?),
            "output" => self.output = Some(parser.value()?.into()),
            "line-time" => self.line_time = parser.value()?.parse_with(seconds)?,
            "fences" => self.fences = Some(parser.value()?.into()),
            "hosts" => size.hosts = parser.value()?.parse_with(|text| up_to(16, text))?,
            "files" => size.files_each = parser.value()?.parse_with(|text| up_to(1000, text))?,
            "lines" => size.lines = parser.value()?.parse_with(|text| up_to(100_000, text))?,
            _ => return Err(format!("this build has no --{name}").into()),
        }
        Ok(())
    }

    /// Decides what is to be done, and that these options are for it.
    fn decide(&mut self, given: &[&(&str, &[Task])]) -> Result<(), Error> {
        let has = |name| given.iter().any(|(option, _)| *option == name);
        let (task, does) = match (&self.printer, &self.serve) {
            (_, Some(_)) => (Serve, "--serve"),
            (Some(_), None) => (Print, "printing at --printer"),
            (None, None) => (
                Demonstrate,
                "the demonstration, which is what is done without --printer and --serve",
            ),
        };
        if let Some((name, _)) = given.iter().find(|(_, tasks)| !tasks.contains(&task)) {
            return Err(format!("--{name} is not for {does}").into());
        }
        if let (Serve | Demonstrate, Some(file)) = (task, self.files.first()) {
            return Err(format!("{} is to be printed: name the --printer", file.display()).into());
        }
        let wrong = match task {
            Print if self.files.is_empty() => "nothing to print: name the files",
            Serve if !has("output") => "--serve needs --output",
            _ if has("config") != has("id") => "--config and --id need each other",
            _ if has("state-dir") && !has("config") => "--state-dir needs --config",
            _ if has("config") && has("socket") => {
                "--config and --socket name two agents: give one"
            }
            _ if self.no_lock && ["config", "socket", "algorithm"].into_iter().any(has) => {
                "--no-lock takes no lock: leave --config, --socket and --algorithm out"
            }
            _ => {
                self.task = task;
                return Ok(());
            }
        };
        Err(wrong.into())
    }
}

fn seconds(text: &str) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

/// A number from 1 to `most`.
fn up_to<N>(most: N, text: &str) -> Result<N, String>
where
    N: Copy + PartialOrd + From<u8> + Display + FromStr,
{
    text.parse()
        .ok()
        .filter(|number| (N::from(1)..=most).contains(number))
        .ok_or_else(|| format!("it is not a number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        Options::read(line.split_whitespace().map(OsString::from))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_option_is_taken_for_what_it_is_for() {
        let options =
            read("--printer socket://here:1 --config f --id 2 --state-dir=d a b").unwrap();
        assert_eq!(options.task, Print);
        assert_eq!(options.files, ["a", "b"].map(PathBuf::from));
        assert_eq!(options.lock.id, Some(2));
        assert_eq!(options.lock.state_dir, Some("d".into()));

        let options = read("--serve 127.0.0.1:9100 --output paper --line-time 0.5").unwrap();
        assert_eq!(options.task, Serve);
        assert_eq!(options.line_time, Duration::from_millis(500));

        let options = read("--no-lock --hosts 2 --files 3").unwrap();
        assert_eq!(options.task, Demonstrate);
        assert_eq!(
            (
                options.demonstration.hosts,
                options.demonstration.files_each
            ),
            (2, 3)
        );
    }

    #[test]
    fn help_names_every_option_and_default() {
        for (name, _) in OPTIONS {
            assert!(HELP.contains(&format!("--{name} ")), "{name}");
        }
        let options = Options::default();
        let size = &options.demonstration;
        for default in [
            format!("given up [{}]", options.printer_timeout.as_secs()),
            format!("takes [{}]", options.line_time.as_secs_f64()),
            format!("name [{}]", options.lock.name),
            format!("at most [{}]", size.hosts),
            format!("of them has [{}]", size.files_each),
            format!("each file has [{}]", size.lines),
        ] {
            assert!(HELP.contains(&default), "{default}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_told_why() {
        for (line, why) in [
            ("--printer socket://here", "nothing to print"),
            ("--printer lpd://here file", "--printer: "),
            ("file", "name the --printer"),
            ("--hosts 17", "from 1 to 16"),
            ("--lines", "missing argument for option '--lines'"),
            ("--colour", "invalid option '--colour'"),
            ("--fences f", "--fences is not for the demonstration"),
            (
                "--serve 127.0.0.1:1 --output f --stay",
                "--stay is not for --serve",
            ),
            ("--serve 127.0.0.1:1", "needs --output"),
            ("--printer socket://here --config f file", "need each other"),
            (
                "--printer socket://here --state-dir f file",
                "needs --config",
            ),
            (
                "--printer socket://here --config f --id 1 --socket s file",
                "give one",
            ),
            ("--no-lock --algorithm kernel", "takes no lock"),
        ] {
            match read(line) {
                Err(error) => assert!(error.contains(why), "{line}: {error}"),
                Ok(options) => panic!("{line}: {:?}", options.task),
            }
        }
    }
}
