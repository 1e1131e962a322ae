#!/bin/sh
# Builds a program of llama.cpp once, natively, from the source package of
# llama-cpp-python, keeps it in the cache folder and prints its path.
#
#   llama_program.sh llama-bench | llama-server
#
# Exit codes: 1 it does not build; 2 usage; 6 the source package cannot be had;
# 7 it is not the expected one.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

die() {
    code=$1
    shift
    printf 'llama_program: %s\n' "$*" >&2
    exit "$code"
}

case ${1-} in
llama-bench) server=OFF ;;
llama-server) server=ON ;;
*) die 2 "usage: llama_program.sh llama-bench | llama-server" ;;
esac
name=$1
version=$("$root/bench/llama_source.sh" --version)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/quern/peers

build() {
    echo "llama_program: building $name, once (minutes)" >&2
    "$root/scripts/install-deps.sh" --bench >&2 || die 1 "packages are missing"
    "$root/bench/llama_source.sh" "$work" || exit $?
    log=$cache/build.log
    if ! {
        cmake -S "$work/src/vendor/llama.cpp" -B "$work/build" \
            -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
            -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_SERVER=$server &&
            cmake --build "$work/build" --target "$name" -j "$(nproc)"
    } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die 1 "$name does not build, see $log"
    fi
    cp "$work/build/bin/$name" "$program.part"
    mv -f "$program.part" "$program"
}

# A native build runs only on processors like the one that made it; one of other
# sources than these is no good either.
cpu=$( (uname -m && cat "$root/bench/llama_source.sh" &&
    grep -m 2 -E '^(model name|flags|Features)' /proc/cpuinfo) 2>/dev/null |
    cksum | cut -d ' ' -f 1)
program=$cache/$name-$version-$cpu
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [ ! -x "$program" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    build 9>&-
fi
printf '%s\n' "$program"
