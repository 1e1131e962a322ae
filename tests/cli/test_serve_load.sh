#!/bin/sh
# quern serve under load: see serve_load.py.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

if grep -q '^QUERN_SANITIZE:STRING=.' \
    "${BUILD_DIR:-$root/build}/CMakeCache.txt" 2>/dev/null; then
    export SANITIZED=1
fi
mkdir "$scratch/serve"
check "honest requests get what they get alone" \
    python3 -B "$root/tests/cli/serve_load.py" "$quern" "$root" "$scratch/serve"

finish
