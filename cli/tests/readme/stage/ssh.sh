#!/bin/bash
# ssh USER@ADDRESS COMMAND...: of a host of the stage.
set -euo pipefail
pid=$(cat "/run/stage/${1#*@}.pid")
shift
exec nsenter --target "$pid" --mount --net --uts -- bash -c "cd; $*"
