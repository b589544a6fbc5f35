//! Users: which agents and files a user's programs take, and what an agent may do that is another
//! user's. `cli_discovery.rs` has where programs look for an agent.

mod cli_support;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::users::{DAEMON, STRANGER, as_user, copy_of_program, is_root};
use cli_support::{
    Holder, assert_refused, copy_environment, eventually, exits, guardian_of, is_running, output,
    refuses, skipped, stderr, stdout, wrapped,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A group of one whose agent is another user's than root's programs, as systemd's DynamicUser
/// makes it.
struct OfDaemon {
    group: Group,
    program: PathBuf,
    place: TempDir,
}

impl OfDaemon {
    /// `None` if this process is not root.
    fn new() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        let program = copy_of_program(place.path());
        // Not where everybody could have put it.
        let group = Group::unix_in(place.path(), 1);
        for dir in [place.path(), &group.file(""), &group.state()] {
            fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("its mode");
        }
        for dir in [&group.file(""), &group.state()] {
            chown(dir, Some(DAEMON), Some(DAEMON)).expect("its owner");
        }
        Some(Self {
            group,
            program,
            place,
        })
    }

    fn of_user(&self, plain: &Command, user: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.args(plain.get_args());
        copy_environment(&mut command, plain);
        command.uid(user).gid(user).current_dir("/");
        command
    }

    /// A command of `run`'s, started by `way`, and what that has started in turn, which has become
    /// root's altogether, as by sudo.
    fn start_roots(&self, way: impl Fn(&Command) -> Command) -> (Holder, i32, i32) {
        let helper = self.place.path().join("helper");
        let setpriv = output(Command::new("sh").args(["-c", "command -v setpriv"]));
        let made = output(Command::new("cp").arg(stdout(&setpriv).trim()).arg(&helper));
        assert!(made.status.success(), "{made:?}");
        fs::set_permissions(&helper, Permissions::from_mode(0o4755)).expect("its mode");
        let script = r#""$0" --reuid 0 sleep 600 & echo in; echo $$ $!; wait"#;
        let mut run = self
            .group
            .client(1, ["run", "x", "--", "bash", "-c", script]);
        let mut holder = Holder::start(way(run.arg(&helper)));
        let line = holder.line();
        let (command, roots) = line.split_once(' ').expect("two numbers");
        let [command, roots] = [command, roots].map(|pid| pid.parse().expect("a pid"));
        eventually("it is root's", || {
            let status = fs::read_to_string(format!("/proc/{roots}/status"));
            status.is_ok_and(|status| status.contains("Uid:\t0\t0\t0\t0"))
        });
        (holder, command, roots)
    }

    /// What a client of the agent says that this user runs.
    fn client<const N: usize>(&self, user: u32, args: [&str; N]) -> Output {
        output(&mut self.of_user(&self.group.client(1, args), user))
    }

    fn agent(&self) -> AgentProcess {
        let log = File::create(self.group.file("log")).expect("a file");
        let mut command = self.of_user(&self.group.agent_command(1), DAEMON);
        AgentProcess::start_with_log(&mut command, log)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.group.file("log")).expect("its log")
    }
}

const FAMILY: &str = "(trap '' TERM; exec sleep 600) & echo in; echo $!; wait";

#[test]
fn an_agent_that_may_not_end_a_command_waits_for_it() {
    let Some(of) = OfDaemon::new() else { return };
    let group = &of.group;
    let agent = of.agent();
    let mut holder = Holder::start(group.client(1, ["run", "x", "--", "bash", "-c", FAMILY]));
    let child: i32 = holder.line().parse().expect("a pid");
    group.await_known_command();
    // It has the runner's credentials.
    kill(guardian_of(holder.pid()), Signal::SIGKILL).expect("it is there");
    holder.signal(Signal::SIGKILL);
    // The kernel ends the command, and nobody what it has started.
    eventually("the agent says so", || {
        of.log().contains("what the command")
    });
    let busy = output(&mut group.client(1, ["run", "-w", "0.5", "x", "true"]));
    assert_refused(&busy, 1, &["x"]);
    assert!(is_running(child));
    let log = of.log();
    assert_eq!(log.matches("may not signal it").count(), 1, "{log}");
    kill(Pid::from_raw(child), Signal::SIGKILL).expect("it is there");
    exits(group.client(1, ["run", "-w", "20", "x", "true"]), 0);
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
}

/// Its runner stands still, its guardian is dead, and it may not end the command itself: it leaves
/// after a lease without having given the lock back, and its next incarnation lets nobody in before
/// the command has ended.
#[test]
fn such_an_agent_leaves_without_giving_back_what_is_still_used() {
    let Some(of) = OfDaemon::new() else { return };
    let group = &of.group;
    let agent = of.agent();
    let script = r#"trap '' TERM; echo in; echo "$$ $DISTLOCK_FENCE"; while :; do sleep 1; done"#;
    let mut holder = Holder::start(group.client(1, ["run", "x", "--", "bash", "-c", script]));
    let line = holder.line();
    let (pid, fence) = line.split_once(' ').expect("two numbers");
    let (pid, fence): (i32, u64) = (pid.parse().expect("one"), fence.parse().expect("two"));
    kill(guardian_of(holder.pid()), Signal::SIGKILL).expect("it is there");
    holder.signal(Signal::SIGSTOP);
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    assert!(of.log().contains("still hold locks"), "{}", of.log());
    assert!(is_running(pid));

    let _agent = of.agent();
    let wait = (3 * LEASE_MS).div_ceil(1_000).to_string();
    for busy in [vec!["run", "-n"], vec!["run", "-w", &wait]] {
        refuses(group.client(1, busy).args(["x", "true"]), 1, &["x"]);
    }
    assert!(is_running(pid));
    let log = of.log();
    assert!(
        log.contains("last incarnation") && log.contains(&pid.to_string()),
        "{log}"
    );
    // The runner ends it as soon as it goes on.
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.wait().code(), Some(79));
    assert!(!is_running(pid));
    let print = [
        "run",
        "-w",
        "20",
        "x",
        "sh",
        "-c",
        r#"echo "$DISTLOCK_FENCE""#,
    ];
    let next = stdout(&output(&mut group.client(1, print)));
    let next: u64 = next.trim().parse().expect("a fence");
    assert!(next > fence);
}

/// It may signal anybody, and ends for a client what that client's user could end, and nothing else.
#[test]
fn an_agent_that_may_signal_all_ends_nothing_that_its_client_could_not() {
    let Some(of) = OfDaemon::new() else { return };
    let group = &of.group;
    let log = File::create(group.file("log")).expect("a file");
    let plain = of.of_user(&group.agent_command(1), DAEMON);
    let mut privileged = as_user(DAEMON);
    privileged.args(["--inh-caps=+kill", "--ambient-caps=+kill"]);
    let mut privileged = wrapped(privileged, &plain);
    privileged.current_dir("/");
    let _agent = AgentProcess::start_with_log(&mut privileged, log);

    let (holder, command, roots) = of.start_roots(|plain| of.of_user(plain, DAEMON));
    group.await_known_command();
    holder.signal(Signal::SIGKILL);
    eventually("the command is gone", || !is_running(command));
    let busy = of.client(DAEMON, ["run", "-w", "1", "x", "true"]);
    assert_refused(&busy, 1, &["x"]);
    assert!(is_running(roots), "nobody ended it");
    let started =
        format!("lock x stays taken on this host: what the command {command} has started");
    eventually("the agent says so", || of.log().contains(&started));
    kill(Pid::from_raw(roots), Signal::SIGKILL).expect("it is there");
    let next = of.client(DAEMON, ["run", "-w", "20", "x", "true"]);
    assert_eq!(next.status.code(), Some(0), "{next:?}");
}

/// `run` is started by a user to whom its control group belongs, as in a service of that user's own.
/// When it is killed, all processes in the command's control group end, also those that the user
/// may not signal.
#[test]
fn a_control_group_of_the_users_own_ends_what_has_become_roots() {
    let Some(of) = OfDaemon::new() else { return };
    let Some(cgroup) = Delegated::new() else {
        eprintln!("SKIPPED: this process may make no control group");
        return;
    };
    let _agent = of.agent();
    let (holder, command, roots) = of.start_roots(|plain| {
        let mut inside = Command::new("sh");
        inside.args(["-c", r#"echo $$ > "$0" && exec "$@""#]);
        inside.arg(cgroup.0.join("cgroup.procs"));
        let mut run = wrapped(
            wrapped(inside, &as_user(DAEMON)),
            &of.of_user(plain, DAEMON),
        );
        run.current_dir("/");
        run
    });
    holder.signal(Signal::SIGKILL);
    eventually("all is gone", || !is_running(command) && !is_running(roots));
    let next = of.client(DAEMON, ["run", "-w", "20", "x", "true"]);
    assert_eq!(next.status.code(), Some(0), "{next:?}");
}

/// A control group that belongs to [`DAEMON`]. Dropping it removes it.
struct Delegated(PathBuf);

impl Delegated {
    /// `None` where there is no such thing, or none may be made.
    fn new() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|at| Path::new(at).join(own));
        let own = mounts
            .into_iter()
            .find(|path| path.join("cgroup.procs").exists())?;
        let cgroup = Self(own.join(format!("delegated-{}", std::process::id())));
        fs::create_dir(&cgroup.0).ok()?;
        for file in ["", "cgroup.procs"] {
            chown(cgroup.0.join(file), Some(DAEMON), Some(DAEMON)).ok()?;
        }
        cgroup.0.join("cgroup.kill").exists().then_some(cgroup)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..1_000 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The kernel gives what `/proc` shows of a process that cannot be dumped to root, and nobody else of
/// the agent's user can read its memory, where the key is.
#[test]
fn the_memory_of_an_agent_is_not_for_other_programs_of_its_user() {
    let Some(of) = OfDaemon::new() else { return };
    let agent = of.agent();
    let pid = agent.child.id();
    let owner = |file: &str| {
        fs::metadata(format!("/proc/{pid}/{file}"))
            .expect("it")
            .uid()
    };
    assert_eq!([owner("mem"), owner("environ")], [0, 0]);
    let said = output(as_user(DAEMON).args(["cat", &format!("/proc/{pid}/environ")]));
    assert!(!said.status.success() && said.stdout.is_empty(), "{said:?}");
    // It serves all the same.
    exits(of.group.client(1, ["run", "x", "true"]), 0);
}

#[test]
fn users_that_an_agent_is_not_for_are_refused_with_77() {
    let Some(of) = OfDaemon::new() else { return };
    let _agent = of.agent();
    let own = of.client(DAEMON, ["run", "x", "true"]);
    assert_eq!(own.status.code(), Some(0), "{own:?}");
    let said = of.client(STRANGER, ["run", "x", "true"]);
    assert_refused(&said, 77, &["1.sock", "run as its user"]);
    // Also by an agent that they trust, if somebody lets all users connect.
    let (of_root, _roots) = Group::alone();
    fs::set_permissions(of_root.file(""), Permissions::from_mode(0o755)).expect("its mode");
    fs::set_permissions(of_root.socket(1), Permissions::from_mode(0o666)).expect("its mode");
    let said = output(&mut of.of_user(&of_root.client(1, ["run", "x", "true"]), STRANGER));
    assert_refused(&said, 77, &["1.sock", "run as its user"]);
}

#[test]
fn who_could_be_deceived_by_an_agent_does_not_trust_it() {
    let Some(of) = OfDaemon::new() else { return };
    let _agent = of.agent();
    fs::set_permissions(of.group.socket(1), Permissions::from_mode(0o666)).expect("its mode");
    let said = of.client(STRANGER, ["run", "x", "true"]);
    assert_refused(&said, 77, &["not trusted", "61234"]);
    // Root may use every agent.
    exits(of.group.client(1, ["run", "x", "true"]), 0);
}

#[test]
fn files_that_this_user_may_not_use_are_77() {
    let Some(of) = OfDaemon::new() else { return };
    let group = &of.group;
    let run = |user| output(&mut of.of_user(&group.member(1, ["run", "x", "true"]), user));
    fs::set_permissions(group.config(), Permissions::from_mode(0o600)).expect("its mode");
    let said = run(DAEMON);
    assert_refused(&said, 77, &["group.toml", "run as a user who may read it"]);
    fs::set_permissions(group.config(), Permissions::from_mode(0o644)).expect("its mode");
    assert_refused(&run(STRANGER), 77, &["DISTLOCK_STATE_DIR"]);
}

/// Where everybody may write, whoever comes first has a name. Root trusts every agent but one that
/// anybody can have put there.
#[test]
fn root_does_not_believe_what_was_planted() {
    let Some(of) = OfDaemon::new() else { return };
    let _agent = of.agent();
    let shared = tempfile::tempdir().expect("a directory");
    let path = |name: &str| shared.path().join(name);
    let mode = |mode| {
        fs::set_permissions(shared.path(), Permissions::from_mode(mode)).expect("its mode");
    };
    let client = |socket: &Path| {
        let mut command = of.group.client(1, ["run", "x", "true"]);
        output(command.env("DISTLOCK_SOCKET", socket))
    };
    let by_link = path("link");
    symlink(of.group.socket(1), &by_link).expect("a link");
    lchown(&by_link, Some(DAEMON), None).expect("its owner");
    let directory = path("directory");
    fs::create_dir(&directory).expect("a directory");
    chown(&directory, Some(DAEMON), None).expect("its owner");
    symlink(of.group.socket(1), directory.join("link")).expect("a link");
    let paths = [by_link, directory.join("link")];
    for path in &paths {
        mode(0o755);
        assert_eq!(client(path).status.code(), Some(0), "root has let them");
        mode(0o1777);
        assert_refused(&client(path), 77, &["not trusted", "planted", "61234"]);
    }

    // A socket of theirs itself.
    let mut agent = of.group.member(1, ["agent", "--socket"]);
    agent.env("DISTLOCK_STATE_DIR", of.group.state().join("other"));
    let other = Group::unix_in(of.place.path(), 1);
    fs::set_permissions(other.file(""), Permissions::from_mode(0o755)).expect("its mode");
    chown(other.file(""), Some(DAEMON), Some(DAEMON)).expect("its owner");
    let socket = path("socket");
    agent.arg(&socket).env("DISTLOCK_CONFIG", other.config());
    let _other = AgentProcess::start(of.of_user(&agent, DAEMON));
    assert_refused(&client(&socket), 77, &["not trusted", "planted", "61234"]);
    // Its own user is in no doubt about it.
    let plain = of.group.client(1, ["run", "x", "true"]);
    let own = output(of.of_user(&plain, DAEMON).env("DISTLOCK_SOCKET", &socket));
    assert_eq!(own.status.code(), Some(0), "{own:?}");
}

#[test]
fn an_agent_serves_in_no_other_users_directory() {
    if !is_root() {
        return;
    }
    let group = Group::unix(1);
    let place = tempfile::tempdir().expect("a directory");
    chown(place.path(), Some(STRANGER), None).expect("its owner");
    let socket = place.path().join("socket");
    let mut agent = group.member(1, ["agent", "--socket"]);
    let refused = output(agent.arg(&socket));
    assert_refused(&refused, 78, &["socket", "61235", "directory of your own"]);
}

/// Where everybody may write, a stranger can have made the directory first, or a link to one.
#[test]
fn no_key_is_written_in_what_a_stranger_has_planted() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o1777)).expect("its mode");
    let [planted, link] = ["planted", "link"].map(|name| place.path().join(name));
    fs::create_dir(&planted).expect("a directory");
    let elsewhere = tempfile::tempdir().expect("a directory");
    symlink(elsewhere.path(), &link).expect("a link");
    for directory in [&planted, &link] {
        lchown(directory, Some(STRANGER), None).expect("its owner");
        let mut keygen = Command::new(env!("CARGO_BIN_EXE_distlock"));
        let file = directory.join("group.key");
        refuses(
            keygen.arg("keygen").arg(&file),
            77,
            &["group.key is refused", "61235", "directory of your own"],
        );
        assert!(!file.exists());
    }
}

/// Root has it begin anew, and it stays its user's.
#[test]
fn what_root_recovers_is_still_of_its_user() {
    let Some(of) = OfDaemon::new() else { return };
    let agent = of.agent();
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    exits(
        of.group
            .member(1, ["recover", "--force", "--cluster", "0123456789abcdef"]),
        0,
    );
    let agent = of.agent();
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    // Without that word root uses nobody else's.
    let refused = output(&mut of.group.member(1, ["run", "x", "true"]));
    assert_refused(&refused, 77, &["state", "61234", "DISTLOCK_STATE_DIR"]);
}

/// In a user namespace `/tmp` is of a user that has no number there, which is root as far as can be
/// told: sandboxes have it so. A stranger's is refused.
#[test]
fn a_directory_of_everybodys_is_nobody_elses() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let program = copy_of_program(place.path());
    let everybodys = place.path().join("tmp");
    fs::create_dir(&everybodys).expect("a directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("its mode");
    fs::set_permissions(&everybodys, Permissions::from_mode(0o1777)).expect("its mode");
    // Root's would be nobody's below `/tmp`, in there.
    chown(place.path(), Some(DAEMON), None).expect("its owner");
    let run = |within: &[&str]| {
        let mut command = as_user(DAEMON);
        command
            .args(within)
            .arg(&program)
            .args(["run", "x", "true"]);
        command
            .env("DISTLOCK_DIR", everybodys.join("group"))
            .current_dir("/");
        output(&mut command)
    };
    let sandbox = ["unshare", "--user", "--map-current-user"];
    for within in [&[][..], &sandbox] {
        let said = run(within);
        if stderr(&said).contains("unshare") {
            return skipped(&format!("no user namespaces here: {said:?}"));
        }
        assert_eq!(said.status.code(), Some(0), "{within:?}: {said:?}");
    }
    chown(&everybodys, Some(STRANGER), None).expect("its owner");
    assert_refused(&run(&[]), 77, &["tmp", "61235 can replace", "DISTLOCK_DIR"]);
}

/// As the volumes of containers are: root's, and everybody's or a group's to write to. Who is told
/// so cannot change their mode.
#[test]
fn who_cannot_change_a_mode_is_not_told_to() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let program = copy_of_program(place.path());
    let group = Group::unix_in(place.path(), 1);
    let volume = place.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let below = volume.join("state");
    for dir in [place.path(), &group.file("")] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).expect("its mode");
    }
    chown(group.file(""), Some(DAEMON), Some(DAEMON)).expect("its owner");
    let run = |state: &Path| {
        let mut command = Command::new(&program);
        command.args(["run", "x", "true"]).current_dir("/");
        copy_environment(&mut command, &group.member(1, ["run"]));
        command.env("DISTLOCK_STATE_DIR", state);
        // The group of the volume is one that the process is in.
        output(command.uid(DAEMON).gid(DAEMON))
    };
    let set = |mode, owner| {
        chown(&volume, Some(owner), Some(DAEMON)).expect("its owner");
        fs::set_permissions(&volume, Permissions::from_mode(mode)).expect("its mode");
    };
    set(0o777, 0);
    for state in [&volume, &below] {
        assert_refused(&run(state), 77, &["volume", "ask root", "chmod o-w"]);
    }
    set(0o777, STRANGER);
    assert_refused(&run(&volume), 77, &["volume", "ask the user", "chmod o-w"]);
    set(0o777, DAEMON);
    assert_refused(&run(&volume), 77, &["volume", "; chmod o-w"]);
    // What the manual says to do; the state is in a directory below.
    for mode in [0o2775, 0o1777] {
        set(mode, 0);
        assert_eq!(run(&volume).status.code(), Some(0), "{mode:o}");
        fs::remove_dir_all(volume.join("shop-1")).expect("it is there");
    }
    set(0o700, DAEMON);
    assert_eq!(run(&volume).status.code(), Some(0));
    // Where the sockets are.
    chown(group.file(""), Some(0), Some(DAEMON)).expect("its owner");
    fs::set_permissions(group.file(""), Permissions::from_mode(0o2775)).expect("its mode");
    let words = ["unix:", "ask root", "chmod go-w", "below it"];
    assert_refused(&run(&volume), 78, &words);
}

#[test]
fn a_configuration_of_another_user_is_told_of() {
    if !is_root() {
        return;
    }
    let group = Group::unix(1);
    chown(group.config(), Some(STRANGER), None).expect("its owner");
    let said = stderr(&exits(group.member(1, ["run", "x", "true"]), 0));
    assert!(
        said.contains("group.toml") && said.contains("61235"),
        "{said}"
    );
}

/// systemd leaves a credential root's, and lets the service's user read it by an access list, which
/// the mode shows as a right of the group. Here it is one.
#[test]
fn a_service_takes_the_credential_of_root_s_and_no_other_file_like_it() {
    let Some(of) = OfDaemon::new() else { return };
    let directory = of.place.path().join("credentials");
    fs::create_dir(&directory).expect("a directory");
    let [credential, beside] = [directory.join("key"), of.place.path().join("key")];
    let mut keygen = Command::new(env!("CARGO_BIN_EXE_distlock"));
    assert!(
        output(keygen.arg("keygen").arg(&credential))
            .status
            .success()
    );
    fs::copy(&credential, &beside).expect("a copy");
    let config = fs::read_to_string(of.group.config()).expect("it is there");
    let run = |key_file: &str, mode: u32| {
        for file in [&credential, &beside] {
            chown(file, Some(0), Some(DAEMON)).expect("root may");
            fs::set_permissions(file, Permissions::from_mode(mode)).expect("its mode");
        }
        let text = format!("key_file = \"{key_file}\"\n{config}");
        fs::write(of.group.config(), text).expect("a file");
        let mut member = of.group.member(1, ["run", "x", "true"]);
        member.env("CREDENTIALS_DIRECTORY", &directory);
        output(&mut of.of_user(&member, DAEMON))
    };
    let given = "$CREDENTIALS_DIRECTORY/key";
    let fine = run(given, 0o440);
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    let beside = beside.to_str().expect("text");
    assert_refused(&run(beside, 0o440), 78, &["key", "0440", "chmod 600"]);
    // A way out of the directory makes nothing a credential.
    let out = "$CREDENTIALS_DIRECTORY/../key";
    assert_refused(&run(out, 0o440), 78, &["key", "0440", "chmod 600"]);
    for mode in [0o460, 0o444] {
        let told = format!("{mode:04o}");
        assert_refused(&run(given, mode), 78, &["key", &told, "chmod 600"]);
    }
    // The access list is missing.
    assert_refused(&run(given, 0o400), 77, &["key", "LoadCredential="]);
}
