#!/usr/bin/env bash
# Builds the C library and installs it: header, static and shared library, pkg-config file, manual
# page. The shared library is linked here and not by cargo, because rustc has a version script of
# its own, which leaves no room for ours, and with it for versions of symbols.
set -euo pipefail

usage() {
    cat <<'END'
Usage: packaging/install-c.sh [OPTION=VALUE]...
  --prefix=DIR      where it will be used                  [/usr/local]
  --libdir=DIR      libraries, and below it pkg-config's   [PREFIX/lib]
  --includedir=DIR  the header                             [PREFIX/include]
  --mandir=DIR      the manual page                        [PREFIX/share/man]
  --destdir=DIR     goes before all of them while installing, for packages
  --profile=NAME    how cargo builds                       [release]
  --no-strip        leave debugging information in
The compiler is $CC or cc, and links with $LDFLAGS.
END
}

prefix=/usr/local libdir='' includedir='' mandir='' destdir='' profile=release strip=yes
for argument; do
    value=${argument#*=}
    case $argument in
        --prefix=*) prefix=$value ;;
        --libdir=*) libdir=$value ;;
        --includedir=*) includedir=$value ;;
        --mandir=*) mandir=$value ;;
        --destdir=*) destdir=$value ;;
        --profile=*) profile=$value ;;
        --no-strip) strip=no ;;
        --help) usage; exit ;;
        *) usage >&2; exit 64 ;;
    esac
done
libdir=${libdir:-$prefix/lib}
includedir=${includedir:-$prefix/include}
mandir=${mandir:-$prefix/share/man}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
soname=libdistlock.so.${version%%.*}
# What Rust's standard library needs of the system: `rustc --print native-static-libs`.
needs=(-lgcc_s -lpthread -lm -ldl -lc)

archive=$(cargo rustc --locked --package distlock --lib --crate-type staticlib \
    --features capi,etcd,postgresql,trace --profile "$profile" \
    --message-format json-render-diagnostics |
    grep -oE '"[^"]*/libdistlock\.a"' | tail -n 1 | tr -d '"')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$archive" "$work/libdistlock.a"
if [[ $strip == yes ]]; then
    strip --strip-debug "$work/libdistlock.a"
fi
# nodelete: threads of an open agent must not lose their code to dlclose(3).
read -ra ldflags <<<"${LDFLAGS:-}"
"${CC:-cc}" -shared -o "$work/libdistlock.so.$version" \
    -Wl,-soname,"$soname" -Wl,--version-script=packaging/libdistlock.map \
    -Wl,--whole-archive "$work/libdistlock.a" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,-z,nodelete,-z,relro,-z,now,-z,defs \
    ${ldflags[@]+"${ldflags[@]}"} "${needs[@]}"

cat >"$work/distlock.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=$includedir

Name: distlock
Description: Distributed mutual exclusion without a server
URL: https://github.com/distlock/distlock
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -ldistlock
Libs.private: ${needs[*]}
END

install -D -m 644 include/distlock.h "$destdir$includedir/distlock.h"
install -D -m 644 "$work/libdistlock.a" "$destdir$libdir/libdistlock.a"
install -D -m 644 "$work/libdistlock.so.$version" "$destdir$libdir/libdistlock.so.$version"
ln -sfn "libdistlock.so.$version" "$destdir$libdir/$soname"
ln -sfn "$soname" "$destdir$libdir/libdistlock.so"
install -D -m 644 "$work/distlock.pc" "$destdir$libdir/pkgconfig/distlock.pc"
install -D -m 644 man/libdistlock.3 "$destdir$mandir/man3/libdistlock.3"
