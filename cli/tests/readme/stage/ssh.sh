#!/bin/bash
# ssh [-n] USER@ADDRESS COMMAND...: of a host of the stage.
set -euo pipefail
[[ $1 != -n ]] || { shift; exec </dev/null; }
pid=$(cat "/run/stage/${1#*@}.pid")
shift
exec nsenter --target "$pid" --mount --net --uts -- bash -c "cd; $*"
