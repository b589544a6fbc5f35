//! Reads the command line: what clap cannot say of it, and how it is refused.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command, Work};
use crate::exit::{self, Failure, one_line, quoted};

/// What the command line asks for.
///
/// # Errors
/// The way to end when it asks for nothing that can be done: help was printed, or it is wrong.
pub(crate) fn parse() -> Result<Command, Result<ExitCode, Failure>> {
    let args: Vec<_> = std::env::args_os().collect();
    let command = Cli::try_parse_from(&args)
        .map_err(|error| refuse(&error))?
        .command;
    if let Some((work, name)) = command.work() {
        check(work, name).map_err(Err)?;
        check_name(work, &args, name).map_err(Err)?;
    }
    Ok(command)
}

/// What clap cannot say.
fn check(work: &Work, command: &str) -> Result<(), Failure> {
    if work.script.is_none() && work.program().is_empty() {
        let what = "no command to run: give one after the lock's name, or with -c";
        return Err(Failure::usage(what, command));
    }
    work.lock_name(command).map(drop)
}

/// Who forgets the name would lock the command's first word: `run -- echo hi`. A name may stand
/// after `--`, where it may begin with a dash, if another `--` divides it from the command.
fn check_name(work: &Work, args: &[OsString], command: &str) -> Result<(), Failure> {
    let has_dashes = work.program.first().is_some_and(|first| first == "--");
    if work.script.is_some() || has_dashes || !is_name_after_dashes(args) {
        return Ok(());
    }
    let what = format!(
        "no lock's name before --: say 'distlock {command} NAME -- COMMAND', or, if {} is the \
         name, 'distlock {command} -- NAME -- COMMAND'",
        quoted(&work.name)
    );
    Err(Failure::usage(what, command))
}

/// Whether the first `--` of a command line stands before the lock's name.
fn is_name_after_dashes(args: &[OsString]) -> bool {
    // No argument has a NUL byte, so this is none of the caller's words.
    const HERE: &str = "\0";
    let before = args.iter().take_while(|arg| *arg != "--").cloned();
    let line = before.chain(["--", HERE, HERE].map(OsString::from));
    Cli::try_parse_from(line).is_ok_and(|cli| {
        cli.command
            .work()
            .is_some_and(|(work, _)| work.name == HERE)
    })
}

/// Help and version go to standard output and end well; the rest becomes one line, and 64.
fn refuse(error: &clap::Error) -> Result<ExitCode, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Who closed the output does not want the help any more.
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::new(
                exit::USAGE,
                "no command given; 'distlock --help' tells which there are",
            ))
        }
        _ => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let first = one_line(first.trim_start_matches("error: "));
            Err(match named_command() {
                Some(name) => Failure::usage(first, &name),
                None => Failure::new(exit::USAGE, format_args!("{first}; see 'distlock --help'")),
            })
        }
    }
}

/// The command that the command line names, whatever is wrong with the rest.
fn named_command() -> Option<String> {
    let word = std::env::args_os().nth(1)?.into_string().ok()?;
    Cli::command().find_subcommand(&word)?;
    Some(word)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::args::Run;

    fn run(args: &[&str]) -> Run {
        let args = ["distlock", "run"].iter().chain(args);
        let Command::Run(run) = Cli::try_parse_from(args).expect("a good line").command else {
            panic!("not a run");
        };
        run
    }

    #[test]
    fn the_command_starts_at_the_first_word_after_the_name() {
        for line in [
            &["-n", "x", "ls", "-l", "--", "-n"][..],
            &["x", "-n", "ls", "-l", "--", "-n"],
            &["-n", "x", "--", "ls", "-l", "--", "-n"],
        ] {
            let run = run(line);
            assert_eq!(run.work.name, "x", "{line:?}");
            assert!(run.work.nonblock, "{line:?}");
            assert_eq!(run.work.program, ["ls", "-l", "--", "-n"], "{line:?}");
        }
    }

    #[test]
    fn the_last_of_repeated_options_counts() {
        assert_eq!(
            run(&["-w", "1", "-w", "2.5", "x", "ls"]).work.timeout,
            Some(Duration::from_millis(2500))
        );
    }

    #[test]
    fn the_last_of_shared_and_exclusive_counts() {
        assert!(run(&["-x", "-s", "x", "ls"]).shared);
        assert!(!run(&["-s", "-x", "x", "ls"]).shared);
        assert!(!run(&["x", "ls"]).shared);
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
