#!/bin/sh
# Runs make.py with the packages of scripts/requirements-goldens.txt.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$("$root/scripts/venv.sh" --goldens)
PYTHONDONTWRITEBYTECODE=1 exec "$venv/bin/python" \
    "$root/tools/goldens/make.py" "$@"
