#!/usr/bin/env bash
# Checks what packaging/build.sh has built: the packages install into a system of their own, what
# they install runs, and when they are removed nothing of them is left; systemd takes the unit; the
# static program needs nothing of the system. What takes root or a missing program says SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cd "${CARGO_TARGET_DIR:-target}/packages"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DISTLOCK_DIR=$work/group
unset DISTLOCK_SOCKET DISTLOCK_CONFIG DISTLOCK_ID DISTLOCK_STATE_DIR

main() {
    sha256sum --quiet -c SHA256SUMS
    local version
    version=$(echo distlock_*.deb)
    version=${version#distlock_} version=${version%_*}

    static "${version/\~/-}"
    wheel
    if ((EUID == 0)); then
        debian "${version/\~/-}" "$work/root"
    else
        echo "SKIPPED: installing the Debian packages: it takes root"
        local package
        for package in *.deb; do
            dpkg-deb -x "$package" "$work/root"
        done
        runs "$work/root/usr/bin/distlock" "${version/\~/-}"
        unit "$work/root/usr"
    fi
    echo "the packages install, run, and leave nothing behind"
}

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# The program at `path` is this version and takes its turn.
runs() {
    local path=$1 version=$2
    [[ $("$path" --version) == "distlock $version" ]] || fail "$path is another version"
    # shellcheck disable=SC2016 # the command expands it
    [[ $("$path" run x -- sh -c 'echo "$DISTLOCK_NAME $DISTLOCK_FENCE"') == "x "[1-9]* ]] ||
        fail "$path does not run a command"
    [[ -s ${path%/bin/distlock}/share/distlock/status.schema.json ]] ||
        fail "$path has no schema of its JSON beside it"
}

static() {
    local tree=$work/static program=$work/static/bin/distlock
    mkdir "$tree"
    tar -xf ./*-static.tar.gz --strip-components=1 -C "$tree"
    runs "$program" "$1"
    if readelf -dl "$program" | grep -E 'NEEDED|INTERP'; then
        fail "$program needs libraries of the system"
    fi
    grep -q '^ExecStart=/usr/local/bin/distlock ' "$tree/lib/systemd/system/distlock.service" ||
        fail "the tarball's unit starts another program"
    if ((EUID != 0)); then
        echo "SKIPPED: the static program in an empty system: it takes root"
        return
    fi
    # There it finds no library, no configuration of name services, no user list and no shell.
    local empty=$work/empty
    mkdir -p "$empty"/{bin,dev,tmp,proc/sys/kernel/random}
    cp "$program" "$empty/bin/"
    cp /proc/sys/kernel/random/boot_id "$empty/proc/sys/kernel/random/"
    [[ $(DISTLOCK_DIR=/tmp/x chroot "$empty" /bin/distlock run x /bin/distlock --version) == \
        "distlock $1" ]] || fail "the static program does not run in an empty system"
}

# In a virtual environment of its own, where nothing else is installed.
wheel() {
    local wheels=(pydistlock-*.whl)
    if [[ ! -e ${wheels[0]} ]]; then
        echo "SKIPPED: no wheel was built"
        return
    fi
    if ! python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "SKIPPED: the wheel: Python 3.11 with venv is not installed"
        return
    fi
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" --disable-pip-version-check install --quiet --no-index "${wheels[@]}"
    "$work/venv/bin/python" -c '
import distlock
with distlock.Agent().lock("x", timeout=10) as guard:
    guard.check()' || fail "the wheel acquires no lock"
    python3 -m zipfile --list "${wheels[0]}" | grep -q /THIRD-PARTY-LICENSES ||
        fail "the wheel lacks the licences of what is compiled in"
}

# Into a system of its own, whose list of packages is this machine's, so that dependencies count.
debian() {
    local version=$1 root=$2 before after
    mkdir -p "$root/var/lib/dpkg/"{info,updates} "$root/etc" "$root/usr/lib"
    cp /var/lib/dpkg/status "$root/var/lib/dpkg/"
    # A file list of each package, or dpkg warns of every one.
    sed -n 's/^Package: //p' /var/lib/dpkg/status |
        while read -r name; do
            touch "$root/var/lib/dpkg/info/$name.list"
        done
    before=$(contents "$root")
    dpkg_in "$root" --install ./*.deb
    runs "$root/usr/bin/distlock" "$version"
    compiles "$root" "$version"
    unit "$root/usr"
    dpkg_in "$root" --remove libdistlock-dev libdistlock0 distlock
    after=$(comm -13 <(echo "$before") <(contents "$root"))
    [[ -z $after ]] || fail "removing the packages left $after"
}

dpkg_in() {
    local root=$1
    shift
    # Scripts of the packages know by DPKG_ROOT that they have nothing to tell to this system.
    dpkg --root="$root" --force-script-chrootless --log=/dev/null "$@" \
        >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; fail "dpkg $* failed"; }
}

# Everything outside of dpkg's own books.
contents() {
    (cd "$1" && find . -path ./var/lib/dpkg -prune -o -print | LC_ALL=C sort)
}

# A C program finds the installed header and library by pkg-config, and takes its turn.
compiles() {
    local root=$1 version=$2 libdir program=$work/turn flags
    libdir=$(dirname "$(find "$root/usr/lib" -name libdistlock.so)")
    cat >"$program.c" <<'END'
#include <distlock.h>
#include <stdio.h>
int main(void) {
    distlock_agent *agent;
    distlock_mutex *mutex;
    uint64_t fence = 0;
    if (distlock_agent_open(NULL, &agent) != 0 || distlock_mutex_open(agent, "x", &mutex) != 0 ||
        distlock_lock(mutex, &fence) != 0 || fence == 0 || distlock_unlock(mutex) != 0)
        return 1;
    distlock_mutex_close(mutex);
    distlock_agent_close(agent);
    return puts(distlock_version()) < 0;
}
END
    if ! command -v pkg-config >/dev/null; then
        echo "SKIPPED: pkg-config is not installed; no C program is built with it"
        return
    fi
    flags=$(PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$libdir/pkgconfig \
        PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 \
        pkg-config --cflags --libs distlock)
    # shellcheck disable=SC2086 # these are words
    "${CC:-cc}" -o "$program" "$program.c" $flags
    [[ $(LD_LIBRARY_PATH=$libdir "$program") == "$version" ]] ||
        fail "a C program finds another libdistlock, or does not get in"
}

# systemd understands every line of the units, and finds the agent well confined.
unit() {
    local units=lib/systemd/system
    if ! command -v systemd-analyze >/dev/null; then
        echo "SKIPPED: systemd-analyze is not installed; the unit is not checked"
        return
    fi
    sed "s|^ExecStart=/usr/|ExecStart=$1/|" "$1/$units/distlock.service" \
        >"$work/distlock.service"
    cp "$1/$units/distlock.socket" "$work/"
    if ! systemd-analyze verify --man=no "$work"/distlock.{service,socket} \
        >"$work/verify" 2>&1 ||
        [[ -s $work/verify ]]; then
        cat "$work/verify" >&2
        fail "systemd refuses a unit"
    fi
    # From 0, nothing exposed, to 100: the sockets are what is left.
    systemd-analyze security --no-pager --offline=yes --threshold=20 "$work/distlock.service" \
        >"$work/security" || { cat "$work/security" >&2; fail "the unit is not confined enough"; }
}

main
