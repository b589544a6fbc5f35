//! The local group of several users on one host: what one can do to another's locks, which is to
//! refuse, and to be told of, and nothing else.

mod cli_support;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use cli_support::users::{DAEMON, as_user, in_empty_run, is_root};
use cli_support::{
    Holder, Local, assert_refused, eventually, is_running, output, refuses, stdout, wrapped,
};
use distlock::{Agent, DistMutex, PreviousOwner};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, ftruncate, write};

/// Set in the process that is to do its worst.
const VANDAL: &str = "VANDAL";

/// A `distlock run` of the lock `x` whose command, `script`, is another user's.
fn run_as_daemon(local: &Local, script: &str) -> Command {
    let mut inner = as_user(DAEMON);
    inner.args(["sh", "-c", script]);
    let mut run = wrapped(local.distlock(["run", "x", "--"]), &inner);
    run.current_dir("/");
    run
}

/// Checks that nobody gets the lock `x`: at once, or within a time limit.
#[track_caller]
fn assert_held(local: &Local) {
    for limit in [&["-n"][..], &["-w", "0.2"]] {
        let refused = output(local.distlock(["run"]).args(limit).args(["x", "true"]));
        assert_refused(&refused, 1, &["x"]);
    }
}

/// Does to everything that it inherited what could unlock a lock, or change what is said of it.
#[test]
fn role() {
    if std::env::var_os(VANDAL).is_none() {
        return;
    }
    for fd in (3..1024).filter_map(open_fd) {
        let mut everything = libc::flock {
            l_type: libc::F_UNLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        let _ = fcntl(fd, FcntlArg::F_OFD_SETLK(&everything));
        everything.l_pid = 0;
        let _ = fcntl(fd, FcntlArg::F_SETLK(&everything));
        let _ = nix::sys::uio::pwrite(fd, &[0; 512], 512);
        let _ = write(fd, &[7; 512]);
        let _ = ftruncate(fd, 0);
    }
    println!("{VANDAL} is done");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

fn open_fd(fd: RawFd) -> Option<BorrowedFd<'static>> {
    #[expect(
        unsafe_code,
        reason = "descriptors of which only the numbers are known"
    )]
    // SAFETY: this process does nothing else meanwhile, and nobody closes it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    (fcntl(fd, FcntlArg::F_GETFD) != Err(Errno::EBADF)).then_some(fd)
}

#[test]
fn a_command_of_another_user_cannot_unlock_what_it_runs_under() {
    if !is_root() {
        return;
    }
    let local = Local::new();
    let vandal = local.file("vandal");
    // As the program is copied, and why.
    let mut copy = Command::new("cp");
    let this = std::env::current_exe().expect("its path");
    assert!(output(copy.arg(this).arg(&vandal)).status.success());
    let place = vandal.parent().expect("a directory");
    fs::set_permissions(place, Permissions::from_mode(0o755)).expect("its mode");
    let script = r#"exec "$VANDAL" role --exact --nocapture --test-threads=1"#;
    let mut command = run_as_daemon(&local, script);
    command.env(VANDAL, &vandal);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map(|line| line.expect("a line"));
    assert!(lines.any(|line| line.contains("VANDAL is done")));

    let before = local.status();
    let holder = &before["locks"][0]["holders"][0];
    assert_eq!(holder["pid"], u64::from(child.id()), "{before}");
    assert_held(&local);
    writeln!(child.stdin.take().expect("a pipe")).expect("it listens");
    lines.for_each(drop);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let next = output(local.distlock(["run", "-n", "x", "--", "sh", "-c", "echo $DISTLOCK_FENCE"]));
    let next: u64 = stdout(&next).trim().parse().expect("a fence");
    assert!(next > holder["fence"].as_u64().expect("a fence"));
}

/// The kernel ends a command with its runner only while it is the same user's.
#[test]
fn the_lock_is_taken_as_long_as_a_command_outlives_its_runner() {
    if !is_root() {
        return;
    }
    let local = Local::new();
    let script = "echo in; echo $$; exec sleep 600";
    let mut holder = Holder::start(run_as_daemon(&local, script));
    let pid: i32 = holder.line().parse().expect("a pid");
    let runner = holder.pid().as_raw();
    holder.signal(Signal::SIGKILL);
    holder.wait();
    assert!(is_running(pid));
    assert_held(&local);
    let status = local.status();
    let holder = &status["locks"][0]["holders"][0];
    assert_eq!(
        (holder["pid"].as_i64(), holder["command_pid"].as_i64()),
        (Some(runner.into()), Some(pid.into())),
        "{status}"
    );
    let waits = local.distlock(["run", "-w", "25", "x", "true"]).spawn();
    let mut waits = waits.expect("it starts");
    local.await_waiter("x", &waits);
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    assert_eq!(waits.wait().expect("it ends").code(), Some(0));

    // Who enters next learns of it.
    let script = "echo in; echo $$; exec sleep 600";
    let mut holder = Holder::start(run_as_daemon(&local, script));
    let pid: i32 = holder.line().parse().expect("a pid");
    holder.signal(Signal::SIGKILL);
    holder.wait();
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    eventually("it is gone", || !is_running(pid));
    let agent = Agent::local_in(local.group()).expect("the group");
    let guard = agent
        .mutex("x")
        .expect("a name")
        .lock()
        .expect("it is free");
    assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
}

/// As sudo(8) closes everything before it runs what it is to run, and is another user by then.
#[test]
fn a_command_that_closed_what_it_inherited_is_waited_for_itself() {
    if !is_root() {
        return;
    }
    let local = Local::new();
    let close = "echo in; echo $$; exec 1>&- 2>&-; \
         for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; \
         exec sleep 600";
    let script = format!("exec bash -c '{close}'");
    let mut holder = Holder::start(run_as_daemon(&local, &script));
    let pid: i32 = holder.line().parse().expect("a pid");
    eventually("it has closed all", || {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it is there");
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).expect("it is there");
        name == "sleep\n" && open.count() == 1
    });
    holder.signal(Signal::SIGKILL);
    holder.wait();
    assert!(is_running(pid));
    refuses(local.distlock(["run", "-w", "0.2", "x", "true"]), 1, &["x"]);
    let status = local.status();
    assert_eq!(
        status["locks"][0]["holders"][0]["command_pid"], pid,
        "{status}"
    );
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    assert_eq!(local.run(["-w", "25", "x", "true"]), Some(0));
}

/// What `script` says in a namespace where `/run` is empty but for `/run/lock`. In it `as` runs a
/// command as a user, and `find` is one that tells where the group of its runner is.
fn said(script: &str) -> Option<String> {
    if !is_root() {
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        r#"
        cd /
        as() {{ local user=$1; shift; setpriv --reuid $user --regid $user --clear-groups "$@"; }}
        find='dirname $(readlink /proc/$$/fd/* | grep distlock)'
        exec 2>&1
        {script}"#
    );
    in_empty_run(&script, dir.path()).map(|said| stdout(&said).to_owned())
}

/// What the script line by line: each has these words in it.
fn says(script: &str, expected: &[&[&str]]) {
    let Some(said) = said(script) else { return };
    assert_eq!(said.lines().count(), expected.len(), "{said}");
    for (line, words) in said.lines().zip(expected) {
        for word in *words {
            assert!(line.contains(word), "{word} in {said}");
        }
    }
}

#[test]
fn each_user_has_a_place_that_the_user_id_alone_names() {
    says(
        r#"
        export XDG_RUNTIME_DIR=/run/lock TMPDIR=/run/lock HOME=/run/lock
        mkdir /run/user
        for user in 0 61234; do install -d -m 700 -o $user -g $user /run/user/$user; done
        "$0" run x -c "$find"
        as 61234 "$0" run x -c "$find"
        stat -c '%a %u %n' /run/distlock-local /run/lock/*"#,
        &[
            &["/run/distlock-local"],
            &["/run/lock/distlock-61234"],
            &["700 0 /run/distlock-local"],
            &["700 61234 /run/lock/distlock-61234"],
        ],
    );
}

#[test]
fn nobody_can_be_in_roots_place_first_or_fill_it() {
    says(
        r#"
        mount -t tmpfs -o mode=1777,size=64k tmpfs /run/lock
        as 61235 mkdir -m 777 /run/lock/distlock-0 /run/lock/distlock-local
        as 61235 mkdir /run/distlock-local
        as 61235 dd if=/dev/zero of=/run/lock/filler 2>/dev/null
        "$0" run -n x -- echo ran"#,
        &[&["/run/distlock-local", "Permission denied"], &["ran"]],
    );
}

#[test]
fn who_finds_a_strangers_directory_or_no_room_is_told() {
    says(
        r#"
        mount -t tmpfs -o mode=1777,size=64k tmpfs /run/lock
        as 61234 "$0" run x -- echo ran
        as 61235 dd if=/dev/zero of=/run/lock/filler 2>/dev/null
        # What is there stays of use: nothing of it is taken away by a full file system.
        as 61234 "$0" run x -- echo ran; echo $?
        rm -r /run/lock/*
        as 61235 mkdir -m 777 /run/lock/distlock-61234
        as 61234 "$0" run x -- echo ran; echo $?"#,
        &[
            &["ran"],
            &["/run/lock/distlock-61234/", "No space left"],
            &["69"],
            &[
                "/run/lock/distlock-61234",
                "61235",
                "root remove it",
                "DISTLOCK_DIR",
            ],
            &["77"],
        ],
    );
}

/// As on Fedora and Arch Linux. There is no second place that another program could take for the
/// first.
#[test]
fn where_users_may_not_write_root_makes_the_directory() {
    says(
        r#"
        rm -rf /tmp/distlock-61234 /var/tmp/distlock-61234
        chmod 755 /run/lock
        as 61234 "$0" run x -- echo ran; echo $?
        install -d -m 700 -o 61234 /run/lock/distlock-61234
        as 61234 "$0" run x -c "$find"
        rm -r /run/lock
        as 61234 "$0" run x -- echo ran; echo $?
        DISTLOCK_DIR=/tmp/distlock-own-$$ as 61234 "$0" run x -- echo ran; rm -r /tmp/distlock-own-$$
        ls -d /tmp/distlock-61234 /var/tmp/distlock-61234"#,
        &[
            &[
                "/run/lock/distlock-61234",
                "root make it",
                "install -d -m 700 -o 61234 /run/lock",
                "DISTLOCK_DIR",
            ],
            &["77"],
            &["/run/lock/distlock-61234"],
            &["/run/lock/distlock-61234", "root make it", "DISTLOCK_DIR"],
            &["77"],
            &["ran"],
            &["No such file"],
            &["No such file"],
        ],
    );
}

/// File systems that have no FIFOs: some of FUSE, and those of other systems.
#[test]
fn a_file_system_without_fifos_is_told_of() {
    let local = Local::new();
    let mut command = local.distlock(["run", "x", "--", "echo", "ran"]);
    #[expect(unsafe_code, reason = "a filter of system calls for the program alone")]
    // SAFETY: it makes system calls only.
    unsafe {
        command.pre_exec(refuse_fifos)
    };
    let said = output(&mut command);
    let group = local.group();
    let words = [
        group.to_str().expect("text"),
        "FIFO",
        "file system",
        "use another",
    ];
    assert_refused(&said, 69, &words);
    assert_eq!(stdout(&said), "");
    // It is not held any more.
    assert_eq!(local.run(["-n", "x", "true"]), Some(0));
}

/// Has mknodat(2) fail as such a file system does.
fn refuse_fifos() -> std::io::Result<()> {
    let statement = |code: u32, k: u32, jf: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf,
        k,
    };
    let number = u32::try_from(libc::SYS_mknodat).unwrap_or_default();
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter = [
        // The number of the call is the first of what is known of it.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 1),
        statement(libc::BPF_RET | libc::BPF_K, refused, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    nix::sys::prctl::set_no_new_privs()?;
    #[expect(unsafe_code, reason = "nix has no filters")]
    // SAFETY: the program and its filter live until the call returns.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    Errno::result(set)?;
    Ok(())
}
