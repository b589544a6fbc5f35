//! `distlock completions`: what a shell needs to complete this program's command line. It is made
//! from the command line's own definition, so it offers what is there and nothing else.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::aot;

use crate::args::{Cli, Completions, Shell};
use crate::exit::{self, Failure};

/// Prints the script for a shell.
///
/// # Errors
/// If standard output takes no more.
pub(crate) fn completions(args: &Completions) -> Result<ExitCode, Failure> {
    let shell = match args.shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    // The generator panics where it cannot write; memory takes everything.
    let mut script = Vec::new();
    aot::generate(shell, &mut Cli::command(), "distlock", &mut script);
    exit::print(&script, "the script")
}
