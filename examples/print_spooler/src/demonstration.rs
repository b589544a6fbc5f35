//! Four hosts on this machine, each a process with an agent, and one printer: what came out of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::unistd::mkdtemp;

use crate::check::{self, Paper, Report};
use crate::options::Options;
use crate::{Result, hosts, paper, say};

/// The size of the demonstration.
pub(crate) struct Size {
    pub(crate) hosts: u16,
    pub(crate) files_each: u32,
    /// How many lines each file has.
    pub(crate) lines: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            hosts: 4,
            files_each: 5,
            lines: 200,
        }
    }
}

/// Runs it, shows what came out, and fails if that is not as it must be.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let scratch = Scratch::new()?;
    let directory = scratch.0.as_path();
    let size = &options.demonstration;
    let algorithm = options
        .lock
        .algorithm
        .as_deref()
        .unwrap_or("ricart-agrawala");
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| directory.join("paper.txt"));

    let files = write_files(directory, size)?;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let fences = (!options.no_lock).then(|| directory.join("fences"));
    let printer = paper::Printer::start(any_port, &output, options.line_time, fences)?;
    let group = Group::new(directory, options, algorithm)?;
    say(format_args!(
        "{} hosts, each with {} files of {} lines; one printer at socket://{}\n{}",
        size.hosts,
        size.files_each,
        size.lines,
        printer.address(),
        group.description(options, algorithm),
    ))?;

    let commands = (1..=size.hosts).map(|host| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "--printer",
            &format!("socket://{}", printer.address()),
            "--stay",
        ]);
        group.arguments(&mut command, host, options);
        command.args((1..=size.files_each).map(|file| directory.join(file_name(host, file))));
        Ok(command)
    });
    let mut reports = hosts::run(commands.collect::<Result<_>>()?, files.len())?;

    let text = fs::read_to_string(&output)?;
    let paper = Paper::read(&text, &files)?;
    if options.no_lock {
        show_mess(&text, &paper)
    } else {
        let verdict = paper.check_turns(&mut reports);
        show_turns(&reports)?;
        verdict?;
        say(format_args!(
            "{} files, {} lines: every file is whole, they came in the order of the grants, and \
             the fences rise",
            paper.whole.len(),
            text.lines().count(),
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A directory of the demonstration's own, which goes when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let template = std::env::temp_dir().join("print-shop-XXXXXX");
        let made = mkdtemp(&template);
        made.map(Self)
            .map_err(|error| format!("cannot make {}: {error}", template.display()).into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed from a directory of temporary files stays there.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn file_name(host: u16, file: u32) -> String {
    format!("host{host}-file{file}")
}

fn write_files(directory: &Path, size: &Size) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for host in 1..=size.hosts {
        for file in 1..=size.files_each {
            let name = file_name(host, file);
            let text = check::text(&name, size.lines);
            fs::write(directory.join(&name), &text)?;
            files.insert(name, text);
        }
    }
    Ok(files)
}

/// How the hosts come by their lock.
enum Group<'a> {
    /// Not at all.
    None,
    /// Through the kernel, in a directory of the demonstration's own.
    Local(&'a Path),
    /// Each with an agent of its own, over UDP.
    Members(&'a Path),
}

impl<'a> Group<'a> {
    fn new(directory: &'a Path, options: &Options, algorithm: &str) -> Result<Self> {
        if options.no_lock {
            return Ok(Self::None);
        }
        if algorithm == "kernel" {
            return Ok(Self::Local(directory));
        }
        // The sockets are closed again before the members open them. All are open at once here, so
        // that no two get the same port; and on a loopback address of this process's own, so that
        // nobody else takes one meanwhile.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let own = Ipv4Addr::new(127, 64 | a & 63, b, c);
        let sockets: Vec<_> = (0..options.demonstration.hosts)
            .map(|_| UdpSocket::bind((own, 0)))
            .collect::<Result<_, _>>()?;
        let mut config = format!("algorithm = \"{algorithm}\"\n[group]\nname = \"print-shop\"\n");
        for (socket, id) in sockets.iter().zip(1..) {
            let address = socket.local_addr()?;
            config += &format!("[[member]]\nid = {id}\naddress = \"udp:{address}\"\n");
        }
        fs::write(directory.join("distlock.toml"), config)?;
        Ok(Self::Members(directory))
    }

    fn description(&self, options: &Options, algorithm: &str) -> String {
        let lock = &options.lock.name;
        match self {
            Self::None => "no lock".to_owned(),
            Self::Local(_) => format!("lock {lock:?}, by the kernel of this machine"),
            Self::Members(_) => {
                format!("lock {lock:?}, {algorithm} between their agents, over UDP on loopback")
            }
        }
    }

    fn arguments(&self, command: &mut Command, host: u16, options: &Options) {
        match self {
            Self::None => {
                command.arg("--no-lock");
                return;
            }
            Self::Local(directory) => {
                command.env("DISTLOCK_DIR", directory.join("locks"));
            }
            Self::Members(directory) => {
                let id = host.to_string();
                command.arg("--config").arg(directory.join("distlock.toml"));
                command
                    .args(["--id", &id])
                    .arg("--state-dir")
                    .arg(directory.join(id));
            }
        }
        command.args(["--lock", &options.lock.name]);
    }
}

fn show_turns(reports: &[Report]) -> io::Result<()> {
    let start = reports
        .iter()
        .map(|report| report.requested)
        .min()
        .unwrap_or_default();
    say(format_args!(
        "\n{:>20}  {:<15} {:>11} {:>10} {:>10}",
        "fence", "file", "granted at", "waited", "inside"
    ))?;
    for report in reports {
        let Report {
            fence,
            requested,
            granted,
            released,
            name,
        } = report;
        let fence = fence.map_or("-".to_owned(), |fence| fence.to_string());
        let [at, waited, inside] = [
            *granted - start,
            *granted - *requested,
            *released - *granted,
        ]
        .map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
        say(format_args!(
            "{fence:>20}  {name:<15} {at:>11} {waited:>10} {inside:>10}"
        ))?;
    }
    say("")
}

fn show_mess(text: &str, paper: &Paper) -> Result<ExitCode> {
    say(format_args!("\nthe first lines on the paper:"))?;
    for line in text.lines().take(16) {
        say(format_args!("  {line}"))?;
    }
    say(format_args!(
        "\n{} of {} files are whole; {} times a line is followed by one of another file",
        paper.whole.len(),
        paper.whole.len() + paper.torn.len(),
        paper.changes,
    ))?;
    if paper.torn.is_empty() {
        return Err("nothing was mixed: give more --hosts or --lines".into());
    }
    Ok(ExitCode::SUCCESS)
}
