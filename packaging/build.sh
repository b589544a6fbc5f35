#!/usr/bin/env bash
# Builds what is given to others, into target/packages: Debian packages (distlock, libdistlock0 and
# libdistlock-dev), a static tarball for any Linux of this architecture, the wheel for Python, and their
# SHA256SUMS.
#
# dpkg-deb is enough for that, and everybody with a package manager of this kind has it; cargo-deb
# would take longer to compile than everything here. The same commit, toolchain and directory give
# the same files.
# Needs cargo, cc, jq and dpkg-dev, and for the wheel maturin. DEBFULLNAME and DEBEMAIL, as elsewhere, say who packages.
# `--profile=NAME`: how cargo builds, if not for release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=release
for argument; do
    case $argument in
        --profile=*) profile=${argument#*=} ;;
        *) echo "Usage: packaging/build.sh [--profile=NAME]" >&2; exit 64 ;;
    esac
done

target=${CARGO_TARGET_DIR:-target}
out=$target/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

version=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
deb_version=${version/-/\~}
arch=$(dpkg-architecture -qDEB_HOST_ARCH)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
soname=${version%%.*}
maintainer=$(git log -1 --format='%an <%ae>')
if [[ -n ${DEBEMAIL:-} ]]; then
    maintainer="${DEBFULLNAME:-$DEBEMAIL} <$DEBEMAIL>"
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

main() {
    rm -rf "$out"
    mkdir -p "$out"
    programs
    licenses distlock-cli Cargo.toml --all-features >"$work/third-party-licenses"

    distlock_deb
    library_debs
    tarball
    if command -v maturin >/dev/null; then
        wheel
    else
        echo "SKIPPED: maturin is not installed, so no wheel is built; python3 -m pip install maturin"
    fi
    cd "$out"
    sha256sum -- * >SHA256SUMS
    ls -l -- *
}

# The program twice, from the same compiled crates; the usual one last, so that it stays where
# cargo puts it.
programs() {
    local build=(cargo rustc --locked --package distlock-cli --bin distlock)
    local binary=$target/${profile/#dev/debug}/distlock
    build+=(--profile "$profile")
    "${build[@]}" -- -C target-feature=+crt-static
    strip -o "$work/distlock-static" "$binary"
    "${build[@]}"
    strip -o "$work/distlock" "$binary"
}

# licenses CRATE MANIFEST OPTION...: those of all that is compiled into the crate, each text once, below
# the crates that it is for.
licenses() {
    local crate dir file hash root=$1 manifest=$2
    shift 2
    local -A texts=() crates=()
    while IFS=$'\t' read -r crate dir; do
        for file in "$dir"/{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE,UNLICENSE}*; do
            [[ -f $file ]] || continue
            hash=$(sha256sum <"$file")
            texts[$hash]=$file
            crates[$hash]+=$crate$'\n'
        done
    done < <(
        cargo metadata --locked --format-version 1 --manifest-path "$manifest" "$@" \
            --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
            jq -r --arg root "$root" '
                (.resolve.nodes | map({key: .id, value: [.deps[]
                    | select(any(.dep_kinds[]; .kind == null)) | .pkg]}) | from_entries) as $needs
                | def all: . as $known | (. + ([.[] | $needs[.][]]) | unique)
                    | if . == $known then . else all end;
                ([.packages[] | select(.name == $root) | .id] | all) as $in
                | .packages[] | select(.source != null) | select(.id | IN($in[]))
                | "\(.name) \(.version) (\(.license))\t\(.manifest_path | rtrimstr("/Cargo.toml"))"'
    )
    printf '%s\n' 'What is compiled in besides distlock itself, and under which licences.' \
        "Rust's standard library (https://www.rust-lang.org/) is under MIT or Apache-2.0."
    while IFS= read -r hash; do
        printf '\n%s\n%s\n' "$(printf '=%.0s' {1..80})" "${crates[$hash]}"
        cat "${texts[$hash]}"
    done < <(
        for hash in "${!texts[@]}"; do
            printf '%s\t%s\n' "${crates[$hash]%%$'\n'*}" "$hash"
        done | LC_ALL=C sort | cut -f 2
    )
}

# The files around the program: tree, where it will be used, where completions of zsh and units go.
program_tree() {
    local tree=$1 prefix=$2 zsh=$3 binary=$4 page
    local share=$tree$prefix/share doc=$tree$prefix/share/doc/distlock
    install -D -m 755 "$binary" "$tree$prefix/bin/distlock"
    for page in man/*.[1578]; do
        install -D -m 644 "$page" "$share/man/man${page##*.}/${page##*/}"
    done
    mkdir -p "$share"/{bash-completion/completions,fish/vendor_completions.d,"$zsh"}
    "$work/distlock" completions bash >"$share/bash-completion/completions/distlock"
    "$work/distlock" completions fish >"$share/fish/vendor_completions.d/distlock.fish"
    "$work/distlock" completions zsh >"$share/$zsh/_distlock"
    mkdir -p "$tree$prefix/lib/systemd/system"
    sed "s|/usr/bin/|$prefix/bin/|" packaging/systemd/distlock.service \
        >"$tree$prefix/lib/systemd/system/distlock.service"
    install -m 644 packaging/systemd/distlock.socket "$tree$prefix/lib/systemd/system/"
    install -D -m 644 -t "$share/distlock" packaging/status.schema.json
    install -D -m 644 -t "$share/distlock/prometheus" packaging/prometheus/distlock.rules.yml
    install -D -m 644 -t "$share/distlock/grafana" packaging/grafana/distlock.json
    install -D -m 644 -t "$doc" README.md SECURITY.md
    install -D -m 644 -t "$doc/doc" doc/*.md doc/*.svg
    install -D -m 644 -t "$doc/doc/pictures" doc/pictures/*.svg
    install -D -m 644 -t "$doc/doc/tutorials" doc/tutorials/*.md
    install -D -m 644 -t "$doc/examples" packaging/distlock.toml
}

distlock_deb() {
    local tree=$work/deb
    program_tree "$tree" /usr zsh/vendor-completions "$work/distlock"
    mkdir "$tree/etc" "$tree/etc/distlock"
    install -D -m 755 -t "$tree/DEBIAN" packaging/debian/{postinst,prerm,postrm}
    deb distlock "$tree" "$tree/usr/bin/distlock" <<END
Section: utils
Suggests: bash-completion
Description: take turns with programs on this host or on others
 Runs a command while it holds a lock, like flock(1), among the programs of one
 host or of several, without a server: each host has an agent, and the agents
 agree with each other. Every holder gets a number that only grows, by which a
 resource can tell an old holder from the new one.
END
}

library_debs() {
    local all=$work/c shared=$work/shared dev=$work/dev libdir=usr/lib/$multiarch
    packaging/install-c.sh --prefix=/usr --libdir="/$libdir" --destdir="$all" \
        --profile="$profile"
    mkdir -p "$shared/$libdir" "$shared/DEBIAN" "$dev"
    cp -a "$all/." "$dev"
    mv "$dev/$libdir"/libdistlock.so.* "$shared/$libdir/"
    echo "libdistlock $soname libdistlock$soname (>= $deb_version)" >"$shared/DEBIAN/shlibs"
    echo "activate-noawait ldconfig" >"$shared/DEBIAN/triggers"

    deb "libdistlock$soname" "$shared" "$shared/$libdir/libdistlock.so.$version" <<END
Section: libs
Multi-Arch: same
Description: take turns with other processes - shared library
 Locks among the threads and processes of one host or of several, without a
 server, for C programs.
END
    deb libdistlock-dev "$dev" <<END
Section: libdevel
Depends: libdistlock$soname (= $deb_version)
Description: take turns with other processes - header and static library
 What is needed to build C programs with libdistlock: distlock.h, the static
 library, the pkg-config file and the manual page libdistlock(3).
END
}

# Makes the package `name` of `tree`. Its further control fields come on standard input; what the
# given files are linked with becomes its dependencies.
deb() {
    local name=$1 tree=$2
    shift 2
    local doc=$tree/usr/share/doc/$name depends=''
    mkdir -p "$doc" "$tree/DEBIAN"
    install -m 644 packaging/debian/copyright "$doc/copyright"
    gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
    if (($#)); then
        gzip -9n <"$work/third-party-licenses" >"$doc/third-party-licenses.gz"
        mkdir -p "$work/shlibdeps/debian"
        printf 'Source: distlock\n\nPackage: %s\nArchitecture: any\n' "$name" \
            >"$work/shlibdeps/debian/control"
        depends=$(cd "$work/shlibdeps" && dpkg-shlibdeps -O "$@")
        depends="Depends: ${depends#*=}"
    fi
    find "$tree" -path '*/man/*' -type f ! -name '*.gz' -exec gzip -9n {} +

    {
        printf 'Package: %s\nSource: distlock\nVersion: %s\n' "$name" "$deb_version"
        printf 'Architecture: %s\nMaintainer: %s\n' "$arch" "$maintainer"
        printf 'Installed-Size: %s\n' \
            "$(du -k -s --apparent-size --exclude=DEBIAN "$tree" | cut -f 1)"
        printf 'Priority: optional\nHomepage: https://github.com/distlock/distlock\n'
        [[ -z $depends ]] || printf '%s\n' "$depends"
        cat
    } >"$work/control"
    mv "$work/control" "$tree/DEBIAN/control"
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z |
        xargs -0 md5sum) >"$work/md5sums"
    mv "$work/md5sums" "$tree/DEBIAN/md5sums"
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/${name}_${deb_version}_$arch.deb"
}

# Linked with the C library of the machine it is built on, whose lookups of users and hosts would
# still need that library's plug-ins at run time: the program makes no such lookup, and
# packaging/check.sh shows that it runs where nothing else is installed.
tarball() {
    local name
    name=distlock-$version-$(uname -m)-linux-static
    local tree=$work/tarball/$name doc=$work/tarball/$name/share/doc/distlock
    program_tree "$work/static" /usr/local zsh/site-functions "$work/distlock-static"
    mkdir "$work/tarball"
    mv "$work/static/usr/local" "$tree"
    install -m 644 -t "$doc" CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$work/third-party-licenses"
    cat >"$doc/STATIC" <<END
bin/distlock is linked statically with the GNU C library, here
$(getconf GNU_LIBC_VERSION), which is under the LGPL 2.1 or later (https://www.gnu.org/software/libc/).
To link it with another build of that library, build distlock $version from its source:
packaging/build.sh in https://github.com/distlock/distlock.

To install:    tar -xf $name.tar.gz --strip-components=1 -C /usr/local
END
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        -C "$work/tarball" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
}

# The Python package, with the licences of what is compiled in; it has another tree of crates.
wheel() {
    licenses pydistlock python/Cargo.toml >python/THIRD-PARTY-LICENSES
    CARGO_TARGET_DIR=$(realpath -m "$target")/python maturin build --quiet --locked \
        --profile "$profile" --manifest-path python/Cargo.toml --out "$out"
}

main
