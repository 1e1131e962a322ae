#!/bin/sh
# quern serve with several models: see serve_models.py.  QUERN_TEST names the
# program that plays scripts.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

mkdir "$scratch/serve"
check "several models come and go" \
    python3 -B "$root/tests/cli/serve_models.py" "$quern" \
    "${QUERN_TEST:-$(dirname "$quern")/quern-test}" "$root" "$scratch/serve"

finish
