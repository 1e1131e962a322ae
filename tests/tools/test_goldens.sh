#!/bin/sh
# The table of tiny models (tools/goldens/rows.py) can be read, and each model
# of tests/vectors/models has a row in it.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
rows=$root/tools/goldens/rows.py

python3 - "$rows" <<'PYTHON'
import ast, sys
for name in sys.argv[1:]:
    with open(name) as f:
        ast.parse(f.read(), name)
PYTHON

failed=0
for folder in "$root"/tests/vectors/models/*; do
    name=${folder##*/}
    if ! grep -q "\"$name\"" "$rows"; then
        echo "no row has the name $name" >&2
        failed=1
    fi
    for part in tensors.json golden.safetensors; do
        if [ ! -f "$folder/$part" ]; then
            echo "$name: $part is missing" >&2
            failed=1
        fi
    done
done
exit $failed
