#!/bin/sh
# What each field of a request does: see effects.py.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD_DIR:-$root/build}
exec python3 -B "$root/tests/server/effects.py" \
    "${QUERN_TEST:-$build/quern-test}" "$root"
