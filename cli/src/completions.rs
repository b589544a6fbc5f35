//! `distlock completions`: the script by which a shell asks this program what can follow on a command line,
//! and the answers, which are made from the command line's own definition.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{Bash, Fish, Shells, Zsh};
use crossbeam_channel::bounded;
use distlock::discovery::GroupOptions;
use distlock::{Algorithm, Config, ElectionAlgorithm};
use distlock_agent::runtime::environment::variable;

use crate::args::{Cli, Completions, Shell};
use crate::exit::{self, Failure, USAGE};
use crate::group;

/// The variable by which a shell asks: COMPLETE would ask whatever program is started first.
const ASKED: &str = "DISTLOCK_COMPLETE";
const SHELLS: Shells<'static> = Shells(&[&Bash, &Fish, &Zsh]);
const PROGRAM: &str = "distlock";
/// How long the group may take to name its locks, since somebody waits at the keyboard.
const PATIENCE: Duration = Duration::from_millis(500);
/// zsh reads the script as the body of a function when it completes for the first time.
const FIRST_OF_ZSH: &str =
    "[[ $funcstack[1] != _distlock ]] || _clap_dynamic_completer_distlock \"$@\"\n";

/// Prints the script for a shell.
///
/// # Errors
/// If standard output takes no more.
pub(crate) fn completions(args: &Completions) -> Result<ExitCode, Failure> {
    let name = match args.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let shell = SHELLS.completer(name).expect("it is one of them");
    let mut script = Vec::new();
    shell
        .write_registration(ASKED, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .expect("memory takes everything");
    if let Shell::Zsh = args.shell {
        script.extend(FIRST_OF_ZSH.as_bytes());
    }
    exit::print(&script, "the script")
}

/// The answer, if a shell asks: a script asks by the variable and by `--`, with which no command line begins. So
/// a variable that somebody has exported does not keep a command from being run.
///
/// # Errors
/// 64 if the variable names a shell for which there is no script.
pub(crate) fn answer() -> Option<Result<ExitCode, Failure>> {
    let shell = variable(ASKED)?;
    if env::args_os().nth(1).is_none_or(|first| first != "--") {
        return None;
    }
    if shell
        .to_str()
        .and_then(|name| SHELLS.completer(name))
        .is_none()
    {
        return Some(Err(Failure::new(
            USAGE,
            format_args!("{ASKED} is for the scripts of 'distlock completions'; unset it"),
        )));
    }
    let here = env::current_dir().ok();
    let asked = CompleteEnv::with_factory(Cli::command)
        .var(ASKED)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .shells(SHELLS)
        .try_complete(env::args_os(), here.as_deref());
    // Words on standard error would stand in the midst of what somebody types.
    Some(Ok(match asked {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }))
}

/// Those that begin so and that no shell takes for anything but a word: bash inserts them as they are, and
/// any member of the group may have named a lock.
fn plain(words: impl IntoIterator<Item = String>, begun: &OsStr) -> Vec<CompletionCandidate> {
    let is_plain = |word: &String| {
        let mut bytes = word.bytes();
        !word.starts_with('-')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_./:@%+,=-~".contains(&byte))
    };
    let words = words.into_iter().filter(is_plain);
    words
        .filter(|word| word.as_bytes().starts_with(begun.as_encoded_bytes()))
        .map(CompletionCandidate::new)
        .collect()
}

/// The names of the locks that begin so: those of the configuration, and those that are in use. None where the
/// line names another group than that of this host.
pub(crate) fn lock_names(begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut words = env::args_os();
    let others = ["--at", "--config", "--local", "--socket"];
    let is_of_another = words.any(|word| {
        let word = word.to_string_lossy();
        others.contains(&word.split('=').next().unwrap_or_default())
    });
    if is_of_another {
        return Vec::new();
    }
    let mut names: BTreeSet<String> = configured().into_iter().collect();
    names.extend(in_use());
    plain(names, begun)
}

/// What the configuration of this host lists, if it can be read.
fn configured() -> Vec<String> {
    let path = variable("DISTLOCK_CONFIG").map_or_else(|| group::HOST_CONFIG.into(), PathBuf::from);
    let config = Config::load(path);
    let locks = config.map(|config| config.settings().locks.clone());
    locks
        .unwrap_or_default()
        .keys()
        .map(ToString::to_string)
        .collect()
}

/// What the group knows, if its agent answers soon.
fn in_use() -> Vec<String> {
    let (sender, receiver) = bounded(1);
    // A process that is an agent itself would have to join the group first.
    let group = GroupOptions::new().find().ok();
    let Some(group) = group.filter(|group| !group.has_own_agent()) else {
        return Vec::new();
    };
    thread::spawn(move || {
        let status = group.open_within(PATIENCE).ok()?.status().ok()?;
        sender
            .send(status.locks.into_iter().map(|lock| lock.name).collect())
            .ok()
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_default()
}

/// Those that serve locks.
pub(crate) fn algorithms() -> Vec<CompletionCandidate> {
    let names = Algorithm::ALL.map(Algorithm::name);
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Those that elect.
pub(crate) fn elections() -> Vec<CompletionCandidate> {
    let names = ElectionAlgorithm::ALL.map(ElectionAlgorithm::name);
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The words of a command: a program, and then files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandWords;

impl ValueCompleter for CommandWords {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        files(current)
    }

    fn complete_at(&self, index: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        if index > 0 || current.as_encoded_bytes().contains(&b'/') {
            return self.complete(current);
        }
        let path = variable("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = env::split_paths(&path).collect();
        plain(programs(&directories, current), current)
    }
}

/// The paths that begin so. Where none is plain, bash falls back to what it knows of files itself.
pub(crate) fn files(current: &OsStr) -> Vec<CompletionCandidate> {
    let paths = PathCompleter::any().complete(current);
    let words = paths.iter().filter_map(|path| path.get_value().to_str());
    plain(words.map(str::to_owned), OsStr::new(""))
}

/// The programs in these directories whose names begin so.
fn programs(directories: &[PathBuf], begun: &OsStr) -> BTreeSet<String> {
    let entries = directories
        .iter()
        .filter_map(|directory| directory.read_dir().ok())
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let begins = name.as_bytes().starts_with(begun.as_encoded_bytes());
            (begins && is_program(&entry.path())).then_some(name)
        })
        .collect()
}

fn is_program(path: &Path) -> bool {
    let metadata = path.metadata();
    metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::{self, Permissions};

    #[test]
    fn what_a_shell_would_take_for_more_than_a_word_is_not_offered() {
        let names = [
            "printer",
            "printer;rm",
            "printer$(id)",
            "printer x",
            "-printer",
            "p*",
        ];
        let offered = plain(names.map(str::to_owned), OsStr::new("p"));
        let offered: Vec<_> = offered.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(offered, ["printer"]);
    }

    #[test]
    fn the_first_word_of_a_command_is_a_program_and_the_others_are_files() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, mode) in [("printing", 0o755), ("print.txt", 0o644), ("other", 0o755)] {
            let path = directory.path().join(name);
            fs::write(&path, "").expect("a file");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        }
        let found = programs(&[directory.path().to_owned()], OsStr::new("print"));
        assert_eq!(found, BTreeSet::from(["printing".to_owned()]));
        let file = directory.path().join("print.t");
        let found = CommandWords.complete_at(1, file.as_os_str());
        let found: Vec<_> = found.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(found, [directory.path().join("print.txt").as_os_str()]);
    }
}
