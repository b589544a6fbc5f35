#!/bin/bash
# scp FILE... USER@ADDRESS:PLACE: to a host of the stage. A new file has the mode of the old one, less what
# the umask takes; one that is there keeps its own.
set -euo pipefail
place=${!#}
address=${place%%:*} place=${place#*:}
pid=$(cat "/run/stage/${address#*@}.pid")
for file in "${@:1:$#-1}"; do
    # shellcheck disable=SC2016,SC2094 # the other shell expands it, and writes its own file
    nsenter --target "$pid" --mount -- bash -c '
        [[ ! -d $1 ]] || set -- "$1/$2" "$2" "$3"
        [[ -e $1 ]] || (umask 077; : >"$1"; chmod "$3" "$1")
        cat >"$1"' bash "$place" "${file##*/}" "$(stat -c %a "$file")" <"$file"
done
