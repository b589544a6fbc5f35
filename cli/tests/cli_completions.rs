//! `distlock completions`: the scripts load in their shells, and offer what there is and no more.

mod cli_support;

use std::env;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use cli_support::{Local, assert_refused, distlock, exits, output, refuses, stderr, stdout};

/// The completion script of one shell, as a file under the name it would be installed under, beside the
/// program under its own name.
struct Script {
    group: Local,
    path: PathBuf,
}

impl Script {
    fn of(shell: &str) -> Self {
        let made = exits(distlock().args(["completions", shell]), 0);
        assert!(made.stderr.is_empty(), "{made:?}");
        let group = Local::new();
        let path = group.file("_distlock");
        std::fs::write(&path, made.stdout).expect("room for it");
        symlink(env!("CARGO_BIN_EXE_distlock"), group.file("distlock")).expect("a link");
        Self { group, path }
    }

    /// What `shell` prints when it runs `text` with the script as its first argument. `None`,
    /// which is said aloud, where that shell is not installed.
    fn with(&self, shell: &str, options: &[&str], text: &str) -> Option<String> {
        let mut command = Command::new(shell);
        command.args(options).args(["-c", text]);
        if shell != "fish" {
            command.arg(shell);
        }
        let programs = self.path.parent().expect("a directory");
        let path = env::var("PATH").expect("a path");
        let path = format!("{}:{path}", programs.display());
        command.arg(&self.path).env("PATH", path);
        command.env("DISTLOCK_DIR", self.group.group());
        let config = self.group.file("distlock.toml");
        if config.exists() {
            command.env("DISTLOCK_CONFIG", config);
        }
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
        {{ _clap_complete_distlock distlock '{last}' '{before}'; printf '%s\n' "${{COMPREPLY[@]}}"; }}"#,
        words.join(" "),
        line.len() - 1,
    );
    let offered = script.with("bash", &["--norc"], &text);
    let offered = offered.expect("bash is everywhere");
    let mut offered: Vec<_> = offered.lines().map(|word| word.trim().to_owned()).collect();
    offered.sort();
    offered
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = Script::of("bash");
    let offers = |line: &[&str]| bash_offers(&script, line);
    let mut first = offers(&["distlock", ""]);
    first.retain(|word| !word.starts_with('-'));
    assert_eq!(first, commands());
    assert_eq!(offers(&["distlock", "sta"]), ["status"]);
    assert_eq!(offers(&["distlock", "run", "--nonb"]), ["--nonblock"]);
    let mut shells = offers(&["distlock", "completions", ""]);
    shells.retain(|word| !word.starts_with('-'));
    assert_eq!(shells, ["bash", "fish", "zsh"]);
}

/// The locks that the configuration lists and those that somebody holds, the algorithms, programs, and
/// the files after them.
#[test]
fn bash_completes_locks_algorithms_and_commands() {
    let script = Script::of("bash");
    let file = |name: &str| script.group.file(name);
    let offers = |line: &[&str]| bash_offers(&script, line);
    let holder = script.group.hold("press");
    assert_eq!(offers(&["distlock", "run", "pr"]), ["press"]);
    holder.let_go();
    std::fs::write(
        file("distlock.toml"),
        "[group]\nname = \"shop\"\n[[member]]\nid = 1\naddress = \"udp:127.0.0.1:7400\"\n\
         [[lock]]\nname = \"printer\"\npermits = 2\n[[lock]]\nname = \"plotter\"\npermits = 2\n",
    )
    .expect("a file");
    assert_eq!(offers(&["distlock", "run", "pr"]), ["printer"]);
    assert_eq!(offers(&["distlock", "who", "pl"]), ["plotter"]);
    assert_eq!(
        offers(&["distlock", "run", "--algorithm", "raym"]),
        ["raymond"]
    );
    assert_eq!(
        offers(&["distlock", "elect", "--algorithm", "ch"]),
        ["chang-roberts"]
    );
    for line in [
        &["distlock", "run", "x", "setpri"][..],
        &["distlock", "run", "x", "--", "setpri"],
    ] {
        assert!(offers(line).contains(&"setpriv".to_owned()), "{line:?}");
    }
    let path = file("distlock.t").display().to_string();
    let offered = offers(&["distlock", "run", "x", "--", "cat", &path]);
    assert_eq!(offered, [file("distlock.toml").display().to_string()]);
}

#[test]
fn zsh_offers_the_commands_from_the_first_time_on() {
    let script = Script::of("zsh");
    // As autoloaded: the script is the body of the function.
    let text = r#"
        autoload -Uz compinit && compinit -u -D && fpath=("${1:h}" $fpath) && autoload -Uz _distlock &&
        _describe() { print -rl -- ${${(P)${@[-1]}}%%:*} } && words=(distlock '') CURRENT=2 && _distlock"#;
    let Some(offered) = script.with("zsh", &["-f"], text) else {
        return;
    };
    let mut offered: Vec<_> = offered.lines().filter(|it| !it.starts_with('-')).collect();
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
    let asked = output(
        distlock()
            .args(["--", "distlock", ""])
            .env("DISTLOCK_COMPLETE", "elvish"),
    );
    assert_refused(&asked, 64, &["DISTLOCK_COMPLETE", "unset"]);
}

/// Somebody has exported it.
#[test]
fn the_variable_alone_keeps_no_command_from_being_run() {
    let group = Local::new();
    for words in [
        &["run", "x", "echo", "run"][..],
        &["run", "x", "--", "echo", "run"],
    ] {
        let mut run = group.distlock(words);
        let said = exits(run.env("DISTLOCK_COMPLETE", "bash"), 0);
        assert_eq!(stdout(&said), "run\n");
    }
}
