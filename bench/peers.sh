#!/bin/sh
# Compares quern with llama.cpp on model files and this machine: builds
# llama-bench, then runs bench/peers.py, whose flags these are (--help).
#
# llama.cpp is built once, natively, from the source package of
# llama-cpp-python (its vendor/llama.cpp, target llama-bench) and kept in the
# cache folder.
#
#   --llama-bench PATH   use this one, build nothing
#   --build-only         build llama-bench, print its path, run nothing
#
# Exit codes: those of peers.py; 1 it does not build; 6 the source package
# cannot be had; 7 it is not the expected one.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
package=llama-cpp-python
version=$("$root/bench/llama_source.sh" --version)

say() {
    printf 'peers: %s\n' "$*" >&2
}

die() {
    code=$1
    shift
    say "$@"
    exit "$code"
}

build=1
build_only=0
for argument; do
    case $argument in
    --llama-bench | --llama-bench=* | -h | --help) build=0 ;;
    --build-only) build_only=1 ;;
    esac
done
if [ "$build" = 0 ]; then
    exec python3 "$root/bench/peers.py" "$@"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

cache=${XDG_CACHE_HOME:-$HOME/.cache}/quern/peers

build_llama_bench() {
    say "building llama-bench from $package $version, once (a few minutes)"
    "$root/scripts/install-deps.sh" --bench ||
        die 1 "packages are missing"
    "$root/bench/llama_source.sh" "$work" || exit $?
    log=$cache/build.log
    if ! {
        cmake -S "$work/src/vendor/llama.cpp" -B "$work/build" \
            -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
            -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_SERVER=OFF &&
            cmake --build "$work/build" --target llama-bench -j "$(nproc)"
    } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die 1 "llama-bench does not build, see $log"
    fi
    cp "$work/build/bin/llama-bench" "$bench.part"
    mv -f "$bench.part" "$bench"
}

# A native build runs only on processors like the one that made it; one of other
# sources than these is no good either.
cpu=$( (uname -m && cat "$root/bench/llama_source.sh" &&
    grep -m 2 -E '^(model name|flags|Features)' /proc/cpuinfo) 2>/dev/null |
    cksum | cut -d ' ' -f 1)
bench=$cache/llama-bench-$version-$cpu
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
[ -x "$bench" ] || build_llama_bench 9>&-
exec 9>&-

if [ "$build_only" = 1 ]; then
    printf '%s\n' "$bench"
    exit 0
fi
rm -rf "$work"
exec python3 "$root/bench/peers.py" --llama-bench "$bench" "$@"
