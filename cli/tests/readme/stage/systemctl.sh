#!/bin/bash
# systemctl enable --now|start|stop|restart [distlock.socket] distlock: does what the unit of the package says, as far as a host
# of the stage can: the environment file, the credentials, the command, and waiting until it is ready.
set -euo pipefail
unit=/run/stage/distlock.service
credentials=/run/credentials/distlock.service
pid_file=/run/distlock.pid

key() {
    sed -n "s/^$1=-\?//p" "$unit"
}

running() {
    [[ -e $pid_file && $(readlink "/proc/$(cat "$pid_file")/exe") == */distlock ]]
}

start() {
    local log command file id
    ! running || return 0
    mkdir -p "$credentials"
    while IFS=: read -r id file; do
        install -m 400 "$file" "$credentials/$id"
    done < <(key LoadCredential)
    export CREDENTIALS_DIRECTORY=$credentials
    set -a
    # shellcheck source=/dev/null
    . "$(key EnvironmentFile)"
    set +a
    log=/run/stage/$(hostname).log
    read -ra command <<<"$(key ExecStart)"
    setsid "${command[@]##*/bin/}" >/run/ready 2>>"$log" </dev/null &
    echo $! >"$pid_file"
    until grep -q '^ready' /run/ready; do
        # It may not have become the agent yet.
        kill -0 $! 2>/dev/null || { echo "the agent has ended" >&2; exit 1; }
        sleep 0.05
    done
}

stop() {
    ! running || kill "$(cat "$pid_file")"
    while running; do sleep 0.05; done
    rm -f "$pid_file"
}

# There is no socket to pass.
words=$*
case ${words/distlock.socket /} in
    "enable --now distlock" | "start distlock") start ;;
    "stop distlock") stop ;;
    "restart distlock") stop; start ;;
    *) echo "systemctl $*: not on this stage" >&2; exit 1 ;;
esac
