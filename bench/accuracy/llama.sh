#!/bin/sh
# Builds llama-logits (llama_logits.cpp beside llama.cpp's sources) once, keeps
# it in the cache folder and prints its path, for accuracy.py --llama-logits.
#
# Exit codes: those of bench/llama_source.sh, and 1: it does not build.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/quern/peers
program=$cache/llama-logits-$("$root/bench/llama_source.sh" --version)

if [ ! -x "$program" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    mkdir -p "$cache"
    "$root/scripts/install-deps.sh" --bench >&2
    "$root/bench/llama_source.sh" "$work" || exit $?
    llama=$work/src/vendor/llama.cpp
    echo "accuracy: building llama.cpp, once (a few minutes)" >&2
    {
        cmake -S "$llama" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
            -DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DBUILD_SHARED_LIBS=OFF \
            -DLLAMA_CURL=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_SERVER=OFF &&
            cmake --build "$work/build" --target llama -j "$(nproc)" &&
            g++ -O2 -I"$llama/include" -I"$llama/ggml/include" \
                "$root/bench/accuracy/llama_logits.cpp" -o "$program.part" \
                -Wl,--start-group $(find "$work/build" -name '*.a') \
                -Wl,--end-group -lpthread -ldl
    } >"$cache/logits.log" 2>&1 || {
        tail -n 20 "$cache/logits.log" >&2
        exit 1
    }
    mv -f "$program.part" "$program"
fi
echo "$program"
