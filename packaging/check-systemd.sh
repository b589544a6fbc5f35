#!/usr/bin/env bash
# Checks the package's units, and those of doc/tutorials/systemd.md, under a systemd that runs: as the first
# process of namespaces of its own, on a copy of this system's files, with devices and a control group of its
# own, which end with this script. packaging/build.sh builds the package.
#
#   packaging/check-systemd.sh                the check
#   packaging/check-systemd.sh boot DIR       what becomes the first process of the namespaces
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "${0##*/}: $*" >&2
    if [[ $(readlink "/proc/${systemd:-none}/ns/mnt") == "${namespace:-}" ]]; then
        inside journalctl --no-pager --boot --unit distlock --unit importer --lines 40 >&2 || true
    fi
    exit 1
}

skipped() {
    echo "SKIPPED: the units under a systemd that runs: $*"
    [[ ${DISTLOCK_TESTS:-} != all ]]
    exit
}

# Ends the namespaces, and removes what was theirs.
end() {
    local group
    kill -KILL "$outer" 2>/dev/null || true
    wait "$outer" 2>/dev/null || true
    for group in "${groups[@]}"; do
        # What has ended leaves it in a moment.
        for _ in {1..50}; do
            find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
            sleep 0.1
        done
    done
    rm -rf "$work"
}

# Becomes systemd. `$1`: an empty directory but for `stage`, which the system will have as /stage.
boot() {
    local base=$1 root=$1/root place
    # What fails before systemd begins, the machine does not let root do.
    trap 'exit 77' ERR
    mount --make-rprivate /
    mkdir "$base/stage.kept"
    mount --bind "$base/stage" "$base/stage.kept"
    mkdir "$base/files"
    mount -t tmpfs tmpfs "$base/files"
    mkdir "$base/files/"{upper,work} "$root"
    mount -t overlay overlay "$root" \
        -o "lowerdir=/,upperdir=$base/files/upper,workdir=$base/files/work"
    # What lies below other mounts is not in the copy; and boot empties some of these.
    for place in run tmp var/log var/tmp; do
        mount -t tmpfs -o mode=1777 tmpfs "$root/$place"
    done
    chmod 755 "$root/run" "$root/var/log"
    mkdir "$root/stage" "$root/old"
    mount --bind "$base/stage.kept" "$root/stage"
    mount -t proc proc "$root/proc"
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for place in null zero full random urandom tty; do
        : >"$root/dev/$place"
        mount --bind "/dev/$place" "$root/dev/$place"
    done
    mkdir "$root/dev/"{pts,shm}
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t sysfs -o ro sysfs "$root/sys"
    if [[ $(stat -f -c %T /sys/fs/cgroup) == cgroup2fs ]]; then
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    else
        mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
        mkdir "$root/sys/fs/cgroup/"{systemd,unified}
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified" || true
        mount -t cgroup -o none,name=systemd,xattr systemd "$root/sys/fs/cgroup/systemd"
    fi
    rm -rf "$root/etc/systemd/system/"*
    # What is for the kernel, or for a console.
    for place in console-getty.service getty.target systemd-binfmt.service systemd-modules-load.service \
        systemd-sysctl.service systemd-udevd.service proc-sys-fs-binfmt_misc.automount; do
        ln -s /dev/null "$root/etc/systemd/system/$place"
    done
    hostname alpha
    ip link set lo up
    cd "$root"
    pivot_root . old
    umount -l /old
    # What mounts a service's credentials is in a namespace of its own.
    mount --make-rshared /
    exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
        /lib/systemd/systemd --system --unit=multi-user.target --show-status=no
}

# ended_with PROCESS STATUS: whether it has ended, and so.
ended_with() {
    local status=0
    ! kill -0 "$1" 2>/dev/null || return 1
    wait "$1" || status=$?
    ((status == $2))
}

# Does this in the namespaces, and never in those of another process that has got the number.
inside() {
    [[ $(readlink "/proc/$systemd/ns/mnt") == "$namespace" ]] || fail "systemd has ended"
    nsenter --target "$systemd" --mount --uts --ipc --net --pid --cgroup --root --wdns=/ -- "$@"
}

# eventually SECONDS WHAT COMMAND...
eventually() {
    local until=$((SECONDS + $1)) what=$2
    shift 2
    while ! "$@" >/dev/null 2>&1; do
        ((SECONDS < until)) || fail "$what: not so in time"
        sleep 0.1
    done
}

property() {
    inside systemctl show --value --property "$1" "$2"
}

# is UNIT PROPERTY VALUE...: all of these.
is() {
    local unit=$1
    shift
    while (($#)); do
        [[ $(property "$1" "$unit") == "$2" ]] || return
        shift 2
    done
}

file() {
    # shellcheck disable=SC2016 # the other shell expands it
    inside sh -c 'mkdir -p "${1%/*}" && cat >"$1"' sh "$1"
}

# The block `$1` of the tutorial that is a unit, or a part of one.
block() {
    awk -v wanted="$1" '/^```ini$/ { count++; on = count == wanted; next } /^```$/ { on = 0 } on' \
        doc/tutorials/systemd.md
}

has_line() {
    grep -qE "$1" <<<"$2"
}

begin() {
    ((EUID == 0)) || skipped "it takes root"
    [[ -x /lib/systemd/systemd ]] || skipped "systemd is not installed"
    local packages=("${CARGO_TARGET_DIR:-target}"/packages/distlock_*.deb)
    [[ -e ${packages[0]} ]] || skipped "no package was built; packaging/build.sh builds it"
    ((${#packages[@]} == 1)) || fail "there are several versions of the package: ${packages[*]}"
    local into=(unshare --fork --kill-child=KILL --pid --mount --uts --ipc --net --cgroup)
    "${into[@]}" true 2>/dev/null || skipped "this machine does not let root make the namespaces"
    work=$(mktemp -d)
    outer='' groups=()
    trap end EXIT
    mkdir "$work/stage"
    cp "${packages[@]}" "$work/stage/"
    local at
    for at in /sys/fs/cgroup{,/systemd,/unified}; do
        [[ -e $at/cgroup.procs ]] || continue
        groups+=("$at/distlock-check-$$")
        mkdir "$at/distlock-check-$$" || skipped "this machine does not let root make control groups"
    done
    (
        for at in "${groups[@]}"; do
            echo "$BASHPID" >"$at/cgroup.procs"
        done
        exec "${into[@]}" "$0" boot "$work"
    ) >"$work/log" 2>&1 </dev/null &
    outer=$!
    local tries=0 state=''
    until [[ $state == running || $state == degraded ]]; do
        if ! kill -0 "$outer" 2>/dev/null || ((++tries > 300)); then
            cat "$work/log" >&2
            ended_with "$outer" 77 && skipped "this machine does not let root mount what systemd needs"
            fail "systemd does not come up"
        fi
        sleep 0.1
        systemd=$(pgrep --parent "$outer" --full '^/lib/systemd/systemd ') || continue
        namespace=$(readlink "/proc/$systemd/ns/mnt")
        state=$(inside systemctl is-system-running 2>/dev/null || true)
    done
}

# The agent of a group of one.
agent() {
    inside sh -c 'dpkg --install --log=/dev/null /stage/distlock_*.deb' >"$work/dpkg" 2>&1 ||
        { cat "$work/dpkg" >&2; fail "the package cannot be installed"; }
    inside systemctl start distlock
    is distlock ActiveState inactive Result success ||
        fail "an agent that is not configured is a failure"

    inside distlock keygen /etc/distlock/group.key >/dev/null
    echo DISTLOCK_ID=1 | file /etc/distlock/agent.env
    file /etc/distlock/distlock.toml <<'END'
key_file = "$CREDENTIALS_DIRECTORY/group.key"

[group]
name = "shop"

[metrics]
listen = "tcp:127.0.0.1:9717"

[[member]]
id = 1
address = "udp:127.0.0.1:7400"
END
    inside systemctl enable --quiet --now distlock || fail "the agent does not start"
    is distlock ActiveState active || fail "the agent does not start"
    local user
    user=$(inside ps -o user= -p "$(property MainPID distlock)")
    [[ $user == distlock ]] || fail "the agent runs as $user"
    [[ $(inside distlock run -w 20 x -- echo in) == in ]] || fail "a command is not let in"
    has_line '^1 +udp:127.0.0.1:7400 +alive' "$(inside distlock members)" || fail "no member 1"
    # shellcheck disable=SC2016 # the other shell has the descriptor
    has_line '^distlock_' "$(inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/9717
        printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3')" || fail "there are no metrics"
}

# What becomes of it when it is stopped, killed, stands still, or is given a wrong file.
life() {
    inside systemctl stop --quiet distlock 2>/dev/null
    inside distlock run -w 20 x -- true || fail "the socket does not start the agent"
    is distlock ActiveState active || fail "the agent was not started"
    local before
    before=$(property NRestarts distlock)
    inside systemctl kill --signal=KILL distlock
    eventually 10 "a killed agent is started again" is distlock NRestarts $((before + 1))
    inside distlock run -w 20 x -- true || fail "the agent that was started again lets nobody in"
    inside systemctl kill --signal=STOP distlock
    eventually 25 "an agent that stands still is started again" is distlock NRestarts $((before + 2))
    inside distlock run -w 20 x -- true || fail "the agent lets nobody in after it stood still"

    inside sh -c 'cp /etc/distlock/distlock.toml /etc/distlock/kept; echo nonsense >>/etc/distlock/distlock.toml'
    inside systemctl restart distlock 2>/dev/null && fail "a wrong file is taken"
    is distlock ActiveState failed ExecMainStatus 78 || fail "a wrong file is tried again"
    inside mv /etc/distlock/kept /etc/distlock/distlock.toml
    inside mv /etc/distlock/group.key /etc/distlock/kept
    inside systemctl restart distlock 2>/dev/null && fail "an agent starts without its key"
    is distlock ActiveState failed ExecMainStatus 243 || fail "a missing key is tried again"
    inside mv /etc/distlock/kept /etc/distlock/group.key
}

# The tutorial's drop-ins, and its service that runs on one host at a time.
tutorial() {
    block 2 | file /etc/systemd/system/distlock.service.d/trace.conf
    inside systemctl daemon-reload
    inside systemctl restart distlock
    inside distlock run -w 20 x -- true
    eventually 10 "there is a trace" inside test -s /var/log/distlock/shop-1.trace

    block 1 | file /etc/systemd/system/importer.service
    printf '#!/bin/sh\nexec sleep 1000\n' | file /usr/local/bin/importer
    inside chmod 755 /usr/local/bin/importer
    inside systemctl daemon-reload
    inside systemctl enable --quiet --now importer
    eventually 20 "the importer is elected" leads
    inside systemctl stop importer
    is importer Result success || fail "a stopped importer has failed: $(property Result importer)"
    has_line '^Nobody holds' "$(inside distlock who importer)" || fail "the importer still leads"

    # A report that another host makes is none of this host's failures.
    file /etc/systemd/system/report.service <<'END'
[Service]
Type=oneshot
ExecStart=/usr/bin/distlock run -n -E 0 report -- /usr/bin/touch /run/report
END
    inside systemctl daemon-reload
    inside distlock run report -- systemctl start report || fail "a report that is made elsewhere has failed"
    inside test ! -e /run/report || fail "the report was made twice"
    inside systemctl start report
    inside test -e /run/report || fail "the report was not made"

    block 3 | file /etc/systemd/system/distlock.service.d/no-key.conf
    inside sed -i 's/^key_file.*/insecure = true/' /etc/distlock/distlock.toml
    inside rm /etc/distlock/group.key
    inside systemctl daemon-reload
    inside systemctl restart distlock || fail "a group without a key does not start"
}

leads() {
    has_line '^importer .* holds ' "$(inside distlock who importer)"
}

if [[ ${1:-} == boot ]]; then
    boot "$2"
fi
begin
agent
life
tutorial
echo "the units do what they say under systemd $(inside systemctl --version | awk 'NR == 1 { print $2 }')"
