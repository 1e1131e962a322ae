#!/bin/sh
# Exceptions of the packages of OpenAI and Anthropic: see errors.py.
#
# Where the packages cannot be had it says so and counts as passed; with
# QUERN_NEED_SDKS=1 it fails.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD_DIR:-$root/build}

venv=$("$root/scripts/venv.sh" --sdk) || {
    echo "errors: skipped: no Python packages (scripts/venv.sh --sdk: exit $?)"
    [ "${QUERN_NEED_SDKS-0}" != 1 ]
    exit
}
exec "$venv/bin/python" -B "$root/tests/sdk/errors.py" \
    "${QUERN_TEST:-$build/quern-test}" "$root"
