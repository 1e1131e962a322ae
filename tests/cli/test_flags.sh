#!/bin/sh
# No flag is ever ignored: see flags.py.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

check "every command obeys every flag that it takes" \
    python3 "$root/tests/cli/flags.py" "$quern" "$root" "$scratch"

finish
