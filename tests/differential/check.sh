#!/bin/sh
# The differential test as `make check` runs it: 8,000 cases of a fixed seed.
#
#   check.sh [BUILD] [JOBS]     default build, the number of processors
#
# Where the packages cannot be had it says so and counts as passed; with
# QUERN_NEED_DIFFERENTIAL=1 it fails.  Any number of cases, other seeds:
# tests/differential/run.py --help.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}
jobs=${2:-$(nproc)}

skip() { # REASON
    echo "differential test: skipped: no Python packages ($1)"
    [ "${QUERN_NEED_DIFFERENTIAL-0}" != 1 ]
    exit
}

venv=$("$root/scripts/venv.sh" --mlx) ||
    skip "scripts/venv.sh --mlx: exit $?"
"$venv/bin/python" -c 'import mlx.core, numpy' 2>/dev/null ||
    skip "mlx does not run on this machine"
"$venv/bin/python" "$root/tests/differential/run.py" \
    --library "$build/libmlxc.so" --jobs "$jobs" --cases 8000
