//! Files, directories and sockets that others could have put there, or could replace: refused, with
//! a line that says why, or told of. What takes another user to show is in `cli_users.rs`.

mod cli_support;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cli_support::group::{AgentProcess, Group};
use cli_support::{assert_refused, distlock, exits, output, refuses, stderr};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn an_agent_serves_only_where_nobody_can_take_its_socket_away() {
    let group = Group::unix(1);
    let place = tempfile::tempdir().expect("a directory");
    let below = place.path().join("below");
    fs::create_dir(&below).expect("a directory");
    let agent = |directory: &Path| {
        let mut agent = group.member(1, ["agent", "--socket"]);
        agent.arg(directory.join("socket"));
        agent
    };
    for directory in [place.path(), &below] {
        chmod(place.path(), 0o777);
        let refused = output(&mut agent(directory));
        assert_refused(&refused, 78, &["socket", "everybody", "0777", "chmod o-w"]);
        assert!(!directory.join("socket").exists());
        for mode in [0o1777, 0o775, 0o755] {
            chmod(place.path(), mode);
            let agent = AgentProcess::start(agent(directory));
            assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
        }
    }
    // What is there and is no socket is left alone.
    let socket = place.path().join("socket");
    symlink("elsewhere", &socket).expect("a link");
    refuses(agent(place.path()), 78, &["socket", "remove it"]);
    assert!(socket.is_symlink() && !place.path().join("elsewhere").exists());
}

/// Who may read a directory can lock it, and so switch off what keeps two take-overs apart.
#[test]
fn who_keeps_the_directory_of_a_socket_locked_is_told_of() {
    let group = Group::unix(1);
    let directory = File::open(group.file("")).expect("a directory");
    let _held = Flock::lock(directory, FlockArg::LockExclusive).expect("its lock");
    let log = group.file("log");
    let file = File::create(&log).expect("a file");
    let agent = AgentProcess::start_with_log(&mut group.agent_command(1), file);
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    let said = fs::read_to_string(&log).expect("it");
    assert!(
        said.contains("keeps the directory") && said.contains("fuser"),
        "{said}"
    );
}

#[test]
fn a_client_does_not_look_where_everybody_can_replace_the_socket() {
    let (group, _agent) = Group::alone();
    let run = || output(&mut group.client(1, ["run", "x", "true"]));
    chmod(&group.file(""), 0o777);
    assert_refused(&run(), 77, &["not trusted", "0777", "chmod o-w"]);
    chmod(&group.file(""), 0o755);
    assert_eq!(run().status.code(), Some(0));
}

#[test]
fn an_abstract_name_is_no_socket() {
    let group = Group::unix(1);
    for path in ["@distlock", "@"] {
        let run = ["run", "--socket", path, "x", "true"];
        assert_refused(&output(distlock().args(run)), 64, &["abstract", path]);
        let agent = ["agent", "--socket", path];
        refuses(group.member(1, agent), 64, &["abstract", path]);
    }
    for address in ["unix:@distlock", "unix:\\u0000distlock"] {
        let text = fs::read_to_string(group.config()).expect("a file");
        let start = text.find("unix:").expect("an address");
        let end = start + text[start..].find('"').expect("its end");
        let path = group.file("abstract.toml");
        fs::write(&path, text.replace(&text[start..end], address)).expect("a file");
        let mut run = group.member(1, ["run", "x", "true"]);
        let refused = output(run.env("DISTLOCK_CONFIG", &path));
        assert_refused(&refused, 78, &["abstract.toml:", "path of a socket"]);
    }
}

/// And none of it keeps the member waiting, or is written to.
#[test]
fn a_state_that_others_could_have_put_there_is_refused() {
    let group = Group::unix(1);
    let run = || output(&mut group.member(1, ["run", "x", "true"]));
    assert_eq!(run().status.code(), Some(0));
    let own = group.state().join("shop-1");
    for (directory, mode, words) in [
        (own.clone(), 0o770, ["0770", "chmod go-w"]),
        (own.clone(), 0o1777, ["1777", "chmod go-w"]),
        (group.state(), 0o777, ["0777", "chmod o-w"]),
    ] {
        chmod(&directory, mode);
        assert_refused(&run(), 77, &words);
        chmod(&directory, 0o755);
    }
    let [state, lock, aside, victim] = ["state", "lock", "aside", "victim"].map(|it| own.join(it));
    fs::write(&victim, "precious").expect("a file");
    for file in [&state, &lock] {
        fs::rename(file, &aside).expect("it is there");
        mkfifo(file, Mode::S_IRWXU).expect("a pipe");
        assert_refused(&run(), 77, &["no regular file"]);
        fs::remove_file(file).expect("it is there");
        symlink(&victim, file).expect("a link");
        assert_refused(&run(), 77, &["no regular file", "remove it"]);
        fs::rename(&aside, file).expect("it is there");
        chmod(file, 0o666);
        assert_refused(&run(), 77, &["others may write", "0666"]);
        chmod(file, 0o600);
    }
    fs::remove_file(own.join("state.new")).expect("the last incarnation's");
    symlink(&victim, own.join("state.new")).expect("a link");
    assert_eq!(run().status.code(), Some(0));
    assert_eq!(fs::read_to_string(&victim).expect("it"), "precious");
}

#[test]
fn fences_are_not_kept_where_everybody_can_lower_them() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("printer.fence");
    let check = |fence: &str| {
        let mut command = distlock();
        output(command.args(["fence", "check"]).arg(&file).arg(fence))
    };
    assert_eq!(check("7").status.code(), Some(0));
    chmod(place.path(), 0o777);
    assert_refused(&check("8"), 77, &["everybody", "0777", "chmod o-w"]);
    chmod(place.path(), 0o1777);
    assert_eq!(check("8").status.code(), Some(0));
    for name in ["printer.fence", "printer.fence.lock"] {
        let open = place.path().join(name);
        chmod(&open, 0o666);
        assert_refused(&check("9"), 77, &[name, "0666", "chmod o-w"]);
        chmod(&open, 0o664);
        assert_eq!(check("8").status.code(), Some(0), "a group may share it");
    }
    // Whatever the umask, they are made so.
    for name in ["printer.fence", "printer.fence.lock"] {
        fs::remove_file(place.path().join(name)).expect("it is there");
    }
    let mut command = distlock();
    let args = [r#"umask 0; exec "$0" fence check "$1" 7"#];
    let program = command.get_program().to_owned();
    command = std::process::Command::new("sh");
    command.arg("-c").args(args).arg(program).arg(&file);
    assert_eq!(output(&mut command).status.code(), Some(0));
    for name in ["printer.fence", "printer.fence.lock"] {
        let mode = fs::metadata(place.path().join(name))
            .expect("it")
            .permissions();
        assert_eq!(mode.mode() & 0o002, 0, "{name}");
    }
}

#[test]
fn a_configuration_that_everybody_can_write_to_is_told_of() {
    let group = Group::unix(1);
    let run = || {
        let said = exits(group.member(1, ["run", "x", "true"]), 0);
        stderr(&said)
    };
    chmod(&group.config(), 0o664);
    assert_eq!(run(), "");
    chmod(&group.config(), 0o666);
    let said = run();
    assert_eq!(said.lines().count(), 1, "{said:?}");
    for word in [
        "distlock: others can change the configuration",
        "group.toml",
        "chmod o-w",
    ] {
        assert!(said.contains(word), "{word:?} in {said:?}");
    }
    let mut recover = group.member(1, ["recover", "--force"]);
    assert!(stderr(&output(&mut recover)).contains("others can change"));
}

/// None of it is read for ever, or waited for.
#[test]
fn what_is_no_file_is_no_configuration() {
    let place = tempfile::tempdir().expect("a directory");
    let pipe = place.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    let large = place.path().join("large");
    let file = File::create(&large).expect("a file");
    file.set_len(1 << 40).expect("without content");
    let run = |config: &Path| {
        let mut command = distlock();
        command.args(["run", "--id", "1", "--config"]);
        // Of what it must not take for ever, or all of the memory.
        let limits = ["prlimit", "--as=1000000000", "timeout", "-s", "KILL", "20"];
        let mut limited = std::process::Command::new(limits[0]);
        limited.args(&limits[1..]).arg(command.get_program());
        output(
            limited
                .args(command.get_args())
                .arg(config)
                .args(["x", "true"]),
        )
    };
    for (config, word) in [
        (pipe.as_path(), "pipe"),
        (Path::new("/dev/zero"), "device"),
        (Path::new("/dev/null"), "device"),
        (&large, "larger than 16 MiB"),
    ] {
        let name = config.to_str().expect("text");
        assert_refused(&run(config), 78, &[name, word, "name the file itself"]);
    }
}

#[test]
fn a_trace_is_not_written_through_a_link() {
    let group = Group::unix(1);
    let traces = group.file("traces");
    fs::create_dir(&traces).expect("a directory");
    let victim = group.file("victim");
    fs::write(&victim, "precious").expect("a file");
    symlink(&victim, traces.join("shop-1.trace")).expect("a link");
    let mut run = group.member(1, ["run", "x", "true"]);
    let said = exits(run.env("DISTLOCK_TRACE", &traces), 0);
    assert!(stderr(&said).contains("cannot write a trace"), "{said:?}");
    assert_eq!(fs::read_to_string(&victim).expect("it"), "precious");
}

#[test]
fn a_key_is_written_through_no_link() {
    let place = tempfile::tempdir().expect("a directory");
    let [file, elsewhere] = ["group.key", "elsewhere"].map(|name| place.path().join(name));
    symlink(&elsewhere, &file).expect("a link");
    refuses(distlock().arg("keygen").arg(&file), 73, &["group.key"]);
    assert!(!elsewhere.exists());
}

/// Whoever can replace it there has members seal with a key of theirs.
#[test]
fn no_key_is_written_where_everybody_can_replace_it() {
    let place = tempfile::tempdir().expect("a directory");
    let below = place.path().join("below");
    fs::create_dir(&below).expect("a directory");
    for directory in [place.path(), &below] {
        let keygen = |file: &str| {
            let mut keygen = distlock();
            output(keygen.current_dir(directory).args(["keygen", file]))
        };
        let file = directory.join("group.key");
        chmod(place.path(), 0o777);
        for named in ["group.key", file.to_str().expect("text")] {
            let refused = keygen(named);
            assert_refused(
                &refused,
                77,
                &["group.key is refused", "everybody", "0777", "chmod o-w"],
            );
            assert!(!file.exists());
        }
        chmod(place.path(), 0o1777);
        assert!(keygen("group.key").status.success());
    }
}
