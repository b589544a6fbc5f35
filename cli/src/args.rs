//! The command line, as the contract fixes it.

mod audit;
mod doctor;
mod group;
mod store;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use distlock_agent::protocol::ClusterId;
use distlock_agent::protocol::ids::LockName;

pub(crate) use self::audit::{Audit, AuditCommand, AuditVerify};
pub(crate) use self::doctor::Doctor;
pub(crate) use self::group::Group;
pub(crate) use self::store::{Store, StoreCheck, StoreCommand, StoreGc, StoreInit};
use crate::completions;
use crate::exit::{self, Failure};

/// Mutual exclusion for programs on one host or many, without a server.
///
/// On one machine nothing has to be set up: `distlock run NAME COMMAND` takes turns with every
/// other `distlock run NAME` of the same user. For several hosts, see distlock(1).
#[derive(Debug, Parser)]
#[command(name = "distlock", version, args_override_self = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

// One command's options are made, not those of all: that is a tenth of the start of `run`.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Hold the lock NAME while COMMAND runs.
    ///
    /// Of a lock that the configuration lists with several permits it takes one.
    ///
    /// Exits with COMMAND's own code, or: 1 (or -E) not acquired in time; 64 wrong usage; 66 no such
    /// file; 69 agent or quorum unreachable; 77 permission; 78 configuration; 79 the lock was lost
    /// and COMMAND ended; 126 and 127 COMMAND not executable, not found; 128+N COMMAND died of
    /// signal N.
    Run(Run),
    /// Run COMMAND on one host at a time: the leader.
    ///
    /// Of all that run it for NAME one is elected, runs COMMAND and holds the lock NAME while it
    /// does; when it is gone, another takes over. It ends with COMMAND's own code when COMMAND has
    /// ended.
    ///
    /// Options and exit codes are those of `distlock run`.
    Elect(Elect),
    /// Be this host's member of a group, and serve the programs on this host.
    ///
    /// Prints a line that begins with `ready` once they can connect, and runs until a TERM, INT or
    /// HUP signal: then it releases what is held, leaves the group and exits with 0.
    ///
    /// It serves at the socket that --socket or DISTLOCK_SOCKET names, or at
    /// /run/distlock/distlock.sock. Only programs of its own user and of root may use that.
    Agent(Agent),
    /// Show the group's members, its locks, who holds them and who waits.
    Status(Status),
    /// Show the group's members and what is known of them, or change who they are.
    Members(Members),
    /// Show who holds the lock NAME, and who waits for it.
    Who(Who),
    /// Show the group on a screen that is kept up to date: rates, and locks by heat.
    ///
    /// The key ? shows the keys. Standard output must be a terminal, unless --once is given.
    Top(crate::top::args::Top),
    /// Print what this host's agent counts and measures.
    ///
    /// As text that Prometheus and most other tools read. Where the configuration says [metrics] listen,
    /// the agent serves the same by HTTP, at /metrics.
    Metrics(Metrics),
    /// Begin anew as a voter, after a majority of the voters has lost its state.
    ///
    /// For this host's member, while its agent is stopped, and at every voter that the file lists.
    /// Then start their agents: together they found the group anew, with higher fences, once all
    /// former leases are over. Where a majority still runs, on the other side of a cut, there would
    /// be two groups: nobody checks that, so it takes --force.
    Recover(Recover),
    /// Check fences, at the resource that a lock protects.
    Fence(Fence),
    /// Look at a store that has the locks, and care for it.
    Store(Store),
    /// Check configuration files.
    Config(Config),
    /// Check audit logs.
    Audit(Audit),
    /// Look for faults on this host, in its group and in its file, and tell what to do.
    Doctor(Doctor),
    /// Write a new group key to the new file FILE.
    ///
    /// Only its owner can read it (mode 0600). Copy it to every host of the group, over a way that
    /// nobody else can read, and set key_file in the configuration. FILE is never overwritten: a file
    /// may have several keys, and distlock.toml(5) says how one is replaced while the group runs.
    ///
    /// Prints the key's id, which is no secret. Exits with 73 if there is a FILE already.
    Keygen(Keygen),
    /// Run an algorithm in the simulator, and tell what its entries cost.
    ///
    /// What runs is what agents run, in simulated time. It tells the messages an entry, the response
    /// time (from the request to the exit) and the synchronisation delay (from an exit to the next
    /// entry, where somebody waits), in units of T, a message's time on the way, and of E, the time
    /// inside; beside them what must come out of it, and what the books say.
    ///
    /// Without --loss and --crash the engines run alone; with them whole nodes do, with links, views
    /// and leases, and only the engines' messages are counted.
    Sim(crate::sim::args::Sim),
    /// Merge the traces of a group's agents: into a diagram, a log for ShiViz, or a story.
    ///
    /// Agents write traces where --trace or DISTLOCK_TRACE says. FILE is one of them, or a directory
    /// with several. Those of all members belong together; of a member whose trace is missing only
    /// what the others say is known.
    ///
    /// Without --story it tells what there is: from when to when, of whom, which locks.
    Trace(crate::trace::args::Trace),
    /// Print the script by which a shell completes this command line.
    ///
    /// distlock(1) says where each shell looks for it.
    Completions(Completions),
}

#[derive(Debug, Args)]
#[command(
    override_usage = "distlock run [OPTIONS] NAME [--] COMMAND [ARG]...\n       \
                            distlock run [OPTIONS] NAME -c STRING",
    args_override_self = true
)]
pub(crate) struct Run {
    /// Share the lock with others who share it
    #[arg(short, long, overrides_with = "exclusive")]
    pub(crate) shared: bool,

    /// Hold the lock alone (the default)
    #[arg(short = 'x', short_alias = 'e', long, overrides_with = "shared")]
    pub(crate) exclusive: bool,

    /// The algorithm that must serve the lock
    #[arg(long, value_name = "ALGORITHM", add = ArgValueCandidates::new(completions::algorithms))]
    pub(crate) algorithm: Option<String>,

    #[command(flatten)]
    pub(crate) work: Work,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "distlock elect [OPTIONS] NAME [--] COMMAND [ARG]...\n       \
                            distlock elect [OPTIONS] NAME -c STRING",
    args_override_self = true
)]
pub(crate) struct Elect {
    /// The algorithm by which the group must elect
    #[arg(long, value_name = "ALGORITHM", add = ArgValueCandidates::new(completions::elections))]
    pub(crate) algorithm: Option<String>,

    #[command(flatten)]
    pub(crate) work: Work,
}

// What runs, in which group, and for how long it is waited: of `run` and of `elect`. No `///`, which
// would be the help text of those two.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// Fail at once if the lock is not free
    #[arg(short, long, alias = "nb")]
    pub(crate) nonblock: bool,

    /// Fail if the lock is not acquired within SECONDS (fractions allowed, 0 means -n)
    #[arg(short = 'w', long, alias = "wait", value_name = "SECONDS", allow_negative_numbers = true,
          value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Exit code when the lock is not acquired in time
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,

    /// Exit code when the lock is lost while COMMAND runs
    #[arg(long, value_name = "N", default_value_t = exit::LOST)]
    pub(crate) lost_exit_code: u8,

    /// Run STRING by the shell ($SHELL, or /bin/sh)
    #[arg(
        short = 'c',
        long = "command",
        value_name = "STRING",
        conflicts_with = "program"
    )]
    pub(crate) script: Option<OsString>,

    /// Print the acquisition time to standard error
    #[arg(long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) group: Group,

    /// The name of the lock: 1 to 255 bytes
    #[arg(value_name = "NAME", value_parser = clap::value_parser!(OsString),
          add = ArgValueCompleter::new(completions::lock_names))]
    pub(crate) name: OsString,

    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        add = ArgValueCompleter::new(completions::CommandWords),
        required_unless_present = "script"
    )]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "distlock agent [OPTIONS] --config FILE --id N\n       \
                            distlock agent [OPTIONS] --at PLACE",
    args_override_self = true
)]
pub(crate) struct Agent {
    /// Write down what happens, in a file below DIR, for 'distlock trace'
    /// [environment: DISTLOCK_TRACE]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completions::files))]
    pub(crate) trace: Option<PathBuf>,

    /// How to tell on standard error what happens
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,

    #[command(flatten)]
    pub(crate) group: Group,
}

/// How what happens is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Status {
    /// Exit with 69 without a quorum or an agent
    #[arg(long, conflicts_with = "watch")]
    pub(crate) check: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) watch: crate::watch::args::Watch,

    #[command(flatten)]
    pub(crate) group: Group,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Fence {
    #[command(subcommand)]
    pub(crate) command: FenceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    Check(FenceCheck),
}

/// Refuse FENCE if it is lower than one that FILE has seen, or that a store has given.
///
/// With --at, FILE is the name of a lock, and FENCE is refused if it is lower than the last one that
/// the store has given of that lock: for resources on many hosts. Nothing is kept then, and 69 also
/// means that the store does not answer, or has no record of the lock.
///
/// Exits with 0: FENCE is not lower than any seen, and is kept in FILE durably. 1: it is lower, and
/// refused: its holder has lost the lock. Otherwise that cannot be known, and nothing should be
/// done: 64 FENCE is no fence; 66 no such directory; 69 the system fails; 77 permission; 78 FILE is
/// damaged.
///
/// FILE is made by the first check, and FILE.lock beside it. Any number may check at once.
#[derive(Debug, Args)]
pub(crate) struct FenceCheck {
    /// The store that gives the fences, like etcd://10.0.0.1; then FILE is the name of the lock
    #[arg(long, value_name = "PLACE")]
    pub(crate) at: Option<String>,

    /// Where the highest fence is kept: one file for each resource
    #[arg(value_name = "FILE", add = ArgValueCompleter::new(completions::files))]
    pub(crate) file: PathBuf,

    /// The fence, as DISTLOCK_FENCE has it
    #[arg(value_name = "FENCE", value_hint = ValueHint::Other, allow_hyphen_values = true)]
    pub(crate) fence: String,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    Check(ConfigCheck),
}

/// Tell what FILE says, and what in it may be meant otherwise.
///
/// No group has to run. Lines that begin with `warning:` are about what may be said and is not often
/// meant. Exits with 0 if agents would take the file, and the key file that it names. Otherwise: 66
/// no such file; 69 the system fails; 77 permission; 78 it is refused, with the line and the reason.
#[derive(Debug, Args)]
pub(crate) struct ConfigCheck {
    /// The configuration of a group: distlock.toml(5)
    #[arg(value_name = "FILE", add = ArgValueCompleter::new(completions::files))]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Where the key is written
    #[arg(value_name = "FILE", add = ArgValueCompleter::new(completions::files))]
    pub(crate) file: PathBuf,
}

/// A shell that can be told what to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Members {
    #[command(subcommand)]
    pub(crate) change: Option<Change>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) group: Group,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Recover {
    /// It is certain that no majority of the voters has its state any more
    #[arg(long)]
    pub(crate) force: bool,

    /// The cluster that is abandoned, where this member's state is lost, too: what `distlock status`
    /// shows on a member that remembers it
    #[arg(long, value_name = "ID")]
    pub(crate) cluster: Option<ClusterId>,

    #[command(flatten)]
    pub(crate) group: Group,
}

// A change of who belongs to the group.
#[derive(Debug, Subcommand)]
pub(crate) enum Change {
    /// Let member ID, at ADDRESS, belong to the group
    Add {
        /// Which member, 1 to 65535
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u16).range(1..))]
        member: u16,
        /// Where it is reached, as in the configuration: udp:10.0.0.4:7400
        address: String,
        #[command(flatten)]
        group: Group,
    },
    /// Have these members vote, one to seven, in place of those who vote now
    ///
    /// One voter comes or goes at a time, while the group goes on. `voters` in a configuration file
    /// counts only when the group is founded.
    Voters {
        /// Which members, 1 to 65535 each
        #[arg(
            value_name = "ID", required = true, num_args = 1..=7,
            value_parser = clap::value_parser!(u16).range(1..)
        )]
        members: Vec<u16>,
        #[command(flatten)]
        group: Group,
    },
    /// Exclude member ID for good
    Remove {
        /// Which member, 1 to 65535
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u16).range(1..))]
        member: u16,
        #[command(flatten)]
        group: Group,
    },
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Who {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) watch: crate::watch::args::Watch,

    #[command(flatten)]
    pub(crate) group: Group,

    /// The lock: 1 to 255 bytes
    #[arg(value_name = "NAME", value_parser = clap::value_parser!(OsString),
          add = ArgValueCompleter::new(completions::lock_names))]
    pub(crate) name: OsString,
}

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Metrics {
    /// Print OpenMetrics 1.0 in place of the older text format
    #[arg(long)]
    pub(crate) openmetrics: bool,

    #[command(flatten)]
    pub(crate) group: Group,
}

impl Command {
    /// What a command that runs another works on, and the command's name.
    pub(crate) fn work(&self) -> Option<(&Work, &'static str)> {
        match self {
            Self::Run(run) => Some((&run.work, "run")),
            Self::Elect(elect) => Some((&elect.work, "elect")),
            _ => None,
        }
    }
}

impl Work {
    /// The lock's name.
    pub(crate) fn lock_name(&self, command: &str) -> Result<LockName, Failure> {
        lock_name(&self.name, command)
    }

    /// The program and its arguments; nothing where the shell runs a string. A second `--` divides a
    /// name that starts with a dash from the command, as in `run -- -x -- ls`.
    pub(crate) fn program(&self) -> &[OsString] {
        match self.program.split_first() {
            Some((first, rest)) if first == "--" => rest,
            _ => &self.program,
        }
    }

    /// The program and its arguments. A string is run as flock(1) runs it: by the user's shell.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.script {
            None => self.program().to_vec(),
            Some(script) => {
                let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty());
                let shell = shell.unwrap_or_else(|| "/bin/sh".into());
                vec![shell, "-c".into(), script.clone()]
            }
        }
    }

    /// How long to wait: `None` is without end, zero is not at all.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.nonblock {
            Some(Duration::ZERO)
        } else {
            self.timeout
        }
    }
}

impl Who {
    /// The lock's name.
    pub(crate) fn lock_name(&self) -> Result<LockName, Failure> {
        lock_name(&self.name, "who")
    }
}

fn lock_name(name: &OsStr, command: &str) -> Result<LockName, Failure> {
    use std::os::unix::ffi::OsStrExt;
    LockName::new(name.as_bytes()).map_err(|error| Failure::usage(error, command))
}

/// Seconds as flock(1) takes them.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "seconds are a number, like 2 or 0.5".to_owned())?;
    if !seconds.is_finite() || seconds.is_sign_negative() && seconds != 0.0 {
        return Err("seconds are a number from 0 up".to_owned());
    }
    Duration::try_from_secs_f64(seconds.abs()).map_err(|_| "timeout too large".to_owned())
}
