#!/bin/sh
# The functions that libquern.so shows are those that quern.h declares.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A declaration begins at the start of a line; types end in a star or a space.
sed -n 's/^[a-z].*[ *]\(quern_[a-z_]*\)(.*/\1/p' \
    "$root/include/quern/quern.h" | grep -v '_fn$' | sort -u \
    >"$scratch/declared"
sed -n 's/^ *\(quern_[a-z_]*\);$/\1/p' "$root/cmake/libquern.map" | sort -u \
    >"$scratch/exported"
[ -s "$scratch/declared" ] || {
    echo "test_exports: found no declarations"
    exit 1
}
diff "$scratch/declared" "$scratch/exported" || {
    echo "test_exports: quern.h (<) and cmake/libquern.map (>) differ"
    exit 1
}
