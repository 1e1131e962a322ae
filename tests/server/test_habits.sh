#!/bin/sh
# What known clients send: see habits.py.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD_DIR:-$root/build}
exec python3 -B "$root/tests/server/habits.py" \
    "${QUERN_TEST:-$build/quern-test}" "$root"
