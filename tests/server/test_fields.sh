#!/bin/sh
# Each field of each route, and what it does: see fields.py.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD_DIR:-$root/build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -B "$root/tests/server/fields.py" \
    "${QUERN_TEST:-$build/quern-test}" "$root" "$scratch"
