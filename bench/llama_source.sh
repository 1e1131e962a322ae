#!/bin/sh
# Unpacks llama.cpp into FOLDER/src: the sources that the package
# llama-cpp-python carries (its vendor/llama.cpp).  What bench/peers.sh and
# bench/accuracy/llama.sh build comes from here.
#
#   llama_source.sh FOLDER
#   llama_source.sh --version
#
# Exit codes: 0; 2 usage; 6 the package cannot be had; 7 it is not the expected
# one.
set -eu

package=llama-cpp-python
version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

die() {
    code=$1
    shift
    printf 'llama_source: %s\n' "$*" >&2
    exit "$code"
}

[ $# -eq 1 ] || die 2 "usage: llama_source.sh FOLDER"
if [ "$1" = --version ]; then
    echo "$version"
    exit 0
fi
work=$1

# pip asks the build back end for the package's name; nothing is built.
pip3 download --quiet --no-deps --no-binary "$package" \
    --dest "$work" "$package==$version" >&2 ||
    die 6 "cannot download $package $version"
set -- "$work"/*.tar.gz
[ -f "$1" ] || die 6 "$package $version came without its sources"
sum=$(sha256sum <"$1")
[ "${sum%% *}" = "$sha256" ] || die 7 "$package $version: wrong sha256"
mkdir "$work/src"
tar -xzf "$1" -C "$work/src" --strip-components 1

# On processors with AMX, GCC 12 takes its _tile_loadconfig to read 8 bytes of
# the configuration and drops the stores of the rest, so that prompts end with a
# signal.  The compiler is told that all of it is read; nothing else changes.
tiles=$work/src/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp
sed 's/^ *_tile_loadconfig(&tc);/__asm__ volatile("" : : "r"(\&tc) : "memory");&/' \
    "$tiles" >"$tiles.new"
if cmp -s "$tiles" "$tiles.new"; then
    die 7 "$package $version: no place to mend in ${tiles##*/}"
fi
mv "$tiles.new" "$tiles"
