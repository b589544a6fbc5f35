//! `distlock completions`: the scripts load in their shells, and offer what there is and no more.

mod cli_support;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use cli_support::{assert_refused, distlock, exits, output, refuses, stderr, stdout};
use tempfile::TempDir;

/// The completion script of one shell, as a file under the name it would be installed under.
struct Script {
    _dir: TempDir,
    path: PathBuf,
}

impl Script {
    fn of(shell: &str) -> Self {
        let made = exits(distlock().args(["completions", shell]), 0);
        assert!(made.stderr.is_empty(), "{made:?}");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("_distlock");
        std::fs::write(&path, made.stdout).expect("room for it");
        Self { _dir: dir, path }
    }

    /// What `shell` prints when it runs `text` with the script as its first argument. `None`,
    /// which is said aloud, where that shell is not installed.
    fn with(&self, shell: &str, options: &[&str], text: &str) -> Option<String> {
        let mut command = Command::new(shell);
        command.args(options).args(["-c", text]);
        if shell != "fish" {
            command.arg(shell);
        }
        command.arg(&self.path);
        match command.output() {
            Ok(output) => {
                assert!(output.status.success(), "{output:?}");
                assert_eq!(stderr(&output), "", "{shell}");
                Some(stdout(&output))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                println!("SKIPPED: {shell} is not installed");
                None
            }
            Err(error) => panic!("{shell}: {error}"),
        }
    }
}

/// The commands that `distlock --help` lists.
fn commands() -> Vec<String> {
    let help = stdout(&output(distlock().arg("--help")));
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let (list, _) = list.split_once("\n\n").expect("its end");
    let names = list.lines().filter_map(|l| l.split_whitespace().next());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// The words that bash offers for the last of `line`, in order.
fn bash_offers(script: &Script, line: &[&str]) -> Vec<String> {
    let words: Vec<_> = line.iter().map(|word| format!("'{word}'")).collect();
    let (last, before) = (line[line.len() - 1], line[line.len() - 2]);
    let text = format!(
        r#"source "$1" && COMP_WORDS=({}) COMP_CWORD={} &&
        _distlock distlock '{last}' '{before}' && printf '%s\n' "${{COMPREPLY[@]}}""#,
        words.join(" "),
        line.len() - 1,
    );
    let offered = script.with("bash", &["--norc"], &text);
    let offered = offered.expect("bash is everywhere");
    let mut offered: Vec<_> = offered.lines().map(str::to_owned).collect();
    offered.sort();
    offered
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = Script::of("bash");
    let first = bash_offers(&script, &["distlock", ""]);
    let (options, names): (Vec<_>, Vec<_>) =
        first.into_iter().partition(|word| word.starts_with('-'));
    assert_eq!(names, commands());
    assert_eq!(options, ["--help", "--version", "-V", "-h"]);
    assert_eq!(bash_offers(&script, &["distlock", "sta"]), ["status"]);
    assert_eq!(
        bash_offers(&script, &["distlock", "run", "--nonb"]),
        ["--nonblock"]
    );
    assert_eq!(
        bash_offers(&script, &["distlock", "completions", ""])
            .into_iter()
            .filter(|word| !word.starts_with('-'))
            .collect::<Vec<_>>(),
        ["bash", "fish", "zsh"]
    );
}

#[test]
fn zsh_loads_the_script_and_knows_the_commands() {
    let script = Script::of("zsh");
    // The list of commands is a function of its own, which hands them to `_describe`.
    let text = r#"
        autoload -Uz compinit && compinit -u -D && source "$1" &&
        _describe() { print -rl -- ${${(P)4}%%:*} } && _distlock_commands"#;
    let Some(offered) = script.with("zsh", &["-f"], text) else {
        return;
    };
    let mut offered: Vec<_> = offered.lines().collect();
    offered.sort_unstable();
    assert_eq!(offered, commands());
}

#[test]
fn fish_completes_commands() {
    let script = Script::of("fish");
    let text = "source $argv[1]; complete -C 'distlock '";
    let Some(offered) = script.with("fish", &["--no-config"], text) else {
        return;
    };
    let mut offered: Vec<_> = offered
        .lines()
        .filter_map(|line| line.split_once('\t').map(|(word, _)| word))
        .filter(|word| !word.starts_with('-'))
        .collect();
    offered.sort_unstable();
    assert_eq!(offered, commands());
}

#[test]
fn another_shell_is_refused() {
    let refused = output(distlock().args(["completions", "elvish"]));
    assert_refused(&refused, 64, &["elvish", "bash", "zsh", "fish"]);
    refuses(distlock().args(["completions"]), 64, &["SHELL"]);
}
