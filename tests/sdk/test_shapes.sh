#!/bin/sh
# Answers and streams, held to the types of OpenAI's and Anthropic's packages.
#
# Where the packages cannot be had it says so and counts as passed; with
# QUERN_NEED_SDKS=1 it fails.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD_DIR:-$root/build}

venv=$("$root/scripts/venv.sh" --sdk) || {
    echo "shapes: skipped: no Python packages (scripts/venv.sh --sdk: exit $?)"
    [ "${QUERN_NEED_SDKS-0}" != 1 ]
    exit
}
exec "$venv/bin/python" -B "$root/tests/sdk/shapes.py" \
    "${QUERN_TEST:-$build/quern-test}" "$root"
