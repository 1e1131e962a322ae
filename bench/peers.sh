#!/bin/sh
# Compares quern with llama.cpp on model files and this machine: builds
# llama-bench, then runs bench/peers.py, whose flags these are (--help).
#
# llama-bench is what bench/llama_program.sh makes.
#
#   --llama-bench PATH   use this one, build nothing
#   --build-only         build llama-bench, print its path, run nothing
#
# Exit codes: those of peers.py; 1 it does not build; 6 the source package
# cannot be had; 7 it is not the expected one.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

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

bench=$("$root/bench/llama_program.sh" llama-bench)
if [ "$build_only" = 1 ]; then
    printf '%s\n' "$bench"
    exit 0
fi
exec python3 "$root/bench/peers.py" --llama-bench "$bench" "$@"
