//! The options of `distlock sim`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::engine::ArgValueCompleter;

use crate::completions;
use clap::{Args, ValueEnum};
use distlock_agent::protocol::{Algorithm, NodeId};
use distlock_lab::choices::Permille;
use distlock_lab::costs;

#[derive(Debug, Args)]
#[command(
    override_usage = "distlock sim [OPTIONS] ALGORITHM\n       \
                            distlock sim --compare [--nodes N[,N]...] [ALGORITHM]",
    args_override_self = true
)]
pub(crate) struct Sim {
    /// The algorithm
    #[arg(value_name = "ALGORITHM", value_parser = algorithms(),
          required_unless_present = "compare")]
    pub(crate) algorithm: Option<Algorithm>,

    /// How many nodes, 1 to 1024 [default: 5]; with --compare one or several sizes
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) nodes: Vec<u16>,

    /// Who asks when
    #[arg(long, value_enum, default_value_t = Load::Heavy)]
    pub(crate) load: Load,

    /// How messages are delayed: all by T, or exponentially distributed around it
    #[arg(long, value_enum, default_value_t = Delay::Constant)]
    pub(crate) delay: Delay,

    /// How long a caller stays inside, in T [default: 6, and 3 in a figure]
    #[arg(long, value_name = "E", allow_negative_numbers = true, value_parser = parse_stay)]
    pub(crate) cs: Option<f64>,

    /// How much of what is sent gets lost, up to 50%
    #[arg(long, value_name = "PERCENT", default_value = "0", allow_negative_numbers = true,
          value_parser = parse_loss)]
    pub(crate) loss: Permille,

    /// Node ID crashes after TIME, in T, or when it is first inside; may be repeated
    #[arg(long, value_name = "ID@TIME|ID@inside", value_parser = parse_crash)]
    pub(crate) crash: Vec<costs::Crash>,

    /// How many entries are measured [default: enough for exact means; 100 with --loss or --crash;
    /// two a node for a diagram or a log]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) entries: Option<u64>,

    /// What chance follows from: the same seed, the same run
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Draw a space-time diagram, which needs no network: FILE.svg, or FILE.html with the numbers
    #[arg(long, value_name = "FILE", add = ArgValueCompleter::new(completions::files))]
    pub(crate) trace: Option<PathBuf>,

    /// Write a log with vector clocks for ShiViz
    #[arg(long, value_name = "FILE", add = ArgValueCompleter::new(completions::files))]
    pub(crate) shiviz: Option<PathBuf>,

    /// Play a figure of the lectures: 6.16, two processes that ask ricart-agrawala with the
    /// timestamps 8 and 12, and one that does not
    #[arg(long, value_name = "FIGURE", value_enum, conflicts_with_all =
          ["nodes", "load", "delay", "loss", "crash", "entries", "seed", "compare"])]
    pub(crate) figure: Option<Figure>,

    /// Print the whole table: every algorithm, for 3, 5, 8, 16, 32 and 64 nodes
    #[arg(long, conflicts_with_all =
          ["load", "delay", "cs", "loss", "crash", "entries", "seed", "trace", "shiviz"])]
    pub(crate) compare: bool,
}

/// Who asks when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// One request at a time, from every node equally often
    Light,
    /// Every node asks again the instant it leaves
    Heavy,
    /// All ask once, at the same time
    Burst,
}

/// How messages are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delay {
    Constant,
    Exponential,
}

/// A figure of the lectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    #[value(name = "6.16")]
    RicartAgrawala,
}

/// The algorithms that are there.
fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    let names = PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name));
    names.try_map(|name| Algorithm::from_str(&name))
}

fn parse_stay(text: &str) -> Result<f64, String> {
    let stay = text
        .parse()
        .ok()
        .filter(|stay| (0.0..=1000.0).contains(stay));
    stay.ok_or_else(|| "the time inside is a number of T from 0 to 1000, like 6 or 0.5".to_owned())
}

fn parse_loss(text: &str) -> Result<Permille, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let percent: Option<f64> = number.parse().ok();
    let percent = percent.filter(|percent| (0.0..=50.0).contains(percent));
    let percent = percent.ok_or("loss is from 0% to 50%, in steps of 0.1%, like 5% or 0.5%")?;
    Ok((percent * 10.0).round() as Permille)
}

fn parse_crash(text: &str) -> Result<costs::Crash, String> {
    let wanted = "a crash is ID@TIME, with the time in T, or ID@inside: 2@10.5, 2@inside";
    let (node, when) = text.split_once('@').ok_or(wanted)?;
    let node = node.parse().ok().and_then(NodeId::new).ok_or(wanted)?;
    let when = if when == "inside" {
        costs::When::Inside
    } else {
        let units: Option<f64> = when.parse().ok();
        let units = units.filter(|units| (0.0..=100_000.0).contains(units));
        costs::When::After(units.ok_or(wanted)?)
    };
    Ok(costs::Crash { node, when })
}

impl From<Load> for costs::Load {
    fn from(load: Load) -> Self {
        match load {
            Load::Light => Self::Light,
            Load::Heavy => Self::Heavy,
            Load::Burst => Self::Burst,
        }
    }
}

impl From<Delay> for costs::Spread {
    fn from(delay: Delay) -> Self {
        match delay {
            Delay::Constant => Self::Constant,
            Delay::Exponential => Self::Exponential,
        }
    }
}
