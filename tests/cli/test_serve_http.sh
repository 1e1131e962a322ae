#!/bin/sh
# quern serve's HTTP: see serve_http.py.  QUERN_TEST names the program that plays scripts.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

mkdir "$scratch/serve"
check "requests that are taken, refused and waited for" \
    python3 -B "$root/tests/cli/serve_http.py" "$quern" \
    "${QUERN_TEST:-$(dirname "$quern")/quern-test}" "$root" "$scratch/serve"

finish
