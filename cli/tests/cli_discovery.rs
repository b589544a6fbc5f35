//! Where programs look for their group when they are not told: this host's own socket, what shows that
//! the host is in a group, and else the local group. In mount namespaces, with nothing of this host.

mod cli_support;

use std::fs;

use cli_support::group::Group;
use cli_support::users::{DAEMON, STRANGER, in_empty_run_says, is_root};

/// What the scripts of [`with_agent`] begin with. The file of a group of one is `group.toml`.
const FUNCTIONS: &str = r#"
    cd "$1"
    # Starts the agent, with further arguments, and waits until it is ready or has ended.
    start() {
        "$0" agent --config group.toml --id 1 --state-dir state "$@" > ready 2>log & agent=$!
        until grep -qs ready ready || ! kill -0 $agent; do sleep 0.01; done
    }
    # Ends it in order, and says its exit code.
    stop() {
        kill $agent; wait $agent; echo $?
    }
    "#;

/// Runs a script that has an agent, and asserts what the script says.
fn with_agent(script: &str, expected: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let group = Group::unix(1);
    fs::copy(group.config(), dir.path().join("group.toml")).expect("a copy");
    in_empty_run_says(&format!("{FUNCTIONS}{script}"), dir.path(), expected);
}

#[test]
fn without_an_agent_the_default_is_this_users_local_group() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = r#"
        "$0" run x -c 'ls -l /proc/$$/fd' | grep -o '/run/distlock-local/' | sort -u
        "$0" status --json | grep -o '"group":"local"'"#;
    // In there this user is root.
    in_empty_run_says(
        script,
        dir.path(),
        "/run/distlock-local/\n\"group\":\"local\"\n",
    );
}

#[test]
fn the_hosts_socket_is_used_if_it_is_there_served_or_not() {
    let script = r#"
        start
        "$0" status --json | grep -o '"group":"shop"'
        "$0" run x -- sh -c 'exit 7'; echo $?
        ( cd / && exec "$0" who x )
        kill -9 $agent; wait $agent 2>/dev/null
        # Nobody serves it now, and no other group takes its place.
        for command in "run x true" status members "who x"; do
            "$0" $command 2>said >/dev/null; echo "$? $(wc -l <said)"
        done
        DISTLOCK_DIR=$1/own "$0" run x true; echo $?"#;
    let expected = "\"group\":\"shop\"\n7\nNobody holds 'x' or waits for it.\n\
                    69 1\n69 1\n69 1\n69 1\n0\n";
    with_agent(script, expected);
}

/// An agent that ends in order leaves what tells programs not to use the local group: its socket,
/// and, for after a reboot, a directory.
#[test]
fn while_the_agent_is_stopped_no_program_uses_the_local_group() {
    let script = r#"
        start
        "$0" run x true; echo $?
        stop
        refused() {
            "$0" $1 2>said >/dev/null; echo "$? $(wc -l <said)"
            grep -oE "$2|--local" said | sort -u
        }
        for command in "run backup true" "elect backup true" status members "who x"; do
            refused "$command" "remove /var/lib/distlock and /run/distlock/distlock.sock"
        done
        echo rebooted
        umount /run && mount -t tmpfs tmpfs /run && mkdir -m 1777 /run/lock
        refused "run backup true" "remove /var/lib/distlock;"
        echo configured
        rmdir /var/lib/distlock && mkdir /etc/distlock && touch /etc/distlock/distlock.toml
        refused "run backup true" "remove /etc/distlock/distlock.toml;"
        echo asked for
        "$0" run --local backup true; echo $?
        DISTLOCK_DIR=$1/own "$0" run backup true; echo $?
        echo left the group
        rm /etc/distlock/distlock.toml
        "$0" run --verbose backup true 2>&1 | grep -o "the local group of user 0""#;
    let refused = "69 1\n--local\nremove ";
    let stopped = "/var/lib/distlock and /run/distlock/distlock.sock\n";
    let expected = format!(
        "0\n0\n{0}{refused}/var/lib/distlock;\nconfigured\n\
         {refused}/etc/distlock/distlock.toml;\nasked for\n0\n0\nleft the group\n\
         the local group of user 0\n",
        format!("{refused}{stopped}").repeat(5) + "rebooted\n",
    );
    with_agent(script, &expected);
}

/// Its name is not all that tells that a socket is the host's.
#[test]
fn the_hosts_socket_stays_however_it_was_spelled() {
    let script = r#"
        mkdir /run/distlock && ln -s /run link
        start --socket link/distlock/distlock.sock
        stop
        "$0" run x true 2>/dev/null; echo $?
        stat -c %a /var/lib/distlock
        # One that cannot leave a trace for after a reboot does not serve there.
        rmdir /var/lib/distlock && mount -o remount,ro /var/lib
        timeout 30 "$0" agent --config group.toml --id 1 --state-dir state 2>&1 |
            grep -o 'cannot make /var/lib/distlock'
        echo ${PIPESTATUS[0]}"#;
    let expected = "0\n69\n700\ncannot make /var/lib/distlock\n77\n";
    with_agent(script, expected);
}

#[test]
fn the_hosts_socket_that_is_forbidden_is_77() {
    if !is_root() {
        return;
    }
    let script = r#"
        start
        as="setpriv --reuid 61235 --regid 61235 --clear-groups"
        cd /
        for command in "run x true" status; do
            $as "$0" $command 2>"$1/said"; echo "$? $(wc -l <"$1/said")"
        done
        chmod 700 /run/distlock
        $as "$0" run x true 2>"$1/said"; echo "$? $(wc -l <"$1/said")"
        stop"#;
    with_agent(script, "77 1\n77 1\n77 1\n0\n");
}

/// The directory of the host's own socket is made, named or not.
#[test]
fn the_directory_of_the_hosts_socket_is_made_also_if_it_is_named() {
    let script = r#"
        start --socket /run/distlock/distlock.sock
        "$0" run x true; echo $?
        stop"#;
    with_agent(script, "0\n0\n");
}

/// Who could write there could take the agent's place.
#[test]
fn the_directory_of_the_hosts_socket_is_nobody_elses_whatever_the_umask() {
    let script = r#"
        umask 0
        start
        stat -c %a /run/distlock /run/distlock/distlock.sock
        stop"#;
    with_agent(script, "755\n600\n0\n");
}

/// Who starts a program with the set-user-ID bit has not the rights to say where it works.
#[test]
fn in_a_set_user_id_program_the_callers_environment_says_nothing() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        r#"
        cp "$0" /run/plain && cp "$0" /run/other && chown {DAEMON} /run/other &&
            chmod 4755 /run/other && cd / || exit
        as="setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups env"
        for program in plain other; do
            $as DISTLOCK_DIR=/run/lock/of-$program /run/$program run x true; echo $program $?
            $as DISTLOCK_SOCKET=/run/none /run/$program run x true 2>/dev/null; echo $program $?
        done
        ls /run/lock"#
    );
    in_empty_run_says(
        &script,
        dir.path(),
        &format!("plain 0\nplain 69\nother 0\nother 0\ndistlock-{DAEMON}\nof-plain\n"),
    );
}
