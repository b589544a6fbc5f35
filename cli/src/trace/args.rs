//! The options of `distlock trace`.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::completions;

use super::when::When;
use crate::exit::Failure;

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Trace {
    /// The traces
    #[arg(value_name = "FILE", required = true, add = ArgValueCompleter::new(completions::files))]
    pub(crate) files: Vec<PathBuf>,

    /// Draw a space-time diagram, which needs no network: FILE.svg, or FILE.html with the report
    #[arg(long, value_name = "FILE", add = ArgValueCompleter::new(completions::files))]
    pub(crate) diagram: Option<PathBuf>,

    /// Write a log with vector clocks for ShiViz
    #[arg(long, value_name = "FILE", add = ArgValueCompleter::new(completions::files))]
    pub(crate) shiviz: Option<PathBuf>,

    /// Print what happened, a line an event
    #[arg(long)]
    pub(crate) story: bool,

    /// Only what concerns this lock, and views; may be repeated
    #[arg(long, value_name = "NAME", value_parser = clap::value_parser!(OsString))]
    pub(crate) lock: Vec<OsString>,

    /// Only from this time on: seconds after the beginning, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub(crate) since: Option<When>,

    /// Only up to this time
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub(crate) until: Option<When>,
}

/// The options make no sense, or what they name is no trace.
pub(super) fn usage(message: impl Display) -> Failure {
    Failure::usage(message, "trace")
}
