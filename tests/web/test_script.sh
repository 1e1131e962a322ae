#!/bin/sh
# The page's script in a JavaScript engine (page.js); skipped where there is no
# node.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
node=$(command -v node || command -v nodejs || true)
if [ -z "$node" ]; then
    echo "skipped: no node"
    exit 77
fi
exec "$node" "$root/tests/web/page.js" "$root/src/web/page.html"
