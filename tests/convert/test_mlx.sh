#!/bin/sh
# quern quantize against MLX's own quantizer.  Where the packages can't be had
# it says so and passes; tests/convert/test_quantize.sh has stored results.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
quern=${QUERN:-$root/build/quern}
if ! venv=$("$root/scripts/venv.sh" --mlx) ||
    ! "$venv/bin/python" -c 'import mlx.core, numpy' 2>/dev/null; then
    echo "skipped: no MLX on this machine"
    exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$venv/bin/python" "$root/tests/convert/check_mlx.py" "$quern" \
    "$root/tests/vectors/cases/fixtures/models/tiny" "$scratch"
