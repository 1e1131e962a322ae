#!/bin/sh
# quern serve: see serve.py.  QUERN_TEST names the program that plays scripts.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

mkdir "$scratch/serve"
check "flags, sockets, keys and signals" \
    python3 -B "$root/tests/cli/serve.py" "$quern" \
    "${QUERN_TEST:-$(dirname "$quern")/quern-test}" "$root" "$scratch/serve"

finish
