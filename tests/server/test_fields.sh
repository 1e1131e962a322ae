#!/bin/sh
# Each field of each route: see fields.py.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD_DIR:-$root/build}
exec python3 -B "$root/tests/server/fields.py" \
    "${QUERN_TEST:-$build/quern-test}" "$root"
